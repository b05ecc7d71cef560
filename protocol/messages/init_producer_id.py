"""InitProducerId, API key 22: versions 0 to 6, flexible from 2.

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
    refuse_value,
    skip_tags,
    write_nullable_string,
)

_BOOL_2_TIMES = struct.Struct(">??")
_INT32 = struct.Struct(">i")
_INT32_INT16_INT64_INT16 = struct.Struct(">ihqh")
_INT64_INT16 = struct.Struct(">qh")


class InitProducerIdRequest(Message):
    """The request.

    transactional_id: The transactional id, or null if the producer is not transactional.
    transaction_timeout_ms: The time in ms to wait before aborting idle transactions sent by
        this producer. This is only relevant if a TransactionalId has been defined.
    producer_id (from version 3): The producer id. This is used to disambiguate requests if a
        transactional id is reused following its expiration.
    producer_epoch (from version 3): The producer's current epoch. This will be checked against
        the producer epoch on the broker, and the request will return an error if they do not
        match.
    enable2_pc (version 6): True if the client wants to enable two-phase commit (2PC) protocol
        for transactions.
    keep_prepared_txn (version 6): True if the client wants to keep the currently ongoing
        transaction instead of aborting it.
    """

    __slots__ = (
        "enable2_pc",
        "keep_prepared_txn",
        "producer_epoch",
        "producer_id",
        "transaction_timeout_ms",
        "transactional_id",
    )
    API_KEY: ClassVar[int] = 22
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        transactional_id: str | None = "",
        transaction_timeout_ms: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        enable2_pc: bool = False,
        keep_prepared_txn: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.enable2_pc = enable2_pc
        self.keep_prepared_txn = keep_prepared_txn

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[InitProducerIdRequest, int]:
        compact = version >= 2
        transactional_id, at = read_nullable_string(data, at, compact)
        (transaction_timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        producer_id = -1
        producer_epoch = -1
        if version >= 3:
            producer_id, producer_epoch = _INT64_INT16.unpack_from(data, at)
            at += 10
        enable2_pc = False
        keep_prepared_txn = False
        if version >= 6:
            enable2_pc, keep_prepared_txn = _BOOL_2_TIMES.unpack_from(data, at)
            at += 2
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            transactional_id,
            transaction_timeout_ms,
            producer_id,
            producer_epoch,
            enable2_pc,
            keep_prepared_txn,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        write_nullable_string(out, self.transactional_id, compact)
        out += _INT32.pack(self.transaction_timeout_ms)
        if version >= 3:
            out += _INT64_INT16.pack(self.producer_id, self.producer_epoch)
        elif self.producer_id != -1:
            refuse_value("producer_id", version)
        elif self.producer_epoch != -1:
            refuse_value("producer_epoch", version)
        if version >= 6:
            out += _BOOL_2_TIMES.pack(self.enable2_pc, self.keep_prepared_txn)
        elif self.enable2_pc:
            refuse_value("enable2_pc", version)
        elif self.keep_prepared_txn:
            refuse_value("keep_prepared_txn", version)
        if compact:
            out.append(0)

    def error_response(self, version: int, code: Code) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)


class InitProducerIdResponse(Message):
    """The response.

    throttle_time_ms: The duration in milliseconds for which the request was throttled due to a
        quota violation, or zero if the request did not violate any quota.
    error_code: The error code, or 0 if there was no error.
    producer_id: The current producer id.
    producer_epoch: The current epoch associated with the producer id.
    ongoing_txn_producer_id (version 6): The producer id for ongoing transaction when
        KeepPreparedTxn is used, -1 if there is no transaction ongoing.
    ongoing_txn_producer_epoch (version 6): The epoch associated with the  producer id for
        ongoing transaction when KeepPreparedTxn is used, -1 if there is no transaction ongoing.
    """

    __slots__ = (
        "error_code",
        "ongoing_txn_producer_epoch",
        "ongoing_txn_producer_id",
        "producer_epoch",
        "producer_id",
        "throttle_time_ms",
    )
    API_KEY: ClassVar[int] = 22
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 2

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = 0,
        ongoing_txn_producer_id: int = -1,
        ongoing_txn_producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.ongoing_txn_producer_id = ongoing_txn_producer_id
        self.ongoing_txn_producer_epoch = ongoing_txn_producer_epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[InitProducerIdResponse, int]:
        compact = version >= 2
        throttle_time_ms, error_code, producer_id, producer_epoch = (
            _INT32_INT16_INT64_INT16.unpack_from(data, at)
        )
        at += 16
        ongoing_txn_producer_id = -1
        ongoing_txn_producer_epoch = -1
        if version >= 6:
            ongoing_txn_producer_id, ongoing_txn_producer_epoch = _INT64_INT16.unpack_from(data, at)
            at += 10
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(
            throttle_time_ms,
            error_code,
            producer_id,
            producer_epoch,
            ongoing_txn_producer_id,
            ongoing_txn_producer_epoch,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 2
        out += _INT32_INT16_INT64_INT16.pack(
            self.throttle_time_ms, self.error_code, self.producer_id, self.producer_epoch
        )
        if version >= 6:
            out += _INT64_INT16.pack(self.ongoing_txn_producer_id, self.ongoing_txn_producer_epoch)
        elif self.ongoing_txn_producer_id != -1:
            refuse_value("ongoing_txn_producer_id", version)
        elif self.ongoing_txn_producer_epoch != -1:
            refuse_value("ongoing_txn_producer_epoch", version)
        if compact:
            out.append(0)
