"""The memory of fetches that wait: its bound, the share of each owner, and when it is freed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.core_host import CoreHost, fetch, produce
from helpers.disk_broker import DiskBroker
from helpers.share_member import SHARED, ShareMember, acquired, begin_group

from barnabas.broker.handlers.fetch import TARGETS_AT_ONCE, _Fetch
from barnabas.broker.logs.waiting_memory import (
    FETCH_BYTES,
    PARTITION_BYTES,
    WITHOUT_WAIT_MS,
    WaitingMemory,
)
from barnabas.protocol.errors import Code

DAY_MS = 86_400_000
ONE = FETCH_BYTES + PARTITION_BYTES  # the memory of a fetch of one partition


def test_an_owner_may_hold_as_much_as_is_unused() -> None:
    memory = WaitingMemory(100)
    assert memory.try_take("a", 50) and not memory.try_take("a", 1)
    assert memory.try_take("b", 25) and not memory.try_take("b", 1)
    assert memory.try_take("c", 12)
    memory.give_back("a", 50)
    assert memory.try_take("b", 6) and memory.held_bytes == 43
    assert memory.refused_count == 2


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path, barnabas_waiting_fetches_max_bytes=str(5 * ONE))
    host.create("t")
    for connection in range(1, 5):
        host.connect(connection)
    host.call(1, produce("t"), 9)
    host.broker.connections[4].principal = "User:other"
    yield host
    host.close()


LONG = fetch({"t": {0: 1}}, max_wait_ms=DAY_MS)


def test_a_fetch_beyond_its_owners_share_is_answered_at_once_and_throttled(host: CoreHost) -> None:
    """The owner of three connections is an address, since they are not authenticated. Another
    owner's fetch waits.
    """
    for connection in range(1, 5):
        host.ask(connection, LONG, 11)
    assert [len(host.answers[one]) for one in range(1, 5)] == [1, 0, 1, 0]
    (answer,) = host.answers[3]
    (row,) = answer.responses[0].partitions
    assert (row.error_code, row.high_watermark, row.records) == (Code.NONE, 1, b"")
    assert answer.throttle_time_ms == WITHOUT_WAIT_MS
    assert host.broker.outbox.mutes == [(3, WITHOUT_WAIT_MS)]
    assert host.broker.purgatory.memory.refused_count == 1


def test_a_fetch_may_wait_when_another_is_answered(host: CoreHost) -> None:
    host.ask(1, LONG, 11)
    host.ask(2, LONG, 11)
    host.call(4, produce("t"), 9)
    assert len(host.answers[1]) == 2 and host.broker.purgatory.memory.held_bytes == 0
    host.ask(3, fetch({"t": {0: 2}}, max_wait_ms=DAY_MS), 11)
    assert host.answers[3] == [] and host.broker.purgatory.memory.held_bytes == ONE


def test_a_fetch_of_thousands_of_partitions_counts_each(tmp_path: Path) -> None:
    partitions = TARGETS_AT_ONCE + 1
    most = 2 * (FETCH_BYTES + partitions * PARTITION_BYTES)
    host = CoreHost(tmp_path, barnabas_waiting_fetches_max_bytes=str(most))
    host.create("wide", partitions)
    wide = fetch({"wide": dict.fromkeys(range(partitions), 0)}, max_wait_ms=DAY_MS)
    host.connect(1)
    host.ask(1, wide, 11)
    while host.work or host.broker.next_deadline_ms() == 0:
        host.finish_work() if host.work else host.tick(0)
    assert host.answers[1] == [] and 2 * host.broker.purgatory.memory.held_bytes == most
    host.connect(2)
    host.ask(2, wide, 11)
    assert host.await_answer(2).throttle_time_ms == WITHOUT_WAIT_MS
    host.close()


def fetches_in_memory() -> int:
    return sum(type(one) is _Fetch for one in gc.get_objects())


def test_a_fetch_whose_client_hangs_up_is_dropped_at_once(host: CoreHost) -> None:
    """Its deadline is in a day, and the entry of the deadline stays in the heap until then."""
    gc.collect()  # the brokers of earlier tests
    before = fetches_in_memory()
    gc.disable()
    try:
        host.ask(1, LONG, 11)
        assert fetches_in_memory() == before + 1
        host.broker.on_closed(1)
        assert fetches_in_memory() == before
    finally:
        gc.enable()
    assert host.broker.purgatory.memory.held_bytes == 0
    assert host.broker.purgatory._by_log == {}


def test_a_share_fetch_beyond_the_share_is_answered_at_once_and_throttled() -> None:
    b = DiskBroker(**SHARED, barnabas_waiting_fetches_max_bytes=str(3 * FETCH_BYTES))
    b.topic("t")
    begin_group(b, "g", "t")
    first, second = ShareMember(b, "g", "first"), ShareMember(b, "g", "second")
    first.send_fetch(("t", 0), max_wait_ms=DAY_MS)
    assert first.answer() is None
    answer = second.fetch(("t", 0), max_wait_ms=DAY_MS)
    assert (answer.error_code, answer.throttle_time_ms) == (Code.NONE, WITHOUT_WAIT_MS)
    assert acquired(answer) == []
    assert b.broker.outbox.mutes == [(second.connection, WITHOUT_WAIT_MS)]
    b.produce("t", (b"v",))
    assert acquired(first.answer()) == [(0, 0, 1)]
