"""The recorded cuts as a value: their times, the offsets of each partition, and the file's bytes.

Only changes are stored: a `Track` has an offset of its partition for each cut at which the offset
differs from that at the cut before. One row is 16 bytes.

The file consists of frames, each with a length and a CRC-32C (`journal_file.FRAME`). It begins with
the history at the time when the file was written: frame 1, and so many others as that says. Then
each cut has frame 2; a cut with many partitions has parts in frames 5 before it. No frame has more
than ROWS_IN_FRAME rows or cuts, so that a file of any size can be read and written a few frames at
a time. All numbers are little-endian:

    1: the beginning of the history              2: a cut
     0   1    the number of the frame's kind      0   1    the number of the frame's kind
     1   8    number of the next cut              1   8    number
     9   4    the count of further frames         9   8    time, ms
                                                 17   4    leader epoch
    3: cuts of the history                       21        as the part in frame 5, from 1 on
     0   1    the number of the frame's kind
     1   4    n, the count of cuts               5: a part of the next cut
     5   8n   their numbers                       0   1    the number of the frame's kind
         8n   their times, ms                     1   4    k, the count of new partitions
         4n   their leader epochs                     25k  new partitions
                                                      4    m, the count of rows
    4: rows of a partition of the history             4m   the index of each row's partition
     0   1    the number of the frame's kind          8m   the offset of each row
     1   25   the partition
    26   4    m, the count of rows               a partition
    30   8m   the numbers of the cuts             0   4    index: a number by which rows name it
         8m   the offsets                         4   16   topic id
                                                 20   4    partition
                                                 24   1    offset before its first row, 0 or -1

An offset of NOT_IN_CUT means that the cut does not include the partition.

The leader epoch of a cut is the highest one at that time. If a power loss removes records, all
further ones have a higher epoch; so the epochs of a log (KIP-101) show whether the records below an
offset of a cut are still those of that time.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from barnabas.broker.logs.journal_file import FRAME
from barnabas.protocol.checksum import crc32c

NOT_IN_CUT = -1
ROW_BYTES, CUT_BYTES, PARTITION_BYTES = 16, 20, 38
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
# up to an age, one cut in each period is kept; of cuts younger than the first age, all are kept
PERIODS = ((DAY_MS, MINUTE_MS), (30 * DAY_MS, HOUR_MS))
ALL_KEPT_MS, LAST_PERIOD_MS = HOUR_MS, DAY_MS
# beyond this level of thinning all ages are below a second
MOST_LEVEL = 32
ROWS_IN_FRAME = 4096
# One call of `HistoryReader.read_some` reads so much, or one frame. That takes about 8 ms if each
# cut has ten rows.
READ_BYTES = 128 << 10
_HISTORY, _CUT, _CUTS, _ROWS, _PART = 1, 2, 3, 4, 5
_HISTORY_START, _CUT_START = struct.Struct("<BqI"), struct.Struct("<Bqqi")
_KIND, _PARTITION, _COUNT = struct.Struct("<B"), struct.Struct("<I16sib"), struct.Struct("<I")

PartitionKey = tuple[bytes, int]
"""A topic's id, and a partition."""


class DamagedHistory(Exception):
    """The history at the beginning of the file cannot be read."""


class Cut(NamedTuple):
    """A recorded cut. number: its place in the order of all cuts."""

    number: int
    time_ms: int
    leader_epoch: int


class Track:
    """The offsets of one partition.

    index: the number by which rows of the file name it. before: the offset at cuts before the first
    row: 0 if the partition was empty or did not exist, NOT_IN_CUT if it had records. last: the
    offset of the last row.
    """

    __slots__ = ("before", "index", "key", "last", "numbers", "offsets")

    def __init__(self, index: int, key: PartitionKey, before: int) -> None:
        self.index, self.key, self.before, self.last = index, key, before, before
        self.numbers, self.offsets = array("q"), array("q")

    def at(self, number: int) -> int:
        """The offset at a cut, or NOT_IN_CUT."""
        place = bisect_right(self.numbers, number)
        return self.offsets[place - 1] if place else self.before

    def first_above(self, offset: int, before: int) -> int:
        """The number of the first cut with a higher offset; `before` if it is that or later."""
        for number, at_cut in zip(self.numbers, self.offsets, strict=True):
            if number >= before:
                break
            if at_cut > offset:
                return number
        return before

    def keep(self, kept: Sequence[int], up_to: int) -> None:
        """Drop rows that no cut needs. Takes: kept, the numbers of the cuts that remain, of those
        with numbers up to `up_to`.
        """
        numbers, offsets = array("q"), array("q")
        last = self.before
        for place, number in enumerate(self.numbers, 1):
            if place < len(self.numbers) and self.numbers[place] <= up_to + 1:
                needed = bisect_left(kept, number)
                if needed == len(kept) or kept[needed] >= self.numbers[place]:
                    continue
            if self.offsets[place - 1] != last:
                last = self.offsets[place - 1]
                numbers.append(number)
                offsets.append(last)
        self.numbers, self.offsets = numbers, offsets


class CutHistory:
    """All recorded cuts. next_number: that of the next cut. row_count: the rows of all tracks."""

    def __init__(self) -> None:
        self.next_number = self.next_index = 0
        self.row_count = 0
        self.numbers, self.times, self.epochs = array("q"), array("q"), array("i")
        self.tracks: dict[PartitionKey, Track] = {}
        self._earliest_later, self._latest_earlier = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Cut]:
        for row in zip(self.numbers, self.times, self.epochs, strict=True):
            yield Cut(*row)

    @property
    def size_bytes(self) -> int:
        """The approximate size of the history, in memory and at the beginning of a file."""
        return (
            self.row_count * ROW_BYTES
            + len(self.numbers) * CUT_BYTES
            + len(self.tracks) * PARTITION_BYTES
        )

    # --- questions -------------------------------------------------------------------------------

    @property
    def newest(self) -> Cut | None:
        """The newest cut."""
        return self._cut(len(self.numbers) - 1)

    def numbers_between(self, first: int, end: int) -> array[int]:
        """The numbers of the cuts from `first` on, below `end`."""
        return self.numbers[bisect_left(self.numbers, first) : bisect_left(self.numbers, end)]

    def at_or_before(self, time_ms: int) -> Cut | None:
        """The newest cut whose time is at or before a time.

        The times of cuts are the wall clock's, and may go back.
        """
        return self._cut(bisect_right(self._earliest_later, time_ms) - 1)

    def at_or_after(self, time_ms: int) -> Cut | None:
        """The first cut whose time is at or after a time."""
        return self._cut(bisect_left(self._latest_earlier, time_ms))

    def _cut(self, place: int) -> Cut | None:
        if not 0 <= place < len(self.numbers):
            return None
        return Cut(self.numbers[place], self.times[place], self.epochs[place])

    # --- changes ---------------------------------------------------------------------------------

    def add(self, cut: Cut, new: Iterable[Track], rows: Iterable[tuple[Track, int]]) -> None:
        """Add the newest cut, with the partitions that are new in it and its rows."""
        self.add_rows(cut.number, new, rows)
        self.add_cut(cut)

    def add_rows(
        self, number: int, new: Iterable[Track], rows: Iterable[tuple[Track, int]]
    ) -> None:
        """Add partitions and rows of the newest cut, which `add_cut` adds after its last rows."""
        for track in new:
            self._add_track(track)
        tracks = self.tracks
        for track, offset in rows:
            if tracks.get(track.key) is not track:
                continue  # it was deleted while the cut was being recorded
            track.numbers.append(number)
            track.offsets.append(offset)
            track.last = offset
            self.row_count += 1

    def add_cut(self, cut: Cut) -> None:
        """Add the newest cut, whose rows are added."""
        self._append(cut)
        self.next_number = cut.number + 1

    def _add_track(self, track: Track) -> None:
        self.tracks[track.key] = track
        self.next_index = max(self.next_index, track.index + 1)

    def _append(self, cut: Cut) -> None:
        number, time_ms, leader_epoch = cut
        self.numbers.append(number)
        self.times.append(time_ms)
        self.epochs.append(leader_epoch)
        latest = self._latest_earlier[-1] if self._latest_earlier else time_ms
        self._latest_earlier.append(max(latest, time_ms))
        self._earliest_later.append(time_ms)
        place = len(self._earliest_later) - 2
        while place >= 0 and self._earliest_later[place] > time_ms:
            self._earliest_later[place] = time_ms
            place -= 1

    def keep_cuts(self, kept: Sequence[int], up_to: int) -> None:
        """Drop cuts, but not the rows of their tracks, which `keep_rows` drops.

        Takes: kept, the numbers of the cuts that remain, of those with numbers up to `up_to`.
        """
        end = bisect_right(self.numbers, up_to)
        places = [bisect_left(self.numbers, number) for number in kept]
        places += range(end, len(self.numbers))
        self.numbers = array("q", [self.numbers[place] for place in places])
        self.times = array("q", [self.times[place] for place in places])
        self.epochs = array("i", [self.epochs[place] for place in places])
        self._index_times()

    def _index_times(self) -> None:
        """Set what the questions need, from the times."""
        self._latest_earlier = array("q", accumulate(self.times, max))
        self._earliest_later = array("q", accumulate(reversed(self.times), min))
        self._earliest_later.reverse()

    def drop_track(self, track: Track) -> None:
        """Forget a partition that no longer exists."""
        del self.tracks[track.key]
        self.row_count -= len(track.numbers)

    def keep_rows(self, track: Track, kept: Sequence[int], up_to: int) -> None:
        """Drop the rows of a track that no cut needs; see `Track.keep`."""
        self.row_count -= len(track.numbers)
        track.keep(kept, up_to)
        self.row_count += len(track.numbers)

    def lost_numbers(
        self, track: Track, ends: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """The cuts that include records of a partition that were lost.

        Takes: ends, of the partition's log: its leader epochs with their first offsets, at which
               the records of earlier epochs end. Each start begins an epoch.
        Gives: pairs of the number of a first cut, and of the cut after the last one.
        """
        first = 0
        for epoch, end_offset in ends:
            earlier = bisect_left(self.epochs, epoch)
            if not earlier:
                continue
            end = bisect_right(track.numbers, self.numbers[earlier - 1])
            if first < end and max(track.offsets[first:end]) > end_offset:
                for place in range(first, end):
                    if track.offsets[place] > end_offset:
                        following = track.numbers[place + 1 : place + 2]
                        yield track.numbers[place], following[0] if following else self.next_number
            first = max(first, end)

    def thinned(self, now_ms: int, level: int) -> list[Cut]:
        """The cuts that remain when the older ones are thinned out: of each period the last one.

        Takes: level, which halves the ages of PERIODS so many times.
        """
        kept: list[Cut] = []
        bucket: tuple[int, int] | None = None
        shift, times = min(level, MOST_LEVEL), self.times
        for place in range(len(times) - 1, -1, -1):
            time_ms = times[place]
            age_ms = (now_ms - time_ms) << shift
            if age_ms <= ALL_KEPT_MS:
                bucket = None
            else:
                period_ms = next(
                    (period for age, period in PERIODS if age_ms <= age), LAST_PERIOD_MS
                )
                before, bucket = bucket, (period_ms, time_ms // period_ms)
                if bucket == before:
                    continue
            kept.append(Cut(self.numbers[place], time_ms, self.epochs[place]))
        if level > MOST_LEVEL:
            kept = kept[: max(1, len(kept) >> (level - MOST_LEVEL))]
        return kept[::-1]

    # --- bytes -----------------------------------------------------------------------------------

    def frames(self) -> Iterator[bytes]:
        """The frames with the whole history of this moment. What is added, thinned out or dropped
        while the caller iterates is not in them.
        """
        cut_count = len(self.numbers)
        columns = self._columns()
        rows = [
            (track, track.numbers, track.offsets, len(track.numbers))
            for track in self.tracks.values()
        ]
        count = -(-cut_count // ROWS_IN_FRAME)
        count += sum(-(-row[3] // ROWS_IN_FRAME) or 1 for row in rows)
        yield frame(_HISTORY_START.pack(_HISTORY, self.next_number, count))
        for first in range(0, cut_count, ROWS_IN_FRAME):
            end = min(cut_count, first + ROWS_IN_FRAME)
            parts = [_KIND.pack(_CUTS), _COUNT.pack(end - first)]
            parts += [_bytes_of(column[first:end]) for column in columns]
            yield frame(b"".join(parts))
        for track, numbers, offsets, row_count in rows:
            partition = _encode_partition(track)
            for first in range(0, row_count or 1, ROWS_IN_FRAME):
                end = min(row_count, first + ROWS_IN_FRAME)
                parts = [_KIND.pack(_ROWS), partition, _COUNT.pack(end - first)]
                parts += [_bytes_of(numbers[first:end]), _bytes_of(offsets[first:end])]
                yield frame(b"".join(parts))

    def _columns(self) -> tuple[array[int], array[int], array[int]]:
        return self.numbers, self.times, self.epochs


class HistoryReader:
    """Reads the history from a file, some frames at a time.

    Takes: pread, which reads a number of bytes at a position; file_bytes, the size of the file.
    history: what has been read; it answers questions when the file is read. size_bytes: the size of
    the undamaged part of the file, as far as it has been read.
    """

    def __init__(self, pread: Callable[[int, int], bytes], file_bytes: int) -> None:
        self._pread, self._file_bytes = pread, file_bytes
        self.history = CutHistory()
        self.size_bytes = self._position = 0
        self._left: int | None = None  # frames of the history at the beginning, not read yet
        self._by_index: dict[int, Track] = {}
        self._new: list[Track] = []
        self._rows: list[tuple[Track, int]] = []

    def read_some(self) -> bool:
        """Read the next frames: READ_BYTES, or one frame. Gives: whether there may be more.

        Raises: DamagedHistory if the history at the beginning cannot be read.
        """
        data = self._pread(READ_BYTES, self._position)
        if len(data) > FRAME.size:
            length = FRAME.size + FRAME.unpack_from(data)[0]
            if len(data) < length <= self._file_bytes - self._position:
                data = self._pread(length, self._position)
        at, is_last = 0, self._position + len(data) >= self._file_bytes
        while (body := _frame_at(data, at)) is not None:
            try:
                self._take(body)
            except (struct.error, KeyError, ValueError):  # a CRC that is right by chance
                is_last = True
                break
            at += FRAME.size + len(body)
            if self._left == 0 and not self._new and not self._rows:
                self.size_bytes = self._position + at
        self._position += at
        if at and not is_last:
            return True
        if self._left != 0:
            raise DamagedHistory(f"at byte {self._position}")
        self.history._index_times()
        return False

    def _take(self, body: memoryview) -> None:
        """Add what a frame has. Raises: struct.error, KeyError, ValueError."""
        kind, history = body[0], self.history
        if kind == _HISTORY and self._left is None:
            _, history.next_number, self._left = _HISTORY_START.unpack(body)
        elif kind == _CUTS and self._left:
            (count,) = _COUNT.unpack_from(body, 1)
            at = 1 + _COUNT.size
            for code, column in zip("qqi", history._columns(), strict=True):
                more, at = _array_at(code, body, at, count)
                column.extend(more)
            self._left -= 1
        elif kind == _ROWS and self._left:
            self._take_rows(body)
            self._left -= 1
        elif kind == _PART and self._left == 0:
            self._take_part(body, 1)
        elif kind == _CUT and self._left == 0:
            _, number, time_ms, leader_epoch = _CUT_START.unpack_from(body, 0)
            self._take_part(body, _CUT_START.size)
            history.add_rows(number, self._new, self._rows)
            self._new, self._rows = [], []
            history.numbers.append(number)
            history.times.append(time_ms)
            history.epochs.append(leader_epoch)
            history.next_number = number + 1
        else:
            raise ValueError

    def _take_rows(self, body: memoryview) -> None:
        track, at = _decode_partition(body, 1)
        history = self.history
        if track.key in history.tracks:
            track = history.tracks[track.key]
        else:
            history._add_track(track)
            self._by_index[track.index] = track
        (count,) = _COUNT.unpack_from(body, at)
        numbers, at = _array_at("q", body, at + _COUNT.size, count)
        offsets, at = _array_at("q", body, at, count)
        track.numbers.extend(numbers)
        track.offsets.extend(offsets)
        if offsets:
            track.last = offsets[-1]
        history.row_count += count

    def _take_part(self, body: memoryview, at: int) -> None:
        """Keep the new partitions and the rows of a cut until its last part."""
        (count,) = _COUNT.unpack_from(body, at)
        at += _COUNT.size
        for _ in range(count):
            track, at = _decode_partition(body, at)
            self._by_index[track.index] = track
            self._new.append(track)
        (count,) = _COUNT.unpack_from(body, at)
        indexes, at = _array_at("I", body, at + _COUNT.size, count)
        offsets, at = _array_at("q", body, at, count)
        tracks = [self._by_index[index] for index in indexes]
        self._rows += zip(tracks, offsets, strict=True)


def encode_part(new: Sequence[Track], rows: Sequence[tuple[Track, int]]) -> bytes:
    """The frame with a part of the next cut."""
    return frame(_KIND.pack(_PART) + _encode_part(new, rows))


def encode_cut(cut: Cut, new: Sequence[Track], rows: Sequence[tuple[Track, int]]) -> bytes:
    """The frame with a cut, or with its last part."""
    return frame(_CUT_START.pack(_CUT, *cut) + _encode_part(new, rows))


def _encode_part(new: Sequence[Track], rows: Sequence[tuple[Track, int]]) -> bytes:
    return b"".join(
        (
            _COUNT.pack(len(new)),
            *map(_encode_partition, new),
            _COUNT.pack(len(rows)),
            struct.pack(f"<{len(rows)}I", *[track.index for track, _ in rows]),
            struct.pack(f"<{len(rows)}q", *[offset for _, offset in rows]),
        )
    )


def frame(body: bytes) -> bytes:
    """A frame with this body."""
    return FRAME.pack(len(body), crc32c(body)) + body


def _frame_at(data: bytes, at: int) -> memoryview | None:
    """The body of the frame at a place; None if it is incomplete or damaged."""
    if at + FRAME.size >= len(data):
        return None
    length, crc = FRAME.unpack_from(data, at)
    start = at + FRAME.size
    body = memoryview(data)[start : start + length]
    if not length or len(body) < length or crc32c(body) != crc:
        return None
    return body


def _encode_partition(track: Track) -> bytes:
    return _PARTITION.pack(track.index, *track.key, track.before)


def _decode_partition(body: memoryview, at: int) -> tuple[Track, int]:
    index, topic_id, partition, before = _PARTITION.unpack_from(body, at)
    return Track(index, (topic_id, partition), before), at + _PARTITION.size


def _bytes_of(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _array_at(code: str, body: memoryview, at: int, count: int) -> tuple[array[int], int]:
    """A column of `count` numbers at a place of a body, and its end. Raises: ValueError."""
    column = array(code)
    end = at + count * column.itemsize
    column.frombytes(body[at:end])
    if len(column) != count:
        raise ValueError
    if sys.byteorder == "big":
        column.byteswap()
    return column, end
