"""The names of one partition of one topic, as every package of the broker uses them."""

from __future__ import annotations

import uuid
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic and the index of one of its partitions.

    It equals the plain tuple of the two and has the same hash: both find the same key of a dict.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition of one topic; the id distinguishes topics of the same name."""

    topic: str
    partition: int
    topic_id: uuid.UUID

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
