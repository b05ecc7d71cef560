"""Each kind of thing that a client can make is freed when it ends, without the garbage collector.

A test opens, uses and closes its kind two hundred times (`check_is_freed`). `test_cycles.py`
has refused batches and threads; the storm of the fuzzer (`tests/tools/fuzz/storm.py`) has requests
of every API, valid, refused and mutated.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import creatable
from helpers.core_host import CoreHost, error_of, fetch, produce
from helpers.cycles import TIMES, check_is_freed
from helpers.disk_broker import DiskBroker, Producer
from helpers.sasl import PASSWORD, USER, plain_token, sasl_host, scram_log_in
from helpers.share_member import ACCEPT, SHARED, ShareMember, begin_group

from barnabas.broker.share_partitions.share_sessions import FINAL_EPOCH
from barnabas.console.sessions import Sessions
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import consumer_group_heartbeat, join_group, sync_group
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from barnabas.protocol.records import NewRecord, encode_batch

CLIENT = 5
DAY_MS = 86_400_000
AT_ONCE = {
    "group_initial_rebalance_delay_ms": "0",
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
}


class Host(CoreHost):
    """A broker with some topics, and its clients, which hang up after each use."""

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, **{**AT_ONCE, **settings})
        self.create("t", 2)
        self.create("wide", 600)
        self.create("flushed", 1, flush_messages="1")
        self.end = 0

    def send(self, *requests: tuple[Any, int]) -> list[Any]:
        """Send requests over a connection of their own, wait for each response, and hang up."""
        self.connect(CLIENT)
        for request, version in requests:
            before = len(self.answers[CLIENT])
            self.ask(CLIENT, request, version)
            for _ in range(2000):
                if len(self.answers[CLIENT]) > before:
                    break
                self.go_on()
            assert len(self.answers[CLIENT]) > before, request
        return self.hang_up()

    def go_on(self) -> None:
        if self.work:
            self.finish_work()
        elif self.flushes:
            self.flush()
        else:
            self.tick(0 if self.broker.next_deadline_ms() == 0 else 50)

    def hang_up(self) -> list[Any]:
        if CLIENT in self.broker.connections:
            self.broker.on_closed(CLIENT)
        for _ in range(200):
            if not (self.work or self.flushes or self.broker.next_deadline_ms() == 0):
                break
            self.go_on()
        self.closed.clear()
        self.broker.outbox.mutes.clear()
        self.broker.outbox.audit.clear()
        return self.answers.pop(CLIENT)

    def produce(self, topic: str = "t") -> None:
        (answer,) = self.send((produce(topic), 9))
        assert error_of(answer) == Code.NONE


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.close()


# --- connections and logins -----------------------------------------------------------------------


def test_a_connection_is_freed(host: Host) -> None:
    def use() -> None:
        host.connect(CLIENT)
        host.hang_up()

    check_is_freed(use)


def test_a_connection_with_an_unreadable_request_is_freed(host: Host) -> None:
    def use() -> None:
        host.connect(CLIENT)
        frame = memoryview(bytearray(b"\0\3\0\x09\0\0\0\1\xff\xff\0\xff\xff\xff\xff\xff\xff\xff"))
        host.broker.on_frame(CLIENT, frame, host.event_ms())
        host.carry_out()
        assert host.closed
        host.hang_up()

    check_is_freed(use)


@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_login_is_freed(tmp_path: Path, mechanism: str, password: str) -> None:
    host = sasl_host(tmp_path, sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-512")

    def use() -> None:
        host.connect(CLIENT)
        if mechanism == "PLAIN":
            host.call(CLIENT, SaslHandshakeRequest(mechanism), 1)
            token = plain_token(USER, password)
            host.ask(CLIENT, SaslAuthenticateRequest(token), 2)
        elif password == PASSWORD:
            assert scram_log_in(host, CLIENT).error_code == Code.NONE
        else:
            host.call(CLIENT, SaslHandshakeRequest(mechanism), 1)
            host.ask(CLIENT, SaslAuthenticateRequest(b"n,,n=nobody,r=x"), 2)
        for _ in range(5):
            host.tick(1000)
        host.broker.outbox.admitted.clear()
        host.broker.outbox.audit.clear()
        if CLIENT in host.broker.connections:
            host.broker.on_closed(CLIENT)
        host.closed.clear()
        del host.answers[CLIENT]

    check_is_freed(use)
    host.close()


# --- requests that wait ---------------------------------------------------------------------------


def compressed(topic: str, size: int) -> ProduceRequest:
    batch = bytes(encode_batch([NewRecord(None, bytes(size), 1)], codec=4))
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch)])]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)


WAITING = {
    "Fetch": (fetch({"t": {1: 0}}, max_wait_ms=DAY_MS), 11),
    "Fetch of a session": (fetch({"t": {1: 0}}, max_wait_ms=DAY_MS, session=(0, 0)), 11),
    "wide Fetch": (
        fetch({"wide": dict.fromkeys(range(600), 0)}, max_wait_ms=DAY_MS, min_bytes=1), 11,
    ),
    "Produce that waits for the disk": (produce("flushed"), 9),
    "DescribeLogDirs in slices": (
        DescribeLogDirsRequest(topics=[DescribableLogDirTopic("wide", list(range(600)))]), 2,
    ),
    "Metadata in slices": (
        MetadataRequest(topics=[MetadataRequestTopic(name=f"x{one}") for one in range(3000)],
                        allow_auto_topic_creation=False), 8,
    ),
    "CreateTopics in slices": (
        CreateTopicsRequest(topics=[creatable(f"n{one}", 1) for one in range(300)],
                            timeout_ms=1000, validate_only=True), 5,
    ),
    "ListOffsets in parts": (
        ListOffsetsRequest(-1, 0, [ListOffsetsTopic(
            "wide", [ListOffsetsPartition(index, -1, -1) for index in range(600)])], 1000), 5,
    ),
    "JoinGroup": (
        join_group.JoinGroupRequest("g", 6000, 6000, "", None, "consumer",
                                    [join_group.JoinGroupRequestProtocol("range", b"")], None), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_answered", [False, True], ids=["hung up", "answered"])
@pytest.mark.parametrize("name", WAITING)
def test_a_request_that_waits_is_freed(tmp_path: Path, name: str, is_answered: bool) -> None:
    """Its client hangs up before the response, or after it."""
    settings = {"group_initial_rebalance_delay_ms": "3000"} if name == "JoinGroup" else {}
    host = Host(tmp_path, **settings)
    request, version = WAITING[name]

    def use() -> None:
        host.connect(CLIENT)
        host.ask(CLIENT, request, version)
        while host.work and not host.answers[CLIENT]:
            host.finish_work()
        for _ in range(2000 if is_answered else 0):
            if host.answers[CLIENT]:
                break
            host.work or host.flushes or host.tick(DAY_MS if "Fetch" in name else 0)
            host.go_on()
        assert bool(host.answers[CLIENT]) == is_answered
        for _ in host.broker.cluster.nodes[1].fetch_sessions._sessions.copy():
            host.broker.cluster.nodes[1].fetch_sessions.clear()
        host.hang_up()
        if name == "JoinGroup":
            host.tick(60_000)
            host.send((DeleteGroupsRequest(["g"]), 2))

    is_wide = any(word in name for word in ("wide", "slices", "parts"))
    # a group that has formed, and its deletion, are records
    appends = "Produce" in name or (name == "JoinGroup" and is_answered)
    check_is_freed(use, times=2 if is_wide else TIMES, appends=appends)
    host.close()


def test_a_fetch_that_is_answered_by_data_is_freed(host: Host) -> None:
    def use() -> None:
        host.connect(1)
        host.ask(1, fetch({"t": {0: host.end}}, max_wait_ms=DAY_MS), 11)
        host.produce()
        host.end += 1
        (answer,) = host.answers.pop(1)
        assert answer.responses[0].partitions[0].records
        host.broker.on_closed(1)

    check_is_freed(use, appends=True)


def test_a_fetch_session_is_freed(host: Host) -> None:
    def use() -> None:
        host.connect(CLIENT)
        first = host.call(CLIENT, fetch({"t": {0: 0, 1: 0}}, session=(0, 0)), 11)
        session = first.session_id
        host.call(CLIENT, fetch({}, session=(session, 1)), 11)
        host.call(CLIENT, fetch({}, session=(session, 2), forget={"t": [1]}), 11)
        assert host.call(CLIENT, fetch({}, session=(session, 7)), 11).error_code
        host.call(CLIENT, fetch({}, session=(session, FINAL_EPOCH)), 11)
        host.hang_up()

    check_is_freed(use)


def test_a_search_by_time_in_a_long_batch_is_freed(host: Host) -> None:
    """The worker makes the search, with the whole batch. Half of the clients hang up meanwhile."""
    host.send((compressed("t", 3 << 20), 9))
    request = ListOffsetsRequest(
        -1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, 0)])], 1000
    )

    def use() -> None:
        (answer,) = host.send((request, 5))
        assert answer.topics[0].partitions[0].offset == 0
        host.connect(CLIENT)
        host.ask(CLIENT, request, 5)
        assert host.work and not host.answers[CLIENT]
        host.hang_up()

    check_is_freed(use)


# --- groups ---------------------------------------------------------------------------------------


def delete(host: Host, *groups: str) -> None:
    (answer,) = host.send((DeleteGroupsRequest(list(groups)), 2))
    assert {row.error_code for row in answer.results} == {0}, answer


def test_a_classic_group_is_freed(host: Host) -> None:
    def use() -> None:
        protocols = [join_group.JoinGroupRequestProtocol("range", b"m" * 100)]
        (joined,) = host.send(
            (
                join_group.JoinGroupRequest("g", 6000, 6000, "", None, "consumer", protocols, None),
                2,
            )
        )
        member, generation = joined.member_id, joined.generation_id
        row = sync_group.SyncGroupRequestAssignment(member, b"a" * 100)
        sync = sync_group.SyncGroupRequest("g", generation, member, None, None, None, [row])
        leave = LeaveGroupRequest("g", "", [MemberIdentity(member, None, None)])
        host.send((sync, 2), (leave, 3))
        delete(host, "g")

    check_is_freed(use, appends=True)


def test_a_consumer_group_is_freed(host: Host) -> None:
    def beat(member: str, epoch: int, regex: str | None = None) -> tuple[Any, int]:
        return (
            consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
                "c", member, epoch, None, None, 10_000, None if epoch else ["t"], regex, None,
                None if epoch else [],
            ),
            1,
        )  # fmt: skip

    def use() -> None:
        host.send(beat("m", 0), beat("n", 0, "wi.*"), beat("o", 0, "a("), beat("m", -1))
        host.send(beat("n", -1))
        delete(host, "c")

    check_is_freed(use)


def test_a_share_group_is_freed(host: Host) -> None:
    def use() -> None:
        join = ShareGroupHeartbeatRequest("s", "m", 0, None, ["t"])
        host.send((join, 1), (ShareGroupHeartbeatRequest("s", "m", -1, None, None), 1))
        delete(host, "s")

    check_is_freed(use)


@pytest.mark.parametrize("source", ["t", "missing"])
def test_a_streams_group_and_its_topology_are_freed(host: Host, source: str) -> None:
    topology = Topology(
        0,
        [
            Subtopology("0", [source], [], [], ["words"], [], []),
            Subtopology(
                "1", [], [], [TopicInfo("log", 0, 0, [])], [], [TopicInfo("words", 0, 0, [])], []
            ),
        ],
    )

    def use() -> None:
        join = StreamsGroupHeartbeatRequest(
            "st", "m", 0, rebalance_timeout_ms=10_000, topology=topology, process_id="m",
            active_tasks=[], standby_tasks=[], warmup_tasks=[],
        )  # fmt: skip
        host.send((join, 0), (StreamsGroupHeartbeatRequest("st", "m", -1), 0))
        delete(host, "st")

    check_is_freed(use, appends=True)


# --- share sessions -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["ended", "hung up", "waits"])
def test_a_share_session_is_freed(way: str) -> None:
    b = DiskBroker(**SHARED)
    b._next_connection = 1000  # beyond the connections with fixed numbers
    b.topic("t", 3)
    begin_group(b, "g", "t")
    unknown = uuid.uuid4()

    def use() -> None:
        member = ShareMember(b, "g", "m")
        b.produce("t", (b"v",))
        (batch,) = member.take("t")
        assert member.acknowledge("t", (batch[0], batch[1], ACCEPT)) == 0
        request = member.fetch_request(("t", 1))
        request.topics[0].topic_id = unknown
        b.send(member.connection, request, 2)
        member.answer()
        if way == "waits":
            member.send_fetch(("t", 2), max_wait_ms=DAY_MS)
        if way == "ended":
            member.fetch(session=FINAL_EPOCH)
        member.hang_up()
        b._answers.clear()
        b.answer_frames.clear()

    check_is_freed(use, appends=True)


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_freed(commit: bool) -> None:
    b = DiskBroker()
    b._next_connection = 1000
    b.topic("t")

    def use() -> None:
        producer = Producer(b, "x")
        producer.send("t", 0, b"v")
        producer.add_offsets("g")
        producer.commit_offset("g", "t", 1)
        assert producer.end(commit) == Code.NONE
        producer.produce("t", 0, b"late")
        b.broker.on_closed(producer.connection)
        b.closed.clear()
        b._answers.clear()
        b.answer_frames.clear()

    check_is_freed(use, appends=True)


@pytest.mark.parametrize("hangs_up", [False, True])
def test_a_produce_that_waits_for_the_end_of_a_transaction_is_freed(hangs_up: bool) -> None:
    b = DiskBroker()
    b._next_connection = 1000
    b.topic("t")

    def use() -> None:
        producer = Producer(b, "x")
        producer.send("t", 0, b"v")
        b.hold_flushes()
        b.send(producer.connection, producer.end_request(True), 3)
        b.flush_one()  # the decision
        other = b.connect()
        request = b.produce_request(
            "t", (b"w",), pid=producer.pid, epoch=producer.epoch, sequence=1, txn="x"
        )
        b.send(other, request, 12)
        if hangs_up:
            b.broker.on_closed(other)
        b.release_flushes()
        for connection in (producer.connection, other):
            if connection in b.broker.connections:
                b.broker.on_closed(connection)
        b.closed.clear()
        b._answers.clear()
        b._asked.clear()
        b.answer_frames.clear()

    check_is_freed(use, appends=True)


# --- what administrators make ---------------------------------------------------------------------


def test_a_topic_is_freed(tmp_path: Path) -> None:
    host = Host(tmp_path, log_segment_delete_delay_ms="0")

    def use() -> None:
        create = CreateTopicsRequest(
            topics=[creatable("gone", 2)], timeout_ms=1000, validate_only=False
        )
        remove = DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000)
        host.send((create, 5), (produce("gone"), 9), (fetch({"gone": {0: 0}}), 11), (remove, 4))
        for _ in range(5):
            host.tick(1000)

    check_is_freed(use)
    host.close()


def quota(value: float, *, remove: bool = False) -> tuple[AlterClientQuotasRequest, int]:
    entity = [EntityData("client-id", "c")]
    row = EntryData(entity, [OpData("producer_byte_rate", value, remove)])
    return AlterClientQuotasRequest([row], False), 1


def test_a_quota_is_freed(host: Host) -> None:
    """Its value is also refused once, and a client is throttled by it."""

    def use() -> None:
        host.send(quota(1.0), (produce("t"), 9), (produce("t"), 9), quota(-1.0))
        host.send(quota(0.0, remove=True))
        host.tick(60_000)

    check_is_freed(use, appends=True)


def test_an_acl_is_freed(tmp_path: Path) -> None:
    """Requests are audited, and authorized by rows."""
    host = Host(
        tmp_path,
        authorizer_class_name="StandardAuthorizer",
        super_users="User:ANONYMOUS",
        barnabas_audit_log="/dev/null",
    )
    acl = AclCreation(2, "t", 3, "User:x", "*", 3, 3)
    wrong = AclCreation(2, "", 3, "x", "*", 3, 3)

    def use() -> None:
        host.send(
            (CreateAclsRequest([acl, wrong]), 3),
            (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9),
            (produce("t"), 9),
            (DeleteAclsRequest([DeleteAclsFilter(2, "t", 3, "User:x", "*", 3, 3)]), 3),
        )

    check_is_freed(use, appends=True)
    host.close()


def test_a_session_of_the_console_is_freed() -> None:
    sessions = Sessions()

    def use() -> None:
        token = str(uuid.uuid4())
        sessions.failed("192.0.2.1", "ada", 0)
        sessions.succeeded("192.0.2.1", "ada", 0)
        sessions.begin(token, "ada", "PLAIN", object(), 0)
        assert sessions.use(token, 1) is not None
        sessions.end(token)

    check_is_freed(use)
