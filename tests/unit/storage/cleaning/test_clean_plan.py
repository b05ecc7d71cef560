"""The choice of a dirty compacted log by Apache Kafka's settings, and the parts of a job."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.storage_kafka_log import KAFKA, TXN_ABORTED, TXN_BASES, TXN_END, kafka_log
from helpers.storage_logs import NOW_MS

from barnabas.storage.cleaning.clean_plan import (
    Dirt,
    _groups,
    assess,
    dirty_bytes_if_rolled,
    is_due,
    plan,
)
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.segments.segment_indexes import SegmentIndexes

SIZES = [(KAFKA / "txn-0" / f"{base:020d}.log").stat().st_size for base in TXN_BASES]
LATE_MS = 1800000000000


def compacted(path: Path, **config: object) -> Log:
    return kafka_log(path, cleanup_policy=frozenset({"compact"}), **config)


def test_all_below_the_active_segment_is_dirty_at_first(tmp_path: Path) -> None:
    dirt = assess(compacted(tmp_path), None, LATE_MS)
    assert dirt == Dirt(0, 31, 0, sum(SIZES[:3]), False)


def test_what_an_earlier_round_left_is_clean(tmp_path: Path) -> None:
    dirt = assess(compacted(tmp_path), 28, LATE_MS)
    assert dirt == Dirt(28, 31, sum(SIZES[:2]), SIZES[2], False)
    assert dirt.ratio == SIZES[2] / sum(SIZES[:3])
    assert assess(compacted(tmp_path / "b"), 31, LATE_MS) is None, "all is clean"
    assert assess(compacted(tmp_path / "c"), 1000, LATE_MS) == Dirt(
        0, 31, 0, sum(SIZES[:3]), False
    ), "an offset beyond the log is of another one"


def test_a_log_that_is_not_compacted_has_no_dirt(tmp_path: Path) -> None:
    assert assess(kafka_log(tmp_path), None, LATE_MS) is None


def test_what_is_not_stable_stays(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    log.last_stable_offset = 30
    dirt = assess(log, None, LATE_MS)
    assert dirt is not None and dirt.end_offset == 28


def test_what_could_be_cleaned_if_the_active_segment_were_closed(tmp_path: Path) -> None:
    log = compacted(tmp_path, min_cleanable_dirty_ratio=0.5)
    size = log.segments.active.batches.size
    assert size and dirty_bytes_if_rolled(log, None) == sum(SIZES[:3]) + size
    assert dirty_bytes_if_rolled(log, 31) == 0, "most is clean"
    ratio = size / (sum(SIZES[:3]) + size)
    for least, expected in ((ratio, 0), (ratio - 1e-9, size)):
        log.config = replace(log.config, min_cleanable_dirty_ratio=least)
        assert dirty_bytes_if_rolled(log, 31) == expected
    log.last_stable_offset = 31
    assert dirty_bytes_if_rolled(log, 31) == size, "all before the active segment is stable"
    log.last_stable_offset = 30
    assert dirty_bytes_if_rolled(log, 31) == dirty_bytes_if_rolled(log, None) == 0
    log.last_stable_offset = log.log_end_offset
    assert log.try_roll(NOW_MS) and dirty_bytes_if_rolled(log, None) == 0, "nothing to close"


@pytest.mark.parametrize(("lag_ms", "end"), [(0, 31), (LATE_MS - 1795222689507, 31), (LATE_MS, 3)])
def test_min_compaction_lag_keeps_the_first_young_segment_and_all_after_it(
    tmp_path: Path, lag_ms: int, end: int
) -> None:
    wall_ms = LATE_MS if lag_ms < LATE_MS else 1700000000004 + lag_ms
    dirt = assess(compacted(tmp_path, min_compaction_lag_ms=lag_ms), None, wall_ms)
    assert dirt is not None and dirt.end_offset == end


@pytest.mark.parametrize("is_young", list(product([False, True], repeat=3)))
def test_the_cleaned_part_ends_before_the_first_segment_that_is_young_or_not_stable(
    tmp_path: Path, is_young: tuple[bool, ...]
) -> None:
    """The timestamps of segments need not increase from one segment to the next."""
    log = compacted(tmp_path, min_compaction_lag_ms=1000)
    ends = log.segments.base_offsets[1:]
    for segment, young in zip(log.segments, is_young, strict=False):
        segment.indexes.has_times = True
        segment.indexes.max_timestamp = LATE_MS - 999 if young else LATE_MS - 1000
    for stable in range(TXN_END + 1):
        log.last_stable_offset = stable
        expected = 0
        for end, young in zip(ends, is_young, strict=True):
            if young or end > stable:
                break
            expected = end
        dirt = assess(log, None, LATE_MS)
        assert (0 if dirt is None else dirt.end_offset) == expected


def test_a_log_is_due_by_its_ratio_or_by_its_age(tmp_path: Path) -> None:
    log = compacted(tmp_path, min_cleanable_dirty_ratio=0.5)
    assert not is_due(log, Dirt(0, 31, 50, 50, False)) and is_due(log, Dirt(0, 31, 49, 51, False))
    assert is_due(log, Dirt(0, 31, 99, 1, True))
    overdue = assess(compacted(tmp_path / "b", max_compaction_lag_ms=1000), None, LATE_MS)
    assert overdue is not None and overdue.is_overdue


def test_a_job_has_neighbours_that_fit_a_segment_and_the_aborted_below_its_end(
    tmp_path: Path,
) -> None:
    log = compacted(tmp_path)
    dirt = assess(log, None, LATE_MS)
    assert dirt is not None
    job = plan(log, dirt, job_id=1, map_bytes=1000, wall_ms=LATE_MS)
    assert job.groups == (((0, 234),), ((3, 2002),), ((28, 237),)), (
        "no two of these segments fit into 2048 bytes"
    )
    assert [(e.producer_id, e.first_offset, e.last_offset) for e in job.aborted] == TXN_ABORTED[:1]
    assert job.last_batches == {5: (30, 0)}, (
        "the last batches of other producers are not in the cleaned segments"
    )
    wide = compacted(tmp_path / "b", segment_bytes=1 << 20)
    assert plan(wide, dirt, job_id=1, map_bytes=1000, wall_ms=LATE_MS).groups == (
        ((0, 234), (3, 2002), (28, 237)),
    )


def test_a_log_that_was_cleaned_to_its_very_end_has_no_dirt(tmp_path: Path) -> None:
    """The only segment after the cleaned part is the active one, and it is empty."""
    log = compacted(tmp_path)
    log._roll(NOW_MS)
    assert assess(log, TXN_END, LATE_MS) is None


def test_segments_that_came_out_empty_are_no_dirt(tmp_path: Path) -> None:
    log = compacted(tmp_path)
    for segment in log.segments[:-1]:
        segment.batches.size = 0
    assert assess(log, None, LATE_MS) is None


@pytest.mark.parametrize("later_ms", [0, 1])
def test_a_lag_of_a_millisecond_is_one(tmp_path: Path, later_ms: int) -> None:
    dirt = assess(compacted(tmp_path, min_compaction_lag_ms=1), None, 1700000000004 + later_ms)
    assert (dirt is not None) is bool(later_ms)


@pytest.mark.parametrize(
    ("first_times", "is_overdue"),
    [
        ([-1, -1, -1], False),
        ([0, 0, 0], False),
        ([-1, 1, -1], True),
        ([5_000, 999, 5_000], True),
        ([5_000, 1_000, 5_000], False),
        ([1_000, -1, 0], False),
    ],
)
def test_the_oldest_first_batch_that_has_a_time_is_older_than_the_lag(
    tmp_path: Path, first_times: list[int], is_overdue: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timestamps up to 0 are ignored, as in Apache Kafka."""
    log = compacted(tmp_path, max_compaction_lag_ms=9_000)
    times = dict(zip(log.segments.base_offsets, first_times, strict=False))
    monkeypatch.setattr(
        SegmentIndexes, "first_batch_timestamp", lambda indexes: times[indexes.base_offset]
    )
    dirt = assess(log, None, 10_000)
    assert dirt is not None and dirt.is_overdue is is_overdue


def test_without_a_longest_lag_no_segment_is_read_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assessing a log with many dirty segments must not open all of them."""
    log = compacted(tmp_path)

    def refuse(indexes: SegmentIndexes) -> int:
        raise AssertionError("the segment is read")

    monkeypatch.setattr(SegmentIndexes, "first_batch_timestamp", refuse)
    assert assess(log, None, LATE_MS) is not None


def groups_of(
    segments: list[tuple[int, int]], end_offset: int, **config: int
) -> list[list[tuple[int, int]]]:
    """The groups of segments, given by base offset and size. Each group is cleaned into one
    segment.
    """
    log: Any = SimpleNamespace(config=LogConfig(**config))  # type: ignore[arg-type]
    sources: Any = [
        SimpleNamespace(base_offset=base, batches=SimpleNamespace(size=size))
        for base, size in segments
    ]
    return [
        [(segment.base_offset, segment.batches.size) for segment in group]
        for group in _groups(log, sources, end_offset)
    ]


@pytest.mark.parametrize(
    ("config", "fits"),
    [
        ({"segment_bytes": 300}, True),
        ({"segment_bytes": 299}, False),
        # Index entries have 12 bytes and are at least index_interval_bytes apart, and a batch has
        # at least 61 bytes.
        ({"index_interval_bytes": 100, "segment_index_bytes": 36}, True),
        ({"index_interval_bytes": 100, "segment_index_bytes": 35}, False),
        ({"index_interval_bytes": 1, "segment_index_bytes": 60}, True),
        ({"index_interval_bytes": 1, "segment_index_bytes": 59}, False),
    ],
)
def test_a_group_has_no_more_bytes_than_a_segment_and_its_indexes_may(
    config: dict[str, int], fits: bool
) -> None:
    segments = [(0, 100), (5, 200)]
    assert groups_of(segments, 9, **config) == (
        [segments] if fits else [[segment] for segment in segments]
    )


def test_the_bytes_of_each_group_are_counted_again() -> None:
    segments = [(number, 40) for number in range(5)]
    groups = groups_of(segments, 5, segment_bytes=100)
    assert groups == [segments[:2], segments[2:4], segments[4:]]


@pytest.mark.parametrize(("beyond", "fits"), [(0, True), (1, False)])
def test_the_last_offset_of_a_group_lies_within_four_bytes_of_its_first(
    beyond: int, fits: bool
) -> None:
    segments = [(10, 100), (20, 100)]
    end_offset = 10 + 2**31 + beyond
    assert (groups_of(segments, end_offset) == [segments]) is fits
