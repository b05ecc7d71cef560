"""Members of streams groups (KIP-1071): heartbeats that join, stay and leave; sessions.

A heartbeat request contains everything that a member requests, and the response contains the
member's tasks. First the request is checked, and the member is found or created. Then the steps of
`StreamsGroupChange` follow. If internal topics of the application are missing, the Result contains
an effect that makes the host create them, and a later heartbeat finds them.

The response has the member's tasks if it joins, if they changed, or if the heartbeat lists
different tasks, which means that an earlier response was lost. Apache Kafka omits the tasks in the
last case, so that the member does not receive its tasks until they change again.

Timers, keyed (kind, group, member):

    SESSION       the end of a member's session: it is removed
    REBALANCE     the end of the time to give tasks up: the member is removed
    FIRST_TARGET  a group that had no members has waited long enough for more of them: its first
                  target assignment is computed (without a member)

Source: KIP-1071, KIP-1263; Apache Kafka 4.3's responses where the KIPs do not specify them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from barnabas.coordinator.descriptions import InSlices
from barnabas.coordinator.groups import group_timers as timers_of
from barnabas.coordinator.groups.classic.classic_answers import JoinRequest
from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_machine import GroupMachine
from barnabas.coordinator.groups.group_records import group_tombstone
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.groups.streams.streams_endpoints import tasks_by_endpoint
from barnabas.coordinator.groups.streams.streams_group import StreamsGroup
from barnabas.coordinator.groups.streams.streams_group_change import (
    AssignmentConfigs,
    StreamsGroupChange,
    assignment_configs,
)
from barnabas.coordinator.groups.streams.streams_group_description import describe
from barnabas.coordinator.groups.streams.streams_group_records import (
    NO_EPOCH,
    CurrentValue,
    MemberState,
    MemberValue,
)
from barnabas.coordinator.groups.streams.streams_group_settings import (
    ASSIGNMENT_INTERVAL,
    HEARTBEAT_INTERVAL,
    INITIAL_REBALANCE_DELAY,
    NUM_STANDBY_REPLICAS,
    SESSION_TIMEOUT,
    StreamsGroupSettings,
)
from barnabas.coordinator.groups.streams.tasks import (
    NO_TASKS,
    HeldTasks,
    Tasks,
    TaskSet,
    contains_all,
    each,
    tasks_of,
)
from barnabas.coordinator.groups.streams.topic_plan import Status, TopicPlan
from barnabas.coordinator.groups.streams.topology import Topology, topology_of
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.result import CreateTopics, Result
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages import streams_group_describe as describing
from barnabas.protocol.messages import streams_group_heartbeat as messages
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.wall_clock import WallClock

JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2  # special member epochs in requests
NO_REBALANCE_TIMEOUT = -1
_COMPUTING = "the assignment is being computed"
MOST_TASKS_OF_ALL = 400_000  # of all groups together, including standby tasks: 100 MB
MOST_SUBTOPOLOGIES = 1_000  # a heartbeat of a member that has tasks of all takes 15 ms
MOST_NAMES = 5_000  # of topics in all subtopologies
LONGEST_NAME_BYTES = (1 << 15) - 1  # the maximum length of a string in the key of a record


class _Heartbeat(NamedTuple):
    """A heartbeat, together with the decisions that it led to.

    value: the member's value. before, current: the member's assignment before and after the
    heartbeat. task_count: the number of the group's tasks, including standby tasks.
    """

    request: StreamsGroupHeartbeatRequest
    streams: StreamsGroup
    value: MemberValue
    owned: TaskSet | None
    before: CurrentValue
    current: CurrentValue
    plan: TopicPlan
    task_count: int


class StreamsGroups(GroupMachine):
    """Handles the requests of streams groups' members, and their timers.

    Takes:  settings, those that apply to all streams groups; setting_of, which returns the group's
            own value of a setting, or else the broker's; new_classic_group, which makes a classic
            group without members.
    """

    def __init__(
        self,
        settings: StreamsGroupSettings,
        setting_of: Callable[[str, str], Any],
        topics: TopicDirectory,
        timers: Timers[TimerKey],
        wall: WallClock,
        new_classic_group: Callable[[str], ClassicGroup],
    ) -> None:
        self._settings, self._setting_of = settings, setting_of
        self._new_classic_group = new_classic_group
        self._topics, self._timers, self._wall = topics, timers, wall
        # the number of tasks of each group with members, including standby tasks
        self._task_counts: dict[str, int] = {}

    def _setting(self, group_id: str, name: str) -> int:
        return int(self._setting_of(group_id, name))

    # --- heartbeats ------------------------------------------------------------------------------

    def check_request(self, request: StreamsGroupHeartbeatRequest) -> None:
        """Check the fields. Raises: KafkaError INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
        _check_what_is_not_supported(request)
        for name, text in (
            ("MemberId", request.member_id),
            ("GroupId", request.group_id),
            ("RackId", request.rack_id),
        ):
            _require(text != "", f"{name} is empty: set it, or leave it out if it is optional.")
        for text in (request.group_id, request.member_id):
            if len(text) > LONGEST_NAME_BYTES // 4:  # a character has up to four bytes in UTF-8
                _require(
                    len(text.encode()) <= LONGEST_NAME_BYTES,
                    f"an id is longer than {LONGEST_NAME_BYTES} bytes: shorten it.",
                )
        epoch = request.member_epoch
        roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
        if epoch == JOINING:
            _require(
                request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT,
                "RebalanceTimeoutMs is missing: a member that joins sends it.",
            )
            _require(
                all(tasks == [] for tasks in roles),
                "ActiveTasks, StandbyTasks and WarmupTasks are not empty lists: a member that "
                "joins has no tasks.",
            )
            _require(
                request.topology is not None,
                "Topology is missing: a member that joins sends it.",
            )
            _check_topology(request.topology)
            return
        _require(
            epoch != LEAVING_FOR_A_WHILE,
            "MemberEpoch is -2, and there are no static members: leave with -1.",
        )
        _require(epoch >= LEAVING, f"MemberEpoch is {epoch}: it must be -1 or more.")
        _require(
            all(tasks is None for tasks in roles) or all(tasks is not None for tasks in roles),
            "some of ActiveTasks, StandbyTasks and WarmupTasks are missing: send all or none.",
        )
        _require(request.topology is None, "Topology is set: only a member that joins sends it.")

    def on_heartbeat(
        self,
        group: Group,
        request: StreamsGroupHeartbeatRequest,
        context: RequestContext,
        result: Result,
        now_ms: int,
    ) -> StreamsGroupHeartbeatResponse:
        """Answer the heartbeat of a member that joins or stays.

        Takes:  request, a request that has passed `check_request`, and with which the member does
                not leave; group, a streams group or, if the member joins, a group of any kind
                without members.
        Raises: KafkaError UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED,
                INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY. In these cases nothing has changed.
        """
        streams = group.modern if isinstance(group.modern, StreamsGroup) else StreamsGroup()
        member_id, group_id = request.member_id, group.group_id
        owned = _owned(request)
        _check_member(streams, request, owned, self._settings.max_size)
        before = streams.current(member_id)
        change = StreamsGroupChange(group_id, streams, self._topics)
        value = _updated_member(streams.members.get(member_id), request, context)
        change.set_member(member_id, value)
        _set_topology(change, request)
        plan = change.plan_topics()
        _check_tasks(plan, owned)
        statuses = _stale_topology(streams.topology, value)
        standby_count = self._setting(group_id, NUM_STANDBY_REPLICAS)
        task_count = plan.task_count * (1 + standby_count)
        self._check_task_count(group_id, task_count)
        configs = assignment_configs(standby_count)
        change.raise_epoch_if_changed(configs)
        if not streams.members:
            self._await_first_members(group_id, now_ms)
        target, delay = self._target(change, member_id, configs, now_ms)
        current = change.reconcile(member_id, target, owned)
        beat = _Heartbeat(request, streams, value, owned, before, current, plan, task_count)
        self._accept(group, beat, change, result, now_ms)
        return self._answer(beat, [*statuses, *delay, *_problems(streams, plan)])

    def _check_task_count(self, group_id: str, count: int) -> None:
        """Check that all groups together have no more tasks than the broker can hold, if this group
        has `count`, including standby tasks. Raises: KafkaError GROUP_MAX_SIZE_REACHED.
        """
        before = self._task_counts.get(group_id, 0)
        others = sum(self._task_counts.values()) - before if count > before else 0
        if others + count > MOST_TASKS_OF_ALL:
            raise KafkaError(
                Code.GROUP_MAX_SIZE_REACHED,
                f"the group has {count} tasks, and the other streams groups {others}: together "
                f"they may have {MOST_TASKS_OF_ALL}.",
            )

    def _accept(
        self,
        group: Group,
        beat: _Heartbeat,
        change: StreamsGroupChange,
        result: Result,
        now_ms: int,
    ) -> None:
        """Add the records of a heartbeat after all checks, and restart the member's session."""
        streams, member_id, group_id = beat.streams, beat.request.member_id, group.group_id
        if not streams.exists:
            self._replace_classic(group, result)
        group.modern = streams
        change.keep()
        self._task_counts[group_id] = beat.task_count
        self._continue_assigning(group_id, streams, now_ms)
        self._time_revocation(group_id, beat, now_ms)
        self._timers.schedule(
            (timers_of.SESSION, group_id, member_id),
            now_ms + self._setting(group_id, SESSION_TIMEOUT),
        )
        if beat.request.shutdown_application:
            self._request_shutdown(streams, member_id)
        change.add_to(result)
        if beat.plan.missing:
            kept_ms = 2 * self._setting(group_id, HEARTBEAT_INTERVAL)
            result.creation = CreateTopics(beat.plan.missing, kept_ms)

    def _answer(
        self, beat: _Heartbeat, statuses: list[messages.Status]
    ) -> StreamsGroupHeartbeatResponse:
        """Make the response to a heartbeat."""
        request, streams, current = beat.request, beat.streams, beat.current
        response = StreamsGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=self._setting(request.group_id, HEARTBEAT_INTERVAL),
            status=statuses,
        )
        assigned = current.assigned
        is_assigned = request.member_epoch == JOINING or assigned != beat.before.assigned
        if is_assigned or (beat.owned is not None and _differ(beat.owned, assigned)):
            _set_tasks(response, assigned)
        epoch = streams.endpoint_epoch
        if is_assigned and beat.value.endpoint is not None:
            epoch += 1
        if request.endpoint_information_epoch != epoch:
            self._set_endpoints(response, beat)
        if streams.exists:  # a new group gets its endpoint epoch with its second heartbeat
            streams.endpoint_epoch = epoch
        response.endpoint_information_epoch = streams.endpoint_epoch
        return response

    def _set_endpoints(self, response: StreamsGroupHeartbeatResponse, beat: _Heartbeat) -> None:
        """Add the partitions that each member serves to the response.

        The member that sent the heartbeat comes last.
        """
        member_id, streams = response.member_id, beat.streams
        others = {name: row for name, row in streams.members.items() if name != member_id}
        response.partitions_by_user_endpoint = tasks_by_endpoint(
            {**others, member_id: beat.value},
            {**streams.currents, member_id: beat.current},
            beat.plan,
            self._topics,
        )

    def _replace_classic(self, group: Group, result: Result) -> None:
        """Remove the record of an empty classic group that becomes a streams group."""
        if group.metadata_value is not None:
            result.records.append(group_tombstone(group.group_id))
        group.classic.dissolve(result)
        group.classic = self._new_classic_group(group.group_id)

    def _await_first_members(self, group_id: str, now_ms: int) -> None:
        """When the first member joins, wait for more members before the first assignment."""
        key = (timers_of.FIRST_TARGET, group_id, "")
        delay_ms = self._setting(group_id, INITIAL_REBALANCE_DELAY)
        if delay_ms > 0 and key not in self._timers:
            self._timers.schedule(key, now_ms + delay_ms)

    def _target(
        self, change: StreamsGroupChange, member_id: str, configs: AssignmentConfigs, now_ms: int
    ) -> tuple[TaskSet, list[messages.Status]]:
        """Return the target of the member. If the target belongs to an earlier epoch than the
        group's, also return the reason.

        If the group's epoch is above that of the target assignment, the assignment is computed
        again.
        """
        group_id = change.group_id
        if (timers_of.FIRST_TARGET, group_id, "") in self._timers:
            return NO_TASKS, [_delayed("the group waits for its first members")]
        if change.target_epoch < change.epoch:
            if change.is_being_assigned:
                return change.target(member_id), [_delayed(_COMPUTING)]
            interval_ms = self._setting(group_id, ASSIGNMENT_INTERVAL)
            if not change.may_be_assigned(interval_ms, now_ms):
                why = "the last assignment is too recent"
                return change.target(member_id), [_delayed(why)]
            change.assign(configs, now_ms, now_ms + self._wall.ahead_ms)
            if change.assigning is not None:
                return change.target(member_id), [_delayed(_COMPUTING)]
        return change.target(member_id), []

    def _continue_assigning(self, group_id: str, streams: StreamsGroup, now_ms: int) -> None:
        """If an assignment is in progress, let the next tick compute a slice of it."""
        if streams.assigning is not None:
            self._timers.schedule((timers_of.ASSIGNING, group_id, ""), now_ms)

    def _time_revocation(self, group_id: str, beat: _Heartbeat, now_ms: int) -> None:
        """If the member has to give tasks up, start the time limit for this; otherwise cancel it.

        While the member's tasks do not change, a limit that runs stays. None runs if the change of
        an earlier heartbeat has ended it and could not be written.
        """
        key = (timers_of.REBALANCE, group_id, beat.request.member_id)
        is_changed = beat.current is not beat.before
        if beat.current.state is MemberState.UNREVOKED_TASKS:
            if is_changed or key not in self._timers:
                self._timers.schedule(key, now_ms + beat.value.rebalance_timeout_ms)
        elif is_changed:
            self._timers.cancel(key)

    @staticmethod
    def _request_shutdown(streams: StreamsGroup, member_id: str) -> None:
        """Request all members to shut down. The responses name the first member that requested
        it.
        """
        if streams.shutdown_member_id is None:
            streams.shutdown_member_id = member_id

    # --- leaving ---------------------------------------------------------------------------------

    def on_leave(
        self, group: Group, request: StreamsGroupHeartbeatRequest, result: Result, now_ms: int
    ) -> StreamsGroupHeartbeatResponse:
        """Remove the member. Raises: KafkaError UNKNOWN_MEMBER_ID."""
        streams, member_id = streams_group_of(group), request.member_id
        if request.shutdown_application:
            self._request_shutdown(streams, member_id)
        if member_id not in streams.members:
            raise KafkaError(
                Code.UNKNOWN_MEMBER_ID, f"'{member_id}' is not a member: it need not leave."
            )
        self.remove_members(group, [member_id], result, now_ms)
        return StreamsGroupHeartbeatResponse(
            member_id=member_id, member_epoch=request.member_epoch, status=[]
        )

    def remove_members(
        self, group: Group, member_ids: Iterable[str], result: Result, now_ms: int
    ) -> None:
        """Remove members, and raise the group's epoch."""
        self._without(group, member_ids, now_ms).add_to(result)

    def _without(self, group: Group, member_ids: Iterable[str], now_ms: int) -> StreamsGroupChange:
        """The change that removes these members and raises the group's epoch."""
        streams = streams_group_of(group)
        removed = list(dict.fromkeys(member_ids))
        for member_id in removed:
            timers_of.cancel_member(self._timers, group.group_id, member_id)
        change = StreamsGroupChange(group.group_id, streams, self._topics)
        change.remove_members(removed)
        if not change.members:
            self._task_counts.pop(group.group_id, None)
        change.raise_epoch_if_changed(streams.assignment_configs)
        if self._settings.assigns_emptied:
            change.end_emptied(now_ms + self._wall.ahead_ms)
        return change

    # --- the classic protocol --------------------------------------------------------------------

    def on_classic_join(self, group: Group, join: JoinRequest, result: Result, now_ms: int) -> None:
        """Replace a group without members by a classic group, which the member joins."""
        if not group.state.accepts_join_group:
            super().on_classic_join(group, join, result, now_ms)
            return
        result.records += group.state.tombstones(group.group_id)
        group.classic.on_join(join, result, now_ms)

    # --- timers ----------------------------------------------------------------------------------

    def on_loaded(self, group: Group, result: Result, now_ms: int) -> None:
        """Start the session of each member of a loaded group, and the time limit for giving tasks
        up.
        """
        streams, group_id = streams_group_of(group), group.group_id
        session_timeout_ms = self._setting(group_id, SESSION_TIMEOUT)
        if streams.members:
            held = len(streams.active_processes) + len(streams.standby_processes)
            self._task_counts[group_id] = held
        for member_id, value in streams.members.items():
            self._timers.schedule(
                (timers_of.SESSION, group_id, member_id), now_ms + session_timeout_ms
            )
            if streams.current(member_id).state is MemberState.UNREVOKED_TASKS:
                self._timers.schedule(
                    (timers_of.REBALANCE, group_id, member_id), now_ms + value.rebalance_timeout_ms
                )

    def on_timers(self, group: Group, due: Iterable[TimerKey], result: Result, now_ms: int) -> None:
        """Handle all timers of the group that are due at the same time."""
        streams = streams_group_of(group)
        removed: dict[str, None] = {}
        is_first_due = is_slice_due = False
        for kind, _, member_id in due:
            if kind == timers_of.FIRST_TARGET:
                is_first_due = True
            elif kind == timers_of.ASSIGNING:
                is_slice_due = True
            elif (kind == timers_of.SESSION and member_id in streams.members) or (
                kind == timers_of.REBALANCE
                and streams.current(member_id).state is MemberState.UNREVOKED_TASKS
            ):
                removed[member_id] = None
        change = StreamsGroupChange(group.group_id, streams, self._topics)
        if removed:
            change = self._without(group, removed, now_ms)
        wall_ms = now_ms + self._wall.ahead_ms
        if is_slice_due:
            change.continue_assigning(wall_ms)
        if is_first_due and change.members and streams.plan is not None:
            change.assign(streams.assignment_configs, now_ms, wall_ms)
            change.keep()
        self._continue_assigning(group.group_id, streams, now_ms)
        change.add_to(result)

    # --- descriptions ----------------------------------------------------------------------------

    def describe(
        self, group: Group, most: int | None = None
    ) -> InSlices[describing.DescribedGroup]:
        """Describe the group for StreamsGroupDescribe, in slices.

        Takes:  most, the maximum number of members.
        """
        return describe(group.group_id, streams_group_of(group), most)

    def assigned_partitions(self, group: Group) -> dict[str, list[tuple[str, int]]]:
        """The partitions that the active tasks of each member read."""
        streams = streams_group_of(group)
        inputs = {} if streams.topology is None else streams.topology.subtopologies
        counts = {
            name: topic[1]
            for one in inputs.values()
            for name in one.input_topics
            if (topic := self._topics.topic(name)) is not None
        }
        return {
            member_id: [
                (name, partition)
                for subtopology_id, partition in each(streams.current(member_id).assigned.active)
                if subtopology_id in inputs
                for name in inputs[subtopology_id].input_topics
                if partition < counts.get(name, 0)
            ]
            for member_id in streams.members
        }


def streams_group_of(group: Group) -> StreamsGroup:
    """The state of a streams group."""
    streams = group.modern
    assert isinstance(streams, StreamsGroup), f"group {group.group_id} is a {group.kind} group"
    return streams


# --- checks of a heartbeat ----------------------------------------------------------------------


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KafkaError(Code.INVALID_REQUEST, message)


def _check_what_is_not_supported(request: StreamsGroupHeartbeatRequest) -> None:
    """Reject requests that use parts of KIP-1071 that Apache Kafka 4.3 does not support either."""
    for name, value in (
        ("InstanceId", request.instance_id),
        ("TaskOffsets", request.task_offsets),
        ("TaskEndOffsets", request.task_end_offsets),
        ("WarmupTasks", request.warmup_tasks or None),
    ):
        _require(value is None, f"{name} is set, which is not supported: leave it out.")
    if request.topology is not None:
        _require(
            not any(one.source_topic_regex for one in request.topology.subtopologies),
            "a subtopology has SourceTopicRegex, which is not supported: name its topics.",
        )


def _check_topology(topology: messages.Topology | None) -> None:
    """Raise KafkaError STREAMS_INVALID_TOPOLOGY for a topology that is wrong in itself."""
    assert topology is not None
    ids = [one.subtopology_id for one in topology.subtopologies]
    fault = ""
    if len(ids) > MOST_SUBTOPOLOGIES:
        raise KafkaError(
            Code.STREAMS_INVALID_TOPOLOGY,
            f"the topology has {len(ids)} subtopologies, and may have {MOST_SUBTOPOLOGIES}: divide "
            "the application.",
        )
    if topology.epoch < 0:
        fault = f"the topology's epoch is {topology.epoch}: it must be 0 or more."
    elif len(set(ids)) < len(ids):
        fault = "two subtopologies have the same id."
    names = sum(map(_name_count, topology.subtopologies))
    if names > MOST_NAMES:
        raise KafkaError(
            Code.STREAMS_INVALID_TOPOLOGY,
            f"the subtopologies name {names} topics, and may name {MOST_NAMES}: divide the "
            "application.",
        )
    for one in topology.subtopologies:
        for topic in one.state_changelog_topics:
            if topic.partitions != 0:
                fault = (
                    f"the changelog topic {topic.name} has {topic.partitions} partitions: leave "
                    "the number out, which follows from its subtopology's tasks."
                )
        for topic in one.repartition_source_topics:
            if topic.partitions < 0:
                fault = f"the repartition topic {topic.name} has {topic.partitions} partitions."
    if fault:
        raise KafkaError(Code.STREAMS_INVALID_TOPOLOGY, fault)


def _name_count(one: messages.Subtopology) -> int:
    """How many topics a subtopology names, by name or by index."""
    count = len(one.source_topics) + len(one.state_changelog_topics)
    count += len(one.repartition_sink_topics) + len(one.repartition_source_topics)
    return count + sum(
        len(group.source_topics) + len(group.repartition_source_topics)
        for group in one.copartition_groups
    )


def _check_member(
    streams: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    owned: TaskSet | None,
    max_size: int,
) -> None:
    """Check that the member may join, or that it may stay with the epoch in its request."""
    member_id, epoch = request.member_id, request.member_epoch
    if epoch == JOINING:
        if len(streams.members) >= max_size:
            raise KafkaError(
                Code.GROUP_MAX_SIZE_REACHED,
                f"the group has {max_size} members, which is the most that "
                "group.streams.max.size allows.",
            )
        return
    if member_id not in streams.members:
        raise KafkaError(
            Code.UNKNOWN_MEMBER_ID, f"'{member_id}' is not a member of this group: join it."
        )
    current = streams.current(member_id)
    is_retry = (
        epoch < current.member_epoch
        and epoch == current.previous_member_epoch
        and owned is not None
        and contains_all(current.assigned.active, owned.active)
        and contains_all(current.assigned.standby, owned.standby)
        and contains_all(current.assigned.warmup, owned.warmup)
    )
    if epoch != current.member_epoch and not is_retry:
        raise KafkaError(
            Code.FENCED_MEMBER_EPOCH,
            f"the member's epoch is {current.member_epoch}, not {epoch}: it has to give up all its "
            "tasks and join again.",
        )


def _check_tasks(plan: TopicPlan, owned: TaskSet | None) -> None:
    """Check that the topology has the tasks that the heartbeat lists."""
    if owned is None or not plan.is_ready:
        return
    for tasks in owned:
        for subtopology_id, partitions in tasks.items():
            planned = plan.subtopologies.get(subtopology_id)
            _require(planned is not None, f"the topology has no subtopology {subtopology_id}.")
            assert planned is not None
            # the partitions are sorted
            partition = partitions[0] if partitions[0] < 0 else partitions[-1]
            _require(
                0 <= partition < planned.task_count,
                f"the subtopology {subtopology_id} has {planned.task_count} tasks, and no task of "
                f"partition {partition}.",
            )


def _set_topology(change: StreamsGroupChange, request: StreamsGroupHeartbeatRequest) -> None:
    """Set the topology of a new group from its first member.

    A later member must have the same topology, or a topology with a lower epoch.
    """
    if request.topology is None:
        return
    topology = topology_of(request.topology)
    known = change.topology
    if known is None:
        change.set_topology(topology)
    elif topology.epoch >= known.epoch:
        _require(
            topology == known,
            "the topology differs from the group's, which cannot change: delete the group first, "
            "or use another application.id.",
        )


# --- parts of requests and answers --------------------------------------------------------------


def _updated_member(
    former: MemberValue | None, request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> MemberValue:
    """The member's value after the request."""
    known = former or MemberValue(None, None, "", "", NO_REBALANCE_TIMEOUT, NO_EPOCH, "", None, ())
    endpoint, tags = request.user_endpoint, request.client_tags
    rebalance_timeout_ms = request.rebalance_timeout_ms
    return MemberValue(
        None,
        known.rack_id if request.rack_id is None else request.rack_id,
        context.client_id,
        context.client_host,
        known.rebalance_timeout_ms
        if rebalance_timeout_ms == NO_REBALANCE_TIMEOUT
        else rebalance_timeout_ms,
        known.topology_epoch if request.topology is None else request.topology.epoch,
        known.process_id if request.process_id is None else request.process_id,
        known.endpoint if endpoint is None else (endpoint.host, endpoint.port),
        known.client_tags
        if tags is None
        else tuple(sorted({tag.key: tag.value for tag in tags}.items())),
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskSet | None:
    """Return the tasks that the request lists as owned, or None if the request has no such list."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return TaskSet(_tasks(active), _tasks(standby), _tasks(warmup))


def _tasks(rows: Iterable[messages.TaskIds]) -> Tasks:
    return tasks_of((row.subtopology_id, row.partitions) for row in rows)


def _differ(owned: TaskSet, assigned: HeldTasks) -> bool:
    """Whether the tasks in the heartbeat differ from those that are assigned to the member."""
    active = {key: tuple(epochs) for key, epochs in assigned.active.items()}
    return owned != TaskSet(active, assigned.standby, assigned.warmup)


def _set_tasks(response: StreamsGroupHeartbeatResponse, assigned: HeldTasks) -> None:
    """Put the tasks of the member into the response."""
    response.active_tasks, response.standby_tasks, response.warmup_tasks = (
        [
            messages.TaskIds(subtopology_id, sorted(partitions))
            for subtopology_id, partitions in tasks.items()
        ]
        for tasks in assigned
    )


def _stale_topology(topology: Topology | None, member: MemberValue) -> list[messages.Status]:
    """The status for a member whose topology is older than the group's; empty for another
    member.
    """
    if topology is None or member.topology_epoch >= topology.epoch:
        return []
    detail = (
        f"the member's topology has the epoch {member.topology_epoch}, and the group's "
        f"{topology.epoch}."
    )
    return [messages.Status(Status.STALE_TOPOLOGY, detail)]


def _delayed(why: str) -> messages.Status:
    return messages.Status(Status.ASSIGNMENT_DELAYED, f"tasks are assigned later: {why}.")


def _problems(streams: StreamsGroup, plan: TopicPlan) -> Sequence[messages.Status]:
    """The statuses that all members get: a problem with topics, and a requested shutdown."""
    found = [] if plan.problem is None else [messages.Status(*plan.problem)]
    if streams.shutdown_member_id is not None:
        detail = f"the member {streams.shutdown_member_id} requested that all members shut down."
        found.append(messages.Status(Status.SHUTDOWN_APPLICATION, detail))
    return found
