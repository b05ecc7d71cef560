"""One streams group (KIP-1071): its topology, its members, their current and target tasks.

The hard state of the group consists of its records (streams_group_records.py) and of values that
are computed from them. Only `replay` writes it. A group exists as soon as its epoch is 1.

The soft state consists of the plan of its topics, which follows from the topology and the topics of
the broker; the assignment that is being computed, and the time of the last one; a request to shut
the application down; and the endpoint epoch, a number that rises when the tasks of members change.

    state of the group    when
    Empty                 it has no members
    NotReady              topics that its topology needs are missing, or have the wrong partitions
    Assigning             its epoch is above that of its target assignment
    Reconciling           a member does not have its target assignment
    Stable                all members have their target assignments
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping

from barnabas.coordinator.groups.group_state import CommitCheck, CommitSender, ModernGroup
from barnabas.coordinator.groups.group_types import STREAMS_TYPE
from barnabas.coordinator.groups.streams import streams_group_records as records
from barnabas.coordinator.groups.streams.sticky_assignor import Assigning
from barnabas.coordinator.groups.streams.streams_group_records import (
    NO_EPOCH,
    NO_HASH,
    NOTHING,
    CurrentValue,
    MemberValue,
    StreamsGroupKey,
)
from barnabas.coordinator.groups.streams.task_reconciliation import is_reconciled
from barnabas.coordinator.groups.streams.tasks import NO_TASKS, HeldTasks, Task, TaskSet, each
from barnabas.coordinator.groups.streams.topic_plan import TopicPlan
from barnabas.coordinator.groups.streams.topology import Topology
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.errors import Code

FIRST_EPOCH = 1  # the epoch of a new group and of its target assignment, before its first record
NO_TOPICS_VERSION = -1
# the number of subtopologies, counted over all targets, that one slice writes in 5 to 10 ms
ROWS_WRITTEN_AT_ONCE = 1_000
FIRST_COMMIT_VERSION = 9  # the first version of OffsetCommit that members may use
EMPTY, NOT_READY, ASSIGNING, RECONCILING, STABLE = (
    "Empty", "NotReady", "Assigning", "Reconciling", "Stable"
)  # fmt: skip


class AssignmentInSlices:
    """A target assignment that is computed in slices and then written in slices.

    epoch: the group's epoch when the computation began. targets: the target of each member, or
    None until all targets are computed.

    The record of the assignment's epoch is written last. Until then, some members have new targets
    while the target epoch is still the former one. This does no harm: whatever the epoch, a member
    gets a task only when the task is free.
    """

    __slots__ = ("_work", "epoch", "targets")

    def __init__(self, epoch: int, work: Assigning) -> None:
        self.epoch, self._work = epoch, work
        self.targets: dict[str, TaskSet] | None = None

    def compute(self) -> None:
        """Compute one slice."""
        try:
            next(self._work)
        except StopIteration as end:
            self.targets = end.value

    def unwritten(self, written: Mapping[str, TaskSet]) -> dict[str, TaskSet]:
        """Return the targets that differ from the written ones, as many as one slice writes.

        The result is empty when all targets have been written.
        """
        found, left = dict[str, TaskSet](), ROWS_WRITTEN_AT_ONCE
        for member_id, target in (self.targets or {}).items():
            if written.get(member_id) != target:
                found[member_id] = target
                left -= sum(1 + len(one) // 16 for tasks in target for one in tasks.values())
                if left <= 0:
                    break
        return found


class StreamsGroup(ModernGroup):
    """The members of one streams group.

    validated_topology_epoch: the epoch of the topology if all its topics exist; NO_EPOCH while some
    are missing. active_processes: for each task, the process that has it as an active task, even if
    the process has to give the task up; standby_processes, warmup_processes: the same for the
    processes that have a task as a standby or warm-up task. plan: None until a heartbeat needs it;
    topics_version: `TopicDirectory.version` when the plan was made. assigning: the assignment that
    is being computed, or None.
    """

    kind = STREAMS_TYPE
    protocol_type = STREAMS_TYPE

    def __init__(self) -> None:
        self.epoch, self.metadata_hash, self.target_epoch = FIRST_EPOCH, NO_HASH, FIRST_EPOCH
        self._exists = False
        self.validated_topology_epoch = NO_EPOCH
        self.assignment_configs: tuple[tuple[str, str], ...] = ()
        self.topology: Topology | None = None
        self.members: dict[str, MemberValue] = {}
        self.currents: dict[str, CurrentValue] = {}
        self.targets: dict[str, TaskSet] = {}
        self.active_processes: dict[Task, str] = {}
        self.standby_processes: dict[Task, set[str]] = {}
        self.warmup_processes: dict[Task, set[str]] = {}
        self.plan: TopicPlan | None = None
        self.topics_version = NO_TOPICS_VERSION
        self.assigned_ms: int | None = None
        self.assigning: AssignmentInSlices | None = None
        self.shutdown_member_id: str | None = None
        self.endpoint_epoch = 0

    def decide_again(self) -> None:
        """Make the next heartbeat read the topics and compute the assignment again.

        Called after records of an assignment were dropped.
        """
        self.assigned_ms, self.plan, self.topics_version = None, None, NO_TOPICS_VERSION
        self.assigning = None

    # --- hard state ------------------------------------------------------------------------------

    def replay(self, key: StreamsGroupKey, value: bytes | None) -> None:
        """Apply one record. The tombstone of the group's epoch removes the group."""
        self._exists = self._exists or value is not None
        version, _, member_id = key
        if version == records.CURRENT_VERSION:
            self._replay_current(member_id, value)
        elif version == records.MEMBER_TARGET_VERSION:
            if value is None:
                self.targets.pop(member_id, None)
            else:
                self.targets[member_id] = records.decode_member_target(value)
        elif version == records.MEMBER_VERSION:
            self._replay_member(member_id, value)
        elif version == records.GROUP_VERSION:
            self._replay_epoch(value)
        elif version == records.TARGET_VERSION:
            self.target_epoch = FIRST_EPOCH if value is None else records.decode_target_epoch(value)
        else:
            if self.topology is not None:
                # Drop the plan of the former topology. The plan of the first topology stays, since
                # it is made before this record is replayed.
                self.plan = None
            self.topology = None if value is None else records.decode_topology(value)

    def _replay_epoch(self, value: bytes | None) -> None:
        """Apply the record of the group's epoch; None removes the group."""
        if value is None:
            self._exists = False
            self.epoch, self.metadata_hash = FIRST_EPOCH, NO_HASH
            self.validated_topology_epoch, self.assignment_configs = NO_EPOCH, ()
        else:
            (
                self.epoch,
                self.metadata_hash,
                self.validated_topology_epoch,
                self.assignment_configs,
            ) = records.decode_group_epoch(value)

    def _replay_member(self, member_id: str, value: bytes | None) -> None:
        """Apply the record of a member; its tasks are counted for its process, which may have
        changed.
        """
        former = self.members.pop(member_id, None) if value is None else self.members.get(member_id)
        current = self.currents.get(member_id, NOTHING)
        if former is not None:
            self._remove_processes(former.process_id, current)
        if value is not None:
            member = self.members[member_id] = records.decode_member(value)
            self._add_processes(member.process_id, current)
        elif not self.members:
            self.shutdown_member_id = None

    def _replay_current(self, member_id: str, value: bytes | None) -> None:
        """Apply the record of a member's current assignment, and count its tasks for its
        process.
        """
        member = self.members.get(member_id)
        former = self.currents.pop(member_id, NOTHING)
        if member is not None:
            self._remove_processes(member.process_id, former)
        if value is not None:
            current = self.currents[member_id] = records.decode_current(value)
            if member is not None:
                self._add_processes(member.process_id, current)

    def _add_processes(self, process_id: str, current: CurrentValue) -> None:
        """Note that the process has these tasks, including those that it has to give up."""
        for held in (current.assigned, current.pending_revocation):
            for task in each(held.active):
                self.active_processes[task] = process_id
            for tasks, processes in self._other_roles(held):
                for task in tasks:
                    processes.setdefault(task, set()).add(process_id)

    def _remove_processes(self, process_id: str, current: CurrentValue) -> None:
        """Note that the process no longer has these tasks."""
        for held in (current.assigned, current.pending_revocation):
            for task in each(held.active):
                if self.active_processes.get(task) == process_id:
                    del self.active_processes[task]
            for tasks, processes in self._other_roles(held):
                for task in tasks:
                    of_task = processes.get(task)
                    if of_task is not None:
                        of_task.discard(process_id)
                        if not of_task:
                            del processes[task]

    def _other_roles(
        self, held: HeldTasks
    ) -> tuple[tuple[Iterator[Task], dict[Task, set[str]]], ...]:
        """The standby and the warmup tasks, each with the index of the processes that have them."""
        return (
            (each(held.standby), self.standby_processes),
            (each(held.warmup), self.warmup_processes),
        )

    def tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """The records that remove the group; the last is the tombstone of the group's own
        record.
        """
        for member_id in list(self.currents):
            yield records.tombstone(records.CURRENT_VERSION, group_id, member_id)
        for member_id in list(self.targets):
            yield records.tombstone(records.MEMBER_TARGET_VERSION, group_id, member_id)
        yield records.tombstone(records.TARGET_VERSION, group_id)
        for member_id in list(self.members):
            yield records.tombstone(records.MEMBER_VERSION, group_id, member_id)
        yield records.tombstone(records.TOPOLOGY_VERSION, group_id)
        yield records.tombstone(records.GROUP_VERSION, group_id)

    def without_topics(
        self, group_id: str, topic_ids: Collection[uuid.UUID]
    ) -> Iterator[CoordinatorRecord]:
        """Return no records: the group stores no topics except the names in its topology."""
        yield from ()

    # --- for readers -----------------------------------------------------------------------------

    def current(self, member_id: str) -> CurrentValue:
        return self.currents.get(member_id, NOTHING)

    def target(self, member_id: str) -> TaskSet:
        return self.targets.get(member_id, NO_TASKS)

    def may_be_assigned(self, interval_ms: int, now_ms: int) -> bool:
        """Whether enough time has passed since the last target assignment. Source: KIP-1263."""
        return self.assigned_ms is None or now_ms - self.assigned_ms >= interval_ms

    @property
    def is_ready(self) -> bool:
        """Whether all topics of the group's topology exist."""
        return self.topology is not None and self.topology.epoch == self.validated_topology_epoch

    @property
    def exists(self) -> bool:
        """Whether the log has a record of the group."""
        return self._exists

    @property
    def state_name(self) -> str:
        """The name of the group's state. Computing it takes time in proportion to the number of
        members.
        """
        if not self.members:
            return EMPTY
        if not self.is_ready:
            return NOT_READY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        if all(
            is_reconciled(self.current(member_id), self.target_epoch) for member_id in self.members
        ):
            return STABLE
        return RECONCILING

    @property
    def member_ids(self) -> Collection[str]:
        """The ids of the members."""
        return self.members

    @property
    def subscribed_topics(self) -> Collection[str]:
        """The names of the topics that the members' tasks read."""
        return () if self.topology is None or not self.members else self.topology.subtopology_of

    @property
    def reads_on(self) -> bool:
        """Whether members continue from their own positions. Such members have to join again after
        a power loss.
        """
        return bool(self.members)

    @property
    def accepts_join_group(self) -> bool:
        """Whether a classic group may replace this one."""
        return not self.members

    @property
    def is_unused(self) -> bool:
        """Whether the group is to be removed when its last offset is removed."""
        return not self.members

    def check_offset_delete(self) -> Code:
        """Return NONE: in a streams group, the offsets of topics that no member reads may always be
        deleted.
        """
        return Code.NONE

    def check_commit(self, sender: CommitSender) -> CommitCheck:
        """Whether the member may commit offsets in the given epoch.

        Source: KIP-1071; KIP-1251 for commits in an earlier epoch.
        """
        member_id, epoch, api_version, transactional, *_ = sender
        names_no_member = epoch < 0 and not member_id
        if (epoch < 0 and not self.members) or (transactional and names_no_member):
            return CommitCheck(Code.NONE)
        if member_id not in self.members:
            return CommitCheck(Code.UNKNOWN_MEMBER_ID)
        if not transactional and api_version < FIRST_COMMIT_VERSION:
            return CommitCheck(Code.UNSUPPORTED_VERSION)
        code = Code.ILLEGAL_GENERATION if transactional else Code.STALE_MEMBER_EPOCH
        known_epoch = self.current(member_id).member_epoch
        if epoch == known_epoch:
            return CommitCheck(Code.NONE)
        if epoch > known_epoch:
            return CommitCheck(code)
        return CommitCheck(Code.NONE, code, member_id, epoch)

    def has_had(
        self, check: CommitCheck, topic: str, topic_id: uuid.UUID | None, partition: int
    ) -> bool:
        """Whether the partition's task has been an active task of the member at least since the
        epoch of the commit.
        """
        subtopology_id = None if self.topology is None else self.topology.subtopology_of.get(topic)
        if subtopology_id is None:
            return False
        current = self.current(check.member_id)
        for held in (current.assigned, current.pending_revocation):
            since = held.active.get(subtopology_id, {}).get(partition)
            if since is not None:
                return since <= check.since_epoch
        return False

    def check_fetch(self, member_id: str | None, epoch: int) -> Code:
        """Return NONE if offsets may be fetched, otherwise the error code.

        A request that names no member is accepted.
        """
        if member_id is None and epoch < 0:
            return Code.NONE
        if member_id not in self.members:
            return Code.UNKNOWN_MEMBER_ID
        is_current = epoch == self.current(member_id or "").member_epoch
        return Code.NONE if is_current else Code.STALE_MEMBER_EPOCH


class StreamsKind:
    """Reads the records of streams groups."""

    def decode_key(self, key: bytes) -> StreamsGroupKey | None:
        """The key of a record; None if its version is unknown."""
        return records.decode_streams_key(key)

    def is_group_key(self, key: StreamsGroupKey) -> bool:
        """Whether a tombstone with this key removes the group."""
        return key.version == records.GROUP_VERSION

    def new_group(self) -> StreamsGroup:
        """A group that has no records yet."""
        return StreamsGroup()
