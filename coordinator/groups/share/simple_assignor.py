"""The assignor `simple` of share groups, which divides partitions among members.

Several members may have the same partition. Topics with the same subscribers are divided together.
With P partitions and N subscribers, each partition goes to S = ceil(N / P) members, which gives
each subscriber at least one: floor(S * P / N) partitions, or one more. Members keep their
partitions as far as these numbers allow. When some members get one partition more than others,
members that already have one more come first.

The result is deterministic: members and partitions are processed in the given order.

Source: KIP-932, "The SimpleAssignor", in its balanced form since Apache Kafka 4.1.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from barnabas.coordinator.groups.consumer.assignors import Assignment

_Partition = tuple[uuid.UUID, int]


class MemberToAssign(NamedTuple):
    """The input for one member: the topics that it wants, and its last target."""

    topics: Collection[uuid.UUID]
    assignment: Assignment


def assign_simple(
    members: Mapping[str, MemberToAssign], partitions: Mapping[uuid.UUID, Sequence[int]]
) -> dict[str, Assignment]:
    """Compute the partitions of each member. Takes: partitions, the partitions that may be
    assigned, by topic.
    """
    takers: dict[uuid.UUID, list[str]] = {topic_id: [] for topic_id in partitions}
    for member_id, member in members.items():
        for topic_id in member.topics:
            if topic_id in takers:
                takers[topic_id].append(member_id)
    # topics with the same members are divided together
    alike: dict[tuple[str, ...], list[_Partition]] = {}
    for topic_id, of_topic in takers.items():
        if of_topic:
            alike.setdefault(tuple(of_topic), []).extend(
                (topic_id, index) for index in partitions[topic_id]
            )
    had = {
        member_id: {
            (topic_id, index)
            for topic_id, indexes in member.assignment.items()
            for index in indexes
        }
        for member_id, member in members.items()
    }
    assigned: dict[str, list[_Partition]] = {member_id: [] for member_id in members}
    for of_topics, to_divide in alike.items():
        if to_divide:
            loads = {member_id: len(assigned[member_id]) for member_id in of_topics}
            for member_id, given in _Division(of_topics, to_divide, had, loads).given.items():
                assigned[member_id] += given
    return {member_id: _by_topic(pairs) for member_id, pairs in assigned.items()}


def _by_topic(pairs: Collection[_Partition]) -> Assignment:
    """The partitions as an assignment."""
    by_topic: dict[uuid.UUID, list[int]] = {}
    for topic_id, index in pairs:
        by_topic.setdefault(topic_id, []).append(index)
    return {topic_id: tuple(sorted(indexes)) for topic_id, indexes in by_topic.items()}


class _Division:
    """The division of some partitions among members that subscribe to all of their topics.

    given: the partitions of each member, in order.
    """

    def __init__(
        self,
        takers: Sequence[str],
        partitions: Sequence[_Partition],
        had: Mapping[str, set[_Partition]],
        loads: Mapping[str, int],
    ) -> None:
        """Takes: loads, the number of partitions of other topics that each member has."""
        self._takers = takers
        # how many members share a partition: more than one if there are fewer partitions than
        # members
        self._sharing = -(-len(takers) // len(partitions))
        self.given: dict[str, dict[_Partition, None]] = {
            member_id: dict.fromkeys(pair for pair in partitions if pair in had[member_id])
            if had[member_id]
            else {}
            for member_id in takers
        }
        self._counts = Counter(dict.fromkeys(partitions, 0))
        for of_member in self.given.values():
            self._counts.update(list(of_member))
        least, remainder = divmod(self._sharing * len(partitions), len(takers))
        # The sort is stable. Members that already have one partition more than the minimum come
        # first, then the least loaded members, and among these the ones that joined last.
        newest_first = list(reversed(takers))
        preferred = sorted(
            newest_first, key=lambda one: (len(self.given[one]) <= least, loads[one])
        )
        self._quotas = dict.fromkeys(takers, least)
        for member_id in preferred[:remainder]:
            self._quotas[member_id] += 1
        self._give_up_excess()
        self._fill()

    def _give_up_excess(self) -> None:
        """Take back the excess: partitions that members have above their quotas, and partitions
        that more than S members have.
        """
        counts, sharing = self._counts, self._sharing
        for member_id, of_member in self.given.items():
            excess = len(of_member) - self._quotas[member_id]
            if excess > 0:
                for pair in sorted(of_member, key=counts.__getitem__, reverse=True)[:excess]:
                    self._take(member_id, pair)
        if any(count > sharing for count in counts.values()):
            for member_id in reversed(self._takers):
                for pair in list(self.given[member_id]):
                    if counts[pair] > sharing:
                        self._take(member_id, pair)

    def _fill(self) -> None:
        """Give each partition to further members, until S members have it.

        Only members below their quotas get a partition. If all of these already have it, another
        member gets the partition, and gives one of its own to a member below its quota.
        """
        given, counts, quotas = self.given, self._counts, self._quotas
        free = deque(one for one in self._takers if len(given[one]) < quotas[one])
        for pair in counts:
            tries = len(free)
            while counts[pair] < self._sharing and free and tries:
                tries -= 1
                member_id = free.popleft()
                if pair not in given[member_id]:
                    self._give(member_id, pair)
                if len(given[member_id]) < quotas[member_id]:
                    free.append(member_id)
        lacking = [pair for pair, count in counts.items() if count < self._sharing]
        while lacking and free:
            if len(given[free[0]]) >= quotas[free[0]]:
                free.popleft()
                continue
            if counts[lacking[0]] >= self._sharing or not self._exchange(free[0], lacking[0]):
                lacking.pop(0)

    def _exchange(self, free: str, lacking: _Partition) -> bool:
        """Give a partition that too few members have to the free member, directly or by way of
        another member.

        If the free member already has the partition, another member gets it, and gives one of its
        partitions to the free member.

        Gives:  whether that was possible.
        """
        given = self.given
        if lacking not in given[free]:
            self._give(free, lacking)
            return True
        for member_id in self._takers:
            if lacking in given[member_id]:
                continue
            for pair in given[member_id]:
                if pair not in given[free]:
                    self._take(member_id, pair)
                    self._give(free, pair)
                    self._give(member_id, lacking)
                    return True
        return False

    def _give(self, member_id: str, pair: _Partition) -> None:
        self.given[member_id][pair] = None
        self._counts[pair] += 1

    def _take(self, member_id: str, pair: _Partition) -> None:
        del self.given[member_id][pair]
        self._counts[pair] -= 1
