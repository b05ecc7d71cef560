"""Writes docs/METRICS.md from the table of broker/metrics/rim/table.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.broker.metrics.rim.metric import Detail, Metric
from barnabas.broker.metrics.rim.table import METRICS

TARGET = Path(__file__).resolve().parent / "METRICS.md"
_BEFORE = """\
# Metrics and logs

*Written by `make docs-pages`; the tables are those of `broker/metrics/rim/table.py`.*

    pip install 'barnabas[metrics]'
    barnabas start --metrics-port 9404

and in Prometheus' configuration

```yaml
scrape_configs:
  - job_name: barnabas
    static_configs: [{targets: ["127.0.0.1:9404"]}]
```

[grafana-dashboard.json](grafana-dashboard.json) is a dashboard of all this: in Grafana
*Dashboards*, *New*, *Import*, and choose the Prometheus that scrapes.

- `--metrics-port N` is the setting `barnabas.metrics.port`; 0 takes a free port, which the log
  names. It is off without it, and costs nothing then.
- It listens on 127.0.0.1, and answers only whoever asks for it by a name of this machine, so that
  no page in a browser reads it. Set `barnabas.metrics.host` where Prometheus is elsewhere. There
  are no secrets in it; names of topics and groups there are.
- `barnabas.metrics.detail` bounds the number of series: `partitions` (the default) shows all below;
  `topics` leaves out what is marked *partitions*; `none` leaves out *topics*, too, and then the
  number does not depend on what is in the broker. Beyond 100,000 partitions, or offsets of groups,
  the rest is left out, and `barnabas_scrape_left_out` says how many.
- Of more than 100 requests a second of one API a sample is timed, which stands for the rest; their
  number is exact.
- A scrape looks at the broker in slices of a hundred rows, between which clients are served.
"""


_LOGS = """\
## Logs

On standard error, a line each, for people:

    2026-11-21 10:15:02,417 INFO barnabas.storage.log.log: orders-0: the segment at 0 is deleted

(what clients say stays within its line: what cannot be printed is escaped), or with
`--log-format json` (the setting `barnabas.log.format`) as JSON, a line each:

    {"time": "2026-11-21T10:15:02.417Z", "level": "INFO", "logger": "barnabas.storage.log.log",
     "message": "orders-0: the segment at 0 is deleted", "topic": "orders", "partition": 0}

`time` (UTC), `level`, `logger` and `message` are always there, `exception` where there is one.
Where the broker knows them, fields of their own are: `topic`, `partition`, `transactional_id`,
`producer_id`, `producer_epoch`, `group`, `client`, `client_id`, `offset`, `state`.

The logger `barnabas.transactions` tells at DEBUG each step of each transaction, from
InitProducerId to its last marker. Start with `--log-level barnabas.transactions=DEBUG`, or switch
it on while the broker runs, as Kafka's tools do it:

    kafka-configs.sh --bootstrap-server 127.0.0.1:9092 --alter --entity-type broker-loggers \\
        --entity-name 0 --add-config barnabas.transactions=DEBUG

Each line has the transactional id or the producer id, so one transaction is

    grep -e '"transactional_id": "orders-1"' -e '"producer_id": 4001[,}]' log

What the command itself prints, where it listens, goes to standard output and is no part of the log.
"""


def row(metric: Metric) -> str:
    """A line of a table."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.doc} |"


def text() -> str:
    """The whole file."""
    parts = [_BEFORE]
    for detail, heading in (
        (Detail.NONE, "## Always"),
        (Detail.TOPICS, "## With `barnabas.metrics.detail=topics`"),
        (Detail.PARTITIONS, "## With `barnabas.metrics.detail=partitions`"),
    ):
        parts += [f"{heading}\n", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        parts += [row(metric) for metric in METRICS if metric.detail is detail]
        parts.append("")
    parts.append(
        "Of the process there are those of prometheus_client: `process_cpu_seconds_total`,\n"
        "`process_resident_memory_bytes`, `process_open_fds`, `process_max_fds`,\n"
        "`process_start_time_seconds`, `process_virtual_memory_bytes`, `python_gc_*` and\n"
        "`python_info`.\n"
    )
    parts.append(_LOGS)
    return "\n".join(parts)
