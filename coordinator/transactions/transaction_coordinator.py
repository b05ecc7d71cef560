"""The transaction coordinator as a value: requests and ticks go in; records, responses and
decisions come out.

`on_*` decides from the hard state and does not change it; only `replay` and `apply` write it. The
parts share one `TransactionTable`, which they read:

    this module             replay, deadlines, connections, and the end of a transaction
    producer_sessions.py    InitProducerId, aborts by the coordinator, the start after a power loss
    partition_additions.py  AddPartitionsToTxn, AddOffsetsToTxn, writes that add, verification
    fencing.py              the producer that may act on a transactional id
    end_txn_answers.py      the responses to EndTxn, as tables

A transaction begins with an Ongoing record. It ends with a `Decision` by its producer (EndTxn), or
by the coordinator (a new session, or the timeout), which raises the epoch. From the decision until
the Complete record, the host reports the transaction as ending, and every request about it is
answered with CONCURRENT_TRANSACTIONS. The table in broker/transactions/transaction_end.py has the
order in which the host carries out a decision. The host also keeps the requests that wait for the
end.

In version 2 (KIP-890, part two) the first write begins a transaction and each end raises the epoch;
so does each abort by a coordinator whose transaction.version is at level 2. The version of each
request decides, so a transactional id may switch between the versions.

In a session of two-phase commit (KIP-939) another system decides. Its transactions have no timeout,
and the producer of the next session may keep the open transaction, to end it as that system
decided. Such an open transaction survives a power loss, since every response about it waits for the
disk.

Source: KIP-98, KIP-360, KIP-588, KIP-664, KIP-890, as Apache Kafka 3.9 and 4.3 implement them, and
        KIP-939; README.md lists the differences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence

from barnabas.coordinator.internal_topics import TRANSACTIONS_TOPIC
from barnabas.coordinator.result import PartitionExists, Reply, Result, partition_for
from barnabas.coordinator.timers import PUT_OFF_MS, Timers
from barnabas.coordinator.transactions import fencing, transaction_listing
from barnabas.coordinator.transactions.end_txn_answers import code_of_version_1, code_of_version_2
from barnabas.coordinator.transactions.partition_additions import PartitionAdditions
from barnabas.coordinator.transactions.producer_sessions import ProducerSessions
from barnabas.coordinator.transactions.transaction_listing import Rows
from barnabas.coordinator.transactions.transaction_records import (
    decode_key,
    decode_record,
    decode_value,
)
from barnabas.coordinator.transactions.transaction_state import (
    AT_REST,
    DEAD,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    ONGOING,
    PREPARED,
    Channel,
    Decision,
    ProducerIdAndEpoch,
    SessionAtEnd,
    TransactionMetadata,
    WaitingEndTxn,
)
from barnabas.coordinator.transactions.transaction_table import TransactionTable, TxnSettings
from barnabas.protocol.errors import Code, DelayedRequest, KafkaError
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

END_GIVES_EPOCH = 5  # the first version of EndTxn that belongs to version 2 of the protocol
_END_KNOWS_FENCED = 2  # for earlier versions, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED
# the number of deadlines and markers that one tick handles; each takes a third of a ms
DUE_AT_ONCE = 32

Connections = dict[tuple[Channel, int], tuple[tuple[int, int], int]]
"""The latest connection by channel and node: (producer id and epoch, connection)."""

logger = logging.getLogger("barnabas.transactions")


def _trace(metadata: TransactionMetadata) -> None:
    """Log the content of a transactional id's last record at debug level."""
    logger.debug(
        "%s is %s: producer %d, epoch %d; partitions: %s",
        metadata.transactional_id, metadata.state.value, metadata.producer_id,
        metadata.producer_epoch, ", ".join(map(str, metadata.partitions)) or "none",
        extra={
            "transactional_id": metadata.transactional_id, "producer_id": metadata.producer_id,
            "producer_epoch": metadata.producer_epoch, "state": metadata.state.value,
        },
    )  # fmt: skip


class TransactionCoordinator:
    """The coordinator of all transactional ids of this broker.

    Each id has one TransactionMetadata and at most one deadline: the timeout of its open
    transaction, or the expiration of an id that has none. While markers are written there is no
    deadline. Deadlines follow from the hard state, so replay sets them as well. Soft state: the
    latest connection over which each producer added to its transaction.

    is_loaded: set by the host when it has replayed the log; from then on each step is logged at
    debug level. partition_count: that of __transaction_state. two_phase, kept_from: see
    TransactionTable. timers: all deadlines; only the coordinator changes them.
    """

    def __init__(
        self,
        *,
        partition_count: int,
        settings: TxnSettings,
        partition_exists: PartitionExists,
        allocate_producer_id: Callable[[], int],
        group_partition: Callable[[str], int],
        wall: WallClock,
        coordinator_epoch: Callable[[int], int] = lambda _: 0,
        is_ending: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Make a coordinator without ids.

        Takes:  partition_count, the partition count of __transaction_state; group_partition, which
                returns the partition of __consumer_offsets that stores a group; coordinator_epoch,
                which returns the leader epoch of a partition of __transaction_state, which markers
                contain as in Kafka; is_ending, whether a transactional id's transaction is decided
                and not complete (its Prepare record may not be appended yet).
        """
        table = self._table = TransactionTable(
            partition_count, settings, coordinator_epoch, is_ending
        )
        self._transactions = table.by_id
        self.timers: Timers[str] = Timers()
        self._last_due: list[str] = []  # the ids that the last tick handled
        self.two_phase, self.kept_from = table.two_phase, table.kept_from
        self.is_loaded = False
        # InitProducerId, aborts by the coordinator, and the start after a power loss
        self.sessions = ProducerSessions(table, allocate_producer_id, wall)
        # AddPartitionsToTxn, AddOffsetsToTxn, writes that add, and verification
        self.additions = PartitionAdditions(table, partition_exists, group_partition, wall)
        self.partition_count, self._coordinator_epoch = partition_count, coordinator_epoch
        self._allocate_producer_id, self._wall = allocate_producer_id, wall
        self._latest_connections: dict[str, Connections] = {}

    @property
    def settings(self) -> TxnSettings:
        """The current settings; the host replaces them when a feature changes."""
        return self._table.settings

    @settings.setter
    def settings(self, settings: TxnSettings) -> None:
        self._table.settings = settings

    # --- hard state ------------------------------------------------------------------------------

    def replay(self, partition: int, offset: int, key: bytes, value: bytes | None) -> None:
        """Apply one record of __transaction_state; keys of later versions are skipped.

        Raises: ValueError if the value cannot be read; the broker must not continue without it.
        """
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._forget(transactional_id)
        else:
            metadata = decode_value(transactional_id, value)
            self._check_epoch(metadata, partition, offset)
            self.apply(metadata)

    def _check_epoch(self, metadata: TransactionMetadata, partition: int, offset: int) -> None:
        """Log an error if a record has a lower epoch than the record before it of the same producer
        id. No broker writes such records, and the later one is used, as in Apache Kafka: the
        producer that it fences may be the wrong one (KIP-98, coordinator startup).
        """
        before = self._transactions.get(metadata.transactional_id)
        if (
            before is not None
            and before.producer_id == metadata.producer_id
            and metadata.producer_epoch < before.producer_epoch
        ):
            logger.error(
                "%s-%d, offset %d: the transactional id %r has the producer epoch %d after %d: two "
                "brokers wrote to this log, or it was restored in part. Its producers should be "
                "started again",
                TRANSACTIONS_TOPIC,
                partition,
                offset,
                metadata.transactional_id,
                metadata.producer_epoch,
                before.producer_epoch,
            )

    def apply(self, metadata: TransactionMetadata, now_ms: int | None = None) -> None:
        """Apply the content of a record, as `replay` does.

        Takes:  now_ms, when the record was appended; None at a start, when its timestamp is used
                instead.
        """
        transactional_id, _, _, timeout_ms, state = metadata[:5]  # sooner than by name
        if state is DEAD:
            self._forget(transactional_id)
            return
        before = self._transactions.get(transactional_id)
        self._transactions[transactional_id] = metadata
        if self.is_loaded and logger.isEnabledFor(logging.DEBUG):
            _trace(metadata)
        if (
            timeout_ms == NO_TIMEOUT_MS
            or metadata.next_producer_epoch >= 0
            or self.two_phase
            or self.kept_from
        ):
            self._note_two_phase(before, metadata)
        if state is ONGOING:
            if timeout_ms == NO_TIMEOUT_MS:
                self.timers.cancel(transactional_id)
            elif before is None or not _is_same_open_transaction(before, metadata):
                began_ms = self._wall.since_ms(metadata.start_ms)
                self.timers.schedule(transactional_id, began_ms + timeout_ms)
            # Otherwise the deadline stays the same, even if the wall clock has been changed since.
        elif state in AT_REST:
            since_ms = self._wall.since_ms(metadata.last_update_ms) if now_ms is None else now_ms
            expiration_ms = self._table.settings.transactional_id_expiration_ms
            self.timers.schedule(transactional_id, since_ms + expiration_ms)
        else:
            self.timers.pop(transactional_id, None)

    def _forget(self, transactional_id: str) -> None:
        self._transactions.pop(transactional_id, None)
        self.two_phase.discard(transactional_id)
        self.timers.cancel(transactional_id)
        self._latest_connections.pop(transactional_id, None)

    def _note_two_phase(
        self, before: TransactionMetadata | None, metadata: TransactionMetadata
    ) -> None:
        if before is not None and before.kept_from is not None:
            self.kept_from.discard(before.kept_from)
        if metadata.kept_from is not None:
            self.kept_from.add(metadata.kept_from)
        if metadata.is_two_phase:
            self.two_phase.add(metadata.transactional_id)
        else:
            self.two_phase.discard(metadata.transactional_id)

    def metadata(self, transactional_id: str) -> TransactionMetadata | None:
        """The content of the last record of a transactional id; None if it has no record."""
        return self._transactions.get(transactional_id)

    def snapshot(self) -> dict[str, TransactionMetadata]:
        """The whole hard state, by transactional id."""
        return dict(self._transactions)

    def partition_of(self, transactional_id: str) -> int:
        """The partition of __transaction_state that stores the id."""
        return self._table.partition_of(transactional_id)

    # --- a start ---------------------------------------------------------------------------------

    def prepared(self) -> list[Decision]:
        """The decisions in the log that are not complete. The host carries them out, perhaps again.

        Called once, after the log was replayed.
        """
        return [
            self._table.decision(transaction)
            for transaction in self._transactions.values()
            if transaction.state in PREPARED
        ]

    def decision_of(self, key: bytes, value: bytes) -> Decision | None:
        """The decision in a Prepare record; None if the record's key is of a later version."""
        decided = decode_record(key, value)
        return None if decided is None else self._table.decision(decided)

    def on_journaled_decision(self, key: bytes, value: bytes) -> Result:
        """The Prepare record from a flush journal, as a Result, unless the log has it already."""
        decided = decode_record(key, value)
        if decided is None:
            return Result()
        transaction = self._transactions.get(decided.transactional_id)
        if transaction is None or not (
            {transaction.producer, transaction.current_producer}
            & {decided.producer, decided.last_producer}
        ):
            # The id has expired, or a later session has begun. The record of that session was
            # durable before its response was sent, so the journaled decision is obsolete.
            return Result()
        if transaction.order_ms >= decided.order_ms:
            return Result()  # a decision is later than all records that precede it
        return self._table.result(decided.transactional_id, [decided], [])

    def on_partition_recovered(
        self, transaction: TransactionMetadata, partition: TopicPartition, now_ms: int
    ) -> Result:
        """Add a partition to an open transaction again, if a power loss removed it."""
        added = transaction.with_partitions(
            [partition], now_ms + self._wall.ahead_ms, transaction.client_transaction_version
        )
        return self._table.result(added.transactional_id, [added], [])

    # --- connections -----------------------------------------------------------------------------

    def check_connection(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        connection_id: int,
        channels: Sequence[Channel] = (Channel.COORDINATOR,),
        *,
        is_noted: bool = True,
        node_id: int = -1,
    ) -> None:
        """Reject a request that was delayed on a connection that its producer has abandoned.

        In version 1 a late EndTxn looks like a new one (KIP-890, "Motivation"): the client has
        repeated it over a new connection and begun its next transaction there, which the late
        request would end. In the same way a late Produce would join the next transaction, if its
        sequence number happens to be the next. In version 2 a late request has an older epoch,
        unless the last transaction was of version 1.

        Connections are numbered in the order in which they were accepted. A connection is abandoned
        when the producer adds to its transaction over a later one; for ends, when it ends a
        transaction over a later one. An abandoned connection is closed without a response. A client
        that uses two connections at the same time connects again and is served.

        Takes:  channels, the purposes of the request. Its connection must not be abandoned for any
                of them. Earlier connections become abandoned for the last of them. is_noted, False
                if they stay valid. node_id, the id of the broker that received the request, since a
                client returns to an older connection when a leader is moved.
        Raises: DelayedRequest.
        """
        connections = self._latest_connections.get(transactional_id, {})
        latest_connection = producer, connection_id
        for channel in channels:
            if connections.get((channel, node_id)) != latest_connection:
                break
        else:
            return  # the usual case: nothing has changed since the producer's last request
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return
        if transaction[1:3] != producer and (
            transaction.next_producer_epoch < 0  # no session has kept the transaction (KIP-939)
            or transaction.current_producer != producer
        ):
            return
        latest = 0
        for channel in channels:
            of_producer, latest = connections.get((channel, node_id), (producer, 0))
            if of_producer != producer:
                # The producer has sent an InitProducerId since then. A request from before that is
                # rejected for its earlier epoch, so any connection is valid.
                latest = 0
            if connection_id < latest:
                raise DelayedRequest(
                    f"a request for the transactional id {transactional_id} came over a "
                    "connection that its producer has since replaced"
                )
        if is_noted and connection_id > latest:
            connections[channels[-1], node_id] = (producer, connection_id)
            self._latest_connections[transactional_id] = connections

    def latest_connection(self, transactional_id: str) -> int:
        """The connection over which the producer last added to its transaction; 0 if unknown."""
        connections = self._latest_connections.get(transactional_id, {})
        return max((connection_id for _, connection_id in connections.values()), default=0)

    # --- the end of a transaction ----------------------------------------------------------------

    def on_commit_requested(
        self, transactional_id: str, producer_id: int, producer_epoch: int, now_ms: int
    ) -> TransactionMetadata | None:
        """The open transaction whose commit its producer requests; None if there is none.

        The host flushes the data before the commit is decided. The deadline is removed until
        `on_data`: the timeout limits the time of the producer, not that of the disk or of a
        suspended process, and it must not abort a commit that was requested in time.
        """
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.state is not ONGOING:
            return None
        current = transaction[1:3]  # the same as `producer`, but without a call
        if transaction.next_producer_epoch >= 0:  # a session has kept the transaction (KIP-939)
            current = transaction.current_producer
        if (
            current != (producer_id, producer_epoch)
            or transaction.epoch_is_a_fence
            or transaction.producer_epoch >= MAX_PRODUCER_EPOCH
        ):
            return None
        self.timers.pop(transactional_id, None)
        return transaction

    def on_data(
        self, transaction: TransactionMetadata, context: RequestContext, epoch: int, now_ms: int
    ) -> Decision | None:
        """Commit the transaction that `on_commit_requested` returned. Its data are now durable.

        Takes:  epoch, the leader epoch of the log that stores the id, for the markers.
        Gives:  the decision; None if the transaction has changed since then, because partitions
                were added or it has ended. If it is open, its timeout restarts.
        """
        name = transaction.transactional_id
        latest = self._transactions.get(name)
        if latest is not transaction:
            if (
                latest is not None
                and latest.state is ONGOING
                and latest.timeout_ms != NO_TIMEOUT_MS
            ):
                self.timers.schedule(name, now_ms + latest.timeout_ms)
            return None
        return self._end(transaction, True, context, epoch, now_ms)

    def _end(
        self,
        transaction: TransactionMetadata,
        commit: bool,
        context: RequestContext,
        epoch: int,
        now_ms: int,
    ) -> Decision:
        """The decision to commit or abort. EndTxn 5 and later return the next epoch."""
        ticket, wall_ms = context.ticket, now_ms + self._wall.ahead_ms
        if context.api_version < END_GIVES_EPOCH:
            return transaction.prepared(commit, wall_ms).decision(epoch, WaitingEndTxn(ticket))
        prepare = transaction.prepared_with_next_epoch(commit, wall_ms, self._allocate_producer_id)
        waiting = tuple.__new__(WaitingEndTxn, (ticket, *prepare.next_producer))
        return prepare.decision(epoch, waiting)

    def on_end_txn(self, request: EndTxnRequest, context: RequestContext, now_ms: int) -> Result:
        """Commit or abort a transaction.

        Gives:  the decision, for which the request waits, or a response. Errors: INVALID_REQUEST,
                INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
                INVALID_TXN_STATE.
        """
        name, commit = request.transactional_id, request.committed
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        found, current = self._transactions.get(name), NO_PRODUCER
        is_ending = found is not None and self._table.is_ending(found)
        code: Code | None = Code.CONCURRENT_TRANSACTIONS
        try:
            if context.api_version < END_GIVES_EPOCH:
                transaction = fencing.require_current(found, name, producer)
                if not is_ending:
                    code = code_of_version_1(transaction.state, commit)
            elif not is_ending:  # if ending, the producer may already have its next id or epoch
                transaction, is_again = fencing.require_current_or_last(found, name, producer)
                code = code_of_version_2(transaction.state, commit, is_again=is_again)
                current = transaction.producer if code is Code.NONE else NO_PRODUCER
            if code is None:
                epoch = self._coordinator_epoch(partition_for(name, self.partition_count))
                return Result(effects=[self._end(transaction, commit, context, epoch, now_ms)])
        except KafkaError as error:
            code = fencing.code_for_version(error.code, context, _END_KNOWS_FENCED)
        reply = Reply(context.ticket, end_txn_response(code, current))
        return self._table.result(name, [], [reply])

    def complete(self, decision: Decision, now_ms: int) -> TransactionMetadata | None:
        """The content of a decision's Complete record, once the markers are written.

        Gives:  None if the transaction does not wait for markers, so a second call does no harm.
        """
        transaction = self._transactions.get(decision.transactional_id)
        if (
            transaction is None
            or transaction.state not in PREPARED
            or transaction.producer_id != decision.producer_id
            or transaction.producer_epoch != decision.producer_epoch
        ):
            return None
        return transaction.completed(now_ms + self._wall.ahead_ms)

    # --- timers ----------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return the time when `on_tick` has work next, or None if no deadline is set."""
        return self.timers.next_deadline_ms()

    def on_tick(self, now_ms: int) -> Result:
        """Abort the transactions whose timeout has passed, and remove expired ids.

        One tick handles about DUE_AT_ONCE of these, markers included. Requests are served before
        the next tick continues.
        """
        moved: list[TransactionMetadata] = []
        effects: list[Decision | SessionAtEnd] = []
        budget, self._last_due = DUE_AT_ONCE, []
        while budget > 0 and (due := self.timers.pop_due(now_ms, 1)):
            self._last_due += due
            transaction = self._transactions[due[0]]
            budget -= 1
            if self._table.is_ending(transaction):
                continue  # the transaction ended in time; replaying its end sets the next deadline
            budget -= len(transaction.partitions)
            if transaction.state is ONGOING:
                fence = self.sessions.fenced(transaction, NO_PRODUCER, now_ms)
                effects.append(self._table.decision(fence))
            else:
                moved.append(transaction.expired(now_ms + self._wall.ahead_ms))
        return self._table.results(moved, effects, [])

    def on_abort_requested(self, now_ms: int) -> Result:
        """Abort every open transaction, as its timeout would."""
        fences = [
            self.sessions.fenced(transaction, NO_PRODUCER, now_ms)
            for transaction in self._transactions.values()
            if transaction.state is ONGOING and not self._table.is_ending(transaction)
        ]
        return self._table.results([], [self._table.decision(fence) for fence in fences], [])

    def on_not_ended(self, transactional_id: str, now_ms: int, *, is_requested: bool) -> None:
        """Set a new deadline after the decision to end a transaction was dropped for lack of disk
        space.

        Takes:  is_requested, whether the producer requested the end. In this case the producer will
                request it again, and the timeout restarts. Otherwise the abort by timeout is tried
                again later.
        """
        transaction = self._transactions.get(transactional_id)
        if (
            transaction is None
            or transaction.state is not ONGOING
            or transaction.timeout_ms == NO_TIMEOUT_MS
        ):
            return
        if is_requested:
            self.timers.schedule(transactional_id, now_ms + transaction.timeout_ms)
        elif transactional_id not in self.timers:
            self.timers.schedule(transactional_id, now_ms + PUT_OFF_MS)

    def on_tick_not_written(self, now_ms: int) -> None:
        """Schedule the decisions of the last `on_tick` again, because there was no disk space for
        them.
        """
        for transactional_id in self._last_due:
            transaction = self._transactions.get(transactional_id)
            if (
                transaction is not None
                and transaction.state not in PREPARED
                and transactional_id not in self.timers
            ):
                self.timers.schedule(transactional_id, now_ms + PUT_OFF_MS)

    # --- inspection (KIP-664) --------------------------------------------------------------------

    def on_describe_transactions(
        self, request: DescribeTransactionsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Describe transactions. Errors for an id: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND."""
        response = transaction_listing.described(request, self._transactions)
        return Result(replies=[Reply(context.ticket, response)])

    def listed(
        self,
        request: ListTransactionsRequest,
        is_visible: Callable[[str], bool],
        now_ms: int,
    ) -> Generator[None, int, Rows]:
        """List the transactions that pass the request's filters except its pattern, in slices.

        Takes:  is_visible, which returns whether the client may see an id.
        """
        filters = transaction_listing.Filters.of(request, now_ms + self._wall.ahead_ms)
        return transaction_listing.rows(self._transactions, filters, is_visible)


def _is_same_open_transaction(before: TransactionMetadata, after: TransactionMetadata) -> bool:
    return (
        before.state is after.state is ONGOING
        and before.producer == after.producer
        and (before.start_ms, before.timeout_ms) == (after.start_ms, after.timeout_ms)
    )


def end_txn_response(code: Code, producer: ProducerIdAndEpoch = NO_PRODUCER) -> EndTxnResponse:
    """Make the response to an EndTxn.

    Takes:  producer, the next id and epoch of the producer, in version 2.
    """
    return EndTxnResponse(
        error_code=code,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )
