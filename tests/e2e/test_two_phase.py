"""barnabas.TwoPhaseProducer against the real daemon: after a crash the next process ends the
prepared transaction as it was decided, whichever message was lost.

Source: KIP-939.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import committed_offset, create_topic, unique, values_of
from helpers.kafka_proxy import (
    CUT,
    END_TXN,
    INIT_PRODUCER_ID,
    KafkaProxy,
    broker_behind_proxy,
    once,
)
from helpers.kafka_proxy import PRODUCE as PRODUCE_REQUEST

from barnabas import LocalBroker, TwoPhaseProducer
from barnabas.client.connection import Connection
from barnabas.client.errors import ClientError
from barnabas.spark_connector.two_phase_producer import TwoPhaseError
from barnabas.spark_connector.write.transactional_producer import FencedError

ENABLED = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    with broker_behind_proxy(ENABLED) as running:
        yield running


@pytest.fixture
def proxy(pair: tuple[LocalBroker, KafkaProxy]) -> Iterator[KafkaProxy]:
    yield pair[1]
    pair[1].clear()


@pytest.fixture
def topic(pair: tuple[LocalBroker, KafkaProxy]) -> str:
    return create_topic(pair[0].bootstrap_servers, "two-phase", 3)


def new(proxy: KafkaProxy, name: str) -> TwoPhaseProducer:
    return TwoPhaseProducer(proxy.bootstrap_servers, name)


def committed(proxy: KafkaProxy, topic: str) -> list[bytes]:
    return sorted(value or b"" for value in values_of(proxy.bootstrap_servers, topic))


@pytest.mark.parametrize("version", [1, 2])
def test_prepared_transactions_are_committed_or_aborted_as_decided(
    proxy: KafkaProxy, topic: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several transactions are run in one session. They have offsets, and records sent by key, by
    partition and with neither.
    """
    if version == 1:
        monkeypatch.setattr(Connection, "level_of", lambda self, feature: 1)
    states = []
    with new(proxy, unique("txn")) as producer:
        assert producer.recover() == ""
        for number, commit in enumerate((True, False, True)):
            producer.begin()
            for row in range(3):
                value = b"%d-%d" % (number, row)
                producer.send(topic, value, b"key %d" % row, headers=[("a", b"b")])
            producer.send(topic, b"%d-x" % number, partition=2)
            producer.send(topic, b"%d-y" % number)
            producer.send_offsets("group of " + topic, {(topic, 0): number + 1})
            states.append(producer.prepare())
            assert producer.complete(states[-1] if commit else "") is commit
            assert producer.complete(states[-1]) is False, "nothing is open any more"
    rows = ["0", "1", "2", "x", "y"]
    assert committed(proxy, topic) == sorted(f"{n}-{r}".encode() for n in (0, 2) for r in rows)
    assert committed_offset(proxy.bootstrap_servers, "group of " + topic, topic) == 3
    assert len(set(states)) == 3, "a state is that of one transaction"


@pytest.mark.parametrize("is_decided", [True, False])
def test_the_next_producer_ends_the_prepared_transaction_after_a_crash(
    pair: tuple[LocalBroker, KafkaProxy], proxy: KafkaProxy, topic: str, is_decided: bool
) -> None:
    """The producer and the broker have both crashed."""
    name = unique("txn")
    with new(proxy, name) as first, new(proxy, name) as second:
        first.recover()
        first.begin()
        first.send(topic, b"a", b"key")
        state = first.prepare()
        pair[0].kill()
        pair[0].restart()
        assert second.recover() == state
        with pytest.raises(TwoPhaseError, match=r"an earlier transaction is open"):
            second.begin()
        with pytest.raises(FencedError, match="another producer"):
            first.commit()
        # The database has the decision either for `state` or only for another transaction.
        assert second.complete(state if is_decided else "9:9") is is_decided
        second.begin()
        second.send(topic, b"b")
        assert second.complete(second.prepare())
    assert committed(proxy, topic) == ([b"a", b"b"] if is_decided else [b"b"])


def test_an_end_whose_request_or_response_is_lost_is_repeated(
    proxy: KafkaProxy, topic: str
) -> None:
    with new(proxy, unique("txn")) as producer:
        proxy.on_response(INIT_PRODUCER_ID, once(CUT))
        producer.recover()
        for value in (b"a", b"b"):
            producer.begin()
            producer.send(topic, value)
            state = producer.prepare()
            proxy.on_response(END_TXN, once(CUT))
            proxy.on_request(END_TXN, once(CUT))
            assert producer.complete(state)
    assert committed(proxy, topic) == [b"a", b"b"]


def test_a_call_can_be_repeated_after_an_interrupt(
    proxy: KafkaProxy, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unread rest of the interrupted response must not be read as the next response."""
    read = Connection._read

    def interrupt(self: Connection, size: int) -> memoryview:
        monkeypatch.setattr(Connection, "_read", read)
        raise KeyboardInterrupt

    with new(proxy, unique("txn")) as producer:
        producer.recover()
        producer.begin()
        producer.send(topic, b"a")
        state = producer.prepare()
        monkeypatch.setattr(Connection, "_read", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.complete(state)
        assert producer.complete(state) is True
        producer.begin()
        producer.send(topic, b"b")
        monkeypatch.setattr(Connection, "_read", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.prepare()
        # It is unknown whether the interrupted Produce request reached the broker.
        producer.complete(producer.recover())
    assert committed(proxy, topic) in ([b"a"], [b"a", b"b"])


def test_a_transaction_that_was_not_prepared_can_only_be_aborted(
    proxy: KafkaProxy, topic: str
) -> None:
    with new(proxy, unique("txn")) as producer:
        with pytest.raises(TwoPhaseError, match="recover"):
            producer.begin()
        producer.recover()
        producer.begin()
        producer.send(topic, b"a")
        with pytest.raises(TwoPhaseError, match="a transaction is open"):
            producer.complete("1:1")
        proxy.on_response(PRODUCE_REQUEST, once(CUT))
        with pytest.raises(ClientError):
            producer.prepare()
        with pytest.raises(TwoPhaseError, match="abort"):
            producer.prepare()
        producer.abort()
        producer.begin()
        producer.send(topic, b"b")
        producer.prepare()
        producer.commit()
        with pytest.raises(ValueError, match="is not a state"):
            producer.complete("nonsense")
    assert committed(proxy, topic) == [b"b"]


def test_an_empty_transaction_has_no_state(proxy: KafkaProxy, topic: str) -> None:
    """After an empty transaction the next one has the same epoch. If the empty one had a state, the
    database would already have a decision for the next one.
    """
    with new(proxy, unique("txn")) as producer:
        producer.recover()
        producer.begin()
        assert producer.prepare() == ""
        assert producer.complete("") is False
        producer.begin()
        producer.send(topic, b"a")
        assert producer.complete(producer.prepare())
    assert committed(proxy, topic) == [b"a"]


def test_an_operator_ends_an_abandoned_prepared_transaction(
    proxy: KafkaProxy,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The operator commits or aborts the transaction as the other system decided, or aborts it
    without a decision. The command shows which transactions wait for which system.
    """
    barnabas = CommandLine(monkeypatch, capsys).use(proxy.bootstrap_servers)
    name = unique("abandoned")
    for value in (b"a", b"b"):
        with new(proxy, name) as producer:
            assert producer.recover() == ""
            producer.begin()
            producer.send(topic, value, partition=0)
            state = producer.prepare()
        (reported,) = barnabas.ok("txn", "describe", name, "--json").data
        assert f"{reported['producer_id']}:{reported['producer_epoch']}" == state
        assert "none: two-phase commit" in barnabas.ok("txn", "describe", name).out
        stuck = barnabas("txn", "why-stuck", f"{topic}-0")
        assert stuck.code == 3 and f"txn commit {name} --state {state}" in stuck.out
        other = barnabas("txn", "commit", name, "--state", "77:0", "--yes")
        assert other.code == 1 and f"the one of {state} is open" in other.err
        if value == b"a":
            assert barnabas.ok("txn", "commit", name, "--state", state, "--yes", "--json").data
        else:
            barnabas.ok("txn", "abort", "--transactional-id", name, "--yes")
        assert barnabas.ok("txn", "why-stuck", f"{topic}-0").code == 0
    assert committed(proxy, topic) == [b"a"]


def test_without_two_phase_commit_the_error_names_the_brokers_setting(servers: str) -> None:
    with (
        TwoPhaseProducer(servers, unique("txn")) as producer,
        pytest.raises(ClientError, match=r"transaction\.two\.phase\.commit\.enable=true"),
    ):
        producer.recover()
