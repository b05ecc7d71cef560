"""Handles the members of the consumer protocol (KIP-848): their heartbeats, with which they join,
stay and leave, their sessions, and their patterns.

A heartbeat request contains everything that a member requests, and the response its assignment. The
steps are: the request is checked; the group is created, or converted from a classic one; the member
is found or created, or replaces its former incarnation; then the steps of `GroupChange` follow.

Timers, with the keys (kind, group, member). When one of the first four is due, the member is
removed:

    SESSION    the end of a member's session
    REBALANCE  the end of the time to give partitions up
    JOIN       the end of the wait for a classic member that has to join again
    SYNC       the end of the wait for the SyncGroup of a classic member that has joined
    PATTERNS   the patterns of a group are looked up (without a member)

Patterns are looked up after the response, in separate events with a bounded amount of work, so that
heartbeats do not wait for the lookup. As in Apache Kafka, a later heartbeat gives the topics to the
member. A lookup finds only topics that may be described by the member whose heartbeat caused the
lookup. After a start, this is the member that sends the first heartbeat.

Source: KIP-848; KIP-1082 (members choose their ids); Apache Kafka 4.3's responses where the KIPs do
        not specify them.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Mapping, Sequence

from barnabas.coordinator.descriptions import InSlices, members_in_slices
from barnabas.coordinator.groups import group_timers as timers_of
from barnabas.coordinator.groups.classic.classic_answers import JoinRequest, ParkedRequest
from barnabas.coordinator.groups.classic_groups import ClassicGroups
from barnabas.coordinator.groups.consumer.classic_members import ClassicMembers
from barnabas.coordinator.groups.consumer.consumer_group import (
    ConsumerGroup,
    consumer_group,
    static_member_id,
    topics_of,
)
from barnabas.coordinator.groups.consumer.consumer_group_change import (
    GroupChange,
    preferred_assignor,
)
from barnabas.coordinator.groups.consumer.consumer_group_records import (
    CurrentValue,
    MemberState,
    MemberValue,
    PartitionEpochs,
    PatternValue,
)
from barnabas.coordinator.groups.consumer.consumer_groups_context import (
    ASSIGNMENT_INTERVAL,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    ConsumerGroupsContext,
)
from barnabas.coordinator.groups.consumer.group_conversion import GroupConversion, Upgrade
from barnabas.coordinator.groups.consumer.reconciliation import Owned
from barnabas.coordinator.groups.consumer.topic_patterns import InvalidPatternError, PatternReader
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_machine import GroupMachine
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.groups.group_types import CONSUMER_TYPE
from barnabas.coordinator.result import Reply, Result
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages import consumer_group_describe as describing
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.request_context import RequestContext

# Special member epochs in requests. With any other negative epoch a member leaves for good.
JOINING, LEAVING_FOR_A_WHILE = 0, -2
NO_REBALANCE_TIMEOUT = -1
FIRST_VERSION_WITH_OWN_ID = 1
PATTERNS_INTERVAL_MS = 1_000  # the minimum time between two lookups of a group's patterns
LOOKUP_PAUSE_MS = 40  # this pause keeps the time of lookups below a fifth of the broker's time
LONGEST_NAME_BYTES = (1 << 15) - 1  # the maximum length of a text in the key of a record
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1  # KIP-1099


class ConsumerGroups(GroupMachine):
    """Handles the requests of members of the consumer protocol, and their timers."""

    def __init__(
        self,
        context: ConsumerGroupsContext,
        classic_settings: GroupSettings,
        classic_groups: ClassicGroups,
    ) -> None:
        self._context = context
        self._conversion = GroupConversion(
            context.settings,
            classic_settings,
            context.topics,
            context.timers,
            context.wall,
            classic_groups,
        )
        self._classic_members = ClassicMembers(context, self._conversion, self)
        self._settings, self._topics = context.settings, context.topics
        self._timers = context.timers
        self.patterns = PatternReader()

    # --- heartbeats ------------------------------------------------------------------------------

    def check_request(self, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        """Check the fields of a request. Raises: KafkaError
        INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
        """
        epoch = request.member_epoch
        for name, text in (
            ("GroupId", request.group_id),
            ("InstanceId", request.instance_id),
            ("RackId", request.rack_id),
        ):
            _require(text != "", f"{name} is empty: set it, or leave it out if it is optional.")
        for text in (request.group_id, request.member_id, request.subscribed_topic_regex):
            # a character has up to four bytes in UTF-8
            if text and len(text) > LONGEST_NAME_BYTES // 4:
                _require(
                    len(text.encode()) <= LONGEST_NAME_BYTES,
                    f"an id or a pattern is longer than {LONGEST_NAME_BYTES} bytes: shorten it.",
                )
        _require(epoch >= LEAVING_FOR_A_WHILE, f"MemberEpoch is {epoch}: it must be -2 or more.")
        if epoch != JOINING or api_version >= FIRST_VERSION_WITH_OWN_ID:
            _require(bool(request.member_id), "MemberId is empty: the client makes it.")
        if epoch == JOINING:
            _require(
                request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT,
                "RebalanceTimeoutMs is missing: a member that joins sends it.",
            )
            _require(
                request.topic_partitions == [],
                "TopicPartitions is not an empty list: a member that joins owns no partition.",
            )
            _require(
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None,
                "neither topics nor a pattern: a member that joins sends one of them, even if "
                "empty.",
            )
            _require(
                not self._settings.is_preview or bool(request.subscribed_topic_names),
                "SubscribedTopicNames is empty: a member that joins names a topic.",
            )
        elif epoch == LEAVING_FOR_A_WHILE:
            _require(
                request.instance_id is not None,
                "InstanceId is missing: only static members leave with -2.",
            )
        assignor = request.server_assignor
        if assignor is not None and assignor not in self._settings.assignors:
            raise KafkaError(
                Code.UNSUPPORTED_ASSIGNOR,
                f"there is no assignor '{assignor}': use {' or '.join(self._settings.assignors)}.",
            )

    def on_heartbeat(
        self,
        group: Group,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        result: Result,
        now_ms: int,
    ) -> ConsumerGroupHeartbeatResponse:
        """Answer the heartbeat of a member that joins or stays.

        Takes:  request, a request that has passed `check_request`, and with which the member does
                not leave; group, a group of any type if the member joins, otherwise a consumer
                group.
        Raises: KafkaError UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
                FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION;
                GROUP_ID_NOT_FOUND if the group is classic and may not be converted.
        """
        if request.subscribed_topic_regex:
            self._check_pattern(request.subscribed_topic_regex)
        upgrade = self._upgraded(group)
        consumer = upgrade.consumer
        member_id = request.member_id or self._context.new_member_id()
        former_id = self._former_id(consumer, request, member_id)
        # Convert the group only now, since the checks above may refuse the request.
        if group.modern is not consumer:
            self._conversion.begin(group, upgrade, result, now_ms)
        change = GroupChange(request.group_id, consumer, self._topics)
        if former_id is not None:
            self._take_over(change, former_id, member_id)
        former = change.members.get(member_id)
        value = _updated_member(former, request, context)
        self.set_member(change, member_id, value)
        regex = value.subscribed_topic_regex
        self._schedule_patterns(request.group_id, consumer, regex, context, now_ms)
        overrides = self._context.overrides(request.group_id)
        change.assign_if_due(
            self._settings,
            overrides.get(ASSIGNMENT_INTERVAL, self._settings.assignment_interval_ms),
            now_ms,
        )
        before = change.current(member_id)
        current = change.reconcile(member_id, _owned(request))
        if current is not before or (
            current.state is MemberState.UNREVOKED_PARTITIONS
            # an earlier change has ended the time limit, and could not be written
            and (timers_of.REBALANCE, request.group_id, member_id) not in self._timers
        ):
            self._time_revocation(request.group_id, member_id, value, current, now_ms)
        self._timers.schedule(
            (timers_of.SESSION, request.group_id, member_id),
            now_ms + overrides.get(SESSION_TIMEOUT, self._settings.session_timeout_ms),
        )
        change.add_to(result)
        return ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=overrides.get(
                HEARTBEAT_INTERVAL, self._settings.heartbeat_interval_ms
            ),
            assignment=_assignment_of(current) if _is_due(request, before, current) else None,
        )

    def _upgraded(self, group: Group) -> Upgrade:
        """The group as a consumer group, which this heartbeat may create.

        Gives:  the consumer group; if a classic group with members is converted, also the records
                of the conversion.
        """
        if group.kind == CONSUMER_TYPE:
            return Upgrade(consumer_group(group), [])
        return self._conversion.upgraded(group) or Upgrade(ConsumerGroup(), [])

    def set_member(self, change: GroupChange, member_id: str, value: MemberValue) -> None:
        """Set the value of a member, and raise the group's epoch if the member's topics change."""
        has_changed = False
        former = change.members.get(member_id)
        if value is not former:
            topics_before = frozenset() if former is None else topics_of(former, change.patterns)
            change.set_member(member_id, value)
            has_changed = topics_of(value, change.patterns) != topics_before
            if former is not None and former.subscribed_topic_regex != value.subscribed_topic_regex:
                change.drop_unused_patterns()
        change.raise_epoch_if(has_changed, self._settings.first_epoch)

    def _former_id(
        self, consumer: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
    ) -> str | None:
        """The current id of the member in the group; None for a new member.

        Raises: KafkaError if the epoch is wrong, if the group is full, or if the sender is not a
                member and does not join.
        """
        known_id: str | None = member_id if member_id in consumer.members else None
        if request.instance_id is not None:
            known_id = self._static_id(consumer, request, member_id) or known_id
        if known_id is None:
            if request.member_epoch != JOINING:
                raise KafkaError(
                    Code.UNKNOWN_MEMBER_ID, f"'{member_id}' is not a member of this group: join it."
                )
            if len(consumer.members) >= self._settings.max_size:
                raise KafkaError(
                    Code.GROUP_MAX_SIZE_REACHED,
                    f"the group has {self._settings.max_size} members, which is the most that "
                    "group.consumer.max.size allows.",
                )
        elif request.member_epoch != JOINING:
            _check_epoch(consumer.current(known_id), request)
        return known_id

    def _static_id(
        self, consumer: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
    ) -> str | None:
        """The current member id of the instance; None for a new instance."""
        assert request.instance_id is not None
        if request.member_epoch != JOINING:
            return static_member_id(consumer, request.instance_id, member_id)
        known_id = consumer.static_members.get(request.instance_id)
        if known_id is None or known_id == member_id:
            return known_id
        is_classic = consumer.members[known_id].classic is not None
        if not is_classic and consumer.current(known_id).member_epoch != LEAVING_FOR_A_WHILE:
            raise KafkaError(
                Code.UNRELEASED_INSTANCE_ID,
                f"the instance '{request.instance_id}' belongs to the member '{known_id}': that "
                "has to leave first.",
            )
        return known_id

    def _take_over(self, change: GroupChange, former_id: str, member_id: str) -> None:
        """Let the member replace its former incarnation.

        If the former incarnation had another id, or used the classic protocol, its timers are
        cancelled.
        """
        if former_id != member_id or change.members[former_id].classic is not None:
            timers_of.cancel_member(self._timers, change.group_id, former_id)
        if former_id != member_id:
            change.replace_member(former_id, member_id)

    def _time_revocation(
        self, group_id: str, member_id: str, value: MemberValue, current: CurrentValue, now_ms: int
    ) -> None:
        """While the member has partitions to revoke, its rebalance timeout runs; otherwise the
        timer is cancelled.
        """
        key = (timers_of.REBALANCE, group_id, member_id)
        has_to_revoke = current.pending_revocation  # empty if the member has left temporarily
        if current.state is MemberState.UNREVOKED_PARTITIONS and has_to_revoke:
            self._timers.schedule(key, now_ms + value.rebalance_timeout_ms)
        else:
            self._timers.cancel(key)

    # --- leaving ---------------------------------------------------------------------------------

    def on_leave(
        self, group: Group, request: ConsumerGroupHeartbeatRequest, result: Result, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        """Let a member leave, for good or temporarily.

        A static member that leaves temporarily keeps its partitions for the rest of its session.

        Raises: KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        consumer, member_id = consumer_group(group), request.member_id
        if request.instance_id is not None:
            static_member_id(consumer, request.instance_id, member_id)
        elif member_id not in consumer.members:
            raise KafkaError(
                Code.UNKNOWN_MEMBER_ID, f"'{member_id}' is not a member: it need not leave."
            )
        if request.member_epoch == LEAVING_FOR_A_WHILE:
            change = GroupChange(request.group_id, consumer, self._topics)
            change.set_current(
                member_id,
                consumer.current(member_id)._replace(
                    member_epoch=LEAVING_FOR_A_WHILE, pending_revocation={}
                ),
            )
            self._timers.cancel((timers_of.REBALANCE, request.group_id, member_id))
            change.add_to(result)
        else:
            self.remove_members(group, [member_id], result, now_ms)
        return ConsumerGroupHeartbeatResponse(
            member_id=member_id, member_epoch=request.member_epoch
        )

    def remove_members(
        self, group: Group, member_ids: Iterable[str], result: Result, now_ms: int
    ) -> None:
        """Remove members, and raise the group's epoch. If only classic members remain, the group
        becomes classic.
        """
        consumer = consumer_group(group)
        removed = dict.fromkeys(member_ids)
        remaining = [member_id for member_id in consumer.members if member_id not in removed]
        for member_id in removed:
            timers_of.cancel_member(self._timers, group.group_id, member_id)
        if self._conversion.may_downgrade(consumer, remaining):
            self._conversion.downgrade(group, remaining, result, now_ms)
            return
        change = GroupChange(group.group_id, consumer, self._topics)
        for member_id in removed:
            change.remove_member(member_id)
        change.drop_unused_patterns()
        change.raise_epoch_if(True)
        if self._settings.assigns_emptied:
            change.end_emptied()
        change.add_to(result)

    # --- timers ----------------------------------------------------------------------------------

    def on_loaded(self, group: Group, result: Result, now_ms: int) -> None:
        """Begin the sessions of all members of a loaded group, and the timeouts of members that
        have to give partitions up.
        """
        consumer, group_id = consumer_group(group), group.group_id
        overrides = self._context.overrides(group_id)
        session_timeout_ms = overrides.get(SESSION_TIMEOUT, self._settings.session_timeout_ms)
        for member_id, value in consumer.members.items():
            timeout_ms = (
                session_timeout_ms if value.classic is None else value.classic.session_timeout_ms
            )
            self._timers.schedule((timers_of.SESSION, group_id, member_id), now_ms + timeout_ms)
            if value.classic is None:
                self._time_revocation(
                    group_id, member_id, value, consumer.current(member_id), now_ms
                )

    def on_timers(self, group: Group, due: Iterable[TimerKey], result: Result, now_ms: int) -> None:
        """Handle all timers of the group that are due at the same time."""
        consumer = consumer_group(group)
        removed: dict[str, None] = {}
        looks_up = False
        for kind, _, member_id in due:
            if kind == timers_of.PATTERNS:
                looks_up = True
            elif member_id in consumer.members and (
                kind != timers_of.REBALANCE
                or consumer.current(member_id).state is MemberState.UNREVOKED_PARTITIONS
            ):
                removed[member_id] = None
        if removed:
            self.remove_members(group, removed, result, now_ms)
            # The lookup has to see the changes of this event, so it is done in a later event.
            if looks_up:
                self._timers.schedule((timers_of.PATTERNS, group.group_id, ""), now_ms + 1)
        elif looks_up:
            self._look_up_patterns(group, result, now_ms)

    # --- the classic protocol --------------------------------------------------------------------

    def on_classic_join(self, group: Group, join: JoinRequest, result: Result, now_ms: int) -> None:
        if group.has_members:
            self._classic_members.on_join(group, join, result, now_ms)
        else:
            self._conversion.replace_empty(group, result)
            group.classic.on_join(join, result, now_ms)

    def on_classic_sync(
        self,
        group: Group,
        request: SyncGroupRequest,
        parked: ParkedRequest,
        result: Result,
        now_ms: int,
    ) -> None:
        response = self._classic_members.on_sync(group, request, result, now_ms)
        result.replies.append(Reply(parked.ticket, response))

    def on_classic_heartbeat(self, group: Group, request: HeartbeatRequest, now_ms: int) -> Code:
        return self._classic_members.on_heartbeat(group, request, now_ms)

    def on_classic_leave(
        self,
        group: Group,
        leaving: Sequence[tuple[str, str | None]],
        result: Result,
        now_ms: int,
    ) -> list[Code]:
        return self._classic_members.on_leave(group, leaving, result, now_ms)

    # --- patterns --------------------------------------------------------------------------------

    def _check_pattern(self, regex: str) -> None:
        """Raise KafkaError INVALID_REGULAR_EXPRESSION for a pattern that cannot be read."""
        try:
            self.patterns(regex)
        except InvalidPatternError as error:
            raise KafkaError(Code.INVALID_REGULAR_EXPRESSION, f"{error}.") from error

    def _schedule_patterns(
        self,
        group_id: str,
        consumer: ConsumerGroup,
        regex: str,
        context: RequestContext,
        now_ms: int,
    ) -> None:
        """Schedule a lookup of the group's patterns if a pattern is new, topics have changed, or
        the last lookup was long ago.

        Takes:  regex, the member's pattern, or empty; context, the context of its heartbeat.
        """
        is_new = bool(regex) and regex not in consumer.patterns
        if not is_new and not consumer.patterns:
            return
        key = (timers_of.PATTERNS, group_id, "")
        last_ms = consumer.patterns_ms
        is_due = (
            is_new
            or last_ms is None
            or consumer.patterns_version != self._topics.version
            or now_ms - last_ms >= self._settings.regex_refresh_interval_ms
        )
        if is_due and key not in self._timers:
            not_before_ms = now_ms if last_ms is None else last_ms + PATTERNS_INTERVAL_MS
            self._timers.schedule(key, max(now_ms, not_before_ms))
            consumer.looked_up_for = self._topics.visible_to(context)

    def _look_up_patterns(self, group: Group, result: Result, now_ms: int) -> None:
        """Begin or continue the lookup of the group's patterns. When the lookup is complete, apply
        its result.
        """
        consumer, key = consumer_group(group), (timers_of.PATTERNS, group.group_id, "")
        if consumer.lookup is None:
            consumer.patterns_ms, consumer.patterns_version = now_ms, self._topics.version
            consumer.lookup = self._matching(_regexes(consumer))
        try:
            next(consumer.lookup)
        except StopIteration as end:
            found: dict[str, tuple[str, ...]] = end.value
        else:
            self._timers.schedule(key, now_ms + LOOKUP_PAUSE_MS)
            return
        consumer.lookup = None
        is_visible = consumer.looked_up_for
        change = GroupChange(group.group_id, consumer, self._topics)
        has_changed = False
        for regex in _regexes(consumer):
            topics = found.get(regex)
            if topics is None:  # a pattern was added during the lookup
                self._timers.schedule(key, now_ms + PATTERNS_INTERVAL_MS)
                continue
            if is_visible is not None:
                topics = tuple(filter(is_visible, topics))
            former = consumer.patterns.get(regex)
            if former is None or former.topics != topics:
                has_changed = has_changed or topics != (() if former is None else former.topics)
                change.set_pattern(
                    regex,
                    PatternValue(
                        topics, consumer.patterns_version, now_ms + self._context.wall.ahead_ms
                    ),
                )
        if change.records:
            change.raise_epoch_if(has_changed)
        change.add_to(result)

    def _matching(
        self, regexes: Iterable[str]
    ) -> Generator[None, None, dict[str, tuple[str, ...]]]:
        """Find the topics that match each pattern, in slices."""
        names = sorted(self._topics.names())
        found: dict[str, tuple[str, ...]] = {}
        for regex in regexes:
            try:
                if self.patterns.takes_long(regex):
                    yield
                found[regex] = yield from self.patterns(regex).matching(names)
            except InvalidPatternError:
                # An Apache Kafka, which supports more of RE2's syntax, has written this pattern to
                # the log.
                found[regex] = ()
        return found

    # --- descriptions ----------------------------------------------------------------------------

    def describe(
        self, group: Group, most: int | None = None
    ) -> InSlices[describing.DescribedGroup]:
        """The group's row in ConsumerGroupDescribe, in slices.

        Takes:  most, the maximum number of members.
        """
        consumer = consumer_group(group)

        def row(
            one: tuple[str, MemberValue, CurrentValue, Mapping[uuid.UUID, Iterable[int]]],
        ) -> describing.Member:
            member_id, member, current, target = one
            return describing.Member(
                member_id=member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=current.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_topic_names),
                subscribed_topic_regex=member.subscribed_topic_regex,
                assignment=self._described(current.assigned),
                target_assignment=self._described(target),
                member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
            )

        described = describing.DescribedGroup(
            group_id=group.group_id,
            group_state=consumer.state_name,
            group_epoch=consumer.epoch,
            assignment_epoch=consumer.target_epoch,
            assignor_name=preferred_assignor(consumer.members.values(), self._settings),
        )
        members = (
            (member_id, member, consumer.current(member_id), consumer.targets.get(member_id, {}))
            for member_id, member in consumer.members.items()
        )
        described.members = yield from members_in_slices(members, row, most)
        return described

    def _described(self, partitions: Mapping[uuid.UUID, Iterable[int]]) -> describing.Assignment:
        """The partitions as the response lists them, without those of unknown topics."""
        return describing.Assignment(
            [
                describing.TopicPartitions(topic_id, name, sorted(of_topic))
                for topic_id, of_topic in partitions.items()
                if (name := self._topics.name(topic_id)) is not None
            ]
        )


def _regexes(consumer: ConsumerGroup) -> list[str]:
    """The distinct patterns of the group's members."""
    regexes = dict.fromkeys(member.subscribed_topic_regex for member in consumer.members.values())
    return [regex for regex in regexes if regex]


def heartbeat_error(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    """The response to a heartbeat with an error."""
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KafkaError(Code.INVALID_REQUEST, message)


def _check_epoch(current: CurrentValue, request: ConsumerGroupHeartbeatRequest) -> None:
    """Check the epoch of a request against the member's epoch.

    The previous epoch is accepted if the member owns only partitions that are assigned to it, since
    it may not have received the last response.

    Raises: KafkaError FENCED_MEMBER_EPOCH.
    """
    epoch, known_epoch = request.member_epoch, current.member_epoch
    if epoch == known_epoch:
        return
    owned = _owned(request)
    is_retry = (
        epoch < known_epoch
        and epoch == current.previous_member_epoch
        and owned is not None
        and all(
            partition in current.assigned.get(topic_id, {})
            for topic_id, partitions in owned.items()
            for partition in partitions
        )
    )
    if not is_retry:
        raise KafkaError(
            Code.FENCED_MEMBER_EPOCH,
            f"the member's epoch is {known_epoch}, not {epoch}: it has to give up all its "
            "partitions and join again.",
        )


def _updated_member(
    former: MemberValue | None, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> MemberValue:
    """The member's value after the request; the same object if nothing has changed."""
    known = former or MemberValue(None, None, "", "", (), "", NO_REBALANCE_TIMEOUT, None, None)
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    rebalance_timeout_ms = request.rebalance_timeout_ms
    value = MemberValue(
        known.instance_id if request.instance_id is None else request.instance_id,
        known.rack_id if request.rack_id is None else request.rack_id,
        context.client_id,
        context.client_host,
        known.subscribed_topic_names if names is None else tuple(sorted(set(names))),
        known.subscribed_topic_regex if regex is None else regex,
        known.rebalance_timeout_ms
        if rebalance_timeout_ms == NO_REBALANCE_TIMEOUT
        else rebalance_timeout_ms,
        known.server_assignor if request.server_assignor is None else request.server_assignor,
        None,
    )
    return value if former is None or value != former else former


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    """The partitions that the request lists as owned; None if it has no list."""
    if request.topic_partitions is None:
        return None
    owned: dict[uuid.UUID, list[int]] = {}
    for row in request.topic_partitions:
        if row.topic_id is not None:
            owned.setdefault(row.topic_id, []).extend(row.partitions)
    return owned


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields. A member sends all fields if it did not receive the last
    response.
    """
    return request.member_epoch == JOINING or (
        request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _is_due(
    request: ConsumerGroupHeartbeatRequest, before: CurrentValue, current: CurrentValue
) -> bool:
    """Whether the response has to include the assignment. It does if the assignment has changed, or
    if the last response may be lost.
    """
    if _is_full(request):
        return True
    if current is not before:
        return _partitions(before.assigned) != _partitions(current.assigned)
    # A member whose list differs from its partitions may have missed the response that contained
    # them. Kafka does not send the partitions again, although librdkafka sends the same list again
    # and waits.
    owned = _owned(request)
    return owned is not None and not _lists(owned, current.assigned)


def _lists(owned: Owned, assigned: PartitionEpochs) -> bool:
    """Whether the listed partitions are exactly those that the member has."""
    listed = {topic_id: set(partitions) for topic_id, partitions in owned.items() if partitions}
    return listed == {topic_id: set(epochs) for topic_id, epochs in assigned.items() if epochs}


def _partitions(assigned: PartitionEpochs) -> dict[uuid.UUID, list[int]]:
    return {topic_id: sorted(epochs) for topic_id, epochs in assigned.items()}


def _assignment_of(current: CurrentValue) -> Assignment:
    return Assignment(
        [TopicPartitions(topic_id, sorted(epochs)) for topic_id, epochs in current.assigned.items()]
    )
