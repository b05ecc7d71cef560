"""A metric: one row of the table. It says how the metric's value is read, and where it is shown on
the dashboard.

    kind       where its value comes from, one of these
    counter    Counters, by its name; or `read`
    gauge      `now`, in the loop's thread; or `read`, from the scrape's values, in its thread
    histogram  `buckets`

Names and units follow Prometheus' conventions: base units, `_total` for counters, `_seconds` and
`_bytes` at the end. Labels use Kafka's terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from barnabas.metrics.histogram import Buckets
from barnabas.metrics.rim.seen import Seen, Source

# A value has one number or rows; a row has its labels as text, in braces (`label_text`). None
# means that the metric is left out.
Value = float | Iterable[tuple[str, float]] | None
Histograms = Iterable[tuple[tuple[str, ...], Buckets]]


class Kind(Enum):
    """The kind of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Detail(Enum):
    """A value of `barnabas.metrics.detail`. Each value also shows the metrics of the values before
    it.
    """

    NONE = "none"
    TOPICS = "topics"
    PARTITIONS = "partitions"

    def has(self, other: Detail) -> bool:
        """Whether this level shows the metrics that need the level `other`."""
        order = list(Detail)
        return order.index(other) <= order.index(self)


class Chart(NamedTuple):
    """A line of a panel of the dashboard. Charts of one title are lines of one panel.

    legend      with `{{label}}` for a label's value
    by          the labels by which the metric is grouped
    of          sum, max or min: of a gauge, over brokers; rate: of a histogram's count, instead of
                its 99th percentile
    where       a matcher of labels, such as api!="Fetch"
    query       a query of PromQL instead of all these
    unit        Grafana's; empty: derived from the metric's name and kind
    about       the panel's description
    is_stacked  lines are stacked
    at_a_glance shown as a number, in the dashboard's first row
    section     of the dashboard; empty: that of the metric
    """

    title: str
    legend: str
    by: tuple[str, ...] = ()
    of: str = "sum"
    where: str = ""
    query: str = ""
    unit: str = ""
    about: str = ""
    is_stacked: bool = False
    at_a_glance: bool = False
    section: str = ""


class Metric(NamedTuple):
    """A metric: one row of the table. Metrics with labels for topics or groups have a detail.

    from_zero: labels whose count is shown as 0 before the first event, since a rate has to begin at
    zero.
    """

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()
    detail: Detail = Detail.NONE
    now: Callable[[Source], float] | None = None
    read: Callable[[Seen], Value] | None = None
    buckets: Callable[[Seen], Histograms] | None = None
    from_zero: tuple[tuple[str, ...], ...] = ()
    charts: tuple[Chart, ...] = ()


def counter(
    name: str,
    doc: str,
    labels: tuple[str, ...] = (),
    *charts: Chart,
    read: Callable[[Seen], Value] | None = None,
    from_zero: tuple[tuple[str, ...], ...] = ((),),
) -> Metric:
    """A row for a counter. Takes: from_zero, the values of the labels whose rows are shown before
    the first event.
    """
    return Metric(name, Kind.COUNTER, doc, labels, read=read, from_zero=from_zero, charts=charts)


def gauge(
    name: str,
    doc: str,
    labels: tuple[str, ...] = (),
    *charts: Chart,
    detail: Detail = Detail.NONE,
    now: Callable[[Source], float] | None = None,
    read: Callable[[Seen], Value] | None = None,
) -> Metric:
    """A row for a gauge. Takes: now, a function that is called in the loop's thread; or read, which
    gets the values of the scrape.
    """
    return Metric(name, Kind.GAUGE, doc, labels, detail, now=now, read=read, charts=charts)


def histogram(
    name: str,
    doc: str,
    labels: tuple[str, ...],
    *charts: Chart,
    buckets: Callable[[Seen], Histograms],
) -> Metric:
    """A row for a histogram. Takes: buckets, a function that gives the buckets for each combination
    of label values.
    """
    return Metric(name, Kind.HISTOGRAM, doc, labels, buckets=buckets, charts=charts)
