"""The batches of a segment's file, read one after the other; nothing is written.

`read_batches` stops at the first position without a complete batch, and gives the reason. If a
broker appends to the file during the read, only the part that existed at the start is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.protocol.records import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    read_header,
)

LARGEST_BATCH = 1 << 30


class StoredBatch(NamedTuple):
    """One batch: its position, its header, and all of its bytes."""

    position: int
    header: BatchHeader
    data: bytes


class BadPlace(NamedTuple):
    """The position where the batches end before the file does.

    unfinished: whether the cause may be an append that is in progress.
    """

    position: int
    why: str
    unfinished: bool


def read_batches(path: str, position: int = 0) -> Iterator[StoredBatch | BadPlace]:
    """The batches from a position on, followed by a BadPlace if the rest of the file has no
    complete batch. Raises: OSError.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(position)
        while position < size:
            head = file.read(min(HEADER_SIZE, size - position))
            bad = _what_is_wrong(head, position, size)
            if bad is not None:
                if not any(head) and not any(_rest(file.read())):
                    yield BadPlace(position, "zeros up to the end of the file", True)
                else:
                    yield bad
                return
            header = read_header(head)
            data = head + file.read(header.size_bytes - HEADER_SIZE)
            yield StoredBatch(position, header, data)
            position += header.size_bytes


def _rest(data: bytes) -> bytes:
    """The data without the zeros at its start and end; empty if all bytes are zero."""
    return data.strip(b"\0")


def _what_is_wrong(head: bytes, position: int, size: int) -> BadPlace | None:
    """The problem with these bytes as the start of a complete batch; None if there is no
    problem.
    """
    if len(head) < HEADER_SIZE:
        return BadPlace(position, f"{len(head)} bytes are left, too few for a batch", True)
    header = read_header(head)
    if header.magic != MAGIC:
        why = f"magic {header.magic} instead of {MAGIC}"
        if header.magic in (0, 1):
            why += ": a message format from before Apache Kafka 0.11"
        return BadPlace(position, why, False)
    if not HEADER_SIZE - LENGTH_END <= header.batch_length <= LARGEST_BATCH:
        return BadPlace(position, f"a batch length of {header.batch_length}", False)
    if position + header.size_bytes > size:
        return BadPlace(
            position,
            f"a batch of {header.size_bytes} bytes, and the file ends after {size - position}",
            True,
        )
    return None
