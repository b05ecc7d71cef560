"""The environment of processes that tests start from this checkout, the memory use of processes,
and measurements in a new process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """The environment of a process that imports this checkout and its tests."""
    inherited = os.environ.get("PYTHONPATH")
    paths = [
        str(ROOT),
        str(ROOT / "tests" / "tools"),
        str(ROOT / "tests"),
        *([inherited] if inherited else []),
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def rss_mb(pid: int) -> float:
    """The resident memory of a process in MB, or 0 if the process has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def measured_in_new_process(measure: Callable[..., int], *arguments: str) -> int:
    """The number that a function of a module gives in a new process. There, the memory that it
    measures is only its own: the process of the tests also has the threads, the garbage and the
    peaks of earlier tests.
    """
    script = (
        f"import sys; from {measure.__module__} import {measure.__name__} as measure; "
        "print(measure(*sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
