"""The pass over a log of Apache Kafka's when it is opened, by how the last run ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import KAFKA, TXN_END, kafka_directory
from helpers.storage_logs import NOW_MS

from barnabas.storage.flush_journal import JournalEntry, Redo
from barnabas.storage.last_run import LastRun
from barnabas.storage.log import UNREAD_BATCH_BYTES
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
