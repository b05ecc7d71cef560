"""Runs of offsets with a delivery state. Adding runs must have the same result as adding each
offset to a map.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.share_states import state_batches
from barnabas.coordinator.share_states.state_batches import StateBatch, combine

Rows = list[tuple[int, int, int, int]]


def combined(current: Rows, added: Rows, start_offset: int = -1) -> Rows:
    batches = [StateBatch(*row) for row in current]
    combine(batches, [StateBatch(*row) for row in added], start_offset)
    return [tuple(run) for run in batches]


# In KIP-932 and Apache Kafka 4.3, the higher delivery count has precedence, then the higher state.
@pytest.mark.parametrize(
    ("current", "added", "start_offset", "expected"),
    [
        ([(100, 130, 0, 1)], [], 120, [(120, 130, 0, 1)]),
        ([], [(100, 130, 0, 1)], 120, [(120, 130, 0, 1)]),
        ([(100, 110, 0, 1)], [(100, 110, 0, 2)], -1, [(100, 110, 0, 2)]),
        ([(100, 110, 0, 3)], [(100, 110, 0, 1)], -1, [(100, 110, 0, 3)]),
        ([(100, 110, 0, 1)], [(100, 105, 0, 2)], -1, [(100, 105, 0, 2), (106, 110, 0, 1)]),
        ([(100, 110, 0, 1)], [(111, 120, 0, 1)], -1, [(100, 120, 0, 1)]),
        ([(100, 110, 0, 1)], [(111, 120, 2, 1)], -1, [(100, 110, 0, 1), (111, 120, 2, 1)]),
        (
            [(111, 120, 0, 1)],
            [(111, 113, 0, 2), (114, 114, 2, 1), (115, 119, 0, 2)],
            -1,
            [(111, 113, 0, 2), (114, 114, 2, 1), (115, 119, 0, 2), (120, 120, 0, 1)],
        ),
        (
            [(100, 110, 0, 1), (121, 130, 0, 1)],
            [(111, 119, 2, 2), (116, 123, 2, 2)],
            120,
            [(120, 123, 2, 2), (124, 130, 0, 1)],
        ),
        ([(100, 109, 0, 1)], [(105, 104, 2, 1)], -1, [(100, 109, 0, 1)]),
        ([(100, 109, 0, 2), (110, 119, 0, 1)], [(110, 119, 0, 2)], -1, [(100, 119, 0, 2)]),
        (
            [(100, 109, 0, 2), (110, 119, 0, 1), (120, 129, 0, 2)],
            [(110, 119, 0, 2)],
            -1,
            [(100, 129, 0, 2)],
        ),
    ],
)
def test_the_run_with_the_higher_delivery_count_replaces_the_other(
    current: Rows, added: Rows, start_offset: int, expected: Rows
) -> None:
    assert combined(current, added, start_offset) == expected


runs = st.builds(
    lambda first, length, state, count: (first, first + length, state, count),
    st.integers(0, 40),
    st.integers(0, 12),
    st.sampled_from([0, 2, 4]),
    st.integers(1, 3),
)


@given(st.lists(st.tuples(st.lists(runs, max_size=4), st.integers(-1, 45)), max_size=8))
def test_combined_runs_equal_a_map_of_offsets(steps: list[tuple[Rows, int]]) -> None:
    batches: list[StateBatch] = []
    model: dict[int, tuple[int, int]] = {}
    for added, start_offset in steps:
        combine(batches, [StateBatch(*row) for row in added], start_offset)
        for first, last, state, count in added:
            for offset in range(first, last + 1):
                model[offset] = max(model.get(offset, (0, 0)), (count, state))
        model = {offset: run for offset, run in model.items() if offset >= start_offset}
        spread = {
            offset: (run.delivery_count, run.delivery_state)
            for run in batches
            for offset in range(run.first_offset, run.last_offset + 1)
        }
        assert spread == model
        assert sum(run.last_offset - run.first_offset + 1 for run in batches) == len(model)
        for before, after in itertools.pairwise(batches):
            assert before.last_offset < after.first_offset
            assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:]


@pytest.mark.parametrize("one_by_one", [0, 2, 1_000])
@given(steps=st.lists(st.tuples(st.lists(runs, max_size=9), st.integers(-1, 45)), max_size=6))
def test_many_runs_are_combined_as_single_ones_are(
    one_by_one: int, steps: list[tuple[Rows, int]]
) -> None:
    """More than a few runs are added in one pass. The result is the same, with the same batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_batches, "MOST_ONE_BY_ONE", one_by_one)
        batches: list[StateBatch] = []
        expected: list[StateBatch] = []
        for added, start_offset in steps:
            combine(batches, [StateBatch(*row) for row in added], start_offset)
            for row in added:
                patch.setattr(state_batches, "MOST_ONE_BY_ONE", 1)
                combine(expected, [StateBatch(*row)], start_offset)
                patch.setattr(state_batches, "MOST_ONE_BY_ONE", one_by_one)
            combine(expected, [], start_offset)
            assert batches == expected


def test_runs_that_each_overlap_all_others_are_combined_in_one_pass() -> None:
    """Added one by one, each of them would be compared with all batches: 100 million steps."""
    narrow = [StateBatch(2 * at, 2 * at, 0, 2) for at in range(10_000)]
    wide = [StateBatch(0, 1 << 40, 0, 1)] * 10_000
    batches: list[StateBatch] = []
    combine(batches, [*narrow, *wide], -1)
    assert len(batches) == 20_000 and batches[-1] == StateBatch(19_999, 1 << 40, 0, 1)
