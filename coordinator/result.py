"""What every coordinator gives back, and how it sees the rest of the broker.

A coordinator decides and never writes. `on_<event>` returns a Result; its host
(broker/group_runtime.py, transaction_end.py) appends the records to the internal topic, lets each
hold by `replay` (or by `apply`, where what it says is at hand), and, once the records are as
durable as the configuration asks, releases the replies and carries out the effects. If the append
fails on I/O the broker stops, so nothing is ever rolled back.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from barnabas.coordinator.transactions.transaction_state import (
    NOBODY,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.topic_partition import TopicPartition

RECORDS_PER_BATCH = 1_000
_EIGHT_UNITS = struct.Struct(">8H")
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(4, 9))

PartitionExists = Callable[[str, int], bool]
# (topic, partition): the offset after its last record; None where that cannot be said
LogEnd = Callable[[str, int], int | None]
# (topic, partition, leader epoch): the end of the epoch, as OffsetForLeaderEpoch answers
EpochEnd = Callable[[str, int, int], tuple[int, int]]


class CoordinatorRecord(NamedTuple):
    """One record for the internal topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Reply(NamedTuple):
    """The answer, not encoded yet, to the request with that ticket."""

    ticket: int
    response: Message


NO_TICKET = -1


class WaitingEndTxn(NamedTuple):
    """The EndTxn that is answered when its transaction has ended.

    producer: whom its producer goes on as in version 2; NOBODY in version 1: the epoch stays.
    """

    ticket: int
    producer: ProducerIdAndEpoch = NOBODY


class WaitingInit(NamedTuple):
    """The InitProducerId that is carried out when the transaction that it aborts is complete.

    requester: who the producer says it is. takes_new_id: it gets another producer id in any case.
    """

    ticket: int
    requester: ProducerIdAndEpoch
    timeout_ms: int
    takes_new_id: bool = False


class Decision(NamedTuple):
    """Effect: the transaction commits or aborts. Its records and markers are still to be written.

    The host (broker/transactions/transaction_end.py) ends it, and calls
    `TransactionCoordinator.complete` when the markers are written.

    coordinator_epoch: the markers bear it. partitions: those that get a marker, in the order in
    which they were added. decided_ms: the time that orders the decision, which no other decision of
    this transactional id has; its markers' base timestamp. prepare: what the Prepare record says.
    log_partition: of __transaction_state. waiting: who is answered at the end.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    decided_ms: int
    prepare: TransactionMetadata
    log_partition: int
    waiting: WaitingEndTxn | WaitingInit | None = None


class SessionAtEnd(NamedTuple):
    """Effect: a new session begins when the transaction that is ending is complete."""

    transactional_id: str
    init: WaitingInit


@dataclass(slots=True)
class Result:
    """All that follows from one event.

    records: for the internal-topic partition `partition`, appended as one batch; empty where
    nothing is to be kept. transactions: what each of the records says, where they are of
    __transaction_state: they are not read again. producer: (producer_id, producer_epoch) where the
    batch is transactional (a TxnOffsetCommit), else None. replies: released once the records are
    committed (at once where there are none). effects: carried out after that, in order. more:
    further results, for other partitions, handled in order after this one (a tick touches many).
    durable: the replies and effects wait until the records are on the disk, if decisions are to be
    durable at all.
    """

    partition: int = -1
    records: list[CoordinatorRecord] = field(default_factory=list)
    transactions: list[TransactionMetadata] = field(default_factory=list)
    producer: tuple[int, int] | None = None
    replies: list[Reply] = field(default_factory=list)
    effects: list[Decision | SessionAtEnd] = field(default_factory=list)
    more: list[Result] = field(default_factory=list)
    durable: bool = False

    def take_response(self) -> Message:
        """Take the one answer out, for a host that gives it with others."""
        last = self.more[-1] if self.more else self
        (reply,) = last.replies
        last.replies = []
        return reply.response


class ResultsByPartition:
    """The Results of one event that touches several partitions, in batches of bounded size."""

    def __init__(self) -> None:
        self._current: dict[int, Result] = {}
        self._all: list[Result] = []

    def of(self, partition: int) -> Result:
        """The Result to add to for the partition: a new one where the last is full."""
        result = self._current.get(partition)
        if result is None or len(result.records) >= RECORDS_PER_BATCH:
            result = self._current[partition] = Result(partition=partition)
            self._all.append(result)
        return result

    def add(self, partition: int, records: Iterable[CoordinatorRecord]) -> None:
        """Add records of one partition, RECORDS_PER_BATCH at a time."""
        remaining = iter(records)
        while batch := list(islice(remaining, RECORDS_PER_BATCH)):
            self.of(partition).records += batch

    def as_one(self, reply: Reply | None = None) -> Result:
        """One Result with the others in `more`, in order; the reply leaves after all of them."""
        results = self._all or [Result()]
        if reply is not None:
            results[-1].replies.append(reply)
        results[0].more = results[1:]
        return results[0]


def java_string_hash(text: str) -> int:
    """Java's String.hashCode, as a signed 32-bit number (over UTF-16 units).

    Eight units at a time: an id may have 32,767 letters, which one by one take 4 ms. Zeros at the
    beginning change nothing.
    """
    units = text.encode("utf-16-be")
    value = 0
    fourth_power, fifth_power, sixth_power, seventh_power, eighth_power = _POWERS
    for first, second, third, fourth, fifth, sixth, seventh, eighth in _EIGHT_UNITS.iter_unpack(
        bytes(-len(units) % _EIGHT_UNITS.size) + units
    ):
        value = (
            value * eighth_power
            + first * seventh_power
            + second * sixth_power
            + third * fifth_power
            + fourth * fourth_power
            + fifth * 29_791
            + sixth * 961
            + seventh * 31
            + eighth
        ) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@functools.lru_cache(maxsize=1024)  # a transaction needs it several times; long keys take 32 MB
def partition_for(key: str, partition_count: int) -> int:
    """The partition of the internal topic that keeps the key.

    Kafka's: Utils.abs of the hash, modulo the count.
    """
    hashed = java_string_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partition_count
