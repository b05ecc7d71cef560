"""Assignors, which distribute the partitions of topics to the members of a consumer group.

`uniform` gives each member the same number of partitions, as far as the subscriptions allow, and
moves as few partitions as possible. `range` gives each member consecutive partitions of each topic.
A member then gets the same partition numbers of all topics with equal partition counts, and can
join them by key. `range` ignores the former assignment.

`uniform` has two algorithms. If all members want the same topics, each member above its share gives
up the excess, which goes to members below their share. Otherwise each partition without an owner
goes to the least loaded member that wants its topic. Then single partitions are moved along the
shortest path of members, from a member to another one with at least two partitions fewer, until no
such path exists. The result is as balanced as an assignment can be: the sum of the squares of the
members' partition counts is minimal. (A path that lowers this sum is a negative cycle of the flow
network, and no such cycle remains.)

Both assignors are deterministic: they process members and topics in the given order.

Source: KIP-848, "Server Side Assignors".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

Assignment = dict[uuid.UUID, tuple[int, ...]]
"""The partitions of each topic, in order; no topic without a partition."""


class MemberToAssign(NamedTuple):
    """The input of an assignor for one member: the topics that it wants, and its last target."""

    instance_id: str | None
    topics: frozenset[uuid.UUID]
    assignment: Assignment


Assignor = Callable[[Mapping[str, MemberToAssign], Mapping[uuid.UUID, int]], dict[str, Assignment]]
"""An assignor. It takes the members by id, and the partition count of each wanted topic."""


def assign_range(
    members: Mapping[str, MemberToAssign], topics: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    """Give each member consecutive partitions of each topic that it wants.

    If the partitions cannot be divided equally, the first members get one more. Static members come
    first, sorted by instance name, so that a member that returns with another id gets the same
    partitions.
    """
    ordered = sorted(
        members, key=lambda member_id: (members[member_id].instance_id is None,
                                        members[member_id].instance_id or member_id)
    )  # fmt: skip
    assigned: dict[str, Assignment] = {member_id: {} for member_id in members}
    for topic_id, partition_count in topics.items():
        takers = [member_id for member_id in ordered if topic_id in members[member_id].topics]
        if not takers:
            continue
        share, remainder = divmod(partition_count, len(takers))
        first = 0
        for rank, member_id in enumerate(takers):
            end = first + share + (rank < remainder)
            if end > first:
                assigned[member_id][topic_id] = tuple(range(first, end))
            first = end
    return assigned


def assign_uniform(
    members: Mapping[str, MemberToAssign], topics: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    """Distribute the partitions evenly, and move as few of them as possible."""
    if not members:
        return {}
    wanted = next(iter(members.values())).topics
    if all(member.topics == wanted for member in members.values()):
        counts = {topic_id: count for topic_id, count in topics.items() if topic_id in wanted}
        return _assign_alike(members, counts)
    return _Balance(members, topics).assign()


# --- members that want the same -----------------------------------------------------------------

_Partition = tuple[uuid.UUID, int]


def _kept(
    members: Mapping[str, MemberToAssign], topics: Mapping[uuid.UUID, int]
) -> tuple[dict[str, list[_Partition]], list[_Partition]]:
    """The partitions that members keep, and the partitions without an owner.

    If two members have the same partition, the first one keeps it.
    """
    free = {topic_id: dict.fromkeys(range(count)) for topic_id, count in topics.items()}
    kept: dict[str, list[_Partition]] = {}
    for member_id, member in members.items():
        mine = kept[member_id] = []
        for topic_id, partitions in member.assignment.items():
            if topic_id not in member.topics:
                continue
            free_of_topic = free.get(topic_id, {})
            for partition in partitions:
                if partition in free_of_topic:
                    del free_of_topic[partition]
                    mine.append((topic_id, partition))
    unowned = [
        (topic_id, partition) for topic_id, of_topic in free.items() for partition in of_topic
    ]
    return kept, unowned


def _assign_alike(
    members: Mapping[str, MemberToAssign], topics: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    """Balance partitions among members that want the same topics. Each member keeps as many of its
    partitions as it may.

    Every member gets `share` partitions, and `remainder` members get one more. These are first the
    members that already own more, so that fewer partitions move.
    """
    kept, unowned = _kept(members, topics)
    share, remainder = divmod(sum(topics.values()), len(members))
    for mine in kept.values():
        may_have = share
        if len(mine) > share and remainder:
            may_have, remainder = share + 1, remainder - 1
        if len(mine) > may_have:
            unowned += mine[may_have:]
            del mine[may_have:]
    next_unowned = iter(unowned)
    for mine in kept.values():
        for _ in range(share - len(mine)):
            mine.append(next(next_unowned))
    for mine in kept.values():
        if remainder == 0:
            break
        if len(mine) == share:
            mine.append(next(next_unowned))
            remainder -= 1
    return _as_assignments(members, kept)


def _as_assignments(
    members: Mapping[str, MemberToAssign], given: Mapping[str, Iterable[_Partition]]
) -> dict[str, Assignment]:
    """Convert the distributed partitions to assignments. If a member's assignment has not changed,
    the former object is used again.
    """
    assigned = {}
    for member_id, partitions in given.items():
        by_topic: dict[uuid.UUID, list[int]] = {}
        for topic_id, partition in partitions:
            by_topic.setdefault(topic_id, []).append(partition)
        assignment = {topic_id: tuple(sorted(row)) for topic_id, row in by_topic.items()}
        former = members[member_id].assignment
        assigned[member_id] = former if assignment == former else assignment
    return assigned


# --- members that want different topics ---------------------------------------------------------


class _Balance:
    """The distribution of partitions among members with different subscriptions.

    owned: partitions by member and topic, in the order in which they were added.
    """

    def __init__(
        self, members: Mapping[str, MemberToAssign], topics: Mapping[uuid.UUID, int]
    ) -> None:
        """Let the members keep the partitions that they have and still want."""
        self._members = members
        self._takers: dict[uuid.UUID, list[str]] = {topic_id: [] for topic_id in topics}
        for member_id, member in members.items():
            for topic_id in sorted(member.topics):
                if topic_id in self._takers:
                    self._takers[topic_id].append(member_id)
        kept, self._unowned = _kept(members, topics)
        self._owned: dict[str, dict[uuid.UUID, list[int]]] = {name: {} for name in members}
        self._loads = dict.fromkeys(members, 0)
        for member_id, partitions in kept.items():
            for topic_id, partition in partitions:
                self._give(member_id, topic_id, partition)

    def assign(self) -> dict[str, Assignment]:
        """Give each partition without an owner to the interested member with the fewest partitions,
        then level the loads.
        """
        # Topics that few members want come first, while the choice of members is free.
        self._unowned.sort(key=lambda partition: len(self._takers[partition[0]]))
        for topic_id, partition in self._unowned:
            takers = self._takers[topic_id]
            if takers:
                self._give(min(takers, key=self._loads.__getitem__), topic_id, partition)
        self._level()
        return _as_assignments(
            self._members,
            {
                member_id: [(topic_id, number) for topic_id, row in owned.items() for number in row]
                for member_id, owned in self._owned.items()
            },
        )

    def _give(self, member_id: str, topic_id: uuid.UUID, partition: int) -> None:
        self._owned[member_id].setdefault(topic_id, []).append(partition)
        self._loads[member_id] += 1

    def _level(self) -> None:
        """Move partitions until no member has a path to another one with at least two partitions
        fewer.

        The passes are repeated until none of them moves a partition, since a member that receives a
        partition after its turn may then have two more than another member.
        """
        waiting = sorted(self._members, key=self._loads.__getitem__, reverse=True)
        is_level = False
        while not is_level:
            is_level = True
            for member_id in waiting:
                while path := self._path_down(member_id):
                    is_level = False
                    self._move_along(path)

    def _path_down(self, giver: str) -> list[tuple[str, uuid.UUID, str]]:
        """The shortest path from a member to one with at least two partitions fewer, or an empty
        list.
        """
        goal = self._loads[giver] - 2
        if goal < 0:
            return []
        came_from: dict[str, tuple[str, uuid.UUID]] = {}
        seen_topics: set[uuid.UUID] = set()
        layer = [giver]
        while layer:
            following: list[str] = []
            for member_id in layer:
                for topic_id in self._owned[member_id]:
                    if topic_id in seen_topics:
                        continue
                    seen_topics.add(topic_id)
                    for taker in self._takers[topic_id]:
                        if taker != giver and taker not in came_from:
                            came_from[taker] = (member_id, topic_id)
                            following.append(taker)
            reached = min(following, key=self._loads.__getitem__, default=None)
            if reached is not None and self._loads[reached] <= goal:
                return self._steps(giver, reached, came_from)
            layer = following
        return []

    def _steps(
        self, giver: str, reached: str, came_from: Mapping[str, tuple[str, uuid.UUID]]
    ) -> list[tuple[str, uuid.UUID, str]]:
        """The moves along the path that the search found from `giver` to `reached`, the last move
        first.

        Gives:  for each move, the giving member, the topic, and the receiving member.
        """
        steps = []
        taker = reached
        while taker != giver:
            former, topic_id = came_from[taker]
            steps.append((former, topic_id, taker))
            taker = former
        return steps

    def _move_along(self, path: Sequence[tuple[str, uuid.UUID, str]]) -> None:
        """Move one partition from each member on the path to the next member.

        The partition that was added last is moved, since a member should keep its former
        partitions.
        """
        for giver, topic_id, taker in path:
            partitions = self._owned[giver][topic_id]
            self._give(taker, topic_id, partitions.pop())
            self._loads[giver] -= 1
            if not partitions:
                del self._owned[giver][topic_id]


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by the names that `group.consumer.assignors` and members use."""
