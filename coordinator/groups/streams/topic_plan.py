"""The plan of a topology's topics: the number of tasks of each subtopology, the missing internal
topics, and the reason why the application cannot run yet (KIP-1071).

The partition counts of the internal topics are decided in this order:

    topic                        partitions
    repartition, with a number   that number
    repartition, without one     the maximum of the topics read by the subtopologies that write it
    of a copartition group       those of the group's other topics, which must be the same; if all
                                 are repartition topics, the fixed number, or the maximum
    changelog                    the tasks of its subtopology

A subtopology has as many tasks as the topic with the most partitions that it reads. An existing
topic keeps its number of partitions, which is used here and must equal the planned number.

    status                            why
    MISSING_SOURCE_TOPICS             a topic that is not internal does not exist
    INCORRECTLY_PARTITIONED_TOPICS    copartitioned topics have different numbers of partitions, or
                                      an existing internal topic does not have the planned number
    MISSING_INTERNAL_TOPICS           internal topics do not exist: the broker creates them

A topology may have MOST_TASKS tasks, which read MOST_PARTITIONS partitions together: a small
request may name one large topic thousands of times. In Apache Kafka the records of an assignment
are the bound: at about 130,000 tasks of one member they exceed max.message.bytes, and its members
get UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, NoReturn

from barnabas.coordinator.groups.streams.topology import Subtopology, Topology
from barnabas.coordinator.result import InternalTopic
from barnabas.protocol.errors import Code, KafkaError

# a function that returns the partition count of a topic, or None if the topic does not exist
PartitionCount = Callable[[str], int | None]
MOST_NAMED = 3
MOST_TASKS = 20_000
MOST_PARTITIONS = 100_000
DECIDED_BY_BROKER = 0


class Status(IntEnum):
    """The status codes in a heartbeat response."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class PlannedSubtopology(NamedTuple):
    """A subtopology after the partition counts of its topics were decided."""

    task_count: int
    subtopology: Subtopology
    repartition_source_topics: tuple[InternalTopic, ...]
    changelog_topics: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelog_topics)


class TopicPlan(NamedTuple):
    """The plan of a topology's topics.

    subtopologies: by id; empty if source topics are missing or topics have the wrong number of
    partitions. missing: internal topics to create. problem: the reason why the application cannot
    run, or None.
    """

    subtopologies: Mapping[str, PlannedSubtopology]
    missing: tuple[InternalTopic, ...]
    problem: tuple[Status, str] | None
    task_count: int = 0

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _ProblemError(Exception):
    """Raised if the topology cannot run with the topics that exist."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def plan_topics(topology: Topology, existing: PartitionCount) -> TopicPlan:
    """Compare the topology with the topics that exist.

    Raises: KafkaError STREAMS_INVALID_TOPOLOGY if the topology could not run with any topics, or
            has too many tasks with those that exist.
    """
    try:
        _check_source_topics(topology, existing)
        planned = _Partitions(topology, existing).planned()
        missing = _missing_topics(planned.values(), existing)
    except _ProblemError as error:
        return TopicPlan({}, (), (error.status, error.detail))
    problem = None
    if missing:
        detail = f"internal topics do not exist yet: {_some([topic.name for topic in missing])}"
        problem = (Status.MISSING_INTERNAL_TOPICS, detail)
    task_count = sum(one.task_count for one in planned.values())
    return TopicPlan(planned, missing, problem, task_count)


def _check_source_topics(topology: Topology, existing: PartitionCount) -> None:
    """Raise _ProblemError if a source topic does not exist."""
    missing = {
        name: None
        for one in topology.subtopologies.values()
        for name in one.source_topics
        if existing(name) is None
    }
    if missing:
        raise _ProblemError(
            Status.MISSING_SOURCE_TOPICS,
            f"create the topics {_some(sorted(missing))}, which the application reads.",
        )


def _missing_topics(
    planned: Iterable[PlannedSubtopology], existing: PartitionCount
) -> tuple[InternalTopic, ...]:
    """The internal topics that do not exist, sorted by name."""
    missing = {}
    for one in planned:
        for topic in (*one.repartition_source_topics, *one.changelog_topics):
            count = existing(topic.name)
            if count is None:
                missing[topic.name] = topic
            elif count != topic.partition_count:
                raise _ProblemError(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"the internal topic {topic.name} has {count} partitions, and the application "
                    f"needs {topic.partition_count}: delete it, or reset the application.",
                )
    return tuple(missing[name] for name in sorted(missing))


class _Partitions:
    """Decides the partition counts of a topology's topics.

    decided: the partition count of each internal topic, by name.
    """

    def __init__(self, topology: Topology, existing: PartitionCount) -> None:
        self._subtopologies = topology.subtopologies
        self._existing = existing
        self.decided: dict[str, int] = {}

    def planned(self) -> dict[str, PlannedSubtopology]:
        """Decide all partition counts, and return the subtopologies with them."""
        self._decide_repartition_topics()
        self._align_copartitioned_topics()
        counts = {
            subtopology_id: self._task_count(one)
            for subtopology_id, one in self._subtopologies.items()
        }
        self._check_size(sum(counts.values()))
        return {
            subtopology_id: PlannedSubtopology(
                counts[subtopology_id],
                one,
                tuple(map(self._with_count, one.repartition_source_topics)),
                tuple(
                    topic._replace(partition_count=counts[subtopology_id])
                    for topic in one.changelog_topics
                ),
            )
            for subtopology_id, one in self._subtopologies.items()
        }

    # --- repartition topics ----------------------------------------------------------------------

    def _decide_repartition_topics(self) -> None:
        """Decide the partition counts of the repartition topics that have no fixed count.

        The computation begins with the sources of the topology. Each subtopology is computed once,
        as soon as the partition count of one of its topics is known.
        """
        readers: dict[str, list[Subtopology]] = {}
        for one in self._subtopologies.values():
            for topic in one.repartition_source_topics:
                readers.setdefault(topic.name, []).append(one)
                if topic.partition_count != DECIDED_BY_BROKER:
                    self.decided[topic.name] = topic.partition_count
        waiting = {
            one.subtopology_id: one
            for one in self._subtopologies.values()
            if any(name not in self.decided for name in one.repartition_sink_topics)
        }
        ready = deque(waiting.values())
        while ready:
            one = ready.popleft()
            if one.subtopology_id not in waiting or not (count := self._most_known(one)):
                continue
            del waiting[one.subtopology_id]
            for name in one.repartition_sink_topics:
                if name not in self.decided:
                    self.decided[name] = count
                    ready.extend(readers.get(name, ()))
        if waiting:
            _invalid(
                f"the repartition topics that the subtopologies {_some(sorted(waiting))} write "
                "have no number of partitions: set one."
            )
        unwritten = [name for name in readers if name not in self.decided]
        if unwritten:
            _invalid(
                f"no subtopology writes the repartition topics {_some(unwritten)}: set a number "
                "of partitions."
            )

    def _most_known(self, one: Subtopology) -> int:
        """Return the maximum known partition count of the topics that a subtopology reads, or 0 if
        no count is known.
        """
        counts = [self.decided.get(topic.name, 0) for topic in one.repartition_source_topics]
        counts += [self._existing(name) or 0 for name in one.source_topics]
        return max(counts, default=0)

    # --- copartition groups ----------------------------------------------------------------------

    def _align_copartitioned_topics(self) -> None:
        """Give all repartition topics of a copartition group the same number of partitions."""
        topics = [
            topic for one in self._subtopologies.values() for topic in one.repartition_source_topics
        ]
        fixed = {topic.name for topic in topics if topic.partition_count != DECIDED_BY_BROKER}
        flexible = {topic.name for topic in topics} - fixed
        for one in self._subtopologies.values():
            for names in _copartition_groups(one):
                if names:
                    self._align(names, fixed, flexible)

    def _align(self, names: Collection[str], fixed: set[str], flexible: set[str]) -> None:
        """Give the repartition topics of one copartition group the partition count of its source
        topics. Without source topics, use the fixed partition count, or else the highest one.
        Raises: _ProblemError.
        """
        counts = {name: self._count(name) for name in names}
        repartition = {name: counts[name] for name in names if name in fixed or name in flexible}
        others = {name: count for name, count in counts.items() if name not in repartition}
        if others:
            common = _the_same(others)
        elif any(name in fixed for name in repartition):
            common = _the_same({name: repartition[name] for name in repartition if name in fixed})
        else:
            common = max(repartition.values())
        for name, count in repartition.items():
            if name in fixed and count != common:
                raise _ProblemError(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"the application sets {count} partitions for the repartition topic {name}, "
                    f"and the topics that it is joined with have {common}.",
                )
            self.decided[name] = common

    # --- look-ups --------------------------------------------------------------------------------

    def _count(self, name: str) -> int:
        """The number of partitions of a topic that a subtopology reads."""
        count = self._existing(name)
        return self.decided[name] if count is None else count

    def _task_count(self, one: Subtopology) -> int:
        """The number of tasks of a subtopology: the highest number of partitions of a topic that it
        reads.
        """
        if not one.input_topics:
            _invalid(f"the subtopology {one.subtopology_id} reads no topic.")
        return max(map(self._count, one.input_topics))

    def _check_size(self, task_count: int) -> None:
        """Check the bounds on tasks, and on the partitions that they read."""
        if task_count > MOST_TASKS:
            _invalid(
                f"the topology has {task_count} tasks, one for each partition of each subtopology, "
                f"and may have {MOST_TASKS}: use fewer subtopologies, or topics with fewer "
                "partitions."
            )
        partition_count = sum(
            self._count(name) for one in self._subtopologies.values() for name in one.input_topics
        )
        if partition_count > MOST_PARTITIONS:
            _invalid(
                f"the subtopologies read {partition_count} partitions together, and may read "
                f"{MOST_PARTITIONS}: use fewer topics, or topics with fewer partitions."
            )

    def _with_count(self, topic: InternalTopic) -> InternalTopic:
        count = topic.partition_count or self.decided[topic.name]
        return topic._replace(partition_count=count)


def _copartition_groups(one: Subtopology) -> Iterable[list[str]]:
    """For each copartition group of a subtopology, the names of its topics without duplicates."""
    for group in one.copartition_groups:
        try:
            names = [one.source_topics[index] for index in group.source_topics]
            names += [
                one.repartition_source_topics[index].name
                for index in group.repartition_source_topics
            ]
        except IndexError:
            _invalid(
                f"a copartition group of {one.subtopology_id} names a topic that is not in its "
                "subtopology."
            )
        yield list(dict.fromkeys(names))


def _the_same(counts: Mapping[str, int]) -> int:
    """The common number of partitions. Raises: _ProblemError if the numbers differ."""
    first, *others = counts.values()
    if any(count != first for count in others):
        listed = ", ".join(f"{name}={counts[name]}" for name in sorted(counts))
        raise _ProblemError(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"topics that are joined have different numbers of partitions: {listed}.",
        )
    return first


def _some(names: Collection[str]) -> str:
    """Return a text with the first few names and the number of the remaining ones."""
    more = len(names) - MOST_NAMED
    shown = ", ".join(list(names)[:MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def _invalid(message: str) -> NoReturn:
    raise KafkaError(Code.STREAMS_INVALID_TOPOLOGY, message)
