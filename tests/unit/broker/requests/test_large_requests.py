"""Requests that wait as objects, and those that wait as bytes until there are fewer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.admin_host import creatable
from helpers.core_host import CoreHost
from helpers.repeating import repeat_until

from barnabas.broker.outbox import Outbox
from barnabas.broker.requests.large_requests import (
    MOST_OBJECT_BYTES,
    NARROW_BYTES,
    PLACES,
    LargeRequests,
)
from barnabas.broker.slices import NO_TICKET, SlicedWork, Slices
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.messages.share_fetch import ShareFetchRequest


class Large:
    """The large requests of connections 10 to 19 of owner "1", 20 to 29 of owner "2" and so on.
    `started` has the connections whose requests are decoded.
    """

    def __init__(self) -> None:
        owners = {number: SimpleNamespace(owner=str(number // 10)) for number in range(100)}
        self.outbox, self.started = Outbox(), cast(list[int], [])
        self.requests = LargeRequests(cast(Any, owners), self.outbox)

    def decode(self, *connections: int) -> None:
        for one in connections:
            self.requests.decode(one, 2000, lambda one=one: self.started.append(one))

    def end(self, *connections: int) -> None:
        for one in connections:
            self.requests.end(one)


def test_the_last_place_is_for_an_owner_that_has_none() -> None:
    large = Large()
    large.decode(10, 11, 12, 13, 14)
    assert large.started == [10, 11, 12] and len(large.started) == PLACES - 1
    large.decode(20, 21)
    assert large.started[3:] == [20]


def test_owners_take_turns() -> None:
    """Owner 1 has sent all its requests before the others send one."""
    large = Large()
    large.decode(*range(10, 18))
    large.decode(30)
    large.decode(20, 21)
    for ended in (10, 11, 12, 30):
        large.end(ended)
    assert large.started == [10, 11, 12, 30, 20, 13, 21]


def test_a_request_that_ends_is_not_counted_wherever_it_is() -> None:
    large = Large()
    large.decode(*range(10, 15))
    assert large.outbox.held_bytes == 5 * 2000
    large.end(14, 14, 10)  # the first waits as bytes, the other is decoded
    assert large.started == [10, 11, 12, 13]
    large.end(11, 12, 13, 99)
    assert (large.outbox.held_bytes, large.requests.objects, large.requests.held) == (0, {}, {})


def test_small_requests_are_not_counted() -> None:
    large = Large()
    large.requests.keep(10, NARROW_BYTES)
    assert large.requests.objects == {}
    large.requests.keep(10, MOST_OBJECT_BYTES)
    assert large.requests.is_crowded
    large.end(10)
    assert not large.requests.is_crowded


# --- the broker -----------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path)
    host.create("t")
    host.connect(1)
    host.call(1, DescribeLogDirsRequest(topics=[]), 2)
    yield host
    host.close()


MIDDLE = DescribeLogDirsRequest(topics=[DescribableLogDirTopic("t", list(range(25_000)))])


def test_requests_of_medium_size_wait_as_bytes_when_many_wait_as_objects(host: CoreHost) -> None:
    """A hundred of them would be 250 MB of objects."""
    connections = [host.connect(number) for number in range(100, 130)]
    for number in connections:
        host.ask(number, MIDDLE, 2)
    large = host.broker.requests.large
    decoded_bytes = sum(large.objects.values())
    assert MOST_OBJECT_BYTES < decoded_bytes < MOST_OBJECT_BYTES + (PLACES + 1) * 110_000
    assert len(large._waiting) == 1
    host.broker.on_closed(connections.pop())

    def step() -> None:
        host.finish_work() if host.work else host.tick(0)

    repeat_until(lambda: all(host.answers[number] for number in connections), step)
    assert (large.objects, large.held, large._waiting) == ({}, {}, {})
    assert host.broker.outbox.held_bytes == 0


def test_a_request_in_slices_whose_client_hangs_up_is_dropped_at_once(host: CoreHost) -> None:
    for number in (100, 101, 102):
        host.connect(number)
        host.ask(number, MIDDLE, 2)
    assert len(host.broker.requests.reading.queue) == 3
    host.broker.on_closed(101)
    host.broker.on_closed(100)
    assert len(host.broker.requests.reading.queue) == 1
    assert len(host.broker.requests.large.objects) == 1


def test_a_request_of_a_share_group_in_slices_keeps_its_place(host: CoreHost) -> None:
    """Otherwise any number of such requests would be objects at the same time."""
    member = ("g", "m")
    host.call(1, ShareFetchRequest(*member, 0, 0, 1, 1 << 20, 500, 500), 2)
    partitions = [AcknowledgePartition(index) for index in range(30_000)]
    topics = [AcknowledgeTopic(uuid.UUID(int=7), partitions)]
    host.ask(1, ShareAcknowledgeRequest(*member, 1, topics=topics), 2)
    large, answered = host.broker.requests.large, len(host.answers[1])
    host.finish_work()
    assert (set(large.objects), set(large.held), set(large._places)) == ({1}, {1}, {1})

    def step() -> None:
        host.finish_work() if host.work else host.tick(0)

    repeat_until(lambda: len(host.answers[1]) > answered, step)
    assert (large.objects, large.held, large._places) == ({}, {}, {})


def test_work_that_changes_something_is_counted_until_it_is_done(host: CoreHost) -> None:
    """As in Apache Kafka, it is done although its client has hung up. A client could fill the
    memory with such requests otherwise.
    """
    wide = CreateTopicsRequest(
        topics=[creatable(f"t{number}", 1) for number in range(2000)],
        timeout_ms=1000, validate_only=True,
    )  # fmt: skip
    for number in (100, 101):
        host.connect(number)
        host.ask(number, wide, 5)
    large, queue = host.broker.requests.large, host.broker.requests.work.queue
    assert len(queue) == 2 and set(large.objects) == {100, 101}
    for number in (100, 101):
        host.broker.on_closed(number)
    assert len(queue) == 2 and set(large.objects) == {100, 101}
    repeat_until(lambda: not queue, lambda: host.tick(0))
    assert large.objects == {}


def test_work_for_which_no_request_waits_is_done_in_order() -> None:
    steps: list[str] = []

    def work(name: str) -> Slices:
        yield
        yield
        steps.append(name)

    def fail(ticket: int, error: Exception) -> None:
        raise error

    sliced = SlicedWork(lambda ticket, answer: None, fail)
    for name in "abc":
        sliced.begin(NO_TICKET, work(name), 0)
    while sliced.queue:
        sliced.on_tick(0)
    assert steps == ["a", "b", "c"]
