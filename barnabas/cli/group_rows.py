"""Groups as rows: state, members, and lag; and a phrase that describes what a group waits for.

`barnabas.group_lag` decides what is said of a group; this module asks the cluster for the facts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from barnabas.cli.client import groups as requests
from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.groups import SHARE, UNKNOWN_OFFSET, Committed, Group, Member
from barnabas.cli.errors import CommandError, missing
from barnabas.cli.offsets import describe_topics, list_offsets, partitions_of
from barnabas.group_lag import (
    AT_REST,
    TAIL_BYTES,
    Bounds,
    GroupPosition,
    PartitionLag,
    has_unread,
    is_tail,
    partition_lag,
    position,
    share_lag,
    status,
    total_lag,
)
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
    empty: Mapping[str, str] = MappingProxyType({}),
    missing_ok: bool = False,
) -> list[dict[str, Any]]:
    """State, members, partitions, lag and status of groups.

    Takes:  trend_s, if above 0, the time between two measurements that show whether the lag grows.
            empty, the protocols of groups that are known to have no members; their descriptions
            are not requested.
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
        row["status"] = with_trend(row["status"], row["lag_change"], trend_s)
    return rows


def is_waited_for(row: Mapping[str, Any]) -> bool:
    """Whether records wait for a group, or something is wrong with one of its offsets."""
    return row["status"] not in AT_REST


def _describe_groups(
    admin: ClusterClient, names: Sequence[str], empty: Mapping[str, str], missing_ok: bool
) -> list[dict[str, Any]]:
    """One measurement of `describe_groups`, without the trend."""
    asked = [
        Group(name, "Empty", empty[name], "")
        if name in empty
        else requests.describe_group(admin, name)
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
                known = [row.group for row in requests.list_groups(admin)]
                raise CommandError(missing("group", group.group, known, "barnabas groups list"))
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
    asked_for = set().union(*shown.values()).intersection(with_leader)
    bounds = {
        partition: Bounds(**found) for partition, found in list_offsets(admin, asked_for).items()
    }
    places = {
        group: {
            partition: GroupPosition(
                None if entry is None else entry.offset,
                bounds.get(partition),
                entry is not None and is_batch_number(entry.metadata),
            )
            for partition in sorted(shown[group])
            for entry in [committed[group].get(partition)]
        }
        for group in shown
    }
    _look_for_records(admin, list(places.values()))
    return [
        _share_group_row(admin, group)
        if group.protocol == SHARE
        else _group_row(group, places[group.group])
        for group in described
    ]


def _look_for_records(
    admin: ClusterClient, places: Iterable[dict[TopicPartition, GroupPosition]]
) -> None:
    """Find out where only markers and aborted records follow a group's position.

    Each partition is read once, from the lowest of these positions.
    """
    tails: dict[TopicPartition, list[tuple[int, int, dict[TopicPartition, GroupPosition]]]] = {}
    for of_group in places:
        for partition, place in of_group.items():
            bounds = place.bounds
            if place.is_batch_number or bounds is None or not is_tail(place.committed, bounds):
                continue
            start = position(place.committed, bounds)
            rows = tails.setdefault(partition, [])
            rows.append((start, bounds.last_stable_offset, of_group))
    if not tails:
        return
    from barnabas.cli.client.tails import read_tails

    first = {partition: min(row[0] for row in rows) for partition, rows in tails.items()}
    for partition, (data, aborted) in read_tails(admin, first, TAIL_BYTES).items():
        for start, end, of_group in tails[partition]:
            found = has_unread(data, aborted, start, end)
            of_group[partition] = of_group[partition]._replace(has_unread=found)


def _group_row(group: Group, places: Mapping[TopicPartition, GroupPosition]) -> dict[str, Any]:
    """The row of a group with committed offsets."""
    owners = {partition: member for member in group.members for partition in member.partitions}
    lags = {
        partition: partition_lag(place, is_assigned=partition in owners)
        for partition, place in places.items()
    }
    rows = [
        _partition_row(partition, place, lags[partition], owners.get(partition))
        for partition, place in places.items()
    ]
    is_simple = not group.protocol
    return {
        **_head(group, places),
        "partitions": rows,
        **_lag(group, list(lags.values()), is_simple),
    }


def _lag(group: Group, lags: Sequence[PartitionLag], is_simple: bool = False) -> dict[str, Any]:
    """How far a group is behind, and why."""
    text = status(group.state, len(group.members), is_simple, lags)
    return {"lag": total_lag(lags), "status": text}


def with_trend(text: str, change: int | None, trend_s: float) -> str:
    """The status of a group, and how its lag has changed in `trend_s`."""
    if change is None or text in AT_REST:
        return text
    if not change:
        return f"{text}, unchanged for {trend_s:g} s"
    return f"{text}, and {'grew' if change > 0 else 'shrank'} by {abs(change):,} in {trend_s:g} s"


def _head(described: Group, shown: Collection[TopicPartition]) -> dict[str, Any]:
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
    rows, lags = [], []
    for partition in sorted(offsets.keys() | clients.keys()):
        start, lag = (
            value if value != UNKNOWN_OFFSET else None for value in offsets.get(partition, unknown)
        )
        known = share_lag(start, lag, is_assigned=partition in clients)
        lags.append(known)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start_offset": start,
                "lag": known.lag,
                "situation": known.situation,
                "client_ids": sorted(clients.get(partition, ())),
            }
        )
    return {**_head(described, clients), "partitions": rows, **_lag(described, lags)}


def _member(member: Member, shown: Collection[TopicPartition]) -> dict[str, Any]:
    """A member of a group as a row, without partitions that do not exist."""
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host.removeprefix("/"),
        "partitions": [str(partition) for partition in member.partitions if partition in shown],
    }


def _partition_row(
    partition: TopicPartition, place: GroupPosition, lag: PartitionLag, owner: Member | None
) -> dict[str, Any]:
    """The row of a partition of a group."""
    bounds = place.bounds
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed_offset": place.committed,
        "last_stable_offset": None if bounds is None else bounds.last_stable_offset,
        "high_watermark": None if bounds is None else bounds.high_watermark,
        "lag": lag.lag,
        "situation": lag.situation,
        "held_back": lag.held,
        "micro_batch": place.is_batch_number,
        "client_id": None if owner is None else owner.client_id,
    }
