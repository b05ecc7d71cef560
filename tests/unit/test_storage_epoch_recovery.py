"""Leader epochs at a start, of a log whose batches have the epochs 0 (Kafka's) and later ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import TXN_END, kafka_log
from helpers.storage_logs import NOW_MS, batch, kill, new_log

from barnabas.storage.disk import OsDisk
from barnabas.storage.epoch_recovery import load_epochs
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.partition_files import PartitionFiles


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Kafka's log, with one batch each of the epochs 3 and 7 after it; no manifest."""
    log = kafka_log(tmp_path)
    for epoch in (3, 7):
        log.begin_leader_epoch(epoch)
        log.append(batch(), now_ms=NOW_MS)
    log.segments.active.write_indexes()
    return tmp_path / "txn-0"


EPOCHS = [(0, 0), (3, TXN_END), (7, TXN_END + 1)]


def epochs_of(directory: Path, *, all_flushed: bool = False) -> list[tuple[int, int]]:
    files = PartitionFiles(LogDirectory(OsDisk(), str(directory.parent)), "txn", 0)
    files.open_segments(LogConfig(), 0, NOW_MS)
    return load_epochs(files, TXN_END + 2, all_flushed=all_flushed).entries


def test_the_file_is_believed_where_it_fits(directory: Path) -> None:
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n3 49\n7 50\n"
    assert epochs_of(directory) == EPOCHS


@pytest.mark.parametrize(
    "text",
    [
        "0\n2\n0 0\n3 49\n",  # an older one is back: the last epoch is missing
        "0\n3\n0 0\n3 49\n",  # cut off
        "no file",
    ],
)
def test_one_that_does_not_fit_is_built_anew_from_the_batches(directory: Path, text: str) -> None:
    (directory / "leader-epoch-checkpoint").write_text(text)
    assert epochs_of(directory) == EPOCHS
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n3 49\n7 50\n"


@pytest.mark.parametrize("torn", [b"", bytes(6), b"0\n1\n0 "])
def test_the_torn_file_of_an_empty_log_is_written_anew(tmp_path: Path, torn: bytes) -> None:
    """Nothing else would write it before the first batch, and Apache Kafka refuses such a file."""
    manager, _ = new_log(tmp_path)
    kill(manager)
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    path.write_bytes(torn)
    files = PartitionFiles(LogDirectory(OsDisk(), str(tmp_path)), "t", 0)
    files.open_segments(LogConfig(), 0, NOW_MS)
    assert load_epochs(files, 0, all_flushed=False).entries == []
    assert path.read_text() == "0\n0\n"


def test_a_missing_one_is_built_anew(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").unlink()
    assert epochs_of(directory) == EPOCHS


def test_after_a_clean_stop_an_epoch_without_a_batch_is_no_reason_to_look(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 49\n")
    assert epochs_of(directory, all_flushed=True) == [(0, 0), (3, 49)]


@pytest.mark.parametrize("most_records", [1, 3])
@pytest.mark.parametrize("count", [3, 4, 7])
def test_where_epochs_begin_is_found_among_batches_of_any_number(
    tmp_path: Path, count: int, most_records: int
) -> None:
    """Without the file each batch's own epoch tells."""
    for first in range(1, count):
        manager, log = new_log(tmp_path / str(first))
        for number in range(count):
            if number == first:
                log.begin_leader_epoch(5)
            log.append(batch([b"v"] * (1 + number % most_records)), now_ms=NOW_MS)
        starts = [header.base_offset for header, _ in log.read_batches()]
        log.segments.active.write_indexes()
        kill(manager)
        Path(log.directory, "leader-epoch-checkpoint").unlink()
        files = PartitionFiles(LogDirectory(OsDisk(), manager.data_dir), "t", 0)
        files.open_segments(LogConfig(), 0, NOW_MS)
        found = load_epochs(files, log.log_end_offset, all_flushed=False).entries
        assert found == [(0, 0), (5, starts[first])]
