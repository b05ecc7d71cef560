"""Files of new partitions: a thread creates them, the log takes them over, and unused files are
deleted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import NOW_MS, CoreHost, produce
from helpers.disk_broker import DiskBroker
from helpers.repeating import repeat_until
from helpers.storage_logs import delete_log
from sim.disk import Refusal

from barnabas.broker.handlers.produce import ROWS_AT_ONCE
from barnabas.broker.logs import new_files
from barnabas.broker.logs.new_files import FEWEST_AHEAD, MADE_AT_ONCE, MADE_BY_A_REQUEST
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.records import NewRecord, decode_marker, encode_batch
from barnabas.replication.operations import Kind, Operation
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.checkpoints import LEADER_EPOCH_NAME, PARTITION_METADATA_NAME
from barnabas.storage.log.log import Log
from barnabas.storage.log.new_files import is_of_new_files, new_suffix

A_LOGS_FILES = {
    PARTITION_METADATA_NAME,
    LEADER_EPOCH_NAME,
    *(f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")),
}
LARGE = 60  # more than the number of partitions whose files are created ahead of time


class Directories:
    """A counter. `made` is the number of directories that were created."""

    made = 0


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the directories that a broker creates. The patch must be applied before the broker is
    created, since the broker keeps a reference to mkdir.
    """
    mkdir = OsDisk.mkdir

    def counted(self: OsDisk, path: str) -> None:
        Directories.made += 1
        mkdir(self, path)

    monkeypatch.setattr(OsDisk, "mkdir", counted)
    monkeypatch.setattr(Directories, "made", 0)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CoreHost:
    monkeypatch.setattr(new_files, "MOST_AHEAD", 40)
    host = CoreHost(tmp_path)
    host.connect(1)
    return host


def creation(name: str, count: int) -> Any:
    topic = CreatableTopic(
        name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=False)


def created(host: CoreHost, name: str, count: int) -> list[Log]:
    answer(host, creation(name, count), 7)
    return host.broker.topics.logs_of(name)


def answer(host: CoreHost, request: Any, version: int) -> Any:
    host.ask(1, request, version)
    for _ in range(100):
        if host.answers[1]:
            return host.answers[1].pop()
        host.tick(0)
    raise AssertionError("it is parked")


def batches(name: str, count: int) -> Any:
    """A Produce request with one batch for each of `count` partitions."""
    rows = [
        PartitionProduceData(index, bytes(encode_batch([NewRecord(None, b"%d" % index, NOW_MS)])))
        for index in range(count)
    ]
    return ProduceRequest(None, 1, 1000, [TopicProduceData(name=name, partition_data=rows)])


def with_files(logs: list[Log]) -> int:
    """Count the logs that have files. Check that each log has either all its files or no
    directory.
    """
    for log in logs:
        is_there = os.path.isdir(log.directory)
        assert is_there == log.files.are_made
        if is_there:
            assert set(os.listdir(log.directory)) >= A_LOGS_FILES
    return sum(log.files.are_made for log in logs)


def unfinished(host: CoreHost) -> list[str]:
    return [name for name in os.listdir(host.broker.logs.data_dir) if name.endswith("-delete")]


# --- ahead ----------------------------------------------------------------------------------------


def test_a_thread_creates_a_new_topics_files_a_few_at_a_time(host: CoreHost) -> None:
    logs = created(host, "t", 20)
    assert with_files(logs) == 0 and len(host.work) == 1
    work = host.work[0]
    work.run()
    assert with_files(logs) == 0 and len(unfinished(host)) == MADE_AT_ONCE
    host.finish_work()
    assert with_files(logs) == MADE_AT_ONCE and not unfinished(host)
    host.finish_work()
    assert with_files(logs) == 20 and not host.work
    for log in logs:
        log.append(bytearray(encode_batch([NewRecord(None, b"a", NOW_MS)])), now_ms=NOW_MS)


def test_a_thread_creates_the_files_of_added_partitions(host: CoreHost) -> None:
    host.create("t", 1)
    growth = CreatePartitionsTopic(name="t", count=1 + FEWEST_AHEAD, assignments=None)
    answer(host, CreatePartitionsRequest([growth], 60_000, False), 1)
    host.finish_work()
    assert with_files(host.broker.topics.logs_of("t")) == 1 + FEWEST_AHEAD


@pytest.mark.parametrize("count", [FEWEST_AHEAD - 1, LARGE])
def test_a_small_or_very_large_topic_gets_its_files_at_the_first_write(
    host: CoreHost, count: int
) -> None:
    logs = created(host, "t", count)
    assert not host.work and with_files(logs) == 0


# --- the first batch ------------------------------------------------------------------------------


def test_the_first_batch_of_a_large_topic_starts_the_files_of_the_next_partitions(
    host: CoreHost,
) -> None:
    logs = created(host, "t", LARGE)
    assert (
        answer(host, produce("t", partition=5), 9).responses[0].partition_responses[0].error_code
        == Code.NONE
    )
    assert with_files(logs) == 1
    while host.work:
        host.finish_work()
    assert [log.partition for log in logs if log.files.are_made] == list(range(5, 46))


def test_a_batch_waits_only_for_the_files_of_its_own_partition(
    host: CoreHost,
) -> None:
    logs = created(host, "t", 40)
    host.ask(1, produce("t", b"a", partition=39), 9)
    assert not host.answers[1] and len(host.work) == 2
    host.finish_work()  # creates the files of the first sixteen partitions
    assert host.work[0].connection_id == 1, (
        "the files for the waiting request are created before the rest"
    )
    host.finish_work()
    assert logs[39].files.are_made and with_files(logs) == MADE_AT_ONCE + 1
    while not host.answers[1]:
        host.finish_work()
    (row,) = host.answers[1].pop().responses[0].partition_responses
    assert (row.error_code, row.base_offset, logs[39].log_end_offset) == (0, 0, 1)


def test_a_batch_uses_files_that_the_thread_has_created(host: CoreHost) -> None:
    logs = created(host, "t", 10)
    work = host.work[0]
    work.run()
    assert answer(host, produce("t", partition=3), 9)
    assert with_files(logs) == 1 and len(unfinished(host)) == 9
    host.finish_work()
    assert with_files(logs) == 10 and not unfinished(host)


@pytest.mark.parametrize("count", [LARGE, ROWS_AT_ONCE + 100])
def test_no_call_in_the_event_loop_creates_many_files(host: CoreHost, count: int) -> None:
    logs = created(host, "t", count)
    Directories.made = 0
    host.ask(1, batches("t", count), 9)
    assert Directories.made <= MADE_BY_A_REQUEST
    while host.work:
        work = host.work.pop(0)
        Directories.made = 0
        result = work.run()
        assert Directories.made <= MADE_AT_ONCE, "others' work waits for this"
        Directories.made = 0
        before = with_files(logs)
        host.broker.on_worked(work, result, None, host.now_ms)
        assert Directories.made == 0
        assert with_files(logs) - before <= MADE_AT_ONCE
        host.carry_out()
    rows = host.answers[1].pop().responses[0].partition_responses
    assert [(row.index, row.error_code, row.base_offset) for row in rows] == [
        (index, 0, 0) for index in range(count)
    ]
    assert all(log.log_end_offset == 1 for log in logs)


# --- coordinators and transactions ----------------------------------------------------------------


class Calls:
    """Counts the directories that are created by each call into the core, and by each call of the
    worker's thread.
    """

    def __init__(self, host: CoreHost, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count the directories that are created by one call in the event loop, and by one piece of
        work of the worker's thread.
        """
        self.host = host
        self.most_of_the_loop = self.most_of_the_thread = self.made = 0
        for name in ("on_frame", "on_tick", "on_flushed", "on_worked", "on_sent"):
            monkeypatch.setattr(host.broker, name, self._counted(getattr(host.broker, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> None:
            before = Directories.made
            call(*arguments)
            self.most_of_the_loop = max(self.most_of_the_loop, Directories.made - before)

        return counted

    def go_on(self) -> None:
        """Complete one piece of work or one flush that the broker waits for."""
        if self.host.work:
            before = Directories.made
            work = self.host.work.pop(0)
            result, error = None, None
            try:
                result = work.run()
            except Exception as failure:  # the worker's thread also catches it
                error = failure
            self.most_of_the_thread = max(self.most_of_the_thread, Directories.made - before)
            self.host.broker.on_worked(work, result, error, self.host.now_ms)
            self.host.carry_out()
        elif self.host.flushes:
            self.host.flush()
        else:
            self.host.tick(0)

    def answer(self, request: Any, version: int, connection: int = 1) -> Any:
        self.host.ask(connection, request, version)
        for _ in range(10 * LARGE):
            if self.host.answers[connection]:
                return self.host.answers[connection].pop()
            self.go_on()
        raise AssertionError("it is parked")


INTERNAL_COUNT = 50


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    host = CoreHost(
        tmp_path,
        offsets_topic_num_partitions=str(INTERNAL_COUNT),
        transaction_state_log_num_partitions=str(INTERNAL_COUNT),
    )
    host.connect(1)
    return Calls(host, monkeypatch)


def found(calls: Calls, kind: int, *keys: str) -> list[Code]:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
    return [Code(row.error_code) for row in calls.answer(request, 4).coordinators]


@pytest.mark.parametrize(("kind", "name"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
def test_a_thread_creates_an_internal_topics_files(calls: Calls, kind: int, name: str) -> None:
    keys = [f"key-{number}" for number in range(INTERNAL_COUNT)]
    assert set(found(calls, kind, *keys)) == {Code.NONE}
    logs = calls.host.broker.topics.logs_of(name)
    assert with_files(logs) <= MADE_BY_A_REQUEST
    repeat_until(lambda: not calls.host.work, calls.go_on)
    assert with_files(logs) == INTERNAL_COUNT
    calls.host.tick(1000)
    assert not unfinished(calls.host), (
        "files are left that the thread created for logs which already had files"
    )
    assert calls.most_of_the_loop <= MADE_BY_A_REQUEST
    assert calls.most_of_the_thread <= MADE_AT_ONCE


def test_a_coordinator_writes_before_the_thread_has_made_the_files(calls: Calls) -> None:
    assert found(calls, 1, "txn") == [Code.NONE]
    request = InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000)
    calls.host.ask(1, request, 2)
    while calls.host.flushes:
        calls.host.flush()
    assert calls.host.answers[1].pop().error_code == Code.NONE
    logs = calls.host.broker.topics.logs_of("__transaction_state")
    assert with_files(logs) == 1
    repeat_until(lambda: not calls.host.work, calls.go_on)
    assert with_files(logs) == INTERNAL_COUNT
    calls.host.tick(1000)
    assert not unfinished(calls.host)


def test_a_write_takes_the_files_that_the_thread_has_made(calls: Calls) -> None:
    assert found(calls, 1, "txn") == [Code.NONE]
    logs = calls.host.broker.topics.logs_of("__transaction_state")
    calls.host.work[0].run()
    made = next(
        log for log in logs if log.files.new_files is not None and log.files.new_files.is_made
    )
    Directories.made = 0
    made.files.make()
    assert made.files.are_made and Directories.made == 0
    repeat_until(lambda: not calls.host.work, calls.go_on)
    assert with_files(logs) == INTERNAL_COUNT


def test_a_coordinator_without_space_for_its_files_is_not_available(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as patched:
        patched.setattr(calls.host.broker.logs.disk, "mkdir", refuse)
        assert found(calls, 0, "group") == [Code.COORDINATOR_NOT_AVAILABLE]
        repeat_until(lambda: not calls.host.work, calls.go_on)
    assert found(calls, 0, "group") == [Code.NONE]


def test_a_restart_creates_the_log_files_that_a_kill_prevented(b: DiskBroker) -> None:
    """The restart creates the files, so that a full disk is noticed now, and not later, when the
    coordinator writes.
    """
    b.call(FindCoordinatorRequest(key="txn", key_type=1), 2)
    b.broker.outbox.work.clear()  # the broker dies before its thread creates the files
    b.kill()  # and restarts
    assert all(log.files.are_made for log in b.broker.topics.logs_of("__transaction_state"))


def test_a_clean_stop_creates_the_internal_topics_remaining_files(calls: Calls) -> None:
    found(calls, 1, "txn")
    host = calls.host
    host.close()
    names = set(os.listdir(host.broker.logs.data_dir))
    assert names >= {f"__transaction_state-{index}" for index in range(INTERNAL_COUNT)}


def identity(calls: Calls) -> dict[str, Any]:
    """Return the fields that name a transactional producer in requests. Each call gives the
    producer a new epoch.
    """
    request = InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000)
    answer = calls.answer(request, 2)
    return {
        "transactional_id": "txn",
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


@pytest.mark.parametrize("durability", ["flush", "os"])
@pytest.mark.parametrize("end", ["commit", "abort", "time out", "fence"])
def test_the_end_of_a_transaction_makes_no_files_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, end: str
) -> None:
    """A transaction has many partitions without a batch, so the markers are the first records in
    these logs.
    """
    host = CoreHost(tmp_path, barnabas_transaction_durability=durability)
    host.connect(1)
    calls = Calls(host, monkeypatch)
    host.create("t", LARGE)
    logs = host.broker.topics.logs_of("t")
    names = identity(calls)
    topic = AddPartitionsToTxnTopic(name="t", partitions=list(range(LARGE)))
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="txn",
        v3_and_below_producer_id=names["producer_id"],
        v3_and_below_producer_epoch=names["producer_epoch"],
        v3_and_below_topics=[topic],
    )
    calls.answer(add, 1)
    assert with_files(logs) == 0
    calls.most_of_the_loop = 0
    if end == "time out":
        host.tick(120_000)
        repeat_until(lambda: all(log.log_end_offset for log in logs), calls.go_on)
    elif end == "fence":
        assert identity(calls)["producer_epoch"] > names["producer_epoch"]
    else:
        assert calls.answer(EndTxnRequest(committed=end == "commit", **names), 2).error_code == 0
        # the markers are written after the response
        repeat_until(lambda: all(log.log_end_offset for log in logs), calls.go_on)
    assert with_files(logs) == LARGE and not unfinished(host)
    assert [log.log_end_offset for log in logs] == [1] * LARGE
    assert calls.most_of_the_loop == 0
    assert 0 < calls.most_of_the_thread <= MADE_AT_ONCE
    assert identity(calls)["producer_epoch"] > names["producer_epoch"], "it has ended"


def test_transactions_that_time_out_together_make_no_files_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the transactions has one partition without a batch."""
    host = CoreHost(tmp_path)
    host.connect(1)
    calls = Calls(host, monkeypatch)
    host.create("t", LARGE)
    logs = host.broker.topics.logs_of("t")
    for number in range(LARGE):
        init = InitProducerIdRequest(f"txn-{number}", 60_000)
        producer = calls.answer(init, 2)
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=f"txn-{number}",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", [number])],
        )
        calls.answer(add, 1)
    calls.most_of_the_loop = 0
    host.tick(120_000)
    repeat_until(lambda: all(log.log_end_offset for log in logs), calls.go_on)
    assert calls.most_of_the_loop == 0
    assert with_files(logs) == LARGE


def test_a_transaction_ends_although_the_thread_cannot_create_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = CoreHost(tmp_path)
    host.connect(1)
    calls = Calls(host, monkeypatch)
    host.create("t", LARGE)
    names = identity(calls)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="txn",
        v3_and_below_producer_id=names["producer_id"],
        v3_and_below_producer_epoch=names["producer_epoch"],
        v3_and_below_topics=[AddPartitionsToTxnTopic("t", list(range(LARGE)))],
    )
    calls.answer(add, 1)

    def fail(disk: OsDisk, path: str, data: bytes, *, sync: bool = True) -> None:
        if is_of_new_files(path):
            raise MemoryError
        write_atomic(disk, path, data, sync=sync)

    write_atomic = OsDisk.write_atomic
    monkeypatch.setattr(OsDisk, "write_atomic", fail)
    assert calls.answer(EndTxnRequest(committed=True, **names), 2).error_code == Code.NONE
    logs = host.broker.topics.logs_of("t")
    repeat_until(lambda: all(log.log_end_offset for log in logs), calls.go_on)
    assert [log.log_end_offset for log in logs] == [1] * LARGE and not unfinished(host)


def test_an_abort_overtakes_a_commit_that_waits_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit waits for the files of partitions without batches. A new session of the
    transactional id aborts the transaction meanwhile, so the commit is refused, and each partition
    has one abort marker.
    """
    host = CoreHost(tmp_path)
    host.connect(1)
    host.connect(2)
    calls = Calls(host, monkeypatch)
    host.create("t", LARGE)
    names = identity(calls)
    topic = AddPartitionsToTxnTopic(name="t", partitions=list(range(LARGE)))
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="txn",
        v3_and_below_producer_id=names["producer_id"],
        v3_and_below_producer_epoch=names["producer_epoch"],
        v3_and_below_topics=[topic],
    )
    calls.answer(add, 1)
    host.ask(1, EndTxnRequest(committed=True, **names), 2)
    assert host.work and not host.answers[1]
    request = InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000)
    answer = calls.answer(request, 2, 2)
    repeat_until(lambda: host.answers[1], calls.go_on)
    assert host.answers[1].pop().error_code == Code.PRODUCER_FENCED
    assert answer.error_code == Code.NONE
    logs = host.broker.topics.logs_of("t")
    assert [log.log_end_offset for log in logs] == [1] * LARGE
    (header, batch), *more = logs[0].read_batches()
    assert not more and decode_marker(batch).commit is False and header.is_transactional


def test_markers_that_an_operator_writes_make_no_files_in_the_loop(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(host, monkeypatch)
    host.create("t", LARGE)
    marker = WritableTxnMarker(
        producer_id=5,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic("t", list(range(LARGE)))],
        coordinator_epoch=0,
    )
    (row,) = calls.answer(WriteTxnMarkersRequest([marker]), 1).markers
    codes = {partition.error_code for partition in row.topics[0].partitions}
    assert codes == {Code.NONE}
    assert [log.log_end_offset for log in host.broker.topics.logs_of("t")] == [1] * LARGE
    assert calls.most_of_the_loop == 0
    assert 0 < calls.most_of_the_thread <= MADE_AT_ONCE


# --- what is not wanted any more ------------------------------------------------------------------


def test_files_created_for_a_deleted_topic_are_removed(host: CoreHost) -> None:
    (log, *_) = created(host, "t", 10)
    work = host.work.pop(0)
    work.run()
    delete_log(host.broker.logs, "t", 0, host.now_ms)
    host.broker.on_worked(work, None, None, host.now_ms)
    assert not log.files.are_made and len(unfinished(host)) == 1
    host.tick(1000)
    assert not unfinished(host)


def test_files_created_for_a_log_that_has_files_are_removed(host: CoreHost) -> None:
    (log, *_) = logs = created(host, "t", 10)
    work = host.work.pop(0)
    log.files.make()
    log.append(bytearray(encode_batch([NewRecord(None, b"a", NOW_MS)])), now_ms=NOW_MS)
    work.run()
    host.broker.on_worked(work, None, None, host.now_ms)
    assert log.log_end_offset == 1 and os.path.getsize(log.segments.active.batches.path(".log"))
    assert with_files(logs) == 10
    host.tick(1000)
    assert not unfinished(host)


def test_the_remains_of_a_failed_creation_are_removed(host: CoreHost) -> None:
    (log, *_) = logs = created(host, "t", 10)
    os.makedirs(f"{log.directory}/x")
    host.finish_work()
    assert with_files(logs) == 10 and "x" not in os.listdir(log.directory)


def test_a_leader_epoch_that_began_during_the_creation_is_stored_with_the_first_batch(
    host: CoreHost,
) -> None:
    logs = created(host, "t", 10)
    work = host.work[0]
    work.run()
    host.broker.logs.begin_leader_epoch(logs)
    host.finish_work()
    logs[0].append(bytearray(encode_batch([NewRecord(None, b"a", NOW_MS)])), now_ms=NOW_MS)
    content = Path(logs[0].directory, LEADER_EPOCH_NAME).read_text().split("\n")
    assert logs[0].leader_epoch > 0 and content[2] == f"{logs[0].leader_epoch} 0"


# --- kills, losses and full disks -----------------------------------------------------------------


@pytest.fixture
def b() -> DiskBroker:
    b = DiskBroker()
    b.parts.files_ahead.fewest, b.parts.files_ahead.most_by_request = 1, 0
    return b


def names(b: DiskBroker) -> list[str]:
    return [path for path, _ in b.disk.files() if is_of_new_files(path)]


@pytest.mark.parametrize("end", ["kill", "lose_power", "stop"])
def test_a_start_removes_files_that_no_log_had_taken(b: DiskBroker, end: str) -> None:
    b.broker.topics.create_topic("t", 4, {}, now_ms=b.now_ms)
    logs = b.broker.topics.logs_of("t")
    b.parts.files_ahead.begin(logs)
    (work,) = b.broker.outbox.work
    work.run()
    assert len(names(b)) == 4 * len(A_LOGS_FILES)
    b.broker.outbox.work.clear()
    getattr(b, end)()
    b.tick(1000)
    assert not names(b)
    assert not any(log.files.are_made for log in b.broker.topics.logs_of("t"))
    assert b.produce("t", (b"a",), partition=2) == (0, 0)
    assert b.read("t", 2) == [b"a"]


def test_a_flushed_batch_in_files_of_the_thread_survives_a_power_loss(b: DiskBroker) -> None:
    b.topic("t", 4, flush_messages="1")
    for partition in range(4):
        assert b.produce("t", (b"%d" % partition,), partition=partition)[0] == Code.NONE
    assert all(log.files.are_made for log in b.broker.topics.logs_of("t"))
    b.lose_power()
    for partition in range(4):
        assert b.read("t", partition) == [b"%d" % partition]


@pytest.mark.parametrize("operation", ["entry", "inode", "rename"])
def test_a_batch_without_space_for_its_files_is_refused_and_appended_later(
    b: DiskBroker, operation: str
) -> None:
    b.broker.topics.create_topic("t", 4, {}, now_ms=b.now_ms)
    b.disk.refuse(Refusal(frozenset([operation]), errno.EDQUOT))
    assert b.produce("t", (b"a",), partition=1)[0] == Code.KAFKA_STORAGE_ERROR
    b.disk.refuse(None)
    assert b.produce("t", (b"a",), partition=1) == (0, 0)
    b.tick(5000)
    assert not names(b)


def test_a_disk_error_in_the_thread_is_raised_in_the_broker(b: DiskBroker) -> None:
    b.broker.topics.create_topic("t", 1, {}, now_ms=b.now_ms)
    b.disk.refuse(Refusal(frozenset(["inode"]), errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        b.produce("t", (b"a",))


# --- a standby ------------------------------------------------------------------------------------


def test_a_standby_gets_the_files_when_the_log_has_them(tmp_path: Path) -> None:
    disk = ReplicatedDisk(OsDisk(), str(tmp_path))
    published: list[Operation] = []
    disk.publish = published.append
    directory = f"{tmp_path}/t{new_suffix(0, 'a' * 32)}"
    disk.mkdir(directory)
    disk.write_atomic(f"{directory}/partition.metadata", b"id", sync=False)
    disk.open(f"{directory}/{0:020d}.log", create=True).close()
    assert not published
    disk.rename(directory, f"{tmp_path}/t-0")
    assert published == [
        Operation(Kind.MAKE_DIRECTORY, "t-0"),
        Operation(Kind.REPLACE, f"t-0/{0:020d}.log", data=b""),
        Operation(Kind.REPLACE, "t-0/partition.metadata", data=b"id"),
    ]
    published.clear()
    disk.mkdir(directory)
    disk.rmtree(directory)
    assert not published


@pytest.mark.parametrize("is_made_again", [True, False])
@pytest.mark.parametrize("count", [20, ROWS_AT_ONCE + 1])
def test_delayed_batches_for_a_topic_id_are_not_appended_to_a_recreated_topic(
    host: CoreHost, count: int, is_made_again: bool
) -> None:
    """The batches wait for the files of their logs or, in a large request, for their turn."""
    created(host, "t", count)
    request = batches("t", count)
    request.topic_data[0].topic_id = host.broker.metadata.topics["t"].topic_id
    host.connect(2)
    host.ask(2, request, 13)
    assert not host.answers[2]
    answer(host, DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 5)
    logs = created(host, "t", count) if is_made_again else []
    rows = host.await_answer(2).responses[0].partition_responses
    assert [log.log_end_offset for log in logs] == [0] * len(logs)
    assert {row.error_code for row in rows} == {Code.UNKNOWN_TOPIC_ID}
