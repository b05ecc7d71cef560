"""The broker's cost of serving 2.8 GB to consumers."""

from __future__ import annotations

from barnabas import LocalBroker
from bench.common import Row, create_topic, metered
from bench.produce import produce


def consume(broker: LocalBroker, topic: str, partitions: int, count: int) -> None:
    """Read `count` records with librdkafka, from the start of all partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 1_048_576,
            "queued.max.messages.kbytes": 200_000,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    seen = 0
    while seen < count:
        messages = consumer.consume(10_000, timeout=30)
        assert messages, f"only {seen} of {count} records came"
        seen += len(messages)
    consumer.close()


def run(scale: float = 1.0) -> list[Row]:
    """Measure one read of records of 930 B from 4 partitions, in batches of 1 MB, after a
    warm-up.
    """
    count, size = int(3_000_000 * scale), 930
    with LocalBroker(in_memory=False) as broker:
        create_topic(broker, "bench", 4)
        produce(broker, "bench", count, size, 1_000_000)
        consume(broker, "bench", 4, count // 20)
        with metered(broker) as meter:
            consume(broker, "bench", 4, count)
    return [
        Row(
            f"consume {count:,} x {size} B",
            f"{meter.cpu_s:.2f} s",
            f"{meter.wall_s:.1f} s, {count / meter.wall_s:,.0f}/s, {meter.rss_mb:.0f} MB after",
            "0.84-1.7 s",
            "0.75 s (0.73-1.2)",
        )
    ]
