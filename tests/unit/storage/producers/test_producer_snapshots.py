"""Snapshot files of a log that Apache Kafka wrote, and the replay of the batches after them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_kafka_log import TXN_ABORTED, TXN_BASES, kafka_log
from helpers.storage_logs import NOW_MS, batch, kill, new_log, open_manager, state_at

from barnabas.storage.log.log import Log
from barnabas.storage.producers.producer_snapshots import ProducerSnapshots, replay_segment
from barnabas.storage.producers.producer_state import ProducerStateManager
from barnabas.storage.segments.batch_file import BatchPosition
from barnabas.storage.segments.segment import Segment


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return kafka_log(tmp_path)


def rows(state: ProducerStateManager) -> list[tuple[int, int, int, int, int]]:
    """For each producer of the state: id, last sequence, last offset, coordinator epoch, and the
    first offset of its open transaction.
    """
    return sorted(
        (e.producer_id, e.last_sequence, e.last_offset, e.coordinator_epoch, e.txn_first_offset)
        for e in state.producers.values()
    )


# `kafka-dump-log.sh --files 00000000000000000031.snapshot`
AT_31 = [(5, 5, 30, 0, 28), (6, 5, 26, 0, -1), (7, 11, 22, 0, -1)]


def test_a_snapshot_is_read_as_kafkas_tool_prints_it(log: Log) -> None:
    state = log.snapshots.read(31, 0)
    assert state is not None and rows(state) == AT_31
    assert state.open_txns == {5: 28} and state.end_offset == 31


@pytest.mark.parametrize("kept", [(3, 28), (3,), ()])
def test_replay_gives_the_same_state_from_any_snapshot_or_from_none(
    log: Log, kept: tuple[int, ...]
) -> None:
    log.snapshots.offsets = list(kept)
    assert rows(state_at(log, 31)) == AT_31
    number = TXN_BASES.index(31)
    assert rows(log.snapshots.state_at_segment(list(log.segments), number, 0)) == AT_31


def test_the_state_before_a_segment_ends_at_the_segments_base_offset(tmp_path: Path) -> None:
    """The state ends at this offset even if compaction removed the end of the previous segment."""
    log = new_log(tmp_path, segment_bytes=2 * len(batch()))[1]
    for number in range(4):
        log.append(batch(pid=1, epoch=0, seq=number), now_ms=NOW_MS)
    first, second = log.segments
    first.batches.truncate(len(batch()))
    log.snapshots.offsets = []
    state = log.snapshots.state_at_segment([first, second], 1, 0)
    assert state.end_offset == second.base_offset == 2


def test_producers_of_deleted_segments_survive_the_loss_of_a_snapshot(tmp_path: Path) -> None:
    """A power loss removed the snapshot that was written at the roll, so the start read the
    segments. Then the broker was killed before the next checkpoint.
    """
    manager, log = new_log(tmp_path, segment_bytes=2 * len(batch()))
    for number in range(4):
        log.append(batch(pid=1, epoch=0, seq=number), now_ms=NOW_MS)
    log.try_roll(NOW_MS)
    log.flush()
    newest = log.snapshots.path(log.snapshots.offsets[-1])
    kill(manager)
    Path(newest).write_bytes(b"")
    manager = open_manager(tmp_path)
    log = manager.logs["t", 0]
    assert last_sequence_of(log) == 3
    log.delete_records_before(-1)
    assert log.delete_old_segments(NOW_MS) == 2
    kill(manager, machine=False)
    assert last_sequence_of(open_manager(tmp_path).logs["t", 0]) == 3


def last_sequence_of(log: Log) -> int:
    return log.producer_state.producers[1].last_sequence


def test_batches_without_a_producer_only_advance_the_end_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path)[1]
    log.append(batch(), now_ms=NOW_MS)
    log.append(batch(pid=1, epoch=0, seq=0), now_ms=NOW_MS)
    state = state_at(log, 2)
    assert list(state.producers) == [1] and state.end_offset == 2
    log.append(batch(), now_ms=NOW_MS)
    assert state_at(log, 3).end_offset == 3


def test_0_is_a_valid_producer_id(tmp_path: Path) -> None:
    log = new_log(tmp_path)[1]
    log.append(batch(pid=0, epoch=0, seq=0), now_ms=NOW_MS)
    assert list(state_at(log, 1).producers) == [0]


@pytest.mark.parametrize(
    ("offset", "kept", "searched"),
    [
        (31, (28,), [28]),
        (30, (28,), [28]),
        (31, (31,), []),
        (30, (3,), [3, 28]),
        (49, (28, 31), [31]),
        (2, (), [0]),
    ],
)
def test_replay_searches_only_the_segments_between_the_snapshot_and_the_offset(
    log: Log,
    offset: int,
    kept: tuple[int, ...],
    searched: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log may have thousands of segments, so the others must not be searched."""
    log.snapshots.offsets = list(kept)
    found = []
    find = Segment.find

    def note(segment: Segment, offset: int) -> BatchPosition | None:
        found.append(segment.base_offset)
        return find(segment, offset)

    monkeypatch.setattr(Segment, "find", note)
    state_at(log, offset)
    assert found == searched


def test_a_partial_replay_returns_the_transactions_that_ended_in_it(log: Log) -> None:
    """A replay to offset 20 includes the marker at 19, which ends the first aborted transaction. A
    replay to offset 19 does not include it.
    """
    ended = replay_segment(ProducerStateManager(3), log.segments[1], 3, 20, NOW_MS)
    aborted = [(each.producer_id, each.first_offset, each.last_offset) for each in ended]
    assert aborted[-1] == TXN_ABORTED[0]
    assert len(replay_segment(ProducerStateManager(3), log.segments[1], 3, 19, NOW_MS)) == (
        len(ended) - 1
    )


def test_replay_of_an_empty_segment_opens_no_files(tmp_path: Path) -> None:
    """An empty segment may lack index files."""
    log = new_log(tmp_path)[1]
    segment = Segment(
        log.disk,
        log.directory,
        9,
        size=0,
        created_ms=NOW_MS,
        cache=log.log_dir.cache,
        index_interval_bytes=4096,
    )
    assert replay_segment(ProducerStateManager(9), segment, 9, 20, NOW_MS) == []
    assert not list(Path(log.directory).glob(f"{9:020d}*"))


def test_a_snapshot_is_not_fsynced(log: Log) -> None:
    """If a power loss removes the snapshot, the batches are replayed."""
    disk = RecordingDisk()
    ProducerSnapshots(disk, log.directory, []).write(ProducerStateManager(50), TXN_BASES)
    assert disk.take_steps() == [("write", f"{50:020d}.snapshot")]


def test_replay_ends_within_a_segment(log: Log) -> None:
    state = state_at(log, 30)
    assert state.end_offset == 30 and state.producers[5].last_sequence == 4


def test_a_damaged_snapshot_is_removed_and_an_older_one_used(log: Log) -> None:
    path = Path(log.snapshots.path(31))
    path.write_bytes(path.read_bytes()[:-1])
    assert rows(state_at(log, 31)) == AT_31
    assert not path.exists() and 31 not in log.snapshots.offsets


def test_the_two_latest_snapshots_and_those_at_segment_bases_are_kept(log: Log) -> None:
    snapshots = log.snapshots
    for offset in (50, 51, 52):
        snapshots.write(ProducerStateManager(offset), TXN_BASES)
    assert snapshots.offsets == [3, 28, 31, 51, 52]
    assert sorted(int(path.stem) for path in Path(log.directory).glob("*.snapshot")) == [
        3, 28, 31, 51, 52,
    ]  # fmt: skip


def test_take_deleted_drop_above_and_drop_below(log: Log) -> None:
    snapshots = log.snapshots
    assert snapshots.take_deleted(31) == [snapshots.path(3), snapshots.path(28)]
    assert snapshots.offsets == [31, 49] and Path(snapshots.path(3)).exists(), "renamed by others"
    snapshots.drop_above(31)
    assert snapshots.offsets == [31] and not Path(snapshots.path(49)).exists()
    snapshots.drop_below(32)
    assert snapshots.offsets == [] and not Path(snapshots.path(31)).exists()


@pytest.mark.parametrize("way", ["above", "below", "damaged", "older"])
def test_sound_offset_is_reset_when_its_snapshot_is_dropped_or_damaged(log: Log, way: str) -> None:
    """Otherwise the state of producers could be lost together with the deleted segments."""
    snapshots = log.snapshots
    for offset in (50, 60):
        snapshots.write(ProducerStateManager(offset), TXN_BASES)
    assert snapshots.sound_offset == 60
    if way == "above":
        snapshots.drop_above(50)
    elif way == "below":
        snapshots.drop_below(61)
    elif way == "damaged":
        Path(snapshots.path(60)).write_bytes(b"")
        snapshots.read(60, 0)
    else:
        snapshots.drop_below(60)  # this call deletes the snapshots below the offset
    assert snapshots.sound_offset == (60 if way == "older" else -1)


class ComparedOffset(int):
    """An offset that counts the comparisons of all instances."""

    count = 0

    def __eq__(self, other: object) -> bool:
        ComparedOffset.count += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        ComparedOffset.count += 1
        return int(self) < other

    def __ge__(self, other: int) -> bool:
        ComparedOffset.count += 1
        return int(self) >= other

    __hash__ = int.__hash__


def test_take_deleted_compares_each_snapshot_at_most_twice(log: Log) -> None:
    """A log of 20,000 segments, all of which retention may delete, has as many snapshots."""
    snapshots = log.snapshots
    snapshots.offsets = [ComparedOffset(10 * number) for number in range(1000)]
    ComparedOffset.count = 0
    assert len(snapshots.take_deleted(9_000)) == 900
    assert len(snapshots.offsets) == 100
    assert ComparedOffset.count <= 2 * 1000
