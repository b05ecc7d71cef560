"""The loops over records that numba compiles (numba_loops.py), and their invariants. As plain
Python they do the same, slowly.

The loops read data that any client may have written, and compiled code that reads outside an array
crashes the process and raises no error. Therefore a varint is read up to a given end and never
beyond, a length only moves the position, and every position is compared with its record's end
before it is used.

The loops accept only the usual valid encoding. Data that they reject are decoded with arrays, which
either succeeds or reports the error. Errors are thus reported in one place. Data that the loops
accept must give the same result as the other decoder.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from barnabas.spark_connector.arrow.array_types import Ints, NDArray

# A record has at least one byte each for the attributes, two deltas, two lengths and the header
# count. The record's own length is not included.
SHORTEST_RECORD = 6
LONGEST_LENGTH = 5  # the maximum number of bytes of a varint that encodes an int32
BITS_OF_A_VARINT = (
    # nine bytes have 63 bits; a tenth byte has the sign bit, which occurs only in a damaged record
    63
)

# The rows of the table that `parse` fills. Each record is a column of this table.
(
    TIMESTAMP_DELTA,
    OFFSET_DELTA,
    KEY_AT,
    KEY_SIZE,
    VALUE_AT,
    VALUE_SIZE,
    HEADER_COUNT,
    HEADERS_AT,
    RECORD_END,
) = range(9)
FIELDS = 9
KEY, VALUE = 0, 1  # the rows of the table of nulls


def varint(data: NDArray[np.uint8], position: Any, end: Any) -> tuple[Any, Any]:
    """Read the unsigned varint at `position`. Gives: the number, and the position after it.

    If the varint is too long or does not end before `end`, the returned position is beyond `end`.

    No byte is read at a position beyond `end`, so a caller that reads several varints has to
    check only the last position.
    """
    value = np.int64(0)
    shift = np.int64(0)
    while position < end and shift < BITS_OF_A_VARINT:
        byte = np.int64(data[position])
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return np.int64(0), end + 1


def parse(
    data: NDArray[np.uint8],
    starts: Ints,
    ends: Ints,
    counts: Ints,
    fields: Ints,
    null: NDArray[np.bool_],
) -> bool:
    """Find the parts of each record of some batches. Gives: False if a record is rejected.

    This is one long function, since calls would have to be inlined when numba compiles it.

    Takes:  starts and ends, between which each batch's records are in `data`; counts, the number of
            records of each batch; fields and null, to be filled, with a column for each record.
    After:  if the result is True, every position is within its record; the length of a null is 0.
    """
    row = 0
    for record_batch in range(len(starts)):
        position, end = starts[record_batch], ends[record_batch]
        for _ in range(counts[record_batch]):
            before = position
            length, position = varint(data, position, end)
            record_end = position + (length >> 1)
            if (
                length & 1
                or length < 2 * SHORTEST_RECORD
                or position - before > LONGEST_LENGTH
                or record_end > end
                or data[position] != 0
            ):
                return False
            timestamp_delta, position = varint(data, position + 1, record_end)
            offset_delta, position = varint(data, position, record_end)
            key, position = varint(data, position, record_end)
            fields[KEY_AT, row] = position
            if key & 1:
                key = np.int64(0)
                null[KEY, row] = True
            else:
                key >>= 1
                null[KEY, row] = False
            position += key
            value, position = varint(data, position, record_end)
            fields[VALUE_AT, row] = position
            if value & 1:
                value = np.int64(0)
                null[VALUE, row] = True
            else:
                value >>= 1
                null[VALUE, row] = False
            position += value
            headers, position = varint(data, position, record_end)
            # A header has at least two bytes. If the position is already beyond the record's end,
            # the number of remaining bytes is negative, and the record is rejected as well.
            if headers & 1 or headers >> 1 > (record_end - position) >> 1:
                return False
            fields[TIMESTAMP_DELTA, row] = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
            fields[OFFSET_DELTA, row] = (offset_delta >> 1) ^ -(offset_delta & 1)
            fields[KEY_SIZE, row] = key
            fields[VALUE_SIZE, row] = value
            fields[HEADER_COUNT, row] = headers >> 1
            fields[HEADERS_AT, row] = position
            fields[RECORD_END, row] = record_end
            position = record_end
            row += 1
        if position != end:
            return False
    return True


def headers(
    data: NDArray[np.uint8],
    counts: Ints,
    positions: Ints,
    record_ends: Ints,
    keys: Ints,
    values: Ints,
    null: NDArray[np.bool_],
) -> bool:
    """Find the headers of each record. Gives: False if a header is rejected.

    Takes:  counts, positions and record_ends, from `parse`; keys and values, to be filled with
            positions (row 0) and lengths (row 1); null, to be filled for the values. Each of keys,
            values and null has as many columns as there are headers.
    """
    slot = 0
    for row in range(len(counts)):
        position, end = positions[row], record_ends[row]
        for _ in range(counts[row]):
            key, position = varint(data, position, end)
            if key & 1:
                return False
            keys[0, slot] = position
            keys[1, slot] = key >> 1
            position += key >> 1
            value, position = varint(data, position, end)
            values[0, slot] = position
            if value & 1:
                value = np.int64(0)
                null[slot] = True
            else:
                value >>= 1
                null[slot] = False
            values[1, slot] = value
            position += value
            if position > end:
                return False
            slot += 1
    return True


def gather(
    data: NDArray[np.uint8], positions: Ints, edges: NDArray[np.int32], out: NDArray[np.uint8]
) -> bool:
    """Copy byte strings together: the string at positions[i] goes to out[edges[i]:edges[i + 1]].

    The indices are unsigned. Signed indices may count from the end, so the compiler would copy byte
    by byte, which is nine times as slow.

    Gives:  False if a string would be outside `data` or `out`.
    """
    for row in range(len(positions)):
        here, there, after = positions[row], np.int64(edges[row]), np.int64(edges[row + 1])
        size = after - there
        if here < 0 or there < 0 or size < 0 or here > len(data) - size or after > len(out):
            return False
        source, target = np.uint64(here), np.uint64(there)
        for place in range(np.uint64(size)):
            out[target + place] = data[source + place]
    return True
