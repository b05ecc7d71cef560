"""The parts of records as Arrow arrays of byte strings.

Varints of many rows are encoded at once. One Arrow `take` then gathers the records from such parts
(encoding.py describes how).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark_connector.arrow.array_types import Ints, NDArray, Unsigned
from barnabas.spark_connector.arrow.partitioner import strings_of


class Pool:
    """Several arrays of byte strings, joined to one array from which records are gathered.

    starts: for each of these arrays, the position of its first string in the joined array.
    """

    def __init__(self, arrays: Sequence[pa.Array | list[pa.Array]]) -> None:
        """Takes: arrays of strings; an element may be a list of arrays, which count as one.
        `starts` has the index of the first string of each element.
        """
        groups = [array if isinstance(array, list) else [array] for array in arrays]
        self._strings = pa.concat_arrays([array for group in groups for array in group])
        sizes = [sum(map(len, group)) for group in groups]
        self.starts = [sum(sizes[:index]) for index in range(len(sizes))]

    def gather(self, indices: NDArray[np.int32]) -> tuple[NDArray[np.int32], pa.Buffer]:
        """Gather the strings at the indices. A null has no bytes.

        Gives:  the offsets of the gathered strings (the start of each string and the end of the
                last), and their bytes.
        """
        taken = pc.take(self._strings, pa.array(indices), boundscheck=False)
        return strings_of(taken).edges, taken.buffers()[2]


# --- varints


def narrow(numbers: Unsigned) -> Unsigned:
    """Convert the numbers to 32 bits if they fit, which halves the memory of the following
    steps.
    """
    return (
        numbers.astype(np.uint32) if not len(numbers) or int(numbers.max()) < 1 << 32 else numbers
    )


def varint_size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


def varint_sizes(numbers: Unsigned) -> NDArray[np.int64] | int:
    """Return the size of each varint in bytes, or a single number if all sizes are equal."""
    smallest, largest = varint_size(int(numbers.min())), varint_size(int(numbers.max()))
    if smallest == largest:
        return smallest
    sizes = np.full(len(numbers), smallest, np.int64)
    for size in range(smallest, largest):
        sizes += numbers >= 1 << 7 * size
    return sizes


def pieces(count: int, groups: Sequence[Sequence[Unsigned | None]]) -> pa.Array:
    """Encode the varints of `count` rows as byte strings.

    The result has two strings for each group of each row. String 2 * (len(groups) * r + g) contains
    the varints of group g of row r. The string after it is the gap up to the next one. A None in a
    group is written as a zero byte. All rows take as many bytes as the widest row.
    """
    widths = [
        sum(1 if field is None else varint_size(int(field.max())) for field in group)
        for group in groups
    ]
    width = sum(widths)
    flat = np.zeros(count * width, np.uint8)
    edges = np.empty(count * len(groups) * 2 + 1, np.int32)
    row_start = np.arange(0, count * width, width, dtype=np.int64)
    for nth, group in enumerate(groups):
        position = row_start + sum(widths[:nth])
        edges[2 * nth : -1 : 2 * len(groups)] = position
        for field in group:
            position = position + 1 if field is None else _put_varints(flat, position, field)
        edges[2 * nth + 1 : -1 : 2 * len(groups)] = position
    edges[-1] = len(flat)
    return pa.Array.from_buffers(
        pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(flat)]
    )


def _put_varints(flat: NDArray[np.uint8], position: Ints, numbers: Unsigned) -> Ints:
    """Write a varint at each position. Gives: the positions after the varints.

    All varints are written with the size of the widest one. Shorter values are padded with zeros.
    The next field overwrites the padding, or the padding lies outside the byte string.
    """
    after = position + 1
    for nth in range(varint_size(int(numbers.max()))):
        byte = (numbers & 0x7F).astype(np.uint8)
        numbers = numbers >> 7
        more = numbers != 0
        byte |= more.view(np.uint8) << 7
        flat[position + nth] = byte
        after += more
    return after
