"""The metrics of a leader with a standby, as rows of the table of metrics."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.metrics.labels import label_text
from barnabas.metrics.rim.metric import Chart, Value, gauge
from barnabas.metrics.rim.seen import Seen
from barnabas.replication.state import ReplicationState


def _of_standby(value_of: Callable[[ReplicationState], Value]) -> Callable[[Seen], Value]:
    """A function that reads a value of the standby. It returns None if no standby can follow, so
    that the metric is left out.
    """
    return lambda seen: None if seen.replication is None else value_of(seen.replication)


OF_REPLICATION = (  # left out if no standby can follow
    gauge(
        "barnabas_replication_info",
        "1; the labels say whether the leader waits for its standby. A broker that does not "
        "lead answers no scrape. The metrics of replication exist where "
        "barnabas.replication.port is set.",
        ("role", "mode"),
        read=_of_standby(lambda state: [(label_text(("role", "mode"), ("leader", state.mode)), 1)]),
    ),
    gauge(
        "barnabas_replication_standby_follows",
        "1 if a standby has everything except operations in progress; else 0.",
        (),
        Chart("Standby follows, in sync", "follows", of="max"),
        read=_of_standby(lambda state: int(state.follows)),
    ),
    gauge(
        "barnabas_replication_standby_in_sync",
        "1 if the standby may take over by the lease; without a lease, if answers may wait for "
        "it; else 0.",
        (),
        Chart("Standby follows, in sync", "may take over", of="max"),
        read=_of_standby(lambda state: int(state.is_in_sync)),
    ),
    gauge(
        "barnabas_replication_lag_seconds",
        "How long ago a standby last had everything; it grows while there is no standby. Absent "
        "until a standby has had everything.",
        (),
        Chart("Behind by", "time", of="max"),
        read=_of_standby(lambda state: None if state.lag_ms is None else state.lag_ms / 1000),
    ),
    gauge(
        "barnabas_replication_lag_bytes",
        "The memory of the leader's operations that are not sent to the standby yet.",
        (),
        Chart("Not sent to the standby", "bytes", of="max"),
        read=_of_standby(lambda state: state.lag_bytes),
    ),
    gauge(
        "barnabas_replication_lag_operations",
        "Operations that the standby has not confirmed as applied; 0 without a standby.",
        read=_of_standby(lambda state: state.lag_operations),
    ),
    gauge(
        "barnabas_replication_waiting_answers",
        "Answers that wait for the standby, or for the lease.",
        read=_of_standby(lambda state: state.waiting_answers),
    ),
    gauge(
        "barnabas_replication_leader_epoch",
        "The leader epoch of this node's claim: each take-over raises it, and each other start "
        "of a leader, so changes() counts them. Absent without a lease.",
        read=_of_standby(lambda state: state.leader_epoch),
    ),
)
