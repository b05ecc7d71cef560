"""`barnabas groups`: list, describe, delete; and the commands of group_offsets.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from barnabas.cli.client import groups as requests
from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.groups import SHARE
from barnabas.cli.cluster import Connection
from barnabas.cli.completing import complete_group
from barnabas.cli.errors import ERROR, OK, RefusedError, explain
from barnabas.cli.group_offsets import delete_offsets, export_offsets, reset_offsets
from barnabas.cli.group_rows import committed_offsets, describe_groups
from barnabas.cli.options import (
    Command,
    confirm,
    connection_options,
    ending,
    json_option,
    yes_option,
)
from barnabas.cli.output import Column, Output, note
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text

__all__ = ["committed_offsets", "groups"]

_PARTITION_COLUMNS = (Column("topic", "TOPIC", "name"), Column("partition", "PARTITION"))


def trend_option(command: Command) -> Command:
    """Add `--trend` to a command. With this option the command measures the lag twice."""
    return click.option(
        "--trend",
        "trend_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0),
        default=0.0,
        help="Measure the lag twice, SECONDS apart, and say whether it grows.",
    )(command)


@click.group()
def groups() -> None:
    """Groups: list, describe with lag and members, reset offsets, delete."""


@groups.command(
    "list",
    epilog=ending(
        "barnabas groups list",
        "barnabas groups list --state Empty --trend 5",
        "barnabas groups list --no-lag --json",
    ),
)
@click.option("--state", "states", multiple=True, help="Only groups in that state, such as Stable.")
@click.option("--no-lag", is_flag=True, help="Leave out the lag: one request instead of many.")
@trend_option
@connection_options
@json_option
def list_groups(
    connection: Connection, output: Output, states: Sequence[str], no_lag: bool, trend_s: float
) -> None:
    """List groups, with the lag of each.

    Offsets in which a Spark sink stores the numbers of its micro-batches do not count as lag.
    """
    wanted = {state.lower() for state in states}
    with connection.admin() as admin:
        listed = [
            row
            for row in requests.list_groups(admin)
            if not wanted or str(row.state).lower() in wanted
        ]
        names = [] if no_lag else [row.group for row in listed]
        empty = {
            row.group: row.protocol
            for row in listed
            if row.state == "Empty" and row.type in _COMMITTING
        }
        found = describe_groups(admin, names, trend_s=trend_s, empty=empty, missing_ok=True)
        described = {row["group"]: row for row in found}
    rows: list[dict[str, Any]] = [
        {
            "group": row.group,
            "state": row.state,
            "protocol": row.protocol,
            "type": row.type,
            **{key: described[row.group][key] for key in _OF_LAG if row.group in described},
        }
        for row in listed
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
    if not no_lag:
        columns += [Column("lag", "LAG"), Column("status", "STATUS")]
    output.table(rows, columns, "no groups")


_COMMITTING = ("classic", "consumer", "Classic", "Consumer")  # types of groups that commit offsets
_OF_LAG = ("lag", "lag_change", "status")


@groups.command(
    "describe",
    epilog=ending(
        "barnabas groups describe kitchen",
        "barnabas groups describe kitchen --trend 5",
        "barnabas groups describe --json",
    ),
)
@click.argument("names", metavar="[GROUP]...", nargs=-1, shell_complete=complete_group)
@trend_option
@connection_options
@json_option
def describe(connection: Connection, output: Output, names: Sequence[str], trend_s: float) -> None:
    """Describe groups.

    Shows state, lag of each partition, and members; without a name, of all groups. The lag is the
    number of offsets between the committed offset and the partition's end; where nothing is
    committed, all that the partition has. A reader with isolation.level=read_committed stops at the
    last stable offset.
    """
    with connection.admin() as admin:
        if not names:
            names = [row.group for row in requests.list_groups(admin)]
        rows = describe_groups(admin, list(dict.fromkeys(names)), trend_s=trend_s)
        _add_owners(admin, rows)
    if output.as_json:
        output.data(rows)
        return
    if not rows:
        note("no groups")
    for row in rows:
        _print_group(output, row)


def _add_owners(admin: ClusterClient, rows: Sequence[dict[str, Any]]) -> None:
    """Add the owners of the transactions that hold back partitions; in topics with
    barnabas.transactions.whole also of those in another partition, with that partition. Nothing is
    added if the cluster refuses to list transactions.
    """
    held = [
        (TopicPartition(part["topic"], part["partition"]), part)
        for row in rows
        for part in row["partitions"]
        if part.get("held_back")
    ]
    if not held:
        return
    from barnabas.cli.why_stuck import holders, owner_text

    stable = {partition: part["last_stable_offset"] for partition, part in held}
    try:
        found = holders(admin, stable)
    except RefusedError:  # an ACL denies the request, or the cluster is older than KIP-664
        return
    for partition, part in held:
        where, holder = found.get(partition, (partition, None))
        part["held_back_by"] = None if holder is None else owner_text(holder)
        if where != partition:
            part["held_back_at"] = str(where)


def _print_group(output: Output, row: dict[str, Any]) -> None:
    """Print a group for people."""
    output.heading(row["group"])
    pairs = [("state", row["state"]), ("assignor", row["assignor"]), ("lag", row["lag"])]
    output.fields([*pairs, ("status", row["status"]), ("members", len(row["members"]))])
    if row["protocol"] == SHARE:
        columns = [Column("start_offset", "START"), Column("lag", "LAG")]
        columns.append(Column("situation", "SITUATION"))
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
            Column("situation", "SITUATION"),
            Column("client_id", "CLIENT"),
        ],
    )
    _print_members(output, row)


def _print_members(output: Output, row: dict[str, Any]) -> None:
    """Print the members of a group as a table."""
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
    """Print a note that explains the numbers of a partition, if they need one."""
    if row["micro_batch"]:
        number = row["committed_offset"]
        note(f"{name}: {number} is the number of a micro-batch of a Spark sink, not an offset")
    elif row["held_back"]:
        owner = row.get("held_back_by")
        whose = f"the open transaction of {owner}" if owner else "an open transaction"
        if "held_back_at" in row:
            whose += f" on {row['held_back_at']} (both have barnabas.transactions.whole)"
        note(
            f"{name}: {whose} holds back {count_text(row['held_back'], 'offset')}; "
            f"`barnabas txn why-stuck {name}` says what will end it",
            "warning",
        )


@groups.command(
    "delete", epilog=ending("barnabas groups delete kitchen", "barnabas groups delete a b --yes")
)
@click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_group)
@yes_option
@connection_options
@json_option
def delete(connection: Connection, output: Output, names: Sequence[str], yes: bool) -> int:
    """Delete groups.

    A group must have no members. Its committed offsets are deleted with it, and the delivery state
    of the records of a share group.
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


groups.add_command(reset_offsets)
groups.add_command(export_offsets)
groups.add_command(delete_offsets)
