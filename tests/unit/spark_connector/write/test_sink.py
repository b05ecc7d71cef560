"""The location of the checkpoint for the sink, and the spool directory. After a committed batch the
spool directory is empty: files written by killed drivers and by zombies are deleted as well.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StringType, StructType

from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.checkpoint import Checkpoint, CheckpointPlace
from barnabas.spark_connector.write.deduplication import Trail
from barnabas.spark_connector.write.sink import BatchWriter, SinkError, StreamWriter, TaskMessage
from barnabas.spark_connector.write.sink_options import parse_sink_options
from barnabas.spark_connector.write.spool import SpoolWriter, to_message

SCHEMA = StructType().add("value", StringType())
NOTHING = TaskMessage("query", b"", None, 0)


def writer_of(**options: str) -> StreamWriter:
    return StreamWriter(
        parse_sink_options(
            {"kafka.bootstrap.servers": "x:1", "topic": "t", **options}, streaming=True
        ),
        SCHEMA,
    )


def spooled(directory: Path, batch_id: int, name: str = "0-0-abc") -> TaskMessage:
    """A task's message about a spool file that it wrote for the batch."""
    writer = SpoolWriter(str(directory / "query" / str(batch_id)), name)
    writer.append(EncodedRecordBatch("t", 0, 1, b"bytes"))
    return TaskMessage("query", b"", writer.close(), 1)


def files_in(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_batch_that_is_run_again_without_files_deletes_those_of_its_first_run(
    tmp_path: Path, scheme: str
) -> None:
    """The driver of the first run was killed after it wrote the files. The next driver writes no
    files, since it has larger inlineBytes, or its plan is not deterministic.
    """
    spooled(tmp_path / "barnabas-spool", 3)
    writer = writer_of(checkpointLocation=f"{scheme}{tmp_path}")
    writer.clean_up([replace(NOTHING, place=writer.place_of({}))], 3)
    assert files_in(tmp_path) == []


def test_files_of_earlier_batches_are_deleted_with_those_of_the_next_batch(tmp_path: Path) -> None:
    """After the commit of batch 3, tasks of a driver that has since died wrote files for this
    batch.
    """
    spool = tmp_path / "spool"
    for number in (3, 10, 11):
        spooled(spool, number, "late")
    (spool / "other" / "3").mkdir(parents=True)
    (spool / "other" / "3" / "kept.batches").write_bytes(b"of another query")
    writer_of(spoolDirectory=str(spool)).clean_up([NOTHING, spooled(spool, 10)], 10)
    assert files_in(spool) == ["other/3/kept.batches", "query/11/late.batches"]


def test_a_batch_write_without_a_name_leaves_no_directory(tmp_path: Path) -> None:
    options = parse_sink_options(
        {"kafka.bootstrap.servers": "x:1", "topic": "t", "spoolDirectory": str(tmp_path)},
        streaming=False,
    )
    for number in (0, 1):
        spooled(tmp_path, number)
    BatchWriter(options, SCHEMA).clean_up(
        [TaskMessage("query", b"", str(tmp_path / "query" / "0" / "0-0-abc.batches"), 1)], None
    )
    assert not list(tmp_path.iterdir())


def test_two_writes_of_a_batch_to_two_topics_do_not_delete_each_others_files(
    tmp_path: Path,
) -> None:
    """They have one writeId and one batchId, and may run at the same time."""
    one, two = (
        BatchWriter(
            parse_sink_options(
                {"kafka.bootstrap.servers": "x:1", "topic": topic, "writeId": "query"}
                | {"spoolDirectory": str(tmp_path)},
                streaming=False,
            ),
            SCHEMA,
        )
        for topic in ("one", "two")
    )
    message = TaskMessage("query", b"", None, 0)
    for writer in (one, two):
        directory = writer.spool_of(message.place, "query")
        spooled_file = SpoolWriter(f"{directory}/3", "0-0-abc")
        spooled_file.append(EncodedRecordBatch("t", 0, 1, b"bytes"))
        spooled_file.close()
    one.clean_up([message], 3)
    assert files_in(tmp_path) == ["query@two/3/0-0-abc.batches"]


def in_batch_3(checkpoint: Path) -> tuple[BatchWriter, TaskMessage]:
    """A write in foreachBatch, without rows, and the message of its task."""
    options = {"kafka.bootstrap.servers": "x:1", "topic": "t", "writeId": "w", "batchId": "3"}
    options["checkpointLocation"] = str(checkpoint)
    place = CheckpointPlace(str(checkpoint))
    message = TaskMessage("w", to_message([]), None, 0, run="run", place=place)
    return BatchWriter(parse_sink_options(options, streaming=False), SCHEMA), message


@pytest.mark.parametrize(
    ("query_id", "says"),
    [
        ("", "has no file metadata of Spark's with an id, where that of the query should be"),
        ("q", "has no file metadata of Spark's with an id, where that of query q should be"),
        ("other", "belongs to query q, where that of query other should be"),
        ("q", "has no file offsets/3, which Spark writes before the batch begins"),
        ("", "has no file offsets/3, which Spark writes before the batch begins"),
    ],
)
def test_the_checkpoint_of_a_write_in_for_each_batch_is_the_querys(
    tmp_path: Path, query_id: str, says: str
) -> None:
    """With Spark Connect the query's id is unknown."""
    if "no file metadata" not in says:
        (tmp_path / "metadata").write_text('{"id": "q"}')
    writer, message = in_batch_3(tmp_path)
    message.query_id = query_id
    with pytest.raises(SinkError, match=says):
        writer.commit([message])


def test_a_batch_without_rows_keeps_another_drivers_files_for_it(
    tmp_path: Path,
) -> None:
    """The batch may not be committed yet. If the plan is not deterministic, the other driver may
    have rows for the batch.
    """
    for number in (2, 3):
        spooled(tmp_path / "barnabas-spool", number)
    writer = writer_of(checkpointLocation=str(tmp_path))
    Checkpoint(str(tmp_path), "query").write(Trail("g", "run"))
    place = CheckpointPlace(str(tmp_path))
    writer.commit([TaskMessage("query", to_message([]), None, 0, run="run", place=place)], 3)
    assert files_in(tmp_path) == ["barnabas-published", "barnabas-spool/query/3/0-0-abc.batches"]


SESSION = {"spark.sql.streaming.checkpointLocation": "/all"}
CLUSTER = {"spark.hadoop.fs.defaultFS": "hdfs://nn"}


@pytest.mark.parametrize(
    ("options", "properties", "place", "spool"),
    [
        ({"checkpointLocation": "/ck"}, SESSION, CheckpointPlace("/ck"), "/ck/barnabas-spool"),
        (
            {"checkpointLocation": "/ck"},
            CLUSTER,
            CheckpointPlace("hdfs://nn/ck"),
            "hdfs://nn/ck/barnabas-spool",
        ),
        ({"queryName": "q"}, SESSION, CheckpointPlace("/all/q"), "/all/q/barnabas-spool"),
        (
            {"queryName": "q"},
            SESSION | CLUSTER,
            CheckpointPlace("hdfs://nn/all/q"),
            "hdfs://nn/all/q/barnabas-spool",
        ),
        ({}, SESSION, CheckpointPlace(root="/all"), "/all/barnabas-spool"),
        (
            {"spoolDirectory": "/spool", "checkpointLocation": "/ck"},
            CLUSTER,
            CheckpointPlace("hdfs://nn/ck"),
            "/spool",
        ),
    ],
)
def test_the_checkpoints_location_is_that_of_spark(
    options: dict[str, str], properties: dict[str, str], place: CheckpointPlace, spool: str
) -> None:
    writer = writer_of(**options)
    assert writer.place_of(properties) == place
    assert writer.spool_directory(place) == spool


def test_a_relative_checkpoint_is_below_the_drivers_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path must be made absolute on the driver, since tasks run in another working
    directory.
    """
    monkeypatch.chdir(tmp_path)
    writer = writer_of(checkpointLocation="checkpoints/mine")
    monkeypatch.chdir("/")
    assert writer.place_of({}) == CheckpointPlace(str(tmp_path / "checkpoints" / "mine"))


def test_a_batch_fails_if_the_checkpoint_lacks_sparks_metadata(tmp_path: Path) -> None:
    """Spark may use this path on another file system. The local directory is then empty."""
    message = TaskMessage("query", b"", None, 1, frozenset("t"), "", "run", CheckpointPlace("/ck"))
    message.place = CheckpointPlace(str(tmp_path / "ck"))
    says = r"batch 3 of query query was not published: the checkpoint at .*/ck has no file metadata"
    with pytest.raises(SinkError, match=says):
        writer_of(checkpointLocation="/ck").commit([message], 3)
    assert not list(tmp_path.iterdir())


def test_a_spool_directory_without_files_of_the_batch_is_not_accessed(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The driver may be unable to reach the directory. Without files, this does not matter."""
    for place in ("relative", "hdfs://nowhere:1/x", "unknown:/x", str(tmp_path / "missing")):
        writer_of(spoolDirectory=place).clean_up([NOTHING], 3)
    assert not caplog.records
    assert not list(tmp_path.iterdir())
