"""The broker keeps no state of closed connections, deleted topics and groups, and removed rights
and quotas.

`places_of` finds every table that still has an entry for one of these, so the tests do not depend
on particular tables.
"""

from __future__ import annotations

import gc
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import creatable
from helpers.core_host import CoreHost, fetch, produce
from helpers.disk_broker import DiskBroker, Producer
from helpers.leftovers import KEPT_OF_CONNECTIONS, KEPT_OF_TOPICS, places_of
from helpers.share_member import SHARED, ShareMember, acquired, begin_group, topic_id

from barnabas.broker.security.stored import Acl
from barnabas.broker.share_partitions.share_sessions import FINAL_EPOCH, ShareTarget
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.storage.files.flush_journal import JournalDecision, Redo
from barnabas.storage.opening.log_loader import LogLoader, Opening
from barnabas.storage.opening.partition_files import PartitionFiles

CLIENT = 7_000_000_001  # a number that occurs nowhere else
TICKETS = range(8_000_000_000, 8_000_100_000)  # these numbers occur nowhere else
NAME = "one-that-goes"


def is_client(value: Any) -> bool:
    return type(value) is int and value == CLIENT


def is_ticket(value: Any) -> bool:
    return type(value) is int and value in TICKETS


def is_name(value: Any) -> bool:
    return type(value) is str and NAME in value


@pytest.fixture
def new_host(tmp_path: Path) -> Iterator[Callable[..., CoreHost]]:
    made: list[CoreHost] = []

    def new(**settings: str) -> CoreHost:
        made.append(CoreHost(tmp_path / str(len(made)), **settings))
        return made[-1]

    yield new
    for host in made:
        host.close()


def test_the_walk_finds_what_is_kept(new_host: Callable[..., CoreHost]) -> None:
    """The tests below rely on `places_of`, which walks over all objects of the broker. This test
    shows that it finds an open connection.
    """
    host = new_host()
    assert places_of(host.broker, is_client) == []
    host.connect(CLIENT)
    assert any("connections" in way for way in places_of(host.broker, is_client))


# --- a connection --------------------------------------------------------------------------------

JOIN = JoinGroupRequest(
    group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
    group_instance_id=None, protocol_type="consumer", reason=None,
    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
)  # fmt: skip
MANY = CreateTopicsRequest(
    topics=[creatable(f"new-{number}", 3) for number in range(100)],
    timeout_ms=1000, validate_only=False,
)  # fmt: skip
LAST_REQUESTS: dict[str, tuple[Message, int]] = {
    "Produce": (produce("t"), 7),
    "Produce without an answer": (produce("t", acks=0), 7),
    "Produce that waits for the disk": (produce("flushed"), 7),
    "Fetch": (fetch({"t": {0: 0}}), 11),
    "Fetch that waits": (fetch({"t": {0: 1}}, max_wait_ms=60_000, min_bytes=100), 11),
    "Fetch with a session": (fetch({"t": {0: 0}}, session=(0, 0)), 11),
    "JoinGroup that waits": (JOIN, 2),
    "CreateTopics in slices": (MANY, 5),
    "DeleteTopics in slices": (DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1000), 4),
    "Metadata": (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 4),
    "InitProducerId": (
        InitProducerIdRequest(
            transactional_id="x", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        ),
        2,
    ),
}
QUOTAS = {
    "producer_byte_rate": 10.0, "consumer_byte_rate": 10.0, "request_percentage": 0.1,
    "controller_mutation_rate": 1e9,
}  # fmt: skip


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("name", LAST_REQUESTS)
def test_nothing_is_kept_of_a_connection_that_is_closed(
    new_host: Callable[..., CoreHost], name: str, is_answered: bool
) -> None:
    """The connection is closed during one of the stages of its last request. Quotas, rights and an
    audit log are configured.
    """
    host = new_host(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
        barnabas_audit_log="/dev/null",
        group_initial_rebalance_delay_ms="3000",
    )
    host.create("t")
    if name == "DeleteTopics in slices":
        host.create("wide", 300)
    host.create("flushed", 1, flush_messages="1")
    host.broker.quotas.set({(("client-id", None),): QUOTAS, (("user", None),): QUOTAS})
    host.connect(CLIENT)
    request, version = LAST_REQUESTS[name]
    host.call(CLIENT, produce("t"), 7)
    host.ask(CLIENT, request, version)
    if "waits" in name or "in slices" in name:
        assert not host.answers[CLIENT][1:]
    for _ in range(200 if is_answered else 0):
        if host.answers[CLIENT][1:]:
            break
        if host.work:
            host.finish_work()
        elif host.flushes:
            host.flush()
        else:
            host.tick(0)
    host.broker.on_closed(CLIENT)
    host.broker.outbox.mutes.clear()
    host.broker.outbox.audit.clear()
    for _ in range(200):
        while host.work:
            host.finish_work()
        while host.flushes:
            host.flush()
        host.tick(1)
    host.broker.outbox.audit.clear()
    host.tick(120_000)  # a completed fetch is kept until its timeout
    host.tick(120_000)
    assert places_of(host.broker, is_client, KEPT_OF_CONNECTIONS) == []


# --- a request -----------------------------------------------------------------------------------

MANY_OFFSETS = ListOffsetsRequest(
    -1, 0,
    [ListOffsetsTopic("wide", [ListOffsetsPartition(index, -1, -1) for index in range(300)] * 2)],
    1000,
)  # fmt: skip
THAT_WAIT = {
    **{name: one for name, one in LAST_REQUESTS.items() if "waits" in name},
    "DeleteTopics in slices": LAST_REQUESTS["DeleteTopics in slices"],
    "ListOffsets in parts": (MANY_OFFSETS, 5),
}
KEPT_OF_REQUESTS = ("next_ticket",)


@pytest.mark.parametrize("name", THAT_WAIT)
def test_nothing_is_kept_of_a_request_that_is_answered(
    new_host: Callable[..., CoreHost], name: str
) -> None:
    """The request had to wait for data, for a flush or for its turn. Its connection stays open."""
    host = new_host(group_initial_rebalance_delay_ms="3000")
    host.create("t")
    host.create("wide", 300)
    host.create("flushed", 1, flush_messages="1")
    host.connect(1)
    host.call(1, produce("t"), 7)
    host.broker.requests.next_ticket = TICKETS[0]
    host.ask(1, *THAT_WAIT[name])
    assert places_of(host.broker, is_ticket, KEPT_OF_REQUESTS), "it waits"
    for _ in range(200):
        if host.answers[1][1:]:
            break
        if host.work:
            host.finish_work()
        elif host.flushes:
            host.flush()
        else:
            host.tick(1_000)
    assert host.answers[1][1:], "it is answered when its time is up at the latest"
    host.broker.requests.next_ticket = 1
    host.ask(1, produce("t"), 7)
    host.tick(120_000)  # a completed fetch is kept until its timeout
    host.tick(120_000)
    assert places_of(host.broker, is_ticket) == []


def test_nothing_is_kept_of_a_share_fetch_that_is_answered() -> None:
    b = DiskBroker(**SHARED)
    b.topic("t")
    begin_group(b, "g", "t")
    member = ShareMember(b, "g", "m")
    assert member.take("t") == []
    # the fetch gets a conspicuous number, by which `places_of` finds references to it
    b.broker.requests.next_ticket = TICKETS[0]
    member.send_fetch(max_wait_ms=10_000)
    assert member.answer() is None and places_of(b.broker, is_ticket, KEPT_OF_REQUESTS)
    b.broker.requests.next_ticket = 1
    assert b.produce("t", (b"a",))[0] == 0
    assert acquired(member.answer()) == [(0, 0, 1)]
    for _ in range(4):
        b.tick(10_000)
    assert places_of(b.broker, is_ticket) == []


@pytest.mark.parametrize("is_another", [False, True])
def test_nothing_is_kept_of_a_share_fetch_whose_client_hangs_up(is_another: bool) -> None:
    """The same holds if the session of the fetch began on another connection, and does not end when
    this connection is closed.
    """
    b = DiskBroker(**SHARED)
    b.topic("t")
    begin_group(b, "g", "t")
    member = ShareMember(b, "g", "m")
    assert member.take("t") == []
    if is_another:
        member.connection = b.connect()
    b.broker.requests.next_ticket = TICKETS[0]
    member.send_fetch(max_wait_ms=10_000)
    assert member.answer() is None and places_of(b.broker, is_ticket, KEPT_OF_REQUESTS)
    b.broker.requests.next_ticket = 1
    member.hang_up()
    for _ in range(4):
        b.tick(10_000)
    assert places_of(b.broker, is_ticket) == []
    assert len(b.broker.shares.made.sessions) == is_another  # type: ignore[union-attr]


@pytest.mark.parametrize("way", ["forgotten", "ended", "hung up"])
def test_nothing_is_kept_of_a_share_session_that_has_ended(way: str) -> None:
    """The broker also drops a partition that the session gave up, even if another member's session
    has the partition.
    """
    b = DiskBroker(**SHARED)
    b.topic("t")
    b.topic("u")
    begin_group(b, "g", "t", "u")
    member, other = (ShareMember(b, "g", name) for name in ("m", "n"))
    for one in (member, other):
        assert acquired(one.fetch(("t", 0), ("u", 0))) == []

    def is_gone(value: Any) -> bool:
        return (
            isinstance(value, ShareTarget)
            and value.session.key.member_id == "m"
            and (way != "forgotten" or value.topic_id == topic_id(b, "t"))
        )

    assert places_of(b.broker, is_gone)
    if way == "forgotten":
        member.fetch(forgotten=(("t", 0),))
    elif way == "ended":
        member.fetch(session=FINAL_EPOCH)
    else:
        member.hang_up()
    for _ in range(3):
        b.tick()
    assert places_of(b.broker, is_gone) == []


# --- a topic -------------------------------------------------------------------------------------


def test_nothing_is_kept_of_a_topic_that_is_deleted() -> None:
    b = DiskBroker()
    b.topic(NAME, 2)
    producer = Producer(b, "txn")
    producer.send(NAME, 0, b"a")
    producer.send_offset("g", NAME, 1)
    assert producer.end(True) == 0
    assert b.produce(NAME, (b"b",), partition=1)[0] == 0
    assert b.read(NAME) == [b"a"]
    logs = [weakref.ref(log) for log in b.broker.topics.partitions_of(NAME)]
    b.call(DeleteTopicsRequest(topic_names=[NAME], timeout_ms=1000), 4)
    for _ in range(50):
        b.tick(60_000)
    assert places_of(b.broker, is_name, KEPT_OF_TOPICS) == []
    gc.collect()
    assert [log() for log in logs] == [None] * 2, "the deleted logs are still in memory"


# --- a group -------------------------------------------------------------------------------------


def test_nothing_is_kept_of_a_group_that_is_deleted() -> None:
    b = DiskBroker()
    b.topic("t")
    producer = Producer(b, "txn")
    producer.send_offset(NAME, "t", 1)
    assert producer.end(True) == 0
    assert b.group_offset(NAME, "t") == (0, 1)
    assert b.call(DeleteGroupsRequest(groups_names=[NAME]), 1).results[0].error_code == 0
    for _ in range(10):
        b.tick(60_000)
    assert places_of(b.broker, is_name) == []


# --- a start -------------------------------------------------------------------------------------


def test_objects_that_a_start_used_to_read_journals_are_freed() -> None:
    """A start reads whole journals, with all the decisions in them."""
    b = DiskBroker()
    b.topic("t", 2)
    producer = Producer(b, "txn")
    for _ in range(3):
        producer.send("t", 0, b"a")
        producer.send("t", 1, b"a")
        assert producer.end(True) == 0
    b.kill()
    kinds = (JournalDecision, Redo, Opening, LogLoader, PartitionFiles)
    assert places_of(b.broker, lambda value: isinstance(value, kinds)) == []
    assert b.read("t", committed=True) == [b"a"] * 3


# --- rights and quotas ---------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [3, 4])
def test_nothing_is_kept_of_rights_that_are_removed(
    new_host: Callable[..., CoreHost], pattern: int
) -> None:
    host = new_host(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )
    authorizer = host.parts.access.authorizer
    assert authorizer is not None
    acl_id = uuid.UUID(int=5)
    row = Acl(2, NAME, pattern, f"User:{NAME}", "*", 3, 3)
    authorizer.add({acl_id: row})
    assert places_of(host.broker, is_name)
    authorizer.remove([acl_id])
    assert places_of(host.broker, is_name) == []
    assert not authorizer._index
    assert not any(authorizer._prefix_lengths.values()), (
        "the length of the removed prefix would still be looked up for each name"
    )


def test_nothing_is_kept_of_quotas_that_are_removed(new_host: Callable[..., CoreHost]) -> None:
    host = new_host()
    host.create("t")
    host.connect(1)
    entity = (("client-id", NAME),)
    host.broker.quotas.set({entity: QUOTAS})
    host.call(1, produce("t"), 7)
    assert places_of(host.broker, is_name)
    host.broker.quotas.set({entity: {}})
    assert places_of(host.broker, is_name) == []
    assert host.broker.quotas.clients is None
