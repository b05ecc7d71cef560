"""If a disk becomes full while a producer has several batches in flight, its sequence of batches
gets no gap.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from helpers.core_host import CoreHost, produce
from helpers.disk_broker import DiskBroker

from barnabas.broker.handlers import produce as produce_handler
from barnabas.broker.logs.disk_space import MEASURED_EVERY_BYTES, DiskSpace
from barnabas.protocol.errors import Code


@pytest.mark.parametrize("deferred_above", [None, "ROWS_AT_ONCE", "BYTES_AT_ONCE"])
def test_after_a_batch_found_no_space_the_producers_later_batches_are_refused(
    monkeypatch: pytest.MonkeyPatch, deferred_above: str | None
) -> None:
    """Three batches of a new producer are in flight. The disk is full for the first two, and has
    space for the third, which must be refused nevertheless. Batches are appended immediately, or
    after the worker has checked them.
    """
    if deferred_above is not None:
        monkeypatch.setattr(produce_handler, deferred_above, -1)
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
        monkeypatch.setattr(produce_handler, deferred_above, -1)
    b = DiskBroker()
    b.topic("t")
    pid = b.init(None)[1]
    b.disk.free_bytes = lambda path: 0  # type: ignore[method-assign]
    # the number of bytes that may be written before the free space is measured again
    b.parts.disk_space._left_bytes = 0
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
        host.parts.disk_space._left_bytes,
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
    b.parts.disk_space._left_bytes = 0
    assert b.produce("t", (b"0",))[0] == Code.KAFKA_STORAGE_ERROR
    assert b.parts.disk_space.is_full
    del b.disk.free_bytes
    assert b.produce("t", (b"0",))[0] == 0
    assert not b.parts.disk_space.is_full
