"""The group coordinator: requests about groups and their offsets, and the records of both.

Hard state, written by `replay*` alone: committed and pending offsets, open transactions, and the
value of each group's record. Soft state: the members of each classic group (classic_group.py) and
the timers; `on_loaded` builds both from the hard state. A group is in `_groups` as soon as anything
is to be kept of it. A group of which nothing is left goes with its retention check.

A group is a classic one or one of the consumer protocol (KIP-848), whose members are hard state
altogether (consumer_group.py). Requests go to the one or the other: `ClassicGroup`, and
`ConsumerGroups` with `ClassicMembers` for those of its members that speak the classic protocol.

A Result names the group's partition even where it holds no record, so that its host can keep the
order of answers within a partition.
"""

from __future__ import annotations

import functools
import types
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from barnabas.coordinator.groups.classic.classic_group import (
    DEAD,
    MAX_PROTOCOLS,
    ClassicGroup,
    GroupSettings,
    JoinRequest,
    ParkedRequest,
    join_error_response,
    sync_response,
)
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.group import Group, PartitionCodes
from barnabas.coordinator.groups.group_records import (
    GroupKey,
    GroupMetadataValue,
    decode_group,
    decode_key,
    decode_offset,
    decode_topic_partition,
    is_offset_key,
    offset_record,
    offset_tombstone,
    split_offset_key,
)
from barnabas.coordinator.groups.group_timers import JOIN, RETENTION, SESSION, SYNC, TimerKey
from barnabas.coordinator.groups.offsets import (
    LAST_TIMESTAMP,
    NO_TIMESTAMP,
    CommitCheck,
    CommittedOffset,
    GroupOffsets,
    OffsetReset,
    OpenTransaction,
)
from barnabas.coordinator.result import (
    RECORDS_PER_BATCH,
    CoordinatorRecord,
    EpochEnd,
    LogEnd,
    PartitionExists,
    Reply,
    Result,
    ResultsByPartition,
    partition_for,
)
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

if TYPE_CHECKING:
    from barnabas.coordinator.groups.classic.classic_members import ClassicMembers
    from barnabas.coordinator.groups.consumer.consumer_group import TopicDirectory
    from barnabas.coordinator.groups.consumer.consumer_groups import (
        ConsumerGroups,
        ConsumerGroupsContext,
    )
    from barnabas.coordinator.groups.consumer.topic_patterns import (
        InvalidPatternError,
        TopicPattern,
    )
    from barnabas.coordinator.groups.group_conversion import GroupConversion
    from barnabas.protocol.messages import consumer_group_describe as describing
    from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
    from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
    from barnabas.protocol.messages.heartbeat import HeartbeatRequest
    from barnabas.protocol.messages.join_group import JoinGroupRequest
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest
    from barnabas.protocol.messages.list_groups import ListGroupsRequest
    from barnabas.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest
    from barnabas.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )
    from barnabas.protocol.messages.sync_group import SyncGroupRequest
    from barnabas.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )

CLASSIC_TYPE, CONSUMER_TYPE = "classic", "consumer"
NO_OVERRIDES: Mapping[str, int] = {}
MOST_DECODED = 100_000  # topic partitions of keys that are kept decoded
ROWS_AT_ONCE = 500  # of a list, which are looked at in a slice
DUE_AT_ONCE = 100  # deadlines that are handled by one tick
RETENTION_CHECK_COST = 10  # of looking at a group, in records, beside its offsets
OFFSETS_CHECKED_PER_RECORD = 16  # looking at so many offsets costs as much as removing one
FIRST_FETCH_VERSION_WITH_GROUPS = 8
FIRST_OFFSETS_VERSION_WITH_TOPIC_IDS = 10  # of OffsetCommit and OffsetFetch
FIRST_DESCRIBE_VERSION_WITH_ERRORS = 6
FIRST_SYNC_VERSION_WITH_PROTOCOL = 5
LAST_LEAVE_VERSION_WITH_ONE_MEMBER = 2


# with the name of its topic
RequestedOffset = tuple[str, "OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition"]

_TopicOfId = TypeVar("_TopicOfId", "OffsetCommitRequestTopic", "OffsetFetchRequestTopics")


class FetchedOffset(NamedTuple):
    """One partition of an OffsetFetch answer, whose class depends on the version of the request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: Code


class GroupCoordinator:
    """The coordinator of all groups of this broker.

    Takes:  partition_count, of the internal topic; partition_exists, for commits and deletions of
            offsets; topics, for what consumer groups want; new_member_suffix, a source of unique
            texts for member ids, and new_member_id, of whole ids; overrides, the settings that a
            consumer group has of its own. Nine parameters, by name: each is one thing of the host.
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
        overrides: Callable[[str], Mapping[str, int]] = lambda group_id: NO_OVERRIDES,
    ) -> None:
        self._wall = wall
        self._partition_count, self._settings = partition_count, settings
        self._partition_exists, self._new_member_suffix = partition_exists, new_member_suffix
        self._groups: dict[str, Group] = {}
        self._open_transactions: dict[tuple[int, int], OpenTransaction] = {}
        self._topic_partitions: dict[bytes, TopicPartition] = {}  # by what keys of offsets have
        self._timers: Timers[TimerKey] = Timers()
        self._topics, self._new_member_id, self._overrides = topics, new_member_id, overrides
        self._consumer_settings = consumer_settings

    # What consumer groups need is loaded when the first of them is met: all of it would be a tenth
    # of the broker's start.

    @functools.cached_property
    def _consumer_records(self) -> types.ModuleType:
        from barnabas.coordinator.groups.consumer import consumer_group_records

        return consumer_group_records

    @functools.cached_property
    def _consumer_context(self) -> ConsumerGroupsContext:
        from barnabas.coordinator.groups.consumer.consumer_groups import ConsumerGroupsContext

        return ConsumerGroupsContext(
            self._consumer_settings,
            self._overrides,
            self._topics,
            self._timers,
            self._wall,
            self._new_member_id,
        )

    @functools.cached_property
    def _conversion(self) -> GroupConversion:
        from barnabas.coordinator.groups.group_conversion import ClassicGroups, GroupConversion

        return GroupConversion(
            self._consumer_settings,
            self._settings,
            self._topics,
            self._timers,
            self._wall,
            ClassicGroups(self._new_classic_group, self._load_classic_group),
        )

    @functools.cached_property
    def _consumers(self) -> ConsumerGroups:
        from barnabas.coordinator.groups.consumer.consumer_groups import ConsumerGroups

        return ConsumerGroups(self._consumer_context, self._conversion)

    @functools.cached_property
    def _classic_members(self) -> ClassicMembers:
        from barnabas.coordinator.groups.classic.classic_members import ClassicMembers

        return ClassicMembers(self._consumer_context, self._conversion, self._consumers)

    def _new_classic_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(
            group_id, self._settings, self._timers, self._new_member_suffix, self._wall
        )

    def _load_classic_group(
        self, group_id: str, value: GroupMetadataValue, now_ms: int
    ) -> ClassicGroup:
        return ClassicGroup.load(
            group_id, value, self._settings, self._timers, self._new_member_suffix, self._wall,
            now_ms,
        )  # fmt: skip

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

        Takes:  producer, (producer_id, producer_epoch) where the record is part of its transaction.
        """
        if is_offset_key(key):
            group_id, encoded = split_offset_key(key)
            topic_partition = self._topic_partitions.get(encoded)
            if topic_partition is None:
                if len(self._topic_partitions) >= MOST_DECODED:
                    self._topic_partitions.clear()
                topic_partition = decode_topic_partition(encoded)
                self._topic_partitions[encoded] = topic_partition
            self._replay_offset(partition, offset, group_id, topic_partition, value, producer)
            return
        decoded = decode_key(key)
        if isinstance(decoded, GroupKey):
            self._replay_group(partition, decoded.group_id, value)
        else:
            self._replay_consumer_group(partition, key, value)

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
        group = self._get_or_create_group(partition, group_id)
        committed = decode_offset(value, offset, self._wall)
        if producer is None:
            group.offsets.replay_commit(topic_partition, committed)
            return
        producer_id, producer_epoch = producer
        open_transaction = self._open_transactions.setdefault(
            (partition, producer_id), OpenTransaction(producer_epoch)
        )
        open_transaction.producer_epoch = producer_epoch
        open_transaction.group_ids[group_id] = None
        group.offsets.replay_pending(producer_id, topic_partition, committed)

    def _replay_group(self, partition: int, group_id: str, value: bytes | None) -> None:
        if value is not None:
            self._get_or_create_group(partition, group_id).metadata_value = bytes(value)
            return
        group = self._groups.get(group_id)
        if group is None:
            return
        group.metadata_value = None
        self._maybe_forget(group)

    def _replay_consumer_group(
        self, partition: int, encoded_key: bytes, value: bytes | None
    ) -> None:
        key = self._consumer_records.decode_consumer_key(encoded_key)
        if key is None:  # of a share group, or a streams group
            return
        group = self._groups.get(key.group_id)
        if value is None and (group is None or group.consumer is None):
            return
        group = self._get_or_create_group(partition, key.group_id)
        if group.consumer is None:
            from barnabas.coordinator.groups.consumer.consumer_group import ConsumerGroup

            group.consumer = ConsumerGroup()
        group.consumer.replay(key, value)
        if value is None and key.version == self._consumer_records.GROUP_VERSION:
            group.consumer = None
            if not group.classic.pending_join_members:  # else it is about to become a classic one
                self._maybe_forget(group)

    def _maybe_forget(self, group: Group) -> None:
        """Forget a group of which nothing is left."""
        if group.offsets or group.consumer is not None or group.metadata_value is not None:
            return
        if group.classic.members:  # it has just become a classic one, whose record comes next
            return
        del self._groups[group.group_id]
        # it may be days away: names that are used once and deleted would pile up until then
        self._timers.cancel((RETENTION, group.group_id, ""))

    def replay_marker(
        self, partition: int, offset: int, producer_id: int, producer_epoch: int, commit: bool
    ) -> None:
        """End the producer's transaction on this partition.

        A producer_epoch above that of its offsets means that the producer was fenced.
        """
        open_transaction = self._open_transactions.pop((partition, producer_id), None)
        if open_transaction is None:
            return
        for group_id in open_transaction.group_ids:
            if group_id in self._groups:
                self._groups[group_id].offsets.replay_end(producer_id, commit)

    def all_groups(self) -> list[Group]:
        """The groups, for those who look at them and change nothing."""
        return list(self._groups.values())

    def group(self, group_id: str) -> Group | None:
        """One group, for those who look at it and change nothing."""
        return self._groups.get(group_id)

    def hard_state(self) -> dict[str, Any]:
        """The state that is the same in every coordinator that was fed the same log.

        The age of a commit is no part of it: that depends on the clock.
        """
        groups = {
            group_id: (
                group.partition,
                group.metadata_value,
                group.offsets.hard_state(),
                None if group.consumer is None else group.consumer.hard_state(),
            )
            for group_id, group in self._groups.items()
            if group.has_hard_state
        }
        return {
            "groups": groups,
            "open": {
                key: (transaction.producer_epoch, tuple(transaction.group_ids))
                for key, transaction in self._open_transactions.items()
            },
        }

    def on_loaded(self, now_ms: int) -> Result:
        """Build the members of each group from its record, once the log was replayed.

        Sessions of members begin now, and so does the retention of offsets.
        """
        results = ResultsByPartition()
        interval_ms = self._settings.offsets_retention_check_interval_ms
        for number, group in enumerate(self._groups.values(), 1):
            if group.is_consumer:
                self._consumers.on_loaded(group, now_ms)
            elif group.metadata_value is not None:
                value = decode_group(group.metadata_value)
                group.classic = self._load_classic_group(group.group_id, value, now_ms)
                result = results.of(group.partition)
                if value.members and value.leader_id is None:  # see group_conversion
                    group.classic.rebalance(result, now_ms)
                else:
                    group.classic.maybe_rebalance_oversized(result, now_ms)
            # what expires when is found out then; thousands of groups are not due at one time
            due_ms = now_ms + interval_ms * number // len(self._groups)
            self._timers.schedule((RETENTION, group.group_id, ""), due_ms)
        return results.as_one()

    def on_power_loss(self, now_ms: int) -> Result:
        """Remove all members after a power loss, so that they join again.

        They may have read further than the logs now reach. Only a member that joins goes on from
        its committed offset; few clients compare their position with the log by its leader epochs
        (KIP-320).

        Takes:  after `on_loaded`.
        """
        results = ResultsByPartition()
        for group in self._groups.values():
            if group.is_consumer and group.has_members:
                self._consumers.remove_members(
                    group,
                    list(group.require_consumer().members),
                    results.of(group.partition),
                    now_ms,
                )
            elif group.classic.members:
                group.classic.remove_all_members(results.of(group.partition), now_ms)
        return results.as_one()

    def offsets_beyond_log_end(
        self, log_end: LogEnd, epoch_end: EpochEnd, *, lost_power: bool
    ) -> list[OffsetReset]:
        """Find the committed offsets beyond the end of their logs, and what is to replace them.

        The records between were read, and are lost. The group goes on from where the log was cut:
        every record below that was given to it, none above. So nothing is read twice, also where
        offsets and outputs are committed together, and what is written from now on is not skipped.

        An offset without a leader epoch may be a number of the application's own (a ledger of
        batches, say), in particular where it has metadata. Without metadata it is taken for a
        position in the log after a power loss, which explains that nothing is there.

        Takes:  before anything is appended for clients: later nobody can tell an offset of the lost
                records from one of new records.
        """
        resets = []
        ends: dict[TopicPartition, int | None] = {}
        for group in self._groups.values():
            for key, committed in group.offsets.committed.items():
                if key not in ends:
                    ends[key] = log_end(*key)
                end_offset = ends[key]
                if end_offset is None or committed.offset <= end_offset:
                    continue
                (topic, partition), leader_epoch = key, committed.leader_epoch
                if leader_epoch >= 0:
                    leader_epoch, epoch_end_offset = epoch_end(topic, partition, leader_epoch)
                    if epoch_end_offset >= 0:
                        end_offset = min(end_offset, epoch_end_offset)
                elif committed.metadata or not lost_power:
                    continue
                resets.append(
                    OffsetReset(
                        group.group_id, topic, partition, committed, end_offset, leader_epoch
                    )
                )
        return resets

    def reset_offsets(self, rows: Iterable[OffsetReset]) -> Result:
        """Commit the replaced offsets. To be durable before a request of a client is handled."""
        results = ResultsByPartition()
        for group_id, topic, partition, committed, offset, leader_epoch in rows:
            changed = committed._replace(offset=offset, leader_epoch=leader_epoch)
            results.add(
                self._groups[group_id].partition,
                [offset_record(group_id, topic, partition, changed)],
            )
        return results.as_one()

    def _get_or_create_group(self, partition: int, group_id: str) -> Group:
        """The group of that name; a new one where there was none."""
        group = self._groups.get(group_id)
        if group is None:
            classic = self._new_classic_group(group_id)
            group = self._groups[group_id] = Group(group_id, partition, classic)
        return group

    # --- time ------------------------------------------------------------------------------------

    @property
    def timers(self) -> Timers[TimerKey]:
        """All deadlines; their owner alone changes them."""
        return self._timers

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def on_tick(self, now_ms: int) -> Result:
        """Handle what is due: sessions that are over, rebalances, the retention of offsets.

        At most DUE_AT_ONCE of them: the next tick goes on, and requests have their turn before it.
        """
        results = ResultsByPartition()
        due = self._timers.pop_due(now_ms, DUE_AT_ONCE)
        cost = 0
        # Retention first: it must see no group whose record of this very tick is not replayed yet.
        for key in due:
            kind, group_id, _ = key
            if kind != RETENTION or group_id not in self._groups:
                continue
            if cost >= RECORDS_PER_BATCH:
                self._timers.schedule(key, now_ms)  # others have their turn before it goes on
                continue
            cost += RETENTION_CHECK_COST + len(self._groups[group_id].offsets.committed)
            self._check_retention(self._groups[group_id], results, now_ms)
        due_of_consumers: dict[str, list[TimerKey]] = {}
        for key in due:
            kind, group_id, member_id = key
            group = self._groups.get(group_id)
            if group is None or kind == RETENTION:
                continue
            if self._timers.deadline_ms(key) is not None:
                continue  # what came due before it has moved it
            if group.is_consumer:
                due_of_consumers.setdefault(group_id, []).append(key)
                continue
            result = results.of(group.partition)
            if kind == SESSION:
                group.classic.on_session_timeout(member_id, result, now_ms)
            elif kind == JOIN and not member_id:  # else of a member of what it was before
                group.classic.on_join_timeout(result, now_ms)
            elif kind == SYNC and not member_id:
                group.classic.on_sync_timeout(result, now_ms)
        for group_id, keys in due_of_consumers.items():
            group = self._groups[group_id]
            # together: none of them sees what the records of another change
            self._consumers.on_timers(group, keys, results.of(group.partition), now_ms)
        return results.as_one()

    def _check_retention(self, group: Group, results: ResultsByPartition, now_ms: int) -> None:
        """Remove the offsets whose retention is over, and a group of which nothing is left.

        Source: KIP-211.
        """
        key = (RETENTION, group.group_id, "")
        expiry = group.expiry(self._settings, now_ms, max_count=RECORDS_PER_BATCH)
        if expiry is not None:
            records = [offset_tombstone(group.group_id, *partition) for partition in expiry.expired]
            if expiry.has_more:  # other groups have their turn before it goes on
                results.add(group.partition, records)
                self._timers.schedule(key, now_ms)
                return
            if expiry.is_complete and group.is_unused:
                if not group.has_hard_state:
                    del self._groups[group.group_id]
                    return
                records += group.tombstones()
            results.add(group.partition, records)
        self._timers.schedule(key, group.next_retention_check_ms(self._settings, now_ms))

    def _schedule_retention_check(self, group: Group, now_ms: int) -> None:
        """Check the retention of the group's offsets within one interval from now."""
        key = (RETENTION, group.group_id, "")
        latest_ms = now_ms + self._settings.offsets_retention_check_interval_ms
        deadline_ms = self._timers.deadline_ms(key)
        if deadline_ms is None or deadline_ms > latest_ms:
            self._timers.schedule(key, latest_ms)

    # --- membership ------------------------------------------------------------------------------

    def on_join_group(
        self, request: JoinGroupRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Join a group, or be refused. The answer may come in the Result of a later event.

        Source: KIP-394, KIP-345.
        """
        result = self._result(request.group_id)
        code = self._check_join(request)
        if code is not Code.NONE:
            result.replies.append(
                Reply(
                    context.ticket,
                    join_error_response(code, request.member_id, context.api_version),
                )
            )
            return result
        group = self._get_or_create_group(result.partition, request.group_id)
        self._schedule_retention_check(group, now_ms)
        join = JoinRequest(
            context.ticket,
            context.api_version,
            request.member_id,
            request.group_instance_id,
            context.client_id,
            context.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms
            if context.api_version >= 1
            else request.session_timeout_ms,
            request.protocol_type,
            {protocol.name: protocol.metadata for protocol in request.protocols},
        )
        if group.is_consumer and group.has_members:
            self._classic_members.on_join(group, join, result, now_ms)
            return result
        if group.is_consumer:
            self._conversion.replace_empty(group, result)
        group.classic.on_join(join, result, now_ms)
        return result

    # --- members of the consumer protocol --------------------------------------------------------

    def on_consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Join a consumer group, stay in it, or leave it. Source: KIP-848."""
        from barnabas.coordinator.groups.consumer.consumer_groups import JOINING, heartbeat_error

        group_id = request.group_id
        result = self._result(group_id)
        try:
            self._consumers.check_request(request, context.api_version)
            group = self._groups.get(group_id)
            if request.member_epoch != JOINING and (group is None or not group.is_consumer):
                raise KafkaError(
                    Code.GROUP_ID_NOT_FOUND, f"there is no consumer group '{group_id}': join it."
                )
            if group is None:
                group = Group(group_id, result.partition, self._new_classic_group(group_id))
            if request.member_epoch < JOINING:
                response = self._consumers.on_leave(group, request, result, now_ms)
            else:
                response = self._consumers.on_heartbeat(group, request, context, result, now_ms)
                self._groups[group_id] = group
            self._schedule_retention_check(group, now_ms)
        except KafkaError as error:
            response = heartbeat_error(error)
        result.replies.append(Reply(context.ticket, response))
        return result

    def pattern_to_read(self, request: ConsumerGroupHeartbeatRequest) -> str | None:
        """The pattern of a heartbeat, where it would take long to read it at once."""
        from barnabas.coordinator.groups.consumer.consumer_groups import LONGEST_NAME_BYTES

        regex = request.subscribed_topic_regex
        is_long = bool(regex) and self._consumers.patterns.takes_long(regex or "")
        return regex if is_long and len(regex or "") <= LONGEST_NAME_BYTES else None

    def keep_pattern(self, regex: str, made: TopicPattern | InvalidPatternError) -> None:
        """Have what was read of a pattern for the heartbeat that it came with."""
        self._consumers.patterns.keep(regex, made)

    def on_records_dropped(self, group_id: str) -> None:
        """A heartbeat's records are not written: what they say is decided anew by the next."""
        group = self._groups.get(group_id)
        if group is not None and group.is_consumer:
            group.require_consumer().decide_anew()

    def on_consumer_group_describe(
        self,
        request: describing.ConsumerGroupDescribeRequest,
        context: RequestContext,
        now_ms: int,
    ) -> Result:
        """Describe consumer groups: GROUP_ID_NOT_FOUND for what is none, INVALID_GROUP_ID."""
        from barnabas.protocol.messages import consumer_group_describe as describing

        described = []
        for group_id in dict.fromkeys(request.group_ids):
            row = self._describe_consumer_group(group_id)
            if request.include_authorized_operations and row.error_code == Code.NONE:
                row.authorized_operations = self._settings.group_operations
            described.append(row)
        response = describing.ConsumerGroupDescribeResponse(groups=described)
        return Result(replies=[Reply(context.ticket, response)])

    def describe_consumer_group(self, group: Group) -> describing.DescribedGroup:
        """A group of the consumer protocol with its members, for those who look at it."""
        return self._consumers.describe(group)

    def _describe_consumer_group(self, group_id: str) -> describing.DescribedGroup:
        from barnabas.protocol.messages import consumer_group_describe as describing

        group = self._groups.get(group_id)
        if group is not None and group.is_consumer:
            return self._consumers.describe(group)
        code = Code.GROUP_ID_NOT_FOUND if group_id else Code.INVALID_GROUP_ID
        message = f"there is no consumer group '{group_id}'."
        return describing.DescribedGroup(error_code=code, error_message=message, group_id=group_id)

    # --- membership, continued -------------------------------------------------------------------

    def _check_join(self, request: JoinGroupRequest) -> Code:
        if not request.group_id:
            return Code.INVALID_GROUP_ID
        if (
            not self._settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= self._settings.max_session_timeout_ms
        ):
            return Code.INVALID_SESSION_TIMEOUT
        protocols = request.protocols
        if (
            len(protocols) > MAX_PROTOCOLS
            or sum(len(protocol.metadata) for protocol in protocols)
            > self._settings.max_record_bytes
        ):
            # Apache Kafka says so once the group's record is refused, and keeps it all until then
            return Code.UNKNOWN_SERVER_ERROR
        if request.group_id in self._groups:
            return Code.NONE
        if request.member_id:
            return Code.UNKNOWN_MEMBER_ID
        return (
            Code.NONE
            if request.protocol_type and request.protocols
            else Code.INCONSISTENT_GROUP_PROTOCOL
        )

    def on_sync_group(
        self, request: SyncGroupRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Hand over the leader's assignments, and get the member's own.

        The answer may come in the Result of a later event.
        """
        result = self._result(request.group_id)
        group = self._groups.get(request.group_id)
        needs_protocol = context.api_version >= FIRST_SYNC_VERSION_WITH_PROTOCOL
        if not request.group_id:
            result.replies.append(Reply(context.ticket, sync_response(Code.INVALID_GROUP_ID)))
        elif needs_protocol and (request.protocol_type is None or request.protocol_name is None):
            result.replies.append(
                Reply(context.ticket, sync_response(Code.INCONSISTENT_GROUP_PROTOCOL))
            )
        elif group is None:
            result.replies.append(Reply(context.ticket, sync_response(Code.UNKNOWN_MEMBER_ID)))
        elif group.is_consumer:
            response = self._classic_members.on_sync(group, request, result, now_ms)
            result.replies.append(Reply(context.ticket, response))
        else:
            group.classic.on_sync(
                request, ParkedRequest(context.ticket, context.api_version), result, now_ms
            )
        return result

    def completes_rebalance(self, request: SyncGroupRequest) -> bool:
        """Whether a SyncGroup is the leader's, with the assignments that the group waits for."""
        group = self._groups.get(request.group_id)
        return (
            group is not None and not group.is_consumer and group.classic.is_completed_by(request)
        )

    def on_heartbeat(
        self, request: HeartbeatRequest, context: RequestContext, now_ms: int
    ) -> Result:
        group = self._groups.get(request.group_id)
        if not request.group_id:
            code = Code.INVALID_GROUP_ID
        elif group is None:
            code = Code.UNKNOWN_MEMBER_ID
        elif group.is_consumer:
            code = self._classic_members.on_heartbeat(group, request, now_ms)
        else:
            code = group.classic.on_heartbeat(request, now_ms)
        return self._result_with_reply(
            request.group_id, context, HeartbeatResponse(error_code=code)
        )

    def on_leave_group(
        self, request: LeaveGroupRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Remove members: those that leave, or whose instances an administrator names.

        Up to version 2 there is one member.
        """
        result = self._result(request.group_id)
        is_single = context.api_version <= LAST_LEAVE_VERSION_WITH_ONE_MEMBER
        members_to_remove: list[tuple[str, str | None]] = (
            [(request.member_id, None)]
            if is_single
            else [(member.member_id, member.group_instance_id) for member in request.members]
        )
        code, codes = Code.NONE, [Code.UNKNOWN_MEMBER_ID] * len(members_to_remove)
        if not request.group_id:
            code, members_to_remove = Code.INVALID_GROUP_ID, []
        elif request.group_id in self._groups:
            group = self._groups[request.group_id]
            if group.is_consumer:
                codes = self._classic_members.on_leave(group, members_to_remove, result, now_ms)
            else:
                codes = group.classic.on_leave(members_to_remove, result, now_ms)
        members = [
            MemberResponse(member_id, group_instance_id, member_code)
            for (member_id, group_instance_id), member_code in zip(
                members_to_remove, codes, strict=False
            )
        ]
        if is_single:
            response = LeaveGroupResponse(error_code=codes[0] if code is Code.NONE else code)
        else:
            response = LeaveGroupResponse(error_code=code, members=members)
        result.replies.append(Reply(context.ticket, response))
        return result

    # --- offsets ---------------------------------------------------------------------------------

    def on_offset_commit(
        self, request: OffsetCommitRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Commit offsets.

        Unknown partitions and metadata that are too long are refused one by one, the rest together.
        """
        result = self._result(request.group_id)
        generation = request.generation_id_or_member_epoch
        topics = request.topics
        unknown: list[OffsetCommitRequestTopic] = []
        if context.api_version >= FIRST_OFFSETS_VERSION_WITH_TOPIC_IDS:
            topics, unknown = self._named(topics)
        codes, offsets = self._partition_codes(topics)
        if offsets:
            check = self._check_commit(
                request, generation, context.api_version, transactional=False
            )
            offsets = self._take_checked(request.group_id, check, codes, offsets)
            if offsets:
                retention_ms = request.retention_time_ms
                wall_ms = now_ms + self._wall.ahead_ms
                expire_ms = (
                    NO_TIMESTAMP
                    if retention_ms < 0
                    else min(wall_ms + retention_ms, LAST_TIMESTAMP)
                )
                result.records += self._offset_records(
                    request.group_id, offsets, codes, wall_ms, expire_ms
                )
                group = self._get_or_create_group(result.partition, request.group_id)
                group.classic.on_commit(request.member_id, now_ms)
                self._schedule_retention_check(group, now_ms)
        topic_ids = {topic.name: topic.topic_id for topic in topics if topic.topic_id is not None}
        response = _commit_response(codes, topic_ids)
        response.topics += map(_unknown_topic, unknown)
        result.replies.append(Reply(context.ticket, response))
        return result

    def _named(self, topics: Iterable[_TopicOfId]) -> tuple[list[_TopicOfId], list[_TopicOfId]]:
        """The topics of a request that names them by their ids, with their names, and those that
        there are not.
        """
        named, unknown = [], []
        for topic in topics:
            name = None if topic.topic_id is None else self._topics.name(topic.topic_id)
            if name is None:
                unknown.append(topic)
            else:
                topic.name = name
                named.append(topic)
        return named, unknown

    def _take_checked(
        self,
        group_id: str,
        check: CommitCheck,
        codes: PartitionCodes,
        offsets: list[RequestedOffset],
    ) -> list[RequestedOffset]:
        """The offsets that may be committed. After: `codes` has the error of each other one."""
        if check.code is not Code.NONE:
            _set_codes(codes, offsets, check.code)
            return []
        if check.partition_code is None:
            return offsets
        consumer = self._groups[group_id].require_consumer()
        taken = []
        for topic, requested in offsets:
            known = self._topics.topic(topic)
            topic_id = None if known is None else known[0]
            if consumer.has_had(check, topic_id, requested.partition_index):
                taken.append((topic, requested))
            else:
                codes[topic][requested.partition_index] = check.partition_code
        return taken

    def on_txn_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Keep offsets pending until the producer's transaction ends.

        The host has verified that the group is in the transaction, and the producer's epoch
        (`TransactionCoordinator.verify_offsets`).

        Source: KIP-447: beside the producer's epoch, the member and its generation fence a zombie.
        """
        result = self._result(request.group_id)
        codes, offsets = self._partition_codes(request.topics)
        if offsets:
            check = self._check_commit(
                request, request.generation_id, context.api_version, transactional=True
            )
            offsets = self._take_checked(request.group_id, check, codes, offsets)
            if offsets:
                result.producer = (request.producer_id, request.producer_epoch)
                result.records += self._offset_records(
                    request.group_id, offsets, codes, now_ms + self._wall.ahead_ms, NO_TIMESTAMP
                )
                self._schedule_retention_check(
                    self._get_or_create_group(result.partition, request.group_id), now_ms
                )
        result.replies.append(Reply(context.ticket, _txn_commit_response(codes)))
        return result

    def _partition_codes(
        self, topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic]
    ) -> tuple[PartitionCodes, list[RequestedOffset]]:
        """A code for each partition, and the offsets whose partition exists."""
        codes: PartitionCodes = {}
        existing: list[RequestedOffset] = []
        for topic in topics:
            of_topic = codes.setdefault(topic.name, {})
            for requested in topic.partitions:
                if self._partition_exists(topic.name, requested.partition_index):
                    of_topic[requested.partition_index] = Code.NONE
                    existing.append((topic.name, requested))
                else:
                    of_topic[requested.partition_index] = Code.UNKNOWN_TOPIC_OR_PARTITION
        return codes, existing

    def _offset_records(
        self,
        group_id: str,
        offsets: Iterable[RequestedOffset],
        codes: PartitionCodes,
        wall_ms: int,
        expire_ms: int,
    ) -> list[CoordinatorRecord]:
        """The records of the offsets.

        After: `codes` has OFFSET_METADATA_TOO_LARGE for those whose metadata is too long.
        """
        records = []
        for topic, requested in offsets:
            metadata = requested.committed_metadata or ""
            if len(metadata) > self._settings.offset_metadata_max_size:
                codes[topic][requested.partition_index] = Code.OFFSET_METADATA_TOO_LARGE
                continue
            committed = CommittedOffset(
                requested.committed_offset,
                requested.committed_leader_epoch,
                metadata,
                wall_ms,
                expire_ms,
            )
            records.append(offset_record(group_id, topic, requested.partition_index, committed))
        return records

    def _check_commit(
        self,
        request: OffsetCommitRequest | TxnOffsetCommitRequest,
        generation: int,
        api_version: int,
        *,
        transactional: bool,
    ) -> CommitCheck:
        group = self._groups.get(request.group_id)
        member_id, instance_id = request.member_id, request.group_instance_id
        if group is not None and group.is_consumer:
            is_preview = self._consumer_settings.is_preview
            is_nobody = generation < 0 and not member_id and instance_id is None
            if transactional and is_nobody and not is_preview:
                return CommitCheck(Code.NONE)
            check = group.require_consumer().check_commit(
                member_id, generation, api_version, transactional=transactional
            )
            if is_preview and check.partition_code is not None:
                return CommitCheck(check.partition_code)
            return check
        if group is not None:
            return CommitCheck(
                group.classic.check_commit(
                    member_id, instance_id, generation, transactional=transactional
                )
            )
        if generation < 0:
            return CommitCheck(Code.NONE)
        # in every version: consumers join again after it, and know nothing to do about
        # GROUP_ID_NOT_FOUND
        return CommitCheck(Code.ILLEGAL_GENERATION)

    def on_offset_fetch(
        self, request: OffsetFetchRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Fetch committed offsets.

        With require_stable, a partition with a pending offset is UNSTABLE_OFFSET_COMMIT.
        """
        if context.api_version < FIRST_FETCH_VERSION_WITH_GROUPS:
            topics = [
                OffsetFetchResponseTopic(
                    topic, [OffsetFetchResponsePartition(*row) for row in rows]
                )
                for topic, rows in self._fetch_offsets(
                    request.group_id, request.topics, request.require_stable
                )
            ]
            return self._result_with_reply(
                request.group_id, context, OffsetFetchResponse(topics=topics)
            )
        groups = [
            self._fetch_group(requested, context.api_version, request.require_stable)
            for requested in request.groups
        ]
        first = request.groups[0].group_id if groups else ""
        return self._result_with_reply(first, context, OffsetFetchResponse(groups=groups))

    def _fetch_group(
        self, requested: OffsetFetchRequestGroup, api_version: int, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """The offsets of one group, by the names of topics or, from version 10 on, by their ids."""
        group = self._groups.get(requested.group_id)
        if group is not None and group.is_consumer:
            code = group.require_consumer().check_fetch(requested.member_id, requested.member_epoch)
            if code is not Code.NONE:
                return OffsetFetchResponseGroup(requested.group_id, error_code=code)
        by_id = api_version >= FIRST_OFFSETS_VERSION_WITH_TOPIC_IDS
        topics = requested.topics
        unknown: list[OffsetFetchRequestTopics] = []
        if by_id and topics is not None:
            topics, unknown = self._named(topics)
        rows = []
        for name, offsets in self._fetch_offsets(requested.group_id, topics, require_stable):
            topic = self._topics.topic(name) if by_id else None
            if topic is not None or not by_id:
                rows.append(
                    OffsetFetchResponseTopics(
                        "" if by_id else name,
                        None if topic is None else topic[0],
                        [OffsetFetchResponsePartitions(*row) for row in offsets],
                    )
                )
        rows += [
            OffsetFetchResponseTopics(
                "",
                topic.topic_id,
                [
                    OffsetFetchResponsePartitions(partition, -1, -1, "", Code.UNKNOWN_TOPIC_ID)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in unknown
        ]
        return OffsetFetchResponseGroup(requested.group_id, rows)

    def _fetch_offsets(
        self,
        group_id: str,
        topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
        require_stable: bool,
    ) -> Iterator[tuple[str, list[FetchedOffset]]]:
        """(topic, rows) for the named partitions of a group, or for all that have an offset."""
        group = self._groups.get(group_id)
        offsets = group.offsets if group is not None else GroupOffsets()
        if topics is None:
            by_topic: dict[str, list[int]] = {}
            for topic, partition in offsets.committed:
                by_topic.setdefault(topic, []).append(partition)
            requested: list[tuple[str, list[int]]] = list(by_topic.items())
        else:
            requested = [(topic.name, topic.partition_indexes) for topic in topics]
        for topic, partitions in requested:
            yield (
                topic,
                [
                    _fetch_offset(offsets, TopicPartition(topic, partition), require_stable)
                    for partition in partitions
                ],
            )

    def on_offset_delete(
        self, request: OffsetDeleteRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Delete offsets, committed and pending, of topics that no member reads.

        An Empty group goes with the last of its offsets; one with pending offsets stays until its
        next retention check.

        Source: KIP-496.
        """
        result = self._result(request.group_id)
        codes: PartitionCodes = {}
        existing: list[TopicPartition] = []
        for topic in request.topics:
            of_topic = codes.setdefault(topic.name, {})
            for requested in topic.partitions:
                exists = self._partition_exists(topic.name, requested.partition_index)
                of_topic[requested.partition_index] = (
                    Code.NONE if exists else Code.UNKNOWN_TOPIC_OR_PARTITION
                )
                if exists:
                    existing.append(TopicPartition(topic.name, requested.partition_index))
        code = (
            self._check_offset_delete(request.group_id)
            if existing or not request.group_id
            else Code.NONE
        )
        if code is not Code.NONE:
            codes, existing = {}, []
        if existing:
            self._groups[request.group_id].delete_offsets(existing, codes, result)
        topics = [
            OffsetDeleteResponseTopic(
                name, [OffsetDeleteResponsePartition(*row) for row in of_topic.items()]
            )
            for name, of_topic in codes.items()
        ]
        result.replies.append(
            Reply(context.ticket, OffsetDeleteResponse(error_code=code, topics=topics))
        )
        return result

    def _check_offset_delete(self, group_id: str) -> Code:
        if not group_id:
            return Code.INVALID_GROUP_ID
        group = self._groups.get(group_id)
        return Code.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()

    def on_topics_deleted(self, names: Iterable[str]) -> Iterator[Result]:
        """Delete all offsets, committed and pending, of topics that were deleted.

        Gives: a part at a time. Between two of them anything may happen, but that a topic of such a
               name is created.
        """
        deleted = dict.fromkeys(names)
        results, cost = ResultsByPartition(), 0
        for group_id in list(self._groups):
            group = self._groups.get(group_id)
            if group is None:
                continue
            partitions = [
                partition for partition in group.offsets.all_partitions() if partition[0] in deleted
            ]
            cost += 1 + len(group.offsets.committed) // OFFSETS_CHECKED_PER_RECORD
            for first in range(0, len(partitions), RECORDS_PER_BATCH):
                part = partitions[first : first + RECORDS_PER_BATCH]
                results.add(
                    group.partition, [offset_tombstone(group_id, *partition) for partition in part]
                )
                cost += len(part)
                if cost >= RECORDS_PER_BATCH:
                    yield results.as_one()
                    results, cost = ResultsByPartition(), 0
            if cost >= RECORDS_PER_BATCH:
                yield results.as_one()
                results, cost = ResultsByPartition(), 0
        yield results.as_one()

    # --- looking in, and deleting ----------------------------------------------------------------

    def list_groups(self, request: ListGroupsRequest) -> Generator[None, int, ListGroupsResponse]:
        """List all groups, or those in the states and of the types that are named; ROWS_AT_ONCE are
        looked at in each slice.
        """
        yield
        states = [state.lower() for state in request.states_filter]
        types = [kind.lower() for kind in request.types_filter]
        listed: list[ListedGroup] = []
        for number, group in enumerate(list(self._groups.values()), 1):
            state = group.state_name
            kind = CONSUMER_TYPE if group.is_consumer else CLASSIC_TYPE
            if (not states or state.lower() in states) and (not types or kind in types):
                listed.append(
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        group_state=state,
                        group_type=kind,
                    )
                )
            if number % ROWS_AT_ONCE == 0:
                yield
        return ListGroupsResponse(groups=listed)

    def on_describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Describe groups: state, members and assignments.

        A group that does not exist is Dead, and from version 6 on an error (KIP-1043).
        """
        described = [self._describe(group_id, context.api_version) for group_id in request.groups]
        if request.include_authorized_operations:
            for group in described:
                group.authorized_operations = self._settings.group_operations
        return Result(replies=[Reply(context.ticket, DescribeGroupsResponse(groups=described))])

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        group = self._groups.get(group_id)
        if group is not None and not group.is_consumer:
            return group.classic.describe()
        has_error = api_version >= FIRST_DESCRIBE_VERSION_WITH_ERRORS
        return DescribedGroup(
            error_code=Code.GROUP_ID_NOT_FOUND if has_error else Code.NONE,
            error_message=f"Group {group_id} not found." if has_error else None,
            group_id=group_id,
            group_state=DEAD,
            protocol_type="",
            protocol_data="",
        )

    def on_delete_groups(
        self, request: DeleteGroupsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Delete groups without members, with all their offsets. Each is answered once."""
        results = ResultsByPartition()
        codes: dict[str, Code] = {}
        for group_id in request.groups_names:
            if group_id not in codes:
                codes[group_id] = self._delete_group(group_id, results)
        response = DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id, code) for group_id, code in codes.items()]
        )
        return results.as_one(Reply(context.ticket, response))

    def _delete_group(self, group_id: str, results: ResultsByPartition) -> Code:
        group = self._groups.get(group_id)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND
        if group.has_members:
            return Code.NON_EMPTY_GROUP
        tombstones = [
            offset_tombstone(group_id, *partition) for partition in group.offsets.all_partitions()
        ]
        results.add(group.partition, [*tombstones, *group.tombstones()])
        return Code.NONE

    # --- results ---------------------------------------------------------------------------------

    def _result(self, group_id: str) -> Result:
        return Result(partition=partition_for(group_id, self._partition_count))

    def _result_with_reply(
        self, group_id: str, context: RequestContext, response: Message
    ) -> Result:
        result = self._result(group_id)
        result.replies.append(Reply(context.ticket, response))
        return result


def _fetch_offset(
    offsets: GroupOffsets, partition: TopicPartition, require_stable: bool
) -> FetchedOffset:
    unstable = require_stable and offsets.is_pending(partition)
    committed = None if unstable else offsets.committed.get(partition)
    if committed is None:
        return FetchedOffset(
            partition[1], -1, -1, "", Code.UNSTABLE_OFFSET_COMMIT if unstable else Code.NONE
        )
    return FetchedOffset(
        partition[1], committed.offset, committed.leader_epoch, committed.metadata, Code.NONE
    )


def _set_codes(codes: PartitionCodes, offsets: Iterable[RequestedOffset], code: Code) -> None:
    for topic, requested in offsets:
        codes[topic][requested.partition_index] = code


def _unknown_topic(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        "",
        topic.topic_id,
        [
            OffsetCommitResponsePartition(requested.partition_index, Code.UNKNOWN_TOPIC_ID)
            for requested in topic.partitions
        ],
    )


def _commit_response(
    codes: PartitionCodes, topic_ids: Mapping[str, uuid.UUID]
) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(
            "" if topic in topic_ids else topic,
            topic_ids.get(topic),
            partitions=[OffsetCommitResponsePartition(*row) for row in of_topic.items()],
        )
        for topic, of_topic in codes.items()
    ]
    return OffsetCommitResponse(topics=topics)


def _txn_commit_response(codes: PartitionCodes) -> TxnOffsetCommitResponse:
    topics = [
        TxnOffsetCommitResponseTopic(
            topic, [TxnOffsetCommitResponsePartition(*row) for row in of_topic.items()]
        )
        for topic, of_topic in codes.items()
    ]
    return TxnOffsetCommitResponse(topics=topics)
