"""Cuts of whole transactions in the past: `barnabas topics cuts`, `barnabas consume --as-of`,
`LocalBroker.cut`, and what stock clients get for the timestamps of `protocol/cut_times.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import PATIENCE_S, producer
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from barnabas.admin import AdminError
from barnabas.local_broker import LocalBroker
from barnabas.protocol.cut_times import AT_OR_AFTER, AT_OR_BEFORE
from barnabas.protocol.errors import Code

pytestmark = pytest.mark.e2e

WHOLE = {"partitions": 1, "barnabas.transactions.whole": "true"}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker that records cuts often; the topic `plain` is without the setting."""
    settings = {"barnabas.transactions.whole.cut.interval.ms": 20}
    topics = {"orders": WHOLE, "payments": WHOLE, "plain": 1}
    with LocalBroker(settings=settings, topics=topics) as running:
        yield running


@pytest.fixture(scope="module")
def times(broker: LocalBroker) -> list[int]:
    """Commit three transactions over both topics; the last one is seen with the next. Gives: a time
    after the cut of each.
    """
    writer = producer(broker.bootstrap_servers, transactional_id="writer")
    writer.init_transactions(PATIENCE_S)
    found = []
    for number in range(3):
        writer.begin_transaction()
        writer.produce("orders", b"order %d" % number)
        writer.produce("payments", b"payment %d" % number)
        writer.commit_transaction(PATIENCE_S)
        ends = broker.cut("orders", "payments")
        assert ends == {"orders": [2 * number + 2], "payments": [2 * number + 2]}
        deadline = time.monotonic() + PATIENCE_S
        while broker.cut("orders", "payments", at_ms=round(time.time() * 1000)) != ends:
            assert time.monotonic() < deadline, "no cut was recorded"
        found.append(round(time.time() * 1000))
    return found


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: LocalBroker
) -> CommandLine:
    return CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)


def test_cuts_are_listed_and_read(barnabas: CommandLine, times: list[int]) -> None:
    listed = barnabas.ok("topics", "cuts", "--json").data
    assert [{row["offset"] for row in cut["partitions"]} for cut in listed] == [{6}, {4}, {2}]
    assert "orders" in barnabas.ok("topics", "cuts", "orders", "payments", "--count", "1").out
    as_of = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(times[1] / 1000))
    as_of += f".{times[1] % 1000:03}"
    read = barnabas.ok("consume", "--as-of", as_of, "orders", "payments")
    assert sorted(read.out.split("\n")[:-1]) == ["order 0", "order 1", "payment 0", "payment 1"]
    assert "as of" in read.err
    exact = barnabas.ok("consume", "--as-of", listed[2]["time"], "orders")
    assert exact.out == "order 0\n"


def test_what_cannot_be_read_is_said(barnabas: CommandLine, times: list[int]) -> None:
    for arguments, code, text in (
        (("consume", "--as-of", "1d", "orders"), 1, "no cut is recorded up to"),
        (("consume", "--as-of", "0s", "orders", "plain"), 1, "of 'plain', which does not have"),
        (("consume", "--as-of", "latest", "orders"), 2, "takes a time"),
        (("consume", "--as-of", "0s", "--follow", "orders"), 2, "leave out --to and --follow"),
        (("topics", "cuts", "plain"), 1, "barnabas.transactions.whole=true"),
    ):
        run = barnabas(*arguments)
        assert (run.code, text in run.err) == (code, True), run


def test_internal_topics_are_in_no_cut_whatever_the_default_is(barnabas: CommandLine) -> None:
    settings = {"barnabas.transactions.whole": "true"}
    with LocalBroker(settings=settings, topics=["orders"]) as broker:
        barnabas.use(broker.bootstrap_servers)
        writer = producer(broker.bootstrap_servers, transactional_id="writer")
        writer.init_transactions(PATIENCE_S)  # makes an internal topic
        listed = barnabas("topics", "cuts")
        assert listed.code == 0 and "no cut is recorded" in listed.err, listed
        named = barnabas("topics", "cuts", "__transaction_state")
        assert named.code == 1 and "an internal topic" in named.err


def test_a_group_is_told_of_the_transaction_in_another_topic(
    broker: LocalBroker, barnabas: CommandLine
) -> None:
    for name in ("held", "holding"):
        barnabas.ok("topics", "create", name, "--config", "barnabas.transactions.whole=true")
    older = producer(broker.bootstrap_servers, transactional_id="older")
    older.init_transactions(PATIENCE_S)
    older.begin_transaction()
    older.produce("holding", b"open")
    older.flush(PATIENCE_S)
    writer = producer(broker.bootstrap_servers, transactional_id="whole")
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    writer.produce("holding", b"x")
    writer.produce("held", b"y")
    writer.commit_transaction(PATIENCE_S)
    barnabas.ok("groups", "reset-offsets", "kitchen", "-t", "held", "--to", "earliest", "--yes")
    (row,) = barnabas.ok("groups", "describe", "kitchen", "--json").data
    (part,) = row["partitions"]
    assert part["held_back_by"] == "older at 127.0.0.1" and part["held_back_at"] == "holding-0"
    words = barnabas.ok("groups", "describe", "kitchen").err
    assert "the open transaction of older at 127.0.0.1 on holding-0" in words
    older.abort_transaction(PATIENCE_S)


def test_a_local_broker_gives_cuts(broker: LocalBroker, times: list[int]) -> None:
    assert broker.cut("orders", at_ms=times[0]) == {"orders": [2]}
    assert broker.cut("orders", "payments", at_ms=1) == {"orders": [-1], "payments": [-1]}
    with pytest.raises(AdminError) as refused:
        broker.cut("plain", at_ms=times[0])
    assert refused.value.code == Code.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_stock_clients_find_cuts_by_their_look_up_of_times(
    broker: LocalBroker, times: list[int]
) -> None:
    topics = ("orders", "payments")
    servers = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "none"}
    consumer = Consumer(servers)
    found = consumer.offsets_for_times(
        [TopicPartition(topic, 0, AT_OR_BEFORE + times[1]) for topic in topics], PATIENCE_S
    )
    assert [(row.topic, row.offset) for row in found] == [(topic, 4) for topic in topics]
    consumer.close()
    reader = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    partitions, plain = [KafkaTopicPartition(t, 0) for t in topics], KafkaTopicPartition("plain", 0)
    after_ms, offsets = times[1], [4, 4]
    while offsets == [4, 4]:  # the same ends may be recorded again
        asked = dict.fromkeys(partitions, AT_OR_AFTER + after_ms)
        answer = reader.offsets_for_times({**asked, plain: AT_OR_BEFORE})
        offsets = [answer[key].offset for key in partitions]
        (time_ms,) = {answer[key].timestamp for key in partitions}
        assert time_ms >= after_ms
        after_ms = time_ms + 1
    assert offsets == [6, 6]
    assert answer[plain] is None
    reader.close()
