"""The sink's files are in Spark's checkpoint and nowhere else, even if the checkpoint is on a
default file system that is not the local one (viewfs here, in place of HDFS), or below a directory
that is set for the whole session.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from helpers.e2e_clients import create_topic, send_all, values_of
from helpers.spark_driver import through_slow_starts

from barnabas import LocalBroker
from barnabas.spark_connector.write.checkpoint import NAME

pytestmark = pytest.mark.deep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

MOUNT = f"/cluster-{os.getpid()}"
# Spark's file manager for a local file system. The manager that Spark would choose for viewfs needs
# another interface of Hadoop.
FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real directory, which viewfs mounts at MOUNT."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def spark(root: Path) -> Iterator[SparkSession]:
    from barnabas.spark_connector.session import MissingRequirementError, local_session, prepare

    try:
        prepare()
    except MissingRequirementError as error:
        pytest.skip(str(error))
    session = local_session(
        "paths",
        cores=1,
        settings={
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "1",
            "spark.hadoop.fs.defaultFS": "viewfs://c/",
            f"spark.hadoop.fs.viewfs.mounttable.c.link.{MOUNT}": f"file://{root}",
            "spark.hadoop.fs.viewfs.mounttable.c.link./tmp": "file:///tmp",
            "spark.sql.warehouse.dir": "file:///tmp/warehouse",
            "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
        },
    )
    yield session
    session.stop()


class Copying:
    """A query that copies a topic; each run copies all available records."""

    def __init__(self, spark: SparkSession, broker: LocalBroker) -> None:
        self.spark, self.servers = spark, broker.bootstrap_servers
        self.source, self.sink = (create_topic(self.servers, name) for name in ("source", "sink"))
        self.expected: list[bytes] = []

    def send(self, *values: bytes) -> None:
        send_all(self.servers, self.source, list(values))
        self.expected += values

    def run(self, *, name: str | None = None, **options: str) -> StreamingQuery:
        reader = self.spark.readStream.format("barnabas")
        rows = reader.options(subscribe=self.source, startingOffsets="earliest").option(
            "kafka.bootstrap.servers", self.servers
        )
        writer = rows.load().select("value").writeStream.format("barnabas")
        writer = writer.options(topic=self.sink, inlineBytes="0", **options).option(
            "kafka.bootstrap.servers", self.servers
        )
        writer = writer if name is None else writer.queryName(name)

        def finished() -> StreamingQuery:
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(600), "the query does not end"
            return query

        return through_slow_starts(finished)

    def refused(self, says: str, *, name: str | None = None, **options: str) -> None:
        from pyspark.errors import StreamingQueryException

        with pytest.raises(StreamingQueryException) as caught:
            self.run(name=name, **options)
        assert re.search(says, str(caught.value)), str(caught.value)

    @property
    def written(self) -> list[bytes | None]:
        return values_of(self.servers, self.sink)


def restore(backup: Path, checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)


OLDER = "committed already, to topic .*, and was planned"


def test_a_checkpoint_on_the_default_file_system(
    spark: SparkSession, broker: LocalBroker, root: Path
) -> None:
    """The sink's trail and its spool files are in the checkpoint, and an older copy of the
    checkpoint is refused.
    """
    query, place = Copying(spark, broker), f"{MOUNT}/ck"
    query.send(b"1")
    query.run(checkpointLocation=place)
    assert {"metadata", "offsets", NAME} <= {path.name for path in (root / "ck").iterdir()}
    assert not Path(MOUNT).exists(), "nothing is on the disk of the driver"
    shutil.copytree(root / "ck", root / "backup")
    query.send(b"2")
    query.run(checkpointLocation=place)
    assert query.written == query.expected
    restore(root / "backup", root / "ck")
    query.send(b"3")
    query.refused(OLDER, checkpointLocation=place)
    assert query.written == query.expected[:2] and not Path(MOUNT).exists()


def test_a_checkpoint_that_is_set_for_the_session(
    spark: SparkSession, broker: LocalBroker, root: Path
) -> None:
    """The sink finds the checkpoint by the query's name, or by its id if the query has no name."""
    spark.conf.set("spark.sql.streaming.checkpointLocation", f"{MOUNT}/session")
    try:
        query = Copying(spark, broker)
        query.send(b"1")
        query.run(name="named")
        checkpoint = root / "session" / "named"
        assert (checkpoint / NAME).exists()
        shutil.copytree(checkpoint, root / "named-backup")
        query.send(b"2")
        query.run(name="named")
        restore(root / "named-backup", checkpoint)
        query.send(b"3")
        query.refused(OLDER, name="named")
        assert query.written == query.expected[:2]
        other = Copying(spark, broker)
        other.send(b"1")
        other.run()
        (found,) = (root / "session").glob(f"*-*-*/{NAME}")
        assert other.written == [b"1"] and found.exists()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


def test_a_checkpoint_that_the_sink_cannot_find_ends_the_query_before_it_publishes(
    spark: SparkSession, broker: LocalBroker, root: Path
) -> None:
    """This happens if a program changes Hadoop's settings in the JVM. Tasks do not see such
    changes, so Spark would write to one file system, and the sink to another.
    """
    query = Copying(spark, broker)
    query.send(b"1")
    name = f"fs.viewfs.mounttable.c.link.{MOUNT}"
    hidden = {"spark.hadoop." + name: "file:///nowhere"}
    for key, value in hidden.items():
        spark.conf.set(key, value)
    try:
        query.refused(
            r"batch 0 of query .* was not published: the checkpoint at /nowhere/hidden has no file "
            "metadata.*checkpointLocation as a URI",
            checkpointLocation=f"{MOUNT}/hidden",
            spoolDirectory=str(root / "spool"),
        )
        assert query.written == []
        query.run(
            checkpointLocation=f"{MOUNT}/hidden",
            spoolDirectory=str(root / "spool"),
            compareCheckpoint="false",
        )
        assert query.written == [b"1"]
    finally:
        for key in hidden:
            spark.conf.unset(key)
