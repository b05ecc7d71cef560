"""TxnOffsetCommit, WriteTxnMarkers and DescribeProducers: they need a coordinator and the logs.

EndTxn is in broker/transactions/transaction_end.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from barnabas.broker.outbox import PARKED, Answer, Parked, Work
from barnabas.broker.slices import ROWS_READ_AT_ONCE, Slices
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import partition_for
from barnabas.coordinator.transactions import transaction_listing
from barnabas.coordinator.transactions.partition_additions import OFFSETS_ADD
from barnabas.coordinator.transactions.transaction_listing import EncodedRows
from barnabas.coordinator.transactions.transaction_state import (
    PREPARED,
    Channel,
    ProducerIdAndEpoch,
    TransactionState,
)
from barnabas.protocol.client_hosts import TransactionWithHost
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsResponse
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import is_out_of_resources

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.broker.security.authorizer import Access
    from barnabas.storage.producers.producer_state import ActiveProducer


def client_host(broker: Broker, transactional_id: str) -> str | None:
    """From where the producer last added to its transaction; None where that connection is gone."""
    connection = broker.connections.get(broker.transactions.latest_connection(transactional_id))
    return None if connection is None else connection.client_host.removeprefix("/")


def add_client_hosts(broker: Broker, answer: DescribeTransactionsResponse) -> None:
    """Tell of each open transaction from which host its producer works."""
    open_states = {state.value for state in (TransactionState.ONGOING, *PREPARED)}
    for index, row in enumerate(answer.transaction_states):
        host = client_host(broker, row.transactional_id)
        if host is not None and row.transaction_state in open_states:
            answer.transaction_states[index] = TransactionWithHost(row, host)


def _visible_to(access: Access | None) -> Callable[[str], bool]:
    """Whether a client may see a transactional id."""
    if access is None:
        return lambda _: True
    from barnabas.broker.security.acls import Operation, ResourceType

    return partial(access.sees, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)


def on_list_transactions(
    broker: Broker, request: ListTransactionsRequest, context: RequestContext
) -> Parked:
    """The transactions that pass all filters, of the ids that the client may describe.

    By states and producer ids, from version 1 on by how long they are open (KIP-994), and from 2 on
    by a pattern of the whole id, in RE2's syntax (KIP-1152). Errors: INVALID_REGULAR_EXPRESSION,
    also where the pattern is longer than 32,767 bytes, or takes too long to run.
    """
    pattern = request.transactional_id_pattern
    broker.park(context)

    is_visible = _visible_to(broker.access_of(context))

    def reply(found: transaction_listing.Rows | EncodedRows | None) -> None:
        response = transaction_listing.answer(request)
        if found is None:
            response = ListTransactionsResponse(error_code=Code.INVALID_REGULAR_EXPRESSION)
        else:
            response.transaction_states = cast("transaction_listing.Rows", found)
        broker.reply(context.ticket, response)

    def match_elsewhere(found: transaction_listing.Rows) -> None:
        is_encoded = broker.cluster.is_one  # of several, each hides what others coordinate

        def run() -> transaction_listing.Rows | EncodedRows | None:
            matched = transaction_listing.matching(found, pattern)
            if matched is None or not is_encoded:
                return matched
            data = bytearray()
            for row in matched:
                row.write(data, context.api_version)
            return EncodedRows(len(matched), bytes(data))

        broker.outbox.work.append(Work(context.connection_id, run, lambda found, _: reply(found)))

    def list_in_slices() -> Slices:
        now_ms = yield
        found = yield from broker.transactions.listed(request, is_visible, now_ms)
        if transaction_listing.takes_long(found, pattern):
            match_elsewhere(found)
        else:
            reply(transaction_listing.matching(found, pattern))
        return PARKED

    if transaction_listing.is_too_long(pattern):
        reply(None)
    else:
        broker.work.begin(context.ticket, list_in_slices(), context.now_ms)
    return PARKED


def on_txn_offset_commit(
    broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Parked:
    """Offsets that wait for the transaction's marker (KIP-98; fenced by the group, KIP-447).

    Errors: INVALID_GROUP_ID for an empty group, before anything else is looked at; those of
    `TransactionCoordinator.verify_offsets`, and of the group.

    From version 5 on it adds the group's partition to the transaction by itself, once the last
    transaction of the id is complete.
    """
    if not request.group_id:
        return _offset_commit_refused(request, Code.INVALID_GROUP_ID)
    producer = (request.producer_id, request.producer_epoch)
    broker.transactions.check_connection(
        request.transactional_id,
        producer,
        context.connection_id,
        (Channel.OFFSETS,),
        node_id=context.node_id,
    )
    if context.api_version < OFFSETS_ADD:
        return _commit_offsets(broker, request, context)
    broker.park(context)

    def commit(now_ms: int) -> None:
        answer = _commit_offsets(broker, request, context._replace(now_ms=now_ms))
        if not isinstance(answer, Parked):
            broker.reply(context.ticket, answer)

    broker.transaction_ends.hold_back(request.transactional_id, commit, context.now_ms)
    return PARKED


def _commit_offsets(
    broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Parked:
    broker.topics.ensure_internal_topic(OFFSETS_TOPIC, context.now_ms)
    index = partition_for(request.group_id, len(broker.topics.partitions_of(OFFSETS_TOPIC)))
    producers = broker.topics.internal_log(OFFSETS_TOPIC, index, context.now_ms).producer_state
    is_open = producers.has_ongoing_transaction_of(request.producer_id)
    transactions, name = broker.transactions, request.transactional_id
    if context.api_version >= OFFSETS_ADD:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        added = transactions.on_writing_offsets(name, producer, request.group_id, context.now_ms)
        broker.runtime.run_transactions(added, context.now_ms)
    code = transactions.verify_offsets(
        name,
        request.producer_id,
        request.producer_epoch,
        request.group_id,
        context.api_version,
        producers.producer_epoch_of(request.producer_id) if is_open else None,
    )
    if code is not Code.NONE:
        return _offset_commit_refused(request, code)
    broker.park(context)
    result = broker.groups.on_txn_offset_commit(request, context, context.now_ms)
    two_phase = broker.runtime.two_phase_logs(name, context.now_ms)
    if two_phase:
        broker.runtime.run_groups_durably(result, two_phase, context.now_ms)
    else:
        broker.runtime.run_groups(result, context.now_ms)
    return PARKED


def _offset_commit_refused(request: TxnOffsetCommitRequest, code: Code) -> TxnOffsetCommitResponse:
    topics = [
        TxnOffsetCommitResponseTopic(
            topic.name,
            [TxnOffsetCommitResponsePartition(p.partition_index, code) for p in topic.partitions],
        )
        for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


def on_write_txn_markers(
    broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Parked:
    """Markers that an operator writes (KIP-664), where the coordinator knows no transaction.

    Errors, per partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (of several brokers);
    TRANSACTION_COORDINATOR_FENCED;
    UNKNOWN_SERVER_ERROR for a negative producer id or epoch, as Kafka has it;
    INVALID_TOPIC_EXCEPTION for __transaction_state, in which no transaction can be open;
    INVALID_PRODUCER_EPOCH; KAFKA_STORAGE_ERROR where there is no room for the partition's files.
    """
    topics_here = broker.topics_of(context)
    without_files = {
        log: None
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
        if (log := topics_here.partition(topic.name, index)) is not None and not log.has_files
    }
    if len(without_files) <= broker.files_ahead.most_by_request:
        return _write_markers(broker, request, context)
    broker.park(context)

    def write(now_ms: int) -> None:
        if context.connection_id in broker.connections:
            answer = _write_markers(broker, request, context._replace(now_ms=now_ms))
            broker.reply(context.ticket, answer)

    broker.files_ahead.make(list(without_files), write)
    return PARKED


def _write_markers(
    broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    markers = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            rows = [
                WritableTxnMarkerPartitionResult(
                    index, _write_marker(broker, marker, topic.name, index, context)
                )
                for index in topic.partition_indexes
            ]
            topics.append(WritableTxnMarkerTopicResult(topic.name, rows))
        markers.append(WritableTxnMarkerResult(marker.producer_id, topics))
    return WriteTxnMarkersResponse(markers)


def _write_marker(
    broker: Broker, marker: WritableTxnMarker, name: str, index: int, context: RequestContext
) -> Code:
    topics, now_ms = broker.topics_of(context), context.now_ms
    if marker.producer_epoch < 0 or marker.producer_id < 0:
        return Code.UNKNOWN_SERVER_ERROR
    if name == TRANSACTIONS_TOPIC:  # Apache Kafka could not load it with a marker in it
        return Code.INVALID_TOPIC_EXCEPTION
    log = topics.partition(name, index)
    if log is None:
        return topics.missing_code(name, index)
    try:
        info = log.append_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            commit=marker.transaction_result,
            now_ms=now_ms,
            is_decided=False,
            transaction_version=marker.transaction_version,
        )
    except KafkaError as error:
        return error.code
    except OSError as error:
        if log.has_files or not is_out_of_resources(error):
            raise
        return Code.KAFKA_STORAGE_ERROR  # nothing of it was written
    if name == OFFSETS_TOPIC:
        broker.groups.replay_marker(
            index,
            info.first_offset,
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
        )
    broker.progress.on_appended([log], now_ms)
    return Code.NONE


def on_describe_producers(
    broker: Broker, request: DescribeProducersRequest, context: RequestContext
) -> Answer:
    """The producers that a partition remembers (KIP-664). UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER.
    """
    return broker.read_in_slices(context, _describe_producers(broker, request, context))


def _describe_producers(
    broker: Broker, request: DescribeProducersRequest, context: RequestContext
) -> Slices:
    yield
    here = broker.topics_of(context)
    topics = []
    left = ROWS_READ_AT_ONCE
    for topic in request.topics:
        rows = []
        for index in topic.partition_indexes:
            log = here.partition(topic.name, index)
            code = here.missing_code(topic.name, index) if log is None else Code.NONE
            producers = []
            for producer in () if log is None else log.producer_state.each_active_producer():
                producers.append(_producer_state(producer))
                left -= 1
                if not left:
                    left = ROWS_READ_AT_ONCE
                    yield
            rows.append(PartitionResponse(index, code, active_producers=producers))
        topics.append(TopicResponse(topic.name, rows))
    return DescribeProducersResponse(topics=topics)


def _producer_state(producer: ActiveProducer) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_txn_start_offset,
    )
