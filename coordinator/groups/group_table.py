"""The groups of one coordinator. It also makes empty results for events of these groups.

The coordinator and its parts (membership, offsets, administration) share one table. The parts read
its hard state; only `GroupCoordinator.replay` and `replay_marker` change it.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_timers import (
    OF_MODERN_GROUPS,
    RETENTION,
    TimerKey,
    cancel_member,
)
from barnabas.coordinator.result import Result, partition_for
from barnabas.coordinator.timers import Timers


class GroupTable:
    """All groups by their ids, and their deadlines.

    A group is in `by_id` as soon as it has hard state or a joining member. When it has neither, it
    is removed: by the record that removes the last of its hard state, or by its retention check.
    """

    def __init__(
        self,
        partition_count: int,
        timers: Timers[TimerKey],
        new_classic_group: Callable[[str], ClassicGroup],
    ) -> None:
        self.by_id: dict[str, Group] = {}
        self.timers = timers
        self._partition_count, self._new_classic_group = partition_count, new_classic_group

    def new_group(self, partition: int, group_id: str) -> Group:
        """Make a group without state, which is not added to the table."""
        return Group(group_id, partition, self._new_classic_group(group_id))

    def get_or_create(self, partition: int, group_id: str) -> Group:
        """The group with that id, which is created if it does not exist."""
        group = self.by_id.get(group_id)
        if group is None:
            group = self.by_id[group_id] = self.new_group(partition, group_id)
        return group

    def maybe_forget(self, group: Group) -> None:
        """Remove a group that has no state."""
        if group.offsets or group.metadata_value is not None:
            return
        if group.modern is not None:
            return
        # Keep the group: it has just become a classic group, and its record is replayed next.
        if group.classic.members:
            return
        del self.by_id[group.group_id]
        # These timers may be due only after days, and would accumulate if group ids are used once
        # and then deleted.
        self.timers.cancel((RETENTION, group.group_id, ""))
        group.classic.rebalance.cancel_timers()
        for member_id in group.classic.pending_ids:
            cancel_member(self.timers, group.group_id, member_id)

    def drop_modern(self, group: Group) -> None:
        """Remove the state of a consumer, share or streams group from a group, and cancel its
        timers.
        """
        group.modern = None
        for kind in OF_MODERN_GROUPS:
            self.timers.cancel((kind, group.group_id, ""))
        if not group.classic.pending_ids:  # a group with pending ids becomes a classic group
            self.maybe_forget(group)

    def result(self, group_id: str) -> Result:
        """An empty result for the partition of a group.

        The result contains the partition even if it gets no record, since the host keeps the order
        of the responses within a partition.
        """
        return Result(partition_for(group_id, self._partition_count))
