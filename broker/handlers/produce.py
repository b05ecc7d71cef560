"""Produce: batches of clients into logs."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.new_files import MADE_AT_ONCE
from barnabas.broker.outbox import NO_RESPONSE, PARKED, Answer, Encoded, Work
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS, TRANSACTIONS_TOPIC
from barnabas.coordinator.transaction_coordinator import PRODUCE_ADDS
from barnabas.coordinator.transaction_state import Channel, ProducerIdAndEpoch
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Code, DelayedRequest, KafkaError
from barnabas.protocol.hot_requests import BATCHES_IN_PRODUCE, PRODUCE_TOPIC_IDS
from barnabas.protocol.hot_responses import ProducedPartition, encode_produce
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.records import (
    CODEC_MASK,
    FLAGS_AT,
    HEADER_SIZE,
    TRANSACTIONAL,
    attributes_of,
    producer_of,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.disk import is_out_of_resources
from barnabas.storage.log_config import NEVER_MS
from barnabas.storage.validate import (
    AppendRefused,
    Checked,
    Rules,
    TakesLongError,
    check_client_batch,
)

logger = logging.getLogger("barnabas.transactions")

if TYPE_CHECKING:
    from barnabas.broker.cluster import NodeTopics
    from barnabas.broker.core import Broker
    from barnabas.broker.topics import TopicRegistry
    from barnabas.storage.log import AppendInfo, Log
    from barnabas.storage.new_files import NewFiles

ZSTD_SINCE = 7
MOST_OLDER_BYTES = 4 << 20  # that are converted of one request: they hold up the loop
DISK_FULL = "the broker's disk is full: free some space, or let retention do it"

NO_ID = uuid.UUID(int=0)
NO_NAME = ""  # of a topic whose id is not known

Unreadable = Mapping[tuple[str, int], Code]
ALL_READABLE: Unreadable = {}

Answers = list[tuple[str | uuid.UUID, list[ProducedPartition]]]


class _Pending(NamedTuple):
    """A batch whose check takes long, or whose log has no files yet, and where its answer goes.

    records: a copy, since the frame is gone by then. files: those of its log, which are made first.
    """

    row: list[ProducedPartition]
    at: int
    name: str
    partition: int
    records: bytearray
    rules: Rules
    log: Log
    files: NewFiles | None = None


class _Produce:
    """One request while it is under way: what is answered so far, and whose logs it has come to.

    producer: id and epoch in a transactional request's first batch. topics: as the broker has them
    that it came to. made_files: how many logs make their files for it in the loop.
    """

    __slots__ = (
        "answers", "appended", "context", "failed", "made_files", "pending", "producer", "request",
        "topics", "unflushed", "unreadable",
    )  # fmt: skip

    def __init__(
        self,
        topics: TopicRegistry | NodeTopics,
        request: ProduceRequest,
        context: RequestContext,
        unreadable: Unreadable,
    ) -> None:
        self.topics, self.request, self.context = topics, request, context
        self.unreadable = unreadable
        self.answers: Answers = []
        self.appended: list[Log] = []
        self.unflushed: list[Log] = []
        self.pending: list[_Pending] = []
        self.failed = False
        self.made_files = 0
        self.producer: tuple[int, int] | None = None


def on_produce(broker: Broker, request: ProduceRequest, context: RequestContext) -> Answer:
    """Append each partition's batch; one partition's error does not spoil its neighbours.

    acks 0: no answer, and an error closes the connection, since the client would not learn of it
    otherwise; acks 1 and -1: answered when the operating system has the data (one replica); with
    acks=-1 when the disk has, once `flush.messages` of the topic are not yet there, and always in a
    session of two-phase commit. An error's `log_start_offset` is known where the log refused, -1
    where the batch did not reach it. Errors: INVALID_REQUIRED_ACKS;
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED for transactional batches in a request without
    transactional id; of several brokers NOT_LEADER_OR_FOLLOWER, and NOT_ENOUGH_REPLICAS (acks=-1,
    `min.insync.replicas`); what `Log.append` and `TransactionCoordinator.verify` (KIP-890) refuse
    with.

    A batch whose check takes long is checked elsewhere while the request is parked. It is appended
    when that is done, as if it had only now come: all that depends on the log, its producers and
    their transactions is looked at in the call that appends (KAFKA-14884).

    Before version 3 come older messages, of which batches are made (`message_sets.py`).
    From version 13 on topics go by their ids (KIP-516): UNKNOWN_TOPIC_ID for those that are not.
    From version 12 on a batch adds its partition to the transaction by itself, once the last
    transaction of the id is complete: the record of that is appended before the batches.

    Raises: DelayedRequest for what comes over a connection that its transactional producer has
    given up: a batch of its last transaction, which would join the next one.
    """
    unreadable, refused = _prepare(broker, request, context.api_version)
    cluster = broker.cluster
    topics = (
        broker.topics
        if cluster.is_one
        else cluster.topics_of(context.node_id, acks_all=request.acks == -1)
    )
    produce = _Produce(topics, request, context, unreadable)
    name = request.transactional_id
    if name is not None and refused is None:
        _check_connection(broker, produce)
        if context.api_version >= PRODUCE_ADDS:
            if broker.transaction_ends.is_decided(name):
                return _hold_back(broker, request, context, name)
            _add_partitions(broker, produce, name)
    for topic in request.topic_data:
        row: list[ProducedPartition] = []
        for partition in topic.partition_data:
            if refused is None:
                answer = _append(
                    broker, produce, row, topic.name, partition.index, partition.records
                )
            else:
                answer = ProducedPartition(partition.index, refused)
            produce.failed = produce.failed or answer.error_code != 0
            row.append(answer)
        produce.answers.append((topic.topic_id or topic.name, row))
    broker.progress.on_appended(
        produce.appended, context.now_ms
    )  # when all is there: a fetch that waits for several of them gets it with one answer
    if produce.pending:
        broker.park(context)
        for topic in request.topic_data:
            topic.partition_data = []  # else the whole frame is kept beside the copies
        _go_on_elsewhere(broker, produce)
        return PARKED
    if produce.failed:
        _count_errors(broker, produce)
    if request.acks == 0:
        _hang_up_if_failed(broker, produce)
        return NO_RESPONSE
    if produce.unflushed and request.acks == -1:
        broker.park(context)
        _answer_when_flushed(broker, produce, context.now_ms)
        return PARKED
    if produce.failed or broker.quotas is not None:
        return _encoded(broker, produce)
    return Encoded((encode_produce(context.correlation_id, context.api_version, produce.answers),))


def _upgrade(request: ProduceRequest) -> Unreadable:
    """Make batches of the older messages that come before version 3.

    Gives: what could not be read, with its code; REQUEST_TIMED_OUT, at which clients send again,
           for what is beyond `MOST_OLDER_BYTES` of one request.
    """
    from barnabas.protocol.message_sets import is_message_set, upgraded

    unreadable = {}
    left = MOST_OLDER_BYTES
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None and is_message_set(partition.records):
                try:
                    if left <= 0:
                        raise KafkaError(Code.REQUEST_TIMED_OUT, "older messages hold up others")
                    partition.records, converted_bytes = upgraded(partition.records)
                    left -= converted_bytes
                except KafkaError as error:
                    unreadable[topic.name, partition.index] = error.code
                    partition.records = None
    return unreadable


def _name_topics(broker: Broker, request: ProduceRequest) -> None:
    """Give the topics their names; NO_NAME where an id is not known."""
    for topic in request.topic_data:
        topic.topic_id = topic.topic_id or NO_ID
        known = broker.metadata.topic_by_id(topic.topic_id)
        topic.name = NO_NAME if known is None else known.name


def _hold_back(
    broker: Broker, request: ProduceRequest, context: RequestContext, name: str
) -> Answer:
    """Park a request of version 2 until the last transaction of its producer is complete."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None:  # a view of a buffer that the next frame takes
                partition.records = bytearray(partition.records)
    broker.park(context)

    def go_on(now_ms: int) -> None:
        if context.connection_id not in broker.connections:
            return
        try:
            answer = on_produce(broker, request, context._replace(now_ms=now_ms))
        except DelayedRequest as error:
            broker.close(context.connection_id, error)
            return
        if isinstance(answer, Encoded):
            broker.reply(context.ticket, answer)
        elif answer is NO_RESPONSE:
            broker.reply(context.ticket, Encoded(()))

    broker.transaction_ends.hold_back(name, go_on, context.now_ms)
    return PARKED


def _add_partitions(broker: Broker, produce: _Produce, name: str) -> None:
    """Add what the request's batches begin to write to, with one record, before any is appended.

    Those of its first batch's producer alone: no other can have the transactional id.
    """
    pairs: list[TopicPartition] = []
    for topic in produce.request.topic_data:
        if topic.name in INTERNAL_TOPICS:
            continue
        for partition in topic.partition_data:
            records = partition.records
            if (
                records is None
                or len(records) < HEADER_SIZE
                or not attributes_of(records) & TRANSACTIONAL
            ):
                continue
            log = produce.topics.partition(topic.name, partition.index)
            producer = producer_of(records)[:2]
            if log is None or log.producer_state.has_ongoing_transaction(*producer):
                continue
            if producer == produce.producer:
                pairs.append(TopicPartition(topic.name, partition.index))
    if pairs:
        assert produce.producer is not None
        if not broker.cluster.may_coordinate(TRANSACTIONS_TOPIC, name):
            _refuse_partitions(produce, pairs)
            return
        now_ms = produce.context.now_ms
        added = broker.transactions.on_writing(
            name, ProducerIdAndEpoch(*produce.producer), pairs, now_ms
        )
        broker.runtime.run_transactions(added, now_ms)


def _refuse_partitions(produce: _Produce, pairs: list[TopicPartition]) -> None:
    """Refuse the batches of these partitions, since the record of their transaction cannot be
    written: with a code at which every client sends again, as Apache Kafka does.
    """
    refused = set(pairs)
    produce.unreadable = {
        **produce.unreadable,
        **dict.fromkeys(pairs, Code.NOT_ENOUGH_REPLICAS),
    }
    for topic in produce.request.topic_data:
        for partition in topic.partition_data:
            if (topic.name, partition.index) in refused:
                partition.records = None


def _check_connection(broker: Broker, produce: _Produce) -> None:
    """Raises: DelayedRequest, see `TransactionCoordinator.check_connection`."""
    name = produce.request.transactional_id
    if name is None:
        return
    if produce.producer is None:
        produce.producer = _first_producer(produce.request)
    if produce.producer is not None:
        broker.transactions.check_connection(
            name,
            produce.producer,
            produce.context.connection_id,
            (Channel.DATA,),
            node_id=produce.context.node_id,
        )


def _first_producer(request: ProduceRequest) -> tuple[int, int] | None:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is not None and len(records) >= HEADER_SIZE:
                return producer_of(records)[:2]
    return None


def _trace(log: Log, transactional_id: str, info: AppendInfo, records: Any) -> None:
    """Say at debug level what a transaction has written."""
    producer_id, producer_epoch, _ = producer_of(records)
    logger.debug(
        "%r: offsets %d to %d of %s",
        log, info.first_offset, info.last_offset, transactional_id,
        extra={
            "transactional_id": transactional_id, "producer_id": producer_id,
            "producer_epoch": producer_epoch, "offset": info.first_offset,
        },
    )  # fmt: skip


def _go_on_elsewhere(broker: Broker, produce: _Produce) -> None:
    """Have the files made that logs lack, a few at a time; then have the batches checked."""
    without_files = [
        batch
        for batch in produce.pending
        if batch.files is not None and batch.files is batch.log.new_files
    ]
    if without_files:
        _make_files(broker, produce, without_files[:MADE_AT_ONCE])
    else:
        _check_elsewhere(broker, produce)


def _check_elsewhere(broker: Broker, produce: _Produce) -> None:
    pending, produce.pending = produce.pending, []
    now_ms = produce.context.now_ms + broker.wall.ahead_ms

    def run() -> list[Checked | AppendRefused]:
        return [_checked(batch, now_ms) for batch in pending]

    def done(results: list[Checked | AppendRefused], now_ms: int) -> None:
        produce.context = produce.context._replace(now_ms=now_ms)
        produce.appended = []
        if produce.producer is not None:
            try:
                _check_connection(broker, produce)
            except DelayedRequest as error:
                if produce.context.connection_id in broker.connections:
                    broker.close(produce.context.connection_id, error)
                return
        for batch, result in zip(pending, results, strict=True):
            answer = _append(
                broker,
                produce,
                batch.row,
                batch.name,
                batch.partition,
                batch.records,
                batch,
                result,
            )
            produce.failed = produce.failed or answer.error_code != 0
            batch.row[batch.at] = answer
        broker.progress.on_appended(produce.appended, now_ms)
        if produce.failed and not produce.pending:
            _count_errors(broker, produce)
        if produce.pending:  # the topic's settings are others than when the check began
            _check_elsewhere(broker, produce)
        elif produce.request.acks == 0:
            _hang_up_if_failed(broker, produce)
            broker.reply(produce.context.ticket, Encoded(()))
        elif produce.unflushed and produce.request.acks == -1:
            _answer_when_flushed(broker, produce, now_ms)
        else:
            broker.reply(produce.context.ticket, _encoded(broker, produce))

    held_bytes = sum(len(batch.records) for batch in pending)
    broker.outbox.work.append(Work(produce.context.connection_id, run, done, held_bytes))


def _make_files(broker: Broker, produce: _Produce, batches: list[_Pending]) -> None:
    files = [(batch.log, batch.files) for batch in batches if batch.files is not None]

    def run() -> None:
        for _, each in files:
            each.make()

    def done(_: None, now_ms: int) -> None:
        for log, each in files:
            broker.logs.take_files(log, each, now_ms)
        _go_on_elsewhere(broker, produce)

    held_bytes = sum(len(batch.records) for batch in produce.pending)
    broker.outbox.work.append(Work(produce.context.connection_id, run, done, held_bytes))


def _checked(batch: _Pending, now_ms: int) -> Checked | AppendRefused:
    try:
        return check_client_batch(memoryview(batch.records), batch.rules, now_ms)
    except AppendRefused as error:
        return error


def _count_errors(broker: Broker, produce: _Produce) -> None:
    if broker.errors is not None:
        for _, partitions in produce.answers:
            broker.errors.count_rows(produce.context.api_key, partitions)


def _hang_up_if_failed(broker: Broker, produce: _Produce) -> None:
    context = produce.context
    if produce.failed and context.connection_id in broker.connections:
        broker.close(
            context.connection_id,
            f"a Produce with acks=0 of client {context.client_id!r} failed: "
            f"{_first_error(produce.answers)}",
        )


def _answer_when_flushed(broker: Broker, produce: _Produce, now_ms: int) -> None:
    broker.flushes.wait(
        produce.unflushed + broker.runtime.two_phase_logs(produce.request.transactional_id, now_ms),
        lambda _: broker.reply(produce.context.ticket, _encoded(broker, produce)),
        now_ms,
    )


def _encoded(broker: Broker, produce: _Produce) -> Encoded:
    context, answers = produce.context, produce.answers
    throttle_ms = 0 if broker.quotas is None else broker.quotas.on_produced(context)
    if not produce.failed or broker.cluster.is_one:
        return Encoded(
            (encode_produce(context.correlation_id, context.api_version, answers, throttle_ms),)
        )
    leaders = [
        partition.current_leader
        for _, partitions in answers
        for partition in partitions
        if partition.current_leader is not None
    ]
    endpoints = broker.endpoints_of(leaders, context)
    frame = encode_produce(
        context.correlation_id, context.api_version, answers, throttle_ms, endpoints
    )
    return Encoded((frame,))


def _prepare(
    broker: Broker, request: ProduceRequest, version: int
) -> tuple[Unreadable, Code | None]:
    """Bring the request into the form that all versions have here.

    Gives: what of it cannot be read; why all of it is refused, if it is.
    """
    unreadable = ALL_READABLE
    if version < BATCHES_IN_PRODUCE:
        unreadable = _upgrade(request)
    elif version >= PRODUCE_TOPIC_IDS:
        _name_topics(broker, request)
    if request.acks not in (-1, 0, 1):
        return unreadable, Code.INVALID_REQUIRED_ACKS
    if request.transactional_id is None:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                records = partition.records
                if (
                    records is not None
                    and len(records) >= HEADER_SIZE
                    and records[FLAGS_AT] & TRANSACTIONAL
                ):
                    return unreadable, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return unreadable, None


def _append(
    broker: Broker,
    produce: _Produce,
    row: list[ProducedPartition],
    name: str,
    index: int,
    records: Any,
    pending: _Pending | None = None,
    result: Checked | AppendRefused | None = None,
) -> ProducedPartition:
    """Append one batch; its answer, for which a stand-in is given where the batch is pending.
    result: of a check that was done elsewhere.

    In one piece, since most requests are for one batch, and each call is a hundredth of its cost.
    """
    context = produce.context
    if name in INTERNAL_TOPICS:
        return ProducedPartition(index, Code.INVALID_TOPIC_EXCEPTION)
    log = produce.topics.partition(name, index)
    if log is None:
        if name == NO_NAME and context.api_version >= PRODUCE_TOPIC_IDS:
            return ProducedPartition(index, Code.UNKNOWN_TOPIC_ID)
        code = produce.topics.missing_code(name, index)
        if records is not None and not broker.cluster.is_one:
            anothers = broker.topics.partition(name, index)
            if anothers is not None:  # what comes next to its leader must not overtake this one
                anothers.add_refused(records)
        return ProducedPartition(index, code, current_leader=broker.hint(name, index, code))
    if records is None:
        return ProducedPartition(index, produce.unreadable.get((name, index), Code.INVALID_RECORD))
    if type(records) is bytes:
        records = bytearray(records)
    transactional_id = produce.request.transactional_id
    if (transactional_id is not None or context.api_version < ZSTD_SINCE) and len(
        records
    ) >= HEADER_SIZE:
        attributes = attributes_of(records)
        if attributes & TRANSACTIONAL:
            assert transactional_id is not None, "a transactional batch came further than _prepare"
            code = _verify(broker, transactional_id, log, records, context.api_version)
            if code:
                return ProducedPartition(index, code)
        if attributes & CODEC_MASK == Codec.ZSTD and context.api_version < ZSTD_SINCE:
            return ProducedPartition(index, Code.UNSUPPORTED_COMPRESSION_TYPE)
    try:
        if pending is None and not broker.disk_space.reserve(
            len(records)
        ):  # what was checked elsewhere was counted when it came
            log.add_refused(records)
            return ProducedPartition(index, Code.KAFKA_STORAGE_ERROR, error_message=DISK_FULL)
        if log.producer_state.refused:
            log.check_overtaking(records)
        files = None
        if not log.has_files and pending is None:
            files = _files_to_wait_for(broker, produce, log)
            if files is not None:
                raise TakesLongError
        if pending is None or pending.rules != log.rules:
            info = log.append(records, now_ms=context.now_ms, at_once=True)
        elif isinstance(result, AppendRefused):
            raise result
        else:
            info = log.append(records, now_ms=context.now_ms, checked=result)
    except TakesLongError:
        at = len(row) if pending is None else pending.at
        produce.pending.append(
            _Pending(row, at, name, index, bytearray(records), log.rules, log, files)
        )
        return ProducedPartition(index, 0)
    except OSError as error:
        if not is_out_of_resources(error):
            raise
        log.add_refused(records)
        return ProducedPartition(
            index, Code.KAFKA_STORAGE_ERROR, error_message=f"{DISK_FULL} ({error.strerror})"
        )
    except KafkaError as error:
        start = log.log_start_offset if getattr(error, "knows_log_start", True) else -1
        record_errors = [
            (batch_index, error.message) for batch_index in getattr(error, "record_errors", ())
        ]
        return ProducedPartition(index, error.code, -1, -1, start, record_errors, error.message)
    produce.appended.append(log)
    if transactional_id is not None and logger.isEnabledFor(logging.DEBUG):
        _trace(log, transactional_id, info, records)
    if log.log_end_offset - log.durability.durable_offset >= log.flush_messages or (
        transactional_id is not None
        and transactional_id in broker.transactions.two_phase
        and broker.transactions.settings.is_durable
    ):
        produce.unflushed.append(log)
    elif log.flush_ms < NEVER_MS:
        broker.progress.flush_later(log, context.now_ms + log.flush_ms)
    return ProducedPartition(
        index, 0, info.first_offset, info.log_append_time_ms, log.log_start_offset
    )


def _files_to_wait_for(broker: Broker, produce: _Produce, log: Log) -> NewFiles | None:
    """What another thread makes before the log's first batch; None: the log makes it itself."""
    files = broker.files_ahead.for_write(
        log,
        broker.topics.partitions_of(log.topic),
        produce.made_files,
        produce.context.now_ms,
    )
    produce.made_files += files is None and not log.has_files
    return files


def _verify(
    broker: Broker, transactional_id: str, log: Log, records: Any, api_version: int
) -> Code:
    """KIP-890: the first batch of a transaction on a partition is checked against the coordinator,
    which must have been told of it.

    The check and the append happen in one call of the single-threaded core: nothing can end the
    transaction in between.
    """
    producer_id, producer_epoch, base_sequence = producer_of(records)
    producers = log.producer_state
    if producers.has_ongoing_transaction(producer_id, producer_epoch):
        kept_from = broker.transactions.kept_from
        if kept_from and (producer_id, producer_epoch) in kept_from:
            return Code.INVALID_PRODUCER_EPOCH
        return Code.NONE
    if producers.producer_epoch_of(producer_id) > producer_epoch:
        return Code.INVALID_PRODUCER_EPOCH
    code = broker.transactions.verify(
        transactional_id, producer_id, producer_epoch, log.topic, log.partition, api_version
    )
    is_unknown = not producers.has_batch_of(producer_id)
    if code is Code.NONE and api_version >= PRODUCE_ADDS and is_unknown and base_sequence:
        return Code.OUT_OF_ORDER_SEQUENCE_NUMBER  # an epoch begins with 0 (KAFKA-18202)
    return code


def _first_error(answers: Answers) -> str:
    for name, partitions in answers:
        for partition in partitions:
            if partition.error_code:
                return f"{Code(partition.error_code).name} on {name}-{partition.index}"
    return "none"
