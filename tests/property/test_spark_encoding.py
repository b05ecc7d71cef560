"""Encodes any rows in any batches. Decoding the bytes gives the original records, also if another
client's code decodes them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch
from helpers.examples import drawn
from helpers.spark_encoding import ways
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from barnabas.protocol.compression import Codec
from barnabas.protocol.records import (
    HEADER_SIZE,
    NO_PRODUCER_ID,
    Record,
    computed_crc,
    read_header,
    records_of,
)
from barnabas.spark_connector.arrow.encoding import Compression, Encoder
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.spool import from_message, to_message

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
# Other types that Spark or another source of Arrow batches may use for these columns.
OTHER_TYPES = {
    "key": [pa.large_binary(), pa.binary_view()],
    "value": [pa.large_binary(), pa.binary_view()],
    "topic": [pa.large_string(), pa.string_view()],
    "partition": [pa.int64(), pa.int16()],
    "headers": [
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    ],
    "timestamp": [pa.timestamp("ns", "UTC"), pa.timestamp("us")],
}
COUNTS = {"orders": 3, "straße": 1, "wide": 1000}
NOW_MS = 1_700_000_000_123
BLOBS = st.one_of(
    st.none(), st.binary(max_size=12), st.integers(0, 300).map(lambda size: b"x" * size)
)
VALUES = BLOBS | st.just(b"y" * 9000)
HEADERS = st.lists(
    st.fixed_dictionaries(
        {"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=70)}
    ),
    max_size=3,
)
# Values from the range of nanoseconds, 1677 to 2262, and values close together, as in most batches.
MICROSECONDS = st.one_of(
    st.none(), st.integers(-9_000_000_000_000_000, 9_000_000_000_000_000), st.integers(-3000, 3000)
)


@st.composite
def rows_of(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows for any topics, with and without keys, partitions, headers and timestamps."""
    rows = []
    sparse = draw(st.booleans())
    for _ in range(draw(st.integers(0, 30))):
        topic = draw(st.sampled_from(sorted(COUNTS)))
        rows.append(
            {
                "key": draw(BLOBS),
                "value": draw(VALUES),
                "topic": topic,
                "partition": draw(st.none() | st.integers(0, COUNTS[topic] - 1)),
                "headers": None if sparse else draw(st.none() | HEADERS),
                "timestamp": draw(MICROSECONDS),
            }
        )
    return rows


@st.composite
def added(draw: st.DrawFn, rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    """The rows in several Arrow batches, which may be slices of larger batches, have other types,
    or lack columns that have only nulls.
    """
    schema = SCHEMA
    for name, types in OTHER_TYPES.items():
        kind = draw(st.sampled_from([SCHEMA.field(name).type, *types]))
        schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    record_batches = []
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=8)))
    for position, end in itertools.pairwise([0, *cuts, len(rows)] if rows else [0, *cuts]):
        size = end - position
        before, after = draw(st.integers(0, position)), draw(st.integers(0, 3))
        around = pa.RecordBatch.from_pylist(
            rows[position - before : position + size + after], SCHEMA
        ).cast(schema)
        part = around.slice(before, size)
        null = [
            name
            for name in ("key", "partition", "headers", "timestamp")
            if part.column(name).null_count == len(part)
        ]
        left_out = draw(st.sets(st.sampled_from(null))) if null else set()
        record_batches.append(part.select([name for name in schema.names if name not in left_out]))
    return record_batches


def encoder(**settings: Any) -> Encoder:
    """An encoder with default settings, unless a test gives others."""
    arguments = {
        "topic": None,
        "partition_counts": COUNTS.__getitem__,
        "compression": Compression(),
        "now_ms": lambda: NOW_MS,
    }
    return Encoder(**(arguments | settings))


def expected_record(row: dict[str, Any]) -> tuple[Any, ...]:
    """The timestamp, key, value and headers of the record that a row must become."""
    timestamp = NOW_MS if row["timestamp"] is None else row["timestamp"] // 1000
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return timestamp, row["key"], row["value"], headers


def by_aiokafka(batch: EncodedRecordBatch) -> list[tuple[Any, ...]]:
    """The records of a batch as aiokafka decodes them."""
    decoded = DefaultRecordBatch(bytearray(batch.data))
    assert decoded.validate_crc()
    assert decoded.is_transactional
    return [
        (record.timestamp, record.key, record.value, tuple(record.headers)) for record in decoded
    ]


def checked(batch: EncodedRecordBatch, record_batch_bytes: int, codec: Codec) -> list[Record]:
    """Check the header of a batch, and return the records."""
    header = read_header(batch.data)
    assert header.size_bytes == len(batch.data)
    assert header.crc == computed_crc(batch.data)
    assert header.magic == 2 and header.attributes == 0x10 | codec
    assert (header.base_offset, header.leader_epoch) == (0, -1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
        NO_PRODUCER_ID,
        -1,
        -1,
    )
    records = records_of(batch.data)
    assert header.record_count == batch.record_count == len(records) == header.last_offset_delta + 1
    assert [record.offset for record in records] == list(range(len(records)))
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert codec or len(records) == 1 or len(batch.data) <= record_batch_bytes
    return records


@settings(max_examples=drawn(60))
@given(
    st.data(),
    rows_of(),
    st.sampled_from(Codec),
    st.sampled_from([HEADER_SIZE, 100, 1000, 20_000, 1 << 20]),
    st.sampled_from([1, 500, 4 << 20]),
    st.sampled_from([1, 3000, 64 << 20]),
    st.integers(0, 2000),
)
def test_the_encoded_batches_have_exactly_the_rows_in_order(
    data: st.DataObject,
    rows: list[dict[str, Any]],
    codec: Codec,
    record_batch_bytes: int,
    round_bytes: int,
    limit_bytes: int,
    task: int,
) -> None:
    parts = data.draw(added(rows))
    found_by_way = []
    for loops in ways()[::2]:  # with array operations, and with compiled loops
        encoding = encoder(
            compression=Compression(codec),
            record_batch_bytes=record_batch_bytes,
            round_bytes=round_bytes,
            limit_bytes=limit_bytes,
            task=task,
            loops_for=lambda _, loops=loops: loops,
        )
        found_by_way.append(
            [batch for part in parts for batch in encoding.add(part)] + encoding.finish()
        )
        assert encoding.finish() == []
    record_batches = found_by_way[0]
    assert all(each == record_batches for each in found_by_way)

    expected: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    turn, position = task, 0
    for part in parts:
        chunk, position = rows[position : position + len(part)], position + len(part)
        for row in chunk:
            count = COUNTS[row["topic"]]
            if row["partition"] is not None:
                place = row["partition"]
            elif row["key"] is not None:
                place = (murmur2(row["key"]) & 0x7FFFFFFF) % count
            else:
                place = turn % count
            expected[row["topic"], place].append(expected_record(row))
        wanted = "partition" in part.schema.names and not part.column("partition").null_count
        turn += not wanted and any(row["key"] is None for row in chunk)

    found: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    for batch in record_batches:
        records = checked(batch, record_batch_bytes, codec)
        found[batch.topic, batch.partition] += [record[1:] for record in records]
        if codec == Codec.NONE:
            assert by_aiokafka(batch) == [record[1:] for record in records]
    assert found == expected
    assert [
        batch._replace(data=bytes(batch.data)) for batch in from_message(to_message(record_batches))
    ] == record_batches


@given(st.lists(VALUES, min_size=1, max_size=40))
def test_bytes_that_arrow_has_under_a_null_are_not_encoded(blobs: list[bytes | None]) -> None:
    full = pa.array([b"garbage" if blob is None else blob for blob in blobs], pa.binary())
    valid = pa.py_buffer(pa.array([blob is not None for blob in blobs]).buffers()[1])
    column = pa.Array.from_buffers(full.type, len(blobs), [valid, *full.buffers()[1:]])
    encoding = encoder(topic="straße")
    encoding.add(pa.RecordBatch.from_pydict({"key": column, "value": column}))
    (batch,) = encoding.finish()
    assert [record[2:4] for record in records_of(batch.data)] == [(blob, blob) for blob in blobs]
