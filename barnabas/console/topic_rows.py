"""The list of all topics, with one row for each. A page shows a part of the sorted list. The module
does no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from barnabas.console.history import Rates
from barnabas.console.views import Broker

COLUMNS = (
    "attention", "name", "partitions", "records", "size_bytes", "records_rate", "bytes_rate",
    "held", "stuck",
)  # fmt: skip
BY_RATE = ("records_rate", "bytes_rate")
MOST_ROWS = 200


class TopicRow(NamedTuple):
    """A topic. records: the number of offsets between the log start and the high watermark, over
    all partitions, markers included.

    held: the number of these offsets that read_committed readers cannot read yet. stuck: the number
    of stuck partitions. attention: the sort key that puts topics with problems first.
    """

    attention: int
    name: str
    partitions: int
    records: int
    size_bytes: int
    held: int
    stuck: int


def topic_rows(broker: Broker) -> dict[str, TopicRow]:
    """The row of each topic, computed in one pass over all partitions."""
    sums: dict[str, list[int]] = {}
    for row in broker.observed.partitions:
        of_topic = sums.get(row.topic)
        if of_topic is None:
            # in the order of TopicRow: partitions, records, bytes, unreadable offsets, stuck
            # partitions
            of_topic = sums[row.topic] = [0, 0, 0, 0, 0]
        of_topic[0] += 1
        of_topic[1] += row.high_watermark - row.log_start_offset
        of_topic[2] += row.size_bytes
        if row.stable_lag:
            of_topic[3] += row.stable_lag
            of_topic[4] += broker.is_stuck(row)
    return {name: TopicRow(at, name, *sums[name]) for at, name in enumerate(broker.topics)}


def in_order(
    rows: Iterable[TopicRow], column: str, rates: Mapping[str, Rates], *, descending: bool
) -> list[TopicRow]:
    """The rows, sorted by a column of COLUMNS and then by name. Unknown rates count as the
    lowest.
    """
    key: Callable[[TopicRow], float | str]
    if column in BY_RATE:
        unknown = Rates(math.nan, math.nan)

        def key(row: TopicRow) -> float:
            rate = rates.get(row.name, unknown)
            value = rate.records if column == "records_rate" else rate.bytes
            return -1.0 if math.isnan(value) else value
    else:
        place = TopicRow._fields.index(column)

        def key(row: TopicRow) -> float | str:
            value: float | str = row[place]
            return value

    by_name = sorted(rows, key=lambda row: row.name)
    return sorted(by_name, key=key, reverse=descending)


def known(rate: float) -> float | None:
    """A rate for JSON, in which None replaces NaN."""
    return None if math.isnan(rate) else round(rate, 3)
