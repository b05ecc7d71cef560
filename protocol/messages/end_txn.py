"""EndTxn, API key 26: versions 0 to 5, flexible from 3.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer, read_string, skip_tags, write_string

_INT32_INT16 = struct.Struct(">ih")
_INT64_INT16 = struct.Struct(">qh")
_INT64_INT16_BOOL = struct.Struct(">qh?")


class EndTxnRequest(Message):
    """The request.

    transactional_id: The ID of the transaction to end.
    producer_id: The producer ID.
    producer_epoch: The current epoch associated with the producer.
    committed: True if the transaction was committed, false if it was aborted.
    """

    __slots__ = ("committed", "producer_epoch", "producer_id", "transactional_id")
    API_KEY: ClassVar[int] = 26
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(
        self,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        committed: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.committed = committed

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[EndTxnRequest, int]:
        compact = version >= 3
        transactional_id, at = read_string(data, at, compact)
        producer_id, producer_epoch, committed = _INT64_INT16_BOOL.unpack_from(data, at)
        at += 11
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(transactional_id, producer_id, producer_epoch, committed), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        write_string(out, self.transactional_id, compact)
        out += _INT64_INT16_BOOL.pack(self.producer_id, self.producer_epoch, self.committed)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> EndTxnResponse:
        return EndTxnResponse(error_code=code)


class EndTxnResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    producer_id (version 5): The producer ID.
    producer_epoch (version 5): The current epoch associated with the producer.
    """

    __slots__ = ("error_code", "producer_epoch", "producer_id", "throttle_time_ms")
    API_KEY: ClassVar[int] = 26
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[EndTxnResponse, int]:
        compact = version >= 3
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        producer_id = -1
        producer_epoch = -1
        if version >= 5:
            producer_id, producer_epoch = _INT64_INT16.unpack_from(data, at)
            at += 10
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code, producer_id, producer_epoch), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        if version >= 5:
            out += _INT64_INT16.pack(self.producer_id, self.producer_epoch)
        if compact:
            out.append(0)
