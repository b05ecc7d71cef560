"""Counters have the names of their metrics, and the table of metrics lists the valid names."""

from __future__ import annotations

import re

from helpers.places import ROOT

from barnabas.broker.observation.counters import Counters
from barnabas.coordinator.result import Counted
from barnabas.metrics.rim.metric import Kind
from barnabas.metrics.rim.table import METRICS

BROKER = ROOT / "broker"


def test_a_count_is_kept_by_its_labels() -> None:
    counters = Counters()
    counters.add("x_total", "taken")
    counters.add("x_total", "taken", count=4)
    counters.add("x_total", "refused")
    counters.add("y_total")
    assert counters.rows("x_total") == {("taken",): 5, ("refused",): 1}
    assert counters.of("x_total", "taken") == 5
    assert counters.of("y_total") == 1
    assert counters.rows("z_total") == {}


def test_counter_names_in_the_code_are_exactly_the_plain_counters_of_the_metrics_table() -> None:
    """A counter with a misspelt name would not be shown, and the metric of a row that is never
    counted would stay at 0.
    """
    call = re.compile(r'counters\.add\(\s*"(\w+)"')
    counted = {name for path in BROKER.rglob("*.py") for name in call.findall(path.read_text())}
    counted |= {what.value[0] for what in Counted}  # which GroupRuntime adds
    plain = {row.name for row in METRICS if row.kind is Kind.COUNTER and row.read is None}
    assert counted == plain


def test_each_metric_has_exactly_one_source_of_its_value() -> None:
    """`now`, `read` and `buckets` are the ways to compute a metric. A counter without any of these
    is read from `Counters`.
    """
    for row in METRICS:
        ways = [way for way in (row.now, row.read, row.buckets) if way is not None]
        assert len(ways) == 1 or (row.kind is Kind.COUNTER and not ways), row.name
        assert (row.buckets is not None) == (row.kind is Kind.HISTOGRAM), row.name
