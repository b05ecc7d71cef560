"""Lists of thousands of rows are read in slices. Other requests are served in between, the worker
encodes the response, and the response is the same as one that was read in a single slice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost, delete_topic, produce
from helpers.raised_faults import contained_faults
from helpers.repeating import repeat_until

from barnabas.broker import slices
from barnabas.broker.handlers import log_dirs
from barnabas.broker.handlers import metadata as metadata_handler
from barnabas.broker.handlers import transactions as transactions_handler
from barnabas.coordinator.groups import group_administration
from barnabas.coordinator.transactions import transaction_listing
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

READER, OTHER = 1, 2
COUNT, AT_ONCE = 60, 10
HOLDERS = (slices, log_dirs, metadata_handler, transactions_handler)
COORDINATORS = (group_administration, transaction_listing)


def names(prefix: str) -> list[str]:
    return [f"{prefix}-{number:03}" for number in range(COUNT)]


@pytest.fixture
def host(tmp_path: Path) -> CoreHost:
    """A host with COUNT topics, transactional ids, producers of one partition, and groups."""
    host = CoreHost(tmp_path)
    host.connect(READER)
    host.connect(OTHER)
    for name in names("t"):
        host.create(name)
    for number, name in enumerate(names("id")):
        host.ask(OTHER, InitProducerIdRequest(name, 60_000), 0)
        while host.flushes:
            host.flush()
        host.call(OTHER, produce("t-000", identity=(10_000 + number, 0)), 7)
        partition = OffsetCommitRequestPartition(0, 1, committed_metadata="")
        topics = [OffsetCommitRequestTopic("t-000", partitions=[partition])]
        host.call(OTHER, OffsetCommitRequest(f"g-{number:03}", topics=topics), 2)
    return host


def set_rows(patch: pytest.MonkeyPatch, count: int) -> None:
    """Set the number of rows in a slice."""
    for module in HOLDERS:
        patch.setattr(module, "ROWS_READ_AT_ONCE", count)
    for coordinator in COORDINATORS:
        patch.setattr(coordinator, "ROWS_AT_ONCE", count)


def named(*topics: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(None, name) for name in topics])


ASKED: dict[str, tuple[Callable[[], Any], int, Callable[[Any], list[Any]]]] = {
    "all topics": (lambda: MetadataRequest(None), 4, lambda answer: answer.topics),
    "topics by name": (lambda: named(*names("t")), 4, lambda answer: answer.topics),
    "producers": (
        lambda: DescribeProducersRequest([TopicRequest("t-000", [0])]),
        0,
        lambda answer: answer.topics[0].partitions[0].active_producers,
    ),
    "log directories": (
        lambda: DescribeLogDirsRequest(None),
        1,
        lambda answer: answer.results[0].topics,
    ),
    "groups": (ListGroupsRequest, 3, lambda answer: answer.groups),
}


@pytest.mark.parametrize("what", ASKED)
def test_other_requests_are_served_between_the_slices_of_a_long_list(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    ask, version, rows_of = ASKED[what]
    set_rows(monkeypatch, 1000)
    expected = host.call(READER, ask(), version)
    assert len(rows_of(expected)) >= COUNT
    set_rows(monkeypatch, AT_ONCE)
    host.ask(READER, ask(), version)
    ticks = 0
    while not host.work:
        assert host.answers[READER] == [expected]
        assert host.broker.next_deadline_ms() == 0
        host.tick(0)
        ticks += 1
        assert host.call(OTHER, ApiVersionsRequest(), 0).error_code == 0
    assert ticks >= COUNT // AT_ONCE - 1
    host.finish_work()
    assert host.answers[READER] == [expected, expected]


@pytest.mark.parametrize("what", ASKED)
def test_reading_a_list_ends_when_its_client_disconnects(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    ask, version, _ = ASKED[what]
    set_rows(monkeypatch, AT_ONCE)
    host.ask(READER, ask(), version)
    host.broker.on_closed(READER)
    host.tick(0)
    assert not host.broker.requests.reading.queue and not host.work
    assert host.broker.next_deadline_ms() != 0


@pytest.mark.parametrize("what", ASKED)
def test_the_response_is_dropped_when_its_client_disconnects_during_the_encoding(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    ask, version, _ = ASKED[what]
    set_rows(monkeypatch, AT_ONCE)
    host.ask(READER, ask(), version)
    repeat_until(lambda: host.work, lambda: host.tick(0))
    host.broker.on_closed(READER)
    host.finish_work()
    assert host.answers[READER] == []


@pytest.mark.parametrize("what", ASKED)
def test_an_amendment_applies_to_a_response_that_is_read_in_slices(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    ask, version, rows_of = ASKED[what]
    set_rows(monkeypatch, AT_ONCE)
    host.ask(READER, ask(), version)
    (ticket,) = host.broker.requests._parked
    host.broker.requests.amend(ticket, lambda answer: rows_of(answer).clear())
    assert rows_of(host.await_answer(READER)) == []
    assert not host.broker.requests._amendments


@pytest.mark.parametrize("end", ["hung up", "failed", "refused", "given to a part"])
def test_an_amendment_is_dropped_when_its_request_gets_no_response(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Otherwise a client could fill the memory by closing its connections again and again."""
    set_rows(monkeypatch, AT_ONCE)
    host.ask(READER, MetadataRequest(None), 4)
    requests = host.broker.requests
    (ticket,) = requests._parked
    requests.amend(ticket, lambda answer: None)
    requests.amend(ticket, lambda answer: None)
    if end == "hung up":
        host.broker.on_closed(READER)
    elif end == "failed":
        with contained_faults():
            requests.fail(ticket, READER, ValueError("of the broker"))
    elif end == "refused":
        requests.refuse(ticket, READER, "of the client")
    else:
        requests.on_part_over(ticket)
    assert not requests._amendments


def test_a_short_list_does_not_wait_for_a_long_one(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rows(monkeypatch, AT_ONCE)
    host.ask(READER, MetadataRequest(None), 4)
    assert [topic.name for topic in host.call(OTHER, named("t-001"), 4).topics] == ["t-001"]
    assert host.answers[READER] == []


def test_a_topic_that_is_deleted_between_two_slices_is_not_in_the_response(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rows(monkeypatch, AT_ONCE)
    host.ask(READER, MetadataRequest(None), 4)
    delete_topic(host.parts.deletion, "t-059", host.now_ms)
    answer = host.await_answer(READER)
    assert (
        "t-058" in (reported := {topic.name for topic in answer.topics}) and "t-059" not in reported
    )
    assert {topic.error_code for topic in answer.topics} == {Code.NONE}


def test_errors_in_a_response_that_is_read_in_slices_are_counted(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas.broker.observation.error_counts import ErrorCounts

    host.broker.requests.errors = errors = ErrorCounts()
    set_rows(monkeypatch, AT_ONCE)
    request = DescribeProducersRequest([TopicRequest("t-000", [0, 7]), TopicRequest("x", [0])])
    host.ask(READER, request, 0)
    host.await_answer(READER)
    assert errors.counts == {(61, Code.UNKNOWN_TOPIC_OR_PARTITION): 2}
