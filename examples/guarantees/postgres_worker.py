"""The common parts of the scripts that write into PostgreSQL: their options, and a broker and a
database for a script that is not given them.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import psycopg
from guarantee_tools import broker_at, make_topic
from postgres_process import postgres_at


class Setup(NamedTuple):
    """The options of a script, its broker and its database.

    Orders are read from the topic `options.input` and written to the database. orders: the number
    of orders to publish first.
    """

    options: argparse.Namespace
    servers: str
    dsn: str
    orders: int


def make_tables(connection: psycopg.Connection, statements: str) -> None:
    """Create the missing tables.

    Writers that start at the same time wait for each other at the lock. Without the lock, all but
    one of them would fail.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(1)")
        connection.execute(statements)


@contextlib.contextmanager
def place_for(
    arguments: Sequence[str] | None,
    about: str | None,
    *,
    group: str,
    alone: int,
    of: str = "orders",
) -> Iterator[Setup]:
    """Use the broker and the database on the command line. If one of them is not given, a new one
    is started, and runs until the end of the block.

    The topic is created unless it exists.

    Takes:  about, the text of --help; alone, the number of orders to publish if the script starts
            the broker; of, the noun in the help of --orders: what is published.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bootstrap-servers", help="host:port; without it a broker is started for the run"
    )
    parser.add_argument(
        "--postgres",
        metavar="DSN",
        help="of a database; without it a server is started for the run",
    )
    parser.add_argument("--input", default="orders", help="topic that is read (orders)")
    parser.add_argument(
        "--orders",
        type=int,
        help=f"publish so many {of} first ({alone} with a broker of its own, else 0)",
    )
    parser.add_argument("--group", default=group, help=f"consumer group ({group})")
    parser.add_argument(
        "--member",
        default="writer-1",
        help="this writer's name, the same after a restart (writer-1)",
    )
    parser.add_argument("--batch-size", type=int, default=20, help="records in a transaction (20)")
    parser.add_argument("--forever", action="store_true", help="go on at the end of the input")
    parser.add_argument(
        "--step-by-step", action="store_true", help="wait for a line on stdin at every step"
    )
    options = parser.parse_args(arguments)
    orders = (
        options.orders if options.orders is not None else 0 if options.bootstrap_servers else alone
    )
    with broker_at(options.bootstrap_servers) as servers, postgres_at(options.postgres) as dsn:
        make_topic(servers, options.input)
        yield Setup(options, servers, dsn, orders)
