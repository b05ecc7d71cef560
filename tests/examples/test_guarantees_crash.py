"""Which records are lost and duplicated under each guarantee when the worker is killed, for each
step of the worker.
"""

from __future__ import annotations

import crash_demo
import pytest
from crash_demo import Outcome
from idempotent_upsert import rows_in

from barnabas import LocalBroker

pytestmark = pytest.mark.deep

ORDERS = 200


@pytest.fixture(scope="module")
def outcomes(broker: LocalBroker, shared_dsn: str) -> dict[str, Outcome]:
    """The outcomes of the crash demo, in which each worker is killed once at each step."""
    return {
        outcome.name: outcome
        for outcome in crash_demo.run(broker.bootstrap_servers, shared_dsn, ORDERS, rounds=1)
    }


def test_fire_and_forget_loses(outcomes: dict[str, Outcome]) -> None:
    # contract: article/fire-and-forget
    assert outcomes["fire-and-forget"].lost > 0


def test_auto_commit_loses_what_is_not_done_and_repeats_what_is_not_committed(
    outcomes: dict[str, Outcome],
) -> None:
    # contract: article/auto-commit
    slow_work, slow_clock = (outcomes[f"auto-commit, slow {what}"] for what in ("work", "clock"))
    assert slow_work.lost > 0 and not slow_work.duplicated
    assert slow_clock.duplicated > 0 and not slow_clock.lost


def test_at_most_once_loses_and_never_doubles(outcomes: dict[str, Outcome]) -> None:
    # contract: article/at-most-once
    outcome = outcomes["at-most-once"]
    assert outcome.lost > 0
    assert outcome.duplicated == 0


def test_at_least_once_doubles_and_never_loses(outcomes: dict[str, Outcome]) -> None:
    # contract: article/at-least-once
    outcome = outcomes["at-least-once"]
    assert outcome.duplicated > 0
    assert outcome.lost == 0


@pytest.mark.parametrize(
    ("name", "kills"), [("exactly-once", 4), ("into PostgreSQL", 3), ("idempotent upsert", 2)]
)
def test_these_do_neither(outcomes: dict[str, Outcome], name: str, kills: int) -> None:
    # contract: kip-129/loop, article/exactly-once
    assert outcomes[name] == Outcome(name, kills, ORDERS, ORDERS, 0, 0)


def test_an_upsert_of_a_redelivered_record_changes_no_version(
    outcomes: dict[str, Outcome], shared_dsn: str
) -> None:
    assert outcomes["idempotent upsert"].kills
    assert {version for version, _ in rows_in(shared_dsn).values()} == {1}


def test_the_demo_fails_unless_each_guarantee_shows_its_losses_or_duplicates() -> None:
    """At-most-once must lose and at-least-once must duplicate, or else the kills came at the wrong
    time; exactly-once may do neither.
    """
    assert not crash_demo.as_promised(Outcome("at-most-once", 3, 100, 100, 0, 0))
    assert not crash_demo.as_promised(Outcome("at-least-once", 3, 100, 100, 0, 0))
    assert not crash_demo.as_promised(Outcome("exactly-once", 4, 100, 101, 0, 1))
    assert crash_demo.as_promised(Outcome("exactly-once", 4, 100, 100, 0, 0))


def test_the_table_has_a_line_for_each(outcomes: dict[str, Outcome]) -> None:
    assert (
        crash_demo.table(list(outcomes.values())).splitlines()[7]
        == f"| exactly-once | 4 | {ORDERS} | {ORDERS} | 0 | 0 |"
    )
