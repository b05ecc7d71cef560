"""The group coordinator as a value: requests and ticks go in, records and responses come out.

The methods `on_*` decide from the hard state, and do not change it. Only `replay`, `apply_offset`
and `replay_marker` change it. The coordinator's parts share one `GroupTable`, which they read:

    this module              replay, the start, deadlines, Heartbeat
    group_kinds.py           the state machines of the four kinds of groups
    membership.py            JoinGroup, SyncGroup, LeaveGroup, ConsumerGroupHeartbeat
    offset_commits.py        OffsetCommit, TxnOffsetCommit
    offset_fetches.py        OffsetFetch
    offset_removal.py        OffsetDelete, retention, offsets of deleted topics
    offset_resets.py         offsets that are beyond the end of their logs at a start
    group_administration.py  ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups
    share_requests.py        ShareGroupHeartbeat, ShareGroupDescribe
    share_offsets.py         AlterShareGroupOffsets, DeleteShareGroupOffsets
    streams_requests.py      StreamsGroupHeartbeat, StreamsGroupDescribe

Hard state: committed and pending offsets, open transactions, the value of each classic group's
record, and the groups of other kinds with their members. Soft state: the members of each classic
group, and the timers; `on_loaded` builds both from the hard state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.coordinator.descriptions import at_once
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.consumer.topic_patterns import InvalidPatternError, TopicPattern
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_administration import GroupAdministration
from barnabas.coordinator.groups.group_kinds import MODERN_KINDS, GroupKinds, GroupsContext
from barnabas.coordinator.groups.group_offsets import (
    CommittedOffset,
    OffsetInRecord,
    OffsetReset,
    OpenTransaction,
)
from barnabas.coordinator.groups.group_records import (
    GroupKey,
    decode_key,
    decode_offset,
    decode_offset_key,
    offset_record,
    split_offset_key,
)
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_table import GroupTable
from barnabas.coordinator.groups.group_timers import (
    RETENTION,
    SESSION,
    TimerKey,
    one_slice,
)
from barnabas.coordinator.groups.group_types import type_of_version
from barnabas.coordinator.groups.membership import Membership
from barnabas.coordinator.groups.offsets import offset_resets
from barnabas.coordinator.groups.offsets.offset_commits import OffsetCommits
from barnabas.coordinator.groups.offsets.offset_fetches import OffsetFetches
from barnabas.coordinator.groups.offsets.offset_removal import OffsetRemoval
from barnabas.coordinator.groups.share.share_group_settings import ShareGroupSettings
from barnabas.coordinator.groups.share.share_offsets import ShareOffsets
from barnabas.coordinator.groups.share.share_requests import ShareRequests
from barnabas.coordinator.groups.streams.streams_group_settings import StreamsGroupSettings
from barnabas.coordinator.groups.streams.streams_requests import StreamsRequests
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.result import (
    RECORDS_PER_BATCH,
    FindEpochEnd,
    FindLogEnd,
    PartitionExists,
    Result,
    ResultsByPartition,
)
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import consumer_group_describe as describing
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

MOST_DECODED = 100_000  # the maximum number of decoded topic partitions that are cached
DUE_AT_ONCE = 100  # the maximum number of deadlines that one tick handles
RETENTION_CHECK_COST = 10  # the cost of checking a group apart from its offsets, in records


class GroupCoordinator:
    """The coordinator of all groups of this broker.

    Requests go to its parts, which are attributes (see above).

    open_transactions: by partition of the internal topic and producer id; only `replay` and
    `replay_marker` change it. timers: all deadlines; only the coordinator and its parts change
    them.

    Takes:  partition_count, the number of partitions of the internal topic; partition_exists, used
            for commits and deletions of offsets; topics, for subscriptions of consumer groups;
            new_member_suffix, a source of unique suffixes of member ids; new_member_id, a source of
            whole ids; overrides, the settings that are set for a group; setting_of, the value of a
            group's setting. Twelve parameters, by name: each is provided by the host.
    """

    def __init__(
        self,
        *,
        partition_count: int,
        settings: GroupSettings,
        partition_exists: PartitionExists,
        new_member_suffix: Callable[[], str],
        wall: WallClock,
        topics: TopicDirectory,
        new_member_id: Callable[[], str],
        consumer_settings: ConsumerGroupSettings,
        share_settings: ShareGroupSettings,
        streams_settings: StreamsGroupSettings,
        overrides: Callable[[str], Mapping[str, int]],
        setting_of: Callable[[str, str], Any],
    ) -> None:
        self._settings, self._wall = settings, wall
        self._partition_exists = partition_exists
        self.timers: Timers[TimerKey] = Timers()
        self._context = GroupsContext(
            settings,
            consumer_settings,
            overrides,
            share_settings,
            streams_settings,
            setting_of,
            topics,
            self.timers,
            wall,
            new_member_suffix,
            new_member_id,
        )
        self._kinds = GroupKinds(self._context)
        self._table = GroupTable(partition_count, self.timers, self._kinds.classic.new)
        self._groups = self._table.by_id
        self.open_transactions: dict[tuple[int, int], OpenTransaction] = {}
        self._topic_partitions: dict[bytes, TopicPartition] = {}  # a cache by encoded key
        table, kinds = self._table, self._kinds
        self.removal = OffsetRemoval(table, settings, partition_exists)
        self.membership = Membership(table, kinds, settings, self.removal)
        self.commits = OffsetCommits(
            table,
            self.removal,
            settings,
            topics,
            wall,
            partition_exists,
            is_preview=consumer_settings.is_preview,
        )
        self.fetches = OffsetFetches(table, topics)
        self.administration = GroupAdministration(table, kinds, settings)
        self.share_requests = ShareRequests(table, kinds.shares, settings)
        self.share_offsets = ShareOffsets(table, topics)
        self.streams_requests = StreamsRequests(table, kinds.streams, settings, self.removal)

    # --- hard state ------------------------------------------------------------------------------

    def replay(
        self,
        partition: int,
        offset: int,
        key: bytes,
        value: bytes | None,
        producer: tuple[int, int] | None,
    ) -> None:
        """Apply the record at `offset`.

        Takes:  producer, (producer_id, producer_epoch) if the record is part of a transaction,
                otherwise None.
        """
        parts = split_offset_key(key)
        if parts is not None:
            group_id, encoded = parts
            topic_partition = self._topic_partitions.get(encoded)
            if topic_partition is None:
                if len(self._topic_partitions) >= MOST_DECODED:
                    self._topic_partitions.clear()
                topic_partition = decode_offset_key(key).topic_partition
                self._topic_partitions[encoded] = topic_partition
            self._replay_offset(partition, offset, group_id, topic_partition, value, producer)
            return
        decoded = decode_key(key)
        if isinstance(decoded, GroupKey):
            self._replay_group(partition, decoded.group_id, value)
        elif (kind := type_of_version(int.from_bytes(key[:2], "big"))) is not None:
            self._replay_modern_group(partition, kind, key, value)

    def _replay_offset(
        self,
        partition: int,
        offset: int,
        group_id: str,
        topic_partition: TopicPartition,
        value: bytes | None,
        producer: tuple[int, int] | None,
    ) -> None:
        if value is None:
            if group_id in self._groups:
                self._groups[group_id].offsets.replay_tombstone(topic_partition)
            return
        committed = decode_offset(value, offset, self._wall)
        self._store_offset(partition, group_id, topic_partition, committed, producer)

    def apply_offset(
        self,
        partition: int,
        offset: int,
        content: OffsetInRecord,
        producer: tuple[int, int] | None,
    ) -> None:
        """Apply the content of the record at `offset`, as `replay` does."""
        group_id, topic_partition, value = content
        fields = (*value, offset, self._wall.since_ms(value[3]))
        # the constructor of a NamedTuple would be one more call in Python
        committed = tuple.__new__(CommittedOffset, fields)
        self._store_offset(partition, group_id, topic_partition, committed, producer)

    def _store_offset(
        self,
        partition: int,
        group_id: str,
        topic_partition: TopicPartition,
        committed: CommittedOffset,
        producer: tuple[int, int] | None,
    ) -> None:
        group = self._table.get_or_create(partition, group_id)
        if producer is None:
            group.offsets.replay_commit(topic_partition, committed)
            return
        producer_id, producer_epoch = producer
        open_transaction = self.open_transactions.setdefault(
            (partition, producer_id), OpenTransaction(producer_epoch)
        )
        open_transaction.producer_epoch = producer_epoch
        open_transaction.group_ids[group_id] = None
        group.offsets.replay_pending(producer_id, topic_partition, committed)

    def _replay_group(self, partition: int, group_id: str, value: bytes | None) -> None:
        if value is not None:
            self._table.get_or_create(partition, group_id).metadata_value = bytes(value)
            return
        group = self._groups.get(group_id)
        if group is None:
            return
        group.metadata_value = None
        self._table.maybe_forget(group)

    def _replay_modern_group(
        self, partition: int, kind: str, encoded_key: bytes, value: bytes | None
    ) -> None:
        reader = MODERN_KINDS[kind]
        key = reader.decode_key(encoded_key)
        if key is None:
            return
        group = self._groups.get(key.group_id)
        modern = None if group is None else group.modern
        if modern is None or modern.kind != kind:
            if value is None:
                return
            group = self._table.get_or_create(partition, key.group_id)
            modern = group.modern = reader.new_group()
        assert group is not None
        modern.replay(key, value)
        if value is None and reader.is_group_key(key):
            self._table.drop_modern(group)

    def replay_marker(
        self, partition: int, offset: int, producer_id: int, producer_epoch: int, commit: bool
    ) -> None:
        """End the producer's transaction on this partition.

        If producer_epoch is above the epoch of the transaction's offsets, the producer was fenced.
        """
        open_transaction = self.open_transactions.pop((partition, producer_id), None)
        if open_transaction is None:
            return
        for group_id in open_transaction.group_ids:
            if group_id in self._groups:
                self._groups[group_id].offsets.replay_end(producer_id, commit)

    def all_groups(self) -> list[Group]:
        """All groups, for readers that do not change them."""
        return list(self._groups.values())

    def group(self, group_id: str) -> Group | None:
        """One group, for readers that do not change it."""
        return self._groups.get(group_id)

    # --- a start ---------------------------------------------------------------------------------

    def on_loaded(self, now_ms: int) -> Result:
        """Build the members of each group from its record, after the log was replayed.

        The sessions of the members and the retention of offsets begin now.
        """
        results = ResultsByPartition()
        interval_ms = self._settings.offsets_retention_check_interval_ms
        for number, group in enumerate(self._groups.values(), 1):
            machine, result = self._kinds.machine_of(group), results.of(group.partition)
            machine.on_loaded(group, result, now_ms)
            # spread the checks over one interval, so that thousands of groups are not due together
            due_ms = now_ms + interval_ms * number // len(self._groups)
            self.timers.schedule((RETENTION, group.group_id, ""), due_ms)
        return results.as_one()

    def on_power_loss(self, now_ms: int) -> Result:
        """Remove all members after a power loss, so that they join again.

        Members may have read beyond the present ends of the logs, and a member restarts at its
        committed offset only if it joins. Few clients compare their position with the leader epochs
        of the log (KIP-320).

        Called after `on_loaded`.
        """
        results = ResultsByPartition()
        for group in self._groups.values():
            if group.state.reads_on and group.has_members:
                result, machine = results.of(group.partition), self._kinds.machine_of(group)
                machine.remove_members(group, list(group.member_ids), result, now_ms)
        return results.as_one()

    def offsets_beyond_log_end(
        self, log_end: FindLogEnd, epoch_end: FindEpochEnd, *, lost_power: bool
    ) -> list[OffsetReset]:
        """The committed offsets beyond the end of their logs, and the offsets that replace them."""
        return offset_resets.offsets_beyond_log_end(
            self._groups.values(), log_end, epoch_end, lost_power=lost_power
        )

    def reset_offsets(self, rows: Iterable[OffsetReset]) -> Result:
        """Commit offsets that replace others. They are durable before a client's first request."""
        results = ResultsByPartition()
        for group_id, topic, partition, committed, offset, leader_epoch in rows:
            changed = committed._replace(offset=offset, leader_epoch=leader_epoch)
            record = offset_record(group_id, topic, partition, changed[:5])
            results.add(self._groups[group_id].partition, [record])
        return results.as_one()

    # --- time ------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """The time at which `on_tick` has something to do next; None if no deadline is set."""
        return self.timers.next_deadline_ms()

    def on_tick(self, now_ms: int) -> Result:
        """Handle due deadlines: expired sessions, rebalances, the retention of offsets.

        One tick handles at most DUE_AT_ONCE deadlines. Requests are served before the next tick
        continues.
        """
        results = ResultsByPartition()
        due = one_slice(self.timers, self.timers.pop_due(now_ms, DUE_AT_ONCE), now_ms)
        # The check comes first: it must not see a group with unreplayed records of this tick.
        self._check_retention(due, results, now_ms)
        due_of_groups: dict[str, list[TimerKey]] = {}
        for key in due:
            kind, group_id, _ = key
            group = self._groups.get(group_id)
            if group is None or kind == RETENTION:
                continue
            if self.timers.deadline_ms(key) is None:  # not rescheduled by a retention check
                due_of_groups.setdefault(group_id, []).append(key)
        for group_id, keys in due_of_groups.items():
            group = self._groups[group_id]
            machine = self._kinds.machine_of(group)
            # Handle all timers of a group in one call, since a second call would not see the
            # unreplayed records of the first.
            machine.on_timers(group, keys, results.of(group.partition), now_ms)
        return results.as_one()

    def _check_retention(
        self, due: Iterable[TimerKey], results: ResultsByPartition, now_ms: int
    ) -> None:
        """Check the retention of groups for which it is due, within the limit of one tick."""
        cost = 0
        for key in due:
            kind, group_id, _ = key
            if kind != RETENTION or group_id not in self._groups:
                continue
            if cost >= RECORDS_PER_BATCH:
                self.timers.schedule(key, now_ms)  # in the next tick, after requests
                continue
            cost += RETENTION_CHECK_COST + len(self._groups[group_id].offsets.committed)
            self.removal.check(self._groups[group_id], results, now_ms)

    # --- members ---------------------------------------------------------------------------------

    def is_being_removed(self, group_id: str, member_id: str) -> bool:
        """Whether the member has no session: its removal is decided, but may not be written yet."""
        return (SESSION, group_id, member_id) not in self.timers

    def on_heartbeat(
        self, request: HeartbeatRequest, context: RequestContext, now_ms: int
    ) -> HeartbeatResponse:
        """Restart a member's session. Gives: REBALANCE_IN_PROGRESS if it has to join again."""
        group = self._groups.get(request.group_id)
        if not request.group_id:
            code = Code.INVALID_GROUP_ID
        elif group is None:
            code = Code.UNKNOWN_MEMBER_ID
        else:
            machine = self._kinds.machine_of(group)
            code = machine.on_classic_heartbeat(group, request, now_ms)
        return HeartbeatResponse(error_code=code)

    def keep_pattern(self, regex: str, made: TopicPattern | InvalidPatternError) -> None:
        """Cache a compiled pattern for the heartbeat that contains it."""
        self._kinds.consumers.patterns.keep(regex, made)

    def on_records_dropped(self, group_id: str) -> None:
        """Make the next heartbeat decide again, since this decision's records were not written."""
        group = self._groups.get(group_id)
        if group is not None:
            group.state.decide_again()

    def describe_consumer_group(
        self, group: Group, most: int | None = None
    ) -> describing.DescribedGroup:
        """A consumer group with its members, or the first `most` of them, for readers that do not
        change it.
        """
        return at_once(self._kinds.consumers.describe(group, most))
