"""`examples/bank`: with whole transactions each auditor finds the bank's total at any moment, also
while tellers and the broker are killed; without them some total is wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples" / "bank"))

import bank
from accounts import ACCOUNTS, TOPICS, all_places, place_of
from auditors import Audit
from bank import Outcome


def test_neighbours_have_their_accounts_in_different_topics() -> None:
    """So each transfer, which is to one of the next accounts, is between two topics."""
    for account in range(ACCOUNTS):
        near = {place_of((account + step) % ACCOUNTS).topic for step in range(1, len(TOPICS))}
        assert place_of(account).topic not in near
    assert {place_of(account) for account in range(ACCOUNTS)} == set(all_places())


def test_every_total_is_right_with_whole_transactions() -> None:
    outcome = bank.run(
        whole=True, seconds=4, kinds=("quick", "quick", "slow"), auditors=("client", "client past")
    )
    assert outcome.audits and not outcome.wrong
    assert {audit.auditor for audit in outcome.audits} == {"client", "client past"}, outcome.missed


def test_some_total_is_wrong_without_whole_transactions() -> None:
    """The program is the same, and the reader reads committed records only."""

    def has_wrong_total(notebook: bank.Notebook) -> bool:
        return any(audit.total != bank.TOTAL for audit in notebook.audits)

    outcome = bank.run(
        whole=False,
        seconds=60,
        kinds=("quick", "quick", "slow"),
        auditors=("client",),
        until=has_wrong_total,
    )
    assert outcome.wrong
    assert "wrong, from" in bank.report(outcome)


def test_a_picture_has_the_totals_of_each_auditor(tmp_path: Path) -> None:
    from picture import STYLES, draw

    audits = [Audit(name, 1.0, bank.TOTAL + 5) for name in STYLES]
    outcomes = [Outcome(True, audits, [], 0), Outcome(False, audits[:1], [], 0)]
    draw(outcomes, tmp_path / "bank.svg")
    assert (tmp_path / "bank.svg").stat().st_size > 1000


@pytest.mark.long
@pytest.mark.spark
def test_the_whole_bank_with_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json = str(tmp_path / "bank.json")
    assert bank.main(["--spark", "--seconds", "30", "--json", json]) == 0, capsys.readouterr().out
    printed = capsys.readouterr().out
    for auditor in (
        "client",
        "command",
        "batch",
        "client past",
        "command past",
        "batch past",
        "stream",
    ):
        assert f"\n  {auditor} " in printed
