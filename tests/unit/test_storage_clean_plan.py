"""Which compacted log is dirty enough, by Apache Kafka's settings, and what a job consists of."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA, TXN_ABORTED, TXN_BASES, kafka_log

from barnabas.storage.clean_plan import Dirt, assess, is_due, plan
from barnabas.storage.log import Log

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


@pytest.mark.parametrize(("lag_ms", "end"), [(0, 31), (LATE_MS - 1795222689507, 31), (LATE_MS, 3)])
def test_min_compaction_lag_keeps_the_first_young_segment_and_all_after_it(
    tmp_path: Path, lag_ms: int, end: int
) -> None:
    wall_ms = LATE_MS if lag_ms < LATE_MS else 1700000000004 + lag_ms
    dirt = assess(compacted(tmp_path, min_compaction_lag_ms=lag_ms), None, wall_ms)
    assert dirt is not None and dirt.end_offset == end


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
    assert job.groups == (((0, 234),), ((3, 2002),), ((28, 237),)), "2048 bytes fit no two of them"
    assert [(e.producer_id, e.first_offset, e.last_offset) for e in job.aborted] == TXN_ABORTED[:1]
    assert job.last_batches == {5: (30, 0)}, "of the others the last batch is not cleaned"
    wide = compacted(tmp_path / "b", segment_bytes=1 << 20)
    assert plan(wide, dirt, job_id=1, map_bytes=1000, wall_ms=LATE_MS).groups == (
        ((0, 234), (3, 2002), (28, 237)),
    )
