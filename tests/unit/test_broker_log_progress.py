"""What follows from an append: who waits is told, and what is due reaches the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.admin_host import NOW_MS
from helpers.core_host import CoreHost, fetch, produce


@pytest.fixture
def host(tmp_path: Path) -> CoreHost:
    return CoreHost(tmp_path)


def test_a_fetch_that_waits_is_answered(host: CoreHost) -> None:
    host.create("t")
    host.ask(host.connect(1), fetch({"t": {0: 0}}, max_wait_ms=5000), 12)
    assert host.answers[1] == []
    host.call(host.connect(2), produce("t"), 9)
    assert len(host.answers[1]) == 1
    host.close()


def test_without_a_time_nothing_is_due(host: CoreHost) -> None:
    host.create("t")
    host.call(host.connect(1), produce("t"), 9)
    assert host.broker.progress.next_due_ms is None
    host.close()


def test_what_is_due_by_time_is_flushed_once(host: CoreHost) -> None:
    (log,) = host.create("t", flush_ms="50")
    progress = host.broker.progress
    assert progress.next_due_ms is None
    host.call(host.connect(1), produce("t"), 9)
    assert progress.next_due_ms == NOW_MS + 50
    progress.flush_later(log, NOW_MS + 70)  # it is due already
    assert progress.next_due_ms == NOW_MS + 50
    host.tick(50)
    assert (progress.next_due_ms, len(host.flushes)) == (None, 1)
    host.flush()
    assert log.durability.durable_offset >= log.log_end_offset
    host.close()


def test_a_log_that_is_deleted_is_due_no_more(host: CoreHost) -> None:
    host.create("t", flush_ms="50")
    host.call(host.connect(1), produce("t"), 9)
    host.broker.deletion.delete_topic("t", host.now_ms)
    host.tick(50)
    assert host.broker.progress.next_due_ms is None
    host.close()
