"""Subscriptions and assignments of consumers, compared with bytes that kafka-python encodes and
decodes.
"""

from __future__ import annotations

import pytest
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from barnabas.coordinator.groups.classic.consumer_protocol import (
    LAST_VERSION,
    Subscription,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
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
def test_a_truncated_subscription_is_none(user_data: bytes | None) -> None:
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
def test_each_version_has_the_fields_that_it_defines(version: int) -> None:
    reported = read_subscription(encoded(version, "t", "u"))
    assert reported == Subscription(
        version,
        ("t", "u"),
        {"t": [0, 1]} if version >= 1 else {},
        "rack" if version >= 3 else None,
    )


def test_an_empty_rack_is_none() -> None:
    """librdkafka sends an empty rack if it has none, and Apache Kafka 4.3 then stores null."""
    subscription = ConsumerProtocolSubscription(
        topics=["t"], user_data=None, owned_partitions=[], generation_id=7, rack_id=""
    )
    read = read_subscription(bytes(subscription.encode(version=3)))
    assert read is not None and read.rack_id is None


@pytest.mark.parametrize("version", range(1, 4))
def test_a_truncated_subscription_of_a_later_version_is_none(version: int) -> None:
    whole = encoded(version, "t")
    for size in range(len(whole)):
        if version == 2 and size >= len(whole) - 4:
            continue  # only the optional generation is missing
        assert read_subscription(whole[:size]) is None, size


def test_a_consumer_without_a_rack_has_none() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["t"], user_data=None, owned_partitions=[], generation_id=7, rack_id=None
    )
    read = read_subscription(bytes(subscription.encode(version=3)))
    assert read == Subscription(3, ("t",), {}, None)


def test_owned_partitions_of_a_topic_that_is_named_twice_are_joined() -> None:
    """Apache Kafka's ConsumerProtocol joins the two lists of partitions."""
    row = ConsumerProtocolSubscription.TopicPartition
    named = [("t", 0), ("u", 5), ("t", 1)]
    owned = [row(topic=topic, partitions=[index]) for topic, index in named]
    subscription = ConsumerProtocolSubscription(
        topics=["t"], user_data=None, owned_partitions=owned, generation_id=7, rack_id=None
    )
    read = read_subscription(bytes(subscription.encode(version=3)))
    assert read is not None and read.owned == {"t": [0, 1], "u": [5]}


# --- assignments --------------------------------------------------------------------------------


def assignment(version: int, **partitions: list[int]) -> bytes:
    row = ConsumerProtocolAssignment.TopicPartition
    listed = [row(topic=topic, partitions=numbers) for topic, numbers in partitions.items()]
    written = ConsumerProtocolAssignment(assigned_partitions=listed, user_data=b"sticky")
    return bytes(written.encode(version=version))


@pytest.mark.parametrize("version", range(LAST_VERSION + 1))
def test_an_assignment_is_read(version: int) -> None:
    assert read_assignment(assignment(version, t=[0, 2], u=[])) == {"t": [0, 2], "u": []}
    assert read_assignment(b"") == {}


def test_assigned_partitions_of_a_topic_that_is_named_twice_are_joined() -> None:
    row = ConsumerProtocolAssignment.TopicPartition
    listed = [row(topic="t", partitions=[0]), row(topic="t", partitions=[2])]
    written = ConsumerProtocolAssignment(assigned_partitions=listed, user_data=b"")
    assert read_assignment(bytes(written.encode(version=0))) == {"t": [0, 2]}


@pytest.mark.parametrize("version", [-1, 0, LAST_VERSION, LAST_VERSION + 1])
def test_an_assignment_of_an_unknown_version_is_written_in_the_nearest_known_one(
    version: int,
) -> None:
    written = write_assignment(version, {"t": [0, 2], "u": []})
    known = min(max(version, 0), LAST_VERSION)
    assert int.from_bytes(written[:2], "big") == known
    decoded = ConsumerProtocolAssignment.decode(written, version=known)
    assert {row.topic: row.partitions for row in decoded.assigned_partitions} == {
        "t": [0, 2],
        "u": [],
    }
    assert decoded.user_data is None
    expected = ConsumerProtocolAssignment(
        assigned_partitions=decoded.assigned_partitions, user_data=None
    )
    assert written == bytes(expected.encode(version=known))


def test_a_truncated_assignment_is_none() -> None:
    whole = assignment(0, topic=[0, 1], u=[2])
    user_data = 4 + len(b"sticky")
    for size in range(1, len(whole) - user_data):
        assert read_assignment(whole[:size]) is None, size


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("ffff 00000000", id="a negative version"),
        pytest.param("0000 00000001 ffff 00000000", id="a topic without a name"),
        pytest.param("0000 00000001 0001 74 ffffffff", id="a negative count of partitions"),
        pytest.param("0000 00000001 0001 74 7fffffff 00000000", id="partitions beyond the end"),
        pytest.param("0000 00000001 0001 ff 00000000", id="a name that is no UTF-8"),
    ],
)
def test_bytes_that_are_no_assignment_are_none(data: str) -> None:
    assert read_assignment(bytes.fromhex(data)) is None
