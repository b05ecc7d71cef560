"""`barnabas groups`: list, describe, reset-offsets, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from barnabas.cli.client import groups as requests
from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.groups import EMPTY_STATES, SHARE, UNKNOWN_OFFSET, Committed, Group, Member
from barnabas.cli.cluster import Connection
from barnabas.cli.errors import ERROR, OK, CommandError, RefusedError, explain
from barnabas.cli.offsets import (
    describe_topics,
    list_offsets,
    offsets_at,
    partitions_of,
    topic_or_partition,
)
from barnabas.cli.options import (
    PLACE,
    Place,
    confirm,
    connection_options,
    dry_run_option,
    examples,
    json_option,
    yes_option,
)
from barnabas.cli.output import Column, Output, note
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text, is_batch_number

_PARTITION_COLUMNS = (Column("topic", "TOPIC", "name"), Column("partition", "PARTITION"))


def committed_offsets(admin: ClusterClient, group: str) -> dict[TopicPartition, int]:
    """The committed offsets of a group, by partition."""
    return {row: entry.offset for row, entry in requests.committed(admin, group).items()}


@click.group()
def groups() -> None:
    """Groups: list, describe with lag and members, reset offsets, delete."""


@groups.command(
    "list", epilog=examples("barnabas groups list", "barnabas groups list --state Empty")
)
@click.option("--state", "states", multiple=True, help="Only groups in that state, such as Stable.")
@connection_options
@json_option
def list_groups(connection: Connection, output: Output, states: Sequence[str]) -> None:
    """List groups."""
    with connection.admin() as admin:
        listed = requests.list_groups(admin)
    wanted = {state.lower() for state in states}
    rows = [
        {"group": row.group, "state": row.state, "protocol": row.protocol, "type": row.type}
        for row in listed
        if not wanted or str(row.state).lower() in wanted
    ]
    if output.as_json:
        output.data(rows)
        return
    columns = [
        Column("group", "GROUP", "name"),
        Column("state", "STATE"),
        Column("protocol", "PROTOCOL"),
        Column("type", "TYPE"),
    ]
    output.table(rows, columns, "no groups")


@groups.command(
    "describe",
    epilog=examples("barnabas groups describe kitchen", "barnabas groups describe --json"),
)
@click.argument("names", metavar="[GROUP]...", nargs=-1)
@connection_options
@json_option
def describe(connection: Connection, output: Output, names: Sequence[str]) -> None:
    """Describe groups.

    Their state, lag of each partition, and members. Without a name: all groups. The lag is the
    number of offsets between the committed one and the partition's end. A reader with
    isolation.level=read_committed stops at the last stable offset.
    """
    with connection.admin() as admin:
        if not names:
            names = [row.group for row in requests.list_groups(admin)]
        rows = [describe_group(admin, name) for name in names]
    if output.as_json:
        output.data(rows)
        return
    if not rows:
        note("no groups")
    for row in rows:
        _print_group(output, row)


def describe_group(admin: ClusterClient, name: str) -> dict[str, Any]:
    """State, members and partitions of a group. Raises CommandError for an unknown group."""
    described = requests.describe_group(admin, name)
    if described.protocol == SHARE:
        return _share_group_row(admin, described)
    committed = requests.committed(admin, name)
    if described.state == "Dead" and not committed:
        raise CommandError(f"there is no group {name!r}: `barnabas groups list` shows all groups")
    owners = {partition: member for member in described.members for partition in member.partitions}
    topics = describe_topics(admin)
    known = {*committed, *owners}.intersection(partitions_of(topics, with_leader=True))
    bounds = list_offsets(admin, known)
    shown = {*committed, *owners.keys() & set(partitions_of(topics))}
    return {
        **_head(described, shown),
        "partitions": [
            _partition_row(partition, committed.get(partition), bounds.get(partition), owners)
            for partition in sorted(shown)
        ],
    }


def _head(described: Group, shown: set[TopicPartition]) -> dict[str, Any]:
    return {
        "group": described.group,
        "state": described.state,
        "protocol": described.protocol,
        "assignor": described.assignor,
        "members": [_member(member, shown) for member in described.members],
    }


def _share_group_row(admin: ClusterClient, described: Group) -> dict[str, Any]:
    """A row for a share group: where it starts, and how many records it has not finished.

    Several members may have a partition.
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
    """A row for a partition.

    A member without a committed offset that waits behind an open transaction is behind by what the
    transaction holds back. An offset that is the number of a micro-batch has no lag.
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


def _print_group(output: Output, row: dict[str, Any]) -> None:
    output.heading(row["group"])
    lag = sum(partition["lag"] or 0 for partition in row["partitions"])
    pairs = [("state", row["state"]), ("assignor", row["assignor"]), ("lag", lag)]
    output.fields([*pairs, ("members", len(row["members"]))])
    if row["protocol"] == SHARE:
        columns = [Column("start_offset", "START"), Column("lag", "LAG")]
        columns.append(Column("client_ids", "CLIENTS"))
        output.table(row["partitions"], [*_PARTITION_COLUMNS, *columns])
        _print_members(output, row)
        return
    for partition in row["partitions"]:
        _note_on(f"{partition['topic']}-{partition['partition']}", partition)
    output.table(
        row["partitions"],
        [
            *_PARTITION_COLUMNS,
            Column("committed_offset", "COMMITTED"),
            Column("last_stable_offset", "LAST STABLE"),
            Column("high_watermark", "END"),
            Column("lag", "LAG"),
            Column("client_id", "CLIENT"),
        ],
    )
    _print_members(output, row)


def _print_members(output: Output, row: dict[str, Any]) -> None:
    output.table(
        row["members"],
        [
            Column("member_id", "MEMBER"),
            Column("client_id", "CLIENT"),
            Column("client_host", "HOST"),
            Column("partitions", "PARTITIONS"),
        ],
    )


def _note_on(name: str, row: dict[str, Any]) -> None:
    """Say what the numbers of a partition do not."""
    if row["micro_batch"]:
        number = row["committed_offset"]
        note(f"{name}: {number} is the number of a micro-batch of a Spark sink, and no offset")
    elif row["held_back"]:
        note(
            f"{name}: an open transaction holds back {count_text(row['held_back'], 'offset')}; "
            f"`barnabas txn why-stuck {name}` shows its owner",
            "warning",
        )


@groups.command(
    "reset-offsets",
    epilog=examples(
        "barnabas groups reset-offsets kitchen --topic orders --to earliest --dry-run",
        "barnabas groups reset-offsets kitchen --topic orders-0 --to 1500 --yes",
        "barnabas groups reset-offsets kitchen --to 2026-11-22T14:00:00 --yes",
        "barnabas groups reset-offsets kitchen --shift-by -100 --yes",
    ),
)
@click.argument("group")
@click.option(
    "-t",
    "--topic",
    "names",
    metavar="TOPIC|TOPIC-PARTITION",
    multiple=True,
    help="Which; without it, all that the group has committed.",
)
@click.option("--to", "place", type=PLACE, help="earliest, latest, an offset, or a time.")
@click.option("--shift-by", type=int, help="So many offsets on, or back where it is negative.")
@dry_run_option
@yes_option
@connection_options
@json_option
def reset_offsets(
    connection: Connection,
    output: Output,
    group: str,
    names: Sequence[str],
    place: Place | None,
    shift_by: int | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Commit other offsets for a group, or let a share group start at others.

    The group must have no members now. The changes are shown first; on a terminal you are asked to
    confirm.
    """
    if (place is None) == (shift_by is None):
        raise click.UsageError("say where to: either --to PLACE or --shift-by N")
    with connection.admin() as admin:
        is_share = requests.describe_group(admin, group).protocol == SHARE
        committed = _start_offsets(admin, group) if is_share else committed_offsets(admin, group)
        rows = _plan(admin, committed, names, place, shift_by)
        if not rows:
            raise CommandError(f"the group {group!r} has committed nothing: name topics with -t")
        if output.as_json and not yes and not dry_run:
            raise click.UsageError("--json needs --yes or --dry-run")
        if not output.as_json:
            _print_plan(output, rows)
        if not dry_run:
            _refuse_members(admin, group)
            confirm(f"Commit these offsets for {group}?", yes=yes)
            (_set_starts if is_share else _commit)(admin, group, rows)
    if output.as_json:
        output.data({"group": group, "dry_run": dry_run, "partitions": rows})
    elif dry_run:
        note("nothing was changed (--dry-run)")
    failed = [row for row in rows if row["error"]]
    for row in failed:
        note(f"barnabas: {row['topic']}-{row['partition']}: {row['error']}", "bad")
    return ERROR if failed else OK


def _start_offsets(admin: ClusterClient, group: str) -> dict[TopicPartition, int]:
    """Where a share group starts, by partition; those where it has not read yet are left out."""
    return {
        partition: start
        for partition, (start, _) in sorted(requests.share_offsets(admin, group).items())
        if start >= 0
    }


def _set_starts(admin: ClusterClient, group: str, rows: list[dict[str, Any]]) -> None:
    _note_errors(rows, requests.alter_share_offsets(admin, group, _wanted(rows)))


def _wanted(rows: list[dict[str, Any]]) -> dict[TopicPartition, int]:
    return {TopicPartition(row["topic"], row["partition"]): row["new_offset"] for row in rows}


def _note_errors(rows: list[dict[str, Any]], codes: Mapping[TopicPartition, int]) -> None:
    for row in rows:
        code = codes.get(TopicPartition(row["topic"], row["partition"]), 0)
        row["error"] = explain(RefusedError(code, "", row["topic"])) if code else None


def _plan(
    admin: ClusterClient,
    committed: dict[TopicPartition, int],
    names: Sequence[str],
    place: Place | None,
    shift_by: int | None,
) -> list[dict[str, Any]]:
    """A row for each partition: its current offset, and the new one."""
    partitions: list[TopicPartition] = []
    for name in names:
        partitions += topic_or_partition(admin, name)
    if not names:
        describe_topics(admin, sorted({partition.topic for partition in committed}))
        partitions = list(committed)
    targets = (
        _shifted(admin, partitions, committed, shift_by or 0)
        if place is None
        else offsets_at(admin, partitions, place)
    )
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed_offset": committed.get(partition),
            "new_offset": targets[partition],
            "error": None,
        }
        for partition in sorted(targets)
    ]


def _shifted(
    admin: ClusterClient,
    partitions: Iterable[TopicPartition],
    committed: dict[TopicPartition, int],
    shift_by: int,
) -> dict[TopicPartition, int]:
    bounds = list_offsets(admin, partitions)
    lacking = [str(partition) for partition in bounds if partition not in committed]
    if lacking:
        raise CommandError(
            f"nothing is committed for {', '.join(lacking)}, so there is nothing to shift: use --to"
        )
    return {
        partition: min(
            max(committed[partition] + shift_by, bound["log_start_offset"]),
            bound["high_watermark"],
        )
        for partition, bound in bounds.items()
    }


def _print_plan(output: Output, rows: list[dict[str, Any]]) -> None:
    output.table(
        rows,
        [
            Column("topic", "TOPIC", "name"),
            Column("partition", "PARTITION"),
            Column("committed_offset", "COMMITTED"),
            Column("new_offset", "NEW"),
        ],
    )


def _refuse_members(admin: ClusterClient, group: str) -> None:
    described = requests.describe_group(admin, group)
    if described.state not in EMPTY_STATES:
        count = count_text(len(described.members), "member")
        raise CommandError(
            f"the group {group!r} is {described.state} with {count}, which would "
            "overwrite the new offsets: stop its consumers and try again"
        )


def _commit(admin: ClusterClient, group: str, rows: list[dict[str, Any]]) -> None:
    _note_errors(rows, requests.commit(admin, group, _wanted(rows)))


@groups.command(
    "delete", epilog=examples("barnabas groups delete kitchen", "barnabas groups delete a b --yes")
)
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@yes_option
@connection_options
@json_option
def delete(connection: Connection, output: Output, names: Sequence[str], yes: bool) -> int:
    """Delete groups.

    Groups that have no members, with the offsets that they committed; share groups with what they
    know of each record.
    """
    confirm(f"Delete the offsets of {', '.join(names)}?", yes=yes)
    with connection.admin() as admin:
        codes = requests.delete_groups(admin, names)
    rows = []
    for name, code in codes.items():
        error = explain(RefusedError(code, "", name)) if code else None
        rows.append({"group": name, "deleted": error is None, "error": error})
    if output.as_json:
        output.data(rows)
    for row in rows:
        if row["error"]:
            note(f"barnabas: {row['error']}", "bad")
        elif not output.as_json:
            output.line(f"{row['group']}: deleted")
    return ERROR if any(row["error"] for row in rows) else OK
