"""How the client program of torture/clients.py ends a transaction."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import loop_watchdog
from torture import clients
from torture.clients import Worker


class Client:
    """A transactional producer whose last `failure_count` records fail when it is polled."""

    def __init__(self, worker: Worker, failure_count: int) -> None:
        self.worker, self.failure_count, self.pending, self.calls = worker, failure_count, 3, []

    def __len__(self) -> int:
        return self.pending

    def poll(self, _timeout_s: float) -> None:
        self.pending -= 1
        if self.pending < self.failure_count:
            self.worker.undelivered += 1

    def commit_transaction(self, _timeout_s: float) -> None:
        self.calls.append("commit")

    def abort_transaction(self, _timeout_s: float) -> None:
        self.calls.append("abort")


@pytest.mark.parametrize(
    ("failure_count", "calls", "reported"),
    [
        (0, ["commit"], ["commit?", "committed"]),
        (1, ["abort"], ["aborted"]),
        (3, ["abort"], ["aborted"]),
    ],
)
def test_a_transaction_is_committed_only_if_all_records_were_delivered(
    failure_count: int, calls: list[str], reported: list[str]
) -> None:
    """A transaction with an undelivered record is aborted instead."""
    worker = Worker.__new__(Worker)
    diary: list[str] = []
    worker.diary = lambda what, **_: diary.append(what)  # type: ignore[assignment]
    worker.steps = worker.undelivered = 0
    client: Any = Client(worker, failure_count)

    worker._end_transaction(client, "t", abort=False)

    assert (client.calls, diary) == (calls, reported)


def test_a_fault_of_the_loop_watchdog_becomes_a_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        clients, "LocalBroker", lambda *_, **__: nullcontext(SimpleNamespace(output=[]))
    )
    monkeypatch.setattr(loop_watchdog, "start_watching", lambda: None)
    monkeypatch.setattr(loop_watchdog, "take_faults", lambda: ["one callback of the event loop"])

    class Round:
        def __init__(self, _broker: Any, _number: int, seed: int, _diaries: str) -> None:
            self.seed = seed

        def run(self, _seconds: float) -> clients.Report:
            return clients.Report(self.seed, "t")

    monkeypatch.setattr(clients, "Round", Round)
    report = next(clients.torture(60, seed=1, directory=str(tmp_path)))
    assert [tuple(finding) for finding in report.findings] == [
        ("loop", "one callback of the event loop")
    ]
