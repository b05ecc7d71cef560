"""Files into a topic and out of it, through kills at each step, and the guarantee of two steps in a
row.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import files
import pytest
from files import SENDING, TOTALLING, write_orders
from guarantee_tools import (
    SteppedProcess,
    an_order,
    make_topic,
    orders_in,
    publish,
    read_committed,
    total_cents,
)

pytestmark = pytest.mark.deep

ORDERS = 100
ONCE = Counter(range(ORDERS))
CENTS = sum(total_cents(json.loads(an_order(number)[1])) for number in range(ORDERS))


@pytest.fixture
def path(tmp_path: Path, name: str) -> Path:
    """A file of orders, with a name of its own."""
    path = tmp_path / f"{name}.jsonl"
    write_orders(path, ORDERS)
    return path


def sender(servers: str, name: str, path: Path, way: str) -> SteppedProcess:
    arguments = ["send", "--bootstrap-servers", servers, "--topic", name, "--file", str(path)]
    return SteppedProcess("files.py", [*arguments, "--way", way])


def killed_at_each_step(servers: str, name: str, path: Path, way: str) -> Counter[int]:
    """Kill the sender once at each step, and run it twice. Gives: what is in the topic."""
    for step in SENDING:
        with sender(servers, name, path, way) as killed:
            killed.run_until(step)
            killed.kill()
    for _ in range(2):
        with sender(servers, name, path, way) as last:
            assert last.finish() == 0, last.output
    return orders_in(read_committed(servers, name))


def test_a_file_that_is_sent_again_is_there_more_than_once(
    servers: str, name: str, path: Path
) -> None:
    # contract: article/file-again
    found = killed_at_each_step(servers, name, path, "plain")
    assert set(found) == set(ONCE)
    assert found == Counter({n: 4 if n < ORDERS // 2 else 3 for n in range(ORDERS)})


def test_a_file_that_is_sent_with_a_note_in_its_transaction_is_there_once(
    servers: str, name: str, path: Path
) -> None:
    # contract: article/file-again
    assert killed_at_each_step(servers, name, path, "transaction") == ONCE


@pytest.mark.parametrize("way", ["apart", "together"])
def test_totals_are_exact_if_they_are_replaced_together_with_their_offsets(
    servers: str, name: str, tmp_path: Path, way: str
) -> None:
    # contract: article/replaced-files
    make_topic(servers, name, files.PARTITIONS)
    publish(servers, name, map(an_order, range(ORDERS)))
    goal = tmp_path / "total.json"
    arguments = ["total", "--bootstrap-servers", servers, "--topic", name, "--group", name]
    arguments += ["--total", str(goal), "--way", way, "--batch-size", "10"]
    for step in TOTALLING:
        with SteppedProcess("files.py", arguments) as killed:
            killed.run_until(step, 2)
            assert "orders" in json.loads(goal.read_bytes()), "a reader sees a whole file"
            killed.kill()
    with SteppedProcess("files.py", arguments) as last:
        assert last.finish() == 0, last.output
    totals = json.loads(goal.read_bytes())
    if way == "together":
        assert (totals["orders"], totals["cents"]) == (ORDERS, CENTS)
    else:
        assert totals["orders"] > ORDERS, "the batch before the commit was added twice"


def test_two_steps_have_the_guarantee_of_the_weaker_one(
    servers: str, name: str, path: Path
) -> None:
    """An exactly-once worker behind a sender that repeats: each *record* is processed once, and so
    each repetition is, too.
    """
    # contract: article/composed
    repeated = killed_at_each_step(servers, name, path, "plain")
    arguments = ["--bootstrap-servers", servers, "--input", name, "--output", f"{name}-invoices"]
    with SteppedProcess("consume_transform_produce.py", [*arguments, "--group", name]) as worker:
        worker.run_until("offsets sent", 2)
        worker.kill()
    with SteppedProcess("consume_transform_produce.py", [*arguments, "--group", name]) as worker:
        assert worker.finish() == 0, worker.output
    assert orders_in(read_committed(servers, f"{name}-invoices")) == repeated != ONCE


def test_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert files.main([]) == 0
    assert capsys.readouterr().out == (f"orders.jsonl: sent\n{ORDERS} orders of {CENTS} cents\n")
