"""The checks of a client's batch before it is written, and the changes made to it.

The checks have the order of Apache Kafka 3.9, which decides the error code. A valid batch costs one
struct unpack, its checksum, and a walk over its records (`record_walk`). The order applies within a
batch; the last three rows are checked when the records are opened. The column "log start" says
whether the response contains the log start offset.

    fault                                                       code                  log start
    no whole batch, more than one, magic 0 or 1                 INVALID_RECORD        no
    an unknown magic, a length below a header's, a wrong CRC    CORRUPT_MESSAGE       no
    longer than max.message.bytes                               MESSAGE_TOO_LARGE     no
    a base offset other than 0                                  INVALID_RECORD        yes
    an unknown codec, data that do not decompress               UNKNOWN_SERVER_ERROR  yes
    data that decompress to more than the limit                 MESSAGE_TOO_LARGE     yes
    count, control flag, sequence, records, missing key         INVALID_RECORD        yes
    a timestamp out of the topic's bounds                       INVALID_TIMESTAMP     yes

Header fields that readers rely on are not trusted: the highest timestamp is set to that of the
records, as in Apache Kafka, and attributes that a client may not set are cleared (a delete horizon,
LogAppendTime, undefined bits).
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.compression import (
    MOST_PARTS_AT_ONCE,
    Levels,
    TooLargeError,
    TooManyPartsError,
    compress,
    decompress_to_memory,
)
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MAGIC_END,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    base_offset_of,
    batch_size_of,
    decode_varint,
    set_attributes,
    set_crc,
    set_max_timestamp,
    set_size_and_attributes,
)
from barnabas.storage.batch.record_walk import RecordRefused, highest_time_delta
from barnabas.storage.log_config import NEVER_MS, LogConfig

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HIGHEST_CODEC = 4
# the header size of the oldest format; the length of a batch is never smaller
_SMALLEST_BATCH = LENGTH_END + 14
_OF_CLIENTS = CODEC_MASK | TRANSACTIONAL  # the attributes that a client may set
_MOST_RECORDS_AT_ONCE = 10_000  # walking over this many records takes 5 ms, or 30 ms with headers
_MOST_BYTES_AT_ONCE = 1 << 20  # decompressed bytes
# The limits of checks on the loop, for all batches of a request together.
_MOST_RECORDS_OF_REQUEST, _MOST_BYTES_OF_REQUEST = (20_000, 8 << 20)
_MOST_RECORD_ERRORS = 1000  # the most record errors that the response lists for one batch
_MOST_COMPRESSED_AT_ONCE = 1 << 18  # at a high level compression takes a second for each MB


class AppendRefused(KafkaError):
    """A client's batch is rejected.

    knows_log_start: whether the response has the log start offset; otherwise it has -1, as for a
    batch that did not reach the log. record_errors: the indexes of faulty records, for the
    response.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        knows_log_start: bool = True,
        record_errors: tuple[int, ...] = (),
    ) -> None:
        """Takes: knows_log_start, whether the response contains the log start; record_errors, the
        numbers of the records with errors.
        """
        super().__init__(code, message)
        self.knows_log_start = knows_log_start
        self.record_errors = record_errors

    def again(self) -> AppendRefused:
        """A new error with the same content, to raise in place of this one, which is kept."""
        return AppendRefused(
            self.code,
            self.message or "",
            knows_log_start=self.knows_log_start,
            record_errors=self.record_errors,
        )


class TakesLongError(Exception):
    """The check of a batch would block other clients.

    A thread checks the batch instead, and it is appended afterwards.
    """


class CheckBudget:
    """What is left of the limits of checks on the loop, for all batches of one request together.

    records_left: the number of records. bytes_left: the number of bytes that may be decompressed.
    In addition, each batch has limits of its own.
    """

    __slots__ = ("bytes_left", "records_left")

    def __init__(
        self, records: int = _MOST_RECORDS_OF_REQUEST, most_bytes: int = _MOST_BYTES_OF_REQUEST
    ) -> None:
        self.records_left, self.bytes_left = records, most_bytes

    def take_records(self, count: int) -> None:
        """Subtract a batch's records. Raises: TakesLongError if there are too many of them."""
        if count > _MOST_RECORDS_AT_ONCE or count > self.records_left:
            raise TakesLongError
        self.records_left -= count


FOR_ONE_BATCH = CheckBudget(1 << 62, 1 << 62)
"""The budget of requests with one batch, which has its own bounds: it is never exhausted."""


class Rules:
    """The rules of a LogConfig that apply to each batch, computed once for each config.

    needs_time: whether the rules depend on the wall clock. are_few: whether records are neither
    opened, nor recompressed, nor given the time of the append, as nearly everywhere. It is no
    tuple, whose fields take longer to read.
    """

    __slots__ = (
        "are_few", "codec", "levels", "log_append_time", "max_bytes", "max_decompressed_bytes",
        "needs_keys", "needs_time", "newest_ms", "oldest_ms", "opens_records",
    )  # fmt: skip

    def __init__(self, config: LogConfig) -> None:
        self.log_append_time = config.timestamp_type_log_append
        self.oldest_ms = NEVER_MS if self.log_append_time else config.timestamp_before_max_ms
        self.newest_ms = NEVER_MS if self.log_append_time else config.timestamp_after_max_ms
        has_bounds = self.oldest_ms != NEVER_MS or self.newest_ms != NEVER_MS
        self.max_bytes: int = config.max_message_bytes
        self.max_decompressed_bytes: int = config.max_decompressed_bytes
        self.needs_keys: bool = config.is_compacted
        self.codec = CODECS.get(config.compression_type, -1)
        self.levels: Levels = config.compression_levels
        self.opens_records = config.is_compacted or has_bounds
        self.needs_time = self.log_append_time or has_bounds
        self.are_few = not self.opens_records and not self.log_append_time and self.codec < 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rules):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment] # rules are compared, and no key


class Checked(NamedTuple):
    """A checked batch, ready to be written except for its base offset and leader epoch.

    crc: the checksum of the batch as received.
    """

    view: memoryview | bytearray
    size: int
    attributes: int
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    crc: int


def check_client_batch(
    view: memoryview, rules: Rules, now_ms: int, *, at_once: CheckBudget | None = None
) -> Checked:
    """Check a batch as `checked_fields` does, for a caller that keeps the result."""
    return Checked(*checked_fields(view, rules, now_ms, at_once))


def checked_fields(
    view: memoryview, rules: Rules, now_ms: int, at_once: CheckBudget | None
) -> tuple[memoryview | bytearray, int, int, int, int, int, int, int, int]:
    """Check the records field of one partition, and apply the topic's codec and timestamp type.

    Gives:  the fields of `Checked` as a plain tuple, since each append needs them.
    Takes:  view, writable; bytes after its only batch are ignored. at_once, the limits of checks on
            the loop; None if the caller is not on the loop.
    Raises: AppendRefused, see the module's table; TakesLongError, only with at_once, in which case
            the batch is unchanged.

    One long function: it is the module's table in order, and runs for each batch.
    """
    size = len(view)
    if size < HEADER_SIZE:
        view, size = _only_batch(view, rules)
    fields = HEADER.unpack_from(view)
    # Nearly every field is one whole batch with a base offset of 0. `_only_batch` handles the
    # others.
    if fields[1] + LENGTH_END != size or fields[3] != MAGIC or fields[0] or size > rules.max_bytes:
        view, size = _only_batch(view, rules)
        fields = HEADER.unpack_from(view)
    (
        _,
        _,
        _,
        _,
        crc,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        epoch,
        sequence,
        count,
    ) = fields
    # The CRC is checked first, since the other fields of a damaged batch are meaningless.
    if crc32c(view[CRC_START:]) != crc:
        raise AppendRefused(Code.CORRUPT_MESSAGE, "the batch's CRC is wrong", knows_log_start=False)
    codec = attributes & CODEC_MASK
    # This is a single condition, since it is false for every valid batch; `_refusal` finds out
    # which part is true.
    if (
        codec > HIGHEST_CODEC
        or count <= 0
        or last_delta != count - 1
        or attributes & CONTROL
        or (sequence < 0 if producer_id >= 0 else attributes & TRANSACTIONAL)
    ):
        raise _refusal(codec, attributes, last_delta, producer_id, sequence, count)
    # If the request has only this batch, only the limits of a batch apply.
    if (at_once is not FOR_ONE_BATCH or count > _MOST_RECORDS_AT_ONCE) and at_once is not None:
        at_once.take_records(count)  # checked before decompression, which may take a long time
    body: memoryview | bytearray | bytes = view
    start = HEADER_SIZE
    if codec:
        body, start = _decompressed(codec, view[HEADER_SIZE:], rules, at_once), 0
    is_recompressed = not rules.are_few and rules.codec >= 0 and rules.codec != codec
    if is_recompressed and at_once is not None and len(body) > _MOST_COMPRESSED_AT_ONCE:
        raise TakesLongError
    try:
        youngest = base_timestamp + highest_time_delta(body, start, count)
    except RecordRefused as error:
        raise AppendRefused(error.code, str(error), record_errors=(error.index,)) from error
    except KafkaError as error:
        raise AppendRefused(error.code, str(error)) from error
    if youngest < NO_TIMESTAMP:  # Kafka computes the maximum starting from NO_TIMESTAMP
        youngest = NO_TIMESTAMP
    elif youngest >= 1 << 63:
        raise AppendRefused(Code.INVALID_RECORD, "a timestamp of more than 64 bits")
    # a client may not set the bit LogAppendTime, nor bits without a meaning
    attributes &= _OF_CLIENTS
    if not rules.are_few:
        if rules.opens_records:
            _look_into_records(body, start, count, base_timestamp, rules, now_ms)
        if is_recompressed:
            plain = bytes(body[start:])
            attributes = (attributes & ~CODEC_MASK) | rules.codec
            compressed = compress(rules.codec, plain, rules.levels)
            view = memoryview(_rebuilt(view, compressed, attributes))
            size = len(view)
            if size > rules.max_bytes:
                raise AppendRefused(
                    Code.MESSAGE_TOO_LARGE,
                    f"{size} bytes in the topic's codec, over {rules.max_bytes}",
                    knows_log_start=False,
                )
        if rules.log_append_time:
            attributes |= LOG_APPEND_TIME
            youngest = now_ms
    # If nothing has to be changed, the batch keeps its bytes and its CRC: computing another
    # checksum takes as long as the first.
    if attributes != fields[5] or youngest != max_timestamp:
        set_attributes(view, attributes)
        set_max_timestamp(view, youngest)
        set_crc(view)
    return view, size, attributes, last_delta, youngest, producer_id, epoch, sequence, crc


def _refusal(
    codec: int, attributes: int, last_delta: int, producer_id: int, sequence: int, count: int
) -> AppendRefused:
    """Return the error for a header with wrong fields: for the first of them in the order of
    Kafka's checks.
    """
    if codec > HIGHEST_CODEC:
        return AppendRefused(Code.UNKNOWN_SERVER_ERROR, f"there is no compression codec {codec}")
    if count <= 0 or last_delta != count - 1:
        return AppendRefused(
            Code.INVALID_RECORD, f"{count} records, but a last offset delta of {last_delta}"
        )
    if attributes & CONTROL:
        return AppendRefused(Code.INVALID_RECORD, "clients may not write control batches")
    if producer_id >= 0:
        return AppendRefused(Code.INVALID_RECORD, f"a producer id with the sequence {sequence}")
    return AppendRefused(Code.INVALID_RECORD, "a transactional batch without a producer id")


def with_append_time(checked: Checked, now_ms: int) -> Checked:
    """The checked batch with the current time, for a topic with LogAppendTime."""
    view = checked.view
    set_max_timestamp(view, now_ms)
    set_crc(view)
    return checked._replace(max_timestamp=now_ms)


def _decompressed(
    codec: int, data: memoryview, rules: Rules, at_once: CheckBudget | None
) -> bytes | bytearray:
    """The decompressed records. Takes: at_once, the limits of a check in the event loop. Raises:
    TakesLongError beyond these limits; AppendRefused.
    """
    limit = most = rules.max_decompressed_bytes
    most_parts = None
    if at_once is not None:
        limit = (
            at_once.bytes_left if at_once.bytes_left < _MOST_BYTES_AT_ONCE else _MOST_BYTES_AT_ONCE
        )
        limit = min(limit, most)
        most_parts = MOST_PARTS_AT_ONCE
    try:
        body = decompress_to_memory(codec, data, limit, most_parts)
    except TooManyPartsError as error:
        raise TakesLongError from error
    except TooLargeError as error:
        if limit < most:
            raise TakesLongError from error
        raise AppendRefused(
            error.code, f"{error.message} (barnabas.decompressed.max.bytes)"
        ) from error
    except KafkaError as error:
        raise AppendRefused(error.code, str(error)) from error
    if at_once is not None:
        at_once.bytes_left -= len(body)
    return body


def _next_batch_size(view: memoryview) -> int:
    """The size of the batch at the start of the view; 0 if the batch is incomplete.

    Raises: AppendRefused if the bytes cannot be a batch.
    """
    if len(view) < LENGTH_END:
        return 0
    size = batch_size_of(view)
    if size < _SMALLEST_BATCH:
        raise AppendRefused(
            Code.CORRUPT_MESSAGE, f"a batch of {size - LENGTH_END} bytes", knows_log_start=False
        )
    if len(view) < MAGIC_END:
        return 0
    magic = view[MAGIC_AT]
    if not 0 <= magic <= MAGIC:
        raise AppendRefused(
            Code.CORRUPT_MESSAGE, f"a batch of the unknown magic {magic}", knows_log_start=False
        )
    return size if size <= len(view) else 0


def _only_batch(view: memoryview, rules: Rules) -> tuple[memoryview, int]:
    """Find the batch in a field that is not exactly one whole batch, or check why there is none.

    Gives: the batch and its size. Raises: AppendRefused.
    """
    size = _next_batch_size(view)
    if not size:
        raise AppendRefused(Code.INVALID_RECORD, "no whole batch", knows_log_start=False)
    if view[MAGIC_AT] != MAGIC:
        raise AppendRefused(
            Code.INVALID_RECORD, f"a batch of magic {view[MAGIC_AT]}", knows_log_start=False
        )
    if _next_batch_size(view[size:]):
        raise AppendRefused(Code.INVALID_RECORD, "more than one batch", knows_log_start=False)
    batch = view[:size]
    if base_offset_of(batch) != 0:
        raise AppendRefused(Code.INVALID_RECORD, "the base offset of a client's batch must be 0")
    if size > rules.max_bytes:
        raise AppendRefused(
            Code.MESSAGE_TOO_LARGE, f"{size} bytes, over {rules.max_bytes}", knows_log_start=False
        )
    if size < HEADER_SIZE:
        raise AppendRefused(Code.CORRUPT_MESSAGE, f"a batch of {size} bytes", knows_log_start=False)
    return batch, size


def _rebuilt(view: memoryview, body: bytes, attributes: int) -> bytearray:
    """The batch with other record bytes and attributes. Its CRC has to be updated afterwards."""
    batch = bytearray(view[:HEADER_SIZE])
    batch += body
    set_size_and_attributes(batch, attributes)
    return batch


def _look_into_records(
    body: memoryview | bytearray | bytes,
    start: int,
    count: int,
    base_timestamp: int,
    rules: Rules,
    now_ms: int,
) -> None:
    """Check the keys, if the topic needs them, and the timestamps, if the topic limits them.

    The records themselves were checked before.
    """
    keyless, untimely = [], []
    position = start
    for index in range(count):
        length, position = decode_varint(body, position)
        following = position + length
        delta, position = decode_varint(body, position + 1)
        _, position = decode_varint(body, position)
        key_size, _ = decode_varint(body, position)
        timestamp = base_timestamp + delta
        if rules.needs_keys and key_size < 0:
            keyless.append(index)
        elif timestamp != NO_TIMESTAMP and (
            now_ms - timestamp > rules.oldest_ms or timestamp - now_ms > rules.newest_ms
        ):
            untimely.append(index)
        position = following
    if untimely:
        raise AppendRefused(
            Code.INVALID_TIMESTAMP,
            "timestamps out of the topic's bounds",
            record_errors=tuple(sorted(keyless + untimely)[:_MOST_RECORD_ERRORS]),
        )
    if keyless:
        raise AppendRefused(
            Code.INVALID_RECORD,
            "records of a compacted topic need a key",
            record_errors=tuple(keyless[:_MOST_RECORD_ERRORS]),
        )
