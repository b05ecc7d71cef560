"""The check that the bytes of a batch are valid records, applied to batches that Apache Kafka
wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import pytest
from helpers.storage_kafka_log import KAFKA

from barnabas.protocol.compression import decompress
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import HEADER_SIZE, NewRecord, batches_in, encode_record
from barnabas.storage.batch import record_walk
from barnabas.storage.batch.record_walk import _open_record, first_at_time, highest_time_delta

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
    """The batches cover all of Kafka's codecs."""
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
    """The records have Kafka's format. Their lengths take one, two and three bytes."""
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


# For each shape that is processed differently: the key and value of a record, by its number.
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
    """A byte is changed in one record, or in all records but the first. The result must be the same
    as if each record were opened separately.
    """
    count = 80
    records = [
        encode_record(NewRecord(*SHAPES[shape](index), step_ms * index), index, 0)
        for index in range(count)
    ]
    body = b"".join(records)
    assert _walked(body, count) == _walked(memoryview(body), count) == step_ms * (count - 1)
    starts = [0, *accumulate(map(len, records))]
    heads = 12  # covers the bytes before the value
    for change in (1, 2, 0x80, 0xFF):
        for at in (*range(heads), -1):
            for numbers in ([1], [40], [count - 1], range(1, count), range(30, count)):
                changed = bytearray(body)
                for number in numbers:
                    size = len(records[number])
                    changed[starts[number] + (at if at < 0 else min(at, size - 1)) % size] ^= change
                expected = _opened_one_by_one(bytes(changed), count)
                assert _walked(bytes(changed), count) == expected, (change, at, numbers)


# --- a second reader, by Kafka's table of a record -----------------------------------------------


class Refused(Exception):
    """Raised if the bytes are not valid records."""


class Reader:
    """Reads one field after another, according to Kafka's message format."""

    def __init__(self, body: bytes) -> None:
        self.body, self.at = body, 0

    def byte(self) -> int:
        if self.at >= len(self.body):
            raise Refused
        self.at += 1
        return self.body[self.at - 1]

    def number(self, most_bytes: int) -> int:
        """Read a zigzag varint."""
        value = 0
        for index in range(most_bytes):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value // 2 if value % 2 == 0 else -(value + 1) // 2
        raise Refused

    def blob(self, least: int) -> None:
        size = self.number(5)
        if size < least:
            raise Refused
        self.at += max(size, 0)

    def record(self, delta: int) -> int:
        """Read one record. Gives its timestamp delta."""
        size = self.number(5)
        end = self.at + size
        if size < 6 or end > len(self.body) or self.byte() != 0:
            raise Refused
        time = self.number(10)
        if not -(2**63) <= time < 2**63 or self.number(5) != delta:
            raise Refused
        self.blob(-1)
        self.blob(-1)
        headers = self.number(5)
        if not 0 <= headers <= size:
            raise Refused
        for _ in range(headers):
            self.blob(0)
            self.blob(-1)
        if self.at != end:
            raise Refused
        return time


def by_the_table(body: bytes, count: int) -> int | None:
    """The highest timestamp delta, or None if the bytes are not `count` records."""
    reader = Reader(body)
    try:
        highest = max(reader.record(delta) for delta in range(count))
    except Refused:
        return None
    return highest if reader.at == len(body) else None


FIELDS: dict[str, tuple[bytes | None, bytes | None, int, tuple[Any, ...]]] = {
    "nothing": (None, None, 0, ()),
    "empty": (b"", b"", 0, ()),
    "short": (b"key", b"value", 0, ()),
    "a value of two bytes' size": (b"key", b"v" * 70, 0, ()),
    "a key of two bytes' size": (b"k" * 70, b"v", 0, ()),
    "sizes of three bytes": (b"k" * 8200, b"v" * 8200, 0, ()),
    "later": (b"key", b"value", 5, ()),
    "much later": (None, b"value", 90, ()),
    "by days": (None, b"value", 10**9, ()),
    "earlier": (b"key", None, -90, ()),
    "the earliest": (None, b"v", -(2**63), ()),
    "the latest": (None, b"v", 2**63 - 1, ()),
    "headers": (b"key", b"value", 0, (("h", b"1"), ("", None))),
    "long headers": (None, b"value", 3, (("h" * 70, b"1" * 70), ("name", b""))),
    "nothing but headers": (None, None, 0, (("", None),) * 3),
}


def other_bytes(byte: int) -> set[int]:
    """Other values for a byte. They make a field slightly smaller or larger, wider, negative, or as
    large as possible.
    """
    near = {
        byte ^ 1,
        byte ^ 0x40,
        byte ^ 0x80,
        (byte + 1) % 256,
        (byte + 2) % 256,
        (byte - 2) % 256,
    }
    return (near | {0, 1, 2, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF}) - {byte}


@pytest.mark.parametrize("count", [1, 3, 11])
@pytest.mark.parametrize("fields", FIELDS)
def test_any_byte_of_a_record_may_be_another_one(fields: str, count: int) -> None:
    """Many bytes of a valid batch are replaced, one at a time. The result must always be that of
    the reference implementation `by_the_table`.
    """
    key, value, time, headers = FIELDS[fields]
    records = [encode_record(NewRecord(key, value, time, headers), at, 0) for at in range(count)]
    body = b"".join(records)
    assert _walked(body, count) == time
    begins = sum(map(len, records[:-1]))  # the start of the last record
    looked_at = {0, 1, 2, *range(begins, min(begins + 16, len(body)))}
    behind_key = begins + len(key or b"")
    looked_at |= set(range(behind_key, min(behind_key + 16, len(body))))
    looked_at |= set(range(max(begins, len(body) - 16), len(body)))
    for at in sorted(looked_at):
        for byte in other_bytes(body[at]):
            changed = body[:at] + bytes((byte,)) + body[at + 1 :]
            expected = by_the_table(changed, count)
            assert _walked(changed, count) == expected, (at, body[at], byte)
            assert _walked(memoryview(changed), count) == expected, (at, body[at], byte)


@pytest.mark.parametrize("fields", FIELDS)
def test_a_byte_less_or_more_is_no_record(fields: str) -> None:
    key, value, time, headers = FIELDS[fields]
    body = encode_record(NewRecord(key, value, time, headers), 0, 0)
    for size in range(max(0, len(body) - 20), len(body)):
        assert _walked(body[:size], 1) is None
        assert _walked(memoryview(body)[:size], 1) is None
    assert _walked(body + b"\0", 1) is None
    assert _walked(body, 2) is None
    assert _walked(body * 2, 1) is None


def varint(value: int, width: int = 0) -> bytes:
    """A varint of at least `width` bytes, padded with bytes that add nothing to its value."""
    code = value * 2 if value >= 0 else -value * 2 - 1
    septets = [code & 0x7F]
    while code := code >> 7:
        septets.append(code & 0x7F)
    septets += [0] * (width - len(septets))
    return bytes([*(septet | 0x80 for septet in septets[:-1]), septets[-1]])


def record_of(
    delta: int,
    key: bytes | None,
    value: bytes | None,
    time: int,
    headers: int,
    widths: Mapping[str, int] = MappingProxyType({}),
) -> bytes:
    """A record in which these numbers have at least these widths."""

    def number(field: str, what: int) -> bytes:
        return varint(what, widths.get(field, 0))

    def blob(field: str, what: bytes | None) -> bytes:
        return number(field, -1 if what is None else len(what)) + (what or b"")

    rest = b"\0" + number("time", time) + number("offset", delta)
    rest += blob("key", key) + blob("value", value) + number("headers", headers)
    rest += (blob("name", b"h") + blob("content", b"c")) * headers
    return number("length", len(rest)) + rest


@pytest.mark.parametrize("count", [1, 3, 11, 90, 140])
@pytest.mark.parametrize(
    "field", ["length", "time", "offset", "key", "value", "headers", "name", "content"]
)
@pytest.mark.parametrize(
    "size",
    [lambda at: 3, lambda at: 70, lambda at: 8200, lambda at: at % 7, lambda at: 60 + at % 9],
)
def test_numbers_may_be_wider_than_they_need_up_to_a_bound(
    field: str, count: int, size: Any
) -> None:
    """The limit is five bytes for a Java int, and ten for a timestamp. The numbers are wider in one
    record, or in all records.
    """
    headers = int(field in ("name", "content"))
    for key in (None, b"k" * 3):
        plain = [record_of(at, key, b"v" * size(at), 5 + at, headers) for at in range(count)]
        for width in range(2, 12):
            wide = [
                record_of(at, key, b"v" * size(at), 5 + at, headers, {field: width})
                for at in range(count)
            ]
            for records in (
                wide,
                [*plain[:-1], wide[-1]],
                [*plain[: count // 2], *wide[count // 2 :]],
            ):
                body = b"".join(records)
                expected = by_the_table(body, count)
                assert (expected is None) == (width > (10 if field == "time" else 5))
                assert _walked(body, count) == expected, width
                assert _walked(memoryview(body), count) == expected, width


@pytest.mark.parametrize("time", [-(2**63) - 1, -(2**63), 2**63 - 1, 2**63, 2**69])
@pytest.mark.parametrize("count", [1, 11])
def test_a_time_has_64_bits(time: int, count: int) -> None:
    body = b"".join(record_of(at, None, b"v", time, 0) for at in range(count))
    assert _walked(body, count) == (time if -(2**63) <= time < 2**63 else None)


@pytest.mark.parametrize("size", [-1, 0, 5, 8])
def test_a_record_of_a_wrong_length_is_told_of_as_such(size: int) -> None:
    """The error must differ from that for a wrong offset delta, which names the record's number to
    clients.
    """
    record = varint(size) + b"\0\0\7\1\1\0"
    with pytest.raises(KafkaError, match=f"record 0 declares {size} bytes") as refusal:
        highest_time_delta(record, 0, 1)
    assert not isinstance(refusal.value, record_walk.RecordRefused)


@pytest.mark.parametrize("size", [0, 50, 60, 61, 62, 63, 8100, 8180, 8190, 9000, 1_100_000])
def test_the_first_at_a_time_is_found_among_records_of_any_length(size: int) -> None:
    times = [0, 63, -64, 64, 5, 8191, 8192, -9000, 2**40]
    body = encoded([NewRecord(None, b"v" * size, time) for time in times])
    for wanted in (*times, 10, 100, 2**41):
        for least in (0, 3, 8, 9):
            found = [(time, at) for at, time in enumerate(times) if time >= wanted and at >= least]
            expected = found[0] if found else None
            assert first_at_time(body, len(times), wanted, least) == expected


@pytest.mark.parametrize("length", [-1, 0, 1])
def test_a_length_that_ends_before_the_time_is_no_record(length: int) -> None:
    body = varint(length) + b"\0\0" + bytes(20)
    with pytest.raises(KafkaError, match="not as long as it says"):
        first_at_time(body, 2, 5, 0)


@pytest.mark.parametrize("delta", [0, 63, 64, 8191, 8192, 2**20 - 1, 2**20, 2**27])
def test_any_width_of_an_offset_delta(delta: int) -> None:
    """An offset delta has one to five bytes. The longest deltas occur only in batches that are
    larger than those that clients send.
    """
    records = [NewRecord(None, b"v" * (at % 3), at % 2) for at in range(300)]
    body = encoded(records, delta)
    _, highest, shape = record_walk._first_of_shape(body, 0, delta, -5)
    assert (highest, shape is not None) == (0, delta < 2**20)
    assert record_walk._walk(body, 0, delta, delta + 300, -5) == (len(body), 1)
    count = min(300, record_walk._next_width(delta + 1) - delta - 1)
    columns = record_walk._offset_columns(delta + 1, count)
    assert {len(column) for column in columns} == {count}
    deltas = [Reader(bytes(column[at] for column in columns)).number(5) for at in range(count)]
    assert deltas == list(range(delta + 1, delta + 1 + count))


GATHERED_SHAPES = {
    name: SHAPES[name] for name in ("lengths that vary", "of one byte and of two", "keys that vary")
} | {
    "both vary": lambda index: (b"k" * (1 + index % 5), b"v" * (57 + index % 13)),
    "values of two bytes and of three": lambda index: (b"key", b"v" * (8185 + index % 13)),
    "keys of two bytes": lambda index: (b"k" * 66, b"v" * (index % 90)),
    "short keys and none": lambda index: (b"k" * (index % 2) or None, b"v" * (1 + index % 3)),
}


@pytest.mark.parametrize("step_ms", [0, 40])
@pytest.mark.parametrize("shape", GATHERED_SHAPES)
def test_each_byte_of_the_last_that_are_gathered_counts(shape: str, step_ms: int) -> None:
    """These records are the last ones of the batch. No later record would show that fields are
    shifted.
    """
    count = 140
    fields = GATHERED_SHAPES[shape]
    records = [
        encode_record(NewRecord(*fields(index), step_ms * index), index, 0)
        for index in range(count)
    ]
    body = b"".join(records)
    assert _walked(body, count) == step_ms * (count - 1)
    begins = len(body) - len(records[-1])
    key = len(fields(count - 1)[0] or b"")
    for number_at in {*range(12), *range(key, key + 12), *range(-12, 0)}:
        at = begins + number_at if number_at >= 0 else len(body) + number_at
        if begins <= at < len(body):
            for byte in other_bytes(body[at]):
                changed = body[:at] + bytes((byte,)) + body[at + 1 :]
                expected = by_the_table(changed, count)
                assert _walked(changed, count) == expected, (number_at, body[at], byte)
    for size in range(len(body) - 12, len(body)):
        assert _walked(body[:size], count) is None
    assert _walked(body + b"\0", count) is None
    assert _walked(body[: -len(records[-1])], count) is None


# --- the way for records ------------------------------------------------------------------------
# All methods accept the same records. Only these tests show which method processes which records.

SIZES = (0, 1, 31, 62, 63, 64, 65, 127, 128, 4000, 8000)


class Ways:
    """Counts the records that each method processes."""

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
    """The positions of the fields follow Kafka's table of a record."""
    for key in (None, b"", b"k" * 7, b"k" * 100, b"k" * 200):
        for value in (None, b"", b"v" * 7, b"v" * 100, b"v" * 300):
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
    """A record is opened as a new first record only where the width of offset deltas or of times
    changes.
    """
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
    assert ways.first == {0: 3, 1: 7, 40: 4}[step_ms]
    assert ways.walked <= {0: 0, 1: 160, 40: 62}[step_ms], (
        "records are walked only where the time field gets another width"
    )


def test_records_that_are_not_alike_are_walked_in_longer_and_longer_pieces(ways: Ways) -> None:
    count = 8000
    headers = (("h", b"1"),)
    records = [NewRecord(b"k", b"v" * (at % 7), 0, headers) for at in range(count)]
    assert highest_time_delta(encoded(records), 0, count) == 0
    assert (ways.opened, ways.first + ways.walked) == (ways.first, count)
    assert ways.first == 19, "one before each piece"
