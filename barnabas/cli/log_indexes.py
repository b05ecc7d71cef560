"""Checks of a segment's indexes against its batches. Each check yields pairs of a position in the
index and the text of a fault.

While a broker has an index open, zeros may follow the last entry (Apache Kafka preallocates the
file), and the last batches of the log may have no entries yet.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator

from barnabas.protocol.records import BatchHeader
from barnabas.storage.files import offset_index, time_index, txn_index
from barnabas.storage.files.txn_index import AbortedEntry, TxnIndex

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")

Findings = Iterator[tuple[int, str]]


class SegmentFacts:
    """The facts about a segment's batches that the checks of its indexes need. Each list has one
    item per batch, in order.

    highest_times: the highest time of all batches up to and including this batch. markers: offset
    -> (producer id, whether it is a commit). is_sound: whether all batches have a correct CRC.
    is_whole: whether the batches fill the file.
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.positions: list[int] = []
        self.base_offsets: list[int] = []
        self.last_offsets: list[int] = []
        self.highest_times: list[int] = []
        self.aborted: list[AbortedEntry] = []
        self.markers: dict[int, tuple[int, bool]] = {}
        self.size_bytes = 0
        self.is_sound = self.is_whole = True

    def add(self, position: int, header: BatchHeader) -> None:
        """Add a batch."""
        highest = max(header.max_timestamp, self.highest_times[-1] if self.highest_times else -1)
        self.positions.append(position)
        self.base_offsets.append(header.base_offset)
        self.last_offsets.append(header.last_offset)
        self.highest_times.append(highest)


def check_offset_index(data: bytes, facts: SegmentFacts, *, in_use: bool) -> Findings:
    """Check that each entry points to a batch that does not begin after the entry's offset."""
    entries, rest = _entries(data, _OFFSET_ENTRY, offset_index.ENTRY_SIZE)
    if rest:
        yield len(data) - rest, f"{rest} bytes are not a whole entry"
    last_offset, last_position = -1, -1
    for number, (relative, at) in enumerate(entries):
        where = number * offset_index.ENTRY_SIZE
        offset = facts.base_offset + relative
        row = bisect_left(facts.positions, at)
        if relative <= last_offset or at <= last_position:
            yield where, f"the entry ({offset}, byte {at}) does not rise"
            return
        if at >= facts.size_bytes:
            if not in_use:
                yield where, f"the entry leads to byte {at}, behind the segment's last batch"
            return
        if row == len(facts.positions) or facts.positions[row] != at:
            yield where, f"the entry leads to byte {at}, where no batch begins"
        elif facts.base_offsets[row] > offset:
            begins = facts.base_offsets[row]
            yield where, f"the entry leads from offset {offset} to the batch at offset {begins}"
        elif not _is_last_offset(facts, offset):
            yield where, f"no batch ends with the offset {offset}"
        last_offset, last_position = relative, at


def _is_last_offset(facts: SegmentFacts, offset: int) -> bool:
    row = bisect_left(facts.last_offsets, offset)
    return row < len(facts.last_offsets) and facts.last_offsets[row] == offset


def check_time_index(data: bytes, facts: SegmentFacts, *, in_use: bool) -> Findings:
    """Check that each entry has the highest time of the batches up to its offset."""
    entries, rest = _entries(data, _TIME_ENTRY, time_index.ENTRY_SIZE)
    if rest:
        yield len(data) - rest, f"{rest} bytes are not a whole entry"
    last_time, last_relative = -1, -1
    for number, (timestamp, relative) in enumerate(entries):
        where = number * time_index.ENTRY_SIZE
        offset = facts.base_offset + relative
        if timestamp <= last_time or relative < last_relative:
            yield where, f"the entry (time {timestamp}, offset {offset}) does not rise"
            return
        if not facts.last_offsets or offset > facts.last_offsets[-1]:
            if not in_use:
                yield where, f"the entry is of offset {offset}, behind the segment's last"
            return
        highest = facts.highest_times[bisect_left(facts.last_offsets, offset)]
        if timestamp != highest:
            yield where, f"the entry has time {timestamp} at offset {offset}, the batches {highest}"
        last_time, last_relative = timestamp, relative


def check_aborted(
    data: bytes | None, facts: SegmentFacts, *, knows_all: bool, in_use: bool
) -> Findings:
    """Check that the index lists exactly the aborted transactions whose markers are in this
    segment.

    Takes: knows_all, whether all batches before the segment were read. If not, a transaction may
           have begun in a batch that was not read.
    """
    try:
        written = TxnIndex.decode(data or b"").entries
    except ValueError as error:
        yield 0, f"cannot be read: {error}"
        return
    by_marker = {entry.last_offset: (row, entry) for row, entry in enumerate(written)}
    for counted in facts.aborted:
        row, entry = by_marker.pop(counted.last_offset, (-1, None))
        where = row * txn_index.ENTRY_SIZE
        if entry is None:
            yield (
                0,
                f"lacks the transaction of producer {counted.producer_id} from offset "
                f"{counted.first_offset} that the marker at {counted.last_offset} aborts",
            )
        elif entry.producer_id != counted.producer_id:
            yield where, f"the marker at {entry.last_offset} is of producer {counted.producer_id}"
        elif entry.first_offset != counted.first_offset and knows_all:
            yield (
                where,
                f"a transaction begins at {entry.first_offset}, by the batches at "
                f"{counted.first_offset}",
            )
        elif entry.last_stable_offset != counted.last_stable_offset and knows_all:
            yield (
                where,
                f"a transaction leaves the last stable offset {entry.last_stable_offset}, by the "
                f"batches {counted.last_stable_offset}",
            )
    end = facts.last_offsets[-1] if facts.last_offsets else -1
    for row, entry in by_marker.values():
        marker = facts.markers.get(entry.last_offset)
        if (marker is None or marker != (entry.producer_id, False)) and not (
            in_use and entry.last_offset > end
        ):
            text = f"no marker at offset {entry.last_offset} aborts producer {entry.producer_id}"
            yield row * txn_index.ENTRY_SIZE, text


def _entries(data: bytes, form: struct.Struct, size: int) -> tuple[list[tuple[int, int]], int]:
    """The entries of an index without the zeros at its end, and the number of bytes after the last
    whole entry.
    """
    rest = len(data) % size
    whole = data[: len(data) - rest]
    used = len(whole.rstrip(b"\0"))  # without the zeros that Kafka preallocates
    used += -used % size
    entries: list[tuple[int, int]] = list(form.iter_unpack(whole[:used]))
    return entries, 0 if not any(data[len(whole) :]) else rest
