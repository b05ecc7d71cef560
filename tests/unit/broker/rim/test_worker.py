"""The worker, a thread that runs long computations."""

from __future__ import annotations

import queue
from typing import Any

from barnabas.broker.outbox import Work
from barnabas.broker.rim.worker import Worker


def work(run: Any) -> Work:
    return Work(1, run, lambda result, now_ms: None)


def test_work_runs_in_order_and_an_error_fails_only_its_own_piece() -> None:
    done: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
    worker = Worker(lambda piece, result, error: done.put((result, error)))

    def fail() -> None:
        raise KeyError("ours")

    for run in (lambda: 1, fail, lambda: 3):
        worker.submit(work(run))
    results = [done.get(timeout=10) for _ in range(3)]
    worker.stop()
    assert [result for result, _ in results] == [1, None, 3]
    assert [type(error) for _, error in results] == [type(None), KeyError, type(None)]


def test_one_that_was_never_used_stops() -> None:
    Worker(lambda *_: None).stop()
