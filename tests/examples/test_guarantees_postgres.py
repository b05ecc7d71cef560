"""Writing to PostgreSQL: kills of the server and of the broker during a transaction, two concurrent
writers, repeated upserts.

Kills of the writer are tested in test_guarantees_crash.py.
"""

from __future__ import annotations

import argparse
import os
import stat
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import idempotent_upsert
import into_postgres
import psycopg
import pytest
from guarantee_tools import FENCED, SteppedProcess, an_order, make_topic, publish
from into_postgres import invoices_in
from postgres_process import PostgresProcess
from postgres_worker import make_tables

from barnabas import LocalBroker

pytestmark = pytest.mark.deep

ORDERS = 200
PATIENCE_S = 300.0  # long enough for a busy machine
ALL_ONCE = Counter(range(ORDERS))


@pytest.fixture
def with_orders(servers: str, name: str) -> str:
    """A topic named after the test. It has the orders, and as many other records in an aborted
    transaction.
    """
    fill(servers, name)
    return name


def fill(servers: str, topic: str) -> None:
    """Commit the orders to a new topic. Then write as many further orders in a transaction, and
    abort it.
    """
    make_topic(servers, topic)
    publish(servers, topic, map(an_order, range(ORDERS)), transactional_id=topic)
    publish(
        servers,
        topic,
        map(an_order, range(ORDERS, 2 * ORDERS)),
        transactional_id=topic,
        commit=False,
    )


def writer(servers: str, dsn: str, topic: str, *more: str) -> SteppedProcess:
    """A process that writes the topic's orders to PostgreSQL step by step."""
    arguments = [
        "--bootstrap-servers",
        servers,
        "--postgres",
        dsn,
        "--input",
        topic,
        "--group",
        topic,
        "--batch-size",
        "20",
        *more,
    ]
    return SteppedProcess("into_postgres.py", arguments)


@pytest.mark.parametrize("step", ["rows inserted", "offsets moved", "stored"])
def test_each_order_is_stored_once_though_the_database_is_killed_at_a_step(
    servers: str, postgres: PostgresProcess, dsn: str, with_orders: str, step: str
) -> None:
    # contract: article/offsets-with-rows
    with writer(servers, dsn, with_orders) as living:
        living.run_until(step, 3)
        stored = invoices_in(dsn).total()
        batches = 3 if step == "stored" else 2
        # A batch may be smaller than 20 orders if the records arrive slowly, but has at least one.
        assert batches <= stored <= 20 * batches
        postgres.kill()
        postgres.restart()
        assert invoices_in(dsn).total() == stored
        assert living.finish() == 0, living.output
        assert "1 failures of the database" in "".join(living.output)
        assert invoices_in(dsn) == ALL_ONCE


@pytest.mark.parametrize("end", [LocalBroker.kill, LocalBroker.stop])
def test_each_order_is_stored_once_though_the_broker_ends_within_a_transaction(
    tmp_path: Path, dsn: str, end: Callable[[LocalBroker], object]
) -> None:
    with LocalBroker(tmp_path) as broker:
        fill(broker.bootstrap_servers, "orders")
        with writer(broker.bootstrap_servers, dsn, "orders") as living:
            living.run_until("rows inserted", 3)
            end(broker)
            broker.restart()
            assert living.finish() == 0, living.output
    assert invoices_in(dsn) == ALL_ONCE


def test_a_batch_is_refused_if_another_writer_has_moved_the_offsets(
    servers: str, dsn: str, with_orders: str
) -> None:
    """Each writer has its own group, and is therefore assigned all partitions. Only the offsets in
    the database prevent duplicate rows.
    """
    with writer(servers, dsn, with_orders, "--group", f"{with_orders}-1") as first:
        first.run_until("rows inserted", 2)
        with writer(servers, dsn, with_orders, "--group", f"{with_orders}-2") as second:
            assert second.finish() == 0, second.output
        assert invoices_in(dsn) == ALL_ONCE
        assert first.finish() == 0, first.output
        assert "1 batches refused" in "".join(first.output)
    assert invoices_in(dsn) == ALL_ONCE


def test_two_writers_at_once_store_everything_once(
    servers: str, dsn: str, with_orders: str
) -> None:
    """The writers alternate, and a batch is refused if the other writer has already stored it."""
    with writer(servers, dsn, with_orders, "--group", f"{with_orders}-1") as first:
        first.run_until("stored")
        with writer(servers, dsn, with_orders, "--group", f"{with_orders}-2") as second:
            second.run_until("stored")
            first.go()
            first.run_until("stored")
            second.go()
            assert first.finish() == 0, first.output
            assert second.finish() == 0, second.output
    assert invoices_in(dsn) == ALL_ONCE


@pytest.mark.parametrize("script", ["into_postgres.py", "idempotent_upsert.py"])
def test_a_writer_ends_when_another_process_joins_with_its_member_name(
    servers: str, dsn: str, with_orders: str, script: str
) -> None:
    arguments = [
        "--bootstrap-servers",
        servers,
        "--postgres",
        dsn,
        "--input",
        with_orders,
        "--group",
        with_orders,
        "--member",
        "one",
    ]
    with SteppedProcess(script, [*arguments, "--forever"]) as first:
        first.run_until("stored")
        with SteppedProcess(script, arguments) as second:
            second.run_until("stored")
            first.go()
            assert first.finish() == FENCED, "".join(first.output)
            assert "another process has taken the place of one" in first.output[-1]
            assert second.finish() == 0, second.output


@pytest.mark.parametrize("tables", [into_postgres.TABLES, idempotent_upsert.TABLE])
def test_two_writers_can_create_the_tables_at_the_same_time(dsn: str, tables: str) -> None:
    with (
        psycopg.connect(dsn) as first,
        psycopg.connect(dsn, autocommit=True) as second,
        ThreadPoolExecutor(1) as beside,
    ):
        first.execute("SELECT")  # This begins a transaction, which stays open.
        make_tables(first, tables)
        made = beside.submit(make_tables, second, tables)
        wait_until_it_waits(dsn, second.info.backend_pid)
        first.commit()
        made.result(PATIENCE_S)


def wait_until_it_waits(dsn: str, backend: int) -> None:
    """Wait until the session waits for a lock of another session."""
    deadline = time.monotonic() + PATIENCE_S
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not connection.execute("SELECT pg_blocking_pids(%s) <> '{}'", (backend,)).fetchone()[
            0
        ]:
            assert time.monotonic() < deadline, "the second did not have to wait"
            time.sleep(0.01)


def test_postgres_keeps_its_directory_to_itself(postgres: PostgresProcess) -> None:
    assert stat.S_IMODE(os.stat(postgres.directory).st_mode) == 0o700


# --- upserts


def upserted(
    servers: str, dsn: str, topic: str, records: list[tuple[bytes, bytes]]
) -> idempotent_upsert.Applied:
    """Publish the records and apply them. Return how many were changed and how many were
    ignored.
    """
    publish(servers, topic, records)
    options = argparse.Namespace(
        input=topic, group=topic, member="writer", batch_size=30, forever=False, step_by_step=False
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        make_tables(connection, idempotent_upsert.TABLE)
        return idempotent_upsert.run(servers, connection, options)


@pytest.mark.parametrize("seed", [1, 2])
def test_upserts_have_the_last_version_in_spite_of_duplicates_and_disorder(
    servers: str, dsn: str, name: str, seed: int
) -> None:
    # contract: article/upsert
    make_topic(servers, name)
    versions = [an_order(number, version) for number in range(20) for version in range(1, 6)]
    versions += [idempotent_upsert.a_deletion(number, 6) for number in range(0, 20, 4)]
    records = idempotent_upsert.disordered(versions, seed)
    applied = upserted(servers, dsn, name, records)
    assert applied.changed + applied.ignored == len(records)
    assert applied.ignored >= len(records) - len(versions), (
        "a repeated record has changed something"
    )
    # The total is pieces * price_cents, see `an_order`.
    expected = {
        number: (5, (number % 7 + 1) * (100 + number)) for number in range(20) if number % 4
    }
    assert idempotent_upsert.rows_in(dsn) == expected
    assert upserted(servers, dsn, name, records).changed == 0
    assert idempotent_upsert.rows_in(dsn) == expected
