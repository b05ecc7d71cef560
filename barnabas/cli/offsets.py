"""Partitions and their offsets, from the admin client, for several commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.cli.errors import CommandError
from barnabas.cli.options import Place
from barnabas.protocol.topic_partition import TopicPartition


def describe_topics(admin: Any, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """Topics by name, in order; None for all. Raises CommandError where one does not exist."""
    from kafka.errors import for_code

    found: list[dict[str, Any]] = admin.describe_topics(None if names is None else list(names))
    for topic in found:
        if topic["error_code"]:
            kind = for_code(topic["error_code"])
            if kind.__name__ == "UnknownTopicOrPartitionError":
                raise CommandError(
                    f"there is no topic {topic['name']!r}: `barnabas topics list` shows what there "
                    "is"
                )
            raise kind(f"topic {topic['name']}")
    return sorted(found, key=lambda topic: str(topic["name"]))


def partitions_of(
    topics: Iterable[dict[str, Any]], *, with_leader: bool = False
) -> list[TopicPartition]:
    """The partitions of described topics. with_leader: only those with a leader."""
    return sorted(
        TopicPartition(topic["name"], row["partition_index"])
        for topic in topics
        for row in topic["partitions"]
        if not with_leader or row["leader_id"] >= 0
    )


def topic_or_partition(admin: Any, name: str) -> list[TopicPartition]:
    """The partitions of the topic of that name; otherwise the partition TOPIC-N of that name."""
    known = {topic["name"]: topic for topic in admin.describe_topics()}
    if name in known:
        return partitions_of([known[name]])
    topic, _, partition = name.rpartition("-")
    if topic in known and partition.isdigit():
        partitions = [TopicPartition(topic, int(partition))]
        if partitions[0] in partitions_of([known[topic]]):
            return partitions
        count = len(known[topic]["partitions"])
        raise CommandError(f"the topic {topic!r} has {count} partitions, from 0 to {count - 1}")
    raise CommandError(f"there is no topic {name!r}: `barnabas topics list` shows all topics")


def client_partitions(partitions: Iterable[TopicPartition]) -> list[Any]:
    """Partitions in kafka-python's form."""
    from kafka import TopicPartition as ClientTopicPartition

    return [ClientTopicPartition(*partition) for partition in partitions]


def _list(admin: Any, specs: dict[TopicPartition, Any], **options: Any) -> dict[Any, Any]:
    from kafka import TopicPartition as ClientTopicPartition

    if not specs:
        return {}
    found: dict[Any, Any] = admin.list_partition_offsets(
        {ClientTopicPartition(*partition): spec for partition, spec in specs.items()}, **options
    )
    return found


def list_offsets(
    admin: Any, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, dict[str, int]]:
    """log_start_offset, last_stable_offset and high_watermark of each partition."""
    from kafka.admin import OffsetSpec

    wanted = sorted(partitions)
    earliest = _list(admin, dict.fromkeys(wanted, OffsetSpec.EARLIEST))
    stable = _list(
        admin,
        dict.fromkeys(wanted, OffsetSpec.LATEST),
        isolation_level="read_committed",
    )
    latest = _list(admin, dict.fromkeys(wanted, OffsetSpec.LATEST))
    return {
        partition: {
            "log_start_offset": earliest[partition].offset,
            "last_stable_offset": stable[partition].offset,
            "high_watermark": latest[partition].offset,
        }
        for partition in wanted
    }


def offsets_at(
    admin: Any, partitions: Iterable[TopicPartition], place: Place
) -> dict[TopicPartition, int]:
    """The offset of a place in each partition, limited to the partition's range.

    A time gives the first offset at or after it, or the end where all records are older.
    """
    found = {}
    bounds = list_offsets(admin, partitions)
    times: dict[Any, Any] = {}
    if place.kind == "time":
        times = _list(admin, dict.fromkeys(bounds, place.value))
    for partition, bound in bounds.items():
        first, end = bound["log_start_offset"], bound["high_watermark"]
        if place.kind == "earliest":
            found[partition] = first
        elif place.kind == "latest":
            found[partition] = end
        elif place.kind == "offset":
            found[partition] = min(max(place.value, first), end)
        else:
            offset = times[partition].offset
            found[partition] = end if offset is None or offset < 0 else offset
    return found
