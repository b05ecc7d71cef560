"""Finds the names of topics that OffsetCommit and OffsetFetch identify by topic id, from version 10
on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.protocol.messages.offset_commit import OffsetCommitRequestTopic
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestTopics

FIRST_VERSION_WITH_TOPIC_IDS = 10

_Topic = TypeVar("_Topic", "OffsetCommitRequestTopic", "OffsetFetchRequestTopics")


def with_names(
    requested: Iterable[_Topic], topics: TopicDirectory
) -> tuple[list[_Topic], list[_Topic]]:
    """The topics of a request with their names filled in, and the topics whose id is unknown."""
    named, unknown = [], []
    for topic in requested:
        name = None if topic.topic_id is None else topics.name(topic.topic_id)
        if name is None:
            unknown.append(topic)
        else:
            topic.name = name
            named.append(topic)
    return named, unknown
