"""Checks that bytes are the records that their batch declares, and finds the highest timestamp.

A record is checked in one of three ways, which accept the same records:

    by itself    `_open_record`: every field, in any encoding
    in a loop    `_walk`: fields of one or two bytes, as nearly all are, are read in place;
                 any other record is checked by itself
    in columns   many records of one shape together. Each field is at the same place in every
                 record, so the field of all records is one slice with a stride, which is compared
                 with the expected bytes in one operation

A shape is the set of positions of a record's fields. Records of the same length follow at a stride
in the batch itself (`_run`). If records have values, or short keys, of different sizes, their first
bytes are copied together (`_gather`), and checked by the width of their length fields
(`_check_heads`). All other records are walked.

`_walk`, `_first_of_shape`, `_check_columns`, `_gather` and `_check_heads` are long, or have many
parameters, because they run for every record or block of records. A further call for each would
double their cost.

Several functions read a varint of two bytes in place: `size = first + (second << 7) - 0x80`. The
first byte is at least 0x80 there. Its top bit only means that another byte follows, and the -0x80
removes it. The result is still zigzag-encoded: an even number n means n / 2, an odd one is
negative. If the second byte also has its top bit set, the number has a third byte. Bit 14 of the
result (0x4000) is then set and shows this. So `n & 0x4001` is true for a number that is negative or
too wide.

Source: Kafka's message format. The walk rejects the records that DefaultRecord.readFrom and
        LogValidator reject, and offset deltas that do not count from 0, which Apache Kafka checks
        only in compressed batches. Attributes of a record other than 0, which have no meaning, are
        rejected: kafka-python reads them as a varint.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import accumulate, compress
from operator import add
from typing import NamedTuple

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import decode_varint

Body = bytes | bytearray | memoryview

# The bytes after a record's length field: attributes, two deltas, no key, no value, no headers.
_SMALLEST_RECORD = 6
_WIDEST_INT = 5  # the maximum number of bytes of a varint that Java reads as an int
# the number of equally long records in the first block; fewer records are walked faster
_FIRST_BLOCK = 8
_FIRST_ALIKE = 64  # the number of records in the first comparison of lengths
_BLOCK = 2048  # the maximum number of records that are gathered together
_FIRST_GATHERED = 256
_LEAST_GATHERED = 32
# The number of bytes of a batch that are copied at a time, which fit into the processor's cache.
_PIECE_BYTES = 250 * 1024
# Batches of smaller records are copied, since slicing bytes is faster than slicing a memoryview.
_COPIED_RECORD_BYTES = 256
# The longest head of a record that is gathered. Walking records with longer heads is as fast.
_LONGEST_HEAD = 80
_GROWTH = 4
_FIRST_WIDE_DELTA = 8192  # the first offset delta whose varint has three bytes

_ALIKE = tuple([bytes((byte,)) for byte in range(256)])
# The bytes of offset deltas as varints of several bytes. _LOW has the first byte, by the delta
# modulo 8192.
_LOW = bytes(range(0x80, 0x100, 2)) * 128
# The last byte of two-byte varints.
_HIGH = b"".join([_ALIKE[byte] * 64 for byte in range(128)])
# The middle byte of three-byte varints.
_MIDDLE = b"".join([_ALIKE[byte | 0x80] * 64 for byte in range(128)])
# The varints of offset deltas below 64, which have one byte. Zigzag doubles the number.
_ONE = bytes(range(0, 128, 2))
# The distance to the next record is the sum of two steps, which are looked up by the first two
# bytes of a record. The step of the first byte is the size of the length field itself and the lower
# part of the length. If the length field has only one byte, the second byte is the attributes,
# which are 0 and add nothing.
_LOW_STEPS = [1 + (byte >> 1) if byte < 0x80 else 2 + (byte - 0x80 >> 1) for byte in range(256)]
# The upper part of the length, shifted left by 7 bits and halved to undo zigzag.
_HIGH_STEPS = [byte << 6 for byte in range(256)]
_HIGH_BYTES = bytes(range(0x80, 0x100))
_IS_HIGH = bytes(128) + b"\1" * 128
_IS_LOW = b"\1" * 128 + bytes(128)


class _Shape(NamedTuple):
    """The positions of a record's fields, counted from the beginning of the record.

    A shape applies to neighbouring records whose offset deltas have the same width.
    """

    length_width: int
    time_at: int
    offset_at: int
    key_at: int
    key_size_end: int
    value_at: int
    head_size: int  # the number of bytes before the value


def _head_of_only_record(size: int) -> tuple[int, int]:
    """The bytes before the value of the only record of a batch, without key, deltas and headers.

    Its size determines them. Takes: size, that of the whole record. Gives: how many bits of the
    first eight bytes belong to the value, and the other bits as a number; -1 if no such record has
    that size, or if its length fields have more than two bytes.
    """
    for length_width in (1, 2):
        for value_width in (1, 2):
            length = size - length_width
            # attributes, two deltas, a null key; after the value the number of headers
            value_size = length - 4 - value_width - 1
            if value_size >= 0 and length < 1 << 13:
                sizes = _two_bytes_at_most(length), _two_bytes_at_most(value_size)
                if (len(sizes[0]), len(sizes[1])) == (length_width, value_width):
                    head = bytes([*sizes[0], 0, 0, 0, 1, *sizes[1]])
                    return 8 * (8 - len(head)), int.from_bytes(head)
    return _NO_HEAD


def _two_bytes_at_most(number: int) -> list[int]:
    """The bytes of a varint, of which one or two are enough."""
    zigzag = number << 1
    return [zigzag] if zigzag < 0x80 else [zigzag & 0x7F | 0x80, zigzag >> 7]


_EIGHT_BYTES = struct.Struct(">Q")
_NO_HEAD = 0, -1
# the heads of records below this size, made when they are needed
_HEADS: list[tuple[int, int] | None] = [None] * 2048


def _remember_head(size: int) -> tuple[int, int]:
    head = _HEADS[size] = _head_of_only_record(size)
    return head


def highest_time_delta(body: Body, position: int, count: int) -> int:
    """Check that `count` records fill `body` from `position` to its end.

    Their offset deltas have to be 0, 1, 2 …

    Gives:  the largest of their timestamp deltas.
    Raises: KafkaError INVALID_RECORD.
    """
    try:
        if count == 1:
            size = len(body) - position
            if 8 <= size < 2048:
                head = _HEADS[size] or _remember_head(size)
                (first_bytes,) = _EIGHT_BYTES.unpack_from(body, position)
                if first_bytes >> head[0] == head[1] and not body[-1]:
                    return 0
            if _is_plain_record(body, position):
                return 0
        if count <= _FIRST_BLOCK:
            if type(body) is memoryview and len(body) - position < count * _COPIED_RECORD_BYTES:
                body, position = bytes(body[position:]), 0
            position, highest = _walk(body, position, 0, count, -(1 << 63))
        else:
            position, highest = _check_many(body, position, count)
    except IndexError as error:
        raise KafkaError(
            Code.INVALID_RECORD, f"the batch does not hold the {count} records that it declares"
        ) from error
    if position != len(body):
        raise KafkaError(
            Code.INVALID_RECORD,
            f"bytes are left over after the {count} records that the batch declares",
        )
    return highest


def _is_plain_record(body: Body, position: int) -> bool:
    """Whether the rest of the body is one record without headers, whose deltas are 0.

    Most single records have this form.
    """
    try:
        size = body[position]
        at = position + 1
        if size > 0x7F:
            size += (body[at] << 7) - 0x80
            at += 1
        last = len(body) - 1
        # True unless the length has one or two bytes and is not negative, the record ends with the
        # body, and the attributes, timestamp delta, offset delta and number of headers are 0.
        if (
            at + (size >> 1) != last + 1
            or size & 0x4001
            or body[at]
            or body[at + 1]
            or body[at + 2]
            or body[last]
        ):
            return False
        key = body[at + 3]
        at += 5
        if key != 1:  # in zigzag form 1 means -1, which is a null key
            if key & 0x81:  # the size is negative, or has several bytes
                return False
            at += key >> 1
        size = body[at - 1]
        if size > 0x7F:
            size += (body[at] << 7) - 0x80
            at += 1
        elif size == 1:  # a null value
            return at == last
        return at + (size >> 1) == last and not size & 0x4001
    except IndexError:
        return False


def _check_many(body: Body, position: int, count: int) -> tuple[int, int]:
    """Check records in columns if their shapes allow it, and walk the others.

    Gives:  the position after the records, and the highest timestamp delta.
    """
    highest = -(1 << 63)
    delta = misses = 0
    next_count = _FIRST_GATHERED
    if type(body) is memoryview and len(body) <= min(_PIECE_BYTES, count * _COPIED_RECORD_BYTES):
        body = bytes(body)
    while delta < count:
        start = position
        position, highest, shape = _first_of_shape(body, start, delta, highest)
        delta += 1
        # The bytes of the offset deltas have constant widths only up to the next change of width.
        most = min(count, _next_width(delta)) - delta
        if most < _FIRST_BLOCK:
            continue
        # The length field of the next record begins with the same byte, so the records may have the
        # same length.
        if shape is not None and body[position] == body[start]:
            stride = position - start
            taken, highest = _run(body, position, stride, delta, most, shape, highest)
            position += taken * stride
            delta += taken
            most -= taken
            if taken >= _FIRST_BLOCK or not most:
                continue
        if isinstance(body, memoryview):
            body = bytes(body)
        while shape is not None and most >= _LEAST_GATHERED:
            block = most if most < next_count + _LEAST_GATHERED else next_count
            gathered = _gather(body, start, position, delta, block, shape, highest)
            if gathered is None:  # a record has another shape, so the next attempt is smaller
                next_count = _LEAST_GATHERED
                break
            position, highest = gathered
            delta += block
            most -= block
            misses = 0
            next_count = min(_BLOCK, _GROWTH * next_count)
        # Each failed attempt doubles the number of records that are walked. In a batch without
        # common shapes, few attempts are therefore made.
        block = min(_LEAST_GATHERED << min(misses, 4), most)
        misses += block > 0
        position, highest = _walk(body, position, delta, delta + block, highest)
        delta += block
    return position, highest


def _open_record(body: Body, position: int, delta: int) -> tuple[int, int]:
    """Check the record at `position`, in any encoding.

    Gives:  the position after the record, and its timestamp delta.
    Raises: KafkaError or IndexError if the bytes are not a record.
    """
    length, at = _decode_int(body, position)
    following = at + length
    if length < _SMALLEST_RECORD or following > len(body):
        raise _wrong(delta, f"declares {length} bytes")
    if body[at]:
        raise _wrong(delta, f"has the unknown attributes {body[at]:#x}")
    time, at = decode_varint(body, at + 1)
    if not -(1 << 63) <= time < 1 << 63:
        raise _wrong(delta, "has a timestamp of more than 64 bits")
    offset, at = _decode_int(body, at)
    if offset != delta:
        raise RecordRefused(delta, f"record {delta} has the offset delta {offset}")
    at = _after_blob(body, _after_blob(body, at, delta), delta)
    headers, at = _decode_int(body, at)
    if not 0 <= headers <= length:
        raise _wrong(delta, f"has {headers} headers")
    at = _after_headers(body, at, headers, delta)
    if at != following:
        raise _wrong(delta, "is not as long as it says")
    return following, time


def _decode_int(body: Body, position: int) -> tuple[int, int]:
    """Decode a varint that Kafka reads into 32 bits. Gives: the number and the position after it.
    Raises: KafkaError.
    """
    value, at = decode_varint(body, position)
    if at - position > _WIDEST_INT:
        raise KafkaError(
            Code.INVALID_RECORD,
            f"a varint has {at - position} bytes, and at most {_WIDEST_INT} are read",
        )
    return value, at


def _after_blob(body: Body, at: int, delta: int) -> int:
    """The position after a key or value. Takes: delta, the number of the record, for an error
    message.
    """
    size, at = _decode_int(body, at)
    if size < -1:
        raise _wrong(delta, f"has a field of the size {size}")
    return at + max(size, 0)


def _after_headers(body: Body, at: int, count: int, delta: int) -> int:
    """The position after the headers. Takes: delta, the number of the record, for an error
    message.
    """
    for _ in range(count):
        size = body[at]
        if size & 1:  # in zigzag form an odd number is negative
            raise _wrong(delta, "has a header without a name")
        at = at + 1 + (size >> 1) if size < 0x80 else _after_blob(body, at, delta)
        size = body[at]
        at = at + 1 + (size >> 1) if not size & 0x81 else _after_blob(body, at, delta)
    return at


def _wrong(delta: int, what: str) -> KafkaError:
    return KafkaError(Code.INVALID_RECORD, f"record {delta} {what}")


class RecordRefused(KafkaError):
    """A record has a wrong offset delta.

    Apache Kafka lists such a record in record_errors. It does not list bytes that are no record.
    """

    def __init__(self, index: int, message: str) -> None:
        super().__init__(Code.INVALID_RECORD, message)
        self.index = index


def _walk(body: Body, position: int, first: int, stop: int, highest: int) -> tuple[int, int]:
    """Check the records with the offset deltas from `first` up to, but not including, `stop`.

    Gives:  the position after the records, and the highest timestamp delta so far.

    A number of two bytes has bit 14 set if a third byte follows. A number of three bytes has bit 21
    set if a fourth byte follows. In these cases, and in every other unusual case, the record is
    checked by itself.
    """
    top = highest << 1  # timestamps are compared in zigzag form, which saves a shift
    for delta in range(first, stop):
        start = position
        try:
            # Each number is read in place. Its bytes are groups of 7 bits, the lowest first, with
            # bit 7 set if another byte follows. `(byte << 7) - 0x80` adds the second group, and
            # clears bit 7 of the first byte.
            size = body[position]
            at = position + 2  # the position after a one-byte length and the attributes
            if size > 0x7F:
                size += (body[position + 1] << 7) - 0x80
                at += 1
            position = at - 1 + (size >> 1)  # the position of the next record
            # The length has one or two bytes and is not negative, and the attributes are 0.
            if not (size & 0x4001 or body[at - 1]):
                time = body[at]
                at += 1
                if time > 0x7F:
                    time += (body[at] << 7) - 0x80
                    at += 1
                offset = body[at]
                at += 1
                if offset > 0x7F:
                    byte = body[at]
                    offset += (byte << 7) - 0x80
                    at += 1
                    if byte > 0x7F:
                        offset += (body[at] << 14) - 0x4000
                        at += 1
                # True if the offset delta is the expected one, and neither number has a further
                # byte. Bit 21 of a three-byte offset (here shifted by 7), or bit 14 of a two-byte
                # timestamp, would show a further byte.
                if offset == delta << 1 and not (offset >> 7 | time) & 0x4000:
                    key = body[at]
                    at += 1
                    if key > 0x7F:
                        key += (body[at] << 7) - 0x80
                        at += 1
                    elif key == 1:  # null has no bytes, like an empty key
                        key = 0
                    at += key >> 1
                    value = body[at]
                    at += 1
                    if value > 0x7F:
                        value += (body[at] << 7) - 0x80
                        at += 1
                    elif value == 1:
                        value = 0
                    at += value >> 1
                    if (
                        not (key | value) & 0x4001
                        and not body[at] & 0x81
                        and (
                            position == _after_headers(body, at + 1, body[at] >> 1, delta)
                            if body[at]  # the record has headers, at most 63 in this case
                            else at + 1 == position
                        )
                    ):
                        # In zigzag form an odd number is negative. It becomes -1 - time, which is
                        # less than all even numbers and which `top >> 1` converts back.
                        if time & 1:
                            time = -1 - time
                        if time > top:  # noqa: PLR1730 (a call costs a fifth of the loop)
                            top = time
                        continue
        except IndexError:
            # a number has more bytes than are read here, so `at` is wrong and may be outside the
            # body
            pass
        position, time = _open_record(body, start, delta)
        top = max(top, time << 1)
    return position, top >> 1


def _next_width(delta: int) -> int:
    """The next offset delta at which the width of the deltas, or the byte of a constant column,
    changes.

    Zigzag deltas below 64 have one byte. The last of three bytes changes every 8192 deltas.
    """
    return 64 if delta < 64 else (delta | 8191) + 1


def _offset_columns(delta: int, count: int) -> tuple[bytes, ...]:
    """The bytes of `count` offset deltas from `delta` on, column by column.

    The first column has all first bytes, the next column all second bytes. All deltas must be below
    `_next_width`.
    """
    if delta < 64:
        return (_ONE[delta : delta + count],)
    at = delta & 8191
    low = _LOW[at : at + count]
    if delta < _FIRST_WIDE_DELTA:
        return low, _HIGH[at : at + count]
    middle, rest = _MIDDLE[at : at + count], delta >> 13
    columns = [low, middle]
    while rest > 0x7F:
        columns.append(bytes((rest & 0x7F | 0x80,)) * count)
        rest >>= 7
    return (*columns, bytes((rest,)) * count)


def _first_of_shape(
    body: Body, start: int, delta: int, highest: int
) -> tuple[int, int, _Shape | None]:
    """Check the record at `start`.

    Gives:  the position after the record, the highest timestamp delta so far, and the record's
            shape. The shape is None if the record has headers or an unusually long field. Other
            records are then not compared with it.
    """
    try:
        size = body[start]
        at = start + 1
        if size > 0x7F:
            size += (body[at] << 7) - 0x80
            at += 1
        after_length = at
        following = at + (size >> 1)
        time = body[at + 1]
        at += 2
        if time > 0x7F:
            time += (body[at] << 7) - 0x80
            at += 1
        offset_at = at
        offset = body[at]
        at += 1
        if offset > 0x7F:
            byte = body[at]
            offset += (byte << 7) - 0x80
            at += 1
            if byte > 0x7F:
                offset += (body[at] << 14) - 0x4000
                at += 1
        key_at = at
        key = body[at]
        at += 1
        if key > 0x7F:
            key += (body[at] << 7) - 0x80
            at += 1
        elif key == 1:
            key = 0
        key_size_end = at
        at += key >> 1
        value_at = at
        value = body[at]
        at += 1
        if value > 0x7F:
            value += (body[at] << 7) - 0x80
            at += 1
        elif value == 1:
            value = 0
        # True if the record has the usual form. No length, key size or value size is negative or
        # has three bytes. Offset and timestamp have no further byte, and the offset delta is
        # correct. The attributes and the number of headers are 0. The value ends one byte before
        # the record's end, where the number of headers is.
        is_plain = not (
            (size | key | value) & 0x4001
            or (offset >> 7 | time) & 0x4000
            or offset != delta << 1
            or body[after_length]
            or body[following - 1]
            or at + (value >> 1) != following - 1
        )
    except IndexError:
        # a number has more bytes than are read here, so `at` is wrong and may be outside the body
        is_plain = False
    if not is_plain:
        following, time = _open_record(body, start, delta)
        return following, max(time, highest), None
    time = (time >> 1) ^ -(time & 1)  # decoded from zigzag
    shape = _Shape(
        after_length - start,
        after_length + 1 - start,
        offset_at - start,
        key_at - start,
        key_size_end - start,
        value_at - start,
        at - start,
    )
    return following, time if time > highest else highest, shape


def _run(
    body: Body, position: int, stride: int, delta: int, most: int, shape: _Shape, highest: int
) -> tuple[int, int]:
    """Check the records from `position` on that have the shape and length of the previous record.

    Takes:  most, the number of records up to the offset delta at which the width changes.
    Gives:  the number of such records, and the highest timestamp delta so far.
    """
    before = position - stride
    possible = min(most, (len(body) - position) // stride)
    if possible < _FIRST_BLOCK:
        return 0, highest
    last = position + (possible - 1) * stride
    # If the last record at this stride begins with another length, or does not end with 0 headers,
    # not all records have this length.
    if body[last] != body[before] or body[last + stride - 1]:
        possible = _alike(body, position, stride, possible)
        if possible < _FIRST_BLOCK:
            return 0, highest
    _, time_at, offset_at, key_at, key_size_end, value_at, head_size = shape
    fixed = (*range(time_at), *range(key_at, key_size_end), *range(value_at, head_size), stride - 1)
    taken, block = 0, possible
    copied = stride <= _COPIED_RECORD_BYTES and type(body) is memoryview
    longest = _PIECE_BYTES // stride if copied else possible
    while taken < possible:
        block = min(block, possible - taken, longest)
        columns = _offset_columns(delta + taken, block)
        if len(columns) != key_at - offset_at:
            break
        # The records are copied a few at a time. One large copy would evict from the cache the
        # bytes that are written next.
        if copied:
            piece = bytes(body[position - stride : position + block * stride])
            block_highest = _check_columns(
                piece, stride, stride, block, columns, time_at, offset_at, fixed, highest
            )
        else:
            block_highest = _check_columns(
                body, position, stride, block, columns, time_at, offset_at, fixed, highest
            )
        if block_highest is not None:
            highest = block_highest
            taken += block
            position += block * stride
            block *= _GROWTH
        # one of many records differs, but the first few of them may still be equal
        elif block > _FIRST_BLOCK:
            block = _FIRST_BLOCK
        else:
            break
    return taken, highest


def _alike(body: Body, position: int, stride: int, most: int) -> int:
    """Count the bytes at this stride, from `position` on, that equal the byte one stride before
    `position`. Stop at the first byte that differs.
    """
    byte = _ALIKE[body[position - stride]]
    count, block = 0, _FIRST_ALIKE
    while count < most:
        block = min(block, most - count)
        start = position + count * stride
        column = bytes(body[start : start + block * stride : stride])
        # the number of equal bytes at the beginning of the column
        alike = block - len(column.lstrip(byte))
        count += alike
        if alike < block:
            break
        block *= _GROWTH
    return count


def _check_columns(
    body: Body,
    position: int,
    stride: int,
    count: int,
    offset_columns: tuple[bytes, ...],
    time_at: int,
    offset_at: int,
    fixed: tuple[int, ...],
    highest: int,
) -> int | None:
    """Check that `count` records have the shape of the previous record.

    Gives:  the highest timestamp delta so far, or None if a record differs.
    """
    before, stop = position - stride, position + count * stride
    for at in fixed:
        if body[position + at : stop : stride] != _ALIKE[body[before + at]] * count:
            return None
    at = position + offset_at
    for column in offset_columns:
        if body[at:stop:stride] != column:
            return None
        at += 1
    # The timestamps are usually equal. In that case no arithmetic is needed.
    times: list[bytes] = [body[position + at : stop : stride] for at in range(time_at, offset_at)]  # type: ignore[misc]
    if type(body) is not bytes:
        times = [memoryview(column).tobytes() for column in times]
    if times[0] == _ALIKE[body[before + time_at]] * count and (
        len(times) == 1
        or all(
            column == _ALIKE[body[before + at]] * count for at, column in enumerate(times, time_at)
        )
    ):
        return highest
    return _highest_of(times, highest)


def _highest_of(columns: list[bytes], highest: int) -> int | None:
    """The highest timestamp delta in these columns, or `highest` if it is higher.

    Gives:  None if the deltas have different widths, or more than two bytes.
    """
    if len(columns) == 1:
        (column,) = columns
        if not column.isascii():  # after a byte above 0x7F another byte follows
            return None
        # Timestamps usually rise, so the last one is usually the highest. The others then need not
        # be decoded.
        highest = max(highest, _unzigzag(column[-1]))
        later = column.translate(None, _codes_up_to(min(highest, 63)))
        return highest if not later else max(_unzigzag(code) for code in set(later))
    lanes = _lanes(columns)
    count = len(columns[0])
    ones = _ones(count)
    if lanes is None or lanes & ones:  # bit 0 of a lane is set if its delta is negative
        return None
    highest = max(highest, (columns[0][-1] & 0x7F | columns[1][-1] << 7) >> 1)
    high_bits = ones << 15
    # In each lane: limit + 0x8000 - delta. Bit 15 stays set unless the delta is above the limit,
    # and no lane borrows from the next, so one subtraction compares all deltas. The maximum is
    # computed only if a delta is higher.
    if min(highest, 8191) * 2 * ones + high_bits - lanes & high_bits != high_bits:
        highest = max(memoryview(lanes.to_bytes(2 * count, "little")).cast("H").tolist()) >> 1
    return highest


@cache
def _codes_up_to(delta: int) -> bytes:
    """The varints of one byte that encode numbers up to `delta`."""
    return bytes(code for code in range(128) if _unzigzag(code) <= delta)


def _unzigzag(code: int) -> int:
    return (code >> 1) ^ -(code & 1)


def _lanes(columns: list[bytes]) -> int | None:
    """Put varints of one or two bytes into the lanes of one large number. A lane has 16 bits.

    One operation on that number then computes with all varints.

    Gives:  None if a varint has more than two bytes, or fewer bytes than there are columns.
    """
    if len(columns) > 2 or not columns[-1].isascii():
        return None
    if len(columns) == 1:
        return _spread(columns[0])
    # If a first byte does not have its top bit set, its number has only one byte.
    if columns[0].translate(None, _HIGH_BYTES):
        return None
    # The lower 7 bits of each first byte, and above them the second byte.
    return _spread(columns[0]) & _ones(len(columns[0])) * 0x7F | _spread(columns[1]) << 7


def _spread(column: bytes) -> int:
    """A number that has each byte of a column in a lane of 16 bits."""
    raw = bytearray(2 * len(column))
    raw[::2] = column
    return int.from_bytes(raw, "little")


def _ones(count: int) -> int:
    """A number with a 1 in each lane."""
    return int.from_bytes(b"\1\0" * count, "little")


def _gather(
    body: bytes | bytearray,
    before: int,
    position: int,
    delta: int,
    count: int,
    shape: _Shape,
    highest: int,
) -> tuple[int, int] | None:
    """Check `count` records that have the shape of the record at `before`, except that the sizes of
    their keys and values may differ.

    Gives:  the position after the records, and the highest timestamp delta so far; None if a record
            has another shape.
    """
    columns = _offset_columns(delta, count)
    # The number of bytes between a record's length field and the size of its value.
    around = shape.value_at - shape.length_width
    if around > _LONGEST_HEAD or len(columns) != shape.key_at - shape.offset_at:
        return None
    # The head has at most two bytes for the length field and two for the size of the value.
    first, size = position, around + 4
    heads = []
    low_steps, high_steps = _LOW_STEPS, _HIGH_STEPS
    # Follow the length fields, which have one or two bytes, and copy the head of each record. A
    # copied head begins one byte early, with the last byte of the previous record. That byte is the
    # number of the previous record's headers, and has to be 0.
    try:
        for _ in range(count):
            head = body[position - 1 : position + size]
            heads.append(head)
            position += low_steps[head[1]] + high_steps[head[2]]
    except IndexError:
        return None
    if position > len(body) or body[position - 1]:
        return None
    stride = size + 1
    # The end of the body may cut off the last head, which is therefore padded. If the sizes are
    # correct, the padding is not compared.
    heads[-1] = heads[-1].ljust(stride, b"\0")
    joined = b"".join(heads)
    if len(joined) != stride * count or joined[::stride].strip(b"\0"):
        return None
    key = bytes(body[before + shape.key_at : before + shape.key_size_end])
    starts = None
    lengths = joined[1::stride]
    # If the key is not null and its size has one byte, the key sizes may vary. The positions of the
    # records are needed in that case.
    if len(key) == 1 and key != b"\1":
        steps = map(
            add, map(low_steps.__getitem__, lengths), map(high_steps.__getitem__, joined[2::stride])
        )
        starts = list(accumulate(steps, initial=first))[:-1]
    if lengths.isascii():
        youngest = _check_heads(body, joined, stride, 1, shape, key, columns, starts, highest)
    elif not lengths.translate(None, _HIGH_BYTES):
        youngest = _check_heads(body, joined, stride, 2, shape, key, columns, starts, highest)
    # Some length fields have one byte and some have two. The records of each width are checked
    # separately.
    else:
        youngest = highest
        for width, table in ((1, _IS_LOW), (2, _IS_HIGH)):
            chosen = lengths.translate(table)
            some = b"".join(compress(heads, chosen))
            some_columns = tuple([bytes(compress(column, chosen)) for column in columns])
            some_starts = None if starts is None else list(compress(starts, chosen))
            block_highest = _check_heads(
                body, some, stride, width, shape, key, some_columns, some_starts, youngest
            )
            if block_highest is None:
                return None
            youngest = block_highest
    return None if youngest is None else (position, youngest)


def _check_heads(
    body: Body,
    heads: bytes,
    stride: int,
    length_width: int,
    shape: _Shape,
    key: bytes,
    offset_columns: tuple[bytes, ...],
    starts: list[int] | None,
    highest: int,
) -> int | None:
    """Check the heads of records whose length fields have the same width.

    Takes:  heads, the heads joined, each of `stride` bytes, of which the first belongs to the
            previous record; key, the encoded size of the first record's key; starts, the position
            of each record, or None if all keys must have that size.
    Gives:  the highest timestamp delta so far, or None if a record has another shape.
    """
    # The number to add to a position in the shape to get the position in a head.
    shift = 1 + length_width - shape.length_width
    # a record has attributes other than 0
    if heads[shape.time_at - 1 + shift :: stride].strip(b"\0"):
        return None
    for at, column in enumerate(offset_columns, shape.offset_at + shift):
        if heads[at::stride] != column:
            return None
    count = len(offset_columns[0])
    ones = _ones(count)
    # The size of a record without its length field, its value, the size of its value, and a key of
    # varying size.
    around = shape.value_at - shape.length_width + 1
    keys: int = 0
    codes = heads[shape.key_at + shift :: stride]
    if all(
        heads[at + shift :: stride] == byte * count
        for at, byte in enumerate([_ALIKE[byte] for byte in key], shape.key_at)
    ):
        low = heads[shape.value_at + shift :: stride]
        high = heads[shape.value_at + shift + 1 :: stride]
    # The sizes of the keys vary, and each has one byte.
    elif starts is not None and codes.isascii():
        # The size of the value follows the key, at a different position in each record. Two bytes
        # are read from there.
        keys = _spread(codes)
        ahead = shape.key_size_end - shape.length_width + length_width
        ends = [ahead + (code >> 1) for code in range(128)]
        sizes_bytes = b"".join(
            [
                body[(at := start + ends[code]) : at + 2]
                for start, code in zip(starts, codes, strict=True)
            ]
        )
        if len(sizes_bytes) != 2 * count:
            return None
        low, high = sizes_bytes[::2], sizes_bytes[1::2]
        around = shape.key_size_end - shape.length_width + 1
    else:
        return None
    lengths = _lanes([heads[1 + at :: stride] for at in range(length_width)])
    sizes = _spread(low)
    wide = sizes >> 7 & ones  # 1 in the lanes in which the size of the value has two bytes
    if wide:
        second = _spread(high) & wide * 0xFF  # 0 in the lanes in which the size has one byte
        if second & wide << 7:  # a third byte
            return None
        # A size of two bytes makes the record one byte longer, which is 2 in zigzag form. Therefore
        # 2 * wide is added.
        sizes = (sizes & ones * 0x7F | second << 7) + 2 * wide
    # Check all lanes together, in zigzag form: no size is negative, and each length is the sum of
    # its parts.
    if (
        lengths is None
        or (sizes | keys) & ones
        or lengths != sizes + keys + 2 * (around + 1) * ones
    ):
        return None
    return _highest_of(
        [heads[at + shift :: stride] for at in range(shape.time_at, shape.offset_at)], highest
    )


def first_at_time(
    body: bytes | bytearray, count: int, time_delta: int, offset_delta: int
) -> tuple[int, int] | None:
    """The deltas (timestamp, offset) of the first record whose timestamp and offset deltas both
    reach the given deltas.

    Of earlier records, only the lengths and timestamps are read.

    Gives:  None if there is no such record.
    Raises: KafkaError or IndexError if the bytes are not records.
    """
    position = 0
    for _ in range(count):
        size = body[position]
        at = position + 2
        if size > 0x7F:
            byte = body[position + 1]
            size += (byte << 7) - 0x80
            at += 1
            if byte > 0x7F:
                length, at = decode_varint(body, position)
                size = length << 1
                at += 1
        position = at - 1 + (size >> 1)
        time = body[at]
        if time > 0x7F:
            time, after = decode_varint(body, at)
        else:
            time, after = (time >> 1) ^ -(time & 1), at + 1
        if time >= time_delta:
            offset, _ = decode_varint(body, after)
            if offset >= offset_delta:
                return time, offset
        if position < after:
            raise KafkaError(Code.INVALID_RECORD, "a record is not as long as it says")
    return None
