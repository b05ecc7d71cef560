"""bench/scale.py works: in each case brokers of all sizes do the same work, and the table compares
each of them with the smallest.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import loop_watchdog, watched_daemon
from torture.scale import watch_calls

from bench import scale


@pytest.mark.parametrize("case", scale.CASES)
def test_every_case_has_figures_for_each_size(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "RECORDS", 2)
    monkeypatch.setattr(scale, "TRANSACTIONS", 1)
    monkeypatch.setattr(scale, "ROUNDS", 2)
    monkeypatch.setattr(scale, "OFFSETS_A_GROUP", 2)
    results = scale.measured(case, (1, 3))
    assert [result.size for result in results] == [1, 3]
    assert all(min(result.best) > 0 and result.longest_ms > 0 for result in results)


def test_the_table_compares_with_the_smallest_size_of_the_case() -> None:
    results = [
        scale.Result("partitions", 1, [scale.Work(10, 20, 30), scale.Work(12, 18, 40)], 0.5),
        scale.Result("partitions", 9, [scale.Work(11, 9, 30)], 0.75),
    ]
    *_, smaller, larger = scale.table(results).splitlines()
    assert smaller == "| partitions | 1 | 10 (+0 %) | 18 (+0 %) | 30 (+0 %) | 0.5 |"
    assert larger == "| partitions | 9 | 11 (+10 %) | 9 (-50 %) | 30 (+0 %) | 0.8 |"


def test_the_watch_reports_a_long_call_and_a_call_that_waits_for_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The ordinary work of the core causes no fault."""
    # `watch_calls` replaces this method; monkeypatch restores it after the test
    monkeypatch.setattr(scale.Core, "watched", scale.Core.watched)
    thresholds = gc.get_threshold()
    with watched_calls(monkeypatch) as faults:
        core = scale.Core(str(tmp_path))
        scale.work(core)
        core.pass_time(scale.WATCHED_MS)
        assert faults == []
        core.watched("long", lambda: burn(8 * loop_watchdog.bound_ms()))
        core.watched("waiting", lambda: os.fsync(os.open(tmp_path, os.O_RDONLY)))
    gc.set_threshold(*thresholds)
    long, waiting = faults
    assert "callback: 'long'" in long and "os.fsync" in waiting


def burn(ms: int) -> None:
    """Use `ms` milliseconds of CPU time, as a long call of the core would."""
    until_ns = time.thread_time_ns() + ms * 1_000_000
    while time.thread_time_ns() < until_ns:
        pass


@contextmanager
def watched_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Watch the calls of the core. Gives the list of the faults found. At the end, the watched
    functions are restored.
    """
    undo: list[Callable[[], None]] = []
    watch_thread = watched_daemon.watch_thread
    monkeypatch.setattr(
        watched_daemon, "watch_thread", lambda watch: undo.append(watch_thread(watch))
    )
    yield watch_calls()
    for take_away in undo:
        take_away()
