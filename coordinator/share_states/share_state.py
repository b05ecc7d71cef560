"""The state of one share partition in the share coordinator, and types of decisions about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.coordinator.result import CoordinatorRecord
from barnabas.coordinator.share_states.share_records import (
    UNCHANGED,
    UNKNOWN_COUNT,
    SharePartitionKey,
    Snapshot,
    Update,
)
from barnabas.coordinator.share_states.state_batches import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    StateBatch,
    combine,
)
from barnabas.protocol.errors import Code

UNINITIALIZED_OFFSET = -1
ANY_EPOCH = -1
STORED_STATES = (AVAILABLE, ACKNOWLEDGED, ARCHIVED)
# As many batches as a share partition can have with the largest share.partition.max.record.locks,
# 10,000: each locked record is a batch of its own, and each has others between it and the next.
MOST_BATCHES = 20_000
# One below the int16 maximum, so that the delivery count still fits after the next delivery.
MOST_DELIVERIES = (1 << 15) - 2


class ShareState:
    """The state of one share partition, built from its records.

    highest_leader_epoch, highest_state_epoch: requests with a lower epoch are rejected. updates:
    the number of update records since the last snapshot. log_partition: the partition of the
    internal topic. incarnation: a number that rises each time the state is initialised again or
    deleted, which invalidates the state that a leader has read.
    """

    __slots__ = (
        "batches",
        "create_timestamp",
        "delivery_complete_count",
        "highest_leader_epoch",
        "highest_state_epoch",
        "incarnation",
        "leader_epoch",
        "log_partition",
        "snapshot_epoch",
        "start_offset",
        "state_epoch",
        "updates",
        "write_timestamp",
    )

    def __init__(self, log_partition: int) -> None:
        self.log_partition = log_partition
        self.snapshot_epoch = self.state_epoch = self.leader_epoch = 0
        self.start_offset = UNINITIALIZED_OFFSET
        self.delivery_complete_count = UNKNOWN_COUNT
        self.create_timestamp = self.write_timestamp = 0
        self.batches: list[StateBatch] = []
        self.updates = self.incarnation = 0
        self.highest_leader_epoch = self.highest_state_epoch = ANY_EPOCH

    def snapshot(self, snapshot_epoch: int) -> Snapshot:
        """The whole state as the value of a snapshot."""
        return Snapshot(
            snapshot_epoch,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            self.create_timestamp,
            self.write_timestamp,
            tuple(self.batches),
        )

    def replace(self, one: Snapshot) -> None:
        """Apply a snapshot."""
        if self._is_initialized_again_by(one):
            self.incarnation += 1
        self.snapshot_epoch, self.state_epoch = one.snapshot_epoch, one.state_epoch
        self.leader_epoch, self.start_offset = one.leader_epoch, one.start_offset
        self.delivery_complete_count = one.delivery_complete_count
        self.create_timestamp, self.write_timestamp = one.create_timestamp, one.write_timestamp
        self.batches = list(one.state_batches)
        self.updates = 0
        self.highest_leader_epoch = max(self.highest_leader_epoch, one.leader_epoch)
        self.highest_state_epoch = max(self.highest_state_epoch, one.state_epoch)

    def _is_initialized_again_by(self, one: Snapshot) -> bool:
        """Whether a snapshot initialises the state again, instead of continuing the state."""
        has_lost_batches = (
            bool(self.batches)
            and not one.state_batches
            and self.batches[-1].last_offset >= one.start_offset
        )
        is_earlier = one.start_offset < self.start_offset
        return one.state_epoch != self.state_epoch or is_earlier or has_lost_batches

    def add(self, one: Update) -> None:
        """Apply an update."""
        if one.leader_epoch != UNCHANGED:
            self.leader_epoch = one.leader_epoch
        if one.start_offset != UNCHANGED:
            self.start_offset = one.start_offset
        self.delivery_complete_count = one.delivery_complete_count
        combine(self.batches, one.state_batches, self.start_offset)
        self.updates += 1
        self.highest_leader_epoch = max(self.highest_leader_epoch, one.leader_epoch)


class LeaderWrite(NamedTuple):
    """A change that a partition's leader writes to a share partition.

    start_offset: -1 if it is unchanged.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: Sequence[StateBatch]

    def fault(self) -> str | None:
        """Return the reason why no share partition can have this state, or None if the state is
        possible.

        Apache Kafka does not check this. It stores an impossible state, and then cannot load it.
        """
        if len(self.state_batches) > MOST_BATCHES:
            return f"{len(self.state_batches)} batches are more than {MOST_BATCHES}"
        for one in self.state_batches:
            if not 0 <= one.first_offset <= one.last_offset:
                return f"the offsets {one.first_offset} to {one.last_offset} are not in order"
            if one.delivery_state not in STORED_STATES:
                return f"the delivery state {one.delivery_state} is not stored"
            if not 0 <= one.delivery_count <= MOST_DELIVERIES:
                return f"the delivery count {one.delivery_count} is out of range"
        if self.start_offset < UNCHANGED or self.delivery_complete_count < UNKNOWN_COUNT:
            return "the start offset or the count of complete deliveries is below -1"
        return None


class Change(NamedTuple):
    """The decision about one share partition: a record for the internal topic, no record, or an
    error.

    log_partition: the partition of the internal topic to which the record is written. update: the
    content of the record, if the record is an update.
    """

    log_partition: int = -1
    record: CoordinatorRecord | None = None
    error_code: int = Code.NONE
    error_message: str | None = None
    update: tuple[SharePartitionKey, Update] | None = None


class Summary(NamedTuple):
    """A share partition's values in DescribeShareGroupOffsets.

    start_offset: -1 if the group has not read yet.
    """

    start_offset: int
    delivery_complete_count: int
    leader_epoch: int
    state_epoch: int


NO_SUMMARY = Summary(UNINITIALIZED_OFFSET, UNKNOWN_COUNT, 0, 0)
NO_CHANGE = Change()
