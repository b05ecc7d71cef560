"""Finds the batches in a slice of a log from which records are to be acquired, and reads only their
headers. It also finds the batches of aborted transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.broker.share_partitions.acquisition import LogBatch
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    decode_marker,
    has_right_crc,
    read_header,
)
from barnabas.storage.disk import Slice
from barnabas.storage.files.txn_index import AbortedTxn

READ_FIRST, READ_AT_ONCE = 1024, 32 * 1024
_IS_CONTROL, _IS_TRANSACTIONAL = 0x20, 0x10
# The fields are: base offset, length, (leader epoch), magic, (checksum), attributes, last offset
# delta, (timestamps), producer id. Those in parentheses are skipped.
_HEADER = struct.Struct(">qi4xb4xhi16xq")
_LEAST_LENGTH = HEADER_SIZE - LENGTH_END


class ReadBatch(NamedTuple):
    """A batch of the log, with those fields of its header that are about transactions."""

    batch: LogBatch
    attributes: int
    producer_id: int


def batches_of(data: Slice, up_to_offset: int, end_offset: int) -> list[ReadBatch]:
    """The complete batches of a slice, up to the batch that contains the given offset. The first
    batch is included in any case: in a compacted log it may begin beyond that offset.

    Gives: only the batches before the first damaged header, so that the next read begins there.
    Takes: end_offset, the end of the log.

    Many small batches are read at a time. For a large batch, little more than its header is read.
    """
    found: list[ReadBatch] = []
    position, end, least_offset = 0, data.size, 0
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
        base_offset, length, magic, attributes, delta, producer_id = _HEADER.unpack_from(chunk, at)
        size_bytes = LENGTH_END + length
        if (
            magic != MAGIC
            or length < _LEAST_LENGTH
            or not least_offset <= base_offset <= base_offset + delta < end_offset
        ):
            break
        if position + size_bytes > end or (found and base_offset > up_to_offset):
            break
        batch = LogBatch(base_offset, base_offset + delta, position, size_bytes)
        found.append(ReadBatch(batch, attributes, producer_id))
        position += size_bytes
        least_offset = batch.last_offset + 1
    return found


def aborted_batches(
    data: Slice, batches: Sequence[ReadBatch], aborted: Sequence[AbortedTxn]
) -> list[LogBatch]:
    """The batches of aborted transactions. Takes: aborted, the list of aborted transactions from a
    read_committed fetch. Raises: KafkaError KAFKA_STORAGE_ERROR if a marker is damaged.
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
        elif not _is_commit(data, batch):
            aborting.discard(producer_id)
    return found


def _is_commit(data: Slice, batch: LogBatch) -> bool:
    """Whether a marker commits. A marker that compaction has emptied, after it had removed all
    records of the transaction, ends an aborted transaction here.
    """
    marker = data.file.pread(batch.size_bytes, data.position + batch.position)
    header = read_header(marker)
    if not has_right_crc(marker, header):
        raise KafkaError(Code.KAFKA_STORAGE_ERROR, f"the marker at {batch.first_offset} is damaged")
    return bool(header.record_count) and decode_marker(marker).commit


def slice_of(data: Slice, batches: Sequence[ReadBatch], first: int, last: int) -> Slice:
    """The part of a slice that contains the batches with the given offsets; at least one of the
    batches has one of them.
    """
    needed = [
        one.batch
        for one in batches
        if one.batch.last_offset >= first and one.batch.first_offset <= last
    ]
    begin, end = needed[0], needed[-1]
    size = end.position + end.size_bytes - begin.position
    return data._replace(position=data.position + begin.position, size=size)
