"""The default partitioner of the Java client, murmur2 of the key, for whole Arrow columns.

A row with a key goes to (murmur2(key) & 0x7fffffff) % count. Rows written from Spark are therefore
in the same partition as records with the same key from any other Kafka client. All keys of a column
are hashed together, four bytes at a time. Source: Apache Kafka, `Utils.murmur2` and
`BuiltInPartitioner`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.client.murmur2 import (
    MASK,
    MULTIPLIER,
    POSITIVE,
    SEED,
    SHIFT,
    hash_rest,
    murmur2_of,
)
from barnabas.spark_connector.arrow.array_types import Bytes, Ints, NDArray, Words
from barnabas.spark_connector.arrow.numba_loops import EncodingLoops

FEW_KEYS = 24  # up to this many keys, a loop in Python takes less time than array operations


class Strings(NamedTuple):
    """Byte strings that are stored one after the other: string i is data[edges[i]:edges[i + 1]]."""

    data: Bytes
    edges: NDArray[np.int32]


NO_STRINGS = Strings(np.empty(0, np.uint8), np.empty(0, np.int32))


def strings_of(array: pa.Array) -> Strings:
    """Return the strings of an Arrow binary array, without a copy.

    A null may have any bytes.
    """
    _, edges, data = array.buffers()
    if not len(array):
        return Strings(np.empty(0, np.uint8), np.zeros(1, np.int32))
    edges = np.frombuffer(edges, np.int32, len(array) + 1, array.offset * 4)
    return Strings(np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), edges)


def partitions_of(keys: pa.Array, counts: int | Ints, loops: EncodingLoops | None = None) -> Ints:
    """Return the partition of each key, if the topic has `counts` partitions.

    The result for a null key is arbitrary.
    """
    positive: Ints = (murmur2(keys, loops) & POSITIVE).astype(np.int64)
    partition: Ints = positive % counts
    return partition


def murmur2(keys: pa.Array, loops: EncodingLoops | None = None) -> Words:
    """Hash each key of a binary array. The hashes are unsigned numbers.

    Takes:  loops, the compiled loops to use, or None.
    """
    data, edges = strings_of(keys)
    if loops is not None:
        hashes = np.empty(len(keys), np.uint32)
        if loops.murmur2(data, edges, hashes):
            return hashes
    lengths = np.diff(edges)
    if not len(lengths):
        return np.empty(0, np.uint32)
    if (lengths == lengths[0]).all():
        return _murmur2_of_same_length(data, edges[:-1], int(lengths[0]))
    # The keys are sorted by decreasing length. The keys that still have bytes to hash are then
    # always the first ones.
    order = np.argsort(-lengths, kind="stable")
    hashes = np.empty(len(lengths), np.uint32)
    hashes[order] = _murmur2_by_length(data, edges[order], lengths[order])
    return hashes


def _murmur2_of_same_length(data: Bytes, starts: NDArray[np.int32], length: int) -> Words:
    """The hashes of keys with the same length, computed for all keys one word at a time; a few keys
    are hashed one by one, which is faster.
    """
    if len(starts) <= FEW_KEYS:
        return np.array(
            [murmur2_of(data[start : start + length].tobytes()) for start in starts.tolist()],
            np.uint32,
        )
    rows = data[int(starts[0]) : int(starts[0]) + len(starts) * length].reshape(len(starts), length)
    word_count = length // 4
    words = (
        np.ascontiguousarray(rows[:, : word_count * 4]).view("<u4").astype(np.uint32, copy=False)
    )
    hashes = np.full(len(starts), (SEED ^ length) & MASK, np.uint32)
    for index in range(word_count):
        _mix(hashes, words[:, index])
    tail = rows[:, word_count * 4 :]
    for index in range(length % 4):
        hashes ^= tail[:, index].astype(np.uint32) << np.uint32(8 * index)
    if length % 4:
        hashes *= np.uint32(MULTIPLIER)
    return _finalize(hashes)


def _murmur2_by_length(data: Bytes, starts: NDArray[np.int32], lengths: NDArray[np.int32]) -> Words:
    """Hash keys with different lengths, which must be sorted by decreasing length."""
    hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
    word_counts = lengths >> 2
    # for each index, the number of keys that have more than `index` words
    active_by_index = len(lengths) - np.searchsorted(
        word_counts[::-1], np.arange(int(word_counts[0])), side="right"
    )
    few, index = 0, 0
    for index, active in enumerate(active_by_index.tolist()):
        if active <= FEW_KEYS:
            few = active
            break
        _mix(hashes[:active], _words_at(data, starts[:active] + 4 * index))
    for row in range(few):
        rest = data[starts[row] + 4 * index : starts[row] + lengths[row]].tobytes()
        hashes[row] = hash_rest(int(hashes[row]), rest)
    _add_tails(data, starts[few:], lengths[few:], hashes[few:])
    hashes[few:] = _finalize(hashes[few:])
    return hashes


def _words_at(data: Bytes, positions: NDArray[np.int32]) -> Words:
    """Read the little-endian words at the given positions."""
    word = data.take(positions).astype(np.uint32)
    for index in range(1, 4):
        word |= data.take(positions + index).astype(np.uint32) << np.uint32(8 * index)
    return word


def _add_tails(
    data: Bytes, starts: NDArray[np.int32], lengths: NDArray[np.int32], hashes: Words
) -> None:
    """Mix the last one to three bytes of each key into its hash."""
    tail_sizes, tails = lengths & 3, starts + (lengths & ~3)
    for index in range(3):
        which = np.flatnonzero(tail_sizes > index)
        hashes[which] ^= data.take(tails[which] + index).astype(np.uint32) << np.uint32(8 * index)
    hashes[tail_sizes > 0] *= np.uint32(MULTIPLIER)


def _mix(hashes: Words, words: Words) -> None:
    """Add one word of each key to its hash, in place."""
    mixed = words * np.uint32(MULTIPLIER)
    mixed ^= mixed >> np.uint32(SHIFT)
    mixed *= np.uint32(MULTIPLIER)
    hashes *= np.uint32(MULTIPLIER)
    hashes ^= mixed


def _finalize(hashes: Words) -> Words:
    """The last step of each hash, in place."""
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(MULTIPLIER)
    hashes ^= hashes >> np.uint32(15)
    return hashes
