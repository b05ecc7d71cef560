"""A full disk: requests that write are refused, and no request or timer ends the broker."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from helpers.disk_broker import DiskBroker, Producer, creation_of, init_request
from helpers.full_disk import ALL, REQUESTS, FullDisk, codes
from helpers.group_host import subscription
from helpers.share_member import SHARED
from sim.disk import Refusal, SimFile

from barnabas.broker.logs.unwritten_work import MOST_AT_ONCE, RETRY_MS, UnwrittenWork
from barnabas.broker.requests.without_space import CODES
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from barnabas.protocol.api_table import APIS, BY_KEY
from barnabas.protocol.errors import Code
from barnabas.protocol.message_classes import message_class
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.storage.disk import Data

TRIED_ELSEWHERE = {
    10: "FindCoordinator: below",
    43: "ElectLeaders: one broker has no others",
    45: "AlterPartitionReassignments: one broker has no others",
    78: "ShareFetch: handlers/test_share_fetch.py",
    79: "ShareAcknowledge: handlers/test_share_fetch.py",
}
OF_ADMINISTRATORS = {"authorizer_class_name": "StandardAuthorizer", "super_users": "User:ANONYMOUS"}
# The error codes of requests that are sent again when there is space, although the broker has
# meanwhile carried out the refused request by itself.
AGAIN = {
    13: Code.UNKNOWN_MEMBER_ID,
    20: Code.UNKNOWN_TOPIC_OR_PARTITION,
    92: Code.UNKNOWN_TOPIC_OR_PARTITION,
}


@pytest.mark.parametrize("key", sorted(REQUESTS), ids=lambda key: BY_KEY[key].name)
def test_a_request_without_space_is_refused_and_may_be_sent_again(key: int) -> None:
    """A request that cannot be written gets an error and changes nothing. After the disk has space
    again, the same request succeeds, and its effect survives a kill.
    """
    full = FullDisk(**(OF_ADMINISTRATORS if key in (30, 31) else {}))
    if key == 92:  # request 92 deletes the value that request 91 sets
        assert codes(full.call(*REQUESTS[91](full))) == {Code.NONE}
    request, version = REQUESTS[key](full)
    before = full.state()
    with full.no_space():
        for _ in range(2):
            assert codes(full.call(request, version)) - {0} == {CODES[key]}
        for _ in range(30):
            full.b.tick(1_000)
        assert full.state() == before
    full.settle()
    answer = full.call(*REQUESTS[key](full))
    assert codes(answer) - {0} <= {AGAIN.get(key, 0)}, answer
    full.settle()
    state = full.state()
    assert state != before
    full.b.kill()
    assert full.state()["groups"] == state["groups"]
    assert full.state() == state


def test_each_api_that_writes_has_a_code_and_is_tried() -> None:
    assert CODES.keys() - REQUESTS.keys() == TRIED_ELSEWHERE.keys()
    assert REQUESTS.keys() <= CODES.keys()


@pytest.mark.parametrize(
    "key", sorted({api.key for api in APIS} - CODES.keys()), ids=lambda key: BY_KEY[key].name
)
def test_requests_that_are_not_refused_without_space_write_nothing(key: int) -> None:
    full = FullDisk()
    api = BY_KEY[key]
    request = message_class(api, "Request")()
    files = {path: len(inode.data) for path, inode in full.b.disk.files()}
    with full.no_space(errno.EDQUOT):
        connection = full.b.connect()
        full.b.send(connection, request, api.min_version)
        full.b.tick()
    assert {path: len(inode.data) for path, inode in full.b.disk.files()} == files


def test_a_coordinator_without_its_topic_is_not_available() -> None:
    b = DiskBroker()
    request = FindCoordinatorRequest("g", 0)
    b.disk.refuse(Refusal(ALL, errno.ENOSPC))
    for _ in range(3):
        assert b.call(request, 2).error_code == Code.COORDINATOR_NOT_AVAILABLE
    b.disk.refuse(None)
    assert b.call(request, 2).error_code == Code.NONE


# --- decisions that are kept until they are written ----------------------------------------------


class Only:
    """Makes the disk full for some files, but not for others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *parts: str) -> None:
        self._patch, self._parts = monkeypatch, parts

    def __enter__(self) -> None:
        """Make each append to one of the paths fail for lack of space, after half of the data."""
        append = SimFile.append

        def refuse(file: SimFile, data: Data) -> int:
            if not any(part in file.path for part in self._parts):
                return append(file, data)
            size = file.size
            append(file, bytes(data)[: len(data) // 2])
            file.size = size  # as `OsFile` does
            raise OSError(errno.ENOSPC, "no space")

        self._patch.setattr(SimFile, "append", refuse)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


def transaction(b: DiskBroker, txn: str = "txn") -> Producer:
    """A producer with an open transaction on the topics t and u."""
    producer = Producer(b, txn)
    for topic in ("t", "u"):
        producer.send(topic, 0, b"a")
    return producer


@pytest.fixture
def b() -> DiskBroker:
    b = DiskBroker()
    for topic in ("t", "u"):
        b.topic(topic)
        b.make_files(topic)
    return b


def again(b: DiskBroker) -> None:
    """Move the clock to the next retry of writes that wait for space."""
    b.tick(1_000)


@pytest.mark.parametrize("durability", ["flush", "os"])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("without", ["u-0/", "__transaction_state", "barnabas-flush", "txnindex"])
def test_an_end_is_refused_until_it_is_written(
    monkeypatch: pytest.MonkeyPatch, without: str, commit: bool, durability: str
) -> None:
    """There is no space for the decision, a marker or the Complete record. The producer repeats the
    refused EndTxn until it succeeds, with the requested outcome.
    """
    b = DiskBroker(barnabas_transaction_durability=durability)
    for topic in ("t", "u"):
        b.topic(topic)
        b.make_files(topic)
    producer = transaction(b)
    with Only(monkeypatch, without):
        codes = []
        for _ in range(3):
            codes.append(producer.end(commit))
            again(b)
        if without in ("barnabas-flush", "txnindex"):
            assert codes[0] == Code.NONE, "another way leads to the same end"
        elif without == "u-0/" and commit and durability == "flush":
            # The response to EndTxn is sent before the markers are written, since the decision is
            # durable.
            assert codes[0] == Code.NONE
            assert set(codes[1:]) == {Code.CONCURRENT_TRANSACTIONS}
        else:
            assert codes[0] == Code.COORDINATOR_NOT_AVAILABLE
            assert set(codes[1:]) <= {
                Code.COORDINATOR_NOT_AVAILABLE,
                Code.CONCURRENT_TRANSACTIONS,
            }
            assert b.read("u", committed=True) == []
    again(b)
    assert producer.end(commit) == Code.NONE
    for topic in ("t", "u"):
        assert b.markers(topic) == [(producer.pid, producer.epoch, commit)], "one each"
        assert b.read(topic, committed=True) == ([b"a"] if commit else [])
    state = b.state("txn")
    b.kill()
    assert b.state("txn") == state
    for topic in ("t", "u"):
        assert b.read(topic, committed=True) == ([b"a"] if commit else [])
    producer = transaction(b)
    assert producer.end(True) == Code.NONE


@pytest.mark.parametrize("ending", ["again", "kill"])
def test_a_commit_in_the_journal_stays_one_without_space_for_its_record(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Its decision is durable: an abort that follows must not take its place."""
    b = DiskBroker(barnabas_flush_journal_logs="2")
    for topic in ("t", "u"):
        b.topic(topic)
        b.make_files(topic)
    producer = transaction(b)
    with Only(monkeypatch, "__transaction_state"):
        assert producer.end(True) == Code.COORDINATOR_NOT_AVAILABLE
        assert producer.end(False) == Code.CONCURRENT_TRANSACTIONS
    if ending == "again":
        again(b)
        assert producer.end(False) == Code.INVALID_TXN_STATE
    else:
        b.kill()
    assert b.state("txn")[0] == "CompleteCommit"
    for topic in ("t", "u"):
        assert b.read(topic, committed=True) == [b"a"]


def test_the_next_transaction_waits_for_the_end_of_the_last(
    b: DiskBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the end of a transaction waits for space, requests of its transactional id get the code
    that Kafka uses for this.
    """
    producer = transaction(b)
    with Only(monkeypatch, "u-0/"):
        assert producer.end(True) == Code.NONE
        for _ in range(2):
            assert producer.add("t", 0) == Code.CONCURRENT_TRANSACTIONS
            assert b.init("txn")[0] == Code.CONCURRENT_TRANSACTIONS
            again(b)
        other = Producer(b, "other")
        other.send("t", 0, b"b")
        assert other.end(True) == Code.NONE, "it needs nothing of what is full"
    again(b)
    assert producer.add("t", 0) == Code.NONE
    assert b.read("u", committed=True) == [b"a"]


def test_nothing_is_added_to_a_transaction_whose_markers_wait(
    b: DiskBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of version 1, which keeps the epoch, has ended the transaction, but u lacks a
    marker. A batch of version 2 and offsets must not be added to the transaction, even when there
    is space again.
    """
    producer = transaction(b)
    producer.send_offset("g", "t", 1)
    with Only(monkeypatch, "u-0/", "__consumer_offsets"):
        assert producer.end(True) == Code.NONE
    for version, code in ((12, Code.CONCURRENT_TRANSACTIONS), (11, Code.NOT_ENOUGH_REPLICAS)):
        refused = b.produce(
            "u", (b"b",), pid=producer.pid, epoch=producer.epoch, sequence=1, txn="txn",
            connection=producer.connection, version=version,
        )  # fmt: skip
        assert refused[0] == code
    assert producer.commit_offset("g", "t", 2) == Code.CONCURRENT_TRANSACTIONS
    again(b)
    assert b.read("u", committed=True) == [b"a"]
    assert b.group_offset("g", "t") == (Code.NONE, 1)
    for sequence in (1, 2):  # the second one is for a transaction that the log knows
        assert b.produce(
            "u", (b"b",), pid=producer.pid, epoch=producer.epoch, sequence=sequence, txn="txn",
            connection=producer.connection, version=12,
        )[0] == Code.NONE  # fmt: skip
    assert b.read("u", committed=True) == [b"a"]


def test_a_transaction_timeout_without_space_is_tried_again_later(
    b: DiskBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(b, "txn", timeout_ms=5_000)
    producer.send("t", 0, b"a")
    with Only(monkeypatch, "__transaction_state"):
        for _ in range(60):
            b.tick(1_000)
        assert b.state("txn")[0] == "Ongoing"
        due_ms = b.broker.next_deadline_ms()
        assert due_ms is not None and due_ms > b.now_ms, (
            "the next deadline is in the future, so the broker does not loop"
        )
    for _ in range(12):
        b.tick(1_000)
    assert b.state("txn")[0] == "CompleteAbort"
    assert b.read("t", committed=True) == []


@pytest.mark.parametrize("level", [1, 2])
def test_a_new_producer_session_without_space_is_refused(
    b: DiskBroker, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    producer = transaction(b)
    with Only(monkeypatch, "__transaction_state"):
        for _ in range(3):
            assert b.init("txn")[0] == Code.COORDINATOR_NOT_AVAILABLE
    code, pid, epoch = b.init("txn")
    assert (code, pid) == (Code.NONE, producer.pid)
    assert epoch > producer.epoch
    assert b.read("t", committed=True) == []


@pytest.mark.parametrize("failing", [set(), {0}, {1, 3}, {0, 1, 2}, set(range(40))])
def test_a_call_that_finds_no_space_delays_the_others_once(failing: set[int]) -> None:
    """The calls are made in turn. A call that fails moves to the end of the queue."""
    unwritten = UnwrittenWork()
    made: list[int] = []

    def add(number: int, now_ms: int) -> None:
        def call(now_ms: int) -> None:
            made.append(number)
            if number in failing:
                add(number, now_ms)

        unwritten.later(call, now_ms)

    now_ms, count = 0, 40
    for number in range(count):
        add(number, now_ms)
    while set(made) != set(range(count)):
        due_ms = unwritten.next_deadline_ms()
        assert due_ms is not None and due_ms <= now_ms + RETRY_MS
        unwritten.on_tick(due_ms - 1)
        before = len(made)
        now_ms = max(due_ms, now_ms)
        unwritten.on_tick(now_ms)
        assert before < len(made) <= before + MOST_AT_ONCE
        assert set(made[before:-1]).isdisjoint(failing), "after a failure all wait"
    assert made[:count] == list(range(count)), "none is made twice before each was made once"


def test_markers_are_continued_at_the_partition_that_had_no_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = DiskBroker()
    b.topic("many", 30)
    b.make_files("many")
    # the markers of 30 partitions are written in five steps
    b.broker.routes.parts.transaction_ends.markers_at_once = 7
    producer = Producer(b, "txn")
    for index in range(30):
        producer.send("many", index, b"a")
    connection = producer.connection
    with Only(monkeypatch, "many-17/"):
        b.send(connection, producer.end_request(True), 3)
        for _ in range(20):
            b.tick()
        assert b.answer(connection).error_code == Code.COORDINATOR_NOT_AVAILABLE
        assert b.read("many", 3, committed=True) == [b"a"]
        assert b.read("many", 17, committed=True) == b.read("many", 29, committed=True) == []
    again(b)
    for _ in range(20):
        b.tick()
    for index in range(30):
        assert len(b.markers("many", index)) == 1
        assert b.read("many", index, committed=True) == [b"a"]
    assert producer.end(True) == Code.NONE


class NoSpaceFrom:
    """A context in which the disk is full from its nth append on. `has_refused` tells whether an
    append was refused.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
        self._patch, self._left, self.has_refused = monkeypatch, nth, False

    def __enter__(self) -> NoSpaceFrom:
        append = SimFile.append

        def count(file: SimFile, data: Data) -> int:
            self._left -= 1
            if self._left >= 0:
                return append(file, data)
            self.has_refused = True
            raise OSError(errno.ENOSPC, "no space")

        self._patch.setattr(SimFile, "append", count)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


OF_A_TRANSACTION: dict[str, Callable[[Producer], tuple[Message, int]]] = {
    "EndTxn": lambda producer: (producer.end_request(True), 3),
    "InitProducerId": lambda producer: (init_request(producer.txn), 4),
    "AddPartitionsToTxn": lambda producer: (producer.add_request({"t": (0,)}), 3),
    "AddOffsetsToTxn": lambda producer: (producer.add_offsets_request("g"), 3),
    "TxnOffsetCommit": lambda producer: (producer.offset_request("g", "t", 1), 5),
    "Produce": lambda producer: (
        producer.b.produce_request(
            "t", (b"b",), pid=producer.pid, epoch=producer.epoch, sequence=1, txn=producer.txn
        ),
        12,
    ),
}


OF_OTHER_CLIENTS = [name for name in OF_A_TRANSACTION if name != "InitProducerId"]


@pytest.mark.parametrize("journal_logs", ["0", "2"])
@pytest.mark.parametrize(
    ("names", "flush_count", "hang_up"),
    [
        (["EndTxn", *OF_OTHER_CLIENTS], 0, False),
        (["EndTxn", *OF_OTHER_CLIENTS], 1, False),
        (["EndTxn", *OF_OTHER_CLIENTS], 1, True),
        (["InitProducerId", "InitProducerId"], 0, False),
        (["EndTxn", "InitProducerId", "EndTxn"], 0, False),
    ],
)
def test_each_request_of_a_transaction_is_answered_wherever_it_finds_no_space(
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    flush_count: int,
    hang_up: bool,
    journal_logs: str,
) -> None:
    """The disk becomes full at any write of these requests. All requests but the first arrive while
    the first waits for its data to be flushed or, after a flush, for its decision. Once there is
    space, the next session begins. `hang_up` tells whether the clients close their connections
    before the flush ends.
    """
    nth, has_refused = 0, True
    while has_refused:
        b = DiskBroker(barnabas_flush_journal_logs=journal_logs)
        for topic in ("t", "u"):
            b.topic(topic)
        producer = transaction(b)
        b.hold_flushes()
        connections = [b.connect() for _ in names]
        with NoSpaceFrom(monkeypatch, nth) as disk:
            for connection, name in zip(connections, names, strict=True):
                b.send(connection, *OF_A_TRANSACTION[name](producer))
                for _ in range(flush_count if connection == connections[0] else 0):
                    b.flush_one()
            if hang_up:
                for connection in set(connections) - b.closed.keys():
                    b.broker.on_closed(connection)
            b.release_flushes()
            again(b)
            again(b)
        for connection, name in zip(connections, names, strict=True):
            assert hang_up or connection in b.closed or b.answer(connection), f"{name} waits"
            if flush_count and not disk.has_refused and b.answer(connection):
                assert Code.CONCURRENT_TRANSACTIONS not in codes(b.answer(connection)), name
        for _ in range(3):
            again(b)
        assert b.init("txn")[0] == Code.NONE
        nth, has_refused = nth + 1, disk.has_refused
    assert nth > 3


@pytest.mark.parametrize("journal_logs", ["0", "2"])
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_finds_no_space_for_a_producer_id_is_refused(
    monkeypatch: pytest.MonkeyPatch, commit: bool, journal_logs: str
) -> None:
    """At the last epoch, an EndTxn of version 2 allocates the next producer id, perhaps from a new
    block.
    """
    b = DiskBroker(barnabas_flush_journal_logs=journal_logs)
    for topic in ("t", "u"):
        b.topic(topic)
    producer = Producer(b, "txn")
    b.set_epoch("txn", 32766)
    producer.epoch = 32766
    for topic in ("t", "u"):
        producer.send(topic, 0, b"a")
    allocator = b.parts.producer_ids
    while allocator._next_id < allocator._block_end:
        allocator.allocate()
    with NoSpaceFrom(monkeypatch, 0):
        assert producer.end(commit, version=5) == Code.COORDINATOR_NOT_AVAILABLE
        again(b)
        assert producer.end(commit, version=5) == Code.COORDINATOR_NOT_AVAILABLE
    again(b)
    answer = b.call(producer.end_request(commit), 5)
    assert (answer.error_code, answer.producer_epoch) == (Code.NONE, 0)
    assert answer.producer_id != producer.pid
    assert b.read("u", committed=True) == ([b"a"] if commit else [])


@pytest.mark.parametrize("seconds", range(100, 110))
def test_members_are_not_removed_before_they_can_send_a_heartbeat(seconds: int) -> None:
    """No session ends while a Result waits for space. After that, a member has some seconds for a
    heartbeat, even if its deadline was near.
    """
    full = FullDisk()
    b = full.b
    request, version = REQUESTS[14](full)
    with full.no_space():
        assert codes(full.call(request, version)) == {Code.COORDINATOR_NOT_AVAILABLE}
        for _ in range(seconds):
            b.tick(1_000)
        assert full.member_id in b.broker.groups.group("classic").classic.members  # type: ignore[union-attr]
    b.tick(1_000)
    b.tick(1_000)
    assert full.member_id in b.broker.groups.group("classic").classic.members  # type: ignore[union-attr]
    # the session of ten seconds passes without a heartbeat
    for _ in range(12):
        b.tick(1_000)
    assert full.member_id not in b.broker.groups.group("classic").classic.members  # type: ignore[union-attr]


TOPOLOGY = Topology(0, [Subtopology("0", ["t"], [], [], [], [], [])])
MEMBERS: dict[str, tuple[Any, Any, int]] = {
    "consumer": (
        ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        ConsumerGroupHeartbeatRequest("g", "m", 1),
        1,
    ),
    "share": (
        ShareGroupHeartbeatRequest("g", "m", 0, None, ["s"]),
        ShareGroupHeartbeatRequest("g", "m", 1),
        1,
    ),
    "streams": (
        StreamsGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=60_000, process_id="p", topology=TOPOLOGY,
            active_tasks=[], standby_tasks=[], warmup_tasks=[],
        ),
        StreamsGroupHeartbeatRequest("g", "m", 1),
        0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("refused", [1, 3])
@pytest.mark.parametrize("group", MEMBERS)
def test_a_change_whose_heartbeat_found_no_space_comes_with_the_next_heartbeat(
    group: str, refused: int
) -> None:
    """The first heartbeat after the topic has grown decides on the new assignment. Its records
    are dropped, so that the group must not remember that it has seen the new partitions.
    """
    b, member, version = with_member(group)
    for _ in range(3):  # the states of a share group are initialised between its heartbeats
        member.member_epoch = b.call(member, version).member_epoch
        b.tick(1_000)
    topics = [CreatePartitionsTopic(name, 3, None) for name in ("s", "t")]
    grown = b.call(CreatePartitionsRequest(topics=topics, timeout_ms=1000), 3)
    assert [row.error_code for row in grown.results] == [Code.NONE] * 2
    b.disk.refuse(Refusal(ALL, errno.ENOSPC))
    for _ in range(refused):
        assert b.call(member, version).error_code == Code.COORDINATOR_NOT_AVAILABLE
    b.disk.refuse(None)
    answer = b.call(member, version)
    assert (answer.error_code, answer.member_epoch) == (Code.NONE, member.member_epoch + 1)


def with_member(group: str) -> tuple[DiskBroker, Any, int]:
    """A broker with a group of a kind. Gives: its member's next heartbeat, and the version."""
    b = DiskBroker(**SHARED, group_streams_initial_rebalance_delay_ms="0")
    for name in ("s", "t"):
        b.topic(name)
    for name in INTERNAL_TOPICS:
        b.broker.topics.ensure_internal_topic(name, b.now_ms)
        b.make_files(name)
    joining, member, version = MEMBERS[group]
    joined = b.call(joining, version)
    assert joined.error_code == Code.NONE
    member.member_epoch = joined.member_epoch
    b.tick(1_000)
    return b, member, version


@pytest.mark.parametrize("group", MEMBERS)
def test_a_member_whose_removal_waits_for_space_gets_errors_for_its_heartbeats(group: str) -> None:
    """The member's session has ended, and its removal is decided. If the broker accepted the
    member's heartbeats, it would then remove the member during its next session.
    """
    b, member, version = with_member(group)
    assert codes(b.call(member, version)) - {0} == set()
    b.disk.refuse(Refusal(ALL, errno.ENOSPC))
    for _ in range(120):
        b.tick(1_000)
    for _ in range(3):
        assert codes(b.call(member, version)) == {Code.COORDINATOR_NOT_AVAILABLE}
        b.tick(1_000)
    b.disk.refuse(None)
    for _ in range(12):
        b.tick(1_000)
    assert codes(b.call(member, version)) == {Code.UNKNOWN_MEMBER_ID}


def test_a_classic_member_whose_removal_waits_for_space_gets_errors_for_its_requests() -> None:
    """The member is in a consumer group, and uses the requests of the classic protocol."""
    b = DiskBroker()
    b.topic("t")
    b.broker.topics.ensure_internal_topic(OFFSETS_TOPIC, b.now_ms)
    b.make_files(OFFSETS_TOPIC)
    joining, _, version = MEMBERS["consumer"]
    assert b.call(joining, version).error_code == Code.NONE
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=60_000, member_id="",
        group_instance_id="i", protocol_type="consumer", reason=None,
        protocols=[JoinGroupRequestProtocol("range", subscription("t"))],
    )  # fmt: skip
    joined = b.call(join, 9)
    assert joined.error_code == Code.NONE
    ids = "g", joined.generation_id, joined.member_id, "i"
    heartbeat, sync = HeartbeatRequest(*ids), SyncGroupRequest(*ids, "consumer", "range", [])
    assert b.call(sync, 5).error_code == Code.NONE
    assert b.call(heartbeat, 4).error_code == Code.NONE
    b.disk.refuse(Refusal(ALL, errno.ENOSPC))
    for _ in range(15):
        b.tick(1_000)
    assert b.call(heartbeat, 4).error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert b.call(sync, 5).error_code == Code.COORDINATOR_NOT_AVAILABLE
    b.disk.refuse(None)
    for _ in range(12):
        b.tick(1_000)
    assert b.call(heartbeat, 4).error_code == Code.UNKNOWN_MEMBER_ID


def test_a_deleted_topic_keeps_its_name_until_its_offsets_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = DiskBroker()
    b.topic("t")
    b.produce("t", (b"0",))
    assert b.commit("g", "t", 1) == Code.NONE
    with Only(monkeypatch, "__consumer_offsets"):
        deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        assert codes(b.call(deletion, 5)) == {Code.NONE}
        for _ in range(3):
            # the tombstones of the offsets cannot be written yet
            creation = creation_of("t", 1, {})
            assert codes(b.call(creation, 7)) - {0} == {Code.KAFKA_STORAGE_ERROR}
            b.tick(1_000)
    b.tick(1_000)
    b.topic("t")
    assert b.group_offset("g", "t") == (Code.NONE, -1)


@pytest.mark.parametrize("key", [0, 8, 14, 19, 22, 26])
def test_a_disk_error_other_than_lack_of_space_ends_the_broker(key: int) -> None:
    """After any error except a lack of space, dirty pages may be lost, so the broker ends."""
    full = FullDisk()
    with full.no_space(errno.EIO), pytest.raises(OSError, match="Input/output"):
        full.call(*REQUESTS[key](full))


def test_a_fetch_gets_what_a_marker_has_committed_before_the_disk_was_full() -> None:
    """The disk takes the decision and the first of two markers."""
    b = DiskBroker(barnabas_transaction_durability="os")
    b.topic("a")
    b.topic("b")
    p = Producer(b, "p")
    p.send("a", 0, b"x")
    p.send("b", 0, b"y")
    readers = {topic: b.connect() for topic in "ab"}
    for topic, reader in readers.items():
        b.send_fetch(reader, topic, 0, committed=True, max_wait_ms=10_000)
    b.disk.refuse(Refusal(frozenset({"write"}), errno.ENOSPC, 2))
    p.start_end(True)
    found = b.fetched(readers["a"])
    assert found is not None and found.rows() == [(0, b"x")]
    assert b.fetched(readers["b"]) is None
    b.disk.refuse(None)
    b.tick(RETRY_MS)
    found = b.fetched(readers["b"])
    assert found is not None and found.rows() == [(0, b"y")]
