"""Our manager of checkpoint files in the real JVM of a local session: it writes the same files as
Hadoop's manager, creates a name only once, and starts no process for a query's files.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError

from barnabas import LocalBroker
from barnabas.spark_connector.checkpoint_files import LOCAL_CLASS
from barnabas.spark_connector.session import MissingRequirementError, local_session, prepare

pytestmark = pytest.mark.deep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAKEN = "FileAlreadyExistsException"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session whose Java process has the umask 077, which would give files another mode than the
    0644 that Hadoop sets with chmod.
    """
    try:
        prepare()
    except MissingRequirementError as error:
        pytest.skip(str(error))
    _end_java()  # because the Java process of earlier tests has another umask
    before = os.umask(0o077)
    try:
        session = local_session(
            "files",
            cores=2,
            settings={"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"},
        )
        yield session
        session.stop()
    finally:
        os.umask(before)
        _end_java()


def _end_java() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None


class Files:
    """A directory with its checkpoint file manager, which is created as Spark creates it."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        jvm = spark.sparkContext._jvm
        self._directory, self._path = directory, jvm.org.apache.hadoop.fs.Path
        place = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        self.manager = place.create(self._path(directory), settings)
        assert self.manager.getClass().getName() == LOCAL_CLASS

    def write(self, name: str, text: str, *, overwrites: bool = False) -> Any:
        """Write a file's whole text, but do not close the stream. Gives: the stream, which the
        caller closes.
        """
        stream = self.manager.createAtomic(self._path(f"{self._directory}/{name}"), overwrites)
        stream.write(bytearray(text.encode()))
        return stream

    def read(self, name: str) -> str:
        stream = self.manager.open(self._path(f"{self._directory}/{name}"))
        text = bytes(stream.readAllBytes()).decode()
        stream.close()
        return text


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, str(tmp_path))


def test_a_file_and_its_checksum_as_hadoop_writes_them(files: Files, tmp_path: Path) -> None:
    files.write("7", "a plan").close()
    assert files.read("7") == (tmp_path / "7").read_text() == "a plan"
    assert sorted(each.name for each in tmp_path.iterdir()) == [".7.crc", "7"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}
    (tmp_path / "7").write_text("A plan")
    with pytest.raises(Py4JJavaError, match="ChecksumException"):
        files.read("7")


def test_a_name_is_given_once_unless_it_is_overwritten(files: Files, tmp_path: Path) -> None:
    first, second = files.write("8", "first"), files.write("8", "second")
    first.close()
    with pytest.raises(Py4JJavaError, match=TAKEN):
        second.close()
    assert files.read("8") == "first"
    files.write("8", "third", overwrites=True).close()
    assert files.read("8") == "third"


def test_a_cancelled_file_leaves_nothing(files: Files, tmp_path: Path) -> None:
    files.write("9", "a plan").cancel()
    assert not list(tmp_path.iterdir())


def test_of_two_drivers_at_the_same_moment_one_gets_the_name(files: Files) -> None:
    for number in range(30):
        streams = [files.write(f"{number}", who) for who in ("first", "second")]
        winners: list[int] = []

        def close(who: int, streams: list[Any] = streams, winners: list[int] = winners) -> None:
            try:
                streams[who].close()
            except Py4JJavaError as error:
                assert TAKEN in str(error)
            else:
                winners.append(who)

        threads = [threading.Thread(target=close, args=(who,)) for who in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1
        assert files.read(f"{number}") == ("first", "second")[winners[0]]


def test_a_query_with_state_starts_no_process_for_its_checkpoint(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    broker.create_topic("states", 2)
    where = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    checkpoint = tmp_path / "checkpoint"

    def run() -> int:
        """Write 20 rows and run a query that reads all available rows. Gives: the number of rows
        that the query has read.
        """
        write = spark.range(20).selectExpr("CAST(id % 7 AS STRING) AS value").write
        write.format("barnabas").options(**where, topic="states").mode("append").save()
        stream = spark.readStream.format("barnabas").options(**where, subscribe="states")
        query = (
            stream.option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "10")
            .load()
            .select("value")
            .dropDuplicates()
            .writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(each.numInputRows for each in query.recentProgress)

    assert run() == run() == 20  # the second run continues from the files of the first
    written = [each for each in checkpoint.rglob("*") if each.is_file()]
    assert {each.parent.name for each in written} >= {"offsets", "commits"}
    assert any("state" in each.parts for each in written)
    assert {stat.S_IMODE(each.stat().st_mode) for each in written} == {0o600}
