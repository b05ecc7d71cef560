"""The errors of the loops that encode records. test_spark_encoding.py and
tests/property/test_spark_encoding.py compare the loops' bytes with those of array operations.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow")

import numpy as np
from helpers.spark_encoding import ways

from barnabas.spark_connector.arrow.numba_loops import EncodingLoops

ARRAYS = {
    "key_lengths": np.uint32,
    "value_lengths": np.uint32,
    "key_edges": np.int32,
    "value_edges": np.int32,
    "header_edges": np.int32,
}


@pytest.mark.parametrize(
    "damage",
    [
        {"order": [0, 2]},
        {"order": [-1, 0]},
        {"ends": [3]},
        {"ends": [0]},
        {"timestamps": [0, 1 << 62]},
        {"content_sizes": [5, 900]},
        {"content_sizes": [5, 6]},
        {"content_sizes": [5]},
        {"key_lengths": [2, 200]},
        {"key_edges": [0, 2]},
        {"key_edges": [0, -5, 2]},
        {"value_edges": [0, 70, 80]},
        {"value_lengths": [2]},
        {"header_edges": [0, 9, 9]},
        {"header_edges": [0, 1]},
        {"out": 8},
        {"body_ends": [0, 0]},
    ],
)
@pytest.mark.parametrize("loops", ways()[1:])
def test_a_loop_refuses_arguments_that_would_go_beyond_an_array(
    loops: EncodingLoops, damage: dict[str, Any]
) -> None:
    """The loops are compiled without bounds checks. They must refuse wrong edges or lengths before
    they write outside an array. The undamaged arguments give two records.
    """
    arguments: dict[str, Any] = {
        "order": [0, 1],
        "ends": [2],
        "timestamps": [7, 8],
        "content_sizes": [6, 6],
        "key_lengths": [2, 2],
        "key_edges": [0, 1, 2],
        "key_data": b"ab",
        "value_lengths": [2, 2],
        "value_edges": [0, 1, 2],
        "value_data": b"cd",
        "header_edges": [],
        "header_data": b"",
        "out": 100,
        "body_ends": [0],
    }

    def written(arguments: dict[str, Any]) -> tuple[bool, bytes]:
        arrays = [
            np.frombuffer(each, np.uint8)
            if isinstance(each, bytes)
            else np.zeros(each, np.uint8)
            if isinstance(each, int)
            else np.array(each, ARRAYS.get(name, np.int64))
            for name, each in arguments.items()
        ]
        return loops.write_records(*arrays), bytes(arrays[12][: arrays[13][-1]])

    assert written(arguments) == (
        True,
        bytes([16, 0, 0, 0, 2, 97, 2, 99, 0, 16, 0, 2, 2, 2, 98, 2, 100, 0]),
    )
    assert not written(arguments | damage)[0]


@pytest.mark.parametrize("loops", ways()[1:])
@pytest.mark.parametrize("edges", [[0, 3], [-1, 2], [2, 1]])
def test_a_key_outside_of_its_data(loops: EncodingLoops, edges: list[int]) -> None:
    hashes = np.zeros(1, np.uint32)
    assert not loops.murmur2(np.frombuffer(b"ab", np.uint8), np.array(edges, np.int32), hashes)
