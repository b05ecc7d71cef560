"""Servers that behave in ways that a real broker cannot be made to: gaps left by compaction,
truncated batches, connections that end in the middle of a response, temporary errors, several
nodes, and the versions of other brokers.

`FakeBroker` answers ApiVersions, Metadata, ListOffsets and Fetch from logs that a test provides.
`FakeLog.batches` are encoded batches in offset order. A fetch returns the batches that begin before
the isolation level's end offset, up to max_bytes but at least one.

`FakeCluster` supports transactions. It has several nodes with one shared state. Each node leads
some partitions, and the coordinators are on different nodes.
"""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from barnabas.protocol.cut_times import AT_OR_AFTER, AT_OR_BEFORE
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.records import Record, add_sequence, computed_crc, read_header, records_of

# The request class of each API key, and its lowest and highest version.
Versions = dict[int, tuple[type[Message], int, int]]
SPEAKS: Versions = {
    FetchRequest.API_KEY: (FetchRequest, 4, 11),
    ListOffsetsRequest.API_KEY: (ListOffsetsRequest, 1, 5),
    MetadataRequest.API_KEY: (MetadataRequest, 0, 12),
    ApiVersionsRequest.API_KEY: (ApiVersionsRequest, 0, 3),
    DescribeConfigsRequest.API_KEY: (DescribeConfigsRequest, 1, 2),
}

HANG_UP = -2


class FrameServer:
    """Accepts connections and answers each request with the result of `handle`. If the result is
    None, the connection is closed. Each connection has its own thread.
    """

    def __init__(self, speaks: Versions, handle: Callable[[Message], Message | None]) -> None:
        self._speaks, self._handle = speaks, handle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(60)
        self.hang_up()
        for thread in self._threads:
            thread.join(60)

    def hang_up(self) -> None:
        """Close all connections, as a broker does when they are idle."""
        for connection in self._sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        """Serve each connection in a thread of its own."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        """Decode requests, and send what the handler returns. If it returns None, close the
        connection.
        """
        with (
            suppress(OSError),
            connection,
            connection.makefile("rb") as incoming,
        ):  # clients may close the connection at any time
            while len(prefix := incoming.read(4)) == 4:
                frame = incoming.read(struct.unpack(">i", prefix)[0])
                api_key, version, correlation_id, client_id_size = struct.unpack_from(
                    ">hhih", frame
                )
                kind, low, high = self._speaks[api_key]
                assert low <= version <= high, f"{kind.__name__} v{version}"
                flexible = version >= kind.FLEXIBLE_FROM
                start = 10 + client_id_size
                assert not flexible or frame[start] == 0, (
                    "a flexible request's header ends in tagged fields"
                )
                answer = self._handle(kind.decode(frame[start + flexible :], version))
                if answer is None:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                body = b"\0" * (flexible and api_key != ApiVersionsRequest.API_KEY) + answer.encode(
                    version
                )
                connection.sendall(struct.pack(">ii", 4 + len(body), correlation_id) + body)


@dataclass
class FakeLog:
    """One partition."""

    batches: Sequence[bytes] = ()
    aborted: Sequence[
        tuple[int, int, int]
    ] = ()  # each aborted transaction's producer id, first offset, and offset of the abort marker
    start_offset: int = 0
    end_offset: int | None = None  # None: the offset after the last batch
    stable_offset: int | None = None  # None: the end of the log

    @property
    def end(self) -> int:
        """The given end offset, or else the offset after the last batch."""
        return (
            self.end_offset
            if self.end_offset is not None
            else max((read_header(b).next_offset for b in self.batches), default=0)
        )

    @property
    def stable(self) -> int:
        return self.end if self.stable_offset is None else self.stable_offset


@dataclass
class FakeBroker:
    """Serves `logs`, which are indexed by topic and partition, while the context lasts.

    `disturb` is called with every request before the response is made. It may return an error code
    for the response, or HANG_UP to close the connection.
    """

    logs: dict[tuple[str, int], FakeLog]
    disturb: Callable[[Message], int | None] = lambda request: None
    requests: list[Message] = field(default_factory=list)
    topic_ids: dict[str, uuid.UUID] = field(
        default_factory=dict
    )  # for a topic without an entry, the broker reports no id
    # From version 13 on, a fetch identifies a topic by its id.
    fetch_versions: tuple[int, int] = (4, 11)
    # the topics with barnabas.transactions.whole; None: a broker without this setting
    whole_topics: set[str] | None = None
    # recorded cuts by their times; None for a partition whose topic did not have the setting then
    cuts: dict[int, dict[tuple[str, int], int | None]] = field(default_factory=dict)

    HANG_UP = HANG_UP

    def __enter__(self) -> FakeBroker:
        fetch = {FetchRequest.API_KEY: (FetchRequest, *self.fetch_versions)}
        self._speaks: Versions = {**SPEAKS, **fetch}
        self._server = FrameServer(self._speaks, self._handle)
        self.port = self._server.port
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _handle(self, request: Message) -> Message | None:
        """Record the request and return the response. `disturb` may give an error code or have the
        connection closed.
        """
        self.requests.append(request)
        code = self.disturb(request)
        return None if code == self.HANG_UP else self._answer(request, code or 0)

    def _answer(self, request: Message, code: int) -> Message:
        """The response to a request, with this error code."""
        if isinstance(request, ApiVersionsRequest):
            return _versions(self._speaks, code)
        if isinstance(request, MetadataRequest):
            return self._metadata(request, code)
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request, code)
        if isinstance(request, DescribeConfigsRequest):
            return self._settings(request, code)
        assert isinstance(request, FetchRequest)
        return self._fetch(request, code)

    def _settings(self, request: DescribeConfigsRequest, code: int) -> DescribeConfigsResponse:
        """The setting barnabas.transactions.whole of topics."""
        results = []
        for row in request.resources:
            assert row.configuration_keys is not None
            value = str(row.resource_name in (self.whole_topics or ())).lower()
            configs = [
                DescribeConfigsResourceResult(name=name, value=value)
                for name in row.configuration_keys
                if self.whole_topics is not None and not code
            ]
            results.append(
                DescribeConfigsResult(code, None, row.resource_type, row.resource_name, configs)
            )
        return DescribeConfigsResponse(results=results)

    def _cut(self, name: tuple[str, int], timestamp: int) -> tuple[int, int, int]:
        """Error code, time and offset of a recorded cut, as Barnabas answers ListOffsets."""
        if self.whole_topics is None:
            return 0, -1, -1
        if name[0] not in self.whole_topics:
            return Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1, -1
        if timestamp >= AT_OR_AFTER:
            time_ms = min((t for t in self.cuts if t >= timestamp - AT_OR_AFTER), default=-1)
        else:
            time_ms = max((t for t in self.cuts if t <= timestamp - AT_OR_BEFORE), default=-1)
        if time_ms < 0:
            return 0, -1, -1
        offset = self.cuts[time_ms].get(name, 0)
        return 0, time_ms, -1 if offset is None else offset

    def _metadata(self, request: MetadataRequest, code: int) -> MetadataResponse:
        existing = sorted({topic for topic, _ in self.logs})
        topics = []
        for name in (
            existing if request.topics is None else [topic.name for topic in request.topics]
        ):
            partitions = [
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=1,
                    leader_epoch=0,
                    replica_nodes=[1],
                    isr_nodes=[1],
                    offline_replicas=[],
                )
                for topic, index in sorted(self.logs)
                if topic == name
            ]
            error = code or (0 if name in existing else Code.UNKNOWN_TOPIC_OR_PARTITION)
            topic_id = self.topic_ids.get(name)
            internal = name.startswith("__")
            topics.append(
                MetadataResponseTopic(
                    error_code=error,
                    name=name,
                    topic_id=topic_id,
                    is_internal=internal,
                    partitions=partitions,
                )
            )
        brokers = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port, rack=None)]
        return MetadataResponse(
            throttle_time_ms=0, brokers=brokers, cluster_id="fake", controller_id=1, topics=topics
        )

    def _offsets(self, request: ListOffsetsRequest, code: int) -> ListOffsetsResponse:
        """The start offset, the end offset, or the offset of the first batch whose timestamp is at
        least the given one.
        """
        topics = []
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                log = self.logs.get((topic.name, each.partition_index))
                if log is None:
                    partitions.append(
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
                            timestamp=-1,
                            offset=-1,
                            leader_epoch=-1,
                        )
                    )
                    continue
                end = log.stable if request.isolation_level else log.end
                if each.timestamp >= AT_OR_BEFORE:
                    error, time_ms, offset = self._cut(
                        (topic.name, each.partition_index), each.timestamp
                    )
                    partitions.append(
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=code or error,
                            timestamp=time_ms,
                            offset=offset,
                            leader_epoch=0,
                        )
                    )
                    continue
                offset = {-1: end, -2: log.start_offset}.get(each.timestamp)
                if offset is None:
                    late = [
                        read_header(b).base_offset
                        for b in log.batches
                        if read_header(b).max_timestamp >= each.timestamp
                    ]
                    offset = late[0] if late and late[0] < end else -1
                partitions.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=code,
                        timestamp=-1,
                        offset=offset,
                        leader_epoch=0,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)

    def _fetch(self, request: FetchRequest, code: int) -> FetchResponse:
        """The batches from the offset on. The last one is truncated at the size limit."""
        (topic,) = request.topics
        (asked,) = topic.partitions
        name, unknown = topic.topic, Code.UNKNOWN_TOPIC_OR_PARTITION
        if topic.topic_id is not None:
            names = {topic_id: name for name, topic_id in self.topic_ids.items()}
            name, unknown = names.get(topic.topic_id, ""), Code.UNKNOWN_TOPIC_ID
        log = self.logs.get((name, asked.partition))
        if log is None:
            log, code = FakeLog(), code or unknown
        offset = asked.fetch_offset
        if not code and not log.start_offset <= offset <= log.end:
            code = Code.OFFSET_OUT_OF_RANGE
        end = log.stable if request.isolation_level else log.end
        records, upper = bytearray(), offset
        for batch in log.batches:
            header = read_header(batch)
            if (
                code
                or header.last_offset < offset
                or header.base_offset >= end
                or len(records) >= asked.partition_max_bytes
            ):
                continue
            records += batch
            upper = header.next_offset
            if len(records) > asked.partition_max_bytes and len(records) > len(batch):
                # the limit may truncate the last batch, as in Kafka
                del records[asked.partition_max_bytes :]
                break
        aborted = [
            AbortedTransaction(producer_id=producer, first_offset=first)
            for producer, first, marker in log.aborted
            if marker >= offset and first < upper
        ]
        part = PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=log.end,
            last_stable_offset=log.stable,
            log_start_offset=log.start_offset,
            aborted_transactions=aborted if request.isolation_level else None,
            preferred_read_replica=-1,
            records=bytes(records),
        )
        responses = [
            FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[part])
        ]
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=responses)


def _versions(speaks: Versions, code: int) -> ApiVersionsResponse:
    """An ApiVersions response with these versions."""
    keys = [
        ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, (_, low, high) in speaks.items()
    ]
    return ApiVersionsResponse(error_code=code, api_keys=keys, throttle_time_ms=0)


# The requests of producers. For each, the versions of Apache Kafka 2.5 and those of 4.0, up to the
# highest that this connector knows.
_PRODUCER_KINDS: tuple[tuple[type[Message], tuple[int, int], tuple[int, int]], ...] = (
    (ApiVersionsRequest, (0, 3), (0, 4)),
    (MetadataRequest, (0, 9), (0, 12)),
    (FindCoordinatorRequest, (0, 3), (0, 6)),
    (InitProducerIdRequest, (0, 3), (0, 5)),
    (AddPartitionsToTxnRequest, (0, 1), (0, 5)),
    (AddOffsetsToTxnRequest, (0, 1), (0, 4)),
    (TxnOffsetCommitRequest, (0, 3), (0, 5)),
    (EndTxnRequest, (0, 1), (0, 5)),
    (OffsetFetchRequest, (0, 7), (1, 9)),
    (OffsetCommitRequest, (0, 8), (2, 9)),
    (ProduceRequest, (0, 8), (3, 12)),
)
KAFKA_2_5 = {kind.API_KEY: (kind, *versions) for kind, versions, _ in _PRODUCER_KINDS}
KAFKA_4_0 = {kind.API_KEY: (kind, *versions) for kind, _, versions in _PRODUCER_KINDS}


@dataclass
class FakeTransaction:
    """The state of a transactional id in its coordinator."""

    producer_id: int
    epoch: int = 0
    partitions: set[tuple[str, int]] = field(default_factory=set)
    written: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    offset: int | None = None
    group: str = ""
    notes: dict[str, tuple[int, str]] = field(default_factory=dict)  # by topic


@dataclass
class FakeCluster:
    """A cluster of `nodes` nodes, numbered from 1. Node 1 + partition % nodes leads a partition,
    node 1 coordinates transactions, and the last node coordinates groups.

    The cluster is strict about the protocol of transactions. A wrong epoch, sequence or checksum,
    or a partition that was not added, raises AssertionError or gets the error of a real broker.
    `disturb` is called with the node's number and every request before the response is made. It may
    return an error code for the response, or HANG_UP to close the connection.
    """

    partitions: dict[str, int]
    nodes: int = 2
    speaks: Versions = field(default_factory=lambda: KAFKA_4_0)
    transaction_version: int = 0  # 2: this version is finalised, and clients must follow it
    disturb: Callable[[int, Message], int | None] = lambda node, request: None
    requests: list[tuple[int, Message]] = field(default_factory=list)
    committed: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)  # the last committed offset of each group
    notes: dict[str, dict[str, tuple[int, str]]] = field(
        default_factory=dict
    )  # offset and metadata, by group and topic
    aborted: int = 0  # the number of aborted transactions that were not empty
    creates: bool = True  # whether missing topics are created, with one partition

    def __enter__(self) -> FakeCluster:
        self._lock = threading.Lock()
        self._transactions: dict[str, FakeTransaction] = {}
        self._servers = [
            FrameServer(self.speaks, lambda request, node=node: self._handle(node, request))
            for node in range(1, self.nodes + 1)
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.close()

    @property
    def port(self) -> int:
        """The port of node 1."""
        return self._servers[0].port

    def hang_up(self) -> None:
        """Close all connections."""
        for server in self._servers:
            server.hang_up()

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The committed values of a partition, in order."""
        return [record.value for record in self.committed.get((topic, partition), [])]

    def asked(self, kind: type[Message]) -> int:
        """How many requests of that kind the cluster has received."""
        return sum(isinstance(request, kind) for _, request in self.requests)

    def _handle(self, node: int, request: Message) -> Message | None:
        """Record the request and return the response. `disturb` may give an error code or have the
        connection closed.
        """
        with self._lock:
            self.requests.append((node, request))
            code = self.disturb(node, request)
            if code == HANG_UP:
                return None
            answers: dict[type[Message], Callable[[int, Any, int], Message]] = {
                ApiVersionsRequest: self._api_versions,
                MetadataRequest: self._metadata,
                FindCoordinatorRequest: self._find_coordinator,
                InitProducerIdRequest: self._init,
                AddPartitionsToTxnRequest: self._add_partitions,
                AddOffsetsToTxnRequest: self._add_offsets,
                TxnOffsetCommitRequest: self._commit_offset,
                EndTxnRequest: self._end,
                OffsetFetchRequest: self._fetch_offsets,
                OffsetCommitRequest: self._commit_plainly,
                ProduceRequest: self._produce,
            }
            return answers[type(request)](node, request, code or 0)

    def _api_versions(
        self, node: int, request: ApiVersionsRequest, code: int
    ) -> ApiVersionsResponse:
        answer = _versions(self.speaks, code)
        if self.transaction_version:
            level = self.transaction_version
            answer.finalized_features_epoch = 1
            answer.finalized_features = [FinalizedFeatureKey("transaction.version", level, level)]
        return answer

    def _metadata(self, node: int, request: MetadataRequest, code: int) -> MetadataResponse:
        topics = []
        for topic in request.topics:
            if (
                topic.name not in self.partitions
                and request.allow_auto_topic_creation
                and self.creates
                and not code
            ):
                self.partitions[topic.name] = 1
            there = topic.name in self.partitions and not code
            parts = [
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=1 + index % self.nodes,
                    leader_epoch=0,
                    replica_nodes=[1],
                    isr_nodes=[1],
                    offline_replicas=[],
                )
                for index in range(self.partitions[topic.name] if there else 0)
            ]
            error = code or (0 if there else Code.UNKNOWN_TOPIC_OR_PARTITION)
            topics.append(
                MetadataResponseTopic(error_code=error, name=topic.name, partitions=parts)
            )
        brokers = [
            MetadataResponseBroker(node_id=1 + index, host="127.0.0.1", port=server.port, rack=None)
            for index, server in enumerate(self._servers)
        ]
        return MetadataResponse(
            throttle_time_ms=0, brokers=brokers, cluster_id="fake", controller_id=1, topics=topics
        )

    def _find_coordinator(
        self, node: int, request: FindCoordinatorRequest, code: int
    ) -> FindCoordinatorResponse:
        # Node 1 coordinates transactions, and the last node coordinates groups.
        found = 1 if request.key_type == 1 else self.nodes
        return FindCoordinatorResponse(
            throttle_time_ms=0,
            error_code=code,
            error_message=None,
            node_id=found,
            host="127.0.0.1",
            port=self._servers[found - 1].port,
        )

    def _init(self, node: int, request: InitProducerIdRequest, code: int) -> InitProducerIdResponse:
        assert node == 1
        state = self._transactions.setdefault(
            request.transactional_id, FakeTransaction(7000 + len(self._transactions), -1)
        )
        if not code:
            self._finish(request.transactional_id, state, commit=False)
            state.epoch += 1
        return InitProducerIdResponse(
            throttle_time_ms=0,
            error_code=code,
            producer_id=-1 if code else state.producer_id,
            producer_epoch=-1 if code else state.epoch,
        )

    def _state(self, name: str, producer_id: int, epoch: int) -> tuple[FakeTransaction, int]:
        """The state of a transactional id, and the error code for a request with this epoch."""
        state = self._transactions[name]
        assert producer_id == state.producer_id
        return state, 0 if epoch == state.epoch else Code.PRODUCER_FENCED

    def _add_partitions(
        self, node: int, request: AddPartitionsToTxnRequest, code: int
    ) -> AddPartitionsToTxnResponse:
        assert node == 1 and self.transaction_version < 2
        name, producer_id = request.v3_and_below_transactional_id, request.v3_and_below_producer_id
        state, fenced = self._state(name, producer_id, request.v3_and_below_producer_epoch)
        topics = []
        for topic in request.v3_and_below_topics:
            parts = []
            for index in topic.partitions:
                if not (code or fenced):
                    assert (topic.name, index) not in state.partitions, "added twice"
                    state.partitions.add((topic.name, index))
                parts.append(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code or fenced
                    )
                )
            topics.append(AddPartitionsToTxnTopicResult(topic.name, parts))
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=topics)

    def _produce(self, node: int, request: ProduceRequest, code: int) -> ProduceResponse:
        assert request.acks == -1
        topics = []
        for topic in request.topic_data:
            parts = []
            for part in topic.partition_data:
                error = code or self._append(
                    node, request.transactional_id, topic.name, part.index, bytes(part.records)
                )
                parts.append(
                    PartitionProduceResponse(
                        index=part.index,
                        error_code=error,
                        base_offset=0,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                        record_errors=[],
                        error_message="as the test wants it" if code else None,
                    )
                )
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=parts))
        return ProduceResponse(responses=topics, throttle_time_ms=0)

    def _append(self, node: int, name: str, topic: str, partition: int, batch: bytes) -> int:
        """Append a batch to the transaction, check the order of its sequence numbers, and return
        the error code.
        """
        if node != 1 + partition % self.nodes:
            return Code.NOT_LEADER_OR_FOLLOWER
        header = read_header(batch)
        assert header.size_bytes == len(batch), "one batch for each partition"
        assert (
            header.crc == computed_crc(batch)
            and header.is_transactional
            and header.base_offset == 0
        )
        state, fenced = self._state(name, header.producer_id, header.producer_epoch)
        if fenced:
            return Code.INVALID_PRODUCER_EPOCH
        if self.transaction_version >= 2:
            state.partitions.add((topic, partition))
        if (topic, partition) not in state.partitions:
            return Code.INVALID_TXN_STATE
        written = state.written.setdefault((topic, partition), [])
        if header.base_sequence != add_sequence(0, len(written)):
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        written += records_of(batch)
        return 0

    def _add_offsets(
        self, node: int, request: AddOffsetsToTxnRequest, code: int
    ) -> AddOffsetsToTxnResponse:
        assert node == 1 and self.transaction_version < 2
        _, fenced = self._state(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code or fenced)

    def _commit_offset(
        self, node: int, request: TxnOffsetCommitRequest, code: int
    ) -> TxnOffsetCommitResponse:
        assert node == self.nodes
        state, fenced = self._state(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
        topics = []
        for topic in request.topics:
            (part,) = topic.partitions
            if not (code or fenced):
                state.group, state.offset = request.group_id, part.committed_offset
                state.notes[topic.name] = part.committed_offset, part.committed_metadata
            answered = TxnOffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=code or fenced
            )
            topics.append(TxnOffsetCommitResponseTopic(topic.name, [answered]))
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)

    def _commit_plainly(
        self, node: int, request: OffsetCommitRequest, code: int
    ) -> OffsetCommitResponse:
        """Store offsets outside a transaction. The sink commits its metadata like this, since the
        metadata must be kept for longer than the group's offsets.
        """
        assert node == self.nodes and request.retention_time_ms > 0, "only to last"
        topics = []
        for topic in request.topics:
            (part,) = topic.partitions
            if not code:
                self.notes.setdefault(request.group_id, {})[topic.name] = (
                    part.committed_offset,
                    part.committed_metadata,
                )
            answered = OffsetCommitResponsePartition(part.partition_index, code)
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=[answered]))
        return OffsetCommitResponse(topics=topics)

    def _end(self, node: int, request: EndTxnRequest, code: int) -> EndTxnResponse:
        assert node == 1
        state, fenced = self._state(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
        if not (code or fenced):
            self._finish(request.transactional_id, state, commit=request.committed)
            if self.transaction_version >= 2:
                state.epoch += 1
                return EndTxnResponse(0, 0, state.producer_id, state.epoch)
        return EndTxnResponse(throttle_time_ms=0, error_code=code or fenced)

    def _finish(self, name: str, state: FakeTransaction, *, commit: bool) -> None:
        """Commit or discard what the open transaction has written."""
        if commit:
            for partition, records in state.written.items():
                self.committed.setdefault(partition, []).extend(records)
            if state.offset is not None:
                self.offsets[state.group] = state.offset
                self.notes.setdefault(state.group, {}).update(state.notes)
        elif state.partitions:
            self.aborted += 1
        state.partitions, state.written, state.offset, state.notes = set(), {}, None, {}

    def _fetch_offsets(
        self, node: int, request: OffsetFetchRequest, code: int
    ) -> OffsetFetchResponse:
        assert node == self.nodes and request.topics is None and request.require_stable
        known = self.notes.get(
            request.group_id,
            {"t": (self.offsets[request.group_id], "")} if request.group_id in self.offsets else {},
        )
        topics = []
        for topic, (offset, text) in known.items():
            part = OffsetFetchResponsePartition(
                partition_index=0,
                committed_offset=offset,
                committed_leader_epoch=-1,
                metadata=text,
                error_code=code if code == Code.UNSTABLE_OFFSET_COMMIT else 0,
            )
            topics.append(OffsetFetchResponseTopic(name=topic, partitions=[part]))
        return OffsetFetchResponse(
            throttle_time_ms=0,
            error_code=0 if code == Code.UNSTABLE_OFFSET_COMMIT else code,
            topics=topics,
        )
