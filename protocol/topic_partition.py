"""Names of a partition, which every package of the broker uses."""

from __future__ import annotations

import uuid
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic and the index of one of its partitions.

    A TopicPartition equals the plain tuple of these values and has the same hash, so both find the
    same dict entry.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition of a topic. The id distinguishes the topic from others that had the same name."""

    topic: str
    partition: int
    topic_id: uuid.UUID

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
