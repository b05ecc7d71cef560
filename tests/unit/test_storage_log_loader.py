"""The pass over a log of Apache Kafka's when it is opened, by how the last run ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA, TXN_END, kafka_directory
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, kill, open_manager

from barnabas.storage.flush_journal import JournalEntry, Redo
from barnabas.storage.last_run import LastRun
from barnabas.storage.log import UNREAD_BATCH_BYTES, Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_loader import LogLoader, Opening
from barnabas.storage.partition_files import PartitionFiles
from barnabas.storage.segment import CorruptLog

ACTIVE = "00000000000000000031.log"
LAST_BATCH, SIZE = 1362, 1439  # of the active segment, as Kafka dumps it


def loader_of(
    path: Path,
    last_run: LastRun = LastRun.KILLED,
    recovery_point: int = 0,
    redo: Redo | None = None,
    *,
    is_compacted: bool = False,
    gaps_are_lost: bool = True,
    copied: bool = False,
) -> LogLoader:
    if not copied:
        kafka_directory(path)
    from barnabas.storage.disk import OsDisk
    from barnabas.storage.log_directory import LogDirectory

    files = PartitionFiles(LogDirectory(OsDisk(), str(path)), "txn", 0)
    files.open_segments(LogConfig(), 0, NOW_MS)
    opening = Opening(last_run, NOW_MS, redo)
    return LogLoader(
        files, opening, recovery_point, is_compacted=is_compacted, gaps_are_lost=gaps_are_lost
    )


def test_without_a_manifest_the_last_segment_is_read_where_all_was_written(tmp_path: Path) -> None:
    loader = loader_of(tmp_path)
    state = loader.load()
    assert state.end_offset == TXN_END and state.open_txns == {8: 48}
    assert loader.read_bytes == SIZE + 18 * UNREAD_BATCH_BYTES


def test_after_a_power_loss_all_above_the_recovery_point_is_read(tmp_path: Path) -> None:
    sizes = [(KAFKA / "txn-0" / f"{base:020d}.log").stat().st_size for base in (3, 28, 31)]
    loader = loader_of(tmp_path, LastRun.POWER_LOST, 27)
    assert loader.load().end_offset == TXN_END
    assert loader.read_bytes == sum(sizes) + (TXN_END - 3) * UNREAD_BATCH_BYTES


# --- where the pass begins ----------------------------------------------------------------------

BATCH_BYTES = len(batch())
CONFIG = LogConfig(segment_bytes=2 * BATCH_BYTES)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Seven batches in segments at 0, 2, 4 and 6, and a checkpoint of all that."""
    manager = open_manager(tmp_path, CONFIG)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for number in range(7):
        log.append(batch(pid=1, epoch=0, seq=number), now_ms=NOW_MS)
    log.flush()
    log.checkpoint()
    kill(manager)
    return log


def loaded(
    log: Log, last_run: LastRun = LastRun.KILLED, recovery_point: int = 0
) -> tuple[int, int, int]:
    """How many batches were read, the log's end, and the producer's last sequence."""
    files = PartitionFiles(log.log_dir, "t", 0)
    files.open_segments(CONFIG, 0, NOW_MS)
    opening = Opening(last_run, NOW_MS)
    loader = LogLoader(files, opening, recovery_point, is_compacted=False, gaps_are_lost=True)
    state = loader.load()
    count, rest = divmod(loader.read_bytes, BATCH_BYTES + UNREAD_BATCH_BYTES)
    assert rest == 0
    producer = state.producers.get(1)
    return count, state.end_offset, -1 if producer is None else producer.batches[-1].last_sequence


def file_of(log: Log, base_offset: int) -> Path:
    return Path(log.directory, f"{base_offset:020d}.log")


def test_where_the_files_fit_the_manifest_nothing_is_read(log: Log) -> None:
    assert loaded(log) == (0, 7, 6)


def test_what_came_since_the_checkpoint_is_read(log: Log) -> None:
    log.append(batch(pid=1, epoch=0, seq=7), now_ms=NOW_MS)
    assert loaded(log) == (1, 8, 7)


def test_an_oldest_segment_that_retention_took_is_not_missed(log: Log) -> None:
    file_of(log, 0).unlink()
    assert loaded(log) == (0, 7, 6)


def test_an_older_segment_that_the_manifest_has_not_makes_it_one_of_another_log(log: Log) -> None:
    kept = file_of(log, 0).read_bytes()
    log.delete_records_before(2)
    log.delete_old_segments(NOW_MS)
    log.checkpoint()
    assert loaded(log) == (0, 7, 6)
    file_of(log, 0).write_bytes(kept)
    assert loaded(log) == (1, 7, 6)


@pytest.mark.parametrize(
    ("base_offset", "size", "expected"),
    [
        (6, 0, (0, 6, 5)),  # the last one is shorter: from its start
        (4, 3 * BATCH_BYTES, (1, 7, 6)),  # a closed one is longer: the last one, as ever
    ],
)
def test_a_segment_of_another_size_is_not_what_was_noted(
    log: Log, base_offset: int, size: int, expected: tuple[int, int, int]
) -> None:
    with file_of(log, base_offset).open("r+b") as file:
        file.truncate(size)
    assert loaded(log) == expected


def test_without_the_snapshot_of_its_end_a_manifest_is_not_enough(log: Log) -> None:
    Path(log.snapshots.path(7)).unlink()
    assert loaded(log) == (1, 7, 6)


def test_an_empty_last_segment_may_be_gone(log: Log) -> None:
    log.append(batch(pid=1, epoch=0, seq=7), now_ms=NOW_MS)
    assert log._try_roll(NOW_MS)
    log.checkpoint()
    file_of(log, 8).unlink()
    assert loaded(log) == (2, 8, 7)


@pytest.mark.parametrize(
    ("recovery_point", "count"), [(7, 0), (8, 0), (6, 1), (5, 3), (4, 3), (3, 5), (0, 7)]
)
def test_a_power_loss_is_followed_from_the_segment_of_the_recovery_point(
    log: Log, recovery_point: int, count: int
) -> None:
    assert loaded(log, LastRun.POWER_LOST, recovery_point) == (count, 7, 6)


def test_indexes_built_on_the_way_are_kafkas(tmp_path: Path) -> None:
    loader_of(tmp_path, LastRun.FOREIGN).load()
    for original in (KAFKA / "txn-0").glob("*index"):
        if original.stem != ACTIVE[:20]:  # the active segment's are complete when it is closed
            assert (tmp_path / "txn-0" / original.name).read_bytes() == original.read_bytes()


def cut(path: Path, size: int) -> None:
    kafka_directory(path)
    with (path / "txn-0" / ACTIVE).open("r+b") as file:
        file.truncate(size)


def test_a_torn_end_is_cut(tmp_path: Path) -> None:
    cut(tmp_path, LAST_BATCH + 70)
    state = loader_of(tmp_path, LastRun.POWER_LOST, copied=True).load()
    assert state.end_offset == 48 and state.open_txns == {}
    assert (tmp_path / "txn-0" / ACTIVE).stat().st_size == LAST_BATCH


def test_what_was_durable_is_not_cut(tmp_path: Path) -> None:
    cut(tmp_path, LAST_BATCH + 70)
    with pytest.raises(CorruptLog, match="although all below offset 49 was durable"):
        loader_of(tmp_path, LastRun.POWER_LOST, TXN_END, copied=True).load()


@pytest.mark.parametrize("last_run", [LastRun.POWER_LOST, LastRun.FOREIGN, LastRun.CLEAN])
def test_what_a_flush_journal_has_is_written_again(tmp_path: Path, last_run: LastRun) -> None:
    cut(tmp_path, LAST_BATCH + 70)
    loader = loader_of(tmp_path, last_run, copied=True)
    whole = (KAFKA / "txn-0" / ACTIVE).read_bytes()
    redo = Redo()
    redo.add(JournalEntry(*loader.files.partition, 31, LAST_BATCH, whole[LAST_BATCH:]))
    loader.redo = redo
    assert loader.load().end_offset == TXN_END
    assert (tmp_path / "txn-0" / ACTIVE).read_bytes() == whole


def test_what_cannot_come_next_is_not_written_again(tmp_path: Path) -> None:
    cut(tmp_path, LAST_BATCH + 70)
    loader = loader_of(tmp_path, LastRun.POWER_LOST, copied=True)
    last = bytearray((KAFKA / "txn-0" / ACTIVE).read_bytes()[LAST_BATCH:])
    last[:8] = (60).to_bytes(8)
    redo = Redo()
    redo.add(JournalEntry(*loader.files.partition, 31, LAST_BATCH, bytes(last)))
    loader.redo = redo
    assert loader.load().end_offset == 48
    assert (tmp_path / "txn-0" / ACTIVE).stat().st_size == LAST_BATCH


def test_after_a_kill_no_journal_is_asked(tmp_path: Path) -> None:
    assert loader_of(tmp_path, LastRun.KILLED, redo=Redo()).redo is None
    assert loader_of(tmp_path / "other", LastRun.POWER_LOST, redo=Redo()).redo is not None


def without_the_third(path: Path) -> None:
    kafka_directory(path)
    (path / "txn-0" / "00000000000000000028.log").unlink()


def test_a_gap_between_segments_is_where_a_power_loss_ended_the_log(tmp_path: Path) -> None:
    without_the_third(tmp_path)
    loader = loader_of(tmp_path, LastRun.POWER_LOST, copied=True)
    assert loader.load().end_offset == 28
    assert (tmp_path / "txn-0" / "00000000000000000031.log.set-aside").stat().st_size == SIZE


def test_in_a_compacted_log_of_another_broker_a_gap_is_compaction(tmp_path: Path) -> None:
    without_the_third(tmp_path)
    loader = loader_of(
        tmp_path, LastRun.FOREIGN, is_compacted=True, gaps_are_lost=False, copied=True
    )
    assert loader.load().end_offset == TXN_END
