"""A record batch that is complete except for its producer, as tasks and clients pass it to a
publisher.
"""

from __future__ import annotations

from typing import NamedTuple


class EncodedRecordBatch(NamedTuple):
    """A record batch of one partition that is complete except for its producer."""

    topic: str
    partition: int
    record_count: int
    # One whole v2 batch: base offset 0, producer id/epoch/sequence -1, transactional bit set, its
    # CRC right.
    data: bytes | bytearray | memoryview
