"""A write is identified by its topic, its query, its number and its plan. Without an error, no row
is lost or duplicated.

In these tests, checkpoints are copied, restored from older copies, and used with another topic; the
offsets of a query's group expire; and foreachBatch writes to several topics.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from confluent_kafka.admin import AdminClient
from helpers.e2e_clients import create_topic, send_all, unique, values_of
from helpers.spark_driver import through_slow_starts

from barnabas import LocalBroker
from barnabas.spark_connector.write.checkpoint import NAME

pytestmark = pytest.mark.deep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Copying:
    """A streaming query with one checkpoint that copies its source. `limit` is the number of
    records in a batch.
    """

    def __init__(self, spark: SparkSession, broker: LocalBroker, checkpoint: Path) -> None:
        self.spark, self.servers, self.checkpoint = spark, broker.bootstrap_servers, checkpoint
        self.source = create_topic(self.servers, "source")
        self.sent, self.limit = 0, 3

    def send(self, count: int) -> list[bytes]:
        """Send more records to the source topic. Gives: the values of all records so far."""
        send_all(
            self.servers,
            self.source,
            [b"%03d" % number for number in range(self.sent, self.sent + count)],
        )
        self.sent += count
        return self.all

    @property
    def all(self) -> list[bytes]:
        return [b"%03d" % number for number in range(self.sent)]

    def rows(self) -> DataFrame:
        """The source topic as a stream of small batches."""
        reader = self.spark.readStream.format("barnabas").option(
            "kafka.bootstrap.servers", self.servers
        )
        return reader.options(
            subscribe=self.source,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(self.limit),
        ).load()

    def run(
        self,
        topic: str | None = None,
        *,
        columns: str = "value",
        checkpoint: Path | None = None,
        where: str = "true",
        **options: str,
    ) -> StreamingQuery:
        writer = (
            self.rows()
            .where(where)
            .selectExpr(*columns.split(";"))
            .writeStream.format("barnabas")
            .trigger(availableNow=True)
        )
        writer = writer.option("kafka.bootstrap.servers", self.servers).option(
            "checkpointLocation", str(checkpoint or self.checkpoint)
        )
        writer = (
            writer.options(**options) if topic is None else writer.options(topic=topic, **options)
        )
        return through_slow_starts(lambda: _finished(writer.start()))

    def run_each(
        self,
        write: Callable[[DataFrame, int], None],
        *,
        checkpoint: Path | None = None,
        where: str = "true",
    ) -> StreamingQuery:
        """Run the query with foreachBatch."""
        writer = self.rows().where(where).select("value").writeStream.foreachBatch(write)
        writer = writer.trigger(availableNow=True).option(
            "checkpointLocation", str(checkpoint or self.checkpoint)
        )
        return through_slow_starts(lambda: _finished(writer.start()))

    def forget_last(self) -> None:
        """Delete the last batch from Spark's commit log, as if the driver had died before Spark
        recorded the batch.
        """
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink()


def _finished(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(600), "the query does not end"
    return query


def fails(run: Callable[[], object], says: str) -> None:
    """Check that the query fails with this text."""
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        run()
    assert re.search(says, str(caught.value)), str(caught.value)


@pytest.fixture
def query(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> Copying:
    return Copying(spark, broker, tmp_path / "checkpoint")


def topic_of(query: Copying, name: str) -> str:
    return create_topic(query.servers, name)


def write_to(
    frame: DataFrame, servers: str, topic: str | None, name: str, batch_id: int, checkpoint: Path
) -> None:
    """Write a frame as one of the writes of a batch."""
    writer = (
        frame.write.format("barnabas")
        .mode("append")
        .option("kafka.bootstrap.servers", servers)
        .options(writeId=name, batchId=str(batch_id), checkpointLocation=str(checkpoint))
    )
    (writer if topic is None else writer.option("topic", topic)).save()


class Each:
    """A query that writes to a topic in foreachBatch, as the README of the connector shows it."""

    def __init__(self, query: Copying, topic: str) -> None:
        self.query, self.topic = query, topic

    def run(self, checkpoint: Path, *, limit: int, keep: str = "true") -> None:
        """Run the query on a checkpoint until it has read all records."""

        def write(frame: DataFrame, batch_id: int) -> None:
            query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            writer = frame.write.format("barnabas").mode("append")
            (
                writer.option("kafka.bootstrap.servers", self.query.servers)
                .options(topic=self.topic, writeId=query_id, batchId=str(batch_id))
                .option("checkpointLocation", str(checkpoint))
                .save()
            )

        self.query.limit = limit
        self.query.run_each(write, checkpoint=checkpoint, where=keep)

    @property
    def written(self) -> list[bytes]:
        return values_of(self.query.servers, self.topic)


def test_for_each_batch_goes_on_with_a_moved_checkpoint_and_after_a_crash(
    query: Copying, tmp_path: Path
) -> None:
    each = Each(query, topic_of(query, "sink"))
    query.send(6)
    each.run(query.checkpoint, limit=3)
    query.forget_last()
    query.checkpoint.rename(tmp_path / "moved")
    query.send(3)
    each.run(tmp_path / "moved", limit=3)
    assert each.written == query.all


def test_for_each_batch_refuses_a_checkpoint_that_was_restored_from_an_older_copy(
    query: Copying, tmp_path: Path
) -> None:
    """The repeated number has other rows than in its first run: more, or fewer."""
    for count, limit in ((3, 9), (0, 2)):
        each = Each(query, topic_of(query, "sink"))
        checkpoint, backup = tmp_path / f"checkpoint-{limit}", tmp_path / f"backup-{limit}"
        each.run(checkpoint, limit=9, keep="value < '000'")
        query.send(3)
        each.run(checkpoint, limit=99)
        shutil.copytree(checkpoint, backup)
        query.send(3)
        each.run(checkpoint, limit=3)
        written = each.written
        shutil.rmtree(checkpoint)
        backup.rename(checkpoint)
        query.send(count)
        fails(
            lambda each=each, checkpoint=checkpoint, limit=limit: each.run(checkpoint, limit=limit),
            "is committed already, to topic .*, and was planned with other offsets",
        )
        assert each.written == written


def test_for_each_batch_refuses_a_copy_of_a_checkpoint_once_the_other_query_went_on(
    query: Copying, tmp_path: Path
) -> None:
    """The original's next batch has no rows, so that the copy's batch of that number is written.
    The original must not write the rows of that batch again, under its next number.
    """
    each, copy = Each(query, topic_of(query, "sink")), tmp_path / "copy"
    query.send(3)
    each.run(query.checkpoint, limit=3)
    shutil.copytree(query.checkpoint, copy)
    query.send(3)
    each.run(query.checkpoint, limit=3, keep="value NOT IN ('003', '004', '005')")
    query.send(3)
    kept = "value NOT IN ('003', '004', '005')"
    each.run(copy, limit=9, keep=kept)
    written = each.written
    assert written == query.all[:3] + query.all[6:]
    fails(
        lambda: each.run(query.checkpoint, limit=9, keep=kept),
        "planned differently from this checkpoint's",
    )
    assert each.written == written


def test_for_each_batch_writes_to_two_topics(query: Copying) -> None:
    one, two = topic_of(query, "one"), topic_of(query, "two")
    name = unique("write")

    def write(frame: DataFrame, batch_id: int) -> None:
        for topic in (one, two):
            write_to(frame, query.servers, topic, name, batch_id, query.checkpoint)

    expected = query.send(6)
    query.run_each(write)
    query.forget_last()
    expected = query.send(3)
    query.run_each(write)
    assert values_of(query.servers, one) == values_of(query.servers, two) == expected


def test_a_write_in_for_each_batch_that_is_not_the_batchs_is_refused(query: Copying) -> None:
    """A name alone, or another number than the batch's, does not identify the batch."""
    topic, name = topic_of(query, "sink"), unique("write")
    query.send(3)

    def write(frame: DataFrame, batch_id: int) -> None:
        writer = frame.write.format("barnabas").mode("append").option("writeId", name)
        writer.options(**{"kafka.bootstrap.servers": query.servers}, topic=topic).save()

    fails(lambda: query.run_each(write), "is made in batch 0 of a query .*: give the batch's id")
    fails(
        lambda: query.run_each(
            lambda frame, batch_id: write_to(
                frame, query.servers, topic, name, batch_id + 1, query.checkpoint
            )
        ),
        "is made in batch 0 of a query .*: give the batch's id",
    )
    assert values_of(query.servers, topic) == []


def test_two_writes_with_topics_in_a_column_are_not_taken_for_one(query: Copying) -> None:
    one, two = topic_of(query, "one"), topic_of(query, "two")
    name = unique("write")

    def write(frame: DataFrame, batch_id: int) -> None:
        for topic in (one, two):
            write_to(
                frame.selectExpr("value", f"'{topic}' AS topic"),
                query.servers,
                None,
                name,
                batch_id,
                query.checkpoint,
            )

    query.send(3)
    fails(
        lambda: query.run_each(write),
        "two writes whose rows have their topic in a column need a writeId each",
    )
    assert values_of(query.servers, one) == query.all and values_of(query.servers, two) == []


def test_topics_in_a_column_and_a_batch_that_is_run_again(query: Copying) -> None:
    one, two = topic_of(query, "one"), topic_of(query, "two")
    columns = f"value;IF(CAST(value AS STRING) < '004', '{one}', '{two}') AS topic"
    query.send(6)
    query.run(columns=columns)
    query.forget_last()
    expected = query.send(3)
    query.run(columns=columns)
    assert (
        values_of(query.servers, one) == expected[:4]
        and values_of(query.servers, two) == expected[4:]
    )


def test_a_query_goes_on_with_another_topic(query: Copying) -> None:
    """The topic changes twice: first after a batch that was committed without Spark's knowledge,
    then after a batch that Spark has in its commit log.
    """
    old, new = topic_of(query, "old"), topic_of(query, "new")
    query.send(6)
    query.run(old)
    query.forget_last()
    expected = query.send(6)
    query.run(new)
    assert (
        values_of(query.servers, old) == expected[:6]
        and values_of(query.servers, new) == expected[6:]
    )
    expected = query.send(3)
    query.run(old)
    assert values_of(query.servers, old) == expected[:6] + expected[12:]


def test_a_copied_checkpoint_is_refused_when_both_go_on(query: Copying, tmp_path: Path) -> None:
    one, two = topic_of(query, "one"), topic_of(query, "two")
    query.send(3)
    query.run(one)
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    expected = query.send(3)
    query.run(one)
    fails(
        lambda: query.run(two, checkpoint=tmp_path / "copy"),
        f"committed already, to topic '{one}', and was planned",
    )
    assert values_of(query.servers, two) == []
    query.run(two, checkpoint=tmp_path / "copy", onUncertainBatch="write")
    assert (values_of(query.servers, one), values_of(query.servers, two)) == (
        expected,
        expected[3:],
    )


def test_a_checkpoint_that_was_restored_from_an_older_copy(query: Copying, tmp_path: Path) -> None:
    """The first batches that Spark plans again have the numbers of earlier batches, but other
    rows.
    """
    topic = topic_of(query, "sink")
    query.send(3)
    query.run(topic)
    shutil.copytree(query.checkpoint, tmp_path / "backup")
    query.send(6)
    query.run(topic)
    written = query.all
    shutil.rmtree(query.checkpoint)
    shutil.copytree(tmp_path / "backup", query.checkpoint)
    query.send(1)
    fails(
        lambda: query.run(topic),
        "batch 2 of this query is committed already, and Spark repeats only its last batch",
    )
    assert values_of(query.servers, topic) == written
    query.run(topic, onUncertainBatch="skip")
    assert values_of(query.servers, topic) == query.all, (
        "batches 1 and 2 were left out, and had the same rows here"
    )
    query.run(topic)
    assert values_of(query.servers, topic) == query.all
    shutil.rmtree(query.checkpoint)
    shutil.copytree(tmp_path / "backup", query.checkpoint)
    query.run(topic, onUncertainBatch="write")
    assert values_of(query.servers, topic) == query.all + query.all[3:], "on the user's word"
    query.send(3)
    query.run(topic)
    assert values_of(query.servers, topic)[-3:] == query.all[-3:], (
        "numbers go on from where they were set back to"
    )


def forget_group(query: Copying, query_id: str, suffix: str = "") -> None:
    """Delete the group's offsets, as the broker does if there was no commit for
    offsets.retention.minutes.
    """
    client = AdminClient({"bootstrap.servers": query.servers, "log_level": 2})
    group = f"barnabas-spark-{query_id}{suffix}"
    client.delete_consumer_groups([group])[group].result(30)


@pytest.mark.parametrize("on_uncertain", ["write", pytest.param("skip", marks=pytest.mark.long)])
def test_a_group_that_was_forgotten_after_a_crash_is_in_doubt(
    query: Copying, on_uncertain: str
) -> None:
    """The query was stopped for longer than offsets.retention.minutes. Its last batch had been
    committed without Spark's knowledge.
    """
    topic = topic_of(query, "sink")
    query.send(3)
    query_id = str(query.run(topic).id)
    assert (query.checkpoint / NAME).exists()
    query.forget_last()
    forget_group(query, query_id)
    fails(
        lambda: query.run(topic),
        r"an earlier attempt to publish this batch was interrupted.*"
        r"offsets\.retention\.minutes.*onUncertainBatch=write",
    )
    assert values_of(query.servers, topic) == query.all
    query.run(topic, onUncertainBatch=on_uncertain)
    again = query.all if on_uncertain == "write" else []
    assert values_of(query.servers, topic) == query.all + again
    first = query.all
    query.send(3)
    query.run(topic)
    assert values_of(query.servers, topic) == first + again + query.all[3:]


def test_a_query_goes_on_when_its_group_was_forgotten_between_batches(query: Copying) -> None:
    """Nothing is published for offsets.retention.minutes, as may happen with alerts or a weekly
    job. A copy of the checkpoint from before the last batch is still refused.
    """
    topic = topic_of(query, "sink")
    query.send(3)
    query_id = str(query.run(topic).id)
    backup = query.checkpoint.with_name("backup")
    shutil.copytree(query.checkpoint, backup)
    query.send(3)
    query.run(topic)
    forget_group(query, query_id)
    query.send(3)
    query.run(topic)
    assert values_of(query.servers, topic) == query.all
    forget_group(query, query_id)
    shutil.rmtree(query.checkpoint)
    shutil.copytree(backup, query.checkpoint)
    fails(lambda: query.run(topic), "was begun already, and planned differently")
    assert values_of(query.servers, topic) == query.all
    forget_group(query, query_id, "-begun")
    fails(lambda: query.run(topic), "the brokers have no batch now")


def passing_from(first: str) -> str:
    return f"CAST(value AS STRING) >= '{first}'"


def test_an_older_checkpoint_whose_first_batch_has_no_rows_is_refused(
    query: Copying, tmp_path: Path
) -> None:
    """Both the checkpoint that was restored from a backup and a copy of it in another directory are
    refused.
    """
    topic = topic_of(query, "sink")
    query.send(3)
    query.run(topic, where=passing_from("000"))
    for name in ("backup", "copy"):
        shutil.copytree(query.checkpoint, tmp_path / name)
    query.send(6)
    query.limit = 6  # one batch has the values 003 to 008, of which three pass the filter
    query.run(topic, where="value IN ('000', '001', '002', '006', '007', '008')")
    written = values_of(query.servers, topic)
    shutil.rmtree(query.checkpoint)
    shutil.copytree(tmp_path / "backup", query.checkpoint)
    query.limit = 3
    says = "committed already, to topic .*, and was planned"
    fails(lambda: query.run(topic, where=passing_from("006")), says)
    fails(
        lambda: query.run(topic, where=passing_from("006"), checkpoint=tmp_path / "copy"),
        says,
    )
    assert values_of(query.servers, topic) == written


def test_a_query_notices_that_a_copy_went_on_where_it_had_no_rows(
    query: Copying, tmp_path: Path
) -> None:
    """The query and a copy of its checkpoint both continue. The query's next batch has no rows, so
    it commits nothing, and the copy commits a batch of that number with rows. The query must then
    fail.
    """
    topic = topic_of(query, "sink")
    query.send(3)
    query.run(topic)
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    query.send(3)
    query.run(topic, where=passing_from("006"))
    query.send(3)
    query.limit = 9
    query.run(topic, checkpoint=tmp_path / "copy", where=passing_from("003"))
    fails(lambda: query.run(topic, where=passing_from("003")), "from this checkpoint's")
    assert values_of(query.servers, topic) == query.all


def test_a_query_whose_first_batches_have_no_rows_is_no_doubt(query: Copying) -> None:
    """The first batches have no rows and commit nothing. The first commit then has a batch number
    above 0, which must not be an error.
    """
    topic = topic_of(query, "sink")
    columns = "IF(CAST(value AS STRING) >= '006', value, NULL) AS value"
    writer = (
        query.rows()
        .selectExpr(columns)
        .where("value IS NOT NULL")
        .writeStream.format("barnabas")
        .trigger(availableNow=True)
    )
    writer = writer.options(topic=topic, checkpointLocation=str(query.checkpoint)).option(
        "kafka.bootstrap.servers", query.servers
    )
    query.send(9)
    through_slow_starts(lambda: _finished(writer.start()))
    assert values_of(query.servers, topic) == query.all[6:]
