"""A bank whose money is in three topics, and auditors that add it up while everything goes wrong.

    python examples/bank/bank.py                     # both ways, without Spark: half a minute
    python examples/bank/bank.py --spark --picture docs/images/bank.svg

Tellers transfer money between accounts in different topics, each transfer a transaction. Some hang
in the middle of one, some abort, some are killed, and so is the broker. The total never changes.
Auditors add up all accounts, from outside, in seven ways (`auditors.py`).

With `barnabas.transactions.whole=true` on the topics each of them finds the same total, at any
moment. Without it each reads committed records only, and finds totals that never were: of some
transfers one half. The run ends with exit code 1 if a total is wrong with the setting, or if none
is wrong without it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from accounts import SETTING, TOTAL, create_topics, open_accounts
from auditors import (
    Audit,
    Notebook,
    StreamAuditor,
    by_batch,
    by_client,
    by_command,
    spark_options,
)

from barnabas import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
KINDS = ("quick",) * 4 + ("slow",) * 2
KILL_EVERY_S = 1.0
REPLACED = 0.7  # the share of killed tellers that are started again at once
BROKER_IS_DOWN_S = 0.3
PAST_S = 1.5  # how long ago the past is: longer than the broker's interval of recorded cuts


class Outcome(NamedTuple):
    """What the auditors of one run found.

    missed: audits that failed, for example while the broker was down. killed: how many tellers
    were killed.
    """

    whole: bool
    audits: list[Audit]
    missed: list[str]
    killed: int

    @property
    def wrong(self) -> list[Audit]:
        """The audits whose total is not the bank's."""
        return [audit for audit in self.audits if audit.total != TOTAL]


class Tellers:
    """The processes of the tellers."""

    def __init__(self, servers: str, kinds: Sequence[str]) -> None:
        self._servers = servers
        self._kinds = kinds
        self._processes = {name: self._start(name) for name in range(len(kinds))}
        self.killed = 0

    def _start(self, name: int) -> subprocess.Popen[str]:
        command = [sys.executable, str(HERE / "teller.py"), self._servers, str(name)]
        return subprocess.Popen(
            [*command, self._kinds[name]], stdout=subprocess.PIPE, text=True, cwd=HERE
        )

    def wait_until_ready(self) -> None:
        """Wait until each teller has begun its session."""
        for process in self._processes.values():
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a teller ended before its time")

    def kill_one(self, chance: random.Random, *, replaced: bool) -> None:
        """Kill a teller at any moment of a transfer. Start it again, or leave its transaction to
        its timeout.
        """
        name = chance.choice(sorted(self._processes))
        self._end(self._processes.pop(name))
        self.killed += 1
        if replaced or len(self._processes) < len(self._kinds) // 2:
            self._processes[name] = self._start(name)

    def stop(self) -> None:
        """Kill all tellers."""
        for process in self._processes.values():
            self._end(process)
        self._processes.clear()

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def repeating(audits: Iterable[Callable[[], None]]) -> Iterator[None]:
    """Let each auditor count again and again, in a thread of its own, until the end of the block.
    After it, each counts once more.
    """
    is_over = threading.Event()

    def repeat(audit: Callable[[], None]) -> None:
        while not is_over.wait(0.05):
            audit()
        audit()

    threads = [threading.Thread(target=repeat, args=(audit,)) for audit in audits]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def audits_of(
    servers: str, notebook: Notebook, spark: SparkSession | None, *, whole: bool
) -> dict[str, Callable[[], None]]:
    """The audits to repeat, by the names of the auditors. There is a past only with the setting,
    since the broker records cuts of such topics only.
    """

    def past_s() -> float:
        return time.time() - PAST_S

    counts: dict[str, Callable[[], int]] = {
        "client": lambda: by_client(servers),
        "command": lambda: by_command(servers),
    }
    if whole:
        counts["client past"] = lambda: by_client(servers, int(past_s() * 1000))
        counts["command past"] = lambda: by_command(servers, "--as-of", utc_text(past_s()))
    if spark is not None:
        options = spark_options(servers, whole=whole)
        counts["batch"] = lambda: by_batch(spark, options)
        if whole:
            counts["batch past"] = lambda: by_batch(spark, options | {"asOf": utc_text(past_s())})

    def new_audit(name: str, count: Callable[[], int]) -> Callable[[], None]:
        return lambda: notebook.audit(name, count)

    return {name: new_audit(name, count) for name, count in counts.items()}


def utc_text(time_s: float) -> str:
    """A time as the command line and Spark's option take it."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")


def run(
    *,
    whole: bool,
    seconds: float,
    spark: SparkSession | None = None,
    seed: int = 1,
    kinds: Sequence[str] = KINDS,
    auditors: Collection[str] | None = None,
    until: Callable[[Notebook], bool] = lambda _: False,
) -> Outcome:
    """Let tellers and auditors work for some seconds, on a broker of their own, which is killed
    after half of the time.

    Takes:  kinds, those of the tellers; auditors, their names, by default all that there can be;
            until, which ends the run earlier.
    """
    chance = random.Random(seed)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(LocalBroker())
        servers = broker.bootstrap_servers
        create_topics(servers, whole=whole)
        open_accounts(servers)
        tellers = Tellers(servers, kinds)
        stack.callback(tellers.stop)
        tellers.wait_until_ready()
        time.sleep(PAST_S + 1)  # so that there is a past
        notebook = Notebook()
        if spark is not None:
            checkpoint = stack.enter_context(tempfile.TemporaryDirectory())
            options = spark_options(servers, whole=whole)
            stream = StreamAuditor(
                spark, options, checkpoint, lambda total: notebook.add("stream", total)
            )
            stack.callback(stream.query.stop)
        audits = audits_of(servers, notebook, spark, whole=whole)
        chosen = [audit for name, audit in audits.items() if auditors is None or name in auditors]
        with repeating(chosen):
            began = time.monotonic()
            has_killed = False
            while (left := began + seconds - time.monotonic()) > 0 and not until(notebook):
                time.sleep(min(left, KILL_EVERY_S))
                tellers.kill_one(chance, replaced=chance.random() < REPLACED)
                if not has_killed and left < seconds / 2:
                    has_killed = True
                    broker.kill()
                    time.sleep(BROKER_IS_DOWN_S)
                    broker.start()
        if spark is not None and (error := stream.query.exception()) is not None:
            raise error
        return Outcome(whole, notebook.audits, notebook.missed, tellers.killed)


# --- the report


def report(outcome: Outcome) -> str:
    """What each auditor found, as a table."""
    lines = [f"{SETTING}={str(outcome.whole).lower()}   ({outcome.killed} tellers were killed)"]
    counts = Counter(audit.auditor for audit in outcome.audits)
    for auditor, count in counts.items():
        wrong = [audit.total for audit in outcome.wrong if audit.auditor == auditor]
        found = (
            f"{len(wrong)} wrong, from {min(wrong):,} to {max(wrong):,}" if wrong else "all right"
        )
        lines.append(f"  {auditor:12} {count:4} totals: {found}")
    if outcome.missed:
        lines.append(f"  {len(outcome.missed)} audits failed, the first: {outcome.missed[0][:200]}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bank with the setting and without it. Gives: the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each of the two runs (10)")
    parser.add_argument("--spark", action="store_true", help="with auditors that use Spark")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write all totals there")
    parser.add_argument("--picture", type=Path, help="write a picture of all totals there")
    options = parser.parse_args(arguments)
    spark = None
    if options.spark:
        from pyspark_barnabas import local_session

        spark = local_session("bank", cores=2, settings={"spark.log.level": "OFF"})
        spark.range(1).count()
    outcomes = [
        run(whole=whole, seconds=options.seconds, spark=spark, seed=options.seed)
        for whole in (True, False)
    ]
    for outcome in outcomes:
        print(report(outcome))
    print(f"The bank's total is {TOTAL:,}, at any moment.")
    if spark is not None:
        spark.stop()
    if options.json is not None:
        rows = [{**outcome._asdict(), "audits": outcome.audits} for outcome in outcomes]
        options.json.write_text(json.dumps(rows))
    if options.picture is not None:
        from picture import draw

        draw(outcomes, options.picture)
    is_right = not outcomes[0].wrong and outcomes[1].wrong
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
