"""The table of metrics, in the order of the dashboard's rows.

A new metric needs only a row here, apart from the code that measures it. docs/METRICS.md and
docs/grafana-dashboard.json are made from the table (`make docs-pages`), and a scrape goes through
it. A counter is incremented by its metric's name (`observation/counters.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from barnabas.broker.observe import NO_OFFSET, CommittedOffsetState, GroupState, PartitionState
from barnabas.coordinator.transactions.transaction_state import (
    AT_REST,
    NO_TIMEOUT_MS,
    PREPARED,
    TransactionState,
)
from barnabas.metrics.histogram import Buckets
from barnabas.metrics.labels import label_text
from barnabas.metrics.rim.measured import RequestTimes
from barnabas.metrics.rim.metric import (
    Chart,
    Detail,
    Histograms,
    Metric,
    Value,
    counter,
    gauge,
    histogram,
)
from barnabas.metrics.rim.replication_rows import OF_REPLICATION
from barnabas.metrics.rim.seen import Seen
from barnabas.metrics.rim.share_rows import SHARE_GROUPS
from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.errors import Code
from barnabas.version import __version__

# the time beyond transaction.max.timeout.ms after which a transaction hangs, from KIP-664
LATE_MS = 5 * 60_000
SHOWN_STATES = (*AT_REST, TransactionState.ONGOING, *PREPARED)
OPEN_STATES = (TransactionState.ONGOING, *PREPARED)
_PARTITION, _GROUP_TOPIC = ("topic", "partition"), ("group", "topic")
_HOLDER = (*_PARTITION, "transactional_id", "producer_id")
_WHOLE_HOLDER = ("topic", "transactional_id", "producer_id", "held_at")
_GROUP_PARTITION = ("group", "topic", "partition")
_LOGIN, _ERROR = ("listener", "mechanism", "result"), ("api", "error")


# --- how rows are read --------------------------------------------------------------------------


def _labelled(names: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]) -> Value:
    return ((label_text(names, values), value) for values, value in rows)


def _times_by_api(seen: Seen) -> list[tuple[str, RequestTimes]]:
    return [row for row in seen.source.measuring.instruments.by_api() if row[1].work.total]


def _phases(seen: Seen) -> Iterator[tuple[tuple[str, ...], Buckets]]:
    """The time of requests by phase. For a request that was not parked, the phases `wait` and
    `disk` are counted as 0.
    """
    for name, times in _times_by_api(seen):
        yield (name, "queue"), times.queue.buckets()
        yield (name, "work"), times.work.buckets()
        for phase, parked in (("wait", times.wait), ("disk", times.disk)):
            zeros = max(0, times.whole.total - parked.total)
            yield (name, phase), parked.buckets(zeros=zeros)


def _errors(seen: Seen) -> Value:
    """The number of errors in answers, by API and error code."""
    counts = seen.source.state.errors
    return _labelled(
        _ERROR,
        (((BY_KEY[api].name, _code_name(code)), n) for (api, code), n in sorted(counts.items())),
    )


def _code_name(code: int) -> str:
    """The name of an error code; its number if it is unknown."""
    try:
        return Code(code).name
    except ValueError:
        return str(code)


def _logins(seen: Seen) -> Value:
    """The number of logins, by listener, mechanism and result."""
    results = {True: "succeeded", False: "failed"}
    rows = seen.source.state.login_counts()
    return _labelled(
        _LOGIN,
        (((row.listener, row.mechanism, results[row.has_succeeded]), row.total) for row in rows),
    )


def _info(seen: Seen) -> Value:
    """A row with the value 1, whose labels describe the broker."""
    state = seen.source.state
    values = (__version__, str(state.config.node_id), state.cluster_id)
    return _labelled(("version", "node_id", "cluster_id"), [(values, 1)])


def _free_bytes(seen: Seen) -> float:
    return seen.source.state.free_bytes()


def _ids_by_state(seen: Seen) -> Value:
    counts = Counter(row.state for row in seen.transactional_ids)
    return _labelled(("state",), (((s.value,), counts[s.value]) for s in SHOWN_STATES))


def _oldest_by_state(seen: Seen) -> Value:
    """The age in seconds of the oldest open transaction in each state; 0 if there is none."""
    ages = {
        state.value: max(
            (row.age_ms or 0 for row in seen.transactional_ids if row.state == state.value),
            default=0,
        )
        for state in OPEN_STATES
    }
    return _labelled(("state",), (((state,), age / 1000) for state, age in ages.items()))


def _late_partitions(seen: Seen) -> float:
    """The number of partitions with a hanging transaction, which has been open for longer than any
    timeout allows (KIP-664). Transactions of two-phase commit have no timeout.
    """
    latest_ms = seen.wall_ms - seen.source.state.config.transaction_max_timeout_ms - LATE_MS
    two_phase = {
        row.producer_id
        for row in seen.transactional_ids
        if row.timeout_ms == NO_TIMEOUT_MS and row.age_ms is not None
    }
    return sum(
        any(
            open_.last_timestamp < latest_ms and open_.producer_id not in two_phase
            for open_ in row.open_transactions
        )
        for row in seen.partitions
    )


def _groups_by_state(seen: Seen) -> Value:
    """The number of groups, by type and state."""
    return _labelled(
        ("type", "state"), sorted(Counter((one.kind, one.state) for one in seen.groups).items())
    )


def _group_lags(seen: Seen) -> Value:
    """The lag of each group in each topic, summed over the topic's partitions."""
    lags: Counter[tuple[str, str]] = Counter()
    for group in seen.groups:
        for offset in group.offsets:
            if offset.lag is not None:
                lags[group.group_id, offset.topic] += offset.lag
    return _labelled(_GROUP_TOPIC, lags.items())


def _group_held_back(seen: Seen) -> Value:
    """The offsets that open transactions hold back, by group and topic. Share groups are left out,
    since they read records of open transactions by default.
    """
    totals: Counter[tuple[str, str]] = Counter()
    for group in seen.groups:
        for offset in group.offsets:
            if offset.lag is not None and not offset.is_of_share_group:
                totals[group.group_id, offset.topic] += offset.held
    return _labelled(_GROUP_TOPIC, totals.items())


def _group_situations(seen: Seen) -> Value:
    """The number of a group's partitions in each situation in which it has any."""
    counts = Counter(
        (group.group_id, offset.situation.value)
        for group in seen.groups
        for offset in group.offsets
    )
    return _labelled(("group", "situation"), counts.items())


def _partition_held_back(seen: Seen) -> Iterator[tuple[str, float]]:
    """The number of offsets that are held back in each partition. A label names the transaction at
    the last stable offset. Its transactional id is empty if it is unknown.
    """
    names = {row.producer_id: row.transactional_id for row in seen.transactional_ids}
    for row in seen.shown_partitions:
        if row.stable_lag and row.open_transactions:
            first = min(row.open_transactions, key=lambda one: one.first_offset)
            name = names.get(first.producer_id, "")
            values = (row.topic, str(row.partition), name, str(first.producer_id))
            yield label_text(_HOLDER, values), row.stable_lag


def _held_elsewhere(seen: Seen) -> Iterator[tuple[str, float]]:
    """The offsets that are held back in each topic with whole transactions because of a transaction
    in another partition. Labels name the oldest transaction that is open in such topics.
    """
    open_there = [
        (one.last_timestamp, one.producer_id, row)
        for row in seen.partitions
        if row.is_whole
        for one in row.open_transactions
    ]
    if not open_there:
        return
    _, producer_id, where = min(open_there, key=lambda one: one[:2])
    name = next(
        (row.transactional_id for row in seen.transactional_ids if row.producer_id == producer_id),
        "",
    )
    totals: Counter[str] = Counter()
    for row in seen.partitions:
        if row.is_whole and row.is_held_elsewhere:
            totals[row.topic] += row.stable_lag
    for topic, held in totals.items():
        values = (topic, name, str(producer_id), f"{where.topic}-{where.partition}")
        yield label_text(_WHOLE_HOLDER, values), held


def _of_topic(value_of: Callable[[list[PartitionState]], float]) -> Callable[[Seen], Value]:
    return lambda seen: ((labels, value_of(rows)) for labels, rows in seen.topics)


def _of_group(value_of: Callable[[GroupState], float]) -> Callable[[Seen], Value]:
    """A function that gives a value for each group."""
    return lambda seen: _labelled(
        ("group",), (((group.group_id,), value_of(group)) for group in seen.groups)
    )


def _of_partition(value_of: Callable[[PartitionState], float]) -> Callable[[Seen], Value]:
    """A function that gives a value for each shown partition."""
    return lambda seen: zip(
        seen.partition_labels, map(value_of, seen.shown_partitions), strict=True
    )


def _of_offset(
    value_of: Callable[[CommittedOffsetState], float | None],
) -> Callable[[Seen], Value]:
    """A function that gives a value for each shown committed offset; None leaves a row out."""
    return lambda seen: (
        (labels, value)
        for labels, row in seen.shown_offsets
        if (value := value_of(row)) is not None
    )


def _request_times(seen: Seen) -> Histograms:
    return (((name,), times.whole.buckets()) for name, times in _times_by_api(seen))


# --- the table ----------------------------------------------------------------------------------

REQUESTS = (
    histogram(
        "barnabas_request_seconds",
        "The time from the arrival of a request until its answer is handed to the socket. It "
        "includes a Fetch's wait for data, which the consumer requests.",
        ("api",),
        Chart("Requests", "requests", of="rate", unit="reqps", at_a_glance=True),
        Chart("Requests by API", "{{api}}", by=("api",), of="rate", unit="reqps"),
        Chart(
            "Time of a request, 99 %",
            "{{api}}",
            by=("api",),
            where='api!="Fetch"',
            about="Without Fetch, which waits for data when there is none.",
        ),
        buckets=_request_times,
    ),
    histogram(
        "barnabas_request_phase_seconds",
        "The time of requests by phase. queue: until the loop reached the request; work: the "
        "broker handled it; wait: parked, for data, members or time; disk: parked until a "
        "flush. A request that was not parked counts as 0 in the last two.",
        ("api", "phase"),
        Chart(
            "Where the time goes",
            "{{phase}}",
            query="sum by (phase) (rate(barnabas_request_phase_seconds_sum"
            '{job=~"$job", api=~"$api"}[$__rate_interval])) / ignoring(phase) group_left '
            "sum(rate(barnabas_request_seconds_count"
            '{job=~"$job", api=~"$api"}[$__rate_interval]))',
            about="The mean of a request, by phase; choose the API above.",
            is_stacked=True,
        ),
        Chart(
            "Ends of transactions, 99 %",
            "{{phase}}",
            by=("phase",),
            where='api="EndTxn"',
            about="EndTxn by phase: disk is the wait for the decision to be durable.",
            section="Transactions",
        ),
        buckets=_phases,
    ),
    counter(
        "barnabas_errors_total",
        "Errors in answers; each partition's error counts.",
        _ERROR,
        Chart("Errors", "errors", at_a_glance=True, about="Each partition's error counts."),
        Chart("Errors by code", "{{api}} {{error}}", by=_ERROR),
        read=_errors,
    ),
    gauge(
        "barnabas_connections",
        "Connections that are open.",
        (),
        Chart("Connections", "open"),
        now=lambda source: len(source.server.connections()),
    ),
    gauge(
        "barnabas_waiting_fetches",
        "Fetches that wait for data.",
        (),
        Chart("Connections", "fetches that wait"),
        now=lambda source: source.state.waiting_fetch_count,
    ),
    counter(
        "barnabas_fetches_without_wait_total",
        "Fetches that were answered at once, since fetches that wait hold the share of their "
        "client of barnabas.waiting.fetches.max.bytes.",
        (),
        Chart("Connections", "fetches without wait per second"),
        read=lambda seen: seen.source.state.refused_fetch_count,
    ),
    counter(
        "barnabas_connections_opened_total",
        "Connections accepted since the start.",
        (),
        Chart("Connections", "opened per second"),
    ),
    counter(
        "barnabas_authentications_total",
        "Logins of clients, with renewals of sessions, at listeners that authenticate them; "
        "result: succeeded or failed. Mechanism TLS: by a certificate; none: refused before one "
        "was chosen.",
        _LOGIN,
        Chart("Connections", "failed logins per second", where='result="failed"'),
        read=_logins,
    ),
    counter(
        "barnabas_throttled_requests_total",
        "Requests that were throttled, since their clients exceeded a quota.",
        (),
        Chart("Quotas", "throttled per second"),
    ),
    counter(
        "barnabas_client_metrics_pushes_total",
        "Pushes of metrics by clients (KIP-714), by result: taken or refused. The broker does "
        "not evaluate them.",
        ("result",),
        from_zero=(("taken",), ("refused",)),
    ),
    counter(
        "barnabas_client_metrics_bytes_total",
        "Bytes of pushed metrics that were taken.",
    ),
    counter(
        "barnabas_received_bytes_total",
        "Bytes received from clients, as the system counts them (on Linux).",
        (),
        Chart("Bytes", "received"),
        read=lambda seen: seen.traffic.received,
    ),
    counter(
        "barnabas_sent_bytes_total",
        "Bytes sent to clients, without retransmissions (on Linux).",
        (),
        Chart("Bytes", "sent"),
        read=lambda seen: seen.traffic.sent,
    ),
)
TRANSACTIONS = (
    gauge(
        "barnabas_transactional_ids",
        "Active transactional ids by the state of their transaction.",
        ("state",),
        Chart("Transactional ids by state", "{{state}}", by=("state",), is_stacked=True),
        read=_ids_by_state,
    ),
    gauge(
        "barnabas_oldest_transaction_seconds",
        "The age of the oldest transaction in that state; 0 where there is none.",
        ("state",),
        Chart("Oldest transaction", "age", of="max", at_a_glance=True),
        Chart("Age of the oldest", "{{state}}", by=("state",), of="max"),
        read=_oldest_by_state,
    ),
    gauge(
        "barnabas_last_stable_offset_lag_max",
        "The largest distance of a partition's last stable offset from its high watermark, in "
        "offsets.",
        (),
        Chart(
            "Last stable offset behind by",
            "offsets",
            of="max",
            about=(
                "Offsets that read_committed consumers cannot read yet, of the partition with "
                "the most."
            ),
            at_a_glance=True,
        ),
        read=lambda seen: max((row.stable_lag for row in seen.partitions), default=0),
    ),
    counter(
        "barnabas_cuts_recorded_total",
        "Cuts of whole transactions that were recorded, for readers of a time in the past.",
    ),
    gauge(
        "barnabas_topic_held_back_by_others_offsets",
        "The offsets that barnabas.transactions.whole holds back in the topic because of "
        "transactions in other partitions, with the oldest one that is open there and its "
        "partition; only while there are any.",
        _WHOLE_HOLDER,
        detail=Detail.TOPICS,
        read=_held_elsewhere,
    ),
    gauge(
        "barnabas_partitions_with_late_transactions",
        "Partitions with a hanging transaction (KIP-664): its producer last wrote more than "
        "transaction.max.timeout.ms and five minutes ago, and no timeout ends it. Transactions "
        "of two-phase commit, which have no timeout, do not count.",
        (),
        Chart("Partitions with hanging transactions", "partitions"),
        read=_late_partitions,
    ),
    gauge(
        "barnabas_producer_ids",
        "Producer ids whose state the logs keep, added up over all partitions.",
        (),
        Chart("Live producer ids", "producer ids"),
        read=lambda seen: sum(row.producer_id_count for row in seen.partitions),
    ),
)
TOPICS_AND_GROUPS = (
    gauge(
        "barnabas_info",
        "1; the labels describe the broker.",
        ("version", "node_id", "cluster_id"),
        read=_info,
    ),
    gauge(
        "barnabas_topics",
        "Topics, internal ones too.",
        now=lambda source: source.state.topic_count,
    ),
    gauge(
        "barnabas_partitions",
        "Partitions that are online.",
        read=lambda seen: len(seen.partitions),
    ),
    gauge(
        "barnabas_offline_partitions",
        "Partitions whose log is damaged: they cannot be read or written.",
        now=lambda source: source.state.offline_count,
    ),
    gauge(
        "barnabas_groups",
        "Groups by type (classic, consumer, share, streams) and state (Kafka: group-count, "
        "consumer-group-count, share-group-count, streams-group-count).",
        ("type", "state"),
        Chart("Groups by state", "{{state}}", by=("state",), is_stacked=True),
        read=_groups_by_state,
    ),
    gauge(
        "barnabas_committed_offsets",
        "Offsets that groups have committed (Kafka: NumOffsets).",
        read=lambda seen: sum(
            row.offset != NO_OFFSET and not row.is_of_share_group
            for group in seen.groups
            for row in group.offsets
        ),
    ),
    counter(
        "barnabas_group_offset_commits_total",
        "Offsets committed by groups, each partition's; those of a transaction count when they are "
        "written, before it ends (Kafka: offset-commit-count).",
        (),
        Chart("Offsets of groups", "commits per second"),
    ),
    counter(
        "barnabas_group_offset_expirations_total",
        "Committed offsets that were removed at the end of their retention (Kafka: "
        "offset-expiration-count).",
        (),
        Chart("Offsets of groups", "expirations per second"),
    ),
    counter(
        "barnabas_group_offset_deletions_total",
        "Committed offsets that an administrator deleted with OffsetDelete (Kafka: "
        "offset-deletion-count).",
    ),
    counter(
        "barnabas_group_rebalances_total",
        "Rebalances of groups by type: of a classic group when the leader has assigned, of others "
        "when the group's epoch rises (Kafka: group-completed-rebalance-count, "
        "consumer-group-rebalance-count, share-group-rebalance-count, "
        "streams-group-rebalance-count).",
        ("type",),
        Chart("Rebalances", "{{type}}", by=("type",)),
        from_zero=(("classic",), ("consumer",), ("share",), ("streams",)),
    ),
    gauge(
        "barnabas_group_lag_max",
        "The largest lag of a group, over all its partitions.",
        (),
        Chart("Largest lag of a group", "offsets", of="max", at_a_glance=True),
        read=lambda seen: max((group.lag for group in seen.groups), default=0),
    ),
    gauge(
        "barnabas_topic_partitions",
        "Partitions of the topic that are online.",
        ("topic",),
        detail=Detail.TOPICS,
        read=_of_topic(len),
    ),
    gauge(
        "barnabas_topic_size_bytes",
        "The size of the topic's logs.",
        ("topic",),
        Chart(
            "Size by topic",
            "{{topic}}",
            query="topk(10, sum by (topic) "
            '(barnabas_topic_size_bytes{job=~"$job", topic=~"$topic"}))',
        ),
        detail=Detail.TOPICS,
        read=_of_topic(lambda rows: sum(row.size_bytes for row in rows)),
    ),
    gauge(
        "barnabas_topic_log_end_offset",
        "The sum of the log end offsets of the topic's partitions: its rate is the rate of "
        "records, including control records.",
        ("topic",),
        Chart(
            "Records per second by topic",
            "{{topic}}",
            query="topk(10, sum by (topic) (deriv(barnabas_topic_log_end_offset"
            '{job=~"$job", topic=~"$topic"}[$__rate_interval])))',
            unit="ops",
        ),
        detail=Detail.TOPICS,
        read=_of_topic(lambda rows: sum(row.log_end_offset for row in rows)),
    ),
    gauge(
        "barnabas_topic_last_stable_offset_lag_max",
        "The largest distance of a last stable offset from its high watermark among the topic's "
        "partitions, in offsets.",
        ("topic",),
        detail=Detail.TOPICS,
        read=_of_topic(lambda rows: max(row.stable_lag for row in rows)),
    ),
    gauge(
        "barnabas_group_members",
        "Members of the group.",
        ("group",),
        Chart("Members", "{{group}}", by=("group",), where='group=~"$group"'),
        detail=Detail.TOPICS,
        read=_of_group(lambda group: group.member_count),
    ),
    gauge(
        "barnabas_group_lag",
        "How far the group is behind, in offsets: from its commits to the high watermarks, over "
        "the topic's partitions with a commit and those of its members. Where nothing is committed "
        "yet, all that the partition has; 0 where only markers or aborted records follow.",
        _GROUP_TOPIC,
        Chart(
            "Lag by group and topic",
            "{{group}} {{topic}}",
            query="topk(10, sum by (group, topic) "
            '(barnabas_group_lag{job=~"$job", group=~"$group"}))',
        ),
        detail=Detail.TOPICS,
        read=_group_lags,
    ),
    gauge(
        "barnabas_group_held_back_offsets",
        "The part of the group's lag that open transactions hold back: offsets from the last "
        "stable offset on, over the topic's partitions.",
        _GROUP_TOPIC,
        detail=Detail.TOPICS,
        read=_group_held_back,
    ),
    gauge(
        "barnabas_group_partitions",
        "The group's partitions by situation: up to date, behind, waits (for an open transaction), "
        "never committed, before the start (records it had not read were deleted), beyond the end, "
        "batch number (of a Spark sink), not started (share groups), unknown.",
        ("group", "situation"),
        detail=Detail.TOPICS,
        read=_group_situations,
    ),
    gauge(
        "barnabas_group_pending_offsets",
        "Offsets of the group that wait for open transactions.",
        ("group",),
        detail=Detail.TOPICS,
        read=_of_group(lambda group: group.pending_count),
    ),
    gauge(
        "barnabas_partition_log_start_offset",
        "The first offset of the log.",
        _PARTITION,
        detail=Detail.PARTITIONS,
        read=_of_partition(lambda row: row.log_start_offset),
    ),
    gauge(
        "barnabas_partition_last_stable_offset",
        "The last stable offset: read_committed consumers read up to it.",
        _PARTITION,
        detail=Detail.PARTITIONS,
        read=_of_partition(lambda row: row.last_stable_offset),
    ),
    gauge(
        "barnabas_partition_high_watermark",
        "The high watermark: consumers read up to it.",
        _PARTITION,
        detail=Detail.PARTITIONS,
        read=_of_partition(lambda row: row.high_watermark),
    ),
    gauge(
        "barnabas_partition_log_end_offset",
        "The offset that the next record gets.",
        _PARTITION,
        detail=Detail.PARTITIONS,
        read=_of_partition(lambda row: row.log_end_offset),
    ),
    gauge(
        "barnabas_partition_last_stable_offset_lag",
        "The distance of the last stable offset from the high watermark, in offsets.",
        _PARTITION,
        Chart(
            "Last stable offset behind, by partition",
            "{{topic}}-{{partition}}",
            query="topk(10, barnabas_partition_last_stable_offset_lag"
            '{job=~"$job", topic=~"$topic"} > 0)',
        ),
        detail=Detail.PARTITIONS,
        read=_of_partition(lambda row: row.stable_lag),
    ),
    gauge(
        "barnabas_partition_size_bytes",
        "The size of the log.",
        _PARTITION,
        detail=Detail.PARTITIONS,
        read=_of_partition(lambda row: row.size_bytes),
    ),
    gauge(
        "barnabas_partition_segments",
        "Segments of the log.",
        _PARTITION,
        detail=Detail.PARTITIONS,
        read=_of_partition(lambda row: row.segment_count),
    ),
    gauge(
        "barnabas_partition_producer_ids",
        "Producer ids whose state the log keeps.",
        _PARTITION,
        detail=Detail.PARTITIONS,
        read=_of_partition(lambda row: row.producer_id_count),
    ),
    gauge(
        "barnabas_partition_open_transactions",
        "Open transactions: those with data in the log and no marker.",
        _PARTITION,
        detail=Detail.PARTITIONS,
        read=_of_partition(lambda row: len(row.open_transactions)),
    ),
    gauge(
        "barnabas_partition_held_back_offsets",
        "The offsets from the last stable offset on, which read_committed consumers cannot read "
        "yet, with the transaction that holds them back; only while there are any.",
        _HOLDER,
        detail=Detail.PARTITIONS,
        read=_partition_held_back,
    ),
    gauge(
        "barnabas_group_partition_lag",
        "How far the group is behind in the partition, in offsets; as barnabas_group_lag.",
        _GROUP_PARTITION,
        Chart(
            "Lag by partition",
            "{{group}} {{topic}}-{{partition}}",
            query='topk(10, barnabas_group_partition_lag{job=~"$job", group=~"$group"} > 0)',
        ),
        detail=Detail.PARTITIONS,
        read=_of_offset(lambda row: row.lag),
    ),
    gauge(
        "barnabas_group_committed_offset",
        "The offset that the group has committed.",
        _GROUP_PARTITION,
        detail=Detail.PARTITIONS,
        read=_of_offset(lambda row: None if row.offset == NO_OFFSET else row.offset),
    ),
)
LOOP_AND_DISK = (
    histogram(
        "barnabas_flush_seconds",
        "The time of a flush, of one file or of many together.",
        (),
        Chart("Flushes and fsyncs, 99 %", "flush"),
        Chart("Fsyncs per second", "flushes", of="rate"),
        buckets=lambda seen: [((), seen.source.measuring.instruments.flushes.buckets())],
    ),
    histogram(
        "barnabas_fsync_seconds",
        "The time of one file's fsync in the flusher's thread. Fsyncs of new topics and of "
        "checkpoints happen in the loop, and show as stalls.",
        (),
        Chart("Flushes and fsyncs, 99 %", "fsync"),
        Chart("Fsyncs per second", "fsyncs", of="rate"),
        buckets=lambda seen: [((), seen.source.measuring.instruments.fsyncs.buckets())],
    ),
    gauge(
        "barnabas_loop_longest_stall_seconds",
        "The longest round of the event loop in this minute and the last one; other requests "
        "wait during a round.",
        (),
        Chart("Longest stall of the loop", "stall", of="max", at_a_glance=True),
        Chart("Stalls of the loop", "longest", of="max"),
        now=lambda source: source.measuring.selector.longest_stall_ns() / 1e9,
    ),
    histogram(
        "barnabas_loop_stall_seconds",
        "Rounds of the event loop that lasted 5 ms or longer.",
        (),
        Chart(
            "Stalls of the loop",
            "in stalls of 5 ms or more, per second",
            query='sum(rate(barnabas_loop_stall_seconds_sum{job=~"$job"}[$__rate_interval]))',
        ),
        buckets=lambda seen: [((), seen.source.measuring.instruments.stalls.buckets())],
    ),
    gauge(
        "barnabas_request_memory_bytes",
        "Memory of requests that have not arrived completely, or wait for the worker; "
        "queued.max.request.bytes limits it.",
        (),
        Chart("Memory", "requests"),
        now=lambda source: source.server.request_memory_bytes,
    ),
    gauge(
        "barnabas_waiting_fetch_memory_bytes",
        "Memory of fetches that wait for data; barnabas.waiting.fetches.max.bytes limits it.",
        (),
        Chart("Memory", "fetches that wait"),
        now=lambda source: source.state.waiting_fetch_bytes,
    ),
    gauge(
        "barnabas_log_size_bytes",
        "The size of all logs.",
        (),
        Chart("Disk", "logs"),
        read=lambda seen: sum(row.size_bytes for row in seen.partitions),
    ),
    gauge(
        "barnabas_disk_free_bytes",
        "Free space on the data directory's disk.",
        (),
        Chart("Disk", "free", of="min"),
        read=_free_bytes,
    ),
    gauge(
        "barnabas_disk_usable_bytes",
        "What clients may still write: the free space without barnabas.disk.reserve.bytes; 0 while "
        "writes are refused.",
        (),
        Chart("Disk", "usable", of="min"),
        read=lambda seen: seen.source.state.usable_bytes(),
    ),
    counter(
        "barnabas_disk_refused_writes_total",
        "Writes of clients that were refused for lack of room on the disk.",
        (),
        read=lambda seen: seen.source.state.refused_write_count,
    ),
)
OF_THE_SCRAPE = (  # these metrics come last, so that the measured time covers the whole scrape
    gauge(
        "barnabas_scrape_left_out",
        "Partitions and offsets of groups that are not shown, since there are more than 100,000 of "
        "them.",
        ("what",),
        read=lambda seen: _labelled(
            ("what",), (((what,), count) for what, count in seen.left_out())
        ),
    ),
    gauge(
        "barnabas_scrape_seconds",
        "How long the scrape took.",
        read=lambda seen: seen.took_s(),
    ),
)

SECTIONS = {
    "Requests": REQUESTS,
    "Transactions": TRANSACTIONS,
    "Topics and groups": TOPICS_AND_GROUPS,
    "Share groups": SHARE_GROUPS,
    "Loop, disk and process": LOOP_AND_DISK,
    "Standby": OF_REPLICATION,
    "The scrape": OF_THE_SCRAPE,
}
METRICS: tuple[Metric, ...] = tuple(row for rows in SECTIONS.values() for row in rows)
