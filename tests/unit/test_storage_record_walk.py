"""Whether bytes are the records that a batch says, of batches that Apache Kafka wrote."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

import pytest
from helpers.storage_kafka_log import KAFKA

from barnabas.protocol.compression import decompress
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import HEADER_SIZE, NewRecord, batches_in, encode_record
from barnabas.storage import record_walk
from barnabas.storage.record_walk import _open_record, first_at_time, highest_time_delta

LOG = (KAFKA / "plain-0" / "00000000000000000000.log").read_bytes()
TIMES = [
    time
    for _, time, *_ in json.loads((KAFKA.parent / "expected.json").read_text())["plain"]["0"][
        "records"
    ]
]
BATCHES = [
    (header, decompress(header.codec, LOG[at + HEADER_SIZE : at + header.size_bytes]))
    for at, header in batches_in(LOG)
]


@pytest.mark.parametrize("number", range(5))
def test_the_highest_time_is_the_one_in_kafkas_header(number: int) -> None:
    """All of Kafka's codecs are among them."""
    header, body = BATCHES[number]
    assert header.base_timestamp + highest_time_delta(body, 0, 10) == header.max_timestamp


@pytest.mark.parametrize("number", range(5))
def test_the_first_record_of_a_time(number: int) -> None:
    header, body = BATCHES[number]
    for delta in range(10):
        time = TIMES[10 * number + delta] - header.base_timestamp
        assert first_at_time(bytes(body), 10, time, 0) == (time, delta)


@pytest.mark.parametrize("count", [9, 11])
def test_no_other_count_fits(count: int) -> None:
    with pytest.raises(KafkaError):
        highest_time_delta(BATCHES[0][1], 0, count)


@pytest.mark.parametrize("count", [1, 3, 40, 400, 3000])
def test_many_records_of_one_shape_are_as_each_by_itself(count: int) -> None:
    """The layout of a record is Kafka's table; lengths pass from one byte to two and three."""
    records = [
        encode_record(NewRecord(b"k", b"v" * (index % 7), 1000 + index), index, 1000)
        for index in range(count)
    ]
    body = b"".join(records)
    assert highest_time_delta(body, 0, count) == count - 1
    swapped = b"".join([*records[:-1], records[0]])
    if count > 1:
        with pytest.raises(KafkaError):
            highest_time_delta(swapped, 0, count)


def _opened_one_by_one(body: bytes, count: int) -> int | None:
    position, highest = 0, -(1 << 63)
    try:
        for delta in range(count):
            position, time = _open_record(body, position, delta)
            highest = max(highest, time)
    except (IndexError, KafkaError):
        return None
    return highest if position == len(body) else None


def _walked(body: bytes | memoryview, count: int) -> int | None:
    try:
        return highest_time_delta(body, 0, count)
    except KafkaError:
        return None


# Key and value of a record, by its number: what the ways through a batch tell apart.
SHAPES = {
    "one length": lambda index: (b"key", b"v" * 9),
    "lengths of two bytes": lambda index: (b"key", b"v" * 90),
    "no keys": lambda index: (None, b"v" * 9),
    "neither": lambda index: (None, None),
    "lengths that vary": lambda index: (b"key", b"v" * (index % 7)),
    "of one byte and of two": lambda index: (b"key", b"v" * (50 + index % 13)),
    "keys that vary": lambda index: (b"k" * (1 + index % 5), b"v"),
}


@pytest.mark.parametrize("step_ms", [0, 1, 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_each_byte_of_alike_records_counts(shape: str, step_ms: int) -> None:
    """Where a byte is another one, in one record or in all but the first, the answer is as if each
    record was opened by itself.
    """
    count = 80
    records = [
        encode_record(NewRecord(*SHAPES[shape](index), step_ms * index), index, 0)
        for index in range(count)
    ]
    body = b"".join(records)
    assert _walked(body, count) == _walked(memoryview(body), count) == step_ms * (count - 1)
    starts = [0, *accumulate(map(len, records))]
    heads = 12  # up to the value, or into it
    for change in (1, 2, 0x80, 0xFF):
        for at in (*range(heads), -1):
            for numbers in ([1], [40], [count - 1], range(1, count), range(30, count)):
                changed = bytearray(body)
                for number in numbers:
                    size = len(records[number])
                    changed[starts[number] + (at if at < 0 else min(at, size - 1)) % size] ^= change
                expected = _opened_one_by_one(bytes(changed), count)
                assert _walked(bytes(changed), count) == expected, (change, at, numbers)


# --- which way records go -----------------------------------------------------------------------
# The ways accept the same, so that nothing but these tests sees one of them decline what it is for.

SIZES = (0, 1, 31, 62, 63, 64, 65, 127, 128, 4000, 8000)


class Ways:
    """Counts how many records each way was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = self.walked = self.first = 0
        walk, first_of_shape = record_walk._walk, record_walk._first_of_shape
        open_record = record_walk._open_record

        def counting_open(*given: Any) -> Any:
            self.opened += 1
            return open_record(*given)

        def counting_walk(
            body: Any, position: int, first: int, stop: int, highest: int
        ) -> tuple[int, int]:
            self.walked += stop - first
            return walk(body, position, first, stop, highest)

        def counting_first(*given: Any) -> Any:
            self.first += 1
            return first_of_shape(*given)

        monkeypatch.setattr(record_walk, "_open_record", counting_open)
        monkeypatch.setattr(record_walk, "_walk", counting_walk)
        monkeypatch.setattr(record_walk, "_first_of_shape", counting_first)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


def encoded(records: list[NewRecord], first: int = 0) -> bytes:
    return b"".join(encode_record(record, index, 0) for index, record in enumerate(records, first))


@pytest.mark.parametrize("key", [None, b"", b"k", b"k" * 63])
def test_a_plain_record_that_comes_alone_is_taken_at_once(ways: Ways, key: bytes | None) -> None:
    for value in (None, *(b"v" * size for size in SIZES)):
        assert highest_time_delta(encoded([NewRecord(key, value, 0)]), 0, 1) == 0
        behind = b"\0" * 61 + encoded([NewRecord(key, value, 0)])
        assert highest_time_delta(memoryview(behind), 61, 1) == 0
    assert (ways.walked, ways.opened) == (0, 0)


@pytest.mark.parametrize("count", [1, 5, 8])
@pytest.mark.parametrize("time", [0, 1, -1, 63, -64, 64, -65, 8191, -8192])
@pytest.mark.parametrize("headers", [(), (("h", b"1"),), (("", None), ("name", b"v" * 60))])
def test_few_records_with_fields_of_two_bytes_are_walked(
    ways: Ways, count: int, time: int, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    for key in (None, b"", b"k" * 63, b"k" * 64, b"k" * 4000):
        for size in (None, *SIZES[:-1]):
            value = None if size is None else b"v" * size
            records = [NewRecord(key, value, time, headers)] * count
            if len(encoded(records[:1])) < 8192:
                body = encoded(records)
                assert highest_time_delta(body, 0, count) == time
                assert highest_time_delta(memoryview(body), 0, count) == time
    assert ways.opened == 0


@pytest.mark.parametrize("first", [0, 60, 8188, 8191, 20_000, 1_000_000])
def test_offset_deltas_of_one_to_three_bytes_are_walked(ways: Ways, first: int) -> None:
    body = encoded([NewRecord(b"k", b"v" * 80, 7)] * 8, first)
    assert record_walk._walk(body, 0, first, first + 8, 3) == (len(body), 7)
    assert record_walk._walk(body, 0, first, first + 8, 9) == (len(body), 9)
    assert ways.opened == 0


@pytest.mark.parametrize("time", [0, 5, -5, 90, -90])
@pytest.mark.parametrize("first", [0, 100, 9000])
def test_the_first_of_many_has_the_shape_of_its_fields(first: int, time: int) -> None:
    """The places are those of Kafka's table of a record."""
    for key in (None, b"", b"k" * 7, b"k" * 100):
        for value in (None, b"", b"v" * 7, b"v" * 100):
            body = encoded([NewRecord(key, value, time)], first)
            position, highest, shape = record_walk._first_of_shape(body, 0, first, -(1 << 63))
            assert (position, highest, shape is not None) == (len(body), time, True)
            assert shape is not None
            length_width = 1 + (len(body) > 64)
            time_width = 1 + (not -64 <= time < 64)
            offset_width = 1 + (first >= 64) + (first >= 8192)
            key_width = 1 + (len(key or b"") >= 64)
            value_width = 1 + (len(value or b"") >= 64)
            places = list(
                accumulate(
                    (
                        length_width,
                        1,
                        time_width,
                        offset_width,
                        key_width,
                        len(key or b""),
                        value_width,
                    )
                )
            )
            assert tuple(shape) == tuple(places)


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("step_ms", [0, 1, 40])
@pytest.mark.parametrize(
    "shape", ["one length", "lengths of two bytes", "no keys", "neither", "large"]
)
def test_records_of_one_length_are_compared_together(
    ways: Ways, shape: str, step_ms: int, in_memory: bool
) -> None:
    """A first one is looked at where offset deltas or times get another width, and no more."""
    shapes: dict[str, Any] = SHAPES | {"large": lambda index: (b"key", b"v" * 300)}
    count = 9000
    records = [
        NewRecord(*shapes[shape](index), min(step_ms * index // 8, 8191)) for index in range(count)
    ]
    body = encoded(records)
    highest = highest_time_delta(memoryview(body) if in_memory else body, 0, count)
    assert highest == records[-1].timestamp
    assert (ways.opened, ways.walked) == (0, 0)
    widths_of_offsets, widths_of_times = 3, 1 + (step_ms > 0)
    assert ways.first <= widths_of_offsets + widths_of_times - 1


@pytest.mark.parametrize("step_ms", [0, 1, 40])
@pytest.mark.parametrize(
    "shape", ["lengths that vary", "of one byte and of two", "keys that vary", "wide keys"]
)
def test_records_of_lengths_that_vary_are_gathered(ways: Ways, shape: str, step_ms: int) -> None:
    shapes: dict[str, Any] = SHAPES | {
        "wide keys": lambda index: (b"k" * 70, b"v" * (30 + index % 100))
    }
    count = 9000
    records = [
        NewRecord(*shapes[shape](index), min(step_ms * index // 8, 8191)) for index in range(count)
    ]
    assert highest_time_delta(encoded(records), 0, count) == records[-1].timestamp
    assert ways.opened == 0
    assert ways.walked <= {0: 0, 1: 160, 40: 62}[step_ms], "where times get another width"
