"""The metrics of share groups (KIP-932), as rows of the table of metrics.

If Apache Kafka has a corresponding metric, the description of a metric names it.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.observe import CommittedOffsetState
from barnabas.broker.seams.state import ShareNumbers
from barnabas.metrics.labels import label_text
from barnabas.metrics.rim.metric import Chart, Detail, Value, counter, gauge
from barnabas.metrics.rim.seen import Seen, Source

# the types of acknowledgements; the index is the protocol's number
TYPES = ("gap", "accept", "release", "reject", "renew")
_TYPE = ("type",)


def _now(value_of: Callable[[ShareNumbers], float]) -> Callable[[Source], float]:
    """A function that reads a number of all share groups, in the loop's thread; 0 before a share
    group is used.
    """

    def read(source: Source) -> float:
        numbers = source.state.share_numbers()
        return 0 if numbers is None else value_of(numbers)

    return read


def _count(value_of: Callable[[ShareNumbers], float]) -> Callable[[Seen], Value]:
    """The same for a count, which is read in the scrape's thread."""
    read_now = _now(value_of)

    def read(seen: Seen) -> float:
        return read_now(seen.source)

    return read


def _by_partition(value_of: Callable[[CommittedOffsetState], float]) -> Callable[[Seen], Value]:
    """A function that gives a value for each partition that a share group reads."""

    def read(seen: Seen) -> Value:
        return (
            (labels, value_of(row)) for labels, row in seen.shown_offsets if row.is_of_share_group
        )

    return read


def _acknowledgements(seen: Seen) -> Value:
    """The number of acknowledgements of each type."""
    numbers = seen.source.state.share_numbers()
    counts = {} if numbers is None else numbers.counts.acknowledged.copy()
    return (
        (label_text(_TYPE, (name,)), counts.get(number, 0)) for number, name in enumerate(TYPES)
    )


SHARE_GROUPS = (
    counter(
        "barnabas_share_acknowledgements_total",
        "Records that members of share groups have acknowledged, by type (Kafka: "
        "RecordAcknowledgementsPerSec of ShareGroupMetrics).",
        _TYPE,
        Chart("Acknowledgements", "{{type}}", by=_TYPE),
        read=_acknowledgements,
    ),
    counter(
        "barnabas_share_acquired_records_total",
        "Records that were delivered to members of share groups; each delivery counts.",
        (),
        Chart("Acknowledgements", "acquired"),
        read=_count(lambda numbers: numbers.counts.acquired),
    ),
    counter(
        "barnabas_share_lock_timeouts_total",
        "Records whose locks have expired (Kafka: AcquisitionLockTimeoutPerSec of "
        "SharePartitionMetrics).",
        (),
        Chart("Records delivered again", "locks that expired"),
        read=_count(lambda numbers: numbers.counts.lock_timeouts),
    ),
    counter(
        "barnabas_share_given_up_records_total",
        "Records that are no longer delivered, since they were delivered "
        "share.delivery.count.limit times.",
        (),
        Chart("Records delivered again", "given up"),
        read=_count(lambda numbers: numbers.counts.given_up),
    ),
    gauge(
        "barnabas_share_in_flight_records",
        "Records from the start offset of each share partition to the last one that was acquired "
        "(Kafka: InFlightMessageCount, added up).",
        (),
        Chart("Share partitions", "records in flight"),
        read=lambda seen: sum(row.in_flight for group in seen.groups for row in group.offsets),
    ),
    gauge(
        "barnabas_share_in_flight_batches",
        "The number of batches, as they were acquired, of the records in flight (Kafka: "
        "InFlightBatchCount, added up).",
        (),
        Chart("Share partitions", "batches in flight"),
        read=lambda seen: sum(
            row.in_flight_batches for group in seen.groups for row in group.offsets
        ),
    ),
    gauge(
        "barnabas_share_partitions",
        "Share partitions in memory, which are those of groups with a member that fetches.",
        (),
        Chart("Share partitions", "in memory"),
        now=_now(lambda numbers: numbers.partition_count),
    ),
    gauge(
        "barnabas_share_sessions",
        "Share sessions (Kafka: ShareSessionsCount).",
        (),
        Chart("Share sessions", "sessions"),
        now=_now(lambda numbers: numbers.session_count),
    ),
    gauge(
        "barnabas_share_session_partitions",
        "Partitions in share sessions (Kafka: SharePartitionsCount).",
        (),
        Chart("Share sessions", "partitions"),
        now=_now(lambda numbers: numbers.session_partition_count),
    ),
    counter(
        "barnabas_share_session_evictions_total",
        "Share sessions that ended with their connection, or for another principal's session "
        "(Kafka: ShareSessionEvictionsPerSec).",
        read=_count(lambda numbers: numbers.counts.evictions),
    ),
    counter(
        "barnabas_share_state_writes_total",
        "Writes of changed states to __share_group_state: acknowledgements, released records, "
        "settings of start offsets (Kafka: write-total of share-coordinator-metrics).",
        (),
        Chart("Writes of states", "writes"),
        read=_count(lambda numbers: numbers.writes.writes),
    ),
    counter(
        "barnabas_share_state_write_seconds_total",
        "The time of barnabas_share_state_writes_total until answers could be sent: with durable "
        "acknowledgements, until they were flushed (Kafka: write-latency-avg, as a quotient of "
        "rates).",
        read=_count(lambda numbers: numbers.writes.total_ms / 1000),
    ),
    gauge(
        "barnabas_share_state_load_seconds",
        "How long the start took to load the states of share partitions, of all partitions of "
        "__share_group_state together (Kafka: partition-load-time-max of "
        "share-coordinator-metrics).",
        read=_count(lambda numbers: numbers.writes.load_ns / 1e9),
    ),
    gauge(
        "barnabas_share_partition_in_flight_records",
        "Records in flight by share partition (Kafka: InFlightMessageCount).",
        ("group", "topic", "partition"),
        detail=Detail.PARTITIONS,
        read=_by_partition(lambda row: row.in_flight),
    ),
    gauge(
        "barnabas_share_partition_in_flight_batches",
        "Batches in flight by share partition (Kafka: InFlightBatchCount).",
        ("group", "topic", "partition"),
        detail=Detail.PARTITIONS,
        read=_by_partition(lambda row: row.in_flight_batches),
    ),
)
