"""A scrape: a look at the broker in the loop's thread, in slices, and the text made of it.

Scrapes are served one after the other. The loop is blocked for one slice of a look at a time;
histograms and counts are read without it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from barnabas.broker.metrics.labels import label_text
from barnabas.broker.metrics.rim.exposition import Exposition
from barnabas.broker.metrics.rim.measured import MeasuredServer
from barnabas.broker.metrics.rim.metric import Detail, Kind, Metric
from barnabas.broker.metrics.rim.seen import Seen, look
from barnabas.broker.metrics.rim.table import METRICS
from barnabas.broker.observation.error_counts import ErrorCounts
from barnabas.broker.rim.http_server import in_slices

if TYPE_CHECKING:
    from barnabas.broker.metrics.rim.metric import Value


class Collector:
    """Makes the text of a scrape, in any thread.

    Takes: detail, whether partitions and topics have metrics of their own.
    After: the broker counts errors.
    """

    def __init__(self, server: MeasuredServer, detail: Detail) -> None:
        self._server = server
        self._metrics = [metric for metric in METRICS if detail.has(metric.detail)]
        self._numbers = {row.name: row.now for row in self._metrics if row.now is not None}
        self._has_rows = detail.has(Detail.PARTITIONS)
        server.broker.errors = ErrorCounts()
        self._lock = threading.Lock()
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def text(self, loop: asyncio.AbstractEventLoop) -> str:
        """All metrics, as Prometheus reads them."""
        with self._lock:
            began_s = time.perf_counter()
            seen = in_slices(
                loop,
                look(
                    self._server,
                    self._numbers,
                    self._has_rows,
                    lambda: time.perf_counter() - began_s,
                ),
            )
            process: str = generate_latest(self._process).decode()
            out = Exposition()
            for metric in self._metrics:
                _add(out, metric, seen)
            return out.text() + process


def _add(out: Exposition, metric: Metric, seen: Seen) -> None:
    if metric.buckets is not None:
        out.add_histograms(metric, metric.buckets(seen))
        return
    value = _value_of(metric, seen)
    if isinstance(value, int | float):
        out.add(metric, value)
    elif value is not None:
        out.add_rows(metric, value)


def _value_of(metric: Metric, seen: Seen) -> Value:
    if metric.now is not None:
        return seen.now[metric.name]
    if metric.read is not None:
        return metric.read(seen)
    assert metric.kind is Kind.COUNTER, metric.name
    counts = dict.fromkeys(metric.from_zero, 0) | seen.server.broker.counters.rows(metric.name)
    return ((label_text(metric.labels, values), count) for values, count in counts.items())
