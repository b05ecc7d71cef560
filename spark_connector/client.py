"""A synchronous Kafka client for readers: the few requests a source needs, over plain sockets.

One `Client` belongs to one thread. It keeps a connection to each broker that it talked to, learns
leaders from Metadata, and repeats what failed for a reason that passes (a leader being elected, a
broker starting again) until `retry_timeout_ms` is over. Connections are opened at the first
request: a client that was just made can be pickled.
"""

from __future__ import annotations

import base64
import math
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, ListOffsetsResponse

from barnabas.protocol.errors import Code
from barnabas.spark_connector.batches import AbortedTransaction
from barnabas.spark_connector.connection import (
    UNKNOWN_TOPIC_PATIENCE_MS,
    ClientError,
    Connection,
    Connections,
    PassingError,
    RefusedError,
    Spoken,
    UnknownTopicError,
    Vocabulary,
    check,
    metadata,
    spoken,
)
from barnabas.spark_connector.offsets import PartitionName
from barnabas.spark_connector.options import ClientOptions
from barnabas.spark_connector.patterns import takes

__all__ = ["Client", "ClientError", "Fetched", "RefusedError", "UnknownTopicError", "decode_fetch"]

T = TypeVar("T")

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1  # as replica_id

# ListOffsets and Fetch have the isolation level since 2 and 4. Later versions bring nothing to this
# reader.
_SPOKEN: Vocabulary = {
    ListOffsetsRequest: spoken(2, 5, ListOffsetsResponse),
    FetchRequest: Spoken(4, 11, lambda body, version: decode_fetch(body, version)),  # noqa: PLW0108 (it is defined further down)
}


class Fetched(NamedTuple):
    """One partition's part of a fetch. `records` lies in the connection's buffer: it is good until
    the next answer is received.
    """

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None
    records: memoryview


_PARTITION = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")


def decode_fetch(body: memoryview, version: int) -> tuple[int, int, list[Fetched]]:
    """The error_code and throttle_time_ms of a FetchResponse of version 4 to 11, and its
    partitions; their records are not copied.

    int32 throttle_time_ms | 7+: int16 error_code, int32 session_id | [ string topic | [ int32 partition, int16 error_code,
    int64 high_watermark, int64 last_stable_offset | 5+: int64 log_start_offset | nullable [ int64 producer_id, int64 first_offset ]
    | 11+: int32 preferred_read_replica | nullable bytes records ] ]
    """
    position = 10 if version >= 7 else 4
    error_code = struct.unpack_from(">h", body, 4)[0] if version >= 7 else 0
    throttle_time_ms, _ = _int(">i", body, 0)
    topic_count, position = _int(">i", body, position)
    found = []
    for _ in range(topic_count):
        size, position = _int(">h", body, position)
        topic, position = str(body[position : position + size], "utf-8"), position + size
        partition_count, position = _int(">i", body, position)
        for _ in range(partition_count):
            partition, code, high_watermark, last_stable_offset = _PARTITION.unpack_from(
                body, position
            )
            position += _PARTITION.size
            log_start_offset = -1
            if version >= 5:
                log_start_offset, position = _int(">q", body, position)
            aborted_count, position = _int(">i", body, position)
            aborted = None
            if aborted_count >= 0:
                entries = body[position : position + aborted_count * _ABORTED.size]
                aborted = [AbortedTransaction(*entry) for entry in _ABORTED.iter_unpack(entries)]
                position += len(entries)
            position += 4 if version >= 11 else 0
            size, position = _int(">i", body, position)
            records, position = body[position : position + max(size, 0)], position + max(size, 0)
            found.append(
                Fetched(
                    topic,
                    partition,
                    code,
                    high_watermark,
                    last_stable_offset,
                    log_start_offset,
                    aborted,
                    records,
                )
            )
    return error_code, throttle_time_ms, found


def _int(kind: str, body: memoryview, position: int) -> tuple[int, int]:
    return struct.unpack_from(kind, body, position)[0], position + struct.calcsize(kind)


class Client:
    """Requests to whichever broker answers them. Use as a context manager, or close it."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._leaders: dict[PartitionName, int] = {}
        self.topic_ids: dict[
            str, str
        ] = {}  # as the last Metadata told, in Kafka's form; none of brokers before 2.8
        self._connections = Connections(options, _SPOKEN)

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the client can be used again."""
        self._connections.close()

    # --- what there is

    def partitions_of(
        self, topics: Iterable[str], *, missing_ok: bool = False, create: bool = False
    ) -> list[PartitionName]:
        """All partitions of the topics, in order. Raises UnknownTopicError naming one that does not
        exist, where missing_ok is not set.

        With `create` the broker is asked to make what is missing, as producers do; it may be
        configured not to (auto.create.topics.enable).
        """
        names = sorted(set(topics))

        def ask() -> list[PartitionName]:
            return [
                partition
                for topic in self._metadata(names, missing_ok=missing_ok, create=create)
                for partition in _partitions_in(topic)
            ]

        return self._retrying(ask, "looking for " + ", ".join(names))

    def topics_matching(self, pattern: str) -> list[str]:
        """Names of topics in which the pattern is found; internal ones are never among them."""

        def ask() -> list[str]:
            return sorted(
                topic.name
                for topic in self._metadata(None)
                if not topic.is_internal and takes(pattern, topic.name)
            )

        return self._retrying(ask, "listing topics")

    def renewed(self, topic_ids: Mapping[str, str]) -> list[str]:
        """Which of the topics have another id than this, as far as Metadata told ids.

        Where one has, brokers are asked again for a while: one may lag behind, and tell of the
        former.
        """
        begun = time.monotonic()
        while True:
            renewed = [
                topic
                for topic, topic_id in sorted(topic_ids.items())
                if self.topic_ids.get(topic, topic_id) != topic_id
            ]
            if not renewed or (time.monotonic() - begun) * 1000 >= UNKNOWN_TOPIC_PATIENCE_MS:
                return renewed
            time.sleep(self.options.retry_backoff_ms / 1000)
            self.partitions_of(renewed, missing_ok=True)

    def _metadata(
        self, topics: list[str] | None, *, missing_ok: bool = False, create: bool = False
    ) -> list[Any]:
        answer = metadata(self._connections, topics, create=create)
        for topic in answer.topics:
            topic_id = getattr(topic, "topic_id", None)
            if topic_id is not None and topic_id.int and not topic.error_code:
                self.topic_ids[topic.name] = (
                    base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
                )
            for partition in topic.partitions:
                self._leaders[PartitionName(topic.name, partition.partition_index)] = (
                    partition.leader_id
                )
        if topics is not None:
            for topic in answer.topics:
                if not (missing_ok and topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION):
                    _check(topic.error_code, f"topic {topic.name!r}")
        return list(answer.topics)

    # --- offsets

    def offsets_at(
        self, timestamps: Mapping[PartitionName, int], *, read_committed: bool
    ) -> dict[PartitionName, int | None]:
        """ListOffsets: the first offset whose record is at least that late (in ms), or -1 for the
        end, -2 for the beginning of the log.

        The end for read_committed is the last stable offset: everything before it is decided. None
        where no record is that late.
        """

        def ask() -> dict[PartitionName, int | None]:
            found: dict[PartitionName, int | None] = {}
            for node, names in self._by_leader(timestamps).items():
                found.update(
                    self._offsets_of_leader(
                        node, {name: timestamps[name] for name in names}, read_committed
                    )
                )
            return {name: found[name] for name in timestamps}

        return self._retrying(ask, "asking for offsets") if timestamps else {}

    def _offsets_of_leader(
        self, node: int, timestamps: Mapping[PartitionName, int], committed: bool
    ) -> dict[PartitionName, int | None]:
        topics: dict[str, list[Any]] = {}
        for name, timestamp in timestamps.items():
            partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=name.partition, current_leader_epoch=-1, timestamp=timestamp
            )
            topics.setdefault(name.topic, []).append(partition)
        answer = self._connections.of_node(node).request(
            ListOffsetsRequest(
                replica_id=CONSUMER,
                isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=each)
                    for topic, each in topics.items()
                ],
            )
        )
        found: dict[PartitionName, int | None] = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                name = PartitionName(topic.name, partition.partition_index)
                _check(partition.error_code, f"partition {name}")
                found[name] = partition.offset if partition.offset >= 0 else None
        for name in timestamps.keys() - found.keys():
            raise PassingError(f"an answer says nothing of {name}")
        return found

    def _by_leader(self, names: Iterable[PartitionName]) -> dict[int, list[PartitionName]]:
        names = list(names)
        if not all(name in self._leaders for name in names):
            self._metadata(sorted({name.topic for name in names}))
        leaders: dict[int, list[PartitionName]] = {}
        for name in names:
            leaders.setdefault(self._leader(name), []).append(name)
        return leaders

    def _leader(self, name: PartitionName) -> int:
        node = self._leaders.get(name)
        if node is None:
            raise PassingError(f"partition {name} does not exist", UNKNOWN_TOPIC_PATIENCE_MS)
        if node < 0:
            raise PassingError(f"partition {name} has no leader")
        return node

    # --- fetch

    def start_fetch(
        self, name: PartitionName, offset: int, *, read_committed: bool, max_bytes: int
    ) -> Callable[[], Fetched]:
        """Send a Fetch; calling what is returned waits for its answer, and repeats the request
        where that failed for a passing reason.

        So the broker can work on the next answer while the one before it is decoded. An answer
        brings one whole batch at least. Raises, from the call: RefusedError (OFFSET_OUT_OF_RANGE
        and what else is final), ClientError.
        """
        isolation = READ_COMMITTED if read_committed else READ_UNCOMMITTED

        def send() -> Connection:
            connection = self._connections.of_node(self._by_leader([name]).popitem()[0])
            partition = FetchRequest.FetchTopic.FetchPartition(
                partition=name.partition,
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=max_bytes,
            )
            connection.send(
                FetchRequest(
                    replica_id=CONSUMER,
                    max_wait_ms=min(
                        self.options.fetch_max_wait_ms, self.options.request_timeout_ms // 2
                    ),
                    min_bytes=1,
                    max_bytes=max_bytes,
                    isolation_level=isolation,
                    session_id=0,
                    session_epoch=-1,
                    topics=[FetchRequest.FetchTopic(topic=name.topic, partitions=[partition])],
                    forgotten_topics_data=[],
                    rack_id="",
                )
            )
            return connection

        sent: list[Connection] = []
        try:
            sent.append(send())
        except PassingError:
            pass  # the call below tries again, and keeps the time

        def finish() -> Fetched:
            while True:
                connection = sent.pop() if sent else send()
                code, throttle_time_ms, parts = connection.receive()
                if code or parts or not throttle_time_ms:
                    return _fetched(code, parts, name)
                time.sleep(
                    throttle_time_ms / 1000
                )  # a quota is used up (KIP-219): a new connection would not help

        return lambda: self._retrying(finish, f"reading {name} from offset {offset}")

    # --- retries

    def _retrying(self, action: Callable[[], T], doing: str) -> T:
        """Run it until it passes or time is up. After a failure connections and leaders are
        forgotten: whatever was known may be stale.
        """
        start = time.monotonic()
        unknown_since: float | None = None
        while True:
            try:
                return action()
            except PassingError as error:
                self.close()
                self._leaders.clear()
                now = time.monotonic()
                # A broker that was away for long may not know its topics at once when it is back:
                # that time does not count.
                unknown_since = (
                    None
                    if error.patience_ms == math.inf
                    else now
                    if unknown_since is None
                    else unknown_since
                )
                limit_ms = self.options.retry_timeout_ms
                is_unknown = (
                    unknown_since is not None
                    and now - unknown_since >= min(limit_ms, error.patience_ms) / 1000
                )
                if is_unknown or now - start >= limit_ms / 1000:
                    kind = UnknownTopicError if is_unknown else ClientError
                    raise kind(
                        f"{doing} failed, for {now - start:.1f} s by now: "
                        f"{self._connections.advice(error)}"
                    ) from error
            except BaseException:
                self.close()  # an answer may still be under way on it
                raise
            time.sleep(self.options.retry_backoff_ms / 1000)


def _fetched(error_code: int, parts: list[Fetched], name: PartitionName) -> Fetched:
    _check(error_code, f"a fetch of {name}")
    for part in parts:
        if (part.topic, part.partition) == name:
            _check(part.error_code, f"partition {name}")
            return part
    raise PassingError(f"an answer says nothing of {name}")


def _partitions_in(topic: Any) -> list[PartitionName]:
    return sorted(
        PartitionName(topic.name, partition.partition_index) for partition in topic.partitions
    )


def _check(code: int, what: str) -> None:
    check(code, what, UNKNOWN_TOPIC_PATIENCE_MS)
