"""Writes orders into PostgreSQL and into a topic, each into both or neither: two-phase commit
(KIP-939).

For each batch of orders there are two transactions, one of the database and one of the broker. Both
are prepared. Then the database commits its transaction, which is the decision, and after that the
broker's transaction is completed. After a crash the next process finds the prepared transactions,
and ends both in the same way.

It needs a broker with transaction.two.phase.commit.enable=true and a PostgreSQL with
max_prepared_transactions above 0. Without options it starts both itself; with --bootstrap-servers
and --postgres it uses yours.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import psycopg
from guarantee_tools import (
    FENCED,
    TIMEOUT_S,
    Steps,
    an_order,
    make_topic,
    orders_in,
    read_committed,
)
from postgres_process import postgres_at
from postgres_worker import make_tables

from barnabas import LocalBroker, TwoPhaseProducer
from barnabas.client.errors import ClientError
from barnabas.spark_connector.transactional_producer import FencedError

STEPS = ("sent", "broker prepared", "rows inserted", "database prepared", "decided", "completed")
# The format id of this script's prepared transactions, which distinguishes them from those of other
# programs.
FORMAT = 0x0B

TABLES = """
    CREATE TABLE IF NOT EXISTS orders (
        shop text NOT NULL, order_number bigint NOT NULL, cents bigint NOT NULL
    );
    CREATE TABLE IF NOT EXISTS two_phase (
        transactional_id text PRIMARY KEY,
        session bigint NOT NULL,  -- raised by each new process: earlier ones are refused
        state text NOT NULL       -- of the broker's transaction that was decided on last
    );
"""


class ReplacedError(Exception):
    """Another process now uses the transactional id."""


class Shop:
    """A shop that takes orders.

    It has a producer and a connection to the database, and ends the transactions that both have
    prepared.
    """

    def __init__(
        self, servers: str, dsn: str, topic: str, name: str, reached: Callable[[str], None]
    ) -> None:
        self._dsn, self._topic, self._name, self._reached = dsn, topic, name, reached
        self._producer = TwoPhaseProducer(servers, name)
        self._connection = self._connect()
        self._session = 0
        self.recoveries = 0
        make_tables(self._connection, TABLES)

    def _connect(self) -> psycopg.Connection:
        """Connect to the database, with a timeout for idle transactions.

        Without it, a process that hangs in a transaction would block its successor for ever.
        """
        connection = psycopg.connect(self._dsn)
        connection.execute("SET idle_in_transaction_session_timeout = '5s'")
        connection.commit()
        return connection

    def close(self) -> None:
        self._producer.close()
        self._connection.close()

    def run(self, orders: int, batch_size: int) -> None:
        """Take orders until their number is reached. Raises: ReplacedError."""
        taken = self.recover()
        while taken < orders:
            try:
                taken = self.take(range(taken, min(taken + batch_size, orders)))
            except (ClientError, psycopg.Error) as error:
                if isinstance(error, FencedError):
                    raise ReplacedError from error
                taken = self.recover()

    def take(self, numbers: range) -> int:
        """Take one batch.

        Both transactions are prepared. The commit of the database's transaction is the decision.
        Then the broker's transaction is completed.
        """
        producer, connection = self._producer, self._connection
        producer.begin()
        for number in numbers:
            key, value = an_order(number)
            producer.send(self._topic, value, key)
        self._reached("sent")
        state = producer.prepare()
        self._reached("broker prepared")
        connection.tpc_begin(connection.xid(FORMAT, self._name, state))
        with connection.cursor() as cursor:
            rows = [(self._name, number, 100 + number) for number in numbers]
            cursor.executemany("INSERT INTO orders VALUES (%s, %s, %s)", rows)
            cursor.execute(
                "UPDATE two_phase SET state = %s WHERE transactional_id = %s AND session = %s",
                (state, self._name, self._session),
            )
            if cursor.rowcount != 1:
                raise ReplacedError
        self._reached("rows inserted")
        connection.tpc_prepare()
        self._reached("database prepared")
        try:
            connection.tpc_commit()  # the decision
        except psycopg.errors.UndefinedObject as error:
            raise ReplacedError from error  # the next process has already decided
        self._reached("decided")
        producer.complete(state)
        self._reached("completed")
        return numbers.stop

    # --- after a crash

    def recover(self) -> int:
        """End the open transactions on both sides. Wait until both servers answer.

        Gives:  the number of orders that are stored.
        Raises: ReplacedError; ClientError or psycopg.Error if a server does not answer in time.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            self.recoveries += 1
            try:
                return self._recover()
            except FencedError as error:
                raise ReplacedError from error
            except (ClientError, psycopg.Error):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _recover(self) -> int:
        """End the transactions that an earlier process left open on both sides.

        The database's transactions are ended first. The state in the database then determines
        whether the broker's transaction is committed. Gives: the number of orders.
        """
        # This call comes first: after it, no other process can prepare a transaction at the broker.
        opened = self._producer.recover()
        self._connection.close()
        self._connection = connection = self._connect()
        while True:
            self._end_prepared(opened)
            if self._begin_session():
                break
        found = connection.execute(
            "SELECT state, (SELECT count(*) FROM orders WHERE shop = transactional_id) "
            "FROM two_phase WHERE transactional_id = %s",
            (self._name,),
        ).fetchone()
        connection.commit()
        assert found is not None, "the session has the row"
        self._producer.complete(found[0])
        return int(found[1])

    def _end_prepared(self, opened: str) -> None:
        """End the prepared transactions of the database.

        A transaction is committed if the broker has also prepared its part. Otherwise no process
        will ever commit the broker's part, so the transaction is rolled back.
        """
        for xid in self._connection.tpc_recover():
            if (xid.format_id, xid.gtrid) != (FORMAT, self._name):
                continue
            # UndefinedObject means that another process has ended the transaction.
            with contextlib.suppress(psycopg.errors.UndefinedObject):
                if opened and xid.bqual == opened:
                    self._connection.tpc_commit(xid)
                else:
                    self._connection.tpc_rollback(xid)

    def _begin_session(self) -> bool:
        """Fence the earlier process in the database.

        Gives:  False if that process has prepared another transaction in the meantime.
        """
        try:
            with self._connection.transaction():
                self._connection.execute("SET LOCAL lock_timeout = '500ms'")
                raised = self._connection.execute(
                    "INSERT INTO two_phase VALUES (%s, 1, '') ON CONFLICT (transactional_id) "
                    "DO UPDATE SET session = two_phase.session + 1 RETURNING session",
                    (self._name,),
                ).fetchone()
        except psycopg.errors.LockNotAvailable:
            return False
        assert raised is not None, "a row was inserted or changed"
        self._session = raised[0]
        return True


def orders_in_table(dsn: str, name: str) -> Counter[int]:
    """For each order of a shop, the number of its rows in the table."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "SELECT order_number, count(*) FROM orders WHERE shop = %s GROUP BY 1", (name,)
        )
        return Counter(dict(found.fetchall()))


def prepared_in(dsn: str, name: str) -> int:
    """The number of prepared transactions with that name in the database."""
    with psycopg.connect(dsn) as connection:
        return sum(xid.gtrid == name for xid in connection.tpc_recover())


@contextlib.contextmanager
def broker_at(servers: str | None) -> Iterator[str]:
    """Use the given broker, or run a broker until the end of the block."""
    if servers:
        yield servers
        return
    with LocalBroker(settings={"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap_servers


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example. Gives: the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap-servers", help="host:port; else a broker of its own")
    parser.add_argument("--postgres", metavar="DSN", help="else a server of its own")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--name", default="shop-1", help="the transactional id")
    parser.add_argument("--orders", type=int, default=100, help="how many there are to be (100)")
    parser.add_argument("--batch-size", type=int, default=10, help="orders in a transaction (10)")
    parser.add_argument("--step-by-step", action="store_true", help="wait for a line at each step")
    options = parser.parse_args(arguments)
    with broker_at(options.bootstrap_servers) as servers, postgres_at(options.postgres) as dsn:
        make_topic(servers, options.topic)
        steps = Steps(one_by_one=options.step_by_step)
        shop = Shop(servers, dsn, options.topic, options.name, steps.reach)
        try:
            shop.run(options.orders, options.batch_size)
        except ReplacedError:
            print(f"another process has taken the place of {options.name}", file=sys.stderr)
            return FENCED
        finally:
            shop.close()
        if not options.step_by_step:
            in_topic = orders_in(read_committed(servers, options.topic)).total()
            in_table = orders_in_table(dsn, options.name).total()
            print(f"{in_table} orders in the table, {in_topic} in the topic")
    return 0


if __name__ == "__main__":
    sys.exit(main())
