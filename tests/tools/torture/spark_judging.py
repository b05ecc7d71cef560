"""The checks at the end of a round of `torture.spark_pipeline`. They compare the committed input,
the query's offset log, and the contents of the output topics.

They need neither Spark, nor brokers, nor processes. tests/unit/tools/test_torture_spark_judging.py
tests them with a lost record, a duplicate, an aborted record and other errors.

The values of records: an input value is `<name>=<id>@<ms>`, where each name occurs once, ids occur
repeatedly, and ms is the time of the event. Plans that keep rows write
`<input value>|<input topic>|<partition>|<offset>|<random text>`. The plan that counts writes
`<start of the window in ms>|<key>|<count>`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

COPIED, SHUFFLED, SCATTERED, DISTINCT, COUNTED = (
    "copied",
    "shuffled",
    "scattered",
    "distinct",
    "counted",
)
PLANS = (COPIED, SHUFFLED, SCATTERED, DISTINCT, COUNTED)
WINDOW_MS = 2_000
Place = tuple[str, int]  # topic and partition


class Finding(NamedTuple):
    """An error that a check has found."""

    kind: str
    text: str


class Row(NamedTuple):
    """A record with its position."""

    topic: str
    partition: int
    offset: int
    value: str
    key: str = ""


class Source(NamedTuple):
    """The input record from which an output row was made, according to the row."""

    value: str
    topic: str
    partition: int
    offset: int


@dataclass
class Batch:
    """The checkpoint's entry for one batch: the offsets where the batch ends, and the watermark
    with which it ran.
    """

    ends: dict[Place, int]
    watermark_ms: int = 0


@dataclass
class Story:
    """The data of a round. `committed` and `everything` are the final output as read_committed and
    read_uncommitted readers receive it.
    """

    plan: str
    input: list[Row]
    batches: dict[int, Batch]
    committed: list[Row]
    everything: list[Row]
    seen: list[Row] = field(
        default_factory=list
    )  # the records that a read_committed reader received during the round
    group_offset: int | None = (
        # the offset of the query's own group, which is the number of its last batch with rows, plus
        # 1
        None
    )
    forbidden: set[str] = field(
        default_factory=set
    )  # values in input transactions that no client tried to commit
    promised: set[str] = field(
        default_factory=set
    )  # values that were acknowledged to their producer
    notes: Counter[str] = field(default_factory=Counter)


def id_of(value: str) -> str:
    return value.partition("=")[2].partition("@")[0]


def event_ms_of(value: str) -> int:
    return int(value.rpartition("@")[2])


def source_of(value: str) -> Source | None:
    """The source of an output value, or None if the value is not from a plan that keeps rows."""
    parts = value.split("|")
    if len(parts) != 5 or not parts[2].isdigit() or not parts[3].isdigit():
        return None
    return Source(parts[0], parts[1], int(parts[2]), int(parts[3]))


def read_offset_log(directory: Path) -> dict[int, Batch]:
    """Read the batches from the folder `offsets` of a checkpoint. Each of its files has one line
    for the version, one about the batch, and one for the query's only source.
    """
    batches: dict[int, Batch] = {}
    for path in directory.iterdir() if directory.is_dir() else ():
        if not path.name.isdigit():
            continue
        _, about, offsets = path.read_text().splitlines()[:3]
        ends = {
            (topic, int(partition)): end
            for topic, parts in json.loads(offsets).items()
            for partition, end in parts.items()
        }
        batches[int(path.name)] = Batch(ends, json.loads(about).get("batchWatermarkMs", 0))
    return batches


class Index:
    """Finds the batch that contains an input record."""

    def __init__(self, batches: Mapping[int, Batch]) -> None:
        self._ends: dict[Place, list[tuple[int, int]]] = defaultdict(list)
        for number in sorted(batches):
            for place, end in batches[number].ends.items():
                self._ends[place].append((end, number))

    def batch_of(self, topic: str, partition: int, offset: int) -> int | None:
        """The batch that contains this record, or None if no batch does."""
        return next((number for end, number in self._ends[topic, partition] if offset < end), None)


def judge(story: Story) -> list[Finding]:
    """All findings."""
    index = Index(story.batches)
    findings = [*check_input(story), *check_batches(story), *check_seen(story)]
    findings += (
        check_counts(story, index)
        if story.plan == COUNTED
        else [*check_rows(story, index), *check_order(story, index)]
    )
    return findings


def check_input(story: Story) -> Iterator[Finding]:
    """Check that the input has each acknowledged record exactly once, and no record that the
    feeders did not commit.
    """
    counts = Counter(row.value for row in story.input)
    for value in sorted(story.forbidden & counts.keys()):
        yield Finding("input", f"{value} is visible, and its transaction was not committed")
    for value in sorted(story.promised - counts.keys()):
        yield Finding("input", f"{value} was promised, and is not there")
    for value, count in counts.items():
        if count > 1:
            yield Finding("input", f"{value} is there {count} times")


def check_batches(story: Story) -> Iterator[Finding]:
    """Check that the offset log has no gap, never goes back, and ends where the input ends."""
    before: dict[Place, int] = {}
    for number, (found, batch) in enumerate(sorted(story.batches.items())):
        if number != found:
            yield Finding("checkpoint", f"batch {number} is missing in the offset log")
            return
        for place, end in batch.ends.items():
            if end < before.get(place, 0):
                yield Finding(
                    "checkpoint",
                    f"batch {number} goes back on {place} from {before[place]} to {end}",
                )
        before |= batch.ends
    for row in story.input:
        if row.offset >= before.get((row.topic, row.partition), 0):
            yield Finding("checkpoint", f"{row} is in no batch")


def check_rows(story: Story, index: Index) -> Iterator[Finding]:
    """Check that each input record is in the output exactly once, and that even uncommitted
    attempts use only committed input.
    """
    inputs = {Source(row.value, row.topic, row.partition, row.offset): row for row in story.input}
    for row in story.everything:
        source = source_of(row.value)
        if source not in inputs:
            aborted = source is not None and source.value in story.forbidden
            yield Finding(
                "aborted" if aborted else "foreign", f"{row} is not made of committed input"
            )
    made: dict[str, list[Row]] = defaultdict(list)
    name_of = id_of if story.plan == DISTINCT else str
    for row in story.committed:
        source = source_of(row.value)
        if source in inputs and source is not None:
            made[name_of(source.value)].append(row)
    wanted: dict[str, Row] = {}
    for row in story.input:
        wanted.setdefault(name_of(row.value), row)
    for name, row in wanted.items():
        number = index.batch_of(row.topic, row.partition, row.offset)
        if name not in made:
            yield Finding("lost", f"{row} of batch {number} has no output")
        elif len(made[name]) > 1:
            yield Finding("doubled", f"{row} of batch {number} has the outputs {made[name]}")
    last = max((_batch(row, index) for row in story.committed), default=None)
    if story.group_offset is not None and last is not None and story.group_offset != last + 1:
        yield Finding(
            "group",
            f"the query's group stands at {story.group_offset}, and the last batch with rows is "
            f"{last}",
        )


def _batch(row: Row, index: Index) -> int:
    """Return the number of the batch that the row belongs to, or -1 if it is unknown."""
    source = source_of(row.value)
    number = (
        None if source is None else index.batch_of(source.topic, source.partition, source.offset)
    )
    return -1 if number is None else number


def check_order(story: Story, index: Index) -> Iterator[Finding]:
    """Check that each output partition has the batches in order and, if the plan keeps the order,
    the records of each input partition in the order of their offsets.
    """
    last_batch: dict[Place, int] = {}
    last_offset: dict[tuple[Place, Place], int] = {}
    for row in sorted(story.committed, key=lambda row: (row.topic, row.partition, row.offset)):
        source, to = source_of(row.value), (row.topic, row.partition)
        if source is None:
            continue
        number = _batch(row, index)
        if number < last_batch.get(to, -1):
            yield Finding("order", f"{row} of batch {number} lies behind batch {last_batch[to]}")
        last_batch[to] = number
        origin = (source.topic, source.partition)
        if story.plan == COPIED and source.offset <= last_offset.get((to, origin), -1):
            yield Finding(
                "order",
                f"{row} of batch {number} lies behind offset {last_offset[to, origin]} of the same "
                "input partition",
            )
        last_offset[to, origin] = source.offset


def check_counts(story: Story, index: Index) -> Iterator[Finding]:
    """Check that each window of each key is reported once, with the number of records that the
    input has. The number is not checked for a window with a record that arrived behind the
    watermark.
    """
    wanted: Counter[tuple[int, str]] = Counter()
    unsure: set[tuple[int, str]] = set()
    for row in story.input:
        window = (event_ms_of(row.value) // WINDOW_MS * WINDOW_MS, row.key)
        wanted[window] += 1
        number = index.batch_of(row.topic, row.partition, row.offset)
        if number is not None and window[0] + WINDOW_MS <= story.batches[number].watermark_ms:
            unsure.add(window)
    open_ms = max(batch.watermark_ms for batch in story.batches.values()) if story.batches else 0
    story.notes["windows"] = len(wanted)
    story.notes["windows with late records"] = len(unsure)
    reported: Counter[tuple[int, str]] = Counter()
    for row in story.everything:
        start, key, count = row.value.split("|")
        window = (int(start), key)
        if window not in wanted:
            yield Finding("foreign", f"{row} counts nothing that is in the input")
        elif window not in unsure and int(count) != wanted[window]:
            yield Finding("count", f"{row}: the input has {wanted[window]}")
    for row in story.committed:
        start, key, _ = row.value.split("|")
        reported[int(start), key] += 1
    for window, records in wanted.items():
        if reported[window] > 1:
            yield Finding("doubled", f"window {window} is reported {reported[window]} times")
        elif not reported[window] and window not in unsure and window[0] + WINDOW_MS <= open_ms:
            yield Finding("lost", f"window {window} with {records} records is not reported")


def check_seen(story: Story) -> Iterator[Finding]:
    """Check that each record that the read_committed reader received during the round is in the
    final output, and that the reader missed none.
    """
    final, seen = set(story.committed), set(story.seen)
    for row in sorted(seen - final):
        yield Finding("vanished", f"{row} was seen as committed, and is not there any more")
    if len(seen) != len(story.seen):
        yield Finding("vanished", "a reader was given the same offset twice")
    if story.seen:
        for row in sorted(final - seen):
            yield Finding("skipped", f"{row} was not given to a reader that was there all the time")


def read_diaries(paths: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Read from the feeders' diaries which values must not be in the input, and which must be."""
    forbidden: set[str] = set()
    promised: set[str] = set()
    for path in paths:
        by_transaction: dict[str | None, set[str]] = defaultdict(set)
        asked: set[str] = set()
        committed: set[str] = set()
        delivered: set[str] = set()
        for row in read_lines(path):
            if row["is"] == "send":
                by_transaction[row["transaction"]].add(row["value"])
            elif row["is"] == "ok":
                delivered.add(row["value"])
            elif row["is"] == "commit?":
                asked.add(row["transaction"])
            elif row["is"] == "committed":
                committed.add(row["transaction"])
        for transaction, values in by_transaction.items():
            if transaction is None:
                promised |= values & delivered
            elif transaction in committed:
                promised |= values
            elif transaction not in asked:
                forbidden |= values
    return forbidden, promised


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a diary, up to a line that a kill truncated."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return
