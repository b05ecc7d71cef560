"""The watchdog in daemons that tests start. With a limit of zero, each callback is a fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import loop_watchdog, watched_daemon

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e


def test_the_faults_that_a_daemon_writes_are_read_by_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(watched_daemon.FAULTS_DIRECTORY, str(tmp_path))
    monkeypatch.setenv(watched_daemon.BOUND_MS, "0")
    with LocalBroker() as broker, broker.admin() as admin:
        assert admin.open_transactions() == []
    faults = loop_watchdog.take_faults()
    command = f" --data-dir {broker.data_dir} "
    assert any(
        "the longest: ListTransactions 1 of " in fault and command in fault for fault in faults
    )


def test_the_daemon_of_a_user_is_not_watched() -> None:
    assert LocalBroker.__dict__["daemon"] == loop_watchdog._WATCHED
    assert "watched_daemon" not in Path(__import__("barnabas").__file__).read_text()
