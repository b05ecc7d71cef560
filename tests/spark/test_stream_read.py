"""`spark.readStream.format("barnabas")` on a local Spark and a real broker: batches, restarts,
repeated batches, transactions, partitions and deletion.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.spark_reading import Query, publish

from barnabas import LocalBroker
from barnabas.spark import lag

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"stream-{next(_numbers)}"


def plain(first: int, end: int) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Records in two partitions alternately, each with its number as its value."""
    return [("plain", [(number % 2, None, b"%03d" % number) for number in range(first, end)])]


def numbers(first: int, end: int) -> list[str]:
    return [f"{number:03}" for number in range(first, end)]


def admin(broker: LocalBroker) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 2})


def delete_before(broker: LocalBroker, topic: str, partition: int, offset: int) -> None:
    """Delete the records before an offset immediately, as retention would do later."""
    from confluent_kafka import TopicPartition

    client = admin(broker)
    for future in client.delete_records([TopicPartition(topic, partition, offset)]).values():
        future.result(30)


def test_batches_restarts_and_replay(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    publish(broker, topic, plain(0, 20))
    query = Query(
        spark, broker, tmp_path, subscribe=topic, maxOffsetsPerTrigger="8", minPartitions="3"
    )
    progress = query.run().recentProgress
    assert query.batches == {0: [numbers(0, 8)], 1: [numbers(8, 16)], 2: [numbers(16, 20)]}
    last = progress[-1].sources[0]
    ends = [
        json.loads(offset)[topic]
        for offset in (last.startOffset, last.endOffset, last.latestOffset)
    ]
    assert ends == [{"0": 8, "1": 8}, {"0": 10, "1": 10}, {"0": 10, "1": 10}]
    assert lag(query.run()) == {topic: {0: 0, 1: 0}}

    publish(broker, topic, plain(20, 24))
    query.run()
    assert query.batches[3] == [numbers(20, 24)], (
        "a restart continues at the offsets of the checkpoint"
    )

    query.forget(3)
    publish(broker, topic, plain(24, 30))
    query.run()
    assert query.batches[3] == [numbers(20, 24)] * 2, (
        "the repeated batch has the same rows, although the topic has more"
    )
    assert query.batches[4] == [numbers(24, 30)]


def test_a_checkpoint_of_sparks_own_source_is_continued(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    """The JSON of such a checkpoint has neither topic ids nor whitespace, as
    docs/SPARK_MIGRATION.md describes.
    """
    publish(broker, topic, plain(0, 12))
    query = Query(spark, broker, tmp_path, subscribe=topic, maxOffsetsPerTrigger="8")
    query.run()
    for batch_id in (0, 1):
        path = tmp_path / "offsets" / str(batch_id)
        *head, offsets = path.read_text().split("\n")
        kept = {name: ends for name, ends in json.loads(offsets).items() if "#" not in name}
        assert kept.keys() == {topic} != json.loads(offsets).keys()
        path.write_text("\n".join([*head, json.dumps(kept, separators=(",", ":"))]))
        path.with_name(f".{batch_id}.crc").unlink()
    query.forget(1)
    publish(broker, topic, plain(12, 20))
    query.run()
    assert query.batches == {0: [numbers(0, 8)], 1: [numbers(8, 12)] * 2, 2: [numbers(12, 20)]}
    assert f'"{topic}#' in (tmp_path / "offsets" / "2").read_text()


def test_transactions(spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path) -> None:
    """Aborted records are never read. A batch completes even if its range has only aborted records,
    or ends with control records.
    """
    publish(
        broker,
        topic,
        [
            ("commit", [(0, None, b"c1"), (1, None, b"c2")]),
            ("abort", [(0, None, b"a%d" % n) for n in range(9)]),
        ],
    )
    query = Query(spark, broker, tmp_path, subscribe=topic)
    query.run()
    assert query.batches == {0: [["c1", "c2"]]}
    publish(broker, topic, [("abort", [(0, None, b"a")] * 3)])
    query.run()
    assert query.batches[1] == [[]]
    publish(broker, topic, [("abort", [(1, None, b"a")]), ("commit", [(0, None, b"c3")])])
    query.forget(1)
    last = query.run().lastProgress
    assert last is not None
    assert query.batches == {0: [["c1", "c2"]], 1: [[], []], 2: [["c3"]]}
    # The end offset counts the records and one marker of each transaction that wrote to the
    # partition.
    assert json.loads(last.sources[0].endOffset)[topic] == {"0": 2 + 10 + 4 + 2, "1": 2 + 2}


def test_a_running_query(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    """The query begins at the end, waits at an open transaction, finds new partitions and topics,
    and survives a restart of the broker.
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewPartitions

    with LocalBroker(settings={"num.partitions": "2"}) as own:
        publish(own, topic, plain(0, 4))
        options = {
            "subscribePattern": f"{topic}(-new)?",
            "startingOffsets": "latest",
            "kafka.metadata.max.age.ms": "100",
        }
        query = Query(spark, own, tmp_path, **options)
        running = query.begin()
        try:
            publish(own, topic, plain(4, 6))
            query.wait_for("004", "005")

            patient = {
                "transactional.id": topic + "-open",
                "transaction.timeout.ms": 600_000,
                "log_level": 2,
            }
            producer = Producer({"bootstrap.servers": own.bootstrap_servers, **patient})
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce(topic, b"open", partition=0)
            producer.flush()
            publish(own, topic, [("plain", [(0, None, b"after"), (1, None, b"beside")])])
            query.wait_for("beside")
            assert query.values == ["004", "005", "beside"], (
                "what is behind the open transaction waits"
            )
            producer.commit_transaction(30)
            query.wait_for("open", "after")

            client = admin(own)
            for future in client.create_partitions([NewPartitions(topic, 3)]).values():
                future.result(30)
            publish(own, topic, [("plain", [(2, None, b"partition")])])
            publish(own, topic + "-new", [("plain", [(1, None, b"topic")])])
            query.wait_for("partition", "topic")

            own.kill()
            own.restart()
            publish(own, topic, [("plain", [(2, None, b"restarted")])])
            query.wait_for("restarted")
        finally:
            running.stop()
    assert query.values == sorted(
        ["004", "005", "beside", "open", "after", "partition", "topic", "restarted"]
    ), "each once"


def test_records_deleted_under_a_running_query(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    publish(broker, topic, plain(0, 40))
    query = Query(spark, broker, tmp_path, subscribe=topic, maxOffsetsPerTrigger="20")
    # The records are deleted during the first batch.
    query.on_batch = lambda batch_id: delete_before(broker, topic, 0, 15)
    with pytest.raises(StreamingQueryException) as caught:
        query.run()
    said = str(caught.value)
    assert (
        f"the log of {topic}-0 begins at 15 now, not at 10, for the range [10, 20): records "
        "were deleted" in said
    )
    assert 'Set .option("failOnDataLoss", "false") to read the remaining records.' in said
    query.run(failOnDataLoss="false")
    left = [number for number in range(20, 40) if number % 2 or number // 2 >= 15]
    assert query.batches == {0: [numbers(0, 20)], 1: [[f"{number:03}" for number in left]]}


def test_a_topic_deleted_under_a_batch_that_is_run_again(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    """The batch is in the checkpoint. If the query could not skip it, it could never continue."""
    from pyspark.errors import StreamingQueryException

    other = topic + "-deleted"
    query = Query(spark, broker, tmp_path, subscribe=f"{topic},{other}", maxOffsetsPerTrigger="4")
    publish(broker, topic, plain(0, 4))
    publish(broker, other, plain(10, 14))
    query.run()
    query.forget(1)
    client = admin(broker)
    for future in client.delete_topics([other]).values():
        future.result(30)
    with pytest.raises(StreamingQueryException) as caught:
        query.run()
    assert (
        f"{other}-0 does not exist, and [1, 2) of it is in a batch that is repeated: records "
        "were deleted" in str(caught.value)
    )
    assert "Traceback" not in str(caught.value)
    publish(broker, topic, plain(4, 6))
    query.run(failOnDataLoss="false")
    assert query.batches[1] == [numbers(2, 4) + numbers(12, 14), numbers(2, 4)]
    assert query.batches[2] == [numbers(4, 6)]


def test_a_topic_that_was_deleted_and_made_again(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    """The new topic has more records than the old one, so offsets do not reveal the change."""
    from pyspark.errors import StreamingQueryException

    publish(broker, topic, plain(0, 4))
    query = Query(spark, broker, tmp_path, subscribe=topic, maxOffsetsPerTrigger="100")
    query.run()
    client = admin(broker)
    for future in client.delete_topics([topic]).values():
        future.result(30)
    publish(broker, topic, plain(50, 60))
    with pytest.raises(StreamingQueryException) as caught:
        query.run()
    assert f"topic '{topic}' was deleted and recreated, since it has another id" in str(
        caught.value
    )
    assert f"({topic}-0 at 2, {topic}-1 at 2)" in str(caught.value)
    query.run(failOnDataLoss="false")
    query.run()
    assert query.values == numbers(0, 4) + numbers(50, 60)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "OptionError: option endingOffsets is for batch reads"),
        ({"subscribe": "there-is-none"}, "topic 'there-is-none' does not exist"),
    ],
)
def test_errors(
    spark: SparkSession,
    broker: LocalBroker,
    topic: str,
    tmp_path: Path,
    options: dict[str, str],
    says: str,
) -> None:
    from pyspark.errors import PySparkException

    query = Query(spark, broker, tmp_path, **{"subscribe": topic} | options)
    with pytest.raises(PySparkException) as caught:
        query.run()
    assert says in str(caught.value)
    assert "Traceback" not in str(caught.value)
