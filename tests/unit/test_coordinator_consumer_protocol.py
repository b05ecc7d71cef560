"""The topics of consumers' subscriptions; the bytes are encoded by kafka-python."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from barnabas.coordinator.consumer_protocol import (
    Subscription,
    read_subscription,
    subscribed_topics,
)


def encoded(version: int, *topics: str, user_data: bytes | None = b"sticky") -> bytes:
    owned = ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=[0, 1])
    subscription = ConsumerProtocolSubscription(
        topics=list(topics),
        user_data=user_data,
        owned_partitions=[owned],
        generation_id=7,
        rack_id="rack",
    )
    return bytes(subscription.encode(version=version))


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("topics", [(), ("t",), ("first", "zweitältestes", "")])
def test_the_topics_of_every_version_are_read(version: int, topics: tuple[str, ...]) -> None:
    assert subscribed_topics(encoded(version, *topics)) == list(topics)


@pytest.mark.parametrize("version", range(4))
def test_user_data_may_be_null_or_empty(version: int) -> None:
    assert subscribed_topics(encoded(version, "t", user_data=None)) == ["t"]
    assert subscribed_topics(encoded(version, "t", user_data=b"")) == ["t"]


def test_a_version_to_come_begins_like_the_first() -> None:
    assert subscribed_topics(b"\x7f\xff" + encoded(3, "t")[2:] + b"fields to come") == ["t"]


@pytest.mark.parametrize("user_data", [None, b"", b"sticky"])
def test_a_subscription_that_is_cut_off_is_none(user_data: bytes | None) -> None:
    whole = encoded(0, "t", "u", user_data=user_data)
    assert subscribed_topics(whole) == ["t", "u"]
    for size in range(len(whole)):
        assert subscribed_topics(whole[:size]) is None, size


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param("ffff 00000000 00000000", id="a negative version"),
        pytest.param("0000 ffffffff 00000000", id="a negative count of topics"),
        pytest.param("0000 00000001 ffff 00000000", id="a topic without a name"),
        pytest.param("0000 00000001 0001 74 00000002 78", id="user data beyond the end"),
        pytest.param("0000 00000001 0001 ff 00000000", id="a name that is no UTF-8"),
    ],
)
def test_bytes_that_are_no_subscription_are_none(metadata: str) -> None:
    assert subscribed_topics(bytes.fromhex(metadata)) is None


@pytest.mark.parametrize("version", range(4))
def test_each_version_tells_what_it_has_a_field_for(version: int) -> None:
    told = read_subscription(encoded(version, "t", "u"))
    assert told == Subscription(
        version,
        ("t", "u"),
        {"t": [0, 1]} if version >= 1 else {},
        "rack" if version >= 3 else None,
    )
