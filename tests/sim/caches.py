"""Runs a schedule without the caches of the hot path, which may make no difference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from checkers import Finding

from barnabas.protocol import hot_requests
from barnabas.storage.segments import segment
from sim.world import Report, run_seed


class _Forgetful(dict[bytes, Any]):
    """A cache that keeps nothing."""

    def __setitem__(self, key: bytes, value: Any) -> None:
        pass


@contextlib.contextmanager
def without_caches() -> Iterator[None]:
    """Remember nothing between requests: neither the fields of a Produce by their bytes, nor what
    fits in a segment for certain.
    """
    by_name, by_id, room = hot_requests._HEADS_BY_NAME, hot_requests._HEADS_BY_ID, segment.Room
    hot_requests._HEADS_BY_NAME, hot_requests._HEADS_BY_ID = _Forgetful(), _Forgetful()
    segment.Room = lambda *_: segment.NO_ROOM  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        hot_requests._HEADS_BY_NAME, hot_requests._HEADS_BY_ID = by_name, by_id
        segment.Room = room  # type: ignore[misc]


def run_without_caches(seed: int, **options: Any) -> Report:
    """Run the schedule of a seed without caches. A finding says if its bytes differ from those of a
    run with caches.
    """
    with without_caches():
        report = run_seed(seed, **options)
    if report.digest != run_seed(seed).digest:
        report.findings.append(Finding("caches", "without them the broker sends other bytes"))
    return report
