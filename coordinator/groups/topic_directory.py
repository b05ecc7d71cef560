"""The topics of the broker, as the coordinator of groups sees them, and how it notices changes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.protocol.request_context import RequestContext

IsVisible = Callable[[str], bool]  # a topic, by its name
NO_HASH = 0  # of topics none of which exists


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
        """All topics that a pattern may match: not the internal ones."""

    def visible_to(self, context: RequestContext) -> IsVisible | None:
        """The check whether the client of a request may describe a topic; None: it may all."""


def hash_of_topics(names: Iterable[str], topics: TopicDirectory) -> int:
    """A number that changes when one of the topics is created, grows, or is deleted.

    NO_HASH where none of them exists.
    """
    from hashlib import blake2b  # here, since a start without such groups does not need it

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
