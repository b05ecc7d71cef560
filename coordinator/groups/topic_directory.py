"""The interface through which the group coordinator reads the broker's topics.

It has a version, which rises with each change of the topics.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas.protocol.request_context import RequestContext

IsVisible = Callable[[str], bool]  # a function that returns whether a client may describe a topic
NO_HASH = 0  # the hash of the topics if none of them exists


class TopicDirectory(Protocol):
    """The topics of the broker, as the group coordinator sees them."""

    @property
    def version(self) -> int:
        """A number that rises whenever a topic is created, gets more partitions or is deleted."""

    def topic(self, name: str) -> tuple[uuid.UUID, int] | None:
        """The id and the partition count of a topic; None if it is unknown."""

    def name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with that id; None if it is unknown."""

    def names(self) -> Iterable[str]:
        """The names of all topics that a pattern may match: all topics except the internal ones."""

    def visible_to(self, context: RequestContext) -> IsVisible | None:
        """Return a function that returns whether the client of a request may describe a topic, or
        None if the client may describe all topics.
        """


def hash_of_topics(names: Iterable[str], topics: TopicDirectory) -> int:
    """Return a number that changes when one of the topics is created, gets more partitions or is
    deleted.

    It is NO_HASH if none of the topics exists.
    """
    # imported here, since a broker whose groups need no hash does not need the module
    from hashlib import blake2b

    digest = blake2b(digest_size=8)
    is_any_there = False
    for name in sorted(names):
        topic = topics.topic(name)
        if topic is not None:
            is_any_there = True
            digest.update(f"{name}\0{topic[0]}\0{topic[1]}\0".encode())
    if not is_any_there:
        return NO_HASH
    return int.from_bytes(digest.digest(), "big", signed=True) or 1
