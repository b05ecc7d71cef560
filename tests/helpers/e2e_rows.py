"""All records of a partition as a client reads them. Tests compare them with records that were read
from Apache Kafka.
"""

from __future__ import annotations

import time

import confluent_kafka
import kafka

from helpers.e2e_clients import PATIENCE_S, consumer

Row = tuple[
    int, int, str | None, str | None, list[list[str]]
]  # offset, timestamp, key, value, headers


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def rows_by_confluent(servers: str, topic: str, partition: int, *, committed: bool) -> list[Row]:
    """The partition's records as confluent-kafka reads them."""
    reader = consumer(
        servers,
        isolation_level=f"read_{'' if committed else 'un'}committed",
        enable_partition_eof=True,
    )
    reader.assign(
        [confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)]
    )
    rows: list[Row] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            assert time.monotonic() < deadline, (
                f"{topic}-{partition} has no end; {len(rows)} records so far"
            )
            message = reader.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return rows
                assert error.retriable(), error
                continue
            headers = [[name, (value or b"").decode()] for name, value in message.headers() or []]
            rows.append(
                (
                    message.offset(),
                    message.timestamp()[1],
                    text(message.key()),
                    text(message.value()),
                    headers,
                )
            )
    finally:
        reader.close()


def rows_by_kafka_python(servers: str, topic: str, partition: int, *, committed: bool) -> list[Row]:
    """The partition's records as kafka-python reads them."""
    reader = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        isolation_level=f"read_{'' if committed else 'un'}committed",
        fetch_max_wait_ms=50,
    )
    rows: list[Row] = []
    place = kafka.TopicPartition(topic, partition)
    deadline = time.monotonic() + PATIENCE_S
    try:
        reader.assign([place])
        reader.seek_to_beginning(place)
        end = reader.end_offsets([place])[place]
        while reader.position(place) < end:
            assert time.monotonic() < deadline, (
                f"{topic}-{partition}: at {reader.position(place)} of {end}; {len(rows)} records "
                "so far"
            )
            for records in reader.poll(timeout_ms=200).values():
                for record in records:
                    headers = [[name, (value or b"").decode()] for name, value in record.headers]
                    rows.append(
                        (
                            record.offset,
                            record.timestamp,
                            text(record.key),
                            text(record.value),
                            headers,
                        )
                    )
        return rows
    finally:
        reader.close()


READERS = [rows_by_confluent, rows_by_kafka_python]
