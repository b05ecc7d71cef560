"""The wire format of schema registries: identifies the schema of a key or value.

    byte     content
    -------  ------------------------------------------------------------------------------
    0        0, the magic byte
    1 to 4   the schema's id in the registry, big-endian
    5 …      for Protobuf: the place of the message, as indexes: the number of indexes, then the
             index of the message in its file, then of the message within that one, …; each a
             zigzag varint. The first message of a file, [0], is the one byte 0.
    then     the data

Source: Confluent Platform, "Formats, Serializers, and Deserializers", section "Wire format".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from barnabas.schemas.errors import SerdeError

MAGIC = 0
_HEAD = struct.Struct(">bI")
INDEXES_MOST = 100  # maximum nesting depth of messages
VARINT_BYTES_MOST = 5


def header(schema_id: int, indexes: Sequence[int] | None = None) -> bytes:
    """The bytes before the data. indexes: only for Protobuf."""
    return _HEAD.pack(MAGIC, schema_id) + (b"" if indexes is None else encode_indexes(indexes))


def split(data: bytes) -> tuple[int, bytes]:
    """The schema's id, and the bytes after it. Raises: SerdeError without an id."""
    if len(data) < _HEAD.size or data[0] != MAGIC:
        start = data[: _HEAD.size].hex(" ") or "nothing"
        raise SerdeError(
            f"it has no schema id: it begins with {start}, and not with the byte 0 and four bytes "
            "of an id"
        )
    return _HEAD.unpack_from(data)[1], data[_HEAD.size :]


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """The indexes of a Protobuf message as bytes."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(_varint, (len(indexes), *indexes)))


def split_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The indexes of a Protobuf message, and the bytes after them. Raises: SerdeError."""
    count, at = _read_varint(data, 0)
    if count == 0:
        return (0,), data[at:]
    if not 0 < count <= INDEXES_MOST:
        raise SerdeError(f"it has no indexes of a Protobuf message: {count} of them")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        indexes.append(index)
    return tuple(indexes), data[at:]


def _varint(number: int) -> bytes:
    rest = number << 1 ^ number >> 31
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for place, byte in enumerate(data[at : at + VARINT_BYTES_MOST]):
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return found >> 1 ^ -(found & 1), at + place + 1
    raise SerdeError("it ends within the indexes of a Protobuf message")
