"""The steps of a start after a power loss or a kill, and their order on the disk. After a second
failure each step is either complete on the disk or undone.

The rules are those of docs/DURABILITY.md. After a power loss, no client can commit a transaction
that was open; records whose flush was acknowledged survive any number of failures; and records that
readers saw as committed stay committed.
"""

from __future__ import annotations

import logging
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.core_host import delete_topic, produce
from helpers.disk_broker import DATA_DIR, DiskBroker, Producer
from sim.disk import Crash

from barnabas.broker.opening import start
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.coordinator.transactions.transaction_records import encode_key, encode_value
from barnabas.coordinator.transactions.transaction_state import (
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.files.checkpoints import CLEAN_SHUTDOWN_NAME, NO_TOPIC_ID
from barnabas.storage.log.broker_appends import append_marker, append_records
from barnabas.storage.log_config import LogConfig

FENCED = (
    Code.INVALID_PRODUCER_EPOCH,
    Code.PRODUCER_FENCED,
    # returned if the start crashed after it had fenced the producer
    Code.INVALID_PRODUCER_ID_MAPPING,
)


def open_again(b: DiskBroker, steps: int, way: str) -> bool:
    """Start the broker. If the start does not end within `steps` steps on the disk, crash it there
    and start again.

    Gives: whether the first start crashed.
    """
    b.disk.crash_in(steps)
    b.holds_flushes = False
    try:
        b.open()
    except Crash:
        getattr(b, way)()
        return True
    b.disk.crash_in(-1)
    return False


def test_a_kill_at_any_step_of_a_start_does_not_hide_the_power_loss_before_it() -> None:
    """The producer notices only that its connection ends. It continues its transaction after the
    power loss, which has removed an earlier record of the transaction.
    """
    steps = 0
    while True:
        b = DiskBroker()
        b.topic("t")
        p = Producer(b, "txn")
        p.send("t", 0, b"a")
        b.sync(DATA_DIR)  # the open transaction is durable
        p.send("t", 0, b"b")  # this record is not durable
        b.disk.lose_power()
        was_cut = open_again(b, steps, "kill")
        p.connection = b.connect()
        assert p.end(True) in FENCED, f"half a transaction was committed, after step {steps}"
        assert b.read("t", committed=True) == []
        if not was_cut:
            break
        steps += 1
    assert steps > 10


def flushed_broker() -> DiskBroker:
    """A broker with acknowledged records that are durable only in the flush journal."""
    b = DiskBroker()
    b.topic("t", 2, flush_messages="1")
    for value in (b"a", b"b"):  # the first flush of a log goes to its own files
        b.hold_flushes()
        connections = [b.connect() for _ in range(3)]
        for connection, partition in zip(
            connections, (0, 1, 0), strict=True
        ):  # requests that arrive during a flush share the next flush
            b.send(connection, produce("t", value, partition=partition), 9)
        b.release_flushes()
        assert [
            b.answer(connection).responses[0].partition_responses[0].error_code
            for connection in connections
        ] == [0, 0, 0]
    return b


@pytest.mark.parametrize("way", ["kill", "lose_power"])
def test_records_that_a_start_rewrites_survive_the_next_power_loss(way: str) -> None:
    """The next failure occurs at any step of the start or after it. After a kill, the rewritten
    records are only in the page cache.
    """
    steps = 0
    while True:
        b = flushed_broker()
        b.disk.lose_power()
        was_cut = open_again(b, steps, way)
        for _ in range(2):
            assert [b.read("t", index) for index in (0, 1)] == [
                [b"a", b"a", b"b", b"b"],
                [b"a", b"b"],
            ], f"step {steps}"
            b.lose_power()
        if not was_cut:
            break
        steps += 1
    assert steps > 10


def joined_group(b: DiskBroker) -> dict[str, object]:
    """Let a member join the group. Gives: the fields that identify this only member in its
    requests.
    """
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    b.send(b.connect(), join, 3)
    b.tick(1)
    joined = b.answer(1)
    member = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assigned = [SyncGroupRequestAssignment(joined.member_id, b"all")]
    assert b.call(SyncGroupRequest(**member, assignments=assigned), 3).error_code == 0
    return member


def test_group_members_and_their_generation_survive_a_kill() -> None:
    b = DiskBroker()
    member = joined_group(b)
    b.kill()
    assert b.call(HeartbeatRequest(**member), 3).error_code == 0
    b.tick(30_000)
    assert b.call(HeartbeatRequest(**member), 3).error_code == Code.UNKNOWN_MEMBER_ID


def test_members_join_again_after_a_power_loss() -> None:
    """The members may have read records that the power loss removed from the logs."""
    b = DiskBroker()
    member = joined_group(b)
    b.sync(DATA_DIR)
    b.lose_power()
    assert b.call(HeartbeatRequest(**member), 3).error_code == Code.UNKNOWN_MEMBER_ID


def test_a_record_without_a_key_in_an_internal_topic_is_skipped() -> None:
    """Apache Kafka's coordinators skip such a record as well."""
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    for topic in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC):
        (log, *_) = b.broker.topics.logs_of(topic) or [
            b.broker.topics.internal_log(topic, 0, b.now_ms)
        ]
        log.config = LogConfig()  # a compacted log would refuse a record without a key
        log.append(encode_batch([NewRecord(None, b"what is that", b.now_ms)]), now_ms=b.now_ms)
    b.kill()
    p.connection = b.connect()
    assert p.end(True) == 0 and b.read("t", committed=True) == [b"a"]


def test_the_mark_of_a_clean_stop_is_not_restored_by_a_power_loss() -> None:
    """A start deletes the mark. If a power loss restored it, the power loss after the next start
    would be mistaken for a clean stop: nothing would be checked, and open transactions would stay
    open for ever.
    """
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    b.stop()
    b.disk.lose_power()
    assert not b.disk.exists(f"{DATA_DIR}/{CLEAN_SHUTDOWN_NAME}")
    b.open()
    p.connection = b.connect()
    p.begin_session()
    p.send("t", 0, b"a")
    b.sync("t-0")
    b.lose_power()
    assert b.end_offset("t", committed=True) == b.end_offset("t"), (
        "a transaction that no client can end holds readers back"
    )


@pytest.mark.parametrize("kept", ["t-0", "t-1", "__consumer_offsets"])
@pytest.mark.parametrize("journal_logs", ["0", "2"])
def test_a_commit_that_readers_saw_after_a_kill_survives_a_power_loss(
    kept: str, journal_logs: str
) -> None:
    """The kill occurs between the decision and its flush. The next start makes the transaction
    visible as committed.
    """
    b = DiskBroker(barnabas_flush_journal_logs=journal_logs)
    b.topic("in")
    b.topic("t", 2)
    p = Producer(b, "txn")
    for index in (0, 1):
        p.send("t", index, b"a")
    p.send_offset("group", "in", 1)
    b.hold_flushes()
    p.start_end(True)
    while b.state("txn")[0] == "Ongoing":
        assert b.flush_one()
    assert p.ended() is None or journal_logs != "0", "the decision is not flushed yet"
    b.disk.kill()
    b.holds_flushes = True
    b.open()
    assert [b.read("t", index, committed=True) for index in (0, 1)] == [[b"a"], [b"a"]]
    b.sync(kept)
    b.lose_power()
    assert [b.read("t", index, committed=True) for index in (0, 1)] == [[b"a"], [b"a"]]
    assert b.group_offset("group", "in") == (0, 1)


def test_a_kill_after_a_power_loss_does_not_let_a_fenced_producer_commit() -> None:
    """The producer's first transaction is committed, and the power loss removes the next one. The
    commit of the next one must not be taken for a retry of the first commit.
    """
    b = DiskBroker()
    b.topic("t", 2)
    p = Producer(b, "txn")
    p.send("t", 0, b"first")
    assert p.end(True) == 0
    p.send("t", 1, b"second")
    b.disk.lose_power()
    b.hold_flushes()
    b.open()
    b.kill()
    p.reconnect()
    assert p.end(True) in FENCED
    assert b.read("t", 1, committed=True) == []


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_missing_partition_directory_that_had_records_is_logged(
    is_deleted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition starts at offset 0 again. A missing directory does not end the start, since an
    empty partition has no directory either.
    """
    b = DiskBroker()
    b.topic("t", 3)
    for index in (0, 1):
        b.produce("t", (b"a",), partition=index)
    for log in b.broker.topics.logs_of("t"):
        log.flush()
    b.broker.logs.write_checkpoints()
    if is_deleted:
        delete_topic(b.parts.deletion, "t", b.now_ms)
    else:
        b.disk.rmtree(f"{DATA_DIR}/t-1")
    b.kill()
    message = "/data/t-1 is missing, and had records up to offset 0"
    assert (caplog.text.count("is missing, and had"), message in caplog.text) == (
        (0, False) if is_deleted else (1, True)
    )
    if not is_deleted:
        assert (b.end_offset("t", 0), b.end_offset("t", 1)) == (1, 0)


def test_after_a_power_loss_producers_are_fenced_durably_before_any_request() -> None:
    """A new producer id fences the producer. The event loop has completed no flush, so the start
    itself must have flushed the record of the new id.
    """
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    b.disk.sync_all()
    b.disk.lose_power()
    b.holds_flushes = True
    b.open()
    _, pid, _ = b.state("txn")
    assert pid != p.pid
    files = [
        inode
        for path, inode in b.disk.files()
        if TRANSACTIONS_TOPIC in path and path.endswith(".log")
    ]
    assert all(inode.synced == len(inode.data) for inode in files)


LIKELY = start.LAST_LIKELY_PRODUCER_ID


@pytest.mark.parametrize(
    ("seen", "follows"),
    [(4711, True), (LIKELY - 1, True), (LIKELY, False), (LIKELY + 1, False)],
)
def test_producer_ids_in_logs_are_not_assigned_again(seen: int, follows: bool) -> None:
    """Only ids that a broker could have assigned count, since a client may write any id."""
    b = DiskBroker()
    b.topic("t")
    assert b.produce("t", (b"a",), pid=seen, epoch=0, sequence=0) == (0, 0)
    b.kill()
    code, pid, _ = b.init(None)
    assert code == 0
    assert pid == seen + 1 if follows else pid < 4711


@pytest.mark.parametrize(
    ("producer_id", "next_producer_id", "follows"),
    [(4711, -1, 4712), (1, 4711, 4712), (4711, 5000, 5001), (5000, 4711, 5001)],
)
def test_ids_that_a_transactional_id_has_or_gets_next_are_not_given_out_again(
    producer_id: int, next_producer_id: int, follows: int
) -> None:
    """Another broker has assigned these ids. `next_producer_id` is the id that the producer has
    after the Complete record.
    """
    b = DiskBroker(transaction_state_log_num_partitions="1")
    log = b.broker.topics.internal_log(TRANSACTIONS_TOPIC, 0, b.now_ms)
    ending = TransactionMetadata(
        "txn",
        producer_id,
        32766,
        60_000,
        TransactionState.PREPARE_COMMIT,
        next_producer_id=next_producer_id,
        next_producer_epoch=-1 if next_producer_id < 0 else 0,
        client_transaction_version=2,
    )
    append_records(log, [CoordinatorRecord(encode_key("txn"), encode_value(ending))], b.now_ms)
    b.kill()
    assert b.init(None)[1] == follows


def test_a_marker_in_the_transaction_state_log_is_skipped() -> None:
    """No client can write a marker to this log, but a directory of an earlier release may
    contain one.
    """
    b = DiskBroker(transaction_state_log_num_partitions="1")
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    (log,) = b.broker.topics.logs_of(TRANSACTIONS_TOPIC)
    append_marker(
        log,
        producer_id=p.pid,
        producer_epoch=p.epoch,
        coordinator_epoch=0,
        commit=True,
        now_ms=b.now_ms,
    )
    b.kill()
    p.connection = b.connect()
    assert b.state("txn") == ("Ongoing", p.pid, p.epoch) and p.end(True) == 0
    assert b.read("t", committed=True) == [b"a"]


def test_a_start_after_a_kill_without_work_begins_no_flush() -> None:
    """A start does not flush committed offsets that are only in the page cache."""
    b = DiskBroker(barnabas_flush_journal_logs="0")
    b.topic("t")
    assert b.commit("g", "t", 0) == 0
    b.disk.kill()
    b.holds_flushes = True
    b.open()
    assert b.broker.outbox.flushes == []
    logs = b.broker.topics.logs_of(OFFSETS_TOPIC)
    assert any(log.durability.durable_offset < log.log_end_offset for log in logs)


# --- the rest of a deletion that was cut short ---------------------------------------------------

DELETED, NEXT = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.mark.parametrize(
    ("topic_id", "is_there_again", "goes"),
    [
        (DELETED, False, True),
        (DELETED, True, True),
        (NEXT, False, False),
        (NEXT, True, False),
        (NO_TOPIC_ID, False, True),
        (NO_TOPIC_ID, True, False),
        (None, False, True),
        (None, True, False),
    ],
)
def test_a_start_removes_only_the_deleted_topics_remaining_directories(
    topic_id: uuid.UUID | None, is_there_again: bool, goes: bool
) -> None:
    """A directory without a topic id, or one that is off line (None), may belong to the next topic
    of that name, so it stays.
    """
    removed: list[tuple[str, int]] = []
    log = None if topic_id is None else SimpleNamespace(topic_id=topic_id)
    others = {("u", 0): SimpleNamespace(topic_id=NO_TOPIC_ID)}
    logs = SimpleNamespace(
        logs=others | ({} if log is None else {("t", 0): log}),
        offline={("v", 0): "damaged"} | ({("t", 0): "damaged"} if log is None else {}),
        remove=lambda name, index, now_ms: removed.append((name, index)),
    )
    metadata = SimpleNamespace(
        deletions={DELETED: "t"},
        topic=lambda name: name if is_there_again or name != "t" else None,
    )
    topics: Any = SimpleNamespace(logs=logs, metadata=metadata)
    start._delete_what_is_left(topics, DELETED, "t", 0)
    assert removed == [("t", 0)] * goes


def test_transactions_replayed_by_a_start_are_not_logged_but_later_ones_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"x")
    assert p.end(True) == 0
    with caplog.at_level(logging.DEBUG, logger="barnabas.transactions"):
        b.stop()
        assert "txn" not in caplog.text
        Producer(b, "txn")
        assert "txn" in caplog.text


def test_a_start_creates_the_missing_files_of_internal_topics() -> None:
    """A kill may have prevented a thread from creating the files. The start creates them, since the
    disk may be full later.
    """
    b = DiskBroker(offsets_topic_num_partitions="3")
    b.broker.topics.ensure_internal_topic(OFFSETS_TOPIC, b.now_ms)
    b.broker.outbox.work.clear()
    assert not all(log.files.are_made for log in b.broker.topics.logs_of(OFFSETS_TOPIC))
    b.kill()
    assert [log.files.are_made for log in b.broker.topics.logs_of(OFFSETS_TOPIC)] == [True] * 3
