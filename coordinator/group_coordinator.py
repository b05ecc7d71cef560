"""The group coordinator: requests about groups and their offsets, and the records of both.

Hard state, written by `replay*` alone: committed and pending offsets, open transactions, and the
value of each group's record. Soft state: the members of each classic group (classic_group.py) and
the timers; `on_loaded` builds both from the hard state. A group is in `_groups` as soon as anything
is to be kept of it. A group of which nothing is left goes with its retention check.

Groups of the consumer protocol (KIP-848) have their records in the same topic; `replay` skips them
as yet.

A Result names the group's partition even where it holds no record, so that its host can keep the
order of answers within a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.coordinator.classic_group import (
    DEAD,
    JOIN,
    MAX_PROTOCOLS,
    RETENTION,
    SESSION,
    SYNC,
    ClassicGroup,
    GroupSettings,
    JoinRequest,
    ParkedRequest,
    State,
    TimerKey,
    join_error_response,
    sync_response,
)
from barnabas.coordinator.group import Group, PartitionCodes
from barnabas.coordinator.group_records import (
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    group_tombstone,
    offset_record,
    offset_tombstone,
)
from barnabas.coordinator.offsets import (
    LAST_TIMESTAMP,
    NO_TIMESTAMP,
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
from barnabas.protocol.errors import Code
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
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )
    from barnabas.protocol.messages.sync_group import SyncGroupRequest
    from barnabas.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )

CLASSIC_TYPE = "classic"
# AclOperation READ, DELETE, DESCRIBE: all operations on a group
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
RETENTION_CHECK_COST = 10  # of looking at a group, in records, beside its offsets
OFFSETS_CHECKED_PER_RECORD = 16  # looking at so many offsets costs as much as removing one
FIRST_FETCH_VERSION_WITH_GROUPS = 8
FIRST_DESCRIBE_VERSION_WITH_ERRORS = 6
FIRST_SYNC_VERSION_WITH_PROTOCOL = 5
LAST_LEAVE_VERSION_WITH_ONE_MEMBER = 2


# with the name of its topic
RequestedOffset = tuple[str, "OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition"]


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
            offsets; new_member_suffix, a source of unique texts for member ids.
    """

    def __init__(
        self,
        *,
        partition_count: int,
        settings: GroupSettings,
        partition_exists: PartitionExists,
        new_member_suffix: Callable[[], str],
        wall: WallClock,
    ) -> None:
        self._wall = wall
        self._partition_count, self._settings = partition_count, settings
        self._partition_exists, self._new_member_suffix = partition_exists, new_member_suffix
        self._groups: dict[str, Group] = {}
        self._open_transactions: dict[tuple[int, int], OpenTransaction] = {}
        self._timers: Timers[TimerKey] = Timers()

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
        decoded = decode_key(key)
        if isinstance(decoded, OffsetKey):
            self._replay_offset(partition, offset, decoded, value, producer)
        elif isinstance(decoded, GroupKey):
            self._replay_group(partition, decoded.group_id, value)

    def _replay_offset(
        self,
        partition: int,
        offset: int,
        key: OffsetKey,
        value: bytes | None,
        producer: tuple[int, int] | None,
    ) -> None:
        topic_partition = TopicPartition(key.topic, key.partition)
        if value is None:
            if key.group_id in self._groups:
                self._groups[key.group_id].offsets.replay_tombstone(topic_partition)
            return
        group = self._get_or_create_group(partition, key.group_id)
        committed = decode_offset(value, offset, self._wall)
        if producer is None:
            group.offsets.replay_commit(topic_partition, committed)
            return
        producer_id, producer_epoch = producer
        open_transaction = self._open_transactions.setdefault(
            (partition, producer_id), OpenTransaction(producer_epoch)
        )
        open_transaction.producer_epoch = producer_epoch
        open_transaction.group_ids[key.group_id] = None
        group.offsets.replay_pending(producer_id, topic_partition, committed)

    def _replay_group(self, partition: int, group_id: str, value: bytes | None) -> None:
        if value is not None:
            self._get_or_create_group(partition, group_id).metadata_value = bytes(value)
            return
        group = self._groups.get(group_id)
        if group is None:
            return
        group.metadata_value = None
        if not group.offsets:
            del self._groups[group_id]
            # it may be days away: names that are used once and deleted would pile up until then
            self._timers.cancel((RETENTION, group_id, ""))

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

    def hard_state(self) -> dict[str, Any]:
        """The state that is the same in every coordinator that was fed the same log.

        The age of a commit is no part of it: that depends on the clock.
        """
        groups = {
            group_id: (group.partition, group.metadata_value, group.offsets.hard_state())
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
        for group in self._groups.values():
            if group.metadata_value is not None:
                group.classic = ClassicGroup.load(
                    group.group_id,
                    decode_group(group.metadata_value),
                    self._settings,
                    self._timers,
                    self._new_member_suffix,
                    self._wall,
                    now_ms,
                )
                group.classic.maybe_rebalance_oversized(results.of(group.partition), now_ms)
            self._timers.schedule(
                (RETENTION, group.group_id, ""),
                group.next_retention_check_ms(self._settings, now_ms),
            )
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
            if group.classic.members:
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
        for group in self._groups.values():
            for (topic, partition), committed in group.offsets.committed.items():
                end_offset = log_end(topic, partition)
                if end_offset is None or committed.offset <= end_offset:
                    continue
                leader_epoch = committed.leader_epoch
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
            classic = ClassicGroup(
                group_id, self._settings, self._timers, self._new_member_suffix, self._wall
            )
            group = self._groups[group_id] = Group(group_id, partition, classic)
        return group

    # --- time ------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def on_tick(self, now_ms: int) -> Result:
        """Handle what is due: sessions that are over, rebalances, the retention of offsets."""
        results = ResultsByPartition()
        due = self._timers.pop_due(now_ms)
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
        for kind, group_id, member_id in due:
            group = self._groups.get(group_id)
            if group is None or kind == RETENTION:
                continue
            result = results.of(group.partition)
            if kind == SESSION:
                group.classic.on_session_timeout(member_id, result, now_ms)
            elif kind == JOIN:
                group.classic.on_join_timeout(result, now_ms)
            else:
                assert kind == SYNC, kind
                group.classic.on_sync_timeout(result, now_ms)
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
                records.append(group_tombstone(group.group_id))
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
        group.classic.on_join(join, result, now_ms)
        return result

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
        else:
            group.classic.on_sync(
                request, ParkedRequest(context.ticket, context.api_version), result, now_ms
            )
        return result

    def on_heartbeat(
        self, request: HeartbeatRequest, context: RequestContext, now_ms: int
    ) -> Result:
        group = self._groups.get(request.group_id)
        if not request.group_id:
            code = Code.INVALID_GROUP_ID
        elif group is None:
            code = Code.UNKNOWN_MEMBER_ID
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
            codes = self._groups[request.group_id].classic.on_leave(
                members_to_remove, result, now_ms
            )
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
        codes, offsets = self._partition_codes(request.topics)
        if offsets:
            code = self._check_commit(request, generation, transactional=False)
            if code is Code.NONE:
                retention_ms = request.retention_time_ms
                wall_ms = self._wall.at(now_ms)
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
            else:
                _set_codes(codes, offsets, code)
        result.replies.append(Reply(context.ticket, _commit_response(codes)))
        return result

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
            code = self._check_commit(request, request.generation_id, transactional=True)
            if code is Code.NONE:
                result.producer = (request.producer_id, request.producer_epoch)
                result.records += self._offset_records(
                    request.group_id, offsets, codes, self._wall.at(now_ms), NO_TIMESTAMP
                )
                self._schedule_retention_check(
                    self._get_or_create_group(result.partition, request.group_id), now_ms
                )
            else:
                _set_codes(codes, offsets, code)
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
        *,
        transactional: bool,
    ) -> Code:
        group = self._groups.get(request.group_id)
        if group is not None:
            return group.classic.check_commit(
                request.member_id,
                request.group_instance_id,
                generation,
                transactional=transactional,
            )
        if generation < 0:
            return Code.NONE
        # in every version: consumers join again after it, and know nothing to do about
        # GROUP_ID_NOT_FOUND
        return Code.ILLEGAL_GENERATION

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
        groups = []
        for requested in request.groups:
            of_group = [
                OffsetFetchResponseTopics(
                    topic, partitions=[OffsetFetchResponsePartitions(*row) for row in rows]
                )
                for topic, rows in self._fetch_offsets(
                    requested.group_id, requested.topics, request.require_stable
                )
            ]
            groups.append(OffsetFetchResponseGroup(requested.group_id, of_group))
        first = request.groups[0].group_id if groups else ""
        return self._result_with_reply(first, context, OffsetFetchResponse(groups=groups))

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
        return Code.GROUP_ID_NOT_FOUND if group is None else group.classic.check_offset_delete()

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

    def on_list_groups(
        self, request: ListGroupsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """List all groups, or those in the states and of the types that are named."""
        states = [state.lower() for state in request.states_filter]
        types = [kind.lower() for kind in request.types_filter]
        listed = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.classic.protocol_type or "",
                group_state=group.classic.state.value,
                group_type=CLASSIC_TYPE,
            )
            for group in self._groups.values()
            if (not states or group.classic.state.value.lower() in states)
            and (not types or CLASSIC_TYPE in types)
        ]
        response = ListGroupsResponse(groups=listed)
        return Result(replies=[Reply(context.ticket, response)])

    def on_describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Describe groups: state, members and assignments.

        A group that does not exist is Dead, and from version 6 on an error (KIP-1043).
        """
        described = [self._describe(group_id, context.api_version) for group_id in request.groups]
        if request.include_authorized_operations:
            for group in described:
                group.authorized_operations = GROUP_OPERATIONS
        return Result(replies=[Reply(context.ticket, DescribeGroupsResponse(groups=described))])

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        group = self._groups.get(group_id)
        if group is not None:
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
        if group.classic.state is not State.EMPTY:
            return Code.NON_EMPTY_GROUP
        tombstones = [
            offset_tombstone(group_id, *partition) for partition in group.offsets.all_partitions()
        ]
        results.add(group.partition, [*tombstones, group_tombstone(group_id)])
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


def _commit_response(codes: PartitionCodes) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(
            topic, partitions=[OffsetCommitResponsePartition(*row) for row in of_topic.items()]
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
