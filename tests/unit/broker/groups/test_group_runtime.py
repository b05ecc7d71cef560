"""The records that a coordinator decides on are first appended, then replayed with their offsets,
and finally the responses are sent.
"""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost, fetch
from helpers.disk_broker import DiskBroker, Producer
from sim.disk import SimFile

from barnabas.coordinator.groups.group_offsets import CommittedOffset
from barnabas.coordinator.groups.group_records import offset_record, offset_tombstone
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import CoordinatorRecord, Reply, Result
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.storage.disk import Data, FailedFsync

NO_TRANSACTION = "no producer's transaction"


@pytest.fixture
def host(tmp_path: Path) -> CoreHost:
    return CoreHost(tmp_path, offsets_topic_num_partitions="2")


@pytest.fixture
def replayed(host: CoreHost, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, bytes]]:
    """Collect the (partition, offset, key) of each record, in the order of the replay."""
    rows: list[tuple[int, int, bytes]] = []
    replay = host.broker.groups.replay

    def noted(partition: int, offset: int, key: bytes, *more: Any) -> None:
        rows.append((partition, offset, key))
        replay(partition, offset, key, *more)

    monkeypatch.setattr(host.broker.groups, "replay", noted)
    return rows


def records(group: str, *partitions: int) -> list[CoordinatorRecord]:
    return [offset_tombstone(group, "t", index) for index in partitions]


def test_each_record_is_replayed_with_its_offset(
    host: CoreHost, replayed: list[tuple[int, int, bytes]]
) -> None:
    """The offset decides which of two commits is later. One of them may be in a transaction."""
    first, second = records("g", 0, 1, 2), records("g", 3, 4)
    for batch in (first, second):
        host.parts.group_runtime.run(Result(partition=1, records=list(batch)), host.now_ms)
    log = host.broker.topics.internal_log(OFFSETS_TOPIC, 1, host.now_ms)
    assert log.log_end_offset == 5
    assert replayed == [(1, at, row.key) for at, row in enumerate(first + second)]


def test_further_results_are_handled_once_each_and_in_order(
    host: CoreHost, replayed: list[tuple[int, int, bytes]]
) -> None:
    results = [Result(partition=0, records=records("g", number)) for number in range(4)]
    results[0].more = results[1:]
    host.parts.group_runtime.run(results[0], host.now_ms)
    assert [(at, key) for _, at, key in replayed] == [
        (number, records("g", number)[0].key) for number in range(4)
    ]


def test_a_waiting_fetch_of_an_internal_topic_gets_the_coordinators_records(host: CoreHost) -> None:
    for connection, topic in ((1, OFFSETS_TOPIC), (2, TRANSACTIONS_TOPIC)):
        host.connect(connection)
        host.broker.topics.internal_log(topic, 0, host.now_ms)
        host.ask(connection, fetch({topic: {0: 0}}, max_wait_ms=60_000), 11)
        assert host.answers[connection] == []
    host.parts.group_runtime.run(Result(partition=0, records=records("g", 0)), host.now_ms)
    host.carry_out()
    init = InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000)
    host.ask(host.connect(3), init, 4)
    for connection in (1, 2):
        (answer,) = host.answers[connection]
        assert answer.responses[0].partitions[0].records


def test_at_debug_level_only_offsets_of_transactions_are_logged(
    host: CoreHost, caplog: pytest.LogCaptureFixture
) -> None:
    def run(producer: tuple[int, int] | None) -> int:
        caplog.clear()
        committed = CommittedOffset(5, -1, "", host.now_ms)
        row = offset_record("g", "t", 0, committed[:5])
        result = Result(partition=0, records=[row], producer=producer)
        host.parts.group_runtime.run(result, host.now_ms)
        return len([line for line in caplog.records if line.name == "barnabas.transactions"])

    with caplog.at_level(logging.DEBUG, "barnabas.transactions"):
        assert (run(None), run((7, 0))) == (0, 1)
    assert run((7, 0)) == 0


def test_who_is_in_no_transaction_waits_for_no_record_of_one(host: CoreHost) -> None:
    assert host.parts.transaction_ends.two_phase_logs(None, host.now_ms) == []
    assert host.parts.transaction_ends.two_phase_logs(NO_TRANSACTION, host.now_ms) == []


def test_a_response_waits_only_for_the_flush_of_its_own_records(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response to a refused request does not wait for the records that other requests wrote to
    the same partition.
    """
    answered: list[int] = []
    monkeypatch.setattr(
        host.broker.requests, "reply", lambda ticket, response: answered.append(ticket)
    )
    run = host.parts.group_runtime.run_durably
    wrote = Result(partition=0, records=records("g", 0), replies=[Reply(1, HeartbeatResponse())])
    run(wrote, [], host.now_ms)
    refused = Result(partition=0, replies=[Reply(2, HeartbeatResponse())])
    run(refused, [], host.now_ms)
    assert answered == [2]
    host.carry_out()
    host.flush()
    assert answered == [2, 1]


# --- a full disk ----------------------------------------------------------------------------------


@pytest.fixture
def b(monkeypatch: pytest.MonkeyPatch) -> DiskBroker:
    b = DiskBroker()
    b.topic("t")
    assert b.commit("g", "t", 1, metadata="a number") == Code.NONE
    return b


class NoSpace:
    """A context in which the disk writes only a part of each append to __consumer_offsets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
        self._error, self._patch = error, monkeypatch

    def __enter__(self) -> None:
        """Make each append to the offsets topic write 20 bytes and then fail."""
        append, error = SimFile.append, self._error

        def refuse(file: SimFile, data: Data) -> int:
            if OFFSETS_TOPIC not in file.path:
                return append(file, data)
            size = file.size
            append(file, bytes(data)[:20])
            file.size = size  # as `OsFile` does
            raise error

        self._patch.setattr(SimFile, "append", refuse)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_commit_without_space_is_refused_and_may_be_sent_again(
    b: DiskBroker, monkeypatch: pytest.MonkeyPatch, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    with NoSpace(monkeypatch, OSError(number, "no space")):
        for _ in range(3):
            assert b.commit("g", "t", 2, metadata="text") == Code.COORDINATOR_NOT_AVAILABLE
        assert b.commit("g2", "t", 2, metadata="text") == Code.COORDINATOR_NOT_AVAILABLE
        assert b.group_offset("g", "t") == (Code.NONE, 1)
    lines = [record for record in caplog.records if "not written" in record.message]
    assert 1 <= len(lines) <= 2, "one line a minute for each log"
    assert b.commit("g", "t", 3, metadata="text") == Code.NONE
    b.kill()
    assert b.group_offset("g", "t") == (Code.NONE, 3)
    assert b.group_offset("g2", "t") == (Code.NONE, -1)


def test_what_is_kept_for_want_of_space_is_not_overtaken(
    b: DiskBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later Results of the same partition wait for a Result that found no space, even if there is
    space again. Results of other partitions do not wait.
    """
    runtime, groups = b.parts.group_runtime, b.broker.groups
    replayed: list[tuple[int, bytes]] = []
    replay = groups.replay

    def noted(partition: int, offset: int, key: bytes, *more: Any) -> None:
        replayed.append((partition, key))
        replay(partition, offset, key, *more)

    first, second, third, other = records("g", 0, 1, 2, 3)
    with NoSpace(monkeypatch, OSError(errno.ENOSPC, "no space")):
        assert runtime.run_or_keep(Result(partition=0, records=[first]), b.now_ms)
    monkeypatch.setattr(groups, "replay", noted)
    for record in (second, third):
        assert runtime.run_or_keep(Result(partition=0, records=[record]), b.now_ms)
    assert not runtime.run_or_keep(Result(partition=1, records=[other]), b.now_ms)
    for _ in range(12):
        b.tick(1_000)
    assert replayed == [(1, other.key), (0, first.key), (0, second.key), (0, third.key)]


def test_offsets_of_a_transaction_without_space_are_refused_and_may_be_sent_again(
    b: DiskBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(b, "txn")
    assert producer.add_offsets("g") == Code.NONE
    with NoSpace(monkeypatch, OSError(errno.ENOSPC, "no space")):
        assert producer.commit_offset("g", "t", 2) == Code.COORDINATOR_NOT_AVAILABLE
    assert producer.commit_offset("g", "t", 3) == Code.NONE
    assert producer.end(True) == Code.NONE
    b.kill()
    assert b.group_offset("g", "t") == (Code.NONE, 3)


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "a failed disk"), FailedFsync(errno.ENOSPC, "lost pages")]
)
def test_a_disk_error_in_a_commit_other_than_a_full_disk_is_raised(
    b: DiskBroker, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    with NoSpace(monkeypatch, error), pytest.raises(OSError) as raised:  # noqa: PT011
        b.commit("g", "t", 2)
    assert raised.value is error
