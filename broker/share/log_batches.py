"""Finds the batches in a slice of a log from which records are to be acquired, and reads only their
headers. It also finds the batches of aborted transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.share.acquisition import LogBatch
from barnabas.protocol.records import HEADER_SIZE, LENGTH_END, decode_marker

if TYPE_CHECKING:
    from barnabas.storage.disk import Slice
    from barnabas.storage.files.txn_index import AbortedTxn

READ_FIRST, READ_AT_ONCE = 1024, 32 * 1024
_IS_CONTROL, _IS_TRANSACTIONAL = 0x20, 0x10
# The fields are: base offset, length, (leader epoch, magic, checksum), attributes, last offset
# delta, (timestamps), producer id. Those in parentheses are skipped.
_HEADER = struct.Struct(">qi9xhi16xq")


class ReadBatch(NamedTuple):
    """A batch of the log, with those fields of its header that are about transactions."""

    batch: LogBatch
    attributes: int
    producer_id: int


def batches_of(data: Slice, up_to_offset: int) -> list[ReadBatch]:
    """The complete batches of a slice, up to the batch that contains the given offset.

    Many small batches are read at a time. For a large batch, little more than its header is read.
    """
    found: list[ReadBatch] = []
    position, end = 0, data.size
    chunk, chunk_at, size = b"", 0, READ_FIRST
    while position + HEADER_SIZE <= end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            if chunk and position < chunk_at + len(chunk):
                # The last chunk contained whole batches, so read a larger chunk.
                size = min(8 * size, READ_AT_ONCE)
            chunk = data.file.pread(min(size, end - position), data.position + position)
            chunk_at, at = position, 0
            if len(chunk) < HEADER_SIZE:
                break
        base_offset, length, attributes, delta, producer_id = _HEADER.unpack_from(chunk, at)
        size_bytes = LENGTH_END + length
        if position + size_bytes > end or base_offset > up_to_offset:
            break
        batch = LogBatch(base_offset, base_offset + delta, position, size_bytes)
        found.append(ReadBatch(batch, attributes, producer_id))
        position += size_bytes
    return found


def aborted_batches(
    data: Slice, batches: Sequence[ReadBatch], aborted: Sequence[AbortedTxn]
) -> list[LogBatch]:
    """The batches of aborted transactions. Takes: aborted, the list of aborted transactions from a
    read_committed fetch.
    """
    waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    aborting: set[int] = set()
    found = []
    for batch, attributes, producer_id in batches:
        if not attributes & _IS_TRANSACTIONAL:
            continue
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            aborting.add(waiting.pop().producer_id)
        if producer_id not in aborting:
            continue
        if not attributes & _IS_CONTROL:
            found.append(batch)
        elif not decode_marker(
            data.file.pread(batch.size_bytes, data.position + batch.position)
        ).commit:
            aborting.discard(producer_id)
    return found


def slice_of(data: Slice, batches: Sequence[ReadBatch], first: int, last: int) -> Slice:
    """The part of a slice that contains the batches with the given offsets."""
    needed = [
        one.batch
        for one in batches
        if one.batch.last_offset >= first and one.batch.first_offset <= last
    ]
    begin, end = needed[0], needed[-1]
    size = end.position + end.size_bytes - begin.position
    return data._replace(position=data.position + begin.position, size=size)
