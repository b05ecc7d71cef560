"""Produce: appends the batches of clients to logs."""

from __future__ import annotations

import errno
import logging
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from barnabas.broker import coordinators  # noqa: F401 - loaded with the family
from barnabas.broker.admission import guards
from barnabas.broker.admission.guard_steps import Ask, by_hand, rule
from barnabas.broker.admission.rights import TOPIC, TRANSACTIONAL_ID, WRITE
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import Cluster, NodeTopics
from barnabas.broker.logs.disk_space import ADVICE, DiskSpace
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.new_files import MADE_AT_ONCE, FilesAhead
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import NO_RESPONSE, PARKED, Answer, DeadlineKept, Encoded
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.transactions.transaction_end import Endings, TransactionEnds
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS, TRANSACTIONS_TOPIC
from barnabas.coordinator.transactions.partition_additions import PRODUCE_ADDS
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction_state import Channel
from barnabas.protocol.api import Api
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Code, DelayedRequest, KafkaError, detached
from barnabas.protocol.hot_requests import BATCHES_IN_PRODUCE, PRODUCE_TOPIC_IDS, produce_reader
from barnabas.protocol.hot_responses import ProducedPartition, encode_produce
from barnabas.protocol.message_sets import is_message_set, upgraded
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import (
    CODEC_MASK,
    FLAGS_AT,
    HEADER_SIZE,
    TRANSACTIONAL,
    producer_of,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.batch.validate import (
    FOR_ONE_BATCH,
    AppendRefused,
    CheckBudget,
    Checked,
    Rules,
    TakesLongError,
    check_client_batch,
)
from barnabas.storage.disk import NotWrittenError, is_out_of_resources
from barnabas.storage.log.log import Log
from barnabas.storage.log.new_files import NewFiles
from barnabas.storage.log_config import NEVER_MS
from barnabas.storage.producers import producer_rows  # noqa: F401 - logs use them
from barnabas.storage.producers.producer_state import BatchMeta
from barnabas.storage.producers.refused_batches import add_refused, check_overtaking
from barnabas.storage.producers.repetition import (
    Comparison,
    ComparisonTakesLong,
    have_same_content,
    stored_batch,
)

logger = logging.getLogger("barnabas.transactions")


_NONE = Code.NONE  # a module's name is found sooner than the member of an Enum
ZSTD_SINCE = 7
# appending this many batches of one record, or this many bytes, takes 10 ms
ROWS_AT_ONCE, BYTES_AT_ONCE = 500, 8 << 20
# the number of logs that may begin their leader epoch in one call, since after a start each log
# writes a file before its first batch
EPOCHS_AT_ONCE = 20
# limits for the deferred batches that are checked and appended together: their number and their
# bytes
ROWS_OF_A_TURN, BYTES_OF_A_TURN = 250, 1 << 20
MOST_RECORD_ERRORS = 10_000  # maximum number in one response
# maximum bytes of older messages that are converted for one request, since the conversion blocks
# the loop
MOST_OLDER_BYTES = 4 << 20

NO_ID = uuid.UUID(int=0)
NO_NAME = ""  # used in place of a name if the topic id is unknown

Unreadable = Mapping[tuple[str, int], Code]
ALL_READABLE: Unreadable = {}

Answers = list[tuple[str | uuid.UUID, list[ProducedPartition]]]


class _Pending(NamedTuple):
    """A deferred batch, and where its result belongs in the response.

    records: a copy, since the frame's memory is reused before the append; None if the request has
    no batch. is_long: whether the check of this batch alone takes long. is_counted: whether its
    disk space is already reserved. rules: the log's rules for the check, set when the batch is
    about to be checked. topic_id: the topic id, if the request has ids, since another topic may
    have the name before the append. written: the batch in the log that this one may repeat, if the
    worker has to compare the two.
    """

    row: list[ProducedPartition]
    at: int
    name: str
    partition: int
    records: bytearray | memoryview | None
    is_long: bool
    is_counted: bool
    rules: Rules | None = None
    topic_id: uuid.UUID | None = None
    written: BatchMeta | None = None


# the empty queue of requests that defer no batch, which are most requests; it is never changed
NOTHING_PENDING: deque[_Pending] = deque()
# the same for logs that a request waits for
NO_LOGS: list[Log] = []


class _Produce:
    """A request in progress: its results so far, and the logs that it appends to.

    producer: the id and epoch in the first batch of a transactional request. topics: the view of
    topics that the receiving broker has. pending: the deferred batches, in order. held_bytes: their
    total size. record_errors_left: how many more record errors the response may contain.
    made_files: the number of logs whose files the loop made for this request. verified: the
    producer whose transaction was looked up in this event. partitions: what was found. has_flushes:
    whether a log is flushed because of this request.
    """

    __slots__ = (
        "answers",
        "appended",
        "budget",
        "context",
        "failed",
        "has_flushes",
        "held_bytes",
        "made_files",
        "partitions",
        "pending",
        "producer",
        "record_errors_left",
        "request",
        "topics",
        "unflushed",
        "unreadable",
        "verified",
    )  # fmt: skip

    def __init__(
        self,
        cluster: Cluster,
        topics: TopicRegistry,
        request: ProduceRequest,
        context: RequestContext,
        unreadable: Unreadable,
    ) -> None:
        self.topics: TopicRegistry | NodeTopics = topics
        if not cluster.is_one:
            self.topics = cluster.topics_of(context.node_id, acks_all=request.acks == -1)
        self.request, self.context, self.unreadable = request, context, unreadable
        self.budget = FOR_ONE_BATCH
        self.answers: Answers = []
        self.appended: list[Log] = []
        self.unflushed = NO_LOGS
        self.pending = NOTHING_PENDING
        self.held_bytes = 0
        self.record_errors_left = MOST_RECORD_ERRORS
        self.failed = self.has_flushes = False
        self.made_files = 0
        self.producer: tuple[int, int] | None = None
        self.verified: tuple[int, int] | None = None
        self.partitions: Mapping[TopicPartition, None] | Code = _NONE
        # Topics were created, deleted or grew while the request was held back, so its names may now
        # belong to other topics.
        if context.topics_version < topics.version:
            _refuse_later_topics(self, topics)

    def wait_for_disk(self, log: Log) -> None:
        """Let the response wait until the log is flushed."""
        if self.unflushed is NO_LOGS:
            self.unflushed = []
        self.unflushed.append(log)

    def begins_epoch(self, name: str, partition: int) -> bool:
        """Whether the log's file of leader epochs has to be written before its next batch."""
        log = self.topics.partition(name, partition)
        return log is not None and log.files.are_made and log.files.lacks_epoch

    def put_off(self, batch: _Pending) -> ProducedPartition:
        """Defer the check and append of a batch to a later turn. Gives: a placeholder for its
        result.
        """
        if self.pending is NOTHING_PENDING:
            self.pending = deque()
        self.pending.append(batch)
        self.held_bytes += len(batch.records or b"")
        return ProducedPartition(batch.partition, 0)

    def refuse(self, topics: Sequence[TopicProduceData], code: Code) -> None:
        """Add an error to the response for all partitions of the given topics."""
        self.failed = True
        for topic in topics:
            row = [ProducedPartition(data.index, code) for data in topic.partition_data]
            self.answers.append((topic.topic_id or topic.name, row))


class TransactionalBatches:
    """The checks of batches against the transactions of their producers."""

    __slots__ = ("_cluster", "_coordinator", "_disk_space", "_ends", "_without_space")

    def __init__(
        self,
        cluster: Cluster,
        coordinator: TransactionCoordinator,
        endings: Endings,
        ends: TransactionEnds,
        disk_space: DiskSpace,
    ) -> None:
        self._cluster, self._coordinator, self._ends = cluster, coordinator, ends
        self._disk_space = disk_space
        self._without_space = endings.without_space

    def check_connection(self, produce: _Produce) -> None:
        """Refuse a delayed request, as described in `TransactionCoordinator.check_connection`."""
        name = produce.request.transactional_id
        if name is None:
            return
        if produce.producer is None:
            produce.producer = _first_producer(produce.request)
        if produce.producer is not None:
            self._coordinator.check_connection(
                name,
                produce.producer,
                produce.context.connection_id,
                (Channel.DATA,),
                node_id=produce.context.node_id,
            )

    def add_partitions(self, produce: _Produce, name: str) -> None:
        """Add the partitions that the request's batches begin to write to the transaction.

        This happens before any batch is appended, with one record for all partitions. Only batches
        of the first batch's producer count, since no other producer can have the transactional id.
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
                    or not records[FLAGS_AT] & TRANSACTIONAL
                ):
                    continue
                log = produce.topics.partition(topic.name, partition.index)
                producer = producer_of(records)[:2]
                if log is None or log.producer_state.has_ongoing_transaction(*producer):
                    continue
                if producer == produce.producer:
                    # NamedTuples, made in this way since there may be many
                    pairs.append(tuple.__new__(TopicPartition, (topic.name, partition.index)))
        if pairs:
            assert produce.producer is not None
            if not self._cluster.may_coordinate(TRANSACTIONS_TOPIC, name):
                _refuse_partitions(produce, pairs)
                return
            now_ms = produce.context.now_ms
            added = self._coordinator.additions.on_writing(name, produce.producer, pairs, now_ms)
            try:
                self._ends.run(added, now_ms)
            except NotWrittenError as error:
                self._disk_space.on_not_written(error)
                for pair in pairs:
                    _note_refused(produce, pair)
                _refuse_partitions(produce, pairs, Code.KAFKA_STORAGE_ERROR)

    def check_attributes(self, produce: _Produce, log: Log, records: Any) -> Code:
        """The error code for a batch that is invalid in its transaction, or in the version of the
        request; NONE if the batch may be appended.
        """
        if len(records) < HEADER_SIZE:
            return _NONE  # the log refuses such a batch
        flags = records[FLAGS_AT]
        if flags & TRANSACTIONAL:
            code = self.verify(produce, log, records)
            if code:
                return code
        if produce.context.api_version < ZSTD_SINCE and flags & CODEC_MASK == Codec.ZSTD:
            return Code.UNSUPPORTED_COMPRESSION_TYPE
        return _NONE

    def verify(self, produce: _Produce, log: Log, records: Any) -> Code:
        """Check that the coordinator has the partition in the transaction, for the transaction's
        first batch on the partition (KIP-890).

        The check and the append happen in one call of the single-threaded core, so nothing can end
        the transaction between them.
        """
        transactional_id, api_version = (
            produce.request.transactional_id,
            produce.context.api_version,
        )
        assert transactional_id is not None, "_prepare refuses such a transactional batch"
        producer_id, producer_epoch, base_sequence = producer_of(records)
        producers = log.producer_state
        if producers.has_ongoing_transaction(producer_id, producer_epoch):
            if self._without_space and transactional_id in self._without_space:
                is_known = api_version >= PRODUCE_ADDS
                return Code.CONCURRENT_TRANSACTIONS if is_known else Code.NOT_ENOUGH_REPLICAS
            kept_from = self._coordinator.kept_from
            if kept_from and (producer_id, producer_epoch) in kept_from:
                return Code.INVALID_PRODUCER_EPOCH
            return _NONE
        if producers.producer_epoch_of(producer_id) > producer_epoch:
            return Code.INVALID_PRODUCER_EPOCH
        additions = self._coordinator.additions
        producer = producer_id, producer_epoch
        if produce.verified != producer:
            produce.verified = producer
            produce.partitions = additions.open_partitions(transactional_id, producer)
        code = additions.code_of_batch(produce.partitions, (log.topic, log.partition), api_version)
        if (
            base_sequence
            and not code
            and api_version >= PRODUCE_ADDS
            and not producers.has_batch_of(producer_id)
        ):
            # the sequence numbers of an epoch begin at 0 (KAFKA-18202)
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        return code


class ProduceHandler:
    """Answers Produce: appends the batches of clients to logs."""

    __slots__ = (
        "_addresses",
        "_batches",
        "_cluster",
        "_disk_space",
        "_endings",
        "_files_ahead",
        "_flushes",
        "_progress",
        "_purgatory",
        "_quotas",
        "_requests",
        "_topics",
        "_transaction_ends",
        "_transactions",
    )

    def __init__(
        self,
        cluster: Cluster,
        topics: TopicRegistry,
        requests: Requests,
        quotas: Quotas,
        addresses: Addresses,
        disk_space: DiskSpace,
        flushes: FlushQueue,
        progress: LogProgress,
        transactions: TransactionCoordinator,
        endings: Endings,
        transaction_ends: TransactionEnds,
        files_ahead: FilesAhead,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._requests = requests
        self._quotas = quotas
        self._addresses = addresses
        self._disk_space = disk_space
        self._flushes = flushes
        self._progress, self._purgatory = progress, progress.purgatory
        self._transactions = transactions
        self._batches = TransactionalBatches(
            cluster, transactions, endings, transaction_ends, disk_space
        )
        self._endings = endings
        self._transaction_ends = transaction_ends
        self._files_ahead = files_ahead

    def on_produce(
        self,
        request: ProduceRequest,
        context: RequestContext,
        denied: Sequence[TopicProduceData] = (),
        denied_code: Code = Code.TOPIC_AUTHORIZATION_FAILED,
    ) -> Answer:
        """Append each partition's batch. An error of one partition does not affect the others.

        Takes: denied, topics that were removed from the request because its client may not write to
               them; denied_code, the error code for these topics.

        acks=0: there is no response, and an error closes the connection, since the client would not
        learn of it otherwise. acks=1 and acks=-1: the response is sent when the operating system
        has the data (one replica). With acks=-1 it also waits for the disk in a session of
        two-phase commit, or if the log has as many unflushed messages as the topic's
        `flush.messages`.
        `log_start_offset` of an error is -1 if the batch did not reach the log. Errors:
        INVALID_REQUIRED_ACKS; TRANSACTIONAL_ID_AUTHORIZATION_FAILED for transactional batches in a
        request without transactional id; with several brokers NOT_LEADER_OR_FOLLOWER, and
        NOT_ENOUGH_REPLICAS (acks=-1, `min.insync.replicas`); the errors of `Log.append` and
        `TransactionalBatches.verify` (KIP-890).

        A batch whose check takes long is checked by the worker while the request is parked. It is
        then appended as if it had just arrived: everything that depends on the log, its producers
        and their transactions is checked in the call that appends (KAFKA-14884). All batches of a
        request with more than `ROWS_AT_ONCE`, and those after the first `BYTES_AT_ONCE` or
        `EPOCHS_AT_ONCE`, are handled in the same way, in turns. Other requests are served between
        the turns.

        Requests before version 3 have older messages, which are converted to batches
        (`message_sets.py`). From version 12 on a batch also adds its partition to the transaction,
        once the previous transaction of the id is complete. The coordinator's record comes first.
        From version 13 on topics have ids (KIP-516): UNKNOWN_TOPIC_ID for an unknown id.

        Raises: DelayedRequest for a delayed request on an old connection of its transactional
                producer: its batch belongs to the previous transaction, and would become part of
                the next one.
        """
        if denied and not request.topic_data:
            return self._all_denied(request, context, denied, denied_code)
        unreadable, refused, row_count = self._prepare(request, context.api_version)
        produce = _Produce(self._cluster, self._topics, request, context, unreadable)
        name = request.transactional_id
        if name is not None and refused is None:
            self._batches.check_connection(produce)
            if context.api_version >= PRODUCE_ADDS:
                if self._endings.holds_back(name):
                    return self._hold_back(request, context, name, denied)
                self._batches.add_partitions(produce, name)
        if refused is None:
            self._append_rows(produce, row_count)
        else:
            produce.refuse(request.topic_data, refused)
        if denied:
            produce.refuse(denied, denied_code)
        # called after all appends, so that a fetch that waits for several logs gets all new data in
        # one response
        purgatory, has_work = self._purgatory, False
        if produce.has_flushes or purgatory.waiting_count or purgatory.watchers:
            has_work = self._progress.on_appended(produce.appended, context.now_ms)
        if produce.pending:
            self._requests.park(context)
            for topic in request.topic_data:
                # otherwise the frame would stay in memory beside the copies
                topic.partition_data = []
            self._check_elsewhere(produce)
            return PARKED
        if produce.failed:
            self._count_errors(produce)
        if request.acks == 0:
            self._hang_up_if_failed(produce)
            return NO_RESPONSE
        if produce.unflushed and request.acks == -1:
            self._requests.park(context)
            self._answer_when_flushed(produce, context.now_ms)
            return PARKED
        if produce.failed or self._quotas.clients is not None:
            return self._encoded(produce)
        frame = encode_produce(context.correlation_id, context.api_version, produce.answers)
        if has_work or produce.has_flushes or name is not None:
            return Encoded((frame,))
        return DeadlineKept((frame,))

    def _append_rows(self, produce: _Produce, row_count: int) -> None:
        """Append the first batches, and defer the rest. Takes: row_count, how many there are."""
        size = begun = 0
        if row_count > 1:
            produce.budget = CheckBudget()
        for topic in produce.request.topic_data:
            name = topic.name
            row: list[ProducedPartition] = []
            produce.answers.append((topic.topic_id or name, row))
            for partition in topic.partition_data:
                index, records = partition.index, partition.records
                if row_count > 1:
                    if row_count > ROWS_AT_ONCE or size > BYTES_AT_ONCE or begun >= EPOCHS_AT_ONCE:
                        row.append(produce.put_off(_kept(row, topic, partition, produce.context)))
                        continue
                    if records is not None:
                        size += len(records)
                    if row_count > EPOCHS_AT_ONCE:
                        begun += produce.begins_epoch(name, index)
                answer = self._append(produce, row, name, index, records)
                if answer.error_code:
                    produce.failed = True
                row.append(answer)

    def _all_denied(
        self,
        request: ProduceRequest,
        context: RequestContext,
        denied: Sequence[TopicProduceData],
        code: Code,
    ) -> Answer:
        produce = _Produce(self._cluster, self._topics, request, context, ALL_READABLE)
        produce.refuse(denied, code)
        self._count_errors(produce)
        return self._encoded(produce)

    def _name_topics(self, request: ProduceRequest) -> None:
        """Set the topics' names according to their ids; NO_NAME for an unknown id."""
        for topic in request.topic_data:
            topic.topic_id = topic.topic_id or NO_ID
            known = self._topics.metadata.topic_by_id(topic.topic_id)
            topic.name = NO_NAME if known is None else known.name

    def _hold_back(
        self,
        request: ProduceRequest,
        context: RequestContext,
        name: str,
        denied: Sequence[TopicProduceData],
    ) -> Answer:
        """Park a request of transaction version 2 until the id's last transaction is complete."""
        size = 0
        for topic in request.topic_data:
            for partition in topic.partition_data:
                if partition.records is not None:  # the view's buffer is reused by the next frame
                    partition.records = bytearray(partition.records)
                    size += len(partition.records)
        take = self._requests.park_with_records(context, request, size)

        def go_on(now_ms: int) -> None:
            kept = take()
            if kept is None:
                return
            assert isinstance(kept, ProduceRequest)
            try:
                answer = self.on_produce(kept, context.replace(now_ms=now_ms), denied)
            except DelayedRequest as error:
                self._requests.close(context.connection_id, error)
                return
            if isinstance(answer, Encoded):
                self._requests.reply(context.ticket, answer)
            elif answer is NO_RESPONSE:
                self._requests.reply(context.ticket, Encoded(()))

        self._endings.after_end_of(name, go_on, context.now_ms)
        return PARKED

    def _check_elsewhere(self, produce: _Produce) -> None:
        """Let the worker check the next deferred batches and make the missing files of their logs;
        then append these batches, and continue with the rest.

        Between two turns, the loop and the worker serve other requests.
        """
        turn, new_files = self._next_turn(produce)
        now_ms = produce.context.now_ms + self._topics.logs.wall.ahead_ms
        stored = _stored(produce, turn)

        def run() -> list[_Result]:
            for _, files in new_files:
                files.make()
            budget = CheckBudget()
            results = [_checked(batch, now_ms, None if batch.is_long else budget) for batch in turn]
            if turn and turn[0].written is not None:
                results[0] = _compared(turn[0], results[0], stored)
            return results

        def done(results: list[_Result], now_ms: int) -> None:
            for log, files in new_files:
                self._topics.logs.take_files(log, files, now_ms)
            produce.context = produce.context.replace(now_ms=now_ms)
            produce.appended, produce.budget, produce.verified = [], CheckBudget(), None
            if not produce.context.keeps_frame:  # a kept frame stays in memory as a whole
                produce.held_bytes -= _bytes_of(turn)
            if produce.producer is not None:
                try:
                    self._batches.check_connection(produce)
                except DelayedRequest as error:
                    if self._requests.is_waited_for(produce.context):
                        self._requests.close(produce.context.connection_id, error)
                    return
            for batch, result in zip(turn, results, strict=True):
                self._append_checked(produce, batch, result)
            self._progress.on_appended(produce.appended, now_ms)
            if produce.pending:
                self._check_elsewhere(produce)
            else:
                self._answer_parked(produce, now_ms)

        self._requests.run_elsewhere(produce.context, run, done, produce.held_bytes)

    def _next_turn(self, produce: _Produce) -> tuple[list[_Pending], list[_NewFiles]]:
        """Take the next batches that are checked together. A batch whose check takes long is
        checked alone.

        Gives: the batches, of which at most `EPOCHS_AT_ONCE` begin a leader epoch; and the files to
               be made first for logs without files, at most `MADE_AT_ONCE`.
        """
        pending = produce.pending
        turn: list[_Pending] = []
        new_files: list[_NewFiles] = []
        size = begun = 0
        while pending and len(turn) < ROWS_OF_A_TURN and size < BYTES_OF_A_TURN:
            is_enough = len(new_files) == MADE_AT_ONCE or begun == EPOCHS_AT_ONCE
            if is_enough or (turn and pending[0].is_long):
                break
            batch = pending.popleft()
            begun += produce.begins_epoch(batch.name, batch.partition)
            log = produce.topics.partition(batch.name, batch.partition)
            turn.append(batch._replace(rules=None if log is None else log.rules))
            if log is not None and not log.files.are_made and batch.name not in INTERNAL_TOPICS:
                files = log.files.new_files
                # none are begun for a long batch: requests that need them would wait for its check
                if files is None and not batch.is_long:
                    files = self._topics.logs.begin_files(log)
                if files is not None:
                    new_files.append((log, files))
            size += len(batch.records or b"")
            if batch.is_long:
                break
        return turn, new_files

    def _append_checked(self, produce: _Produce, batch: _Pending, result: _Result) -> None:
        """Append a batch whose checks have ended, or defer it again if they take long."""
        if isinstance(result, TakesLongError):
            produce.put_off(batch._replace(is_long=True))
            return
        topic_id = batch.topic_id
        if topic_id is not None and self._topics.metadata.topic_by_id(topic_id) is None:
            answer = ProducedPartition(batch.partition, Code.UNKNOWN_TOPIC_ID)
        elif topic_id is None and self._topics.is_later(batch.name, produce.context):
            answer = ProducedPartition(batch.partition, Code.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            answer = self._append(
                produce, batch.row, batch.name, batch.partition, batch.records, batch, result
            )
        produce.failed = produce.failed or answer.error_code != 0
        batch.row[batch.at] = answer

    def _answer_parked(self, produce: _Produce, now_ms: int) -> None:
        """Send the response to a parked request whose deferred batches are all processed."""
        if produce.failed:
            self._count_errors(produce)
        if produce.request.acks == 0:
            self._hang_up_if_failed(produce)
            self._requests.reply(produce.context.ticket, Encoded(()))
        elif produce.unflushed and produce.request.acks == -1:
            self._answer_when_flushed(produce, now_ms)
        else:
            self._requests.reply(produce.context.ticket, self._encoded(produce))

    def _count_errors(self, produce: _Produce) -> None:
        if self._requests.errors is not None:
            for _, partitions in produce.answers:
                self._requests.errors.count_rows(produce.context.api_key, partitions)

    def _hang_up_if_failed(self, produce: _Produce) -> None:
        context = produce.context
        if produce.failed and self._requests.is_waited_for(context):
            self._requests.close(
                context.connection_id,
                f"a Produce with acks=0 of client {context.client_id!r} failed: "
                f"{_first_error(produce.answers)}",
            )

    def _answer_when_flushed(self, produce: _Produce, now_ms: int) -> None:
        """Send the response when the appended batches are durable."""
        for topic in produce.request.topic_data:
            topic.partition_data = []  # a large frame must not wait for the disk
        self._flushes.wait(
            produce.unflushed
            + self._transaction_ends.two_phase_logs(produce.request.transactional_id, now_ms),
            lambda _: self._requests.go_on(produce.context, partial(self._reply, produce)),
            now_ms,
        )

    def _reply(self, produce: _Produce) -> None:
        self._requests.reply(produce.context.ticket, self._encoded(produce))

    def _encoded(self, produce: _Produce) -> Encoded:
        context, answers = produce.context, produce.answers
        throttle_ms = (
            0 if self._quotas.clients is None else self._quotas.clients.on_produced(context)
        )
        if not produce.failed or self._cluster.is_one:
            return Encoded(
                (encode_produce(context.correlation_id, context.api_version, answers, throttle_ms),)
            )
        leaders = [
            partition.current_leader
            for _, partitions in answers
            for partition in partitions
            if partition.current_leader is not None
        ]
        endpoints = self._addresses.endpoints_of(leaders, context)
        frame = encode_produce(
            context.correlation_id, context.api_version, answers, throttle_ms, endpoints
        )
        return Encoded((frame,))

    def _prepare(
        self, request: ProduceRequest, version: int
    ) -> tuple[Unreadable, Code | None, int]:
        """Convert the request to the form of the latest version.

        Gives: the partitions whose messages cannot be read; the error code if the whole request is
               refused; the number of partitions.
        """
        unreadable = ALL_READABLE
        if version < BATCHES_IN_PRODUCE:
            unreadable = _upgrade(request)
        elif version >= PRODUCE_TOPIC_IDS:
            self._name_topics(request)
        if not -1 <= request.acks <= 1:
            return unreadable, Code.INVALID_REQUIRED_ACKS, 0
        row_count = 0
        may_be_transactional = request.transactional_id is not None
        for topic in request.topic_data:
            row_count += len(topic.partition_data)
            if may_be_transactional:
                continue
            for partition in topic.partition_data:
                records = partition.records
                if (
                    records is not None
                    and len(records) >= HEADER_SIZE
                    and records[FLAGS_AT] & TRANSACTIONAL
                ):
                    return unreadable, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0
        return unreadable, None, row_count

    def _append(
        self,
        produce: _Produce,
        row: list[ProducedPartition],
        name: str,
        index: int,
        records: Any,
        pending: _Pending | None = None,
        result: Checked | _Compared | AppendRefused | None = None,
    ) -> ProducedPartition:
        """Append one batch. Gives: its result, or a placeholder if the batch is deferred.

        Takes: result, the result of the worker's check, if the worker has checked the batch.

        The usual case is one long function on purpose: most requests have one batch, and each
        further call makes such a request 1 % slower. Only rare cases have functions of their own.
        """
        context = produce.context
        log = produce.topics.partition(name, index)
        if log is None or records is None or name in INTERNAL_TOPICS:
            return self._not_appended(produce, log, name, index, records)
        if type(records) is bytes:
            records = bytearray(records)
        transactional_id = produce.request.transactional_id
        if transactional_id is not None or context.api_version < ZSTD_SINCE:
            code = self._batches.check_attributes(produce, log, records)
            if code:
                return ProducedPartition(index, code)
        try:
            if pending is not None:
                first_offset, last_offset, log_append_time_ms, _ = self._append_pending(
                    produce, log, records, pending, result
                )
            else:
                space, size = self._disk_space, len(records)
                if size <= space.left_bytes:
                    space.left_bytes -= size  # `reserve`, inlined
                elif not space.reserve(size):
                    return _no_room(self._disk_space, log, index, records)
                if log.producer_state.refused:
                    check_overtaking(log.producer_state, records)
                if not log.files.are_made and self._waits_for_files(produce, log):
                    return _put_off(produce, row, log, records)
                first_offset, last_offset, log_append_time_ms, _ = log.append_fields(
                    records, context.now_ms, produce.budget
                )
        except TakesLongError as error:
            written = error.written if isinstance(error, ComparisonTakesLong) else None
            if pending is None:
                return _put_off(produce, row, log, records, is_long=True, written=written)
            return produce.put_off(
                pending._replace(is_long=True, is_counted=True, written=written, rules=None)
            )
        except OSError as error:
            return _no_room(self._disk_space, log, index, records, error)
        except KafkaError as error:
            return _refusal(produce, log, index, error)
        produce.appended.append(log)
        if transactional_id is not None:
            self._on_transactional(produce, log, first_offset, last_offset, records)
        elif log.has_flush_limit:
            self._flush_in_time(produce, log)
        return ProducedPartition(index, 0, first_offset, log_append_time_ms, log.log_start_offset)

    def _not_appended(
        self, produce: _Produce, log: Log | None, name: str, index: int, records: Any
    ) -> ProducedPartition:
        """The result for a partition without a log, or without a batch in the request."""
        if name in INTERNAL_TOPICS:
            return ProducedPartition(index, Code.INVALID_TOPIC_EXCEPTION)
        if log is not None:
            code = produce.unreadable.get((name, index), Code.INVALID_RECORD)
            return ProducedPartition(index, code)
        if name == NO_NAME and produce.context.api_version >= PRODUCE_TOPIC_IDS:
            return ProducedPartition(index, Code.UNKNOWN_TOPIC_ID)
        code = produce.topics.missing_code(name, index)
        if records is not None and not self._cluster.is_one:
            anothers = self._topics.partition(name, index)
            if anothers is not None:  # so that the producer's next batch does not overtake this one
                add_refused(anothers.producer_state, records)
        return ProducedPartition(index, code, current_leader=self._cluster.hint(name, index, code))

    def _append_pending(
        self,
        produce: _Produce,
        log: Log,
        records: Any,
        pending: _Pending,
        result: Checked | _Compared | AppendRefused | None,
    ) -> tuple[int, int, int, bool]:
        """Append a deferred batch. result: the result of the worker's check, which is valid if the
        log's rules have not changed since.

        Gives:  what `Log.append_fields` gives.
        Raises: what it raises; OSError if there is no space.
        """
        if not pending.is_counted and not self._disk_space.reserve(len(records)):
            raise OSError(errno.ENOSPC, "")
        if log.producer_state.refused:
            check_overtaking(log.producer_state, records)
        now_ms = produce.context.now_ms
        if result is None or pending.rules != log.rules:
            return log.append_fields(records, now_ms, produce.budget)
        if isinstance(result, AppendRefused):
            raise result.again()
        comparison = None
        if isinstance(result, _Compared):
            result, comparison = result
        return log.append_fields(
            records, now_ms, produce.budget, checked=result, comparison=comparison
        )

    def _on_transactional(
        self, produce: _Produce, log: Log, first_offset: int, last_offset: int, records: Any
    ) -> None:
        """Let the response wait for the disk if flush.messages or two-phase commit requires it."""
        transactional_id = produce.request.transactional_id
        assert transactional_id is not None
        if logger.isEnabledFor(logging.DEBUG):
            _trace(log, transactional_id, first_offset, last_offset, records)
        if (
            transactional_id in self._transactions.two_phase
            and self._transactions.settings.is_durable
        ):
            produce.has_flushes = True
            produce.wait_for_disk(log)
        elif log.has_flush_limit:
            self._flush_in_time(produce, log)

    def _flush_in_time(self, produce: _Produce, log: Log) -> None:
        """Let the response wait for the disk (flush.messages), or flush later (flush.ms)."""
        produce.has_flushes = True
        if log.log_end_offset - log.durability.durable_offset >= log.flush_messages:
            produce.wait_for_disk(log)
        elif log.flush_ms < NEVER_MS:
            self._progress.flush_later(log, produce.context.now_ms + log.flush_ms)

    def _waits_for_files(self, produce: _Produce, log: Log) -> bool:
        """Whether another thread makes the files for the log's first batch."""
        files = self._files_ahead.for_write(
            log,
            self._topics.partitions_of(log.topic),
            produce.made_files,
            produce.context.now_ms,
        )
        produce.made_files += files is None and not log.files.are_made
        return files is not None


def _upgrade(request: ProduceRequest) -> Unreadable:
    """Convert the older messages of requests before version 3 to batches.

    Gives: the partitions whose messages could not be read, with their error codes. Partitions
           beyond `MOST_OLDER_BYTES` get REQUEST_TIMED_OUT, after which clients retry.
    """
    unreadable = {}
    left = MOST_OLDER_BYTES
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None and is_message_set(partition.records):
                try:
                    if left <= 0:
                        raise KafkaError(
                            Code.REQUEST_TIMED_OUT,
                            "too many records of an older format in one request: send fewer",
                        )
                    partition.records, converted_bytes = upgraded(partition.records)
                    left -= converted_bytes
                except KafkaError as error:
                    unreadable[topic.name, partition.index] = error.code
                    partition.records = None
    return unreadable


def _refuse_partitions(
    produce: _Produce, pairs: list[TopicPartition], code: Code = Code.NOT_ENOUGH_REPLICAS
) -> None:
    """Refuse the batches of the given partitions.

    Takes: code, the error code. The default is for partitions that cannot be added to the
           transaction because the coordinator's record cannot be written. As with Apache Kafka,
           every client retries after it.
    """
    refused = set(pairs)
    produce.unreadable = {**produce.unreadable, **dict.fromkeys(pairs, code)}
    for topic in produce.request.topic_data:
        for partition in topic.partition_data:
            if (topic.name, partition.index) in refused:
                partition.records = None


def _refuse_later_topics(produce: _Produce, topics: TopicRegistry) -> None:
    """Refuse the batches for topics that were created after the request arrived.

    The request waited for the worker or for the end of a transaction, so it means earlier topics
    with the same names. A request with topic ids cannot mean another topic.
    """
    if produce.context.api_version >= PRODUCE_TOPIC_IDS:
        return
    pairs = [
        TopicPartition(topic.name, partition.index)
        for topic in produce.request.topic_data
        if topics.is_later(topic.name, produce.context)
        for partition in topic.partition_data
    ]
    if pairs:
        _refuse_partitions(produce, pairs, Code.UNKNOWN_TOPIC_OR_PARTITION)


def _note_refused(produce: _Produce, pair: TopicPartition) -> None:
    """Record that the producer's batch for a partition was refused, so that the producer's next
    batches do not overtake it.
    """
    log = produce.topics.partition(*pair)
    for topic in produce.request.topic_data:
        for partition in topic.partition_data:
            if log is not None and (topic.name, partition.index) == pair:
                records: Any = partition.records
                add_refused(log.producer_state, records)


def _first_producer(request: ProduceRequest) -> tuple[int, int] | None:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is not None and len(records) >= HEADER_SIZE:
                return producer_of(records)[:2]
    return None


def _trace(
    log: Log, transactional_id: str, first_offset: int, last_offset: int, records: Any
) -> None:
    """Log the offsets of a transaction's batch at debug level."""
    producer_id, producer_epoch, _ = producer_of(records)
    logger.debug(
        "%r: offsets %d to %d of %s",
        log, first_offset, last_offset, transactional_id,
        extra={
            "transactional_id": transactional_id, "producer_id": producer_id,
            "producer_epoch": producer_epoch, "offset": first_offset,
        },
    )  # fmt: skip


def _kept(
    row: list[ProducedPartition],
    topic: TopicProduceData,
    data: PartitionProduceData,
    context: RequestContext,
) -> _Pending:
    """The _Pending of a batch that is deferred without any check."""
    records: Any = data.records
    if records is not None and not context.keeps_frame:
        records = bytearray(records)
    return _Pending(
        row,
        len(row),
        topic.name,
        data.index,
        records,
        is_long=False,
        is_counted=False,
        topic_id=topic.topic_id if context.api_version >= PRODUCE_TOPIC_IDS else None,
    )


def _bytes_of(batches: list[_Pending]) -> int:
    return sum(len(batch.records or b"") for batch in batches)


_NewFiles = tuple["Log", "NewFiles"]


class _Compared(NamedTuple):
    """The worker's results for a batch that may repeat one in the log."""

    checked: Checked
    comparison: Comparison


_Result = Checked | _Compared | AppendRefused | TakesLongError | None
"""The result of a check by the worker; None if there is no batch, or no such partition."""


def _checked(batch: _Pending, now_ms: int, budget: CheckBudget | None) -> _Result:
    if batch.rules is None or batch.records is None:
        return None
    try:
        return check_client_batch(memoryview(batch.records), batch.rules, now_ms, at_once=budget)
    except (AppendRefused, TakesLongError) as error:
        return detached(error)  # its traceback and its cause refer to the decompressed records


def _stored(produce: _Produce, turn: list[_Pending]) -> bytes | None:
    """Read the batch in the log with which the worker compares the turn's only batch.

    Gives:  None if no comparison is needed, or the log does not have it.
    """
    if not turn or turn[0].written is None:
        return None

    log = produce.topics.partition(turn[0].name, turn[0].partition)
    return None if log is None else stored_batch(turn[0].written, log.segments)


def _compared(batch: _Pending, checked: _Result, stored: bytes | None) -> _Result:
    """Compare a checked batch with the one in the log. Gives: `checked`, if it is an error."""
    if not isinstance(checked, Checked) or batch.written is None or batch.rules is None:
        return checked

    is_same = None
    if stored is not None:
        most_bytes = batch.rules.max_decompressed_bytes
        is_same = have_same_content(stored, checked.view, most_bytes)
    return _Compared(checked, Comparison(batch.written, is_same))


def _no_room(
    space: DiskSpace, log: Log, index: int, records: Any, error: OSError | None = None
) -> ProducedPartition:
    """The result for a batch for which the disk has no space. Raises: `error`, if it has another
    cause.
    """
    if error is None or (error.errno == errno.ENOSPC and not error.strerror):
        why = space.shortage()
    elif is_out_of_resources(error):
        space.on_not_written(error)
        why = error.strerror or str(error)
    else:
        raise error
    add_refused(log.producer_state, records)
    message = f"the broker's disk is full: {why}; {ADVICE}"
    return ProducedPartition(index, Code.KAFKA_STORAGE_ERROR, error_message=message)


def _refusal(produce: _Produce, log: Log, index: int, error: KafkaError) -> ProducedPartition:
    """The result for a batch that the log refuses."""
    start = log.log_start_offset if getattr(error, "knows_log_start", True) else -1
    named = getattr(error, "record_errors", ())[: produce.record_errors_left]
    produce.record_errors_left -= len(named)
    record_errors = [(batch_index, error.message) for batch_index in named]
    return ProducedPartition(index, error.code, -1, -1, start, record_errors, error.message)


def _put_off(
    produce: _Produce,
    row: list[ProducedPartition],
    log: Log,
    records: Any,
    *,
    is_long: bool = False,
    written: BatchMeta | None = None,
) -> ProducedPartition:
    """Defer a batch whose log is known. Gives: a placeholder for its result."""
    if not produce.context.keeps_frame:
        records = bytearray(records)
    has_id = produce.context.api_version >= PRODUCE_TOPIC_IDS
    return produce.put_off(
        _Pending(
            row,
            len(row),
            log.topic,
            log.partition,
            records,
            is_long,
            is_counted=True,
            topic_id=log.topic_id if has_id else None,
            written=written,
        )
    )


def _first_error(answers: Answers) -> str:
    for name, partitions in answers:
        for partition in partitions:
            if partition.error_code:
                return f"{Code(partition.error_code).name} on {name}-{partition.index}"
    return "none"


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(0, "Produce", 0, 13, flexible_from=9),
        right=rule(
            by_hand(
                guards.produce,
                Ask(WRITE, TOPIC),
                Ask(WRITE, TRANSACTIONAL_ID, "with batches of a transaction"),
            ),
            is_all_allowed=guards.may_produce_all,
        ),
        read=lambda parts: produce_reader(parts.config.barnabas_request_max_bytes),
        handler=lambda parts: (
            ProduceHandler(
                parts.cluster,
                parts.topics,
                parts.requests,
                parts.quotas,
                parts.addresses,
                parts.disk_space,
                parts.flushes,
                parts.progress,
                parts.transactions,
                parts.endings,
                parts.transaction_ends,
                parts.files_ahead,
            ).on_produce
        ),
    ),
)
