"""The installed packages occupy only the names `barnabas` and `pyspark_barnabas`, and work whatever
names users choose for their own modules.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TAKEN = ("broker", "coordinator", "protocol", "spark_connector", "storage")

SCRIPT = """
import protocol  # the user's own
assert protocol.MINE

from barnabas import LocalBroker
from pyspark.sql import SparkSession

with LocalBroker() as broker:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    rows = spark.range(7).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("barnabas").options(**options, topic="numbers").mode("append").save()
    frame = spark.read.format("barnabas").options(**options, subscribe="numbers").load()
    print("read", frame.count())
    spark.stop()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder with modules that have the same names as our folders."""
    for name in TAKEN[:3]:
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    for name in TAKEN[3:]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    return tmp_path


def wheel(folder: Path) -> list[str]:
    """Build a wheel from a copy of the files in git. Gives: the names of the files in the wheel."""
    source = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in listed.splitlines():
        path, copy = ROOT / name, source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            copy.symlink_to(os.readlink(path))
        elif path.is_file():
            copy.write_bytes(path.read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built).namelist()


def test_the_wheel_has_two_names_at_its_top(tmp_path: Path) -> None:
    names = [name for name in wheel(tmp_path) if ".dist-info/" not in name]
    assert {name.partition("/")[0] for name in names} == {"barnabas", "pyspark_barnabas.py"}
    for folder in TAKEN:
        modules = {path.name for path in (ROOT / folder).glob("*.py")}
        assert modules <= {name.removeprefix(f"barnabas/{folder}/") for name in names}
    assert not [name for name in names if "generator" in name], (
        "what makes the messages is not installed"
    )


def test_no_code_of_ours_goes_by_the_short_names() -> None:
    """An import by a short name would load a second copy of the module, with different classes."""
    pattern = rf"^\s*(from|import) ({'|'.join(TAKEN)})\b"
    searched = subprocess.run(
        ["git", "grep", "-nE", pattern, "--", "*.py", "*.md", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [
        line
        for line in searched.stdout.splitlines()
        if "tests/spark/test_names_of_users.py" not in line
    ]
    assert not found


def test_the_command_starts_beside_modules_of_the_same_names(project: Path) -> None:
    command = Path(sys.executable).parent / "barnabas"
    done = subprocess.run(
        [str(command), "start", "--help"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert "--data-dir" in done.stdout


@pytest.mark.long
def test_a_script_beside_modules_of_the_same_names_reads_and_writes_by_spark(project: Path) -> None:
    """The session is created as PySpark creates it: it finds an installed `barnabas`
    automatically.
    """
    (project / "job.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": ".", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "read 7"
