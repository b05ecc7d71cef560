"""WriteTxnMarkers, API key 27: versions 0 to 2, flexible from 1.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_numbers,
    read_string,
    read_structs,
    skip_tags,
    write_numbers,
    write_string,
    write_structs,
)

_INT32 = struct.Struct(">i")
_INT32_INT16 = struct.Struct(">ih")
_INT64 = struct.Struct(">q")
_INT64_INT16_BOOL = struct.Struct(">qh?")
_INT8 = struct.Struct(">b")


class WritableTxnMarkerTopic(Message):
    """Each topic that we want to write transaction marker(s) for.

    name: The topic name.
    partition_indexes: The indexes of the partitions to write transaction markers for.
    """

    __slots__ = ("name", "partition_indexes")

    def __init__(self, name: str = "", partition_indexes: list[int] | None = None) -> None:
        self.name = name
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WritableTxnMarkerTopic, int]:
        compact = version >= 1
        name, at = read_string(data, at, compact)
        partition_indexes, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partition_indexes), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_string(out, self.name, compact)
        write_numbers(out, self.partition_indexes, compact, "i")
        if compact:
            out.append(0)


class WritableTxnMarker(Message):
    """The transaction markers to be written.

    producer_id: The current producer ID.
    producer_epoch: The current epoch associated with the producer ID.
    transaction_result: The result of the transaction to write to the partitions (false = ABORT,
        true = COMMIT).
    topics: Each topic that we want to write transaction marker(s) for.
    coordinator_epoch: Epoch associated with the transaction state partition hosted by this
        transaction coordinator.
    transaction_version (version 2): Transaction version of the marker. Ex: 0/1 = legacy
        (TV0/TV1), 2 = TV2 etc.
    """

    __slots__ = (
        "coordinator_epoch",
        "producer_epoch",
        "producer_id",
        "topics",
        "transaction_result",
        "transaction_version",
    )

    def __init__(
        self,
        producer_id: int = 0,
        producer_epoch: int = 0,
        transaction_result: bool = False,
        topics: list[WritableTxnMarkerTopic] | None = None,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transaction_result = transaction_result
        self.topics: list[WritableTxnMarkerTopic] = [] if topics is None else topics
        self.coordinator_epoch = coordinator_epoch
        self.transaction_version = transaction_version

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WritableTxnMarker, int]:
        compact = version >= 1
        producer_id, producer_epoch, transaction_result = _INT64_INT16_BOOL.unpack_from(data, at)
        at += 11
        topics, at = read_structs(data, at, compact, WritableTxnMarkerTopic.read, version)
        (coordinator_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        transaction_version = 0
        if version >= 2:
            (transaction_version,) = _INT8.unpack_from(data, at)
            at += 1
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            producer_id,
            producer_epoch,
            transaction_result,
            topics,
            coordinator_epoch,
            transaction_version,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        out += _INT64_INT16_BOOL.pack(
            self.producer_id, self.producer_epoch, self.transaction_result
        )
        write_structs(out, self.topics, compact, version)
        out += _INT32.pack(self.coordinator_epoch)
        if version >= 2:
            out += _INT8.pack(self.transaction_version)
        if compact:
            out.append(0)


class WriteTxnMarkersRequest(Message):
    """The request.

    markers: The transaction markers to be written.
    """

    __slots__ = ("markers",)
    API_KEY: ClassVar[int] = 27
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 1
    ROWS: ClassVar[dict[str, str]] = {"markers": "markers"}

    def __init__(self, markers: list[WritableTxnMarker] | None = None) -> None:
        self.markers: list[WritableTxnMarker] = [] if markers is None else markers

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WriteTxnMarkersRequest, int]:
        compact = version >= 1
        markers, at = read_structs(data, at, compact, WritableTxnMarker.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(markers), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_structs(out, self.markers, compact, version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    row.producer_id,
                    [
                        WritableTxnMarkerTopicResult(
                            part.name,
                            [
                                WritableTxnMarkerPartitionResult(item, code)
                                for item in part.partition_indexes
                            ],
                        )
                        for part in row.topics
                    ],
                )
                for row in self.markers
            ]
        )


class WritableTxnMarkerPartitionResult(Message):
    """The results by partition.

    partition_index: The partition index.
    error_code: The error code, or 0 if there was no error.
    """

    __slots__ = ("error_code", "partition_index")

    def __init__(self, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[WritableTxnMarkerPartitionResult, int]:
        compact = version >= 1
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(partition_index, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        out += _INT32_INT16.pack(self.partition_index, self.error_code)
        if compact:
            out.append(0)


class WritableTxnMarkerTopicResult(Message):
    """The results by topic.

    name: The topic name.
    partitions: The results by partition.
    """

    __slots__ = ("name", "partitions")

    def __init__(
        self, name: str = "", partitions: list[WritableTxnMarkerPartitionResult] | None = None
    ) -> None:
        self.name = name
        self.partitions: list[WritableTxnMarkerPartitionResult] = (
            [] if partitions is None else partitions
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WritableTxnMarkerTopicResult, int]:
        compact = version >= 1
        name, at = read_string(data, at, compact)
        partitions, at = read_structs(
            data, at, compact, WritableTxnMarkerPartitionResult.read, version
        )
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(name, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_string(out, self.name, compact)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class WritableTxnMarkerResult(Message):
    """The results for writing makers.

    producer_id: The current producer ID in use by the transactional ID.
    topics: The results by topic.
    """

    __slots__ = ("producer_id", "topics")

    def __init__(
        self, producer_id: int = 0, topics: list[WritableTxnMarkerTopicResult] | None = None
    ) -> None:
        self.producer_id = producer_id
        self.topics: list[WritableTxnMarkerTopicResult] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WritableTxnMarkerResult, int]:
        compact = version >= 1
        (producer_id,) = _INT64.unpack_from(data, at)
        at += 8
        topics, at = read_structs(data, at, compact, WritableTxnMarkerTopicResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(producer_id, topics), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        out += _INT64.pack(self.producer_id)
        write_structs(out, self.topics, compact, version)
        if compact:
            out.append(0)


class WriteTxnMarkersResponse(Message):
    """The response.

    markers: The results for writing makers.
    """

    __slots__ = ("markers",)
    API_KEY: ClassVar[int] = 27
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 1

    def __init__(self, markers: list[WritableTxnMarkerResult] | None = None) -> None:
        self.markers: list[WritableTxnMarkerResult] = [] if markers is None else markers

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[WriteTxnMarkersResponse, int]:
        compact = version >= 1
        markers, at = read_structs(data, at, compact, WritableTxnMarkerResult.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(markers), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 1
        write_structs(out, self.markers, compact, version)
        if compact:
            out.append(0)
