"""The topology of a streams group: its subtopologies and the topics that they read and write.

The heartbeat of a group's first member contains the topology, and the group's records store it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from barnabas.coordinator.result import InternalTopic
from barnabas.protocol.messages.streams_group_heartbeat import Subtopology as SubtopologyRow
from barnabas.protocol.messages.streams_group_heartbeat import TopicInfo
from barnabas.protocol.messages.streams_group_heartbeat import Topology as TopologyRow


class CopartitionGroup(NamedTuple):
    """Topics of a subtopology that must have equal partition counts.

    Each topic is given as its index in the subtopology's tuple of the same name.
    """

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


class Subtopology(NamedTuple):
    """A part of the topology. Each partition of a subtopology is a task."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    changelog_topics: tuple[InternalTopic, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    @property
    def input_topics(self) -> tuple[str, ...]:
        """The topics that the subtopology's tasks read, each once."""
        names = (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))
        return names if len(names) == 1 else tuple(dict.fromkeys(names))


class Topology:
    """The topology of a group: its subtopologies by id, sorted by id."""

    def __init__(self, epoch: int, subtopologies: tuple[Subtopology, ...]) -> None:
        self.epoch = epoch
        self.subtopologies = {
            one.subtopology_id: one
            for one in sorted(subtopologies, key=lambda one: one.subtopology_id)
        }

    def __eq__(self, other: object) -> bool:
        """Whether both have the same epoch and subtopologies."""
        return (
            isinstance(other, Topology)
            and self.epoch == other.epoch
            and self.subtopologies == other.subtopologies
        )

    def __hash__(self) -> int:
        return hash((self.epoch, tuple(self.subtopologies)))

    @functools.cached_property
    def subtopology_of(self) -> dict[str, str]:
        """For each topic name, the id of the subtopology that reads the topic."""
        return {
            name: subtopology_id
            for subtopology_id, one in self.subtopologies.items()
            for name in one.input_topics
        }

    @functools.cached_property
    def required_topics(self) -> tuple[str, ...]:
        """All topics that must exist before the application can run."""
        return tuple(
            dict.fromkeys(
                name
                for one in self.subtopologies.values()
                for name in (
                    *one.input_topics,
                    *(topic.name for topic in one.changelog_topics),
                )
            )
        )


def topology_of(row: TopologyRow) -> Topology:
    """Return the topology in a heartbeat. The ids of its subtopologies must be distinct."""
    return Topology(row.epoch, tuple(_subtopology(one) for one in row.subtopologies))


def _subtopology(row: SubtopologyRow) -> Subtopology:
    """The row of a heartbeat as a Subtopology."""
    return Subtopology(
        row.subtopology_id,
        tuple(row.source_topics),
        tuple(row.source_topic_regex),
        tuple(map(_internal_topic, row.state_changelog_topics)),
        tuple(row.repartition_sink_topics),
        tuple(map(_internal_topic, row.repartition_source_topics)),
        tuple(
            CopartitionGroup(
                tuple(group.source_topics),
                tuple(group.source_topic_regex),
                tuple(group.repartition_source_topics),
            )
            for group in row.copartition_groups
        ),
    )


def _internal_topic(row: TopicInfo) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in row.topic_configs)
    return InternalTopic(row.name, row.partitions, row.replication_factor, configs)
