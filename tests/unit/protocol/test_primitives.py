"""The primitive types of messages, encoded as the protocol guide defines them."""

from __future__ import annotations

import pytest

from barnabas.protocol.primitives import (
    MalformedMessageError,
    read_nullable_string,
    read_string,
    read_tags,
    read_uvarint,
    skip_tags,
    write_string,
)


@pytest.mark.parametrize(
    ("data", "value"), [(b"\x00", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\xac\x02", 300)]
)
def test_unsigned_varints(data: bytes, value: int) -> None:
    assert read_uvarint(data + b"rest", 0) == (value, len(data))


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="five bytes"):
        read_uvarint(b"\x80" * 5 + b"\x01", 0)


def test_strings_of_both_forms() -> None:
    assert read_string(b"\x00\x02ab", 0, False) == ("ab", 4)
    assert read_string(b"\x03ab", 0, True) == ("ab", 3)
    assert read_nullable_string(b"\xff\xff", 0, False) == (None, 2)
    assert read_nullable_string(b"\x00", 0, True) == (None, 1)
    out = bytearray()
    write_string(out, "ab", True)
    assert out == b"\x03ab"


def test_a_null_or_truncated_string_is_refused() -> None:
    for data, compact in ((b"\x00", True), (b"\xff\xff", False), (b"\x04ab", True)):
        with pytest.raises(MalformedMessageError):
            read_string(data, 0, compact)


def test_tagged_fields_are_stepped_over() -> None:
    assert skip_tags(b"\x01\x05\x02ab!", 0) == 5


@pytest.mark.parametrize("count", [1, 100, 101])
def test_a_struct_has_a_hundred_tagged_fields_at_most(count: int) -> None:
    data = bytes([count]) + b"".join(bytes([tag, 1, 7]) for tag in range(count))
    if count > 100:
        with pytest.raises(MalformedMessageError, match="more than 100 tagged fields"):
            read_tags(data, 0)
    else:
        fields, end = read_tags(data, 0)
        assert (len(fields), end) == (count, len(data))
