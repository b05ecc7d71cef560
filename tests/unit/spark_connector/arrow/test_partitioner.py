"""The hash that selects the partition of a key. It is the same as in Apache Kafka and other
clients, for any layout of the keys in memory.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from helpers.examples import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from barnabas.client.murmur2 import murmur2_of
from barnabas.spark_connector.arrow.partitioner import FEW_KEYS, murmur2, partitions_of

# The values of Apache Kafka's UtilsTest.testMurmur2.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
KEYS = st.binary(max_size=40)


@pytest.mark.parametrize(("key", "expected"), KNOWN.items())
@pytest.mark.parametrize("count", [1, FEW_KEYS + 1])
def test_known_values_of_same_length(key: bytes, expected: int, count: int) -> None:
    assert (
        murmur2(pa.array([key] * count, pa.binary())).view(np.int32).tolist() == [expected] * count
    )


def test_known_values_of_different_lengths() -> None:
    keys = list(KNOWN) * 100
    assert (
        murmur2(pa.array(keys, pa.binary())).view(np.int32).tolist() == list(KNOWN.values()) * 100
    )


@given(st.lists(KEYS, max_size=80), st.integers(0, 5))
def test_any_keys_hash_as_in_kafka_python(keys: list[bytes], skipped: int) -> None:
    array = pa.array(keys, pa.binary())[skipped:]
    assert murmur2(array).tolist() == [
        kafka_python_murmur2(key) & 0xFFFFFFFF for key in keys[skipped:]
    ]


@given(
    st.integers(0, 13),
    st.integers(FEW_KEYS - 1, 60),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_keys_of_one_length(length: int, count: int, skipped: int, chance) -> None:  # type: ignore[no-untyped-def]
    keys = [chance.randbytes(length) for _ in range(count)]
    assert murmur2(pa.array(keys, pa.binary())[skipped:]).tolist() == [
        kafka_python_murmur2(key) & 0xFFFFFFFF for key in keys[skipped:]
    ]


@settings(max_examples=drawn(30))
@given(
    st.lists(KEYS, min_size=FEW_KEYS, max_size=60),
    st.lists(st.binary(min_size=200, max_size=900), max_size=FEW_KEYS + 2),
)
def test_a_few_long_keys_among_short_ones(short: list[bytes], long: list[bytes]) -> None:
    keys = [*short, *long]
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [murmur2_of(key) for key in keys]
    assert [murmur2_of(key) for key in keys] == [
        kafka_python_murmur2(key) & 0xFFFFFFFF for key in keys
    ]


def test_nulls_do_not_disturb_their_neighbours() -> None:
    keys = [None, b"foobar", None, b"abc", *[b"x" * size for size in range(60)], None]
    partitions = partitions_of(pa.array(keys, pa.binary()), 7).tolist()
    for key, partition in zip(keys, partitions, strict=True):
        assert key is None or partition == (kafka_python_murmur2(key) & 0x7FFFFFFF) % 7


def test_each_key_may_have_its_own_count() -> None:
    keys = [b"foobar", b"abc", b"21"]
    expected = [
        (kafka_python_murmur2(key) & 0x7FFFFFFF) % count
        for key, count in zip(keys, (3, 5, 100), strict=True)
    ]
    assert partitions_of(pa.array(keys, pa.binary()), np.array([3, 5, 100])).tolist() == expected


def test_no_keys() -> None:
    assert murmur2(pa.array([], pa.binary())).tolist() == []
    assert murmur2(pa.array([b"a"], pa.binary())[1:]).tolist() == []
