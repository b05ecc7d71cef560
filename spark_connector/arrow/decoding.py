"""The decoder: record batches -> Arrow columns, without a Python step per record. It uses compiled
loops (record_loops.py) if these are available, and array arithmetic otherwise.

The loops accept only the usual valid encoding. Array arithmetic decodes the batches that the loops
reject, and all batches if there are no loops.

With arrays, most time is spent on finding the start of each record. Each record is preceded by its
length, so the starts form a chain. The chains of all batches of a fetch are followed at the same
time:

1. *Candidates.* A record is `length, attributes, …`; attributes are 0 in every version of the
   format so far. Each zero byte that follows an even varint of at least SHORTEST_RECORD (zigzag:
   even is not negative) may therefore be the attributes of a record. Its link is the position at
   which, by its length, the next record begins. A candidate is dropped if it neither begins a batch
   nor is linked to.
2. *Reach.* The remaining candidates are nearly always the chain itself, which one comparison shows.
   Otherwise the links are followed from the first record of each batch by pointer doubling:
   log2(records per batch) passes over arrays.
3. *Check.* Each batch must have as many records as its header says, and its last record must end
   where the batch ends.

Then every varint column is read by array arithmetic, and keys, values and headers are extracted by
one Arrow `take` each. Batches that step 3 rejects (attributes other than 0, or damage) are read
again record by record (`protocol.records`), which either succeeds or reports the error.

    a record: varint length | int8 attributes | varint timestamp_delta | varint offset_delta
              | varint key length, key | varint value length, value | varint header count
              | per header: varint length, key, varint length, value
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.protocol.compression import Codec, decompress
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    HEADER_SIZE,
    BatchHeader,
    NewRecord,
    decode_records,
    encode_record,
)
from barnabas.spark_connector.arrow import record_loops
from barnabas.spark_connector.arrow.array_types import Bytes, Flags, Ints, NDArray
from barnabas.spark_connector.arrow.numba_loops import CompiledLoops
from barnabas.spark_connector.arrow.record_batches import LocatedRecordBatch
from barnabas.spark_connector.arrow.record_loops import LONGEST_LENGTH, SHORTEST_RECORD

LONGEST_VARINT = 10
# The number of bytes of records to decode together. It is small enough for the arrays of the
# columns to stay in a CPU's cache. With loops it is larger: they need fewer arrays, and the Python
# steps around them are relatively more expensive.
PART_BYTES = 1 << 19
LOOPS_PART_BYTES = 1 << 21
LARGEST_BODY = 2**31 - 1  # Arrow stores the positions in binary columns as int32

# the timestampType if the timestamp is the broker's time; it is 0 for the producer's time
LOG_APPEND_TIME = 1

HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


class Columns(NamedTuple):
    """The columns of some record batches, in log order. A column that is not read is None.

    timestamp_type: None if all timestamps are the producer's.
    """

    offset: Ints
    timestamp_ms: Ints
    timestamp_type: NDArray[np.int32] | None
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None


class _Body(NamedTuple):
    """The records of some record batches in one array of bytes.

    starts, ends: the positions in the array at which each batch's records begin and end.
    """

    data: Bytes
    starts: Ints
    ends: Ints


class _Records(NamedTuple):
    """For each record, the positions of its attributes and of its end."""

    attributes: Ints
    ends: Ints


class _Blobs(NamedTuple):
    """The positions and lengths of byte strings. For a null, the length is 0 and `null` is True."""

    positions: Ints
    lengths: Ints
    null: Flags

    def within(self, which: slice) -> _Blobs:
        return _Blobs(self.positions[which], self.lengths[which], self.null[which])


class _Fields(NamedTuple):
    """The fields of each record. For byte strings and headers, their positions are stored."""

    timestamp_delta: Ints
    offset_delta: Ints
    key: _Blobs
    value: _Blobs
    header_count: Ints
    headers_at: Ints
    record_ends: Ints


def decode(
    buffer: bytes | bytearray | memoryview,
    record_batches: Sequence[LocatedRecordBatch],
    *,
    start_offset: int,
    end_offset: int,
    key: bool = True,
    value: bool = True,
    headers: bool = False,
    loops: CompiledLoops | None = None,
) -> Iterator[Columns]:
    """Decode the records of `record_batches`, which are in `buffer`, to Arrow columns.

    If there are many records, they are returned in several parts.

    Takes:  record_batches, by position, none of them empty; start_offset and end_offset, outside of
            which records are left out (a range may begin and end within a batch); key, value and
            headers, whether that column is needed; loops, the compiled loops or None, which affect
            only the speed.
    Raises: KafkaError INVALID_RECORD (damage), DecompressionError.
    """
    part_bytes = PART_BYTES if loops is None else LOOPS_PART_BYTES
    for part, body in _bodies(memoryview(buffer), record_batches, part_bytes):
        if len(body.data) > LARGEST_BODY:
            raise KafkaError(
                Code.INVALID_RECORD,
                f"the batch at offset {part[-1].header.base_offset} holds more than 2 GiB",
            )
        counts = np.fromiter(
            (record_batch.header.record_count for record_batch in part), np.int64, len(part)
        )
        fields = None if loops is None else _fields_by_loop(body, counts, loops)
        if fields is None:
            records = _find_records(body, counts)
            if records is None:
                body = _rewrite(body, [record_batch.header for record_batch in part])
                records = _find_records(body, counts)
                assert records is not None, "records that were just encoded are not found"
            fields = _fields_by_arrays(body.data, records)
        columns = _columns(
            body.data,
            fields,
            part,
            counts,
            (start_offset, end_offset),
            (key, value, headers),
            loops,
        )
        if len(columns.offset):
            yield columns


def _bodies(
    view: memoryview, record_batches: Sequence[LocatedRecordBatch], part_bytes: int
) -> Iterator[tuple[Sequence[LocatedRecordBatch], _Body]]:
    """Yield the records of several batches at a time, in one array.

    Uncompressed records stay in place. Compressed batches are decompressed one after the other.
    """
    first, total = 0, 0
    parts: list[bytes] = []
    in_place = all(record_batch.header.codec == Codec.NONE for record_batch in record_batches)
    for index, (position, header) in enumerate(record_batches):
        if in_place:
            total += header.size_bytes
        else:
            parts.append(
                decompress(
                    header.codec, view[position + HEADER_SIZE : position + header.size_bytes]
                )
            )
            total += len(parts[-1])
        if total >= part_bytes or index == len(record_batches) - 1:
            part = record_batches[first : index + 1]
            yield part, _in_place(view, part) if in_place else _join(parts)
            first, total, parts = index + 1, 0, []


def _in_place(view: memoryview, record_batches: Sequence[LocatedRecordBatch]) -> _Body:
    """The records of uncompressed batches, as one array over the buffer; the headers between them
    are skipped by the starts and ends.
    """
    origin = record_batches[0].position
    starts = np.fromiter(
        (record_batch.position + HEADER_SIZE - origin for record_batch in record_batches),
        np.int64,
        len(record_batches),
    )
    ends = np.fromiter(
        (
            record_batch.position + record_batch.header.size_bytes - origin
            for record_batch in record_batches
        ),
        np.int64,
        len(record_batches),
    )
    return _Body(np.frombuffer(view[origin : origin + int(ends[-1])], np.uint8), starts, ends)


def _join(parts: Sequence[bytes]) -> _Body:
    """The decompressed records of several batches, as one array with their starts and ends."""
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(sizes)
    return _Body(np.frombuffer(b"".join(parts), np.uint8), ends - sizes, ends)


def _rewrite(body: _Body, headers: Sequence[BatchHeader]) -> _Body:
    """Decode each record individually, and encode it again with attributes 0. This is slow.

    Raises: KafkaError if a batch is damaged.
    """
    parts = []
    for header, start, end in zip(headers, body.starts.tolist(), body.ends.tolist(), strict=True):
        records = decode_records(body.data[start:end].tobytes(), header.record_count, 0, 0)
        parts.append(
            b"".join(
                encode_record(
                    NewRecord(record.key, record.value, record.timestamp, record.headers),
                    record.offset,
                    0,
                )
                for record in records
            )
        )
    return _join(parts)


# --- the starts of records


def _find_records(body: _Body, counts: Ints) -> _Records | None:
    """Find the positions of all records, in order.

    Gives:  None if the records do not match the batches' headers.
    """
    if (body.ends <= body.starts).any():
        return None
    positions, attributes, links = _candidates(body)
    # Positions increase, so a batch's candidates are adjacent. In a valid batch its first record is
    # a candidate.
    first = np.searchsorted(positions, body.starts)
    if not len(positions) or not np.array_equal(positions.take(first, mode="clip"), body.starts):
        return None
    past = np.searchsorted(positions, body.ends)
    if (
        len(positions) != int(counts.sum())
        or not np.array_equal(past - first, counts)
        or not _is_chain(positions, links, past, body.ends)
    ):
        reachable = _follow_links(positions, links, first, body.ends)
        if reachable is None:
            return None
        positions, attributes, links = positions[reachable], attributes[reachable], links[reachable]
        if not np.array_equal(
            np.searchsorted(positions, body.ends) - np.searchsorted(positions, body.starts), counts
        ):
            return None
    return _Records(attributes, links)


def _candidates(body: _Body) -> tuple[Ints, Ints, Ints]:
    """Find the positions at which a record may begin, in order.

    Gives:  for each candidate, its position, the position of its attributes, and the position at
            which the next record begins if the candidate is a record.
    """
    data = body.data
    zeros = np.flatnonzero(data == 0)
    zeros = zeros[np.searchsorted(zeros, body.starts[0] + 1) :]
    length: NDArray[Any] = data.take(zeros - 1)
    ends_varint = length < 0x80
    zeros, length = zeros[ends_varint], length[ends_varint]
    by_size: list[tuple[Ints, Ints, Ints]] = []
    # The varint ends just before the zero byte, and is read backwards: first its last byte, then
    # the bytes before it as long as their top bit is set.
    for size in range(1, LONGEST_LENGTH + 1):
        fits = ((length & 1) == 0) & (length >= SHORTEST_RECORD * 2)
        attributes = zeros[fits]
        by_size.append((attributes - size, attributes, attributes + (length[fits] >> 1)))
        zeros, length = _with_another_byte(data, zeros, length, size)
        if not len(zeros):
            break
    positions, attributes, links = _drop_unlinked(
        body, *(np.concatenate(column) for column in zip(*by_size, strict=True))
    )
    if (positions[1:] <= positions[:-1]).any():
        order = np.argsort(positions, kind="stable")
        positions, attributes, links = positions[order], attributes[order], links[order]
    return positions, attributes, links


def _with_another_byte(
    data: Bytes, zeros: Ints, length: NDArray[Any], size: int
) -> tuple[Ints, Ints]:
    """Return the candidates whose varint may begin one byte earlier, extended by that byte."""
    place = zeros - size - 1
    before = data.take(place, mode="clip")
    more = (before >= 0x80) & (place >= 0)
    return zeros[more], (length[more].astype(np.int64) << 7) | (before[more] & 0x7F)


def _drop_unlinked(
    body: _Body, positions: Ints, attributes: Ints, links: Ints
) -> tuple[Ints, Ints, Ints]:
    """Keep the candidates that another one links to, and the first ones of the batches.

    A record is the first of its batch, or begins at the end of the previous record. A wrong
    candidate is a zero byte in a value. It links to a position that is no candidate, and almost no
    candidate links to it, so that after two rounds hardly any wrong candidate is left. The caller
    checks that the remaining candidates are a chain.
    """
    mark = np.empty(len(body.data) + 1, np.bool_)
    for _ in range(2):
        mark.fill(False)
        mark[body.starts] = True
        mark[np.minimum(links, len(body.data))] = True
        kept = mark.take(positions)
        if kept.all():
            break
        positions, attributes, links = positions[kept], attributes[kept], links[kept]
    return positions, attributes, links


def _is_chain(positions: Ints, links: Ints, past: Ints, ends: Ints) -> bool:
    """Whether each candidate links to the next one, and a batch's last one to the batch's end."""
    if not np.array_equal(links[past - 1], ends):
        return False
    right = links[:-1] == positions[1:]
    right[past[:-1] - 1] = True  # the last record of a batch does not link to the first of the next
    return bool(right.all())


def _follow_links(positions: Ints, links: Ints, first: Ints, ends: Ints) -> Ints | None:
    """Follow the links from the first candidate of each batch.

    Gives:  the indices of the candidates that are reached, in order; None if a chain does not end
            at the end of its batch.
    """
    count = len(positions)
    record_batch = np.searchsorted(ends, positions, side="right")
    batch_end = ends[np.minimum(record_batch, len(ends) - 1)]
    index = np.searchsorted(positions, links)
    is_record = positions[np.minimum(index, count - 1)] == links
    # Every chain ends in one of two extra indices. It ends in `done` if it ends at the end of its
    # own batch, and in `lost` otherwise.
    done, lost = count, count + 1
    jump = np.empty(count + 2, np.int64)
    jump[:count] = np.where(is_record & (links < batch_end), index, lost)
    jump[:count][links == batch_end] = done
    jump[done], jump[lost] = done, lost
    reachable = first
    # `reachable` has the first 2^k records of each chain; `jump` leads 2^k records further
    while True:
        following = jump[reachable]
        if (following == lost).any():
            return None
        following = following[following != done]
        if not len(following):
            return np.sort(reachable)
        reachable = np.concatenate((reachable, following))
        jump = jump[jump]


# --- from positions to columns


def _varints(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """Read the unsigned varint at each position. Gives: the numbers, and the positions after them.

    For a position outside the data, the last byte is read.
    """
    byte = data.take(positions, mode="clip")
    after = positions + 1
    more = byte >= 0x80
    if not more.any():
        return byte.astype(np.int64), after
    second = data.take(after, mode="clip")
    value = (byte & 0x7F).astype(np.int64)
    value |= (((second & 0x7F) * more).astype(np.int64)) << 7
    after += more
    still = np.flatnonzero(more & (second >= 0x80))
    for size in range(2, LONGEST_VARINT):
        if not len(still):
            return value, after
        byte = data.take(after[still], mode="clip")
        value[still] |= (byte & 0x7F).astype(np.int64) << (7 * size)
        after[still] += 1
        still = still[byte >= 0x80]
    if len(still):
        raise KafkaError(Code.INVALID_RECORD, "a varint is longer than ten bytes")
    return value, after


def _undo_zigzag(value: Ints) -> Ints:
    """Convert zigzag-encoded numbers to the signed numbers that they represent.

    The shift has to fill with zeros, since values of ten bytes use the sign bit as well.
    """
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1)


def _blobs(data: Bytes, positions: Ints) -> tuple[_Blobs, Ints]:
    """Find the length-prefixed byte string at each position. Gives: also the positions after it."""
    length, positions = _varints(data, positions)
    null = (length & 1).astype(np.bool_)
    length >>= 1
    length[null] = 0
    after = positions + length
    if int(after.max(initial=0)) > len(data) or int(length.min(initial=0)) < 0:
        raise KafkaError(Code.INVALID_RECORD, "a key, value or header is longer than its batch")
    return _Blobs(positions, length, null), after


def _fields_by_loop(body: _Body, counts: Ints, loops: CompiledLoops) -> _Fields | None:
    """Find the fields of all records with the compiled loop.

    Gives:  None if the loop rejects a record.
    """
    if ((counts <= 0) | (counts > (body.ends - body.starts) // (1 + SHORTEST_RECORD))).any():
        # This is checked before tables are allocated, since the number of records in a header may
        # be wrong because of damage.
        return None
    total = int(counts.sum())
    table, null = np.empty((record_loops.FIELDS, total), np.int64), np.empty((2, total), np.bool_)
    if not loops.parse(body.data, body.starts, body.ends, counts, table, null):
        return None
    return _Fields(
        table[record_loops.TIMESTAMP_DELTA],
        table[record_loops.OFFSET_DELTA],
        _Blobs(table[record_loops.KEY_AT], table[record_loops.KEY_SIZE], null[record_loops.KEY]),
        _Blobs(
            table[record_loops.VALUE_AT], table[record_loops.VALUE_SIZE], null[record_loops.VALUE]
        ),
        table[record_loops.HEADER_COUNT],
        table[record_loops.HEADERS_AT],
        table[record_loops.RECORD_END],
    )


def _fields_by_arrays(data: Bytes, records: _Records) -> _Fields:
    """Find the fields of all records by array arithmetic, one field of all records at a time.
    Raises: KafkaError INVALID_RECORD.
    """
    timestamp_delta, position = _varints(data, records.attributes + 1)
    offset_delta, position = _varints(data, position)
    key, position = _blobs(data, position)
    value, position = _blobs(data, position)
    header_count, position = _varints(data, position)
    if (header_count & 1).any():
        raise KafkaError(Code.INVALID_RECORD, "a record has a negative number of headers")
    header_count >>= 1
    # A header has at least two bytes. The bytes are halved, as twice the count may exceed an int64.
    if ((header_count < 0) | (header_count > (records.ends - position) >> 1)).any():
        raise KafkaError(Code.INVALID_RECORD, "a record is not as long as it says")
    return _Fields(
        _undo_zigzag(timestamp_delta),
        _undo_zigzag(offset_delta),
        key,
        value,
        header_count,
        position,
        records.ends,
    )


def _columns(
    data: Bytes,
    fields: _Fields,
    record_batches: Sequence[LocatedRecordBatch],
    counts: Ints,
    offsets: tuple[int, int],
    wanted_columns: tuple[bool, bool, bool],
    loops: CompiledLoops | None,
) -> Columns:
    """The wanted columns of the records between the offsets. With LogAppendTime the timestamp is
    that of the batch.
    """
    headers = [record_batch.header for record_batch in record_batches]
    offset = _of_each_batch([header.base_offset for header in headers], counts)
    offset = offset + fields.offset_delta
    timestamp = _of_each_batch([header.base_timestamp for header in headers], counts)
    timestamp = timestamp + fields.timestamp_delta
    timestamp_type: NDArray[np.int32] | None = None
    if any(header.is_log_append_time for header in headers):
        timestamp_type = np.repeat(
            np.array([header.is_log_append_time for header in headers], np.int32), counts
        )
        appended = np.repeat([header.max_timestamp for header in headers], counts)
        timestamp = np.where(timestamp_type == LOG_APPEND_TIME, appended, timestamp)

    _, _, key, value, header_count, headers_at, record_ends = fields
    if int(offset[0]) < offsets[0] or int(offset[-1]) >= offsets[1]:
        keep = slice(*np.searchsorted(offset, offsets).tolist())
        offset, timestamp = offset[keep], timestamp[keep]
        timestamp_type = None if timestamp_type is None else timestamp_type[keep]
        key, value, header_count = key.within(keep), value.within(keep), header_count[keep]
        headers_at, record_ends = headers_at[keep], record_ends[keep]

    return Columns(
        offset,
        timestamp,
        timestamp_type,
        _copy_strings(data, key, pa.binary(), loops) if wanted_columns[0] else None,
        _copy_strings(data, value, pa.binary(), loops) if wanted_columns[1] else None,
        _headers(data, header_count, headers_at, record_ends, loops) if wanted_columns[2] else None,
    )


def _of_each_batch(numbers: list[int], counts: Ints) -> Ints | int:
    """Repeat the number of each batch for each of its records.

    For a single batch, return the number itself.
    """
    return numbers[0] if len(numbers) == 1 else np.repeat(numbers, counts)


def _copy_strings(
    data: Bytes, blobs: _Blobs, kind: pa.DataType, loops: CompiledLoops | None
) -> pa.Array:
    """Make an Arrow array of the byte strings, copied from `data` in one step."""
    count = len(blobs.positions)
    if not count:
        return pa.array([], kind)
    buffers = (
        _gather_by_take(data, blobs, kind) if loops is None else _gather_by_loop(data, blobs, loops)
    )
    valid = pa.py_buffer(np.packbits(~blobs.null, bitorder="little")) if blobs.null.any() else None
    return pa.Array.from_buffers(kind, count, [valid, *buffers])


def _gather_by_take(data: Bytes, blobs: _Blobs, kind: pa.DataType) -> list[pa.Buffer]:
    """Make the Arrow buffers of byte strings with one `take`.

    `data` is treated as an array of twice as many strings: the wanted ones, and the gaps between
    them. Every second string is taken.
    """
    count = len(blobs.positions)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = blobs.positions
    edges[1::2] = blobs.positions + blobs.lengths
    cut = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    buffers: list[pa.Buffer] = cut.take(
        pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))
    ).buffers()
    return buffers[1:]


def _gather_by_loop(data: Bytes, blobs: _Blobs, loops: CompiledLoops) -> list[pa.Buffer]:
    """The Arrow buffers of byte strings, copied by the compiled loop."""
    edges = np.zeros(len(blobs.positions) + 1, np.int32)
    np.cumsum(blobs.lengths, out=edges[1:])
    out = np.empty(int(edges[-1]), np.uint8)
    is_whole = loops.gather(data, blobs.positions, edges, out)
    assert is_whole, "byte strings that were found lie outside of the data"
    return [pa.py_buffer(edges), pa.py_buffer(out)]


def _headers(
    data: Bytes, counts: Ints, positions: Ints, record_ends: Ints, loops: CompiledLoops | None
) -> pa.Array:
    """Make the headers column. For a record without headers it has null, as in Spark's own Kafka
    source.
    """
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    blobs = None if loops is None else _headers_by_loop(data, counts, positions, record_ends, loops)
    keys, values = blobs or _headers_by_arrays(data, counts, positions, record_ends, edges)
    structs = pa.StructArray.from_arrays(
        [
            _copy_strings(data, keys, pa.string(), loops),
            _copy_strings(data, values, pa.binary(), loops),
        ],
        fields=list(HEADERS_TYPE.value_type),
    )
    valid = None if counts.all() else pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(
        HEADERS_TYPE, len(counts), [valid, pa.py_buffer(edges)], children=[structs]
    )


def _headers_by_loop(
    data: Bytes, counts: Ints, positions: Ints, record_ends: Ints, loops: CompiledLoops
) -> tuple[_Blobs, _Blobs] | None:
    """Find the headers of all records with the compiled loop.

    Gives:  None if the loop rejects a record.
    """
    total = int(counts.sum())
    keys, values = np.empty((2, total), np.int64), np.empty((2, total), np.int64)
    null = np.empty(total, np.bool_)
    if not loops.headers(data, counts, positions, record_ends, keys, values, null):
        return None
    return _Blobs(keys[0], keys[1], np.zeros(total, np.bool_)), _Blobs(values[0], values[1], null)


def _headers_by_arrays(
    data: Bytes, counts: Ints, positions: Ints, record_ends: Ints, edges: NDArray[np.int32]
) -> tuple[_Blobs, _Blobs]:
    """The keys and values of all headers, found by array arithmetic: first the first header of each
    record, then the second one, and so on. Raises: KafkaError INVALID_RECORD.
    """
    total = int(edges[-1])
    keys, values = (
        _Blobs(np.zeros(total, np.int64), np.zeros(total, np.int64), np.zeros(total, np.bool_))
        for _ in range(2)
    )
    which, nth = np.flatnonzero(counts), 0
    position = positions[which]
    while len(which):  # `which` contains the records that have more than `nth` headers
        slots = edges[which] + nth
        for blobs in (keys, values):
            nth_blobs, position = _blobs(data, position)
            blobs.positions[slots], blobs.lengths[slots], blobs.null[slots] = nth_blobs
        if (position > record_ends[which]).any():
            raise KafkaError(Code.INVALID_RECORD, "a record is not as long as it says")
        nth += 1
        more = counts[which] > nth
        which, position = which[more], position[more]
    if keys.null.any():
        raise KafkaError(Code.INVALID_RECORD, "a record's header has no key")
    return keys, values
