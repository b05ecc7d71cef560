"""Consuming, transforming and producing, with fencing, with abort and rewind, and with a killed
broker.

Kills of the worker are tested in test_guarantees_crash.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import consume_transform_produce
import pytest
from guarantee_tools import (
    FENCED,
    SteppedProcess,
    an_order,
    make_topic,
    orders_in,
    publish,
    read_committed,
)

from barnabas import LocalBroker

ORDERS = 200
SCRIPT = "consume_transform_produce.py"
INPUT = "orders-of-topic-tests"


@pytest.fixture(scope="module")
def with_orders(broker: LocalBroker) -> str:
    """A broker whose input topic has the orders, and as many records in an aborted transaction."""
    make_topic(broker.bootstrap_servers, INPUT)
    publish(broker.bootstrap_servers, INPUT, map(an_order, range(ORDERS)))
    aborted = map(an_order, range(ORDERS, 2 * ORDERS))
    publish(broker.bootstrap_servers, INPUT, aborted, transactional_id="shop", commit=False)
    return broker.bootstrap_servers


def worker(servers: str, name: str, *more: str) -> SteppedProcess:
    """A process that consumes the orders and writes invoices to the topic `name`, step by step."""
    return SteppedProcess(
        SCRIPT,
        [
            "--bootstrap-servers",
            servers,
            "--input",
            INPUT,
            "--output",
            name,
            "--group",
            name,
            "--batch-size",
            "20",
            *more,
        ],
    )


def invoices(servers: str, name: str) -> Counter[int]:
    return orders_in(read_committed(servers, name))


ALL_ONCE = Counter(range(ORDERS))
# A stopped worker with the settings IMPATIENT soon expires, and a running one does not. A worker
# with the settings PATIENT never expires, however slow the machine is.
IMPATIENT = ("--dynamic", "--session-timeout-ms", "3000", "--max-poll-interval-ms", "3000")
PATIENT = ("--dynamic", "--session-timeout-ms", "120000", "--max-poll-interval-ms", "300000")


def test_a_topic_that_does_not_exist_has_nothing(with_orders: str, name: str) -> None:
    assert read_committed(with_orders, name) == []


def test_without_a_crash_each_guarantee_writes_each_invoice_once(
    with_orders: str, name: str
) -> None:
    # contract: kip-129/committed-input
    for guarantee in consume_transform_produce.STEPS:
        with worker(with_orders, f"{name}-{guarantee}", "--guarantee", guarantee) as calm:
            assert calm.finish() == 0, calm.output
        assert invoices(with_orders, f"{name}-{guarantee}") == ALL_ONCE


@pytest.mark.parametrize("step", ["half produced", "offsets sent"])
def test_a_successor_with_the_same_name_fences_the_first(
    with_orders: str, name: str, step: str
) -> None:
    with worker(with_orders, name, "--member", "first") as first:
        first.run_until(step, 2)
        with worker(with_orders, name, "--member", "first") as second:
            assert second.finish() == 0, second.output
        assert first.finish() == FENCED, "".join(first.output)
        assert "taken the place" in first.output[-1]
    assert invoices(with_orders, name) == ALL_ONCE


def test_a_worker_whose_session_expired_aborts_and_rewinds(with_orders: str, name: str) -> None:
    # contract: kip-129/rewind, kip-447/expired-worker
    """Each worker has its own transactional id, so only the group's generation makes the broker
    refuse the first worker's offsets.
    """
    with worker(with_orders, name, "--member", "first", *IMPATIENT) as first:
        first.run_until("produced", 2)
        with worker(with_orders, name, "--member", "second", *PATIENT) as second:
            assert second.finish() == 0, second.output
        assert first.finish() == 0, first.output
        assert "1 transactions aborted" in first.output[-1]
    assert invoices(with_orders, name) == ALL_ONCE


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
def test_a_second_process_with_the_same_member_name_ends_the_first(
    with_orders: str, name: str, guarantee: str
) -> None:
    with worker(with_orders, name, "--guarantee", guarantee) as first:
        first.run_until("produced", 2)
        with worker(with_orders, name, "--guarantee", guarantee) as second:
            assert second.finish() == 0, second.output
        assert first.finish() == FENCED, "".join(first.output)
        assert "taken the place" in first.output[-1]
    # If the first worker's pending batch is not committed before the second worker takes over, the
    # batch is processed twice.
    doubled = invoices(with_orders, name).total() - ORDERS
    assert (
        0 < doubled <= 20 if guarantee == "at-least-once" else not doubled
    )  # one batch, which is smaller if records arrive slowly


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_worker_that_is_replaced_while_it_waits_for_records_ends(
    with_orders: str, name: str, guarantee: str
) -> None:
    """A worker without pending records learns that it was replaced when it polls for the next
    batch.
    """
    guarantees = (
        "--guarantee",
        guarantee,
        "--session-timeout-ms",
        "240000",
    )  # no worker may expire, however slow the machine is
    with worker(with_orders, name, *guarantees, "--forever") as first:
        first.run_until("committed")
        while invoices(with_orders, name) != ALL_ONCE:
            first.run_until("committed")
        with worker(with_orders, name, *guarantees) as second:
            first.go()
            assert second.finish() == 0, second.output
        assert first.finish() == FENCED, "".join(first.output)
        assert "taken the place" in first.output[-1]
    assert invoices(with_orders, name) == ALL_ONCE


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
def test_a_worker_that_lost_its_partitions_continues_without_their_records(
    with_orders: str, name: str, guarantee: str
) -> None:
    with worker(with_orders, name, *IMPATIENT, "--guarantee", guarantee) as first:
        first.run_until("half produced", 2)
        with worker(with_orders, name, *PATIENT, "--guarantee", guarantee) as second:
            assert second.finish() == 0, second.output
        assert first.finish() == 0, first.output
    assert set(invoices(with_orders, name)) == set(ALL_ONCE)
    doubled = invoices(with_orders, name).total() - ORDERS
    assert (
        0 < doubled <= 20 if guarantee == "at-least-once" else not doubled
    )  # one batch, which is smaller if records arrive slowly


@pytest.mark.parametrize("step", ["half produced", "offsets sent"])
def test_each_invoice_is_written_once_though_the_broker_is_killed_in_a_transaction(
    tmp_path: Path, name: str, step: str
) -> None:
    # contract: kip-129/broker-kill
    with LocalBroker(tmp_path) as broker:
        make_topic(broker.bootstrap_servers, INPUT)
        publish(broker.bootstrap_servers, INPUT, map(an_order, range(ORDERS)))
        with worker(broker.bootstrap_servers, name) as living:
            living.run_until(step, 3)
            broker.kill()
            broker.restart()
            assert living.finish() == 0, living.output
        assert invoices(broker.bootstrap_servers, name) == ALL_ONCE
