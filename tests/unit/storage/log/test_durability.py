"""How much of a log is durable. The tests follow the table at the start of the module step by
step.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, new_log, open_manager

from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.disk import DirectorySync
from barnabas.storage.log.durability import Durability, FlushToken, LogEnd
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = new_log(tmp_path, segment_bytes=200)[1]
    log.flush()
    return log


def points(log: Log) -> tuple[int, int]:
    return log.durability.recovery_point, log.durability.durable_offset


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append(batch(), now_ms=NOW_MS)


def test_all_is_durable_where_nothing_came(log: Log) -> None:
    assert log.durability.begin_flush() is None and points(log) == (0, 0)


def test_a_flush_in_place_covers_what_was_written_before_it_began(log: Log) -> None:
    append(log)
    token = log.durability.begin_flush()
    assert token is not None and token.files == (log.segments.active.batches.file,)
    append(log)
    log.finish_flush(token)
    assert points(log) == (1, 1)
    assert log.durability.durable_offset == 1


def test_a_flush_to_the_journal_advances_the_durable_offset_but_not_the_recovery_point(
    log: Log,
) -> None:
    append(log)
    begun = log.durability.try_begin_journal(1 << 20)
    assert begun is not None
    (*_, base_offset, position, data), end = begun
    assert (base_offset, position, len(data)) == (0, 0, 69)
    log.finish_flush(end)
    assert points(log) == (0, 1) and log.durability.recovery_point < 1
    append(log)
    following = log.durability.try_begin_journal(1 << 20)
    assert following is not None and following[0][4] == 69


def test_data_above_the_limit_or_of_two_segments_does_not_go_to_a_journal(log: Log) -> None:
    append(log)
    assert log.durability.try_begin_journal(68) is None
    append(log, 3)
    assert len(log.segments) == 2 and log.durability.try_begin_journal(1 << 20) is None


def test_a_roll_is_flushed_with_both_segments_and_the_names(log: Log) -> None:
    append(log, 3)
    token = log.durability.begin_flush()
    assert token is not None
    assert [file for file in token.files if not isinstance(file, DirectorySync)] == [
        segment.batches.file for segment in log.segments
    ]
    assert sum(isinstance(file, DirectorySync) for file in token.files) == 2
    log.finish_flush(token)
    assert points(log) == (3, 3)
    append(log)
    assert log.durability.try_begin_journal(1 << 20) is not None, "one segment, no new name"


def test_nothing_goes_to_a_journal_while_a_roll_is_flushed(log: Log) -> None:
    append(log, 3)
    assert log.durability.begin_flush() is not None
    append(log)
    assert log.durability.try_begin_journal(1 << 20) is None, "the segment before may be lost"


def test_names_are_durable_when_a_flush_that_began_after_them_has_ended(log: Log) -> None:
    append(log, 3)
    first, second = log.durability.begin_flush(), log.durability.begin_flush()
    assert first is not None and second is not None
    assert first.files == second.files, (
        "the first flush may never end, so the second one includes its files"
    )
    append(log, 2)  # begins another segment
    log.finish_flush(first)
    assert log.durability.names_changed
    last = log.durability.begin_flush()
    assert last is not None
    log.finish_flush(last)
    log.finish_flush(second)
    assert not log.durability.names_changed and log.durability.begin_flush() is None


def test_a_second_flush_includes_the_files_of_one_that_has_not_ended(tmp_path: Path) -> None:
    log = open_manager(tmp_path, LogConfig()).create("u", 0, TOPIC_ID, LogConfig(), NOW_MS)
    append(log)
    paths = []
    for _ in range(2):
        token = log.durability.begin_flush()
        assert token is not None
        paths.append([getattr(file, "path", "") for file in token.files])
    assert paths[0] == paths[1]
    assert f"{log.directory}/partition.metadata" in paths[0]
    log.finish_flush(token)
    assert log.durability.begin_flush() is None


def opened(log: Log, recovery_point: int, *, names_are_durable: bool = True) -> Durability:
    """The durable state after a start that trusts the log up to `recovery_point`."""
    return Durability(
        log.disk,
        log.directory,
        TopicIdPartition(log.topic, log.partition, log.topic_id),
        log.segments,
        recovery_point,
        names_are_durable=names_are_durable,
    )


@pytest.mark.parametrize(
    ("recovery_point", "unflushed"), [(0, [0, 2, 4]), (1, [0, 2, 4]), (2, [2, 4]), (4, [4])]
)
def test_a_start_flushes_what_is_not_known_to_be_durable(
    log: Log, recovery_point: int, unflushed: list[int]
) -> None:
    append(log, 5)
    durability = opened(log, recovery_point)
    assert durability.try_begin_journal(1 << 20) is None, "where it is durable is not known"
    token = durability.begin_flush()
    assert token is not None
    files = [segment.batches.file for segment in log.segments if segment.base_offset in unflushed]
    assert list(token.files) == files
    assert (durability.recovery_point, durability.durable_offset) == (recovery_point,) * 2


def test_after_a_start_on_a_durable_log_the_journal_may_be_used(log: Log) -> None:
    append(log, 5)
    durability = opened(log, 5)
    assert durability.begin_flush() is None
    append(log)
    begun = durability.try_begin_journal(1 << 20)
    assert begun is not None
    assert (*begun[0][3:5], len(begun[0][-1])) == (4, 69, 69)


def test_names_that_may_not_be_durable_are_flushed_without_data(log: Log) -> None:
    token = opened(log, 0, names_are_durable=False).begin_flush()
    assert token is not None
    assert sum(isinstance(file, DirectorySync) for file in token.files) == 2


def test_all_new_names_are_in_the_next_flush_only(log: Log) -> None:
    paths = [f"{log.directory}/first", f"{log.directory}/second"]
    for path in paths:
        log.disk.write_atomic(path, b"", sync=False)
        log.durability.add_names(path)
    token = log.durability.begin_flush()
    assert token is not None and len(token.files) == 1 + len(paths) + 2
    log.finish_flush(token)
    assert log.durability.begin_flush() is None


def test_removed_segments_are_not_flushed(log: Log) -> None:
    append(log, 5)
    first, second, active = log.segments
    log.durability.remove_segments([first, second])
    token = log.durability.begin_flush()
    assert token is not None
    assert [file for file in token.files if not isinstance(file, DirectorySync)] == [
        active.batches.file
    ]


@pytest.mark.parametrize("in_place", list(itertools.product([True, False], repeat=3)))
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_end_of_a_flush_never_lowers_what_is_durable(
    tmp_path: Path, in_place: tuple[bool, ...], order: tuple[int, ...]
) -> None:
    """Flushes in place and to the journal may end in any order, also an older one after a later
    one. The next journal continues where the highest of them ended.
    """
    log = new_log(tmp_path)[1]
    log.flush()
    tokens: list[FlushToken | LogEnd] = []
    for is_in_place in in_place:
        append(log)
        begun = None if is_in_place else log.durability.try_begin_journal(1 << 20)
        token = log.durability.begin_flush() if begun is None else begun[1]
        assert token is not None
        tokens.append(token)
    in_own_files: list[LogEnd] = []
    ends: list[LogEnd] = []
    for number in order:
        token = tokens[number]
        log.finish_flush(token)
        ends.append(token.end if isinstance(token, FlushToken) else token)
        if isinstance(token, FlushToken):
            in_own_files.append(token.end)
        assert points(log) == (max(in_own_files, default=(0,))[0], max(ends)[0])
        begun = log.durability.try_begin_journal(1 << 20)
        assert begun is not None
        assert begun[0][4] == max(position for _, _, position in ends)


def test_readers_wait_for_the_disk_only_with_flush_messages_of_one(tmp_path: Path) -> None:
    log = new_log(tmp_path, flush_messages=1)[1]
    append(log)
    assert log.high_watermark == 0
    log.flush()
    assert log.high_watermark == 1


def test_a_pending_marker_is_stable_only_below_the_high_watermark(log: Log) -> None:
    """The transaction began at offset 3, and its marker is at offset 7. A start after a power loss
    would not write this marker again, so readers of committed records may pass the transaction only
    when the marker is below the high watermark.
    """
    log.durability.add_pending_marker(3, 7)
    assert log.durability.stable_below(9, 7) == 3
    assert log.durability.stable_below(9, 8) == 9


def test_nothing_goes_to_a_journal_while_a_name_is_not_durable(log: Log) -> None:
    """If the name were lost, a start after a power loss would not find the log of a journal
    entry.
    """
    append(log)
    path = f"{log.directory}/name"
    log.disk.write_atomic(path, b"", sync=False)
    log.durability.add_names(path)
    assert log.durability.try_begin_journal(1 << 20) is None
    token = log.durability.begin_flush()
    assert token is not None
    assert log.durability.try_begin_journal(1 << 20) is None, "the flush may fail"
    log.finish_flush(token)
    append(log)
    assert log.durability.try_begin_journal(1 << 20) is not None


def files_of(log: Log) -> list[str]:
    """The names, without directories, of the files that a flush in place would sync now."""
    token = log.durability.begin_flush()
    files = () if token is None else token.files
    return [Path(file.path).name for file in files if hasattr(file, "path")]


def log_names(*base_offsets: int) -> list[str]:
    return [f"{base_offset:020d}.log" for base_offset in base_offsets]


def test_names_are_durable_with_the_logs_directory_and_the_one_around_it(tmp_path: Path) -> None:
    disk = RecordingDisk()
    log = open_manager(tmp_path, disk=disk).create("u", 0, TOPIC_ID, LogConfig(), NOW_MS)
    append(log)
    disk.take_steps()
    log.flush()
    synced = [name for step, name in disk.take_steps() if step == "fsync_dir"]
    assert synced == ["u-0", tmp_path.name]


def test_an_entry_of_a_journal_may_end_before_the_log_does(log: Log) -> None:
    append(log)
    end = log.durability.end
    append(log)
    begun = log.durability.try_begin_journal(69, end)
    assert begun is not None
    (*_, data), end = begun
    assert (len(data), end) == (69, (1, 0, 69))


def test_a_late_end_of_a_flush_before_a_roll_does_not_affect_the_new_segment(
    log: Log,
) -> None:
    append(log, 2)
    before = log.durability.begin_flush()
    log._roll(NOW_MS)
    after = log.durability.begin_flush()
    assert before is not None and after is not None
    log.finish_flush(after)
    log.finish_flush(before)
    append(log)
    begun = log.durability.try_begin_journal(1 << 20)
    assert begun is not None
    assert (*begun[0][3:5], len(begun[0][-1])) == (2, 0, 69)


def test_a_file_added_during_a_flush_is_in_the_next_flush(log: Log) -> None:
    for name in ("first", "second"):
        log.disk.write_atomic(f"{log.directory}/{name}", b"", sync=False)
    log.durability.add_names(f"{log.directory}/first")
    token = log.durability.begin_flush()
    log.durability.add_names(f"{log.directory}/second")
    assert token is not None
    log.finish_flush(token)
    assert "second" in files_of(log)
    log.flush()
    append(log)
    assert files_of(log) == log_names(0), "names that are durable are flushed no more"


def test_appends_during_a_flush_are_in_the_next_flush(log: Log) -> None:
    append(log, 2)
    token = log.durability.begin_flush()
    append(log, 3)
    assert token is not None
    log.finish_flush(token)
    assert files_of(log) == log_names(2, 4)
    log.flush()
    assert files_of(log) == []
    append(log)
    assert files_of(log) == log_names(4), "the active one always"


def test_after_a_roll_of_a_durable_log_only_the_new_name_needs_a_flush(log: Log) -> None:
    append(log, 2)
    log.flush()
    log._roll(NOW_MS)
    log.flush()
    append(log)
    assert log.durability.try_begin_journal(1 << 20) is not None
    assert files_of(log) == log_names(2)
