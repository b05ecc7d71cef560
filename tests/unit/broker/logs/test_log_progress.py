"""The effects of an append: waiting requests are notified, and the log is flushed in time."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.admin_host import NOW_MS
from helpers.core_host import CoreHost, delete_topic, fetch, produce

from barnabas.protocol.records import NewRecord, encode_batch


@pytest.fixture
def host(tmp_path: Path) -> CoreHost:
    return CoreHost(tmp_path)


def test_an_append_completes_a_waiting_fetch(host: CoreHost) -> None:
    host.create("t")
    host.ask(host.connect(1), fetch({"t": {0: 0}}, max_wait_ms=5000), 12)
    assert host.answers[1] == []
    host.call(host.connect(2), produce("t"), 9)
    assert len(host.answers[1]) == 1
    host.close()


@pytest.mark.parametrize("hidden", [(), (0,), (1,), (0, 2), (0, 1, 2)])
def test_all_logs_whose_records_wait_for_the_disk_are_in_one_flush(
    host: CoreHost, hidden: tuple[int, ...]
) -> None:
    """One request may append to several logs. Their topics may have different settings."""
    logs = []
    for number in range(3):
        settings = {"flush_messages": "1"} if number in hidden else {}
        logs += host.create(f"t{number}", **settings)
    for log in logs:
        log.append(bytearray(encode_batch([NewRecord(None, b"a", NOW_MS)])), now_ms=NOW_MS)
    host.broker.progress.on_appended(logs, NOW_MS)
    assert [log.high_watermark for log in logs] == [int(n not in hidden) for n in range(3)]
    host.carry_out()
    assert len(host.flushes) == bool(hidden)
    if hidden:
        host.flush()
    assert [log.high_watermark for log in logs] == [1, 1, 1]
    host.close()


def test_without_flush_ms_no_flush_is_due(host: CoreHost) -> None:
    host.create("t")
    host.call(host.connect(1), produce("t"), 9)
    assert host.broker.progress.next_due_ms is None
    host.close()


def test_a_log_is_flushed_once_at_the_earliest_of_its_deadlines(host: CoreHost) -> None:
    (log,) = host.create("t", flush_ms="50")
    progress = host.broker.progress
    assert progress.next_due_ms is None
    host.call(host.connect(1), produce("t"), 9)
    assert progress.next_due_ms == NOW_MS + 50
    progress.flush_later(log, NOW_MS + 70)  # the log is already due before that
    assert progress.next_due_ms == NOW_MS + 50
    host.tick(50)
    assert (progress.next_due_ms, len(host.flushes)) == (None, 1)
    host.flush()
    assert log.durability.durable_offset >= log.log_end_offset
    host.close()


def test_a_tick_before_the_deadline_requests_no_flush(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.create("t", flush_ms="50")
    waits = []
    monkeypatch.setattr(host.broker.flushes, "wait", lambda *what: waits.append(what))
    host.tick(0)
    host.call(host.connect(1), produce("t"), 9)
    host.tick(49)
    assert waits == []
    host.tick(1)
    assert len(waits) == 1
    host.close()


def test_a_deleted_log_has_no_flush_deadline(host: CoreHost) -> None:
    host.create("t", flush_ms="50")
    host.call(host.connect(1), produce("t"), 9)
    delete_topic(host.parts.deletion, "t", host.now_ms)
    host.tick(50)
    assert host.broker.progress.next_due_ms is None
    assert host.flushes == []
    host.close()


def test_each_log_is_flushed_at_its_own_deadline(host: CoreHost) -> None:
    """The next deadline is the earliest deadline of all logs, whatever the order of appends."""
    (later,), (sooner,) = host.create("later", flush_ms="70"), host.create("sooner", flush_ms="50")
    progress = host.broker.progress
    connection = host.connect(1)
    for topic in ("later", "sooner"):
        host.call(connection, produce(topic), 9)
    assert progress.next_due_ms == NOW_MS + 50
    host.create("last", flush_ms="90")
    host.call(connection, produce("last"), 9)
    assert progress.next_due_ms == NOW_MS + 50
    host.tick(49)
    assert host.flushes == []
    host.tick(1)
    assert [log for log, _ in host.flush().tokens] == [sooner]
    assert progress.next_due_ms == NOW_MS + 70
    host.tick(20)
    assert [log for log, _ in host.flush().tokens] == [later]
    assert progress.next_due_ms == NOW_MS + 90
    host.close()


def test_an_append_to_two_logs_completes_both_fetches_and_flushes_only_hidden_records(
    host: CoreHost,
) -> None:
    """With flush.messages=1 readers see only flushed records, so that log must be flushed."""
    (hidden,) = host.create("hidden", flush_messages="1")
    (plain,) = host.create("plain")
    # the files of new logs are created immediately
    host.parts.files_ahead.most_by_request = 2
    request = produce("hidden")
    request.topic_data += produce("plain").topic_data
    for connection, topic in ((1, "hidden"), (2, "plain")):
        host.ask(host.connect(connection), fetch({topic: {0: 0}}, max_wait_ms=60_000), 12)
    host.ask(host.connect(3), request, 9)
    assert (host.answers[1], len(host.answers[2]), host.answers[3]) == ([], 1, [])
    assert [log for log, _ in host.flush().tokens] == [hidden]
    assert len(host.answers[1]) == len(host.answers[3]) == 1
    assert plain.durability.durable_offset == 0
    host.close()
