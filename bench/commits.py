"""The broker's cost of a commit (`python -m bench.commits [--rounds N]`).

The cost of a commit includes all work for an EndTxn: its request and response, the decision and its
flush, the markers, and the record CompleteCommit. Before the measurement each producer opens a
transaction with a record in each of its partitions. Then the producers commit in waves. A wave
begins when the broker has responded to all requests of the previous one.

A figure is the CPU time of all threads of the daemon (Linux's schedstat), the lowest of several
rounds, since other load can only add to it. It includes the cost of an idle broker for that time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from barnabas import LocalBroker
from bench.common import create_topic
from bench.transactions import PlainProducer

PRODUCERS, ROUNDS = 32, 20
WAVES = (1, 8, 32)
PARTITIONS = (1, 10)
AFTERWARDS_S = 0.2  # the time after which all deferred work of the commits is done
IN_MEMORY = "/dev/shm"


@dataclass
class Daemon:
    """A broker and its producers.

    rounds: for each size of wave, the microseconds of CPU for a commit in each round.
    """

    broker: LocalBroker
    producers: list[PlainProducer]
    rounds: dict[int, list[float]] = field(default_factory=lambda: {wave: [] for wave in WAVES})

    def cpu_ns(self) -> int:
        """The CPU time of all threads so far."""
        tasks = Path(f"/proc/{self.broker.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def commit(self, wave: int) -> None:
        """Commit the transactions of all producers, `wave` of them at a time."""
        for producer in self.producers:
            producer.open()
        time.sleep(AFTERWARDS_S)
        began_ns = self.cpu_ns()
        for first in range(0, len(self.producers), wave):
            for producer in self.producers[first : first + wave]:
                producer.send_end()
            for producer in self.producers[first : first + wave]:
                producer.receive_end()
        time.sleep(AFTERWARDS_S)
        self.rounds[wave].append((self.cpu_ns() - began_ns) / len(self.producers) / 1000)


def measured(partitions: int, is_version_2: bool, rounds: int) -> list[str]:
    """Measure three brokers in alternation: one that flushes to a disk, one that flushes to memory,
    and one more of these whose topic shows whole transactions (barnabas.transactions.whole).
    """
    lines = []
    with ExitStack() as stack:
        daemons = {}
        for where, base, configs in (
            ("a disk", None, {}),
            ("memory", IN_MEMORY, {}),
            ("memory, whole transactions", IN_MEMORY, {"barnabas_transactions_whole": "true"}),
        ):
            directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=base)
            )
            broker = stack.enter_context(LocalBroker(directory))
            create_topic(broker, "bench", partitions, **configs)
            producers = [
                PlainProducer(broker.port, f"id-{n}", partitions, is_version_2=is_version_2)
                for n in range(PRODUCERS)
            ]
            for producer in producers:
                stack.callback(producer.close)
            daemons[where] = Daemon(broker, producers)
        # the first round warms up, and is left out of the result
        for _ in range(rounds + 1):
            for wave in WAVES:
                for daemon in daemons.values():
                    daemon.commit(wave)
        for where, daemon in daemons.items():
            cells = " | ".join(f"{min(times[1:]):.0f}" for times in daemon.rounds.values())
            lines.append(f"| {1 + is_version_2} | {partitions} | {where} | {cells} |")
    return lines


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench.commits", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    heads = " | ".join(f"{wave} at once, us" for wave in WAVES)
    print(f"| version | partitions | flushed to | {heads} |\n| --- |{' ---: |' * 5}")
    for is_version_2 in (False, True):
        for partitions in PARTITIONS:
            print("\n".join(measured(partitions, is_version_2, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
