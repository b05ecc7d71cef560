"""ListTransactions, API key 66: versions 0 to 2, flexible from 0.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_string,
    read_numbers,
    read_string,
    read_strings,
    read_structs,
    refuse_value,
    skip_tags,
    write_nullable_string,
    write_numbers,
    write_string,
    write_strings,
    write_structs,
)

_INT32_INT16 = struct.Struct(">ih")
_INT64 = struct.Struct(">q")


class ListTransactionsRequest(Message):
    """The request.

    state_filters: The transaction states to filter by: if empty, all transactions are returned;
        if non-empty, then only transactions matching one of the filtered states will be
        returned.
    producer_id_filters: The producerIds to filter by: if empty, all transactions will be
        returned; if non-empty, only transactions which match one of the filtered producerIds
        will be returned.
    duration_filter (from version 1): Duration (in millis) to filter by: if < 0, all
        transactions will be returned; otherwise, only transactions running longer than this
        duration will be returned.
    transactional_id_pattern (version 2): The transactional ID regular expression pattern to
        filter by: if it is empty or null, all transactions are returned; Otherwise then only
        the transactions matching the given regular expression will be returned.
    """

    __slots__ = (
        "duration_filter",
        "producer_id_filters",
        "state_filters",
        "transactional_id_pattern",
    )
    API_KEY: ClassVar[int] = 66
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        state_filters: list[str] | None = None,
        producer_id_filters: list[int] | None = None,
        duration_filter: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> None:
        self.state_filters: list[str] = [] if state_filters is None else state_filters
        self.producer_id_filters: list[int] = (
            [] if producer_id_filters is None else producer_id_filters
        )
        self.duration_filter = duration_filter
        self.transactional_id_pattern = transactional_id_pattern

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListTransactionsRequest, int]:
        state_filters, at = read_strings(data, at, True)
        producer_id_filters, at = read_numbers(data, at, True, "q")
        duration_filter = -1
        if version >= 1:
            (duration_filter,) = _INT64.unpack_from(data, at)
            at += 8
        transactional_id_pattern: str | None = None
        if version >= 2:
            transactional_id_pattern, at = read_nullable_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            state_filters, producer_id_filters, duration_filter, transactional_id_pattern
        ), at

    def write(self, out: bytearray, version: int) -> None:
        write_strings(out, self.state_filters, True)
        write_numbers(out, self.producer_id_filters, True, "q")
        if version >= 1:
            out += _INT64.pack(self.duration_filter)
        elif self.duration_filter != -1:
            refuse_value("duration_filter", version)
        if version >= 2:
            write_nullable_string(out, self.transactional_id_pattern, True)
        elif self.transactional_id_pattern is not None:
            refuse_value("transactional_id_pattern", version)
        out.append(0)

    def error_response(self, version: int, code: Code) -> ListTransactionsResponse:
        return ListTransactionsResponse(error_code=code)


class TransactionState(Message):
    """The current state of the transaction for the transactional id.

    transactional_id: The transactional id.
    producer_id: The producer id.
    transaction_state: The current transaction state of the producer.
    """

    __slots__ = ("producer_id", "transaction_state", "transactional_id")

    def __init__(
        self, transactional_id: str = "", producer_id: int = 0, transaction_state: str = ""
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.transaction_state = transaction_state

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TransactionState, int]:
        transactional_id, at = read_string(data, at, True)
        (producer_id,) = _INT64.unpack_from(data, at)
        at += 8
        transaction_state, at = read_string(data, at, True)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(transactional_id, producer_id, transaction_state), at

    def write(self, out: bytearray, version: int) -> None:
        write_string(out, self.transactional_id, True)
        out += _INT64.pack(self.producer_id)
        write_string(out, self.transaction_state, True)
        out.append(0)


class ListTransactionsResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    unknown_state_filters: Set of state filters provided in the request which were unknown to
        the transaction coordinator.
    transaction_states: The current state of the transaction for the transactional id.
    """

    __slots__ = ("error_code", "throttle_time_ms", "transaction_states", "unknown_state_filters")
    API_KEY: ClassVar[int] = 66
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_state_filters: list[str] | None = None,
        transaction_states: list[TransactionState] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.unknown_state_filters: list[str] = (
            [] if unknown_state_filters is None else unknown_state_filters
        )
        self.transaction_states: list[TransactionState] = (
            [] if transaction_states is None else transaction_states
        )

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ListTransactionsResponse, int]:
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        unknown_state_filters, at = read_strings(data, at, True)
        transaction_states, at = read_structs(data, at, True, TransactionState.read, version)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, unknown_state_filters, transaction_states), at

    def write(self, out: bytearray, version: int) -> None:
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        write_strings(out, self.unknown_state_filters, True)
        write_structs(out, self.transaction_states, True, version)
        out.append(0)
