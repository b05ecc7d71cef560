"""The recorded cuts as a value: their times, the offsets of each partition, and the file's bytes.

Only changes are stored: a `Track` has an offset of its partition for each cut at which the offset
differs from that at the cut before. One row is 16 bytes.

The file consists of frames, each with a length and a CRC-32C (`journal_file.FRAME`). The first one
has the whole history, each further one has a cut. All numbers are little-endian:

    whole history                                one cut
     0   1    kind: 1                             0   1    kind: 2
     1   8    number of the next cut              1   8    number
     9   4    n, the count of cuts                9   8    time, ms
    13   8n   their numbers                      17   4    leader epoch
         8n   their times, ms                    21   4    k, the count of new partitions
         4n   their leader epochs                     25k  new partitions
         4    the count of partitions                 4    m, the count of rows
         for each:                                    4m   the index of each row's partition
         25   the partition                           8m   the offset of each row
         4    m, the count of its rows
         8m   the numbers of the cuts            a partition
         8m   the offsets                         0   4    index: a number by which rows name it
                                                  4   16   topic id
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
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.broker.logs.journal_file import FRAME
from barnabas.protocol.checksum import crc32c

NOT_IN_CUT = -1
ROW_BYTES, CUT_BYTES, PARTITION_BYTES = 16, 20, 29
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
# up to an age, one cut in each period is kept; of cuts younger than the first age, all are kept
PERIODS = ((DAY_MS, MINUTE_MS), (30 * DAY_MS, HOUR_MS))
ALL_KEPT_MS, LAST_PERIOD_MS = HOUR_MS, DAY_MS
# beyond this level of thinning all ages are below a second
MOST_LEVEL = 32
_HISTORY, _CUT = 1, 2
_HISTORY_START, _CUT_START = struct.Struct("<BqI"), struct.Struct("<BqqiI")
_PARTITION, _COUNT = struct.Struct("<I16sib"), struct.Struct("<I")

PartitionKey = tuple[bytes, int]
"""A topic's id, and a partition."""


class DamagedHistory(Exception):
    """The first frame of the file cannot be read."""


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

    def first_above(self, offset: int) -> int | None:
        """The number of the first cut with a higher offset; None if there is none."""
        for number, at_cut in zip(self.numbers, self.offsets, strict=True):
            if at_cut > offset:
                return number
        return None

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
        """The approximate size of the history, in memory and in the first frame of a file."""
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

    def track(self, key: PartitionKey, before: int) -> Track:
        """A new track, which `add_track` adds."""
        return Track(self.next_index, key, before)

    def add(self, cut: Cut, new: Iterable[Track], rows: Iterable[tuple[Track, int]]) -> None:
        """Add the newest cut, with the partitions that are new in it and its rows."""
        for track in new:
            self._add_track(track)
        number = cut.number
        for track, offset in rows:  # a file may have 250,000 rows
            track.numbers.append(number)
            track.offsets.append(offset)
            track.last = offset
            self.row_count += 1
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

    def keep_cuts(self, kept: Iterable[Cut]) -> None:
        """Drop all cuts but these. The tracks keep their rows until `Track.keep`."""
        kept = list(kept)
        self.numbers, self.times, self.epochs = array("q"), array("q"), array("i")
        self._earliest_later, self._latest_earlier = array("q"), array("q")
        for cut in kept:
            self._append(cut)

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
        for cut in reversed(list(self)):
            age_ms = (now_ms - cut.time_ms) << min(level, MOST_LEVEL)
            if age_ms <= ALL_KEPT_MS:
                bucket = None
            else:
                period_ms = next(
                    (period for age, period in PERIODS if age_ms <= age), LAST_PERIOD_MS
                )
                before, bucket = bucket, (period_ms, cut.time_ms // period_ms)
                if bucket == before:
                    continue
            kept.append(cut)
        if level > MOST_LEVEL:
            kept = kept[: max(1, len(kept) >> (level - MOST_LEVEL))]
        return kept[::-1]

    # --- bytes -----------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The frame with the whole history."""
        parts = [_HISTORY_START.pack(_HISTORY, self.next_number, len(self.numbers))]
        parts += map(_bytes_of, (self.numbers, self.times, self.epochs))
        parts.append(_COUNT.pack(len(self.tracks)))
        for track in self.tracks.values():
            parts.append(_encode_partition(track))
            parts.append(_COUNT.pack(len(track.numbers)))
            parts.append(_bytes_of(track.numbers))
            parts.append(_bytes_of(track.offsets))
        return frame(b"".join(parts))

    @classmethod
    def decode(cls, data: bytes) -> tuple[CutHistory, int]:
        """Decode a file. Gives: the history, and the size of its undamaged part.

        Raises: DamagedHistory if the first frame cannot be read.
        """
        body, at = _frame_at(data, 0)
        if body is None or body[0] != _HISTORY:
            raise DamagedHistory
        history = cls()
        history._decode_history(body)
        by_index = {track.index: track for track in history.tracks.values()}
        while True:
            body, following = _frame_at(data, at)
            if body is None or body[0] != _CUT:
                return history, at
            history._decode_cut(body, by_index)
            at = following

    def _decode_history(self, body: memoryview) -> None:
        _, self.next_number, count = _HISTORY_START.unpack_from(body, 0)
        at = _HISTORY_START.size
        columns = []
        for code in ("q", "q", "i"):
            column, at = _array_at(code, body, at, count)
            columns.append(column)
        for row in zip(*columns, strict=True):
            self._append(Cut(*row))
        (tracks,) = _COUNT.unpack_from(body, at)
        at += _COUNT.size
        for _ in range(tracks):
            track, at = _decode_partition(body, at)
            (rows,) = _COUNT.unpack_from(body, at)
            track.numbers, at = _array_at("q", body, at + _COUNT.size, rows)
            track.offsets, at = _array_at("q", body, at, rows)
            if rows:
                track.last = track.offsets[-1]
            self._add_track(track)
            self.row_count += rows

    def _decode_cut(self, body: memoryview, by_index: dict[int, Track]) -> None:
        _, number, time_ms, leader_epoch, count = _CUT_START.unpack_from(body, 0)
        at = _CUT_START.size
        new = []
        for _ in range(count):
            track, at = _decode_partition(body, at)
            by_index[track.index] = track
            new.append(track)
        (rows,) = _COUNT.unpack_from(body, at)
        indexes, at = _array_at("I", body, at + _COUNT.size, rows)
        offsets, at = _array_at("q", body, at, rows)
        rows_of = zip(map(by_index.__getitem__, indexes), offsets, strict=True)
        self.add(Cut(number, time_ms, leader_epoch), new, rows_of)


def encode_cut(cut: Cut, new: Sequence[Track], rows: Sequence[tuple[Track, int]]) -> bytes:
    """The frame with one cut."""
    return frame(
        b"".join(
            (
                _CUT_START.pack(_CUT, *cut, len(new)),
                *map(_encode_partition, new),
                _COUNT.pack(len(rows)),
                struct.pack(f"<{len(rows)}I", *(track.index for track, _ in rows)),
                struct.pack(f"<{len(rows)}q", *(offset for _, offset in rows)),
            )
        )
    )


def frame(body: bytes) -> bytes:
    """A frame with this body."""
    return FRAME.pack(len(body), crc32c(body)) + body


def _frame_at(data: bytes, at: int) -> tuple[memoryview | None, int]:
    """The body of the frame at a place, and the end of the frame."""
    if at + FRAME.size >= len(data):
        return None, at
    length, crc = FRAME.unpack_from(data, at)
    start = at + FRAME.size
    body = memoryview(data)[start : start + length]
    if not length or len(body) < length or crc32c(body) != crc:
        return None, at
    return body, start + length


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
    column = array(code)
    end = at + count * column.itemsize
    column.frombytes(body[at:end])
    if sys.byteorder == "big":
        column.byteswap()
    return column, end
