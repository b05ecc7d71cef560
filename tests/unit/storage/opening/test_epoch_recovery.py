"""The leader epochs that a start loads, for a log with batches that Kafka wrote in epoch 0, and
with batches in later epochs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.storage_kafka_log import TXN_END, kafka_log
from helpers.storage_logs import NOW_MS, batch, kill, new_log

from barnabas.storage.disk import OsDisk
from barnabas.storage.files.checkpoints import (
    LEADER_EPOCH_NAME,
    NO_TOPIC_ID,
    Manifest,
    decode_epochs,
    encode_epochs,
)
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogConfig
from barnabas.storage.opening.epoch_recovery import load_epochs
from barnabas.storage.opening.partition_files import PartitionFiles
from barnabas.storage.segments.batch_file import BatchPosition
from barnabas.storage.segments.segment import Segment


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Kafka's log, followed by a batch of two records in epoch 3 and a batch in epoch 7, without
    a manifest.
    """
    log = kafka_log(tmp_path)
    for epoch, values in ((3, [b"v", b"v"]), (7, [b"v"])):
        log.begin_leader_epoch(epoch)
        log.append(batch(values), now_ms=NOW_MS)
    log.segments.active.indexes.write()
    return tmp_path / "txn-0"


EPOCHS = [(0, 0), (3, TXN_END), (7, TXN_END + 2)]
END = TXN_END + 3


def epochs_of(
    directory: Path,
    *,
    all_flushed: bool = False,
    noted: list[tuple[int, int]] | None = None,
    end_offset: int = END,
) -> list[tuple[int, int]]:
    """The epochs that a start loads. `noted` has the rows that the manifest's checksum covers."""
    files = PartitionFiles(LogDirectory(OsDisk(), str(directory.parent)), "txn", 0)
    files.open_segments(LogConfig(), 0, NOW_MS)
    if noted is not None:
        rows = encode_epochs(noted)
        files.manifest = Manifest(NO_TOPIC_ID, 0, end_offset)
        files.manifest.files[LEADER_EPOCH_NAME] = (len(rows), crc32c(rows))
    return load_epochs(files, end_offset, all_flushed=all_flushed).entries


def write_rows(directory: Path, rows: list[tuple[int, int]]) -> None:
    (directory / LEADER_EPOCH_NAME).write_bytes(encode_epochs(rows))


def test_the_file_is_believed_where_it_fits(directory: Path) -> None:
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n3 49\n7 51\n"
    assert epochs_of(directory) == EPOCHS


@pytest.mark.parametrize(
    "text",
    [
        "0\n2\n0 0\n3 49\n",  # an older version of the file, without epoch 7
        "0\n3\n0 0\n3 49\n",  # cut off
        "no file",
    ],
)
def test_one_that_does_not_fit_is_rebuilt_from_the_batches(directory: Path, text: str) -> None:
    (directory / "leader-epoch-checkpoint").write_text(text)
    assert epochs_of(directory) == EPOCHS
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n3 49\n7 51\n"


@pytest.mark.parametrize("torn", [b"", bytes(6), b"0\n1\n0 "])
def test_the_torn_file_of_an_empty_log_is_rewritten(tmp_path: Path, torn: bytes) -> None:
    """Without this, the file would be written only with the first batch. Apache Kafka refuses the
    torn file.
    """
    manager, _ = new_log(tmp_path)
    kill(manager)
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    path.write_bytes(torn)
    files = PartitionFiles(LogDirectory(OsDisk(), str(tmp_path)), "t", 0)
    files.open_segments(LogConfig(), 0, NOW_MS)
    assert load_epochs(files, 0, all_flushed=False).entries == []
    assert path.read_text() == "0\n0\n"


def test_a_missing_one_is_rebuilt(directory: Path) -> None:
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
    """The log has no file of epochs, so the epochs of the batches are used."""
    for first in range(1, count):
        manager, log = new_log(tmp_path / str(first))
        for number in range(count):
            if number == first:
                log.begin_leader_epoch(5)
            log.append(batch([b"v"] * (1 + number % most_records)), now_ms=NOW_MS)
        starts = [header.base_offset for header, _ in log.read_batches()]
        log.segments.active.indexes.write()
        kill(manager)
        Path(log.directory, "leader-epoch-checkpoint").unlink()
        files = PartitionFiles(LogDirectory(OsDisk(), manager.data_dir), "t", 0)
        files.open_segments(LogConfig(), 0, NOW_MS)
        found = load_epochs(files, log.log_end_offset, all_flushed=False).entries
        assert found == [(0, 0), (5, starts[first])]


def test_epochs_that_began_beyond_the_end_go(directory: Path) -> None:
    """An epoch that began exactly at the end of the log is kept, although it has no batch."""
    write_rows(directory, [*EPOCHS, (8, END), (9, END + 1)])
    kept = [*EPOCHS, (8, END)]
    assert epochs_of(directory) == kept
    assert decode_epochs((directory / LEADER_EPOCH_NAME).read_bytes()) == kept


@pytest.mark.parametrize(
    ("noted", "rows", "epochs"),
    [
        pytest.param(EPOCHS, EPOCHS, EPOCHS, id="as it was noted"),
        pytest.param(EPOCHS[:2], EPOCHS, EPOCHS, id="with an epoch that began since"),
        pytest.param(EPOCHS[:1], EPOCHS, EPOCHS, id="with two of them"),
        pytest.param([], EPOCHS, EPOCHS, id="all began since"),
        pytest.param([(0, 0), (2, 5)], [(0, 0), (2, 5)], [(0, 0), (2, 5)], id="noted: believed"),
        pytest.param([(0, 0)], [(0, 0), (3, TXN_END + 1), EPOCHS[2]], EPOCHS, id="within a batch"),
        pytest.param(EPOCHS, [*EPOCHS, (8, END)], [*EPOCHS, (8, END)], id="no batch of it yet"),
        pytest.param([(0, 0)], [(0, 0), (3, TXN_END), (4, 0x7FFF)], EPOCHS[:2], id="at no batch"),
        pytest.param(EPOCHS, EPOCHS[:2], EPOCHS, id="a row is missing that was noted"),
        pytest.param(EPOCHS, [(0, 0), (5, TXN_END), (7, TXN_END + 2)], EPOCHS, id="a digit"),
    ],
)
def test_the_rows_that_the_manifest_notes_are_believed_and_later_ones_checked(
    directory: Path,
    noted: list[tuple[int, int]],
    rows: list[tuple[int, int]],
    epochs: list[tuple[int, int]],
) -> None:
    """The log was stopped cleanly. Even then, the later rows must be checked."""
    write_rows(directory, rows)
    assert epochs_of(directory, noted=noted, all_flushed=True) == epochs


def test_a_manifest_that_notes_no_epochs_has_no_say(directory: Path) -> None:
    """Manifests of earlier versions contain no epochs."""
    rows = [(0, 0), (2, 4)]
    write_rows(directory, rows)
    files = PartitionFiles(LogDirectory(OsDisk(), str(directory.parent)), "txn", 0)
    files.open_segments(LogConfig(), 0, NOW_MS)
    files.manifest = Manifest(NO_TOPIC_ID, 0, END)
    assert load_epochs(files, END, all_flushed=True).entries == rows


@pytest.mark.parametrize("beyond", [0, 1, 7])
def test_the_log_may_end_beyond_its_last_batch(directory: Path, beyond: int) -> None:
    """Compaction may have removed the last batches of a closed segment."""
    (directory / LEADER_EPOCH_NAME).unlink()
    assert epochs_of(directory, end_offset=END + beyond) == EPOCHS


def test_a_batch_without_an_epoch_is_of_the_first(tmp_path: Path) -> None:
    """A batch without an epoch has -1 in its header. If a batch of epoch 0 follows, it does not
    begin a new epoch.
    """
    manager, log = new_log(tmp_path)
    log.leader_epoch = -1
    log.append(batch(), now_ms=NOW_MS)
    for epoch in (0, 2):
        log.leader_epoch = epoch
        log.append(batch(), now_ms=NOW_MS)
    kill(manager)
    Path(log.directory, LEADER_EPOCH_NAME).unlink()
    files = PartitionFiles(LogDirectory(OsDisk(), str(tmp_path)), "t", 0)
    files.open_segments(LogConfig(), 0, NOW_MS)
    assert load_epochs(files, 3, all_flushed=False).entries == [(0, 0), (2, 2)]


def test_only_the_segment_that_holds_an_offset_is_searched(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a log with many segments, no segment before or after this one may be opened."""
    searched = []
    find = Segment.find

    def note(segment: Segment, offset: int) -> BatchPosition | None:
        searched.append(segment.base_offset)
        return find(segment, offset)

    monkeypatch.setattr(Segment, "find", note)
    assert epochs_of(directory) == EPOCHS
    assert searched == [31], "for the epoch of the last batch"


def test_a_log_that_begins_later_than_its_file_of_epochs_does(directory: Path) -> None:
    """The log's first segments were deleted, so the first row of the file has no batch."""
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()
    write_rows(directory, EPOCHS)
    assert epochs_of(directory, noted=[]) == [(0, 3), *EPOCHS[1:]]


def test_an_empty_segment_is_not_searched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An empty segment may lack index files."""
    manager, log = new_log(tmp_path)
    kill(manager)
    index = Path(log.segments.active.batches.path(".index"))
    index.unlink(missing_ok=True)
    files = PartitionFiles(LogDirectory(OsDisk(), str(tmp_path)), "t", 0)
    files.open_segments(LogConfig(), 0, NOW_MS)
    caplog.clear()
    files.segments[0] = Segment(
        files.disk,
        files.directory,
        0,
        size=0,
        created_ms=NOW_MS,
        cache=files.log_dir.cache,
        index_interval_bytes=4096,
    )
    assert load_epochs(files, 0, all_flushed=False).entries == [(0, 0)]
    assert caplog.messages == [] and not index.exists()
