"""Record batches -> Arrow columns, without a Python step per record.

What costs time is to find where each record begins: a record's length stands in front of it, so the places form a chain. It is followed for
all records of a fetch at once:

1. *Candidates.* A record is `length, attributes, …`; attributes are 0 in every version of the format so far. So each zero byte that follows
   an even varint of at least MINIMUM_LENGTH (zigzag: even is not negative) may be the attributes of a record; where its length says that the
   next record begins is its link. JSON and text hold hardly any other zero byte; what is not a record is sorted out by step 2.
2. *Reach.* From the first record of each batch the links are followed by pointer doubling: log2(records per batch) passes over arrays. The
   common case, where every candidate links to the one after it, is recognised in one comparison.
3. *Check.* Each batch must yield as many records as its header says, and its last one must end where the batch ends.

From there on every varint column is read by array arithmetic, and keys, values and headers are taken out of the bytes by one Arrow `take`
each. A batch that step 3 refuses (attributes not 0, or damage) is read once more record by record (`protocol.records`), which either
succeeds or says what is wrong.

    a record: varint length | int8 attributes | varint timestamp_delta | varint offset_delta | varint key length, key
              | varint value length, value | varint header count | per header: varint length, key, varint length, value
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from protocol.compression import Codec, decompress
from protocol.errors import Code, KafkaError
from protocol.records import HEADER_SIZE, NewRecord, decode_records, encode_record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from protocol.records import BatchHeader
    from spark_connector.batches import Batch

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

MINIMUM_LENGTH = 6  # attributes, two deltas, two lengths and the header count at one byte each
LONGEST_VARINT = 5  # of a length: an int32
PART_BYTES = 32 << 20  # decompressed bytes that make one part
PADDING = 16  # zero bytes after the records, so that a varint that is cut off ends in them and not outside of the array

CREATE_TIME, LOG_APPEND_TIME = 0, 1

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


class Columns(NamedTuple):
    """The columns of some batches, in log order. A column that was not asked for is None."""

    offset: Ints
    timestamp_ms: Ints
    timestamp_type: NDArray[np.int32]
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None


class _Body(NamedTuple):
    """The records of all batches in one array of bytes, and where each batch's records begin and end in it."""

    data: Bytes
    starts: Ints
    ends: Ints


def decode(
    buffer: bytes | bytearray | memoryview,
    batches: Sequence[Batch],
    *,
    start_offset: int,
    end_offset: int,
    key: bool = True,
    value: bool = True,
    headers: bool = False,
) -> Iterator[Columns]:
    """The records of `batches`, which lie in `buffer`, as Arrow columns; in several parts where they decompress to very much.

    Takes:  batches, none of them empty, by position; start_offset and end_offset, outside of which records are left out (a range may begin
            and end within a batch); key, value, headers, whether that column is needed.
    Raises: KafkaError INVALID_RECORD (damage), DecompressionError.
    """
    for part, body in _bodies(memoryview(buffer), batches):
        counts = np.fromiter((batch.header.record_count for batch in part), np.int64, len(part))
        starts = _record_starts(body, counts)
        if starts is None:
            body = _rewritten(body, [batch.header for batch in part])
            starts = _record_starts(body, counts)
            assert starts is not None, "records that were just encoded are not found"
        columns = _columns(body.data, starts, part, counts, (start_offset, end_offset), (key, value, headers))
        if len(columns.offset):
            yield columns


def _bodies(view: memoryview, batches: Sequence[Batch]) -> Iterator[tuple[Sequence[Batch], _Body]]:
    """Bring the records together: in place where nothing is compressed, else decompressed one after the other."""
    if not batches:
        return
    if all(batch.header.codec == Codec.NONE for batch in batches):
        starts = np.fromiter((batch.position + HEADER_SIZE for batch in batches), np.int64, len(batches))
        ends = np.fromiter((batch.position + batch.header.size_bytes for batch in batches), np.int64, len(batches))
        size = int(ends[-1])
        data = np.frombuffer(view, np.uint8)
        if size + PADDING > len(data):
            data = np.concatenate((data[:size], np.zeros(PADDING, np.uint8)))
        yield batches, _Body(data, starts, ends)
        return
    parts: list[bytes] = []
    first, total = 0, 0
    for index, (position, header) in enumerate(batches):
        parts.append(decompress(header.codec, view[position + HEADER_SIZE : position + header.size_bytes]))
        total += len(parts[-1])
        if total >= PART_BYTES:
            yield batches[first : index + 1], _joined(parts)
            parts, first, total = [], index + 1, 0
    if parts:
        yield batches[first:], _joined(parts)


def _joined(parts: list[bytes]) -> _Body:
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(sizes)
    return _Body(np.frombuffer(b"".join((*parts, bytes(PADDING))), np.uint8), ends - sizes, ends)


def _rewritten(body: _Body, headers: Sequence[BatchHeader]) -> _Body:
    """The slow way: each record is read by itself and written again with attributes 0. Raises KafkaError where a batch is damaged."""
    parts = []
    for header, start, end in zip(headers, body.starts.tolist(), body.ends.tolist(), strict=True):
        records = decode_records(body.data[start:end].tobytes(), header.record_count, 0, 0)
        parts.append(
            b"".join(
                encode_record(NewRecord(record.key, record.value, record.timestamp, record.headers), record.offset, 0)
                for record in records
            )
        )
    return _joined(parts)


# --- where the records begin


def _record_starts(body: _Body, counts: Ints) -> Ints | None:
    """The position of each record's length, of all batches in order; None where that is not what the headers say."""
    positions, links = _candidates(body)
    # Positions are increasing, so a batch's candidates are a run of them. A batch's first record is a candidate if anything is right.
    first = np.searchsorted(positions, body.starts)
    if not len(positions) or not np.array_equal(positions[np.minimum(first, len(positions) - 1)], body.starts):
        return None
    past = np.searchsorted(positions, body.ends)
    if np.array_equal(past - first, counts) and _each_links_to_the_next(positions, links, first, past, body.ends):
        return positions if len(positions) == int(counts.sum()) else positions[_runs(first, counts)]
    reached = _reached(positions, links, first, body.ends)
    if reached is None:
        return None
    starts = positions[reached]
    found = np.searchsorted(starts, body.ends) - np.searchsorted(starts, body.starts)
    return starts if np.array_equal(found, counts) else None


def _candidates(body: _Body) -> tuple[Ints, Ints]:
    """Places where a record may begin, in order, and where the one after it would then begin."""
    data = body.data
    zeros = np.flatnonzero(data[: int(body.ends[-1])] == 0)
    zeros = zeros[zeros > int(body.starts[0])]
    last_byte = data[zeros - 1]
    zeros, last_byte = zeros[last_byte < 0x80], last_byte[last_byte < 0x80]
    found: list[tuple[Ints, Ints]] = []
    # `size` bytes before the zero byte: all but the last have their top bit set. The value is built from the last byte downwards.
    length = last_byte.astype(np.int64)
    for size in range(1, LONGEST_VARINT + 1):
        fits = (length & 1 == 0) & (length >= MINIMUM_LENGTH * 2)
        found.append((zeros[fits] - size, zeros[fits] + (length[fits] >> 1)))
        inside = zeros > size
        zeros, length = zeros[inside], length[inside]
        before = data[zeros - size - 1]
        more = before >= 0x80
        zeros, length = zeros[more], (length[more] << 7) | (before[more] & 0x7F)
        if not len(zeros):
            break
    positions = np.concatenate([position for position, _ in found])
    links = np.concatenate([link for _, link in found])
    if len(found) > 1:
        order = np.argsort(positions, kind="stable")
        positions, links = positions[order], links[order]
    return positions, links


def _each_links_to_the_next(positions: Ints, links: Ints, first: Ints, past: Ints, ends: Ints) -> bool:
    """Whether each batch's candidates are its records: one leads to the next and the last to the batch's end."""
    if not np.array_equal(links[past - 1], ends):
        return False
    right = np.empty(len(links), np.bool_)
    right[:-1] = links[:-1] == positions[1:]
    right[-1] = True
    right[past - 1] = True
    if len(first) > 1:  # what lies between two batches (a header's bytes) is nobody's record
        outside = np.ones(len(links), np.bool_)
        outside[_runs(first, past - first)] = False
        right |= outside
    return bool(right.all())


def _runs(starts: Ints, lengths: Ints) -> Ints:
    """start, start + 1, … of each run, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1])) + np.repeat(starts - (ends - lengths), lengths)


def _reached(positions: Ints, links: Ints, first: Ints, ends: Ints) -> Ints | None:
    """Indices, in order, of the candidates that the first ones lead to; None where a chain ends outside of its batch's end."""
    count = len(positions)
    batch = np.searchsorted(ends, positions, side="right")
    batch_end = ends[np.minimum(batch, len(ends) - 1)]
    index = np.searchsorted(positions, links)
    is_record = positions[np.minimum(index, count - 1)] == links
    # Two places outside of the candidates swallow every chain: `done` at the end of its own batch, `lost` anywhere else.
    done, lost = count, count + 1
    jump = np.empty(count + 2, np.int64)
    jump[:count] = np.where(is_record & (links < batch_end), index, lost)
    jump[:count][links == batch_end] = done
    jump[done], jump[lost] = done, lost
    reached = first
    while True:  # `reached` holds the first 2^k of each chain, `jump` leads 2^k further
        following = jump[reached]
        if (following == lost).any():
            return None
        following = following[following != done]
        if not len(following):
            return np.sort(reached)
        reached = np.concatenate((reached, following))
        jump = jump[jump]


# --- from places to columns


def _varints(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """The unsigned varint at each position, and the position after it."""
    byte = data[positions]
    value, after = byte.astype(np.int64), positions + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    if len(more):
        value[more] &= 0x7F
    while len(more):
        if shift > 63:
            raise KafkaError(Code.INVALID_RECORD, "a varint is longer than ten bytes")
        byte = data[np.minimum(after[more], len(data) - 1)]
        value[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    return value, after


def _signed(value: Ints) -> Ints:
    """Undo zigzag. The shift fills with zeros: ten-byte values use the sign bit too."""
    return (value.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(value & 1)


class _Blobs(NamedTuple):
    """Where byte strings lie; length 0 and null True where there is none."""

    positions: Ints
    lengths: Ints
    null: Flags

    def __getitem__(self, which):  # type: ignore[no-untyped-def, override]
        return _Blobs(self.positions[which], self.lengths[which], self.null[which])


def _blobs(data: Bytes, positions: Ints) -> tuple[_Blobs, Ints]:
    """The byte string with its length in front of it at each position, and the position after it."""
    length, positions = _varints(data, positions)
    null = (length & 1).astype(np.bool_)
    length >>= 1
    length[null] = 0
    if len(length) and int((positions + length).max()) > len(data):
        raise KafkaError(Code.INVALID_RECORD, "a key, value or header is longer than its batch")
    return _Blobs(positions, length, null), positions + length


def _columns(
    data: Bytes,
    starts: Ints,
    batches: Sequence[Batch],
    counts: Ints,
    offsets: tuple[int, int],
    wanted: tuple[bool, bool, bool],
) -> Columns:
    length, position = _varints(data, starts)
    record_ends = position + (length >> 1)
    timestamp_delta, position = _varints(data, position + 1)
    offset_delta, position = _varints(data, position)
    key, position = _blobs(data, position)
    value, position = _blobs(data, position)
    header_count, position = _varints(data, position)
    header_count >>= 1
    if (position + 2 * header_count > record_ends).any():
        raise KafkaError(Code.INVALID_RECORD, "a record is not as long as it says")

    headers = [batch.header for batch in batches]
    offset = np.repeat([header.base_offset for header in headers], counts) + _signed(offset_delta)
    timestamp = np.repeat([header.base_timestamp for header in headers], counts) + _signed(timestamp_delta)
    timestamp_type = np.repeat(np.array([header.is_log_append_time for header in headers], np.int32), counts)
    if timestamp_type.any():
        appended = np.repeat([header.max_timestamp for header in headers], counts)
        timestamp = np.where(timestamp_type == LOG_APPEND_TIME, appended, timestamp)

    if int(offset[0]) < offsets[0] or int(offset[-1]) >= offsets[1]:
        keep = slice(*np.searchsorted(offset, offsets).tolist())
        offset, timestamp, timestamp_type = offset[keep], timestamp[keep], timestamp_type[keep]
        key, value, header_count, position = key[keep], value[keep], header_count[keep], position[keep]
        record_ends = record_ends[keep]

    return Columns(
        offset,
        timestamp,
        timestamp_type,
        _taken(data, key, pa.binary()) if wanted[0] else None,
        _taken(data, value, pa.binary()) if wanted[1] else None,
        _headers(data, header_count, position, record_ends) if wanted[2] else None,
    )


def _taken(data: Bytes, blobs: _Blobs, kind: pa.DataType) -> pa.Array:
    """An Arrow array of the byte strings, copied out of `data` in one go.

    `data` is looked at as an array of twice as many strings, wanted ones and the gaps between them, of which every second one is taken.
    """
    count = len(blobs.positions)
    if not count:
        return pa.array([], kind)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = blobs.positions
    edges[1::2] = blobs.positions + blobs.lengths
    cut = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    taken = cut.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    if not blobs.null.any():
        return taken
    valid = pa.py_buffer(np.packbits(~blobs.null, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [valid, *taken.buffers()[1:]])


def _headers(data: Bytes, counts: Ints, position: Ints, record_ends: Ints) -> pa.Array:
    """The headers column; a record without headers has null there, as with Spark's own Kafka source."""
    total = int(counts.sum())
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    keys, values = (_Blobs(np.zeros(total, np.int64), np.zeros(total, np.int64), np.zeros(total, np.bool_)) for _ in range(2))
    which, nth = np.flatnonzero(counts), 0
    position = position[which]
    while len(which):  # the nth header of every record that has so many
        slots = edges[which] + nth
        for blobs in (keys, values):
            found, position = _blobs(data, position)
            blobs.positions[slots], blobs.lengths[slots], blobs.null[slots] = found
        if (position > record_ends[which]).any():
            raise KafkaError(Code.INVALID_RECORD, "a record is not as long as it says")
        nth += 1
        more = counts[which] > nth
        which, position = which[more], position[more]
    if keys.null.any():
        raise KafkaError(Code.INVALID_RECORD, "a record's header has no key")
    structs = pa.StructArray.from_arrays(
        [_taken(data, keys, pa.string()), _taken(data, values, pa.binary())], fields=list(HEADERS_TYPE.value_type)
    )
    valid = None if counts.all() else pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(HEADERS_TYPE, len(counts), [valid, pa.py_buffer(edges)], children=[structs])
