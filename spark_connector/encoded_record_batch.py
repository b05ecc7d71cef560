"""A record batch that is complete except for its producer. Tasks and clients pass such batches to a
publisher.
"""

from __future__ import annotations

from typing import NamedTuple


class EncodedRecordBatch(NamedTuple):
    """A record batch of one partition that is complete except for its producer."""

    topic: str
    partition: int
    record_count: int
    # One whole v2 batch with a correct CRC: its base offset is 0, producer id, epoch and sequence
    # are -1, and the transactional bit is set.
    data: bytes | bytearray | memoryview
