"""One transactional id: its states, the legal transitions, and the values of its records.

`TransactionMetadata` is immutable. A transition is a method that returns the next value, or fails
an assertion if LEGAL_PREDECESSORS does not allow the step. It makes no decision and writes nothing.
A `Decision` is the effect that the host carries out at the end of a transaction.

Source: KIP-98 (states), KIP-360 (the last epoch), KIP-588 (fencing by timeout), KIP-939 (two-phase
        commit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import MOST_LEAD_MS

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a session of two-phase commit, in requests and in the log (KIP-939): unlimited."""
VERSION_2 = 2
"""The second version of the transaction protocol; level 2 of transaction.version (KIP-890)."""
NO_TICKET = -1
"""The ticket of a `WaitingInit` for which no client waits."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and epoch, as a producer sends them with its requests."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
NO_PARTITIONS: Mapping[TopicPartition, None] = MappingProxyType({})


class KeyEnum(Enum):
    """An enum whose members are keys of tables. Each request looks up many such keys.

    The members are hashed by identity. A plain Enum hashes the name, with two calls in Python.
    """

    __hash__ = object.__hash__


class Channel(KeyEnum):
    """The purposes for which a producer may use separate connections to the same broker."""

    COORDINATOR = "requests to the transaction coordinator"
    ENDS = "EndTxn, which another process may send, over a connection of its own"
    OFFSETS = "TxnOffsetCommit, to the group's coordinator"
    DATA = "Produce, to the leader of a partition"


class TransactionState(KeyEnum):
    """The state of a transactional id.

    `value` is the name in requests and responses, `number` the byte in __transaction_state.

    Each docstring lists the responses to the current producer id and epoch. Requests of other
    producers are rejected before the state is read (INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED).
    "Again" means CONCURRENT_TRANSACTIONS, after which the client tries again.
    """

    EMPTY = "Empty"
    """A session without a transaction. Init: next epoch. AddPartitions, AddOffsets: Ongoing.
    EndTxn: INVALID_TXN_STATE.
    """

    ONGOING = "Ongoing"
    """Init: fences the producer, aborts, answers after the abort; with keepPreparedTxn: Ongoing,
    for the next epoch. AddPartitions, AddOffsets: one more partition; INVALID_TXN_STATE where the
    transaction was kept. EndTxn: Prepare*, answered according to the table of
    broker/transactions/transaction_end.py.
    """

    PREPARE_COMMIT = "PrepareCommit"
    """Decided; markers are being written. All requests: again."""

    PREPARE_ABORT = "PrepareAbort"
    """Decided; markers are being written. All requests: again."""

    COMPLETE_COMMIT = "CompleteCommit"
    """As Empty, but EndTxn(commit), which must be a retry, is answered with NONE."""

    COMPLETE_ABORT = "CompleteAbort"
    """As Empty, but EndTxn(abort), which must be a retry, is answered with NONE."""

    DEAD = "Dead"
    """Expired: the tombstone follows at once, so no request ever finds this state."""

    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """The epoch is raised in order to abort: PrepareAbort follows in the same step, so no request
    ever finds this state.
    """

    @property
    def number(self) -> int:
        return NUMBERS[self]


NUMBERS = {state: number for number, state in enumerate(TransactionState)}
STATE_BY_NUMBER = {number: state for state, number in NUMBERS.items()}
STATE_BY_NAME = {state.value: state for state in TransactionState}

_S = TransactionState
LEGAL_PREDECESSORS: dict[TransactionState, tuple[TransactionState, ...]] = {
    _S.EMPTY: (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT),
    _S.ONGOING: (_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT),
    _S.PREPARE_COMMIT: (_S.ONGOING,),
    _S.PREPARE_ABORT: (
        _S.ONGOING,
        _S.PREPARE_EPOCH_FENCE,
        # An abort of version 2 without an open transaction is legal. It still assigns the next
        # epoch.
        _S.EMPTY,
        _S.COMPLETE_COMMIT,
        _S.COMPLETE_ABORT,
    ),
    _S.COMPLETE_COMMIT: (_S.PREPARE_COMMIT,),
    _S.COMPLETE_ABORT: (_S.PREPARE_ABORT,),
    _S.DEAD: (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT),
    _S.PREPARE_EPOCH_FENCE: (_S.ONGOING,),
}
PREPARED = (_S.PREPARE_COMMIT, _S.PREPARE_ABORT)
AT_REST = (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)


# Each transaction uses these members, and a module's name is found sooner than an Enum's member.
EMPTY, ONGOING, DEAD = _S.EMPTY, _S.ONGOING, _S.DEAD
PREPARE_COMMIT, PREPARE_ABORT = PREPARED
COMPLETE_COMMIT, COMPLETE_ABORT = _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """Whether the next session needs a new producer id.

    The highest epoch is reserved for the coordinator, which uses it to fence producers.
    """
    return producer_epoch >= MAX_PRODUCER_EPOCH - 1


class TransactionMetadata(NamedTuple):
    """The content of the last record of one transactional id.

    All times are wall-clock times, as in the record.

    partitions: the partitions of the open transaction, topic by topic (a mapping without values: it
        keeps its order and has fast lookups). start_ms: the beginning of the open or last
        transaction; NO_TIMESTAMP before the first of a session. previous_producer_id,
        last_producer_epoch: the producer whose InitProducerId (KIP-360), or EndTxn of version 2,
        led to the current epoch, by which a retry of that request is recognised. They are cleared
        when a transaction begins, since the producer must have received the response by then, and
        are NO_PRODUCER if no producer requested the epoch. epoch_is_a_fence: whether the
        coordinator raised the epoch to abort, in which case no producer has the epoch.
        next_producer_id: in a Prepare of version 2 with exhausted epochs, the id after Complete.
        next_producer_id, next_producer_epoch: for a transaction that an InitProducerId has kept
        (KIP-939), in Ongoing the only producer that may end it, in Prepare the producer after
        Complete; producer_id and producer_epoch remain those of the producer that wrote the
        transaction. client_transaction_version: VERSION_2 for a transaction of that version,
        otherwise 0. latest_ms: the latest time of all records of this transactional id, if the
        wall clock was more than MOST_LEAD_MS behind it at the last record; otherwise NO_TIMESTAMP,
        and last_update_ms is the latest time.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: Mapping[TopicPartition, None] = NO_PARTITIONS
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_transaction_version: int = 0
    epoch_is_a_fence: bool = False
    latest_ms: int = NO_TIMESTAMP

    @property
    def order_ms(self) -> int:
        """The time by which decisions are ordered.

        No earlier record of this transactional id has a later time, and no earlier decision has the
        same time.
        """
        return self.last_update_ms if self.latest_ms < 0 else self.latest_ms

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_two_phase(self) -> bool:
        """Whether the session uses two-phase commit, in which transactions have no timeout."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def is_kept(self) -> bool:
        """Whether the transaction is open because the InitProducerId of a later producer kept it
        open.
        """
        return self.next_producer_epoch >= 0 and self.state is ONGOING

    @property
    def kept_from(self) -> ProducerIdAndEpoch | None:
        """The producer that wrote a kept transaction and must no longer write to it.

        This applies until the end is complete and all partitions have their markers. None if the
        transaction was not kept.
        """
        if self.next_producer_epoch < 0:
            return None
        is_raised = self.state in PREPARED and (
            self.epoch_is_a_fence or self.client_transaction_version >= VERSION_2
        )
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch - is_raised)

    @property
    def current_producer(self) -> ProducerIdAndEpoch:
        """The producer whose requests are accepted. For a kept transaction, it is the producer that
        kept it.
        """
        return self.next_producer if self.is_kept else self.producer

    @property
    def is_epoch_given_out(self) -> bool:
        """Whether a producer has received the current epoch.

        A fencing epoch belongs to the coordinator. The highest epoch always does.
        """
        return not self.epoch_is_a_fence and self.producer_epoch < MAX_PRODUCER_EPOCH

    @property
    def last_producer(self) -> ProducerIdAndEpoch:
        """The producer that requested the current epoch, or NO_PRODUCER if it is not known.

        Apache Kafka stores only the previous id, and only if the id has changed.
        """
        if self.last_producer_epoch == NO_PRODUCER_EPOCH:
            if self.previous_producer_id != NO_PRODUCER_ID and self.producer_epoch == 0:
                return ProducerIdAndEpoch(self.previous_producer_id, MAX_PRODUCER_EPOCH - 1)
            return NO_PRODUCER
        return ProducerIdAndEpoch(self.previous_producer_id, self.last_producer_epoch)

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """The producer id and epoch after the prepared end."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))
        return tuple.__new__(ProducerIdAndEpoch, self[_PRODUCER_ID : _PRODUCER_EPOCH + 1])

    def was_ended_by(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether an end of version 2 by `producer` led to the current epoch.

        A record that Apache Kafka wrote does not contain that producer. In this case the previous
        epoch is compared.
        """
        if self.client_transaction_version < VERSION_2 or not self.is_epoch_given_out:
            return False
        if self.last_producer != NO_PRODUCER:
            return producer == self.last_producer
        return producer == (self.producer_id, self.producer_epoch - 1)

    def _moved(
        self, state: TransactionState, wall_ms: int, step_ms: int = 0, **changes: Any
    ) -> TransactionMetadata:
        """Return the value with the next state and the current time, and other changed fields."""
        fields = self._fields_in(state, wall_ms, step_ms)
        for name, value in changes.items():
            fields[_AT[name]] = value
        return tuple.__new__(TransactionMetadata, fields)

    def _fields_in(self, state: TransactionState, wall_ms: int, step_ms: int = 0) -> list[Any]:
        """The fields of the value with the next state and the current time.

        The transitions of each transaction change them by their position. `_replace` would take ten
        times as long.

        Takes:  step_ms, the minimum increase of `order_ms`, which is 1 for a decision.
        """
        fields: list[Any] = [*self]
        assert fields[_STATE] in LEGAL_PREDECESSORS[state], (
            f"{self.transactional_id}: {self.state.value} -> {state.value}"
        )
        # the same as `order_ms`, but without the cost of a call
        least_ms = step_ms + fields[_LAST_UPDATE_MS if fields[_LATEST_MS] < 0 else _LATEST_MS]
        last_update_ms, latest_ms = wall_ms, NO_TIMESTAMP
        if least_ms > wall_ms:
            # The wall clock was set back. A record's time may be up to MOST_LEAD_MS ahead of it. If
            # that is not enough, the record has the true time, and the later time in `latest_ms`.
            if least_ms - wall_ms <= MOST_LEAD_MS:
                last_update_ms = least_ms
            else:
                latest_ms = least_ms
        fields[_STATE] = state
        fields[_LAST_UPDATE_MS] = last_update_ms
        fields[_LATEST_MS] = latest_ms
        return fields

    def _next_start_ms(self, wall_ms: int) -> int:
        """Return the time at which the transaction begins.

        It is the current time, or 1 ms after the previous transaction began if that is later. The
        records of two transactions are distinguished by this time.
        """
        next_ms = self.start_ms + 1
        return next_ms if 0 < next_ms - wall_ms <= MOST_LEAD_MS else wall_ms

    def in_new_session(
        self,
        producer: ProducerIdAndEpoch,
        requester: ProducerIdAndEpoch,
        timeout_ms: int,
        wall_ms: int,
    ) -> TransactionMetadata:
        """Return the value in the state Empty, for `producer`. In a retry this is the current
        producer.

        Takes:  requester, the producer that requested the session; NO_PRODUCER if the request names
                none.
        """
        assert (
            producer.producer_id != self.producer_id
            or producer.producer_epoch >= self.producer_epoch
        ), "an epoch went backwards"
        return self._moved(
            EMPTY,
            wall_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            previous_producer_id=requester.producer_id,
            last_producer_epoch=requester.producer_epoch,
            timeout_ms=timeout_ms,
            epoch_is_a_fence=False,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            client_transaction_version=0,
        )

    def with_partitions(
        self, added: Iterable[TopicPartition], wall_ms: int, client_transaction_version: int = 0
    ) -> TransactionMetadata:
        """Return the value in the state Ongoing, with the `added` partitions after the others.

        If the transaction was not open, it begins now.
        """
        fields = self._fields_in(ONGOING, wall_ms)
        if self.state is ONGOING:
            fields[_PARTITIONS] = {**fields[_PARTITIONS], **dict.fromkeys(added)}
        else:
            fields[_PARTITIONS] = dict.fromkeys(added)
            fields[_START_MS] = self._next_start_ms(wall_ms)
        fields[_PREVIOUS_PRODUCER_ID] = NO_PRODUCER_ID
        fields[_LAST_PRODUCER_EPOCH] = NO_PRODUCER_EPOCH
        fields[_CLIENT_TRANSACTION_VERSION] = client_transaction_version
        return tuple.__new__(TransactionMetadata, fields)

    def kept(
        self,
        producer: ProducerIdAndEpoch,
        requester: ProducerIdAndEpoch,
        timeout_ms: int,
        wall_ms: int,
    ) -> TransactionMetadata:
        """Return the open transaction as kept: only `producer` may end it from now on (KIP-939).

        Takes:  requester, the producer that requested this; NO_PRODUCER if the request names none.
        """
        return self._moved(
            ONGOING,
            wall_ms,
            next_producer_id=producer.producer_id,
            next_producer_epoch=producer.producer_epoch,
            previous_producer_id=requester.producer_id,
            last_producer_epoch=requester.producer_epoch,
            timeout_ms=timeout_ms,
        )

    def prepared(self, commit: bool, wall_ms: int) -> TransactionMetadata:
        """Return the Prepare value of version 1 for a decision by the producer itself.

        A producer that kept the transaction keeps its epoch afterwards. The `order_ms` is later
        than that of any earlier decision.
        """
        state = PREPARE_COMMIT if commit else PREPARE_ABORT
        fields = self._fields_in(state, wall_ms, 1)
        fields[_CLIENT_TRANSACTION_VERSION] = 0
        return tuple.__new__(TransactionMetadata, fields)

    def prepared_with_next_epoch(
        self, commit: bool, wall_ms: int, allocate_producer_id: Callable[[], int]
    ) -> TransactionMetadata:
        """Return the Prepare value of version 2 for a decision by the producer, or by a coordinator
        whose transaction.version is at level 2.

        The decision raises the epoch, which the markers contain. If the epochs are exhausted, it
        chooses the next producer id. The producer with the previous epoch may repeat its request.
        For a kept transaction the markers contain the epoch after that of its writer, and the
        producer that kept it continues with its own next epoch.
        """
        state = PREPARE_COMMIT if commit else PREPARE_ABORT
        was_open = self.state is ONGOING
        is_kept = was_open and self.next_producer_epoch >= 0  # `is_kept`, without a call
        producer_id, producer_epoch = self.next_producer if is_kept else self[1:3]
        next_producer_id, next_producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if is_epoch_exhausted(producer_epoch):
            next_producer_id = allocate_producer_id()
            next_producer_epoch = 0 if is_kept else NO_PRODUCER_EPOCH
        elif is_kept:
            next_producer_id, next_producer_epoch = producer_id, producer_epoch + 1
        fields = self._fields_in(state, wall_ms, 1)
        fields[_PRODUCER_EPOCH] = min(fields[_PRODUCER_EPOCH] + 1, MAX_PRODUCER_EPOCH)
        fields[_PREVIOUS_PRODUCER_ID] = producer_id
        fields[_LAST_PRODUCER_EPOCH] = producer_epoch
        fields[_NEXT_PRODUCER_ID] = next_producer_id
        fields[_NEXT_PRODUCER_EPOCH] = next_producer_epoch
        fields[_CLIENT_TRANSACTION_VERSION] = VERSION_2
        fields[_EPOCH_IS_A_FENCE] = False
        if not was_open:
            fields[_START_MS] = self._next_start_ms(wall_ms)
        return tuple.__new__(TransactionMetadata, fields)

    def fenced(self, requester: ProducerIdAndEpoch, wall_ms: int) -> TransactionMetadata:
        """Return the coordinator's decision to abort, which fences the producer by raising its
        epoch.

        The highest epoch is not raised: no producer has it, so none has to be fenced. (Old logs may
        contain a transaction that a producer began with the highest epoch.) In a kept transaction,
        the producer that kept it is fenced.

        Takes:  requester, the producer itself if it requested a new epoch during its transaction,
                otherwise NO_PRODUCER.
        """
        next_epoch = self.next_producer_epoch
        raised = self._moved(
            TransactionState.PREPARE_EPOCH_FENCE,
            wall_ms,
            1,
            producer_epoch=min(self.producer_epoch + 1, MAX_PRODUCER_EPOCH),
            epoch_is_a_fence=True,
            previous_producer_id=requester.producer_id,
            last_producer_epoch=requester.producer_epoch,
            next_producer_epoch=min(next_epoch + 1, MAX_PRODUCER_EPOCH)
            if self.is_kept
            else next_epoch,
        )
        return raised._moved(PREPARE_ABORT, wall_ms)

    def completed(self, wall_ms: int) -> TransactionMetadata:
        """Return the value of the Complete record, to be written once all markers are written.

        It keeps start_ms, from which operators see when the last transaction began.
        """
        commit = self.state is PREPARE_COMMIT
        state = COMPLETE_COMMIT if commit else COMPLETE_ABORT
        fields = self._fields_in(state, wall_ms)
        fields[_PARTITIONS] = NO_PARTITIONS
        if fields[_NEXT_PRODUCER_ID] != NO_PRODUCER_ID:
            fields[_PRODUCER_ID], fields[_PRODUCER_EPOCH] = self.next_producer
            fields[_NEXT_PRODUCER_ID] = NO_PRODUCER_ID
        fields[_NEXT_PRODUCER_EPOCH] = NO_PRODUCER_EPOCH
        return tuple.__new__(TransactionMetadata, fields)

    def expired(self, wall_ms: int) -> TransactionMetadata:
        return self._moved(DEAD, wall_ms)

    def decision(
        self, coordinator_epoch: int, waiting: WaitingEndTxn | WaitingInit | None = None
    ) -> Decision:
        """Return the effect of a Prepare record. The host then writes the markers and ends the
        transaction.
        """
        transactional_id, producer_id, producer_epoch, _, state = self[:5]
        assert state in PREPARED
        fields = (
            transactional_id,
            producer_id,
            producer_epoch,
            coordinator_epoch,
            state is PREPARE_COMMIT,
            tuple(self.partitions),
            # the same as `order_ms`, but without the cost of a call
            self.last_update_ms if self.latest_ms < 0 else self.latest_ms,
            self,
            waiting,
        )
        return tuple.__new__(Decision, fields)


_AT = {name: at for at, name in enumerate(TransactionMetadata._fields)}
(
    _TRANSACTIONAL_ID,
    _PRODUCER_ID,
    _PRODUCER_EPOCH,
    _TIMEOUT_MS,
    _STATE,
    _PARTITIONS,
    _LAST_UPDATE_MS,
    _START_MS,
    _PREVIOUS_PRODUCER_ID,
    _LAST_PRODUCER_EPOCH,
    _NEXT_PRODUCER_ID,
    _NEXT_PRODUCER_EPOCH,
    _CLIENT_TRANSACTION_VERSION,
    _EPOCH_IS_A_FENCE,
    _LATEST_MS,
) = range(len(TransactionMetadata._fields))


# --- effects for the host ------------------------------------------------------------------------


class WaitingEndTxn(NamedTuple):
    """An EndTxn that receives its response while its transaction is ending.

    The table in broker/transactions/transaction_end.py defines the step at which it is sent.

    producer_id, producer_epoch: the next id and epoch of the producer, for the response in version
    2.
    """

    ticket: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class WaitingInit(NamedTuple):
    """An InitProducerId that waits until the transaction that it aborts is complete.

    requester: the producer id and epoch in the request. takes_new_id: whether the requester gets a
    new producer id in any case.
    """

    ticket: int
    requester: ProducerIdAndEpoch
    timeout_ms: int
    takes_new_id: bool = False


class Decision(NamedTuple):
    """An effect: a transaction commits or aborts. Its records and markers have to be written.

    The host (broker/transactions/transaction_end.py) ends the transaction, and calls
    `TransactionCoordinator.complete` when the markers are written.

    coordinator_epoch: the epoch that the markers contain. partitions: the partitions that get a
    marker, in the order in which they were added. decided_ms: the time by which decisions are
    ordered, which no other decision of this transactional id has; it is the base timestamp of the
    markers. prepare: the content of the Prepare record. waiting: the request that receives its
    response at the end.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    decided_ms: int
    prepare: TransactionMetadata
    waiting: WaitingEndTxn | WaitingInit | None = None


class SessionAtEnd(NamedTuple):
    """An effect: a new session begins when the ending transaction is complete."""

    transactional_id: str
    init: WaitingInit
