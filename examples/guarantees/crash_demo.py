"""Tests each guarantee with crashes: the worker is killed at each of its steps and started again,
and its output is counted.

A worker stops at each step until it reads a line from its standard input (--step-by-step), so that
SIGKILL always hits the intended step. The steps are the same for all guarantees: half of a batch
written, all of it written, offsets committed, and so on.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import consume_transform_produce
import idempotent_upsert
import into_postgres
import without_guarantee
from guarantee_tools import (
    SteppedProcess,
    an_order,
    broker_at,
    make_topic,
    orders_in,
    publish,
    read_committed,
)
from postgres_process import postgres_at

INPUT = "orders"
PARTITIONS = 3
# Each run completes one batch, and is killed when it reaches the step in its second batch.
KILLED_AT_OCCURRENCE = 2

WITHOUT_GUARANTEE = {
    "fire-and-forget": ("fire-and-forget", ()),
    # the work is slower than the clock: what is committed is not done
    "auto-commit, slow work": ("auto-commit", ("--slow",)),
    # the clock is slower than the work: what is done is not committed
    "auto-commit, slow clock": ("auto-commit", ("--auto-commit-interval-ms", "3600000")),
}


class Pattern(NamedTuple):
    """A script, with its name in the table and the function that counts its output."""

    name: str
    script: str
    arguments: tuple[str, ...]
    steps: tuple[str, ...]
    counted: Callable[[], Counter[int]]


class Outcome(NamedTuple):
    """What happened to the orders of one pattern while its workers were killed."""

    name: str
    kills: int
    orders: int
    output: int
    lost: int
    duplicated: int


def producing(servers: str, name: str) -> Pattern:
    """Return the pattern that consumes, transforms and produces in the way of this name, into a
    topic of its own.
    """
    output = "invoices-" + name.replace(",", "").replace(" ", "-")
    make_topic(servers, output, PARTITIONS)
    if name in WITHOUT_GUARANTEE:
        way, more = WITHOUT_GUARANTEE[name]
        script, steps = "without_guarantee.py", without_guarantee.STEPS[way]
        chosen = ("--way", way, *more)
    else:
        script, steps = "consume_transform_produce.py", consume_transform_produce.STEPS[name]
        chosen = ("--guarantee", name)
    arguments = (*chosen, "--bootstrap-servers", servers, "--output", output, "--group", output)
    return Pattern(
        name, script, arguments, steps, lambda: orders_in(read_committed(servers, output))
    )


def storing(servers: str, dsn: str) -> list[Pattern]:
    """Return the two patterns that write into a database."""
    arguments = ("--bootstrap-servers", servers, "--postgres", dsn)
    return [
        Pattern(
            "into PostgreSQL",
            "into_postgres.py",
            arguments,
            into_postgres.STEPS,
            lambda: into_postgres.invoices_in(dsn),
        ),
        Pattern(
            "idempotent upsert",
            "idempotent_upsert.py",
            arguments,
            idempotent_upsert.STEPS,
            lambda: Counter(idempotent_upsert.rows_in(dsn).keys()),
        ),
    ]


def crash(pattern: Pattern, orders: int, rounds: int) -> Outcome:
    """Kill a worker at each step, once per round. Then let a last worker run to its end.

    Raises: RuntimeError if a worker does not reach a step.
    """
    kills = 0
    for step in pattern.steps * rounds:
        with SteppedProcess(pattern.script, [*pattern.arguments, "--batch-size", "10"]) as worker:
            worker.run_until(step, KILLED_AT_OCCURRENCE)
            worker.kill()
            kills += 1
    with SteppedProcess(pattern.script, pattern.arguments) as worker:
        if worker.finish():
            raise RuntimeError(f"{pattern.name} failed:\n" + "".join(worker.output[-20:]))
    found = pattern.counted()
    expected = Counter(range(orders))
    return Outcome(
        pattern.name,
        kills,
        orders,
        found.total(),
        (expected - found).total(),
        (found - expected).total(),
    )


def run(servers: str, dsn: str | None, orders: int, rounds: int) -> Iterator[Outcome]:
    """Publish the orders, then run each pattern with crashes.

    Takes:  dsn, the database for the patterns that need one; None to leave these out.
    """
    make_topic(servers, INPUT, PARTITIONS)
    publish(servers, INPUT, map(an_order, range(orders)), transactional_id="shop")
    publish(
        servers,
        INPUT,
        map(an_order, range(orders, 2 * orders)),
        transactional_id="shop",
        commit=False,
    )  # an aborted transaction, whose records no reader may see
    patterns = [
        producing(servers, name) for name in (*WITHOUT_GUARANTEE, *consume_transform_produce.STEPS)
    ]
    for pattern in patterns + (storing(servers, dsn) if dsn else []):
        yield crash(pattern, orders, rounds)


def table(outcomes: Sequence[Outcome]) -> str:
    """Format the outcomes as a Markdown table."""
    lines = ["| | kills | orders in | out | lost | duplicated |", "|---|---|---|---|---|---|"]
    lines += ["| " + " | ".join(str(value) for value in outcome) + " |" for outcome in outcomes]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Gives:  the exit code: 0 if each guarantee held, and if the weaker guarantees lost or duplicated
            orders as expected.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bootstrap-servers",
        help="host:port of a broker without these topics; without it one is started for the run",
    )
    parser.add_argument(
        "--postgres",
        metavar="DSN",
        help="of an empty database; without it a server is started for the run",
    )
    parser.add_argument(
        "--without-postgres", action="store_true", help="only those that write to topics"
    )
    parser.add_argument("--orders", type=int, default=600, help="how many orders go in (600)")
    parser.add_argument(
        "--rounds", type=int, default=2, help="how often each is killed at each of its steps (2)"
    )
    options = parser.parse_args(arguments)
    with broker_at(options.bootstrap_servers) as servers, ExitStack() as stack:
        dsn = (
            None if options.without_postgres else stack.enter_context(postgres_at(options.postgres))
        )
        outcomes = []
        for outcome in run(servers, dsn, options.orders, options.rounds):
            outcomes.append(outcome)
            print(
                f"{outcome.name}: killed {outcome.kills} times, {options.rounds} times at each "
                f"step",
                flush=True,
            )
    print(f"\n{table(outcomes)}")
    return 0 if all(as_promised(outcome) for outcome in outcomes) else 1


def as_promised(outcome: Outcome) -> bool:
    """Whether the outcome fits the guarantee.

    The weaker guarantees have to lose or duplicate orders. Otherwise the crashes missed the
    intended steps, and the other results prove nothing.
    """
    losses = {
        "fire-and-forget": outcome.lost > 0,
        "auto-commit, slow work": outcome.lost > 0 and not outcome.duplicated,
        "auto-commit, slow clock": outcome.duplicated > 0 and not outcome.lost,
        "at-most-once": outcome.lost > 0 and not outcome.duplicated,
        "at-least-once": outcome.duplicated > 0 and not outcome.lost,
    }
    return losses.get(outcome.name, not outcome.lost and not outcome.duplicated)


if __name__ == "__main__":
    sys.exit(main())
