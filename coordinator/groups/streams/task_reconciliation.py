"""How one member of a streams group moves from its tasks to its target (KIP-1071).

    current state               tasks in its heartbeat     next
    STABLE, in the target's     any                        unchanged
      epoch
    STABLE, in another epoch    any                        a step
    UNREVOKED_TASKS             some of the revoked ones,  unchanged
                                or not listed
    UNREVOKED_TASKS             none of the revoked ones   a step, in the next epoch
    UNRELEASED_TASKS            any                        a step
    UNKNOWN                     none at all                a step, in the target's epoch
    UNKNOWN                     some, or not listed        an error: it has to join again

A step keeps the tasks that the target has in the same role. If the member has other tasks, and its
heartbeat does not confirm that it gave them up, its state becomes UNREVOKED_TASKS and it stays in
its epoch. Otherwise it enters the target's epoch and gets the remaining tasks of its target that
are free. Its state becomes STABLE, or UNRELEASED_TASKS if some are not free.

A task is free for the active role if no process has it in that role, and the member's own process
has it in no other role. For other roles it is free if the member's own process has it in no role,
since the members of a process share the directory of the task's state. No task is therefore
processed twice, and no two threads use the same directory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.coordinator.groups.streams.streams_group_records import CurrentValue, MemberState
from barnabas.coordinator.groups.streams.tasks import (
    NONE_HELD,
    HeldTasks,
    TaskEpochs,
    Tasks,
    TaskSet,
    contains_any,
)
from barnabas.protocol.errors import Code, KafkaError

IsFree = Callable[[str, int], bool]


class FreeTasks(NamedTuple):
    """For each role, a function that returns whether the member may get a task now."""

    active: IsFree
    standby: IsFree


def is_reconciled(current: CurrentValue, target_epoch: int) -> bool:
    """Whether the member has its target assignment."""
    return current.state is MemberState.STABLE and current.member_epoch == target_epoch


def reconcile(
    current: CurrentValue,
    target: TaskSet,
    target_epoch: int,
    owned: TaskSet | None,
    free: FreeTasks,
) -> CurrentValue:
    """Return the current assignment after a heartbeat, or the same object if nothing changes.

    Takes:  owned, the tasks that the heartbeat lists; None if it has no list.
    Raises: KafkaError FENCED_MEMBER_EPOCH in the state UNKNOWN.
    """
    if is_reconciled(current, target_epoch):
        return current
    epoch = current.member_epoch
    if current.state is MemberState.UNREVOKED_TASKS:
        if owns_any(owned, current.pending_revocation):
            return current
        epoch = min(epoch + 1, target_epoch)
    elif current.state is MemberState.UNKNOWN:
        if owned is None or any(owned):
            raise KafkaError(
                Code.FENCED_MEMBER_EPOCH,
                "the state of the member is of a later release: it has to give up all its tasks "
                "and join again.",
            )
        epoch = target_epoch
    following = _step(current, epoch, target, target_epoch, owned, free)
    return current if following == current else following


def _step(
    current: CurrentValue,
    epoch: int,
    target: TaskSet,
    target_epoch: int,
    owned: TaskSet | None,
    free: FreeTasks,
) -> CurrentValue:
    """The next assignment on the way to the target. First the member has to revoke tasks; after
    that it gets the free tasks of its target.
    """
    assigned = current.assigned
    active, revoked_active = _parted_active(assigned.active, target.active)
    standby, revoked_standby = _parted(assigned.standby, target.standby)
    warmup, revoked_warmup = _parted(assigned.warmup, target.warmup)
    revoked = HeldTasks(revoked_active, revoked_standby, revoked_warmup)
    if not revoked.is_empty and owns_any(owned, revoked):
        kept = HeldTasks(active, standby, warmup)
        return _in_epoch(current, epoch, MemberState.UNREVOKED_TASKS, kept, revoked)
    active, waits_for_active = _with_free_active(active, target.active, target_epoch, free.active)
    standby, waits_for_standby = _with_free(standby, target.standby, free.standby)
    warmup, waits_for_warmup = _with_free(warmup, target.warmup, free.standby)
    waits = waits_for_active or waits_for_standby or waits_for_warmup
    state = MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE
    held = HeldTasks(active, standby, warmup)
    return _in_epoch(current, target_epoch, state, held, NONE_HELD)


def _in_epoch(
    current: CurrentValue,
    epoch: int,
    state: MemberState,
    assigned: HeldTasks,
    pending_revocation: HeldTasks,
) -> CurrentValue:
    """The assignment in an epoch. The previous epoch remains valid, since the response may be
    lost.
    """
    previous = (
        current.previous_member_epoch if epoch == current.member_epoch else current.member_epoch
    )
    return CurrentValue(epoch, previous, state, assigned, pending_revocation)


def owns_any(owned: TaskSet | None, tasks: HeldTasks) -> bool:
    """Whether the member may still own one of the tasks; True if its heartbeat has no list."""
    return owned is None or (
        contains_any(owned.active, tasks.active)
        or contains_any(owned.standby, tasks.standby)
        or contains_any(owned.warmup, tasks.warmup)
    )


# --- the tasks of one role ----------------------------------------------------------------------


def _parted_active(assigned: TaskEpochs, target: Tasks) -> tuple[TaskEpochs, TaskEpochs]:
    """Divide the active tasks into those that the target has and the others."""
    kept: dict[str, dict[int, int]] = {}
    revoked: dict[str, dict[int, int]] = {}
    for subtopology_id, epochs in assigned.items():
        of_target = frozenset(target.get(subtopology_id, ()))
        for partition, epoch in epochs.items():
            side = kept if partition in of_target else revoked
            side.setdefault(subtopology_id, {})[partition] = epoch
    return kept, revoked


def _parted(assigned: Tasks, target: Tasks) -> tuple[Tasks, Tasks]:
    """The tasks that are in the target, and the others."""
    kept: dict[str, tuple[int, ...]] = {}
    revoked: dict[str, tuple[int, ...]] = {}
    for subtopology_id, partitions in assigned.items():
        of_target = frozenset(target.get(subtopology_id, ()))
        for side, is_kept in ((kept, True), (revoked, False)):
            some = tuple(one for one in partitions if (one in of_target) is is_kept)
            if some:
                side[subtopology_id] = some
    return kept, revoked


def _with_free_active(
    kept: TaskEpochs, target: Tasks, target_epoch: int, is_free: IsFree
) -> tuple[TaskEpochs, bool]:
    """The kept tasks and the free tasks of the target, and whether some tasks of the target are not
    free.
    """
    held: dict[str, dict[int, int]] = {}
    waits = False
    for subtopology_id, partitions in target.items():
        had = kept.get(subtopology_id, {})
        for partition in partitions:
            if partition in had:
                epoch = had[partition]
            elif is_free(subtopology_id, partition):
                epoch = target_epoch
            else:
                waits = True
                continue
            held.setdefault(subtopology_id, {})[partition] = epoch
    return held, waits


def _with_free(kept: Tasks, target: Tasks, is_free: IsFree) -> tuple[Tasks, bool]:
    """The kept tasks and the free tasks of the target, and whether some tasks of the target are not
    free.
    """
    held: dict[str, tuple[int, ...]] = {}
    waits = False
    for subtopology_id, partitions in target.items():
        had = frozenset(kept.get(subtopology_id, ()))
        some = tuple(one for one in partitions if one in had or is_free(subtopology_id, one))
        waits = waits or len(some) < len(partitions)
        if some:
            held[subtopology_id] = some
    return held, waits
