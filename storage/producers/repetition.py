"""Decides whether a batch with the same producer, epoch and sequences as a written batch is a
duplicate of it.

A client that aborts after a broken connection may drop batches that were written, and use their
sequences for other records (librdkafka does). If such a batch were treated as a duplicate, it would
be acknowledged with the offsets of the dropped one, and a record of a committed transaction would
be missing. A duplicate must therefore have the same records. The first of these cases decides:

    the transaction of the written one has ended                another batch
    (`producer_state`)
    the checksum is that of the written one, as received        the same
    the log has the written one: both are opened, and the       by the comparison
    bytes and base timestamps of their records compared
    the log does not have it, or opening takes long             by the checksums; if the first is
                                                                unknown, the same

The checksum of the written batch is unknown after a restart. If a client encodes a batch again for
its second attempt, in another codec, the duplicate is recognised as long as the log has the batch.
Not covered: after a restart, another batch is considered the same if the written one is no longer
in the log.
"""

from __future__ import annotations

from barnabas.protocol.compression import (
    MOST_PARTS_AT_ONCE,
    TooManyPartsError,
    decompress_to_memory,
)
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import CODEC_MASK, HEADER_SIZE, has_right_crc, read_header
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.segment_list import SegmentList
from barnabas.storage.producers.producer_state import NO_CRC, BatchMeta

MOST_COMPARED_BYTES = 1 << 20  # the limit of the size of opened records


def is_repetition(
    written: BatchMeta, batch: memoryview | bytearray, crc: int, segments: SegmentList
) -> bool:
    """Whether `batch`, with the same producer and sequences, has the records of `written`.

    Takes:  crc, the checksum of the batch as the client sent it; `batch` itself may be in the
            topic's codec.
    """
    if written.crc == crc:
        return True
    stored = _stored(written, segments)
    is_same = None if stored is None else _have_same_records(stored, batch)
    return written.crc == NO_CRC if is_same is None else is_same


def _stored(written: BatchMeta, segments: SegmentList) -> bytes | None:
    """Read the written batch from the log. Gives: None if it is missing, incomplete or damaged."""
    try:
        place = segments.find(written.first_offset)
        if place is None:
            return None
        batch = place.segment.batches.file.pread(place.size, place.position)
    except CorruptLog:
        return None
    header = read_header(batch)
    is_whole = (
        header.base_offset == written.first_offset
        and header.record_count == written.last_offset - written.first_offset + 1
        # The batch must have no delete horizon, which replaces the base timestamp: the timestamps
        # could then not be compared.
        and header.delete_horizon_ms is None
        and has_right_crc(batch, header)
    )
    return batch if is_whole else None


def _have_same_records(stored: bytes, batch: memoryview | bytearray) -> bool | None:
    """Whether two batches have the same records; None if the comparison would take long."""
    one, other = read_header(stored), read_header(batch)
    if (one.base_timestamp, one.record_count) != (other.base_timestamp, other.record_count):
        return False
    try:
        return _opened(stored) == _opened(batch)
    except (KafkaError, TooManyPartsError):
        return None


def _opened(batch: bytes | memoryview | bytearray) -> bytes | bytearray | memoryview:
    """Decompress the records. Raises: KafkaError, TooManyPartsError."""
    codec = read_header(batch).attributes & CODEC_MASK
    records = memoryview(batch)[HEADER_SIZE:]
    if not codec:
        return records
    return decompress_to_memory(codec, records, MOST_COMPARED_BYTES, MOST_PARTS_AT_ONCE)
