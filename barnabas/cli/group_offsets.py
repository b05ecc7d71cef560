"""The commands on offsets of groups: `groups reset-offsets`, `export-offsets`, `delete-offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import click

from barnabas.cli.client import groups as requests
from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.groups import EMPTY_STATES, SHARE
from barnabas.cli.cluster import Connection
from barnabas.cli.completing import complete_group, complete_topic
from barnabas.cli.errors import ERROR, OK, CommandError, RefusedError, explain
from barnabas.cli.group_rows import committed_offsets
from barnabas.cli.offsets import (
    describe_topics,
    list_offsets,
    offsets_at,
    partitions_of,
    topic_or_partition,
)
from barnabas.cli.options import (
    PLACE,
    OffsetSpec,
    confirm,
    connection_options,
    dry_run_option,
    ending,
    json_option,
    yes_option,
)
from barnabas.cli.output import Column, Output, note
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text

_PLAN_COLUMNS = (
    Column("topic", "TOPIC", "name"),
    Column("partition", "PARTITION"),
    Column("committed_offset", "COMMITTED"),
    Column("new_offset", "NEW"),
)


@click.command(
    "reset-offsets",
    epilog=ending(
        "barnabas groups reset-offsets kitchen --topic orders --to earliest --dry-run",
        "barnabas groups reset-offsets kitchen --topic orders-0 --to 1500 --yes",
        "barnabas groups reset-offsets kitchen --to 2026-11-22T14:00:00 --yes",
        "barnabas groups reset-offsets kitchen --shift-by -100 --yes",
        "barnabas groups export-offsets kitchen > offsets.csv",
        "barnabas groups reset-offsets kitchen --from-file offsets.csv --dry-run",
    ),
)
@click.argument("group", shell_complete=complete_group)
@click.option(
    "-t",
    "--topic",
    "names",
    metavar="TOPIC|TOPIC-PARTITION",
    multiple=True,
    shell_complete=complete_topic,
    help="A topic or partition; by default all with a committed offset.",
)
@click.option("--to", "place", type=PLACE, help="earliest, latest, an offset, or a time.")
@click.option(
    "--shift-by", type=int, help="Move each offset forward by N, or back if N is negative."
)
@click.option(
    "--from-file",
    "file",
    metavar="FILE",
    type=click.File(encoding="utf-8"),
    help="Lines of TOPIC,PARTITION,OFFSET, as export-offsets prints them; -: standard input.",
)
@dry_run_option
@yes_option
@connection_options
@json_option
def reset_offsets(
    connection: Connection,
    output: Output,
    group: str,
    names: Sequence[str],
    place: OffsetSpec | None,
    shift_by: int | None,
    file: TextIO | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Change the committed offsets of a group, or the start offsets of a share group.

    The group must have no members. The changes are shown first; on a terminal you are asked to
    confirm.
    """
    if sum(given is not None for given in (place, shift_by, file)) != 1:
        raise click.UsageError("give one of --to PLACE, --shift-by N and --from-file FILE")
    wanted = None if file is None else parse_offsets(file, group)
    if wanted is not None and names:
        raise click.UsageError("--from-file names the partitions: leave out --topic")
    with connection.admin() as admin:
        is_share = requests.describe_group(admin, group).protocol == SHARE
        committed = _start_offsets(admin, group) if is_share else committed_offsets(admin, group)
        rows = _plan(admin, committed, names, place, shift_by, wanted)
        if not rows:
            raise CommandError(f"the group {group!r} has no committed offsets: name topics with -t")
        if output.as_json and not yes and not dry_run:
            raise click.UsageError("--json needs --yes or --dry-run")
        if not output.as_json:
            output.table(rows, _PLAN_COLUMNS)
        if not dry_run:
            _refuse_members(admin, group)
            confirm(f"Commit these offsets for {group}?", yes=yes)
            (_set_starts if is_share else _commit)(admin, group, rows)
    if output.as_json:
        output.data({"group": group, "dry_run": dry_run, "partitions": rows})
    elif dry_run:
        note("nothing was changed (--dry-run)")
    return _report_errors(rows)


def _start_offsets(admin: ClusterClient, group: str) -> dict[TopicPartition, int]:
    """The start offsets of a share group, by partition. Partitions that the group has not yet read
    are left out.
    """
    return {
        partition: start
        for partition, (start, _) in sorted(requests.share_offsets(admin, group).items())
        if start >= 0
    }


def _set_starts(admin: ClusterClient, group: str, rows: list[dict[str, Any]]) -> None:
    _note_errors(group, rows, requests.alter_share_offsets(admin, group, _wanted(rows)))


def _wanted(rows: list[dict[str, Any]]) -> dict[TopicPartition, int]:
    return {TopicPartition(row["topic"], row["partition"]): row["new_offset"] for row in rows}


def _note_errors(
    group: str, rows: list[dict[str, Any]], codes: Mapping[TopicPartition, int]
) -> None:
    """Add to each row the error of its partition, as `explain` words it; None without one."""
    for row in rows:
        code = codes.get(TopicPartition(row["topic"], row["partition"]), 0)
        resource = group if code == Code.GROUP_AUTHORIZATION_FAILED else row["topic"]
        row["error"] = explain(RefusedError(code, "", resource)) if code else None


def _plan(
    admin: ClusterClient,
    committed: dict[TopicPartition, int],
    names: Sequence[str],
    place: OffsetSpec | None,
    shift_by: int | None,
    wanted: Mapping[TopicPartition, int] | None,
) -> list[dict[str, Any]]:
    """A row for each partition: its current offset, and the new one.

    Takes: wanted, the new offsets from a file, or None.
    """
    if wanted is not None:
        return _planned(committed, _in_range(admin, wanted))
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
    return _planned(committed, targets)


def _planned(
    committed: Mapping[TopicPartition, int], targets: Mapping[TopicPartition, int]
) -> list[dict[str, Any]]:
    """The rows of a change of offsets, sorted by partition."""
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


def parse_offsets(lines: Iterable[str], group: str) -> dict[TopicPartition, int]:
    """The offsets in the lines of a file, each TOPIC,PARTITION,OFFSET.

    Empty lines and lines that begin with # are ignored. A first column with the group's name, which
    Kafka's own tool writes for several groups, is accepted.

    Raises: CommandError that names the line.
    """
    found: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines, 1):
        columns = [column.strip().strip('"') for column in line.split(",")]
        if not line.strip() or line.startswith("#"):
            continue
        if len(columns) == 4 and columns[0] == group:
            del columns[0]
        if len(columns) != 3 or not (columns[1].isdigit() and columns[2].isdigit()):
            raise CommandError(
                f"line {number} is not TOPIC,PARTITION,OFFSET, as in orders,0,1500: {line.strip()}"
            )
        partition = TopicPartition(columns[0], int(columns[1]))
        if partition in found:
            raise CommandError(f"line {number} names {partition} for a second time")
        found[partition] = int(columns[2])
    if not found:
        raise CommandError("the file has no offsets: write lines such as orders,0,1500")
    return found


def _in_range(
    admin: ClusterClient, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets from a file, each limited to its partition's range. Raises: CommandError if a
    partition does not exist.
    """
    topics = describe_topics(admin, sorted({partition.topic for partition in wanted}))
    missing = sorted(set(wanted) - set(partitions_of(topics)))
    if missing:
        raise CommandError(f"there is no partition {missing[0]}: remove its line from the file")
    return {
        row: min(max(wanted[row], bound["log_start_offset"]), bound["high_watermark"])
        for row, bound in list_offsets(admin, wanted).items()
    }


def _shifted(
    admin: ClusterClient,
    partitions: Iterable[TopicPartition],
    committed: dict[TopicPartition, int],
    shift_by: int,
) -> dict[TopicPartition, int]:
    """The committed offsets moved by a number, each limited to its partition's range. Raises:
    CommandError for a partition without a committed offset.
    """
    bounds = list_offsets(admin, partitions)
    lacking = [str(partition) for partition in bounds if partition not in committed]
    if lacking:
        raise CommandError(
            f"--shift-by needs committed offsets, and {', '.join(lacking)} has none: use --to"
        )
    return {
        partition: min(
            max(committed[partition] + shift_by, bound["log_start_offset"]),
            bound["high_watermark"],
        )
        for partition, bound in bounds.items()
    }


def _refuse_members(admin: ClusterClient, group: str) -> None:
    """Raise CommandError if the group has members, since these would overwrite the offsets."""
    described = requests.describe_group(admin, group)
    if described.state not in EMPTY_STATES:
        count = count_text(len(described.members), "member")
        raise CommandError(
            f"the group {group!r} is {described.state} with {count}, which would "
            "overwrite the new offsets: stop its consumers and try again"
        )


def _commit(admin: ClusterClient, group: str, rows: list[dict[str, Any]]) -> None:
    _note_errors(group, rows, requests.commit(admin, group, _wanted(rows)))


@click.command(
    "export-offsets",
    epilog=ending(
        "barnabas groups export-offsets kitchen > offsets.csv",
        "barnabas groups export-offsets kitchen --json",
    ),
)
@click.argument("group", shell_complete=complete_group)
@connection_options
@json_option
def export_offsets(connection: Connection, output: Output, group: str) -> None:
    """Print the committed offsets of a group, in the form that `reset-offsets --from-file` reads.

    A line is TOPIC,PARTITION,OFFSET.
    """
    with connection.admin() as admin:
        is_share = requests.describe_group(admin, group).protocol == SHARE
        offsets = _start_offsets(admin, group) if is_share else committed_offsets(admin, group)
    if not offsets:
        raise CommandError(f"the group {group!r} has no committed offsets")
    if output.as_json:
        output.data([{**row._asdict(), "offset": offset} for row, offset in offsets.items()])
        return
    for row, offset in offsets.items():
        click.echo(f"{row.topic},{row.partition},{offset}")


@click.command(
    "delete-offsets",
    epilog=ending(
        "barnabas groups delete-offsets kitchen --topic orders --dry-run",
        "barnabas groups delete-offsets kitchen -t orders-0 -t prices --yes",
    ),
)
@click.argument("group", shell_complete=complete_group)
@click.option(
    "-t",
    "--topic",
    "names",
    metavar="TOPIC|TOPIC-PARTITION",
    multiple=True,
    shell_complete=complete_topic,
    required=True,
    help="The topics or partitions; for a share group, topics.",
)
@dry_run_option
@yes_option
@connection_options
@json_option
def delete_offsets(
    connection: Connection,
    output: Output,
    group: str,
    names: Sequence[str],
    dry_run: bool,
    yes: bool,
) -> int:
    """Delete the offsets that a group has committed for topics.

    No member of the group may be subscribed to these topics. The group's next consumer starts there
    according to its auto.offset.reset.
    """
    with connection.admin() as admin:
        is_share = requests.describe_group(admin, group).protocol == SHARE
        committed = _start_offsets(admin, group) if is_share else committed_offsets(admin, group)
        wanted = [row for row in committed if row.topic in names or str(row) in names]
        unknown = [
            name for name in names if not any(name in (row.topic, str(row)) for row in wanted)
        ]
        if unknown:
            raise CommandError(f"the group {group!r} has no committed offsets for {unknown[0]!r}")
        if is_share and any(row.topic not in names for row in wanted):
            raise CommandError("a share group's offsets are deleted by topic: name no partition")
        rows: list[dict[str, Any]] = [
            {**row._asdict(), "committed_offset": committed[row], "error": None} for row in wanted
        ]
        if output.as_json and not yes and not dry_run:
            raise click.UsageError("--json needs --yes or --dry-run")
        if not output.as_json:
            output.table(rows, _PLAN_COLUMNS[:3])
        if not dry_run:
            confirm(f"Delete these offsets of {group}?", yes=yes)
            _note_errors(group, rows, _delete(admin, group, wanted, is_share=is_share))
    if output.as_json:
        output.data({"group": group, "dry_run": dry_run, "partitions": rows})
    elif dry_run:
        note("nothing was changed (--dry-run)")
    return _report_errors(rows)


def _delete(
    admin: ClusterClient, group: str, wanted: Sequence[TopicPartition], *, is_share: bool
) -> dict[TopicPartition, int]:
    """Delete offsets with the request for the group's type. Gives: the code of each partition."""
    if not is_share:
        return requests.delete_offsets(admin, group, wanted)
    codes = requests.delete_share_offsets(admin, group, sorted({row.topic for row in wanted}))
    return {row: codes.get(row.topic, 0) for row in wanted}


def _report_errors(rows: list[dict[str, Any]]) -> int:
    """Print the errors of rows. Gives: the exit code of the command."""
    failed = [row for row in rows if row["error"]]
    for row in failed:
        note(f"barnabas: {row['topic']}-{row['partition']}: {row['error']}", "bad")
    return ERROR if failed else OK
