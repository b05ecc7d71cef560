"""A server that answers ApiVersions, Metadata, ListOffsets and Fetch from logs that a test wrote down.

It exists for what a real broker does not do on demand: gaps of compaction, batches cut off, connections that end in the middle, errors that
pass. `FakeLog.batches` are encoded batches in offset order; a fetch brings those that begin before the isolation level's end, up to max_bytes
but at least one.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from protocol.errors import Code
from protocol.records import read_header

SPEAKS = {
    FetchRequest.API_KEY: (FetchRequest, 4, 11),
    ListOffsetsRequest.API_KEY: (ListOffsetsRequest, 1, 5),
    MetadataRequest.API_KEY: (MetadataRequest, 0, 8),
    ApiVersionsRequest.API_KEY: (ApiVersionsRequest, 0, 2),
}
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


@dataclass
class FakeLog:
    """One partition."""

    batches: Sequence[bytes] = ()
    aborted: Sequence[tuple[int, int, int]] = ()  # producer_id, first_offset, offset of the abort marker
    start_offset: int = 0
    end_offset: int | None = None  # after the last batch
    stable_offset: int | None = None  # the end

    @property
    def end(self) -> int:
        return self.end_offset if self.end_offset is not None else max((read_header(b).next_offset for b in self.batches), default=0)

    @property
    def stable(self) -> int:
        return self.end if self.stable_offset is None else self.stable_offset


@dataclass
class FakeBroker:
    """Serves `logs` by topic and partition while the context lasts.

    `disturb` sees every request before it is answered, and may give an error code for it, or HANG_UP.
    """

    logs: dict[tuple[str, int], FakeLog]
    disturb: Callable[[Any], int | None] = lambda request: None
    requests: list[Any] = field(default_factory=list)

    HANG_UP = -2

    def __enter__(self) -> FakeBroker:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(5)
        for connection in self._sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(5)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
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
        with connection, connection.makefile("rb") as incoming:
            while len(prefix := incoming.read(4)) == 4:
                frame = incoming.read(struct.unpack(">i", prefix)[0])
                api_key, version, correlation_id, client_id_size = struct.unpack_from(">hhih", frame)
                kind, low, high = SPEAKS[api_key]
                assert low <= version <= high, f"{kind.__name__} v{version}"
                request = kind.decode(frame[10 + client_id_size :], version=version)
                self.requests.append(request)
                code = self.disturb(request)
                if code == self.HANG_UP:
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                body = self._answer(request, code or 0).encode(version=version)
                connection.sendall(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    def _answer(self, request: Any, code: int) -> Any:
        if isinstance(request, ApiVersionsRequest):
            keys = [
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (_, low, high) in SPEAKS.items()
            ]
            return ApiVersionsResponse(error_code=code, api_keys=keys, throttle_time_ms=0)
        if isinstance(request, MetadataRequest):
            return self._metadata(request, code)
        return self._offsets(request, code) if isinstance(request, ListOffsetsRequest) else self._fetch(request, code)

    def _metadata(self, request: Any, code: int) -> Any:
        topic_kind = MetadataResponse.MetadataResponseTopic
        existing = sorted({topic for topic, _ in self.logs})
        topics = []
        for name in existing if request.topics is None else [topic.name for topic in request.topics]:
            partitions = [
                topic_kind.MetadataResponsePartition(
                    error_code=0, partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
                )
                for topic, index in sorted(self.logs)
                if topic == name
            ]
            error = code or (0 if name in existing else Code.UNKNOWN_TOPIC_OR_PARTITION)
            topics.append(topic_kind(error_code=error, name=name, is_internal=name.startswith("__"), partitions=partitions))
        brokers = [MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port, rack=None)]
        return MetadataResponse(throttle_time_ms=0, brokers=brokers, cluster_id="fake", controller_id=1, topics=topics)

    def _offsets(self, request: Any, code: int) -> Any:
        topic_kind = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                log = self.logs[topic.name, each.partition_index]
                end = log.stable if request.isolation_level else log.end
                offset = {-1: end, -2: log.start_offset}.get(each.timestamp)
                if offset is None:
                    late = [read_header(b).base_offset for b in log.batches if read_header(b).max_timestamp >= each.timestamp]
                    offset = late[0] if late and late[0] < end else -1
                partitions.append(
                    topic_kind.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=code, timestamp=-1, offset=offset, leader_epoch=0
                    )
                )
            topics.append(topic_kind(name=topic.name, partitions=partitions))
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics)

    def _fetch(self, request: Any, code: int) -> Any:
        (topic,) = request.topics
        (asked,) = topic.partitions
        log = self.logs[topic.topic, asked.partition]
        offset = asked.fetch_offset
        if not code and not log.start_offset <= offset <= log.end:
            code = Code.OFFSET_OUT_OF_RANGE
        end = log.stable if request.isolation_level else log.end
        records, upper = bytearray(), offset
        for batch in log.batches:
            header = read_header(batch)
            if code or header.last_offset < offset or header.base_offset >= end or len(records) >= asked.partition_max_bytes:
                continue
            records += batch
            upper = header.next_offset
            if len(records) > asked.partition_max_bytes and len(records) > len(batch):
                del records[asked.partition_max_bytes :]  # cut off within a batch, as Kafka does
                break
        aborted = [
            PartitionData.AbortedTransaction(producer_id=producer, first_offset=first)
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
        responses = [FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=[part])]
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=responses)
