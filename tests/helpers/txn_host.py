"""A host in memory for a TransactionCoordinator. It stores the log, and has the coordinator replay
what is appended. A test decides when records are flushed and markers written. The replies and
effects of a result are held back until all earlier appends are flushed. A crash loses unflushed
records.

Requests and responses are encoded and decoded in the request's version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.broker.slices import run_through
from barnabas.coordinator.result import (
    Reply,
    Result,
    partition_for,
)
from barnabas.coordinator.transactions import transaction_listing
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.coordinator.transactions.transaction_coordinator import (
    TransactionCoordinator,
)
from barnabas.coordinator.transactions.transaction_records import record_of
from barnabas.coordinator.transactions.transaction_state import (
    AT_REST,
    NO_TIMEOUT_MS,
    Decision,
    TransactionMetadata,
    TransactionState,
    WaitingEndTxn,
    WaitingInit,
)
from barnabas.coordinator.transactions.transaction_table import TxnSettings
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.wall_clock import WallClock
from helpers.our_messages import response_class

TOPICS = {"t": 3, "u": 1}
EVENTS: dict[str, Callable[[TransactionCoordinator], Any]] = {
    "InitProducerId": lambda coordinator: coordinator.sessions.on_init_producer_id,
    "AddPartitionsToTxn": lambda coordinator: coordinator.additions.on_add_partitions_to_txn,
    "AddOffsetsToTxn": lambda coordinator: coordinator.additions.on_add_offsets_to_txn,
    "EndTxn": lambda coordinator: coordinator.on_end_txn,
    "DescribeTransactions": lambda coordinator: coordinator.on_describe_transactions,
}
LogRow = tuple[int, int, bytes, bytes | None]


def check_tables(coordinator: TransactionCoordinator, ending: set[str]) -> None:
    """Check that the tables that are derived from the transactions have exactly the required
    entries.

    Takes: ending, the ids whose transactions are being ended, which have no timer.
    """
    transactions = coordinator._transactions
    timed = {
        name
        for name, one in transactions.items()
        if one.state in AT_REST
        or (one.state is TransactionState.ONGOING and one.timeout_ms != NO_TIMEOUT_MS)
    }
    assert timed - ending <= set(coordinator.timers) <= timed
    assert coordinator.two_phase == {name for name, one in transactions.items() if one.is_two_phase}
    kept = {one.kept_from for one in transactions.values() if one.kept_from is not None}
    assert coordinator.kept_from == kept
    assert set(coordinator._latest_connections) <= set(transactions)


class TxnHost:
    """A transaction coordinator with its log, clock and topics.

    `log` has the partition, offset, key and value of each record, in order. The first
    `flushed_count` records survive a crash. `markers` has the effects that are not carried out yet,
    in order, and `written` has those that were carried out.
    """

    def __init__(
        self,
        *,
        settings: TxnSettings | None = None,
        partition_count: int = 4,
        topics: Mapping[str, int] | None = None,
        writes_markers: bool = True,
        flushes: bool = True,
        now_ms: int = 1_000_000,
    ) -> None:
        self.settings = settings or TxnSettings()
        self.partition_count = partition_count
        self.topics = dict(TOPICS if topics is None else topics)
        self.writes_markers = writes_markers
        self.flushes = flushes
        self.now_ms, self.wall_ahead_ms = now_ms, 0
        self.wall = WallClock()
        # ids of transactions whose end is decided, without a record of the decision in the log
        self.decided: set[str] = set()
        # ids whose commit was requested, but is not decided yet
        self.awaiting_data: set[str] = set()
        self.log: list[LogRow] = []
        self.flushed_count = 0
        self._held_back: list[Result] = []
        self.markers: list[Decision] = []
        self.written: list[Decision] = []
        self.reserved_ids = 0
        self.answers: dict[int, Any] = {}
        self._versions: dict[int, tuple[str, int]] = {}
        self._next_ticket = 1
        self._next_offset = [0] * partition_count
        self._ids = self._new_allocator()
        self.coordinator = self.new_coordinator()

    def _new_allocator(self) -> ProducerIdAllocator:
        def persist(next_id: int) -> None:
            self.reserved_ids = next_id

        return ProducerIdAllocator(block_size=10, persist=persist, next_id=self.reserved_ids)

    def new_coordinator(self) -> TransactionCoordinator:
        """A coordinator without transactions, with this host's topics, clock and settings."""
        return TransactionCoordinator(
            partition_count=self.partition_count,
            settings=self.settings,
            partition_exists=lambda topic, index: index < self.topics.get(topic, 0),
            allocate_producer_id=self._ids.allocate,
            group_partition=lambda group_id: partition_for(group_id, 2),
            wall=self.wall,
            is_ending=lambda transactional_id: transactional_id in self.decided,
        )

    def replayed(self) -> TransactionCoordinator:
        """A new coordinator that has replayed the log."""
        coordinator = self.new_coordinator()
        for row in self.log:
            coordinator.replay(*row)
        return coordinator

    def crash(self) -> None:
        """Lose everything except the flushed log: connections, waiting responses, unwritten
        markers. Then start the broker again.
        """
        self.markers.clear()
        self._versions.clear()
        self._held_back.clear()
        del self.log[self.flushed_count :]
        self._next_offset = [
            sum(row[0] == partition for row in self.log)
            for partition in range(self.partition_count)
        ]
        self._ids = self._new_allocator()
        self.event_ms()
        self.coordinator = self.replayed()
        self.resume()

    def resume(self) -> None:
        """Carry out the decisions that are in the log, as after a start."""
        self._release(self.coordinator.prepared())

    # events

    def event_ms(self) -> int:
        """Return the monotonic time of the next event, and set the wall clock."""
        self.wall.feed(self.now_ms, self.now_ms + self.wall_ahead_ms)
        return self.now_ms

    def send(self, request: Any, version: int) -> int:
        """Send a request, and return its ticket. `answers` has the response under this ticket,
        immediately or later.
        """
        ticket = self._next_ticket
        self._next_ticket += 1
        name = type(request).__name__.removesuffix("Request")
        self._versions[ticket] = name, version
        received = type(request).decode(request.encode(version), version)
        context = RequestContext(ticket, version, "client", "host")
        if isinstance(received, ListTransactionsRequest):
            self._list_transactions(received, ticket)
        else:
            self.handle(EVENTS[name](self.coordinator)(received, context, self.event_ms()))
        return ticket

    def _list_transactions(self, request: ListTransactionsRequest, ticket: int) -> None:
        """Respond to ListTransactions immediately, as its handler does."""
        listed = self.coordinator.listed(request, lambda _: True, self.event_ms())
        rows = transaction_listing.matching(
            run_through(listed, self.now_ms), request.transactional_id_pattern
        )
        response = transaction_listing.answer(request)
        if rows is None:
            response.error_code = Code.INVALID_REGULAR_EXPRESSION
        response.transaction_states = rows or []
        self.handle(Result(0, replies=[Reply(ticket, response)]))

    def call(self, request: Any, version: int) -> Any:
        """Send a request and return the response, which must come immediately."""
        return self.answers.pop(self.send(request, version))

    def tick(self, elapsed_ms: int = 0) -> None:
        self.now_ms += elapsed_ms
        self.handle(self.coordinator.on_tick(self.event_ms()))

    def write_markers(self, index: int = 0) -> Decision:
        """Carry out one of the effects that are held in `markers`."""
        decision = self.markers.pop(index)
        self.written.append(decision)
        complete = self.coordinator.complete(decision, self.event_ms())
        if complete is not None:
            partition = self.coordinator.partition_of(decision.transactional_id)
            self._append_metadata(partition, complete)
            done = Result(partition)
            if isinstance(decision.waiting, WaitingEndTxn):
                ticket, *producer = decision.waiting
                response = EndTxnResponse(0, Code.NONE, *producer)
                done.replies.append(Reply(ticket, response))
            elif isinstance(decision.waiting, WaitingInit):
                done = self.coordinator.sessions.begin_session(
                    complete, decision.waiting, self.event_ms()
                )
            self.handle(done)
        return decision

    def handle(self, result: Result) -> None:
        chain = [result, *result.more]
        assert not any(one.replies or one.effects for one in chain[:-1]), (
            "an answer or an effect precedes the last record"
        )
        for one in chain:
            self._append_all(one)
            self._held_back.append(one)
        if self.flushes:
            self.flush()
        check_tables(self.coordinator, self.decided | self.awaiting_data)

    def flush(self) -> None:
        """Make all records durable, and release the replies and effects that waited for the
        flush.
        """
        released, self._held_back = self._held_back, []
        self.flushed_count = len(self.log)
        for one in released:
            for reply in one.replies:
                self._answer(reply.ticket, reply.response)
            for effect in one.effects:
                if isinstance(effect, Decision):
                    self.markers.append(effect)
                else:
                    (index,) = [
                        index
                        for index, decision in enumerate(self.markers)
                        if decision.transactional_id == effect.transactional_id
                    ]
                    self.markers[index] = self.markers[index]._replace(waiting=effect.init)
        self._release([])

    def _release(self, decisions: list[Decision]) -> None:
        """Add decisions to the waiting ones. With `writes_markers`, write their markers at once."""
        self.markers += decisions
        while self.writes_markers and self.markers:
            self.write_markers()

    def _append_all(self, result: Result) -> None:
        """Append the records of a result and those of its decisions. The result's records must
        match its metadata.
        """
        assert result.records == [record_of(metadata) for metadata in result.transactions]
        for metadata in result.transactions:
            self._append_metadata(result.partition, metadata)
        for effect in result.effects:
            if isinstance(effect, Decision):
                partition = self.coordinator.partition_of(effect.transactional_id)
                self._append_metadata(partition, effect.prepare)

    def _append(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Append a record that does not result from a request."""
        self.coordinator.replay(*self._append_row(partition, key, value))

    def _append_metadata(self, partition: int, metadata: TransactionMetadata) -> None:
        """Append a transaction's record as the broker does, which applies the metadata instead of
        replaying the record.
        """
        self._append_row(partition, *record_of(metadata))
        self.coordinator.apply(metadata, self.event_ms())

    def _append_row(self, partition: int, key: bytes, value: bytes | None) -> LogRow:
        row = partition, self._next_offset[partition], key, value
        self._next_offset[partition] += 1
        self.log.append(row)
        return row

    def _answer(self, ticket: int, response: Any) -> None:
        """Store a response, encoded and decoded as on the wire."""
        name, version = self._versions.pop(
            ticket
            # raises KeyError if this is a second response, or belongs to an earlier run of the
            # broker
        )
        self.answers[ticket] = response_class(name).decode(response.encode(version), version)

    # requests

    def init(
        self,
        txn: str | None,
        *,
        pid: int = -1,
        epoch: int = -1,
        timeout_ms: int = 60_000,
        version: int = 4,
        call: bool = True,
    ) -> Any:
        """Send InitProducerId, and return the response, or the ticket if `call` is false."""
        request = InitProducerIdRequest(
            transactional_id=txn,
            transaction_timeout_ms=timeout_ms,
            producer_id=pid,
            producer_epoch=epoch,
        )
        return self._either(call)(request, version)

    def add(
        self,
        txn: str,
        pid: int,
        epoch: int,
        partitions: Mapping[str, list[int]],
        *,
        version: int = 3,
    ) -> dict[tuple[str, int], int]:
        """Send AddPartitionsToTxn, and return the error code of each partition, in the order of the
        response.
        """
        topics = [
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in partitions.items()
        ]
        answer = self.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=txn,
                v3_and_below_producer_id=pid,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            ),
            version,
        )
        return codes_of(answer.results_by_topic_v3_and_below)

    def add_batch(
        self, asked: list[tuple[str, int, int, bool, Mapping[str, list[int]]]], *, version: int
    ) -> list[tuple[str, Any]]:
        """Send AddPartitionsToTxn for several transactions, each given as (transactional id,
        producer id, epoch, verify only, partitions).
        """
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=txn,
                producer_id=pid,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in partitions.items()
                ],
            )
            for txn, pid, epoch, verify_only, partitions in asked
        ]
        answer = self.call(AddPartitionsToTxnRequest(transactions=transactions), version)
        assert answer.error_code == Code.NONE
        return [
            (result.transactional_id, codes_of(result.topic_results))
            for result in answer.results_by_transaction
        ]

    def add_offsets(self, txn: str, pid: int, epoch: int, group: str, *, version: int = 3) -> int:
        """Send AddOffsetsToTxn, and return the error code."""
        request = AddOffsetsToTxnRequest(
            transactional_id=txn, producer_id=pid, producer_epoch=epoch, group_id=group
        )
        code: int = self.call(request, version).error_code
        return code

    def end(
        self, txn: str, pid: int, epoch: int, commit: bool, *, version: int = 3, call: bool = True
    ) -> Any:
        """Send EndTxn, and return the error code, or the ticket if `call` is false."""
        request = EndTxnRequest(
            transactional_id=txn, producer_id=pid, producer_epoch=epoch, committed=commit
        )
        return self.call(request, version).error_code if call else self.send(request, version)

    def describe(self, *txns: str) -> list[Any]:
        """The transaction states in the response to a DescribeTransactions request."""
        states: list[Any] = self.call(
            DescribeTransactionsRequest(transactional_ids=list(txns)), 0
        ).transaction_states
        return states

    def list(
        self,
        *,
        states: tuple[str, ...] = (),
        pids: tuple[int, ...] = (),
        open_ms: int = -1,
        pattern: str | None = None,
        version: int = 1,
    ) -> Any:
        """Send ListTransactions with these filters, and return the response."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(pids),
            duration_filter=open_ms,
            transactional_id_pattern=pattern,
        )
        return self.call(request, version)

    @property
    def waiting(self) -> list[int]:
        """The tickets of requests that have no response yet."""
        return list(self._versions)

    def state(self, txn: str) -> str | None:
        found = self.coordinator.metadata(txn)
        return None if found is None else found.state.value

    def _either(self, call: bool) -> Callable[[Any, int], Any]:
        return self.call if call else self.send


def codes_of(topics: Any) -> dict[tuple[str, int], int]:
    """The error code of each partition in the rows of an AddPartitionsToTxn response."""
    return {
        (topic.name, result.partition_index): result.partition_error_code
        for topic in topics
        for result in topic.results_by_partition
    }
