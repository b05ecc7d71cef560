"""Whether bytes are the records that a batch says, of batches that Apache Kafka wrote."""

from __future__ import annotations

import json

import pytest
from helpers.storage_kafka_log import KAFKA

from barnabas.protocol.compression import decompress
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import HEADER_SIZE, NewRecord, batches_in, encode_record
from barnabas.storage.record_walk import first_at_time, highest_time_delta

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
