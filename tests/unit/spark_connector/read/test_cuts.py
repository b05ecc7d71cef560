"""Reads of whole transactions, planned with a server that has prepared cuts: what is asked for,
where reads begin and end, and what is refused in which words.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import FakeBroker, FakeLog

from barnabas.client.cluster_reader import ClusterReader
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.read.offsets import (
    OffsetRange,
    offsets_as_json,
    offsets_of_json,
    topic_ids_of_json,
)
from barnabas.spark_connector.read.options import CutOptions, OptionError, parse_source_options
from barnabas.spark_connector.read.planning import plan
from barnabas.spark_connector.read.whole_stream_planning import WholeStreamPlanner
from barnabas.spark_connector.source import SCHEMA, StreamReader

A0, B0, B1 = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("b", 1)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker whose last stable offsets are 100, 40 and 60, with recorded cuts before them."""
    logs = {
        ("a", 0): FakeLog(end_offset=150, stable_offset=100),
        ("b", 0): FakeLog(end_offset=40),
        ("b", 1): FakeLog(end_offset=60),
    }
    cuts: dict[int, dict[tuple[str, int], int | None]] = {
        1000: {("a", 0): 10, ("b", 0): 0, ("b", 1): 5},
        2000: {("a", 0): 20, ("b", 0): 10, ("b", 1): 20},
        3000: {("a", 0): 90, ("b", 0): 30, ("b", 1): 50},
    }
    with FakeBroker(logs, whole_topics={"a", "b"}, cuts=cuts) as running:
        yield running


def options(broker: FakeBroker, **given: str) -> dict[str, str]:
    base = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.retry.backoff.ms": "5",
        "subscribe": "a,b",
        "wholeTransactions": "true",
    }
    return base | given


def planned(broker: FakeBroker, **given: str) -> list[OffsetRange]:
    parsed = parse_source_options(options(broker, **given))
    with ClusterReader(parsed.client) as client:
        return plan(client, parsed)


@pytest.fixture
def planner(broker: FakeBroker) -> Iterator[Callable[..., WholeStreamPlanner]]:
    made: list[WholeStreamPlanner] = []

    def make(**given: str) -> WholeStreamPlanner:
        parsed = parse_source_options(options(broker, **given), streaming=True)
        made.append(WholeStreamPlanner(parsed))
        return made[-1]

    yield make
    for each in made:
        each.close()


# --- options


def parse(**given: str) -> CutOptions | None:
    base = {"kafka.bootstrap.servers": "one:1", "subscribe": "a"}
    return parse_source_options(base | given).cuts


def test_the_options_of_whole_transactions() -> None:
    assert parse() is None and parse(wholeTransactions="false") is None
    assert parse(wholeTransactions="true") == CutOptions()
    noon = round(datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp() * 1000)
    assert parse(asOf="2026-11-29T12:00:00Z") == CutOptions(None, noon, "asOf")
    assert parse(endingCut="2026-11-29 13:00:00+01:00") == CutOptions(None, noon)
    assert parse(startingCut=str(noon), asOf=str(noon)) == CutOptions(noon, noon, "asOf")
    today = datetime.now().replace(hour=12, minute=0, second=0, microsecond=0)
    assert parse(asOf="12:00") == CutOptions(None, round(today.timestamp() * 1000), "asOf")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"asOf": "yesterday"}, "option asOf='yesterday': give a time like 2026-"),
        ({"asOf": "5", "wholeTransactions": "false"}, "asOf needs wholeTransactions=true"),
        ({"asOf": "5", "endingCut": "5"}, "mean the same"),
        ({"asOf": "5", "startingCut": "6"}, "startingCut is later than asOf"),
        ({"kafka.isolation.level": "read_uncommitted"}, "leave out kafka.isolation.level"),
        ({"startingOffsets": '{"a": {"0": 5}}'}, "give the time of a cut, as startingCut"),
        ({"endingOffsets": '{"a": {"0": 5}}'}, "give the time of a cut, as endingCut"),
        ({"endingTimestamp": "5"}, "endingTimestamp gives times of records"),
        ({"onOpenTransaction": "end"}, "onOpenTransaction=end ends a range within"),
        ({"startingOffsets": "earliest", "startingCut": "5"}, "are given together"),
    ],
)
def test_what_is_no_cut_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse(**{"wholeTransactions": "true", **given})


def test_a_stream_has_no_ending_cut(broker: FakeBroker) -> None:
    for name in ("asOf", "endingCut"):
        with pytest.raises(OptionError, match=f"{name} is for batch reads"):
            parse_source_options(options(broker, **{name: "5"}), streaming=True)


# --- batch reads


def test_a_batch_read_ends_at_the_present_cut_by_one_request(broker: FakeBroker) -> None:
    assert planned(broker) == [
        OffsetRange("a", 0, 0, 100),
        OffsetRange("b", 0, 0, 40),
        OffsetRange("b", 1, 0, 60),
    ]
    ends = [
        request
        for request in broker.requests
        if isinstance(request, ListOffsetsRequest)
        and request.topics[0].partitions[0].timestamp == -1
    ]
    assert len(ends) == 1 and ends[0].isolation_level == 1
    assert not any(isinstance(request, DescribeConfigsRequest) for request in broker.requests)


def test_a_read_as_of_a_time_ends_at_the_last_cut_before_it(broker: FakeBroker) -> None:
    for option in ("asOf", "endingCut"):
        assert planned(broker, **{option: "2999"}) == [
            OffsetRange("a", 0, 0, 20),
            OffsetRange("b", 0, 0, 10),
            OffsetRange("b", 1, 0, 20),
        ]


def test_a_read_between_two_cuts(broker: FakeBroker) -> None:
    assert planned(broker, startingCut="1000", endingCut="2000") == [
        OffsetRange("a", 0, 10, 20),
        OffsetRange("b", 0, 0, 10),
        OffsetRange("b", 1, 5, 20),
    ]


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("999", r"no cut of 1970-01-01 00:00:00.999.*the oldest recorded one is of 1970-01-01 00:"),
        ("200000000000000", "is to come by this machine's clock"),
    ],
)
def test_a_time_without_a_cut_is_refused(broker: FakeBroker, time: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        planned(broker, asOf=time)


def test_a_cut_before_a_topic_had_the_setting_is_refused(broker: FakeBroker) -> None:
    broker.cuts[2000]["b", 0] = None
    with pytest.raises(OptionError, match=r"asOf: the cut of 1970.* does not have 'b'"):
        planned(broker, asOf="2500")


def test_a_topic_without_the_setting_is_refused(broker: FakeBroker) -> None:
    broker.whole_topics = {"a"}
    with pytest.raises(OptionError, match=r"is not true for 'b'.*topic b barnabas.trans.*=true"):
        planned(broker)
    broker.cuts.clear()
    with pytest.raises(OptionError, match="is not true for 'b'"):
        planned(broker)
    broker.disturb = lambda request: (
        Code.TOPIC_AUTHORIZATION_FAILED if isinstance(request, DescribeConfigsRequest) else None
    )
    with pytest.raises(OptionError, match="at least one of the topics a, b does not have"):
        planned(broker)


def test_another_broker_is_refused_with_the_reason(broker: FakeBroker) -> None:
    broker.whole_topics = None
    with pytest.raises(OptionError, match=r"has no topic setting .* Only Barnabas keeps the ends"):
        planned(broker)


def test_without_a_recorded_cut_the_present_one_is_read(broker: FakeBroker) -> None:
    broker.cuts.clear()
    assert [each.end_offset for each in planned(broker)] == [100, 40, 60]
    with pytest.raises(OptionError, match=r"no cut is recorded yet .*cut\.interval\.ms"):
        planned(broker, asOf="5000")


def test_many_partitions_are_read_up_to_a_cut_although_the_answer_has_parts(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing changes between two answers, they are a cut; otherwise a recorded one is used."""
    monkeypatch.setattr("barnabas.spark_connector.read.cuts.MOST_IN_ONE_ANSWER", 2)
    assert [each.end_offset for each in planned(broker)] == [100, 40, 60]

    def grow(_: Any) -> None:
        broker.logs["b", 0].end_offset = (broker.logs["b", 0].end_offset or 0) + 1

    broker.disturb = grow
    assert [each.end_offset for each in planned(broker)] == [90, 30, 50]


# --- streams


def test_a_limited_batch_ends_at_the_last_recorded_cut_within_its_limit(
    planner: Callable[..., WholeStreamPlanner], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    stream = planner(startingOffsets="earliest")
    ends = [stream.initial()]
    while (end := stream.latest(ends[-1], max_offsets=55)) != ends[-1]:
        ends.append(end)
    assert ends == [
        {A0: 0, B0: 0, B1: 0},
        {A0: 20, B0: 10, B1: 20},  # 50 offsets; the first cut alone would be 15
        {A0: 90, B0: 30, B1: 50},  # 120: no cut is nearer
        {A0: 100, B0: 40, B1: 60},  # the present one
    ]
    (said,) = [record.getMessage() for record in caplog.records if "maxOffsets" in record.message]
    assert "has 120 offsets, more than maxOffsetsPerTrigger=55: no cut is recorded" in said


def test_a_run_over_a_backlog_ends_at_the_cut_of_its_start(
    broker: FakeBroker, planner: Callable[..., WholeStreamPlanner]
) -> None:
    stream = planner(startingOffsets="earliest")
    stream.freeze()
    broker.logs["b", 0].end_offset = 400
    broker.cuts[4000] = {("a", 0): 100, ("b", 0): 400, ("b", 1): 60}
    ends = [stream.initial()]
    while (end := stream.latest(ends[-1], max_offsets=100)) != ends[-1]:
        ends.append(end)
    assert ends[1:] == [
        {A0: 20, B0: 10, B1: 20},
        {A0: 90, B0: 30, B1: 50},
        {A0: 100, B0: 40, B1: 60},
    ]


@pytest.mark.parametrize("given", [{"startingOffsets": "latest"}, {"startingCut": "2000"}])
def test_a_start_that_is_chosen_now_is_the_end_of_an_empty_first_batch(
    broker: FakeBroker, planner: Callable[..., WholeStreamPlanner], given: dict[str, str]
) -> None:
    stream = planner(**given)
    start = stream.initial()
    broker.logs["b", 0].end_offset = 41
    broker.logs["b", 2] = FakeLog(end_offset=7)  # both by one transaction
    assert stream.latest(start) == start
    assert stream.latest(start) == {A0: 100, B0: 41, B1: 60, TopicPartition("b", 2): 7}


def test_a_partition_that_is_added_between_two_requests_belongs_to_the_batch(
    broker: FakeBroker, planner: Callable[..., WholeStreamPlanner]
) -> None:
    """A transaction with records in an old and in a new partition is in one batch, although the
    planner has asked for the partitions a moment before.
    """
    stream = planner(startingOffsets="earliest")
    at = stream.latest(stream.initial())
    broker.logs["b", 0].end_offset = 45
    broker.logs["b", 2] = FakeLog(end_offset=3)
    assert stream.latest(at) == {A0: 100, B0: 45, B1: 60, TopicPartition("b", 2): 3}


def test_a_topic_of_the_pattern_without_the_setting_ends_the_query(
    broker: FakeBroker, planner: Callable[..., WholeStreamPlanner]
) -> None:
    broker.logs["c", 0] = FakeLog(end_offset=0)
    broker.whole_topics = {"a", "b", "c"}
    given = options(broker) | {"subscribePattern": "."}
    del given["subscribe"]
    stream = WholeStreamPlanner(parse_source_options(given, streaming=True))
    at = stream.latest(stream.initial())
    broker.whole_topics = {"a", "b"}
    assert stream.latest(at) == at, "nothing is new"
    broker.logs["b", 0].end_offset = 41
    with pytest.raises(OptionError, match="is not true for 'c'"):
        stream.latest(at)
    stream.close()


def test_the_other_partitions_wait_where_a_topic_was_created_again(
    broker: FakeBroker, planner: Callable[..., WholeStreamPlanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 20)
    broker.topic_ids = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2)}
    stream = planner(startingOffsets="earliest", failOnDataLoss="false")
    at = stream.latest(stream.initial())
    broker.topic_ids["b"] = uuid.UUID(int=3)
    broker.logs |= {("b", 0): FakeLog(end_offset=70), ("b", 1): FakeLog(end_offset=80)}
    broker.logs["a", 0].stable_offset = 110
    end = stream.latest(at)
    assert end == {A0: 100, B0: 0, B1: 0}
    assert stream.latest(end) == {A0: 110, B0: 70, B1: 80}


# --- checkpoints


def test_offsets_in_a_checkpoint_say_that_they_are_a_cut(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    as_json = offsets_as_json({A0: 5}, {"a": "id"}, is_cut=True)
    assert list(as_json) == ["a", "a#id", "#cut"]
    assert offsets_of_json(as_json) == {A0: 5} and topic_ids_of_json(as_json) == {"a": "id"}
    caplog.set_level(logging.WARNING)
    given = options(broker, startingOffsets="earliest")
    reader = StreamReader(parse_source_options(given, streaming=True), SCHEMA)
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(json.loads(json.dumps(reader.initialOffset())), limit)
    assert "#cut" in end and reader.latestOffset(end, limit) is end
    assert not caplog.records
    of_before = {"a": {"0": 50}, "b": {"0": 20, "1": 30}}
    for _ in range(2):
        assert "#cut" in reader.latestOffset(of_before, limit)
    assert [record.getMessage() for record in caplog.records if "halves" in record.message] == [
        "barnabas: the query's checkpoint is of a time without wholeTransactions: its next batch "
        "may begin with the second halves of transactions whose first halves were read before; "
        "those after it have whole transactions"
    ]
    reader.stop()
