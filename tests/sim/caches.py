"""Runs a schedule without the caches of the hot path, which may make no difference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from checkers import Finding

from barnabas.broker.core import Broker
from barnabas.protocol import framing, hot_requests, repeated_messages
from barnabas.storage.batch import record_walk
from barnabas.storage.segments import segment
from sim.world import Report, run_seed


class _Forgetful(dict[Any, Any]):
    """A cache that keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


@contextlib.contextmanager
def without_caches() -> Iterator[None]:
    """Remember nothing between requests: neither the fields of a header, a Produce, a Fetch, a
    Heartbeat or a commit by their bytes, nor what fits in a segment for certain, nor whether the
    timer is early enough, nor the head of a record.
    """
    by_name, by_id, room = hot_requests._HEADS_BY_NAME, hot_requests._HEADS_BY_ID, segment.Room
    hot_requests._HEADS_BY_NAME, hot_requests._HEADS_BY_ID = _Forgetful(), _Forgetful()
    fetches, hot_requests._FETCHES = hot_requests._FETCHES, _Forgetful()
    heartbeats, commits = repeated_messages._HEARTBEATS, repeated_messages._COMMITS
    repeated_messages._HEARTBEATS, repeated_messages._COMMITS = _Forgetful(), _Forgetful()
    segment.Room = lambda *_: segment.NO_ROOM  # type: ignore[assignment, misc]
    remember_head = record_walk._remember_head
    record_walk._remember_head = lambda size: record_walk._NO_HEAD
    framing.KnownHeaders = _Forgetful  # type: ignore[misc]
    on_timer_set = Broker.on_timer_set
    Broker.on_timer_set = lambda broker: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        hot_requests._HEADS_BY_NAME, hot_requests._HEADS_BY_ID = by_name, by_id
        hot_requests._FETCHES = fetches
        repeated_messages._HEARTBEATS, repeated_messages._COMMITS = heartbeats, commits
        segment.Room = room  # type: ignore[misc]
        record_walk._remember_head = remember_head
        framing.KnownHeaders = dict  # type: ignore[misc]
        Broker.on_timer_set = on_timer_set  # type: ignore[method-assign]


def run_without_caches(seed: int, **options: Any) -> Report:
    """Run the schedule of a seed without caches. A finding says if its bytes differ from those of a
    run with caches.
    """
    with without_caches():
        report = run_seed(seed, **options)
    if report.digest != run_seed(seed).digest:
        report.findings.append(Finding("caches", "without them the broker sends other bytes"))
    return report
