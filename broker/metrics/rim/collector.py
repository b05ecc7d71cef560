"""What a scrape gathers: a look at the broker in the loop's thread, in slices; the text outside it.

Scrapes are served one after the other. The loop is held up by no more than a slice of a look at a
time; what is counted all along is read without it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from barnabas.broker.metrics import table
from barnabas.broker.metrics.histogram import Buckets
from barnabas.broker.metrics.rim.exposition import Exposition, label_text
from barnabas.broker.metrics.rim.measured import Measuring, RequestTimes, Traffic, traffic_of
from barnabas.broker.metrics.table import Detail
from barnabas.broker.observation.error_counts import ErrorCounts
from barnabas.broker.observation.login_counts import LoginCounts
from barnabas.broker.observation.observe import (
    ROWS_AT_ONCE,
    GroupState,
    Look,
    PartitionState,
    TransactionalIdState,
    look_at_groups,
    look_at_partitions,
    look_at_transactional_ids,
)
from barnabas.broker.replication.state import ReplicationState
from barnabas.broker.requests.telemetry import Telemetry
from barnabas.broker.rim.http_server import in_slices
from barnabas.broker.rim.server import Server
from barnabas.coordinator.transactions.transaction_state import (
    AT_REST,
    NO_TIMEOUT_MS,
    PREPARED,
    TransactionState,
)
from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.errors import Code
from barnabas.version import __version__

MOST_ROWS = 100_000
LATE_MS = 5 * 60_000  # beyond transaction.max.timeout.ms, as KIP-664 has it
SHOWN_STATES = (*AT_REST, TransactionState.ONGOING, *PREPARED)
OPEN_STATES = (TransactionState.ONGOING, *PREPARED)


class _Broker(NamedTuple):
    """What a look at the broker gave."""

    partitions: tuple[PartitionState, ...]
    transactional_ids: tuple[TransactionalIdState, ...]
    groups: tuple[GroupState, ...]
    traffic: Traffic
    connection_count: int
    connections_opened: int
    throttled_count: int
    waiting_fetches: int
    request_memory_bytes: int
    longest_stall_ns: int
    topic_count: int
    offline_count: int
    wall_ms: int
    replication: ReplicationState | None


class Collector:
    """Makes the text of a scrape, in any thread.

    Takes: detail, whether partitions and topics have metrics of their own; replication, how far the
           standby is, where one can follow.
    After: the broker counts errors.
    """

    def __init__(
        self,
        server: Server,
        measuring: Measuring,
        detail: Detail,
        replication: Callable[[], ReplicationState] | None,
    ) -> None:
        self._server, self._broker, self._detail = server, server.broker, detail
        self._measuring, self._replication = measuring, replication
        self._errors = self._broker.errors = ErrorCounts()
        self._lock = threading.Lock()
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def text(self, loop: asyncio.AbstractEventLoop) -> str:
        """All metrics, as Prometheus reads them."""
        with self._lock:
            began_s = time.perf_counter()
            seen = in_slices(loop, self._look())
            out = Exposition()
            self._add_requests(out, seen)
            self._add_loop_and_disk(out, seen)
            self._add_broker(out, seen)
            self._add_transactions(out, seen)
            if seen.replication is not None:
                _add_replication(out, seen.replication)
            left_out = [("partitions", 0), ("offsets", 0)]
            if self._detail.has(Detail.TOPICS):
                _add_topics(out, seen.partitions)
                _add_groups(out, seen.groups)
            if self._detail.has(Detail.PARTITIONS):
                left_out = _add_partitions(out, seen)
            out.add_rows(
                table.LEFT_OUT,
                [(label_text(("what",), (what,)), count) for what, count in left_out],
            )
            process: str = generate_latest(self._process).decode()
            out.add(table.SCRAPE, time.perf_counter() - began_s)
            return out.text() + process

    # --- in the loop's thread --------------------------------------------------------------------

    def _look(self) -> Look[_Broker]:
        server, broker = self._server, self._broker
        now_ms = server.now_ms()
        self._measuring.instruments.fold()
        partitions = yield from look_at_partitions(broker)
        transactional_ids = yield from look_at_transactional_ids(broker, now_ms)
        groups = yield from look_at_groups(broker)
        traffic, connection_count = yield from self._look_at_traffic()
        return _Broker(
            partitions,
            transactional_ids,
            groups,
            traffic,
            connection_count,
            server.acceptor.connections_opened,
            server.throttled_count,
            broker.purgatory.waiting_count,
            server.request_memory_bytes,
            self._measuring.selector.longest_stall_ns(),
            len(broker.metadata.topics),
            len(broker.logs.offline),
            now_ms + broker.wall.ahead_ms,
            None if self._replication is None else self._replication(),
        )

    def _look_at_traffic(self) -> Look[tuple[Traffic, int]]:
        """Count bytes of all connections since the start, and how many there are."""
        received = sent = 0
        connections = self._server.connections()
        for number, connection in enumerate(connections, 1):
            if not connection.closed:
                traffic = traffic_of(connection)
                received, sent = received + traffic.received, sent + traffic.sent
            if number % ROWS_AT_ONCE == 0:
                yield
        closed = self._measuring.instruments.closed_traffic
        return Traffic(received + closed.received, sent + closed.sent), len(connections)

    # --- the text --------------------------------------------------------------------------------

    def _add_requests(self, out: Exposition, seen: _Broker) -> None:
        rows = [row for row in self._measuring.instruments.by_api() if row[1].work.total]
        out.add_histograms(
            table.REQUEST, [((name,), times.whole.buckets()) for name, times in rows]
        )
        out.add_histograms(table.REQUEST_PHASE, _phases(rows))
        errors = sorted(self._errors.counts.copy().items())
        out.add_rows(
            table.ERRORS,
            [
                (label_text(table.ERRORS.labels, (BY_KEY[api].name, _code_name(code))), count)
                for (api, code), count in errors
            ],
        )
        out.add(table.FETCHES_WAITING, seen.waiting_fetches)
        out.add(table.CONNECTIONS, seen.connection_count)
        out.add(table.CONNECTIONS_OPENED, seen.connections_opened)
        out.add_rows(table.LOGINS, _logins(self._broker.logins))
        out.add(table.THROTTLED, seen.throttled_count)
        pushed = self._broker.telemetry or Telemetry({})
        pushes = (("taken", pushed.push_count), ("refused", pushed.refused_count))
        out.add_rows(
            table.PUSHES,
            [(label_text(table.PUSHES.labels, (result,)), count) for result, count in pushes],
        )
        out.add(table.PUSHED, pushed.pushed_bytes)
        out.add(table.RECEIVED, seen.traffic.received)
        out.add(table.SENT, seen.traffic.sent)
        out.add(table.REQUEST_MEMORY, seen.request_memory_bytes)

    def _add_loop_and_disk(self, out: Exposition, seen: _Broker) -> None:
        instruments, logs = self._measuring.instruments, self._broker.logs
        out.add(table.LONGEST_STALL, seen.longest_stall_ns / 1e9)
        out.add_histograms(table.STALL, [((), instruments.stalls.buckets())])
        out.add_histograms(table.FSYNC, [((), instruments.fsyncs.buckets())])
        out.add_histograms(table.FLUSH, [((), instruments.flushes.buckets())])
        out.add(table.DISK_FREE, logs.disk.free_bytes(logs.data_dir))

    def _add_broker(self, out: Exposition, seen: _Broker) -> None:
        broker = self._broker
        out.add(table.INFO, 1, __version__, str(broker.node_id), broker.logs.cluster_id or "")
        out.add(table.TOPICS, seen.topic_count)
        out.add(table.PARTITIONS, len(seen.partitions))
        out.add(table.OFFLINE, seen.offline_count)
        out.add(table.LOG_SIZE, sum(row.size_bytes for row in seen.partitions))
        out.add(table.PRODUCER_IDS, sum(row.producer_id_count for row in seen.partitions))
        groups = Counter(group.state for group in seen.groups)
        out.add_rows(
            table.GROUPS,
            [(label_text(("state",), (state,)), count) for state, count in sorted(groups.items())],
        )
        out.add(table.GROUP_LAG_MAX, max((group.lag for group in seen.groups), default=0))

    def _add_transactions(self, out: Exposition, seen: _Broker) -> None:
        counts = Counter(row.state for row in seen.transactional_ids)
        ages = {
            state.value: max(
                (row.age_ms or 0 for row in seen.transactional_ids if row.state == state.value),
                default=0,
            )
            for state in OPEN_STATES
        }
        out.add_rows(
            table.TRANSACTIONAL_IDS,
            [
                (label_text(("state",), (state.value,)), counts[state.value])
                for state in SHOWN_STATES
            ],
        )
        out.add_rows(
            table.OLDEST_TRANSACTION,
            [(label_text(("state",), (state,)), age_ms / 1000) for state, age_ms in ages.items()],
        )
        latest_ms = seen.wall_ms - self._broker.config.transaction_max_timeout_ms - LATE_MS
        two_phase = {
            row.producer_id
            for row in seen.transactional_ids
            if row.timeout_ms == NO_TIMEOUT_MS and row.age_ms is not None
        }
        out.add(
            table.LATE_PARTITIONS,
            sum(
                any(
                    open_.last_timestamp < latest_ms and open_.producer_id not in two_phase
                    for open_ in row.open_transactions
                )
                for row in seen.partitions
            ),
        )
        out.add(table.STABLE_LAG_MAX, max((row.stable_lag for row in seen.partitions), default=0))


def _add_replication(out: Exposition, state: ReplicationState) -> None:
    out.add(table.REPLICATION, 1, "leader", state.mode)
    out.add(table.STANDBY_FOLLOWS, int(state.follows))
    out.add(table.STANDBY_IN_SYNC, int(state.is_in_sync))
    out.add(table.REPLICATION_LAG, state.lag_bytes)
    out.add(table.REPLICATION_LAG_OPERATIONS, state.lag_operations)
    if state.lag_ms is not None:
        out.add(table.REPLICATION_LAG_TIME, state.lag_ms / 1000)
    out.add(table.REPLICATION_WAITING, state.waiting_answers)
    if state.leader_epoch is not None:
        out.add(table.LEADER_EPOCH, state.leader_epoch)


def _phases(rows: list[tuple[str, RequestTimes]]) -> Iterator[tuple[tuple[str, ...], Buckets]]:
    """What was not parked has waited for nothing, and counts so."""
    for name, times in rows:
        yield (name, "queue"), times.queue.buckets()
        yield (name, "work"), times.work.buckets()
        for phase, histogram in (("wait", times.wait), ("disk", times.disk)):
            zeros = max(0, times.whole.total - histogram.total)
            yield (name, phase), histogram.buckets(zeros=zeros)


def _logins(logins: LoginCounts) -> Iterator[tuple[str, int]]:
    for row in logins.rows():
        result = "succeeded" if row.has_succeeded else "failed"
        labels = (row.listener, row.mechanism, result)
        yield label_text(table.LOGINS.labels, labels), row.total


def _code_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return str(code)


def _add_topics(out: Exposition, partitions: Iterable[PartitionState]) -> None:
    topics: dict[str, list[PartitionState]] = {}
    for row in partitions:
        topics.setdefault(row.topic, []).append(row)
    labelled = [(label_text(("topic",), (name,)), topics[name]) for name in sorted(topics)]
    out.add_rows(table.TOPIC_PARTITIONS, ((labels, len(rows)) for labels, rows in labelled))
    out.add_rows(
        table.TOPIC_SIZE,
        ((labels, sum(row.size_bytes for row in rows)) for labels, rows in labelled),
    )
    out.add_rows(
        table.TOPIC_END,
        ((labels, sum(row.log_end_offset for row in rows)) for labels, rows in labelled),
    )
    out.add_rows(
        table.TOPIC_STABLE_LAG,
        ((labels, max(row.stable_lag for row in rows)) for labels, rows in labelled),
    )


def _add_groups(out: Exposition, groups: Iterable[GroupState]) -> None:
    lags: Counter[tuple[str, str]] = Counter()
    for group in groups:
        for offset in group.offsets:
            if offset.lag is not None:
                lags[group.group_id, offset.topic] += offset.lag
    labelled = [(label_text(("group",), (group.group_id,)), group) for group in groups]
    out.add_rows(table.GROUP_MEMBERS, ((labels, group.member_count) for labels, group in labelled))
    out.add_rows(table.GROUP_PENDING, ((labels, group.pending_count) for labels, group in labelled))
    out.add_rows(
        table.GROUP_LAG,
        ((label_text(table.GROUP_LAG.labels, key), lag) for key, lag in lags.items()),
    )


def _add_partitions(out: Exposition, seen: _Broker) -> list[tuple[str, int]]:
    """Gives what was left out, and how much of it."""
    partitions = seen.partitions[:MOST_ROWS]
    labels = [
        label_text(("topic", "partition"), (row.topic, str(row.partition))) for row in partitions
    ]
    for metric, value_of in (
        (table.START, lambda row: row.log_start_offset),
        (table.STABLE, lambda row: row.last_stable_offset),
        (table.HIGH_WATERMARK, lambda row: row.high_watermark),
        (table.END, lambda row: row.log_end_offset),
        (table.STABLE_LAG, lambda row: row.stable_lag),
        (table.SIZE, lambda row: row.size_bytes),
        (table.SEGMENTS, lambda row: row.segment_count),
        (table.PARTITION_PRODUCERS, lambda row: row.producer_id_count),
        (table.OPEN, lambda row: len(row.open_transactions)),
    ):
        out.add_rows(metric, zip(labels, map(value_of, partitions), strict=True))
    offsets = [
        (label_text(table.COMMITTED.labels, (group.group_id, row.topic, str(row.partition))), row)
        for group in seen.groups
        for row in group.offsets
    ]
    shown = offsets[:MOST_ROWS]
    out.add_rows(table.COMMITTED, ((text, row.offset) for text, row in shown))
    out.add_rows(
        table.GROUP_PARTITION_LAG, ((text, row.lag) for text, row in shown if row.lag is not None)
    )
    return [
        ("partitions", len(seen.partitions) - len(partitions)),
        ("offsets", len(offsets) - len(shown)),
    ]
