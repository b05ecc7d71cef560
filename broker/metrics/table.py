"""The metrics, one a row: their names, kinds, labels and meanings. docs/METRICS.md is written of it.

Names and units are as Prometheus has them: base units, `_total` for what only rises, `_seconds` and
`_bytes` at the end. Labels have Kafka's words.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What Prometheus calls it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Detail(Enum):
    """At which setting of `barnabas.metrics.detail` a metric is there; each has those above it."""

    NONE = "none"
    TOPICS = "topics"
    PARTITIONS = "partitions"

    def has(self, other: Detail) -> bool:
        """Whether metrics of that detail are there, too."""
        order = list(Detail)
        return order.index(other) <= order.index(self)


class Metric(NamedTuple):
    """A metric: one row of the table."""

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()
    detail: Detail = Detail.NONE


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_T, _P = Detail.TOPICS, Detail.PARTITIONS
_TOPIC, _PARTITION, _GROUP_TOPIC = ("topic",), ("topic", "partition"), ("group", "topic")
_GROUP_PARTITION = ("group", "topic", "partition")

# fmt: off
REQUEST = Metric("barnabas_request_seconds", _H, "From when a request was there until its answer was handed to the socket. A consumer's Fetch waits for data by its own wish.", ("api",))
REQUEST_PHASE = Metric("barnabas_request_phase_seconds", _H, "The same in phases. queue: until the loop came to it; work: the broker handled it; wait: parked, for data, members or time; disk: parked until a flush released it. A request that was not parked counts as 0 in the last two.", ("api", "phase"))
ERRORS = Metric("barnabas_errors_total", _C, "Errors in answers, each partition's by itself.", ("api", "error"))
FETCHES_WAITING = Metric("barnabas_waiting_fetches", _G, "Fetches that wait for data.")
CONNECTIONS = Metric("barnabas_connections", _G, "Connections that are open.")
CONNECTIONS_OPENED = Metric("barnabas_connections_opened_total", _C, "Connections that were accepted since the start.")
LOGINS = Metric("barnabas_authentications_total", _C, "Logins of clients, renewals of sessions too, at listeners that ask who they are; result: succeeded or failed. Mechanism TLS: by a certificate; none: refused before one was chosen.", ("listener", "mechanism", "result"))
THROTTLED = Metric("barnabas_throttled_requests_total", _C, "Requests whose clients were above a quota and had to wait.")
PUSHES = Metric("barnabas_client_metrics_pushes_total", _C, "Metrics that clients have pushed (KIP-714), by whether they were taken. They are counted, and not read.", ("result",))
PUSHED = Metric("barnabas_client_metrics_bytes_total", _C, "The bytes of those that were taken.")
RECEIVED = Metric("barnabas_received_bytes_total", _C, "Bytes received from clients, as the system counts them (on Linux).")
SENT = Metric("barnabas_sent_bytes_total", _C, "Bytes sent to clients, without what had to be repeated (on Linux).")
REQUEST_MEMORY = Metric("barnabas_request_memory_bytes", _G, "What requests hold that have not come whole, or are checked by the worker; queued.max.request.bytes bounds it.")
LONGEST_STALL = Metric("barnabas_loop_longest_stall_seconds", _G, "The longest time in which the event loop heard nobody, in this minute and the last.")
STALL = Metric("barnabas_loop_stall_seconds", _H, "Rounds of the event loop that lasted 5 ms or longer.")
FSYNC = Metric("barnabas_fsync_seconds", _H, "The fsync of one file by the thread that flushes. Those of topics' creation and of checkpoints are done in the loop, and show as stalls.")
FLUSH = Metric("barnabas_flush_seconds", _H, "A flush: of one file, or of many together.")
DISK_FREE = Metric("barnabas_disk_free_bytes", _G, "Free space where the data are.")
INFO = Metric("barnabas_info", _G, "1; what broker it is.", ("version", "node_id", "cluster_id"))
TOPICS = Metric("barnabas_topics", _G, "Topics, internal ones too.")
PARTITIONS = Metric("barnabas_partitions", _G, "Partitions that are on line.")
OFFLINE = Metric("barnabas_offline_partitions", _G, "Partitions whose log is damaged: nobody can read or write them.")
LOG_SIZE = Metric("barnabas_log_size_bytes", _G, "The size of all logs.")
PRODUCER_IDS = Metric("barnabas_producer_ids", _G, "Live producer ids: those that logs remember, added up over all partitions.")
TRANSACTIONAL_IDS = Metric("barnabas_transactional_ids", _G, "Active transactional ids by the state of their transaction.", ("state",))
OLDEST_TRANSACTION = Metric("barnabas_oldest_transaction_seconds", _G, "The age of the oldest transaction in that state; 0 where there is none.", ("state",))
LATE_PARTITIONS = Metric("barnabas_partitions_with_late_transactions", _G, "Partitions with a transaction whose producer last wrote longer ago than transaction.max.timeout.ms and five minutes: it hangs, and nothing will end it (KIP-664). Without those of two-phase commit, which have no timeout.")
STABLE_LAG_MAX = Metric("barnabas_last_stable_offset_lag_max", _G, "By how many offsets the last stable offset is behind the high watermark, of the partition where it is farthest.")
GROUPS = Metric("barnabas_groups", _G, "Groups by state.", ("state",))
GROUP_LAG_MAX = Metric("barnabas_group_lag_max", _G, "The lag of the group that is farthest behind, over all its partitions.")
REPLICATION = Metric("barnabas_replication_info", _G, "1; whether a broker that leads waits for its standby. Who does not lead answers no scrape. These of replication are there where barnabas.replication.port is set.", ("role", "mode"))
STANDBY_FOLLOWS = Metric("barnabas_replication_standby_follows", _G, "1 where a standby has all that was done, but what is under way; else 0.")
STANDBY_IN_SYNC = Metric("barnabas_replication_standby_in_sync", _G, "1 where the standby may take over by the lease; without a lease, where answers may wait for it; else 0.")
REPLICATION_LAG = Metric("barnabas_replication_lag_bytes", _G, "What of the leader's operations is not sent to the standby yet, with what an operation takes of memory itself.")
REPLICATION_LAG_OPERATIONS = Metric("barnabas_replication_lag_operations", _G, "Operations that the standby has not said it has applied; 0 where there is none.")
REPLICATION_LAG_TIME = Metric("barnabas_replication_lag_seconds", _G, "How long ago a standby last had all that was done; it grows while there is none. Left out until one has had it.")
REPLICATION_WAITING = Metric("barnabas_replication_waiting_answers", _G, "Answers that wait for the standby, or for the lease.")
LEADER_EPOCH = Metric("barnabas_replication_leader_epoch", _G, "The leader epoch of this node's claim: each take-over raises it, and each other start of a leader, so changes() counts them. Left out without a lease.")
SCRAPE = Metric("barnabas_scrape_seconds", _G, "How long it took to gather all this.")
LEFT_OUT = Metric("barnabas_scrape_left_out", _G, "Partitions and offsets of groups that are not shown, since there are more than 100,000 of them.", ("what",))

TOPIC_PARTITIONS = Metric("barnabas_topic_partitions", _G, "Partitions of the topic that are on line.", _TOPIC, _T)
TOPIC_SIZE = Metric("barnabas_topic_size_bytes", _G, "The size of the topic's logs.", _TOPIC, _T)
TOPIC_END = Metric("barnabas_topic_log_end_offset", _G, "The log end offsets of its partitions added up: its rate is that of records, control records with them.", _TOPIC, _T)
TOPIC_STABLE_LAG = Metric("barnabas_topic_last_stable_offset_lag_max", _G, "By how many offsets the last stable offset is behind, of the topic's partition where it is farthest.", _TOPIC, _T)
GROUP_MEMBERS = Metric("barnabas_group_members", _G, "Members of the group.", ("group",), _T)
GROUP_LAG = Metric("barnabas_group_lag", _G, "How many offsets the group's commits are behind the high watermarks, over the topic's partitions that it has committed.", _GROUP_TOPIC, _T)
GROUP_PENDING = Metric("barnabas_group_pending_offsets", _G, "Offsets of the group in transactions that are open.", ("group",), _T)

START = Metric("barnabas_partition_log_start_offset", _G, "The first offset that is there.", _PARTITION, _P)
STABLE = Metric("barnabas_partition_last_stable_offset", _G, "How far read_committed readers come.", _PARTITION, _P)
HIGH_WATERMARK = Metric("barnabas_partition_high_watermark", _G, "How far readers come.", _PARTITION, _P)
END = Metric("barnabas_partition_log_end_offset", _G, "The offset that the next record gets.", _PARTITION, _P)
STABLE_LAG = Metric("barnabas_partition_last_stable_offset_lag", _G, "By how many offsets the last stable offset is behind the high watermark.", _PARTITION, _P)
SIZE = Metric("barnabas_partition_size_bytes", _G, "The size of the log.", _PARTITION, _P)
SEGMENTS = Metric("barnabas_partition_segments", _G, "Segments of the log.", _PARTITION, _P)
PARTITION_PRODUCERS = Metric("barnabas_partition_producer_ids", _G, "Producer ids that the log remembers.", _PARTITION, _P)
OPEN = Metric("barnabas_partition_open_transactions", _G, "Transactions that have data here and no marker.", _PARTITION, _P)
GROUP_PARTITION_LAG = Metric("barnabas_group_partition_lag", _G, "How many offsets the group's commit is behind the high watermark.", _GROUP_PARTITION, _P)
COMMITTED = Metric("barnabas_group_committed_offset", _G, "The offset that the group has committed.", _GROUP_PARTITION, _P)
# fmt: on

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
OF_REPLICATION = tuple(  # shown where a standby can follow
    metric for metric in METRICS if metric.name.startswith("barnabas_replication_")
)
