"""The last five batches of a producer are not in a snapshot. They are restored from the log
(KIP-98).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.storage_kafka_log import kafka_log
from helpers.storage_logs import batch

from barnabas.protocol.records import BatchHeader, read_header
from barnabas.storage.batch.validate import CheckBudget, TakesLongError
from barnabas.storage.log.log import Log
from barnabas.storage.producers import producer_window
from barnabas.storage.producers.producer_state import ProducerEntry
from barnabas.storage.producers.producer_window import restore_window


def as_of_a_snapshot(log: Log, producer_id: int) -> ProducerEntry:
    """The entry as a snapshot has it, with only the last batch of the producer."""
    entry = log.producer_state.producers[producer_id]
    entry.batches, entry.has_whole_window = entry.batches[-1:], False
    return entry


def test_the_last_five_batches_of_a_producer_are_restored_from_the_log(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    entry = as_of_a_snapshot(log, 7)
    restore_window(entry, log.segments)
    # The sequences and offsets of producer 7 are those in the output of `kafka-dump-log.sh`,
    # without markers.
    assert [(b.first_sequence, b.last_offset) for b in entry.batches] == [
        (16, 41), (17, 42), (18, 44), (19, 45), (20, 46),
    ]  # fmt: skip
    assert entry.has_whole_window


def test_a_window_ends_with_the_first_sequence_of_an_epoch(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    entry = as_of_a_snapshot(log, 8)
    restore_window(entry, log.segments)
    assert [batch.first_sequence for batch in entry.batches] == [0]


def test_batches_of_an_earlier_epoch_are_not_restored(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    entry = as_of_a_snapshot(log, 7)
    entry.producer_epoch = 1
    restore_window(entry, log.segments)
    assert [batch.first_sequence for batch in entry.batches] == [20]


def test_a_window_is_restored_at_the_next_attempt_after_a_disk_error(tmp_path: Path) -> None:
    """The search needs the index, which may have to be rebuilt. A full disk may refuse this."""
    log = kafka_log(tmp_path)
    entry = as_of_a_snapshot(log, 7)

    def refuse(offset: int) -> Iterator[BatchHeader]:
        raise OSError(errno.ENOSPC, "no inode is left")

    refusing: Any = SimpleNamespace(headers_before=refuse)
    with pytest.raises(OSError, match="no inode"):
        restore_window(entry, refusing)
    restore_window(entry, log.segments)
    assert len(entry.batches) == 5


def test_a_window_ends_at_a_damaged_segment(tmp_path: Path) -> None:
    """The second segment is overwritten with zeros, so only the later batches are restored."""
    log = kafka_log(tmp_path)
    Path(log.segments[1].batches.path(".log")).write_bytes(b"\0" * 2002)
    entry = as_of_a_snapshot(log, 5)
    restore_window(entry, log.segments)
    assert [batch.first_sequence for batch in entry.batches] == [3, 4, 5]


def test_a_producer_without_a_known_batch_gets_its_last_five(tmp_path: Path) -> None:
    """The producer may be known only from a marker."""
    log = kafka_log(tmp_path)
    entry = as_of_a_snapshot(log, 7)
    entry.batches = []
    restore_window(entry, log.segments)
    assert [batch.first_sequence for batch in entry.batches] == [16, 17, 18, 19, 20]


def test_the_log_is_read_back_no_further_than_the_first_sequence(tmp_path: Path) -> None:
    entry = as_of_a_snapshot(kafka_log(tmp_path), 7)

    def headers(offset: int) -> Iterator[BatchHeader]:
        for sequence in (1, 0):
            header = read_header(batch(pid=7, epoch=entry.producer_epoch, seq=sequence))
            yield header._replace(base_offset=sequence)
        raise AssertionError("the log is read further back than sequence 0")

    segments: Any = SimpleNamespace(headers_before=headers)
    restore_window(entry, segments)
    assert [batch.first_sequence for batch in entry.batches] == [0, 1, 20]


@pytest.mark.parametrize("most", [1, 2, 7, 1000])
def test_a_search_on_the_loop_goes_on_in_slices(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each slice the client's batch waits for its next turn, with other limits."""
    log = kafka_log(tmp_path)
    expected = as_of_a_snapshot(log, 7)
    restore_window(expected, log.segments)
    whole = list(expected.batches)
    monkeypatch.setattr(producer_window, "_HEADERS_AT_ONCE", most)
    entry = as_of_a_snapshot(log, 7)
    slices = 0
    while not entry.has_whole_window:
        budget = CheckBudget()
        before = budget.records_left
        with contextlib.suppress(TakesLongError):
            restore_window(entry, log.segments, budget)
        assert before - budget.records_left <= most
        slices += 1
        assert slices < 100
    assert entry.batches == whole and entry.window_search is None
    assert slices == 1 if most == 1000 else slices > 1 or most > 2


def test_the_producers_of_a_request_share_the_limit_of_a_search(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    budget = CheckBudget(3)
    entry = as_of_a_snapshot(log, 7)
    with pytest.raises(TakesLongError):
        restore_window(entry, log.segments, budget)
    assert budget.records_left == 0
    other = as_of_a_snapshot(log, 8)
    with pytest.raises(TakesLongError):
        restore_window(other, log.segments, budget)
    restore_window(other, log.segments)
    restore_window(entry, log.segments, CheckBudget())
    assert other.has_whole_window and entry.has_whole_window


def test_a_search_reads_a_bounded_part_of_a_log_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_window, "_MOST_HEADERS", 5)
    monkeypatch.setattr(producer_window, "_HEADERS_AT_ONCE", 2)
    log = kafka_log(tmp_path)
    entry = as_of_a_snapshot(log, 5)
    calls = 0
    while not entry.has_whole_window:
        with contextlib.suppress(TakesLongError):
            restore_window(entry, log.segments, CheckBudget())
        calls += 1
    assert calls == 3
