"""The rows that the page shows, as plain values for JSON, made from observations of the broker.

The module does no I/O: observations (`observation.observe`) and strips (`spans`) are values, and so
are the results. All lists are limited: a page requests as many rows as it can show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from barnabas.broker.observe import (
    CommittedOffsetState,
    GroupState,
    OpenTransaction,
    PartitionState,
    TransactionalIdState,
)
from barnabas.console.groups import progress_of
from barnabas.console.history import NO_TREND, Trend
from barnabas.console.spans import COMMITTED, PLAIN, Strip
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.group_lag import Situation
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import NO_TIMEOUT_MS
from barnabas.why_stuck import Answer, WaitingGroup
from barnabas.why_stuck import OpenTransaction as HoldingTransaction

TOPICS_IN_OVERVIEW, STRIPS_A_TOPIC, STRIPS_A_PAGE = 6, 3, 20
ROWS_A_PAGE, ROWS_IN_OVERVIEW = 50, 6
MOST_PARTITIONS_OF_ROW = 20
STUCK_AFTER_MS = 10_000
"""A transaction may block readers for this time before its partitions count as stuck."""
UNNAMED = ""
"""The transactional id of a transaction whose name the viewer may not see."""
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Observed(NamedTuple):
    """An observation of the broker. wall_ms: the wall-clock time of the observation. clients: the
    address of the client that last added a partition to a transaction, by transactional id.
    """

    partitions: tuple[PartitionState, ...]
    transactional_ids: tuple[TransactionalIdState, ...]
    groups: tuple[GroupState, ...]
    clients: Mapping[str, str]
    wall_ms: int


class OpenRow(NamedTuple):
    """An open transaction, in all its partitions. id_state: None if no coordinator has a state for
    it.

    places: each partition with data of the transaction, and the first offset of these data.
    with_no_data: the partitions of the transaction without data.
    """

    producer_id: int
    producer_epoch: int
    id_state: TransactionalIdState | None
    places: tuple[tuple[PartitionState, OpenTransaction], ...]
    with_no_data: tuple[tuple[str, int], ...]


class Broker:
    """An observation, and values derived from it. Each property is computed at its first use."""

    def __init__(self, observed: Observed) -> None:
        self.observed = observed

    @cached_property
    def topics(self) -> dict[str, list[PartitionState]]:
        """The partitions of each topic, in the order of their indexes. Topics with problems come
        first.
        """
        topics: defaultdict[str, list[PartitionState]] = defaultdict(list)
        for row in self.observed.partitions:
            topics[row.topic].append(row)
        for rows in topics.values():
            if len(rows) > 1:
                rows.sort(key=lambda row: row.partition)

        stuck = {row.topic for row in self.held if self.is_stuck(row)}
        opened = {row.topic for row in self.observed.partitions if row.open_transactions}

        def order(name: str) -> tuple[bool, bool, bool, str]:
            return (name in INTERNAL_TOPICS, name not in stuck, name not in opened, name)

        return {name: topics[name] for name in sorted(topics, key=order)}

    @cached_property
    def partition(self) -> dict[tuple[str, int], PartitionState]:
        return {(row.topic, row.partition): row for row in self.observed.partitions}

    @cached_property
    def held(self) -> list[PartitionState]:
        """The partitions in which a transaction holds back read_committed readers. Those with the
        most unreadable offsets come first.
        """
        rows = [row for row in self.observed.partitions if row.stable_lag]
        return sorted(rows, key=lambda row: -row.stable_lag)

    @cached_property
    def id_of_producer(self) -> dict[int, TransactionalIdState]:
        return {row.producer_id: row for row in self.observed.transactional_ids}

    @cached_property
    def open_transactions(self) -> list[OpenRow]:
        """All open transactions, the oldest first."""
        places: defaultdict[int, list[tuple[PartitionState, OpenTransaction]]] = defaultdict(list)
        for row in self.observed.partitions:
            for transaction in row.open_transactions:
                places[transaction.producer_id].append((row, transaction))
        rows = []
        for producer_id, of_producer in places.items():
            id_state = self.id_of_producer.get(producer_id)
            rows.append(_open_row(producer_id, of_producer, id_state))
        rows += [
            _open_row(state.producer_id, [], state)
            for state in self.observed.transactional_ids
            if state.state in OPEN_STATES and state.producer_id not in places
        ]
        return sorted(rows, key=lambda row: -self.age_ms(row))

    @cached_property
    def groups_by_need(self) -> list[GroupState]:
        """The groups. Those that read a stuck partition come first. Within each part, the groups
        with the largest lag come first.
        """
        stuck = {(row.topic, row.partition) for row in self.held if self.is_stuck(row)}

        def order(group: GroupState) -> tuple[bool, int, str]:
            reads_stuck = bool(stuck) and any(
                (offset.topic, offset.partition) in stuck for offset in group.offsets
            )
            return (not reads_stuck, -group.lag, group.group_id)

        return sorted(self.observed.groups, key=order)

    def age_ms(self, row: OpenRow) -> int:
        """The age of an open transaction. If no coordinator has a state for it, this is the time
        since its last batch.
        """
        if row.id_state is not None and row.id_state.age_ms is not None:
            return row.id_state.age_ms
        last = max((transaction.last_timestamp for _, transaction in row.places), default=-1)
        return max(0, self.observed.wall_ms - last) if last >= 0 else 0

    def is_stuck(self, row: PartitionState) -> bool:
        """Whether read_committed readers of a partition are blocked by a hanging transaction, or
        for at least STUCK_AFTER_MS by any transaction.
        """
        transaction = self.first_open(row)
        if transaction is None:
            return False
        state = self.id_of_producer.get(transaction.producer_id)
        return hangs(row, transaction, state) or self.held_ms(row) >= STUCK_AFTER_MS

    def held_ms(self, row: PartitionState) -> int:
        """The age of the transaction that holds back a partition's last stable offset."""
        transaction = self.first_open(row)
        if transaction is None:
            return 0
        state = self.id_of_producer.get(transaction.producer_id)
        if state is not None and state.age_ms is not None:
            return state.age_ms
        return max(0, self.observed.wall_ms - transaction.last_timestamp)

    def first_open(self, row: PartitionState) -> OpenTransaction | None:
        """The transaction that holds back a partition's last stable offset."""
        return row.open_transactions[0] if row.open_transactions and row.stable_lag else None


def _open_row(
    producer_id: int,
    places: Sequence[tuple[PartitionState, OpenTransaction]],
    id_state: TransactionalIdState | None,
) -> OpenRow:
    """The row of one producer's open transaction. Takes: places, the partitions with data of the
    transaction; the partitions that were added but have no data come from the coordinator's state.
    """
    with_data = {(row.topic, row.partition) for row, _ in places}
    added = id_state.partitions if id_state is not None else ()
    epoch = places[0][1].producer_epoch if places else (id_state.producer_epoch if id_state else -1)
    return OpenRow(
        producer_id,
        epoch,
        id_state,
        tuple(places),
        tuple(partition for partition in added if partition not in with_data),
    )


def hangs(
    row: PartitionState, transaction: OpenTransaction, state: TransactionalIdState | None
) -> bool:
    """Whether a transaction is hanging in a partition, which means that no coordinator will end it
    (KIP-664).
    """
    return (
        state is None
        or state.state not in OPEN_STATES
        or state.producer_epoch < transaction.producer_epoch
        or (row.topic, row.partition) not in state.partitions
    )


# --- rows ---------------------------------------------------------------------------------------


def strip_value(strip: Strip, broker: Broker) -> dict[str, Any]:
    """A strip for JSON. Each span is written as a list, since there are many of them; see
    `spans.Span`.
    """
    window = strip.window
    return {
        "topic": window.topic,
        "partition": window.partition,
        "log_start_offset": window.log_start_offset,
        "last_stable_offset": window.last_stable_offset,
        "high_watermark": window.high_watermark,
        "log_end_offset": window.log_end_offset,
        "end_offset": window.end_offset,
        "spans": [list(span) for span in strip.spans],
        "transactions": [
            {
                **transaction._asdict(),
                "transactional_id": state.transactional_id or None
                if (state := broker.id_of_producer.get(transaction.producer_id)) is not None
                else None,
            }
            for transaction in strip.transactions
        ],
        "problem": strip.error,
    }


def transaction_value(row: OpenRow, broker: Broker) -> dict[str, Any]:
    """An open transaction: its producer, age, partitions, and the readers that wait for it."""
    state = row.id_state
    places = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "first_offset": transaction.first_offset,
            "held": partition.stable_lag if broker.first_open(partition) is transaction else 0,
            "hanging": hangs(partition, transaction, state),
        }
        for partition, transaction in row.places
    ]
    places.sort(key=lambda place: -int(str(place["held"])))
    age_ms = broker.age_ms(row)
    return {
        "transactional_id": (state.transactional_id or None) if state is not None else None,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "state": state.state if state is not None else None,
        "age_ms": age_ms,
        "timeout_ms": state.timeout_ms if state is not None else -1,
        "ends_in_ms": time_left_ms(row, age_ms),
        "client": broker.observed.clients.get(state.transactional_id)
        if state is not None
        else None,
        "partition_count": len(places) + len(row.with_no_data),
        "held": sum(int(str(place["held"])) for place in places),
        "hanging": any(place["hanging"] for place in places),
        "places": places[:MOST_PARTITIONS_OF_ROW],
        "with_no_data": [list(pair) for pair in row.with_no_data[:MOST_PARTITIONS_OF_ROW]],
    }


def time_left_ms(row: OpenRow, age_ms: int) -> int | None:
    """The time until a timeout ends the transaction; None if no timeout will end it."""
    state = row.id_state
    if state is None or state.state != "Ongoing" or state.timeout_ms == NO_TIMEOUT_MS:
        return None
    return state.timeout_ms - age_ms


def group_value(group: GroupState, broker: Broker, trend: Trend = NO_TREND) -> dict[str, Any]:
    """A group with its lag and progress, and the partitions in which it waits for a transaction."""
    stuck = [
        {
            "topic": offset.topic,
            "partition": offset.partition,
            "offset": offset.offset,
            "lag": offset.lag,
            **_holder_value(broker, offset),
        }
        for offset in group.offsets
        if offset.situation is Situation.WAITS
    ]
    stuck.sort(key=lambda row: -int(str(row["holder_age_ms"])))
    return {
        "group": group.group_id,
        "kind": group.kind,
        "state": group.state,
        "progress": progress_of(group, trend),
        "change": trend.change,
        "over_ms": trend.over_ms,
        "members": group.member_count,
        "lag": group.lag,
        "status": group.status,
        "partition_count": len(group.offsets),
        "pending": group.pending_count,
        "stuck": stuck[:MOST_PARTITIONS_OF_ROW],
        "stuck_count": len(stuck),
    }


def _holder_value(broker: Broker, offset: CommittedOffsetState) -> dict[str, Any]:
    """The transaction that holds a group back in a partition, for JSON."""
    row = broker.partition[offset.topic, offset.partition]
    transaction = broker.first_open(row)
    state = None if transaction is None else broker.id_of_producer.get(transaction.producer_id)
    return {
        "producer_id": None if transaction is None else transaction.producer_id,
        "transactional_id": None if state is None else state.transactional_id or None,
        "holder_age_ms": 0 if transaction is None else broker.held_ms(row),
        "hanging": transaction is not None and hangs(row, transaction, state),
    }


# --- waiting readers ----------------------------------------------------------------------------


def candidates(
    broker: Broker, groups: Iterable[GroupState]
) -> list[tuple[GroupState, CommittedOffsetState, PartitionState]]:
    """The committed offsets that are not beyond the last stable offset of a stuck partition."""
    rows = []
    for group in groups:
        for offset in group.offsets:
            partition = broker.partition.get((offset.topic, offset.partition))
            if partition is None or not partition.stable_lag:
                continue
            if offset.offset <= partition.last_stable_offset and not offset.is_batch_number:
                rows.append((group, offset, partition))
    return rows


def has_readable(strip: Strip, from_offset: int) -> bool:
    """Whether a read_committed reader at an offset gets a record before the strip's end.

    If the strip begins after the offset, this is true, since there may be a record between the two.
    """
    spans = strip.spans
    if not spans:
        return False
    if spans[0].first_offset > max(from_offset, strip.window.log_start_offset):
        return True
    return any(
        span.end_offset > from_offset and span.record_count
        for span in spans
        if span.kind in (PLAIN, COMMITTED)
    )


# --- lists --------------------------------------------------------------------------------------


class Page(NamedTuple):
    """A page of a list: its rows, the number of rows in the list, the page's number, and the number
    of pages.
    """

    rows: Sequence[Any]
    total: int
    page: int
    pages: int


def page_of(rows: Sequence[Any], page: int, size: int) -> Page:
    """One page of a list. If the list has fewer pages, this is the last page."""
    pages = max(1, -(-len(rows) // size))
    page = min(max(page, 0), pages - 1)
    return Page(rows[page * size : (page + 1) * size], len(rows), page, pages)


def topic_names(broker: Broker, search: str, *, internal: bool) -> list[str]:
    """The names of the topics whose name contains a text. Topics with problems come first."""
    text = search.lower()
    return [
        name
        for name in broker.topics
        if text in name.lower() and (internal or name not in INTERNAL_TOPICS)
    ]


def shown_partitions(broker: Broker, topic: str) -> list[PartitionState]:
    """The partitions of a topic that an overview shows, by index. If there are too many, those that
    hold back readers and those with open transactions are preferred.
    """
    rows = sorted(
        broker.topics[topic],
        key=lambda row: (not row.stable_lag, not row.open_transactions, row.partition),
    )
    return sorted(rows[:STRIPS_A_TOPIC], key=lambda row: row.partition)


def totals(broker: Broker) -> dict[str, int]:
    """The numbers of topics, partitions, transactions and groups."""
    partitions = broker.observed.partitions
    own = [row for row in partitions if row.topic not in INTERNAL_TOPICS]
    return {
        "topics": len({row.topic for row in own}),
        "partitions": len(own),
        "internal_partitions": len(partitions) - len(own),
        "size_bytes": sum(row.size_bytes for row in partitions),
        "held_partitions": len(broker.held),
        "stuck_partitions": sum(map(broker.is_stuck, broker.held)),
        "open_transactions": len(broker.open_transactions),
        "transactional_ids": len(broker.observed.transactional_ids),
        "groups": len(broker.observed.groups),
    }


# --- why a partition is stuck -------------------------------------------------------------------


def answer_of(broker: Broker, row: PartitionState, groups: Sequence[WaitingGroup]) -> Answer:
    """The values from which `barnabas.why_stuck` explains a partition's state."""
    return Answer(
        TopicPartition(row.topic, row.partition),
        row.last_stable_offset,
        row.high_watermark,
        tuple(_holding(broker, row, transaction) for transaction in row.open_transactions),
        tuple(groups),
        broker.observed.wall_ms,
        tuple(sorted(_elsewhere(broker, row), key=lambda pair: pair[1].since_ms)),
    )


def _elsewhere(
    broker: Broker, row: PartitionState
) -> Iterator[tuple[TopicPartition, HoldingTransaction]]:
    """The open transactions in other partitions that may hold back a partition whose topic shows
    whole transactions.
    """
    if row.is_whole and row.stable_lag:
        for other in broker.observed.partitions:
            if other.is_whole and other is not row:
                for transaction in other.open_transactions:
                    at = TopicPartition(other.topic, other.partition)
                    yield at, _holding(broker, other, transaction)


def _holding(
    broker: Broker, row: PartitionState, transaction: OpenTransaction
) -> HoldingTransaction:
    """An open transaction as `why_stuck` explains it. Without a coordinator's state, only the log's
    facts are known.
    """
    state = broker.id_of_producer.get(transaction.producer_id)
    holding = HoldingTransaction(
        transaction.producer_id,
        transaction.producer_epoch,
        -1,
        transaction.first_offset,
        transaction.last_timestamp,
    )
    if state is None:
        return holding
    is_open = state.age_ms is not None
    return holding._replace(
        transactional_id=state.transactional_id or None,
        state=state.state,
        coordinator_producer_epoch=state.producer_epoch,
        started_ms=broker.observed.wall_ms - state.age_ms if state.age_ms is not None else -1,
        timeout_ms=state.timeout_ms if is_open else -1,
        is_hanging=hangs(row, transaction, state),
        client_address=broker.observed.clients.get(state.transactional_id),
    )
