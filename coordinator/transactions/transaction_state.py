"""One transactional id: its states, what may follow what, and the values between which it moves.

`TransactionMetadata` is immutable. A transition is a method that gives the next value, or fails an
assertion where LEGAL_PREDECESSORS does not know the step; it decides nothing and writes nothing.
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
"""The timeout of a session of two-phase commit, in requests and in the log (KIP-939): never."""
VERSION_2 = 2
"""Of the transaction protocol, of clients and of the feature transaction.version (KIP-890)."""


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer says it is."""

    producer_id: int
    producer_epoch: int


NOBODY = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
NO_PARTITIONS: Mapping[TopicPartition, None] = MappingProxyType({})


class KeyEnum(Enum):
    """An enum whose members are looked up in tables, many times for each request.

    They hash by what they are. Those of a plain one hash their names, with two calls in Python.
    """

    __hash__ = object.__hash__


class Channel(KeyEnum):
    """What a producer may have a connection of its own for, beside others to the same broker."""

    COORDINATOR = "requests to the transaction coordinator"
    ENDS = "EndTxn, which another process may send, over a connection of its own"
    OFFSETS = "TxnOffsetCommit, to the group's coordinator"
    DATA = "Produce, to the leader of a partition"


class TransactionState(KeyEnum):
    """`value` is the name that requests and answers use; `number` the byte in __transaction_state.

    What each state answers to a request of the current producer id and epoch; strangers are refused
    before the state is looked at (INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED). "Again" stands for
    CONCURRENT_TRANSACTIONS: the client is to try again.
    """

    EMPTY = "Empty"
    """A session, no transaction yet. Init: next epoch. AddPartitions, AddOffsets: Ongoing. EndTxn:
    INVALID_TXN_STATE.
    """

    ONGOING = "Ongoing"
    """Init: fence, abort, and answer then; where it is to keep the transaction: Ongoing, for the
    next epoch. AddPartitions, AddOffsets: one more partition; INVALID_TXN_STATE where the
    transaction was kept. EndTxn: Prepare*, answered as the table of
    broker/transactions/transaction_end.py has it.
    """

    PREPARE_COMMIT = "PrepareCommit"
    """Decided; markers are being written. EndTxn(commit) and all else: again. EndTxn(abort):
    INVALID_TXN_STATE.
    """

    PREPARE_ABORT = "PrepareAbort"
    """Decided; markers are being written. EndTxn(abort) and all else: again. EndTxn(commit):
    INVALID_TXN_STATE.
    """

    COMPLETE_COMMIT = "CompleteCommit"
    """As Empty, except that EndTxn(commit), which must be a retry, is NONE."""

    COMPLETE_ABORT = "CompleteAbort"
    """As Empty, except that EndTxn(abort), which must be a retry, is NONE."""

    DEAD = "Dead"
    """Expired: the tombstone follows at once, so that no request ever meets this state."""

    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """The epoch is raised in order to abort: PrepareAbort follows in the same step, so that no
    request ever meets this state.
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
        # an abort of version 2 where nothing had begun, which gives the next epoch all the same
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


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """Whether a further session needs a new producer id.

    The highest epoch is left to the coordinator, for fencing.
    """
    return producer_epoch >= MAX_PRODUCER_EPOCH - 1


class TransactionMetadata(NamedTuple):
    """What the last record of one transactional id says.

    All times are the wall clock's, as the record has them.

    partitions: those of the open transaction, topic by topic (a mapping without values: it keeps
        its order and is looked up fast).
    start_ms: when the open or last transaction began; NO_TIMESTAMP before the first of a session.
    previous_producer_id, last_producer_epoch: the producer whose InitProducerId (KIP-360), or
        EndTxn of version 2, led to the current epoch, so that the same request again is recognised
        as a retry. Forgotten when a transaction begins, for who begins it has had the answer;
        nobody where no producer requested the epoch.
    epoch_is_a_fence: the epoch was raised to abort over the producer's head, and nobody has been
        given it.
    next_producer_id: in Prepare of version 2, at the end of epochs: the id that Complete gives.
    next_producer_id, next_producer_epoch: of a transaction that an InitProducerId has kept
        (KIP-939): in Ongoing the one producer that may end it, in Prepare the one that Complete
        gives. producer_id and producer_epoch stay those that wrote it.
    client_transaction_version: VERSION_2 where the transaction is of that version, else 0.
    latest_ms: the latest time of all records of this transactional id, where the wall clock was
        more than MOST_LEAD_MS behind it at the last one; else NO_TIMESTAMP, and last_update_ms is
        the latest.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
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
        """The time that orders decisions: no earlier record of this transactional id has a later
        one, and no earlier decision has the same.
        """
        return self.last_update_ms if self.latest_ms < 0 else self.latest_ms

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_two_phase(self) -> bool:
        """Whether its session is one of two-phase commit: no time ends its transactions."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def is_kept(self) -> bool:
        """Whether it is open, and an InitProducerId of a later producer has left it so."""
        return self.next_producer_epoch >= 0 and self.state is TransactionState.ONGOING

    @property
    def kept_from(self) -> ProducerIdAndEpoch | None:
        """Who wrote a transaction that was kept for another, and is to write no more of it.

        That is so until the end is complete: only then have all partitions the markers. None where
        the transaction was not kept.
        """
        if self.next_producer_epoch < 0:
            return None
        is_raised = self.state in PREPARED and (
            self.epoch_is_a_fence or self.client_transaction_version >= VERSION_2
        )
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch - is_raised)

    @property
    def current_producer(self) -> ProducerIdAndEpoch:
        """Whose requests are taken: of a transaction that was kept, the producer that kept it."""
        return self.next_producer if self.is_kept else self.producer

    def is_current(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether that is the producer whose requests are taken, and it was given its epoch."""
        if self.epoch_is_a_fence or self.producer_epoch >= MAX_PRODUCER_EPOCH:
            return False
        if self.next_producer_epoch < 0:  # nobody has kept it: nearly always
            return producer_id == self.producer_id and producer_epoch == self.producer_epoch
        return self.current_producer == (producer_id, producer_epoch)

    @property
    def is_epoch_given_out(self) -> bool:
        """Whether any producer has the current epoch.

        One that fences is the coordinator's own, and so is always the highest.
        """
        return not self.epoch_is_a_fence and self.producer_epoch < MAX_PRODUCER_EPOCH

    @property
    def last_producer(self) -> ProducerIdAndEpoch:
        """Who requested the current epoch; NOBODY where none is to be remembered.

        Apache Kafka keeps the id of before alone, and only over a change of ids.
        """
        if self.last_producer_epoch == NO_PRODUCER_EPOCH:
            if self.previous_producer_id != NO_PRODUCER_ID and self.producer_epoch == 0:
                return ProducerIdAndEpoch(self.previous_producer_id, MAX_PRODUCER_EPOCH - 1)
            return NOBODY
        return ProducerIdAndEpoch(self.previous_producer_id, self.last_producer_epoch)

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """Whom the end that is prepared makes of the producer."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def was_ended_by(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether an end of version 2 by `producer` led to the current epoch.

        A record of Apache Kafka's does not keep who did, and goes by the epoch before.
        """
        if self.client_transaction_version < VERSION_2 or not self.is_epoch_given_out:
            return False
        if self.last_producer != NOBODY:
            return producer == self.last_producer
        return producer == (self.producer_id, self.producer_epoch - 1)

    def _moved(
        self, state: TransactionState, wall_ms: int, step_ms: int = 0, **changes: Any
    ) -> TransactionMetadata:
        """The next state, at the time of the clock.

        Takes: step_ms, by which the time that orders goes on at least: 1 for a decision.
        """
        assert self.state in LEGAL_PREDECESSORS[state], (
            f"{self.transactional_id}: {self.state.value} -> {state.value}"
        )
        least_ms = step_ms + (self.last_update_ms if self.latest_ms < 0 else self.latest_ms)
        if least_ms <= wall_ms:
            return self._replace(
                state=state, last_update_ms=wall_ms, latest_ms=NO_TIMESTAMP, **changes
            )
        if least_ms - wall_ms <= MOST_LEAD_MS:
            return self._replace(
                state=state, last_update_ms=least_ms, latest_ms=NO_TIMESTAMP, **changes
            )
        return self._replace(state=state, last_update_ms=wall_ms, latest_ms=least_ms, **changes)

    def _next_start_ms(self, wall_ms: int) -> int:
        """When a transaction begins: now, and another time than the one before where that is near.

        By it records of two transactions are distinguished.
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
        """Empty, for `producer`, who may be the current one, if the request is a retry.

        requester: who requested it, NOBODY if unnamed.
        """
        assert (
            producer.producer_id != self.producer_id
            or producer.producer_epoch >= self.producer_epoch
        ), "an epoch went backwards"
        return self._moved(
            TransactionState.EMPTY,
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
        """Ongoing, with `added` behind those that it has; begun now if it was not."""
        return self._moved(
            TransactionState.ONGOING,
            wall_ms,
            partitions={**self.partitions, **dict.fromkeys(added)},
            start_ms=self.start_ms
            if self.state is TransactionState.ONGOING
            else self._next_start_ms(wall_ms),
            previous_producer_id=NO_PRODUCER_ID,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            client_transaction_version=client_transaction_version,
        )

    def kept(
        self,
        producer: ProducerIdAndEpoch,
        requester: ProducerIdAndEpoch,
        timeout_ms: int,
        wall_ms: int,
    ) -> TransactionMetadata:
        """The open transaction, which `producer` alone may end from now on (KIP-939).

        requester: who requested it, NOBODY if unnamed.
        """
        return self._moved(
            TransactionState.ONGOING,
            wall_ms,
            next_producer_id=producer.producer_id,
            next_producer_epoch=producer.producer_epoch,
            previous_producer_id=requester.producer_id,
            last_producer_epoch=requester.producer_epoch,
            timeout_ms=timeout_ms,
        )

    def prepared(self, commit: bool, wall_ms: int) -> TransactionMetadata:
        """The decision of the producer itself, in version 1: the producer that kept the
        transaction continues with its epoch.

        The time that orders it (`order_ms`) is later than that of any decision before.
        """
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return self._moved(state, wall_ms, 1, client_transaction_version=0)

    def prepared_with_next_epoch(
        self, commit: bool, wall_ms: int, allocate_producer_id: Callable[[], int]
    ) -> TransactionMetadata:
        """The decision in version 2: of the producer, or of a coordinator of that level.

        The epoch is raised already, and the markers bear it; at the end of epochs the next id is
        chosen. Whoever has the epoch before is the one that may ask again. Where the transaction
        was kept, the markers bear the epoch after the one that wrote it, and whoever kept it goes
        on with the epoch after its own.
        """
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        was_open = self.state is TransactionState.ONGOING
        current = self.current_producer
        next_producer_id, next_producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if is_epoch_exhausted(current.producer_epoch):
            next_producer_id = allocate_producer_id()
            next_producer_epoch = 0 if self.is_kept else NO_PRODUCER_EPOCH
        elif self.is_kept:
            next_producer_id, next_producer_epoch = current[0], current[1] + 1
        return self._moved(
            state,
            wall_ms,
            1,
            producer_epoch=min(self.producer_epoch + 1, MAX_PRODUCER_EPOCH),
            previous_producer_id=current.producer_id,
            last_producer_epoch=current.producer_epoch,
            next_producer_id=next_producer_id,
            next_producer_epoch=next_producer_epoch,
            client_transaction_version=VERSION_2,
            epoch_is_a_fence=False,
            start_ms=self.start_ms if was_open else self._next_start_ms(wall_ms),
        )

    def fenced(self, requester: ProducerIdAndEpoch, wall_ms: int) -> TransactionMetadata:
        """The decision to abort over the producer's head, which raises its epoch and so refuses it.

        The highest epoch stays: no producer has it, so there is none to fence. (Logs of before this
        was seen to may have a transaction that somebody began with it.)

        requester: the producer itself where it requested a new epoch in the midst of its
        transaction, else NOBODY. Of a transaction that was kept, the producer that kept it is
        fenced.
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
        return raised._moved(TransactionState.PREPARE_ABORT, wall_ms)

    def completed(self, wall_ms: int) -> TransactionMetadata:
        """The end, when all markers are written.

        start_ms stays, as what an operator sees of the last transaction.
        """
        commit = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        if self.next_producer_id == NO_PRODUCER_ID:
            return self._moved(
                state, wall_ms, partitions=NO_PARTITIONS, next_producer_epoch=NO_PRODUCER_EPOCH
            )
        producer = self.next_producer
        return self._moved(
            state,
            wall_ms,
            partitions=NO_PARTITIONS,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def expired(self, wall_ms: int) -> TransactionMetadata:
        return self._moved(TransactionState.DEAD, wall_ms)
