"""Batches are decoded into columns. The result equals that of a reader that decodes one record
after another.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import pytest
from helpers.places import TESTS

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from helpers.examples import drawn
from helpers.spark_decoding import timestamp_types
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.protocol.records import (
    HEADER_SIZE,
    NewRecord,
    assemble_batch,
    batches_in,
    encode_batch,
    encode_marker,
    encode_record,
    read_header,
    records_of,
)
from barnabas.spark_connector.arrow import decoding, record_loops
from barnabas.spark_connector.arrow.numba_loops import CompiledLoops, UnavailableError, load
from barnabas.spark_connector.arrow.record_batches import Selection, select_record_batches

FIXTURES = TESTS / "fixtures" / "kafka-logdir" / "logdir"
FAR = 2**62


class Row(NamedTuple):
    """The fields of a decoded record."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def naive(
    buffer: bytes, aborted: list[AbortedTransaction] | None, start: int, end: int
) -> list[Row]:
    """Decode one record after another. Markers show where aborted transactions end."""
    extents = []
    for each in aborted or []:
        producer_id, first = each.producer_id, each.first_offset
        markers = [
            header.base_offset
            for position, header in batches_in(buffer)
            if header.is_control
            and header.producer_id == producer_id
            and header.base_offset >= first
            and records_of(buffer[position : position + header.size_bytes])[0].key == b"\0\0\0\0"
        ]
        extents.append((producer_id, first, min(markers, default=FAR)))
    rows = []
    for position, header in batches_in(buffer):
        dropped = header.is_transactional and any(
            header.producer_id == producer and first <= header.base_offset <= marker
            for producer, first, marker in extents
        )
        if header.is_control or dropped:
            continue
        for record in records_of(buffer[position : position + header.size_bytes]):
            if start <= record.offset < end:
                headers = list(record.headers) or None
                rows.append(
                    Row(
                        record.offset,
                        record.timestamp,
                        int(header.is_log_append_time),
                        record.key,
                        record.value,
                        headers,
                    )
                )
    return rows


@lru_cache(maxsize=1)
def ways() -> list[CompiledLoops | None]:
    """The implementations of decoding: array operations, loops in plain Python and, if numba is
    installed, compiled loops.
    """
    found = [None, CompiledLoops(record_loops.parse, record_loops.headers, record_loops.gather)]
    with suppress(UnavailableError):
        found.append(load())
    return found


def decoded(
    buffer: bytes,
    aborted: list[AbortedTransaction] | None = None,
    start: int = 0,
    end: int = FAR,
    *,
    check_crc: bool = True,
) -> list[Row]:
    """The decoded rows. All implementations must give the same rows or the same error."""
    selection = select_record_batches(
        buffer, aborted, start_offset=start, end_offset=end, check_crc=check_crc
    )
    try:
        expected = rows_of(buffer, selection, start, end, None)
    except KafkaError as error:
        for way in ways()[1:]:
            with pytest.raises(KafkaError, match=re.escape(str(error))) as caught:
                rows_of(buffer, selection, start, end, way)
            assert caught.value.code == error.code
        raise
    for way in ways()[1:]:
        assert rows_of(buffer, selection, start, end, way) == expected
    return expected


def rows_of(
    buffer: bytes, selection: Selection, start: int, end: int, compiled: CompiledLoops | None
) -> list[Row]:
    rows: list[Row] = []
    for part in decoding.decode(
        buffer,
        selection.record_batches,
        start_offset=start,
        end_offset=end,
        headers=True,
        loops=compiled,
    ):
        assert part.key is not None and part.value is not None and part.headers is not None
        for array in (part.key, part.value, part.headers):
            array.validate(full=True)
        headers = [
            each and [(entry["key"], entry["value"]) for entry in each]
            for each in part.headers.to_pylist()
        ]
        columns = (part.offset.tolist(), part.timestamp_ms.tolist(), timestamp_types(part))
        rows += map(Row, *columns, part.key.to_pylist(), part.value.to_pylist(), headers)
    return rows


# Bytes that look like the start of a record: lengths, zero bytes, and values between them.
tricky = st.lists(
    st.sampled_from(
        [b"\0", b"\x0c", b"\x0c\0", b"\x0e\0\0\0\1\1\0", b"\x80\1", b"\x8c\1\0", b"\xff", b"x"]
    ),
    max_size=40,
).map(b"".join)
blobs = st.none() | st.just(b"") | st.binary(max_size=20) | tricky | st.integers(60, 300).map(bytes)
headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5) | tricky), max_size=3
).map(tuple)
records = st.builds(NewRecord, blobs, blobs, st.integers(-1, 2**41), headers)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[AbortedTransaction], int]:
    """An encoded log with batches and markers of several producers, its aborted transactions,
    and its end.
    """
    out, offset = bytearray(), draw(st.sampled_from([0, 5, 2**40]))
    open_since: dict[int, int] = {}
    aborted = []
    for _ in range(draw(st.integers(1, 8))):
        producer = draw(st.integers(0, 2))
        if producer in open_since and draw(st.booleans()):
            commit = draw(st.booleans())
            if not commit:
                aborted.append(AbortedTransaction(producer, open_since[producer]))
            del open_since[producer]
            marker = encode_marker(
                commit=commit,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=1,
            )
            out += offset.to_bytes(8, "big") + marker[8:]
            offset += 1
            continue
        transactional = draw(st.booleans())
        if transactional:
            open_since.setdefault(producer, offset)
        batch = draw(st.lists(records, min_size=1, max_size=6))
        out += encode_batch(
            batch,
            base_offset=offset,
            codec=draw(st.sampled_from(Codec)),
            # A batch outside of transactions also has a producer id. It cannot be aborted.
            producer_id=producer,
            transactional=transactional,
            log_append_time=draw(st.booleans()),
        )
        offset += len(batch) + draw(st.sampled_from([0, 0, 3]))
    # data of open transactions is hidden too, since no fetch with read_committed returns it
    for producer, first in open_since.items():
        aborted.append(AbortedTransaction(producer, first))
    return bytes(out), aborted, offset


@settings(max_examples=drawn(150))
@given(logs(), st.data())
def test_columns_equal_the_records_one_by_one(
    log: tuple[bytes, list[AbortedTransaction], int], data: st.DataObject
) -> None:
    buffer, aborted, end_offset = log
    first = read_header(buffer).base_offset
    start = data.draw(st.integers(first, end_offset))
    end = data.draw(st.integers(start, end_offset + 2))
    for listed in (aborted, None):
        assert decoded(buffer, listed, start, end) == naive(buffer, listed, start, end)


@settings(max_examples=drawn(60))
@given(
    st.lists(st.lists(records, min_size=1, max_size=30), min_size=1, max_size=4),
    st.sampled_from([1, 50, 1 << 19]),
)
def test_the_size_of_a_part_changes_nothing(
    record_batches: list[list[NewRecord]], part_bytes: int
) -> None:
    buffer, offset = b"", 0
    for batch in record_batches:
        buffer += encode_batch(
            batch, base_offset=offset, codec=Codec.LZ4 if len(record_batches) % 2 else Codec.NONE
        )
        offset += len(batch)
    before = decoding.PART_BYTES, decoding.LOOPS_PART_BYTES
    decoding.PART_BYTES = decoding.LOOPS_PART_BYTES = part_bytes
    try:
        assert decoded(buffer) == naive(buffer, None, 0, FAR)
    finally:
        decoding.PART_BYTES, decoding.LOOPS_PART_BYTES = before


def test_offsets_within_a_batch_may_have_gaps_after_compaction() -> None:
    kept = [(3, b"a"), (64, b"b"), (70_000, b"c")]
    body = b"".join(
        encode_record(NewRecord(key, None, 100 + delta), delta, 100) for delta, key in kept
    )
    batch = bytes(
        assemble_batch(
            body,
            base_offset=1000,
            leader_epoch=0,
            attributes=0,
            last_offset_delta=80_000,
            base_timestamp=100,
            max_timestamp=100 + 70_000,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=3,
        )
    )
    assert [row.offset for row in decoded(batch)] == [1003, 1064, 71_000]
    assert [row.offset for row in decoded(batch, start=1004, end=71_000)] == [1064]
    selection = select_record_batches(batch, None, start_offset=1000, end_offset=FAR)
    assert selection.next_offset == 81_001


def test_false_records_in_a_value_are_told_from_real_ones() -> None:
    """The value contains encoded records, one after another. Only a reader that starts at the first
    record of the batch can distinguish them from real records.
    """
    inner = b"".join(
        encode_record(NewRecord(b"inner", b"%d" % number, 5), number, 0) for number in range(50)
    )
    batch = [
        NewRecord(b"k", inner + b"tail", 5),
        NewRecord(b"k", b"plain", 5),
        NewRecord(None, inner, 5),
    ]
    buffer = bytes(encode_batch(batch) + encode_batch(batch, base_offset=3, codec=Codec.ZSTD))
    assert decoded(buffer) == naive(buffer, None, 0, FAR)


def test_attributes_that_are_not_zero_are_read_all_the_same() -> None:
    body = bytearray(encode_record(NewRecord(b"k", b"v" * 80, 7, (("h", b"1"),)), 0, 7))
    assert body[2] == 0  # the attributes, after a length of two bytes
    body[2] = 1
    batch = bytes(
        assemble_batch(
            bytes(body),
            base_offset=9,
            leader_epoch=0,
            attributes=0,
            last_offset_delta=0,
            base_timestamp=7,
            max_timestamp=7,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=1,
        )
    )
    assert decoded(batch) == [Row(9, 7, 0, b"k", b"v" * 80, [("h", b"1")])]


@pytest.mark.parametrize("place", range(HEADER_SIZE, HEADER_SIZE + 12))
def test_damaged_records_give_as_many_rows_as_reading_them_one_by_one(place: int) -> None:
    """If a reader of single records accepts the changed bytes, the decoder must accept them and
    find as many rows. The decoder may also accept bytes that this reader refuses.
    """
    good = encode_batch([NewRecord(b"key", b"value", 5, (("h", b"1"),)), NewRecord(b"k2", None, 6)])
    for byte in range(256):
        bad = bytearray(good)
        bad[place] = byte
        try:
            expected: list[Row] | None = naive(bytes(bad), None, 0, FAR)
        except KafkaError:
            expected = None
        try:
            rows = len(decoded(bytes(bad), check_crc=False))
        except KafkaError:
            assert expected is None, f"byte {byte} at {place} is good but refused"
        else:
            assert expected is None or rows == len(expected)


@pytest.mark.parametrize("partition", ["plain-0", "plain-1", "txn-0", "txn-1", "compacted-0"])
def test_segments_that_apache_kafka_wrote(partition: str) -> None:
    """Kafka's broker wrote these segments. They have every codec, null and empty keys, headers,
    markers, and gaps from compaction.
    """
    segments = sorted((FIXTURES / partition).glob("*.log"))
    buffer = b"".join(segment.read_bytes() for segment in segments)
    rows = decoded(buffer)
    assert rows == naive(buffer, None, 0, FAR)
    assert len(rows) > 4


def test_wanted_columns_only() -> None:
    batch = bytes(encode_batch([NewRecord(b"k", b"v", 1)]))
    selection = select_record_batches(batch, None, start_offset=0, end_offset=1)
    (part,) = decoding.decode(
        batch, selection.record_batches, start_offset=0, end_offset=1, key=False
    )
    assert part.key is None and part.headers is None
    assert part.value == pa.array([b"v"], pa.binary())
    assert part.offset.dtype == np.int64
