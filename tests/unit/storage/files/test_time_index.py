"""The time index of a segment: which entries it accepts, and the position from which a file is
invalid.
"""

from __future__ import annotations

import struct

import pytest

from barnabas.storage.files.time_index import TimeIndex


def filled(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex()
    for timestamp, relative_offset in entries:
        assert index.maybe_append(timestamp, relative_offset)
    return index


def file_of(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qI", *entry) for entry in entries)


def read(data: bytes) -> list[tuple[int, int]]:
    index = TimeIndex.decode(data)
    return list(zip(index.timestamps, index.offsets, strict=True))


def test_only_later_times_are_taken() -> None:
    index = TimeIndex()
    assert not index.maybe_append(-1, 0), "a batch without a time"
    assert index.maybe_append(0, 3)
    assert not index.maybe_append(0, 4)
    assert index.maybe_append(7, 5)
    assert not index.maybe_append(6, 6)
    assert len(index) == 2 and index.last() == (7, 5)
    assert index.maybe_append(9, 7)
    assert index.last() == (9, 7)
    assert TimeIndex().last() is None


def test_a_time_is_sought_from_the_last_entry_not_above_it() -> None:
    index = filled((5, 1), (8, 4))
    assert [index.lookup(timestamp) for timestamp in (4, 5, 7, 8, 99)] == [
        None, (5, 1), (5, 1), (8, 4), (8, 4),
    ]  # fmt: skip


def test_entries_are_written_from_any_of_them_on() -> None:
    index = filled((5, 1), (8, 4))
    assert index.encode() == file_of((5, 1), (8, 4))
    assert index.encode(1) == file_of((8, 4))
    assert index.encode(2) == b""


@pytest.mark.parametrize(
    "beyond",
    [
        pytest.param((5, 2), id="a time that does not rise"),
        pytest.param((9, 0), id="an offset that falls"),
        pytest.param((-1, 2), id="no time"),
        pytest.param((0, 0), id="zeros behind an open index"),
    ],
)
def test_a_file_is_read_up_to_the_first_entry_that_cannot_be_one(beyond: tuple[int, int]) -> None:
    assert read(file_of((5, 1), beyond, (10, 5))) == [(5, 1)]


def test_offsets_may_stay_and_the_first_time_may_be_0() -> None:
    assert read(file_of((0, 0), (1, 0), (2, 0))) == [(0, 0), (1, 0), (2, 0)]
    assert read(file_of((-1, 0))) == []


def test_a_torn_end_is_left_out() -> None:
    data = file_of((5, 1), (8, 4))
    for cut in range(12):
        assert read(data[: 12 + cut]) == [(5, 1)]
    assert read(b"") == []
