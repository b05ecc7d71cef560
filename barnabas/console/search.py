"""The records of a whole topic that satisfy a condition, the newest first, a limited part at a
time.

The partitions are merged by timestamp. Each partition is read backwards, window by window
(`take_window`, in the loop's thread), and batch by batch. The response to one request has the
records found so far and a cursor, at which the next request continues. So a request's work does not
grow with the topic: at most MOST_SCANNED records are examined, and none after `is_over` returns
true. A batch that ends before the wanted time, or below the wanted offsets, is skipped by its
header.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.console.decoding import (
    MOST_AT_ONCE,
    NOT_DECODED,
    Decode,
    Values,
    decoded_value,
    first_part,
)
from barnabas.console.filters import Condition, Facts
from barnabas.console.records import MOST_DECOMPRESSED_BYTES, MOST_READ_BYTES, record_value
from barnabas.console.spans import Kinds, UnreadableBatch, Window, headers_in
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import BatchHeader, Record, has_right_crc, open_records
from barnabas.storage.disk import File

MOST_PARTITIONS = 1000
MOST_SCANNED = 50_000
MOST_RECORDS_OF_BATCH = 50_000
"""A larger batch is not opened: all its records would be in memory at the same time."""
# the number of offset index entries in a window; each entry covers 4 KiB, or one batch
FIRST_ENTRIES, MOST_ENTRIES = 1, 64
MOST_PROBLEMS = 20
_PLACE = re.compile(r"(\d{1,10}):(\d{1,19})")


class Bounds(NamedTuple):
    """The range of offsets to search in one partition. `before` is its exclusive end."""

    from_offset: int
    before: int


class Found(NamedTuple):
    """A record that satisfies the condition. state: the kind of its batch; see the module
    `spans`.
    """

    partition: int
    record: Record
    header: BatchHeader
    state: str


class Result(NamedTuple):
    """The result of a part of a search.

    cursor: for each partition, the offset where the next part continues; empty if the search is
    complete.
    """

    found: Sequence[Found]
    cursor: Mapping[int, int]
    scanned: int
    problems: Sequence[str]


Take = Callable[[Sequence[tuple[int, int, int]]], Sequence[Window | None]]
"""A function from (partition, before, index entries) to windows, in that order; None for one that
cannot be read.
"""


def places_text(places: Mapping[int, int]) -> str:
    """Offsets by partition as text, in the form 0:17,1:4."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(places.items()))


def parse_places(text: str) -> dict[int, int]:
    """Parse the text of offsets by partition. Raises: ValueError."""
    places = {}
    for part in text.split(",") if text else ():
        match = _PLACE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part[:40]!r} is not PARTITION:OFFSET")
        places[int(match[1])] = int(match[2])
    return places


class _Reader:
    """A reader of one partition, from the end backwards. before: all records from this offset on
    are processed.

    `records` has the unprocessed records of the current batch. The last of them is processed next.
    `_batches` has the unprocessed batches of the current window.
    """

    def __init__(
        self, partition: int, bounds: Bounds, from_ms: int | None, decode: Decode | None
    ) -> None:
        self.partition, self.before = partition, bounds.before
        self._decode = decode
        self._decoded: dict[int, Values] = {}  # decoded records by offset
        self._from_offset, self._from_ms = bounds.from_offset, from_ms
        self.records: list[Record] = []
        self.header: BatchHeader | None = None
        self.state = ""
        self.entries = FIRST_ENTRIES
        self._batches: list[tuple[File, int, BatchHeader, str]] = []

    @property
    def is_done(self) -> bool:
        return not self.records and not self._batches and self.before <= self._from_offset

    @property
    def needs_window(self) -> bool:
        return not self.records and not self._batches and not self.is_done

    @property
    def has_batches(self) -> bool:
        return bool(self._batches)

    def add_window(self, window: Window | None, problems: list[str]) -> None:
        """Take the batches of the window that ends at `before`."""
        self.entries = min(self.entries * 2, MOST_ENTRIES)
        if window is None:
            self.before = self._from_offset
            return
        self._from_offset = max(self._from_offset, window.log_start_offset)
        kinds, lowest = Kinds(window), self.before
        try:
            for slice in window.slices:
                position = slice.position
                for header, is_commit in headers_in(slice):
                    if header.base_offset >= self.before:
                        break
                    lowest = min(lowest, header.base_offset)
                    kind = kinds.of(header, is_commit)
                    if header.is_control:
                        kinds.ended(header)
                    elif header.last_offset >= self._from_offset:
                        self._batches.append((slice.file, position, header, kind))
                    position += header.size_bytes
        except UnreadableBatch as error:
            problems.append(f"Partition {self.partition}: {error}")
        if not self._batches:
            # The window had no batch to process. If it had other batches, such as markers, the
            # search continues before them; otherwise it ends.
            self.before = lowest if lowest < self.before else self._from_offset

    def open_batch(self, problems: list[str]) -> None:
        """Open the last batch of the window, if it may have matching records."""
        file, position, header, self.state = self._batches.pop()
        self.header = header
        bound, before = self._from_offset, self.before
        is_old = self._from_ms is not None and header.max_timestamp < self._from_ms
        try:
            records = [] if is_old else _opened(file, position, header)
            self.records = [row for row in records if bound <= row.offset < before]
        except KafkaError as error:
            problems.append(
                f"Partition {self.partition}: the batch at offset {header.base_offset} cannot "
                f"be read: {error}"
            )
        if not self.records:
            self.before = min(before, max(header.base_offset, bound))

    def decoded(self, record: Record) -> Values:
        """The decoded key and value of the record that was popped last.

        The records before it in the batch are decoded in the same request, since the search
        examines them next.
        """
        if self._decode is None:
            return NOT_DECODED
        values = self._decoded.get(record.offset)
        if values is None:
            part = first_part([record, *reversed(self.records[1 - MOST_AT_ONCE :])])
            found = self._decode(part)
            self._decoded = {row.offset: one for row, one in zip(part, found, strict=True)}
            values = self._decoded[record.offset]
        return values

    def pop(self) -> Record:
        """Remove and return the newest remaining record. After the last record of a batch, `before`
        is the start of the batch, so that the next window ends there.
        """
        record = self.records.pop()
        self.before = record.offset
        if not self.records and self.header is not None:
            self.before = max(min(self.before, self.header.base_offset), self._from_offset)
        return record


def _opened(file: File, position: int, header: BatchHeader) -> list[Record]:
    """The records of a batch. Raises: KafkaError if the batch is damaged or too large; OSError."""
    size = header.size_bytes
    if size > MOST_READ_BYTES or header.record_count > MOST_RECORDS_OF_BATCH:
        raise KafkaError(
            Code.MESSAGE_TOO_LARGE,
            f"it has {size:,} bytes and {header.record_count:,} records, more than the console "
            "reads: use `barnabas consume`",
        )
    batch = memoryview(file.pread(size, position))
    if not has_right_crc(batch, header):
        raise KafkaError(Code.CORRUPT_MESSAGE, "its CRC is wrong")
    return list(open_records(batch, MOST_DECOMPRESSED_BYTES))


class Search:
    """The part of a search that one request runs.

    Takes: bounds, the offsets to be searched, by partition; condition, None for every record;
           from_ms, a time: batches whose records are all older are skipped by their headers;
           decode, a function that decodes keys and values by their schemas if the condition
           compares them; is_spent, whether its time is used up, so that the search stops.
    """

    def __init__(
        self,
        take: Take,
        bounds: Mapping[int, Bounds],
        condition: Condition | None = None,
        from_ms: int | None = None,
        decode: Decode | None = None,
        is_spent: Callable[[], bool] = lambda: False,
    ) -> None:
        self._take, self._condition, self._is_spent = take, condition, is_spent
        self._readers = [_Reader(index, row, from_ms, decode) for index, row in bounds.items()]
        self._problems: list[str] = []

    def run(self, count: int, is_over: Callable[[], bool]) -> Result:
        """Find the next records, at most `count` of them. Raises: OSError."""
        found: list[Found] = []
        scanned = 0
        heap = self._heads(self._readers, is_over)
        while heap is not None and heap and len(found) < count and scanned < MOST_SCANNED:
            if self._is_spent() or (scanned % 64 == 0 and scanned and is_over()):
                break
            _, partition, reader = heap[0]
            record, header, state = reader.pop(), reader.header, reader.state
            scanned += 1
            assert header is not None
            facts = Facts(record, partition, state, reader.decoded)
            if self._condition is None or self._condition(facts):
                found.append(Found(partition, record, header, state))
            if reader.records:
                heapq.heapreplace(heap, (-reader.records[-1].timestamp, partition, reader))
                continue
            heapq.heappop(heap)
            more = self._heads([reader], is_over)
            if more is None:
                break
            for head in more:
                heapq.heappush(heap, head)
        cursor = {reader.partition: reader.before for reader in self._readers if not reader.is_done}
        return Result(found, cursor, scanned, self._problems[:MOST_PROBLEMS])

    def _heads(
        self, readers: Iterable[_Reader], is_over: Callable[[], bool]
    ) -> list[tuple[int, int, _Reader]] | None:
        """The sort key of each reader's next record in the merge; None if `is_over` has returned
        true in the meantime.
        """
        waiting = list(readers)
        heads = []
        while waiting:
            asked = [reader for reader in waiting if reader.needs_window]
            if asked:
                windows = self._take(
                    [(reader.partition, reader.before, reader.entries) for reader in asked]
                )
                for reader, window in zip(asked, windows, strict=True):
                    reader.add_window(window, self._problems)
            again = []
            for reader in waiting:
                while not reader.records and reader.has_batches:
                    reader.open_batch(self._problems)
                if reader.records:
                    heads.append((-reader.records[-1].timestamp, reader.partition, reader))
                elif not reader.is_done:
                    again.append(reader)
            waiting = again
            if waiting and is_over():
                return None
        heapq.heapify(heads)
        return heads


def found_value(found: Found, values: Values | None = None) -> dict[str, Any]:
    """One record for JSON, with its partition, its state and its producer.

    Takes: values, the decoded key and value; None to leave them out.
    """
    header = found.header
    return {
        "partition": found.partition,
        "state": found.state,
        **record_value(found.record),
        **({} if values is None else {"decoded": decoded_value(values)}),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "transactional": header.is_transactional,
        "codec": Codec(header.codec).name.lower(),
    }
