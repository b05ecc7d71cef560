"""What the reader holds while a transaction ends."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.exactly_once import reader as module
from barnabas.exactly_once.reader import Reader
from barnabas.exactly_once.records import Place

PLACE = Place("in", 0)
SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


class Message:
    def __init__(self, offset: int, size: int) -> None:
        self._offset, self._size = offset, size

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return PLACE.topic

    def partition(self) -> int:
        return PLACE.partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1234

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return bytes(self._size)

    def headers(self) -> None:
        return None

    def __len__(self) -> int:
        return self._size


class Endless:
    """A consumer that always has as many records as it is asked for."""

    def __init__(self, size: int) -> None:
        self._size, self._next = size, 0

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        found = [Message(self._next + at, self._size) for at in range(count)]
        self._next += count
        return found

    def seek(self, place: Any) -> None:
        self._next = place.offset


def reader_of(size: int) -> Reader:
    def nothing(*_: object) -> None:
        pass

    reader = Reader(SETTINGS, ["in"], cooperative=False, on_assigned=nothing, on_revoked=nothing)
    reader._consumer = Endless(size)
    reader._next[PLACE] = 0
    return reader


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_reading_ahead_is_bounded_in_records_and_in_bytes(size: int) -> None:
    reader = reader_of(size)
    rounds = 0
    while reader.read_ahead():
        rounds += 1
        assert rounds < 1000, "it never ends"
    records = len(reader._waiting)
    at_once = module._AHEAD_AT_ONCE
    assert records <= module._AHEAD + at_once
    assert records * size <= module._AHEAD_BYTES + at_once * size
    assert records >= at_once
    for offset in range(records):
        record = reader.next_record()
        assert record is not None
        assert record.offset == offset
    reader.poll(1, 0)
    assert reader.read_ahead(), "there is room again"


def test_records_that_wait_already_count() -> None:
    reader = reader_of(module._AHEAD_BYTES // 2)
    reader.poll(3, 0)
    assert not reader.read_ahead()
    assert len(reader._waiting) == 4, "one is fetched, since the group has to be served"
    reader.rewind({PLACE: 0})
    assert reader.read_ahead(), "dropped records do not count"
