"""Metrics: their values, names and units, the text that Prometheus reads, and the dashboard."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.places import ROOT
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from barnabas.daemon import main as command
from barnabas.installing import install_command
from barnabas.metrics.histogram import BOUNDS_NS, Histogram
from barnabas.metrics.labels import label_text
from barnabas.metrics.rim import measured, seen
from barnabas.metrics.rim.exposition import Exposition
from barnabas.metrics.rim.measured import Instruments, TimedSelector
from barnabas.metrics.rim.metric import Detail, Kind, Metric
from barnabas.metrics.rim.table import METRICS

DOCS = ROOT / "docs"
DURATIONS = st.lists(st.integers(0, 2 * BOUNDS_NS[-1]) | st.sampled_from(BOUNDS_NS))


@given(one_by_one=DURATIONS, together=DURATIONS, zeros=st.integers(0, 5))
def test_a_histogram_counts_the_observations_up_to_each_bound(
    one_by_one: list[int], together: list[int], zeros: int
) -> None:
    histogram = Histogram()
    for duration in one_by_one:
        histogram.observe(duration)
    histogram.observe_all(list(together))
    everything = [*one_by_one, *together, *[0] * zeros]
    shown = histogram.buckets(zeros=zeros)
    assert shown.counts == [sum(d <= bound for d in everything) for bound in BOUNDS_NS]
    assert (shown.total, shown.sum_ns) == (len(everything), sum(everything))
    assert histogram.total == len(one_by_one) + len(together)


@given(before=DURATIONS, latest=DURATIONS.filter(bool), count=st.integers(0, 10_000))
def test_unmeasured_observations_are_distributed_like_the_latest_measured_ones(
    before: list[int], latest: list[int], count: int
) -> None:
    """The observations that were not measured are added to the buckets in proportion to the latest
    measured ones, to within one. Earlier observations are kept.
    """
    histogram = Histogram()
    histogram.observe_all(list(before))
    histogram.mark()
    histogram.observe_all(list(latest))
    earlier = histogram.buckets()
    histogram.repeat_latest(count)
    shown = histogram.buckets()
    assert shown.total == len(before) + len(latest) + count
    assert shown.sum_ns - earlier.sum_ns == sum(latest) * count // len(latest)
    for was, now, bound in zip(earlier.counts, shown.counts, BOUNDS_NS, strict=True):
        share = count * sum(d <= bound for d in latest) / len(latest)
        assert abs(now - was - share) <= 0.5
    only_earlier = Histogram()
    only_earlier.observe_all(list(before))
    only_earlier.mark()
    only_earlier.repeat_latest(count)
    assert only_earlier.total == len(before)


def test_requests_that_were_not_measured_are_counted() -> None:
    """Of 1,000 requests, 50 were measured, and `left` counts the others. The others are added in
    proportion to the measured ones.
    """
    instruments = Instruments()
    times = instruments.requests[1]
    for _ in range(measured.MEASURED):
        times.latest.append((0, 20_000, 50_000))
    times.latest.pop()  # one request is missing, since it was parked
    times.queue.observe(20_000)
    times.work.observe(30_000)
    instruments.left[1] = -950
    instruments.fold()
    assert (times.queue.total, times.work.total, times.whole.total) == (1000, 1000, 999)
    assert instruments.left[1] == measured.MEASURED
    assert times.queue.buckets().sum_ns == 1000 * 20_000
    times.wait.observe(10**6)
    times.whole.observe(10**6 + 50_000)
    # None of these 100 requests was measured, so they are counted with the next measured request.
    instruments.left[1] = -100
    instruments.fold()
    assert (times.queue.total, times.unmeasured) == (1000, 100)
    times.latest.append((0, 20_000, 50_000))
    instruments.left[1] = measured.MEASURED - 1
    instruments.fold()
    assert (times.queue.total, times.whole.total, times.unmeasured) == (1101, 1101, 0)
    assert times.wait.total == 1 + 50, "every second that was answered had waited"


LABELS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00"))


@given(rows=st.dictionaries(LABELS, st.integers(0, 2**53)), doc=LABELS)
def test_prometheus_reads_back_the_values_that_were_written(rows: dict[str, int], doc: str) -> None:
    """The parser of prometheus_client replaces Prometheus. It accepts only a newline as the end of
    a line.
    """
    metric = Metric("barnabas_x", Kind.GAUGE, doc, ("name",))
    out = Exposition()
    out.add_rows(metric, [(label_text(("name",), (name,)), n) for name, n in rows.items()])
    (family,) = text_string_to_metric_families(out.text())
    assert {s.labels["name"]: s.value for s in family.samples} == rows
    assert (family.name, family.type) == ("barnabas_x", "gauge")


def test_prometheus_reads_a_histogram_with_its_buckets() -> None:
    histogram = Histogram()
    histogram.observe_all([15_000, 3_000_000, 10**12])
    out = Exposition()
    metric = Metric("barnabas_y_seconds", Kind.HISTOGRAM, "y", ("api",))
    out.add_histograms(metric, [(("Fetch",), histogram.buckets())])
    (family,) = text_string_to_metric_families(out.text())
    values = {(s.name, s.labels.get("le")): s.value for s in family.samples}
    assert values["barnabas_y_seconds_bucket", "1e-05"] == 0
    assert values["barnabas_y_seconds_bucket", "2e-05"] == 1
    assert values["barnabas_y_seconds_bucket", "0.005"] == 2
    assert values["barnabas_y_seconds_bucket", "100.0"] == 2
    assert values["barnabas_y_seconds_bucket", "+Inf"] == 3
    assert values["barnabas_y_seconds_count", None] == 3
    assert values["barnabas_y_seconds_sum", None] == pytest.approx(1000.003015)


def test_names_and_units_are_prometheus_conventions() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"barnabas_[a-z][a-z_]*[a-z]", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert not metric.name.endswith(("_ms", "_ns", "_count", "_sum", "_bucket")), metric.name
        assert metric.doc.endswith("."), metric.name
        if metric.kind is Kind.HISTOGRAM:
            assert metric.name.endswith("_seconds")
        if {"topic", "group"} & set(metric.labels):
            assert metric.detail is not Detail.NONE, f"{metric.name} has no bound"
        if "partition" in metric.labels:
            assert metric.detail is Detail.PARTITIONS


def test_each_counter_that_is_incremented_is_shown_and_no_other_one() -> None:
    """A counter is incremented by its name, so nothing else notices a name without a row."""
    shown = {row.name for row in METRICS if row.kind is Kind.COUNTER and row.read is None}
    incremented = {
        name
        for folder in ("barnabas", "broker", "coordinator", "storage")
        for path in (ROOT / folder).rglob("*.py")
        if "metrics" not in path.parts
        for name in re.findall(r'"(barnabas_\w+_total)"', path.read_text("utf-8"))
    }
    assert incremented == shown, "a counter has a row in barnabas/metrics/rim/table.py"


def test_the_traffic_is_that_of_all_connections_since_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A counter does not fall when a connection is closed."""
    instruments, now = Instruments(), {1: (10, 20), 2: (300, 400)}
    opened = {number: SimpleNamespace(closed=False, number=number) for number in now}
    monkeypatch.setattr(seen, "traffic_of", lambda one: measured.Traffic(*now[one.number]))
    source: Any = SimpleNamespace(
        server=SimpleNamespace(connections=lambda: list(opened.values())),
        measuring=SimpleNamespace(instruments=instruments),
    )

    def traffic() -> tuple[int, int]:
        look = seen._look_at_traffic(source)
        while True:
            try:
                next(look)
            except StopIteration as end:
                whole: measured.Traffic = end.value
                return whole.received, whole.sent

    assert traffic() == (310, 420)
    instruments.closed_traffic = measured.Traffic(*now[2])
    opened[2].closed = True  # not removed yet
    assert traffic() == (310, 420)
    del opened[2]
    assert traffic() == (310, 420)


def test_a_level_of_detail_shows_its_own_metrics_and_those_of_the_levels_above() -> None:
    shown = {level: [other for other in Detail if level.has(other)] for level in Detail}
    assert shown == {
        Detail.NONE: [Detail.NONE],
        Detail.TOPICS: [Detail.NONE, Detail.TOPICS],
        Detail.PARTITIONS: [Detail.NONE, Detail.TOPICS, Detail.PARTITIONS],
    }


def test_the_longest_round_of_the_event_loop_is_that_of_this_or_the_last_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`TimedSelector` measures how long the loop is busy between two waits. It reports
    the longest such time of the current and the previous minute.
    """
    now_ns = 10 * measured.STALL_WINDOW_NS
    monkeypatch.setattr(measured, "monotonic_ns", lambda: now_ns)
    stalls = Histogram()
    selector = TimedSelector(stalls)

    def round_of(busy_ns: int) -> None:
        nonlocal now_ns
        now_ns += busy_ns
        selector.wait(0, _wait=lambda *_: [], _clock=lambda: now_ns)

    round_of(10**9)  # time before the first round is not a stall
    assert selector.longest_stall_ns() == 0
    for busy_ns in (1_000_000, 40_000_000, 6_000_000):
        round_of(busy_ns)
    assert selector.longest_stall_ns() == 40_000_000
    assert stalls.total == 2
    now_ns += measured.STALL_WINDOW_NS
    assert selector.longest_stall_ns() == 40_000_000
    now_ns += measured.STALL_WINDOW_NS
    assert selector.longest_stall_ns() == 0
    for minutes, longest_ns in ((0, 30_000_000), (1, 30_000_000), (2, 0), (5, 0)):

        def wait(*_: object, minutes: int = minutes) -> list[Any]:
            nonlocal now_ns
            now_ns += minutes * measured.STALL_WINDOW_NS
            return []

        selector.woke_ns = now_ns
        round_of(30_000_000)
        selector.wait(None, _wait=wait, _clock=lambda: now_ns)
        assert selector.longest_stall_ns() == longest_ns, minutes
    selector.close()


def test_without_the_library_the_start_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    arguments = ["start", "--port", "0", "--data-dir", str(tmp_path / "data"), "--metrics-port"]
    assert command.main([*arguments, "0"]) == 1
    assert install_command("metrics") in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def panels_of(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_the_dashboard_has_what_grafanas_import_asks_for() -> None:
    """The required fields are those of Grafana's JSON model of a dashboard, schema version 38, and
    of exported dashboards.
    """
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text(encoding="utf-8"))
    assert dashboard["id"] is None
    assert 1 <= len(dashboard["uid"]) <= 40
    assert dashboard["title"]
    assert dashboard["schemaVersion"] == 38
    assert [row["type"] for row in dashboard["__inputs"]] == ["datasource"]
    variables = {row["name"]: row for row in dashboard["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
    required = {row["id"] for row in dashboard["__requires"]}
    for panel in panels_of(dashboard):
        assert panel["type"] in required
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables.keys(), target["expr"]
