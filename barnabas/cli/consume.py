"""`barnabas consume`: records of topics on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.cluster import Connection
from barnabas.cli.consuming.partition_reader import (
    PartitionReader,
    in_order_of_time,
    last_records,
)
from barnabas.cli.consuming.record_decoding import (
    ON_UNDECODABLE,
    SKIP,
    STOP,
    RecordPreparation,
)
from barnabas.cli.consuming.record_reader import RecordReader
from barnabas.cli.consuming.record_search import RecordSearch
from barnabas.cli.consuming.record_template import WrongTemplate, compile_template, unchanged
from barnabas.cli.consuming.search_options import search_options
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.offsets import list_offsets, offsets_at, topic_or_partition
from barnabas.cli.options import (
    EARLIEST,
    LATEST,
    PLACE,
    OffsetSpec,
    connection_options,
    examples,
    exit_codes,
    help_end,
    json_option,
    section,
)
from barnabas.cli.output import Output, note, progress
from barnabas.cli.records import json_record, shown_bytes
from barnabas.cli.serde.schema_options import (
    KEY,
    VALUE,
    SchemaOptions,
    schema_help,
    schema_options,
)
from barnabas.cli.waiting import Waiting
from barnabas.json_text import json_line
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.schemas.errors import SchemaError
from barnabas.terminal import is_terminal, raw_stream, visible_bytes
from barnabas.texts import count_text

NAMED_MOST = 10  # the maximum number of partitions that one message lists
COMMIT_SOON_S = 0.5  # after Ctrl-C
# The error codes of a commit that concern the group, and not a topic.
OF_GROUP = (Code.GROUP_AUTHORIZATION_FAILED, Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION)
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


@click.command(
    epilog=help_end(
        section(
            "Fields of --format, as of kcat and rpk",
            "%t     topic                         %K  bytes of the key, -1 for null",
            "%p     partition                     %V  bytes of the value, -1 for null (also %S)",
            "%o     offset                        %T  time in milliseconds since 1970",
            "%k     key; {hex}, {base64}, {json}  %d  time, ISO 8601; %d{%H:%M:%S} by strftime",
            "%v %s  value; {hex}, {base64}, ...   %h  name=value,...; %h{%k: %v;} by a template",
            r"%%     a percent sign                \n \r \t \0 \\ \x7e are escapes",
        ),
        section("SCHEMA of --value-schema and --key-schema", *schema_help(producing=False)),
        exit_codes(),
        examples(
            "barnabas consume orders",
            "barnabas consume orders --follow --json",
            "barnabas consume orders-0 --from 1000 --to 2000",
            "barnabas consume orders --from 10m --key-separator :",
            "barnabas consume orders --last 20 --follow",
            "barnabas consume orders --grep 'error|refused' --grep-in value --ignore-case",
            r"barnabas consume orders --format '%d %p/%o %k: %v\n'",
            r"barnabas consume orders --format '%t\t%h{%k=%v;}\n' --count 5",
            "barnabas consume orders --schema-registry http://127.0.0.1:8081 --json",
            "barnabas consume orders --value-schema order.proto --proto-path protos",
            "barnabas consume orders --isolation-level read_uncommitted --count 5",
            "barnabas consume orders --group kitchen",
            "barnabas consume --as-of 12:00 orders payments",
        ),
    )
)
@click.argument("names", metavar="TOPIC|TOPIC-PARTITION...", nargs=-1, required=True)
@click.option(
    "--from",
    "start",
    type=PLACE,
    help="earliest, latest, an offset, a time or a duration ago. [default: earliest; with --follow "
    "latest; with --group what it has committed]",
)
@click.option("--to", "end", type=PLACE, help="Stop before this offset or time.")
@click.option(
    "--as-of",
    "as_of",
    type=PLACE,
    metavar="TIME",
    help="Stop where all topics have whole transactions: at the newest cut that the broker has "
    "recorded up to this time. The topics need barnabas.transactions.whole.",
)
@click.option(
    "-f/-e",
    "--follow/--until-end",
    help=(
        "Wait for more records at the end; or stop at the end that the partitions have at the "
        "start, the default."
    ),
)
@click.option("-n", "--count", metavar="N", type=click.IntRange(1), help="Stop after N records.")
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1),
    help="Print the last N records by their times; with --follow continue after them.",
)
@click.option("--per-partition", is_flag=True, help="With --last: N of each partition.")
@search_options
@click.option(
    "-g", "--group", help="Read from the offsets that the group has committed, and commit."
)
@click.option(
    "--isolation-level",
    type=click.Choice(ISOLATION_LEVELS),
    default=ISOLATION_LEVELS[0],
    show_default=True,
    help="Whether records of open and aborted transactions are left out.",
)
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Print the key, too, followed by this text."
)
@click.option(
    "--format",
    "template",
    metavar="TEMPLATE",
    help=r"What to print of a record, such as '%k %v\n': see below.",
)
@click.option(
    "--raw",
    is_flag=True,
    help="Print control characters unchanged on a terminal, which takes some for commands.",
)
@schema_options(producing=False)
@click.option(
    "--on-undecodable",
    type=click.Choice(ON_UNDECODABLE),
    help=(
        "What to do with a record that does not fit its schema: end with an error, print its "
        "bytes undecoded, or leave it out. [default: stop]"
    ),
)
@connection_options
@json_option
def consume(
    connection: Connection,
    output: Output,
    names: Sequence[str],
    start: OffsetSpec | None,
    end: OffsetSpec | None,
    as_of: OffsetSpec | None,
    follow: bool,
    count: int | None,
    last: int | None,
    per_partition: bool,
    search: RecordSearch | None,
    group: str | None,
    isolation_level: str,
    key_separator: str | None,
    template: str | None,
    raw: bool,
    schemas: SchemaOptions,
    on_undecodable: str | None,
) -> None:
    """Print the records of topics, a line each, up to their current end.

    Partitions are read in parallel, each in its order. --json prints an object a line,
    with topic, partition, offset, time, key, value and headers. The offsets of records that were
    read are committed for a group.

    --count and --last count the printed records: --last 5 --grep x prints the last five records
    with an x. --last prints in order of time, the oldest record first. A line end follows each
    record; a template of --format has to contain it (\\n).
    """
    _check_usage(follow, end, count, last, per_partition, group)
    if as_of is not None:
        _check_as_of(as_of, end, follow, isolation_level)
    if on_undecodable and not schemas.is_used():
        raise click.UsageError("--on-undecodable needs --value-schema or --key-schema")
    show = unchanged if raw or not is_terminal(sys.stdout) else visible_bytes
    printer = _Printer(_writer(output, key_separator, template, show), flushed=follow)
    span = _Span(start, end, as_of, follow=follow, is_tail=last is not None)
    starts, ends = _bounds(connection, names, span, group, isolation_level)
    preparation = RecordPreparation(search, _decoders(schemas, connection), on_undecodable or STOP)
    prepare = preparation.prepare
    with connection.admin() as client:
        consumer = RecordReader(client, read_committed=isolation_level == ISOLATION_LEVELS[0])
        reader = PartitionReader(starts, None if last else ends, count, prepare)
        try:
            if last is not None and ends is not None:
                tails = last_records(consumer, starts, ends, last, prepare)
                printer.print_last(tails, last, per_partition)
                after = {row: max(offset, starts[row]) for row, offset in ends.items()}
                reader = PartitionReader(after, None, None, prepare)
            if last is None or follow:
                printer.print_all(reader, consumer)
        except (KeyboardInterrupt, CommandError, SchemaError):
            _end_early(client, reader, printer, ", ".join(names), group)
            raise
        if group is not None:
            _commit(client, group, reader.moved())
    if preparation.undecodable:
        did = "left out" if on_undecodable == SKIP else "printed undecoded"
        count_said = count_text(preparation.undecodable, "key or value", "keys and values")
        note(f"{count_said} did not fit their schema, {did}", "warning")
    if sys.stderr.isatty():
        note(count_text(printer.count, "record"))


def _check_usage(
    follow: bool,
    end: OffsetSpec | None,
    count: int | None,
    last: int | None,
    per_partition: bool,
    group: str | None,
) -> None:
    """Raise click.UsageError for options that contradict each other."""
    if follow and end is not None:
        raise click.UsageError("--follow has no end: leave out --to or --follow")
    if per_partition and last is None:
        raise click.UsageError("--per-partition needs --last N")
    if last is not None and count is not None:
        raise click.UsageError(
            "--count is the first N records and --last the last N: leave one out"
        )
    if last is not None and group is not None:
        raise click.UsageError(
            "--last would skip records that the group has not read: leave out --group or --last"
        )


def _check_as_of(
    as_of: OffsetSpec, end: OffsetSpec | None, follow: bool, isolation_level: str
) -> None:
    """Raise click.UsageError for options that contradict --as-of."""
    if as_of.kind != "time":
        raise click.UsageError(
            f"--as-of {as_of}: it takes a time, such as 12:00, 10m (ago) or 2026-11-22T14:00:00"
        )
    if end is not None or follow:
        raise click.UsageError("--as-of is the end: leave out --to and --follow")
    if isolation_level != ISOLATION_LEVELS[0]:
        raise click.UsageError("--as-of reads committed records: leave out --isolation-level")


def _decoders(schemas: SchemaOptions, connection: Connection) -> dict[str, Any]:
    """The decoders of keys and values that have a schema."""
    if not schemas.is_used():
        return {}
    from barnabas.cli.serde.serdes import Decoder

    registry = schemas.registry(connection)
    parts = {name: schemas.part(name) for name in (KEY, VALUE)}
    return {
        name: Decoder(part, registry if part.source.is_registered else None)
        for name, part in parts.items()
        if part is not None
    }


class _Printer:
    """Writes records to standard output. count: the number of written records.

    Takes: write, a function that returns the printed form of a record: it has made control
           characters visible, except those of the command's own options, such as colours in a
           template; flushed, whether to flush the output after each record.
    """

    def __init__(self, write: Callable[[Any], bytes], *, flushed: bool) -> None:
        self.count = 0
        self._file = raw_stream(sys.stdout).buffer
        self._write = write
        self._flushed = flushed

    def print_last(
        self, tails: dict[TopicPartition, list[Any]], count: int, per_partition: bool
    ) -> None:
        """Print the last records of partitions in order of time. `count` applies to each partition
        if `per_partition` is true, and otherwise to all partitions together.
        """
        records = in_order_of_time(tails)
        for record in records if per_partition else records[-count:]:
            self._print(record)
        self._file.flush()

    def print_all(self, reader: PartitionReader, consumer: Any) -> None:
        """Print the records of a reader."""
        total = reader.total()
        with progress("offsets", total, hidden=sys.stdout.isatty()) as bar:
            for record in reader.read(consumer, bar.advance):
                self._print(record)
                if self._flushed:
                    self._file.flush()
        self._file.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        self._file.flush()

    def _print(self, record: Any) -> None:
        """Print one record."""
        data = self._write(record)
        # Counted before the output, since a user who sees the record may press Ctrl-C at once.
        self.count += 1
        self._file.write(data)


class _Span(NamedTuple):
    """The part of the partitions to read.

    start, end, as_of: the values of --from, --to and --as-of. follow: whether to continue at the
    end. is_tail: whether --last is given.
    """

    start: OffsetSpec | None
    end: OffsetSpec | None
    as_of: OffsetSpec | None
    follow: bool
    is_tail: bool


def _bounds(
    connection: Connection,
    names: Sequence[str],
    span: _Span,
    group: str | None,
    isolation_level: str,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int] | None]:
    """The start and the end of reading in each partition; None as the end means no end."""
    with connection.admin() as admin:
        partitions = sorted({row for name in names for row in topic_or_partition(admin, name)})
        first = span.start or (LATEST if span.follow and not span.is_tail else EARLIEST)
        starts = offsets_at(admin, partitions, first)
        if first.kind == "offset":
            _refuse_beyond(first.value, starts)
        if group is not None and span.start is None:
            starts.update(_committed(admin, group, partitions))
        if span.follow and not span.is_tail:
            return starts, None
        if span.as_of is not None:
            return starts, _ends_as_of(admin, partitions, span.as_of)
        return starts, _ends(admin, partitions, span.end, isolation_level)


def _refuse_beyond(wanted: int, starts: dict[TopicPartition, int]) -> None:
    """Report partitions that end before the offset `wanted`. Raises: CommandError if all of them
    do.
    """
    ends = [
        f"{row} ends at offset {start}" for row, start in sorted(starts.items()) if start < wanted
    ]
    if not ends:
        return
    text = f"--from {wanted} is beyond the end: {', '.join(ends[:NAMED_MOST])}"
    if len(ends) == len(starts):
        raise CommandError(f"{text}; `--from latest --follow` waits for new records")
    note(text, "warning")


def _end_early(
    client: ClusterClient,
    reader: PartitionReader,
    printer: _Printer,
    name: str,
    group: str | None,
) -> None:
    """Commit offsets and report how many records were printed. Called after Ctrl-C, or if the
    broker does not respond.
    """
    printer.flush()
    text = f"{name}: ended early: {count_text(printer.count, 'record')} printed"
    if group is None or not reader.moved():
        note(text, "warning")
        return
    waiting = Waiting(client.waiting.address, COMMIT_SOON_S)
    try:
        waiting.call("the commit", _commit, client, group, reader.moved())
    # The commit failed after the records were printed, so the group will read them again.
    except Exception:
        note(f"{text}, and not committed for the group {group}", "warning")
    else:
        note(f"{text} and committed for the group {group}", "warning")


def _committed(
    admin: Any, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets that a group has committed for these partitions, without partitions that have
    none.
    """
    from barnabas.cli.client.groups import committed

    found = committed(admin, group)
    return {row: found[row].offset for row in partitions if row in found}


def _commit(client: ClusterClient, group: str, positions: dict[TopicPartition, int]) -> None:
    """Commit positions for a group. No positions: nothing is committed. Raises: RefusedError."""
    from barnabas.cli.client.groups import commit

    if not positions:
        return
    for partition, code in commit(client, group, positions).items():
        if code:
            raise RefusedError(code, "", group if code in OF_GROUP else partition.topic)


def _ends(
    admin: Any, partitions: Sequence[TopicPartition], end: OffsetSpec | None, isolation_level: str
) -> dict[TopicPartition, int]:
    """The end of reading in each partition: its current end, or an earlier offset."""
    is_committed = isolation_level == ISOLATION_LEVELS[0]
    bounds = list_offsets(admin, partitions)
    key = "last_stable_offset" if is_committed else "high_watermark"
    ends = {row: bound[key] for row, bound in bounds.items()}
    for row, bound in bounds.items():
        held = bound["high_watermark"] - bound["last_stable_offset"]
        if is_committed and held:
            note(
                f"{row}: an open transaction holds back {count_text(held, 'offset')}; "
                f"`barnabas txn why-stuck {row}` shows its owner",
                "warning",
            )
    if end is not None:
        wanted = offsets_at(admin, partitions, end)
        ends = {row: min(offset, wanted[row]) for row, offset in ends.items()}
    return ends


def _ends_as_of(
    admin: ClusterClient, partitions: Sequence[TopicPartition], as_of: OffsetSpec
) -> dict[TopicPartition, int]:
    """The end of reading in each partition: that of the newest cut recorded up to a time.

    Raises: CommandError if there is none, or if it does not include one of the partitions.
    """
    from barnabas.cli.client.cuts import NOT_IN_CUT, cut_at_or_before, require_whole

    require_whole(admin, [partition.topic for partition in partitions])
    cut = cut_at_or_before(admin, partitions, as_of.value)
    if cut is None:
        raise CommandError(
            f"no cut is recorded up to {as_of}: `barnabas topics cuts` shows those that are; the "
            "broker records one in each barnabas.transactions.whole.cut.interval.ms in which "
            "something is committed"
        )
    lacking = [str(row) for row, offset in sorted(cut.offsets.items()) if offset == NOT_IN_CUT]
    if lacking:
        names = ", ".join(lacking[:NAMED_MOST])
        raise CommandError(
            f"the cut of {cut.time_text} does not include {names}: the topic did not have "
            "barnabas.transactions.whole then, or was off line"
        )
    note(f"as of {cut.time_text}, the newest cut recorded up to {as_of}")
    return cut.offsets


def _writer(
    output: Output,
    key_separator: str | None,
    template: str | None,
    show: Callable[[bytes], bytes],
) -> Callable[[Any], bytes]:
    """The function that gives the printed form of a record.

    Takes:  show, a function that makes control characters of a record visible.
    Raises: click.UsageError.
    """
    asked = {
        "--json": output.as_json,
        "--key-separator": key_separator is not None,
        "--format": template is not None,
    }
    if sum(asked.values()) > 1:
        names = " and ".join(name for name, is_asked in asked.items() if is_asked)
        raise click.UsageError(f"{names} cannot be combined: leave one out")
    if output.as_json:
        return _json_line
    if template is None:
        return _text_line(key_separator, show)
    try:
        return compile_template(template, show)
    except WrongTemplate as error:
        raise click.UsageError(f"--format: {error}") from error


def _json_line(record: Any) -> bytes:
    return json_line(json_record(record)).encode() + b"\n"


def _text_line(key_separator: str | None, show: Callable[[bytes], bytes]) -> Callable[[Any], bytes]:
    """The function that gives a record as a line of text: its value, after its key if there is a
    separator.
    """
    if key_separator is None:
        return lambda record: show(shown_bytes(record.value) or b"") + b"\n"
    separator = key_separator.encode()
    return lambda record: (
        show(shown_bytes(record.key) or b"")
        + separator
        + show(shown_bytes(record.value) or b"")
        + b"\n"
    )
