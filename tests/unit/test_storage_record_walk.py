"""Whether bytes are the records that a batch says, of batches that Apache Kafka wrote."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest
from helpers.storage_kafka_log import KAFKA

from barnabas.protocol.compression import decompress
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import HEADER_SIZE, NewRecord, batches_in, encode_record
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
