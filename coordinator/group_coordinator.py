"""The group coordinator: classic groups, and the offsets of all groups.

Hard state, written by `replay*` alone: committed and staged offsets, open transactions, and each
group's stored record. Soft state: the machine of each classic group (classic_group.py) and the
timers; `on_loaded` builds both from the hard state. A group is in `_groups` as soon as there is
anything to know of it; one that was only asked about, or that nothing is left of, goes with its
retention check.

Groups of the consumer protocol (KIP-848) have their records in the same topic; `replay` passes over
them as yet.

A Result names the group's partition even where it holds no record, so that its host may keep the
order of answers within a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.coordinator.classic_group import (
    DEAD,
    JOIN,
    MOST_PROTOCOLS,
    RETENTION,
    SESSION,
    SYNC,
    ClassicGroup,
    GroupSettings,
    Join,
    State,
    TimerKey,
    Waiting,
    refused_join,
    sync_response,
)
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
    OpenTransaction,
    SetBack,
)
from barnabas.coordinator.result import (
    CoordinatorRecord,
    EpochEnd,
    LogEnd,
    PartitionExists,
    Reply,
    Result,
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
GROUP_OPERATIONS = (
    1 << 3 | 1 << 6 | 1 << 8
)  # AclOperation READ, DELETE, DESCRIBE: all that there is to do with a group
RECORDS_PER_BATCH = 1_000
RETENTION_AS_RECORDS = 10  # what a look at a group costs beside its offsets
LOOKED_AT_AS_A_RECORD = 16  # so many offsets are looked at in the time that one is removed
FIRST_FETCH_VERSION_WITH_GROUPS = 8
FIRST_DESCRIBE_VERSION_WITH_ERRORS = 6
FIRST_SYNC_VERSION_WITH_PROTOCOL = 5
LAST_LEAVE_VERSION_WITH_ONE_MEMBER = 2


PartitionCodes = dict[str, dict[int, Code]]
AskedOffset = tuple[
    str, "OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition"
]  # with its topic


class FetchedOffset(NamedTuple):
    """A partition's part of the answer to OffsetFetch, by whichever name its version has for that."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: Code


class Group:
    """All that is known of one group.

    stored: the value of its last record, None where it has none; kept undecoded since only a
    restart reads it.
    """

    __slots__ = ("classic", "group_id", "offsets", "partition", "stored")

    def __init__(self, group_id: str, partition: int, classic: ClassicGroup) -> None:
        self.group_id, self.partition, self.classic = group_id, partition, classic
        self.offsets = GroupOffsets()
        self.stored: bytes | None = None

    @property
    def has_hard_state(self) -> bool:
        return self.stored is not None or bool(self.offsets)


class GroupCoordinator:
    """The coordinator of all groups of this broker.

    Takes: partition_count, of the internal topic. partition_exists, for commits and deletions of
    offsets. new_member_suffix, a source of unique texts for member ids.
    """

    def __init__(
        self,
        *,
        partition_count: int,
        settings: GroupSettings,
        partition_exists: PartitionExists,
        new_member_suffix: Callable[[], str],
        wall: WallClock | None = None,
    ) -> None:
        self._wall = wall or WallClock()
        self._partition_count, self._settings = partition_count, settings
        self._partition_exists, self._new_member_suffix = partition_exists, new_member_suffix
        self._groups: dict[str, Group] = {}
        self._open: dict[tuple[int, int], OpenTransaction] = {}
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
        """Take in the record at `offset`; with a producer it belongs to that one's open
        transaction.
        """
        about = decode_key(key)
        if isinstance(about, OffsetKey):
            self._replay_offset(partition, offset, about, value, producer)
        elif isinstance(about, GroupKey):
            self._replay_group(partition, about.group_id, value)

    def _replay_offset(
        self,
        partition: int,
        offset: int,
        about: OffsetKey,
        value: bytes | None,
        producer: tuple[int, int] | None,
    ) -> None:
        topic_partition = TopicPartition(about.topic, about.partition)
        if value is None:
            if about.group_id in self._groups:
                self._groups[about.group_id].offsets.replay_tombstone(topic_partition)
            return
        group = self._group_at(partition, about.group_id)
        committed = decode_offset(value, offset, self._wall)
        if producer is None:
            group.offsets.replay_commit(topic_partition, committed)
            return
        producer_id, producer_epoch = producer
        open_transaction = self._open.setdefault(
            (partition, producer_id), OpenTransaction(producer_epoch)
        )
        open_transaction.producer_epoch = producer_epoch
        open_transaction.group_ids[about.group_id] = None
        group.offsets.replay_staged(producer_id, topic_partition, committed)

    def _replay_group(self, partition: int, group_id: str, value: bytes | None) -> None:
        if value is not None:
            self._group_at(partition, group_id).stored = bytes(value)
            return
        group = self._groups.get(group_id)
        if group is None:
            return
        group.stored = None
        if not group.offsets:
            self._drop(group_id)

    def replay_marker(
        self, partition: int, offset: int, producer_id: int, producer_epoch: int, commit: bool
    ) -> None:
        """The producer's transaction on this partition ended; an epoch above that of its offsets
        means that it was fenced.
        """
        open_transaction = self._open.pop((partition, producer_id), None)
        if open_transaction is None:
            return
        for group_id in open_transaction.group_ids:
            if group_id in self._groups:
                self._groups[group_id].offsets.replay_end(producer_id, commit)

    def hard_state(self) -> dict[str, Any]:
        """All that must be the same in a coordinator that was fed the same log. How long ago a
        commit was is not: it is told by the clock.
        """
        groups = {
            group_id: (group.partition, group.stored, group.offsets.hard_state())
            for group_id, group in self._groups.items()
            if group.has_hard_state
        }
        return {
            "groups": groups,
            "open": {
                key: (one.producer_epoch, tuple(one.group_ids)) for key, one in self._open.items()
            },
        }

    def on_loaded(self, now_ms: int) -> Result:
        """The log was replayed: build each group's machine from its record, and let sessions begin
        and retention run from now.
        """
        results = _Results()
        for group in self._groups.values():
            if group.stored is not None:
                group.classic = ClassicGroup.restored(
                    group.group_id,
                    decode_group(group.stored),
                    self._settings,
                    self._timers,
                    self._new_member_suffix,
                    self._wall,
                    now_ms,
                )
                group.classic.maybe_shrink(results.of(group.partition), now_ms)
            self._timers.schedule(
                (RETENTION, group.group_id, ""), self._next_retention_check_ms(group, now_ms)
            )
        return results.joined()

    def on_power_loss(self, now_ms: int) -> Result:
        """After `on_loaded`: members join again, since they may have read further than the logs,
        and then go on from what is committed.

        A client that stays a member would go on from where it stands. Few compare their position
        with the log by its leader epochs (KIP-320).
        """
        results = _Results()
        for group in self._groups.values():
            if group.classic.members:
                group.classic.dismiss_members(results.of(group.partition), now_ms)
        return results.joined()

    def offsets_beyond(
        self, log_end: LogEnd, epoch_end: EpochEnd, *, lost_power: bool
    ) -> list[SetBack]:
        """What is committed beyond the end of its log, as the start finds it: the records between
        were read, and are lost.

        The group goes on from where the log was cut. Every record below that was given to it, none
        above: so nothing is doubled, also where offsets and outputs are committed together, and
        what is written from now on is not skipped.

        An offset without a leader epoch may be a number of the application's own (a ledger of
        batches, say), in particular where it has metadata. Without metadata it is taken for a place
        in the log after a power loss, which explains that nothing is there.

        Takes:  before anything is appended for clients: later nobody can tell an offset of the lost
                tail from one of the new.
        """
        found = []
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
                found.append(
                    SetBack(group.group_id, topic, partition, committed, end_offset, leader_epoch)
                )
        return found

    def set_back(self, rows: Iterable[SetBack]) -> Result:
        """Commit the offsets from which the groups are to go on. To be durable before a client is
        heard.
        """
        results = _Results()
        for group_id, topic, partition, committed, offset, leader_epoch in rows:
            changed = committed._replace(offset=offset, leader_epoch=leader_epoch)
            results.add(
                self._groups[group_id].partition,
                [offset_record(group_id, topic, partition, changed)],
            )
        return results.joined()

    def _group_at(self, partition: int, group_id: str) -> Group:
        """The group, new where there was none."""
        group = self._groups.get(group_id)
        if group is None:
            classic = ClassicGroup(
                group_id, self._settings, self._timers, self._new_member_suffix, self._wall
            )
            group = self._groups[group_id] = Group(group_id, partition, classic)
        return group

    def _drop(self, group_id: str) -> None:
        del self._groups[group_id]
        self._timers.cancel((RETENTION, group_id, ""))

    # --- time ------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def on_tick(self, now_ms: int) -> Result:
        """What is due by now: silent members, rebalances, and the retention of offsets."""
        results = _Results()
        due = self._timers.pop_due(now_ms)
        cost = 0
        for key in (
            due
        ):  # first, since it must see no group whose record of this very tick is not replayed yet
            kind, group_id, _ = key
            if kind != RETENTION or group_id not in self._groups:
                continue
            if cost >= RECORDS_PER_BATCH:
                self._timers.schedule(key, now_ms)  # others have their turn before it goes on
                continue
            cost += RETENTION_AS_RECORDS + len(self._groups[group_id].offsets.committed)
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
        return results.joined()

    def _check_retention(self, group: Group, results: _Results, now_ms: int) -> None:
        """Remove offsets that are over their time, and the group with them when nothing else is
        left of it.

        Source: KIP-211. A group with members keeps the offsets of the topics that they read; an
        Empty one keeps all of them for the retention time since it became so; offsets that were
        never committed by members are kept for that time since their commit.
        """
        classic = group.classic
        expiry = self._expiry(group, now_ms)
        if expiry is not None:
            records = [offset_tombstone(group.group_id, *partition) for partition in expiry.expired]
            if expiry.is_cut:  # others have their turn before it goes on
                results.add(group.partition, records)
                self._timers.schedule((RETENTION, group.group_id, ""), now_ms)
                return
            if expiry.nothing_left and classic.state is State.EMPTY and not classic.pending_members:
                if not group.has_hard_state:
                    self._drop(group.group_id)
                    return
                records.append(group_tombstone(group.group_id))
            results.add(group.partition, records)
        self._timers.schedule(
            (RETENTION, group.group_id, ""), self._next_retention_check_ms(group, now_ms)
        )

    def _expiry(self, group: Group, now_ms: int) -> Any:
        """What of the group is over its time; None where its state keeps all of it."""
        classic = group.classic
        if classic.protocol_type is None:
            since = _committed_since
        elif classic.state is State.EMPTY:
            empty_since_ms = classic.state_since_ms
            since = _committed_since if empty_since_ms is None else lambda committed: empty_since_ms
        elif (
            classic.uses_consumer_protocol
            and classic.state is State.STABLE
            and classic.subscribed_topics is not None
        ):
            since = _committed_since
        else:
            return None
        return group.offsets.expiry(
            now_ms,
            self._settings.offsets_retention_ms,
            since,
            classic.is_subscribed_to,
            most=RECORDS_PER_BATCH,
        )

    def _next_retention_check_ms(self, group: Group, now_ms: int) -> int:
        """Not before the next offset of a group without members is due; members may change what
        they read at any time.
        """
        soonest_ms = now_ms + self._settings.offsets_retention_check_interval_ms
        if group.classic.state is not State.EMPTY:
            return soonest_ms
        expiry = self._expiry(group, now_ms)
        return (
            soonest_ms
            if expiry is None or expiry.next_ms is None
            else max(soonest_ms, expiry.next_ms)
        )

    def _watch_retention(self, group: Group, latest_ms: int) -> None:
        """See to it that the group is looked at by `latest_ms`."""
        key = (RETENTION, group.group_id, "")
        deadline_ms = self._timers.deadline_ms(key)
        if deadline_ms is None or deadline_ms > latest_ms:
            self._timers.schedule(key, latest_ms)

    def _watch_retention_soon(self, group: Group, now_ms: int) -> None:
        self._watch_retention(group, now_ms + self._settings.offsets_retention_check_interval_ms)

    # --- membership ------------------------------------------------------------------------------

    def on_join_group(
        self, request: JoinGroupRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Join, or be told why not. The answer may come in the Result of a later event.

        Source: KIP-394, KIP-345.
        """
        result = self._result(request.group_id)
        code = self._check_join(request)
        if code is not Code.NONE:
            result.replies.append(
                Reply(context.ticket, refused_join(code, request.member_id, context.api_version))
            )
            return result
        group = self._group_at(result.partition, request.group_id)
        self._watch_retention_soon(group, now_ms)
        join = Join(
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
            len(protocols) > MOST_PROTOCOLS
            or sum(len(one.metadata) for one in protocols) > self._settings.max_record_bytes
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
        """Give the leader's assignments, and get one's own. The answer may come in the Result of a
        later event.
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
                request, Waiting(context.ticket, context.api_version), result, now_ms
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
        return self._answered(request.group_id, context, HeartbeatResponse(error_code=code))

    def on_leave_group(
        self, request: LeaveGroupRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Members leave, or an administrator removes them by the names of their instances. Up to
        version 2 there is one member.
        """
        result = self._result(request.group_id)
        has_one = context.api_version <= LAST_LEAVE_VERSION_WITH_ONE_MEMBER
        leaving: list[tuple[str, str | None]] = (
            [(request.member_id, None)]
            if has_one
            else [(one.member_id, one.group_instance_id) for one in request.members]
        )
        code, codes = Code.NONE, [Code.UNKNOWN_MEMBER_ID] * len(leaving)
        if not request.group_id:
            code, leaving = Code.INVALID_GROUP_ID, []
        elif request.group_id in self._groups:
            codes = self._groups[request.group_id].classic.on_leave(leaving, result, now_ms)
        members = [
            MemberResponse(member_id, group_instance_id, member_code)
            for (member_id, group_instance_id), member_code in zip(leaving, codes, strict=False)
        ]
        if has_one:
            response = LeaveGroupResponse(error_code=codes[0] if code is Code.NONE else code)
        else:
            response = LeaveGroupResponse(error_code=code, members=members)
        result.replies.append(Reply(context.ticket, response))
        return result

    # --- offsets ---------------------------------------------------------------------------------

    def on_offset_commit(
        self, request: OffsetCommitRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Commit offsets. Unknown partitions and metadata that are too long are refused one by one,
        the rest stands or falls together.
        """
        result = self._result(request.group_id)
        generation = request.generation_id_or_member_epoch
        codes, offsets = self._existing(request.topics)
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
                group = self._group_at(result.partition, request.group_id)
                group.classic.on_commit(request.member_id, now_ms)
                self._watch_retention_soon(group, now_ms)
            else:
                _set_all(codes, offsets, code)
        result.replies.append(Reply(context.ticket, _commit_response(codes)))
        return result

    def on_txn_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Stage offsets until the producer's transaction ends. That it holds the group is verified
        before, by the host.

        Source: KIP-447: beside the producer's epoch, the member and its generation fence a zombie.
        """
        result = self._result(request.group_id)
        codes, offsets = self._existing(request.topics)
        if offsets:
            code = self._check_commit(request, request.generation_id, transactional=True)
            open_transaction = self._open.get((result.partition, request.producer_id))
            if (
                code is Code.NONE
                and open_transaction
                and request.producer_epoch < open_transaction.producer_epoch
            ):
                code = Code.INVALID_PRODUCER_EPOCH
            if code is Code.NONE:
                result.producer = (request.producer_id, request.producer_epoch)
                result.records += self._offset_records(
                    request.group_id, offsets, codes, self._wall.at(now_ms), NO_TIMESTAMP
                )
                self._watch_retention_soon(
                    self._group_at(result.partition, request.group_id), now_ms
                )
            else:
                _set_all(codes, offsets, code)
        result.replies.append(Reply(context.ticket, _txn_commit_response(codes)))
        return result

    def _existing(
        self, topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic]
    ) -> tuple[PartitionCodes, list[AskedOffset]]:
        """A code for each partition, and those (with their topic) that exist."""
        codes: PartitionCodes = {}
        existing: list[AskedOffset] = []
        for topic in topics:
            of_topic = codes.setdefault(topic.name, {})
            for asked in topic.partitions:
                if self._partition_exists(topic.name, asked.partition_index):
                    of_topic[asked.partition_index] = Code.NONE
                    existing.append((topic.name, asked))
                else:
                    of_topic[asked.partition_index] = Code.UNKNOWN_TOPIC_OR_PARTITION
        return codes, existing

    def _offset_records(
        self,
        group_id: str,
        offsets: Iterable[AskedOffset],
        codes: PartitionCodes,
        wall_ms: int,
        expire_ms: int,
    ) -> list[CoordinatorRecord]:
        """The records of those offsets whose metadata is not too long; the code of others is set."""
        records = []
        for topic, asked in offsets:
            metadata = asked.committed_metadata or ""
            if len(metadata) > self._settings.offset_metadata_max_size:
                codes[topic][asked.partition_index] = Code.OFFSET_METADATA_TOO_LARGE
                continue
            committed = CommittedOffset(
                asked.committed_offset, asked.committed_leader_epoch, metadata, wall_ms, expire_ms
            )
            records.append(offset_record(group_id, topic, asked.partition_index, committed))
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
        """Committed offsets. With require_stable, a partition for which a transaction has staged
        one is UNSTABLE_OFFSET_COMMIT.
        """
        if context.api_version < FIRST_FETCH_VERSION_WITH_GROUPS:
            topics = [
                OffsetFetchResponseTopic(
                    topic, [OffsetFetchResponsePartition(*row) for row in rows]
                )
                for topic, rows in self._fetched(
                    request.group_id, request.topics, request.require_stable
                )
            ]
            return self._answered(request.group_id, context, OffsetFetchResponse(topics=topics))
        groups = []
        for asked in request.groups:
            of_group = [
                OffsetFetchResponseTopics(
                    topic, partitions=[OffsetFetchResponsePartitions(*row) for row in rows]
                )
                for topic, rows in self._fetched(
                    asked.group_id, asked.topics, request.require_stable
                )
            ]
            groups.append(OffsetFetchResponseGroup(asked.group_id, of_group))
        first = request.groups[0].group_id if groups else ""
        return self._answered(first, context, OffsetFetchResponse(groups=groups))

    def _fetched(
        self,
        group_id: str,
        topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
        require_stable: bool,
    ) -> Iterator[tuple[str, list[FetchedOffset]]]:
        """(topic, rows) for some partitions of a group, or for all that have an offset."""
        group = self._groups.get(group_id)
        offsets = group.offsets if group is not None else GroupOffsets()
        if topics is None:
            by_topic: dict[str, list[int]] = {}
            for topic, partition in offsets.committed:
                by_topic.setdefault(topic, []).append(partition)
            wanted: list[tuple[str, list[int]]] = list(by_topic.items())
        else:
            wanted = [(topic.name, topic.partition_indexes) for topic in topics]
        for topic, partitions in wanted:
            yield (
                topic,
                [
                    _fetched_offset(offsets, TopicPartition(topic, partition), require_stable)
                    for partition in partitions
                ],
            )

    def on_offset_delete(
        self, request: OffsetDeleteRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Delete offsets of topics that no member reads, with what open transactions have staged
        for them.

        An Empty group goes with the last of its offsets; one that a transaction has staged offsets
        for stays until its next retention check. Source: KIP-496.
        """
        result = self._result(request.group_id)
        codes: PartitionCodes = {}
        known: list[TopicPartition] = []
        for topic in request.topics:
            of_topic = codes.setdefault(topic.name, {})
            for asked in topic.partitions:
                exists = self._partition_exists(topic.name, asked.partition_index)
                of_topic[asked.partition_index] = (
                    Code.NONE if exists else Code.UNKNOWN_TOPIC_OR_PARTITION
                )
                if exists:
                    known.append(TopicPartition(topic.name, asked.partition_index))
        code = (
            self._check_offset_delete(request.group_id)
            if known or not request.group_id
            else Code.NONE
        )
        if code is not Code.NONE:
            codes, known = {}, []
        if known:
            self._delete_offsets(self._groups[request.group_id], known, codes, result)
        topics = [
            OffsetDeleteResponseTopic(
                name, [OffsetDeleteResponsePartition(index, one) for index, one in of_topic.items()]
            )
            for name, of_topic in codes.items()
        ]
        result.replies.append(
            Reply(context.ticket, OffsetDeleteResponse(error_code=code, topics=topics))
        )
        return result

    def _delete_offsets(
        self,
        group: Group,
        partitions: Iterable[TopicPartition],
        codes: PartitionCodes,
        result: Result,
    ) -> None:
        """Append the records that delete them; the code of those that a member reads is set."""
        classic, offsets = group.classic, group.offsets
        deleted: dict[TopicPartition, None] = {}
        for partition in partitions:
            if classic.is_subscribed_to(partition.topic):
                codes[partition.topic][partition.partition] = Code.GROUP_SUBSCRIBED_TO_TOPIC
            elif partition in offsets.committed or offsets.is_staged(partition):
                deleted[partition] = None
        result.records += [offset_tombstone(group.group_id, *partition) for partition in deleted]
        nothing_left = not offsets.staged and all(
            partition in deleted for partition in offsets.committed
        )
        if nothing_left and classic.state is State.EMPTY and not classic.pending_members:
            result.records.append(group_tombstone(group.group_id))

    def _check_offset_delete(self, group_id: str) -> Code:
        if not group_id:
            return Code.INVALID_GROUP_ID
        group = self._groups.get(group_id)
        return Code.GROUP_ID_NOT_FOUND if group is None else group.classic.check_offset_delete()

    def on_topics_deleted(self, names: Iterable[str]) -> Iterator[Result]:
        """The topics are gone: their offsets go too, with those that open transactions have staged.

        A part at a time: between two of them anything may happen, but that a topic of such a name
        comes.
        """
        gone = dict.fromkeys(names)
        results, cost = _Results(), 0
        for group_id in list(self._groups):
            group = self._groups.get(group_id)
            if group is None:
                continue
            partitions = [
                partition for partition in group.offsets.all_partitions() if partition[0] in gone
            ]
            cost += 1 + len(group.offsets.committed) // LOOKED_AT_AS_A_RECORD
            for first in range(0, len(partitions), RECORDS_PER_BATCH):
                part = partitions[first : first + RECORDS_PER_BATCH]
                results.add(
                    group.partition, [offset_tombstone(group_id, *partition) for partition in part]
                )
                cost += len(part)
                if cost >= RECORDS_PER_BATCH:
                    yield results.joined()
                    results, cost = _Results(), 0
            if cost >= RECORDS_PER_BATCH:
                yield results.joined()
                results, cost = _Results(), 0
        yield results.joined()

    # --- looking in, and deleting ----------------------------------------------------------------

    def on_list_groups(
        self, request: ListGroupsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """All groups, or those in one of the states and of one of the types asked for, in whatever
        case these are written.
        """
        states = [state.lower() for state in request.states_filter or ()]
        types = [kind.lower() for kind in request.types_filter or ()]
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
        """State, members and assignments; a group that there is not is Dead, and from version 6 on
        an error (KIP-1043).
        """
        described = [self._described(group_id, context.api_version) for group_id in request.groups]
        if request.include_authorized_operations:
            for one in described:
                one.authorized_operations = GROUP_OPERATIONS
        return Result(replies=[Reply(context.ticket, DescribeGroupsResponse(groups=described))])

    def _described(self, group_id: str, api_version: int) -> DescribedGroup:
        group = self._groups.get(group_id)
        if group is not None:
            return group.classic.described()
        tells = api_version >= FIRST_DESCRIBE_VERSION_WITH_ERRORS
        return DescribedGroup(
            error_code=Code.GROUP_ID_NOT_FOUND if tells else Code.NONE,
            error_message=f"Group {group_id} not found." if tells else None,
            group_id=group_id,
            group_state=DEAD,
            protocol_type="",
            protocol_data="",
        )

    def on_delete_groups(
        self, request: DeleteGroupsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Delete groups without members, with all their offsets. Each is told of once."""
        results = _Results()
        codes: dict[str, Code] = {}
        for group_id in request.groups_names:
            if group_id not in codes:
                codes[group_id] = self._delete_group(group_id, results)
        response = DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id, code) for group_id, code in codes.items()]
        )
        return results.joined(Reply(context.ticket, response))

    def _delete_group(self, group_id: str, results: _Results) -> Code:
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

    def _answered(self, group_id: str, context: RequestContext, response: Message) -> Result:
        result = self._result(group_id)
        result.replies.append(Reply(context.ticket, response))
        return result


class _Results:
    """Gathers what one event means for several partitions, in batches of bounded size."""

    def __init__(self) -> None:
        self._open: dict[int, Result] = {}
        self._all: list[Result] = []

    def of(self, partition: int) -> Result:
        """The Result to add to for that partition."""
        result = self._open.get(partition)
        if result is None or len(result.records) >= RECORDS_PER_BATCH:
            result = self._open[partition] = Result(partition=partition)
            self._all.append(result)
        return result

    def add(self, partition: int, records: Iterable[CoordinatorRecord]) -> None:
        rest: Iterator[CoordinatorRecord] = iter(records)
        while True:
            part = list(islice(rest, RECORDS_PER_BATCH))
            if not part:
                return
            self.of(partition).records += part

    def joined(self, reply: Reply | None = None) -> Result:
        """One Result with the others in `more`, in order; the reply leaves after all of them."""
        kept = self._all or [Result()]
        if reply is not None:
            kept[-1].replies.append(reply)
        kept[0].more = kept[1:]
        return kept[0]


def _fetched_offset(
    offsets: GroupOffsets, partition: TopicPartition, require_stable: bool
) -> FetchedOffset:
    unstable = require_stable and offsets.is_staged(partition)
    committed = None if unstable else offsets.committed.get(partition)
    if committed is None:
        return FetchedOffset(
            partition[1], -1, -1, "", Code.UNSTABLE_OFFSET_COMMIT if unstable else Code.NONE
        )
    return FetchedOffset(
        partition[1], committed.offset, committed.leader_epoch, committed.metadata, Code.NONE
    )


def _committed_since(committed: CommittedOffset) -> int:
    return committed.since_ms


def _set_all(codes: PartitionCodes, offsets: Iterable[AskedOffset], code: Code) -> None:
    for topic, asked in offsets:
        codes[topic][asked.partition_index] = code


def _commit_response(codes: PartitionCodes) -> OffsetCommitResponse:
    topics = [
        OffsetCommitResponseTopic(
            topic, partitions=[OffsetCommitResponsePartition(*one) for one in of_topic.items()]
        )
        for topic, of_topic in codes.items()
    ]
    return OffsetCommitResponse(topics=topics)


def _txn_commit_response(codes: PartitionCodes) -> TxnOffsetCommitResponse:
    topics = [
        TxnOffsetCommitResponseTopic(
            topic, [TxnOffsetCommitResponsePartition(*one) for one in of_topic.items()]
        )
        for topic, of_topic in codes.items()
    ]
    return TxnOffsetCommitResponse(topics=topics)
