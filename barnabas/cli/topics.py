"""`barnabas topics`: list, create, describe, alter, delete, offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.client.topics import NO_LEADER, name_of
from barnabas.cli.cluster import Connection
from barnabas.cli.completing import complete_topic
from barnabas.cli.denied import denied_kind
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
    SETTING,
    OffsetSpec,
    confirm,
    connection_options,
    dry_run_option,
    ending,
    json_option,
    yes_option,
)
from barnabas.cli.output import Column, Output, note
from barnabas.cli.topic_names import confirm_topics, has_pattern, regex_option, select_topics
from barnabas.protocol.cut_times import CUT_TIMES_END
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.metadata import MetadataResponseTopic
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text

if TYPE_CHECKING:
    from barnabas.cli.client.configs import Setting

TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
NO_LIMIT_MS = CUT_TIMES_END - 1
TIME = "*"  # the key of a column beside those of topics, whose names have no asterisk


@click.group()
def topics() -> None:
    """Topics: list, create, describe, alter, delete, and the offsets of their partitions."""


@topics.command(
    "list",
    epilog=ending(
        "barnabas topics list",
        "barnabas topics list 'orders-*' prices",
        "barnabas topics list --regex 'orders-[0-9]+' --json",
    ),
)
@click.argument("names", metavar="[TOPIC|PATTERN]...", nargs=-1, shell_complete=complete_topic)
@regex_option
@click.option(
    "--internal", is_flag=True, help="Show internal topics, too, such as __consumer_offsets."
)
@connection_options
@json_option
def list_topics(
    connection: Connection, output: Output, names: Sequence[str], regex: bool, internal: bool
) -> None:
    """List topics: all, or those that match names and patterns."""
    with connection.admin() as admin:
        found = select_topics(admin, names, regex=regex, internal=internal)
    rows = [_summary(topic) for topic in found]
    if output.as_json:
        output.data(rows)
        return
    columns = [
        Column("topic", "TOPIC", "name"),
        Column("partitions", "PARTITIONS"),
        Column("replication_factor", "REPLICAS"),
        Column("internal", "INTERNAL"),
        Column("offline_partitions", "OFFLINE", "bad"),
    ]
    shown = columns if any(row["offline_partitions"] for row in rows) else columns[:-1]
    output.table(rows, shown, "no topics; `barnabas topics create NAME` creates one")


def _summary(topic: MetadataResponseTopic) -> dict[str, Any]:
    """A topic as a row of `list`."""
    partitions = topic.partitions
    return {
        "topic": topic.name,
        "partitions": len(partitions),
        "replication_factor": max((len(row.replica_nodes) for row in partitions), default=0),
        "internal": topic.is_internal,
        "offline_partitions": [
            row.partition_index for row in partitions if row.leader_id == NO_LEADER
        ],
    }


@topics.command(
    "create",
    epilog=ending(
        "barnabas topics create orders --partitions 4",
        "barnabas topics create prices --config cleanup.policy=compact --if-not-exists",
    ),
)
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="The number of partitions; by default the broker's num.partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="The number of replicas; by default the broker's.",
)
@click.option(
    "-c", "--config", "configs", type=SETTING, multiple=True, help="A setting of the topic."
)
@click.option("--if-not-exists", is_flag=True, help="Ignore topics that exist.")
@dry_run_option
@connection_options
@json_option
def create(
    connection: Connection,
    output: Output,
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[tuple[str, str]],
    if_not_exists: bool,
    dry_run: bool,
) -> int:
    """Create topics."""
    from barnabas.cli.client.topic_changes import create_topics

    with connection.admin() as admin:
        answers = create_topics(
            admin, names, partitions or -1, replication_factor or -1, dict(configs), dry_run=dry_run
        )
    done = "would be created" if dry_run else "created"
    good = (Code.TOPIC_ALREADY_EXISTS,) if if_not_exists else ()
    return _print_results(output, answers, done, good)


def _print_results(
    output: Output,
    answers: Mapping[str, RefusedError | None],
    done: str,
    good: Sequence[Code] = (),
) -> int:
    """Print the result for each topic.

    Takes: good, the error codes that do not count as errors.
    Gives: the exit code.
    """
    rows = []
    for name, error in answers.items():
        is_fine = error is None or error.code in good
        row = {
            "topic": name,
            "result": done if error is None else "unchanged",
            "error": None if error is None or is_fine else error.name,
            "message": None if error is None or is_fine else explain(error, name),
        }
        rows.append(row)
    if output.as_json:
        output.data(rows)
    for row in rows:
        if row["message"]:
            note(f"barnabas: {row['message']}", "bad")
        elif not output.as_json:
            output.line(f"{row['topic']}: {row['result']}")
    return ERROR if any(row["error"] for row in rows) else OK


@topics.command(
    "describe",
    epilog=ending(
        "barnabas topics describe orders",
        "barnabas topics describe 'orders-*'",
        "barnabas topics describe --json",
    ),
)
@click.argument("names", metavar="[TOPIC|PATTERN]...", nargs=-1, shell_complete=complete_topic)
@regex_option
@connection_options
@json_option
def describe(connection: Connection, output: Output, names: Sequence[str], regex: bool) -> None:
    """Describe topics.

    Shows partitions, leaders, replicas, offsets, and the settings that differ from the broker's.
    Without a name, it describes all topics except internal ones.
    """
    from barnabas.cli.client.configs import describe_configs

    with connection.admin() as admin:
        found = select_topics(admin, names, regex=regex)
        try:
            configs = describe_configs(admin, "topic", [name_of(topic) for topic in found])
        except RefusedError as error:
            if not denied_kind(error):
                raise
            note(f"settings cannot be read: {explain(error, ', '.join(names))}", "warning")
            configs = {}
        offsets = list_offsets(admin, partitions_of(found, with_leader=True))
    rows = [_description(topic, configs.get(name_of(topic), ()), offsets) for topic in found]
    if output.as_json:
        output.data(rows)
        return
    for row in rows:
        settings = ", ".join(f"{name}={value}" for name, value in row["configs"].items())
        output.heading(row["topic"])
        pairs = [("topic id", row["topic_id"]), ("settings", settings or "the broker's")]
        output.fields([*pairs, *([("internal", True)] if row["internal"] else [])])
        output.table(
            row["partitions"],
            [
                Column("partition", "PARTITION"),
                Column("leader", "LEADER"),
                Column("replicas", "REPLICAS"),
                Column("isr", "IN SYNC"),
                Column("log_start_offset", "START"),
                Column("last_stable_offset", "LAST STABLE"),
                Column("high_watermark", "END"),
            ],
        )


def _description(
    topic: MetadataResponseTopic,
    settings: Sequence[Setting],
    offsets: dict[TopicPartition, dict[str, int]],
) -> dict[str, Any]:
    """A topic as a row of `describe`."""
    rows = sorted(topic.partitions, key=lambda row: row.partition_index)
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "internal": topic.is_internal,
        "configs": {row.name: row.value for row in settings if row.source == TOPIC_CONFIG},
        "partitions": [
            {
                "partition": row.partition_index,
                "leader": row.leader_id,
                "replicas": list(row.replica_nodes),
                "isr": list(row.isr_nodes),
                **offsets.get(TopicPartition(name_of(topic), row.partition_index), {}),
            }
            for row in rows
        ],
    }


@topics.command(
    "alter",
    epilog=ending(
        "barnabas topics alter orders --partitions 8",
        "barnabas topics alter orders --config retention.ms=86400000 --unset cleanup.policy",
    ),
)
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="The new number of partitions, higher than the present one.",
)
@click.option("-c", "--config", "configs", type=SETTING, multiple=True, help="A setting to set.")
@click.option("--unset", metavar="KEY", multiple=True, help="A setting to reset to its default.")
@dry_run_option
@connection_options
@json_option
def alter(
    connection: Connection,
    output: Output,
    name: str,
    partitions: int | None,
    configs: Sequence[tuple[str, str]],
    unset: Sequence[str],
    dry_run: bool,
) -> None:
    """Add partitions to a topic, or change its settings."""
    if partitions is None and not configs and not unset:
        raise click.UsageError("nothing to alter: give --partitions, --config or --unset")
    from barnabas.cli.client.topic_changes import add_partitions
    from barnabas.cli.config import alter_configs

    with connection.admin() as admin:
        describe_topics(admin, [name])
        if partitions is not None:
            error = add_partitions(admin, name, partitions, dry_run=dry_run)
            if error is not None:
                raise CommandError(explain(error, name))
        if configs or unset:
            alter_configs(admin, "topic", name, dict(configs), unset, dry_run=dry_run)
    changed = {
        "topic": name,
        "partitions": partitions,
        "set": dict(configs),
        "unset": list(unset),
        "dry_run": dry_run,
    }
    if output.as_json:
        output.data(changed)
        return
    parts = [f"{partitions} partitions"] if partitions is not None else []
    parts += [f"{key}={value}" for key, value in configs] + [f"{key} unset" for key in unset]
    output.line(f"{name}: {'would have ' if dry_run else ''}{', '.join(parts)}")


@topics.command(
    "delete",
    epilog=ending(
        "barnabas topics delete orders",
        "barnabas topics delete a b --yes",
        "barnabas topics delete 'load-test-*' --dry-run",
    ),
)
@click.argument(
    "names", metavar="TOPIC|PATTERN...", nargs=-1, required=True, shell_complete=complete_topic
)
@regex_option
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@dry_run_option
@yes_option
@connection_options
@json_option
def delete(
    connection: Connection,
    output: Output,
    names: Sequence[str],
    regex: bool,
    if_exists: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Delete topics with all their records.

    A pattern matches no internal topic. The topics that it matches are shown first; on a
    terminal their number has to be typed, and elsewhere --yes is needed.
    """
    from barnabas.cli.client.topic_changes import delete_topics

    by_pattern = has_pattern(names, regex=regex)
    if not by_pattern and not dry_run:
        confirm(f"Delete {', '.join(names)} with all records?", yes=yes)
    with connection.admin() as admin:
        wanted = list(dict.fromkeys(names))
        if by_pattern or dry_run:
            try:
                wanted = [name_of(row) for row in select_topics(admin, names, regex=regex)]
            except CommandError:
                if not if_exists:
                    raise
                wanted = []
        if dry_run:
            return _print_results(output, dict.fromkeys(wanted), "would be deleted")
        if by_pattern and wanted:
            if not yes:
                note("\n".join(wanted))
            question = f"Delete {count_text(len(wanted), 'topic')} with all records?"
            confirm_topics(wanted, question, yes=yes, by_pattern=True)
        answers = delete_topics(admin, wanted) if wanted else {}
    good = (Code.UNKNOWN_TOPIC_OR_PARTITION,) if if_exists else ()
    return _print_results(output, answers, "deleted", good)


@topics.command(
    "cuts",
    epilog=ending(
        "barnabas topics cuts",
        "barnabas topics cuts orders payments --count 3",
        "barnabas topics cuts orders payments --at 12:00 --json",
    ),
)
@click.argument("names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topic)
@click.option(
    "--at",
    "place",
    type=PLACE,
    metavar="TIME",
    help="The newest cut up to this time, and those before it. [default: now]",
)
@click.option(
    "-n", "--count", type=click.IntRange(1), default=10, show_default=True, help="How many to show."
)
@connection_options
@json_option
def cuts(
    connection: Connection,
    output: Output,
    names: Sequence[str],
    place: OffsetSpec | None,
    count: int,
) -> None:
    """Show recorded cuts of topics with barnabas.transactions.whole, the newest first.

    A cut is an offset in each partition. A reader who begins at one cut, or at the beginning, and
    ends at another one gets whole transactions. Without names all topics with the setting are
    shown.
    """
    from barnabas.cli.client.cuts import (
        WHOLE,
        RecordedCut,
        cut_at_or_before,
        require_whole,
        whole_topics,
    )

    if place is not None and place.kind != "time":
        raise click.UsageError(f"--at {place}: it takes a time, such as 12:00 or 10m (ago)")
    time_ms = NO_LIMIT_MS if place is None else place.value
    found: list[RecordedCut] = []
    with connection.admin() as admin:
        if names:
            require_whole(admin, names)
        else:
            known = [name_of(topic) for topic in describe_topics(admin)]
            names = sorted(whole_topics(admin, known))
            if not names:
                raise CommandError(f"no topic has {WHOLE}=true")
        partitions = partitions_of(describe_topics(admin, names))
        while len(found) < count:
            cut = cut_at_or_before(admin, partitions, time_ms)
            if cut is None:
                break
            found.append(cut)
            time_ms = cut.time_ms - 1
    if output.as_json:
        output.data(
            [
                {
                    "time_ms": cut.time_ms,
                    "time": cut.time_text,
                    "partitions": [
                        {**partition._asdict(), "offset": None if offset < 0 else offset}
                        for partition, offset in cut.offsets.items()
                    ],
                }
                for cut in found
            ]
        )
        return
    rows = []
    for cut in found:
        of_topic: dict[str, list[str]] = {}
        for partition, offset in cut.offsets.items():
            of_topic.setdefault(partition.topic, []).append("-" if offset < 0 else str(offset))
        offsets = {name: " ".join(texts) for name, texts in of_topic.items()}
        rows.append({TIME: cut.time_text, **offsets})
    output.table(rows, [Column(TIME, "TIME"), *(Column(name, name) for name in names)])
    if not found:
        note("no cut is recorded; the broker records one a second while something is committed")


@topics.command(
    "offsets",
    epilog=ending(
        "barnabas topics offsets orders",
        "barnabas topics offsets orders-0 --at 2026-11-22T14:00:00",
        "barnabas topics offsets orders --at 10m",
    ),
)
@click.argument(
    "names",
    metavar="TOPIC|TOPIC-PARTITION...",
    nargs=-1,
    required=True,
    shell_complete=complete_topic,
)
@click.option("--at", "place", type=PLACE, help="Show the first offset at or after this time, too.")
@connection_options
@json_option
def offsets(
    connection: Connection, output: Output, names: Sequence[str], place: OffsetSpec | None
) -> None:
    """Show where partitions begin and end.

    Also shows the last stable offset, at which a read_committed reader stops.
    """
    with connection.admin() as admin:
        partitions: list[TopicPartition] = []
        for name in names:
            partitions += topic_or_partition(admin, name)
        at = {} if place is None else offsets_at(admin, partitions, place)
        rows = [
            {
                **partition._asdict(),
                **row,
                **({} if place is None else {"offset": at[partition]}),
            }
            for partition, row in list_offsets(admin, partitions).items()
        ]
    if output.as_json:
        output.data(rows)
        return
    columns = [
        Column("topic", "TOPIC", "name"),
        Column("partition", "PARTITION"),
        Column("log_start_offset", "START"),
        Column("last_stable_offset", "LAST STABLE"),
        Column("high_watermark", "END"),
    ]
    if place is not None:
        columns.append(Column("offset", f"AT {str(place).upper()}"))
    output.table(rows, columns)
