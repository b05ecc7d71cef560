"""The broker's topics as the group coordinator sees them."""

from __future__ import annotations

import base64
import functools
import uuid
from collections.abc import Callable, Iterator

from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.broker.security.authorizer import Access
from barnabas.protocol.request_context import RequestContext


class GroupTopics:
    """The topics that have all their logs, by name and by id.

    Takes: access_of, a function from a request to the permissions of its client; None without an
           authorizer.
    """

    def __init__(
        self, topics: TopicRegistry, access_of: Callable[[RequestContext], Access | None]
    ) -> None:
        self._topics, self._access_of = topics, access_of

    @property
    def version(self) -> int:
        """A number that increases when a topic is created, gets more partitions or is deleted."""
        return self._topics.version

    def topic(self, name: str) -> tuple[uuid.UUID, int] | None:
        """The id and the partition count of a topic; None if there is no such topic."""
        partition_count = len(self._topics.partitions_of(name))
        topic = self._topics.metadata.topic(name) if partition_count else None
        return None if topic is None else (topic.topic_id, partition_count)

    def name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with the given id; None if no topic has this id."""
        topic = self._topics.metadata.topic_by_id(topic_id)
        return None if topic is None or topic.name not in self._topics else topic.name

    def names(self) -> Iterator[str]:
        """All topics but those of the broker itself."""
        for name, topic in self._topics.metadata.topics.items():
            if not topic.internal and name in self._topics:
                yield name

    def visible_to(self, context: RequestContext) -> Callable[[str], bool] | None:
        """A function that tests whether the client of the request may describe a topic, by the ACLs
        at the time of each call. None if the client may describe all topics.
        """
        access = self._access_of(context)
        if access is None:
            return None

        return functools.partial(access.sees, Operation.DESCRIBE, ResourceType.TOPIC)


def short_text(one: uuid.UUID) -> str:
    """An id in 22 characters of Base64, as Apache Kafka writes ids."""
    return base64.urlsafe_b64encode(one.bytes).decode().rstrip("=")
