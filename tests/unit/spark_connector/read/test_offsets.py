"""Ranges that are divided among tasks, and offsets as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.read.offsets import (
    OffsetRange,
    divide,
    join,
    offsets_as_json,
    offsets_of_json,
    share_of_limit,
)

ranges = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500)), max_size=6).map(
    lambda each: [
        OffsetRange("t", index, start, start + size) for index, (start, size) in enumerate(each)
    ]
)


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 100))
def test_pieces_make_up_the_ranges(
    whole: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = divide(whole, min_partitions=min_partitions, max_records=max_records)
    total = sum(each.size for each in whole)
    assert all(piece.size > 0 for piece in pieces)
    for each in whole:
        mine = [piece for piece in pieces if piece.partition == each.partition]
        edges = [each.start_offset, *(piece.end_offset for piece in mine)]
        assert [piece.start_offset for piece in mine] == edges[:-1]
        assert edges[-1] == each.end_offset or each.size == 0
        assert (
            max((piece.size for piece in mine), default=0)
            - min((piece.size for piece in mine), default=0)
            <= 1
        )
    assert max_records is None or all(piece.size <= max_records for piece in pieces)
    assert len(pieces) >= min(min_partitions or 0, total)


def test_the_longest_range_is_cut_first() -> None:
    whole = [OffsetRange("a", 0, 0, 10), OffsetRange("b", 0, 100, 1000)]
    assert divide(whole, min_partitions=4) == [
        OffsetRange("a", 0, 0, 10),
        OffsetRange("b", 0, 100, 400),
        OffsetRange("b", 0, 400, 700),
        OffsetRange("b", 0, 700, 1000),
    ]


def test_without_options_there_is_one_task_a_partition_and_none_for_empty_ones() -> None:
    whole = [OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 7, 7), OffsetRange("a", 2, 9, 3)]
    assert divide(whole) == whole[:1]


def test_json_has_one_order() -> None:
    """The order of keys must be fixed, since Spark compares stream offsets as strings."""
    left = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    right = dict(reversed(list(left.items())))
    assert json.dumps(offsets_as_json(left)) == json.dumps(offsets_as_json(right))
    assert (
        json.dumps(offsets_as_json(left), separators=(",", ":"))
        == '{"a":{"0":3},"b":{"9":2,"10":1}}'
    )


def test_no_piece_is_empty_however_many_are_wanted() -> None:
    pieces = divide([OffsetRange("a", 0, 5, 7), OffsetRange("a", 1, 0, 1)], min_partitions=10)
    assert pieces == [
        OffsetRange("a", 0, 5, 6),
        OffsetRange("a", 0, 6, 7),
        OffsetRange("a", 1, 0, 1),
    ]


sizes = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 20)), st.integers(0, 10**12)
)


@given(sizes)
def test_json_of_a_stream_is_the_same_text_after_every_round(
    offsets: dict[TopicPartition, int],
) -> None:
    text = json.dumps(offsets_as_json(offsets))
    again = offsets_of_json(json.loads(text))
    assert again == offsets
    assert json.dumps(offsets_as_json(dict(reversed(again.items())))) == text


@pytest.mark.parametrize("wrong", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": None}}])
def test_json_that_is_no_offsets(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="offsets look like"):
        offsets_of_json(wrong)


@given(sizes, st.integers(1, 10**13))
def test_a_limit_is_shared_out_in_proportion(
    available: dict[TopicPartition, int], limit: int
) -> None:
    shares = share_of_limit(available, limit)
    total = sum(available.values())
    assert all(0 <= shares[name] <= size for name, size in available.items())
    assert all(shares[name] > 0 for name, size in available.items() if size), "each gets a share"
    assert sum(shares.values()) <= limit + len(available)
    if total <= limit:
        assert shares == available
    else:
        assert all(
            abs(shares[name] - limit * size / total) <= 1 + size / 10**6
            for name, size in available.items()
        )


def sizes_of(tasks: list[tuple[OffsetRange, ...]]) -> list[list[int]]:
    return [[each.size for each in task] for task in tasks]


@pytest.mark.parametrize(
    ("sizes", "most", "least", "tasks"),
    [
        ([1, 1, 1], 1000, 0, [[1, 1, 1]]),
        ([400, 600, 1], 1000, 0, [[400, 600], [1]]),
        ([5000, 1, 1, 5000], 1000, 0, [[5000], [1, 1], [5000]]),
        ([1, 1, 1], 0, 0, [[1], [1], [1]]),
        ([1, 1, 1], 1000, 1, [[1, 1, 1]]),
        ([1, 1, 1], 1000, 2, [[1], [1], [1]]),
        ([], 1000, 0, []),
    ],
)
def test_small_ranges_are_read_by_one_task(
    sizes: list[int], most: int, least: int, tasks: list[list[int]]
) -> None:
    ranges = [OffsetRange("t", number, 7, 7 + size) for number, size in enumerate(sizes)]
    joined = join(ranges, most_offsets=most, least_tasks=least)
    assert sizes_of(joined) == tasks
    assert [each for task in joined for each in task] == ranges, "each once, and in order"
