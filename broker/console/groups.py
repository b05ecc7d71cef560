"""The members of a group as plain values, with the partitions that are assigned to each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.coordinator.groups.classic.consumer_protocol import read_assignment
from barnabas.coordinator.groups.group_types import SHARE_TYPE, STREAMS_TYPE

if TYPE_CHECKING:
    from barnabas.coordinator.groups.group import Group
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.protocol.messages.consumer_group_describe import Member as ConsumerMember
    from barnabas.protocol.messages.share_group_describe import Member as ShareMember

MOST_MEMBERS = 200


def describe_members(groups: GroupCoordinator, group_id: str) -> list[dict[str, Any]]:
    """The members of a group, at most MOST_MEMBERS; none for an unknown group."""
    group = groups.group(group_id)
    if group is None:
        return []
    if group.kind == STREAMS_TYPE:
        return _streams_members(groups, group)
    if group.kind == SHARE_TYPE:
        return _share_members(groups, group)
    return _consumer_members(groups, group) if group.is_consumer else _classic_members(group)


def _classic_members(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "member_id": member.member_id,
            "client_id": member.client_id,
            "client_host": member.client_host.removeprefix("/"),
            "assignment": [
                [topic, index]
                for topic, indexes in (read_assignment(member.member_assignment) or {}).items()
                for index in indexes
            ],
        }
        for member in group.classic.describe().members[:MOST_MEMBERS]
    ]


def _consumer_members(groups: GroupCoordinator, group: Group) -> list[dict[str, Any]]:
    return [_member(one) for one in groups.describe_consumer_group(group).members[:MOST_MEMBERS]]


def _share_members(groups: GroupCoordinator, group: Group) -> list[dict[str, Any]]:
    """The members of a share group; several may have a partition."""
    return [_member(one) for one in groups.share_requests.describe(group).members[:MOST_MEMBERS]]


def _member(member: ConsumerMember | ShareMember) -> dict[str, Any]:
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
        for member in groups.streams_requests.describe(group).members[:MOST_MEMBERS]
    ]
