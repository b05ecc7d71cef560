"""What a start of the daemon loads: no more than it needs before the first request.

A start is to take 0.25 s of CPU and 35 MB, which no test can measure on a machine that does other
things as well. What it loads is nearly all of both, and is counted instead.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES_OF_OURS = 1_410_000  # of source; a request's own modules come with the first request
NOT_AT_START = (
    # the standard library: each took a hundredth of the start or more, or comes with one that did
    "email", "http", "importlib.metadata", "importlib.resources", "multiprocessing", "unittest",
    "urllib", "xml", "zipfile",
    # what some settings, commands or extras need
    "click", "cryptography", "kafka", "numba", "numpy", "pandas", "pyarrow", "pyspark",
    "barnabas.admin", "barnabas.broker.control", "barnabas.broker.handlers",
    "barnabas.broker.metrics", "barnabas.cli", "barnabas.control", "barnabas.local_broker",
    "barnabas.spark_connector", "barnabas.storage.cleaning.cleaner",
    "barnabas.storage.cleaning.segment_swap",
)  # fmt: skip
START = """
import sys
from barnabas.broker.rim.daemon import main
status = main.main(sys.argv[1:])
print("LOADED", *sys.modules)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules that are loaded when the daemon has listened, and ended."""
    directory = tmp_path_factory.mktemp("start")
    done = subprocess.run(
        [sys.executable, "-c", START, "start", "--port", "0", "--data-dir", str(directory / "data"),
         "--stop-at-end-of-input"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )  # fmt: skip
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED ")]
    assert "listens on" in done.stdout + done.stderr
    return set(line.split()[1:])


def test_a_start_loads_nothing_that_comes_later(loaded: set[str]) -> None:
    early = {
        name
        for name in loaded
        for later in NOT_AT_START
        if name == later or name.startswith(f"{later}.")
    }
    assert early == set()


def test_a_start_loads_little_code_of_ours(loaded: set[str]) -> None:
    """Bytes are counted, not modules: a module that is split into two costs a start no more."""
    files = {name: ROOT / f"{name.replace('.', '/')}.py" for name in loaded}
    sizes = {
        name: path.stat().st_size
        for name, path in files.items()
        if name.startswith("barnabas.") and path.is_file()
    }
    assert sum(sizes.values()) <= MOST_BYTES_OF_OURS, sizes
    assert len(sizes) > 80, "the daemon loads its modules under this name"
