"""The swap of cleaned segments, with Kafka's names, and what a stop at each step leaves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.storage_kafka_log import TXN_END, kafka_log

from barnabas.storage.cleaner import CleanedSegment
from barnabas.storage.disk import OsDisk
from barnabas.storage.log import Log
from barnabas.storage.segment_swap import complete_swaps, discard_result, swap_in

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
CLEANED = CleanedSegment(28, (28,), 237, 1700000000046, 30)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return kafka_log(tmp_path)


def copy_as(directory: Path, base: int, ending: str) -> None:
    """A new segment that holds what the old one holds: what a cleaning made that took nothing."""
    for suffix in SUFFIXES:
        source = directory / f"{base:020d}{suffix}"
        target = Path(f"{source}{ending}")
        if source.exists():
            shutil.copy(source, target)
        else:
            target.write_bytes(b"")


def names(directory: Path, ending: str) -> list[str]:
    return sorted(path.name for path in directory.glob(f"*{ending}"))


def test_the_new_segment_takes_the_old_ones_place(log: Log) -> None:
    directory = Path(log.directory)
    copy_as(directory, 28, ".cleaned")
    old = log.segments[2]
    assert swap_in(log, [CLEANED], 0)
    assert log.segments[2] is not old and log.segments.base_offsets == [0, 3, 28, 31]
    assert names(directory, ".cleaned") == names(directory, ".swap") == []
    assert f"{28:020d}.log.deleted" in names(directory, ".deleted")
    assert [header.base_offset for header, _ in log.read_batches(28)][:3] == [28, 29, 30]


def test_snapshots_within_what_was_cleaned_go(log: Log) -> None:
    copy_as(Path(log.directory), 28, ".cleaned")
    swap_in(log, [CLEANED], 0)
    assert log.snapshots.offsets == [31, TXN_END]


def test_a_group_that_lost_segments_is_dropped_with_all_later_ones(log: Log) -> None:
    directory = Path(log.directory)
    for base in (0, 28):
        copy_as(directory, base, ".cleaned")
    replaced = [segment.base_offset for segment in log.segments]
    groups = [CleanedSegment(0, (0, 1), 234, 1, 1), CLEANED]
    assert not swap_in(log, groups, 0)
    assert log.segments.base_offsets == replaced and names(directory, ".cleaned") == []


def test_a_result_that_nobody_wants_is_removed(log: Log) -> None:
    copy_as(Path(log.directory), 28, ".cleaned")
    discard_result(log, [CLEANED])
    assert names(Path(log.directory), ".cleaned") == []


def test_a_start_completes_a_swap_whose_log_has_its_swap_name(log: Log) -> None:
    directory = Path(log.directory)
    raw = (directory / f"{28:020d}.log").read_bytes()
    copy_as(directory, 28, ".swap")
    (directory / f"{28:020d}.log").unlink()
    complete_swaps(OsDisk(), str(directory))
    assert names(directory, ".swap") == []
    assert (directory / f"{28:020d}.log").read_bytes() == raw


def test_a_start_drops_indexes_whose_log_did_not_come_so_far(log: Log) -> None:
    directory = Path(log.directory)
    raw = (directory / f"{28:020d}.log").read_bytes()
    (directory / f"{28:020d}.index.swap").write_bytes(b"half")
    complete_swaps(OsDisk(), str(directory))
    assert names(directory, ".swap") == []
    assert (directory / f"{28:020d}.log").read_bytes() == raw


def test_segments_within_the_offsets_of_the_new_one_go_at_a_start(log: Log) -> None:
    directory = Path(log.directory)
    merged = b"".join((directory / f"{base:020d}.log").read_bytes() for base in (0, 3))
    (directory / f"{0:020d}.log.swap").write_bytes(merged)
    (directory / f"{0:020d}.txnindex.swap").write_bytes(b"")
    complete_swaps(OsDisk(), str(directory))
    assert names(directory, ".log") == [f"{base:020d}.log" for base in (0, 28, 31)]
    assert (directory / f"{0:020d}.log").read_bytes() == merged
