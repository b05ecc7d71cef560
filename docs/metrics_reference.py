"""Writes docs/METRICS.md from the table of barnabas/metrics/rim/table.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from barnabas.metrics.rim.metric import Detail, Metric
from barnabas.metrics.rim.table import METRICS

TARGET = Path(__file__).resolve().parent / "METRICS.md"
_BEFORE = """\
# Metrics and logs

*Written by `make docs-pages`; the tables are those of `barnabas/metrics/rim/table.py`.*

    pip install './barnabas[metrics]'
    barnabas start --metrics-port 9404

There is no release yet: `./barnabas` is the path of your clone, or of a wheel from `make dist`.

In Prometheus' configuration

```yaml
scrape_configs:
  - job_name: barnabas
    static_configs: [{targets: ["127.0.0.1:9404"]}]
```

[grafana-dashboard.json](grafana-dashboard.json) is a dashboard of these metrics: in Grafana choose
*Dashboards*, *New*, *Import*, and the Prometheus that scrapes.

- `--metrics-port N` is the setting `barnabas.metrics.port`; 0 takes a free port, which the log
  names. Without it metrics are off and cost nothing.
- It listens on 127.0.0.1 and answers only requests with a name of this machine in their Host
  header, so that no page in a browser can read it. Set `barnabas.metrics.host` where Prometheus
  runs on another machine. The metrics contain no secrets, but names of topics and groups.
- `barnabas.metrics.detail` bounds the number of series: `partitions` (the default) shows all
  metrics below; `topics` omits those under *partitions*; `none` also omits those under *topics*,
  and then the number of series does not depend on the content of the broker. Beyond 100,000
  partitions, or offsets of groups, the rest is omitted; `barnabas_scrape_left_out` has its number.
- Above 100 requests a second of one API a sample is timed; the number of requests is exact.
- A scrape reads the broker's state in slices of a hundred rows, between which clients are served.
"""


_LOGS = """\
## Logs

One line each on standard error, for people:

    2026-11-21 10:15:02,417 INFO barnabas.storage.log.log: orders-0: the segment at 0 is deleted

(text of clients cannot add lines: characters that cannot be printed are escaped), or, with
`--log-format json` (the setting `barnabas.log.format`), one line of JSON each:

    {"time": "2026-11-21T10:15:02.417Z", "level": "INFO", "logger": "barnabas.storage.log.log",
     "message": "orders-0: the segment at 0 is deleted", "topic": "orders", "partition": 0}

`time` (UTC), `level`, `logger` and `message` are always present, `exception` where there is one.
These are fields of their own where they are known: `topic`, `partition`, `transactional_id`,
`producer_id`, `producer_epoch`, `group`, `client`, `client_id`, `offset`, `state`.

The logger `barnabas.transactions` logs each step of each transaction at DEBUG, from InitProducerId
to its last marker. Start with `--log-level barnabas.transactions=DEBUG`, or switch it on while the
broker runs, with Kafka's tools:

    kafka-configs.sh --bootstrap-server 127.0.0.1:9092 --alter --entity-type broker-loggers \\
        --entity-name 1 --add-config barnabas.transactions=DEBUG

Each line has the transactional id or the producer id, so this finds one transaction:

    grep -e '"transactional_id": "orders-1"' -e '"producer_id": 4001[,}]' log

The command's own output, the addresses on which it listens, goes to standard output and is not part
of the log.
"""


_KAFKA = """\
## Apache Kafka's metrics of groups

By the names of Apache Kafka 4.3. Where it has a rate beside a count, `rate()` of the count is it.

| Apache Kafka | here |
|---|---|
"""

OF_KAFKA = (
    (
        "`group-count`, `consumer-group-count`, `share-group-count`, `streams-group-count`",
        "`barnabas_groups` with its `type` and `state`",
    ),
    (
        "`NumGroups`, `NumGroupsPreparingRebalance`, `NumGroupsCompletingRebalance`, "
        "`NumGroupsStable`, `NumGroupsEmpty` (GroupMetadataManager)",
        '`barnabas_groups` with `type="classic"`; `NumGroupsDead`: none, such a group is gone',
    ),
    (
        "`group-completed-rebalance-count`, `consumer-group-rebalance-count`, "
        "`share-group-rebalance-count`, `streams-group-rebalance-count`",
        "`barnabas_group_rebalances_total` with its `type`; members that leave, or whose session "
        "expires, count here, too",
    ),
    (
        "`offset-commit-count`, `offset-expiration-count`, `offset-deletion-count`",
        "`barnabas_group_offset_commits_total`, `barnabas_group_offset_expirations_total`, "
        "`barnabas_group_offset_deletions_total`",
    ),
    (
        "`NumOffsets`",
        "`barnabas_committed_offsets`",
    ),
    (
        "`write-rate`, `write-total` (share-coordinator-metrics)",
        "`barnabas_share_state_writes_total`",
    ),
    (
        "`write-latency-avg`",
        "`barnabas_share_state_write_seconds_total` by the number of writes; there is no `-max`",
    ),
    (
        "`partition-load-time-max`, `-avg`",
        "`barnabas_share_state_load_seconds`: the partitions are loaded together, in the start",
    ),
    (
        "`num-partitions`",
        "`barnabas_topic_partitions` of `__share_group_state`; they are loaded and active as "
        "soon as the broker listens",
    ),
    (
        "`last-pruned-offset`",
        "`barnabas_partition_log_start_offset` of `__share_group_state`",
    ),
    (
        "`event-queue-time-ms`, `event-processing-time-ms`, `event-purgatory-time-ms`",
        "`barnabas_request_phase_seconds` of the API: queue, work, disk",
    ),
    (
        "`event-queue-size`",
        "none: what is queued are requests; `barnabas_request_phase_seconds`, phase queue",
    ),
    (
        "`batch-flush-time-ms`, `batch-flush-rate`",
        "`barnabas_flush_seconds`",
    ),
    (
        "`thread-idle-ratio-avg`",
        "`process_cpu_seconds_total`; the loop's longest rounds: `barnabas_loop_stall_seconds`",
    ),
    (
        "`batch-linger-time-ms`, `batch-buffer-cache-*`, `background-*`",
        "none: records are appended at once, and there is neither such a cache nor such a thread",
    ),
    (
        "`RecordAcknowledgementsPerSec`",
        "`barnabas_share_acknowledgements_total`",
    ),
    (
        "`InFlightMessageCount`, `InFlightBatchCount`",
        "`barnabas_share_partition_in_flight_records`, "
        "`barnabas_share_partition_in_flight_batches`, and their sums",
    ),
    (
        "`InFlightBatchMessageCount`",
        "the quotient of these sums; not as a histogram",
    ),
    (
        "`AcquisitionLockTimeoutPerSec`",
        "`barnabas_share_lock_timeouts_total`",
    ),
    (
        "`ShareSessionsCount`, `SharePartitionsCount`, `ShareSessionEvictionsPerSec`",
        "`barnabas_share_sessions`, `barnabas_share_session_partitions`, "
        "`barnabas_share_session_evictions_total`",
    ),
    (
        "`TotalShareFetchRequestsPerSec`, `TotalShareAcknowledgementRequestsPerSec`",
        '`barnabas_request_seconds_count` with `api="ShareFetch"` or `"ShareAcknowledge"`; '
        "not by topic",
    ),
    (
        "`FailedShareFetchRequestsPerSec`, `FailedShareAcknowledgementRequestsPerSec`",
        "`barnabas_errors_total` with that `api`",
    ),
    (
        "`NumDelayedOperations`, `PurgatorySize` with `delayedOperation=ShareFetch`",
        "`barnabas_waiting_fetches`, together with fetches of consumers",
    ),
    (
        "`ExpiresPerSec` (DelayedShareFetchMetrics)",
        "none: such a fetch is one whose phase wait, in `barnabas_request_phase_seconds` with "
        '`api="ShareFetch"`, takes its `max_wait_ms`',
    ),
    (
        "`FetchLockTimeMs`, `FetchLockRatio`",
        "none: one thread handles all requests, and there is no lock of a share partition",
    ),
    (
        "`PartitionLoadTimeMs`",
        "none: a share partition is loaded from memory, within one request",
    ),
    (
        "`TopicPartitionsAcquireTimeMs`",
        '`barnabas_request_phase_seconds` with `api="ShareFetch"`, phase wait; not by group',
    ),
    (
        "`RequestTopicPartitionsFetchRatio`",
        "none: a fetch ends with the partition from which it has enough records",
    ),
)
"""Metrics of Apache Kafka, each with its equivalent here, or the reason why there is none."""


def row(metric: Metric) -> str:
    """Format a metric as a row of a table."""
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
    parts.append(_KAFKA + "".join(f"| {theirs} | {ours} |\n" for theirs, ours in OF_KAFKA))
    parts.append(
        "There are prometheus_client's metrics of the process: `process_cpu_seconds_total`,\n"
        "`process_resident_memory_bytes`, `process_open_fds`, `process_max_fds`,\n"
        "`process_start_time_seconds`, `process_virtual_memory_bytes`, `python_gc_*` and\n"
        "`python_info`.\n"
    )
    parts.append(_LOGS)
    return "\n".join(parts)
