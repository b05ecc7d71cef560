"""The offset index of a segment: look-ups, and the position from which a damaged file is
invalid.
"""

from __future__ import annotations

import pytest

from barnabas.storage.files.offset_index import NO_ENTRY, OffsetIndex


def filled(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex()
    for relative_offset, position in entries:
        index.append(relative_offset, position)
    return index


def file_of(*entries: tuple[int, int]) -> bytes:
    return b"".join(
        offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in entries
    )


def read(data: bytes, segment_size: int = 1_000) -> list[tuple[int, int]]:
    index = OffsetIndex.decode(data, segment_size)
    assert len(index) == len(index.positions)
    return list(zip(index.offsets, index.positions, strict=True))


def test_an_offset_is_sought_from_the_last_entry_not_above_it() -> None:
    index = filled((9, 100), (19, 200))
    assert [index.lookup(offset) for offset in (0, 8, 9, 18, 19, 99)] == [
        NO_ENTRY, NO_ENTRY, (9, 100), (9, 100), (19, 200), (19, 200),
    ]  # fmt: skip
    assert NO_ENTRY == (-1, 0), "from the start of the segment"


def test_the_first_entry_at_or_after_a_position() -> None:
    index = filled((9, 100), (19, 200))
    assert [index.first_at_or_after(position) for position in (0, 100, 101, 200, 201)] == [
        (9, 100), (9, 100), (19, 200), (19, 200), None,
    ]  # fmt: skip
    assert OffsetIndex().first_at_or_after(0) is None


def test_entries_are_written_from_any_of_them_on() -> None:
    index = filled((9, 100), (19, 200), (29, 300))
    assert index.encode() == file_of((9, 100), (19, 200), (29, 300))
    assert index.encode(1) == file_of((19, 200), (29, 300))
    assert index.encode(3) == b""


@pytest.mark.parametrize(
    "beyond",
    [
        pytest.param((9, 300), id="an offset that does not rise"),
        pytest.param((29, 100), id="a position that does not rise"),
        pytest.param((29, 1_000), id="a position at the end of the segment"),
        pytest.param((0x80000000, 300), id="an offset that no segment has"),
        pytest.param((0, 0), id="zeros behind an open index"),
    ],
)
def test_a_file_is_read_up_to_the_first_entry_that_cannot_be_one(beyond: tuple[int, int]) -> None:
    assert read(file_of((9, 100), beyond, (30, 400))) == [(9, 100)]


def test_what_was_written_is_read() -> None:
    entries = [(9, 100), (19, 200), (20, 201), (29, 999)]
    assert read(filled(*entries).encode()) == entries


def test_the_extremes_of_an_entry_are_read() -> None:
    assert read(file_of((0, 1))) == [(0, 1)]
    assert read(file_of((0x7FFFFFFF, 999))) == [(0x7FFFFFFF, 999)]
    assert read(file_of((0, 0))) == [], "the first batch of a segment has no entry"


def test_a_torn_end_is_left_out() -> None:
    data = file_of((9, 100), (19, 200))
    for cut in range(8):
        assert read(data[: 8 + cut]) == [(9, 100)]
    assert read(b"") == []
