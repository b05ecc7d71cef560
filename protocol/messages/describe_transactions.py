"""DescribeTransactions, API key 65: version 0, flexible from 0.

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
    read_strings,
    read_structs,
    skip_tags,
    write_numbers,
    write_string,
    write_strings,
    write_structs,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_INT64_2_TIMES_INT16 = struct.Struct(">iqqh")


class DescribeTransactionsRequest(Message):
    """The request.

    transactional_ids: Array of transactionalIds to include in describe results. If empty, then
        no results will be returned.
    """

    __slots__ = ("transactional_ids",)
    API_KEY: ClassVar[int] = 65
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    ROWS: ClassVar[dict[str, str]] = {"transactional_ids": "transaction_states"}

    def __init__(self, transactional_ids: list[str] | None = None) -> None:
        self.transactional_ids: list[str] = [] if transactional_ids is None else transactional_ids

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeTransactionsRequest, int]:
        transactional_ids, at = read_strings(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(transactional_ids), at

    def write(self, out: bytearray, version: int) -> None:
        write_strings(out, self.transactional_ids, True)
        out.append(0)

    def error_response(self, version: int, code: Code) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[TransactionState(code, row) for row in self.transactional_ids]
        )


class TopicData(Message):
    """The set of partitions included in the current transaction (if active). When a transaction is
    preparing to commit or abort, this will include only partitions which do not have markers.

    topic: The topic name.
    partitions: The partition ids included in the current transaction.
    """

    __slots__ = ("partitions", "topic")

    def __init__(self, topic: str = "", partitions: list[int] | None = None) -> None:
        self.topic = topic
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TopicData, int]:
        topic, at = read_string(data, at, True)
        partitions, at = read_numbers(data, at, True, "i")
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.topic, True)
        write_numbers(out, self.partitions, True, "i")
        out.append(0)


class TransactionState(Message):
    """The current state of the transaction.

    error_code: The error code.
    transactional_id: The transactional id.
    transaction_state: The current transaction state of the producer.
    transaction_timeout_ms: The timeout in milliseconds for the transaction.
    transaction_start_time_ms: The start time of the transaction in milliseconds.
    producer_id: The current producer id associated with the transaction.
    producer_epoch: The current epoch associated with the producer id.
    topics: The set of partitions included in the current transaction (if active). When a
        transaction is preparing to commit or abort, this will include only partitions which do
        not have markers.
    """

    __slots__ = (
        "error_code",
        "producer_epoch",
        "producer_id",
        "topics",
        "transaction_start_time_ms",
        "transaction_state",
        "transaction_timeout_ms",
        "transactional_id",
    )

    def __init__(
        self,
        error_code: int = 0,
        transactional_id: str = "",
        transaction_state: str = "",
        transaction_timeout_ms: int = 0,
        transaction_start_time_ms: int = 0,
        producer_id: int = 0,
        producer_epoch: int = 0,
        topics: list[TopicData] | None = None,
    ) -> None:
        self.error_code = error_code
        self.transactional_id = transactional_id
        self.transaction_state = transaction_state
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_start_time_ms = transaction_start_time_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.topics: list[TopicData] = [] if topics is None else topics

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TransactionState, int]:
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        transactional_id, at = read_string(data, at, True)
        transaction_state, at = read_string(data, at, True)
        transaction_timeout_ms, transaction_start_time_ms, producer_id, producer_epoch = (
            _INT32_INT64_2_TIMES_INT16.unpack_from(data, at)
        )
        at += 22
        topics, at = read_structs(data, at, True, TopicData.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            error_code,
            transactional_id,
            transaction_state,
            transaction_timeout_ms,
            transaction_start_time_ms,
            producer_id,
            producer_epoch,
            topics,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT16.pack(self.error_code)
        write_string(out, self.transactional_id, True)
        write_string(out, self.transaction_state, True)
        out += _INT32_INT64_2_TIMES_INT16.pack(
            self.transaction_timeout_ms,
            self.transaction_start_time_ms,
            self.producer_id,
            self.producer_epoch,
        )
        write_structs(out, self.topics, True, version)
        out.append(0)


class DescribeTransactionsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    transaction_states: The current state of the transaction.
    """

    __slots__ = ("throttle_time_ms", "transaction_states")
    API_KEY: ClassVar[int] = 65
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self, throttle_time_ms: int = 0, transaction_states: list[TransactionState] | None = None
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.transaction_states: list[TransactionState] = (
            [] if transaction_states is None else transaction_states
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[DescribeTransactionsResponse, int]:
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        transaction_states, at = read_structs(data, at, True, TransactionState.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, transaction_states), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32.pack(self.throttle_time_ms)
        write_structs(out, self.transaction_states, True, version)
        out.append(0)
