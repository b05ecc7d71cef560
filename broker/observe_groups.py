"""The members of a group, and the in-flight records of a share group, as values for JSON."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.observe import ROWS_AT_ONCE, Look
from barnabas.broker.share_partitions.in_flight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    Run,
)
from barnabas.coordinator.groups.classic.consumer_protocol import read_assignment
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_types import CONSUMER_TYPE, SHARE_TYPE, STREAMS_TYPE
from barnabas.protocol.messages.consumer_group_describe import Member as ConsumerMember
from barnabas.protocol.messages.share_group_describe import Member as ShareMember

if TYPE_CHECKING:  # loaded with the first share group
    from barnabas.broker.share_partitions.loaded_partition import LoadedPartition
    from barnabas.broker.share_partitions.shares import Shares

MOST_MEMBERS, MOST_RUNS = 200, 10_000


def describe_in_flight(
    shares: Shares, topics: TopicRegistry, group_id: str, now_ms: int
) -> Look[list[dict[str, Any]]]:
    """A share group's in-flight records, as at most MOST_RUNS ranges of records in the same state.

    Gives: rows. state: held (by a member), waiting (for another delivery), done or given up.
           left_ms: the time until a held record is released.
    """
    rows: list[dict[str, Any]] = []
    for name, indexes in _partitions_of(shares, topics, group_id).items():
        for loaded in indexes:
            yield
            for batch in loaded.value.batches():
                for run in batch.runs:
                    if len(rows) >= MOST_RUNS:
                        return rows
                    rows.append(_run_value(name, loaded.key.partition, run, now_ms))
                    if len(rows) % ROWS_AT_ONCE == 0:
                        yield
    return rows


def _partitions_of(
    shares: Shares, topics: TopicRegistry, group_id: str
) -> dict[str, list[LoadedPartition]]:
    """A group's loaded share partitions by topic, both sorted."""
    found: dict[str, list[LoadedPartition]] = {}
    for loaded in shares.partitions.of_group(group_id):
        if topics.partition(loaded.log.topic, loaded.log.partition) is loaded.log:
            found.setdefault(loaded.log.topic, []).append(loaded)
    return {name: sorted(found[name], key=lambda one: one.log.partition) for name in sorted(found)}


_STATES = {AVAILABLE: "waiting", ACQUIRED: "held", ACKNOWLEDGED: "done", ARCHIVED: "given up"}


def _run_value(topic: str, index: int, run: Run, now_ms: int) -> dict[str, Any]:
    """A run of records of a share group for JSON."""
    state = _STATES[run.state]
    return {
        "topic": topic,
        "partition": index,
        "first_offset": run.first_offset,
        "last_offset": run.last_offset,
        "state": state,
        "delivery_count": run.delivery_count,
        "member_id": run.member_id or None,
        "left_ms": max(0, run.deadline_ms - now_ms) if state == "held" else None,
    }


def describe_members(groups: GroupCoordinator, group_id: str) -> list[dict[str, Any]]:
    """The members of a group, at most MOST_MEMBERS; none for an unknown group."""
    group = groups.group(group_id)
    if group is None:
        return []
    if group.kind == STREAMS_TYPE:
        return _streams_members(groups, group)
    if group.kind == SHARE_TYPE:
        return _share_members(groups, group)
    if group.kind == CONSUMER_TYPE:
        return _consumer_members(groups, group)
    return _classic_members(group)


def _classic_members(group: Group) -> list[dict[str, Any]]:
    """The members of a classic group for JSON; an assignment that cannot be parsed is empty."""
    return [
        {
            "member_id": member.member_id,
            "client_id": member.client_id,
            "client_host": member.client_host.removeprefix("/"),
            "assignment": [
                [topic, index]
                for topic, indexes in (read_assignment(member.assignment) or {}).items()
                for index in indexes
            ],
        }
        for member in islice(group.classic.members.values(), MOST_MEMBERS)
    ]


def _consumer_members(groups: GroupCoordinator, group: Group) -> list[dict[str, Any]]:
    return [
        _member_value(one) for one in groups.describe_consumer_group(group, MOST_MEMBERS).members
    ]


def _share_members(groups: GroupCoordinator, group: Group) -> list[dict[str, Any]]:
    """The members of a share group; several members may have the same partition."""
    return [
        _member_value(one) for one in groups.share_requests.describe(group, MOST_MEMBERS).members
    ]


def _member_value(member: ConsumerMember | ShareMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "client_host": member.client_host.removeprefix("/"),
        "assignment": [
            [topic.topic_name, index]
            for topic in member.assignment.topic_partitions
            for index in topic.partitions
        ],
    }


def _streams_members(groups: GroupCoordinator, group: Group) -> list[dict[str, Any]]:
    """The members of a streams group, with the partitions that their active tasks read."""
    assigned = groups.streams_requests.assigned_partitions(group)
    return [
        {
            "member_id": member.member_id,
            "client_id": member.client_id,
            "client_host": member.client_host.removeprefix("/"),
            "assignment": [list(partition) for partition in assigned[member.member_id]],
        }
        for member in groups.streams_requests.describe(group, MOST_MEMBERS).members
    ]
