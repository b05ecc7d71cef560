"""Makes the text of a scrape. First the loop's thread observes the broker, in slices.

Scrapes are served one after the other. Each slice of the observation blocks the loop for a short
time. Histograms and counts are read without blocking the loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from barnabas.broker.seams.host import Host
from barnabas.metrics.labels import label_text
from barnabas.metrics.rim.exposition import Exposition
from barnabas.metrics.rim.measured import Measuring
from barnabas.metrics.rim.metric import Detail, Kind, Metric, Value
from barnabas.metrics.rim.seen import Seen, Source, look
from barnabas.metrics.rim.table import METRICS
from barnabas.process.http_server import in_slices
from barnabas.replication.state import ReplicationState


class Collector:
    """Makes the text of a scrape, in any thread.

    Takes: detail, whether partitions and topics have metrics of their own; replication, a function
           that returns the standby's progress, or None if no standby can follow.
    After: the broker counts errors.
    """

    def __init__(
        self,
        server: Host,
        measuring: Measuring,
        detail: Detail,
        replication: Callable[[], ReplicationState] | None,
    ) -> None:
        self._source = Source(server, server.snapshots, measuring, replication)
        self._metrics = [metric for metric in METRICS if detail.has(metric.detail)]
        self._numbers = {row.name: row.now for row in self._metrics if row.now is not None}
        self._has_rows = detail.has(Detail.PARTITIONS)
        server.state.count_errors()
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
                    self._source,
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
    """Add the rows of a metric to the text; a metric without a value now is left out."""
    if metric.buckets is not None:
        out.add_histograms(metric, metric.buckets(seen))
        return
    value = _value_of(metric, seen)
    if isinstance(value, int | float):
        out.add(metric, value)
    elif value is not None:
        out.add_rows(metric, value)


def _value_of(metric: Metric, seen: Seen) -> Value:
    """The value of a metric: collected in the loop's thread, read from the scrape, or the rows of a
    counter.
    """
    if metric.now is not None:
        return seen.now[metric.name]
    if metric.read is not None:
        return metric.read(seen)
    assert metric.kind is Kind.COUNTER, metric.name
    counts = dict.fromkeys(metric.from_zero, 0) | seen.source.state.count_of(metric.name)
    return ((label_text(metric.labels, values), count) for values, count in counts.items())
