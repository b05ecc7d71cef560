"""A synchronous Kafka client for readers: the few requests that a source needs, over plain sockets.

A client belongs to one thread. It keeps a connection to each broker that it has used, and gets
the leaders of partitions from Metadata. After transient failures (a leader election, a restart of a
broker) it repeats requests until `retry_timeout_ms` has passed. Connections are opened by the first
request, so a new client can be pickled.
"""

from __future__ import annotations

import base64
import math
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.errors import (
    UNKNOWN_TOPIC_PATIENCE_MS,
    ClientError,
    PassingError,
    RefusedError,
    UnknownTopicError,
    check,
    code_name,
)
from barnabas.client.notices import RetryNotice
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataResponseTopic
from barnabas.protocol.primitives import Buffer
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["ClientError", "ClusterReader", "FetchResult", "RefusedError", "UnknownTopicError"]

T = TypeVar("T")

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1  # the replica_id that consumers send

# The first versions with an isolation level are 2 for ListOffsets and 4 for Fetch. This reader does
# not need the fields of later versions.
LIST_OFFSETS = RequestKind(ListOffsetsRequest, ListOffsetsResponse, 2, 5)
FETCH = RequestKind(FetchRequest, FetchResponse, 4, 11)
DESCRIBE_CONFIGS = RequestKind(DescribeConfigsRequest, DescribeConfigsResponse, 1, 4)
OF_TOPIC = 2  # the kind of a resource in DescribeConfigs
# In this version the topic is given by its id (KIP-516), so the response cannot have data of
# another topic with the same name.
FETCH_BY_ID = RequestKind(FetchRequest, FetchResponse, 13, 13)
# the connection over which a Fetch was sent, and the kind of request
Sent = tuple[Connection, RequestKind[FetchRequest, FetchResponse]]


class TimedOffset(NamedTuple):
    """One row of a response to ListOffsets: an offset, and the time that belongs to it in ms.

    The offset is None if there is no record that is late enough.
    """

    offset: int | None
    time_ms: int


class FetchResult(NamedTuple):
    """The response to a Fetch of one partition.

    `records` is a view of the connection's buffer, and valid until the next response is received.
    `aborted_transactions` is None unless the fetch was read_committed. `is_by_id`: whether the
    records belong to the topic with the requested id, even if another topic has the name now.
    """

    high_watermark: int
    last_stable_offset: int
    aborted_transactions: list[AbortedTransaction] | None
    records: Buffer
    is_by_id: bool = False


class ClusterReader:
    """A client for readers, which sends each request to a broker that can handle it.

    Use it as a context manager, or close it.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        # the topic ids in the last Metadata response, in Kafka's form; brokers before 2.8 send none
        self.topic_ids: dict[str, str] = {}
        self._cluster = Cluster(options)
        self._connections = self._cluster.connections

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]

    def __enter__(self) -> ClusterReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. The client can still be used after that."""
        self._connections.close()

    def renew(self, buffer_bytes: int) -> None:
        """Forget the leaders and topic ids that brokers have sent, and close connections with large
        buffers.

        After:  the client is like a new one, except that idle connections whose buffers are small
                are still open.
        """
        self._cluster.forget()
        self.topic_ids.clear()
        self._connections.keep_idle(buffer_bytes)

    # --- topics and partitions

    def partitions_of(
        self, topics: Iterable[str], *, missing_ok: bool = False, create: bool = False
    ) -> list[TopicPartition]:
        """Return all partitions of the topics, in order.

        With `create` the broker is asked to create missing topics, as for producers. Its
        configuration may forbid this (auto.create.topics.enable).

        Raises: UnknownTopicError with the name of a topic that does not exist, unless missing_ok is
                set.
        """
        names = sorted(set(topics))

        def ask() -> list[TopicPartition]:
            return [
                partition
                for topic in self._metadata(names, missing_ok=missing_ok, create=create)
                for partition in _partitions_in(topic)
            ]

        return self._retrying(ask, "looking for " + ", ".join(names))

    def topics_matching(self, pattern: str) -> list[str]:
        """Return the names of the topics in which the pattern is found, except internal topics."""

        def ask() -> list[str]:
            return sorted(
                _name_of(topic)
                for topic in self._metadata(None)
                if not topic.is_internal and re.search(pattern, _name_of(topic))
            )

        return self._retrying(ask, "listing topics")

    def recreated_topics(self, topic_ids: Mapping[str, str]) -> list[str]:
        """Return the topics whose id in Metadata differs from the given id.

        A topic without an id in Metadata is left out. If an id differs, the brokers are asked again
        for a while, since a broker may be late and still know the former topic.
        """
        start = time.monotonic()
        while True:
            recreated_topics = [
                topic
                for topic, topic_id in sorted(topic_ids.items())
                if self.topic_ids.get(topic, topic_id) != topic_id
            ]
            if (
                not recreated_topics
                or (time.monotonic() - start) * 1000 >= UNKNOWN_TOPIC_PATIENCE_MS
            ):
                return recreated_topics
            time.sleep(self.options.retry_backoff_ms / 1000)
            self.partitions_of(recreated_topics, missing_ok=True)

    def _metadata(
        self, topics: list[str] | None, *, missing_ok: bool = False, create: bool = False
    ) -> list[MetadataResponseTopic]:
        """Ask for the metadata of topics, and remember their ids and the leaders of their
        partitions. Takes: topics, None for all. Raises: PassingError, RefusedError.
        """
        answer = self._cluster.refresh(topics, create=create)
        for topic in answer.topics:
            name = _name_of(topic)
            if topic.topic_id is not None and not topic.error_code:
                self.topic_ids[name] = _text_of(topic.topic_id)
        if topics is not None:
            for topic in answer.topics:
                if not (missing_ok and topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION):
                    _check(topic.error_code, f"topic {topic.name!r}")
        return answer.topics

    # --- offsets

    def offsets_at(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, int | None]:
        """For each partition, find the first offset whose record has at least the timestamp (in
        ms).

        The timestamp -1 means the end of the log, -2 its beginning. For read_committed the end is
        the last stable offset, before which all transactions are decided. The offset is None if
        there is no such record.
        """
        rows = self.timed_offsets_at(timestamps, read_committed=read_committed)
        return {name: row.offset for name, row in rows.items()}

    def timed_offsets_at(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, TimedOffset]:
        """For each partition, find an offset as `offsets_at` does, and its time."""

        def ask() -> dict[TopicPartition, TimedOffset]:
            offsets: dict[TopicPartition, TimedOffset] = {}
            for node, names in self._by_leader(timestamps).items():
                offsets.update(
                    self._offsets_of_leader(
                        node, {name: timestamps[name] for name in names}, read_committed
                    )
                )
            return {name: offsets[name] for name in timestamps}

        return self._retrying(ask, "asking for offsets") if timestamps else {}

    def _offsets_of_leader(
        self, node: int, timestamps: Mapping[TopicPartition, int], committed: bool
    ) -> dict[TopicPartition, TimedOffset]:
        """Ask one broker for the offsets of partitions that it leads; see `offsets_at`."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for name, timestamp in timestamps.items():
            partition = ListOffsetsPartition(partition_index=name.partition, timestamp=timestamp)
            topics.setdefault(name.topic, []).append(partition)
        answer = self._connections.of_node(node).request(
            LIST_OFFSETS,
            ListOffsetsRequest(
                replica_id=CONSUMER,
                isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
                topics=[
                    ListOffsetsTopic(name=topic, partitions=each) for topic, each in topics.items()
                ],
            ),
        )
        offsets: dict[TopicPartition, TimedOffset] = {}
        for each in answer.topics:
            for part in each.partitions:
                name = TopicPartition(each.name, part.partition_index)
                _check(part.error_code, f"partition {name}")
                offset = part.offset if part.offset >= 0 else None
                offsets[name] = TimedOffset(offset, part.timestamp)
        for name in timestamps.keys() - offsets.keys():
            raise PassingError(f"an answer lacks {name}")
        return offsets

    def leader_count(self, names: Iterable[TopicPartition]) -> int:
        """Return the number of brokers that lead these partitions."""
        names = list(names)
        return self._retrying(lambda: len(self._by_leader(names)), "looking for leaders")

    def topic_setting(self, topics: Iterable[str], setting: str) -> dict[str, str | None]:
        """Return the value of a setting of topics. It is None if the broker does not have the
        setting.

        Raises: RefusedError if the user lacks the right to see settings; ClientError.
        """
        names = sorted(set(topics))
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(OF_TOPIC, topic, [setting]) for topic in names]
        )

        def ask() -> dict[str, str | None]:
            answer = self._connections.any().request(DESCRIBE_CONFIGS, request)
            values: dict[str, str | None] = {}
            for row in answer.results:
                what = f"the settings of topic {row.resource_name!r}"
                if row.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
                    raise RefusedError(
                        row.error_code,
                        f"{what}: {code_name(row.error_code)}: the user needs the right "
                        "DESCRIBE_CONFIGS on the topic",
                    )
                _check(row.error_code, what)
                found = {config.name: config.value for config in row.configs}
                values[row.resource_name] = found.get(setting)
            return values

        return self._retrying(ask, f"asking for the setting {setting}") if names else {}

    def _by_leader(self, names: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions by the id of their leader. Metadata is requested if a leader is
        unknown.
        """
        names = list(names)
        if not all(name in self._cluster.leaders for name in names):
            self._metadata(sorted({name.topic for name in names}))
        leaders: dict[int, list[TopicPartition]] = {}
        for name in names:
            leaders.setdefault(self._leader(name), []).append(name)
        return leaders

    def _leader(self, name: TopicPartition) -> int:
        """The id of the leader. Raises: PassingError if the partition or its leader does not exist
        now.
        """
        node = self._cluster.leaders.get(name)
        if node is None:
            raise PassingError(f"partition {name} does not exist", UNKNOWN_TOPIC_PATIENCE_MS)
        if node < 0:
            raise PassingError(f"partition {name} has no leader")
        return node

    # --- fetch

    def start_fetch(
        self,
        name: TopicPartition,
        offset: int,
        *,
        read_committed: bool,
        max_bytes: int,
        topic_id: str = "",
    ) -> Callable[[], FetchResult]:
        """Send a Fetch, and return a function that waits for the response.

        This lets the broker prepare the next response while the previous one is decoded. A response
        has at least one whole batch. After a transient failure the function repeats the request.

        Takes:  topic_id, in Kafka's text form. If the broker supports ids in Fetch, a topic with
                another id is not read (see `FetchResult.is_by_id`).
        Raises: from the function: RefusedError (OFFSET_OUT_OF_RANGE and other permanent errors),
                UnknownTopicError, ClientError.
        """
        wire_id = _uuid_of(topic_id) if topic_id else None
        partition = FetchPartition(
            partition=name.partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        fetch = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=min(self.options.fetch_max_wait_ms, self.options.request_timeout_ms // 2),
            min_bytes=self.options.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=READ_COMMITTED if read_committed else READ_UNCOMMITTED,
            topics=[FetchTopic(name.topic, wire_id, [partition])],
        )

        def send() -> Sent:
            return self._send_fetch(name, fetch, has_id=wire_id is not None)

        sent: list[Sent] = []
        try:
            sent.append(send())
        except PassingError:
            pass  # the call below tries again, within the time limit

        def finish() -> FetchResult:
            while True:
                connection, kind = sent.pop() if sent else send()
                answer = connection.receive(kind)
                if answer.error_code or answer.responses or not answer.throttle_time_ms:
                    return _fetched(answer, name, wire_id if kind is FETCH_BY_ID else None)
                # The client has exceeded a quota (KIP-219). A new connection would not help.
                time.sleep(answer.throttle_time_ms / 1000)

        return lambda: self._retrying(finish, f"reading {name} from offset {offset}")

    def _send_fetch(self, name: TopicPartition, fetch: FetchRequest, *, has_id: bool) -> Sent:
        """Send a Fetch to the partition's leader.

        The request has the topic's id if both the client and the broker know ids, otherwise the
        topic's name. (The message has both fields, and writes the one that its version contains.)
        """
        connection = self._connections.of_node(self._by_leader([name]).popitem()[0])
        kind = FETCH_BY_ID if has_id and connection.speaks(FETCH_BY_ID) else FETCH
        connection.send(kind, fetch)
        return connection, kind

    # --- retries

    def _retrying(self, action: Callable[[], T], doing: str) -> T:
        """Run the action until it succeeds or the time limit is reached.

        After a failure, connections and cached leaders are dropped, since they may be stale.
        """
        start = time.monotonic()
        notice = RetryNotice(self.options.retry_timeout_ms)
        unknown_since: float | None = None
        backoff_ms = self.options.retry_backoff_ms
        while True:
            try:
                return action()
            except PassingError as error:
                self.close()
                self._cluster.forget()
                now = time.monotonic()
                # The time during which a broker was down does not count, since for a while after
                # its restart the broker may not know its topics.
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
                        f"{doing} failed for {now - start:.1f} s so far: "
                        f"{self._connections.advice(error)}"
                    ) from error
                if error.patience_ms == math.inf:
                    notice.failed(f"{doing}: {self._connections.advice(error)}", since=start)
            except BaseException:
                # otherwise a connection could still receive the response to an earlier request
                self.close()
                raise
            time.sleep(backoff_ms / 1000)
            backoff_ms = max(backoff_ms, min(2 * backoff_ms, self.options.retry_backoff_max_ms))


def _fetched(
    answer: FetchResponse, name: TopicPartition, topic_id: uuid.UUID | None
) -> FetchResult:
    """Return the partition in a response. If the request had the topic's id, find it by this id."""
    _check(answer.error_code, f"a fetch of {name}")
    for topic in answer.responses:
        is_asked = topic.topic == name.topic if topic_id is None else topic.topic_id == topic_id
        for part in topic.partitions:
            if is_asked and part.partition_index == name.partition:
                _check(part.error_code, f"partition {name}")
                return FetchResult(
                    part.high_watermark,
                    part.last_stable_offset,
                    part.aborted_transactions,
                    b"" if part.records is None else part.records,
                    topic_id is not None,
                )
    raise PassingError(f"an answer lacks {name}")


def _text_of(topic_id: uuid.UUID) -> str:
    """A topic's id, in the form that Kafka's tools show."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _uuid_of(text: str) -> uuid.UUID:
    """Convert the text form of a topic's id back to the id."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _name_of(topic: MetadataResponseTopic) -> str:
    # The name is null only in responses to requests that give a topic by its id.
    assert topic.name is not None, "Metadata gives no name of a topic"
    return topic.name


def _partitions_in(topic: MetadataResponseTopic) -> list[TopicPartition]:
    return sorted(
        TopicPartition(_name_of(topic), partition.partition_index) for partition in topic.partitions
    )


def _check(code: int, what: str) -> None:
    """Raise the error for an error code; a refusal names the right that the user lacks."""
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        raise RefusedError(
            code, f"{what}: {code_name(code)}: the user needs the right to READ the topic"
        )
    check(code, what, UNKNOWN_TOPIC_PATIENCE_MS)
