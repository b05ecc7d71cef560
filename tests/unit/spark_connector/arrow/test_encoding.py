"""Rows are encoded into batches: the partition of each row, when a batch is complete, and users'
errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from helpers.spark_encoding import ways

from barnabas.protocol.compression import Codec, Levels
from barnabas.protocol.records import HEADER_SIZE, Record, records_of
from barnabas.spark_connector.arrow import encoding
from barnabas.spark_connector.arrow.encoding import (
    Compression,
    Encoder,
    EncodingError,
    check_schema,
)
from barnabas.spark_connector.arrow.numba_loops import EncodingLoops
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch

NOW_MS = 1_700_000_000_123
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ALL_COLUMNS = [
    ("key", "binary"),
    ("value", "string"),
    ("headers", "array<struct<key:string,value:binary>>"),
    ("topic", "string"),
    ("partition", "int"),
    ("timestamp", "timestamp"),
]


def encoder(
    *, topic: str | None = "orders", count: int | Callable[[str], int] = 4, **settings: Any
) -> Encoder:
    counts = count if callable(count) else lambda _topic: count
    arguments: dict[str, Any] = {"compression": Compression(), "now_ms": lambda: NOW_MS}
    return Encoder(topic=topic, partition_counts=counts, **(arguments | settings))


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def encoded(batch: pa.RecordBatch, **settings: Any) -> list[EncodedRecordBatch]:
    """Encode a batch with each implementation. Gives the result, which must be the same for all of
    them.
    """
    found = []
    for loops in ways():
        encoding_ = encoder(loops_for=lambda _, loops=loops: loops, **settings)
        found.append(encoding_.add(batch) + encoding_.finish())
    assert all(each == found[0] for each in found)
    return found[0]


def only_record(**columns: Any) -> Record:
    (batch,) = encoded(rows(**columns))
    (record,) = records_of(batch.data)
    return record


# --- the schema


@pytest.mark.parametrize(
    ("fields", "topic"),
    [
        (ALL_COLUMNS, None),
        (ALL_COLUMNS, "orders"),
        ([("value", "binary")], "orders"),
        ([("value", "string collate UTF8_LCASE"), ("topic", "string")], None),
    ],
)
def test_columns_that_can_be_written(fields: list[tuple[str, str]], topic: str | None) -> None:
    check_schema(fields, topic)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([("key", "binary")], "no column 'value'"),
        (
            [("value", "bigint")],
            "Column 'value' has the type bigint, but has to be string or binary",
        ),
        (
            [("value", "binary"), ("partition", "bigint")],
            "Column 'partition' has the type bigint, but has to be int",
        ),
        (
            [("value", "binary"), ("timestamp", "timestamp_ntz")],
            "'timestamp' has the type timestamp_ntz, but has to be timestamp",
        ),
        (
            [("value", "binary"), ("headers", "map<string,binary>")],
            r"'headers' .* array<struct<key:string,value:binary>>",
        ),
        (
            [("value", "binary"), ("offset", "bigint")],
            r"Column 'offset' has no place in a record.*drop\('offset'\)",
        ),
        ([("Value", "binary")], "Column 'Value' .* did you mean 'value'"),
        ([("value", "binary"), ("value", "binary")], "Column 'value' occurs 2 times"),
    ],
)
def test_columns_that_cannot_be_written(fields: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(EncodingError, match=why):
        check_schema(fields, "orders")


def test_rows_need_a_topic() -> None:
    with pytest.raises(EncodingError, match=r"option 'topic'.*column 'topic'"):
        check_schema([("value", "binary")], None)


# --- the partitions of rows


def test_keys_go_where_java_clients_put_them() -> None:
    # The hashes come from Apache Kafka's own test of murmur2. A partition is the hash without its
    # sign bit, modulo 100.
    places = {
        b"21": (-973932308 & 0x7FFFFFFF) % 100,
        b"foobar": (-790332482 & 0x7FFFFFFF) % 100,
        b"abc": 479470107 % 100,
    }
    record_batches = encoded(rows(key=list(places), value=list(places)), count=100)
    assert {records_of(batch.data)[0].key: batch.partition for batch in record_batches} == places


def test_a_codec_tries_as_hard_as_its_level_says() -> None:
    value = "".join(chr(97 + number * number * 7919 % 26) for number in range(20_000))
    sizes = {
        level: len(
            encoded(rows(value=[value]), compression=Compression(Codec.GZIP, Levels(gzip=level)))[
                0
            ].data
        )
        for level in (1, 9)
    }
    assert sizes[9] < sizes[1]


def test_strings_are_their_utf8_bytes() -> None:
    record = only_record(key=["straße"], value=["⁂"])
    assert (record.key, record.value) == ("straße".encode(), "⁂".encode())


def test_the_column_goes_before_the_key() -> None:
    record_batches = encoded(
        rows(
            key=[b"a", b"a", b"a"],
            value=[b"0", b"1", b"2"],
            partition=pa.array([3, 0, 3], pa.int32()),
        )
    )
    assert [
        (batch.partition, [record.value for record in records_of(batch.data)])
        for batch in record_batches
    ] == [(0, [b"1"]), (3, [b"0", b"2"])]


def test_the_option_goes_before_the_column() -> None:
    assert [batch.topic for batch in encoded(rows(value=[b"a", b"b"], topic=["other", None]))] == [
        "orders"
    ]


def test_rows_without_key_go_round_from_the_task_on() -> None:
    encoding_ = encoder(task=2, count=3, round_bytes=1, limit_bytes=1)
    places = [
        batch.partition for _ in range(5) for batch in encoding_.add(rows(value=[b"a", b"b"]))
    ]
    assert places == [2, 0, 1, 2, 0]


def test_each_topic_is_asked_for_once() -> None:
    asked: list[int] = []

    def count(topic: str) -> int:
        asked.append(topic)
        return 2

    encoding_ = encoder(topic=None, count=count)
    for _ in range(3):
        encoding_.add(rows(value=[b"a", b"b", b"c"], topic=["x", "y", "x"]))
    assert sorted(asked) == ["x", "y"]
    record_batches = encoding_.finish()
    assert sorted(
        (batch.topic, record.value) for batch in record_batches for record in records_of(batch.data)
    ) == ([("x", b"a")] * 3 + [("x", b"c")] * 3 + [("y", b"b")] * 3)


@pytest.mark.parametrize("partition", [-1, 4, 2**31 - 1])
def test_a_partition_that_is_not_there(partition: int) -> None:
    with pytest.raises(
        EncodingError,
        match=(
            f"Column 'partition' has {partition} in a row for topic 'orders', whose partitions "
            f"are 0 to 3"
        ),
    ):
        encoded(rows(value=[b"a", b"b"], partition=pa.array([None, partition], pa.int32())))


def test_a_topic_that_is_not_there() -> None:
    with pytest.raises(
        EncodingError, match="Topic 'orders', which the option 'topic' names, does not exist"
    ):
        encoded(rows(value=[b"a"]), count=0)
    with pytest.raises(
        EncodingError, match="Topic 'b', which the column 'topic' names, does not exist"
    ):
        encoded(
            rows(value=[b"a", b"b"], topic=["a", "b"]),
            topic=None,
            count={"a": 1, "b": 0}.__getitem__,
        )


def test_a_null_topic() -> None:
    with pytest.raises(EncodingError, match="Column 'topic' is null in a row"):
        encoded(rows(value=[b"a", b"b"], topic=["a", None]), topic=None)


# --- the content of records


@pytest.mark.parametrize(
    ("microseconds", "milliseconds"),
    [(1_999, 1), (0, 0), (-1, -1), (-1_000, -1), (-1_001, -2), (None, NOW_MS)],
)
def test_timestamps_are_rounded_down(microseconds: int | None, milliseconds: int) -> None:
    assert (
        only_record(
            value=[b"a"], timestamp=pa.array([microseconds], pa.timestamp("us", "UTC"))
        ).timestamp
        == milliseconds
    )


def test_no_timestamp_is_now() -> None:
    assert only_record(value=[b"a"]).timestamp == NOW_MS


def test_empty_is_not_null() -> None:
    batch = rows(
        key=pa.array([b"", None], pa.binary()),
        value=pa.array([None, b""], pa.binary()),
        partition=pa.array([0, 0], pa.int32()),
    )
    (whole,) = encoded(batch)
    assert [(record.key, record.value) for record in records_of(whole.data)] == [
        (b"", None),
        (None, b""),
    ]


def test_columns_of_nothing_but_null() -> None:
    record = only_record(
        key=pa.nulls(1),
        value=pa.nulls(1),
        partition=pa.nulls(1, pa.int32()),
        headers=pa.nulls(1, HEADERS),
    )
    assert record == Record(0, NOW_MS, None, None, ())


def test_headers() -> None:
    headers = [
        None,
        [],
        [
            {"key": "a", "value": None},
            {"key": "ü", "value": b""},
            {"key": "a", "value": b"x" * 200},
        ],
    ]
    (batch,) = encoded(rows(value=[b"0", b"1", b"2"], headers=pa.array(headers, HEADERS)), count=1)
    assert [record.headers for record in records_of(batch.data)] == [
        (),
        (),
        (("a", None), ("ü", b""), ("a", b"x" * 200)),
    ]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_header_without_key(header: dict[str, Any] | None) -> None:
    with pytest.raises(EncodingError, match="Column 'headers' has a header whose key is null"):
        encoded(rows(value=[b"a"], headers=pa.array([[header]], HEADERS)))


def test_headers_that_begin_late() -> None:
    encoding_ = encoder(count=1)
    encoding_.add(rows(value=[b"0"]))
    encoding_.add(rows(value=[b"1"], headers=pa.array([[{"key": "a", "value": b"b"}]], HEADERS)))
    encoding_.add(rows(value=[b"2"]))
    (batch,) = encoding_.finish()
    assert [record.headers for record in records_of(batch.data)] == [(), (("a", b"b"),), ()]


# --- complete batches


def test_no_rows() -> None:
    assert encoded(rows(value=pa.array([], pa.binary()))) == []
    assert encoder().finish() == []


def test_small_additions_become_large_batches() -> None:
    encoding_ = encoder(count=1, record_batch_bytes=10_000, round_bytes=1)
    record_batches = [
        batch for _ in range(1000) for batch in encoding_.add(rows(value=[b"x" * 90]))
    ]
    assert len(record_batches) >= 8 and all(
        9_800 < len(batch.data) <= 10_000 for batch in record_batches
    )
    record_batches += encoding_.finish()
    assert sum(batch.record_count for batch in record_batches) == 1000


def test_a_record_that_is_larger_than_a_batch_has_one_for_itself() -> None:
    values = [b"a", b"x" * 5000, b"b"]
    record_batches = encoded(rows(value=values), count=1, record_batch_bytes=1000)
    assert [[record.value for record in records_of(batch.data)] for batch in record_batches] == [
        [value] for value in values
    ]


def test_batches_of_one_record_at_the_smallest_size() -> None:
    assert [
        batch.record_count
        for batch in encoded(rows(value=[b"a"] * 5), count=1, record_batch_bytes=HEADER_SIZE)
    ] == [1] * 5


def test_what_is_held_stays_bounded_with_many_partitions() -> None:
    limit = 1 << 20
    encoding_ = encoder(count=1000, limit_bytes=limit)
    sizes = []
    record_batches: list[EncodedRecordBatch] = []
    for nth in range(60):
        keys = pa.array([b"%d-%d" % (nth, row) for row in range(1000)], pa.binary())
        record_batches += encoding_.add(
            rows(key=keys, value=pa.array([bytes(100)] * 1000, pa.binary()))
        )
        sizes.append(encoding_._held_bytes)
    assert max(sizes) < limit and min(sizes[10:]) > limit // 4
    first_records = [batch.record_count for batch in record_batches]
    assert (
        sum(first_records) / len(first_records) > 3
    )  # each time, only the fullest partitions are written
    record_batches += encoding_.finish()
    assert sum(batch.record_count for batch in record_batches) == 60_000


def test_many_bytes_at_once_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "SLICE_BYTES", 1000)
    monkeypatch.setattr(encoding, "PART_BYTES", 3000)
    monkeypatch.setattr(encoding, "LOOPS_PART_BYTES", 3000)
    values = [b"%03d" % row * (row % 50) for row in range(300)]
    headers = pa.array(
        [[{"key": "n", "value": b"%d" % row}] if row % 3 else None for row in range(300)], HEADERS
    )
    zeros = pa.array([0] * 300, pa.int32())
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        record_batches = encoded(
            rows(value=pa.array(values, kind), headers=headers, partition=zeros),
            record_batch_bytes=2000,
        )
        records = [record for batch in record_batches for record in records_of(batch.data)]
        assert [record.value for record in records] == values
        assert [record.headers for record in records] == [
            ((("n", b"%d" % row),) if row % 3 else ()) for row in range(300)
        ]


def test_a_row_that_no_record_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "SLICE_BYTES", 100)
    monkeypatch.setattr(encoding, "LARGEST_ROW_BYTES", 1000)
    with pytest.raises(EncodingError, match="more than a gigabyte"):
        encoded(rows(value=[b"a", b"x" * 2000]))


# --- compiled loops


def test_loops_are_asked_for_by_rows() -> None:
    asked: list[int] = []
    encoding_ = encoder(loops_for=asked.append)
    encoding_.add(rows(value=[b"a"] * 5))
    encoding_.add(rows(value=[b"a"] * 7))
    assert asked == [5, 7]


def test_what_a_loop_refuses_is_encoded_by_arrays() -> None:
    """Compiled loops may refuse a batch. The encoder then uses arrays, with the same result."""
    refused = []

    def refuse(*arguments: Any) -> bool:
        refused.append(len(arguments))
        return False

    columns = {"key": [b"a", b"bc"] * 50, "value": [b"x" * 90] * 100}
    (expected,) = encoded(rows(**columns), count=1)
    loops = EncodingLoops(refuse, refuse)
    encoding_ = encoder(count=1, loops_for=lambda _: loops)
    assert encoding_.add(rows(**columns)) + encoding_.finish() == [expected]
    # the number of arguments of each of the two loops
    assert refused == [3, 14]
