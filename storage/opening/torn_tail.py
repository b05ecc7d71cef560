"""Decides whether invalid bytes in a log file are a torn end, a hole left by a power loss, or
damage.

A file system writes unflushed data in any order, one sector (512 bytes) at a time. After a power
loss, the first bad batch of a file therefore means:

    at the bad batch                                     after it        conclusion
    no whole batch, or a wrong CRC                       no good batch   a torn end: cut
    zeros for a sector, or for the start of the batch    good batches    a hole: cut, the rest kept
    anything else                                        good batches    damage: CorruptLog
    a whole batch with a right CRC and a wrong offset    anything        damage: CorruptLog
"""

from __future__ import annotations

from barnabas.protocol.records import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    batch_size_of,
    has_right_crc,
    read_header,
)
from barnabas.storage.files.segment_files import HIGHEST_RELATIVE_OFFSET
from barnabas.storage.segments.segment import Segment

_SEARCH_BYTES = 64 << 20  # the distance after a bad batch within which a valid one is searched for
_SECTOR_BYTES = 512


def fault_of(header: BatchHeader, next_offset: int, base_offset: int, left: int) -> str:
    """The reason why 61 bytes cannot be the header of the next batch; empty if they can be.

    Takes:  next_offset, the end of the previous batches; base_offset, the base offset of the
            segment; left, the number of bytes from the header to the end of the file.
    """
    if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LENGTH_END:
        return "no batch begins there"
    if header.size_bytes > left:
        return "a batch is cut off"
    last_offset = header.last_offset
    highest = base_offset + HIGHEST_RELATIVE_OFFSET
    if not next_offset <= header.base_offset <= last_offset <= highest:
        return f"a batch of offset {header.base_offset} comes after offset {next_offset - 1}"
    return ""


def is_whole(header: BatchHeader, segment: Segment, position: int) -> bool:
    """Whether there is a batch with a correct checksum at the position. Its offset may be wrong."""
    if (
        header.magic != MAGIC
        or not HEADER_SIZE <= header.size_bytes <= segment.batches.size - position
    ):
        return False
    return has_right_crc(segment.batches.file.pread(header.size_bytes, position), header)


def is_hole(segment: Segment, position: int, next_offset: int) -> bool:
    """Whether a sector of the bad batch consists of zeros. It was then not written, although later
    sectors were.

    No flush was completed after such a batch was written, so nothing after it was durable.
    """
    size = batch_size_of(segment.batches.file.pread(LENGTH_END, position).ljust(LENGTH_END, b"\0"))
    end = min(position + max(size, HEADER_SIZE), segment.batches.size)
    if lacks_start(segment, position, next_offset):
        return True
    boundary = position - position % _SECTOR_BYTES + _SECTOR_BYTES
    while boundary < end:
        if not any(segment.batches.file.pread(_SECTOR_BYTES, boundary)):
            return True
        boundary += _SECTOR_BYTES
    return False


def lacks_start(segment: Segment, position: int, next_offset: int) -> bool:
    """Whether the batch has only zeros up to the end of the sector in which it begins.

    The sector may contain only a few bytes of the batch's offset. These may be zeros in a valid
    batch, and no CRC covers them.
    """
    first = segment.batches.file.pread(_SECTOR_BYTES - position % _SECTOR_BYTES, position)
    return not any(first) and (len(first) > MAGIC_AT or any(next_offset.to_bytes(8)[: len(first)]))


def good_batch_after(segment: Segment, position: int) -> int:
    """The position of the next complete batch with a correct checksum after `position`, or -1."""
    data = segment.batches.file.pread(min(_SEARCH_BYTES, segment.batches.size - position), position)
    view = memoryview(data)
    at = data.find(MAGIC, 1 + MAGIC_AT)
    while at >= 0:
        start = at - MAGIC_AT
        if start + HEADER_SIZE > len(data):
            break
        header = read_header(data, start)
        left = len(data) - start
        if not fault_of(header, segment.base_offset, segment.base_offset, left) and has_right_crc(
            view[start : start + header.size_bytes], header
        ):
            return position + start
        at = data.find(MAGIC, at + 1)
    return -1
