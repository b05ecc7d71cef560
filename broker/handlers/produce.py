"""Produce: batches of clients into logs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from broker.outbox import NO_RESPONSE, PARKED, Context, Encoded
from broker.shard_host import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.errors import Code, KafkaError
from protocol.hot_responses import ProducedPartition, encode_produce
from protocol.records import HEADER_SIZE, TRANSACTIONAL
from storage.disk import is_want_of_room
from storage.log_config import NEVER_MS

if TYPE_CHECKING:
    from broker.core import Broker
    from storage.log import Log

INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
ZSTD_SINCE = 7
DISK_FULL = "the broker's disk is full: free some space, or let retention do it"
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qh")

Answers = list[tuple[str, list[ProducedPartition]]]


def on_produce(broker: Broker, request: Any, context: Context) -> Any:
    """Append each partition's batch; one partition's error does not spoil its neighbours.

    acks 0: no answer, and an error closes the connection, since the client would not learn of it otherwise; acks 1 and -1: answered when the
    operating system has the data (one replica); with acks=-1 when the disk has, once `flush.messages` of the topic are not yet there.
    An error's `log_start_offset` is known where the log refused, -1 where the batch did not reach it.
    Errors: INVALID_REQUIRED_ACKS; TRANSACTIONAL_ID_AUTHORIZATION_FAILED for transactional batches in a request without transactional id;
    what `Log.append` and `TxnShard.verify` (KIP-890) refuse with.
    """
    refused = _refusal_of_all(request)
    answers: Answers = []
    appended: list[Log] = []
    unflushed: list[Log] = []
    failed = False
    for topic in request.topic_data or ():
        partitions = []
        for partition in topic.partition_data or ():
            if refused is None:
                answer = _append(broker, request, topic.name, partition, context, appended, unflushed)
            else:
                answer = ProducedPartition(partition.index, refused)
            failed = failed or answer.error_code != 0
            partitions.append(answer)
        answers.append((topic.name, partitions))
    broker.on_appended(appended, context.now_ms)  # when all is there: a fetch that waits for several of them gets it with one answer
    if request.acks == 0:
        if failed:
            broker.close(context.connection_id, f"a Produce with acks=0 of client {context.client_id!r} failed: {_first_error(answers)}")
        return NO_RESPONSE
    if unflushed and request.acks == -1:
        broker.park(context)
        broker.flushes.wait(
            unflushed,
            lambda now_ms: broker.reply(context.ticket, Encoded((encode_produce(context.correlation_id, context.api_version, answers),))),
            context.now_ms,
        )
        return PARKED
    return Encoded((encode_produce(context.correlation_id, context.api_version, answers),))


def _refusal_of_all(request: Any) -> Code | None:
    if request.acks not in (-1, 0, 1):
        return Code.INVALID_REQUIRED_ACKS
    if request.transactional_id is None:
        for topic in request.topic_data or ():
            for partition in topic.partition_data or ():
                records = partition.records
                if records is not None and len(records) >= HEADER_SIZE and _ATTRIBUTES.unpack_from(records, 21)[0] & TRANSACTIONAL:
                    return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _append(
    broker: Broker, request: Any, name: str, partition: Any, context: Context, appended: list[Log], unflushed: list[Log]
) -> ProducedPartition:
    index, records = partition.index, partition.records
    if name in INTERNAL_TOPICS:
        return ProducedPartition(index, Code.INVALID_TOPIC_EXCEPTION)
    log = broker.partition(name, index)
    if log is None:
        return ProducedPartition(index, broker.missing_code(name, index))
    if records is None:
        return ProducedPartition(index, Code.INVALID_RECORD)
    if type(records) is bytes:
        records = bytearray(records)
    if len(records) >= HEADER_SIZE:
        attributes = _ATTRIBUTES.unpack_from(records, 21)[0]
        if attributes & TRANSACTIONAL:
            code = _verify(broker, request.transactional_id, log, records)
            if code:
                return ProducedPartition(index, code)
        if attributes & 7 == 4 and context.api_version < ZSTD_SINCE:
            return ProducedPartition(index, Code.UNSUPPORTED_COMPRESSION_TYPE)
    try:
        if not broker.room.take(len(records)):
            broker.room.note_refused(name, index, records)
            return ProducedPartition(index, Code.KAFKA_STORAGE_ERROR, error_message=DISK_FULL)
        if broker.room.is_overtaking(name, index, records):
            raise KafkaError(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier batch of this producer found no room and has not come again yet"
            )
        info = log.append(records, now_ms=context.now_ms)
    except OSError as error:
        if not is_want_of_room(error):
            raise
        broker.room.note_refused(name, index, records)
        return ProducedPartition(index, Code.KAFKA_STORAGE_ERROR, error_message=f"{DISK_FULL} ({error.strerror})")
    except KafkaError as error:
        start = log.log_start_offset if getattr(error, "knows_log_start", True) else -1
        record_errors = [(batch_index, error.message) for batch_index in getattr(error, "record_errors", ())]
        return ProducedPartition(index, error.code, -1, -1, start, record_errors, error.message)
    appended.append(log)
    config = log.config
    if log.log_end_offset - log.durable_offset >= config.flush_messages:
        unflushed.append(log)
    elif config.flush_ms < NEVER_MS:
        broker.flush_later(log, context.now_ms + config.flush_ms)
    return ProducedPartition(index, 0, info.first_offset, info.log_append_time_ms, log.log_start_offset)


def _verify(broker: Broker, transactional_id: str, log: Log, records: Any) -> Code:
    """KIP-890: the first batch of a transaction on a partition is checked against the coordinator, which must have been told of it.

    The check and the append happen in one call of the single-threaded core: nothing can end the transaction in between.
    """
    producer_id, producer_epoch = _PRODUCER.unpack_from(records, 43)
    if log.has_ongoing_transaction(producer_id, producer_epoch):
        return Code.NONE
    return broker.txns.verify(transactional_id, producer_id, producer_epoch, log.topic, log.partition)


def _first_error(answers: Answers) -> str:
    for name, partitions in answers:
        for partition in partitions:
            if partition.error_code:
                return f"{Code(partition.error_code).name} on {name}-{partition.index}"
    return "none"
