"""The interface of the coordinator of groups to the broker's topics, with a version that shows
changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.protocol.request_context import RequestContext

IsVisible = Callable[[str], bool]  # the hash of one topic, by name
NO_HASH = 0  # the hash of topics none of which exists


class TopicDirectory(Protocol):
    """The topics of the broker, as the coordinator of groups sees them."""

    @property
    def version(self) -> int:
        """A number that rises whenever a topic is created, grows or is deleted."""

    def topic(self, name: str) -> tuple[uuid.UUID, int] | None:
        """The id and the partition count of a topic; None where it is unknown."""

    def name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with that id; None where it is unknown."""

    def names(self) -> Iterable[str]:
        """All topics that a pattern may match, which are all but the internal ones."""

    def visible_to(self, context: RequestContext) -> IsVisible | None:
        """A check of whether the client of a request may describe a topic; None: it may describe
        all.
        """


def hash_of_topics(names: Iterable[str], topics: TopicDirectory) -> int:
    """A number that changes when one of the topics is created, grows, or is deleted.

    It is NO_HASH if none of them exists.
    """
    from hashlib import blake2b  # imported here, since a start without such groups does not need it

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
