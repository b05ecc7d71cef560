"""The share coordinator, which stores the state of share partitions in `__share_group_state`.

A share partition is a partition that one share group reads. Its state is the start offset, before
which every record is acknowledged or archived, and the delivery state of the ranges of offsets
after it. The broker that leads the partition reads the state once, and then writes each change. The
coordinator of the group initialises and deletes the state.

A change is stored as an update record. After a number of updates, a snapshot with the whole state
follows. Each share partition needs the records from its last snapshot on, so the log is deleted up
to the oldest of these snapshots.

Source: KIP-932, "Share coordinator"; Apache Kafka 4.3.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

from barnabas.coordinator.result import (
    CoordinatorRecord,
    Reply,
    Result,
    ResultsByPartition,
    partition_for,
)
from barnabas.coordinator.share_states import share_messages
from barnabas.coordinator.share_states.share_records import (
    SNAPSHOT_VERSION,
    UNCHANGED,
    UNKNOWN_COUNT,
    SharePartitionKey,
    Snapshot,
    Update,
    coordinator_key,
    decode_key,
    decode_snapshot,
    decode_update,
    snapshot_record,
    tombstone,
    update_record,
)
from barnabas.coordinator.share_states.share_state import (
    ANY_EPOCH,
    MOST_BATCHES,
    NO_CHANGE,
    NO_SUMMARY,
    UNINITIALIZED_OFFSET,
    Change,
    LeaderWrite,
    ShareState,
    Summary,
)
from barnabas.coordinator.share_states.state_batches import StateBatch, combine, complete_count
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from barnabas.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from barnabas.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
)
from barnabas.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.wall_clock import WallClock

DEFAULT_UPDATES_PER_SNAPSHOT = 500
COLD_SNAPSHOT_INTERVAL_MS = 300_000
COLD_AT_ONCE = 500

NO_TOPIC_ID = "the request has no topic id"
NEGATIVE_PARTITION = "the request has a negative partition"
NAMED_TWICE = "the request names the share partition twice"
UNINITIALIZED = "the share partition is not initialized"

# a function that returns whether (topic id, partition) exists
PartitionExists = Callable[[bytes, int], bool]
FindLogEnd = Callable[[bytes, int], int | None]


class ShareCoordinator:
    """The states of all share partitions."""

    def __init__(
        self,
        *,
        partition_count: int,
        partition_exists: PartitionExists,
        wall: WallClock,
        updates_per_snapshot: int = DEFAULT_UPDATES_PER_SNAPSHOT,
        cold_snapshot_interval_ms: int = COLD_SNAPSHOT_INTERVAL_MS,
    ) -> None:
        """Make a coordinator without states.

        Takes:  partition_count, the partition count of the internal topic; updates_per_snapshot,
                the number of updates after which a snapshot follows; cold_snapshot_interval_ms, the
                time after which an unchanged share partition gets a snapshot if others have
                changed, so that older records of the log can be deleted.
        """
        self._partition_count = partition_count
        self._partition_exists, self._wall = partition_exists, wall
        self._updates_per_snapshot = updates_per_snapshot
        self._cold_interval_ms = cold_snapshot_interval_ms
        self._states: dict[SharePartitionKey, ShareState] = {}
        # For each partition of the internal topic: the offset of the last snapshot of each of its
        # share partitions, in the order of the offsets.
        self._snapshots: dict[int, dict[SharePartitionKey, int]] = {}
        self._redundant: dict[int, int] = {}
        # partitions of the internal topic that got records after the last cold snapshots
        self._changed: set[int] = set()
        self._next_cold_ms: int | None = None

    def __len__(self) -> int:
        return len(self._states)

    # --- reading ---------------------------------------------------------------------------------

    def state(self, key: SharePartitionKey) -> ShareState | None:
        """The state of a share partition; None if it is not initialised."""
        return self._states.get(key)

    def keys(self) -> Iterator[SharePartitionKey]:
        """All share partitions that are initialised."""
        return iter(self._states)

    def summary(self, key: SharePartitionKey) -> Summary:
        """Return the start offset and the epochs of a share partition."""
        state = self._states.get(key)
        if state is None:
            return NO_SUMMARY
        return Summary(
            state.start_offset,
            state.delivery_complete_count,
            state.leader_epoch,
            state.state_epoch,
        )

    def partition_of(self, key: SharePartitionKey) -> int:
        """The partition of the internal topic that stores a share partition's records."""
        state = self._states.get(key)
        if state is not None:
            return state.log_partition
        return partition_for(coordinator_key(key), self._partition_count)

    def redundant_offset(self, log_partition: int) -> int:
        """The offset in a partition of the internal topic before which all records are
        redundant.
        """
        return self._redundant.get(log_partition, 0)

    # --- one share partition ---------------------------------------------------------------------
    # These methods only decide. The caller appends the record of the Change that they return, and
    # passes the Change to `apply`, which changes the state.

    def decide_initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int
    ) -> Change:
        """Decide on the initialisation of a state, which may have been initialised before.

        Takes:  start_offset, the first offset to deliver; -1 if the group's setting determines it
                when a member reads for the first time.
        """
        state = self._states.get(key)
        if state is not None and ANY_EPOCH != state_epoch < state.highest_state_epoch:
            return _refused(Code.FENCED_STATE_EPOCH)
        if not self._partition_exists(key.topic_id, key.partition):
            return _refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        wall_ms = now_ms + self._wall.ahead_ms
        snapshot = Snapshot(
            0 if state is None else state.snapshot_epoch + 1,
            state_epoch,
            0,
            start_offset,
            UNKNOWN_COUNT if start_offset == UNINITIALIZED_OFFSET else 0,
            wall_ms,
            wall_ms,
            (),
        )
        return Change(self.partition_of(key), snapshot_record(key, snapshot))

    def decide_read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> Change:
        """Let a leader of the partition read the state. A new leader's epoch fences earlier
        leaders.

        If the change has no error, the caller then gets the state from `state`.

        Takes:  leader_epoch, the leader's epoch; -1 if the reader is not a leader.
        """
        state = self._states.get(key)
        if state is None:
            return _invalid(UNINITIALIZED)
        if ANY_EPOCH != leader_epoch < state.highest_leader_epoch:
            return _refused(Code.FENCED_LEADER_EPOCH)
        if not self._partition_exists(key.topic_id, key.partition):
            return _refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        if leader_epoch in (ANY_EPOCH, state.highest_leader_epoch):
            return NO_CHANGE
        written = LeaderWrite(
            state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, ()
        )
        return self._change(key, state, written, leader_epoch, now_ms)

    def decide_write(self, key: SharePartitionKey, written: LeaderWrite, now_ms: int) -> Change:
        """Decide on a change by the partition's leader."""
        state = self._states.get(key)
        if state is None:
            return _invalid(UNINITIALIZED)
        if ANY_EPOCH != written.leader_epoch < state.highest_leader_epoch:
            return _refused(Code.FENCED_LEADER_EPOCH)
        if ANY_EPOCH != written.state_epoch < state.highest_state_epoch:
            return _refused(Code.FENCED_STATE_EPOCH)
        if not self._partition_exists(key.topic_id, key.partition):
            return _refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        if len(state.batches) + len(written.state_batches) > MOST_BATCHES:
            whole = list(state.batches)
            combine(whole, written.state_batches, max(written.start_offset, state.start_offset))
            if len(whole) > MOST_BATCHES:
                return _invalid(f"the state would have more than {MOST_BATCHES} batches")
        return self._change(key, state, written, state.leader_epoch, now_ms)

    def decide_delete(self, key: SharePartitionKey) -> Change:
        """Decide on the deletion of a state. If it is missing, there is no change and no error."""
        if not self._partition_exists(key.topic_id, key.partition):
            return _refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        state = self._states.get(key)
        return NO_CHANGE if state is None else Change(state.log_partition, tombstone(key))

    def _change(
        self,
        key: SharePartitionKey,
        state: ShareState,
        written: LeaderWrite,
        leader_epoch: int,
        now_ms: int,
    ) -> Change:
        """Return the change with an update record, or with a snapshot after many updates."""
        if state.updates < self._updates_per_snapshot:
            batches: list[StateBatch] = []
            combine(batches, written.state_batches, written.start_offset)
            update = Update(
                state.snapshot_epoch,
                leader_epoch,
                written.start_offset,
                written.delivery_complete_count,
                batches,
            )
            record = update_record(key, update)
            return Change(state.log_partition, record, update=(key, update))
        start_offset = written.start_offset
        if start_offset == UNCHANGED:
            start_offset = state.start_offset
        batches = list(state.batches)
        combine(batches, written.state_batches, start_offset)
        wall_ms = now_ms + self._wall.ahead_ms
        snapshot = Snapshot(
            state.snapshot_epoch + 1,
            state.state_epoch,
            leader_epoch,
            start_offset,
            written.delivery_complete_count,
            wall_ms,
            wall_ms,
            batches,
        )
        return Change(state.log_partition, snapshot_record(key, snapshot))

    # --- requests --------------------------------------------------------------------------------

    def on_initialize(
        self, request: InitializeShareGroupStateRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Answer InitializeShareGroupState."""

        def decide(key: SharePartitionKey, row: Any) -> Change:
            if row.start_offset < UNINITIALIZED_OFFSET:
                return _invalid("the start offset is below -1")
            return self.decide_initialize(key, row.state_epoch, row.start_offset, now_ms)

        return self._each(request, context, decide)

    def on_read(
        self, request: ReadShareGroupStateRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Answer ReadShareGroupState."""

        def decide(key: SharePartitionKey, row: Any) -> Change:
            return self.decide_read(key, row.leader_epoch, now_ms)

        return self._each(request, context, decide)

    def on_write(
        self, request: WriteShareGroupStateRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Answer WriteShareGroupState."""

        def decide(key: SharePartitionKey, row: Any) -> Change:
            batches = [
                StateBatch(
                    one.first_offset, one.last_offset, one.delivery_state, one.delivery_count
                )
                for one in row.state_batches
            ]
            written = LeaderWrite(
                row.state_epoch,
                row.leader_epoch,
                row.start_offset,
                row.delivery_complete_count,
                batches,
            )
            fault = written.fault()
            return self.decide_write(key, written, now_ms) if fault is None else _invalid(fault)

        return self._each(request, context, decide)

    def on_delete(
        self, request: DeleteShareGroupStateRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Answer DeleteShareGroupState."""
        return self._each(request, context, lambda key, _: self.decide_delete(key))

    def on_read_summary(
        self, request: ReadShareGroupStateSummaryRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Answer ReadShareGroupStateSummary."""

        def decide(key: SharePartitionKey, row: Any) -> Change:
            if self._partition_exists(key.topic_id, key.partition):
                return NO_CHANGE
            return _refused(Code.UNKNOWN_TOPIC_OR_PARTITION)

        return self._each(request, context, decide)

    def _each(
        self,
        request: share_messages.StateRequest,
        context: RequestContext,
        decide: Callable[[SharePartitionKey, Any], Change],
    ) -> Result:
        """Decide for each share partition that a request names, and put all decisions into one
        response.

        The response to a request without a group, topics or partitions is empty, as in Apache
        Kafka.
        """
        results = ResultsByPartition()
        seen: set[SharePartitionKey] = set()
        answered: list[tuple[uuid.UUID | None, list[Message]]] = []
        is_whole = bool(request.group_id) and all(topic.partitions for topic in request.topics)
        for topic in request.topics if is_whole else ():
            rows: list[Message] = []
            for row in topic.partitions:
                if topic.topic_id is None or row.partition < 0:
                    text = NO_TOPIC_ID if topic.topic_id is None else NEGATIVE_PARTITION
                    change = _invalid(text)
                    rows.append(share_messages.row(request, row, change, None))
                    continue
                key = SharePartitionKey(request.group_id, topic.topic_id.bytes, row.partition)
                # Refuse a second decision on the same state: it would be made without the record of
                # the first one.
                if key in seen:
                    change = _invalid(NAMED_TWICE)
                else:
                    seen.add(key)
                    change = decide(key, row)
                if change.record is not None:
                    results.of(change.log_partition).records.append(change.record)
                rows.append(share_messages.row(request, row, change, self._states.get(key)))
            answered.append((topic.topic_id, rows))
        return results.as_one(Reply(context.ticket, share_messages.response(request, answered)))

    # --- other events ----------------------------------------------------------------------------

    def on_topics_deleted(self, topic_ids: set[bytes]) -> Result:
        """Delete the states of deleted topics."""
        results = ResultsByPartition()
        for key, state in self._states.items():
            if key.topic_id in topic_ids:
                results.add(state.log_partition, (tombstone(key),))
        return results.as_one()

    def on_records_lost(self, log_end: FindLogEnd, now_ms: int) -> Result:
        """Set states back to the ends of their partitions, after a power loss removed the last
        records.

        Otherwise the new records that get the removed offsets would be considered acknowledged.

        Takes:  log_end, which returns the end of the partition's log for a topic id and an index.
        """
        results = ResultsByPartition()
        for key, state in self._states.items():
            end_offset = log_end(key.topic_id, key.partition)
            if end_offset is None:
                continue
            last_offset = state.batches[-1].last_offset if state.batches else UNINITIALIZED_OFFSET
            if state.start_offset <= end_offset and last_offset < end_offset:
                continue
            kept = [
                run._replace(last_offset=min(run.last_offset, end_offset - 1))
                for run in state.batches
                if run.first_offset < end_offset
            ]
            wall_ms = now_ms + self._wall.ahead_ms
            snapshot = state.snapshot(state.snapshot_epoch + 1)._replace(
                start_offset=min(state.start_offset, end_offset),
                delivery_complete_count=complete_count(kept),
                create_timestamp=wall_ms,
                write_timestamp=wall_ms,
                state_batches=kept,
            )
            results.add(state.log_partition, (snapshot_record(key, snapshot),))
        return results.as_one()

    def next_deadline_ms(self) -> int | None:
        """Return the time when `on_tick` has work next, or None if no state has changed."""
        return self._next_cold_ms if self._changed else None

    def on_tick(self, now_ms: int) -> Result:
        """Make snapshots of share partitions that have not changed for a long time while others
        have.

        A tick makes at most COLD_AT_ONCE snapshots; the next tick continues.
        """
        results = ResultsByPartition()
        if self._next_cold_ms is None or self._next_cold_ms > now_ms:
            return results.as_one()
        wall_ms = now_ms + self._wall.ahead_ms
        left = COLD_AT_ONCE
        for log_partition in sorted(self._changed):
            cold = list(self._cold(log_partition, wall_ms - self._cold_interval_ms, left))
            results.add(log_partition, cold)
            left -= len(cold)
            if not left:
                return results.as_one()
            self._changed.discard(log_partition)
        self._next_cold_ms = now_ms + self._cold_interval_ms
        return results.as_one()

    def _cold(self, log_partition: int, before_ms: int, most: int) -> Iterator[CoordinatorRecord]:
        """Make snapshots of share partitions whose last snapshot is older than `before_ms`.

        Takes:  most, the maximum number of snapshots.
        """
        for key in self._snapshots.get(log_partition, ()):
            state = self._states[key]
            if not most or state.write_timestamp > before_ms:
                return
            most -= 1
            snapshot = state.snapshot(state.snapshot_epoch + 1)
            wall_ms = before_ms + self._cold_interval_ms
            yield snapshot_record(key, snapshot._replace(write_timestamp=wall_ms))

    # --- the records -----------------------------------------------------------------------------

    def replay(self, log_partition: int, offset: int, key: bytes, value: bytes | None) -> None:
        """Apply one record. Only this method and `apply` change the states."""
        decoded = decode_key(key)
        if decoded is None:
            return
        version, at = decoded
        if version == SNAPSHOT_VERSION:
            self._replay_snapshot(log_partition, offset, at, value)
        elif value is not None:
            self._add(log_partition, at, decode_update(value))

    def apply(self, log_partition: int, offset: int, change: Change) -> None:
        """Apply the record of a change as `replay` does, but without decoding an update."""
        if change.update is not None:
            self._add(log_partition, *change.update)
        elif change.record is not None:
            self.replay(log_partition, offset, *change.record)

    def _add(self, log_partition: int, key: SharePartitionKey, update: Update) -> None:
        """Apply an update to the state of a share partition."""
        state = self._states.get(key)
        # The state is missing because its snapshot was deleted from the log. A tombstone of the
        # state follows later in the log.
        if state is None:
            state = self._states[key] = ShareState(log_partition)
        state.add(update)
        self._changed.add(log_partition)

    def _replay_snapshot(
        self, log_partition: int, offset: int, key: SharePartitionKey, value: bytes | None
    ) -> None:
        """Apply a snapshot, or the tombstone of a state. Records before the oldest last snapshot
        are redundant.
        """
        snapshots = self._snapshots.setdefault(log_partition, {})
        snapshots.pop(key, None)
        if value is None:
            deleted = self._states.pop(key, None)
            if deleted is not None:
                deleted.incarnation += 1
            self._changed.add(log_partition)
        else:
            state = self._states.get(key)
            if state is None:
                state = self._states[key] = ShareState(log_partition)
            state.replace(decode_snapshot(value))
            snapshots[key] = offset
            # Only a snapshot with equal timestamps stores a change. A cold snapshot, which stores
            # none, has different timestamps.
            if state.create_timestamp == state.write_timestamp:
                self._changed.add(log_partition)
        self._redundant[log_partition] = next(iter(snapshots.values()), offset)

    def on_loaded(self, now_ms: int) -> None:
        """Schedule the first cold snapshots, after all records were replayed."""
        self._next_cold_ms = now_ms + self._cold_interval_ms


def _invalid(text: str) -> Change:
    return Change(error_code=Code.INVALID_REQUEST, error_message=text)


def _refused(code: Code) -> Change:
    return Change(error_code=code, error_message=share_messages.TEXTS[code])
