"""`barnabas records`: delete the oldest records of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from barnabas.cli.cluster import Connection
from barnabas.cli.completing import complete_topic
from barnabas.cli.errors import ERROR, OK, RefusedError, explain
from barnabas.cli.offsets import list_offsets, offsets_at, topic_or_partition
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
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text


@click.group()
def records() -> None:
    """Records of partitions: delete the oldest ones.

    `barnabas consume` and `barnabas produce` read and write records.
    """


@records.command(
    "delete",
    epilog=ending(
        "barnabas records delete orders --before 7d --dry-run",
        "barnabas records delete orders-0 --before 1500",
        "barnabas records delete orders --before latest --yes",
    ),
)
@click.argument(
    "names",
    metavar="TOPIC|TOPIC-PARTITION...",
    nargs=-1,
    required=True,
    shell_complete=complete_topic,
)
@click.option(
    "--before",
    "place",
    type=PLACE,
    required=True,
    help="Delete the records before this offset or time; latest: all records.",
)
@dry_run_option
@yes_option
@connection_options
@json_option
def delete(
    connection: Connection,
    output: Output,
    names: Sequence[str],
    place: OffsetSpec,
    dry_run: bool,
    yes: bool,
) -> int:
    """Delete the records before an offset or a time; the partitions then start there.

    The other records keep their offsets. A consumer whose next record was deleted continues
    according to its auto.offset.reset: at the new start, or at the end. What would be deleted is
    shown first. The topic must have cleanup.policy=delete.
    """
    from barnabas.cli.client.topic_changes import delete_records

    with connection.admin() as admin:
        partitions = sorted({row for name in names for row in topic_or_partition(admin, name)})
        bounds = list_offsets(admin, partitions)
        targets = offsets_at(admin, partitions, place)
        rows = [_row(row, bounds[row]["log_start_offset"], targets[row]) for row in partitions]
        if output.as_json and not yes and not dry_run:
            raise click.UsageError("--json needs --yes or --dry-run")
        if not output.as_json:
            _print(output, rows)
        moved = {row: targets[row] for row in partitions
                 if targets[row] > bounds[row]["log_start_offset"]}  # fmt: skip
        if moved and not dry_run:
            count = sum(row["offsets"] for row in rows)
            what = count_text(count, "offset")
            confirm(f"Delete the records at {what} of {', '.join(names)}?", yes=yes)
            answers = delete_records(admin, moved)
            for row in rows:
                answer = answers.get(TopicPartition(row["topic"], row["partition"]))
                if isinstance(answer, RefusedError):
                    row["error"] = explain(answer)
                elif answer is not None:
                    row["new_log_start_offset"] = answer
    if output.as_json:
        output.data({"dry_run": dry_run, "partitions": rows})
    elif dry_run:
        note("nothing was changed (--dry-run)")
    elif not moved:
        note("no records are before that: nothing was changed")
    failed = [row for row in rows if row["error"]]
    for row in failed:
        note(f"barnabas: {row['topic']}-{row['partition']}: {row['error']}", "bad")
    return ERROR if failed else OK


def _row(partition: TopicPartition, start: int, target: int) -> dict[str, Any]:
    """The row of a partition: its old and new start, and the number of deleted offsets."""
    return {
        **partition._asdict(),
        "log_start_offset": start,
        "new_log_start_offset": max(start, target),
        "offsets": max(target - start, 0),
        "error": None,
    }


def _print(output: Output, rows: list[dict[str, Any]]) -> None:
    """Print what would be deleted."""
    output.table(
        rows,
        [
            Column("topic", "TOPIC", "name"),
            Column("partition", "PARTITION"),
            Column("log_start_offset", "START"),
            Column("new_log_start_offset", "NEW START"),
            Column("offsets", "DELETED"),
        ],
    )
