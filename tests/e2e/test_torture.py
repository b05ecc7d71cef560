"""A short round of tests/tools/torture/clients.py. `make torture` runs it for any time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkers import check, kinds_of
from torture.clients import BROKER_SETTINGS, Round

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e

ROUNDS_S = (12.0, 30.0, 75.0, 190.0)  # durations of a round; a slow machine needs the longer ones


def is_enough(harm: Round) -> bool:
    """Whether the round had enough kills and transactions for its result to mean anything."""
    report, log = harm.report, harm.history.final[f"{harm.topic}-out", 0]
    return bool(
        report.deeds["broker killed"] > 0
        and report.endings["committed"] > 20
        and report.endings["aborted"] > 5
        and log.committed
        and set(log.everything) - set(log.committed)
    )


def each_hidden_row_as_committed(everything: list[Any], committed: list[Any]) -> Iterator[None]:
    """Add each hidden row to the committed rows, one at a time."""
    for hidden in [row for row in everything if row not in set(committed)]:
        committed.append(hidden)
        yield
        committed.pop()


@pytest.mark.long
def test_no_record_is_lost_or_doubled_in_a_round_of_kills_and_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torture.clients.HEAL_S", 600.0)
    (tmp_path / "diaries").mkdir()
    with LocalBroker(tmp_path / "data", settings=BROKER_SETTINGS) as broker:
        for number, seconds in enumerate(ROUNDS_S, 1):
            harm = Round(broker, number, 20, str(tmp_path / "diaries"))
            report = harm.run(seconds)
            assert not report.findings, "\n".join(map(str, [report, *report.findings[:10]]))
            if is_enough(harm):
                break
        else:
            pytest.fail(f"hardly anything happened: {report}")
        # Check that the checkers work: they find a lost, a duplicated and an aborted record.
        history, partition = harm.history, (f"{report.topic}-out", 0)
        rows = history.final[partition].committed
        gone = rows.pop()
        assert "lost" in kinds_of(check(history))
        rows += [gone, (gone[0] + 1000, gone[1])]
        assert "duplicate" in kinds_of(check(history))
        rows.pop()
        assert any(
            {"aborted-read", "precommitted-read"} & set(kinds_of(check(history)))
            for _ in each_hidden_row_as_committed(history.final[partition].everything, rows)
        ), "at least one hidden record is of a transaction with a known outcome"
