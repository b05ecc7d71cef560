"""The lists of groups, open transactions and their partitions: sorted rows, of which the page shows
a part. The module does no I/O.

A list has columns: names by which it is sorted, each with a function from a row to its value. The
first column is `attention`, the list's own order, in which rows that need attention come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.observe import (
    CommittedOffsetState,
    GroupState,
    OpenTransaction,
    PartitionState,
)
from barnabas.console.views import (
    Broker,
    OpenRow,
    hangs,
    time_left_ms,
)

MOST_ROWS = 200
Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Row], Any]]


class Part(NamedTuple):
    """A part of a list: its rows, the index of the first row in the list, and the length of the
    list.
    """

    rows: Sequence[Any]
    first: int
    total: int


def part_of(rows: Sequence[Any], first: int, count: int) -> Part:
    """A part of a list, which begins at index `first`. If the list is shorter, the part has only
    its last row.
    """
    first = min(max(first, 0), max(0, len(rows) - 1))
    return Part(rows[first : first + min(count, MOST_ROWS)], first, len(rows))


def in_order(rows: Iterable[Row], key: Callable[[Row], Any], *, descending: bool) -> list[Row]:
    """The rows, sorted by a column. Rows with equal values keep their order."""
    return sorted(rows, key=key, reverse=descending)


# --- groups -------------------------------------------------------------------------------------


class GroupRow(NamedTuple):
    """A group. attention: its rank in the list, in which groups that wait or are behind come
    first.
    """

    attention: int
    name: str
    state: str
    members: int
    partitions: int
    lag: int
    group: GroupState


def group_rows(broker: Broker) -> list[GroupRow]:
    """All groups."""
    return [
        GroupRow(place, row.group_id, row.state, row.member_count, len(row.offsets), row.lag, row)
        for place, row in enumerate(broker.groups_by_need)
    ]


GROUP_COLUMNS: Columns[GroupRow] = {
    "attention": lambda row: row.attention,
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "members": lambda row: row.members,
    "partitions": lambda row: row.partitions,
    "lag": lambda row: row.lag,
}


# --- contents of a group ------------------------------------------------------------------------

OFFSET_COLUMNS: Columns[CommittedOffsetState] = {
    "attention": lambda row: -(row.lag or 0),
    "name": lambda row: (row.topic, row.partition),
    "offset": lambda row: row.offset,
    "lag": lambda row: -1 if row.lag is None else row.lag,
}
MEMBER_COLUMNS: Columns[Mapping[str, Any]] = {
    "attention": lambda row: 0,
    "name": lambda row: (row["client_id"], row["member_id"]),
    "host": lambda row: row["client_host"],
    "partitions": lambda row: len(row["assignment"]),
}
IN_FLIGHT_COLUMNS: Columns[Mapping[str, Any]] = {
    "attention": lambda row: 0,
    "name": lambda row: (row["topic"], row["partition"], row["first_offset"]),
    "records": lambda row: row["last_offset"] - row["first_offset"],
    "state": lambda row: row["state"],
    "delivery_count": lambda row: row["delivery_count"],
    "member": lambda row: (row["member_id"] or "", -(row["left_ms"] or 0)),
}


# --- transactions -------------------------------------------------------------------------------


class TransactionRow(NamedTuple):
    """An open transaction.

    attention: its rank in the list, in which the oldest come first. ends_in_ms: infinite if no
    timeout ends it. held: the number of offsets by which it holds back readers of committed
    records.
    """

    attention: int
    name: str
    state: str
    age_ms: int
    ends_in_ms: float
    partitions: int
    held: int
    transaction: OpenRow


def transaction_rows(broker: Broker) -> list[TransactionRow]:
    """All open transactions."""
    rows = []
    for place, row in enumerate(broker.open_transactions):
        state, age_ms = row.id_state, broker.age_ms(row)
        name = state.transactional_id if state is not None else ""
        left_ms = time_left_ms(row, age_ms)
        rows.append(
            TransactionRow(
                place,
                name or f"producer {row.producer_id}",
                state.state if state is not None else "",
                age_ms,
                math.inf if left_ms is None else left_ms,
                len(row.places) + len(row.with_no_data),
                sum(held_by(broker, *pair) for pair in row.places),
                row,
            )
        )
    return rows


def holding_first(rows: Sequence[TransactionRow]) -> list[TransactionRow]:
    """The transactions that hold back readers, followed by the others. Within each part, the oldest
    come first.
    """
    return sorted(rows, key=lambda row: not row.held)


TRANSACTION_COLUMNS: Columns[TransactionRow] = {
    "attention": lambda row: row.attention,
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "age_ms": lambda row: row.age_ms,
    "ends_in_ms": lambda row: row.ends_in_ms,
    "partitions": lambda row: row.partitions,
    "held": lambda row: row.held,
}


def held_by(broker: Broker, partition: PartitionState, transaction: OpenTransaction) -> int:
    """The number of offsets by which a transaction holds back readers of committed records."""
    return partition.stable_lag if broker.first_open(partition) is transaction else 0


class PlaceRow(NamedTuple):
    """A partition of a transaction. first_offset: None if the transaction has no records in the
    partition yet.
    """

    topic: str
    partition: int
    first_offset: int | None
    held: int
    hanging: bool


def place_rows(broker: Broker, row: OpenRow) -> list[PlaceRow]:
    """The rows of a transaction's partitions."""
    rows = [
        PlaceRow(
            partition.topic,
            partition.partition,
            transaction.first_offset,
            held_by(broker, partition, transaction),
            hangs(partition, transaction, row.id_state),
        )
        for partition, transaction in row.places
    ]
    return [*rows, *(PlaceRow(*place, None, 0, hanging=False) for place in row.with_no_data)]


PLACE_COLUMNS: Columns[PlaceRow] = {
    "attention": lambda row: -row.held,
    "name": lambda row: (row.topic, row.partition),
    "first_offset": lambda row: -1 if row.first_offset is None else row.first_offset,
    "held": lambda row: row.held,
}
