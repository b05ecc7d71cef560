"""Reading partitions from their start offsets to their ends, and the last records of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from barnabas.protocol.topic_partition import TopicPartition

POLL_MS = 200
# how many more offsets than records the first range has, since markers use offsets as well
TAIL_SPARE = 10
TAIL_GROWTH = 4
Offsets = Mapping[TopicPartition, int]
Prepare = Callable[[Any], Any]


class PartitionReader:
    """Reads partitions from their start positions to their ends.

    Takes: ends, None to read without an end; most, the maximum number of records; prepare, a
           function that takes a consumer's record and returns the record to pass on, or None to
           leave it out.

    positions: the next offset of each partition. count: the number of returned records.
    """

    def __init__(
        self,
        starts: Offsets,
        ends: Offsets | None,
        most: int | None = None,
        prepare: Prepare = lambda record: record,
    ) -> None:
        self.positions = dict(starts)
        self._starts = starts
        self.count = 0
        self._ends = ends
        self._most = most
        self._prepare = prepare

    def left(self) -> dict[TopicPartition, int]:
        """The partitions that are not completely read, each with the number of offsets left to
        read.
        """
        assert self._ends is not None
        return {
            partition: self._ends[partition] - position
            for partition, position in self.positions.items()
            if position < self._ends[partition]
        }

    def total(self) -> int | None:
        """The number of offsets left to read; None if there is no end."""
        return None if self._ends is None else sum(self.left().values())

    def moved(self) -> dict[TopicPartition, int]:
        """The next offsets of the partitions from which records were read."""
        return {row: at for row, at in self.positions.items() if at > self._starts[row]}

    def read(self, consumer: Any, advance: Callable[[int], Any]) -> Iterator[Any]:
        """The wanted records, as `prepare` returns them."""
        reading = self.positions if self._ends is None else self.left()
        if not reading:
            return
        consumer.assign({partition: self.positions[partition] for partition in reading})
        silence = consumer.waiting.silence()
        while consumer.positions:
            before = dict(self.positions)
            for partition, records in consumer.poll(POLL_MS).items():
                yield from self._wanted(partition, records, advance)
                if self.count == self._most:
                    return
            # The consumer's position also advances past markers and aborted records.
            for partition, position in list(consumer.positions.items()):
                self._move(partition, position, advance)
                if self._ends is not None and self.positions[partition] >= self._ends[partition]:
                    del consumer.positions[partition]
            # Without a given end, every response counts, since at the end of a log it has no
            # records. With an end, only a response that advances a partition counts.
            if self._ends is None or before != self.positions:
                silence.end()
            silence.look("records")

    def _wanted(
        self, partition: TopicPartition, records: Any, advance: Callable[[int], Any]
    ) -> Iterator[Any]:
        """The wanted records of one poll result, up to the end of the partition."""
        for record in records:
            if self._ends is not None and record.offset >= self._ends[partition]:
                return
            if (wanted := self._prepare(record)) is not None:
                yield wanted
                self.count += 1
            self._move(partition, record.offset + 1, advance)
            if self.count == self._most:
                return

    def _move(
        self, partition: TopicPartition, position: int, advance: Callable[[int], Any]
    ) -> None:
        """Advance the position of a partition, and the progress bar by as much. With a given end,
        the position does not pass the end.
        """
        if self._ends is not None:
            position = min(position, max(self._ends[partition], self.positions[partition]))
        advance(position - self.positions[partition])
        self.positions[partition] = position


def last_records(
    consumer: Any,
    starts: Offsets,
    ends: Offsets,
    count: int,
    prepare: Prepare,
    advance: Callable[[int], Any] = lambda count: None,
) -> dict[TopicPartition, list[Any]]:
    """The last wanted records of each partition, at most `count` of each.

    The number of offsets does not tell the number of records: markers, aborted, compacted and
    unwanted records use offsets as well. So a partition is read backwards from its end, in ranges
    of increasing length, until there are enough records or the start is reached.
    """
    tails: dict[TopicPartition, list[Any]] = {row: [] for row in starts}
    piece_ends = dict(ends)
    length = count + TAIL_SPARE
    while True:
        piece_starts = {
            row: max(starts[row], piece_ends[row] - length)
            for row, tail in tails.items()
            if len(tail) < count and piece_ends[row] > starts[row]
        }
        if not piece_starts:
            return tails
        piece: dict[TopicPartition, list[Any]] = {row: [] for row in piece_starts}
        for record in PartitionReader(piece_starts, piece_ends, None, prepare).read(
            consumer, advance
        ):
            rows = piece[TopicPartition(record.topic, record.partition)]
            rows.append(record)
            if len(rows) > 2 * count:
                del rows[:-count]
        for row, records in piece.items():
            tails[row] = (records + tails[row])[-count:]
        piece_ends.update(piece_starts)
        length *= TAIL_GROWTH


def in_order_of_time(tails: Mapping[TopicPartition, list[Any]]) -> list[Any]:
    """The records of partitions as one list, the oldest first.

    Each partition keeps its order. A record that is older than an earlier record of its partition
    is sorted by the time of the earlier record.
    """
    rows = []
    for partition, records in tails.items():
        latest = -1
        for record in records:
            latest = max(latest, -1 if record.timestamp is None else record.timestamp)
            rows.append((latest, partition, record.offset, record))
    return [record for _, _, _, record in sorted(rows, key=lambda row: row[:3])]
