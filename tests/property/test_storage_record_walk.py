"""The fast walk over a batch's records accepts exactly the batches of which every record can be
opened, and which kafka-python decodes.
"""

from __future__ import annotations

import random
from itertools import accumulate

from helpers.examples import drawn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import (
    HEADER_SIZE,
    LENGTH_END,
    NewRecord,
    computed_crc,
    encode_batch,
    encode_record,
)
from barnabas.storage.batch.record_walk import _open_record, highest_time_delta

BASE_MS = 1_700_000_000_000


def by_itself(body: bytes, count: int) -> int | None:
    """The highest timestamp delta, found by opening each record, or None if the bytes are not
    records.
    """
    position, highest = 0, -(1 << 63)
    try:
        for delta in range(count):
            position, time = _open_record(body, position, delta)
            highest = max(highest, time)
    except (IndexError, KafkaError):
        return None
    return highest if position == len(body) else None


def walked(body: bytes | memoryview, count: int) -> int | None:
    """The highest timestamp delta according to the broker's walk, or None if it refuses the
    bytes.
    """
    try:
        return highest_time_delta(body, 0, count)
    except KafkaError:
        return None


def read_by_kafka_python(body: bytes, count: int) -> list[tuple[int, int]]:
    """The offset and timestamp of each record, as decoded by kafka-python."""
    batch = encode_batch([NewRecord(None, b"", BASE_MS)])[:HEADER_SIZE] + body
    batch[23:27] = (count - 1).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    batch[8:LENGTH_END] = (len(batch) - LENGTH_END).to_bytes(4, "big")
    batch[17:21] = computed_crc(batch).to_bytes(4, "big")
    return [(record.offset, record.timestamp) for record in DefaultRecordBatch(bytes(batch))]


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[NewRecord], bytes]:
    """Records as producers make them: runs of similar records, in which sizes, keys, timestamps and
    headers vary.
    """
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    records: list[NewRecord] = []
    time = 0
    for _ in range(draw(st.integers(1, 4))):
        size, spread = draw(
            st.sampled_from(
                [(0, 0), (5, 0), (20, 30), (30, 60), (100, 0), (80, 40), (40, 400), (8180, 20)]
            )
        )
        key_size, key_spread = draw(
            st.sampled_from([(-1, 0), (0, 0), (8, 0), (3, 8), (60, 9), (70, 0)])
        )
        step, jitter = draw(
            st.sampled_from(
                [(0, 0), (0.1, 0), (1, 0), (3, 2), (-1, 0), (0, 70), (0, 9000), (10_000_000, 0)]
            )
        )
        headers = draw(st.sampled_from([(), (), (), (("h", b"1"), ("", None))]))
        for _ in range(
            draw(st.sampled_from([1, 3, 20, 40] if size > 1000 else [1, 3, 20, 70, 200]))
        ):
            time += step
            key = (
                None
                if key_size < 0
                else rng.randbytes(key_size + (rng.randrange(key_spread) if key_spread else 0))
            )
            value = rng.randbytes(size + (rng.randrange(spread) if spread else 0))
            wobble = rng.randint(-jitter, jitter)
            records.append(
                NewRecord(
                    key,
                    value if rng.random() < 0.98 or not spread else None,
                    int(time) + wobble,
                    headers,
                )
            )
    return records, b"".join(
        encode_record(record, delta, 0) for delta, record in enumerate(records)
    )


@settings(max_examples=drawn(30))
@given(bodies(), st.booleans())
def test_good_records_pass_with_their_highest_time(
    made: tuple[list[NewRecord], bytes], in_memory: bool
) -> None:
    """The walk accepts good records only with exactly their count and length."""
    records, body = made
    assert walked(memoryview(body) if in_memory else body, len(records)) == max(
        record.timestamp for record in records
    )
    for count in (len(records) - 1, len(records) + 1):
        assert walked(body, count) is None
    assert walked(body[:-1], len(records)) is None
    assert walked(body + b"\0", len(records)) is None


@settings(max_examples=drawn(120))
@given(bodies(), st.data())
def test_what_is_changed_is_taken_only_if_it_still_is_what_it_says(
    made: tuple[list[NewRecord], bytes], data: st.DataObject
) -> None:
    """The broker's walk accepts changed bytes exactly if the records open one by one. Then
    kafka-python reads the same records.
    """
    records, body = made
    changed = bytearray(body)
    starts = [
        0,
        *accumulate(len(encode_record(record, delta, 0)) for delta, record in enumerate(records)),
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        near = data.draw(st.integers(0, len(records) - 1))
        start = starts[near]
        at = min(start + data.draw(st.integers(0, 12)), len(changed) - 1)
        changed[at] = data.draw(
            st.one_of(st.integers(0, 255), st.just(changed[at] ^ 1), st.just(changed[at] ^ 0x80))
        )
    expected = by_itself(bytes(changed), len(records))
    assert walked(bytes(changed), len(records)) == expected
    assert walked(memoryview(changed), len(records)) == expected
    if expected is not None:
        try:
            read = read_by_kafka_python(bytes(changed), len(records))
        except (UnicodeDecodeError, CorruptRecordError) as error:
            # Apache Kafka and librdkafka accept any bytes as a header's name
            assert "UnicodeDecodeError" in repr(error)
            return
        assert [offset for offset, _ in read] == list(range(len(records)))
        assert max(timestamp for _, timestamp in read) == BASE_MS + expected


@settings(max_examples=drawn(300))
@given(st.binary(max_size=120), st.integers(1, 30))
@example(bytes.fromhex("0c0000000101"), 1)
def test_noise_is_no_records(noise: bytes, count: int) -> None:
    assert walked(noise, count) == by_itself(noise, count)


def test_offset_deltas_of_three_bytes() -> None:
    count = 140_000
    body = b"".join(encode_record(NewRecord(None, b"", 0), delta, 0) for delta in range(count))
    assert walked(body, count) == 0
    for wrong in (8191, 8192, 20_000, count - 1):
        swapped = bytearray(body)
        start = body.index(encode_record(NewRecord(None, b"", 0), wrong, 0))
        swapped[start + 3] ^= 2  # another delta, encoded in as many bytes
        assert walked(bytes(swapped), count) is None
