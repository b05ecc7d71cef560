"""The records of a log from an offset on, as the page shows them. Their number and bytes are
limited.

There are two steps, as in `spans`. `take_records` runs in the loop's thread, and returns slices of
files. `read_records` runs in another thread, reads the slices and decompresses the batches.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas.console.decoding import NOT_DECODED, Decode, Decoded, Values, decoded_value
from barnabas.json_text import JsonText, bytes_to_json
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    BatchHeader,
    Record,
    batches_in,
    decode_marker,
    has_right_crc,
    header_name_bytes,
    open_records,
)
from barnabas.storage.disk import Slice
from barnabas.storage.log.log import Log

MOST_READ_BYTES = 4 << 20
MOST_DECOMPRESSED_BYTES = 8 << 20
MOST_RECORDS = 100
MOST_SHOWN_BYTES = 8 * 1024
"""The most bytes shown of a key, value or header: a longer one is cut, and its length is shown."""
MOST_HEADERS = 50
_READ_AT_FIRST_BYTES = 64 * 1024


class ReadStart(NamedTuple):
    """The place where a read begins, and its end offset (exclusive). slice is None at the end of
    the log.
    """

    slice: Slice | None
    offset: int
    end_offset: int
    log_start_offset: int


def take_records(log: Log, offset: int) -> ReadStart:
    """Find the records from an offset on, or from the log's start if that is later.

    Raises: KafkaError OFFSET_OUT_OF_RANGE if the offset is beyond the log's end;
            KAFKA_STORAGE_ERROR.
    """
    offset = max(offset, log.log_start_offset)
    data = log.read(offset, max_bytes=_READ_AT_FIRST_BYTES, min_one_batch=True)
    return ReadStart(data.slice, offset, log.high_watermark, log.log_start_offset)


def read_records(place: ReadStart, count: int, decode: Decode | None = None) -> dict[str, Any]:
    """Read the records from a place on, as plain values for JSON.

    Takes:  decode, a function that decodes the keys and values that have a schema.
    Gives:  a dict. records: at most `count` rows; next_offset: where the next call continues, None
            at the end, or at a batch too large to read here; problem: why a batch was not read,
            empty if all batches were read.
    Raises: OSError.
    """
    rows: list[dict[str, Any]] = []
    records: list[tuple[dict[str, Any], Record]] = []
    if place.slice is None:
        return {"records": rows, "next_offset": None, "problem": ""}
    file, position, size = place.slice
    if size > MOST_READ_BYTES:
        return {
            "records": rows,
            "next_offset": None,
            "problem": (
                f"The batch there has {size:,} bytes, and the console reads at most "
                f"{MOST_READ_BYTES:,}. `barnabas consume` reads it."
            ),
        }
    data = file.pread(size, position)
    next_offset: int | None = None
    problem = ""
    for start, header in batches_in(data):
        batch = memoryview(data)[start : start + header.size_bytes]
        try:
            for row, record in _rows(batch, header, place.offset):
                rows.append(row)
                if record is not None:
                    records.append((row, record))
                next_offset = row["offset"] + 1
                if len(rows) >= count:
                    break
        except KafkaError as error:
            problem = f"The batch at offset {header.base_offset} cannot be read: {error}"
            next_offset = header.next_offset
            break
        if len(rows) >= count:
            break
        next_offset = header.next_offset
    if next_offset is not None and next_offset >= place.end_offset:
        next_offset = None
    if decode is not None:
        values = decode([record for _, record in records])
        for (row, _), one in zip(records, values, strict=True):
            row["decoded"] = decoded_value(one)
    return {"records": rows, "next_offset": next_offset, "problem": problem}


def _rows(
    batch: memoryview, header: BatchHeader, offset: int
) -> Iterator[tuple[dict[str, Any], Record | None]]:
    """The rows of one batch's records from an offset on. A control batch gives one row, for its
    marker.

    Raises: KafkaError.
    """
    if not has_right_crc(batch, header):
        raise KafkaError(Code.CORRUPT_MESSAGE, "its CRC is wrong")
    of_batch = {
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "transactional": header.is_transactional,
        "codec": Codec(header.codec).name.lower(),
    }
    if header.is_control:
        marker = decode_marker(batch)
        row = {
            "offset": header.base_offset,
            "timestamp": header.max_timestamp,
            "marker": "commit" if marker.commit else "abort",
            "coordinator_epoch": marker.coordinator_epoch,
            **of_batch,
        }
        yield row, None
        return
    for record in open_records(batch, MOST_DECOMPRESSED_BYTES):
        if record.offset >= offset:
            yield {**record_value(record), **of_batch}, record


def record_value(record: Record) -> dict[str, Any]:
    """One record for JSON; a long key, value or header is truncated."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _blob(record.key),
        "value": _blob(record.value),
        "headers": [
            {"key": _shown_name(key), "value": _blob(value)}
            for key, value in record.headers[:MOST_HEADERS]
        ],
        "header_count": len(record.headers),
    }


def _shown_name(name: str) -> str:
    """A header's name, cut; bytes that are not UTF-8 are written as \\xff."""
    return header_name_bytes(name[:MOST_SHOWN_BYTES]).decode(errors="backslashreplace")


def _blob(data: bytes | None) -> dict[str, Any] | None:
    """Bytes as a JSON value: their size, and the leading bytes in base64; null for None."""
    if data is None:
        return None
    return {"size": len(data), "base64": base64.b64encode(data[:MOST_SHOWN_BYTES]).decode()}


def json_line_value(
    topic: str, partition: int, record: Record, values: Values = NOT_DECODED
) -> dict[str, Any]:
    """A record in the form of `barnabas consume --json`, which `barnabas produce --json` reads.

    Takes: values, the decoded key and value, which are written in the form of `--value-schema`.
    """
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": _decoded_or(values.key, record.key),
        "value": _decoded_or(values.value, record.value),
        "headers": [
            [bytes_to_json(header_name_bytes(name)), None if data is None else bytes_to_json(data)]
            for name, data in record.headers
        ],
    }


def _decoded_or(decoded: Decoded | None, data: bytes | None) -> Any:
    if decoded is not None and not decoded.error:
        return JsonText(decoded.text)
    return None if data is None else bytes_to_json(data)
