"""`barnabas consume`: records of topics as lines on standard output."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from barnabas.cli.cluster import Connection
from barnabas.cli.errors import CommandError
from barnabas.cli.offsets import client_partitions, list_offsets, offsets_at, topic_or_partition
from barnabas.cli.options import (
    EARLIEST,
    LATEST,
    PLACE,
    Place,
    connection_options,
    examples,
    json_option,
)
from barnabas.cli.output import Output, note, progress
from barnabas.cli.records import json_record
from barnabas.cli.waiting import TimeoutOver, Waiting
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import count_text

POLL_MS = 200
NAMED_MOST = 10  # partitions named in a line
COMMIT_SOON_S = 0.5  # after Ctrl-C
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


@click.command(
    epilog=examples(
        "barnabas consume orders",
        "barnabas consume orders --follow --json",
        "barnabas consume orders-0 --from 1000 --to 2000",
        "barnabas consume orders --from 10m --key-separator :",
        "barnabas consume orders --isolation-level read_uncommitted --count 5",
        "barnabas consume orders --group kitchen",
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
@click.option("--to", "end", type=PLACE, help="Stop before that offset or time.")
@click.option("-f", "--follow", is_flag=True, help="Go on at the end, and wait for more.")
@click.option("-n", "--count", metavar="N", type=click.IntRange(1), help="Stop after N records.")
@click.option("-g", "--group", help="Read from what the group has committed, and commit.")
@click.option(
    "--isolation-level",
    type=click.Choice(ISOLATION_LEVELS),
    default=ISOLATION_LEVELS[0],
    show_default=True,
    help="Whether records of open and aborted transactions are left out.",
)
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Print the key, too, and that after it."
)
@connection_options
@json_option
def consume(
    connection: Connection,
    output: Output,
    names: Sequence[str],
    start: Place | None,
    end: Place | None,
    follow: bool,
    count: int | None,
    group: str | None,
    isolation_level: str,
    key_separator: str | None,
) -> None:
    """Print the records of topics, a line each, up to their current end.

    Partitions are read in parallel, each in its order. --json prints an object a line,
    with topic, partition, offset, time, key, value and headers. The offsets of printed
    records are committed for a group.
    """
    if follow and end is not None:
        raise click.UsageError("--follow has no end: leave --to out, or --follow")
    with connection.admin() as admin:
        partitions = sorted({row for name in names for row in topic_or_partition(admin, name)})
        first = start or (LATEST if follow else EARLIEST)
        starts = offsets_at(admin, partitions, first)
        if first.kind == "offset":
            _refuse_beyond(first.value, starts)
        if group is not None and start is None:
            starts.update(_committed(admin, group, partitions))
        ends = None if follow else _ends(admin, partitions, end, isolation_level)
    reader = _Reader(starts, ends, count)
    write = _json_line if output.as_json else _text_line(key_separator)
    settings: dict[str, Any] = {"isolation_level": isolation_level, "group_id": group}
    with connection.consumer(**settings) as consumer:
        total = None if ends is None else sum(reader.left().values())
        name = ", ".join(names)
        try:
            with progress("offsets", total, hidden=sys.stdout.isatty()) as bar:
                for record in reader.read(consumer, bar.advance):
                    sys.stdout.buffer.write(write(record))
                    if follow:
                        sys.stdout.buffer.flush()
            sys.stdout.buffer.flush()
        except (KeyboardInterrupt, TimeoutOver):
            _end_early(connection, consumer, reader, name, group)
            raise
        if group is not None:
            _commit(consumer.commit, reader.moved())
    note(count_text(reader.count, "record")) if sys.stderr.isatty() else None


def _refuse_beyond(wanted: int, starts: dict[TopicPartition, int]) -> None:
    """Say where partitions end before an offset. Raises: CommandError where all of them do."""
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
    connection: Connection, consumer: Any, reader: _Reader, name: str, group: str | None
) -> None:
    """After Ctrl-C, or where the broker does not answer: commit, and write what was printed."""
    sys.stdout.buffer.flush()
    text = f"{name}: ended early: {count_text(reader.count, 'record')} printed"
    if group is None or not reader.moved():
        note(text, "warning")
        return
    waiting = Waiting(connection.bootstrap_servers, COMMIT_SOON_S)
    try:
        _commit(
            functools.partial(waiting.call, "the commit", consumer.client.commit), reader.moved()
        )
    except Exception:  # what was printed is printed; the group will read it again
        note(f"{text}, and not committed for the group {group}", "warning")
    else:
        note(f"{text} and committed for the group {group}", "warning")


def _committed(
    admin: Any, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    from barnabas.cli.groups import committed_offsets

    committed = committed_offsets(admin, group)
    return {row: committed[row] for row in partitions if row in committed}


def _commit(commit: Callable[..., Any], positions: dict[TopicPartition, int]) -> None:
    from kafka.structs import OffsetAndMetadata

    if not positions:
        return
    keys = client_partitions(positions)
    commit(
        {
            key: OffsetAndMetadata(position, "", -1)
            for key, position in zip(keys, positions.values(), strict=True)
        }
    )


def _ends(
    admin: Any, partitions: Sequence[TopicPartition], end: Place | None, isolation_level: str
) -> dict[TopicPartition, int]:
    """Where to stop in each partition: at its current end, or before."""
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


class _Reader:
    """Reads partitions from their start positions to their ends.

    positions: the next offset of each partition. count: how many records it gave.
    """

    def __init__(
        self,
        starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, int] | None,
        count: int | None,
    ) -> None:
        self.positions = dict(starts)
        self._starts = starts
        self.count = 0
        self._ends = ends
        self._most = count

    def left(self) -> dict[TopicPartition, int]:
        """The partitions that are not read to their end, with the number of remaining offsets."""
        assert self._ends is not None
        return {
            partition: self._ends[partition] - position
            for partition, position in self.positions.items()
            if position < self._ends[partition]
        }

    def moved(self) -> dict[TopicPartition, int]:
        """The next offsets of the partitions from which records were read."""
        return {row: at for row, at in self.positions.items() if at > self._starts[row]}

    def read(self, consumer: Any, advance: Any) -> Iterator[Any]:
        """The records, in the consumer's form."""
        reading = list(self.positions) if self._ends is None else list(self.left())
        keys = dict(zip(reading, client_partitions(reading), strict=True))
        if not keys:
            return
        consumer.assign(list(keys.values()))
        for partition, key in keys.items():
            consumer.seek(key, self.positions[partition])
        silence = consumer.waiting.silence()
        last_answer = self._last_answer(consumer)
        while self._ends is None or self.left():
            polled = consumer.poll(timeout_ms=POLL_MS)
            if last_answer != (last_answer := self._last_answer(consumer)):
                silence.end()
            silence.look("records")
            for key, records in polled.items():
                partition = TopicPartition(*key)
                for record in records:
                    if self._ends is not None and record.offset >= self._ends[partition]:
                        break
                    yield record
                    self.count += 1
                    self._move(partition, record.offset + 1, advance)
                    if self.count == self._most:
                        return
            for partition, key in keys.items():  # markers and aborted records are skipped
                position = consumer.position(key, timeout_ms=POLL_MS)
                if position is not None:
                    self._move(partition, position, advance)
                if self._ends is not None and self.positions[partition] >= self._ends[partition]:
                    consumer.pause(key)

    def _last_answer(self, consumer: Any) -> Any:
        """What changes while the brokers answer.

        At the end of a log they answer without records. Up to a given end, an answer that brings a
        partition no further is none.
        """
        if self._ends is not None:
            return tuple(self.positions.values())
        return consumer.last_read()

    def _move(self, partition: TopicPartition, position: int, advance: Any) -> None:
        if self._ends is not None:
            position = min(position, max(self._ends[partition], self.positions[partition]))
        advance(position - self.positions[partition])
        self.positions[partition] = position


def _json_line(record: Any) -> bytes:
    return json.dumps(json_record(record), ensure_ascii=False).encode() + b"\n"


def _text_line(key_separator: str | None) -> Any:
    if key_separator is None:
        return lambda record: (record.value or b"") + b"\n"
    separator = key_separator.encode()
    return lambda record: (record.key or b"") + separator + (record.value or b"") + b"\n"
