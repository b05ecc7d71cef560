"""If a disk becomes full while a producer has several batches in flight, its sequence of batches
gets no gap.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost, produce
from helpers.deferred_batches import defer_batches
from helpers.disk_broker import DiskBroker

from barnabas.broker.logs.disk_space import (
    LOOK_EVERY_MS,
    MEASURED_EVERY_BYTES,
    QUIET_MS,
    DiskSpace,
)
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest


@pytest.mark.parametrize("deferred_above", [None, "ROWS_AT_ONCE", "BYTES_AT_ONCE"])
def test_after_a_batch_found_no_space_the_producers_later_batches_are_refused(
    monkeypatch: pytest.MonkeyPatch, deferred_above: str | None
) -> None:
    """Three batches of a new producer are in flight. The disk is full for the first two, and has
    space for the third, which must be refused nevertheless. Batches are appended immediately, or
    after the worker has checked them.
    """
    if deferred_above is not None:
        defer_batches(monkeypatch, deferred_above)
    b = DiskBroker()
    b.topic("t")
    pid = b.init(None)[1]

    def produce(sequence: int, *, epoch: int = 0) -> int:
        return b.produce("t", (b"%d" % sequence,), pid=pid, epoch=epoch, sequence=sequence)[0]

    b.disk.crash_in(0, is_full=True)
    assert produce(0) == Code.KAFKA_STORAGE_ERROR
    assert produce(1) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER, (
        "there is no room for it either, but it is to be sent again behind the first"
    )
    b.disk.crash_in(-1)
    assert produce(2) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert b.produce("t", (b"of another",))[0] == 0
    assert [produce(sequence) for sequence in (0, 1, 2)] == [0, 0, 0]
    assert b.read("t") == [b"of another", b"0", b"1", b"2"]


def test_a_producer_that_drops_a_refused_batch_continues_with_its_next_epoch() -> None:
    b = DiskBroker()
    b.topic("t")
    pid = b.init(None)[1]
    b.disk.crash_in(0, is_full=True)
    assert b.produce("t", (b"lost",), pid=pid, epoch=0, sequence=0)[0] == Code.KAFKA_STORAGE_ERROR
    b.disk.crash_in(-1)
    assert b.produce("t", (b"a",), pid=pid, epoch=1, sequence=0)[0] == 0
    assert b.read("t") == [b"a"]


@pytest.mark.parametrize("deferred_above", [None, "ROWS_AT_ONCE", "BYTES_AT_ONCE"])
def test_too_little_free_space_counts_as_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, deferred_above: str | None
) -> None:
    if deferred_above is not None:
        defer_batches(monkeypatch, deferred_above)
    b = DiskBroker()
    b.topic("t")
    pid = b.init(None)[1]
    b.disk.free_bytes = lambda path: 0  # type: ignore[method-assign]
    # the number of bytes that may be written before the free space is measured again
    b.parts.disk_space.left_bytes = 0
    request = b.produce_request("t", (b"0",), pid=pid, epoch=0, sequence=0)
    row = b.call(request, 9).responses[0].partition_responses[0]
    assert row.error_code == Code.KAFKA_STORAGE_ERROR
    assert "disk" in row.error_message
    del b.disk.free_bytes
    assert (
        b.produce("t", (b"1",), pid=pid, epoch=0, sequence=1)[0]
        == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert [
        b.produce("t", (b"%d" % sequence,), pid=pid, epoch=0, sequence=sequence)[0]
        for sequence in (0, 1)
    ] == [0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_clients_leave_the_reserve_and_get_all_else(seed: int) -> None:
    """The test simulates the disk: bytes that `reserve()` grants are used at once, and after a
    refusal some space may be freed.
    """
    rng = random.Random(seed)
    reserve = rng.choice([0, 1, 5 * MEASURED_EVERY_BYTES])
    free, measured = reserve + rng.randrange(4 * MEASURED_EVERY_BYTES), 0

    def free_bytes() -> int:
        nonlocal measured
        measured += 1
        return free

    space, granted, refused = DiskSpace(free_bytes, reserve), 0, 0
    for _ in range(200):
        count = rng.choice([1, 1000, 1 << 20, 2 * MEASURED_EVERY_BYTES])
        may = free - reserve >= count
        assert space.reserve(count) is may
        assert space.is_full is not may
        if may:
            free -= count
            granted += count
        else:
            refused += 1
            free += rng.choice([0, 0, count, 2 * count])
        assert free >= reserve
    assert measured <= 1 + refused + 2 * granted // MEASURED_EVERY_BYTES


def test_a_full_disk_gives_log_start_offset_minus_one(tmp_path: Path) -> None:
    """As in Apache Kafka, log_start_offset in a Produce error is that of the log if the log refused
    the batch, and -1 otherwise.
    """
    host = CoreHost(tmp_path)
    host.connect(1)
    (log,) = host.create("t")

    def refusal(sequence: int) -> tuple[int, int]:
        answer = host.call(1, produce("t", identity=(5, 0), sequence=sequence), 9)
        row = answer.responses[0].partition_responses[0]
        return row.error_code, row.log_start_offset

    assert refusal(0) == (Code.NONE, 0)
    log.delete_records_before(1)
    assert refusal(7) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, 1)
    (
        host.parts.disk_space.left_bytes,
        host.parts.disk_space._free_bytes,
    ) = 0, lambda: 0
    assert refusal(1) == (Code.KAFKA_STORAGE_ERROR, -1)
    host.close()


def test_the_flush_queue_sees_when_the_disk_is_full() -> None:
    """The flush queue reads the same DiskSpace object that Produce updates. A test of the queue
    (test_broker_flush_queue.py) shows that the queue writes no journal while the disk is full.
    """
    b = DiskBroker()
    b.topic("t", 2)
    assert b.broker.flushes._disk_space is b.parts.disk_space
    b.disk.free_bytes = lambda path: 0  # type: ignore[method-assign]
    b.parts.disk_space.left_bytes = 0
    assert b.produce("t", (b"0",))[0] == Code.KAFKA_STORAGE_ERROR
    assert b.parts.disk_space.is_full
    del b.disk.free_bytes
    assert b.produce("t", (b"0",))[0] == 0
    assert not b.parts.disk_space.is_full


# --- what is told ---------------------------------------------------------------------------------


class Disk:
    """A disk whose free space a test sets."""

    def __init__(self, free: int, reserve: int = 1000) -> None:
        self.free = free
        self.space = DiskSpace(lambda: self.free, reserve, "/data")
        self.now_ms = 0

    def tick(self, ms: int) -> None:
        """Let time pass; the room is measured whenever a measurement is due."""
        end = self.now_ms + ms
        while (due := self.space.next_deadline_ms()) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self.space.on_tick(self.now_ms)
        self.now_ms = end


def test_the_log_says_when_a_full_disk_begins_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(1100)
    assert disk.space.problem() is None and disk.space.usable_bytes() == 100
    assert disk.space.next_deadline_ms() is None
    for _ in range(3):
        assert not disk.space.reserve(500)
        disk.tick(2000)
    (begin,) = caplog.messages
    assert begin.startswith("There is no room for writes in /data: 1.1 KB are free, and ")
    assert "barnabas.disk.reserve.bytes keeps 1.0 KB" in begin
    problem = disk.space.problem()
    assert problem is not None and problem.startswith("Some of the clients' writes are refused: ")
    disk.free = 900
    problem = disk.space.problem()
    assert problem is not None and problem.startswith("Clients' writes are refused: 900 bytes")
    assert disk.space.usable_bytes() == 0
    disk.free = 9000
    assert disk.space.reserve(500), "a write is accepted at once"
    disk.tick(QUIET_MS + 2 * LOOK_EVERY_MS)
    assert len(caplog.messages) == 2
    assert "There is room for writes in /data again: 9.0 KB are free" in caplog.messages[1]
    assert "3 writes were refused in " in caplog.messages[1]
    assert disk.space.problem() is None and disk.space.next_deadline_ms() is None
    assert disk.space.refused_count == 3


def test_a_disk_that_is_almost_full_causes_no_line_for_each_retry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk(1100)
    for number in range(60):
        disk.free = 1100 if number % 2 else 2000
        disk.space.reserve(500)
        disk.space.left_bytes = 0
        disk.tick(1000)
    assert len(caplog.messages) == 1


def test_a_quota_that_is_used_up_is_told_though_space_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk(1 << 40)
    disk.space.on_not_written(OSError(122, "Disk quota exceeded"))
    assert "There is no room for writes in /data: Disk quota exceeded." in caplog.text
    assert disk.space.usable_bytes() == 0
    assert disk.space.problem() is not None
    disk.tick(QUIET_MS + 2 * LOOK_EVERY_MS)
    assert "There is room for writes in /data again" in caplog.text
    assert disk.space.usable_bytes() > 0 and disk.space.problem() is None


def test_a_topic_that_is_too_large_for_the_disk_is_no_full_disk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk(10 * MEASURED_EVERY_BYTES)
    assert not disk.space.reserve(20 * MEASURED_EVERY_BYTES)
    assert caplog.messages == [] and disk.space.problem() is None


@pytest.mark.parametrize("free", [0, 64 << 20])
def test_a_start_on_a_disk_that_is_too_small_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, free: int
) -> None:
    monkeypatch.setattr("sim.disk.SimDisk.free_bytes", lambda self, path: free)
    b = DiskBroker()
    (line,) = [one for one in caplog.messages if "room" in one or "too small" in one]
    assert line.startswith("The disk of /data is too small for writes: ")
    assert "barnabas.disk.reserve.bytes keeps 67.1 MB" in line
    assert b.broker.disk_space.usable_bytes() == 0
    caplog.clear()
    row = create(b)
    assert row.error_code == Code.KAFKA_STORAGE_ERROR
    assert "barnabas.disk.reserve.bytes keeps 67.1 MB" in row.error_message
    assert caplog.messages == [], "it is told once"


def create(b: DiskBroker) -> Any:
    """The result of a CreateTopics."""
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1000
    )
    return b.call(request, 5).topics[0]


def test_the_brokers_timer_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    """The core's tick measures the room, without any request."""
    b = DiskBroker()
    b.topic("t")
    b.disk.free_bytes = lambda path: 0  # type: ignore[method-assign]
    b.parts.disk_space.left_bytes = 0
    assert b.produce("t", (b"v",))[0] == Code.KAFKA_STORAGE_ERROR
    del b.disk.free_bytes
    for _ in range(QUIET_MS // LOOK_EVERY_MS + 2):
        assert b.broker.next_deadline_ms() is not None
        b.tick(LOOK_EVERY_MS)
    assert "There is room for writes in /data again" in caplog.text
