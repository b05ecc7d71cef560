"""Requests for thousands of logs are processed in slices: other requests are served in between, and
a kill between two slices leaves nothing unfinished.
"""

from __future__ import annotations

import errno
import itertools
import uuid
from functools import partial
from typing import Any

import pytest
from helpers.admin_host import creatable
from helpers.disk_broker import DiskBroker, Producer
from helpers.repeating import repeat_until
from sim.disk import Crash

from barnabas.broker.handlers import topics as handlers
from barnabas.broker.slices import (
    LOGS_DELETED_AT_ONCE,
    LOGS_MADE_AT_ONCE,
    MOST_PARTITIONS_AT_ONCE,
    SlicedWork,
    Slices,
    Wait,
)
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

MOST_TICKS = 2000
FILES_OF_A_LOG = 5  # the number of files that are created for a log
NO_ID = uuid.UUID(int=0)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slice create or delete only one log."""
    monkeypatch.setattr("barnabas.broker.logs.topics.LOGS_MADE_AT_ONCE", 1)
    monkeypatch.setattr("barnabas.broker.topic_changes.topic_deletion.LOGS_DELETED_AT_ONCE", 1)


def creation(*names: str, partitions: int = 1) -> Any:
    return CreateTopicsRequest(
        topics=[creatable(name, partitions, configs={"retention.ms": "-1"}) for name in names],
        timeout_ms=1000,
        validate_only=False,
    )


def deletion(*names: str) -> Any:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1000)


def growth(**counts: int) -> Any:
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in counts.items()
        ],
        timeout_ms=1000,
        validate_only=False,
    )


def query(*names: str, makes: bool = False) -> Any:
    topics = [MetadataRequestTopic(name=name, topic_id=NO_ID) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=makes)


def reported(b: DiskBroker, name: str) -> int:
    """Return the number of partitions of the topic in Metadata. Gives: -1 if the topic is
    unknown.
    """
    (row,) = b.call(query(name), 12).topics
    assert row.error_code in (Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION)
    return len(row.partitions) if row.error_code == Code.NONE else -1


def answered(b: DiskBroker, connection: int, request: Any, version: int) -> tuple[Any, int]:
    """The response, and the number of ticks before it."""
    b.send(connection, request, version)
    for ticks in range(MOST_TICKS):
        answer = b.answer(connection)
        if answer is not None:
            return answer, ticks
        assert b.broker.next_deadline_ms() == 0, "the work goes on at once"
        b.tick()
    raise AssertionError("it is never answered")


def test_a_request_that_fits_one_slice_is_answered_immediately() -> None:
    b = DiskBroker()
    assert answered(b, b.connect(), creation("t", partitions=LOGS_MADE_AT_ONCE), 7)[1] == 0
    answered(b, b.connect(), creation("u", partitions=LOGS_DELETED_AT_ONCE), 7)
    assert answered(b, b.connect(), deletion("u"), 3)[1] == 1, (
        "the renames are flushed before the response"
    )


def test_between_slices_other_clients_see_topics_complete_or_not_at_all() -> None:
    b = DiskBroker()
    busy, count = b.connect(), 5 * LOGS_MADE_AT_ONCE
    b.send(busy, creation("wide", partitions=count), 7)
    while b.answer(busy) is None:
        assert reported(b, "wide") == -1
        assert b.produce("wide", (b"early",), partition=0)[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
        b.tick()
    assert (b.answer(busy).topics[0].error_code, reported(b, "wide")) == (Code.NONE, count)
    b.send(busy, growth(wide=2 * count), 2)
    while b.answer(busy) is None:
        assert reported(b, "wide") == count
        b.tick()
    assert reported(b, "wide") == 2 * count
    assert b.produce("wide", (b"v",), partition=2 * count - 1) == (0, 0)
    b.send(busy, deletion("wide"), 3)
    assert b.answer(busy) is None
    while b.answer(busy) is None:
        assert reported(b, "wide") == -1
        assert (
            b.produce("wide", (b"late",), partition=2 * count - 1)[0]
            == Code.UNKNOWN_TOPIC_OR_PARTITION
        )
        b.tick()
    assert b.answer(busy).responses[0].error_code == Code.NONE


def test_requests_that_change_topics_are_processed_one_after_another() -> None:
    b = DiskBroker()
    count = 3 * LOGS_DELETED_AT_ONCE
    answered(b, b.connect(), creation("t", partitions=count), 7)
    first, second, third = b.connect(), b.connect(), b.connect()
    b.send(first, deletion("t"), 3)
    b.send(second, creation("t", partitions=1), 7)
    b.send(third, query("t", makes=True), 12)
    assert [b.answer(connection) for connection in (first, second, third)] == [None] * 3
    repeat_until(lambda: b.answer(third) is not None, b.tick)
    assert b.answer(first).responses[0].error_code == b.answer(second).topics[0].error_code == 0
    assert reported(b, "t") == 1
    assert b.read("t") == []


def test_the_work_for_a_disconnected_client_is_completed() -> None:
    b = DiskBroker()
    busy = b.connect()
    b.send(busy, creation("wide", partitions=3 * LOGS_MADE_AT_ONCE), 7)
    b.broker.on_closed(busy)
    for _ in range(5):
        b.tick()
    assert reported(b, "wide") == 3 * LOGS_MADE_AT_ONCE


@pytest.mark.parametrize("names", [2, 200])
@pytest.mark.parametrize("version", [4, 7])
def test_topics_are_created_although_the_client_disconnected_before_the_rights_check(
    names: int, version: int
) -> None:
    """The creation waits for another request, or has so many names that they are checked in slices.

    The client's connection is closed before its rights are checked.
    """
    b = DiskBroker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )
    busy, gone = b.connect(), b.connect()
    b.send(busy, creation("wide", partitions=3 * LOGS_MADE_AT_ONCE), 7)
    b.send(gone, creation(*(f"t{number}" for number in range(names))), version)
    b.broker.on_closed(gone)
    for _ in range(100):
        b.tick()
    assert b.answer(busy).topics[0].error_code == Code.NONE
    assert reported(b, f"t{names - 1}") == 1


def test_a_stop_waits_for_the_disk_before_work_that_waits_for_it_goes_on() -> None:
    """Work in slices waits for the disk between two slices. A stop must finish it, and flush each
    time before the next slice runs.
    """
    steps: list[str] = []

    def work() -> Slices:
        yield
        for number in (1, 2):
            yield Wait(lambda then: None, partial(steps.append, f"flush {number}"))
            steps.append(f"slice {number}")

    sliced = SlicedWork(lambda ticket, answer: steps.append("answer"), lambda ticket, error: None)
    assert sliced.begin(1, work(), 0) == (False, None)
    sliced.finish(0)
    assert steps == ["flush 1", "slice 1", "flush 2", "slice 2", "answer"]


def test_a_stop_completes_creations_and_deletions() -> None:
    b = DiskBroker()
    answered(b, b.connect(), creation("old", partitions=3 * LOGS_DELETED_AT_ONCE), 7)
    b.make_files("old")
    b.send(b.connect(), deletion("old"), 3)
    b.send(b.connect(), creation("new", partitions=3 * LOGS_MADE_AT_ONCE), 7)
    b.broker.close_logs(b.now_ms)
    names = b.disk.list("/data")
    assert not [name for name in names if name.startswith("old-") and not name.endswith("-delete")]
    b.kill()
    assert (reported(b, "old"), reported(b, "new")) == (-1, 3 * LOGS_MADE_AT_ONCE)


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("way", ["kill", "lose_power"])
@pytest.mark.parametrize("what", ["made", "grown"])
def test_a_crash_during_a_creation_leaves_topics_complete_or_not_at_all(
    what: str, way: str
) -> None:
    """Each attempt crashes one disk operation later, until the request gets a response. A request
    that got a response is never lost.
    """
    outcomes = set()
    for steps in itertools.count():
        b = DiskBroker()
        if what == "grown":
            b.topic("a")
            b.topic("b")
        b.disk.crash_in(steps)
        before, after = ({-1}, {2}) if what == "made" else ({1}, {3})
        try:
            request = creation("a", "b", partitions=2) if what == "made" else growth(a=3, b=3)
            answered(b, b.connect(), request, 7 if what == "made" else 2)
        except Crash:
            is_answered = False
        else:
            is_answered = True
        getattr(b, way)()
        found = {reported(b, "a"), reported(b, "b")}
        assert found == after or (found == before and not is_answered), f"step {steps}"
        outcomes.add(found == after)
        for name in ("a", "b"):
            for partition in range(reported(b, name)):
                assert b.produce(name, (b"v",), partition=partition) == (0, 0)
        b.stop()
        assert {reported(b, "a"), reported(b, "b")} == found
        if is_answered:
            break
    assert outcomes == {True, False}


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("way", ["kill", "lose_power"])
def test_a_crash_during_a_deletion_leaves_all_of_the_topics_or_none(
    way: str,
) -> None:
    """Each attempt crashes one disk operation later, until the request gets a response. Committed
    offsets remain or disappear with the topics.
    """
    outcomes = set()
    for steps in itertools.count():
        b = DiskBroker()
        answered(b, b.connect(), creation("a", "b", partitions=2), 7)
        for name in ("a", "b"):
            for partition in range(2):
                assert b.produce(name, (b"old",), partition=partition) == (0, 0)
        p = Producer(b, "txn")
        p.send_offset("g", "a", 1)
        assert p.end(True) == 0
        b.stop()
        b.disk.crash_in(steps)
        try:
            answered(b, b.connect(), deletion("a", "b"), 3)
        except Crash:
            getattr(b, way)()
        else:
            break
        found = reported(b, "a")
        assert found == reported(b, "b"), f"step {steps}"
        outcomes.add(found)
        if found == 2:
            assert [b.read(name, partition) for name in ("a", "b") for partition in range(2)] == [
                [b"old"]
            ] * 4
            assert b.group_offset("g", "a") == (0, 1)
        else:
            assert not {"a-0", "a-1", "b-0", "b-1"} & set(b.disk.list("/data")), f"step {steps}"
            answered(b, b.connect(), creation("a", "b", partitions=2), 7)
            assert [b.read(name, partition) for name in ("a", "b") for partition in range(2)] == [
                []
            ] * 4
            assert b.group_offset("g", "a") == (0, -1)
    assert outcomes == {2, -1}


@pytest.mark.parametrize(("topics", "partitions"), [(300, 1), (1, 300)])
def test_many_logs_are_created_and_deleted_with_few_fsyncs(
    monkeypatch: pytest.MonkeyPatch, topics: int, partitions: int
) -> None:
    b = DiskBroker()
    names = [f"t{number}" for number in range(topics)]
    flushed: list[str] = []
    fsync_dir = b.disk.fsync_dir
    write_atomic = b.disk.write_atomic

    def counted(path: str) -> None:
        flushed.append(path)
        fsync_dir(path)

    def counted_write(path: str, data: Any, *, sync: bool = True) -> None:
        if sync:
            flushed.append(path)
        write_atomic(path, data, sync=sync)

    monkeypatch.setattr(b.disk, "fsync_dir", counted)
    monkeypatch.setattr(b.disk, "write_atomic", counted_write)
    answered(b, b.connect(), creation(*names, partitions=partitions), 7)
    answered(b, b.connect(), deletion(*names), 3)
    assert len(flushed) < 10


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_the_response_for_many_topics_has_a_row_for_each(version: int) -> None:
    b = DiskBroker()
    for count in (handlers.CHECKED_AT_ONCE + 1, 3 * handlers.CHECKED_AT_ONCE):
        names = [f"t{count}-{number}" for number in range(count)]
        answer, ticks = answered(b, b.connect(), creation(*names), version)
        assert ticks > 1
        assert [(row.name, row.error_code) for row in answer.topics] == [
            (name, 0) for name in names
        ]
        if version >= 5:
            assert {row.num_partitions for row in answer.topics} == {1}
            assert [
                (config.name, config.value)
                for config in answer.topics[-1].configs
                if config.config_source == 1
            ] == [("retention.ms", "-1")]
        assert reported(b, names[-1]) == 1


def test_a_deletion_of_too_many_topics_is_refused_without_effect() -> None:
    b = DiskBroker()
    b.topic("t")
    names = ["t", *(f"t{number}" for number in range(handlers.MOST_TOPICS_DELETED_AT_ONCE))]
    rows = answered(b, b.connect(), deletion(*names), 3)[0].responses
    assert {row.error_code for row in rows} == {Code.POLICY_VIOLATION}
    assert reported(b, "t") == 1


def test_a_growth_by_too_many_partitions_in_total_is_refused_without_effect() -> None:
    b = DiskBroker()
    b.topic("a")
    b.topic("b")
    half = MOST_PARTITIONS_AT_ONCE // 2
    rows = answered(b, b.connect(), growth(a=half + 1, b=half + 2), 2)[0].results
    assert {row.error_code for row in rows} == {Code.POLICY_VIOLATION}
    assert (reported(b, "a"), reported(b, "b")) == (1, 1)


def test_a_metadata_request_that_would_create_too_many_topics_creates_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = DiskBroker()
    names = [f"t{number}" for number in range(MOST_PARTITIONS_AT_ONCE + 1)]
    rows = answered(b, b.connect(), query(*names, makes=True), 12)[0].topics
    assert {row.error_code for row in rows} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert not b.broker.metadata.topics
    assert len([record for record in caplog.records if "none is created" in record.message]) == 1


def test_a_metadata_request_creates_many_topics_in_slices() -> None:
    b = DiskBroker()
    names = [f"t{number}" for number in range(4 * LOGS_MADE_AT_ONCE)]
    _, ticks = answered(b, b.connect(), query(*names, makes=True), 12)
    assert ticks >= 3
    assert [reported(b, name) for name in names] == [1] * len(names)


def test_a_setting_that_changes_between_two_slices_applies_to_all_logs() -> None:
    b = DiskBroker()
    busy = b.connect()
    b.send(busy, creation("wide", partitions=3 * LOGS_MADE_AT_ONCE), 7)
    b.broker.topics.set_broker_configs({"message.max.bytes": "12345"})
    repeat_until(lambda: b.answer(busy) is not None, b.tick)
    logs = b.broker.topics.partitions_of("wide")
    assert len(logs) == 3 * LOGS_MADE_AT_ONCE
    assert {log.config.max_message_bytes for log in logs if log is not None} == {12345}


def test_the_files_of_many_deleted_logs_are_removed_a_few_at_a_time() -> None:
    b = DiskBroker()
    count = 100
    answered(b, b.connect(), creation("t", partitions=count), 7)
    b.make_files("t")
    answered(b, b.connect(), deletion("t"), 3)
    b.tick(60_000)
    going = [name for name in b.disk.list("/data") if name.endswith("-delete")]
    assert 0 < len(going) < count
    for _ in range(count):
        b.tick()
    assert not [name for name in b.disk.list("/data") if name.endswith("-delete")]


# --- a full disk---------------------------------------------------------------------------------


def let_it_run_full(b: DiskBroker, monkeypatch: pytest.MonkeyPatch, files: int, error: int) -> None:
    """Let the disk become full, or the descriptors run out, after `files` more new files."""
    left, make = [files], b.disk.open

    def limited(path: str, *, create: bool = False) -> Any:
        if create and not b.disk.exists(path):
            if not left[0]:
                raise OSError(error, "no room", path)
            left[0] -= 1
        return make(path, create=create)

    monkeypatch.setattr(b.disk, "open", limited)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("files", range(FILES_OF_A_LOG))
@pytest.mark.parametrize("ending", ["kill", "lose_power", "stop"])
def test_a_partition_without_space_for_its_files_accepts_records_later(
    monkeypatch: pytest.MonkeyPatch, error: int, files: int, ending: str
) -> None:
    b = DiskBroker()
    answered(b, b.connect(), creation("t", partitions=2), 7)
    before = b.saved()
    with monkeypatch.context() as full:
        let_it_run_full(b, full, files, error)
        for _ in range(2):
            assert b.produce("t", (b"refused",), partition=1)[0] == Code.KAFKA_STORAGE_ERROR
        assert b.saved() == before
        assert b.read("t", 1) == []
    assert b.produce("t", (b"taken",), partition=1) == (0, 0)
    b.broker.topics.partition("t", 1).flush()
    getattr(b, ending)()
    assert (b.read("t", 0), b.read("t", 1)) == ([], [b"taken"])


def test_a_directory_that_could_not_be_removed_does_not_restore_a_deleted_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files", path)

    b = DiskBroker()
    answered(b, b.connect(), creation("t"), 7)
    with monkeypatch.context() as full:
        let_it_run_full(b, full, 2, errno.EMFILE)
        full.setattr(b.disk, "rmtree", refuse)
        assert b.produce("t", (b"refused",))[0] == Code.KAFKA_STORAGE_ERROR
    assert "t-0" in b.disk.list("/data")
    answered(b, b.connect(), deletion("t"), 3)
    b.kill()
    assert reported(b, "t") == -1 and "t-0" not in b.disk.list("/data")


def test_the_disk_reserve_is_not_used_for_new_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    b = DiskBroker()
    answered(b, b.connect(), creation("t", partitions=2), 7)
    monkeypatch.setattr(b.disk, "free_bytes", lambda path: 0)
    b.parts.disk_space.left_bytes = 0
    before = b.saved()
    assert (
        answered(b, b.connect(), creation("u"), 7)[0].topics[0].error_code
        == Code.KAFKA_STORAGE_ERROR
    )
    assert (
        answered(b, b.connect(), growth(t=3), 2)[0].results[0].error_code
        == Code.KAFKA_STORAGE_ERROR
    )
    assert (
        b.call(query("v", makes=True), 12).topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert b.saved() == before


def test_a_directory_is_removed_later_when_descriptors_are_lacking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = DiskBroker()
    answered(b, b.connect(), creation("t"), 7)
    b.make_files("t")
    answered(b, b.connect(), deletion("t"), 3)
    remove, failures = b.disk.rmtree, [errno.EMFILE, errno.ENFILE]

    def rmtree(path: str) -> None:
        if failures:
            raise OSError(failures.pop(), "Too many open files", path)
        remove(path)

    monkeypatch.setattr(b.disk, "rmtree", rmtree)
    for _ in range(10):
        b.tick(60_000)
    assert not failures and not [path for path in b.saved() if "-delete" in path]
