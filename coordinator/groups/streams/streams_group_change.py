"""The change of a streams group by one event, computed before its records are written.

The steps follow the order in which Apache Kafka writes its records:

1. The members and the topology change.
2. The plan of the topics is made. This step writes no record.
3. The group's epoch rises, if a part of the group has changed.
4. The target assignment of that epoch is computed.
5. The current assignment of the member that sent the request is computed.

Each step uses the results of the earlier ones. The group itself does not change until `records` are
replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.coordinator.groups.streams import streams_group_records as records
from barnabas.coordinator.groups.streams.sticky_assignor import (
    MemberToAssign,
    SubtopologyToAssign,
    sticky_in_slices,
)
from barnabas.coordinator.groups.streams.streams_group import (
    NO_TOPICS_VERSION,
    AssignmentInSlices,
    StreamsGroup,
)
from barnabas.coordinator.groups.streams.streams_group_records import (
    NO_EPOCH,
    CurrentValue,
    GroupEpochValue,
    MemberValue,
)
from barnabas.coordinator.groups.streams.task_reconciliation import FreeTasks, reconcile
from barnabas.coordinator.groups.streams.tasks import NO_TASKS, Task, TaskSet
from barnabas.coordinator.groups.streams.topic_plan import TopicPlan, plan_topics
from barnabas.coordinator.groups.streams.topology import Topology
from barnabas.coordinator.groups.topic_directory import TopicDirectory, hash_of_topics
from barnabas.coordinator.result import CoordinatorRecord, Counted, Result

STANDBY_REPLICAS = "num.standby.replicas"
# the maximum number of tasks, including standby tasks, that one event assigns (in 5 to 15 ms)
TASKS_ASSIGNED_AT_ONCE = 1_500
AssignmentConfigs = tuple[tuple[str, str], ...]


def assignment_configs(standby_count: int) -> AssignmentConfigs:
    """Return the settings on which an assignment depends, in the form that the group's record
    stores.
    """
    return ((STANDBY_REPLICAS, str(standby_count)),)


class StreamsGroupChange:
    """The change of one group by one event.

    records: the records to write, in order. members, topology, epoch, target_epoch: the values
    after the change. plan: the plan of the topics, which `plan_topics` sets. assigning: an
    assignment that takes too long for one event, so that later events compute it.
    """

    def __init__(self, group_id: str, group: StreamsGroup, topics: TopicDirectory) -> None:
        self.group_id, self.records = group_id, list[CoordinatorRecord]()
        self.members, self.topology = group.members, group.topology
        self.epoch, self.target_epoch = group.epoch, group.target_epoch
        self.plan: TopicPlan | None = None
        self.assigning: AssignmentInSlices | None = None
        self._group, self._topics = group, topics
        self._assigned_ms, self._topics_version = group.assigned_ms, NO_TOPICS_VERSION
        self._metadata_hash = group.metadata_hash
        self._validated_epoch = group.validated_topology_epoch
        self._targets: Mapping[str, TaskSet] = group.targets
        self._has_changed = False

    def add_to(self, result: Result) -> None:
        """Add the records to a Result. If the group's epoch rises, this counts as a rebalance."""
        result.records += self.records
        if self.epoch > self._group.epoch:
            result.count(Counted.STREAMS_REBALANCE)

    # --- members and the topology ----------------------------------------------------------------

    def set_member(self, member_id: str, value: MemberValue) -> None:
        """Set the value of a member. If it is the same as before, no record is written."""
        if self.members.get(member_id) != value:
            self.members = {**self.members, member_id: value}
            self.records.append(records.member_record(self.group_id, member_id, value))
            self._has_changed = True

    def remove_members(self, member_ids: Iterable[str]) -> None:
        """Remove members, with their assignments."""
        removed = dict.fromkeys(member_ids)
        self.members = {
            member_id: value
            for member_id, value in self.members.items()
            if member_id not in removed
        }
        self._targets = {
            member_id: row for member_id, row in self._targets.items() if member_id not in removed
        }
        for member_id in removed:
            for version in (
                records.CURRENT_VERSION, records.MEMBER_TARGET_VERSION, records.MEMBER_VERSION
            ):  # fmt: skip
                self.records.append(records.tombstone(version, self.group_id, member_id))
        self._has_changed = True

    def set_topology(self, topology: Topology) -> None:
        """Set the topology of a group that has none."""
        self.topology = topology
        self.records.append(records.topology_record(self.group_id, topology))
        self._has_changed = True

    def plan_topics(self) -> TopicPlan:
        """Compare the topology with the topics that exist, if either has changed.

        Raises: KafkaError STREAMS_INVALID_TOPOLOGY.
        """
        group, topology = self._group, self.topology
        assert topology is not None, f"group {self.group_id} has no topology"
        self._topics_version = self._topics.version
        if group.plan is not None and group.topics_version == self._topics_version:
            self.plan = group.plan
            return group.plan
        metadata_hash = hash_of_topics(topology.required_topics, self._topics)
        plan = group.plan
        if plan is None or metadata_hash != self._metadata_hash or topology is not group.topology:
            plan = plan_topics(topology, self._partition_count)
        self._has_changed = self._has_changed or metadata_hash != self._metadata_hash
        self._metadata_hash = metadata_hash
        self._validated_epoch = topology.epoch if plan.is_ready else NO_EPOCH
        self.plan = plan
        return plan

    def keep(self) -> None:
        """Store the plan and the time of the assignment in the group, for the next event.

        Called after all checks.
        """
        if self.plan is not None:
            self._group.plan, self._group.topics_version = self.plan, self._topics_version
        self._group.assigned_ms = self._assigned_ms
        if self.assigning is not None:
            self._group.assigning = self.assigning

    def _partition_count(self, name: str) -> int | None:
        topic = self._topics.topic(name)
        return None if topic is None else topic[1]

    # --- epochs ----------------------------------------------------------------------------------

    def raise_epoch_if_changed(self, configs: AssignmentConfigs) -> None:
        """Raise the group's epoch if a new assignment may differ from the last one.

        Takes:  configs, the settings on which the assignment depends.
        """
        group = self._group
        if (
            self._has_changed
            or self._validated_epoch != group.validated_topology_epoch
            or configs != group.assignment_configs
        ):
            self.epoch += 1
            value = GroupEpochValue(self.epoch, self._metadata_hash, self._validated_epoch, configs)
            self.records.append(records.group_epoch_record(self.group_id, value))

    def end_emptied(self, wall_ms: int) -> None:
        """Let the target assignment of a group without members be that of the group's epoch, since
        no member's heartbeat computes it. Source: KAFKA-20442.
        """
        if not self.members and self.target_epoch < self.epoch:
            self._group.assigning = None  # otherwise it would set an earlier epoch
            self.set_targets({}, self.epoch, wall_ms)

    def may_be_assigned(self, interval_ms: int, now_ms: int) -> bool:
        """Whether enough time has passed since the last target assignment. Source: KIP-1263."""
        return self._group.may_be_assigned(interval_ms, now_ms)

    @property
    def is_being_assigned(self) -> bool:
        """Whether a target assignment is being computed."""
        return (self.assigning or self._group.assigning) is not None

    def assign(self, configs: AssignmentConfigs, now_ms: int, wall_ms: int) -> None:
        """Compute the target assignment of the group's epoch.

        The plan of this event is used, or else the last plan. The targets are empty while topics
        are missing. If there are many tasks, `assigning` is set, and later events do the work.
        """
        self._assigned_ms = now_ms
        plan = self.plan or self._group.plan
        if plan is None or not plan.is_ready:
            self.set_targets(dict.fromkeys(self.members, NO_TASKS), self.epoch, wall_ms)
            return
        members = {
            member_id: MemberToAssign(value.process_id, *self.target(member_id)[:2])
            for member_id, value in self.members.items()
        }
        subtopologies = {
            subtopology_id: SubtopologyToAssign(one.task_count, one.is_stateful)
            for subtopology_id, one in plan.subtopologies.items()
        }
        standby_count = int(dict(configs).get(STANDBY_REPLICAS, "0"))
        work = sticky_in_slices(members, subtopologies, standby_count)
        assigning = AssignmentInSlices(self.epoch, work)
        task_count = sum(one.task_count for one in subtopologies.values())
        if task_count * (1 + standby_count) > TASKS_ASSIGNED_AT_ONCE:
            self.assigning = assigning
            return
        while assigning.targets is None:
            assigning.compute()
        self.set_targets(assigning.targets, self.epoch, wall_ms)

    def continue_assigning(self, wall_ms: int) -> None:
        """Compute or write one slice of the assignment that is in progress.

        Members that have left since the assignment began get no target.
        """
        assigning = self._group.assigning
        if assigning is None:
            return
        if assigning.targets is None:
            assigning.compute()
            return
        for member_id in assigning.targets.keys() - self.members.keys():
            del assigning.targets[member_id]
        some = assigning.unwritten(self._targets)
        if some:
            self._write_targets(some)
            self._targets = {**self._targets, **some}
        else:
            self.set_targets(assigning.targets, assigning.epoch, wall_ms)
            self._group.assigning = None

    def set_targets(self, targets: Mapping[str, TaskSet], epoch: int, wall_ms: int) -> None:
        """Set the target assignment of an epoch."""
        self._write_targets(targets)
        self._targets, self.target_epoch = targets, epoch
        self.records.append(records.target_epoch_record(self.group_id, epoch, wall_ms))

    def _write_targets(self, targets: Mapping[str, TaskSet]) -> None:
        for member_id, target in targets.items():
            if self._targets.get(member_id) != target:
                self.records.append(records.member_target_record(self.group_id, member_id, target))

    def target(self, member_id: str) -> TaskSet:
        return self._targets.get(member_id, NO_TASKS)

    # --- the member of the request ---------------------------------------------------------------

    def reconcile(self, member_id: str, target: TaskSet, owned: TaskSet | None) -> CurrentValue:
        """Move the member towards its target. Gives: its current assignment afterwards."""
        before = self._group.current(member_id)
        free = self._free_tasks(self.members[member_id].process_id)
        current = reconcile(before, target, self.target_epoch, owned, free)
        if current is not before:
            self.records.append(records.current_record(self.group_id, member_id, current))
        return current

    def _free_tasks(self, process_id: str) -> FreeTasks:
        """Which tasks a member of the process may get now. A process holds a task in one role only,
        since its state directory has one copy; an active task has one process.
        """
        group = self._group

        def in_other_role(task: Task) -> bool:
            return process_id in group.standby_processes.get(
                task, ()
            ) or process_id in group.warmup_processes.get(task, ())

        def active(subtopology_id: str, partition: int) -> bool:
            task = (subtopology_id, partition)
            return task not in group.active_processes and not in_other_role(task)

        def standby(subtopology_id: str, partition: int) -> bool:
            task = (subtopology_id, partition)
            return group.active_processes.get(task) != process_id and not in_other_role(task)

        return FreeTasks(active, standby)
