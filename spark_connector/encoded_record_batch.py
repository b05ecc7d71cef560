"""A record batch that is complete except for its producer. Tasks and clients pass such batches to
the code that publishes them.
"""

from __future__ import annotations

from typing import NamedTuple


class EncodedRecordBatch(NamedTuple):
    """A record batch of one partition that is complete except for its producer."""

    topic: str
    partition: int
    record_count: int
    # One whole v2 batch with a correct CRC. Its base offset is 0, its producer id, epoch and
    # sequence are -1, and the transactional bit is set.
    data: bytes | bytearray | memoryview
