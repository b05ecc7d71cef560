"""How one member moves from its current assignment to its target (KIP-848, "Member Assignment").

    current state                owned partitions in       next
                                 its heartbeat
    STABLE, in the target's      any                       unchanged
      epoch
    STABLE, in an earlier one    any                       a step
    UNREVOKED_PARTITIONS         some of the revoked       unchanged
                                 ones, or not listed
    UNREVOKED_PARTITIONS         none of the revoked ones  a step, in the next epoch
    UNRELEASED_PARTITIONS        any                       a step

A step keeps the partitions that are in the target. If the member has others, and its heartbeat does
not confirm that it gave them up, it is UNREVOKED_PARTITIONS and stays in its epoch. Otherwise it
enters the target's epoch, gets the remaining partitions of its target that are free, and is STABLE,
or UNRELEASED_PARTITIONS if other members still have some of them. No partition can have two owners,
since it is free only after its former owner has confirmed the revocation, or has left.

A partition keeps the epoch in which the member got it; commits are checked against that epoch
(KIP-1251).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping

from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.consumer.consumer_group_records import (
    CurrentValue,
    MemberState,
    PartitionEpochs,
)

IsFree = Callable[[uuid.UUID, int], bool]
Owned = Mapping[uuid.UUID, Collection[int]]

NOTHING = CurrentValue(0, 0, MemberState.STABLE, {}, {})
"""The current assignment of a new member."""


def is_reconciled(current: CurrentValue, target_epoch: int) -> bool:
    """Whether the member has its target assignment."""
    return current.state is MemberState.STABLE and current.member_epoch == target_epoch


def reconcile(
    current: CurrentValue,
    target: Assignment,
    target_epoch: int,
    owned: Owned | None,
    is_free: IsFree,
) -> CurrentValue:
    """The current assignment after a heartbeat; the same object if nothing changes.

    Takes:  owned, the partitions that the heartbeat lists, None if it has no list; is_free, which
            returns whether no other member has a partition.
    """
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, current.pending_revocation):
            return current
        epoch = min(current.member_epoch + 1, target_epoch)
    elif is_reconciled(current, target_epoch) and not _exceeds(current.assigned, target):
        return current
    else:
        epoch = current.member_epoch
    following = _step(current, epoch, target, target_epoch, owned, is_free)
    return current if following == current else following


def _step(
    current: CurrentValue,
    epoch: int,
    target: Assignment,
    target_epoch: int,
    owned: Owned | None,
    is_free: IsFree,
) -> CurrentValue:
    """The next assignment on the way to the target. First the member has to revoke partitions, and
    gets no other partitions; after that it gets the free partitions of its target.
    """
    kept: PartitionEpochs = {}
    revoked: PartitionEpochs = {}
    for topic_id, epochs in current.assigned.items():
        of_target = target.get(topic_id, ())
        for partition, assignment_epoch in epochs.items():
            side = kept if partition in of_target else revoked
            side.setdefault(topic_id, {})[partition] = assignment_epoch
    if revoked and _owns_any(owned, revoked):
        return _in_epoch(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    waits = False
    for topic_id, partitions in target.items():
        had = kept.get(topic_id, {})
        for partition in partitions:
            if partition in had:
                continue
            if is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = target_epoch
            else:
                waits = True
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _in_epoch(current, target_epoch, state, kept, {})


def _in_epoch(
    current: CurrentValue,
    epoch: int,
    state: MemberState,
    assigned: PartitionEpochs,
    pending_revocation: PartitionEpochs,
) -> CurrentValue:
    """The assignment in an epoch. The previous epoch remains valid, since the response may be
    lost.
    """
    previous = (
        current.previous_member_epoch if epoch == current.member_epoch else current.member_epoch
    )
    return CurrentValue(epoch, previous, state, assigned, pending_revocation)


def _owns_any(owned: Owned | None, partitions: PartitionEpochs) -> bool:
    """Whether the member may still own one of the partitions; True if its heartbeat has no list."""
    if owned is None:
        return True
    return any(
        partition in partitions[topic_id]
        for topic_id, of_topic in owned.items()
        if topic_id in partitions
        for partition in of_topic
    )


def _exceeds(assigned: PartitionEpochs, target: Assignment) -> bool:
    """Whether the member has partitions of topics that are not in its target, as it no longer wants
    them.
    """
    return any(topic_id not in target for topic_id in assigned)
