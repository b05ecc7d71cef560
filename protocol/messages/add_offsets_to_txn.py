"""AddOffsetsToTxn, API key 25: versions 0 to 4, flexible from 3.

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


class AddOffsetsToTxnRequest(Message):
    """The request.

    transactional_id: The transactional id corresponding to the transaction.
    producer_id: Current producer id in use by the transactional id.
    producer_epoch: Current epoch associated with the producer id.
    group_id: The unique group identifier.
    """

    __slots__ = ("group_id", "producer_epoch", "producer_id", "transactional_id")
    API_KEY: ClassVar[int] = 25
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(
        self,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        group_id: str = "",
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.group_id = group_id

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddOffsetsToTxnRequest, int]:
        compact = version >= 3
        transactional_id, at = read_string(data, at, compact)
        producer_id, producer_epoch = _INT64_INT16.unpack_from(data, at)
        at += 10
        group_id, at = read_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(transactional_id, producer_id, producer_epoch, group_id), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        write_string(out, self.transactional_id, compact)
        out += _INT64_INT16.pack(self.producer_id, self.producer_epoch)
        write_string(out, self.group_id, compact)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=code)


class AddOffsetsToTxnResponse(Message):
    """The response.

    throttle_time_ms: Duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The response error code, or 0 if there was no error.
    """

    __slots__ = ("error_code", "throttle_time_ms")
    API_KEY: ClassVar[int] = 25
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    def __init__(self, throttle_time_ms: int = 0, error_code: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AddOffsetsToTxnResponse, int]:
        compact = version >= 3
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(throttle_time_ms, error_code), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 3
        out += _INT32_INT16.pack(self.throttle_time_ms, self.error_code)
        if compact:
            out.append(0)
