"""The two clocks. Deadlines use the steady clock, records have the time of the wall clock, and a
step of the wall clock does not move a deadline.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost, fetch, produce
from helpers.disk_broker import NOW_MS, DiskBroker, Producer
from helpers.group_host import GroupHost, alone
from helpers.our_messages import response_class
from helpers.txn_host import TxnHost

from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.transactions.transaction_table import TxnSettings
from barnabas.protocol.api_table import APIS, BY_KEY
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import describe_producers
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.records import BatchHeader
from barnabas.protocol.wall_clock import WallClock

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
STEPS = [120_000, -HOUR_MS, 8 * DAY_MS, -8 * DAY_MS]
TIMEOUT_MS = 60_000
T0 = {"t": [0]}


@pytest.fixture
def core(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path)
    for connection in (1, 2):
        host.connect(connection)
    yield host
    host.close()


def test_wall_clock_times_are_derived_from_the_steady_time() -> None:
    wall = WallClock()
    assert (5 + wall.ahead_ms, wall.since_ms(5)) == (5, 5), "unfed, both are one"
    wall.feed(now_ms=100, wall_ms=1_700_000_000_000)
    assert 103 + wall.ahead_ms == 1_700_000_000_003
    assert wall.since_ms(1_699_999_999_990) == 90
    assert wall.since_ms(1_600_000_000_000) == 100 - 100_000_000_000, (
        "a negative steady time: before the machine was started"
    )
    assert wall.since_ms(1_700_000_000_000 + DAY_MS) == 100, "what is to come, by the clock, is now"


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_step_of_the_wall_clock_does_not_change_the_end_of_a_long_poll(
    core: CoreHost, step_ms: int
) -> None:
    core.create("t")
    core.ask(1, fetch({"t": {0: 0}}, max_wait_ms=2000), 12)
    core.wall_ahead_ms = step_ms
    core.tick(1999)
    assert core.answers[1] == []
    core.tick(1)
    assert len(core.answers[1]) == 1


@pytest.mark.parametrize("step_ms", STEPS)
def test_records_are_stamped_and_bounded_by_the_wall_clock(core: CoreHost, step_ms: int) -> None:
    (stamped,) = core.create("stamped", message_timestamp_type="LogAppendTime")
    core.create(
        "bounded",
        message_timestamp_before_max_ms=str(60_000),
        message_timestamp_after_max_ms=str(60_000),
    )
    core.wall_ahead_ms = step_ms
    core.call(1, produce("stamped"), 9)
    assert header_of(stamped).max_timestamp == core.now_ms + step_ms
    (topic,) = core.call(1, produce("bounded"), 9).responses  # the record's timestamp is NOW_MS
    assert topic.partition_responses[0].error_code == Code.INVALID_TIMESTAMP, (
        "INVALID_TIMESTAMP: the wall clock is hours away from it"
    )


def test_retention_uses_the_wall_clock(core: CoreHost) -> None:
    """As in Apache Kafka, the age of a record is known only from its timestamp."""
    (log,) = core.create("t", retention_ms=str(7 * DAY_MS))
    core.call(1, produce("t"), 9)
    core.wall_ahead_ms = 6 * DAY_MS
    core.tick(10 * 60_000)
    assert log.log_start_offset == 0
    core.wall_ahead_ms = 8 * DAY_MS
    core.tick(10 * 60_000)
    assert log.log_start_offset == 1


def header_of(log: Any) -> BatchHeader:
    return next(iter(log.read_batches()))[0]


# --- transactions -------------------------------------------------------------------------------


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_step_of_the_wall_clock_does_not_change_a_transaction_timeout(step_ms: int) -> None:
    host = TxnHost()
    answer = host.init("txn", timeout_ms=TIMEOUT_MS)
    host.wall_ahead_ms = step_ms // 2
    host.add("txn", answer.producer_id, answer.producer_epoch, T0)
    host.wall_ahead_ms = step_ms
    host.tick(TIMEOUT_MS // 2)
    assert host.add("txn", answer.producer_id, answer.producer_epoch, {"t": [1]}) == {
        ("t", 1): 0
    }, "the transaction continues after half of its timeout"
    host.tick(TIMEOUT_MS // 2 - 1)
    assert host.state("txn") == "Ongoing"
    host.tick(1)
    assert host.state("txn") == "CompleteAbort"


@pytest.mark.parametrize(
    ("wall_moved_ms", "left_ms"),
    [(40_000, 20_000), (0, TIMEOUT_MS), (-HOUR_MS, TIMEOUT_MS), (8 * DAY_MS, 0), (TIMEOUT_MS, 0)],
)
def test_after_a_start_the_age_of_a_transaction_comes_from_the_wall_clock(
    wall_moved_ms: int, left_ms: int
) -> None:
    """The computed age is never negative, even if the wall clock was set back."""
    host = TxnHost()
    answer = host.init("txn", timeout_ms=TIMEOUT_MS)
    host.add("txn", answer.producer_id, answer.producer_epoch, T0)
    host.now_ms, host.wall_ahead_ms = (
        7,
        host.now_ms + wall_moved_ms - 7,
    )  # a reboot resets the machine's steady clock
    host.crash()
    if left_ms:
        host.tick(left_ms - 1)
        assert host.state("txn") == "Ongoing"
        host.tick(1)
    else:
        host.tick()
    assert host.state("txn") == "CompleteAbort"


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_step_of_the_wall_clock_does_not_change_the_expiry_of_a_transactional_id(
    step_ms: int,
) -> None:
    host = TxnHost(settings=TxnSettings(transactional_id_expiration_ms=DAY_MS))
    answer = host.init("txn")
    host.wall_ahead_ms = step_ms
    host.add("txn", answer.producer_id, answer.producer_epoch, T0)
    host.end("txn", answer.producer_id, answer.producer_epoch, commit=True)
    host.wall_ahead_ms = 0
    host.tick(DAY_MS - 1)
    assert host.state("txn") == "CompleteCommit"
    host.tick(1)
    assert host.state("txn") is None


@pytest.mark.parametrize("ahead_ms", [0, -500])
def test_two_transactions_have_different_start_times_even_if_the_clock_does_not_advance(
    ahead_ms: int,
) -> None:
    """The coordinator's records of two transactions are distinguished by the time at which each
    transaction began.
    """
    host = TxnHost()
    answer = host.init("txn")
    starts = []
    for _ in range(2):
        host.add("txn", answer.producer_id, answer.producer_epoch, T0)
        found = host.coordinator.metadata("txn")
        assert found is not None
        starts.append(found.start_ms)
        host.end("txn", answer.producer_id, answer.producer_epoch, commit=True)
        host.wall_ahead_ms = ahead_ms
    assert starts[0] < starts[1]


@pytest.mark.parametrize("end", ["kill", "stop", "lose_power"])
def test_a_clock_that_was_ahead_at_one_commit_does_not_affect_later_markers(end: str) -> None:
    """The later markers have the right time in the same session, in a later session, and after a
    restart.
    """
    b = DiskBroker()
    b.topic("t")
    producer = Producer(b, "txn")

    def commit(ahead_ms: int = 0) -> None:
        b.tick(5_000)
        b.broker.wall.ahead_ms = ahead_ms
        producer.send("t", 0, b"v")
        assert producer.end(True) == Code.NONE
        b.broker.wall.ahead_ms = 0

    commit()
    commit(ahead_ms=YEAR_MS)
    commit()
    getattr(b, end)()
    producer.reconnect()
    for _ in range(2):
        producer.begin_session()
        commit()
    (log,) = b.broker.topics.logs_of("t")
    markers = [header for header, _ in log.read_batches() if header.is_control]
    # The markers are grouped by the time of their decision, since a start after a power loss may
    # write a marker again.
    times = {
        header.base_timestamp: (header.max_timestamp - NOW_MS) // 1_000 * 1_000
        for header in markers
    }
    assert list(times.values()) == [5_000, 10_000 + YEAR_MS, 15_000, 20_000, 25_000]
    assert list(times) == sorted(times), "decisions keep their order"
    producer.send("t", 0, b"v")
    b.tick(2_000)

    def is_listed(duration_ms: int) -> bool:
        request = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], duration_filter=duration_ms
        )
        return bool(b.call(request, 1).transaction_states)

    assert (is_listed(1_000), is_listed(3_000)) == (True, False)


# --- groups -------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_step_of_the_wall_clock_does_not_change_a_session_timeout(step_ms: int) -> None:
    host = GroupHost()
    member = alone(host, session_ms=10_000)
    host.wall_ahead_ms += step_ms
    host.pass_time(9_000)
    assert member.heartbeat() == 0
    host.pass_time(9_999)
    assert host.state("g") == "Stable"
    host.pass_time(1)
    assert host.state("g") == "Empty"


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_step_of_the_wall_clock_does_not_change_the_expiry_of_offsets(step_ms: int) -> None:
    settings = GroupSettings(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=1000)
    host = GroupHost(settings=settings)
    host.commit("committed", {"t": {0: 1}})
    alone(host, "left").commit({"t": {0: 1}})
    host.leave(
        "left", *[(member, None) for member in host.coordinator._groups["left"].classic.members]
    )
    host.wall_ahead_ms += step_ms
    host.pass_time(DAY_MS - 1)
    assert [host.fetch(group, T0)[("t", 0)][0] for group in ("committed", "left")] == [1, 1]
    host.pass_time(1001)
    assert [host.fetch(group, T0)[("t", 0)][0] for group in ("committed", "left")] == [-1, -1]


@pytest.mark.parametrize(
    ("wall_moved_ms", "left_ms"), [(DAY_MS - 5000, 5000), (-HOUR_MS, DAY_MS), (8 * DAY_MS, 0)]
)
def test_after_a_start_the_age_of_offsets_comes_from_the_wall_clock(
    wall_moved_ms: int, left_ms: int
) -> None:
    settings = GroupSettings(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=1000)
    host = GroupHost(settings=settings)
    host.commit("g", {"t": {0: 1}})
    wall_ms = host.now_ms + host.wall_ahead_ms + wall_moved_ms
    host.now_ms, host.wall_ahead_ms = 7, wall_ms - 7
    host.restart()
    if left_ms:
        host.pass_time(left_ms - 1)
        assert host.fetch("g", T0)[("t", 0)][0] == 1
    host.pass_time(1001)
    assert host.fetch("g", T0)[("t", 0)][0] == -1


# --- answers ------------------------------------------------------------------------------------

IS_TIME = re.compile(r"(^|_)timestamp(_|$)|_(start|append)_time_")
IN_NO_ANSWER = {
    "CreateDelegationToken": {"issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"},
    "DescribeDelegationToken": {"issue_timestamp", "expiry_timestamp", "max_timestamp"},
    "ExpireDelegationToken": {"expiry_timestamp_ms"},
    "RenewDelegationToken": {"expiry_timestamp_ms"},
    "OffsetCommit": {"commit_timestamp"},
}
"""Times of tokens, which do not exist here, and of a request."""


def times_in(value: Any) -> dict[str, set[int]]:
    """Collect the values of all fields of a response that are times, by the name of the field."""
    found: dict[str, set[int]] = {}
    for one in value if isinstance(value, list) else [value]:
        for name in type(one).__slots__ if isinstance(one, Message) else ():
            if IS_TIME.search(name):
                found.setdefault(name, set()).add(getattr(one, name))
            for inner, times in times_in(getattr(one, name)).items():
                found.setdefault(inner, set()).update(times)
    return found


def test_each_time_in_an_answer_is_the_wall_clocks(core: CoreHost) -> None:
    core.wall_ahead_ms = 8 * DAY_MS
    now_ms, never = core.now_ms + core.wall_ahead_ms, -1
    core.create("t", message_timestamp_type="LogAppendTime")
    core.ask(1, InitProducerIdRequest("txn", TIMEOUT_MS, -1, -1), 4)
    core.flush()
    (init,) = core.answers[1]
    identity = init.producer_id, init.producer_epoch
    written = produce("t", transactional_id="txn", identity=identity)
    offsets = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -3)])]
    asked: list[tuple[Message, int, dict[str, set[int]]]] = [
        (written, 12, {"log_append_time_ms": {now_ms}}),
        (ListOffsetsRequest(-1, 0, offsets), 7, {"timestamp": {now_ms}}),
        (
            DescribeTransactionsRequest(["txn"]), 0,
            {"transaction_start_time_ms": {now_ms}},
        ),
        (
            DescribeProducersRequest([describe_producers.TopicRequest("t", [0])]), 0,
            {"last_timestamp": {now_ms}},
        ),
        (
            DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])]), 2,
            {"last_caught_up_timestamp": {now_ms}, "last_fetch_timestamp": {never}},
        ),
    ]  # fmt: skip
    tested = {BY_KEY[request.API_KEY].name: set(times) for request, _, times in asked}
    in_schemas = {
        api.name: {
            name
            for one in vars(sys.modules[response_class(api.name).__module__]).values()
            if isinstance(one, type) and issubclass(one, Message)
            for name in getattr(one, "__slots__", ())
            if IS_TIME.search(name)
        }
        for api in APIS
    }
    assert {name: fields for name, fields in in_schemas.items() if fields} == tested | IN_NO_ANSWER
    for request, version, times in asked:
        assert times_in(core.call(1, request, version)) == times, request
