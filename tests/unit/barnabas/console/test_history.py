"""The samples of the last hour: rates of topics, lags of groups, and the memory that the samples
need.
"""

from __future__ import annotations

import gc
import math
import tracemalloc

import pytest
from helpers.processes import measured_in_new_process

from barnabas.broker.observe import CommittedOffsetState, GroupState, PartitionState
from barnabas.console import history as module
from barnabas.console.history import INTERVAL_MS, LENGTH, History, Rates


def partition(topic: str, index: int, end: int, size: int = 0, start: int = 0) -> PartitionState:
    return PartitionState(topic, index, start, end, end, end, size, 1, 0, ())


def group(name: str, offset: int, lag: int) -> GroupState:
    return GroupState(name, "Stable", 1, (CommittedOffsetState("orders", 0, offset, lag),), 0)


def sampled(history: History, *rows: PartitionState | GroupState, at: int) -> None:
    """Take a sample in interval number `at`."""
    partitions = [row for row in rows if isinstance(row, PartitionState)]
    groups = [row for row in rows if isinstance(row, GroupState)]
    for _ in history.add(partitions, groups, at * INTERVAL_MS):
        pass


def test_a_sample_is_due_at_once_and_then_at_each_interval() -> None:
    history = History()
    assert history.is_due(0)
    sampled(history, at=0)
    assert not history.is_due(INTERVAL_MS - 1) and history.is_due(INTERVAL_MS)


def test_rates_of_a_topic_over_its_partitions() -> None:
    history = History()
    assert history.rates("orders") == []
    sampled(history, partition("orders", 0, 0), partition("orders", 1, 100, 1000), at=0)
    sampled(history, partition("orders", 0, 60, 600), partition("orders", 1, 130, 1300), at=1)
    first, second = history.rates("orders")
    assert math.isnan(first.records) and second == Rates(3.0, 30.0)
    now = [partition("orders", 0, 60, 600), partition("orders", 1, 150, 1500)]
    assert history.rates_now(now, INTERVAL_MS + 2000) == Rates(10.0, 100.0)
    assert history.rates_now(now, INTERVAL_MS + 100) == second, "too short for a rate of its own"
    assert math.isnan(history.rates_now([], INTERVAL_MS).records)


def test_after_retention_the_byte_rate_is_estimated_from_the_number_of_records() -> None:
    """Retention removed bytes, so the size of the log does not show how many bytes were written.
    The remaining 80 records have 800 bytes, so 30 new records in 30 s are counted as 300 bytes.
    """
    history = History()
    sampled(history, partition("orders", 0, 100, 1000), at=0)
    sampled(history, partition("orders", 0, 130, 800, start=50), at=1)
    assert history.rates("orders")[1] == Rates(1.0, 10.0)
    sampled(history, partition("orders", 0, 130, 400, start=50), at=2)
    assert history.rates("orders")[2] == Rates(0.0, 0.0), "compacted, and nothing was written"


def test_a_topic_that_is_made_again_has_no_rate_for_that_interval() -> None:
    history = History()
    sampled(history, partition("orders", 0, 100), at=0)
    sampled(history, partition("orders", 0, 5), at=1)
    sampled(history, partition("orders", 0, 35), at=2)
    assert math.isnan(history.rates("orders")[1].records)
    assert history.rates("orders")[2].records == 1.0


def test_what_is_deleted_is_dropped() -> None:
    history = History()
    sampled(history, partition("orders", 0, 100), group("kitchen", 0, 5), at=0)
    sampled(history, at=1)
    assert (history.rates("orders"), history.lags("kitchen")) == ([], [])


def test_an_hour_is_kept() -> None:
    history = History()
    for at in range(LENGTH + 30):
        sampled(history, partition("orders", 0, 30 * at * at), group("kitchen", 0, at), at=at)
    lags, rates = history.lags("kitchen"), history.rates("orders")
    assert len(lags) == len(rates) == len(history.times) == LENGTH
    assert lags == list(range(30, LENGTH + 30))
    assert rates[-1].records == pytest.approx(2 * (LENGTH + 29) - 1)


@pytest.mark.parametrize(
    ("lags", "now", "grows", "change"),
    [
        ([5, 6, 7], 8, True, 3),
        ([5, 9, 6], 7, False, 2),
        ([5, 5, 7], 8, False, 3),
        ([5, 6, 7], 5, False, 0),
        ([5, 6], 7, False, 2),
        ([7, 6, 5], 4, False, -3),
        ([0, 0, 0], 0, False, 0),
        ([100, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5], 5, False, 5),
        ([100, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5], 6, True, 6),
        ([100, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6], 7, False, 2),
    ],
)
def test_a_lag_grows_if_it_was_never_as_low_again_as_at_first(
    lags: list[int], now: int, grows: bool, change: int
) -> None:
    """A lag counts as growing if at least three of the last ten samples are known, every later lag
    is above the first, and the current lag is above that of the middle sample.
    """
    history = History()
    for at, lag in enumerate(lags):
        sampled(history, group("kitchen", 0, lag), at=at)
    trend = history.trend(group("kitchen", 0, now), len(lags) * INTERVAL_MS)
    assert (trend.grows, trend.change) == (grows, change)
    assert trend.over_ms == min(len(lags), 10) * INTERVAL_MS


def test_a_group_moves_when_its_committed_offset_changes() -> None:
    history = History()
    assert history.trend(group("kitchen", 3, 5), 0).moves is None
    sampled(history, group("kitchen", 3, 5), at=0)
    assert history.trend(group("kitchen", 3, 5), 1).moves is False
    assert history.trend(group("kitchen", 4, 5), 1).moves is True
    assert history.positions("kitchen") == {("orders", 0): 3}
    assert history.positions("none") == {}


MOST, COUNT = 2000, 2100


def samples_of_more_than_most() -> tuple[History, int, int]:
    """The samples of COUNT topics and groups where MOST are sampled.

    Gives: with them the number of slices, and the memory that is kept, in bytes.
    """
    rows = [partition(f"topic-{number}", 0, 5) for number in range(COUNT)]
    groups = [group(f"group-{number}", 0, 5) for number in range(COUNT)]
    history = History()
    gc.collect()
    tracemalloc.start()
    slices = sum(1 for _ in history.add(rows, groups, 0))
    gc.collect()
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return history, slices, kept_bytes


def bytes_of_samples() -> int:
    """The memory of these samples, in a process of its own."""
    module.MOST_TOPICS = module.MOST_GROUPS = MOST
    return samples_of_more_than_most()[2]


def test_ten_thousand_topics_and_groups_need_no_more_memory_than_documented() -> None:
    kept_bytes = measured_in_new_process(bytes_of_samples)
    assert 1200 < kept_bytes / MOST < 2200, "20 MB for 10,000 of each"


def test_topics_and_groups_beyond_a_number_are_not_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_TOPICS", MOST)
    monkeypatch.setattr(module, "MOST_GROUPS", MOST)
    history, slices, _ = samples_of_more_than_most()
    assert slices > 60, "a hundred rows at once"
    assert len(history.rates("topic-1999")) == 1 and history.rates("topic-2050") == []
    assert len(history.lags("group-1999")) == 1 and history.lags("group-2050") == []
