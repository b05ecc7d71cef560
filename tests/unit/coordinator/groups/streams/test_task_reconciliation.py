"""How a member of a streams group moves towards its target assignment. The tests follow the table
of KIP-1071 row by row.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.groups.streams.streams_group_records import (
    NOTHING,
    CurrentValue,
    MemberState,
)
from barnabas.coordinator.groups.streams.task_reconciliation import FreeTasks, reconcile
from barnabas.coordinator.groups.streams.tasks import NO_TASKS, NONE_HELD, HeldTasks, TaskSet
from barnabas.protocol.errors import Code, KafkaError

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


def free(active: Any = True, standby: Any = True) -> FreeTasks:
    """The tasks that are free in each role: all of them, none, or those of the given partitions."""
    return FreeTasks(
        lambda _, partition: active if isinstance(active, bool) else partition in active,
        lambda _, partition: standby if isinstance(standby, bool) else partition in standby,
    )


def at(epoch: int, state: MemberState, assigned: Any, pending: Any = None) -> CurrentValue:
    """The current value of a member that has these active tasks ({partition: epoch}) of subtopology
    "0".
    """
    return CurrentValue(
        epoch, epoch - 1, state, HeldTasks({"0": assigned} if assigned else {}, {}, {}),
        HeldTasks({"0": pending}, {}, {}) if pending else NONE_HELD,
    )  # fmt: skip


def target(*partitions: int) -> TaskSet:
    return TaskSet({"0": partitions} if partitions else {}, {}, {})


owned = target


def test_a_new_member_gets_the_tasks_that_are_free() -> None:
    assert reconcile(NOTHING, target(0, 1), 2, owned(), free()) == at(
        2, STABLE, {0: 2, 1: 2}
    )._replace(previous_member_epoch=0)
    waits = reconcile(NOTHING, target(0, 1), 2, owned(), free({0}))
    assert (waits.member_epoch, waits.state) == (2, UNRELEASED)
    assert waits.assigned.active == {"0": {0: 2}}
    assert reconcile(NOTHING, target(0), 2, owned(), free(active=False)).assigned == NONE_HELD


def test_a_member_in_the_targets_epoch_is_left_alone() -> None:
    current = at(3, STABLE, {0: 2})
    assert reconcile(current, target(5), 3, None, free()) is current


def test_a_member_revokes_tasks_before_it_gets_others() -> None:
    current = at(3, STABLE, {0: 2, 1: 3})
    revoking = reconcile(current, target(0, 2), 5, None, free())
    assert revoking == at(3, UNREVOKED, {0: 2}, {1: 3})
    for still in (None, owned(0, 1), owned(1)):
        assert reconcile(revoking, target(0, 2), 5, still, free()) is revoking
    done = reconcile(revoking, target(0, 2), 5, owned(0), free())
    assert (done.member_epoch, done.previous_member_epoch, done.state) == (5, 3, STABLE)
    assert done.assigned.active == {"0": {0: 2, 2: 5}}, "kept tasks keep their epoch"


def test_what_it_no_longer_has_need_not_be_given_up() -> None:
    done = reconcile(at(3, STABLE, {0: 2, 1: 3}), target(0), 5, owned(0), free())
    assert (done.member_epoch, done.state, done.assigned.active) == (5, STABLE, {"0": {0: 2}})


def test_a_target_that_changes_during_a_revocation_causes_another_revocation() -> None:
    revoking = at(3, UNREVOKED, {0: 2, 4: 2}, {1: 3})
    again = reconcile(revoking, target(0), 7, owned(0, 4), free())
    assert again == at(4, UNREVOKED, {0: 2}, {4: 2})
    assert reconcile(revoking, target(0), 4, owned(0, 4), free()).member_epoch == 4


def test_a_member_that_waits_gets_tasks_as_they_become_free() -> None:
    waits = at(5, UNRELEASED, {0: 5})
    assert reconcile(waits, target(0, 1), 5, None, free(active=False)) is waits
    done = reconcile(waits, target(0, 1), 5, None, free())
    assert (done.state, done.assigned.active) == (STABLE, {"0": {0: 5, 1: 5}})
    assert (done.member_epoch, done.previous_member_epoch) == (5, 4)


def test_standby_and_warmup_tasks_are_reconciled_in_the_same_way() -> None:
    current = CurrentValue(
        3, 2, STABLE, HeldTasks({}, {"0": (0, 1)}, {"0": (2,)}), NONE_HELD
    )  # fmt: skip
    wanted = TaskSet({"0": (2,)}, {"0": (1, 3)}, {"0": (4,)})
    revoking = reconcile(current, wanted, 4, None, free())
    assert (revoking.state, revoking.member_epoch) == (UNREVOKED, 3)
    assert revoking.assigned == HeldTasks({}, {"0": (1,)}, {})
    assert revoking.pending_revocation == HeldTasks({}, {"0": (0,)}, {"0": (2,)})
    still = TaskSet({}, {"0": (1,)}, {"0": (2,)})
    assert reconcile(revoking, wanted, 4, still, free()) is revoking
    none = TaskSet({}, {"0": (1,)}, {})
    waits = reconcile(revoking, wanted, 4, none, free(active=False, standby={3}))
    assert (waits.state, waits.assigned) == (UNRELEASED, HeldTasks({}, {"0": (1, 3)}, {}))
    done = reconcile(waits, wanted, 4, None, free())
    assert (done.state, done.assigned) == (
        STABLE, HeldTasks({"0": {2: 4}}, {"0": (1, 3)}, {"0": (4,)}),
    )  # fmt: skip


def test_a_member_in_an_unknown_state_must_join_again() -> None:
    unknown = at(3, UNKNOWN, {0: 2})
    for still in (None, owned(0)):
        with pytest.raises(KafkaError) as refusal:
            reconcile(unknown, target(0), 5, still, free())
        assert refusal.value.code is Code.FENCED_MEMBER_EPOCH
    done = reconcile(unknown, target(0, 1), 5, NO_TASKS, free())
    assert (done.member_epoch, done.state, done.assigned.active) == (5, STABLE, {"0": {0: 2, 1: 5}})
