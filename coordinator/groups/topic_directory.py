"""The interface through which the group coordinator sees the broker's topics, with a version that
shows changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.protocol.request_context import RequestContext

IsVisible = Callable[[str], bool]  # returns whether a client may describe the topic with this name
NO_HASH = 0  # the hash if none of the topics exists


class TopicDirectory(Protocol):
    """The topics of the broker, as the group coordinator sees them."""

    @property
    def version(self) -> int:
        """A number that rises whenever a topic is created, grows or is deleted."""

    def topic(self, name: str) -> tuple[uuid.UUID, int] | None:
        """The id and the partition count of a topic; None if it is unknown."""

    def name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with that id; None if it is unknown."""

    def names(self) -> Iterable[str]:
        """The names of all topics that a pattern may match: all topics except the internal ones."""

    def visible_to(self, context: RequestContext) -> IsVisible | None:
        """A test of whether the client of a request may describe a topic; None if it may describe
        all.
        """


def hash_of_topics(names: Iterable[str], topics: TopicDirectory) -> int:
    """A number that changes when one of the topics is created, grows, or is deleted.

    It is NO_HASH if none of them exists.
    """
    # imported here, since a broker without such groups does not need it
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
