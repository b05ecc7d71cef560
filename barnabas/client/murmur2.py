"""The Murmur2 hash of a key, by which the Java client's default partitioner chooses a partition.

Source: Apache Kafka, `Utils.murmur2` and `BuiltInPartitioner`.
"""

from __future__ import annotations

import struct

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
SHIFT = 24
POSITIVE = 0x7FFFFFFF
MASK = 0xFFFFFFFF

_WORD = struct.Struct("<I")


def partition_of(key: bytes, count: int) -> int:
    """Return the partition of a key, if the topic has `count` partitions."""
    return (murmur2_of(key) & POSITIVE) % count


def murmur2_of(key: bytes) -> int:
    """The hash of one key, as an unsigned number."""
    return hash_rest((SEED ^ len(key)) & MASK, key)


def hash_rest(state: int, rest: bytes) -> int:
    """Complete the hash of a key.

    Takes:  state, the state before the last bytes of the key; rest, these bytes. They begin at a
            whole word, and may end with bytes that do not fill a word.
    """
    whole = len(rest) & ~3
    for (word,) in _WORD.iter_unpack(memoryview(rest)[:whole]):
        word = (word * MULTIPLIER) & MASK
        word = ((word ^ (word >> SHIFT)) * MULTIPLIER) & MASK
        state = ((state * MULTIPLIER) & MASK) ^ word
    if len(rest) > whole:
        state = ((state ^ int.from_bytes(rest[whole:], "little")) * MULTIPLIER) & MASK
    state = ((state ^ (state >> 13)) * MULTIPLIER) & MASK
    return state ^ (state >> 15)
