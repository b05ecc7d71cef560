"""Partitions and their offsets, from the admin client, for several commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.topics import EARLIEST, LATEST, NO_LEADER, name_of, offsets_by_time
from barnabas.cli.client.topics import describe_topics as described_topics
from barnabas.cli.errors import CommandError, RefusedError, missing
from barnabas.cli.options import OffsetSpec
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.metadata import MetadataResponseTopic
from barnabas.protocol.topic_partition import TopicPartition


def describe_topics(
    admin: ClusterClient, names: Sequence[str] | None = None
) -> list[MetadataResponseTopic]:
    """The topics with these names, in order; all topics if `names` is None.

    Raises: CommandError if a topic does not exist; RefusedError.
    """
    found = described_topics(admin, names)
    for topic in found:
        if topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise no_topic(admin, name_of(topic))
        if topic.error_code and names is not None:
            raise RefusedError(topic.error_code, "", name_of(topic))
    return sorted(found, key=name_of)


def partitions_of(
    topics: Iterable[MetadataResponseTopic], *, with_leader: bool = False
) -> list[TopicPartition]:
    """The partitions of described topics. with_leader: only those with a leader."""
    return sorted(
        TopicPartition(name_of(topic), row.partition_index)
        for topic in topics
        for row in topic.partitions
        if not with_leader or row.leader_id != NO_LEADER
    )


def topic_or_partition(admin: ClusterClient, name: str) -> list[TopicPartition]:
    """All partitions of the topic `name`. If there is no such topic, `name` is read as TOPIC-N,
    which names one partition.
    """
    topic, dash, number = name.rpartition("-")
    names = [name, topic] if dash and topic and number.isdigit() else [name]
    known, refused = {}, {}
    for found in described_topics(admin, names):
        if not found.error_code:
            known[name_of(found)] = found
        elif found.error_code not in _NOT_A_TOPIC:
            refused[name_of(found)] = RefusedError(found.error_code, "", name_of(found))
    if name in known:
        return partitions_of([known[name]])
    if topic in known:
        partitions = [TopicPartition(topic, int(number))]
        if partitions[0] in partitions_of([known[topic]]):
            return partitions
        count = len(known[topic].partitions)
        raise CommandError(f"the topic {topic!r} has {count} partitions, from 0 to {count - 1}")
    if refused:
        raise refused.get(topic) or refused[name]
    raise no_topic(admin, name)


def no_topic(admin: ClusterClient, name: str) -> CommandError:
    """The error for a topic that does not exist; it names a similar one."""
    known = [name_of(row) for row in described_topics(admin) if not row.error_code]
    return CommandError(missing("topic", name, known, "barnabas topics list"))


_NOT_A_TOPIC = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION)


def list_offsets(
    admin: ClusterClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, dict[str, int]]:
    """log_start_offset, last_stable_offset and high_watermark of each partition."""
    wanted = sorted(partitions)
    earliest = offsets_by_time(admin, dict.fromkeys(wanted, EARLIEST))
    stable = offsets_by_time(admin, dict.fromkeys(wanted, LATEST), read_committed=True)
    latest = offsets_by_time(admin, dict.fromkeys(wanted, LATEST))
    return {
        partition: {
            "log_start_offset": earliest[partition],
            "last_stable_offset": stable[partition],
            "high_watermark": latest[partition],
        }
        for partition in wanted
    }


def offsets_at(
    admin: ClusterClient, partitions: Iterable[TopicPartition], place: OffsetSpec
) -> dict[TopicPartition, int]:
    """The offset of a place in each partition, limited to the partition's range.

    For a time it is the offset of the first record at or after it, or the partition's end if all
    records are older.
    """
    found = {}
    bounds = list_offsets(admin, partitions)
    times: dict[TopicPartition, int] = {}
    if place.kind == "time":
        times = offsets_by_time(admin, dict.fromkeys(bounds, place.value))
    for partition, bound in bounds.items():
        first, end = bound["log_start_offset"], bound["high_watermark"]
        if place.kind == "earliest":
            found[partition] = first
        elif place.kind == "latest":
            found[partition] = end
        elif place.kind == "offset":
            found[partition] = min(max(place.value, first), end)
        else:
            offset = times[partition]
            found[partition] = end if offset < 0 else offset
    return found
