"""What whole transactions cost (`python -m bench.bank [--transfers 2000] [--turns 5]`).

The bank of examples/bank, without troubles: producers transfer money between accounts in three
topics, each transfer a transaction of two records; then an auditor reads all of it. Two brokers do
the same work in turns, one with `barnabas.transactions.whole=true` on the topics and one without.
In the second half another producer's transaction is open all the time, so that with the setting
everything after it is held back.

The broker's CPU is the stable figure: the lowest of the turns, since other load can only add to it.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas import LocalBroker
from bench.common import threads_cpu_seconds

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "bank"))

from accounts import TOTAL, add, create_topics, open_accounts
from auditors import by_client
from teller import new_producer, transfer

PRODUCERS = 8


@dataclass
class Bank:
    """A broker with the bank's topics, and its producers.

    figures: by piece of work, the microseconds of the broker's CPU in each turn.
    """

    whole: bool
    broker: LocalBroker
    producers: list[Any] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def open(self) -> None:
        """Create topics and accounts, and begin the producers' sessions."""
        servers = self.broker.bootstrap_servers
        create_topics(servers, whole=self.whole)
        open_accounts(servers)
        self.producers = [new_producer(servers, str(number)) for number in range(PRODUCERS)]

    def measure(self, work: str, count: int, do: Callable[[], None]) -> None:
        """Note the broker's CPU for one of `count` equal pieces of work."""
        began = threads_cpu_seconds(self.broker.pid)
        do()
        used = threads_cpu_seconds(self.broker.pid) - began
        self.figures.setdefault(work, []).append(1e6 * used / count)

    def transfer(self, count: int, chance: random.Random) -> None:
        """Transfer money, one transaction after the other."""
        for number in range(count):
            transfer(self.producers[number % PRODUCERS], chance, hangs=False)

    def audit(self) -> None:
        """Add up all accounts."""
        total = by_client(self.broker.bootstrap_servers)
        assert total == TOTAL or not self.whole, f"a wrong total: {total}"


def turn(bank: Bank, transfers: int, seed: int) -> None:
    """Measure all pieces of work once, the same for each bank."""
    chance = random.Random(seed)
    bank.measure("a transfer", transfers, lambda: bank.transfer(transfers, chance))
    bank.measure("an audit", 1, bank.audit)
    hanging = new_producer(bank.broker.bootstrap_servers, "hanging")
    hanging.begin_transaction()
    add(hanging, 0, 1)
    hanging.flush(30)
    bank.measure(
        "a transfer behind an open transaction",
        transfers // 4,
        lambda: bank.transfer(transfers // 4, chance),
    )
    bank.measure("the end of that transaction", 1, lambda: hanging.abort_transaction(30))


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench.bank", description=__doc__)
    parser.add_argument("--transfers", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with ExitStack() as stack:
        banks = [Bank(whole, stack.enter_context(LocalBroker())) for whole in (False, True)]
        for bank in banks:
            bank.open()
        for number in range(options.turns):
            for bank in banks if number % 2 == 0 else banks[::-1]:
                turn(bank, options.transfers, number)
    print("| broker CPU, us | without | with whole transactions | |\n|---|---:|---:|---:|")
    without, with_whole = (bank.figures for bank in banks)
    for work, figures in without.items():
        before, after = min(figures), min(with_whole[work])
        print(f"| {work} | {before:,.0f} | {after:,.0f} | {after / before - 1:+.1%} |")


if __name__ == "__main__":
    main()
