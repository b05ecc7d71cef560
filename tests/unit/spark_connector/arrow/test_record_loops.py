"""The loops in plain Python, on hand-written records. tests/property/test_spark_record_loops.py
compares the loops with array operations, also on damaged bytes.
"""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

import numpy as np

from barnabas.spark_connector.arrow.record_loops import (
    FIELDS,
    HEADER_COUNT,
    HEADERS_AT,
    KEY,
    KEY_AT,
    KEY_SIZE,
    OFFSET_DELTA,
    RECORD_END,
    TIMESTAMP_DELTA,
    VALUE,
    VALUE_AT,
    VALUE_SIZE,
    gather,
    headers,
    parse,
    varint,
)

# Source: the protocol guide, "Record". Varints are zigzag-encoded, and the length of null is -1.
FIRST = bytes([16, 0, 6, 0, 1, 4]) + b"v1" + bytes([0])  # length 8, and a null key
SECOND = bytes([26, 0, 5, 2, 2]) + b"k" + bytes([1, 2, 2]) + b"h" + bytes([6]) + b"abc"


def bytes_of(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def parsed(data: bytes, count: int) -> tuple[bool, np.ndarray, np.ndarray]:
    table, null = np.zeros((FIELDS, count), np.int64), np.zeros((2, count), np.bool_)
    is_right = parse(bytes_of(data), ints(0), ints(len(data)), ints(count), table, null)
    return is_right, table, null


@pytest.mark.parametrize(
    ("data", "value", "after"),
    [(b"\x00", 0, 1), (b"\x7f", 127, 1), (b"\x80\x01", 128, 2), (b"\xac\x02", 300, 2)],
)
def test_varints(data: bytes, value: int, after: int) -> None:
    assert varint(bytes_of(data), 0, len(data)) == (value, after)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9 + b"\x01"])
def test_a_varint_that_does_not_end_leads_beyond_the_end(data: bytes) -> None:
    assert varint(bytes_of(data), 0, len(data)) == (0, len(data) + 1)


def test_the_fields_of_records() -> None:
    is_right, table, null = parsed(FIRST + SECOND, 2)
    assert is_right
    assert table[TIMESTAMP_DELTA].tolist() == [3, -3]
    assert table[OFFSET_DELTA].tolist() == [0, 1]
    assert null[KEY].tolist() == [True, False] and null[VALUE].tolist() == [False, True]
    assert table[KEY_SIZE].tolist() == [0, 1] and table[KEY_AT][1] == 14
    assert table[VALUE_SIZE].tolist() == [2, 0] and table[VALUE_AT][0] == 6
    assert table[HEADER_COUNT].tolist() == [0, 1] and table[HEADERS_AT][1] == 17
    assert table[RECORD_END].tolist() == [9, 23]


@pytest.mark.parametrize(
    "data",
    [
        FIRST[:-1],
        FIRST + b"\0",
        FIRST[:1] + b"\1" + FIRST[2:],
        bytes([14]) + FIRST[1:],
        bytes([18]) + FIRST[1:],
        FIRST[:5] + bytes([40]) + FIRST[6:],
        FIRST[:-1] + bytes([1]),
    ],
    ids=["cut off", "longer", "attributes", "shorter", "length", "value", "negative count"],
)
def test_what_is_not_plainly_right_is_refused(data: bytes) -> None:
    assert not parsed(data, 1)[0]


def test_the_places_of_headers() -> None:
    data = FIRST + SECOND
    keys, values, null = ints(0, 0).reshape(2, 1), ints(0, 0).reshape(2, 1), np.zeros(1, np.bool_)
    counts, positions, ends = ints(0, 1), ints(9, 17), ints(9, 23)
    assert headers(bytes_of(data), counts, positions, ends, keys, values, null)
    assert (keys[:, 0].tolist(), values[:, 0].tolist(), null.tolist()) == (
        [18, 1],
        [20, 3],
        [False],
    )
    assert not headers(bytes_of(data[:-1]), counts, positions, ints(9, 22), keys, values, null)


def test_strings_are_copied_together_within_their_bounds() -> None:
    out = np.zeros(3, np.uint8)
    edges = np.array([0, 2, 3], np.int32)
    assert gather(bytes_of(b"abcdef"), ints(4, 0), edges, out) and out.tobytes() == b"efa"
    assert not gather(bytes_of(b"abcdef"), ints(5, 0), edges, out)
    assert not gather(bytes_of(b"abcdef"), ints(-1, 0), edges, out)
    assert not gather(bytes_of(b"abcdef"), ints(4, 0), edges, out[:2])
