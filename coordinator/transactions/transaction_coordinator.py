"""The transaction coordinator as a value: requests and ticks in; records, answers, decisions out.

`on_*` decides from the hard state and leaves it alone; `replay` and `apply` are its only writers.
Who waits for the end of a transaction is soft state, lost in a crash like the connection that it
belongs to. The host keeps it, with all other state of the transactions that are ending.

A transaction begins with the Ongoing record of AddPartitionsToTxn. It ends with a `Decision`: by
its producer (EndTxn), or over its producer's head (a new session, or the timeout), which raises the
epoch. From the decision until the Complete record the host says that the transaction is ending, and
every request about it gets CONCURRENT_TRANSACTIONS. The order in which the host carries out a
decision is the table of broker/transactions/transaction_end.py.

In version 2 (KIP-890, part two) a transaction begins with what it writes, each end raises the
epoch, and so does each abort of a coordinator whose transaction.version is at level 2. The version
of each request decides, so that one transactional id may go from one version to the other.

In a session of two-phase commit (KIP-939) the decision is another system's. Its transactions have
no timeout, and whoever begins the next session may have the open one kept, so that it can be ended
as that system says. What such a producer was told outlives a loss of power, its open transaction
too: every answer about it waits for the disk.

Source: KIP-98, KIP-360, KIP-588, KIP-664, KIP-890, as Apache Kafka 3.9 and 4.3 have them, and
        KIP-939; README.md names what we do otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinator.internal_topics import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas.coordinator.result import (
    NO_TICKET,
    CoordinatorRecord,
    Decision,
    PartitionExists,
    Reply,
    Result,
    SessionAtEnd,
    WaitingEndTxn,
    WaitingInit,
    partition_for,
)
from barnabas.coordinator.timers import Timers
from barnabas.coordinator.transactions.transaction_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from barnabas.coordinator.transactions.transaction_state import (
    AT_REST,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    NOBODY,
    PREPARED,
    VERSION_2,
    Channel,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    is_epoch_exhausted,
)
from barnabas.protocol.errors import Code, DelayedRequest, KafkaError
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsResponse, TopicData
from barnabas.protocol.messages.describe_transactions import (
    TransactionState as DescribedTransaction,
)
from barnabas.protocol.messages.end_txn import EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

if TYPE_CHECKING:
    from barnabas.coordinator.transaction_listing import Rows
    from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
    from barnabas.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )
    from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
    from barnabas.protocol.messages.end_txn import EndTxnRequest
    from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
    from barnabas.protocol.messages.list_transactions import ListTransactionsRequest

# the version from which requests are of version 2 of the protocol (KIP-890, part two)
END_GIVES_EPOCH, PRODUCE_ADDS, OFFSETS_ADD = 5, 12, 5
# the version from which a partition that was not added is TRANSACTION_ABORTABLE, before it
# INVALID_TXN_STATE
_PRODUCE_KNOWS_ABORTABLE, _OFFSETS_KNOW_ABORTABLE = 11, 4
# the version from which an answer may be PRODUCER_FENCED; before it, the answer is
# INVALID_PRODUCER_EPOCH
_INIT_KNOWS_FENCED, _ADD_KNOWS_FENCED, _END_KNOWS_FENCED = 4, 2, 2
ROWS_AT_ONCE = 500  # of a list, which are looked at in a slice
DUE_AT_ONCE = 64  # deadlines that are handled by one tick; each takes a third of a ms
_PARTITIONS_AS_A_DEADLINE = 8  # each gets a marker
_ADD_KNOWS_BATCHES = 4
_ADD_KNOWS_ABORTABLE = 5


@dataclass(frozen=True)
class TxnSettings:
    """transaction.max.timeout.ms, transactional.id.expiration.ms,
    transaction.two.phase.commit.enable, and the level of transaction.version, which says how the
    coordinator's own aborts raise the epoch.

    is_durable: whether decisions are to be on the disk before they are told.
    """

    transaction_max_timeout_ms: int = 15 * 60 * 1000
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
    transaction_version: int = 0
    two_phase_commit_enable: bool = False
    is_durable: bool = True


logger = logging.getLogger("barnabas.transactions")


def _trace(metadata: TransactionMetadata) -> None:
    """Say at debug level what the last record of a transactional id says."""
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
    """All transactional ids of this broker.

    Tracks one TransactionMetadata a transactional id, and one deadline: of the transaction while it
    is open, of the id while it is at rest, none while markers are written. Deadlines follow from
    the hard state, so replay sets them too. Beside it, as soft state, the latest connection over
    which each producer added to its transaction. is_loaded: set when a start has fed it the log;
    from then on each step is said at debug level. two_phase: the ids in a session of two-phase
    commit. kept_from: the producers whose transactions are kept for another and not complete; both
    are empty where nobody uses two-phase commit.
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
        """A coordinator of no transactional id yet. Eight parameters: all that it sees of the rest.

        Takes: partition_count, of __transaction_state. group_partition, the partition of
               __consumer_offsets that keeps a group. coordinator_epoch, the leader epoch of a
               partition of __transaction_state, which the markers of its transactions bear, as
               Kafka's do. is_ending, whether a transactional id's transaction is decided and not
               completed; its Prepare record may not be there yet.
        """
        assert partition_count > 0
        self.settings = settings
        self._partition_count = partition_count
        self._partition_exists = partition_exists
        self._allocate_producer_id = allocate_producer_id
        self._group_partition = group_partition
        self._coordinator_epoch = coordinator_epoch
        self._wall = wall
        self._transactions: dict[str, TransactionMetadata] = {}
        self._timers: Timers[str] = Timers()
        self._is_decided = is_ending
        self.is_loaded = False
        self.two_phase: set[str] = set()
        self.kept_from: set[tuple[int, int]] = set()
        self._latest_connections: dict[
            str, dict[tuple[Channel, int], tuple[tuple[int, int], int]]
        ] = {}

    # hard state

    def replay(self, partition: int, offset: int, key: bytes, value: bytes | None) -> None:
        """Let one record of __transaction_state hold.

        Takes:  the record and where it stands; keys of later versions are skipped.
        Raises: ValueError where the value cannot be read: the broker must not go on without it.
        """
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._forget(transactional_id)
        else:
            self.apply(decode_value(transactional_id, value))

    def apply(self, metadata: TransactionMetadata) -> None:
        """Let a record hold that was just appended, and says `metadata`: as `replay` would.

        Deadlines go by the steady time, whereas the record has the wall clock's. A record of this
        very moment is of now; at a start it is as old as the wall clock says.
        """
        transactional_id = metadata.transactional_id
        if metadata.state is TransactionState.DEAD:
            self._forget(transactional_id)
            return
        before = self._transactions.get(transactional_id)
        self._transactions[transactional_id] = metadata
        if self.is_loaded and logger.isEnabledFor(logging.DEBUG):
            _trace(metadata)
        if (
            metadata.timeout_ms == NO_TIMEOUT_MS
            or metadata.next_producer_epoch >= 0
            or self.two_phase
            or self.kept_from
        ):
            self._note_two_phase(before, metadata)
        if metadata.state is TransactionState.ONGOING:
            if metadata.timeout_ms == NO_TIMEOUT_MS:
                self._timers.cancel(transactional_id)
            elif before is None or not _is_same_open_transaction(before, metadata):
                began_ms = self._wall.since_ms(metadata.start_ms)
                self._timers.schedule(transactional_id, began_ms + metadata.timeout_ms)
            # else its deadline stands, wherever the wall clock has gone since it began
        elif metadata.state in AT_REST:
            rests_since_ms = self._wall.since_ms(metadata.last_update_ms)
            self._timers.schedule(
                transactional_id, rests_since_ms + self.settings.transactional_id_expiration_ms
            )
        else:
            self._timers.cancel(transactional_id)

    def _forget(self, transactional_id: str) -> None:
        self._transactions.pop(transactional_id, None)
        self.two_phase.discard(transactional_id)
        self._timers.cancel(transactional_id)
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

    def prepared(self) -> list[Decision]:
        """The decisions that are in the log and not complete: to be carried out (again).

        Called once, after the log was replayed.
        """
        return [
            self._decision(transaction)
            for transaction in self._transactions.values()
            if transaction.state in PREPARED
        ]

    def on_power_loss(self, now_ms: int, *, spares_two_phase: bool = True) -> Result:
        """Another producer id for every transactional id, at a start after a power loss.

        A producer on another machine goes on with its session, of which the broker may have lost
        what was not yet on the disk: a batch that was acknowledged, the record that a partition is
        in the transaction, an abort. So nobody goes on: open transactions are aborted, and every
        producer is fenced once. One that asks for its next epoch (KIP-360) gets it.

        Each gets another producer id, since the next epoch of its own may be somebody's already:
        an abort of version 2 gives one, and is not flushed. Such aborts may have come at whatever
        level of transaction.version, and the broker may have been at another one then.

        An open transaction of two-phase commit stays as it is, and its producer, too: nothing that
        it was told was lost. Not so where nothing waits for the disk, nor in the copy of a leader
        whose answers did not wait for it (`spares_two_phase` is false).
        """
        moved: list[TransactionMetadata] = []
        effects: list[Decision | SessionAtEnd] = []
        spares_two_phase = spares_two_phase and self.settings.is_durable
        for transaction in self._transactions.values():
            is_open = transaction.state is TransactionState.ONGOING
            if is_open and transaction.is_two_phase and spares_two_phase:
                continue
            goes_on = (
                transaction.current_producer
                if transaction.is_epoch_given_out
                else transaction.last_producer
            )
            session = WaitingInit(NO_TICKET, goes_on, transaction.timeout_ms, takes_new_id=True)
            if is_open:
                fence = transaction.fenced(goes_on, now_ms + self._wall.ahead_ms)
                effects.append(self._decision(fence, session))
            elif transaction.state in PREPARED:
                effects.append(SessionAtEnd(transaction.transactional_id, session))
            else:
                moved.append(self._next_session(transaction, session, now_ms)[0])
        return self._results(moved, effects, [])

    def on_journaled_decision(self, key: bytes, value: bytes) -> Result:
        """The record of a decision that a flush journal holds, if its log lacks it, at a start."""
        decided = _decode(key, value)
        if decided is None:
            return Result()
        transaction = self._transactions.get(decided.transactional_id)
        if transaction is None or not (
            {transaction.producer, transaction.current_producer}
            & {decided.producer, decided.last_producer}
        ):
            # the id has expired, or a later session has begun: sessions are durable from their
            # beginning
            return Result()
        if transaction.order_ms >= decided.order_ms:
            return Result()  # a decision is later than all before it
        return self._result(decided, [decided], [])

    def on_partition_recovered(
        self, transaction: TransactionMetadata, partition: TopicPartition, now_ms: int
    ) -> Result:
        """Add a partition to an open transaction, whose record of it a power loss has taken."""
        added = transaction.with_partitions(
            [partition], now_ms + self._wall.ahead_ms, transaction.client_transaction_version
        )
        return self._result(added, [added], [])

    def decision_of(self, key: bytes, value: bytes) -> Decision | None:
        """The decision of a Prepare record; None where its key is of a later version."""
        decided = _decode(key, value)
        return None if decided is None else self._decision(decided)

    def metadata(self, transactional_id: str) -> TransactionMetadata | None:
        """What the last record of `transactional_id` says; None where there is none."""
        return self._transactions.get(transactional_id)

    def partition_of(self, transactional_id: str) -> int:
        """The partition of __transaction_state that keeps it."""
        return partition_for(transactional_id, self._partition_count)

    def latest_connection(self, transactional_id: str) -> int:
        """The connection by which the producer last added to its transaction; 0: not known."""
        connections = self._latest_connections.get(transactional_id, {})
        return max((connection_id for _, connection_id in connections.values()), default=0)

    def snapshot(self) -> dict[str, TransactionMetadata]:
        """The whole hard state, for comparing two coordinators."""
        return dict(self._transactions)

    # InitProducerId

    def on_init_producer_id(
        self, request: InitProducerIdRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """A producer's first request, or its wish for the next epoch (KIP-360).

        Gives:  an Empty record and its answer; where a transaction is open, its abort, and the
        answer when that is complete; where it is to be kept (KIP-939), an Ongoing record and the
        answer. Errors: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS (markers are being written); TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        for two-phase commit where it is not enabled; INVALID_TXN_STATE where an open transaction of
        two-phase commit is to be kept in a session that is none.
        """
        transactional_id = request.transactional_id
        try:
            requester = _requester(request)
            if transactional_id is None:
                return _reply(
                    context, _init_response(ProducerIdAndEpoch(self._allocate_producer_id(), 0))
                )
            if not transactional_id:
                raise KafkaError(Code.INVALID_REQUEST)
            timeout_ms = self._timeout_of(request)
            transaction = self._transactions.get(transactional_id)
            if transaction is None:
                return self._first_session(transactional_id, timeout_ms, context, now_ms)
            self._check_may_init(transaction, requester)
            if request.keep_prepared_txn and transaction.state is TransactionState.ONGOING:
                return self._keep(transaction, requester, timeout_ms, context, now_ms)
        except KafkaError as error:
            code = _for_version(error.code, context, _INIT_KNOWS_FENCED)
            return _reply(
                context, InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
            )
        init = WaitingInit(context.ticket, requester, timeout_ms)
        if transaction.state is TransactionState.ONGOING:
            fence = self._fenced(transaction, requester, now_ms)
            return Result(effects=[self._decision(fence, init)])
        return self.begin_session(transaction, init, now_ms)

    def _timeout_of(self, request: InitProducerIdRequest) -> int:
        """The timeout of the session's transactions. Raises: KafkaError."""
        if request.enable2_pc:
            if not self.settings.two_phase_commit_enable:
                raise KafkaError(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return NO_TIMEOUT_MS
        if not 0 < request.transaction_timeout_ms <= self.settings.transaction_max_timeout_ms:
            raise KafkaError(Code.INVALID_TRANSACTION_TIMEOUT)
        return request.transaction_timeout_ms

    def _keep(
        self,
        transaction: TransactionMetadata,
        requester: ProducerIdAndEpoch,
        timeout_ms: int,
        context: RequestContext,
        now_ms: int,
    ) -> Result:
        """Fence who has a transaction open, and leave that to whoever asks: it may end it alone.

        The timeout is never shortened: a transaction that was prepared must not be aborted by it.
        Raises: KafkaError INVALID_TXN_STATE, see `on_init_producer_id`.
        """
        if transaction.is_two_phase and timeout_ms != NO_TIMEOUT_MS:
            raise KafkaError(Code.INVALID_TXN_STATE)
        current = transaction.current_producer
        if transaction.is_kept and requester != NOBODY and requester == transaction.last_producer:
            producer = current  # the same request again
        elif is_epoch_exhausted(current.producer_epoch):
            producer = ProducerIdAndEpoch(self._allocate_producer_id(), 0)
        else:
            producer = ProducerIdAndEpoch(current.producer_id, current.producer_epoch + 1)
        kept = transaction.kept(
            producer,
            requester,
            max(timeout_ms, transaction.timeout_ms),
            now_ms + self._wall.ahead_ms,
        )
        response = _init_response(producer, kept.producer)
        return _once_durable(self._result(kept, [kept], [Reply(context.ticket, response)]))

    def begin_session(
        self, transaction: TransactionMetadata, init: WaitingInit, now_ms: int
    ) -> Result:
        """The session of an InitProducerId, whose transactional id is at rest (now)."""
        session, response = self._next_session(transaction, init, now_ms)
        replies = [] if init.ticket == NO_TICKET else [Reply(init.ticket, response)]
        return _once_durable(self._result(session, [session], replies))

    def _first_session(
        self, transactional_id: str, timeout_ms: int, context: RequestContext, now_ms: int
    ) -> Result:
        """The first session of an id.

        Also for a producer that names an earlier producer id: its transactional id has expired, and
        nobody else has come since.
        """
        created = TransactionMetadata(
            transactional_id,
            self._allocate_producer_id(),
            0,
            timeout_ms,
            last_update_ms=now_ms + self._wall.ahead_ms,
        )
        return _once_durable(
            self._result(
                created, [created], [Reply(context.ticket, _init_response(created.producer))]
            )
        )

    def _check_may_init(
        self, transaction: TransactionMetadata, requester: ProducerIdAndEpoch
    ) -> None:
        """Refuse who may not. Raises: KafkaError.

        Whoever names an id and epoch must be the current producer, or the one whose wish led to it
        (a retry). Kafka lets any epoch of the current producer id abort an open transaction; here a
        fenced producer cannot.
        """
        current = transaction.current_producer
        if requester not in (NOBODY, current, transaction.last_producer):
            raise KafkaError(Code.PRODUCER_FENCED)
        if requester == current and not transaction.is_epoch_given_out:
            raise KafkaError(Code.PRODUCER_FENCED)
        if self._is_ending(transaction):
            raise KafkaError(Code.CONCURRENT_TRANSACTIONS)

    def _is_ending(self, transaction: TransactionMetadata) -> bool:
        """Whether it is decided and not completed; its Prepare record may not be there yet."""
        return transaction.state in PREPARED or self._is_decided(transaction.transactional_id)

    def _next_session(
        self, transaction: TransactionMetadata, init: WaitingInit, now_ms: int
    ) -> tuple[TransactionMetadata, InitProducerIdResponse]:
        """Who the producer is from now on, and the answer that says so. `transaction` is at rest.

        A retry is answered as before. Not so where the last wish led to an abort in version 1 (and
        a crash kept it from its answer): the epoch that fenced is not given to anyone, for it may
        be the last. In version 2 the abort's epoch is the one that was wished for.
        """
        is_retry = (
            init.requester != NOBODY
            and init.requester == transaction.last_producer
            and transaction.is_epoch_given_out
        )
        if is_retry and not init.takes_new_id:
            producer = transaction.producer
        elif init.takes_new_id or is_epoch_exhausted(transaction.producer_epoch):
            producer = ProducerIdAndEpoch(self._allocate_producer_id(), 0)
        else:
            producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch + 1)
        session = transaction.in_new_session(
            producer, init.requester, init.timeout_ms, now_ms + self._wall.ahead_ms
        )
        return session, _init_response(producer)

    def _fenced(
        self, transaction: TransactionMetadata, requester: ProducerIdAndEpoch, now_ms: int
    ) -> TransactionMetadata:
        """The decision to abort an open transaction over its producer's head.

        At level 2 the producer is not fenced by that alone: it is an epoch behind, and is given the
        new one when it asks for the abort itself, or for its next epoch.
        """
        if self.settings.transaction_version >= VERSION_2:
            return transaction.prepared_with_next_epoch(
                False, now_ms + self._wall.ahead_ms, self._allocate_producer_id
            )
        return transaction.fenced(requester, now_ms + self._wall.ahead_ms)

    # AddPartitionsToTxn, AddOffsetsToTxn

    def on_add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Partitions that the producer is about to write to.

        From version 4 on a request is for many transactions, and may only verify.

        Gives:  an Ongoing record and the answer; no record where all of them are there already.
        Errors: INVALID_REQUEST, TOPIC_AUTHORIZATION_FAILED for internal topics and
        UNKNOWN_TOPIC_OR_PARTITION (then OPERATION_NOT_ATTEMPTED for the others of that
        transaction),
                INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; if only
                verified: TRANSACTION_ABORTABLE (INVALID_TXN_STATE before version 5) where a
                partition is not in the transaction.
        """
        if context.api_version >= _ADD_KNOWS_BATCHES:
            return self._add_in_batch(request, context, now_ms)
        added, results = self._add(
            self._transactions.get(request.v3_and_below_transactional_id),
            request.v3_and_below_transactional_id,
            ProducerIdAndEpoch(
                request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
            ),
            request.v3_and_below_topics,
            context,
            now_ms,
        )
        reply = Reply(
            context.ticket, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        )
        return self._result_for(
            request.v3_and_below_transactional_id, [] if added is None else [added], [reply]
        )

    def _add_in_batch(
        self, request: AddPartitionsToTxnRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """The answer leaves with the last result, when the records of all are there."""
        decided: dict[str, TransactionMetadata] = {}
        results = []
        for entry in request.transactions:
            name = entry.transactional_id
            producer = ProducerIdAndEpoch(entry.producer_id, entry.producer_epoch)
            transaction = decided.get(name) or self._transactions.get(name)
            if entry.verify_only:
                topics = self._verification(transaction, name, producer, entry.topics, context)
            else:
                added, topics = self._add(
                    transaction, name, producer, entry.topics, context, now_ms
                )
                if added is not None:
                    decided[name] = added
            results.append(AddPartitionsToTxnResult(transactional_id=name, topic_results=topics))
        response = AddPartitionsToTxnResponse(error_code=Code.NONE, results_by_transaction=results)
        return self._results(decided.values(), [], [Reply(context.ticket, response)])

    def _add(
        self,
        transaction: TransactionMetadata | None,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: Iterable[AddPartitionsToTxnTopic],
        context: RequestContext,
        now_ms: int,
    ) -> tuple[TransactionMetadata | None, list[AddPartitionsToTxnTopicResult]]:
        """What becomes of `transaction` (None: nothing new), and the result of each partition."""
        refused = self._refused_partitions(
            topics, is_from_client=context.api_version < _ADD_KNOWS_BATCHES
        )
        if refused:
            return None, _results_by_topic(topics, refused, Code.OPERATION_NOT_ATTEMPTED)
        try:
            added = self._with_partitions(
                transaction, transactional_id, producer, _pairs(topics), now_ms
            )
        except KafkaError as error:
            return None, _results_by_topic(
                topics, {}, _for_version(error.code, context, _ADD_KNOWS_FENCED)
            )
        return added, _results_by_topic(topics, {}, Code.NONE)

    def _refused_partitions(
        self, topics: Iterable[AddPartitionsToTxnTopic], *, is_from_client: bool
    ) -> dict[TopicPartition, Code]:
        """The partitions that no transaction may have, and why.

        A marker in __transaction_state keeps Apache Kafka from loading it, so no version may add
        its partitions. Those of __consumer_offsets are added for clients by AddOffsetsToTxn, and
        by brokers (version 4 on) as any other.
        """
        internal = INTERNAL_TOPICS if is_from_client else (TRANSACTIONS_TOPIC,)
        refused = {}
        for pair in _pairs(topics):
            if pair.topic in internal:
                refused[pair] = Code.TOPIC_AUTHORIZATION_FAILED
            elif not self._partition_exists(*pair):
                refused[pair] = Code.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    def _with_partitions(
        self,
        transaction: TransactionMetadata | None,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        pairs: list[TopicPartition],
        now_ms: int,
        client_transaction_version: int = 0,
    ) -> TransactionMetadata | None:
        """`transaction` with `pairs`; None where it has them. Raises: KafkaError."""
        transaction = _current(transaction, transactional_id, producer)
        if self._is_ending(transaction):
            raise KafkaError(Code.CONCURRENT_TRANSACTIONS)
        if transaction.is_kept:
            raise KafkaError(Code.INVALID_TXN_STATE)
        if all(
            pair in transaction.partitions for pair in pairs
        ):  # nor does a transaction begin with no partition
            return None
        return transaction.with_partitions(
            pairs, now_ms + self._wall.ahead_ms, client_transaction_version
        )

    def on_add_offsets_to_txn(
        self, request: AddOffsetsToTxnRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Add the partition of __consumer_offsets that keeps the group, like any other.

        It is not looked up: the group is kept there.

        Errors: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS.
        """
        pair = TopicPartition(OFFSETS_TOPIC, self._group_partition(request.group_id))
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        added, code = None, Code.NONE
        try:
            transaction = self._transactions.get(request.transactional_id)
            added = self._with_partitions(
                transaction, request.transactional_id, producer, [pair], now_ms
            )
        except KafkaError as error:
            code = _for_version(error.code, context, _ADD_KNOWS_FENCED)
        reply = Reply(context.ticket, AddOffsetsToTxnResponse(error_code=code))
        return self._result_for(request.transactional_id, [] if added is None else [added], [reply])

    # adding by writing (KIP-890, second part)

    def on_writing(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        pairs: list[TopicPartition],
        now_ms: int,
    ) -> Result:
        """Add the partitions that a producer of version 2 is about to write to.

        Gives:  an Ongoing record, which is appended before the first batch; none where they may not
                be added: `verify` says why.
        """
        try:
            added = self._with_partitions(
                self._transactions.get(transactional_id),
                transactional_id,
                producer,
                pairs,
                now_ms,
                VERSION_2,
            )
        except KafkaError:
            return Result()
        return self._result_for(transactional_id, [] if added is None else [added], [])

    def on_writing_offsets(
        self, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str, now_ms: int
    ) -> Result:
        """`on_writing` for the partition of __consumer_offsets that keeps the group."""
        pair = TopicPartition(OFFSETS_TOPIC, self._group_partition(group_id))
        return self.on_writing(transactional_id, producer, [pair], now_ms)

    # verification (KIP-890, first part)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
        api_version: int,
    ) -> Code:
        """Whether a transactional batch may be appended there: NONE, or the code for Produce.

        Produce never answers with PRODUCER_FENCED, which its clients do not expect there, nor,
        before version 12, with CONCURRENT_TRANSACTIONS, which they do not try again: these are
        INVALID_PRODUCER_EPOCH and NOT_ENOUGH_REPLICAS.
        """
        code = self._verify(
            transactional_id,
            ProducerIdAndEpoch(producer_id, producer_epoch),
            TopicPartition(topic, partition),
        )
        if code is Code.PRODUCER_FENCED:
            return Code.INVALID_PRODUCER_EPOCH
        if code is Code.CONCURRENT_TRANSACTIONS and api_version < PRODUCE_ADDS:
            return Code.NOT_ENOUGH_REPLICAS
        if code is Code.TRANSACTION_ABORTABLE and api_version < _PRODUCE_KNOWS_ABORTABLE:
            return Code.INVALID_TXN_STATE
        return code

    def verify_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        api_version: int,
        open_epoch: int | None = None,
    ) -> Code:
        """Whether offsets of a group may be appended: NONE, or the code for TxnOffsetCommit.

        The first of a transaction need the group in it, as a first batch needs its partition
        (KIP-890). After them, below level 2 of transaction.version, a later epoch is taken, and
        fences the producer: Apache Kafka 3.9 does so, as recorded, and 4.3 does not. The highest
        one nobody can ever have, so it is refused.

        Takes:  open_epoch, the epoch with which the producer has a transaction open in the group's
                partition; None where it has none there.
        """
        if (producer_id, producer_epoch) in self.kept_from:
            return Code.INVALID_PRODUCER_EPOCH
        is_lax = self.settings.transaction_version < VERSION_2 and api_version < OFFSETS_ADD
        if open_epoch is not None and is_lax:
            is_valid = open_epoch <= producer_epoch < MAX_PRODUCER_EPOCH
            return Code.NONE if is_valid else Code.INVALID_PRODUCER_EPOCH
        pair = TopicPartition(OFFSETS_TOPIC, self._group_partition(group_id))
        code = self._verify(transactional_id, ProducerIdAndEpoch(producer_id, producer_epoch), pair)
        if code is Code.TRANSACTION_ABORTABLE and api_version < _OFFSETS_KNOW_ABORTABLE:
            return Code.INVALID_TXN_STATE
        return Code.INVALID_PRODUCER_EPOCH if code is Code.PRODUCER_FENCED else code

    def _verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, pair: TopicPartition
    ) -> Code:
        try:
            transaction = _current(
                self._transactions.get(transactional_id), transactional_id, producer
            )
        except KafkaError as error:
            return error.code
        if self._is_ending(transaction):
            return Code.CONCURRENT_TRANSACTIONS
        if transaction.is_kept:
            return Code.INVALID_TXN_STATE
        return Code.NONE if pair in transaction.partitions else Code.TRANSACTION_ABORTABLE

    def _verification(
        self,
        transaction: TransactionMetadata | None,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: Iterable[AddPartitionsToTxnTopic],
        context: RequestContext,
    ) -> list[AddPartitionsToTxnTopicResult]:
        """The result of each partition of a request that only asks."""
        try:
            transaction = _current(transaction, transactional_id, producer)
            if self._is_ending(transaction):
                raise KafkaError(Code.CONCURRENT_TRANSACTIONS)
        except KafkaError as error:
            return _results_by_topic(topics, {}, error.code)
        knows_abortable = context.api_version >= _ADD_KNOWS_ABORTABLE
        missing = Code.TRANSACTION_ABORTABLE if knows_abortable else Code.INVALID_TXN_STATE
        return _results_by_topic(topics, dict.fromkeys(transaction.partitions, Code.NONE), missing)

    # the end of a transaction

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
        """Refuse a request that was delayed on a connection that its producer has given up.

        In the first version of the protocol a late EndTxn looks like a new one (KIP-890,
        "Motivation"). The client has sent it again over a new connection, and begun its next
        transaction there, which the late one would end. Connections are numbered as they are
        accepted, so one is given up when the producer adds to its transaction over a later one, and
        for ends when it ends one. It is closed, not answered: a client that uses two at once, or a
        coordinator that ends what others began, connects again and is heard.

        A late Produce would join the next transaction in the same way: a batch that its client
        gave up when it aborted, and whose sequence happens to come next.

        In version 2 the epoch of a late request is of the last transaction, but for one: where that
        was of version 1, both have the same.

        Takes:  producer, its id and epoch. channels, what the connection is for: it must not be
                given up for any of them, and those before it are given up for the last one.
                is_noted: false where others may go on over earlier ones. node_id, of the broker
                that it came to: a client has a connection to each of several, and goes on over an
                older one when a leader is moved.
        Raises: DelayedRequest.
        """
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return
        if (transaction.producer_id, transaction.producer_epoch) != producer and (
            transaction.next_producer_epoch < 0  # nobody has kept it: nearly always
            or transaction.current_producer != producer
        ):
            return
        connections = self._latest_connections.setdefault(transactional_id, {})
        latest = 0
        for channel in channels:
            of_producer, latest = connections.get((channel, node_id), (producer, 0))
            if of_producer != producer:
                # InitProducerId came between, over whichever connection: what is late from before
                # bears the epoch of before
                latest = 0
            if connection_id < latest:
                raise DelayedRequest(
                    f"a request for the transactional id {transactional_id} comes over a "
                    "connection that its producer has given up since"
                )
        if is_noted and connection_id > latest:
            connections[channels[-1], node_id] = (producer, connection_id)

    def on_commit_requested(
        self, transactional_id: str, producer_id: int, producer_epoch: int, now_ms: int
    ) -> TransactionMetadata | None:
        """The open transaction whose producer asks for its commit; None where it has none.

        Its data go to the disk before it is decided. The disk's time is not the producer's, and a
        process may stand still meanwhile, so there is no deadline until `on_data`: what was to be
        committed in time is not aborted by its timeout.
        """
        transaction = self._transactions.get(transactional_id)
        if (
            transaction is None
            or transaction.state is not TransactionState.ONGOING
            or not transaction.is_current(producer_id, producer_epoch)
        ):
            return None
        self._timers.cancel(transactional_id)
        return transaction

    def on_data(
        self, transaction: TransactionMetadata, context: RequestContext, now_ms: int
    ) -> Decision | None:
        """Commit the transaction that `on_commit_requested` gave: its data are on the disk.

        None where it is another by now: partitions were added to it, or it has ended. If it is open
        its timeout begins anew.
        """
        name = transaction.transactional_id
        latest = self._transactions.get(name)
        if latest is not transaction:
            if (
                latest is not None
                and latest.state is TransactionState.ONGOING
                and latest.timeout_ms != NO_TIMEOUT_MS
            ):
                self._timers.schedule(name, now_ms + latest.timeout_ms)
            return None
        return self._end(transaction, True, context, now_ms)

    def _end(
        self, transaction: TransactionMetadata, commit: bool, context: RequestContext, now_ms: int
    ) -> Decision:
        """The decision of an EndTxn, which is answered with the next epoch in version 2."""
        if context.api_version < END_GIVES_EPOCH:
            prepare = transaction.prepared(commit, now_ms + self._wall.ahead_ms)
            return self._decision(prepare, WaitingEndTxn(context.ticket))
        prepare = transaction.prepared_with_next_epoch(
            commit, now_ms + self._wall.ahead_ms, self._allocate_producer_id
        )
        return self._decision(prepare, WaitingEndTxn(context.ticket, prepare.next_producer))

    def on_end_txn(self, request: EndTxnRequest, context: RequestContext, now_ms: int) -> Result:
        """Commit or abort.

        Gives:  the decision, with who waits for its end; else an answer. Errors: INVALID_REQUEST,
        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        if context.api_version >= END_GIVES_EPOCH:
            return self._on_end_of_version_2(request, context, now_ms)
        commit = request.committed
        name = request.transactional_id
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        try:
            transaction = _current(self._transactions.get(name), name, producer)
            if transaction.state is not TransactionState.ONGOING:
                code = _code_for_ending_again(transaction.state, commit)
            elif self._is_ending(transaction):
                code = Code.CONCURRENT_TRANSACTIONS
            else:
                return Result(effects=[self._end(transaction, commit, context, now_ms)])
        except KafkaError as error:
            code = _for_version(error.code, context, _END_KNOWS_FENCED)
        return self._result_for(name, [], [Reply(context.ticket, end_txn_response(code))])

    def _on_end_of_version_2(
        self, request: EndTxnRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """EndTxn 5: ENDS_OF_VERSION_2, in which an abort ends what never began, too."""
        name = request.transactional_id
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        current = NOBODY
        try:
            transaction, is_again = _ended_by(self._transactions.get(name), name, producer)
            code = ENDS_OF_VERSION_2[transaction.state][2 * request.committed + (not is_again)]
            if code is None and self._is_ending(transaction):
                code = Code.CONCURRENT_TRANSACTIONS
            if code is None:
                decision = self._end(transaction, request.committed, context, now_ms)
                return Result(effects=[decision])
            if code is Code.NONE:
                current = transaction.producer
        except KafkaError as error:
            code = error.code
        return self._result_for(name, [], [Reply(context.ticket, end_txn_response(code, current))])

    def _decision(
        self, prepare: TransactionMetadata, waiting: WaitingEndTxn | WaitingInit | None = None
    ) -> Decision:
        assert prepare.state in PREPARED
        partition = partition_for(prepare.transactional_id, self._partition_count)
        return Decision(
            transactional_id=prepare.transactional_id,
            producer_id=prepare.producer_id,
            producer_epoch=prepare.producer_epoch,
            coordinator_epoch=self._coordinator_epoch(partition),
            commit=prepare.state is TransactionState.PREPARE_COMMIT,
            partitions=tuple(prepare.partitions),
            # `order_ms`, without a call
            decided_ms=prepare.last_update_ms if prepare.latest_ms < 0 else prepare.latest_ms,
            prepare=prepare,
            log_partition=partition,
            waiting=waiting,
        )

    def complete(self, decision: Decision, now_ms: int) -> TransactionMetadata | None:
        """What the Complete record of a decision says, once its markers are written.

        None where that transaction does not wait for markers (any more): a second report is
        harmless.
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

    # time

    def on_tick(self, now_ms: int) -> Result:
        """Abort and fence what is open for too long; bury ids at rest for too long.

        At most DUE_AT_ONCE of them: the next tick goes on, and requests have their turn before it.
        """
        moved: list[TransactionMetadata] = []
        effects: list[Decision | SessionAtEnd] = []
        budget = DUE_AT_ONCE
        while budget > 0 and (due := self._timers.pop_due(now_ms, 1)):
            transaction = self._transactions[due[0]]
            budget -= 1
            if self._is_ending(transaction):
                continue  # it ended in time, and has no deadline once that is replayed
            budget -= len(transaction.partitions) // _PARTITIONS_AS_A_DEADLINE
            if transaction.state is TransactionState.ONGOING:
                fence = self._fenced(transaction, NOBODY, now_ms)
                effects.append(self._decision(fence))
            else:
                moved.append(transaction.expired(now_ms + self._wall.ahead_ms))
        return self._results(moved, effects, [])

    def on_abort_requested(self, now_ms: int) -> Result:
        """Abort every open transaction over its producer's head, as its timeout would."""
        open_ones = [
            transaction
            for transaction in self._transactions.values()
            if transaction.state is TransactionState.ONGOING and not self._is_ending(transaction)
        ]
        fences = [self._fenced(transaction, NOBODY, now_ms) for transaction in open_ones]
        return self._results([], [self._decision(fence) for fence in fences], [])

    @property
    def timers(self) -> Timers[str]:
        """All deadlines; their owner alone changes them."""
        return self._timers

    def next_deadline_ms(self) -> int | None:
        """When on_tick has something to do; None: never, as things are."""
        return self._timers.next_deadline_ms()

    # looking in (KIP-664)

    def on_describe_transactions(
        self, request: DescribeTransactionsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Errors: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, for each id by itself."""
        states = [
            self._description(transactional_id) for transactional_id in request.transactional_ids
        ]
        return _reply(context, DescribeTransactionsResponse(transaction_states=states))

    def _description(self, transactional_id: str) -> DescribedTransaction:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            code = Code.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Code.INVALID_REQUEST
            return DescribedTransaction(
                error_code=code,
                transactional_id=transactional_id,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
        topics: dict[str, list[int]] = {}
        for topic, partition in transaction.partitions:
            topics.setdefault(topic, []).append(partition)
        return DescribedTransaction(
            error_code=Code.NONE,
            transactional_id=transactional_id,
            transaction_state=transaction.state.value,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()
            ],
        )

    def listed(
        self,
        request: ListTransactionsRequest,
        is_visible: Callable[[str], bool],
        now_ms: int,
    ) -> Generator[None, int, Rows]:
        """The transactions that pass the request's filters but for its pattern, in slices.

        Takes: is_visible, whether the client may see an id.
        """
        from barnabas.coordinator import transaction_listing

        filters = transaction_listing.Filters.of(request, now_ms + self._wall.ahead_ms)
        return transaction_listing.rows(self._transactions, filters, is_visible)

    # results

    def _result(
        self,
        metadata: TransactionMetadata,
        moved: list[TransactionMetadata],
        replies: list[Reply],
    ) -> Result:
        return self._result_for(metadata.transactional_id, moved, replies)

    def _result_for(
        self, transactional_id: str, moved: list[TransactionMetadata], replies: list[Reply]
    ) -> Result:
        """The result for the partition of a transactional id.

        Without records it still names the partition: what the reply says may rest on a record that
        is not flushed yet.
        """
        return Result(
            partition=partition_for(transactional_id, self._partition_count)
            if transactional_id
            else -1,
            records=[record_of(metadata) for metadata in moved],
            transactions=moved,
            replies=replies,
            durable=transactional_id in self.two_phase,
        )

    def _results(
        self,
        moved: Iterable[TransactionMetadata],
        effects: list[Decision | SessionAtEnd],
        replies: list[Reply],
    ) -> Result:
        """One result for each internal partition, in the order in which they first come up.

        The replies and effects are in the last of them.
        """
        by_partition: dict[int, Result] = {}
        for metadata in moved:
            partition = partition_for(metadata.transactional_id, self._partition_count)
            result = by_partition.setdefault(partition, Result(partition=partition))
            result.records.append(record_of(metadata))
            result.transactions.append(metadata)
        chain = list(by_partition.values()) or [Result()]
        chain[-1].replies.extend(replies)
        chain[-1].durable = bool(replies) and any(metadata.is_two_phase for metadata in moved)
        chain[-1].effects.extend(effects)
        chain[0].more.extend(chain[1:])
        return chain[0]


def _requester(request: InitProducerIdRequest) -> ProducerIdAndEpoch:
    """Who the producer says it is; NOBODY from one that is new.

    Raises: KafkaError INVALID_REQUEST where only one of the two is named.
    """
    requester = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if (requester.producer_id == NO_PRODUCER_ID) != (requester.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(Code.INVALID_REQUEST)
    return requester


def _is_same_open_transaction(before: TransactionMetadata, after: TransactionMetadata) -> bool:
    return (
        before.state is after.state is TransactionState.ONGOING
        and before.producer == after.producer
        and (before.start_ms, before.timeout_ms) == (after.start_ms, after.timeout_ms)
    )


def _decode(key: bytes, value: bytes) -> TransactionMetadata | None:
    transactional_id = decode_key(key)
    return None if transactional_id is None else decode_value(transactional_id, value)


def _current(
    transaction: TransactionMetadata | None, transactional_id: str, producer: ProducerIdAndEpoch
) -> TransactionMetadata:
    """`transaction`, if `producer` is its current one. Raises: KafkaError otherwise."""
    if not transactional_id:
        raise KafkaError(Code.INVALID_REQUEST)
    if transaction is not None and transaction.is_kept:
        current = transaction.current_producer
        if producer.producer_id not in (transaction.producer_id, current.producer_id):
            raise KafkaError(Code.INVALID_PRODUCER_ID_MAPPING)
        if producer != current:
            raise KafkaError(Code.PRODUCER_FENCED)
        return transaction
    if transaction is None or transaction.producer_id != producer.producer_id:
        if transaction is not None and _is_of_last_session(transaction, producer):
            raise KafkaError(Code.PRODUCER_FENCED)
        raise KafkaError(Code.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer.producer_epoch or not transaction.is_epoch_given_out:
        raise KafkaError(Code.PRODUCER_FENCED)
    return transaction


def _is_of_last_session(transaction: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether the id is that of the session before, as after a power loss."""
    is_new = transaction.state is TransactionState.EMPTY
    return is_new and producer.producer_id == transaction.previous_producer_id


_S = TransactionState
_PF, _ITS, _CT = Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE, Code.CONCURRENT_TRANSACTIONS
_NOW = None
ENDS_OF_VERSION_2: Mapping[TransactionState, tuple[Code | None, ...]] = {
    #  abort:             again,     now;  commit: again,     now
    _S.EMPTY: (_PF, _NOW, _PF, _ITS),
    _S.ONGOING: (_PF, _NOW, _PF, _NOW),
    _S.PREPARE_ABORT: (_CT, _PF, _ITS, _PF),
    _S.PREPARE_COMMIT: (_ITS, _PF, _CT, _PF),
    _S.COMPLETE_ABORT: (Code.NONE, _NOW, _ITS, _ITS),
    _S.COMPLETE_COMMIT: (_ITS, _NOW, Code.NONE, _ITS),
}
"""What an EndTxn of version 2 is answered.

"now" is the current producer; "again" the one whose end led to the current epoch, so that it
repeats a request whose answer it did not get. None stands for a decision. Source: KIP-890, as
Apache Kafka 4.3 has it.
"""


def _ended_by(
    transaction: TransactionMetadata | None, transactional_id: str, producer: ProducerIdAndEpoch
) -> tuple[TransactionMetadata, bool]:
    """`transaction`, and whether `producer` has ended it before: see `ENDS_OF_VERSION_2`.

    Raises: KafkaError.
    """
    if transaction is not None and transactional_id and transaction.was_ended_by(producer):
        return transaction, True
    return _current(transaction, transactional_id, producer), False


def _code_for_ending_again(state: TransactionState, commit: bool) -> Code:
    """EndTxn where no transaction is open: success if it is what was decided, and done."""
    if state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
        return Code.NONE
    if state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT):
        return Code.CONCURRENT_TRANSACTIONS
    return Code.INVALID_TXN_STATE


def _for_version(code: Code, context: RequestContext, knows_fenced: int) -> Code:
    if code is Code.PRODUCER_FENCED and context.api_version < knows_fenced:
        return Code.INVALID_PRODUCER_EPOCH
    return code


def record_of(metadata: TransactionMetadata) -> CoordinatorRecord:
    """The record that says `metadata`."""
    value = None if metadata.state is TransactionState.DEAD else encode_value(metadata)
    return CoordinatorRecord(encode_key(metadata.transactional_id), value)


def _once_durable(result: Result) -> Result:
    """`result`, to be answered once it is durable.

    An epoch that a power loss made forgotten would be given to somebody else.
    """
    result.durable = True
    return result


def _reply(context: RequestContext, response: Message) -> Result:
    return Result(replies=[Reply(context.ticket, response)])


def _init_response(
    producer: ProducerIdAndEpoch, ongoing: ProducerIdAndEpoch = NOBODY
) -> InitProducerIdResponse:
    """ongoing: who has written the open transaction that is kept."""
    return InitProducerIdResponse(
        error_code=Code.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        ongoing_txn_producer_id=ongoing.producer_id,
        ongoing_txn_producer_epoch=ongoing.producer_epoch,
    )


def end_txn_response(code: Code, producer: ProducerIdAndEpoch = NOBODY) -> EndTxnResponse:
    """The answer to an EndTxn. producer: whom its producer goes on as, in version 2."""
    return EndTxnResponse(
        error_code=code,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )


def _pairs(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions
    ]


def _results_by_topic(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, Code], otherwise: Code
) -> list[AddPartitionsToTxnTopicResult]:
    """The code of each partition of the request, in its order."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=codes.get(
                        TopicPartition(topic.name, partition), otherwise
                    ),
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
