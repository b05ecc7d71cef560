"""The offsets of a read: where it begins and ends, and how the range of each partition is divided
into ranges for tasks. This module sends no requests.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from barnabas.protocol.topic_partition import TopicPartition

ID_MARK = "#"
# This entry among a stream's offsets says that they are a cut (cuts.py).
CUT_MARK = "#cut"
# These values mean the same as offsets in Spark's JSON and as timestamps in Kafka's ListOffsets.
LATEST, EARLIEST = -1, -2


class OffsetRange(NamedTuple):
    """The offsets from start_offset up to, but not including, end_offset."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset


@dataclass(frozen=True)
class OffsetSpec:
    """Where a read begins or ends, according to an option.

    Of the four fields after `option`, exactly one is set.
    """

    option: str
    everywhere: int | None = None  # EARLIEST or LATEST
    # An offset may also be LATEST or EARLIEST.
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    # Whether the end of the log is used if no record is late enough. If False, this case is an
    # error.
    or_latest: bool = True

    @property
    def partitions(self) -> set[TopicPartition] | None:
        """The partitions that the option lists, or None if it applies to all partitions."""
        if self.everywhere is not None or self.timestamp_ms is not None:
            return None
        return set(self.offsets or self.timestamps_ms)


Offsets = dict[TopicPartition, int]


def offsets_as_json(
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str] = MappingProxyType({}),
    *,
    is_cut: bool = False,
) -> dict[str, dict[str, int]]:
    """Convert offsets to the form of the options, always in the same order.

    The order matters since Spark compares a stream's offsets as strings. A topic's id follows its
    name, in the form of a topic without partitions:

        {"orders": {"0": 23, "1": 42}, "orders#Wn6bYRCbTMSDfkHvvvTvJQ": {}}

    No topic's name contains a `#`. Spark's own Kafka source considers such an entry a topic without
    partitions. A query with this checkpoint can therefore continue with that source, and return to
    this one.

    Takes:  is_cut, whether the offsets divide no transaction; they then have the entry CUT_MARK.
    """
    topics: dict[str, dict[str, int]] = {}
    for name in sorted(offsets):
        topics.setdefault(name.topic, {})[str(name.partition)] = offsets[name]
    topics.update(
        {f"{topic}{ID_MARK}{topic_ids[topic]}": {} for topic in list(topics) if topic in topic_ids}
    )
    if is_cut:
        topics[CUT_MARK] = {}
    return topics


def topic_ids_of_json(topics: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids of topics in the JSON object that `offsets_as_json` has made."""
    return dict(name.split(ID_MARK, 1) for name in topics if ID_MARK in name and name != CUT_MARK)


def offsets_of_json(topics: Mapping[str, Any]) -> Offsets:
    """Return the offsets in the JSON object that `offsets_as_json` has made.

    Raises: ValueError for any other object.
    """
    try:
        return {
            TopicPartition(topic, int(number)): int(offset)
            for topic, numbers in topics.items()
            for number, offset in numbers.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f'offsets look like {{"topic": {{"0": 23}}}}, not like {topics!r}'
        ) from error


def share_of_limit(sizes: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """Decide how many offsets of each partition are read, if `limit` is the limit of their sum.

    The shares are proportional to the available offsets. But a partition with offsets gets at least
    one, even if the sum then exceeds the limit. Otherwise a small partition would never be read as
    long as there are large ones.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    return {
        name: min(size, max(1, limit * size // total)) if size else 0
        for name, size in sizes.items()
    }


def divide(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Divide the ranges into one range for each task.

    There are at least min_partitions ranges, if there are that many offsets, and none is longer
    than max_records. Each further cut is made in the range whose parts are the longest. Empty
    ranges are left out.
    """
    whole = [each for each in ranges if each.size > 0]
    pieces = [1 if max_records is None else -(-each.size // max_records) for each in whole]
    missing = (min_partitions or 0) - sum(pieces)
    if missing > 0:
        pieces = _share(whole, pieces, missing)
    return [piece for each, count in zip(whole, pieces, strict=True) for piece in _cut(each, count)]


def join(
    ranges: Sequence[OffsetRange], *, most_offsets: int, least_tasks: int
) -> list[tuple[OffsetRange, ...]]:
    """Join adjacent ranges, up to a number of offsets. Gives: the ranges of each task.

    A task costs some 20 ms of CPU even if it has few rows, and Spark runs as many tasks at a time
    as there are cores. The result depends only on the arguments, so a repeated batch has the same
    tasks.

    Takes:  most_offsets, the maximum number of offsets of joined ranges; least_tasks, the minimum
            number of tasks; if fewer would remain, no ranges are joined.
    """
    tasks: list[list[OffsetRange]] = []
    size = 0
    for each in ranges:
        if tasks and size + each.size <= most_offsets:
            tasks[-1].append(each)
            size += each.size
        else:
            tasks.append([each])
            size = each.size
    if len(tasks) < least_tasks:
        return [(each,) for each in ranges]
    return [tuple(task) for task in tasks]


def _share(ranges: Sequence[OffsetRange], pieces: Sequence[int], missing: int) -> list[int]:
    """Distribute the missing number of pieces: each further one to the range whose pieces are the
    longest. Gives: the number of pieces of each range.
    """
    counts = list(pieces)
    longest = [
        (-each.size / count, index)
        for index, (each, count) in enumerate(zip(ranges, counts, strict=True))
    ]
    heapq.heapify(longest)
    while missing and longest:
        _, index = heapq.heappop(longest)
        if counts[index] >= ranges[index].size:
            continue  # each part of this range has only one offset
        counts[index] += 1
        missing -= 1
        heapq.heappush(longest, (-ranges[index].size / counts[index], index))
    return counts


def _cut(whole: OffsetRange, count: int) -> Iterable[OffsetRange]:
    edges = [whole.start_offset + whole.size * index // count for index in range(count + 1)]
    return [whole._replace(start_offset=start, end_offset=end) for start, end in pairwise(edges)]
