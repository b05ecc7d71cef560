"""The result of an event at a coordinator, and the types of its callbacks into the broker.

A coordinator decides and never writes. `on_<event>` returns a Result, or only the response if the
request never has records (Heartbeat, OffsetFetch). The host appends the records to the internal
topic and passes each to `replay` (or its decoded content to `apply`). Once the records are as
durable as the configuration requires, it sends the replies and carries out the effects. The hosts
are `GroupRuntime`, `TransactionEnds` and `ShareRuntime`, in the rooms of `broker/` for groups,
transactions and share partitions. If the append fails on I/O the broker stops, so there is no
rollback. A lack of disk space needs no rollback either: a decision on which nothing depends is
dropped, and its request fails with an error; a decision that has changed soft state remains, and
its records are written when there is space.
"""

from __future__ import annotations

import functools
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.transactions.transaction_state import (
    Decision,
    SessionAtEnd,
    TransactionMetadata,
)
from barnabas.protocol.messages.message import Message

if TYPE_CHECKING:
    from barnabas.coordinator.groups.group_offsets import OffsetInRecord

RECORDS_PER_BATCH = 1_000
_EIGHT_UNITS = struct.Struct(">8H")
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(4, 9))

PartitionExists = Callable[[str, int], bool]
# a function that returns the offset after the last record of (topic, partition), or None if it is
# unknown
FindLogEnd = Callable[[str, int], int | None]
# a function that returns the leader epoch and end offset for (topic, partition, leader epoch), as
# OffsetForLeaderEpoch does
FindEpochEnd = Callable[[str, int, int], tuple[int, int]]


class CoordinatorRecord(NamedTuple):
    """One record for the internal topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


EncodedRecord = tuple[bytes, bytes | None]
"""The same as a plain tuple, which each record of a transaction is, since it is made sooner."""


class Reply(NamedTuple):
    """The response, not yet encoded, to the request that has this ticket."""

    ticket: int
    response: Message


BY_THE_GROUP = -1
"""The start offset of a state whose start is decided by the group's `share.auto.offset.reset`."""


class StateRow(NamedTuple):
    """The state of one partition. start_offset: the start offset of a state that is initialised."""

    topic_id: uuid.UUID
    partition: int
    start_offset: int = BY_THE_GROUP


class StateChange(NamedTuple):
    """A change of the states of a share group's partitions: their initialisation or deletion.

    The share coordinator stores the states. After the records of a Result are written, the host
    carries the change out, part by part. When all rows are durable, it passes their error codes to
    `ShareOffsets.on_states_changed`.

    state_epoch: the group's epoch, for an initialisation. reply: the response to send after the
    change. The error codes of the partitions are added to it before.
    """

    group_id: str
    is_deletion: bool
    rows: tuple[StateRow, ...]
    state_epoch: int = 0
    reply: Reply | None = None


class InternalTopic(NamedTuple):
    """An internal topic of the application: a repartition topic, or the changelog of a state store.

    partition_count: 0 if the broker decides. replication_factor: 0 for the broker's default.
    """

    name: str
    partition_count: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


class CreateTopics(NamedTuple):
    """The topics that the host has to create after it has sent the response.

    kept_ms: how long the host remembers why a creation failed.
    """

    topics: tuple[InternalTopic, ...]
    kept_ms: int


class Counted(Enum):
    """The events that Results count. row: a metric's name and its labels, the value.

    A rebalance of a classic group is counted when the leader's assignments arrive. A rebalance of
    any other group is counted when the group's epoch rises.
    """

    CLASSIC_REBALANCE = ("barnabas_group_rebalances_total", "classic")
    CONSUMER_REBALANCE = ("barnabas_group_rebalances_total", "consumer")
    SHARE_REBALANCE = ("barnabas_group_rebalances_total", "share")
    STREAMS_REBALANCE = ("barnabas_group_rebalances_total", "streams")
    OFFSET_COMMIT = ("barnabas_group_offset_commits_total",)
    OFFSET_DELETION = ("barnabas_group_offset_deletions_total",)
    OFFSET_EXPIRATION = ("barnabas_group_offset_expirations_total",)

    def __init__(self, *row: str) -> None:
        self.row = row  # which is read sooner than `value`

    __hash__ = object.__hash__  # a plain Enum hashes the name, with two calls in Python


@dataclass(slots=True, init=False)
class Result:
    """The records, replies and effects of one event.

    records: the records for the partition `partition` of the internal topic, appended as one batch;
    may be empty. transactions, offsets: the decoded content of the records, if they are of
    __transaction_state or of committed offsets, which the host would otherwise decode. producer:
    (producer_id, producer_epoch) if the batch is transactional (a TxnOffsetCommit), otherwise None.
    replies: the replies to send once the records are committed, or immediately if there are none.
    effects: the effects to carry out after that, in order. state_changes: the changes that the
    share coordinator then makes to the states of share partitions. creation: topics that a streams
    group lacks, which are created after the response. counts: the number of each event, added to
    the metrics once the records are appended. more: further results, for other partitions, handled
    in order after this one (a tick may have many). durable: whether the replies and effects wait
    until the records are durable. This has no effect if the configuration requires no durable
    decisions.
    """

    partition: int
    records: list[EncodedRecord]
    transactions: list[TransactionMetadata]
    offsets: list[OffsetInRecord]
    producer: tuple[int, int] | None
    replies: list[Reply]
    effects: list[Decision | SessionAtEnd]
    state_changes: list[StateChange]
    creation: CreateTopics | None
    counts: dict[Counted, int]
    more: list[Result]
    durable: bool

    def __init__(
        self,
        partition: int = -1,
        records: Sequence[EncodedRecord] = (),
        transactions: list[TransactionMetadata] | None = None,
        producer: tuple[int, int] | None = None,
        replies: list[Reply] | None = None,
        effects: list[Decision | SessionAtEnd] | None = None,
        *,
        more: list[Result] | None = None,
        durable: bool = False,
    ) -> None:
        """Make the result of an event; what is left out is empty. (The default factories of a
        dataclass would take three times as long.)
        """
        self.partition, self.producer, self.durable = partition, producer, durable
        self.records = [*records]
        self.transactions = [] if transactions is None else transactions
        self.replies = [] if replies is None else replies
        self.effects = [] if effects is None else effects
        self.more = [] if more is None else more
        self.offsets, self.state_changes, self.creation, self.counts = [], [], None, {}

    def count(self, what: Counted, count: int = 1) -> None:
        """Increase the count of an event."""
        self.counts[what] = self.counts.get(what, 0) + count

    def take_response(self) -> Message:
        """Remove and return the only reply, for a host that combines it with other replies."""
        last = self.more[-1] if self.more else self
        (reply,) = last.replies
        last.replies = []
        return reply.response


class ResultsByPartition:
    """The Results of one event that affects several partitions, in batches of limited size."""

    def __init__(self) -> None:
        self._current: dict[int, Result] = {}
        self._all: list[Result] = []

    def of(self, partition: int) -> Result:
        """Return the Result for further records of the partition: a new one if the last one is
        full.
        """
        result = self._current.get(partition)
        if result is None or len(result.records) >= RECORDS_PER_BATCH:
            result = self._current[partition] = Result(partition=partition)
            self._all.append(result)
        return result

    def add(self, partition: int, records: Iterable[EncodedRecord]) -> None:
        """Add records of one partition, RECORDS_PER_BATCH at a time."""
        remaining = iter(records)
        while batch := list(islice(remaining, RECORDS_PER_BATCH)):
            self.of(partition).records += batch

    def as_one(self, reply: Reply | None = None) -> Result:
        """Return the first Result, with the others in its `more`, in order.

        The reply is sent after the records of all Results.
        """
        results = self._all or [Result()]
        if reply is not None:
            results[-1].replies.append(reply)
        results[0].more = results[1:]
        return results[0]


def java_string_hash(text: str) -> int:
    """Compute Java's String.hashCode over the UTF-16 units of the text, as a signed 32-bit number.

    The loop takes eight units at a time, because an id may have 32,767 characters, which would take
    4 ms one by one. The text is padded with leading zeros, which do not change the hash.
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


# The cache helps since a transaction needs the hash several times. Full of the longest keys, it
# takes 32 MB.
@functools.lru_cache(maxsize=1024)
def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of the internal topic that stores the key.

    Source: Apache Kafka's `partitionFor`, which takes Utils.abs of the key's hash, modulo the
    partition count.
    """
    hashed = java_string_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partition_count
