"""The transaction coordinator as a value: requests, ticks and written markers in; records, answers
and markers to write out.

`on_*` decides from the hard state and leaves it alone; `replay` is its only writer, live and at
start alike. What a transaction waits for (the answer to EndTxn, or to the InitProducerId that
aborts it) is soft state: lost in a crash like the connection that it belongs to.

The path of a transaction: AddPartitionsToTxn -> Ongoing record -> answer. EndTxn -> Prepare record
-> markers in all its partitions -> `on_markers_written` -> Complete record -> answer. Since EndTxn
is answered that late, a producer that waits for it never meets CONCURRENT_TRANSACTIONS. Fencing (a
new session, or the timeout) takes the same path from PrepareAbort on, with a raised epoch.

The host may take its time with the Prepare record of an EndTxn, and it may be on the disk before it
is replayed here. Until then the state is Ongoing, and nothing else is decided: whoever asks meets
what he would meet after it, and no timeout comes to anything.

Source: KIP-98, KIP-360, KIP-588, KIP-664, KIP-890 (its first part), as Apache Kafka 3.9 has them;
        README.md names what we do otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.coordinator.result import (
    CoordinatorRecord,
    PartitionExists,
    Reply,
    Result,
    WriteMarkers,
    partition_for,
)
from barnabas.coordinator.timers import Timers
from barnabas.coordinator.transaction_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from barnabas.coordinator.transaction_state import (
    AT_REST,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NOBODY,
    PREPARED,
    STATE_BY_NAME,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    is_epoch_exhausted,
)
from barnabas.protocol.errors import Code, KafkaError
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
from barnabas.protocol.messages.list_transactions import ListTransactionsResponse
from barnabas.protocol.messages.list_transactions import TransactionState as ListedTransaction
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

if TYPE_CHECKING:
    from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
    from barnabas.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )
    from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
    from barnabas.protocol.messages.end_txn import EndTxnRequest
    from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
    from barnabas.protocol.messages.list_transactions import ListTransactionsRequest

# the version from which a request knows PRODUCER_FENCED; before it, the answer is
# INVALID_PRODUCER_EPOCH
_INIT_KNOWS_FENCED, _ADD_KNOWS_FENCED, _END_KNOWS_FENCED = 4, 2, 2
_ADD_KNOWS_BATCHES = 4
_ADD_KNOWS_ABORTABLE = 5


@dataclass(frozen=True)
class TxnSettings:
    """transaction.max.timeout.ms and transactional.id.expiration.ms."""

    transaction_max_timeout_ms: int = 15 * 60 * 1000
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000


NO_TICKET = -1


class _WaitingEnd(NamedTuple):
    """EndTxn, to be answered when the transaction is complete."""

    ticket: int


class _WaitingInit(NamedTuple):
    """InitProducerId, to be carried out when the transaction that it aborts is complete."""

    ticket: int
    asked_by: ProducerIdAndEpoch
    timeout_ms: int
    takes_new_id: bool = False


class TransactionCoordinator:
    """All transactional ids of this broker.

    Tracks one TransactionMetadata a transactional id, and one deadline: of the transaction while it
    is open, of the id while it is at rest, none while markers are written. Deadlines follow from
    the hard state, so replay sets them too.
    """

    def __init__(
        self,
        *,
        partition_count: int,
        settings: TxnSettings,
        partition_exists: PartitionExists,
        allocate_producer_id: Callable[[], int],
        group_partition: Callable[[str], int],
        wall: WallClock | None = None,
        coordinator_epoch: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """partition_count: of __transaction_state. group_partition: the partition of
        __consumer_offsets that keeps a group.

        coordinator_epoch: the leader epoch of a partition of __transaction_state. The markers of
        its transactions bear it, as Kafka's do.
        """
        assert partition_count > 0
        self.settings = settings
        self._partition_count = partition_count
        self._partition_exists = partition_exists
        self._allocate_producer_id = allocate_producer_id
        self._group_partition = group_partition
        self._coordinator_epoch = coordinator_epoch
        self._wall = wall or WallClock()
        self._transactions: dict[str, TransactionMetadata] = {}
        self._timers: Timers[str] = Timers()
        self._waiting: dict[str, _WaitingEnd | _WaitingInit] = {}

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
            self._transactions.pop(transactional_id, None)
            self._timers.cancel(transactional_id)
            return
        metadata = decode_value(transactional_id, value)
        before = self._transactions.get(transactional_id)
        self._transactions[transactional_id] = metadata
        if before is not None and _is_same_open_transaction(before, metadata):
            return  # its deadline stands, wherever the wall clock has gone since it began
        deadline_ms = self._deadline_ms(metadata)
        if deadline_ms is None:
            self._timers.cancel(transactional_id)
        else:
            self._timers.schedule(transactional_id, deadline_ms)

    def on_loaded(self, now_ms: int) -> Result:
        """After the log was replayed: the markers of transactions that were decided and not
        completed, to be written (again).
        """
        return Result(
            effects=[
                self._markers(found)
                for found in self._transactions.values()
                if found.state in PREPARED
            ]
        )

    def on_power_loss(self, now_ms: int, *, forgets_epochs: bool = False) -> Result:
        """After the log was replayed, where the machine and not only the broker went down: a new
        epoch for every transactional id.

        A producer on another machine goes on with its session, of which the broker may have lost
        what was not yet on the disk: a batch that was acknowledged, the record that a partition is
        in the transaction, an abort. So nobody goes on: open transactions are aborted, and every
        producer is fenced once. One that asks for its next epoch (KIP-360) gets it.

        Takes:  forgets_epochs, whether epochs may have been given out of which the log tells
                nothing: then every transactional id gets another producer id, since its next epoch
                may be somebody's already.
        """
        moved, effects = [], []
        for found in self._transactions.values():
            goes_on = found.producer if found.is_epoch_given_out else found.last_producer
            if found.state is TransactionState.ONGOING:
                aborted = found.fenced(goes_on, self._wall.at(now_ms))
                moved.append(aborted)
                effects.append(self._markers(aborted))
                if not forgets_epochs:
                    continue
            fencing = _WaitingInit(NO_TICKET, goes_on, found.timeout_ms, forgets_epochs)
            if found.state in PREPARED or found.state is TransactionState.ONGOING:
                self._waiting[found.transactional_id] = (
                    fencing  # carried out when the transaction is complete
                )
            else:
                moved.append(self._next_session(found, fencing, now_ms)[0])
        return self._results(moved, effects, [])

    def on_decision_found(self, key: bytes, value: bytes) -> Result:
        """At a start: a decision that was on the disk, as its record says, and may not have come to
        its log. Gives the record if so.
        """
        decided = _decoded(key, value)
        if decided is None:
            return Result()
        found = self._transactions.get(decided.transactional_id)
        if found is None or found.producer != decided.producer:
            # the id has expired, or a later session has begun: sessions are durable from their
            # beginning
            return Result()
        if found.last_update_ms >= decided.last_update_ms:
            return Result()  # a decision is later than all before it
        return self._result_for(decided.transactional_id, [decided], [])

    def markers_of(self, key: bytes, value: bytes) -> WriteMarkers | None:
        """The markers of a decision found at a start; None where its key is of a later version."""
        decided = _decoded(key, value)
        return None if decided is None else self._markers(decided)

    def metadata(self, transactional_id: str) -> TransactionMetadata | None:
        """What is known of `transactional_id`."""
        return self._transactions.get(transactional_id)

    def snapshot(self) -> dict[str, TransactionMetadata]:
        """The whole hard state, for comparing two coordinators."""
        return dict(self._transactions)

    def _deadline_ms(self, metadata: TransactionMetadata) -> int | None:
        """By the steady time, whereas its record tells the wall clock's. Of a record of this very
        moment that is now; at a start it is as long ago as the wall clock says.
        """
        if metadata.state is TransactionState.ONGOING:
            return self._wall.since_ms(metadata.start_ms) + metadata.timeout_ms
        if metadata.state in AT_REST:
            return (
                self._wall.since_ms(metadata.last_update_ms)
                + self.settings.transactional_id_expiration_ms
            )
        return None

    # InitProducerId

    def on_init_producer_id(
        self, request: InitProducerIdRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """A producer's first request, or its wish for the next epoch (KIP-360).

        Gives:  an Empty record and its answer; where a transaction is open, its abort, and the
        answer when that is complete. Errors: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT,
        PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (markers are being written).
        """
        transactional_id = request.transactional_id
        try:
            asked_by = _asked_by(request)
            if transactional_id is None:
                return _answered(
                    context, _initialised(ProducerIdAndEpoch(self._allocate_producer_id(), 0))
                )
            if not transactional_id:
                raise KafkaError(Code.INVALID_REQUEST)
            if not 0 < request.transaction_timeout_ms <= self.settings.transaction_max_timeout_ms:
                raise KafkaError(Code.INVALID_TRANSACTION_TIMEOUT)
            found = self._transactions.get(transactional_id)
            if found is None:
                return self._first_session(
                    transactional_id, request.transaction_timeout_ms, context, now_ms
                )
            self._check_may_init(found, asked_by)
        except KafkaError as error:
            code = _for_version(error.code, context, _INIT_KNOWS_FENCED)
            return _answered(
                context, InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
            )
        waiting = _WaitingInit(context.ticket, asked_by, request.transaction_timeout_ms)
        if found.state is TransactionState.ONGOING:
            return self._end(found.fenced(asked_by, self._wall.at(now_ms)), waiting)
        session, response = self._next_session(found, waiting, now_ms)
        return _durable(self._result(session, [session], [Reply(context.ticket, response)]))

    def _first_session(
        self, transactional_id: str, timeout_ms: int, context: RequestContext, now_ms: int
    ) -> Result:
        """Also for a producer that names an id of before: what was known of it has expired, and
        nobody else has come since.
        """
        created = TransactionMetadata(
            transactional_id,
            self._allocate_producer_id(),
            0,
            timeout_ms,
            last_update_ms=self._wall.at(now_ms),
        )
        return _durable(
            self._result(
                created, [created], [Reply(context.ticket, _initialised(created.producer))]
            )
        )

    def _check_may_init(self, found: TransactionMetadata, asked_by: ProducerIdAndEpoch) -> None:
        """Raises: KafkaError.

        Whoever names an id and epoch must be the current producer, or the one whose wish led to it
        (a retry). Kafka lets any epoch of the current producer id abort an open transaction; here a
        fenced producer cannot.
        """
        if asked_by not in (NOBODY, found.producer, found.last_producer):
            raise KafkaError(Code.PRODUCER_FENCED)
        if asked_by == found.producer and not found.is_epoch_given_out:
            raise KafkaError(Code.PRODUCER_FENCED)
        if self._is_ending(found):
            raise KafkaError(Code.CONCURRENT_TRANSACTIONS)

    def _is_ending(self, found: TransactionMetadata) -> bool:
        """Whether it is decided, and not completed; also where the record of the decision is under
        way.
        """
        return found.state in PREPARED or found.transactional_id in self._waiting

    def _next_session(
        self, found: TransactionMetadata, init: _WaitingInit, now_ms: int
    ) -> tuple[TransactionMetadata, InitProducerIdResponse]:
        """Who the producer is from now on, and the answer that says so. `found` is at rest.

        A retry is answered as before. Not so where the last wish led to an abort (and a crash kept
        it from its answer): the epoch that fenced is not given to anyone, for it may be the last.
        """
        is_retry = (
            init.asked_by != NOBODY
            and init.asked_by == found.last_producer
            and found.state is TransactionState.EMPTY
        )
        if is_retry and not init.takes_new_id:
            producer = found.producer
        elif init.takes_new_id or is_epoch_exhausted(found.producer_epoch):
            producer = ProducerIdAndEpoch(self._allocate_producer_id(), 0)
        else:
            producer = ProducerIdAndEpoch(found.producer_id, found.producer_epoch + 1)
        session = found.in_new_session(
            producer, init.asked_by, init.timeout_ms, self._wall.at(now_ms)
        )
        return session, _initialised(producer)

    # AddPartitionsToTxn, AddOffsetsToTxn

    def on_add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Partitions that the producer is about to write to; from version 4 on for many
        transactions, which it may also only ask about.

        Gives:  an Ongoing record and the answer; no record where all of them are there already.
        Errors: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION (then OPERATION_NOT_ATTEMPTED for the
        others of that transaction),
                INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; if only
                asked: TRANSACTION_ABORTABLE (INVALID_TXN_STATE before version 5) where a partition
                is not in the transaction.
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
        for asked in request.transactions:
            name = asked.transactional_id
            producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
            found = decided.get(name) or self._transactions.get(name)
            if asked.verify_only:
                topics = self._verified(found, name, producer, asked.topics, context)
            else:
                added, topics = self._add(found, name, producer, asked.topics, context, now_ms)
                if added is not None:
                    decided[name] = added
            results.append(AddPartitionsToTxnResult(transactional_id=name, topic_results=topics))
        response = AddPartitionsToTxnResponse(error_code=Code.NONE, results_by_transaction=results)
        return self._results(decided.values(), [], [Reply(context.ticket, response)])

    def _add(
        self,
        found: TransactionMetadata | None,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: Iterable[AddPartitionsToTxnTopic],
        context: RequestContext,
        now_ms: int,
    ) -> tuple[TransactionMetadata | None, list[AddPartitionsToTxnTopicResult]]:
        """What becomes of `found` (None: nothing new), and the result of each partition."""
        unknown = self._unknown_partitions(topics)
        if unknown:
            return None, _results_by_topic(topics, unknown, Code.OPERATION_NOT_ATTEMPTED)
        try:
            added = self._with_partitions(found, transactional_id, producer, _pairs(topics), now_ms)
        except KafkaError as error:
            return None, _results_by_topic(
                topics, {}, _for_version(error.code, context, _ADD_KNOWS_FENCED)
            )
        return added, _results_by_topic(topics, {}, Code.NONE)

    def _unknown_partitions(
        self, topics: Iterable[AddPartitionsToTxnTopic]
    ) -> dict[TopicPartition, Code]:
        return {
            pair: Code.UNKNOWN_TOPIC_OR_PARTITION
            for pair in _pairs(topics)
            if not self._partition_exists(*pair)
        }

    def _with_partitions(
        self,
        found: TransactionMetadata | None,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        pairs: list[TopicPartition],
        now_ms: int,
    ) -> TransactionMetadata | None:
        """`found` with `pairs`; None where it has them. Raises: KafkaError."""
        found = _current(found, transactional_id, producer)
        if self._is_ending(found):
            raise KafkaError(Code.CONCURRENT_TRANSACTIONS)
        if all(
            pair in found.partitions for pair in pairs
        ):  # nor does a transaction begin with no partition
            return None
        return found.with_partitions(pairs, self._wall.at(now_ms))

    def on_add_offsets_to_txn(
        self, request: AddOffsetsToTxnRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """The partition of __consumer_offsets that keeps the group, added like any other (and not
        looked up: the group is kept there).

        Errors: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS.
        """
        pair = TopicPartition(OFFSETS_TOPIC, self._group_partition(request.group_id))
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        added, code = None, Code.NONE
        try:
            found = self._transactions.get(request.transactional_id)
            added = self._with_partitions(found, request.transactional_id, producer, [pair], now_ms)
        except KafkaError as error:
            code = _for_version(error.code, context, _ADD_KNOWS_FENCED)
        reply = Reply(context.ticket, AddOffsetsToTxnResponse(error_code=code))
        return self._result_for(request.transactional_id, [] if added is None else [added], [reply])

    # verification (KIP-890, first part)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
    ) -> Code:
        """Whether a transactional batch may be appended there: NONE, or the code that Produce
        answers with.

        Produce never answers with PRODUCER_FENCED, which its clients do not expect there, nor with
        CONCURRENT_TRANSACTIONS, which older ones do not try again: they are INVALID_PRODUCER_EPOCH
        and NOT_ENOUGH_REPLICAS.
        """
        code = self._verify(
            transactional_id,
            ProducerIdAndEpoch(producer_id, producer_epoch),
            TopicPartition(topic, partition),
        )
        if code is Code.PRODUCER_FENCED:
            return Code.INVALID_PRODUCER_EPOCH
        return Code.NOT_ENOUGH_REPLICAS if code is Code.CONCURRENT_TRANSACTIONS else code

    def verify_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> Code:
        """Whether the group was added to the transaction: NONE, or the code that TxnOffsetCommit
        answers with.
        """
        pair = TopicPartition(OFFSETS_TOPIC, self._group_partition(group_id))
        code = self._verify(transactional_id, ProducerIdAndEpoch(producer_id, producer_epoch), pair)
        return Code.INVALID_PRODUCER_EPOCH if code is Code.PRODUCER_FENCED else code

    def _verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, pair: TopicPartition
    ) -> Code:
        try:
            found = _current(self._transactions.get(transactional_id), transactional_id, producer)
        except KafkaError as error:
            return error.code
        if self._is_ending(found):
            return Code.CONCURRENT_TRANSACTIONS
        return Code.NONE if pair in found.partitions else Code.INVALID_TXN_STATE

    def _verified(
        self,
        found: TransactionMetadata | None,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topics: Iterable[AddPartitionsToTxnTopic],
        context: RequestContext,
    ) -> list[AddPartitionsToTxnTopicResult]:
        """The result of each partition of a request that only asks."""
        try:
            found = _current(found, transactional_id, producer)
            if self._is_ending(found):
                raise KafkaError(Code.CONCURRENT_TRANSACTIONS)
        except KafkaError as error:
            return _results_by_topic(topics, {}, error.code)
        knows_abortable = context.api_version >= _ADD_KNOWS_ABORTABLE
        missing = Code.TRANSACTION_ABORTABLE if knows_abortable else Code.INVALID_TXN_STATE
        return _results_by_topic(topics, dict.fromkeys(found.partitions, Code.NONE), missing)

    def data_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> tuple[TopicPartition, ...]:
        """The partitions of this producer's open transaction, those of its offsets among them; none
        where it has no such transaction.
        """
        found = self._transactions.get(transactional_id)
        if (
            found is None
            or found.state is not TransactionState.ONGOING
            or found.producer != (producer_id, producer_epoch)
        ):
            return ()
        return tuple(found.partitions)

    # EndTxn and markers

    def on_end_txn(self, request: EndTxnRequest, context: RequestContext, now_ms: int) -> Result:
        """Commit or abort.

        Gives:  a Prepare record, then the markers; the answer when they are written and the
        Complete record is. Errors: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        commit = request.committed
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        try:
            found = _current(
                self._transactions.get(request.transactional_id), request.transactional_id, producer
            )
            if self._is_ending(found) and found.state is TransactionState.ONGOING:
                code = Code.CONCURRENT_TRANSACTIONS
            elif found.state is TransactionState.ONGOING:
                return self._end(
                    found.prepared(commit, self._wall.at(now_ms)), _WaitingEnd(context.ticket)
                )
            else:
                code = _code_for_ending_again(found.state, commit)
        except KafkaError as error:
            code = _for_version(error.code, context, _END_KNOWS_FENCED)
        return self._result_for(request.transactional_id, [], [Reply(context.ticket, _ended(code))])

    def _end(self, prepared: TransactionMetadata, waiting: _WaitingEnd | _WaitingInit) -> Result:
        assert prepared.state in PREPARED
        assert prepared.transactional_id not in self._waiting, (
            "somebody waits for a transaction that was not ending"
        )
        self._waiting[prepared.transactional_id] = waiting
        return self._result(prepared, [prepared], [], [self._markers(prepared)])

    def _markers(self, prepared: TransactionMetadata) -> WriteMarkers:
        return WriteMarkers(
            transactional_id=prepared.transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            coordinator_epoch=self._coordinator_epoch(
                partition_for(prepared.transactional_id, self._partition_count)
            ),
            commit=prepared.state is TransactionState.PREPARE_COMMIT,
            partitions=tuple(prepared.partitions),
            decided_ms=prepared.last_update_ms,
        )

    def on_decision_durable(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> Result:
        """The decision on a transaction is on the disk, and its markers are appended before any
        other request is heard.

        Gives:  the answer to the EndTxn that waits: what it asked for is true, and every reader who
                asks sees it. The state stays Prepare* until `on_markers_written`; the host holds
                back this transactional id's next request until then.
        """
        found = self._transactions.get(transactional_id)
        if (
            found is None
            or found.state not in PREPARED
            or found.producer != (producer_id, producer_epoch)
        ):
            return Result()
        waiting = self._waiting.get(transactional_id)
        if not isinstance(waiting, _WaitingEnd):
            return Result()
        del self._waiting[transactional_id]
        return self._result_for(transactional_id, [], [Reply(waiting.ticket, _ended(Code.NONE))])

    def on_markers_written(
        self, transactional_id: str, producer_id: int, producer_epoch: int, now_ms: int
    ) -> Result:
        """The markers of that transaction are durable in all its partitions.

        Gives:  the Complete record, and the answer that waits for it; where that is an
                InitProducerId, the Empty record of its session too. Nothing where that transaction
                is not waiting for markers (any more): a second report is harmless.
        """
        found = self._transactions.get(transactional_id)
        if (
            found is None
            or found.state not in PREPARED
            or found.producer != (producer_id, producer_epoch)
        ):
            return Result()
        completed = found.completed(self._wall.at(now_ms))
        match self._waiting.pop(transactional_id, None):
            case _WaitingEnd(ticket):
                return self._result(completed, [completed], [Reply(ticket, _ended(Code.NONE))])
            case _WaitingInit() as init:
                session, response = self._next_session(completed, init, now_ms)
                replies = [] if init.ticket == NO_TICKET else [Reply(init.ticket, response)]
                return _durable(self._result(completed, [completed, session], replies))
            case _:
                return self._result(completed, [completed], [])

    # time

    def on_tick(self, now_ms: int) -> Result:
        """Abort and fence what is open for too long; bury ids at rest for too long. O(due)."""
        moved = []
        effects = []
        for transactional_id in self._timers.pop_due(now_ms):
            found = self._transactions[transactional_id]
            if self._is_ending(found):
                continue  # it ended in time, and has no deadline once that is replayed
            if found.state is TransactionState.ONGOING:
                aborted = found.fenced(NOBODY, self._wall.at(now_ms))
                moved.append(aborted)
                effects.append(self._markers(aborted))
            else:
                moved.append(found.expired(self._wall.at(now_ms)))
        return self._results(moved, effects, [])

    def put_off_timeout(self, transactional_id: str, now_ms: int) -> None:
        """The producer has asked for the end of its open transaction, and the data are on their way
        to the disk.

        The disk's time is not the producer's: the timeout begins anew, so that it does not abort
        what was to be committed in time, and does when nothing comes of it.
        """
        found = self._transactions[transactional_id]
        assert found.state is TransactionState.ONGOING
        self._timers.schedule(transactional_id, now_ms + found.timeout_ms)

    def next_deadline_ms(self) -> int | None:
        """When on_tick has something to do; None: never, as things are."""
        return self._timers.next_deadline_ms()

    # looking in (KIP-664)

    def on_describe_transactions(
        self, request: DescribeTransactionsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Errors: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, for each id by itself."""
        states = [
            self._described(transactional_id) for transactional_id in request.transactional_ids
        ]
        return _answered(context, DescribeTransactionsResponse(transaction_states=states))

    def _described(self, transactional_id: str) -> DescribedTransaction:
        found = self._transactions.get(transactional_id)
        if found is None:
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
        for topic, partition in found.partitions:
            topics.setdefault(topic, []).append(partition)
        return DescribedTransaction(
            error_code=Code.NONE,
            transactional_id=transactional_id,
            transaction_state=found.state.value,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()
            ],
        )

    def on_list_transactions(
        self, request: ListTransactionsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Those that pass all filters: states, producer ids, and from version 1 on how long they
        have been open (KIP-994).
        """
        states = [STATE_BY_NAME[name] for name in request.state_filters if name in STATE_BY_NAME]
        longer_than_ms = request.duration_filter if context.api_version >= 1 else -1

        def is_wanted(found: TransactionMetadata) -> bool:
            if request.state_filters and found.state not in states:
                return False
            if request.producer_id_filters and found.producer_id not in request.producer_id_filters:
                return False
            return longer_than_ms < 0 or self._wall.at(now_ms) - found.start_ms > longer_than_ms

        response = ListTransactionsResponse(
            error_code=Code.NONE,
            unknown_state_filters=[
                name for name in request.state_filters if name not in STATE_BY_NAME
            ],
            transaction_states=[
                ListedTransaction(
                    transactional_id=name,
                    producer_id=found.producer_id,
                    transaction_state=found.state.value,
                )
                for name, found in self._transactions.items()
                if is_wanted(found)
            ],
        )
        return _answered(context, response)

    # results

    def _result(
        self,
        decided: TransactionMetadata,
        records: Iterable[TransactionMetadata],
        replies: list[Reply],
        effects: list[WriteMarkers] | None = None,
    ) -> Result:
        result = self._result_for(decided.transactional_id, records, replies)
        result.effects = effects or []
        return result

    def _result_for(
        self, transactional_id: str, records: Iterable[TransactionMetadata], replies: list[Reply]
    ) -> Result:
        """Without records it still names the partition: what the reply says may rest on a record
        that is not flushed yet.
        """
        return Result(
            partition=partition_for(transactional_id, self._partition_count)
            if transactional_id
            else -1,
            records=[_record(metadata) for metadata in records],
            replies=replies,
        )

    def _results(
        self,
        moved: Iterable[TransactionMetadata],
        effects: list[WriteMarkers],
        replies: list[Reply],
    ) -> Result:
        """One result for each internal partition, in the order in which they first come up; the
        replies in the last of them.
        """
        by_partition: dict[int, Result] = {}
        for metadata in moved:
            partition = partition_for(metadata.transactional_id, self._partition_count)
            result = by_partition.setdefault(partition, Result(partition=partition))
            result.records.append(_record(metadata))
        for effect in effects:
            by_partition[
                partition_for(effect.transactional_id, self._partition_count)
            ].effects.append(effect)
        chain = list(by_partition.values()) or [Result()]
        chain[-1].replies.extend(replies)
        chain[0].more.extend(chain[1:])
        return chain[0]


def _asked_by(request: InitProducerIdRequest) -> ProducerIdAndEpoch:
    """Who the producer says it is; NOBODY from one that is new. Raises: KafkaError INVALID_REQUEST
    where only one of the two is named.
    """
    asked_by = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if (asked_by.producer_id == NO_PRODUCER_ID) != (asked_by.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(Code.INVALID_REQUEST)
    return asked_by


def _is_same_open_transaction(before: TransactionMetadata, after: TransactionMetadata) -> bool:
    return (
        before.state is after.state is TransactionState.ONGOING
        and before.producer == after.producer
        and (before.start_ms, before.timeout_ms) == (after.start_ms, after.timeout_ms)
    )


def _decoded(key: bytes, value: bytes) -> TransactionMetadata | None:
    transactional_id = decode_key(key)
    return None if transactional_id is None else decode_value(transactional_id, value)


def _current(
    found: TransactionMetadata | None, transactional_id: str, producer: ProducerIdAndEpoch
) -> TransactionMetadata:
    """`found`, if `producer` is its current one, and was told so. Raises: KafkaError otherwise."""
    if not transactional_id:
        raise KafkaError(Code.INVALID_REQUEST)
    if found is None or found.producer_id != producer.producer_id:
        raise KafkaError(Code.INVALID_PRODUCER_ID_MAPPING)
    if found.producer_epoch != producer.producer_epoch or not found.is_epoch_given_out:
        raise KafkaError(Code.PRODUCER_FENCED)
    return found


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


def _record(metadata: TransactionMetadata) -> CoordinatorRecord:
    value = None if metadata.state is TransactionState.DEAD else encode_value(metadata)
    return CoordinatorRecord(encode_key(metadata.transactional_id), value)


def _durable(result: Result) -> Result:
    """An epoch is told once it cannot be forgotten: after a power loss it would be given to
    somebody else.
    """
    result.durable = True
    return result


def _answered(context: RequestContext, response: Message) -> Result:
    return Result(replies=[Reply(context.ticket, response)])


def _initialised(producer: ProducerIdAndEpoch) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=Code.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )


def _ended(code: Code) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def _pairs(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions
    ]


def _results_by_topic(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, Code], otherwise: Code
) -> list[AddPartitionsToTxnTopicResult]:
    """The code of each partition asked for, in the order of the request."""
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
