"""How a member moves towards its target assignment. The tests follow the table in the module row by
row (KIP-848).
"""

from __future__ import annotations

import uuid

from barnabas.coordinator.groups.consumer.consumer_group_records import CurrentValue, MemberState
from barnabas.coordinator.groups.consumer.reconciliation import NOTHING, reconcile

T, U = uuid.UUID(int=1), uuid.UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = MemberState


def free(*taken: int):
    return lambda topic_id, partition: partition not in taken


def has(epoch: int, *partitions: int, previous: int = 0) -> CurrentValue:
    assigned = {T: dict.fromkeys(partitions, epoch)} if partitions else {}
    return CurrentValue(epoch, previous, STABLE, assigned, {})


def test_a_new_member_gets_what_is_free_at_once() -> None:
    assert reconcile(NOTHING, {T: (0, 1)}, 3, {}, free()) == CurrentValue(
        3, 0, STABLE, {T: {0: 3, 1: 3}}, {}
    )


def test_a_member_waits_for_partitions_that_others_own() -> None:
    waiting = reconcile(NOTHING, {T: (0, 1)}, 3, {}, free(1))
    assert waiting == CurrentValue(3, 0, UNRELEASED, {T: {0: 3}}, {})
    assert reconcile(waiting, {T: (0, 1)}, 3, None, free(1)) is waiting
    assert reconcile(waiting, {T: (0, 1)}, 3, None, free()) == CurrentValue(
        3, 0, STABLE, {T: {0: 3, 1: 3}}, {}
    )


def test_a_member_at_its_target_does_not_change() -> None:
    stable = has(3, 0, 1)
    for owned in (None, {}, {T: [0, 1]}):
        assert reconcile(stable, {T: (0, 1)}, 3, owned, free()) is stable


def test_a_member_revokes_partitions_before_it_gets_the_next_epoch() -> None:
    reconciled = reconcile(has(3, 0, 1), {T: (0, 2)}, 4, None, free())
    assert reconciled == CurrentValue(3, 0, UNREVOKED, {T: {0: 3}}, {T: {1: 3}})
    for owned in (None, {T: [0, 1]}, {T: [1]}):
        assert reconcile(reconciled, {T: (0, 2)}, 4, owned, free()) is reconciled
    given_up = reconcile(reconciled, {T: (0, 2)}, 4, {T: [0]}, free())
    assert given_up == CurrentValue(4, 3, STABLE, {T: {0: 3, 2: 4}}, {})


def test_partitions_that_a_member_does_not_report_are_revoked_at_once() -> None:
    assert reconcile(has(3, 0, 1), {T: (0,)}, 4, {T: [0]}, free()) == CurrentValue(
        4, 3, STABLE, {T: {0: 3}}, {}
    )


def test_the_target_may_change_while_a_member_revokes_partitions() -> None:
    reconciled = reconcile(has(3, 0, 1, 2), {T: (0, 1)}, 4, None, free())
    again = reconcile(reconciled, {T: (0,)}, 6, {T: [0, 1]}, free())
    assert again == CurrentValue(4, 3, UNREVOKED, {T: {0: 3}}, {T: {1: 3}})
    assert reconcile(again, {T: (0,)}, 6, {T: [0]}, free()).member_epoch == 6


def test_a_members_epoch_is_never_above_the_targets() -> None:
    """The member has unsubscribed from a topic, and a newer target does not exist yet."""
    reconciled = reconcile(has(3, 0, 1), {}, 3, None, free())
    assert reconciled == CurrentValue(3, 0, UNREVOKED, {}, {T: {0: 3, 1: 3}})
    assert reconcile(reconciled, {}, 3, {}, free()) == CurrentValue(3, 0, STABLE, {}, {})


def test_the_partitions_of_an_unsubscribed_topic_are_revoked() -> None:
    both = CurrentValue(3, 0, STABLE, {T: {0: 3}, U: {0: 3}}, {})
    reconciled = reconcile(both, {T: (0,)}, 3, None, free())
    assert reconciled == CurrentValue(3, 0, UNREVOKED, {T: {0: 3}}, {U: {0: 3}})


def test_a_partition_keeps_the_epoch_in_which_the_member_got_it() -> None:
    grown = reconcile(has(3, 0), {T: (0,), U: (0,)}, 5, None, free())
    assert grown.assigned == {T: {0: 3}, U: {0: 5}}


def test_a_revoked_partition_may_be_assigned_to_its_former_owner_again() -> None:
    reconciled = reconcile(has(3, 0, 1), {T: (0,)}, 4, None, free())
    back = reconcile(reconciled, {T: (0, 1)}, 5, {T: [0]}, free())
    assert back == CurrentValue(5, 3, STABLE, {T: {0: 3, 1: 5}}, {})
