"""Tests two-phase commit: the process that writes, the broker and PostgreSQL are killed with
SIGKILL at each step of a transaction, in random order.

After each round every order has to be in the table and in the topic once, and no transaction may be
left open.

    python examples/guarantees/two_phase_crash.py --rounds 20
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from guarantee_tools import SteppedProcess, make_topic, orders_in, read_committed
from postgres_process import PostgresProcess
from two_phase_commit import STEPS, Shop, orders_in_table, prepared_in

from barnabas import LocalBroker

BATCH = 3


class Servers(NamedTuple):
    """The servers to kill.

    dsn: the connection string of a database of `postgres`, or of a schema in such a database.
    """

    broker: LocalBroker
    postgres: PostgresProcess
    dsn: str

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.restart()

    def kill_postgres(self) -> None:
        self.postgres.kill()
        self.postgres.restart()


class Outcome(NamedTuple):
    """The result of a round.

    hanging: the number of transactions left open on the broker or prepared in the database.
    """

    name: str
    kills: int
    orders: int
    in_table: Counter[int]
    in_topic: Counter[int]
    hanging: int

    @property
    def is_as_promised(self) -> bool:
        once = Counter(range(self.orders))
        return self.in_table == once and self.in_topic == once and not self.hanging

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.kills} kills, {self.orders} orders, {self.in_table.total()} in "
            f"the table, {self.in_topic.total()} in the topic, {self.hanging} hang"
            f"{'' if self.is_as_promised else ': WRONG'}"
        )


def outcome_of(servers: Servers, name: str, kills: int, orders: int) -> Outcome:
    """Read the final state of a shop."""
    opened = servers.broker.open_transactions()
    hanging = sum(transaction.transactional_id == name for transaction in opened)
    return Outcome(
        name,
        kills,
        orders,
        orders_in_table(servers.dsn, name),
        orders_in(read_committed(servers.broker.bootstrap_servers, name)),
        hanging + prepared_in(servers.dsn, name),
    )


def kill_the_writer(servers: Servers, name: str, steps: Sequence[str] = STEPS) -> Outcome:
    """Run several processes, each of which is killed at a step of its second transaction. A last
    process completes the work.

    Takes:  name, the topic and the transactional id.
    """
    orders = BATCH * (2 * len(steps) + 2)  # enough for two transactions of each process
    arguments = ["--bootstrap-servers", servers.broker.bootstrap_servers, "--postgres", servers.dsn]
    arguments += ["--topic", name, "--name", name]
    arguments += ["--orders", str(orders), "--batch-size", str(BATCH)]
    for step in steps:
        with SteppedProcess("two_phase_commit.py", arguments) as writer:
            writer.run_until(step, 2)
    with SteppedProcess("two_phase_commit.py", arguments) as writer:
        if writer.finish():
            raise RuntimeError("".join(writer.output))
    return outcome_of(servers, name, len(steps), orders)


def kill_a_server(
    servers: Servers, name: str, kill: Callable[[], None], steps: Sequence[str] = STEPS
) -> Outcome:
    """Run one writer, and kill a server each time the writer reaches the next step of the list."""
    waiting = list(steps)

    def reached(step: str) -> None:
        if waiting and step == waiting[0]:
            del waiting[0]
            kill()

    orders = BATCH * 3 * len(steps)
    shop = Shop(servers.broker.bootstrap_servers, servers.dsn, name, name, reached)
    try:
        shop.run(orders, BATCH)
    finally:
        shop.close()
    return outcome_of(servers, name, len(steps) - len(waiting), orders)


def a_round(servers: Servers, number: str, chance: random.Random) -> Iterator[Outcome]:
    """Kill the writer, the broker and PostgreSQL at each step, in random order."""
    kills = {"broker": servers.kill_broker, "postgres": servers.kill_postgres}
    for what in ("writer", *kills):
        name = f"{what}-{number}"
        make_topic(servers.broker.bootstrap_servers, name)
        steps = chance.sample(STEPS, len(STEPS))
        if what in kills:
            yield kill_a_server(servers, name, kills[what], steps)
        else:
            yield kill_the_writer(servers, name, steps)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds.

    Gives:  1 if an order is missing or duplicated, or a transaction is left open.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    with (
        LocalBroker(settings={"transaction.two.phase.commit.enable": "true"}) as broker,
        PostgresProcess({"fsync": "off"}) as postgres,
    ):
        servers = Servers(broker, postgres, postgres.dsn)
        for number in range(options.rounds):
            for outcome in a_round(servers, str(number), chance):
                print(outcome, flush=True)
                if not outcome.is_as_promised:
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
