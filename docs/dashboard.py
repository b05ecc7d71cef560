"""Writes docs/grafana-dashboard.json from the table of barnabas/metrics/rim/table.py.

In each row of the table, Charts define how the metric is shown. Charts with the same title are
lines of one panel. The panels are in the order in which the table first names them, three side by
side.
Source: Grafana's JSON model of a dashboard, schema version 38.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.metrics.rim.metric import Chart, Kind, Metric
from barnabas.metrics.rim.table import SECTIONS

TARGET = Path(__file__).resolve().parent / "grafana-dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
AT_A_GLANCE = "At a glance"
# The drop-down lists above the panels. For each label: the title of the list, and a metric that has
# the label.
VARIABLES = {
    "job": ("Job", "barnabas_info"),
    "api": ("API", "barnabas_request_seconds_count"),
    "topic": ("Topic", "barnabas_topic_partitions"),
    "group": ("Group", "barnabas_group_members"),
}
# The metrics of the process, which prometheus_client exports.
PROCESS = (
    Metric(
        "process_cpu_seconds_total",
        Kind.COUNTER,
        "",
        charts=(Chart("CPU", "cores", unit="short"),),
    ),
    Metric("process_resident_memory_bytes", Kind.GAUGE, "", charts=(Chart("Memory", "resident"),)),
)
SHOWN = {**SECTIONS, "Loop, disk and process": (*SECTIONS["Loop, disk and process"], *PROCESS)}


def query_of(metric: Metric, chart: Chart) -> str:
    """Return the PromQL query of a chart."""
    if chart.query:
        return chart.query
    matchers = ", ".join(filter(None, ('job=~"$job"', chart.where)))
    by = f" by ({', '.join(chart.by)})" if chart.by else ""
    gap = " " if by else ""
    if metric.kind is Kind.GAUGE:
        return f"{chart.of}{by}{gap}({metric.name}{{{matchers}}})"
    if metric.kind is Kind.HISTOGRAM and chart.of != "rate":
        buckets = f"rate({metric.name}_bucket{{{matchers}}}[$__rate_interval])"
        return f"histogram_quantile(0.99, sum by ({', '.join((*chart.by, 'le'))}) ({buckets}))"
    name = f"{metric.name}_count" if metric.kind is Kind.HISTOGRAM else metric.name
    return f"sum{by}{gap}(rate({name}{{{matchers}}}[$__rate_interval]))"


def unit_of(metric: Metric, chart: Chart) -> str:
    """Grafana's name for the unit of a chart."""
    if chart.unit:
        return chart.unit
    if metric.name.endswith("_bytes_total"):
        return "Bps"
    if metric.kind is Kind.COUNTER or chart.of == "rate":
        return "ops"
    if metric.name.endswith("_seconds"):
        return "s"
    return "bytes" if metric.name.endswith("_bytes") else "short"


def target(letter: str, metric: Metric, chart: Chart) -> dict[str, Any]:
    """Make one line of a panel."""
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": query_of(metric, chart),
        "legendFormat": chart.legend,
        "editorMode": "code",
        "range": True,
        "instant": chart.at_a_glance,
    }


def panel(rows: list[tuple[Metric, Chart]]) -> dict[str, Any]:
    """Make a panel with all charts of one title. The first chart determines the unit and the
    description.
    """
    (metric, chart), *_ = rows
    defaults: dict[str, Any] = {"unit": unit_of(metric, chart), "min": 0}
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if chart.at_a_glance:
        options = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area",
        }
    else:
        defaults["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 20 if chart.is_stacked else 0,
            "stacking": {"mode": "normal" if chart.is_stacked else "none"},
        }
    return {
        "type": "stat" if chart.at_a_glance else "timeseries",
        "title": chart.title,
        "description": chart.about,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [target(chr(ord("A") + at), *row) for at, row in enumerate(rows)],
    }


def placed_panels() -> list[dict[str, Any]]:
    """All panels with their ids and positions, each section under its heading."""
    sections: dict[str, dict[str, list[tuple[Metric, Chart]]]] = {AT_A_GLANCE: {}}
    sections |= {name: {} for name in SHOWN}
    for name, rows in SHOWN.items():
        for metric in rows:
            for chart in metric.charts:
                section = AT_A_GLANCE if chart.at_a_glance else chart.section or name
                sections[section].setdefault(chart.title, []).append((metric, chart))
    out: list[dict[str, Any]] = []
    y = 0
    for heading, titles in sections.items():
        if not titles:
            continue
        panels = [panel(charts) for charts in titles.values()]
        width = 4 if heading == AT_A_GLANCE else 8
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        row = {"type": "row", "title": heading, "collapsed": False, "panels": []}
        out.append({"id": len(out) + 1, "gridPos": place, **row})
        y += 1
        in_a_line = 24 // width
        for at, one in enumerate(panels):
            x, line = at % in_a_line * width, at // in_a_line
            place = {"h": 8, "w": width, "x": x, "y": y + 8 * line}
            out.append({"id": len(out) + 1, "gridPos": place, **one})
        y += 8 * -(-len(panels) // in_a_line)
    return out


def variables() -> list[dict[str, Any]]:
    """The drop-down lists above the panels."""
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "${DS_PROMETHEUS}", "value": "${DS_PROMETHEUS}"},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
    }
    return [
        source,
        *(
            {
                "name": name,
                "label": label,
                "type": "query",
                "datasource": SOURCE,
                "definition": f"label_values({metric}, {name})",
                "query": {"query": f"label_values({metric}, {name})", "refId": name},
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": ["All"], "value": ["$__all"]},
                "hide": 0,
                "options": [],
                "regex": "",
            }
            for name, (label, metric) in VARIABLES.items()
        ),
    ]


def text() -> str:
    """The whole file."""
    requires = (
        ("grafana", "grafana", "Grafana", "9.5.0"),
        ("datasource", "prometheus", "Prometheus", "1.0.0"),
        ("panel", "timeseries", "Time series", ""),
        ("panel", "stat", "Stat", ""),
    )
    dashboard = {
        "__inputs": [
            {
                "name": "DS_PROMETHEUS",
                "label": "Prometheus",
                "description": "what scrapes the broker",
                "type": "datasource",
                "pluginId": "prometheus",
                "pluginName": "Prometheus",
            }
        ],
        "__requires": [
            {"type": kind, "id": name, "name": label, "version": version}
            for kind, name, label, version in requires
        ],
        "id": None,
        "uid": "barnabas",
        "title": "Barnabas",
        "description": "A Barnabas broker: requests, transactions, groups, disk. docs/METRICS.md "
        "has the meanings.",
        "tags": ["kafka", "barnabas"],
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 38,
        "version": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "weekStart": "",
        "links": [],
        "liveNow": False,
        "style": "dark",
        "annotations": {"list": []},
        "templating": {"list": variables()},
        "panels": placed_panels(),
    }
    return json.dumps(dashboard, indent=2) + "\n"
