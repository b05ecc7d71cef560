"""The files in a partition's directory, with Apache Kafka's names."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_kafka_log import TXN_BASES, TXN_END, kafka_directory, kafka_log
from helpers.storage_logs import NOW_MS

from barnabas.storage.disk import OsDisk
from barnabas.storage.files.checkpoints import (
    MANIFEST_NAME,
    NO_TOPIC_ID,
    Manifest,
    decode_partition_metadata,
    decode_topic_id,
)
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogConfig
from barnabas.storage.opening.partition_files import PartitionFiles


def files_of(path: Path) -> PartitionFiles:
    return PartitionFiles(kafka_directory(path), "txn", 0)


def test_names_are_sorted_by_kind(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    assert files.bases == TXN_BASES and files.snapshots.offsets == [3, 28, 31, 49]
    assert files.manifest is None, "Apache Kafka writes none"
    assert files.partition.topic_id == decode_topic_id("S2X5t_aKTLaTgxgM1KEWlQ")


def test_what_a_change_left_over_goes_and_indexes_without_a_log(tmp_path: Path) -> None:
    directory = Path(kafka_directory(tmp_path).partition_path("txn", 0))
    left = ["00000000000000000003.log.deleted", "leader-epoch-checkpoint.tmp", "x.cleaned"]
    left.append("00000000000000000099.timeindex")
    for name in left:
        (directory / name).write_bytes(b"")
    files_of(tmp_path)
    assert not any((directory / name).exists() for name in left)


def test_a_swap_that_was_cut_short_is_completed_first(tmp_path: Path) -> None:
    """The cleaned segment replaces the segment with the same base offset, as in Apache Kafka."""
    directory = Path(kafka_directory(tmp_path).partition_path("txn", 0))
    cleaned = (directory / f"{28:020d}.log").read_bytes()
    for suffix in ("index", "timeindex", "txnindex"):
        (directory / f"{28:020d}.{suffix}.swap").write_bytes(b"")
    (directory / f"{28:020d}.log").rename(directory / f"{28:020d}.log.swap")
    files = PartitionFiles(LogDirectory(OsDisk(), str(tmp_path)), "txn", 0)
    assert files.bases == TXN_BASES
    assert (directory / f"{28:020d}.log").read_bytes() == cleaned
    assert list(directory.glob("*.swap")) == []


def test_segments_have_the_sizes_of_their_files_and_nothing_is_believed(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    files.open_segments(LogConfig(), 0, NOW_MS)
    assert files.sizes() == {base: Path(files.log_path(base)).stat().st_size for base in TXN_BASES}
    assert not files.is_as_noted() and not any(each.indexes.has_times for each in files.segments)


def test_an_empty_directory_gets_a_segment_at_the_log_start(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    files.bases = []
    files.open_segments(LogConfig(), 7, NOW_MS)
    assert [segment.base_offset for segment in files.segments] == [7]


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    log = kafka_log(tmp_path)
    for segment in log.segments:
        log.reader.txn_index(segment)
    log.close()
    return tmp_path / "txn-0"


def reopened(directory: Path) -> PartitionFiles:
    return PartitionFiles(LogDirectory(OsDisk(), str(directory.parent)), "txn", 0)


def test_a_manifest_that_fits_is_told_by_the_sizes(stopped: Path) -> None:
    files = reopened(stopped)
    files.open_segments(LogConfig(), 0, NOW_MS)
    assert files.is_as_noted()
    with (stopped / "00000000000000000031.log").open("ab") as file:
        file.write(b"more")
    files = reopened(stopped)
    files.open_segments(LogConfig(), 0, NOW_MS)
    assert not files.is_as_noted()


def test_a_segment_that_the_manifest_has_is_missed_but_not_the_oldest(stopped: Path) -> None:
    (stopped / "00000000000000000000.log").unlink()
    reopened(stopped).open_segments(LogConfig(), 0, NOW_MS)
    (stopped / "00000000000000000028.log").unlink()
    with pytest.raises(CorruptLog, match=r"28\.log.*is missing"):
        reopened(stopped).open_segments(LogConfig(), 0, NOW_MS)


def test_segments_that_were_never_durable_are_not_missed_after_a_power_loss(stopped: Path) -> None:
    (stopped / "00000000000000000031.log").unlink()
    files = reopened(stopped)
    files.drop_manifest_of_lost_segments(31)
    assert files.manifest is None and not (stopped / MANIFEST_NAME).exists()


def test_the_topic_id_comes_from_the_manifest_where_its_file_is_gone(stopped: Path) -> None:
    (stopped / "partition.metadata").unlink()
    assert reopened(stopped).partition.topic_id == decode_topic_id("S2X5t_aKTLaTgxgM1KEWlQ")
    assert (stopped / "partition.metadata").exists()


def test_names_that_are_no_segments_are_left_alone(tmp_path: Path) -> None:
    directory = Path(kafka_directory(tmp_path).partition_path("txn", 0))
    odd = ["notes-of-an-operator.log", "7.log", f"{9:021d}.log", "twenty-letters-long..snapshot"]
    for name in odd:
        (directory / name).write_bytes(b"x")
    files = files_of(tmp_path)
    assert files.bases == TXN_BASES and files.snapshots.offsets == [3, 28, 31, 49]
    assert all((directory / name).read_bytes() == b"x" for name in odd)


def test_a_whole_log_that_is_gone_begins_again_where_the_manifest_ends(stopped: Path) -> None:
    """Retention may have deleted all segments except the last one, which was empty."""
    for base in TXN_BASES[:-1]:
        (stopped / f"{base:020d}.log").unlink()
    (stopped / "00000000000000000031.log").unlink()
    files = reopened(stopped)
    assert files.manifest is not None
    for base, note in list(files.manifest.segments.items()):
        files.manifest.segments[base] = note._replace(size=0)
    files.open_segments(LogConfig(), 7, NOW_MS)
    assert [segment.base_offset for segment in files.segments] == [TXN_END]


def test_an_empty_segment_is_not_missed(stopped: Path) -> None:
    (stopped / "00000000000000000028.log").unlink()
    files = reopened(stopped)
    assert files.manifest is not None
    files.manifest.segments[28] = files.manifest.segments[28]._replace(size=0)
    files.drop_manifest_of_lost_segments(0)
    assert files.manifest is not None
    files.open_segments(LogConfig(), 0, NOW_MS)
    assert [segment.base_offset for segment in files.segments] == [0, 3, 31]


@pytest.mark.parametrize(("recovery_point", "goes"), [(31, True), (32, False), (0, True)])
def test_a_lost_segment_below_the_recovery_point_is_missed(
    stopped: Path, recovery_point: int, goes: bool
) -> None:
    (stopped / "00000000000000000031.log").unlink()
    files = reopened(stopped)
    files.drop_manifest_of_lost_segments(recovery_point)
    assert (files.manifest is None) == goes == (not (stopped / MANIFEST_NAME).exists())


def test_a_whole_directory_loses_no_manifest(stopped: Path) -> None:
    files = reopened(stopped)
    files.drop_manifest_of_lost_segments(0)
    assert files.manifest is not None and (stopped / MANIFEST_NAME).exists()


def test_the_times_of_a_segment_are_believed_while_it_is_as_noted(stopped: Path) -> None:
    """A segment's maximum timestamp is taken from the manifest if the manifest has one and the
    segment's file still has the noted size.
    """
    with (stopped / "00000000000000000031.log").open("ab") as file:
        file.write(b"more")
    files = reopened(stopped)
    assert files.manifest is not None
    notes = files.manifest.segments
    for base, time in ((0, -1), (3, 0), (28, 5), (31, 5)):
        notes[base] = notes[base]._replace(max_timestamp=time, max_timestamp_offset=base + 1)
    files.open_segments(LogConfig(), 0, NOW_MS)
    assert [each.indexes.has_times for each in files.segments] == [False, True, True, False]
    times = [
        (each.indexes.max_timestamp, each.indexes.max_timestamp_offset) for each in files.segments
    ]
    assert times[1:3] == [(0, 4), (5, 29)]
    assert all(each.indexes.manifest is files.manifest for each in files.segments)


def test_a_damaged_manifest_is_none(stopped: Path) -> None:
    path = stopped / MANIFEST_NAME
    path.write_bytes(path.read_bytes()[:-1])
    files = reopened(stopped)
    assert files.manifest is None
    files.drop_manifest_of_lost_segments(0)
    files.report_shrunk({})
    files.open_segments(LogConfig(), 0, NOW_MS)
    assert not files.is_as_noted()
    assert [segment.base_offset for segment in files.segments] == TXN_BASES


def test_the_topic_id_is_nobodys_where_neither_file_has_it(stopped: Path) -> None:
    (stopped / "partition.metadata").write_bytes(b"nonsense")
    (stopped / MANIFEST_NAME).unlink()
    assert reopened(stopped).partition.topic_id == NO_TOPIC_ID
    assert (stopped / "partition.metadata").read_bytes() == b"nonsense"


def test_a_manifest_without_a_topic_id_gives_none(
    stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = Manifest.decode((stopped / MANIFEST_NAME).read_bytes())
    manifest.topic_id = NO_TOPIC_ID
    (stopped / MANIFEST_NAME).write_bytes(manifest.encode())
    (stopped / "partition.metadata").unlink()
    assert reopened(stopped).partition.topic_id == NO_TOPIC_ID
    assert not (stopped / "partition.metadata").exists()
    assert "is taken from another file" in caplog.text


def test_a_damaged_topic_id_is_rewritten_from_the_manifest(stopped: Path) -> None:
    whole = (stopped / "partition.metadata").read_bytes()
    (stopped / "partition.metadata").write_bytes(b"nonsense")
    assert reopened(stopped).partition.topic_id == decode_topic_id("S2X5t_aKTLaTgxgM1KEWlQ")
    assert decode_partition_metadata((stopped / "partition.metadata").read_bytes()) == (
        decode_partition_metadata(whole)
    )


def test_what_shrank_before_the_last_segment_is_told(
    stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = reopened(stopped)
    files.open_segments(LogConfig(), 0, NOW_MS)
    sizes = files.sizes()
    files.report_shrunk(sizes)
    assert caplog.messages == []
    files.report_shrunk({**sizes, 31: 0})
    assert caplog.messages == [], "the last segment may end at any whole batch"
    files.report_shrunk({**sizes, 3: sizes[3] - 1, 0: sizes[0] + 1})
    assert [f"{3:020d}.log has {sizes[3] - 1} bytes" in text for text in caplog.messages] == [True]
    caplog.clear()
    del sizes[28]
    files.report_shrunk(sizes)
    assert ["has 0 bytes" in text for text in caplog.messages] == [True]


def test_where_the_manifest_has_no_segment_nothing_shrank(
    stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = reopened(stopped)
    assert files.manifest is not None
    files.manifest.segments.clear()
    files.report_shrunk({})
    assert caplog.messages == []
