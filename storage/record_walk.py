"""Whether bytes are the records that a batch says they are, and how young the youngest is.

A record is opened in one of three ways, which accept the same:

    by itself    `_open_record`: every field, whatever its form
    in a loop    `_walk`: fields of one or two bytes, which nearly all are, are read in place; anything else is opened by itself
    in columns   many records of one shape together. Each field then lies at the same place of every record, and so a field of all of them
                 is one slice with a stride, which is compared at once with what it must be

A shape is where the fields of a record lie. Records of one length are found at a stride in the batch itself (`_run`). Of records whose
values differ in length the beginnings are brought together first (`_gather`); of those with keys of several lengths nothing is known of
where the value's size lies, so they are walked.

Source: Kafka's message format; what is refused is what DefaultRecord.readFrom and LogValidator refuse, and offset deltas that do not
count from 0, which Apache Kafka looks at in compressed batches alone. Attributes of a record other than 0, which nobody has defined, are
refused: kafka-python reads them as a varint.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import decode_varint

Body = bytes | bytearray | memoryview

_SMALLEST_RECORD = 6  # bytes after the length: attributes, two deltas, no key, no value, no headers
_WIDEST_INT = 5  # bytes of a varint that Java reads as an int
_FIRST_BLOCK = 8  # records of one length that are tried together at first: fewer are sooner walked
_BLOCK = 512  # records that are gathered together
_LEAST_GATHERED = 32
_COPIED_RECORD_BYTES = 256  # of records that are smaller a copy is made, since bytes are sliced sooner than a memoryview
_LONGEST_HEAD = 80  # of a record's beginning that is gathered: with a longer key, walking is as fast
_GROWTH = 4
_FIRST_WIDE_DELTA = 8192  # the first offset delta whose varint has three bytes

_LOW = bytes((delta << 1) & 0x7F | 0x80 for delta in range(8192))  # of varints of several bytes: the first, by the delta modulo 8192
_HIGH = bytes(delta >> 6 for delta in range(8192))  # the second
_MIDDLE = bytes(byte | 0x80 for byte in _HIGH)  # the second, where there is a third
_ONE = bytes(range(0, 128, 2))
_LOW_STEPS = [2 + (byte - 0x80 >> 1) for byte in range(256)]  # what the two bytes of a length add to the position
_HIGH_STEPS = [byte << 6 for byte in range(256)]
_HIGH_BYTES = bytes(range(0x80, 0x100))
_AT_MOST = tuple(bytes(code for code in range(128) if (code >> 1) ^ -(code & 1) <= delta) for delta in range(-64, 64))  # [delta + 64]


class _Shape(NamedTuple):
    """Where the fields of a record lie, counted from its beginning; its offset delta is as wide as that of the deltas around it."""

    length_width: int
    time_at: int
    offset_at: int
    key_at: int
    key_size_end: int
    value_at: int
    head_size: int  # up to the value


def highest_time_delta(body: Body, position: int, count: int) -> int:
    """Check that `count` records, with the offset deltas 0, 1, 2 …, fill `body` from `position` to its end.

    Gives:  the largest of their timestamp deltas.
    Raises: KafkaError INVALID_RECORD.
    """
    highest = -(1 << 63)
    try:
        if count <= _FIRST_BLOCK:
            position, highest = _walk(body, position, 0, count, highest)
        else:
            position, highest = _check_many(body, position, count)
    except IndexError as error:
        raise KafkaError(Code.INVALID_RECORD, f"the batch does not hold the {count} records that it says") from error
    if position != len(body):
        raise KafkaError(Code.INVALID_RECORD, f"bytes are left over after the {count} records that the batch says")
    return highest


def _check_many(body: Body, position: int, count: int) -> tuple[int, int]:
    highest = -(1 << 63)
    delta = misses = 0
    wanted = _LEAST_GATHERED
    if type(body) is memoryview and len(body) < count * _COPIED_RECORD_BYTES:
        body = bytes(body)
    while delta < count:
        start = position
        position, highest = _walk(body, position, delta, delta + 1, highest)
        delta += 1
        most = min(count, _next_width(delta)) - delta
        if most < _FIRST_BLOCK:
            continue
        shape = None if body[position - 1] else _shape(body, start)  # a last byte other than 0: there are headers
        if shape is not None:
            stride = position - start
            taken, highest = _run(body, position, stride, delta, most, shape, highest)
            position += taken * stride
            delta += taken
            most -= taken
            if taken >= _FIRST_BLOCK or not most:
                continue
        if type(body) is memoryview:
            body = bytes(body)
        if shape is not None and most >= _LEAST_GATHERED:
            block = min(wanted, most)
            gathered = _gather(body, start, position, delta, block, shape, highest)
            if gathered is not None:
                position, highest = gathered
                delta += block
                misses = 0
                wanted = min(_BLOCK, 2 * wanted)
                continue
            wanted = _LEAST_GATHERED
        block = min(_BLOCK, _LEAST_GATHERED << misses, most)
        misses += 1
        position, highest = _walk(body, position, delta, delta + block, highest)
        delta += block
    return position, highest


def _open_record(body: Body, position: int, delta: int) -> tuple[int, int]:
    """The position after the record that begins there, and its timestamp delta. Raises KafkaError or IndexError where it is none."""
    length, at = _decode_int(body, position)
    following = at + length
    if length < _SMALLEST_RECORD or following > len(body):
        raise _wrong(delta, f"is said to have {length} bytes")
    if body[at]:
        raise _wrong(delta, f"has the attributes {body[at]:#x}, and none are known")
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
    for _ in range(headers):
        if body[at] & 1:
            raise _wrong(delta, "has a header without a name")
        at = _after_blob(body, _after_blob(body, at, delta), delta)
    if at != following:
        raise _wrong(delta, "is not as long as it says")
    return following, time


def _decode_int(body: Body, position: int) -> tuple[int, int]:
    value, at = decode_varint(body, position)
    if at - position > _WIDEST_INT:
        raise KafkaError(Code.INVALID_RECORD, f"a varint has {at - position} bytes, and at most {_WIDEST_INT} are read")
    return value, at


def _after_blob(body: Body, at: int, delta: int) -> int:
    size, at = _decode_int(body, at)
    if size < -1:
        raise _wrong(delta, f"has a field of the size {size}")
    return at + max(size, 0)


def _wrong(delta: int, what: str) -> KafkaError:
    return KafkaError(Code.INVALID_RECORD, f"record {delta} {what}")


class RecordRefused(KafkaError):
    """A record that is one, but not in its place. Apache Kafka names it in record_errors, and none whose bytes are no record."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(Code.INVALID_RECORD, message)
        self.index = index


def _walk(body: Body, position: int, first: int, stop: int, highest: int) -> tuple[int, int]:
    """Check the records of the offset deltas `first` up to `stop`. Gives the position after them, and the highest timestamp delta so far.

    A number of two bytes has bit 14 set here where a third byte belongs to it, one of three bytes bit 21: then, and where anything else is
    not as it mostly is, the record is opened by itself.
    """
    top = highest << 1
    for delta in range(first, stop):
        start = position
        size = body[position]
        at = position + 2  # after a length of one byte, and the attributes
        if size > 0x7F:
            size += (body[position + 1] << 7) - 0x80
            at += 1
        position = at - 1 + (size >> 1)
        if not (size & 0x4001 or body[at - 1] or body[position - 1]):
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
            if offset == delta << 1 and not (offset >> 7 | time) & 0x4000:
                key = body[at]
                at += 1
                if key > 0x7F:
                    key += (body[at] << 7) - 0x80
                    at += 1
                elif key == 1:
                    key = 0
                at += key >> 1
                value = body[at]
                at += 1
                if value > 0x7F:
                    value += (body[at] << 7) - 0x80
                    at += 1
                elif value == 1:
                    value = 0
                if at + (value >> 1) == position - 1 and not (key | value) & 0x4001:
                    if time & 1:
                        time = -1 - time
                    if time > top:  # noqa: PLR1730 (a call costs a fifth of the loop)
                        top = time
                    continue
        position, time = _open_record(body, start, delta)
        top = max(top, time << 1)
    return position, top >> 1


def _next_width(delta: int) -> int:
    """The first offset delta after this one at which the columns of the deltas change their width or their last byte."""
    return 64 if delta < 64 else (delta | 8191) + 1


def _offset_columns(delta: int, count: int) -> tuple[bytes, ...]:
    """The bytes of `count` offset deltas from `delta` on, none of which reaches `_next_width`: all the first bytes, all the second …"""
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


def _shape(body: Body, start: int) -> _Shape:
    """Of the record that begins there, which was checked."""
    _, after_length = decode_varint(body, start)
    time_at = after_length + 1
    _, offset_at = decode_varint(body, time_at)
    _, key_at = decode_varint(body, offset_at)
    size, after_size = decode_varint(body, key_at)
    value_at = after_size + max(size, 0)
    _, head_end = decode_varint(body, value_at)
    return _Shape(
        length_width=after_length - start,
        time_at=time_at - start,
        offset_at=offset_at - start,
        key_at=key_at - start,
        key_size_end=after_size - start,
        value_at=value_at - start,
        head_size=head_end - start,
    )


def _run(body: Body, position: int, stride: int, delta: int, most: int, shape: _Shape, highest: int) -> tuple[int, int]:
    """How many of the records from `position` on are of the shape and length of the one before.

    Takes:  most, how many there are up to the next width of offset deltas.
    Gives:  the number, and the highest timestamp delta so far.
    """
    before = position - stride
    possible = min(most, (len(body) - position) // stride)
    if possible < _FIRST_BLOCK or body[position] != body[before] or len(_offset_columns(delta, 1)) != shape.key_at - shape.offset_at:
        return 0, highest
    fixed = [*range(shape.time_at), *range(shape.key_at, shape.key_size_end), *range(shape.value_at, shape.head_size), stride - 1]
    taken = 0
    last = position + (possible - 1) * stride
    block = possible if body[last] == body[before] and not body[last + stride - 1] else _FIRST_BLOCK
    while taken < possible:
        block = min(block, possible - taken)
        found = _check_columns(body, position, stride, delta + taken, block, shape, fixed, highest)
        if found is not None:
            highest = found
            taken += block
            position += block * stride
            block *= _GROWTH
        elif block > _FIRST_BLOCK:
            block = _FIRST_BLOCK
        else:
            break
    return taken, highest


def _check_columns(
    body: Body, position: int, stride: int, delta: int, count: int, shape: _Shape, fixed: list[int], highest: int
) -> int | None:
    """Whether `count` records are as the one before; gives the highest timestamp delta so far, or None."""
    before, stop = position - stride, position + count * stride
    for at in fixed:
        if body[position + at : stop : stride] != bytes((body[before + at],)) * count:
            return None
    for at, column in enumerate(_offset_columns(delta, count), shape.offset_at):
        if body[position + at : stop : stride] != column:
            return None
    times = [body[position + at : stop : stride] for at in range(shape.time_at, shape.offset_at)]
    if all(column == bytes((body[before + at],)) * count for at, column in enumerate(times, shape.time_at)):
        return highest
    return _highest_of([bytes(column) for column in times], highest)


def _highest_of(columns: list[bytes], highest: int) -> int | None:
    """The highest of the timestamp deltas in these columns and `highest`; None where they are not of one width, or of more than two bytes."""
    if len(columns) == 1:
        (column,) = columns
        if not column.isascii():
            return None
        highest = max(highest, _unzigzag(column[-1]))  # times mostly rise, so that there is none later
        later = column.translate(None, _AT_MOST[min(highest, 63) + 64])
        return highest if not later else max(_unzigzag(code) for code in set(later))
    lanes = _lanes(columns)
    count = len(columns[0])
    ones = _ones(count)
    if lanes is None or lanes & ones:
        return None
    highest = max(highest, (columns[0][-1] & 0x7F | columns[1][-1] << 7) >> 1)
    high_bits = ones << 15
    if min(highest, 8191) * 2 * ones + high_bits - lanes & high_bits != high_bits:
        highest = max(memoryview(lanes.to_bytes(2 * count, "little")).cast("H").tolist()) >> 1
    return highest


def _unzigzag(code: int) -> int:
    return (code >> 1) ^ -(code & 1)


def _lanes(columns: list[bytes]) -> int | None:
    """Varints of one or two bytes, each in 16 bits of one number, so that all of them are reckoned with at once.

    None where they are not all as wide as there are columns, or wider than two bytes.
    """
    count = len(columns[0])
    if len(columns) > 2 or not columns[-1].isascii():
        return None
    raw = bytearray(2 * count)
    raw[::2] = columns[0]
    if len(columns) == 1:
        return int.from_bytes(raw, "little")
    if columns[0].translate(None, _HIGH_BYTES):
        return None
    raw[1::2] = columns[1]
    both, ones = int.from_bytes(raw, "little"), _ones(count)
    return both & ones * 0x7F | (both & ones * 0xFF00) >> 1


def _ones(count: int) -> int:
    return int.from_bytes(b"\1\0" * count, "little")


def _gather(body: Body, before: int, position: int, delta: int, count: int, shape: _Shape, highest: int) -> tuple[int, int] | None:
    """Check `count` records that are of the shape, which is that of the record at `before`, but for the size of their values.

    Gives:  the position after them, and the highest timestamp delta so far; None where they are not.
    """
    width = shape.length_width
    if (
        width > 2
        or shape.head_size - shape.value_at != width
        or shape.head_size > _LONGEST_HEAD
        or len(_offset_columns(delta, 1)) != shape.key_at - shape.offset_at
    ):
        return None
    starts = []
    low_steps, high_steps = _LOW_STEPS, _HIGH_STEPS
    try:  # if the lengths are as wide as that of the shape, which is checked below, these are where the records begin
        if width == 1:
            for _ in range(count):
                starts.append(position)
                position += (body[position] >> 1) + 1
        else:
            for _ in range(count):
                starts.append(position)
                position += low_steps[body[position]] + high_steps[body[position + 1]]
    except IndexError:
        return None
    if position > len(body) or body[position - 1]:
        return None
    stride = shape.head_size + 1
    heads = b"".join([body[start - 1 : start - 1 + stride] for start in starts])  # each with the last byte of the record before
    if len(heads) != stride * count or heads[stride::stride].strip(b"\0"):
        return None
    if heads[shape.time_at :: stride].strip(b"\0"):  # attributes
        return None
    ones = _ones(count)
    lengths = _lanes([heads[1 + at :: stride] for at in range(width)])
    keys: int | None = 0
    if all(heads[at + 1 :: stride] == bytes((body[before + at],)) * count for at in range(shape.key_at, shape.key_size_end)):
        sizes = _lanes([heads[1 + shape.value_at + at :: stride] for at in range(width)])
        around = shape.head_size - width + 1  # all of a record but its length and its value
    elif shape.key_size_end - shape.key_at == 1:
        codes = heads[shape.key_at + 1 :: stride]
        keys = _lanes([codes])
        ends = [shape.key_size_end + (code >> 1) for code in range(256)]
        found = b"".join([body[(at := start + ends[code]) : at + width] for start, code in zip(starts, codes, strict=True)])
        sizes = _lanes([found[at::width] for at in range(width)]) if len(found) == width * count else None
        around = shape.key_size_end + 1  # of its length and its value's, one is within that
    else:
        return None
    if lengths is None or sizes is None or keys is None or (sizes | keys) & ones or lengths != sizes + keys + 2 * around * ones:
        return None
    for at, column in enumerate(_offset_columns(delta, count), shape.offset_at + 1):
        if heads[at::stride] != column:
            return None
    youngest = _highest_of([heads[at + 1 :: stride] for at in range(shape.time_at, shape.offset_at)], highest)
    return None if youngest is None else (position, youngest)


def first_at_time(body: bytes, count: int, time_delta: int, offset_delta: int) -> tuple[int, int] | None:
    """Timestamp delta and offset delta of the first record whose deltas are not below these; None where there is none.

    Of the others their length and time are read, no more. Raises: KafkaError or IndexError where the bytes are no records.
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
