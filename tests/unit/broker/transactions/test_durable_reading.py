"""With flush.messages=1 readers see only durable records, so a power loss removes no record that
was read.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.admin_host import CountedIds
from helpers.disk_broker import DiskBroker, Producer

from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.storage.log.append_info import NewMarker


def test_records_that_are_not_durable_are_not_read() -> None:
    b = DiskBroker()
    b.topic("t", flush_messages="1")
    assert b.produce("t", (b"kept",))[0] == 0
    b.hold_flushes()
    log = b.broker.topics.partition("t", 0)
    assert log is not None
    # a marker whose flush no request waits for
    b.parts.coordinators.get().markers.append("t", 0, NewMarker(77, 0, 0, True), b.now_ms)
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    assert b.end_offset("t") == 1 and b.read("t") == [b"kept"]
    b.lose_power()
    assert b.end_offset("t") == 1 and b.read("t") == [b"kept"]


def test_after_a_kill_the_high_watermark_is_where_it_was() -> None:
    b = DiskBroker()
    b.topic("t", flush_messages="1")
    b.topic("u", flush_messages="1")
    for number in range(5):
        b.produce("t", (b"%d" % number,))
    for again in (b.kill, b.lose_power, b.stop):
        again()
        assert b.end_offset("t") == 5 and b.read("t") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("journal", ["0", "1", "2"])
@pytest.mark.parametrize("durability", ["flush", "os"])
def test_a_commit_is_visible_to_readers_once_it_was_answered(journal: str, durability: str) -> None:
    """Markers are flushed later. After a power loss, the start writes lost markers again."""
    b = DiskBroker(barnabas_flush_journal_logs=journal, barnabas_transaction_durability=durability)
    b.topic("t", flush_messages="1")
    producer = Producer(b, "txn")
    for number in range(3):
        producer.send("t", 0, b"%d" % number)
        assert b.read("t", committed=True) == [b"%d" % earlier for earlier in range(number)]
        assert producer.end(commit=True) == 0
        assert b.read("t", committed=True) == [b"%d" % earlier for earlier in range(number + 1)]
    if durability == "flush":
        b.lose_power()
        assert b.read("t", committed=True) == [b"0", b"1", b"2"]
    b.tick(1000)
    fetched = b.fetch("t", committed=True)
    log = b.broker.topics.partition("t", 0)
    assert log is not None
    assert fetched.last_stable_offset == fetched.high_watermark == log.log_end_offset, (
        "what no request waited for is on the disk"
    )


def test_a_transaction_ended_by_write_txn_markers_is_read_when_its_marker_is_durable() -> None:
    """The coordinator has no decision from which a start could restore this marker, so after a
    power loss it would abort the transaction.
    """
    b = DiskBroker()
    b.topic("t", flush_messages="1")
    producer = Producer(b, "txn")
    producer.send("t", 0, b"x")
    b.hold_flushes()
    assert b.write_marker(producer.pid, producer.epoch, "t", commit=True) == 0
    assert b.read("t", committed=True) == []
    b.release_flushes()
    assert b.read("t", committed=True) == [b"x"]
    b.lose_power()
    assert b.read("t", committed=True) == [b"x"]


def test_a_start_after_a_kill_flushes_all_logs_with_flush_messages_1_together() -> None:
    b = DiskBroker()
    b.topic("t", 5, flush_messages="1")
    for partition in range(5):
        b.produce("t", (b"read",), partition=partition)
    b.disk.kill()
    calls: list[int] = []

    def sync(files: list[Any]) -> None:
        calls.append(len(files))
        for file in files:
            file.fsync()

    config = BrokerConfig.from_properties(
        {"log.dirs": "/data", "offsets.topic.num.partitions": "2"}
    )
    broker = open_broker(config, CountedIds(), disk=b.disk, now_ms=b.now_ms, sync=sync)
    logs = [broker.topics.partition("t", partition) for partition in range(5)]
    assert [
        (log.high_watermark, log.durability.recovery_point) for log in logs if log is not None
    ] == [(1, 1)] * 5
    assert len(calls) == 1 and calls[0] >= 5
    b.lose_power()
    assert [b.read("t", partition) for partition in range(5)] == [[b"read"]] * 5
