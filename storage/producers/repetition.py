"""Decides whether a batch with the same producer, epoch and sequences as a written batch is a
duplicate of it.

A client that aborts after a broken connection may drop batches that were written, and use their
sequences for other records (librdkafka does; so do idempotent producers of kafkajs that give up).
If such a batch were treated as a duplicate, it would be acknowledged with the offsets of the
dropped one, and its records would be missing. A duplicate must therefore have the same content:
what the application wrote, that is keys, values and headers in their order (`record_content`). It
may have other times, another codec, and another encoding: clients encode a batch again for its
second attempt. The first of these cases decides:

    the transaction of the written one has ended                another batch
    (`producer_state`)
    the checksum is that of the written one, as received        the same
    the log has the written one                                 by the content of both
    the log does not have it, or it cannot be opened            by the checksums; if the first is
                                                                unknown, the same

If a comparison takes long, `is_repetition` raises `ComparisonTakesLong`; the caller lets a thread
compare the contents, and then appends again with its result.

The checksum of the written batch is unknown after a restart. Not covered: after a restart, another
batch is considered the same if the written one is no longer in the log.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.compression import (
    MOST_PARTS_AT_ONCE,
    TooManyPartsError,
    decompress_to_memory,
)
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import HEADER_SIZE, has_right_crc, read_header
from barnabas.storage.batch.record_content import content_digest
from barnabas.storage.batch.validate import CheckBudget, TakesLongError
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.producers.producer_state import NO_CRC, BatchMeta
from barnabas.storage.segments.segment_list import BatchPlace, SegmentList

_MOST_RECORDS_AT_ONCE = 5000  # comparing them takes 5 ms
_MOST_BYTES_AT_ONCE = 1 << 20  # of a stored batch, and of decompressed records
_RECORDS_OF_A_READ = 40  # finding and reading a stored batch takes as long as so many records

Batch = bytes | bytearray | memoryview


class ComparisonTakesLong(TakesLongError):
    """The comparison of a batch with the written one whose sequences it has takes long.

    A thread compares the two, and the batch is appended afterwards, with the result. written: the
    one in the log.
    """

    def __init__(self, written: BatchMeta) -> None:
        super().__init__()
        self.written = written


class Comparison(NamedTuple):
    """The result of a comparison by a thread.

    written: the batch of the log that was compared; is_same: None if it could not be opened.
    """

    written: BatchMeta
    is_same: bool | None


def is_repetition(
    written: BatchMeta,
    batch: memoryview | bytearray,
    crc: int,
    segments: SegmentList,
    most_bytes: int,
    *,
    at_once: CheckBudget | None = None,
    comparison: Comparison | None = None,
) -> bool:
    """Whether `batch`, with the same producer and sequences, has the content of `written`.

    Takes:  crc, the checksum of the batch as the client sent it; `batch` itself may be in the
            topic's codec. most_bytes, the topic's bound of decompressed records. at_once, the
            limits of a comparison on the loop; None if the caller is not on the loop. comparison,
            the result of an earlier one by a thread, which is used if it is of the same written
            batch.
    Raises: ComparisonTakesLong, only with at_once.
    """
    if written.crc == crc:
        return True
    if comparison is not None and comparison.written == written:
        is_same = comparison.is_same
    else:
        is_same = _compared(written, batch, segments, most_bytes, at_once)
    return written.crc == NO_CRC if is_same is None else is_same


def stored_batch(written: BatchMeta, segments: SegmentList) -> bytes | None:
    """Read the written batch from the log. Gives: None if it is missing, incomplete or damaged."""
    place = _place_of(written, segments)
    return None if place is None else _read(written, place)


def have_same_content(
    stored: Batch, batch: Batch, most_bytes: int, most_parts: int | None = None
) -> bool | None:
    """Whether two batches have the same keys, values and headers in the same order.

    At most one of them is decompressed at a time.

    Takes:  most_bytes, the bound of the decompressed records of each; most_parts, see
            `decompress_to_memory`.
    Gives:  None if a batch cannot be opened within the bounds.
    Raises: TooManyPartsError, only with most_parts.
    """
    one, other = read_header(stored), read_header(batch)
    if one.record_count != other.record_count:
        return False
    if one.codec == other.codec and _records_of(stored) == _records_of(batch):
        return True
    try:
        return _content_of(stored, most_bytes, most_parts) == _content_of(
            batch, most_bytes, most_parts
        )
    except (KafkaError, IndexError):
        return None


def _compared(
    written: BatchMeta,
    batch: memoryview | bytearray,
    segments: SegmentList,
    most_bytes: int,
    at_once: CheckBudget | None,
) -> bool | None:
    """Compare the batch with the stored one. Gives: None if that is not possible."""
    place = _place_of(written, segments)
    if place is None:
        return None
    if at_once is None:
        stored = _read(written, place)
        return None if stored is None else have_same_content(stored, batch, most_bytes)
    count = read_header(batch).record_count + _RECORDS_OF_A_READ
    bound = min(at_once.bytes_left, most_bytes, _MOST_BYTES_AT_ONCE)
    if count > min(at_once.records_left, _MOST_RECORDS_AT_ONCE) or place.size > bound:
        raise ComparisonTakesLong(written)
    at_once.records_left -= count
    at_once.bytes_left -= place.size
    stored = _read(written, place)
    if stored is None:
        return None
    try:
        is_same = have_same_content(stored, batch, bound, MOST_PARTS_AT_ONCE)
    except TooManyPartsError as error:
        raise ComparisonTakesLong(written) from error
    if is_same is None:
        raise ComparisonTakesLong(written)
    return is_same


def _place_of(written: BatchMeta, segments: SegmentList) -> BatchPlace | None:
    try:
        return segments.find(written.first_offset)
    except CorruptLog:
        return None


def _read(written: BatchMeta, place: BatchPlace) -> bytes | None:
    """Read the batch at `place`. Gives: None unless it is the written one, whole."""
    try:
        batch = place.segment.batches.file.pread(place.size, place.position)
    except CorruptLog:
        return None
    header = read_header(batch)
    is_whole = (
        header.base_offset == written.first_offset
        and header.record_count == written.last_offset - written.first_offset + 1
        and has_right_crc(batch, header)
    )
    return batch if is_whole else None


def _records_of(batch: Batch) -> memoryview:
    """The records of a batch as they are encoded."""
    return memoryview(batch)[HEADER_SIZE : read_header(batch).size_bytes]


def _content_of(batch: Batch, most_bytes: int, most_parts: int | None) -> bytes:
    """The digest of what the application wrote. Raises: KafkaError, IndexError,
    TooManyPartsError.
    """
    header, records = read_header(batch), _records_of(batch)
    if not header.codec:
        # Slices of bytes are faster than slices of a memoryview; a large batch is not copied.
        body: Batch = bytes(records) if len(records) <= _MOST_BYTES_AT_ONCE else records
    else:
        body = decompress_to_memory(header.codec, records, most_bytes, most_parts)
    return content_digest(body, 0, header.record_count)
