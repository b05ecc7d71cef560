"""The lakehouse example is killed and restarted: the Delta table and the Parquet files then have
each committed record once, and no aborted record.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from helpers.e2e_clients import create_topic, eventually
from helpers.processes import ROOT
from helpers.spark_queries import kill_session, spark_environment
from helpers.spark_reading import publish

from barnabas import LocalBroker
from barnabas.spark_connector.session import MissingRequirementError, prepare

pytestmark = pytest.mark.long
TURNS, EACH, KILLS = 60, 5, 2


def begin(broker: LocalBroker, topic: str, form: str, table: Path) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "examples/lakehouse/into_lakehouse.py"),
        *("--servers", broker.bootstrap_servers, "--topic", topic, "--form", form),
        *("--table", str(table), "--per-batch", "20"),
    ]
    with table.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=spark_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def commits_of(form: str, table: Path) -> int:
    log = table / ("_delta_log" if form == "delta" else "_spark_metadata")
    return len(list(log.glob("*"))) if log.exists() else 0


def values_in(form: str, table: Path) -> list[str]:
    """Read the values of a table without the code that wrote them, either with deltalake, or from
    the files that Spark's log names.
    """
    from deltalake import DeltaTable
    from pyarrow import parquet

    if form == "delta":
        found: list[str] = DeltaTable(str(table)).to_pyarrow_table()["value"].to_pylist()
        return found
    files = {
        json.loads(line)["path"]
        for log in (table / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()
        if line.startswith("{")
    }
    paths = [Path(name.removeprefix("file://").removeprefix("file:")) for name in sorted(files)]
    return [
        value
        for path in paths
        for value in parquet.ParquetFile(path).read(["value"])["value"].to_pylist()
    ]


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_each_committed_record_is_there_once_whatever_is_killed(
    broker: LocalBroker, tmp_path: Path, form: str
) -> None:
    try:
        prepare()
    except MissingRequirementError as error:
        pytest.skip(str(error))
    topic = create_topic(broker.bootstrap_servers, "orders")
    turns = [
        (
            "abort" if turn % 3 == 1 else "commit",
            [(0, b"k", b"%03d.%d" % (turn, number)) for number in range(EACH)],
        )
        for turn in range(TURNS)
    ]
    publish(broker, topic, turns)
    committed = [value.decode() for end, rows in turns if end == "commit" for _, _, value in rows]
    table = tmp_path / form
    for _ in range(KILLS):
        driver = begin(broker, topic, form, table)
        before = commits_of(form, table)
        try:
            eventually(
                lambda before=before, driver=driver: (
                    commits_of(form, table) >= before + 3 or driver.poll() is not None
                ),
                what="three more commits",
            )
            assert driver.poll() is None, table.with_suffix(".log").read_text()[-3000:]
        finally:
            kill_session(driver)
    driver = begin(broker, topic, form, table)
    try:
        assert driver.wait(600) == 0, table.with_suffix(".log").read_text()[-3000:]
    finally:
        kill_session(driver)
    assert Counter(values_in(form, table)) == Counter(committed)
