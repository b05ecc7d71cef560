"""The filters of a batch query. From comparisons of topic, partition, offset and timestamp, this
module finds out which records need not be read. It uses neither a broker nor Spark.

Spark joins the filters that it passes by AND. A filter is exact if every row that is read fulfils
it. Spark applies the other filters again. Reading too much is therefore never wrong, but reading
too little always is.

    column          narrowed by               exact
    topic           =, <=>, in                yes
    partition       =, <=>, in, <, <=, >, >=  yes
    offset          =, <=>, in, <, <=, >, >=  yes, except for `in`, of which only the least and the
                                              greatest value are used
    timestamp       =, <=>, in, >, >=         no: records are read from the first one that is late
                                              enough. There is no upper bound, since a record's
                                              timestamp is its producer's, and later records may
                                              have earlier ones
    any of these    is not null               yes: they never are
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.read.offsets import OffsetRange

T = TypeVar("T")

NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MAX_OFFSET = (1 << 63) - 1


class Condition(NamedTuple):
    """A comparison of a column with a value.

    operator: one of = in < <= > >= and "is not null". For the last one, the value is None.
    """

    column: str
    operator: str
    value: Any


@dataclass(frozen=True)
class Narrowing:
    """What has to be read according to all conditions so far, which are joined by AND."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_partition: int = 0
    end_partition: int = 1 << 31
    first_offset: int = 0
    end_offset: int = MAX_OFFSET
    from_timestamp_ms: int | None = (
        None  # records before the first one with at least this timestamp are not read
    )

    def keeps(self, name: TopicPartition) -> bool:
        """Whether the partition has to be read."""
        return (
            (self.topics is None or name.topic in self.topics)
            and (self.partitions is None or name.partition in self.partitions)
            and self.first_partition <= name.partition < self.end_partition
        )

    def cut(self, whole: OffsetRange) -> OffsetRange:
        """Return the part of a range that has to be read, which may be empty."""
        start = min(max(whole.start_offset, self.first_offset), whole.end_offset)
        return whole._replace(
            start_offset=start, end_offset=max(start, min(whole.end_offset, self.end_offset))
        )


def narrow(narrowing: Narrowing, condition: Condition) -> tuple[Narrowing, bool]:
    """Add a condition to a narrowing.

    Gives:  the new narrowing, and whether the condition is exact. A condition that is not used is
            not exact.
    """
    column, operator, value = condition
    if operator == "is not null":
        return narrowing, column in NEVER_NULL
    if column == "topic":
        return _narrow_topic(narrowing, operator, value)
    if column == "timestamp":
        return _narrow_timestamp(narrowing, operator, value), False
    if column not in ("partition", "offset"):
        return narrowing, False
    values = value if operator == "in" else (value,)
    if not values or not all(
        isinstance(each, int) and not isinstance(each, bool) for each in values
    ):
        return narrowing, False
    return (
        _narrow_partition(narrowing, operator, values)
        if column == "partition"
        else _narrow_offset(narrowing, operator, values)
    )


def _narrow_topic(narrowing: Narrowing, operator: str, value: Any) -> tuple[Narrowing, bool]:
    """Narrow the topics by `=` or `in`. Gives: as `narrow`."""
    values = value if operator == "in" else (value,)
    if operator not in ("=", "in") or not all(isinstance(each, str) for each in values):
        return narrowing, False
    return replace(narrowing, topics=_both(narrowing.topics, values)), True


def _narrow_partition(
    narrowing: Narrowing, operator: str, values: Iterable[int]
) -> tuple[Narrowing, bool]:
    """Narrow the partitions by a comparison. Gives: as `narrow`."""
    if operator in ("=", "in"):
        return replace(narrowing, partitions=_both(narrowing.partitions, values)), True
    first, end = _bounds(operator, values)
    return replace(
        narrowing,
        first_partition=max(narrowing.first_partition, first),
        end_partition=min(narrowing.end_partition, end),
    ), True


def _narrow_offset(
    narrowing: Narrowing, operator: str, values: Iterable[int]
) -> tuple[Narrowing, bool]:
    """Narrow the offsets by a comparison; for `in`, to the range of its values, which is not exact.
    Gives: as `narrow`.
    """
    first, end = _bounds(operator, values)
    narrowed = replace(
        narrowing,
        first_offset=max(narrowing.first_offset, first),
        end_offset=min(narrowing.end_offset, end),
    )
    return narrowed, operator != "in"


def _narrow_timestamp(narrowing: Narrowing, operator: str, value: Any) -> Narrowing:
    """Narrow the start by the earliest time that passes the comparison. An upper limit is not used,
    since timestamps need not increase with offsets.
    """
    values = value if operator == "in" else (value,)
    if (
        operator not in ("=", "in", ">", ">=")
        or not values
        or not all(isinstance(each, datetime.datetime) for each in values)
    ):
        return narrowing
    earliest = min(map(timestamp_ms, values))
    # Negative times are not used, since they have special meanings in requests. Records may have
    # the time -1, which means that the producer set none.
    return (
        narrowing
        if earliest < 0
        else replace(narrowing, from_timestamp_ms=max(narrowing.from_timestamp_ms or 0, earliest))
    )


def timestamp_ms(value: datetime.datetime) -> int:
    """Convert a datetime to ms since 1970, rounded down.

    A datetime without a zone is local time, as in PySpark.
    """
    return (value.astimezone(datetime.UTC) - EPOCH) // datetime.timedelta(milliseconds=1)


def _bounds(operator: str, values: Iterable[int]) -> tuple[int, int]:
    """Return the first value that passes the comparison, and the value after the last one."""
    least, greatest = min(values), max(values)
    match operator:
        case "=" | "in":
            return least, greatest + 1
        case "<":
            return 0, least
        case "<=":
            return 0, least + 1
        case ">":
            return least + 1, MAX_OFFSET
        case ">=":
            return least, MAX_OFFSET
    raise AssertionError(f"no such operator: {operator}")


def _both(kept: frozenset[T] | None, values: Iterable[T]) -> frozenset[T]:
    return frozenset(values) if kept is None else kept & frozenset(values)
