"""Drivers, tasks, workers and brokers are killed at exact points of a streaming query, and each
input record is still in the output exactly once.

The points during the publishing of a batch are frames on the wire. Before a proxy forwards such a
frame, it runs the test's action, which needs no support in the sink. Starting a driver takes most
of the time here, so one checkpoint goes through all failures in sequence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from helpers.kafka_proxy import (
    CUT,
    END_TXN,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    PASS,
    PRODUCE,
    Action,
    Frame,
    KafkaProxy,
    broker_behind_proxy,
)
from helpers.spark_driver import Query
from helpers.spark_queries import Driver, Proof, topics_with_input

from barnabas import LocalBroker
from barnabas.spark_connector.session import MissingRequirementError, prepare

BATCHES, RECORDS_PER_BATCH = 8, 300
# The requests are small, so that a batch takes several. The timeouts are long because the machine
# may be busy. Every batch uses spool files.
SINK = {
    "kafka.batch.size": "1024",
    "kafka.max.request.size": "1024",
    "kafka.request.timeout.ms": "600000",
    "kafka.delivery.timeout.ms": "900000",
    "kafka.transaction.timeout.ms": "900000",
    "inlineBytes": "0",
}


@pytest.fixture(autouse=True, scope="module")
def _java() -> None:
    try:
        prepare()
    except MissingRequirementError as error:
        pytest.skip(str(error))


@pytest.fixture
def behind() -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    with broker_behind_proxy() as pair:
        yield pair


def on_batch(
    proxy: KafkaProxy,
    number: int,
    api_key: int,
    act: Callable[[], Action],
    *,
    response: bool = False,
    nth: int = 0,
) -> None:
    """Call `act` at one frame of a driver's batch: the `nth` frame of its kind after the driver has
    published `number` batches. (The first batch of a query counts twice, since it is announced
    first.)
    """
    lock = threading.Lock()
    published = frames = 0

    def count(_: Frame) -> Action:
        nonlocal published
        with lock:
            published += 1
        return PASS

    def hook(_: Frame) -> Action:
        nonlocal frames
        with lock:
            if published != number:
                return PASS
            frames += 1
            if frames != nth + 1:
                return PASS
        return act()

    on = proxy.on_response if response else proxy.on_request
    on(api_key, hook)
    proxy.on_response(END_TXN, count)


def killed_at(
    proxy: KafkaProxy,
    query: Query,
    number: int,
    api_key: int,
    *,
    response: bool = False,
    nth: int = 0,
) -> None:
    """Run a driver that is killed at a certain request of a batch; the request is not forwarded."""
    with Driver(query) as driver:

        def kill() -> Action:
            driver.kill()
            return CUT

        on_batch(proxy, number, api_key, kill, response=response, nth=nth)
        assert driver.wait() == -9, driver.said()
    proxy.clear()


@pytest.mark.long
def test_each_input_once_through_crashes_at_every_step(
    behind: tuple[LocalBroker, KafkaProxy], tmp_path: Path
) -> None:
    broker, proxy = behind
    source, sink, written = topics_with_input(
        proxy.bootstrap_servers, records=BATCHES * RECORDS_PER_BATCH
    )
    query = Query(
        proxy.bootstrap_servers,
        source,
        sink,
        str(tmp_path / "checkpoint"),
        records_per_batch=RECORDS_PER_BATCH,
        options=SINK,
    )
    with Proof(proxy.bootstrap_servers, sink, written) as proof:
        # Batch 1: the tasks are done, but nothing is published.
        killed_at(proxy, query, 2, INIT_PRODUCER_ID)
        with Driver(query) as zombie:
            # Batch 2: the driver is stopped while it publishes. Its successor publishes that batch,
            # and in the middle of batch 3 the stopped driver, now a zombie, wakes up.
            stopped_in_mid_publish(proxy, zombie, 1)
            wakes_in_the_batch_of_its_successor(proxy, zombie, 1)
            # Batch 4: all records are sent, but EndTxn is not.
            killed_at(proxy, query, 2, END_TXN)
            assert zombie.wait() == 1, zombie.said()
            assert "was committed by an earlier attempt" in zombie.said(), zombie.said()
            assert "CONCURRENT_STREAM_LOG_UPDATE" in zombie.said(), zombie.said()
        # From batch 4 on, a single driver survives a killed broker, a failing task, and a killed
        # worker.
        faults = [{"batch": 5, "task": 0, "does": "raise"}, {"batch": 6, "task": 1, "does": "die"}]
        last_query = replace(query, faults=faults, master="local[2,4]")
        on_batch(proxy, 0, PRODUCE, lambda: restarted(broker), nth=1)
        with Driver(last_query) as last:
            assert last.wait() == 0, last.said()
            assert "failed on purpose" in last.said(), last.said()
        assert proof.aborted() > 0, "no attempt was aborted: nothing was proved"
        assert not proof.findings()
    assert not list((tmp_path / "checkpoint" / "barnabas-spool").rglob("*.batches*"))


def stopped_in_mid_publish(proxy: KafkaProxy, driver: Driver, number: int) -> None:
    """Freeze a driver after the second Produce of a batch has been forwarded."""
    stopped = threading.Event()

    def freeze() -> Action:
        driver.freeze()
        stopped.set()
        return PASS

    on_batch(proxy, number, PRODUCE, freeze, nth=1)
    assert stopped.wait(600), driver.said()
    proxy.clear()


def wakes_in_the_batch_of_its_successor(proxy: KafkaProxy, zombie: Driver, number: int) -> None:
    """Wake the zombie at the second Produce of a batch, and hold this request back until the zombie
    has taken over the transactional id and looked for its own batch.
    """
    looked = threading.Event()

    def wake() -> Action:
        proxy.on_response(OFFSET_FETCH, lambda frame: looked.set())
        zombie.thaw()
        looked.wait(500)  # not checked here, since the zombie's output is checked when it has ended
        return PASS

    on_batch(proxy, number, PRODUCE, wake, nth=1)


def restarted(broker: LocalBroker) -> Action:
    broker.kill()
    broker.restart()
    return CUT


@pytest.mark.long
def test_a_plan_whose_rows_go_elsewhere_when_it_runs_again(
    behind: tuple[LocalBroker, KafkaProxy], tmp_path: Path
) -> None:
    """The driver is killed before it learns that a batch is committed. The next driver computes
    different rows for this batch, and must publish none of them.
    """
    _, proxy = behind
    source, sink, written = topics_with_input(proxy.bootstrap_servers, records=1200)
    query = Query(
        proxy.bootstrap_servers,
        source,
        sink,
        str(tmp_path / "checkpoint"),
        records_per_batch=300,
        shuffled=True,
        options=SINK,
    )
    with Proof(proxy.bootstrap_servers, sink, written, ordered=False) as proof:
        # batch 1 is committed, but no driver knows it
        killed_at(proxy, query, 2, END_TXN, response=True)
        with Driver(query) as last:
            assert last.wait() == 0, last.said()
            assert "batch 1 of query proof" in last.said(), last.said()
            assert "was committed by an earlier attempt" in last.said(), last.said()
        assert not proof.findings()
