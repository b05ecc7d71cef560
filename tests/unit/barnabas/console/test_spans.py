"""Strips of some example logs. A property test checks that a strip shows the state of every
offset.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.storage_logs import NOW_MS, batch, new_log

from barnabas.console.spans import (
    GAP,
    MOST_INDEX_ENTRIES,
    OPEN,
    PLAIN,
    PLAIN_DIVISIONS,
    Transaction,
    read_strip,
    take_window,
)
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    manager, log = new_log(tmp_path / "data")
    yield log
    manager.close(NOW_MS)


def write(log: Log, producer_id: int, sequence: int, count: int = 1) -> None:
    values = [b"v"] * count
    log.append(
        batch(values, pid=producer_id, epoch=0, seq=sequence, transactional=True), now_ms=NOW_MS
    )


def end(log: Log, producer_id: int, *, commit: bool) -> None:
    append_marker(
        log, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, commit=commit,
        now_ms=NOW_MS,
    )  # fmt: skip


def test_an_empty_log_has_no_spans(log: Log) -> None:
    strip = read_strip(take_window(log), 100)
    assert (strip.spans, strip.transactions, strip.error) == ((), (), "")


def test_an_open_transaction_among_others(log: Log) -> None:
    write(log, 1, 0)
    write(log, 2, 0, 3)
    end(log, 1, commit=True)
    write(log, 2, 3)
    write(log, 1, 1)
    end(log, 1, commit=False)
    strip = read_strip(take_window(log), 100)
    assert [(span.kind, span.first_offset, span.end_offset) for span in strip.spans] == [
        ("committed", 0, 1),
        ("open", 1, 4),
        ("commit", 4, 5),
        ("open", 5, 6),
        ("aborted", 6, 7),
        ("abort", 7, 8),
    ]
    assert strip.transactions == (
        Transaction(1, 0, "committed", 0, 4),
        Transaction(2, 0, "open", 1, -1),
        Transaction(1, 0, "aborted", 6, 7),
    )
    assert [span.transaction for span in strip.spans] == [0, 1, 0, 1, 2, 2]
    assert strip.window.last_stable_offset == 1


def test_a_transaction_that_began_before_the_strip(log: Log) -> None:
    """A strip shows only the last batches. The first offset of an open transaction is known from
    the log, and that of an ended one only if its first record is in the window.
    """
    write(log, 1, 0)
    write(log, 2, 0)
    for _ in range(5):
        log.append(batch([b"v"]), now_ms=NOW_MS)
    write(log, 1, 1)
    write(log, 2, 1)
    end(log, 2, commit=True)
    strip = read_strip(take_window(log), 3)
    assert [span.kind for span in strip.spans] == [OPEN, "committed", "commit"]
    assert [row.first_offset for row in strip.transactions] == [0, 1], (
        "the window has the first records of both"
    )
    # This window starts after the first records of both transactions.
    tail = read_strip(take_window(log)._replace(slices=_last_batches(log, 7)), 10)
    assert [row.first_offset for row in tail.transactions] == [0, -1], (
        "the log has the first offset of an open transaction, not of a committed one"
    )


def _last_batches(log: Log, offset: int) -> tuple:  # type: ignore[type-arg]
    """Slices of the log from the given offset to the end."""
    data = log.read(offset, max_bytes=1 << 20, min_one_batch=True)
    assert data.slice is not None
    return (data.slice,)


def test_runs_without_a_transaction_are_divided_at_the_same_offsets_while_the_log_grows(
    log: Log,
) -> None:
    """A span keeps its first offset when records are appended, so that the page's spans do not
    jump.
    """
    for _ in range(300):
        log.append(batch([b"v"]), now_ms=NOW_MS)
    before = {span.first_offset for span in read_strip(take_window(log), 1000).spans}
    assert PLAIN_DIVISIONS / 2 <= len(before) <= 2 * PLAIN_DIVISIONS
    log.append(batch([b"v"]), now_ms=NOW_MS)
    after = {span.first_offset for span in read_strip(take_window(log), 1000).spans}
    assert before <= after


def test_offsets_missing_after_compaction_are_a_gap(log: Log) -> None:
    log.append(batch([b"v"]), now_ms=NOW_MS)
    log.append(batch([b"v"] * 3), now_ms=NOW_MS)
    log.append(batch([b"v"]), now_ms=NOW_MS)
    (slice,) = take_window(log).slices
    data = bytearray(slice.file.pread(slice.size, 0))
    size = len(batch([b"v"]))
    del data[size : size + len(batch([b"v"] * 3))]
    Path(slice.file.path).write_bytes(data)  # as after compaction
    window = take_window(log)._replace(slices=(slice._replace(size=len(data)),))
    spans = read_strip(window, 100).spans
    assert [(span.kind, span.first_offset, span.end_offset) for span in spans] == [
        (PLAIN, 0, 1),
        (GAP, 1, 4),
        (PLAIN, 4, 5),
    ]


def test_a_damaged_batch_ends_the_strip_with_an_error(log: Log) -> None:
    log.append(batch([b"v"]), now_ms=NOW_MS)
    size = log.segments.active.batches.size
    log.append(batch([b"v"]), now_ms=NOW_MS)
    with open(log.segments.active.batches.file.path, "r+b") as file:
        file.seek(size + 16)
        file.write(b"\x09")  # the magic
    strip = read_strip(take_window(log), 100)
    assert [span.first_offset for span in strip.spans] == [0]
    assert "no batch begins there" in strip.error


def test_a_window_is_bounded_however_long_the_log_is(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path / "long", index_interval_bytes=4096, segment_bytes=100_000)
    for _ in range(900):
        log.append(batch([b"v" * 500]), now_ms=NOW_MS)
    size = sum(slice.size for slice in take_window(log).slices)
    assert size <= (MOST_INDEX_ENTRIES + 1) * 2 * 4096
    assert len(take_window(log).slices) >= 2, "it goes on in the segment before"
    manager.close(NOW_MS)
    shutil.rmtree(tmp_path / "long")
