"""The assignor `sticky`: tasks stay with their members, as far as the load stays even (KIP-1071).

Active tasks are assigned first. A member keeps the active tasks of its last target, in the order of
their partitions, up to its share. Then tasks go to members that had them as standby tasks, and so
have a copy of their state. Each other task goes to the process with the least load, and within it
to the member with the fewest tasks. The load of a process is the number of its tasks divided by the
number of its members, so an instance with more threads gets more tasks.

Then the standby tasks of stateful subtopologies are assigned, each to as many processes as there
are replicas; a process never has a task twice. A replica goes to the member that was active for the
task, or to one that had it as a standby task, up to these members' shares of all tasks. The other
replicas go to the processes with the least load. If there are too few processes, some replicas are
not assigned.

A share is the number of tasks divided by the number of members. If the division has a remainder,
that many members get one task more. There are no warm-up tasks. The result is deterministic:
members are processed in the given order.

Ten thousand tasks take 50 ms or more. The work is therefore a generator, which yields after some
tasks.

Source: KIP-1071; KIP-441 for the roles.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from barnabas.coordinator.groups.streams.tasks import Task, Tasks, TaskSet, each, tasks_of

TASKS_AT_ONCE = 1_000  # the number of tasks assigned between two yields, which takes 2 to 8 ms

Assigning = Generator[None, None, dict[str, TaskSet]]
Item = TypeVar("Item")


class MemberToAssign(NamedTuple):
    """The input for one member: its process, and its last target."""

    process_id: str
    active: Tasks
    standby: Tasks


class SubtopologyToAssign(NamedTuple):
    """The input for one subtopology. is_stateful: whether it has standby tasks."""

    task_count: int
    is_stateful: bool


def sticky_in_slices(
    members: Mapping[str, MemberToAssign],
    subtopologies: Mapping[str, SubtopologyToAssign],
    standby_count: int,
) -> Assigning:
    """Compute the target assignment of each member, as a generator that yields between slices.

    Takes:  standby_count, the number of standby replicas of a task. The mappings must not change
            until the end.
    """
    if not members:
        return {}
    return (yield from _Sticky(members, subtopologies, standby_count).assign())


class _Share:
    """Limits the number of tasks that each member may take, so that the other members get their
    share.
    """

    def __init__(self, task_count: int, member_count: int) -> None:
        self._share, self._remainder = divmod(task_count, member_count)

    def allows(self, count: int) -> bool:
        """Whether a member with this many tasks may take another one."""
        return count < self._share + (self._remainder > 0)

    def on_taken(self, count: int) -> None:
        """Record the new number of a member's tasks."""
        if self._remainder and count == self._share + 1:
            self._remainder -= 1


class _Process:
    """An instance of the application, with its members."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.members: list[str] = []
        self.tasks: set[Task] = set()
        self.task_count = 0
        self._least: list[tuple[int, int]] | None = None

    @property
    def load(self) -> float:
        return self.task_count / len(self.members)

    def least_loaded(self, counts: Mapping[str, int]) -> str:
        """The member with the fewest tasks."""
        if self._least is None:
            self._least = [(counts[name], rank) for rank, name in enumerate(self.members)]
            heapq.heapify(self._least)
        while True:
            # an entry with an old count is replaced: counts only grow
            count, rank = self._least[0]
            name = self.members[rank]
            if counts[name] == count:
                return name
            heapq.heapreplace(self._least, (counts[name], rank))


class _Sticky:
    """The state of an assignment while it is computed.

    counts: the number of tasks of each member so far.
    """

    def __init__(
        self,
        members: Mapping[str, MemberToAssign],
        subtopologies: Mapping[str, SubtopologyToAssign],
        standby_count: int,
    ) -> None:
        self._members, self._subtopologies = members, subtopologies
        self._standby_count = standby_count
        self._active: dict[str, list[Task]] = {name: [] for name in members}
        self._standby: dict[str, list[Task]] = {name: [] for name in members}
        self._counts = dict.fromkeys(members, 0)
        self._was_active: dict[Task, str] = {}
        self._was_standby: dict[Task, list[str]] = {}
        processes: dict[str, _Process] = {}
        self._process_of: dict[str, _Process] = {}
        for name, member in members.items():
            process = processes.setdefault(member.process_id, _Process(len(processes)))
            process.members.append(name)
            self._process_of[name] = process
        self._processes = list(processes.values())
        active_count = sum(one.task_count for one in subtopologies.values())
        standby_tasks = sum(one.task_count for one in subtopologies.values() if one.is_stateful)
        self._active_share = _Share(active_count, len(members))
        self._total_share = _Share(active_count + standby_tasks * standby_count, len(members))

    def assign(self) -> Assigning:
        """Assign all tasks, in slices: first the active tasks, then the standby tasks. Gives: the
        targets of the members.
        """
        yield from self._note_holders()
        yield from self._assign_active()
        if self._standby_count:
            yield from self._assign_standby()
        targets, left = dict[str, TaskSet](), TASKS_AT_ONCE
        for name, active in self._active.items():
            standby = self._standby[name]
            targets[name] = TaskSet(_as_tasks(active), _as_tasks(standby), {})
            left -= len(active) + len(standby)
            if left <= 0:
                left = TASKS_AT_ONCE
                yield
        return targets

    def _note_holders(self) -> Iterator[None]:
        """Record which members had each task, in slices."""
        left = TASKS_AT_ONCE
        for name, member in self._members.items():
            self._was_active.update(dict.fromkeys(each(member.active), name))
            for task in each(member.standby):
                self._was_standby.setdefault(task, []).append(name)
            left -= sum(map(len, (*member.active.values(), *member.standby.values())))
            if left <= 0:
                left = TASKS_AT_ONCE
                yield

    def _by_partition(self, *, stateful_only: bool) -> Iterator[Task]:
        """The tasks in the order of their partitions, since a member with adjacent tasks can join
        topics by key.
        """
        counts = [
            (subtopology_id, one.task_count)
            for subtopology_id, one in sorted(self._subtopologies.items())
            if one.is_stateful or not stateful_only
        ]
        for partition in range(max((count for _, count in counts), default=0)):
            for subtopology_id, count in counts:
                if partition < count:
                    yield subtopology_id, partition

    def _by_subtopology(self, tasks: Container[Task]) -> Iterator[Task]:
        """The given tasks, ordered by subtopology."""
        for subtopology_id, one in sorted(self._subtopologies.items()):
            for partition in range(one.task_count):
                if (task := (subtopology_id, partition)) in tasks:
                    yield task

    def _take(self, name: str, task: Task, *, is_active: bool) -> None:
        """Give the task to a member, and count it."""
        process = self._process_of[name]
        (self._active if is_active else self._standby)[name].append(task)
        process.tasks.add(task)
        process.task_count += 1
        count = self._counts[name] = self._counts[name] + 1
        if is_active:
            self._active_share.on_taken(count)
        self._total_share.on_taken(count)

    # --- active tasks ----------------------------------------------------------------------------

    def _assign_active(self) -> Iterator[None]:
        """Give each active task to its former member, or else to one that had it as a standby task
        (and so has its state), or else to the least loaded process.
        """
        unassigned = []
        for tasks in _parts(self._by_partition(stateful_only=False)):
            for task in tasks:
                name = self._was_active.get(task)
                if name is not None and self._active_share.allows(self._counts[name]):
                    self._take(name, task, is_active=True)
                else:
                    unassigned.append(task)
            yield
        left = set()
        for tasks in _parts(unassigned):
            for task in tasks:
                name = self._least_loaded_of(self._was_standby.get(task, ()))
                if name is not None and self._active_share.allows(self._counts[name]):
                    self._take(name, task, is_active=True)
                else:
                    left.add(task)
            yield
        by_load = self._by_load()
        for tasks in _parts(self._by_subtopology(left)):
            for task in tasks:
                _, _, process = by_load[0]
                self._take(process.least_loaded(self._counts), task, is_active=True)
                heapq.heapreplace(by_load, (process.load, process.rank, process))
            yield

    def _by_load(self) -> list[tuple[float, int, _Process]]:
        """The processes as a heap, the least loaded first."""
        heap = [(process.load, process.rank, process) for process in self._processes]
        heapq.heapify(heap)
        return heap

    def _least_loaded_of(self, names: Iterable[str]) -> str | None:
        """The least loaded of the given members; None if no members are given.

        A later member replaces an earlier one if both its process and the member itself have less
        load.
        """
        best, best_load = None, (0.0, 0)
        for name in names:
            load = (self._process_of[name].load, self._counts[name])
            if best is None or (load[0] < best_load[0] and load[1] < best_load[1]):
                best, best_load = name, load
        return best

    # --- standby tasks ---------------------------------------------------------------------------

    def _assign_standby(self) -> Iterator[None]:
        """Give each standby task to former holders, then to the least loaded processes; no process
        gets a task twice.
        """
        costs = 2 * self._standby_count
        left: dict[Task, int] = {}
        for tasks in _parts(reversed(list(self._by_partition(stateful_only=True))), costs):
            for task in tasks:
                missing = self._standby_count
                while missing and (name := self._former_holder(task)) is not None:
                    self._take(name, task, is_active=False)
                    missing -= 1
                if missing:
                    left[task] = missing
            yield
        by_load = self._by_load()
        for tasks in _parts(reversed(list(self._by_subtopology(left))), costs):
            for task in tasks:
                for _ in range(left[task]):
                    if not self._give_to_least_loaded(by_load, task):
                        break
            yield

    def _former_holder(self, task: Task) -> str | None:
        """A former holder of the task that may take another task, and whose process does not have
        the task.
        """
        name = self._was_active.get(task)
        if name is not None and self._may_hold(name, task):
            return name
        holders = [
            name
            for name in self._was_standby.get(task, ())
            if task not in self._process_of[name].tasks
        ]
        name = self._least_loaded_of(holders)
        return name if name is not None and self._may_hold(name, task) else None

    def _may_hold(self, name: str, task: Task) -> bool:
        has_it = task in self._process_of[name].tasks
        return not has_it and self._total_share.allows(self._counts[name])

    def _give_to_least_loaded(self, by_load: list[tuple[float, int, _Process]], task: Task) -> bool:
        """Give the task to the least loaded process that does not have it.

        Gives:  whether there is such a process.
        """
        passed = []
        is_given = False
        while by_load and not is_given:
            entry = heapq.heappop(by_load)
            process = entry[2]
            if task not in process.tasks:
                self._take(process.least_loaded(self._counts), task, is_active=False)
                entry = (process.load, process.rank, process)
                is_given = True
            passed.append(entry)
        for entry in passed:
            heapq.heappush(by_load, entry)
        return is_given


def _parts(items: Iterable[Item], replicas: int = 1) -> Iterator[Sequence[Item]]:
    """Split the items into parts. One slice can handle a part, including the replicas of
    its items.
    """
    remaining = iter(items)
    while some := list(islice(remaining, max(1, TASKS_AT_ONCE // replicas))):
        yield some


def _as_tasks(tasks: Iterable[Task]) -> Tasks:
    return tasks_of((subtopology_id, (partition,)) for subtopology_id, partition in tasks)
