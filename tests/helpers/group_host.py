"""A host in memory for a GroupCoordinator. It stores the log, has the coordinator replay what is
appended, and advances the clock.

Requests and responses are encoded and decoded in the request's version. After every event, a new
coordinator replays the log and must reach the same hard state.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from barnabas.broker.slices import run_through
from barnabas.coordinator.groups import group_timers
from barnabas.coordinator.groups.consumer.consumer_group import held, topics_of
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_offsets import OffsetInRecord
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_types import CONSUMER_TYPE
from barnabas.coordinator.groups.share.share_group_settings import ShareGroupSettings
from barnabas.coordinator.groups.streams.streams_group import StreamsGroup
from barnabas.coordinator.groups.streams.streams_group_settings import StreamsGroupSettings
from barnabas.coordinator.result import (
    Counted,
    InternalTopic,
    Reply,
    Result,
    StateChange,
    partition_for,
)
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.consumer_group_heartbeat import TopicPartitions
from barnabas.protocol.messages.join_group import JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import MemberIdentity
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.streams_group_heartbeat import Subtopology, TaskIds, Topology
from barnabas.protocol.messages.sync_group import SyncGroupRequestAssignment
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.wall_clock import WallClock
from helpers import our_messages
from helpers.hard_state import hard_state
from helpers.stamped import wrongly_current

TOPICS = {"t": 3, "u": 1, "v": 1}
EVENTS = {
    "JoinGroup": "membership.on_join_group",
    "SyncGroup": "membership.on_sync_group",
    "Heartbeat": "on_heartbeat",
    "LeaveGroup": "membership.on_leave_group",
    "OffsetCommit": "commits.on_offset_commit",
    "OffsetFetch": "fetches.on_offset_fetch",
    "OffsetDelete": "removal.on_offset_delete",
    "TxnOffsetCommit": "commits.on_txn_offset_commit",
    "ListGroups": "administration.list_groups",
    "DescribeGroups": "administration.describe_groups",
    "DeleteGroups": "administration.on_delete_groups",
    "ConsumerGroupHeartbeat": "membership.on_consumer_group_heartbeat",
    "ConsumerGroupDescribe": "administration.describe_consumer_groups",
    "ShareGroupHeartbeat": "share_requests.on_heartbeat",
    "ShareGroupDescribe": "share_requests.describe_groups",
    "AlterShareGroupOffsets": "share_offsets.on_alter",
    "DeleteShareGroupOffsets": "share_offsets.on_delete",
    "StreamsGroupHeartbeat": "streams_requests.on_heartbeat",
    "StreamsGroupDescribe": "streams_requests.describe_groups",
}
# Requests that must change nothing if they are refused.
LEAVING_NO_TRACE = ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")
SHARE_SETTINGS = {
    "share.session.timeout.ms": 45_000,
    "share.heartbeat.interval.ms": 5_000,
    "share.assignment.interval.ms": 0,
}
STREAMS_SETTINGS = {
    "streams.session.timeout.ms": 45_000,
    "streams.heartbeat.interval.ms": 5_000,
    "streams.assignment.interval.ms": 0,
    "streams.initial.rebalance.delay.ms": 0,
    "streams.num.standby.replicas": 0,
}
DEFAULTS = {**SHARE_SETTINGS, **STREAMS_SETTINGS}
PARKED = "parked"
CLIENT_ID, CLIENT_HOST = "client", "/192.0.2.7"

# A record as (partition, key, value, producer), or a marker as (partition, None, (producer_id,
# producer_epoch, commit), None).
LogRow = tuple[int, bytes | None, Any, tuple[int, int] | None]


def check_timers(coordinator: GroupCoordinator) -> None:
    """Check that each timer belongs to an existing group or member, and that each member without a
    waiting request has a timer. Otherwise a deleted member could expire a second time, or a member
    that sends no more requests would never expire.
    """
    timers = coordinator.timers

    def members_of(group: Group) -> set[str]:
        if group.modern is not None and (group.modern.exists or group.modern.kind != CONSUMER_TYPE):
            return set(group.modern.member_ids)
        of_classic = group.classic._members
        return {*of_classic.by_id, *of_classic.pending_ids}

    for kind, group_id, member_id in list(timers):
        group = coordinator.group(group_id)
        assert group is not None, f"a timer {kind} of the group {group_id}, which is gone"
        if member_id:
            assert member_id in members_of(group), f"a timer {kind} of {member_id}, who is gone"
        elif kind == group_timers.PATTERNS:
            assert group.kind == CONSUMER_TYPE, (
                f"{group_id} is no consumer group, and looks for patterns"
            )
        elif kind in (group_timers.FIRST_TARGET, group_timers.ASSIGNING):
            assert group.modern is not None, f"{group_id} waits for a target of no use"
    for group in coordinator.all_groups():
        for member_id in members_of(group):
            key = (group_timers.SESSION, group.group_id, member_id)
            waits = {*group.classic._members.parked_joins, *group.classic._members.parked_syncs}
            assert key in timers or member_id in waits, f"{member_id} would be a member for ever"


def check_members(coordinator: GroupCoordinator) -> None:
    """Check that no assignment belongs to a member that has left, and that each owner table agrees
    with the members' assignments. Otherwise a partition would have an owner that does not consume
    it.
    """
    for group in coordinator.all_groups():
        one: Any = group.modern
        if one is None or not one.exists:
            continue
        gone = (one.targets.keys() | one.currents.keys()) - set(group.member_ids)
        assert not gone, f"{group.group_id} has assignments of {gone}"
        if group.kind == CONSUMER_TYPE:
            owners: dict[uuid.UUID, dict[int, str]] = {}
            for member_id, current in one.currents.items():
                for topic_id, partition in held(current):
                    owners.setdefault(topic_id, {})[partition] = member_id
            assert one.owners == owners, f"{group.group_id} has other owners than {owners}"
            joining = [name for name, current in one.currents.items() if not current.member_epoch]
            assert not joining, f"{joining} have the epoch 0, which is that of a joining member"
            topics = {
                topic for each in one.members.values() for topic in topics_of(each, one.patterns)
            }
            assert one.subscribed_topics == topics, (
                f"{group.group_id} has other topics than {topics}"
            )
        elif isinstance(one, StreamsGroup):
            again = StreamsGroup()
            for member_id, member in one.members.items():
                again._add_processes(member.process_id, one.current(member_id))
            for name in ("active_processes", "standby_processes", "warmup_processes"):
                assert getattr(one, name) == getattr(again, name), f"{name} of {group.group_id}"


def check_open_transactions(coordinator: GroupCoordinator, log: Iterable[LogRow]) -> None:
    """Check that each open transaction has records in the log, without a marker after them.
    Otherwise the entries of finished transactions would never be removed, and since each session
    may use a new producer id, there would be more and more of them.
    """
    is_open: set[tuple[int, int]] = set()
    for partition, key, value, producer in log:
        if key is None:
            is_open.discard((partition, value[0]))
        elif producer is not None:
            is_open.add((partition, producer[0]))
    ended = coordinator.open_transactions.keys() - is_open
    assert not ended, f"transactions that have ended are still there: {ended}"


class Directory:
    """The host's topics as the coordinator sees them. If a deleted topic is created again, it has a
    new id.
    """

    def __init__(self, topics: dict[str, int]) -> None:
        self._topics = topics
        self._seen = dict(topics)
        self._ids: dict[str, uuid.UUID] = {}
        self._next_id = itertools.count(1)
        self._version = 0
        self.hidden_from: dict[str, set[str]] = {}

    def notice(self) -> None:
        """Drop the ids of deleted topics now, so that a topic that is created again has a new
        id.
        """
        assert self.version >= 0

    @property
    def version(self) -> int:
        """A number that changes whenever the topics change. Reading it also drops the ids of
        deleted topics, so that a topic that is created again has a new id.
        """
        if self._seen != self._topics:
            for name in [name for name in self._ids if name not in self._topics]:
                del self._ids[name]
            self._seen, self._version = dict(self._topics), self._version + 1
        return self._version

    def topic(self, name: str) -> tuple[uuid.UUID, int] | None:
        """The id and the number of partitions of a topic, or None if there is no such topic."""
        if name not in self._topics:
            return None
        if name not in self._ids:
            self._ids[name] = uuid.UUID(int=next(self._next_id))
        return self._ids[name], self._topics[name]

    def name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with this id, or None if there is no such topic."""
        for name in self._topics:
            known = self.topic(name)
            if known is not None and known[0] == topic_id:
                return name
        return None

    def names(self) -> list[str]:
        return list(self._topics)

    def visible_to(self, context: RequestContext) -> Callable[[str], bool] | None:
        """A function that says whether a client may see a topic, or None if it may see all
        topics.
        """
        hidden = self.hidden_from.get(context.client_id)
        return None if hidden is None else lambda name: name not in hidden


class ShareStates:
    """The start offsets of share partitions. They replace the states of the share coordinator.

    With `at_once`, changes are applied immediately; otherwise they wait in `pending`. If `failing`
    is an error code, every change fails with it and is not applied.
    """

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, uuid.UUID, int], int] = {}
        self.pending: list[StateChange] = []
        self.at_once, self.failing = True, Code.NONE

    def carry_out(self, change: StateChange, directory: Directory) -> list[Code]:
        """Apply a change of share states, and return the error code of each row."""
        codes = []
        for row in change.rows:
            name = directory.name(row.topic_id)
            code = self.failing
            if name is None or row.partition >= directory.topic(name)[1]:  # type: ignore[index]
                code = Code.UNKNOWN_TOPIC_OR_PARTITION
            key = (change.group_id, row.topic_id, row.partition)
            if code is Code.NONE and change.is_deletion:
                self.offsets.pop(key, None)
            elif code is Code.NONE:
                self.offsets[key] = row.start_offset
            codes.append(code)
        return codes

    def forget(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """Delete the states of deleted topics."""
        deleted = set(topic_ids)
        self.offsets = {key: at for key, at in self.offsets.items() if key[1] not in deleted}


class GroupHost:
    """A group coordinator with its log, clock and topics. `log` has all appended rows in order. The
    offset of a row is its index among the rows of its partition.
    """

    def __init__(
        self,
        *,
        settings: GroupSettings | None = None,
        partition_count: int = 4,
        topics: Mapping[str, int] | None = None,
        now_ms: int = 1_000_000_000,
        checks: bool = True,
        consumer_settings: ConsumerGroupSettings | None = None,
        share_settings: ShareGroupSettings | None = None,
        streams_settings: StreamsGroupSettings | None = None,
    ) -> None:
        self.streams_settings = streams_settings or StreamsGroupSettings()
        self.missing_topics: list[InternalTopic] = []
        self.share_settings = share_settings or ShareGroupSettings()
        self.share_states = ShareStates()
        self.consumer_settings = consumer_settings or ConsumerGroupSettings()
        self.overrides: dict[str, dict[str, int]] = {}
        self.settings = settings or GroupSettings()
        self.partition_count = partition_count
        self.topics = dict(TOPICS if topics is None else topics)
        self.directory = Directory(self.topics)
        # The wall clock is far ahead of the monotonic clock, so that a test fails if the time of
        # one is used for the other.
        self.now_ms, self.wall_ahead_ms = now_ms, 1_700_000_000_000
        self.wall = WallClock()
        self.checks = checks
        self.log: list[LogRow] = []
        self.counts = Counter[Counted]()
        self.answers: dict[int, Any] = {}
        self.requests: dict[int, tuple[str, int]] = {}
        self._tickets, self._suffixes = itertools.count(1), itertools.count(1)
        self._next_offset = [0] * partition_count
        self.coordinator = self.new_coordinator()

    # --- the coordinator and its log -------------------------------------------------------------

    def new_coordinator(self) -> GroupCoordinator:
        """A coordinator without groups, with this host's topics, clock and settings."""
        return GroupCoordinator(
            partition_count=self.partition_count,
            settings=self.settings,
            partition_exists=lambda topic, partition: partition < self.topics.get(topic, 0),
            new_member_suffix=lambda: str(next(self._suffixes)),
            wall=self.wall,
            topics=self.directory,
            new_member_id=lambda: f"member-{next(self._suffixes)}",
            consumer_settings=self.consumer_settings,
            share_settings=self.share_settings,
            overrides=lambda group_id: self.overrides.get(group_id, {}),
            streams_settings=self.streams_settings,
            setting_of=lambda group_id, name: self.overrides.get(group_id, DEFAULTS).get(
                name, DEFAULTS[name]
            ),
        )

    def replayed(self, rows: Iterable[LogRow] | None = None) -> GroupCoordinator:
        """A new coordinator that has replayed the log, or the given rows."""
        coordinator = self.new_coordinator()
        offsets = [0] * self.partition_count
        for row in self.log if rows is None else rows:
            _feed(coordinator, row, offsets[row[0]])
            offsets[row[0]] += 1
        return coordinator

    def _append(self, row: LogRow, content: OffsetInRecord | None = None) -> None:
        """Append a row to the log, and have the coordinator replay it, or apply its content."""
        self.log.append(row)
        partition, offset = row[0], self._next_offset[row[0]]
        if content is None:
            _feed(self.coordinator, row, offset)
        else:
            self.coordinator.apply_offset(partition, offset, content, row[3])
        self._next_offset[partition] += 1

    def handle(self, result: Result) -> None:
        """Do what a result requires: append its records, and store its responses. With `checks`, a
        new coordinator that replays the whole log must have the same state afterwards.
        """
        for part in (result, *result.more):
            assert part.producer is None or len(part.records) > 0
            self.counts.update(part.counts)
            contents = part.offsets or [None] * len(part.records)
            for (key, value), content in zip(part.records, contents, strict=True):
                assert type(key) is bytes and (value is None or type(value) is bytes)
                self._append((part.partition, key, value, part.producer), content)
            for ticket, response in part.replies:
                assert ticket not in self.answers, (
                    f"request {self.requests[ticket]} is answered twice"
                )
                name, version = self.requests[ticket]
                response_class = our_messages.response_class(name)
                self.answers[ticket] = response_class.decode(response.encode(version), version)
        if self.checks:
            assert hard_state(self.replayed()) == hard_state(self.coordinator)
            check_timers(self.coordinator)
            check_members(self.coordinator)
            assert list(wrongly_current(self.coordinator)) == []
            check_open_transactions(self.coordinator, self.log)
        for part in (result, *result.more):
            for change in part.state_changes:
                self.share_states.pending.append(change)
            if part.creation is not None:
                self.missing_topics = list(part.creation.topics)
        if self.share_states.at_once:
            self.change_states()

    def change_states(self) -> None:
        """Apply the pending changes of share states."""
        while self.share_states.pending:
            change = self.share_states.pending.pop(0)
            codes = self.share_states.carry_out(change, self.directory)
            self.handle(self.coordinator.share_offsets.on_states_changed(change, codes))

    def end_transaction(
        self, producer_id: int, commit: bool, producer_epoch: int = 0, group: str | None = None
    ) -> None:
        """Write a transaction's marker to the group's partition, or to all partitions if no group
        is given.
        """
        partitions = (
            range(self.partition_count)
            if group is None
            else [partition_for(group, self.partition_count)]
        )
        for partition in partitions:
            self._append((partition, None, (producer_id, producer_epoch, commit), None))
        self.handle(Result())

    def event_ms(self) -> int:
        """Return the monotonic time of the next event, and set the wall clock."""
        self.wall.feed(self.now_ms, self.now_ms + self.wall_ahead_ms)
        return self.now_ms

    def restart(self) -> None:
        """Kill and restart the broker. Requests that were waiting never get a response."""
        for ticket in self.waiting():
            del self.requests[ticket]
        self.event_ms()
        self.coordinator = self.replayed()
        self.handle(self.coordinator.on_loaded(self.now_ms))

    def lose_power(
        self,
        ends: Mapping[tuple[str, int], int],
        epoch_ends: Mapping[tuple[str, int, int], tuple[int, int]] | None = None,
    ) -> None:
        """Restart after a power loss that truncated the logs to the offsets `ends`. `epoch_ends` is
        indexed by topic, partition and leader epoch.
        """
        self.restart()
        self.handle(self.coordinator.on_power_loss(self.now_ms))
        self.find_logs_cut(ends, epoch_ends or {}, lost_power=True)

    def find_logs_cut(
        self,
        ends: Mapping[tuple[str, int], int],
        epoch_ends: Mapping[tuple[str, int, int], tuple[int, int]],
        *,
        lost_power: bool,
    ) -> None:
        """Have the coordinator reset the committed offsets that are beyond the ends of these
        logs.
        """

        def epoch_end(topic: str, partition: int, epoch: int) -> tuple[int, int]:
            return epoch_ends.get((topic, partition, epoch), (-1, -1))

        rows = self.coordinator.offsets_beyond_log_end(
            lambda topic, partition: ends.get((topic, partition)), epoch_end, lost_power=lost_power
        )
        for row in rows:
            assert row.offset <= ends[row.topic, row.partition], "it is beyond the end of the log"
        self.handle(self.coordinator.reset_offsets(rows))

    def pass_time(self, ms: int) -> None:
        """Advance the clock by `ms`, with a tick at every deadline in between."""
        end_ms = self.now_ms + ms
        while (
            deadline_ms := self.coordinator.next_deadline_ms()
        ) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.handle(self.coordinator.on_tick(self.event_ms()))
            following_ms = self.coordinator.next_deadline_ms()
            is_assigning = any(
                kind == group_timers.ASSIGNING for kind, _, _ in self.coordinator.timers
            )
            assert following_ms is None or following_ms > self.now_ms or is_assigning, (
                "a tick left something that was due"
            )
        self.now_ms = end_ms

    # --- requests --------------------------------------------------------------------------------

    def waiting(self) -> list[int]:
        """The tickets of requests that have no response yet."""
        return [ticket for ticket in self.requests if ticket not in self.answers]

    def send(self, name: str, version: int, client_id: str = CLIENT_ID, /, **fields: Any) -> int:
        """Send a request, and return its ticket. `answers` has the response under this ticket,
        immediately or later.
        """
        request_class = our_messages.request_class(name)
        encoded = memoryview(bytearray(request_class(**fields).encode(version)))
        request = request_class.decode(encoded, version)
        ticket = next(self._tickets)
        self.requests[ticket] = (name, version)
        context = RequestContext(ticket, version, client_id, CLIENT_HOST)
        decide = attrgetter(EVENTS[name])(self.coordinator)
        before = self._groups_and_timers()
        if name.startswith("List"):
            answer = run_through(decide(request), self.event_ms())
            self.handle(Result(replies=[Reply(ticket, answer)]))
        elif "Describe" in name:
            answer = run_through(decide(request, context), self.event_ms())
            self.handle(Result(replies=[Reply(ticket, answer)]))
        else:
            answer = decide(request, context, self.event_ms())
            if isinstance(answer, Message):
                answer = Result(replies=[Reply(ticket, answer)])
            self.handle(answer)
        # overwrite the request: the coordinator must have copied what it keeps
        encoded[:] = bytes(len(encoded))
        if name in LEAVING_NO_TRACE and self.answers[ticket].error_code != Code.NONE:
            assert self._groups_and_timers() == before, "a refused heartbeat has changed something"
        return ticket

    def _groups_and_timers(self) -> tuple[list[str], dict[group_timers.TimerKey, int | None]]:
        timers = self.coordinator.timers
        return (
            [group.group_id for group in self.coordinator.all_groups()],
            {key: timers.deadline_ms(key) for key in timers},
        )

    def call(self, name: str, version: int, /, **fields: Any) -> Any:
        """Send a request and return the response, which must come immediately."""
        ticket = self.send(name, version, **fields)
        assert ticket in self.answers, f"{name} waits"
        return self.answers[ticket]

    def share_heartbeat(
        self,
        member: str = "m",
        epoch: int = 0,
        *,
        group: str = "g",
        topics: list[str] | None = None,
        rack: str | None = None,
        client_id: str = CLIENT_ID,
    ) -> Any:
        """Send a ShareGroupHeartbeat and return the response. A joining member subscribes to "t" by
        default.
        """
        if epoch == 0 and topics is None:
            topics = ["t"]
        ticket = self.send(
            "ShareGroupHeartbeat", 1, client_id, group_id=group, member_id=member,
            member_epoch=epoch, rack_id=rack, subscribed_topic_names=topics,
        )  # fmt: skip
        return self.answers[ticket]

    def describe_share_group(self, group: str = "g") -> Any:
        answer = self.call("ShareGroupDescribe", 1, group_ids=[group])
        return answer.groups[0]

    def streams_heartbeat(
        self,
        member: str = "m",
        epoch: int = 0,
        *,
        group: str = "g",
        topology: Topology | None = None,
        owned: Mapping[str, Iterable[int]] | None = None,
        standby: Mapping[str, Iterable[int]] | None = None,
        client_id: str = CLIENT_ID,
        **fields: Any,
    ) -> Any:
        """Send a StreamsGroupHeartbeat and return the response. A joining member sends the required
        fields and, by default, a topology that reads "t".

        Takes: owned and standby, the tasks by subtopology. A later heartbeat without `owned` leaves
        out the fields for tasks.
        """
        if epoch == 0:
            owned = {} if owned is None else owned
            topology = topology or topology_of_topics("t")
            fields = {"rebalance_timeout_ms": 10_000, "process_id": f"of-{member}", **fields}
        if owned is not None:
            roles = {
                "active_tasks": _task_rows(owned),
                "standby_tasks": _task_rows(standby or {}),
                "warmup_tasks": [],
            }
            fields = {**roles, **fields}
        ticket = self.send(
            "StreamsGroupHeartbeat", 0, client_id, group_id=group, member_id=member,
            member_epoch=epoch, **{"topology": topology, **fields},
        )  # fmt: skip
        return self.answers[ticket]

    def describe_streams_group(self, group: str = "g") -> Any:
        return self.call("StreamsGroupDescribe", 0, group_ids=[group]).groups[0]

    def make_missing_topics(self) -> None:
        """Create the internal topics that the last response requires, as the broker does."""
        for topic in self.missing_topics:
            self.topics[topic.name] = topic.partition_count
        self.missing_topics = []

    def consumer_heartbeat(
        self,
        member: str = "m",
        epoch: int = 0,
        *,
        group: str = "g",
        version: int = 1,
        client_id: str = CLIENT_ID,
        owned: Mapping[str, Iterable[int]] | None = None,
        **fields: Any,
    ) -> Any:
        """Send a ConsumerGroupHeartbeat and return the response. A joining member sends the
        required fields.

        Takes: owned, the partitions by topic name.
        """
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], **fields}
            owned = {} if owned is None else owned
        rows = None
        if owned is not None:
            rows = [
                TopicPartitions(self.directory.topic(name)[0], list(numbers))  # type: ignore[index]
                for name, numbers in owned.items()
            ]
        fields.setdefault("topic_partitions", rows)
        ticket = self.send(
            "ConsumerGroupHeartbeat",
            version,
            client_id,
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            **fields,
        )
        return self.answers[ticket]

    def assigned(self, answer: Any) -> dict[str, list[int]] | None:
        """The partitions, by topic name, that a heartbeat response assigns, or None if the response
        has no assignment.
        """
        if answer.assignment is None:
            return None
        return {
            self.directory.name(row.topic_id) or "": row.partitions
            for row in answer.assignment.topic_partitions
        }

    def describe_consumer_group(self, group: str = "g", version: int = 1) -> Any:
        return self.call("ConsumerGroupDescribe", version, group_ids=[group]).groups[0]

    def join_later(
        self,
        group: str = "g",
        member: str = "",
        *,
        protocols: Mapping[str, bytes] | None = None,
        instance: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 3_000,
        kind: str = "consumer",
        version: int = 9,
        client_id: str = CLIENT_ID,
    ) -> int:
        """Send a JoinGroup request, and return its ticket. Each field of the request has a
        parameter, but most tests set only a few.
        """
        listed = {"range": b"sub"} if protocols is None else protocols
        return self.send(
            "JoinGroup",
            version,
            client_id,
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in listed.items()
            ],
        )

    def join(self, group: str = "g", member: str = "", **more: Any) -> Any:
        ticket = self.join_later(group, member, **more)
        return self.answers.get(ticket, PARKED)

    def sync_later(
        self,
        group: str,
        generation: int,
        member: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
        version: int = 5,
    ) -> int:
        """Send a SyncGroup request, and return its ticket."""
        return self.send(
            "SyncGroup",
            version,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=data)
                for one, data in (assignments or {}).items()
            ],
        )

    def sync(
        self,
        group: str,
        generation: int,
        member: str,
        assignments: Mapping[str, bytes] | None = None,
        **more: Any,
    ) -> Any:
        """Send a SyncGroup request, and return the response, or PARKED if the request waits."""
        ticket = self.sync_later(group, generation, member, assignments, **more)
        return self.answers.get(ticket, PARKED)

    def heartbeat(
        self,
        group: str,
        generation: int,
        member: str,
        instance: str | None = None,
        version: int = 4,
    ) -> int:
        answer = self.call(
            "Heartbeat",
            version,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
        )
        return int(answer.error_code)

    def leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> Any:
        identities = [
            MemberIdentity(member_id=member, group_instance_id=instance)
            for member, instance in members
        ]
        return self.call("LeaveGroup", version, group_id=group, members=identities)

    def commit(
        self,
        group: str,
        offsets: Mapping[str, Mapping[int, int]],
        *,
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        leader_epoch: int = -1,
        version: int = 9,
    ) -> dict[tuple[str, int], int]:
        """Send an OffsetCommit request, and return the error codes of the response. Each field of
        the request has a parameter, but most tests set only a few.
        """
        answer = self.call(
            "OffsetCommit",
            version,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=_offset_topics(
                OffsetCommitRequestTopic,
                OffsetCommitRequestPartition,
                offsets,
                metadata,
                leader_epoch,
            ),
        )
        return _codes(answer)

    def txn_commit(
        self,
        group: str,
        offsets: Mapping[str, Mapping[int, int]],
        *,
        producer_id: int = 7,
        producer_epoch: int = 0,
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        metadata: str | None = "",
        version: int = 4,
    ) -> dict[tuple[str, int], int]:
        """Send a TxnOffsetCommit request, and return the error codes of the response. Each field of
        the request has a parameter, but most tests set only a few.
        """
        answer = self.call(
            "TxnOffsetCommit",
            version,
            transactional_id="txn",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            topics=_offset_topics(
                TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition, offsets, metadata, -1
            ),
        )
        return _codes(answer)

    def fetch(
        self,
        group: str,
        wanted: Mapping[str, list[int]] | None = None,
        *,
        stable: bool = False,
        version: int = 7,
    ) -> Any:
        """Send an OffsetFetch request, and return {(topic, partition): (offset, metadata)}. A
        partition with an error has the error code in place of the pair.
        """
        if version >= 8:
            topics = (
                None
                if wanted is None
                else [
                    OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)
                    for topic, partitions in wanted.items()
                ]
            )
            answer = self.call(
                "OffsetFetch",
                version,
                groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
                require_stable=stable,
            ).groups[0]
        else:
            topics = (
                None
                if wanted is None
                else [
                    OffsetFetchRequestTopic(name=topic, partition_indexes=part)
                    for topic, part in wanted.items()
                ]
            )
            answer = self.call(
                "OffsetFetch", version, group_id=group, topics=topics, require_stable=stable
            )
        assert answer.error_code == Code.NONE
        return {
            (topic.name, one.partition_index): one.error_code
            or (one.committed_offset, one.metadata)
            for topic in answer.topics
            for one in topic.partitions
        }

    def delete_offsets(self, group: str, partitions: Mapping[str, list[int]]) -> Any:
        """Delete offsets. Return {(topic, partition): code}, or the error code of the whole
        request.
        """
        topics = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                ],
            )
            for topic, indexes in partitions.items()
        ]
        answer = self.call("OffsetDelete", 0, group_id=group, topics=topics)
        return answer.error_code or _codes(answer)

    def describe(self, group: str, version: int = 5) -> Any:
        answer = self.call(
            "DescribeGroups", version, groups=[group], include_authorized_operations=False
        )
        return answer.groups[0]

    def state(self, group: str) -> str:
        return str(self.describe(group).group_state)

    def list_groups(self, version: int = 5, **filters: list[str]) -> dict[str, tuple[str, str]]:
        answer = self.call("ListGroups", version, **filters)
        return {one.group_id: (one.protocol_type, one.group_state) for one in answer.groups}

    def delete_groups(self, *groups: str) -> list[tuple[str, int]]:
        for result in self.coordinator.share_offsets.begin_deletion(groups):
            self.handle(result)
        answer = self.call("DeleteGroups", 2, groups_names=list(groups))
        return [(one.group_id, one.error_code) for one in answer.results]

    def delete_topics(self, *names: str) -> None:
        """Delete topics, and have the coordinator delete the offsets of these topics."""
        ids = {known[0] for name in names if (known := self.directory.topic(name)) is not None}
        for name in names:
            del self.topics[name]
        self.directory.notice()
        for result in self.coordinator.removal.on_topics_deleted(names, ids):
            self.handle(result)
        self.share_states.forget(ids)


def topology_of_topics(*names: str, epoch: int = 0) -> Topology:
    """A topology with one subtopology that reads these topics."""
    return Topology(epoch, [Subtopology(subtopology_id="0", source_topics=list(names))])


def _task_rows(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [TaskIds(name, list(partitions)) for name, partitions in tasks.items()]


class GroupMember:
    """A group member that sends requests. It uses the member id that the coordinator assigns, and
    the generation of its last JoinGroup response.
    """

    def __init__(
        self,
        host: GroupHost,
        group: str = "g",
        data: bytes = b"",
        topics: Iterable[str] = (),
        **join: Any,
    ) -> None:
        self.host, self.group, self.generation = host, group, -1
        self.join_with = {"protocols": {"range": subscription(*topics, data=data)}, **join}
        self.instance: str | None = join.get("instance")
        self.sync_with: dict[str, Any] = {
            "instance": self.instance,
            "kind": join.get("kind", "consumer"),
        }
        answer = host.join(group, **self.join_with)
        self.id: str = answer.member_id
        self.took(answer)

    def join(self, **changed: Any) -> Any:
        answer = self.host.join(self.group, self.id, **{**self.join_with, **changed})
        return self.took(answer)

    def join_later(self, **changed: Any) -> int:
        return self.host.join_later(self.group, self.id, **{**self.join_with, **changed})

    def took(self, answer: Any) -> Any:
        """Store the generation and the protocol of a JoinGroup response, and return the
        response.
        """
        if answer is not PARKED and answer.error_code == Code.NONE:
            self.generation = answer.generation_id
            self.sync_with["protocol"] = answer.protocol_name
        return answer

    def sync(self, assignments: Mapping[str, bytes] | None = None, **more: Any) -> Any:
        return self.host.sync(
            self.group, self.generation, self.id, assignments, **{**self.sync_with, **more}
        )

    def sync_later(self, assignments: Mapping[str, bytes] | None = None) -> int:
        return self.host.sync_later(
            self.group, self.generation, self.id, assignments, **self.sync_with
        )

    def heartbeat(self, generation: int | None = None) -> int:
        generation = self.generation if generation is None else generation
        return self.host.heartbeat(self.group, generation, self.id, self.instance)

    def commit(
        self, offsets: Mapping[str, Mapping[int, int]], generation: int | None = None
    ) -> dict[tuple[str, int], int]:
        generation = self.generation if generation is None else generation
        return self.host.commit(
            self.group, offsets, generation=generation, member=self.id, instance=self.instance
        )

    def leave(self) -> Any:
        return self.host.leave(self.group, (self.id, self.instance))


def alone(host: GroupHost, group: str = "g", data: bytes = b"", **join: Any) -> GroupMember:
    """Make a stable group with one member."""
    member = GroupMember(host, group, data, **join)
    if member.generation < 0:
        member.join()
    assert member.sync({member.id: b"all"}).error_code == Code.NONE
    return member


def pair(host: GroupHost, group: str = "g", **join: Any) -> tuple[GroupMember, GroupMember]:
    """Make a stable group with a leader and a follower. It is in its second generation."""
    leader = alone(host, group, b"leader", **join)
    follower = GroupMember(host, group, b"follower", **join)
    ticket = follower.join_later()
    leader.join()
    follower.took(host.answers[ticket])
    leader.sync({leader.id: b"leader's", follower.id: b"follower's"})
    follower.sync()
    return leader, follower


def subscription(*topics: str, data: bytes = b"") -> bytes:
    """A consumer's subscription, encoded in version 0."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return bytes(2) + len(topics).to_bytes(4, "big") + names + len(data).to_bytes(4, "big") + data


def _feed(coordinator: GroupCoordinator, row: LogRow, offset: int) -> None:
    """Have the coordinator replay a row of the log, which is a marker if it has no key, and
    otherwise a record.
    """
    partition, key, value, producer = row
    if key is None:
        producer_id, producer_epoch, commit = value
        coordinator.replay_marker(partition, offset, producer_id, producer_epoch, commit)
    else:
        coordinator.replay(partition, offset, key, value, producer)


def _offset_topics(
    topic_class: Any,
    partition_class: Any,
    offsets: Mapping[str, Mapping[int, int]],
    metadata: str | None,
    leader_epoch: int,
) -> list[Any]:
    """The topics of an offset commit, as objects of the given classes."""
    return [
        topic_class(
            name=topic,
            partitions=[
                partition_class(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
                for index, offset in of_topic.items()
            ],
        )
        for topic, of_topic in offsets.items()
    ]


def _codes(answer: Any) -> dict[tuple[str, int], int]:
    """The error code of each partition in a response."""
    return {
        (topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
    }
