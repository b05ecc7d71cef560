"""The types of the fields of Kafka's messages: readers and writers.

A reader takes the bytes and a position, and returns the value and the position after it. It never
reads beyond the end. A writer appends to a bytearray. `compact` is True in the flexible versions
of a message (KIP-482). The messages made of these types are in `barnabas.protocol.messages`.

| type | bytes | if compact |
|---|---|---|
| int8 … int64, uint16, float64, bool | big-endian (`struct` reads several at once) | the same |
| uvarint | 7 bits a byte, the lowest first; the top bit: more follow; at most five | the same |
| string | int16 length, UTF-8; null: length -1 | uvarint length + 1, UTF-8; null: 0 |
| bytes, records | int32 length, the bytes; null: -1 | uvarint length + 1, the bytes; null: 0 |
| array | int32 count, the elements; null: -1 | uvarint count + 1, the elements; null: 0 |
| uuid | 16 bytes; None is 16 zeros, which means no id | the same |
| nullable struct | int8: 1, or -1 for null; the struct | the same |
| tagged fields | none | uvarint count; of each: uvarint tag, uvarint size, the bytes |

Source: Apache Kafka's protocol guide ("Protocol primitive types"); KIP-482 (compact and tagged).
Any negative length or count is null, and bytes that are not UTF-8 are replaced on reading, both as
in Apache Kafka.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar, overload

Buffer = memoryview | bytes | bytearray
Item = TypeVar("Item")

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ZEROS = bytes(16)
_UVARINT_BITS = 35
NUMBERS_PER_ELEMENT = 4
# The limit for one struct. Kafka's structs have at most three tagged fields.
MOST_TAGGED_FIELDS = 100
_LONGEST_STRING_BYTES = (1 << 15) - 1
_SHORT = 0x7F  # a compact length or count below this has one byte
_NULL_STRUCT, _STRUCT = b"\xff", b"\x01"


class MalformedMessageError(ValueError):
    """Raised if the bytes are not a message of this version.

    They are cut off, or a field is null that may not be null.
    """


class UnwritableMessageError(ValueError):
    """Raised if a message's version cannot express a value.

    The version does not have the field, or the value is null or too long.
    """


class TooManyElementsError(MalformedMessageError):
    """Raised if the arrays of a request have more elements than the request may have."""


class BoundedBytes(bytes):
    """The bytes of a request, and the number of array elements that may still be read from them.

    An element may have one byte on the wire and fifty or more as an object, so a limit of bytes
    limits neither the memory nor the time that a request takes. The readers of arrays subtract an
    array's count before they make any object.
    """

    elements_left: int

    def take(self, count: int) -> None:
        """Subtract the count of elements that are about to be read. Raises:
        TooManyElementsError.
        """
        self.elements_left -= count
        if self.elements_left < 0:
            raise TooManyElementsError("it has more elements than one request may have")


class Writable(Protocol):
    """A struct of a message."""

    def write(self, out: bytearray, version: int) -> None:
        """Append the struct's bytes."""


def refuse_null(name: str, version: int) -> NoReturn:
    """Raise MalformedMessageError for a nullable field that may not be null in this version."""
    raise MalformedMessageError(f"{name} is null, which version {version} does not allow")


def refuse_value(name: str, version: int) -> NoReturn:
    """Raise UnwritableMessageError for a field that the version does not have, or that may not be
    null in it.
    """
    raise UnwritableMessageError(f"version {version} cannot express the value of {name}")


def refuse_length(length: int) -> NoReturn:
    """Raise MalformedMessageError for a length or count that is negative, which means null, or that
    leads beyond the end.
    """
    if length < 0:
        _is_null()
    _cut_off()


def _cut_off() -> NoReturn:
    raise MalformedMessageError("the bytes end before the message does")


def _is_null() -> NoReturn:
    raise MalformedMessageError("null is not allowed there")


def _may_not_be_null() -> NoReturn:
    raise UnwritableMessageError("a field that may not be null is null")


# --- reading ------------------------------------------------------------------------------------


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """Read a number that is encoded with 7 bits in each byte.

    Raises: MalformedMessageError after five bytes; IndexError if the data end too early.
    """
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F  # remove the top bit, which means that another byte follows
    for shift in range(7, _UVARINT_BITS, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise MalformedMessageError("a varint is longer than five bytes")


def read_nullable_string(data: Buffer, at: int, compact: bool) -> tuple[str | None, int]:
    """Read a string or null."""
    if compact:
        length = data[at] - 1
        if length < _SHORT:  # nearly always: one byte, which is read without a call
            at += 1
        else:
            length, at = read_uvarint(data, at)
            length -= 1
    else:
        (length,) = _INT16.unpack_from(data, at)
        at += 2
    if length < 0:
        return None, at
    end = at + length
    if end > len(data):
        _cut_off()
    return str(data[at:end], "utf-8", "replace"), end


def read_string(data: Buffer, at: int, compact: bool) -> tuple[str, int]:
    """Read a string that may not be null. Nearly all are read without a further call."""
    if not compact:
        (length,) = _INT16.unpack_from(data, at)
        at += 2
    elif 0 < data[at] < 0x80:  # a length below 127, plus one
        length = data[at] - 1
        at += 1
    else:
        length, at = read_uvarint(data, at)
        length -= 1
    if length < 0:
        _is_null()
    end = at + length
    if end > len(data):
        _cut_off()
    return str(data[at:end], "utf-8", "replace"), end


def read_nullable_records(data: Buffer, at: int, compact: bool) -> tuple[Buffer | None, int]:
    """Read bytes or null as a slice of `data`. If `data` is a memoryview, nothing is copied."""
    if compact:
        length, at = read_uvarint(data, at)
        length -= 1
    else:
        (length,) = _INT32.unpack_from(data, at)
        at += 4
    if length < 0:
        return None, at
    end = at + length
    if end > len(data):
        _cut_off()
    return data[at:end], end


def read_nullable_bytes(data: Buffer, at: int, compact: bool) -> tuple[bytes | None, int]:
    """Read bytes or null, and copy the bytes."""
    piece, at = read_nullable_records(data, at, compact)
    return None if piece is None else bytes(piece), at


def read_bytes(data: Buffer, at: int, compact: bool) -> tuple[bytes, int]:
    """Read bytes that may not be null, and copy them."""
    piece, at = read_nullable_records(data, at, compact)
    if piece is None:
        _is_null()
    return bytes(piece), at


def read_uuid(data: Buffer, at: int) -> tuple[uuid.UUID | None, int]:
    """Read a uuid. Gives: None for 16 zeros."""
    end = at + 16
    if end > len(data):
        _cut_off()
    piece = bytes(data[at:end])
    return None if piece == _ZEROS else uuid.UUID(bytes=piece), end


def _read_count(data: Buffer, at: int, compact: bool, share: int = 1) -> tuple[int, int]:
    """Read the count of an array, which is negative for null.

    The count may not exceed the number of remaining bytes, since each element has at least one
    byte.

    Takes:  share, the number of elements that count as one in `BoundedBytes`.
    """
    if compact:
        count = data[at] - 1
        if count < _SHORT:
            at += 1
        else:
            count, at = read_uvarint(data, at)
            count -= 1
    else:
        (count,) = _INT32.unpack_from(data, at)
        at += 4
    if count > len(data) - at:
        _cut_off()
    if type(data) is BoundedBytes and count > 0:
        data.take(count // share)
    return count, at


def read_nullable_structs(
    data: Buffer,
    at: int,
    compact: bool,
    read: Callable[[Buffer, int, int], tuple[Item, int]],
    version: int,
) -> tuple[list[Item] | None, int]:
    """Read an array of structs or null. Each struct is read by `read`."""
    count, at = _read_count(data, at, compact)
    if count < 0:
        return None, at
    items = []
    for _ in range(count):
        item, at = read(data, at, version)
        items.append(item)
    return items, at


def read_structs(
    data: Buffer,
    at: int,
    compact: bool,
    read: Callable[[Buffer, int, int], tuple[Item, int]],
    version: int,
) -> tuple[list[Item], int]:
    """Read an array of structs that may not be null. The count of a short array in a small request
    is read without a further call.
    """
    if compact and 0 < data[at] < 0x80 and type(data) is not BoundedBytes:
        count = data[at] - 1
        at += 1
        if count > len(data) - at:
            _cut_off()
    else:
        count, at = _read_count(data, at, compact)
        if count < 0:
            _is_null()
    items = []
    for _ in range(count):
        item, at = read(data, at, version)
        items.append(item)
    return items, at


def read_nullable_strings(data: Buffer, at: int, compact: bool) -> tuple[list[str] | None, int]:
    """Read an array of strings or null. The strings may not be null."""
    count, at = _read_count(data, at, compact)
    if count < 0:
        return None, at
    items = []
    for _ in range(count):
        item, at = read_string(data, at, compact)
        items.append(item)
    return items, at


def read_strings(data: Buffer, at: int, compact: bool) -> tuple[list[str], int]:
    """Read an array of strings that may not be null."""
    items, at = read_nullable_strings(data, at, compact)
    if items is None:
        _is_null()
    return items, at


def read_nullable_numbers(
    data: Buffer, at: int, compact: bool, letter: str
) -> tuple[list[int] | None, int]:
    """Read an array of integers or null. `letter` is the type of the integers in `struct`."""
    count, at = _read_count(data, at, compact, NUMBERS_PER_ELEMENT)
    if count < 0:
        return None, at
    form = f">{count}{letter}"
    return list(struct.unpack_from(form, data, at)), at + struct.calcsize(form)


def read_numbers(data: Buffer, at: int, compact: bool, letter: str) -> tuple[list[int], int]:
    """Read an array of integers that may not be null."""
    numbers, at = read_nullable_numbers(data, at, compact, letter)
    if numbers is None:
        _is_null()
    return numbers, at


def read_nullable_struct(
    data: Buffer, at: int, read: Callable[[Buffer, int, int], tuple[Item, int]], version: int
) -> tuple[Item | None, int]:
    """Read a struct or null."""
    (mark,) = _INT8.unpack_from(data, at)
    return (None, at + 1) if mark < 0 else read(data, at + 1, version)


@overload
def read_tags(data: bytes, at: int) -> tuple[dict[int, bytes], int]: ...
@overload
def read_tags(data: Buffer, at: int) -> tuple[dict[int, Buffer], int]: ...
def read_tags(data: Any, at: int) -> tuple[dict[int, Any], int]:
    """Read tagged fields, and return their bytes by tag."""
    count, at = read_uvarint(data, at)
    if count > MOST_TAGGED_FIELDS:
        raise MalformedMessageError(f"it has more than {MOST_TAGGED_FIELDS} tagged fields")
    fields = {}
    for _ in range(count):
        tag, size = data[at], data[at + 1]
        at += 2
        if tag > 0x7F or size > 0x7F:  # at least one of them has more than one byte
            tag, at = read_uvarint(data, at - 2)
            size, at = read_uvarint(data, at)
        end = at + size
        if end > len(data):
            _cut_off()
        fields[tag] = data[at:end]
        at = end
    return fields, at


def skip_tags(data: Buffer, at: int) -> int:
    """Skip tagged fields of unknown tags, and return the position after them."""
    return at + 1 if data[at] == 0 else read_tags(data, at)[1]


# --- writing ------------------------------------------------------------------------------------


def write_uvarint(out: bytearray, value: int) -> None:
    """Append a number that is not negative."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_nullable_string(out: bytearray, text: str | None, compact: bool) -> None:
    """Append a string or null."""
    if text is None:
        out += b"\0" if compact else b"\xff\xff"
        return
    data = text.encode()
    length = len(data)
    if compact:
        if length < _SHORT:
            out.append(length + 1)
        else:
            write_uvarint(out, length + 1)
    elif length > _LONGEST_STRING_BYTES:
        raise UnwritableMessageError(
            f"a string has {length} bytes, and its field has room for {_LONGEST_STRING_BYTES}"
        )
    else:
        out += _INT16.pack(length)
    out += data


def write_string(out: bytearray, text: str, compact: bool) -> None:
    """Append a string that may not be null."""
    if text is None:
        _may_not_be_null()
    if compact and len(data := text.encode()) < _SHORT:  # nearly always: without a further call
        out.append(len(data) + 1)
        out += data
    else:
        write_nullable_string(out, text, compact)


def write_nullable_bytes(out: bytearray, data: Buffer | None, compact: bool) -> None:
    """Append bytes, or records, or null."""
    length = -1 if data is None else len(data)
    if compact:
        write_uvarint(out, length + 1)
    else:
        out += _INT32.pack(length)
    if data is not None:
        out += data


def write_bytes(out: bytearray, data: Buffer, compact: bool) -> None:
    """Append bytes that may not be null."""
    if data is None:
        _may_not_be_null()
    write_nullable_bytes(out, data, compact)


def write_uuid(out: bytearray, value: uuid.UUID | None) -> None:
    """Append a uuid, or 16 zeros for None."""
    out += _ZEROS if value is None else value.bytes


def _write_count(out: bytearray, count: int, compact: bool) -> None:
    """Append the count of an array. In compact form it is the count plus one, as a varint."""
    if compact and count < _SHORT:
        out.append(count + 1)
    elif compact:
        write_uvarint(out, count + 1)
    else:
        out += _INT32.pack(count)


def write_nullable_structs(
    out: bytearray, items: Sequence[Writable] | None, compact: bool, version: int
) -> None:
    """Append an array of structs, or null."""
    if items is None:
        _write_count(out, -1, compact)
        return
    _write_count(out, len(items), compact)
    for item in items:
        item.write(out, version)


def write_structs(out: bytearray, items: Sequence[Writable], compact: bool, version: int) -> None:
    """Append an array of structs that may not be null."""
    if items is None:
        _may_not_be_null()
    if compact and len(items) < _SHORT:  # nearly always: without a further call
        out.append(len(items) + 1)
    else:
        _write_count(out, len(items), compact)
    for item in items:
        item.write(out, version)


def write_nullable_strings(out: bytearray, items: Sequence[str] | None, compact: bool) -> None:
    """Append an array of strings, or null."""
    if items is None:
        _write_count(out, -1, compact)
        return
    _write_count(out, len(items), compact)
    for item in items:
        write_string(out, item, compact)


def write_strings(out: bytearray, items: Sequence[str], compact: bool) -> None:
    """Append an array of strings that may not be null."""
    if items is None:
        _may_not_be_null()
    write_nullable_strings(out, items, compact)


def write_nullable_numbers(
    out: bytearray, numbers: Sequence[int] | None, compact: bool, letter: str
) -> None:
    """Append an array of integers or null. `letter` is the type of the integers in `struct`."""
    if numbers is None:
        _write_count(out, -1, compact)
        return
    _write_count(out, len(numbers), compact)
    out += struct.pack(f">{len(numbers)}{letter}", *numbers)


def write_numbers(out: bytearray, numbers: Sequence[int], compact: bool, letter: str) -> None:
    """Append an array of integers that may not be null."""
    if numbers is None:
        _may_not_be_null()
    write_nullable_numbers(out, numbers, compact, letter)


def write_nullable_struct(out: bytearray, item: Writable | None, version: int) -> None:
    """Append a struct, or null."""
    if item is None:
        out += _NULL_STRUCT
    else:
        out += _STRUCT
        item.write(out, version)


def write_tags(out: bytearray, fields: dict[int, bytearray]) -> None:
    """Append tagged fields. They must be given in the order of their tags."""
    write_uvarint(out, len(fields))
    for tag, data in fields.items():
        write_uvarint(out, tag)
        write_uvarint(out, len(data))
        out += data
