"""How events change the record that lists the partition states of a share group (KIP-932).

    event                                     afterwards a partition of the topic is
    members want it; offsets are set          initializing; not deleting
    its state was initialised                 initialized
    its state could not be initialised        neither: the next heartbeat tries again
    offsets of its topic are deleted          deleting (the whole topic)
    its states were deleted                   neither

Each function returns the whole value of the next record.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from barnabas.coordinator.groups.share.share_group_records import StatesValue, TopicStates
from barnabas.coordinator.result import StateRow

Value = TypeVar("Value")


def begun(
    states: StatesValue, rows: Iterable[StateRow], names: Mapping[uuid.UUID, str]
) -> StatesValue:
    """The value while the states of these partitions are being initialised.

    Takes:  names, the names of all topics of these partitions, by topic id.
    """
    by_topic = _by_topic(rows)
    return StatesValue(
        _with(states.initializing, by_topic, names),
        states.initialized,
        _without(states.deleting, by_topic),
    )


def done(
    states: StatesValue, rows: Iterable[StateRow], names: Mapping[uuid.UUID, str]
) -> StatesValue:
    """The value once the states of these partitions are initialised.

    A topic that is not in `names` was deleted.
    """
    by_topic = {one: row for one, row in _by_topic(rows).items() if one in names}
    return StatesValue(
        _minus(states.initializing, by_topic),
        _with(states.initialized, by_topic, names),
        states.deleting,
    )


def failed(states: StatesValue, rows: Iterable[StateRow]) -> StatesValue:
    """The value after the states of these partitions could not be initialised."""
    return states._replace(initializing=_minus(states.initializing, _by_topic(rows)))


def ending(states: StatesValue, names: Mapping[uuid.UUID, str]) -> StatesValue:
    """The value while the initialised states of these topics are being deleted."""
    return states._replace(
        initialized=_without(states.initialized, names), deleting={**states.deleting, **names}
    )


def ended(states: StatesValue, topic_ids: Collection[uuid.UUID]) -> StatesValue:
    """The value after the states of these topics were deleted."""
    return states._replace(deleting=_without(states.deleting, topic_ids))


def all_ending(states: StatesValue) -> StatesValue:
    """The value while all states of a group are being deleted, because the group is
    being deleted.
    """
    names = {
        topic_id: of_topic.name
        for topics in (states.initialized, states.initializing)
        for topic_id, of_topic in topics.items()
    }
    return StatesValue({}, {}, {**states.deleting, **names})


def _by_topic(rows: Iterable[StateRow]) -> dict[uuid.UUID, set[int]]:
    """The partitions of the rows, by topic id."""
    by_topic: dict[uuid.UUID, set[int]] = {}
    for row in rows:
        by_topic.setdefault(row.topic_id, set()).add(row.partition)
    return by_topic


def _with(
    topics: Mapping[uuid.UUID, TopicStates],
    added: Mapping[uuid.UUID, set[int]],
    names: Mapping[uuid.UUID, str],
) -> dict[uuid.UUID, TopicStates]:
    """The topics with these partitions added. Takes: names, the topics by id."""
    more = dict(topics)
    for topic_id, partitions in added.items():
        had = more.get(topic_id)
        everything = partitions if had is None else partitions.union(had.partitions)
        more[topic_id] = TopicStates(names[topic_id], tuple(sorted(everything)))
    return more


def _minus(
    topics: Mapping[uuid.UUID, TopicStates], removed: Mapping[uuid.UUID, set[int]]
) -> dict[uuid.UUID, TopicStates]:
    """The topics without these partitions, and without topics that have no other partition."""
    less = dict(topics)
    for topic_id, partitions in removed.items():
        had = less.pop(topic_id, None)
        rest = () if had is None else tuple(one for one in had.partitions if one not in partitions)
        if had is not None and rest:
            less[topic_id] = had._replace(partitions=rest)
    return less


def _without(
    topics: Mapping[uuid.UUID, Value], topic_ids: Collection[uuid.UUID]
) -> dict[uuid.UUID, Value]:
    return {topic_id: value for topic_id, value in topics.items() if topic_id not in topic_ids}
