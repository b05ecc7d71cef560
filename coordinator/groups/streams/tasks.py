"""Tasks of streams groups (KIP-1071). A task is a partition of a subtopology.

A member has a task in one of three roles: active (it processes the records), standby (it keeps a
copy of the task's state), or warm-up (it builds such a copy before it gets the task). Collections
of tasks are immutable: a change makes a new collection. Partitions are sorted; a subtopology
without tasks is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

Task = tuple[str, int]
"""The subtopology and the partition."""

Tasks = Mapping[str, tuple[int, ...]]
"""The partitions of each subtopology."""

TaskEpochs = Mapping[str, Mapping[int, int]]
"""The partitions of each subtopology, and the epoch in which the member got each."""


class TaskSet(NamedTuple):
    """Tasks by role, in a target assignment or in a heartbeat."""

    active: Tasks
    standby: Tasks
    warmup: Tasks


class HeldTasks(NamedTuple):
    """The tasks that a member has, or the tasks that it has to give up.

    Each active task has the epoch in which it was assigned, against which commits are checked.
    """

    active: TaskEpochs
    standby: Tasks
    warmup: Tasks

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


NO_TASKS = TaskSet({}, {}, {})
NONE_HELD = HeldTasks({}, {}, {})


def tasks_of(rows: Iterable[tuple[str, Iterable[int]]]) -> Tasks:
    """The tasks that the rows list, sorted and without duplicates."""
    found: dict[str, set[int]] = {}
    for subtopology_id, partitions in rows:
        found.setdefault(subtopology_id, set()).update(partitions)
    return {
        subtopology_id: tuple(sorted(partitions))
        for subtopology_id, partitions in sorted(found.items())
        if partitions
    }


def each(tasks: Tasks | TaskEpochs) -> Iterator[Task]:
    """Each task."""
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield subtopology_id, partition


def contains_all(tasks: Tasks | TaskEpochs, others: Tasks) -> bool:
    """Whether the tasks include all of the others."""
    return all(
        partition in tasks.get(subtopology_id, ()) for subtopology_id, partition in each(others)
    )


def contains_any(tasks: Tasks, others: Tasks | TaskEpochs) -> bool:
    """Whether the tasks include at least one of the others."""
    for subtopology_id, partitions in others.items():
        if not tasks.get(subtopology_id, frozenset()):
            continue
        among = frozenset(tasks[subtopology_id])
        if any(partition in among for partition in partitions):
            return True
    return False
