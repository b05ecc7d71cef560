"""A check of the data that groups store together with the version of the topics from which they
were derived.

If this version is the current one, the stored data must equal what the current topics give.
Otherwise the group read the topics before a change, but stored the version after it, and would not
notice this change until the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from barnabas.broker.slices import run_through
from barnabas.coordinator.groups.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.consumer.topic_patterns import InvalidPatternError, PatternReader
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.share.share_group import ShareGroup
from barnabas.coordinator.groups.streams.streams_group import StreamsGroup
from barnabas.coordinator.groups.streams.topic_plan import plan_topics
from barnabas.coordinator.groups.topic_directory import TopicDirectory, hash_of_topics


def wrongly_current(groups: GroupCoordinator) -> Iterator[str]:
    """Yield the stored data that count as current although the current topics would give other
    data. May be called after any event.
    """
    topics = groups._context.topics
    for group in groups.all_groups():
        one = group.modern
        if isinstance(one, ConsumerGroup):
            yield from _patterns(one, groups, topics)
        if (
            isinstance(one, ConsumerGroup | ShareGroup)
            and one.members
            and one.topics_version == topics.version
            and one.metadata_hash != hash_of_topics(one.subscribed_topics, topics)
        ):
            yield f"{group.group_id} counts topics as read that have changed"
        if (
            isinstance(one, StreamsGroup)
            and one.plan is not None
            and one.topology is not None
            and one.topics_version == topics.version
            and one.plan != plan_topics(one.topology, partial(_count, topics))
        ):
            yield f"{group.group_id} has the plan of earlier topics"


def _patterns(
    one: ConsumerGroup, groups: GroupCoordinator, topics: TopicDirectory
) -> Iterator[str]:
    """Yield the patterns that count as current, but whose stored topics differ from those that
    match now.
    """
    if one.lookup is not None or one.patterns_version != topics.version or one.looked_up_for:
        return
    read: PatternReader = groups._kinds.consumers.patterns
    names = sorted(type(topics).names(topics))  # not `topics.names()`, since tests count its calls
    for regex, row in one.patterns.items():
        try:
            found = run_through(read(regex).matching(names), 0)
        except InvalidPatternError:
            found = ()
        if row.topics != found:
            yield f"the pattern {regex[:20]} matches {found}, and not {row.topics}"


def _count(topics: TopicDirectory, name: str) -> int | None:
    topic = topics.topic(name)
    return None if topic is None else topic[1]
