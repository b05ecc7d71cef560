"""The loops that encode records, which numba compiles (numba_loops.py). As plain Python they do the
same, slowly.

The positions come from Arrow and from the encoder itself. Nevertheless each copy is checked against
the arrays' lengths, since compiled code that writes outside an array damages memory and raises no
error. If a loop rejects rows, array arithmetic encodes them (encoding.py), with the same result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from barnabas.client.murmur2 import MASK, MULTIPLIER, SEED, SHIFT
from barnabas.spark_connector.arrow.array_types import Bytes, Edges, Ints, NDArray

# The maximum size of a record's varints that are not part of its content: length, timestamp delta,
# offset delta.
MOST_BESIDES_CONTENT = 5 + 10 + 5
NULL = 1  # the length -1, zigzag-encoded


def varint_size(value: Any) -> Any:
    """Return the size of an unsigned varint in bytes."""
    size = np.int64(1)
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


def put_varint(out: Bytes, position: Any, value: Any) -> Any:
    """Write an unsigned varint. Gives: the position after it."""
    while value >= 0x80:
        out[position] = np.uint8((value & 0x7F) | 0x80)
        value >>= 7
        position += 1
    out[position] = np.uint8(value)
    return position + 1


def put_bytes(out: Bytes, position: Any, data: Bytes, start: Any, size: Any) -> Any:
    """Copy bytes, after checking the bounds of both arrays.

    The indices are unsigned. Signed indices may count from the end, so the compiler would copy byte
    by byte.

    Gives:  the position after the copied bytes, or -1 if they are out of bounds.
    """
    if start < 0 or size < 0 or start > len(data) - size or position > len(out) - size:
        return np.int64(-1)
    source, target = np.uint64(start), np.uint64(position)
    for place in range(np.uint64(size)):
        out[target + place] = data[source + place]
    return position + size


def write_records(
    order: Ints,
    ends: Ints,
    timestamps: Ints,
    content_sizes: Ints,
    key_lengths: NDArray[np.uint32],
    key_edges: Edges,
    key_data: Bytes,
    value_lengths: NDArray[np.uint32],
    value_edges: Edges,
    value_data: Bytes,
    header_edges: Edges,
    header_data: Bytes,
    out: Bytes,
    body_ends: Ints,
) -> bool:
    """Write the records of some record batches, one after the other.

    This is one long function with many parameters, since numba compiles it as a single loop over
    plain arrays.

    Takes:  order, the rows in the order of their batches; ends, the end of each batch in that
            order; lengths, zigzag-encoded; header_edges, empty if no row has headers; out and
            body_ends, to be filled with the records, and with the end of each batch's records.
    Gives:  False if the rows cannot be written.
    """
    count = len(timestamps)
    if (
        len(content_sizes) != count
        or len(key_lengths) != count
        or len(value_lengths) != count
        or len(key_edges) != count + 1
        or len(value_edges) != count + 1
        or (len(header_edges) != 0 and len(header_edges) != count + 1)
        or len(body_ends) != len(ends)
    ):
        return False
    position, start = np.int64(0), np.int64(0)
    for nth in range(len(ends)):
        end = ends[nth]
        if end <= start or end > len(order):
            return False
        first = order[start]
        if first < 0 or first >= count:
            return False
        for index in range(start, end):
            row = order[index]
            if row < 0 or row >= count:
                return False
            delta = timestamps[row] - timestamps[first]
            timestamp = (delta << 1) ^ (delta >> 63)
            offset = (index - start) << 1
            if timestamp < 0:  # the difference of the timestamps exceeds 62 bits
                return False
            size = content_sizes[row] + varint_size(timestamp) + varint_size(offset)
            if position > len(out) - size - MOST_BESIDES_CONTENT:
                return False
            position = put_varint(out, position, size << 1)
            record_end = position + size
            out[position] = 0
            position = put_varint(out, position + 1, timestamp)
            position = put_varint(out, position, offset)
            length = np.int64(key_lengths[row])
            position = put_varint(out, position, length)
            if length != NULL:
                position = put_bytes(out, position, key_data, np.int64(key_edges[row]), length >> 1)
                if position < 0:
                    return False
            if position > len(out) - MOST_BESIDES_CONTENT:
                return False
            length = np.int64(value_lengths[row])
            position = put_varint(out, position, length)
            if length != NULL:
                position = put_bytes(
                    out, position, value_data, np.int64(value_edges[row]), length >> 1
                )
                if position < 0:
                    return False
            if len(header_edges):
                position = put_bytes(
                    out,
                    position,
                    header_data,
                    np.int64(header_edges[row]),
                    np.int64(header_edges[row + 1]) - np.int64(header_edges[row]),
                )
                if position < 0:
                    return False
            else:
                if position >= len(out):
                    return False
                out[position] = 0
                position += 1
            if position != record_end:
                return False
        body_ends[nth] = position
        start = end
    return True


def murmur2(data: Bytes, edges: Edges, hashes: NDArray[np.uint32]) -> bool:
    """Hash each key (as murmur2.py, but with 64-bit numbers). Gives: False if a key is outside the
    data.
    """
    for row in range(len(hashes)):
        start, end = np.int64(edges[row]), np.int64(edges[row + 1])
        if start < 0 or end < start or end > len(data):
            return False
        size = end - start
        state = np.int64(SEED) ^ size
        words_end = start + (size & ~3)
        for at in range(start, words_end, 4):
            word = (
                np.int64(data[at])
                | np.int64(data[at + 1]) << 8
                | np.int64(data[at + 2]) << 16
                | np.int64(data[at + 3]) << 24
            )
            word = (word * MULTIPLIER) & MASK
            word = ((word ^ (word >> SHIFT)) * MULTIPLIER) & MASK
            state = ((state * MULTIPLIER) & MASK) ^ word
        if size & 3:
            for at in range(words_end, end):
                state ^= np.int64(data[at]) << (8 * (at - words_end))
            state = (state * MULTIPLIER) & MASK
        state = ((state ^ (state >> 13)) * MULTIPLIER) & MASK
        hashes[row] = state ^ (state >> 15)
    return True
