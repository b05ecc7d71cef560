"""The ranges of each micro-batch of a stream, planned with a server that has prepared logs."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import FakeBroker, FakeLog

from barnabas.client.cluster_reader import ClientError, ClusterReader
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.offsets import (
    OffsetRange,
    Offsets,
    offsets_as_json,
    offsets_of_json,
    topic_ids_of_json,
)
from barnabas.spark_connector.read.open_transactions import (
    OpenTransactionError,
)
from barnabas.spark_connector.read.options import OpenTransactions, parse_source_options
from barnabas.spark_connector.read.planning import plan
from barnabas.spark_connector.read.reading import DataLossError, read_range
from barnabas.spark_connector.read.stream_planning import StreamPlanner

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Clock:
    """A clock in seconds that only the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    monkeypatch.setattr("barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 20)
    with FakeBroker(
        {("t", 0): FakeLog(end_offset=100), ("t", 1): FakeLog(end_offset=10)}
    ) as running:
        yield running


@pytest.fixture
def planner(broker: FakeBroker, clock: Clock) -> Iterator[Callable[..., StreamPlanner]]:
    made: list[StreamPlanner] = []

    def make(**options: str) -> StreamPlanner:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.retry.backoff.ms": "5",
            "subscribe": "t",
        }
        given |= {name.replace("__", "."): value for name, value in options.items()}
        if "subscribePattern" in given or "assign" in given:
            del given["subscribe"]
        made.append(StreamPlanner(parse_source_options(given, streaming=True), clock=clock))
        return made[-1]

    yield make
    for each in made:
        each.close()


def asked(broker: FakeBroker, kind: type) -> int:
    return sum(isinstance(request, kind) for request in broker.requests)


# --- the start of a query


def test_a_query_begins_at_the_end_and_its_first_batch_ends_there(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    stream = planner()
    start = stream.initial()
    assert start == {T0: 100, T1: 10}
    broker.logs["t", 0].end_offset = 150
    assert stream.initial() == start, "however often Spark asks"
    assert stream.latest(start) == start
    assert stream.latest(start) == {T0: 150, T1: 10}
    assert stream.newest == {T0: 150, T1: 10}


def test_a_first_batch_is_planned_again_after_a_restart_without_its_start(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    """The checkpoint has only the end of the first batch. No record is skipped, although the log
    has grown since then.
    """
    first = planner()
    end = first.latest(first.initial())
    broker.logs["t", 0].end_offset = 150
    second = planner()
    assert second.ranges(second.initial(), end) == []
    assert second.latest(end) == {T0: 150, T1: 10}


def test_a_log_that_grows_while_its_end_is_asked_for(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    def grow(request: Any) -> None:
        if isinstance(request, ListOffsetsRequest):
            broker.logs["t", 0].end_offset = (broker.logs["t", 0].end_offset or 0) + 1

    broker.disturb = grow
    stream = planner()
    start = stream.initial()
    assert stream.latest(start)[T0] == start[T0]


def test_a_query_that_begins_at_the_beginning_reads_in_its_first_batch(
    planner: Callable[..., StreamPlanner],
) -> None:
    stream = planner(startingOffsets="earliest")
    assert stream.initial() == {T0: 0, T1: 0}
    assert stream.latest(stream.initial()) == {T0: 100, T1: 10}


def test_only_partitions_that_begin_at_the_end_are_held(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    stream = planner(startingOffsets=json.dumps({"t": {"0": 7, "1": -1}}))
    assert stream.initial() == {T0: 7, T1: 10}
    broker.logs["t", 1].end_offset = 20
    assert stream.latest({T0: 7, T1: 10}) == {T0: 100, T1: 10}
    assert stream.latest({T0: 100, T1: 10}) == {T0: 100, T1: 20}


def test_a_query_begins_at_a_timestamp(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    batches = [
        bytes(encode_batch([NewRecord(None, b"v", at)], base_offset=place))
        for place, at in enumerate((100, 200, 300))
    ]
    broker.logs = {("t", 0): FakeLog(batches), ("t", 1): FakeLog(batches[:1])}
    with pytest.raises(
        OptionError, match="startingTimestamp: no record has this time or a later one in t-1"
    ):
        planner(startingTimestamp="150").initial()
    stream = planner(startingTimestamp="150", startingOffsetsByTimestampStrategy="latest")
    assert stream.initial() == {T0: 1, T1: 1}
    broker.logs["t", 1].batches = batches[:2]
    assert stream.latest({T0: 1, T1: 1}) == {T0: 3, T1: 1}, (
        "t-1 had no record at that time, so the first batch keeps its offset"
    )


# --- limits


def test_offsets_of_a_batch_are_shared_out(planner: Callable[..., StreamPlanner]) -> None:
    stream = planner(startingOffsets="earliest")
    seen = [stream.initial()]
    while (end := stream.latest(seen[-1], max_offsets=22)) != seen[-1]:
        seen.append(end)
    assert seen[1] == {T0: 20, T1: 2}
    assert seen[-1] == {T0: 100, T1: 10}
    assert len(seen) == 6


def test_a_batch_waits_for_enough_offsets_but_not_for_ever(
    broker: FakeBroker, clock: Clock, planner: Callable[..., StreamPlanner]
) -> None:
    stream = planner(startingOffsets="earliest", maxTriggerDelay="15m")
    start = stream.latest(stream.initial(), min_offsets=1000)
    assert start == {T0: 100, T1: 10}, "the first batch does not wait"
    broker.logs["t", 0].end_offset = 109
    assert stream.latest(start, min_offsets=10) == start
    broker.logs["t", 0].end_offset = 110
    assert stream.latest(start, min_offsets=10, max_offsets=5) == {T0: 105, T1: 10}
    start = stream.latest(start)
    broker.logs["t", 0].end_offset = 111
    clock.now += 899
    assert stream.latest(start, min_offsets=10) == start
    clock.now += 1
    assert stream.latest(start, min_offsets=10) == {T0: 111, T1: 10}


def test_the_second_batch_of_a_query_that_begins_at_the_end_waits_for_enough_offsets(
    broker: FakeBroker, clock: Clock, planner: Callable[..., StreamPlanner]
) -> None:
    """The delay starts with the query's first batch, which is empty."""
    stream = planner(startingOffsets="latest", maxTriggerDelay="15m")
    start = stream.latest(stream.initial(), min_offsets=10)
    assert start == {T0: 100, T1: 10}
    broker.logs["t", 0].end_offset = 101
    assert stream.latest(start, min_offsets=10) == start
    clock.now += 900
    assert stream.latest(start, min_offsets=10) == {T0: 101, T1: 10}


def test_available_now_reads_what_was_there_and_all_of_it(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    stream = planner(startingOffsets="earliest")
    stream.freeze()
    broker.logs["t", 0].end_offset = 500
    broker.logs["t", 2] = FakeLog(end_offset=5)
    assert stream.latest(stream.initial(), max_offsets=55) == {T0: 50, T1: 5}
    assert stream.latest({T0: 99, T1: 10}, min_offsets=1000) == {T0: 100, T1: 10}, (
        "a minimum of offsets would never be reached"
    )
    assert stream.latest({T0: 100, T1: 10}) == {T0: 100, T1: 10}


def test_available_now_from_the_end(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    """Records that arrive between the first two calls of Spark are neither read nor reported as
    lost.
    """
    stream = planner()
    stream.freeze()
    broker.logs["t", 0].end_offset = 500
    assert stream.initial() == {T0: 100, T1: 10}
    assert stream.latest(stream.initial()) == stream.latest(stream.initial()) == {T0: 100, T1: 10}


def test_available_now_beside_a_broker_that_does_not_know_a_topic_yet(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    broker.logs["u", 0] = hidden = FakeLog(end_offset=7)
    stream = planner(subscribe="t,u")
    del broker.logs["u", 0]
    stream.freeze()
    broker.logs["u", 0] = hidden
    assert stream.latest({T0: 90, T1: 10, U0: 5}) == {T0: 100, T1: 10, U0: 7}


# --- the cost of an idle trigger


def test_an_idle_trigger_is_one_request(
    broker: FakeBroker, clock: Clock, planner: Callable[..., StreamPlanner]
) -> None:
    stream = planner(startingOffsets="earliest", kafka__metadata__max__age__ms="5000")
    start = stream.latest(stream.initial())
    broker.requests.clear()
    for _ in range(5):
        assert stream.latest(start) == start
    assert (asked(broker, ListOffsetsRequest), len(broker.requests)) == (5, 5)
    clock.now += 1  # the ends behind open transactions are requested once a second
    for _ in range(5):
        assert stream.latest(start) == start
    assert (asked(broker, ListOffsetsRequest), len(broker.requests)) == (11, 11)
    clock.now += 5
    stream.latest(start)
    stream.latest(start)
    assert asked(broker, MetadataRequest) == 1


def test_a_broker_that_comes_back_is_asked_again(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    stream = planner(startingOffsets="earliest")
    start = stream.latest(stream.initial())
    failures = [FakeBroker.HANG_UP, Code.NOT_LEADER_OR_FOLLOWER, FakeBroker.HANG_UP]
    broker.disturb = lambda request: (
        failures.pop() if failures and isinstance(request, ListOffsetsRequest) else None
    )
    assert stream.latest(start) == start
    assert not failures


def test_a_broker_that_stays_away_is_told(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    stream = planner(startingOffsets="earliest", kafka__default__api__timeout__ms="30")
    start = stream.latest(stream.initial())
    broker.disturb = lambda request: FakeBroker.HANG_UP
    with pytest.raises(ClientError, match="the connection was closed"):
        stream.latest(start)


# --- new and deleted partitions


def test_new_partitions_and_topics_begin_at_their_beginning(
    broker: FakeBroker, clock: Clock, planner: Callable[..., StreamPlanner]
) -> None:
    stream = planner(subscribePattern="[tu]")
    start = stream.latest(stream.initial())
    broker.logs["t", 2] = FakeLog(end_offset=5)
    broker.logs["u", 0] = FakeLog(end_offset=6)
    broker.logs["v", 0] = FakeLog(end_offset=7)
    assert stream.latest(start) == start, "new partitions are looked up only after an interval"
    clock.now += 30
    end = stream.latest(start)
    assert end == start | {TopicPartition("t", 2): 5, U0: 6}
    assert stream.ranges(start, end) == [OffsetRange("t", 2, 0, 5), OffsetRange("u", 0, 0, 6)]


def test_a_new_partition_that_lost_its_beginning(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, planner: Callable[..., StreamPlanner]
) -> None:
    start = {T0: 100}
    broker.logs["t", 1].start_offset = 4
    with pytest.raises(
        DataLossError,
        match=r"t-1 is new and begins at offset 4, not at 0: records were deleted.*failOnDataLoss",
    ):
        planner().latest(start)
    assert planner(failOnDataLoss="false").latest(start, max_offsets=3) == {T0: 100, T1: 7}
    assert "t-1 [0, 4) is not read" in caplog.text


@pytest.mark.parametrize(
    "subscription",
    [{"subscribe": "t,u"}, {"subscribePattern": "[tu]"}, {"assign": '{"t": [0, 1], "u": [0]}'}],
)
def test_partitions_that_are_gone(
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    planner: Callable[..., StreamPlanner],
    subscription: dict[str, str],
) -> None:
    start = {T0: 100, T1: 10, U0: 7}
    with pytest.raises(
        DataLossError,
        match=(
            r"u-0 does not exist, and was read up to offset 7: records were deleted"
            r".*failOnDataLoss"
        ),
    ):
        planner(**subscription).latest(start)
    stream = planner(**subscription, failOnDataLoss="false")
    assert stream.latest(start) == {T0: 100, T1: 10}
    assert "u-0 does not exist" in caplog.text
    assert ("topic 'u' does not exist" in caplog.text) is (subscription == {"subscribe": "t,u"})
    assert stream.ranges(start, {T0: 100, T1: 10}) == []


@pytest.mark.parametrize(
    "subscription", [{}, {"subscribePattern": "t"}, {"assign": '{"t": [0, 1]}'}]
)
def test_topics_that_are_not_asked_for_any_more(
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    planner: Callable[..., StreamPlanner],
    subscription: dict[str, str],
) -> None:
    """The records of these topics are not lost. However, a query that omits a topic by mistake
    would skip its records.
    """
    broker.logs["u", 0] = FakeLog(end_offset=9)
    start = {T0: 100, T1: 10, U0: 7}
    option = next(iter(subscription), "subscribe")
    with pytest.raises(
        DataLossError,
        match=(
            rf"u-0 was read up to offset 7, and the option {option} leaves it "
            rf"out.*failOnDataLoss"
        ),
    ):
        planner(**subscription).latest(start)
    assert planner(**subscription, failOnDataLoss="false").latest(start) == {T0: 100, T1: 10}
    assert f"the option {option} leaves it out" in caplog.text


def test_a_batch_is_planned_again_after_its_topic_was_deleted(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, planner: Callable[..., StreamPlanner]
) -> None:
    """The checkpoint keeps the offsets of the batch. A query with failOnDataLoss=false must be able
    to continue after this batch.
    """
    start, end = {T0: 10, T1: 2, U0: 3}, {T0: 20, T1: 10, U0: 7}
    with pytest.raises(
        DataLossError,
        match=(
            r"u-0 does not exist, and \[3, 7\) of it is in a batch that is repeated: "
            r".*failOnDataLoss"
        ),
    ):
        planner(subscribe="t,u").ranges(start, end)
    stream = planner(subscribe="t,u", failOnDataLoss="false")
    assert stream.ranges(start, end) == [OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 2, 10)]
    assert "u-0 does not exist" in caplog.text
    del broker.logs["t", 1]
    assert planner(failOnDataLoss="false").ranges(start, end) == [OffsetRange("t", 0, 10, 20)], (
        "one partition less"
    )


def test_a_topic_that_vanishes_under_the_query_is_noticed_at_once(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    broker.logs["u", 0] = FakeLog(end_offset=7)
    stream = planner(subscribe="t,u", startingOffsets="earliest")
    start = stream.latest(stream.initial())
    del broker.logs["u", 0]
    with pytest.raises(DataLossError, match="u-0 does not exist"):
        stream.latest(start)


def test_a_topic_that_a_broker_does_not_know_yet_is_not_gone(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, planner: Callable[..., StreamPlanner]
) -> None:
    monkeypatch.setattr("barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 5000)
    hidden = {key: broker.logs.pop(key) for key in [("t", 0), ("t", 1)]}

    def disturb(request: Any) -> None:
        if isinstance(request, MetadataRequest) and asked(broker, MetadataRequest) == 4:
            broker.logs.update(hidden)

    broker.disturb = disturb
    assert planner().latest({T0: 100, T1: 10}) == {T0: 100, T1: 10}


def test_logs_that_end_before_the_query_stands(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, planner: Callable[..., StreamPlanner]
) -> None:
    start = {T0: 120, T1: 10}
    with pytest.raises(
        DataLossError,
        match=(
            r"the log of t-0 ends at 100, before the query's offset 120: "
            r".*failOnDataLoss"
        ),
    ):
        planner().latest(start)
    stream = planner(failOnDataLoss="false")
    assert stream.latest(start) == {T0: 100, T1: 10}
    assert "t-0 ends at 100" in caplog.text
    assert stream.ranges(start, {T0: 100, T1: 10}) == []


def test_a_query_beyond_an_open_transaction_stands_still(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, planner: Callable[..., StreamPlanner]
) -> None:
    """After a power loss of a broker, the last stable offset may be lower than before, although no
    data is lost.
    """
    broker.logs["t", 0].stable_offset = 60
    stream = planner()
    assert stream.latest({T0: 80, T1: 5}) == {T0: 80, T1: 10}
    assert "t-0: the query is at offset 80, and from 60 on a transaction is open" in caplog.text
    broker.logs["t", 0].stable_offset = None
    assert stream.latest({T0: 80, T1: 10}) == {T0: 100, T1: 10}


def test_records_behind_an_open_transaction_are_reported_and_named(
    broker: FakeBroker,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    planner: Callable[..., StreamPlanner],
) -> None:
    broker.logs["t", 0].stable_offset = 60
    stream = planner(startingOffsets="earliest")
    end = stream.latest(stream.initial())
    assert end == {T0: 60, T1: 10} and stream.newest == {T0: 100, T1: 10}
    clock.now += 9
    stream.latest(end)
    assert "a transaction has been open" not in caplog.text
    for _ in range(3):
        clock.now += 1
        broker.logs["t", 0].end_offset += 1
        stream.latest(end)
    said = [each for each in caplog.messages if "a transaction has been open" in each]
    assert len(said) == 1 and "t-0: the query waits at offset 60" in said[0]
    assert "for 10 s and more; 41 offsets are behind it" in said[0]
    assert stream.newest == {T0: 103, T1: 10}
    broker.logs["t", 0].stable_offset = None
    assert stream.latest(end) == {T0: 103, T1: 10} == stream.newest


def test_available_now_reports_what_an_open_transaction_holds_back(
    broker: FakeBroker, clock: Clock, planner: Callable[..., StreamPlanner]
) -> None:
    broker.logs["t", 0].stable_offset = 60
    stream = planner(startingOffsets="earliest")
    stream.freeze()
    clock.now += 5
    broker.logs["t", 1].end_offset = 500  # after the start of this run
    assert stream.latest(stream.initial()) == {T0: 60, T1: 10}
    assert stream.newest == {T0: 100, T1: 10}


def test_available_now_from_an_offset_that_does_not_exist(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, planner: Callable[..., StreamPlanner]
) -> None:
    """It is a data loss, as for a batch read. An offset behind an open transaction does exist."""
    beyond = {"startingOffsets": '{"t": {"0": 120, "1": 0}}'}
    stream = planner(**beyond)
    stream.freeze()
    says = "the log of t-0 ends at 100, before startingOffsets, 120: .*failOnDataLoss"
    with pytest.raises(DataLossError, match=says):
        stream.initial()
    stream = planner(**beyond, failOnDataLoss="false")
    stream.freeze()
    assert stream.initial() == {T0: 100, T1: 0} and "before startingOffsets, 120" in caplog.text
    broker.logs["t", 0].stable_offset = 60
    stream = planner(startingOffsets='{"t": {"0": 80, "1": 0}}')
    stream.freeze()
    assert stream.initial() == {T0: 80, T1: 0}
    assert stream.latest(stream.initial()) == {T0: 80, T1: 10}


def test_read_uncommitted_goes_to_the_high_watermark(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    broker.logs["t", 0].stable_offset = 60
    stream = planner(kafka__isolation__level="read_uncommitted", startingOffsets="earliest")
    assert stream.latest(stream.initial()) == {T0: 100, T1: 10}
    assert stream.ranges({T0: 0, T1: 0}, {T0: 100, T1: 10})[0].end_offset == 100


# --- ranges


def test_ranges_are_the_same_for_the_same_offsets(planner: Callable[..., StreamPlanner]) -> None:
    start: Offsets = {T1: 3, T0: 10}
    end: Offsets = {T1: 10, T0: 100}
    options = {"minPartitions": "5", "maxRecordsPerPartition": "40"}
    one = planner(**options).ranges(start, end)
    other = planner(**options).ranges(dict(reversed(start.items())), dict(reversed(end.items())))
    assert one == other
    assert sum(each.size for each in one) == 97
    assert len(one) == 5


def test_what_was_not_used_travels(planner: Callable[..., StreamPlanner]) -> None:
    stream = StreamPlanner(planner(startingOffsets="earliest")._options)
    copy = pickle.loads(pickle.dumps(stream))
    assert copy.initial() == {T0: 0, T1: 0}
    copy.close()


# --- open transactions


def test_a_replay_waits_for_a_transaction_that_is_open_again(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    log = broker.logs["t", 0]
    log.stable_offset = 60
    looks: list[int] = []

    def disturb(request: Any) -> None:
        if isinstance(request, ListOffsetsRequest) and request.isolation_level:
            looks.append(1)
            if len(looks) == 2:
                log.stable_offset = None

    broker.disturb = disturb
    assert planner().ranges({T0: 0, T1: 0}, {T0: 80, T1: 10}) == [
        OffsetRange("t", 0, 0, 80),
        OffsetRange("t", 1, 0, 10),
    ]
    assert len(looks) == 2


def test_or_ends_there(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, planner: Callable[..., StreamPlanner]
) -> None:
    broker.logs["t", 0].stable_offset = 60
    stream = planner(onOpenTransaction="end")
    assert stream.ranges({T0: 0, T1: 0}, {T0: 80, T1: 10}) == [
        OffsetRange("t", 0, 0, 60),
        OffsetRange("t", 1, 0, 10),
    ]
    assert "t-0: offsets [60, 80) are not read: a transaction is open from 60 on" in caplog.text
    assert "data loss" not in caplog.text.lower()


def batch_plan(broker: FakeBroker, **given: str) -> list[OffsetRange]:
    parsed = parse_source_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t", **given}
    )
    with ClusterReader(parsed.client) as client:
        return plan(client, parsed)


def test_a_batch_read_up_to_given_offsets_beyond_an_open_transaction(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.logs["t", 0].stable_offset = 60
    beyond = {"endingOffsets": json.dumps({"t": {"0": 80, "1": 10}})}
    assert batch_plan(broker, **beyond, onOpenTransaction="end")[0] == OffsetRange("t", 0, 0, 60)
    with pytest.raises(OpenTransactionError, match="t-0 is to be read up to offset 80"):
        batch_plan(broker, **beyond, openTransactionTimeout="0")
    assert batch_plan(broker)[0] == OffsetRange("t", 0, 0, 60), "`latest` is the last stable offset"
    assert batch_plan(broker, **beyond, **{"kafka.isolation.level": "read_uncommitted"})[
        0
    ] == OffsetRange("t", 0, 0, 80)
    before = {"endingOffsets": json.dumps({"t": {"0": 60, "1": -1}})}
    assert batch_plan(broker, **before)[0] == OffsetRange("t", 0, 0, 60)
    caplog.clear()
    too_far = {"endingOffsets": json.dumps({"t": {"0": 60, "1": 11}})}
    assert batch_plan(broker, **too_far)[1] == OffsetRange("t", 1, 0, 11)
    assert not caplog.text, "an end beyond the log is not reported as an open transaction"


def test_a_log_that_grows_between_two_questions_has_no_open_transaction(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    def grow(request: Any) -> None:
        if isinstance(request, ListOffsetsRequest) and not request.isolation_level:
            broker.logs["t", 0].end_offset = 105

    broker.disturb = grow
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": "t",
        "onOpenTransaction": "end",
    }
    parsed = parse_source_options(options | {"endingOffsets": '{"t": {"0": 110, "1": 10}}'})
    with ClusterReader(parsed.client) as client:
        assert [each.end_offset for each in plan(client, parsed)] == [110, 10], (
            "the task reports an end beyond the log"
        )


def test_a_batch_read_up_to_a_timestamp_beyond_an_open_transaction(broker: FakeBroker) -> None:
    batches = [
        bytes(encode_batch([NewRecord(None, b"v", at)], base_offset=place))
        for place, at in enumerate((100, 200, 300))
    ]
    broker.logs = {("t", 0): FakeLog(batches, stable_offset=1)}
    with pytest.raises(
        OpenTransactionError, match="t-0 is to be read up to offset 2, and from 1 on"
    ):
        batch_plan(broker, endingTimestamp="300", openTransactionTimeout="0")
    assert batch_plan(broker, endingTimestamp="200") == [OffsetRange("t", 0, 0, 1)]
    assert batch_plan(broker, endingTimestamp="400") == [OffsetRange("t", 0, 0, 1)], (
        "no record has this time or a later one, so the end is `latest`"
    )
    assert batch_plan(broker, endingTimestamp="300", onOpenTransaction="end") == [
        OffsetRange("t", 0, 0, 1)
    ]


def test_a_task_that_meets_an_open_transaction_waits_or_ends(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [
        bytes(encode_batch([NewRecord(None, b"%d" % place, 1)], base_offset=place))
        for place in range(4)
    ]
    log = FakeLog(batches, stable_offset=2)
    broker.logs = {("t", 0): log}

    def read(end: int, policy: OpenTransactions) -> list[bytes]:
        options = parse_source_options(
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        ).client
        with ClusterReader(options) as client:
            wanted = OffsetRange("t", 0, 0, end)
            parts = read_range(
                client,
                wanted,
                ["value"],
                read_committed=True,
                fail_on_data_loss=True,
                open_transactions=policy,
            )
            return [value for part in parts for value in part.column("value").to_pylist()]

    assert read(4, OpenTransactions(wait=False)) == [b"0", b"1"]
    with pytest.raises(OpenTransactionError):
        read(4, OpenTransactions(timeout_ms=0))
    seen: list[int] = []

    def disturb(request: Any) -> None:
        seen.append(isinstance(request, FetchRequest))
        if sum(seen) == 3:
            log.stable_offset = None

    broker.disturb = disturb
    caplog.clear()
    assert read(4, OpenTransactions()) == [b"0", b"1", b"2", b"3"]
    assert "waiting for the end of an open transaction" in caplog.text
    log.stable_offset = 2
    seen.clear()
    with pytest.raises(DataLossError, match="ends at 4, before the end of the range"):
        read(9, OpenTransactions())


# --- topics that were deleted and made again

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
FIRST_ID, SECOND_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.fixture
def recreated_topics(broker: FakeBroker) -> FakeBroker:
    """A broker whose topic was recreated. The new log is longer than the old one ever was."""
    broker.topic_ids["t"] = SECOND
    return broker


def test_ids_stand_beside_offsets_where_spark_s_own_source_sees_nothing() -> None:
    """Topic ids are stored in the offsets' JSON as additional topics without partitions, which
    Spark's own source ignores.
    """
    offsets = {T0: 23, T1: 7, U0: 1}
    text = offsets_as_json(offsets, {"t": FIRST_ID, "other": SECOND_ID})
    assert text == {"t": {"0": 23, "1": 7}, "u": {"0": 1}, f"t#{FIRST_ID}": {}}
    assert offsets_of_json(text) == offsets and topic_ids_of_json(text) == {"t": FIRST_ID}
    # Spark's source decodes a Map[String, Map[Int, Long]] and flattens it.
    assert {
        (topic, int(part)): offset
        for topic, parts in text.items()
        for part, offset in parts.items()
    } == offsets
    assert topic_ids_of_json({"t": {"0": 23}}) == {}


def test_the_id_comes_with_the_offsets(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    broker.topic_ids["t"] = FIRST
    plans = planner(startingOffsets="earliest")
    plans.initial()
    assert plans.topic_ids == {"t": FIRST_ID}
    assert plans.latest({T0: 0, T1: 0}, topic_ids={"t": FIRST_ID}) == {T0: 100, T1: 10}


def test_a_topic_that_was_made_again_is_a_loss(
    recreated_topics: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    says = (
        r"topic 't' was deleted and recreated, since it has another id: the query's offsets belong "
        r"to the former \(t-0 at 40, t-1 at 0\)"
    )
    with pytest.raises(DataLossError, match=says):
        planner().latest({T0: 40, T1: 0}, topic_ids={"t": FIRST_ID})


def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    recreated_topics: FakeBroker,
    planner: Callable[..., StreamPlanner],
    caplog: pytest.LogCaptureFixture,
) -> None:
    plans = planner(failOnDataLoss="false")
    end = plans.latest({T0: 40, T1: 10}, topic_ids={"t": FIRST_ID}, max_offsets=50)
    assert end == {T0: 0, T1: 0} and plans.topic_ids == {"t": SECOND_ID}
    assert plans.ranges({T0: 40, T1: 10}, end, topic_ids=plans.topic_ids) == []
    assert plans.latest(end, topic_ids=plans.topic_ids) == {T0: 100, T1: 10}
    assert "topic 't' is read from its beginning" in caplog.text


def test_a_topic_that_is_made_again_under_a_query_whose_checkpoint_has_no_ids(
    recreated_topics: FakeBroker, planner: Callable[..., StreamPlanner], clock: Clock
) -> None:
    """The checkpoint was written by Spark's own source."""
    recreated_topics.topic_ids["t"] = FIRST
    plans = planner()
    assert plans.latest({T0: 40, T1: 10}) == {T0: 100, T1: 10}
    recreated_topics.topic_ids["t"] = SECOND
    clock.now += 31
    with pytest.raises(DataLossError, match="was deleted and recreated"):
        plans.latest({T0: 100, T1: 10})


def test_a_topic_that_is_made_again_between_two_triggers(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    """No request fails, the log is longer than before, and not every trigger lists the topics."""
    broker.topic_ids["t"] = FIRST
    stream = planner(startingOffsets="earliest")
    end = stream.latest(stream.initial(), topic_ids={"t": FIRST_ID})
    broker.logs["t", 0] = FakeLog(end_offset=130)
    broker.topic_ids["t"] = SECOND
    with pytest.raises(
        DataLossError,
        match=r"recreated.*the query's offsets belong to the former \(t-0 at 100, t-1 at 10\)",
    ):
        stream.latest(end, topic_ids={"t": FIRST_ID})


def test_a_topic_that_is_made_again_before_its_range_is_read(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.logs["t", 0] = FakeLog(
        [bytes(encode_batch([NewRecord(None, b"new", 1)], base_offset=0))]
    )
    broker.topic_ids["t"] = SECOND
    options = parse_source_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}, streaming=True
    )

    def read(topic_id: str, *, fail: bool = True) -> int:
        with ClusterReader(options.client) as client:
            parts = read_range(
                client,
                OffsetRange("t", 0, 0, 1),
                ["value"],
                read_committed=True,
                fail_on_data_loss=fail,
                topic_id=topic_id,
            )
            return sum(part.num_rows for part in parts)

    with pytest.raises(
        DataLossError, match=r"topic 't' was deleted and recreated.*in the range \[0, 1\)"
    ):
        read(FIRST_ID)
    assert read(FIRST_ID, fail=False) == 0 and "offsets [0, 1) of t-0 are not read" in caplog.text
    assert read(SECOND_ID) == read("") == 1


@pytest.mark.parametrize("topic_ids", [{}, {"t": SECOND_ID}, {"u": FIRST_ID}])
def test_offsets_without_an_id_and_of_the_same_mean_what_they_say(
    recreated_topics: FakeBroker, planner: Callable[..., StreamPlanner], topic_ids: dict[str, str]
) -> None:
    assert planner().latest({T0: 40, T1: 10}, topic_ids=topic_ids) == {T0: 100, T1: 10}


def test_a_broker_that_tells_no_ids_changes_nothing(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    assert planner().latest({T0: 40, T1: 10}, topic_ids={"t": FIRST_ID}) == {T0: 100, T1: 10}


def test_a_topic_of_which_nothing_was_read_may_be_made_again(
    recreated_topics: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    assert planner().latest({T0: 0, T1: 0}, topic_ids={"t": FIRST_ID}) == {T0: 100, T1: 10}


def test_a_broker_that_lags_behind_is_asked_again(
    broker: FakeBroker, planner: Callable[..., StreamPlanner]
) -> None:
    """The query's offsets have the id of a recreated topic, which the broker does not know yet. The
    planner requests the metadata again until it has this id.
    """
    broker.topic_ids["t"] = FIRST
    looks = 0

    def disturb(request: Any) -> None:
        nonlocal looks
        looks += isinstance(request, MetadataRequest)
        if looks == 3:
            broker.topic_ids["t"] = SECOND

    broker.disturb = disturb
    assert planner().latest({T0: 40, T1: 10}, topic_ids={"t": SECOND_ID}) == {T0: 100, T1: 10}
    assert looks >= 3


def test_a_batch_that_is_run_again_after_its_topic_was_made_again(
    recreated_topics: FakeBroker,
    planner: Callable[..., StreamPlanner],
    caplog: pytest.LogCaptureFixture,
) -> None:
    start, end = {T0: 40, T1: 10}, {T0: 60, T1: 10}
    with pytest.raises(
        DataLossError,
        match=r"recreated.*and a repeated batch has offsets of the former",
    ):
        planner().ranges(start, end, topic_ids={"t": FIRST_ID})
    assert planner(failOnDataLoss="false").ranges(start, end, topic_ids={"t": FIRST_ID}) == []
    assert "t-0 [40, 60) is not read" in caplog.text
    assert (
        planner().ranges(start, end, topic_ids={"t": SECOND_ID})
        == planner().ranges(start, end)
        == [OffsetRange("t", 0, 40, 60)]
    )
