"""What a client's batch must be before it is written, and what is changed in it on the way.

The checks come in the order in which Apache Kafka 3.9 makes them, because the order decides which code is answered. A batch in order
costs one struct unpack, its checksum, and a walk over its records' lengths: see `lengths_agree`.

| what is wrong                                            | code                 | log_start_offset told |
|----------------------------------------------------------|----------------------|-----------------------|
| no whole batch, more than one, magic 0 or 1              | INVALID_RECORD       | no                    |
| an unknown magic, a length below a header's, a wrong CRC | CORRUPT_MESSAGE      | no                    |
| longer than max.message.bytes                            | MESSAGE_TOO_LARGE    | no                    |
| a base offset other than 0                               | INVALID_RECORD       | yes                   |
| an unknown codec, data that do not decompress            | UNKNOWN_SERVER_ERROR | yes                   |
| count, lengths, control flag, sequence, missing key      | INVALID_RECORD       | yes                   |
| a timestamp out of the topic's bounds                    | INVALID_TIMESTAMP    | yes                   |
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from protocol.compression import Levels, compress, decompress
from protocol.errors import Code, KafkaError
from protocol.records import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    decode_varint,
)
from storage.log_config import NEVER_MS, LogConfig

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HIGHEST_CODEC = 4
_SIZE_UP_TO_MAGIC = 17
_SMALLEST_LENGTH = 14  # of the oldest format; what says less is no batch of any
_SMALLEST_RECORD = 6  # bytes after the length: attributes, two deltas, no key, no value, no headers
_FIRST_BLOCK = 8  # records of one length that are tried together at first: fewer are sooner stepped over one by one
_BLOCK = 64  # records that are stepped over before a run is looked for again, once that failed several times
_MISSES = 4

_ATTRIBUTES = struct.Struct(">h")
_CRC = struct.Struct(">I")
_TIME = struct.Struct(">q")
_LENGTH = struct.Struct(">i")


class AppendRefused(KafkaError):
    """A client's batch that is not written.

    knows_log_start: whether the answer tells the log start offset, or -1 as where the batch was never brought to the log.
    record_errors: the index of each record that is to blame, for the answer's record_errors.
    """

    def __init__(self, code: Code, message: str, *, knows_log_start: bool = True, record_errors: tuple[int, ...] = ()) -> None:
        super().__init__(code, message)
        self.knows_log_start = knows_log_start
        self.record_errors = record_errors


class Rules(NamedTuple):
    """What a LogConfig asks of each batch, worked out once for each config."""

    max_bytes: int
    needs_keys: bool
    oldest_ms: int
    newest_ms: int
    codec: int
    levels: Levels
    log_append_time: bool
    opens_records: bool

    @classmethod
    def of(cls, config: LogConfig) -> Rules:
        log_append_time = config.timestamp_type_log_append
        oldest = NEVER_MS if log_append_time else config.timestamp_before_max_ms
        newest = NEVER_MS if log_append_time else config.timestamp_after_max_ms
        return cls(
            max_bytes=config.max_message_bytes,
            needs_keys=config.is_compacted,
            oldest_ms=oldest,
            newest_ms=newest,
            codec=CODECS.get(config.compression_type, -1),
            levels=config.compression_levels,
            log_append_time=log_append_time,
            opens_records=config.is_compacted or oldest != NEVER_MS or newest != NEVER_MS,
        )


class Checked(NamedTuple):
    """A batch as it is to be written, but for its base offset and leader epoch."""

    view: memoryview | bytearray
    size: int
    attributes: int
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def check_client_batch(view: memoryview, rules: Rules, now_ms: int) -> Checked:
    """Check the records field of one partition, and bring it into the topic's codec and clock.

    Takes:  view, writable; what follows its one whole batch is left out.
    Raises: AppendRefused, see the module's table.
    """
    size = len(view)
    if size < HEADER_SIZE:
        view, size = _only_batch(view, rules)
    fields = HEADER.unpack_from(view)
    if fields[1] + LENGTH_END != size or fields[3] != MAGIC or fields[0] or size > rules.max_bytes:
        view, size = _only_batch(view, rules)
        fields = HEADER.unpack_from(view)
    _, _, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id, epoch, sequence, count = fields
    if crc32c(view[CRC_START:]) != crc:
        raise AppendRefused(Code.CORRUPT_MESSAGE, "the batch's CRC is wrong", knows_log_start=False)
    codec = attributes & CODEC_MASK
    if codec > HIGHEST_CODEC:
        raise AppendRefused(Code.UNKNOWN_SERVER_ERROR, f"there is no compression codec {codec}")
    if count <= 0 or last_delta != count - 1:
        raise AppendRefused(Code.INVALID_RECORD, f"{count} records, but a last offset delta of {last_delta}")
    if attributes & CONTROL:
        raise AppendRefused(Code.INVALID_RECORD, "control batches are not written by clients")
    if producer_id >= 0 and sequence < 0:
        raise AppendRefused(Code.INVALID_RECORD, f"a producer id with the sequence {sequence}")
    if attributes & TRANSACTIONAL and producer_id < 0:
        raise AppendRefused(Code.INVALID_RECORD, "a transactional batch without a producer id")
    body: memoryview | bytes = view
    start = HEADER_SIZE
    if codec:
        body, start = decompress_or_refuse(codec, view[HEADER_SIZE:]), 0
    if rules.opens_records:
        _open_records(body, start, count, base_timestamp, rules, now_ms)
    elif not lengths_agree(body, start, count):
        raise AppendRefused(Code.INVALID_RECORD, f"the batch does not hold the {count} records that it says")
    if rules.codec >= 0 and rules.codec != codec:
        plain = bytes(body[start:]) if isinstance(body, memoryview) else body
        attributes = (attributes & ~CODEC_MASK) | rules.codec
        view = memoryview(_rebuilt(view, compress(rules.codec, plain, rules.levels), attributes))
        size = len(view)
        if size > rules.max_bytes:
            raise AppendRefused(Code.MESSAGE_TOO_LARGE, f"{size} bytes in the topic's codec, over {rules.max_bytes}", knows_log_start=False)
    if rules.log_append_time:
        attributes |= LOG_APPEND_TIME
        max_timestamp = now_ms
        _ATTRIBUTES.pack_into(view, 21, attributes)
        _TIME.pack_into(view, 35, max_timestamp)
        _CRC.pack_into(view, 17, crc32c(view[CRC_START:]))
    elif attributes & LOG_APPEND_TIME:  # a claim that the topic does not make
        attributes &= ~LOG_APPEND_TIME
        _ATTRIBUTES.pack_into(view, 21, attributes)
        _CRC.pack_into(view, 17, crc32c(view[CRC_START:]))
    return Checked(view, size, attributes, last_delta, max_timestamp, producer_id, epoch, sequence)


def decompress_or_refuse(codec: int, data: memoryview) -> bytes:
    try:
        return decompress(codec, data)
    except KafkaError as error:
        raise AppendRefused(error.code, str(error)) from error


def _next_batch_size(view: memoryview) -> int:
    """Of the batch at the view's start; 0 where no whole one is there. Raises AppendRefused where it cannot be a batch."""
    if len(view) < LENGTH_END:
        return 0
    (length,) = _LENGTH.unpack_from(view, 8)
    if length < _SMALLEST_LENGTH:
        raise AppendRefused(Code.CORRUPT_MESSAGE, f"a batch of {length} bytes", knows_log_start=False)
    if len(view) < _SIZE_UP_TO_MAGIC:
        return 0
    if not 0 <= view[16] <= MAGIC:
        raise AppendRefused(Code.CORRUPT_MESSAGE, f"a batch of the unknown magic {view[16]}", knows_log_start=False)
    return LENGTH_END + length if LENGTH_END + length <= len(view) else 0


def _only_batch(view: memoryview, rules: Rules) -> tuple[memoryview, int]:
    """The one batch of a field that is not as long as its batch, or that is wrong in its first bytes."""
    size = _next_batch_size(view)
    if not size:
        raise AppendRefused(Code.INVALID_RECORD, "no whole batch", knows_log_start=False)
    if view[16] != MAGIC:
        raise AppendRefused(Code.INVALID_RECORD, f"a batch of magic {view[16]}", knows_log_start=False)
    if _next_batch_size(view[size:]):
        raise AppendRefused(Code.INVALID_RECORD, "more than one batch", knows_log_start=False)
    batch = view[:size]
    if size >= 8 and _TIME.unpack_from(batch)[0] != 0:
        raise AppendRefused(Code.INVALID_RECORD, "the base offset of a client's batch must be 0")
    if size > rules.max_bytes:
        raise AppendRefused(Code.MESSAGE_TOO_LARGE, f"{size} bytes, over {rules.max_bytes}", knows_log_start=False)
    if size < HEADER_SIZE:
        raise AppendRefused(Code.CORRUPT_MESSAGE, f"a batch of {size} bytes", knows_log_start=False)
    return batch, size


def _rebuilt(view: memoryview, body: bytes, attributes: int) -> bytearray:
    """The batch with other records bytes and attributes; all else as it was."""
    batch = bytearray(view[:HEADER_SIZE])
    batch += body
    _LENGTH.pack_into(batch, 8, len(batch) - LENGTH_END)
    _ATTRIBUTES.pack_into(batch, 21, attributes)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def lengths_agree(body: memoryview | bytes, position: int, count: int) -> bool:
    """Whether `count` records, one after the other, fill `body` from `position` to its end.

    Records without headers (their last byte, the header count, is 0) are stepped over; those with headers are opened. Where two records
    have one length, a run of such is looked for: if the bytes of the length prefix, at that stride, are all the same, then stepping one by
    one would have come by each of those places. Where there are none, records are stepped over in blocks, each dearer but in one loop.
    """
    end = len(body)
    left = count
    misses = 0
    try:
        if count <= _FIRST_BLOCK:
            return _step_over(body, position, count) == end
        while left:
            following, width = _step(body, position)
            stride = following - position
            position = following
            left -= 1
            if left:
                run = _run_length(body, position, stride, width, left, end)
                position += run * stride
                left -= run
                if run < _FIRST_BLOCK and left:
                    misses += 1
                    block = min(_FIRST_BLOCK if misses < _MISSES else _BLOCK, left)
                    if misses == _MISSES and not isinstance(body, bytes):
                        body = bytes(body)  # faster to index than a memoryview
                    position = _step_over(body, position, block)
                    left -= block
    except (IndexError, KafkaError):
        return False
    return position == end


def _step(body: memoryview | bytes, position: int) -> tuple[int, int]:
    """The position after one record, and the width of its length. Raises IndexError or KafkaError where it is none."""
    length, after = decode_varint(body, position)
    following = after + length
    if length < _SMALLEST_RECORD or (body[following - 1] and not _opens(body, after, following)):
        raise KafkaError(Code.INVALID_RECORD)
    return following, after - position


def _step_over(body: memoryview | bytes, position: int, count: int) -> int:
    """The position after `count` records. Raises IndexError or KafkaError where they are none."""
    for _ in range(count):
        first = body[position]
        if first > 0x7F and (second := body[position + 1]) < 0x80 and not first & 1:
            following = position + (first >> 1) + (second << 6) - 62  # a zigzag varint of two bytes, and these two
            if body[following - 1]:
                following, _ = _step(body, position)
            position = following
        else:
            position, _ = _step(body, position)
    return position


def _run_length(body: memoryview | bytes, position: int, stride: int, width: int, left: int, end: int) -> int:
    """How many records from `position` on have the length of the one before and no headers, found in blocks that double."""
    possible = min(left, (end - position) // stride)
    taken, block = 0, _FIRST_BLOCK
    prefix = [(at, bytes((body[position - stride + at],))) for at in range(width)]
    if possible < _FIRST_BLOCK or body[position] != prefix[0][1][0]:
        return 0
    while taken < possible:
        block = min(block, possible - taken)
        stop = position + block * stride
        for at, byte in prefix:
            if body[position + at : stop : stride] != byte * block:
                return taken
        if body[position + stride - 1 : stop : stride] != bytes(block):
            return taken
        taken += block
        position = stop
        block *= 2
    return taken


def _opens(body: memoryview | bytes, position: int, end: int) -> bool:
    """Whether the record between the two positions (its length left out) is built as a record is."""
    _, position = decode_varint(body, position + 1)
    _, position = decode_varint(body, position)
    for _ in range(2):
        size, position = decode_varint(body, position)
        position += max(size, 0)
    headers, position = decode_varint(body, position)
    if headers < 0:
        return False
    for _ in range(headers):
        size, position = decode_varint(body, position)
        if size < 0:
            return False  # a header has a name
        size, position = decode_varint(body, position + size)
        position += max(size, 0)
    return position == end


def _open_records(body: memoryview | bytes, start: int, count: int, base_timestamp: int, rules: Rules, now_ms: int) -> None:
    """Look into each record: its key, where the topic needs one, and its time, where the topic bounds it."""
    if not lengths_agree(body, start, count):
        raise AppendRefused(Code.INVALID_RECORD, f"the batch does not hold the {count} records that it says")
    keyless, untimely = [], []
    position = start
    try:
        for index in range(count):
            length, position = decode_varint(body, position)
            following = position + length
            delta, position = decode_varint(body, position + 1)
            _, position = decode_varint(body, position)
            key_size, _ = decode_varint(body, position)
            timestamp = base_timestamp + delta
            if rules.needs_keys and key_size < 0:
                keyless.append(index)
            elif timestamp != NO_TIMESTAMP and (now_ms - timestamp > rules.oldest_ms or timestamp - now_ms > rules.newest_ms):
                untimely.append(index)
            position = following
    except IndexError as error:
        raise AppendRefused(Code.INVALID_RECORD, "a record is cut off") from error
    if untimely:
        raise AppendRefused(Code.INVALID_TIMESTAMP, "timestamps out of the topic's bounds", record_errors=tuple(sorted(keyless + untimely)))
    if keyless:
        raise AppendRefused(Code.INVALID_RECORD, "records of a compacted topic need a key", record_errors=tuple(keyless))
