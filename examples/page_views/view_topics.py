"""The topics of the example: functions that create them and read their committed records."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

INPUT = "page-views"
TIMEOUT_S = 30.0
# The times of the example's records are older than the default retention time. Without this
# setting, retention would delete these records.
KEPT = {"retention.ms": "-1"}
# Keeps the last revision of each key. The key consists of category and window.
COMPACTED = {"cleanup.policy": "compact"}
CLIENT: dict[str, Any] = {"log_level": 2, "metadata.recovery.strategy": "none"}


def make_topic(
    servers: str, name: str, *, partitions: int = 1, config: Mapping[str, str] = KEPT
) -> None:
    """Create the topic unless it exists. Raises: KafkaException."""
    admin = AdminClient({"bootstrap.servers": servers, **CLIENT})
    try:
        admin.create_topics([NewTopic(name, partitions, 1, config=dict(config))])[name].result(
            TIMEOUT_S
        )
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


class Found(NamedTuple):
    """One record."""

    offset: int
    key: str
    value: dict[str, Any]


def committed_in(servers: str, topic: str, start: int = 0) -> list[Found]:
    """Return the committed records from an offset to the end. Those of one partition are in order.

    Raises: TimeoutError if the end is not reached in time; KafkaException.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"reader-of-{topic}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        | {"enable.auto.commit": False, "fetch.wait.max.ms": 10, **CLIENT}
    )
    found: list[Found] = []
    try:
        unfinished = set(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, start) for partition in unfinished])
        deadline = time.monotonic() + TIMEOUT_S
        while unfinished:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the end of {topic} was not reached in {TIMEOUT_S:.0f} s")
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(
                    Found(
                        message.offset() or 0,
                        (message.key() or b"").decode(),
                        json.loads(message.value() or b"null"),
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found
