"""What the generated modules of this package use: compact strings, tagged numbers, short varints.

Unlike in a message, bytes that are not UTF-8 are refused: a record that cannot be read must not be
taken for another.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from barnabas.protocol.primitives import (
    MalformedMessageError,
    read_uvarint,
    refuse_length,
    write_uvarint,
)


def read_nullable_string(data: bytes, at: int) -> tuple[str | None, int]:
    """Read a compact string or null, and the position after it."""
    return (None, at + 1) if data[at] == 0 else read_string(data, at)


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """Read a compact string, and the position after it."""
    size = data[at]
    at += 1
    if size > 0x7F:
        size, at = read_uvarint(data, at - 1)
    end = at + size - 1
    if size == 0 or end > len(data):
        refuse_length(size - 1)
    return data[at:end].decode(), end


def read_strings(data: bytes, at: int) -> tuple[list[str], int]:
    """Read a compact array of strings, and the position after it."""
    count, at = read_uvarint(data, at)
    if count == 0:
        refuse_length(-1)
    items = []
    for _ in range(count - 1):
        item, at = read_string(data, at)
        items.append(item)
    return items, at


def unpack_tag(tags: dict[int, bytes], tag: int, form: struct.Struct) -> Any:
    """The number in a tagged field. Raises: MalformedMessageError if it has another size."""
    try:
        return form.unpack(tags[tag])[0]
    except struct.error as error:
        size = len(tags[tag])
        raise MalformedMessageError(f"tag {tag} has {size} bytes instead of {form.size}") from error


@lru_cache(maxsize=128)
def encoded_uvarint(value: int) -> bytes:
    """The bytes of a number that is not negative.

    The function is cached. Nearly all numbers are small, so most calls run no Python code.
    """
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def encoded_strings(items: Collection[str]) -> bytes:
    """The bytes of the strings of a compact array, without their count."""
    return b"".join([encoded_uvarint(len(one) + 1) + one for one in map(str.encode, items)])
