"""Whether a batch of the same producer, epoch and sequences is the one that was written before.

A client that aborts after a broken connection may give up batches that were written, and give their
sequences to other records (librdkafka does). Taken for a repetition, such a batch is acknowledged
with the offsets of the one that was given up, and a record of a committed transaction is missing.
So a repetition has to bear the same records:

    the transaction of that one has ended (`producer_state`)    it is another
    the checksum is that of the batch as it came then           it is the same
    the log has that batch: both are opened, the records'
    bytes and the time that they are counted from compared      as they compare
    the log does not have it, or opening them takes long        the checksums decide; where that of
                                                                then is not known, it is the same

The checksum of then is not known after a restart. A client that encodes a batch anew for its second
attempt, in another codec, is understood as long as the log has the batch. What remains: after a
restart, another batch is taken for the same if the one of then is gone from the log.
"""

from __future__ import annotations

from barnabas.protocol.compression import (
    MOST_PARTS_AT_ONCE,
    TooManyPartsError,
    decompress_to_memory,
)
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import CODEC_MASK, HEADER_SIZE, has_right_crc, read_header
from barnabas.storage.log.segment import CorruptLog
from barnabas.storage.log.segment_list import SegmentList
from barnabas.storage.producers.producer_state import NO_CRC, BatchMeta

MOST_COMPARED_BYTES = 1 << 20  # of records, opened


def is_repetition(
    written: BatchMeta, batch: memoryview | bytearray, crc: int, segments: SegmentList
) -> bool:
    """Whether `batch`, of the same producer and sequences, has the records of `written`.

    Takes: crc, of the batch as the client sent it; what it is now may be in the topic's codec.
    """
    if written.crc == crc:
        return True
    stored = _stored(written, segments)
    is_same = None if stored is None else _have_same_records(stored, batch)
    return written.crc == NO_CRC if is_same is None else is_same


def _stored(written: BatchMeta, segments: SegmentList) -> bytes | None:
    """The batch as the log has it; None where it is gone, in part or whole, or damaged."""
    try:
        place = segments.find(written.first_offset)
        if place is None:
            return None
        batch = place.segment.file.pread(place.size, place.position)
    except CorruptLog:
        return None
    header = read_header(batch)
    is_whole = (
        header.base_offset == written.first_offset
        and header.record_count == written.last_offset - written.first_offset + 1
        and header.delete_horizon_ms is None  # which is where the records' base timestamp was
        and has_right_crc(batch, header)
    )
    return batch if is_whole else None


def _have_same_records(stored: bytes, batch: memoryview | bytearray) -> bool | None:
    """None where they cannot be compared at once."""
    one, other = read_header(stored), read_header(batch)
    if (one.base_timestamp, one.record_count) != (other.base_timestamp, other.record_count):
        return False
    try:
        return _opened(stored) == _opened(batch)
    except (KafkaError, TooManyPartsError):
        return None


def _opened(batch: bytes | memoryview | bytearray) -> bytes | bytearray | memoryview:
    """The records' bytes. Raises: KafkaError, TooManyPartsError where they are too many."""
    codec = read_header(batch).attributes & CODEC_MASK
    records = memoryview(batch)[HEADER_SIZE:]
    if not codec:
        return records
    return decompress_to_memory(codec, records, MOST_COMPARED_BYTES, MOST_PARTS_AT_ONCE)
