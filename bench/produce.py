"""The broker's cost of receiving a million records of 1 KB, or three million of 100 bytes, from an
idempotent producer.
"""

from __future__ import annotations

from barnabas import LocalBroker
from bench.common import Row, create_topic, metered


def produce(broker: LocalBroker, topic: str, count: int, size: int, batch_bytes: int) -> None:
    """Publish `count` records of `size` bytes with librdkafka, in batches of up to
    `batch_bytes`.
    """
    from confluent_kafka import Producer

    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "batch.size": batch_bytes,
            "batch.num.messages": 100_000,
            "message.max.bytes": max(1_000_000, batch_bytes),
            "linger.ms": 100,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 400_000,
            "on_delivery": lambda error, _: failures.append(error) if error else None,
        }
    )
    value = b"x" * size
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number // 1000 % 4)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 2000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    assert not left and not failures, (left, failures[:3])


def run(scale: float = 1.0) -> list[Row]:
    """Measure records of 1 KB in batches of up to 1 MB, and of 100 B in batches of up to 200 KB,
    each after a warm-up, on 4 partitions.
    """
    rows = []
    for count, size, batch_bytes, kafka, probe in (
        (1_000_000, 1000, 1_000_000, "4.0 s (3.9-7.5)", "1.2 s (0.8-2.3)"),
        (3_000_000, 100, 200_000, "2.3 s", "0.43 s (0.38-0.75)"),
    ):
        count = int(count * scale)
        with LocalBroker(in_memory=False) as broker:
            create_topic(broker, "bench", 4)
            produce(broker, "bench", count // 20, size, batch_bytes)
            with metered(broker) as meter:
                produce(broker, "bench", count, size, batch_bytes)
        rows.append(
            Row(
                f"produce {count:,} x {size} B, idempotent",
                f"{meter.cpu_s:.2f} s",
                f"{meter.wall_s:.1f} s, {count / meter.wall_s:,.0f}/s, {meter.rss_mb:.0f} MB after",
                kafka,
                probe,
            )
        )
    return rows
