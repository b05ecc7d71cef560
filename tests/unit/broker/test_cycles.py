"""What clients make is freed by its reference counts, without the garbage collector.

Each test opens, uses and closes one kind of thing two hundred times, with the collector off. Then
the collector must find nothing to free, and the number of objects and their bytes must be as
before.
"""

from __future__ import annotations

import queue
import struct
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crc32c
import pytest
from helpers.core_host import CoreHost, error_of, produce
from helpers.cycles import check_is_freed, without_collector
from helpers.repeating import repeat_until

from barnabas.broker.outbox import FlushJob, Work
from barnabas.broker.rim.flusher import Flusher
from barnabas.broker.rim.worker import Worker
from barnabas.protocol.compression import Codec, compress
from barnabas.protocol.errors import Code, KafkaError, detached
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def test_the_check_finds_a_cycle_and_a_growing_table() -> None:
    kept: list[Any] = []

    def use_cycle() -> None:
        one: list[Any] = []
        one.append(one)

    def use_table() -> None:
        kept.append(object())

    def use_memory() -> None:
        kept[:] = [bytearray(sum(map(len, kept[-1:])) + 4096)]

    with pytest.raises(AssertionError, match="collector"):
        check_is_freed(use_cycle)
    with pytest.raises(AssertionError, match="objects stay"):
        check_is_freed(use_table)
    kept.clear()
    with pytest.raises(AssertionError, match="bytes stay"):
        check_is_freed(use_memory)


def test_a_detached_exception_refers_to_no_frame() -> None:
    try:
        try:
            raise ValueError
        except ValueError as first:
            raise KafkaError(Code.INVALID_RECORD) from first
    except KafkaError as error:
        kept = detached(error)
    assert (kept.__traceback__, kept.__cause__, kept.__context__) == (None, None, None)
    assert kept.code is Code.INVALID_RECORD


# --- refused batches ------------------------------------------------------------------------------

LIMIT = (1 << 20) + (1 << 16)  # above 1 MiB, so that the worker makes the check


def raw_batch(codec: int, body: bytes, count: int = 1) -> bytes:
    """A batch with a right checksum around any bytes."""
    rest = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + body
    head = struct.pack(">iBI", -1, 2, crc32c.crc32c(rest))
    return struct.pack(">qi", 0, len(head) + len(rest)) + head + rest


def zeros(codec: int, size: int) -> bytes:
    return compress(codec, bytes(size))


REFUSED = {
    **{
        f"{codec.name.lower()} above the limit": (
            raw_batch(codec, zeros(codec, LIMIT + (1 << 20))),
            Code.MESSAGE_TOO_LARGE,
        )
        for codec in Codec
        if codec is not Codec.NONE
    },
    **{
        f"{codec.name.lower()} with wrong records": (
            raw_batch(codec, zeros(codec, LIMIT - 1)),
            Code.INVALID_RECORD,
        )
        for codec in Codec
        if codec is not Codec.NONE
    },
    **{
        f"{codec.name.lower()} cut off": (
            raw_batch(codec, zeros(codec, LIMIT - 1)[:-40]),
            Code.UNKNOWN_SERVER_ERROR,
        )
        for codec in Codec
        if codec is not Codec.NONE
    },
    "too many records": (raw_batch(0, bytes(20_000), 20_000), Code.INVALID_RECORD),
    "a wrong checksum": (raw_batch(0, bytes(100))[:-1] + b"\1", Code.CORRUPT_MESSAGE),
    "an unknown codec": (raw_batch(7, bytes(100)), Code.UNKNOWN_SERVER_ERROR),
    "half a batch": (raw_batch(0, bytes(100))[:-50], Code.INVALID_RECORD),
    "no batch": (b"x", Code.INVALID_RECORD),
}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path, barnabas_decompressed_max_bytes=str(LIMIT))
    host.create("t")
    host.connect(1)
    host.call(1, produce("t"), 9)
    yield host
    host.close()


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_batch_is_freed(host: CoreHost, name: str) -> None:
    batch, code = REFUSED[name]
    request = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch)])
        ],
    )  # fmt: skip

    def use() -> None:
        assert error_of(host.call(1, request, 9)) == code
        host.answers[1].clear()

    check_is_freed(use)


# --- threads --------------------------------------------------------------------------------------


class Thing:
    """An object that a test can refer to weakly."""


def test_the_worker_keeps_no_work_that_is_done() -> None:
    """Otherwise an idle worker would keep a decompressed batch, or the frames of an error."""

    def fails() -> Thing:
        thing = Thing()
        made.append(weakref.ref(thing))
        raise KafkaError(Code.INVALID_RECORD)

    def succeeds() -> Thing:
        thing = Thing()
        made.append(weakref.ref(thing))
        return thing

    made: list[weakref.ref[Thing]] = []
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    worker = Worker(lambda work, result, error: done.put(repr(error)))
    with without_collector() as cycles:
        for run in (fails, succeeds):
            worker.submit(Work(1, run, lambda *_: None))
            done.get(timeout=60)
        repeat_until(lambda: [one() for one in made] == [None, None], lambda: time.sleep(0.001))
    worker.stop()
    assert not cycles.kinds, str(cycles)


def test_the_flusher_keeps_no_job_that_is_done() -> None:
    class File(Thing):
        def fsync(self) -> None:
            raise OSError(5, "planned")

    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    flusher = Flusher(lambda job, error: done.put(repr(error)))
    with without_collector() as cycles:
        file = File()
        made = weakref.ref(file)
        flusher.submit(FlushJob(1, (), (file,)))
        del file
        assert "planned" in done.get(timeout=60)
        repeat_until(lambda: made() is None, lambda: time.sleep(0.001))
    flusher.stop()
    flusher.close()
    assert not cycles.kinds, str(cycles)
