"""A flush journal can make the ends of logs durable. Data that a power loss removes from the logs
are restored from the journal.
"""

from __future__ import annotations

import errno
import logging
import random
import struct
import uuid
from pathlib import Path

import msgpack
import pytest
from crc32c import crc32c
from helpers.recording_disk import RecordingDisk
from helpers.storage_logs import (
    NOW_MS,
    TOPIC_ID,
    batch,
    committed_values,
    delete_log,
    kill,
    new_log,
    open_manager,
    values_of,
)
from sim.disk import Refusal, SimDisk

from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import DirectorySync, NotWrittenError, OsDisk, Syncable
from barnabas.storage.files.checkpoints import PARTITION_METADATA_NAME, encode_partition_metadata
from barnabas.storage.files.flush_journal import (
    FlushJournal,
    JournalDecision,
    JournalEntry,
    JournalRow,
    PartitionEnd,
    Redo,
    frames_in,
    later_frame,
)
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.log_config import LogConfig

OTHER_ID = uuid.UUID(int=77)


def append(log: Log, count: int, *, transactional: bool = False) -> None:
    entry = log.producer_state.producers.get(1)
    first = 0 if entry is None else entry.last_sequence + 1
    for sequence in range(first, first + count):
        value = b"%d" % sequence
        log.append(
            batch([value], pid=1, epoch=0, seq=sequence, transactional=transactional), now_ms=NOW_MS
        )


def sync(files: list[Syncable]) -> None:
    for file in files:
        file.fsync()


def flush_to_journal(manager: LogManager, *logs: Log) -> None:
    """Flush the logs to the journal, and make the journal durable."""
    begun = [
        found for log in logs if (found := log.durability.try_begin_journal(1 << 20)) is not None
    ]
    assert len(begun) == len(logs)
    sync(manager.journal.append([entry for entry, _ in begun]))
    for log, (_, token) in zip(logs, begun, strict=True):
        log.finish_flush(token)


def flushed_log(path: Path, **config: object) -> tuple[LogManager, Log]:
    """A log with two batches that are durable in its own files."""
    manager, log = new_log(path, **config)
    append(log, 2)
    log.flush()
    return manager, log


def cut(log: Log, size: int) -> None:
    path = Path(log.segments.active.batches.path(".log"))
    path.write_bytes(path.read_bytes()[:size])


def journals(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("barnabas-flush-*.journal"))


@pytest.mark.parametrize("keep", ["all before", "half a batch", "a hole"])
def test_bytes_lost_in_a_power_loss_are_restored_from_the_journal(
    tmp_path: Path, keep: str, caplog: pytest.LogCaptureFixture
) -> None:
    manager, log = flushed_log(tmp_path)
    size = log.segments.size_bytes
    append(log, 3)
    flush_to_journal(manager, log)
    append(log, 2)
    flush_to_journal(manager, log)
    assert (
        log.durability.recovery_point,
        log.durability.durable_offset,
        log.durability.durable_offset >= 7,
        log.durability.recovery_point >= 3,
    ) == (2, 7, True, False)
    path = Path(log.segments.active.batches.path(".log"))
    whole = path.read_bytes()
    if keep == "a hole":
        path.write_bytes(whole[: size + 10] + bytes(60) + whole[size + 70 :])
    else:
        cut(log, size if keep == "all before" else size + 100)
    kill(manager)
    with caplog.at_level(logging.WARNING):
        again = open_manager(tmp_path)
    log = again.logs["t", 0]
    assert log.log_end_offset == 7 and path.read_bytes() == whole
    assert values_of(log) == {number: b"%d" % number for number in range(7)}
    assert "written again from the flush journal" in caplog.text
    append(log, 1)  # this also checks the sequence, so the producer's state must be complete
    assert journals(tmp_path), "the journal is kept until all logs are flushed"


def test_whole_batches_after_the_restored_ones_are_kept(tmp_path: Path) -> None:
    manager, log = flushed_log(tmp_path)
    size = log.segments.size_bytes
    append(log, 2)
    flush_to_journal(manager, log)
    append(log, 2)
    path = Path(log.segments.active.batches.path(".log"))
    whole = path.read_bytes()
    path.write_bytes(whole[:size] + bytes(100) + whole[size + 100 :])
    kill(manager)
    log = open_manager(tmp_path).logs["t", 0]
    assert log.log_end_offset == 6 and path.read_bytes() == whole


def test_restored_batches_restore_the_state_of_transactions(tmp_path: Path) -> None:
    manager, log = flushed_log(tmp_path)
    size = log.segments.size_bytes
    append(log, 2, transactional=True)
    append_marker(
        log, producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=False, now_ms=NOW_MS
    )
    append(log, 1, transactional=True)
    flush_to_journal(manager, log)
    cut(log, size)
    kill(manager)
    log = open_manager(tmp_path).logs["t", 0]
    assert log.log_end_offset == 6 and log.last_stable_offset == 5
    assert sorted(committed_values(log)) == [0, 1]


def test_after_a_kill_the_journal_is_kept_until_the_logs_are_flushed(tmp_path: Path) -> None:
    manager, log = flushed_log(tmp_path)
    append(log, 1)
    flush_to_journal(manager, log)
    kill(manager, machine=False)
    again = open_manager(tmp_path)
    assert journals(tmp_path) == ["barnabas-flush-0000000001.journal"] and again.journal.has_older
    append(again.logs["t", 0], 1)
    assert again.logs["t", 0].durability.try_begin_journal(1 << 20) is None, (
        "the first flush after a start that was not clean is in place"
    )
    again.logs["t", 0].flush()
    append(again.logs["t", 0], 1)
    flush_to_journal(again, again.logs["t", 0])
    assert journals(tmp_path) == [
        "barnabas-flush-0000000001.journal",
        "barnabas-flush-0000000002.journal",
    ]
    again.journal.forget_older()
    assert journals(tmp_path) == ["barnabas-flush-0000000002.journal"]


def test_a_clean_stop_leaves_no_journal(tmp_path: Path) -> None:
    manager, log = flushed_log(tmp_path)
    append(log, 1)
    flush_to_journal(manager, log)
    manager.close(NOW_MS)
    assert journals(tmp_path) == []
    assert open_manager(tmp_path).logs["t", 0].log_end_offset == 3


def test_bytes_of_a_deleted_topic_are_not_restored_to_a_recreated_one(tmp_path: Path) -> None:
    manager, log = flushed_log(tmp_path)
    append(log, 2)
    flush_to_journal(manager, log)
    delete_log(manager, "t", 0, NOW_MS)
    other = manager.create("t", 0, OTHER_ID, LogConfig(), NOW_MS)
    other.files.make()
    other.flush()
    kill(manager)
    assert open_manager(tmp_path).logs["t", 0].log_end_offset == 0


@pytest.mark.parametrize("torn_bytes", [0, 10])
def test_bytes_below_the_recovery_point_are_not_restored(tmp_path: Path, torn_bytes: int) -> None:
    """A segment may be cleaned up to the stored recovery point. Its old bytes must not be
    restored.
    """
    manager, log = flushed_log(tmp_path)
    size = log.segments.size_bytes
    append(log, 2)
    flush_to_journal(manager, log)
    log.flush()
    manager.write_checkpoints()
    cut(log, size + torn_bytes)
    kill(manager)
    again = open_manager(tmp_path)
    assert list(again.offline) == ([("t", 0)] if torn_bytes else [])
    assert torn_bytes or again.logs["t", 0].log_end_offset == 2
    assert journals(tmp_path), "it stays until all logs were flushed"


def test_a_segment_that_was_closed_is_flushed_in_place(tmp_path: Path) -> None:
    manager, log = flushed_log(tmp_path, segment_bytes=350)
    append(log, 1)
    flush_to_journal(manager, log)
    while len(log.segments) == 1:
        append(log, 1)
    assert log.durability.try_begin_journal(1 << 20) is None
    token = log.durability.begin_flush()
    assert token is not None
    paths = [getattr(file, "path", "") for file in token.files]
    assert [segment.batches.path(".log") for segment in log.segments] == paths[:2]
    sync(list(token.files))
    log.finish_flush(token)
    assert log.durability.recovery_point == log.durability.durable_offset == log.log_end_offset
    append(log, 1)
    flush_to_journal(manager, log)


def test_data_above_the_limit_is_flushed_in_place(tmp_path: Path) -> None:
    _, log = flushed_log(tmp_path)
    append(log, 1)
    assert log.durability.try_begin_journal(68) is None
    assert log.durability.try_begin_journal(69) is not None


def entries(count: int, seed: int = 1, position: int = 1000) -> list[JournalRow]:
    rng = random.Random(seed)
    return [
        ("t", number, TOPIC_ID.bytes, 100, position, rng.randbytes(50)) for number in range(count)
    ]


def test_a_journal_is_read_up_to_its_torn_frame(tmp_path: Path) -> None:
    journal = FlushJournal(OsDisk(), str(tmp_path))
    first, second = entries(3, 1), entries(3, 2, position=1050)
    sync(journal.append(first))
    kept = journal.size_bytes
    journal.append(second)
    path = tmp_path / journals(tmp_path)[0]
    whole = path.read_bytes()
    for end in range(kept, len(whole)):
        path.write_bytes(whole[:end])
        found = FlushJournal(OsDisk(), str(tmp_path)).read()
        assert [found.tail("t", number, TOPIC_ID, 100, 1000) for number in range(3)] == [
            data for *_, data in first
        ]
    path.write_bytes(whole)
    found = FlushJournal(OsDisk(), str(tmp_path)).read()
    assert found.tail("t", 0, TOPIC_ID, 100, 1000) == first[0][-1] + second[0][-1]
    for position in range(kept, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        found = FlushJournal(OsDisk(), str(tmp_path)).read()
        assert found.tail("t", 0, TOPIC_ID, 100, 1000) == first[0][-1]


def test_a_frames_decisions_and_data_are_read_together_or_not_at_all(tmp_path: Path) -> None:
    journal = FlushJournal(OsDisk(), str(tmp_path))
    ends = (
        PartitionEnd("t", 0, TOPIC_ID.bytes, 1 << 40),
        PartitionEnd("\u00fc", 7, OTHER_ID.bytes, 0),
    )
    first, second = JournalDecision(b"key", b"\x00value", ends), JournalDecision(b"", b"", ())
    sync(journal.append(entries(1), [first]))
    kept = journal.size_bytes
    journal.append(entries(1, 2, position=1050), [second, first])
    path = tmp_path / journals(tmp_path)[0]
    whole = path.read_bytes()
    assert FlushJournal(OsDisk(), str(tmp_path)).read().decisions == [first, second, first]
    for end in range(kept, len(whole)):
        path.write_bytes(whole[:end])
        found = FlushJournal(OsDisk(), str(tmp_path)).read()
        assert found.decisions == [first] and len(found.tail("t", 0, TOPIC_ID, 100, 1000)) == 50


def test_later_entries_replace_earlier_ones_at_the_same_position() -> None:
    redo = Redo()
    for position, data in ((0, b"abc"), (3, b"def"), (10, b"later"), (4, b"XYZ"), (7, b"!")):
        redo.add(JournalEntry("t", 0, TOPIC_ID, 0, position, data))
    tails = {at: redo.tail("t", 0, TOPIC_ID, 0, at) for at in (0, 3, 4, 6, 7, 8, 10, 14, 15)}
    assert tails == {
        0: b"abcdef",
        3: b"def",
        4: b"XYZ!",
        6: b"Z!",
        7: b"!",
        8: b"",
        10: b"later",
        14: b"r",
        15: b"",
    }
    assert (
        redo.tail("t", 1, TOPIC_ID, 0, 0)
        == redo.tail("t", 0, OTHER_ID, 0, 0)
        == redo.tail("t", 0, TOPIC_ID, 5, 0)
        == b""
    )


def test_bytes_after_a_later_short_entry_come_from_the_earlier_one() -> None:
    redo = Redo()
    for position, data in ((0, b"a longer run"), (3, b"short")):
        redo.add(JournalEntry("t", 0, TOPIC_ID, 0, position, data))
    assert redo.tail("t", 0, TOPIC_ID, 0, 8) == b" run"


# --- data that a file lacks----------------------------------------------------------------------

LOG = f"{100:020d}.log"
PIECES = [offset.to_bytes(8) + b"batch %d" % offset for offset in (100, 101, 102)]


def partition_with(path: Path, files: dict[str, bytes], topic_id: uuid.UUID = TOPIC_ID) -> None:
    """Make the directory of t-0 with these files."""
    (path / "t-0").mkdir()
    (path / "t-0" / PARTITION_METADATA_NAME).write_bytes(encode_partition_metadata(topic_id))
    for name, data in files.items():
        (path / "t-0" / name).write_bytes(data)


def lacking(path: Path, *entries: tuple[int, bytes], point: int | None = None) -> bool:
    """Whether the segment at offset 100 lacks one of these entries."""
    redo = Redo()
    for position, data in entries:
        redo.add(JournalEntry("t", 0, TOPIC_ID, 100, position, data))
    points = {} if point is None else {("t", 0): point}
    lacks = redo.lacking(OsDisk(), str(path), points)
    assert lacks in ("", f"{path}/t-0/{LOG}")
    return bool(lacks)


WHOLE = b"".join(PIECES)
FOLLOWING = [(sum(map(len, PIECES[:at])), piece) for at, piece in enumerate(PIECES)]


@pytest.mark.parametrize(
    ("content", "lacks"),
    [
        (WHOLE, False),
        (WHOLE + b"more", False),
        (WHOLE[:-1], True),
        (b"x" + WHOLE[1:], True),
        (WHOLE[:20] + b"x" + WHOLE[21:], True),
        (None, True),
    ],
)
def test_a_file_with_other_bytes_than_the_journals_is_incomplete(
    tmp_path: Path, content: bytes | None, lacks: bool
) -> None:
    partition_with(tmp_path, {} if content is None else {LOG: content})
    assert lacking(tmp_path, *FOLLOWING) == lacks


@pytest.mark.parametrize(("point", "lacks"), [(None, True), (101, True), (102, True), (103, False)])
def test_bytes_below_the_recovery_point_are_not_checked(
    tmp_path: Path, point: int | None, lacks: bool
) -> None:
    partition_with(tmp_path, {LOG: WHOLE[:-1]})
    assert lacking(tmp_path, *FOLLOWING, point=point) == lacks


def test_a_batch_of_the_first_offset_is_missed_without_a_recovery_point(tmp_path: Path) -> None:
    partition_with(tmp_path, {LOG: b""})
    assert lacking(tmp_path, (0, bytes(8) + b"batch 0"))


def test_entries_that_were_overwritten_are_not_missing(tmp_path: Path) -> None:
    """A start truncated the file after the first of three entries. The two later entries overlap,
    and are valid.
    """
    first, second, third = PIECES
    over = (len(first), offset_bytes(101) + b"again")
    latest = (len(first) + 10, offset_bytes(101) + b"latest")
    partition_with(tmp_path, {LOG: first + over[1][:10] + latest[1]})
    assert not lacking(tmp_path, *FOLLOWING, over, latest)
    damaged = b"x" + first[1:] + over[1][:10] + latest[1]
    (tmp_path / "t-0" / LOG).write_bytes(damaged)
    assert lacking(tmp_path, *FOLLOWING, over, latest), "what lies before it still counts"
    (tmp_path / "t-0" / LOG).write_bytes(first + second + third)
    assert lacking(tmp_path, *FOLLOWING, over), "the later one counts"


def test_entries_overwritten_after_a_second_truncation_are_not_missing(
    tmp_path: Path,
) -> None:
    """The file was truncated twice. The second truncation was at an earlier position, so it
    supersedes the first one.
    """
    first, second, _ = PIECES
    after_first_cut = (len(first + second), offset_bytes(102) + b"again")
    after_second_cut = (len(first), offset_bytes(101) + b"the latest of all, and a long one")
    partition_with(tmp_path, {LOG: first + after_second_cut[1]})
    assert not lacking(tmp_path, *FOLLOWING, after_first_cut, after_second_cut)
    assert lacking(tmp_path, *FOLLOWING, after_first_cut), "without the second cut it is missed"


def offset_bytes(offset: int) -> bytes:
    return offset.to_bytes(8)


def test_entries_of_deleted_and_recreated_topics_are_not_missing(tmp_path: Path) -> None:
    assert not lacking(tmp_path, *FOLLOWING)
    partition_with(tmp_path, {}, OTHER_ID)
    assert not lacking(tmp_path, *FOLLOWING)
    (tmp_path / "t-0" / PARTITION_METADATA_NAME).write_bytes(b"nonsense")
    assert not lacking(tmp_path, *FOLLOWING)


@pytest.mark.parametrize(
    ("names", "lacks"),
    [
        ([f"{101:020d}.log", f"{200:020d}.log"], False),  # retention took it
        ([f"{50:020d}.log", f"{200:020d}.log"], True),
        ([f"{101:020d}.log", "notes-of-an-operator.log", f"{7:020d}.index"], False),
        (["notes-of-an-operator.log", f"{200:020d}.index"], True),
    ],
)
def test_entries_of_segments_deleted_by_retention_are_not_missing(
    tmp_path: Path, names: list[str], lacks: bool
) -> None:
    partition_with(tmp_path, dict.fromkeys(names, b""))
    assert lacking(tmp_path, *FOLLOWING) == lacks


def test_a_damaged_first_segment_is_missed(tmp_path: Path) -> None:
    partition_with(tmp_path, {LOG: b"", f"{200:020d}.log": b""})
    assert lacking(tmp_path, *FOLLOWING)


# --- consecutive journals -----------------------------------------------------------------------


def test_a_new_journal_is_durable_with_its_name(tmp_path: Path) -> None:
    journal = FlushJournal(OsDisk(), str(tmp_path))
    assert journal.size_bytes == 0 and not journal.has_older
    journal.begin_next()
    assert not journal.has_older, "there was none yet"
    first = journal.append([], decisions(1))
    assert first[1:] == [DirectorySync(journal._disk, str(tmp_path))]
    assert journal.append([], decisions(1)) == first[:1], "its name is durable by then"
    assert journal.size_bytes == (tmp_path / journals(tmp_path)[0]).stat().st_size
    journal.begin_next()
    assert journal.size_bytes == 0 and journal.has_older
    second = journal.append([], decisions(1))
    assert second[0] is not first[0] and len(second) == 2


@pytest.mark.parametrize("keep_earlier", [False, True])
def test_older_journals_are_deleted_when_all_logs_are_flushed(
    tmp_path: Path, keep_earlier: bool
) -> None:
    journal_with(tmp_path, decisions(1))
    disk = RecordingDisk()
    journal = FlushJournal(disk, str(tmp_path))
    assert journal.has_older
    journal.append([], decisions(1))
    journal.begin_next()
    journal.append([], decisions(1))
    disk.take_steps()
    journal.forget_older(keep_earlier=keep_earlier)
    first, second, third = (f"barnabas-flush-{number:010}.journal" for number in (1, 2, 3))
    gone = [second] if keep_earlier else [first, second]
    assert disk.take_steps() == [("unlink", name) for name in gone]
    assert journals(tmp_path) == ([first, third] if keep_earlier else [third])
    assert not journal.has_older
    journal.forget_older()
    assert disk.take_steps() == [], "nothing is removed twice"
    directory = DirectorySync(disk, str(tmp_path))
    assert directory in journal.append([], decisions(1)), (
        "the removal is durable with the next frame"
    )
    assert directory not in journal.append([], decisions(1))


def test_a_torn_end_is_truncated_durably(tmp_path: Path) -> None:
    journal_with(tmp_path, decisions(2))
    path = tmp_path / journals(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-3])
    disk = RecordingDisk()
    FlushJournal(disk, str(tmp_path)).read()
    assert disk.take_steps() == [
        ("fsync", path.name),
        ("truncate", path.name),
        ("fsync", path.name),
    ]


# --- damage, and flushes that were never finished -----------------------------------------------


def decisions(count: int) -> list[JournalDecision]:
    return [JournalDecision(b"key %d" % number, b"\x00value", ()) for number in range(count)]


def journal_with(
    path: Path, frames: list[JournalDecision], *, flushed: bool = True
) -> FlushJournal:
    """A journal with one frame for each decision. With `flushed`, each frame is recorded as durable
    before the next one is written.
    """
    journal = FlushJournal(OsDisk(), str(path))
    for decision in frames:
        sync(journal.append([], [decision]))
        if flushed:
            journal.note_flushed()
    return journal


def found_in(path: Path) -> list[JournalDecision]:
    return FlushJournal(OsDisk(), str(path)).read().decisions


def test_a_damaged_frame_before_a_later_one_is_an_error(tmp_path: Path) -> None:
    """Any byte of the frame may be wrong, or a sector of the frame may be lost."""
    frames = decisions(3)
    journal = journal_with(tmp_path, frames[:1])
    ends = [journal.size_bytes]
    for decision in frames[1:]:
        sync(journal.append([], [decision]))
        journal.note_flushed()
        ends.append(journal.size_bytes)
    start, end, _ = ends
    path = tmp_path / journals(tmp_path)[0]
    whole = path.read_bytes()
    for position in range(start, end):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(CorruptLog, match=rf"journal, byte {start}: .* byte {end} .*Restore"):
            found_in(tmp_path)
    path.write_bytes(whole[:start] + bytes(end - start) + whole[end:])
    with pytest.raises(CorruptLog):
        found_in(tmp_path)
    path.write_bytes(whole)
    assert found_in(tmp_path) == frames
    path.write_bytes(whole[: end + 9])
    assert found_in(tmp_path) == frames[:2], "the last one was under way"


def test_a_damaged_frame_that_was_never_durable_is_no_error(tmp_path: Path) -> None:
    """A single fsync was meant to make both frames durable, but did not finish. The first frame
    lost a sector, and the second is whole.
    """
    journal = journal_with(tmp_path, decisions(1))
    start = journal.size_bytes
    for decision in decisions(2):
        journal.append([], [decision])
    path = tmp_path / journals(tmp_path)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[: start + 20] + bytes(10) + whole[start + 30 :])
    assert found_in(tmp_path) == decisions(1)


def test_later_frame_finds_the_first_frame_that_proves_the_damage(tmp_path: Path) -> None:
    """A later frame proves the damage only if it is whole, and was written after the damaged frame
    had become durable.
    """
    journal = FlushJournal(OsDisk(), str(tmp_path))
    starts = []
    for number, decision in enumerate(decisions(5)):
        starts.append(journal.size_bytes)
        journal.append([], [decision])
        if number >= 2:
            journal.note_flushed()
    path = tmp_path / journals(tmp_path)[0]
    data = bytearray(path.read_bytes())
    for frame in (0, 1):
        data[starts[frame] + 30] ^= 1
    assert later_frame(bytes(data), 0) == starts[3]
    assert later_frame(bytes(data[: starts[3]]), 0) == -1
    assert later_frame(bytes(data), starts[4]) == -1


def test_a_frame_in_the_old_format_has_no_durable_size() -> None:
    empty = msgpack.packb([])
    data = struct.pack(">II", len(empty), crc32c(empty)) + empty + old_frame(decisions(1)[0])
    frames = list(frames_in(data))
    assert [(frame.durable_bytes, frame.decisions) for frame in frames] == [
        (0, []),
        (0, decisions(1)),
    ]


def test_an_unfinished_frame_is_truncated_before_the_next_journal_begins(tmp_path: Path) -> None:
    journal = journal_with(tmp_path, decisions(2))
    path = tmp_path / journals(tmp_path)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    again = FlushJournal(OsDisk(), str(tmp_path))
    assert again.read().decisions == decisions(1)
    sync(again.append([], decisions(1)))
    assert len(journals(tmp_path)) == 2
    assert found_in(tmp_path) == decisions(1) * 2
    kept = path.read_bytes()
    path.write_bytes(kept[:-1])
    with pytest.raises(
        CorruptLog, match=r"0000000001.journal, byte 0: .*0000000002.journal was begun"
    ):
        found_in(tmp_path)
    assert journal.has_older is False


def old_frame(decision: JournalDecision) -> bytes:
    payload = msgpack.packb([decision])
    return struct.pack(">II", len(payload), crc32c(payload)) + payload


def test_frames_of_earlier_versions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "barnabas-flush-0000000001.journal"
    frames = [old_frame(decision) for decision in decisions(3)]
    path.write_bytes(b"".join(frames))
    assert found_in(tmp_path) == decisions(3)
    path.write_bytes(b"".join(frames)[:-1])
    assert found_in(tmp_path) == decisions(2)
    journal_with(tmp_path, decisions(1))
    assert found_in(tmp_path) == decisions(2) + decisions(1), (
        "the torn end of a journal in the earlier format is not damage"
    )
    damaged = bytearray(b"".join(frames))
    damaged[len(frames[0]) + 12] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptLog, match=f"byte {len(frames[0])}"):
        found_in(tmp_path)


def test_a_start_with_a_damaged_journal_fails_with_advice(tmp_path: Path) -> None:
    manager, log = flushed_log(tmp_path)
    for _ in range(2):
        append(log, 1)
        flush_to_journal(manager, log)
        manager.journal.note_flushed()
    path = tmp_path / journals(tmp_path)[0]
    damaged = bytearray(path.read_bytes())
    damaged[40] ^= 1
    path.write_bytes(damaged)
    kill(manager)
    with pytest.raises(
        LogDirectoryError, match=r"0000000001.journal, byte 0: .*Restore the file from a copy; or"
    ):
        open_manager(tmp_path)


def test_a_new_journal_begins_without_durable_frames(tmp_path: Path) -> None:
    """In the second journal, too, a lost sector in the first of two frames is no damage."""
    journal = journal_with(tmp_path, decisions(2))
    journal.begin_next()
    for decision in decisions(2):
        journal.append([], [decision])
    path = tmp_path / journals(tmp_path)[1]
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + bytes(10) + whole[30:])
    assert found_in(tmp_path) == decisions(2)


def test_a_start_makes_the_journal_that_it_read_durable() -> None:
    """After a kill, the journal's content may be only in the page cache. It must be durable before
    the start acts on it.
    """
    for seed in range(8):
        disk = SimDisk(random.Random(seed), lambda: NOW_MS)
        disk.mkdir("/data")
        disk.fsync_dir("/")
        FlushJournal(disk, "/data").append([], decisions(3))
        disk.fsync_dir("/data")
        disk.kill()
        assert FlushJournal(disk, "/data").read().decisions == decisions(3)
        disk.lose_power()
        assert FlushJournal(disk, "/data").read().decisions == decisions(3)


def test_a_frame_refused_by_a_full_disk_leaves_no_partial_frame() -> None:
    """A journal must be whole on the disk when the next journal begins. A partial frame would be
    taken for damage.
    """
    for seed in range(8):
        disk = SimDisk(random.Random(seed), lambda: NOW_MS)
        disk.mkdir("/data")
        journal = FlushJournal(disk, "/data")
        sync(journal.append([], decisions(1)))
        disk.refuse(Refusal(frozenset({"write"}), errno.ENOSPC))
        with pytest.raises(NotWrittenError):
            journal.append([], decisions(3))
        disk.refuse(None)
        journal.begin_next()
        sync(journal.append([], decisions(2)))
        disk.kill()
        assert FlushJournal(disk, "/data").read().decisions == decisions(1) + decisions(2)
