"""Groups as rows: state, members, and lag; and a phrase that describes a group's lag.

The lag of a partition is the number of offsets between the committed offset and the partition's
end. Without a committed offset, it is the number of offsets that an open transaction holds back. A
Spark sink commits the number of its micro-batch as an offset, for which there is no lag.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from barnabas.cli.client import groups as requests
from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.groups import EMPTY_STATES, SHARE, UNKNOWN_OFFSET, Committed, Group, Member
from barnabas.cli.errors import CommandError
from barnabas.cli.offsets import describe_topics, list_offsets, partitions_of
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import is_batch_number


def committed_offsets(admin: ClusterClient, group: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group, by partition."""
    return {row: entry.offset for row, entry in requests.committed(admin, group).items()}


def describe_groups(
    admin: ClusterClient,
    names: Sequence[str],
    *,
    trend_s: float = 0.0,
    empty: Collection[str] = (),
    missing_ok: bool = False,
) -> list[dict[str, Any]]:
    """State, members, partitions, lag and status of groups.

    Takes:  trend_s, if above 0, the time between two measurements that show whether the lag grows.
            empty, groups that are known to have no members; their descriptions are not requested.
            missing_ok, whether to leave out groups that do not exist.
    Raises: CommandError for an unknown group.
    """
    rows = _describe_groups(admin, names, empty, missing_ok)
    before = {row["group"]: row["lag"] for row in rows}
    if trend_s > 0:
        time.sleep(trend_s)
        rows = _describe_groups(admin, names, empty, missing_ok)
    for row in rows:
        row["lag_change"] = row["lag"] - before.get(row["group"], 0) if trend_s > 0 else None
        row["status"] = status(row, trend_s)
    return rows


def _describe_groups(
    admin: ClusterClient, names: Sequence[str], empty: Collection[str], missing_ok: bool
) -> list[dict[str, Any]]:
    """One measurement of `describe_groups`, without the trend and the status."""
    asked = [
        Group(name, "Empty", "", "") if name in empty else requests.describe_group(admin, name)
        for name in names
    ]
    described = []
    committed: dict[str, dict[TopicPartition, Committed]] = {}
    for group in asked:
        if group.protocol != SHARE:
            found = requests.committed(admin, group.group)
            if group.state == "Dead" and not found:
                if missing_ok:
                    continue
                raise CommandError(
                    f"there is no group {group.group!r}: `barnabas groups list` shows all groups"
                )
            committed[group.group] = found
        described.append(group)
    topics = describe_topics(admin) if committed else []
    existing = set(partitions_of(topics))
    shown = {
        group.group: {
            *committed[group.group],
            *(row for member in group.members for row in member.partitions if row in existing),
        }
        for group in described
        if group.group in committed
    }
    with_leader = partitions_of(topics, with_leader=True)
    bounds = list_offsets(admin, set().union(*shown.values()).intersection(with_leader))
    rows = []
    for group in described:
        if group.protocol == SHARE:
            row = _share_group_row(admin, group)
        else:
            row = _group_row(group, committed[group.group], shown[group.group], bounds)
        row["lag"] = sum(partition["lag"] or 0 for partition in row["partitions"])
        rows.append(row)
    return rows


def _group_row(
    group: Group,
    committed: Mapping[TopicPartition, Committed],
    shown: set[TopicPartition],
    bounds: Mapping[TopicPartition, dict[str, int]],
) -> dict[str, Any]:
    """The row of a group with committed offsets. Takes: shown, the partitions for which the group
    has committed offsets, and those that are assigned to its members.
    """
    owners = {partition: member for member in group.members for partition in member.partitions}
    return {
        **_head(group, shown),
        "partitions": [
            _partition_row(partition, committed.get(partition), bounds.get(partition), owners)
            for partition in sorted(shown)
        ],
    }


def status(row: Mapping[str, Any], trend_s: float = 0.0) -> str:
    """A phrase that describes a group's lag.

    Takes: row, a row of `describe_groups`; trend_s, the time over which the row's `lag_change` was
    measured.
    """
    partitions, lag = row["partitions"], row["lag"]
    if not partitions:
        return (
            "no members, no committed offsets" if not row["members"] else "no committed offsets yet"
        )
    if all(partition.get("micro_batch") for partition in partitions):
        return "batch numbers of a Spark sink: no lag"
    if not lag:
        return "up to date"
    behind = f"{lag:,} behind"
    held = sum(min(part["lag"] or 0, part.get("held_back") or 0) for part in partitions)
    if row["state"] in EMPTY_STATES:
        behind += ", and no member continues"
    elif held == lag:
        behind += ", held back by an open transaction"
    elif held:
        behind += f", {held:,} of them held back by an open transaction"
    change = row.get("lag_change")
    if change is None:
        return behind
    if not change:
        return f"{behind}, unchanged for {trend_s:g} s"
    return f"{behind}, and {'grew' if change > 0 else 'shrank'} by {abs(change):,} in {trend_s:g} s"


def _head(described: Group, shown: set[TopicPartition]) -> dict[str, Any]:
    """The fields of a group that do not depend on its type."""
    return {
        "group": described.group,
        "state": described.state,
        "protocol": described.protocol,
        "assignor": described.assignor,
        "members": [_member(member, shown) for member in described.members],
    }


def _share_group_row(admin: ClusterClient, described: Group) -> dict[str, Any]:
    """A row for a share group, with the start offset and the number of unfinished records of each
    partition.

    A partition may be assigned to several members.
    """
    offsets = requests.share_offsets(admin, described.group)
    clients: dict[TopicPartition, list[str]] = {}
    for member in described.members:
        for partition in member.partitions:
            clients.setdefault(partition, []).append(member.client_id)
    unknown = requests.ShareStart(UNKNOWN_OFFSET, UNKNOWN_OFFSET)
    return {
        **_head(described, set(clients)),
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start_offset": start if start >= 0 else None,
                "lag": lag if lag >= 0 else None,
                "client_ids": sorted(clients.get(partition, ())),
            }
            for partition in sorted(offsets.keys() | clients.keys())
            for start, lag in [offsets.get(partition, unknown)]
        ],
    }


def _member(member: Member, shown: set[TopicPartition]) -> dict[str, Any]:
    """A member of a group as a row, without partitions that do not exist."""
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host.removeprefix("/"),
        "partitions": [str(partition) for partition in member.partitions if partition in shown],
    }


def _partition_row(
    partition: TopicPartition,
    entry: Committed | None,
    bounds: dict[str, int] | None,
    owners: dict[TopicPartition, Member],
) -> dict[str, Any]:
    """The row of a partition of a group. Without a committed offset, the lag is the number of
    offsets that an open transaction holds back; None if there are none.
    """
    committed = None if entry is None else entry.offset
    is_batch = entry is not None and is_batch_number(entry.metadata)
    end = None if bounds is None else bounds["high_watermark"]
    held = 0 if bounds is None else bounds["high_watermark"] - bounds["last_stable_offset"]
    owner = owners.get(partition)
    if committed is None:
        lag = held or None
    else:
        lag = None if is_batch or end is None else max(end - committed, 0)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed_offset": committed,
        "last_stable_offset": None if bounds is None else bounds["last_stable_offset"],
        "high_watermark": end,
        "lag": lag,
        "held_back": 0 if is_batch else held,
        "micro_batch": is_batch,
        "client_id": None if owner is None else owner.client_id,
    }
