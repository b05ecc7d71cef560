"""The rows that remain to be read when filters are pushed down, compared with a filter over all
rows. Also, ranges by timestamp on a server with prepared logs.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import FakeBroker, FakeLog
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.cluster_reader import ClusterReader
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.read.filters import EPOCH, Condition, Narrowing, narrow, timestamp_ms
from barnabas.spark_connector.read.offsets import OffsetRange
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.read.planning import plan

COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, values: value in values,
    "is not null": lambda value, _: value is not None,
}


class Row(NamedTuple):
    """The columns whose filters may reduce what is read, and one column whose filters may not."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime.datetime
    key: bytes | None


def at(microseconds: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=microseconds)


times = st.integers(-2000, 12_000).map(at)
by_column = {
    "topic": st.sampled_from(["t", "u", "w"]),
    "partition": st.integers(-1, 4),
    "offset": st.integers(-2, 30) | st.just(2**63 - 1) | st.just(-(2**63)),
    "timestamp": times,
    "key": st.just(b"k"),
}


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    column = draw(st.sampled_from(sorted(by_column)))
    comparison = draw(st.sampled_from(sorted(COMPARED)))
    if comparison == "is not null":
        return Condition(column, comparison, None)
    if comparison == "in":
        return Condition(
            column, comparison, tuple(draw(st.lists(by_column[column], min_size=1, max_size=3)))
        )
    return Condition(column, comparison, draw(by_column[column]))


@st.composite
def logs(draw: st.DrawFn) -> dict[TopicPartition, list[Row]]:
    """Logs with gaps between the offsets, and with timestamps in random order."""
    found: dict[TopicPartition, list[Row]] = {}
    for topic, partition in draw(
        st.sets(st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 3)), max_size=4)
    ):
        offsets = sorted(draw(st.sets(st.integers(0, 29), max_size=8)))
        rows = [
            Row(
                topic,
                partition,
                offset,
                at(draw(st.integers(-1, 12)) * 1000),
                draw(st.sampled_from([None, b"k"])),
            )
            for offset in offsets
        ]
        found[TopicPartition(topic, partition)] = rows
    return found


def read(rows: list[Row], name: TopicPartition, narrowing: Narrowing) -> list[Row]:
    """The rows that a reader of one partition returns."""
    if not narrowing.keeps(name):
        return []
    _, _, start, end = narrowing.cut(OffsetRange(*name, 0, 30))
    if narrowing.from_timestamp_ms is not None:
        late = [
            row.offset for row in rows if timestamp_ms(row.timestamp) >= narrowing.from_timestamp_ms
        ]
        start = max(start, late[0] if late else 30)
    return [row for row in rows if start <= row.offset < end]


def passes(row: Row, condition: Condition) -> bool:
    value = getattr(row, condition.column)
    return value is not None and COMPARED[condition.operator](value, condition.value)


@given(logs(), st.lists(conditions(), max_size=5))
def test_what_is_read_and_filtered_again_is_what_a_filter_over_all_leaves(
    existing: dict[TopicPartition, list[Row]], filters: list[Condition]
) -> None:
    narrowing, left_to_spark = Narrowing(), []
    for each in filters:
        narrowing, exact = narrow(narrowing, each)
        if not exact:
            left_to_spark.append(each)
    brought = [row for name, rows in existing.items() for row in read(rows, name, narrowing)]
    filtered = [row for row in brought if all(passes(row, each) for each in left_to_spark)]
    assert filtered == [
        row
        for rows in existing.values()
        for row in rows
        if all(passes(row, each) for each in filters)
    ]


@pytest.mark.parametrize(
    ("condition", "exact", "kept"),
    [
        (Condition("partition", "=", 1), True, [("t", 1, 0, 30)]),
        (Condition("partition", "in", (0, 7)), True, [("t", 0, 0, 30)]),
        (Condition("partition", ">", 0), True, [("t", 1, 0, 30)]),
        (Condition("topic", "=", "u"), True, []),
        (Condition("offset", ">=", 10), True, [("t", 0, 10, 30), ("t", 1, 10, 30)]),
        (Condition("offset", "in", (3, 9)), False, [("t", 0, 3, 10), ("t", 1, 3, 10)]),
        (Condition("offset", "=", None), False, [("t", 0, 0, 30), ("t", 1, 0, 30)]),
        (Condition("offset", "<", 5.5), False, [("t", 0, 0, 30), ("t", 1, 0, 30)]),
        (Condition("timestamp", "<", at(5)), False, [("t", 0, 0, 30), ("t", 1, 0, 30)]),
        (Condition("key", "=", b"k"), False, [("t", 0, 0, 30), ("t", 1, 0, 30)]),
        (Condition("key", "is not null", None), False, [("t", 0, 0, 30), ("t", 1, 0, 30)]),
    ],
)
def test_one_filter(condition: Condition, exact: bool, kept: list[tuple[Any, ...]]) -> None:
    narrowing, said = narrow(Narrowing(), condition)
    whole = [OffsetRange("t", partition, 0, 30) for partition in (0, 1)]
    assert said is exact
    assert [narrowing.cut(each) for each in whole if narrowing.keeps(each.name)] == kept


def test_timestamps_are_rounded_down_and_know_their_zone() -> None:
    assert timestamp_ms(at(1_999)) == 1
    east = datetime.timezone(datetime.timedelta(hours=2))
    assert timestamp_ms(datetime.datetime(1970, 1, 1, 3, tzinfo=east)) == 3_600_000
    assert timestamp_ms(at(-1)) == -1
    assert narrow(Narrowing(), Condition("timestamp", ">", at(-5000)))[0] == Narrowing(), (
        "negative ones mean something else to brokers"
    )


def planned(broker: FakeBroker, *filters: Condition, **options: str) -> list[OffsetRange]:
    narrowing = Narrowing()
    for each in filters:
        narrowing, _ = narrow(narrowing, each)
    parsed = parse_source_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t", **options}
    )
    with ClusterReader(parsed.client) as client:
        return plan(client, parsed, narrowing)


def test_ranges_by_timestamp() -> None:
    batches = [
        bytes(encode_batch([NewRecord(None, b"v", when)], base_offset=place))
        for place, when in enumerate((5, 1, 7, 2))
    ]
    with FakeBroker(
        {
            ("t", 0): FakeLog(batches),
            ("t", 1): FakeLog(batches[:2]),
            ("t", 2): FakeLog(batches, stable_offset=1),
        }
    ) as broker:
        late = Condition("timestamp", ">=", at(6000))
        assert planned(broker, late) == [OffsetRange("t", 0, 2, 4)]
        assert planned(broker, Condition("timestamp", ">", at(5000))) == [
            OffsetRange("t", 0, 0, 4),
            OffsetRange("t", 1, 0, 2),
            OffsetRange("t", 2, 0, 1),
        ], "records with an equal timestamp are left to Spark"
        assert planned(broker, late, Condition("offset", ">", 2)) == [OffsetRange("t", 0, 3, 4)]
        beyond = '{"t": {"0": 9, "1": -1, "2": -1}}'
        assert planned(broker, Condition("timestamp", ">", at(8000)), endingOffsets=beyond) == [
            OffsetRange("t", 0, 4, 9)
        ]


def test_what_is_not_read_is_not_asked_for() -> None:
    logs = {
        ("t", number): FakeLog(end_offset=5, stable_offset=2 if number else None)
        for number in range(3)
    }
    with FakeBroker(logs) as broker:
        ends = '{"t": {"0": 5, "1": 5, "2": 5}}'
        narrowed = planned(
            broker, Condition("partition", "=", 0), endingOffsets=ends, openTransactionTimeout="0"
        )
        assert narrowed == [OffsetRange("t", 0, 0, 5)], (
            "open transactions in other partitions do not matter"
        )
        last = [request for request in broker.requests if isinstance(request, ListOffsetsRequest)][
            -1
        ]
        assert [each.partition_index for topic in last.topics for each in topic.partitions] == [0]
