"""The identity of a partition: topic, number, and the id of the topic."""

from __future__ import annotations

import uuid
from typing import NamedTuple


class TopicIdPartition(NamedTuple):
    """A partition of one topic, with the topic's id, which another topic of the name has not."""

    topic: str
    partition: int
    topic_id: uuid.UUID

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
