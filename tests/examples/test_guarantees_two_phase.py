"""A row in PostgreSQL and a record in a topic are both stored or neither is, whichever process is
killed at whichever step.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import two_phase_commit
from guarantee_tools import FENCED, SteppedProcess, make_topic
from postgres_process import PostgresProcess
from two_phase_crash import BATCH, Outcome, Servers, kill_a_server, kill_the_writer, outcome_of

from barnabas import LocalBroker

pytestmark = pytest.mark.deep

ENABLED = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture
def both(broker: LocalBroker, postgres: PostgresProcess, dsn: str, name: str) -> Servers:
    """The broker and PostgreSQL. The broker has a topic named after the test."""
    make_topic(broker.bootstrap_servers, name)
    return Servers(broker, postgres, dsn)


def is_right(outcome: Outcome, kills: int) -> bool:
    """Return True if both stores have each order once after this number of kills. Otherwise
    fail.
    """
    assert outcome.kills == kills, "a kill missed its step"
    assert outcome.is_as_promised, str(outcome)
    return True


def test_the_writer_may_be_killed_at_each_step(both: Servers, name: str) -> None:
    # contract: article/two-phase
    assert is_right(kill_the_writer(both, name), len(two_phase_commit.STEPS))


def test_the_database_may_be_killed(both: Servers, name: str) -> None:
    steps = ("database prepared", "decided")
    assert is_right(kill_a_server(both, name, both.kill_postgres, steps), len(steps))


def test_both_stores_have_each_order_once_though_the_broker_is_killed(
    tmp_path: Path, postgres: PostgresProcess, dsn: str, name: str
) -> None:
    """Transactions have version 1 in this test, and version 2 in the crash script."""
    features = {"barnabas.features": "transaction.version=1"}
    steps = ("sent", "broker prepared", "decided")
    with LocalBroker(tmp_path, settings={**ENABLED, **features}) as broker:
        make_topic(broker.bootstrap_servers, name)
        both = Servers(broker, postgres, dsn)
        assert is_right(kill_a_server(both, name, both.kill_broker, steps), len(steps))


def test_a_replaced_process_is_refused_by_the_database_too(both: Servers, name: str) -> None:
    """The first process has prepared its transaction at the broker, and the second process has then
    ended this transaction. Only the session number in the database prevents the first process from
    committing its rows without the records.
    """
    arguments = ["--bootstrap-servers", both.broker.bootstrap_servers, "--postgres", both.dsn]
    arguments += ["--topic", name, "--name", name, "--orders", "9", "--batch-size", str(BATCH)]
    with SteppedProcess("two_phase_commit.py", arguments) as first:
        first.run_until("broker prepared", 2)
        with SteppedProcess("two_phase_commit.py", arguments) as second:
            second.run_until("sent", 1)
            assert first.finish() == FENCED, "".join(first.output)
            assert second.finish() == 0, "".join(second.output)
    assert is_right(outcome_of(both, name, 0, 9), 0)


def test_the_script_runs_without_crashes(
    capfd: pytest.CaptureFixture[str], both: Servers, name: str
) -> None:
    arguments = ["--bootstrap-servers", both.broker.bootstrap_servers, "--postgres", both.dsn]
    assert two_phase_commit.main([*arguments, "--topic", name, "--name", name]) == 0
    assert "100 orders in the table, 100 in the topic" in capfd.readouterr().out
