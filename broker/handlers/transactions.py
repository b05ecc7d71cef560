"""The requests about transactions, except Produce. Their rows are at the end.

Some need both the coordinator and the logs; these have a handler here. The handler of EndTxn is
`TransactionEnds.on_end_txn` (broker/transactions/transaction_end.py). AddPartitionsToTxn and
AddOffsetsToTxn need the coordinator alone (`to_transactions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from barnabas.broker import coordinators  # noqa: F401 - loaded with the family
from barnabas.broker.admission import guards
from barnabas.broker.admission.coordination import Coordination, One, Several
from barnabas.broker.admission.guard_steps import (
    Ask,
    by_hand,
    each,
    in_answer,
    in_handler,
    on_cluster,
    rule,
    whole,
)
from barnabas.broker.admission.rights import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
)
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.groups.group_runtime import GroupRuntime
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.new_files import FilesAhead
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import PARKED, Answer, Parked
from barnabas.broker.parts import Parts
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import Level, Repeats, Shape, of_partitions, of_rows
from barnabas.broker.requests.without_space import refuse
from barnabas.broker.routes import Decide, Handler, Request
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.broker.security.authorizer import Access
from barnabas.broker.slices import ROWS_READ_AT_ONCE, Slices
from barnabas.broker.transactions.to_transactions import to_transactions
from barnabas.broker.transactions.transaction_end import Endings, TransactionEnds
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import partition_for
from barnabas.coordinator.transactions import transaction_listing
from barnabas.coordinator.transactions.partition_additions import OFFSETS_ADD
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction_listing import EncodedRows
from barnabas.coordinator.transactions.transaction_state import (
    PREPARED,
    Channel,
    TransactionState,
)
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.client_hosts import DescribeTransactionsWithHostsRequest, TransactionWithHost
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
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
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.producers import producer_rows  # noqa: F401 - markers need them
from barnabas.storage.producers.producer_state import ActiveProducer


def client_host(
    connections: Mapping[int, ConnectionState],
    transactions: TransactionCoordinator,
    transactional_id: str,
) -> str | None:
    """The host from which the producer last added a partition to its transaction; None if the
    connection is closed.
    """
    connection = connections.get(transactions.latest_connection(transactional_id))
    return None if connection is None else connection.client_host.removeprefix("/")


def _add_client_hosts(
    connections: Mapping[int, ConnectionState],
    transactions: TransactionCoordinator,
    answer: DescribeTransactionsResponse,
) -> None:
    """Add the producer's host to each open transaction in the response."""
    open_states = {state.value for state in (TransactionState.ONGOING, *PREPARED)}
    for index, row in enumerate(answer.transaction_states):
        host = client_host(connections, transactions, row.transactional_id)
        if host is not None and row.transaction_state in open_states:
            answer.transaction_states[index] = TransactionWithHost(row, host)


def on_describe_transactions(
    requests: Requests,
    transactions: TransactionCoordinator,
    transaction_ends: TransactionEnds,
    connections: Mapping[int, ConnectionState],
    request: DescribeTransactionsWithHostsRequest,
    context: RequestContext,
) -> Parked:
    """The states of transactional ids. If the client is the command `barnabas`, which sets
    `asks_for_hosts`, they include the hosts of the producers.

    Errors: see `TransactionCoordinator`.
    """
    if request.asks_for_hosts:
        requests.amend(context.ticket, partial(_add_client_hosts, connections, transactions))
    requests.park(context)
    result = transactions.on_describe_transactions(request, context, context.now_ms)
    transaction_ends.run(result, context.now_ms)
    return PARKED


def _visible_to(access: Access | None) -> Callable[[str], bool]:
    """A function that tests whether the client may describe a transactional id."""
    if access is None:
        return lambda _: True

    return partial(access.sees, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)


def on_list_transactions(
    requests: Requests,
    access: ClientAccess,
    cluster: Cluster,
    transactions: TransactionCoordinator,
    request: ListTransactionsRequest,
    context: RequestContext,
) -> Parked:
    """The transactions that pass all filters, of the ids that the client may describe.

    The filters are states and producer ids; from version 1 on, the time for which a transaction has
    been open (KIP-994); from version 2 on, a pattern in RE2's syntax that matches the whole id
    (KIP-1152). Errors: INVALID_REGULAR_EXPRESSION, also if the pattern is longer than 32,767 bytes,
    or takes too long to run.
    """
    pattern = request.transactional_id_pattern
    is_visible = _visible_to(access.of(context))

    def reply(found: transaction_listing.Rows | EncodedRows | None) -> None:
        response = transaction_listing.answer(request)
        if found is None:
            response = ListTransactionsResponse(error_code=Code.INVALID_REGULAR_EXPRESSION)
        else:
            response.transaction_states = cast("transaction_listing.Rows", found)
        requests.reply(context.ticket, response)

    def match_in_worker(found: transaction_listing.Rows) -> None:
        # with several brokers, ids that other brokers coordinate have to be removed first
        is_encoded = cluster.is_one

        def run() -> transaction_listing.Rows | EncodedRows | None:
            matched = transaction_listing.matching(found, pattern)
            if matched is None or not is_encoded:
                return matched
            data = bytearray()
            for row in matched:
                row.write(data, context.api_version)
            return EncodedRows(len(matched), bytes(data))

        requests.run_elsewhere(context, run, lambda found, _: reply(found))

    def list_in_slices() -> Slices:
        now_ms = yield
        found = yield from transactions.listed(request, is_visible, now_ms)
        if transaction_listing.takes_long(found, pattern):
            match_in_worker(found)
        else:
            reply(transaction_listing.matching(found, pattern))
        return PARKED

    if transaction_listing.is_too_long(pattern):
        requests.park(context)
        reply(None)
        return PARKED
    return requests.park_and_run(context, list_in_slices())


class TxnOffsetCommitHandler:
    """Answers TxnOffsetCommit: offsets that a group commits as part of a transaction."""

    __slots__ = (
        "_endings",
        "_group_runtime",
        "_groups",
        "_requests",
        "_topics",
        "_transaction_ends",
        "_transactions",
    )

    def __init__(
        self,
        requests: Requests,
        topics: TopicRegistry,
        transactions: TransactionCoordinator,
        endings: Endings,
        transaction_ends: TransactionEnds,
        groups: GroupCoordinator,
        group_runtime: GroupRuntime,
    ) -> None:
        self._requests = requests
        self._topics = topics
        self._transactions = transactions
        self._endings = endings
        self._transaction_ends = transaction_ends
        self._groups = groups
        self._group_runtime = group_runtime

    def on_txn_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> TxnOffsetCommitResponse | Parked:
        """Store offsets that become visible with the transaction's commit (KIP-98), fenced by the
        group's generation (KIP-447).

        Errors: UNKNOWN_TOPIC_OR_PARTITION, which is checked first: a request in which no partition
        exists leaves the transaction as it is; INVALID_GROUP_ID for an empty group id; the errors
        of `PartitionAdditions.verify_offsets` and of the group.

        From version 5 on the request also adds the group's partition to the transaction, once the
        previous transaction of the id is complete.
        """
        if not request.group_id or not self._names_a_partition(request):
            return self._refused(request, Code.INVALID_GROUP_ID)
        producer = (request.producer_id, request.producer_epoch)
        self._transactions.check_connection(
            request.transactional_id,
            producer,
            context.connection_id,
            (Channel.OFFSETS,),
            node_id=context.node_id,
        )
        if context.api_version < OFFSETS_ADD:
            return self._commit_offsets(request, context)
        self._requests.park(context, keeps_request=True)

        def commit(now_ms: int) -> None:
            if not self._requests.is_waited_for(context):
                return
            try:
                answer = self._commit_offsets(request, context.replace(now_ms=now_ms))
            except NotWrittenError:
                answer = self._refused(request, Code.COORDINATOR_NOT_AVAILABLE)
            if not isinstance(answer, Parked):
                self._requests.reply(context.ticket, answer)

        self._endings.after_end_of(request.transactional_id, commit, context.now_ms)
        return PARKED

    def _commit_offsets(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> TxnOffsetCommitResponse | Parked:
        """Commit the offsets now: the previous transaction of the id is complete."""
        if any(self._topics.is_later(topic.name, context) for topic in request.topics):
            # the request was held back, so it means earlier topics with the same names
            return _offset_commit_refused(request, lambda *_: Code.UNKNOWN_TOPIC_OR_PARTITION)
        if not self._names_a_partition(request):
            return self._refused(request, Code.UNKNOWN_TOPIC_OR_PARTITION)
        if request.transactional_id in self._endings.without_space:
            return self._refused(request, Code.CONCURRENT_TRANSACTIONS)
        self._topics.ensure_internal_topic(OFFSETS_TOPIC, context.now_ms)
        index = partition_for(request.group_id, len(self._topics.partitions_of(OFFSETS_TOPIC)))
        producers = self._topics.internal_log(OFFSETS_TOPIC, index, context.now_ms).producer_state
        is_open = producers.has_ongoing_transaction_of(request.producer_id)
        transactions, name = self._transactions, request.transactional_id
        if context.api_version >= OFFSETS_ADD:
            producer = request.producer_id, request.producer_epoch
            added = transactions.additions.on_writing_offsets(
                name, producer, request.group_id, context.now_ms
            )
            self._transaction_ends.run(added, context.now_ms)
        code = transactions.additions.verify_offsets(
            name,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            context.api_version,
            producers.producer_epoch_of(request.producer_id) if is_open else None,
        )
        if code is not Code.NONE:
            return self._refused(request, code)
        self._group_runtime.check_writable(request.group_id)
        self._requests.park(context)
        result = self._groups.commits.on_txn_offset_commit(request, context, context.now_ms)
        two_phase = self._transaction_ends.two_phase_logs(name, context.now_ms)
        if two_phase:
            self._group_runtime.run_durably(result, two_phase, context.now_ms)
        else:
            self._group_runtime.run(result, context.now_ms)
        return PARKED

    def _names_a_partition(self, request: TxnOffsetCommitRequest) -> bool:
        """Whether one of the partitions in the request exists."""
        return any(
            self._topics.partition_exists(topic.name, row.partition_index)
            for topic in request.topics
            for row in topic.partitions
        )

    def _refused(self, request: TxnOffsetCommitRequest, code: Code) -> TxnOffsetCommitResponse:
        """The answer with an error for all partitions that exist."""
        exists = self._topics.partition_exists
        return _offset_commit_refused(
            request,
            lambda topic, index: code if exists(topic, index) else Code.UNKNOWN_TOPIC_OR_PARTITION,
        )


def _offset_commit_refused(
    request: TxnOffsetCommitRequest, code: Callable[[str, int], Code]
) -> TxnOffsetCommitResponse:
    """The answer with an error for each partition."""
    topics = [
        TxnOffsetCommitResponseTopic(
            topic.name,
            [
                TxnOffsetCommitResponsePartition(
                    row.partition_index, code(topic.name, row.partition_index)
                )
                for row in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


class WriteTxnMarkersHandler:
    """Answers WriteTxnMarkers: markers that an operator writes (KIP-664)."""

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        groups: GroupCoordinator,
        progress: LogProgress,
        files_ahead: FilesAhead,
    ) -> None:
        self._requests, self._cluster, self._groups = requests, cluster, groups
        self._progress, self._files_ahead = progress, files_ahead

    def on_write_txn_markers(
        self, request: WriteTxnMarkersRequest, context: RequestContext
    ) -> WriteTxnMarkersResponse | Parked:
        """Write markers for transactions that the coordinator does not know.

        Errors, per partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (with several
        brokers); TRANSACTION_COORDINATOR_FENCED; UNKNOWN_SERVER_ERROR for a negative producer id or
        epoch, as in Kafka; INVALID_TOPIC_EXCEPTION for __transaction_state, in which no transaction
        can be open; INVALID_PRODUCER_EPOCH; KAFKA_STORAGE_ERROR without disk space.
        """
        topics_here = self._cluster.topics_here(context)
        without_files = {
            log: None
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
            if (log := topics_here.partition(topic.name, index)) is not None
            and not log.files.are_made
        }
        if not without_files:
            return self._write(request, context)
        self._requests.park(context)

        def write(now_ms: int) -> None:
            if self._requests.is_waited_for(context):
                answer = self._write(request, context.replace(now_ms=now_ms))
                self._requests.reply(context.ticket, answer)

        self._files_ahead.make(list(without_files), write)
        return PARKED

    def _write(
        self, request: WriteTxnMarkersRequest, context: RequestContext
    ) -> WriteTxnMarkersResponse:
        """Write all markers of a request, now that their logs have files."""
        markers = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                rows = [
                    WritableTxnMarkerPartitionResult(
                        index, self._write_one(marker, topic.name, index, context)
                    )
                    for index in topic.partition_indexes
                ]
                topics.append(WritableTxnMarkerTopicResult(topic.name, rows))
            markers.append(WritableTxnMarkerResult(marker.producer_id, topics))
        return WriteTxnMarkersResponse(markers)

    def _write_one(
        self, marker: WritableTxnMarker, name: str, index: int, context: RequestContext
    ) -> Code:
        """Write one marker to one partition. Gives: its error code."""
        topics, now_ms = self._cluster.topics_here(context), context.now_ms
        if marker.producer_epoch < 0 or marker.producer_id < 0:
            return Code.UNKNOWN_SERVER_ERROR
        if name == TRANSACTIONS_TOPIC:  # Apache Kafka could not load the topic with a marker in it
            return Code.INVALID_TOPIC_EXCEPTION
        log = topics.partition(name, index)
        if log is None:
            return topics.missing_code(name, index)
        try:
            offset = append_marker(
                log,
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
        except NotWrittenError:
            return Code.KAFKA_STORAGE_ERROR
        if name == OFFSETS_TOPIC:
            self._groups.replay_marker(
                index,
                offset,
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
            )
        self._progress.on_appended([log], now_ms)
        return Code.NONE


def on_describe_producers(
    requests: Requests, cluster: Cluster, request: DescribeProducersRequest, context: RequestContext
) -> Answer:
    """The producers in the state of a partition (KIP-664). Errors, by partition:
    UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
    """
    return requests.read_in_slices(context, _describe_producers(cluster, request, context))


def _describe_producers(
    cluster: Cluster, request: DescribeProducersRequest, context: RequestContext
) -> Slices:
    """The slices of `on_describe_producers`."""
    yield
    here = cluster.topics_here(context)
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


class InitProducerIdHandler:
    """Answers InitProducerId: the coordinator decides.

    If the response says that a transaction is kept for two-phase commit (KIP-939), the transaction
    has to be durable. An external database may decide on it at once, so a power loss must not
    remove it. The producer that wrote it may have had an ordinary session, in which responses do
    not wait for the disk. So the transaction's logs are flushed before it is kept. (Requests of
    that producer that are still in flight are not part of the prepared transaction.)
    """

    __slots__ = (
        "_endings",
        "_flushes",
        "_requests",
        "_topics",
        "_transaction_ends",
        "_transactions",
    )

    def __init__(
        self,
        requests: Requests,
        topics: TopicRegistry,
        transactions: TransactionCoordinator,
        endings: Endings,
        transaction_ends: TransactionEnds,
        flushes: FlushQueue,
    ) -> None:
        self._requests, self._topics, self._flushes = requests, topics, flushes
        self._transactions = transactions
        self._endings, self._transaction_ends = endings, transaction_ends

    def on_init_producer_id(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> Parked:
        """Begin the session of a producer; see `ProducerSessions.on_init_producer_id`."""
        self._requests.park(context)

        def run(now_ms: int) -> None:
            self._requests.go_on(context, partial(begin, now_ms))

        def begin(now_ms: int) -> None:
            try:
                decided = self._transactions.sessions.on_init_producer_id(request, context, now_ms)
                self._transaction_ends.run(decided, now_ms)
            except NotWrittenError:
                refuse(self._requests, request, context)

        def flush_and_run(now_ms: int) -> None:
            self._flushes.wait(self._unflushed(request), run, now_ms)

        keeps = request.enable2_pc and request.keep_prepared_txn
        self._endings.after_end_of(
            request.transactional_id, flush_and_run if keeps else run, context.now_ms
        )
        return PARKED

    def _unflushed(self, request: InitProducerIdRequest) -> list[Log]:
        """The logs to be flushed: those with data of an open transaction of an ordinary session."""
        transactions = self._transactions
        open_one = transactions.metadata(request.transactional_id or "")
        if open_one is None or open_one.is_two_phase or not transactions.settings.is_durable:
            return []
        if open_one.state is not TransactionState.ONGOING:
            return []
        logs = (self._topics.partition(*partition) for partition in open_one.partitions)
        return [log for log in logs if log is not None]


# --- the APIs of this family ----------------------------------------------------------------------


def _to_coordinator(
    parts: Parts, decide: Decide[Request], id_field: str, producer_fields: tuple[str, str, str]
) -> Handler[Request]:
    return to_transactions(
        decide, parts.endings, parts.transaction_ends, parts.transactions, parts.requests,
        id_field, producer_fields,
    )  # fmt: skip


ROWS = (
    ApiRow(
        Api(22, "InitProducerId", 0, 6, flexible_from=2, most_elements=FEW),
        right=rule(
            by_hand(
                guards.init_producer_id,
                Ask(WRITE, TRANSACTIONAL_ID),
                Ask(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, "too, for two-phase commit"),
                Ask(IDEMPOTENT_WRITE, CLUSTER, "without a transactional id"),
                Ask(WRITE, TOPIC, "or on any topic"),
            )
        ),
        coordination=Coordination(one=One(TRANSACTIONS_TOPIC, "transactional_id"), writes=True),
        handler=lambda parts: (
            InitProducerIdHandler(
                parts.requests,
                parts.topics,
                parts.transactions,
                parts.endings,
                parts.transaction_ends,
                parts.flushes,
            ).on_init_producer_id
        ),
    ),
    ApiRow(
        Api(24, "AddPartitionsToTxn", 0, 5, flexible_from=3, most_elements=5_000),
        right=rule(
            by_hand(
                guards.add_partitions,
                Ask(WRITE, TRANSACTIONAL_ID),
                Ask(WRITE, TOPIC),
                Ask(CLUSTER_ACTION, CLUSTER, "instead, from version 4 on"),
            )
        ),
        shapes=(
            Shape(
                (
                    Level("transactions", "results_by_transaction"),
                    Level("topics", "topic_results"),
                    Level("partitions", "results_by_partition"),
                ),
                Repeats.KEPT,
                first_version=4,
            ),
        ),
        coordination=Coordination(
            one=One(TRANSACTIONS_TOPIC, "v3_and_below_transactional_id"),
            several=Several(
                TRANSACTIONS_TOPIC, "transactions", "results_by_transaction", "transactional_id", 4
            ),
            writes=True,
        ),
        handler=lambda parts: _to_coordinator(
            parts,
            parts.transactions.additions.on_add_partitions_to_txn,
            "v3_and_below_transactional_id",
            (
                "v3_and_below_transactional_id",
                "v3_and_below_producer_id",
                "v3_and_below_producer_epoch",
            ),
        ),
    ),
    ApiRow(
        Api(25, "AddOffsetsToTxn", 0, 4, flexible_from=3, most_elements=FEW),
        right=rule(
            whole(WRITE, TRANSACTIONAL_ID, "transactional_id"), whole(READ, GROUP, "group_id")
        ),
        coordination=Coordination(one=One(TRANSACTIONS_TOPIC, "transactional_id"), writes=True),
        handler=lambda parts: _to_coordinator(
            parts,
            parts.transactions.additions.on_add_offsets_to_txn,
            "transactional_id",
            ("transactional_id", "producer_id", "producer_epoch"),
        ),
    ),
    ApiRow(
        Api(26, "EndTxn", 0, 5, flexible_from=3, most_elements=FEW),
        right=rule(whole(WRITE, TRANSACTIONAL_ID, "transactional_id")),
        coordination=Coordination(one=One(TRANSACTIONS_TOPIC, "transactional_id"), writes=True),
        handler=lambda parts: parts.transaction_ends.on_end_txn,
    ),
    ApiRow(
        Api(27, "WriteTxnMarkers", 0, 2, flexible_from=1),
        right=rule(on_cluster(ALTER, CLUSTER_ACTION)),
        shapes=(
            Shape(
                (
                    Level("markers", "markers", ("producer_id", "producer_epoch")),
                    Level("topics", "topics", ("name",)),
                    Level("partition_indexes", "partitions"),
                ),
                at_once=50,
            ),
        ),
        handler=lambda parts: (
            WriteTxnMarkersHandler(
                parts.requests, parts.cluster, parts.groups, parts.progress, parts.files_ahead
            ).on_write_txn_markers
        ),
    ),
    ApiRow(
        Api(28, "TxnOffsetCommit", 0, 5, flexible_from=3),
        right=rule(
            whole(WRITE, TRANSACTIONAL_ID, "transactional_id"),
            whole(READ, GROUP, "group_id"),
            each(READ, TOPIC, "topics.name"),
        ),
        shapes=(Shape(of_partitions(Level("topics", "topics", ("name",))), Repeats.KEPT),),
        coordination=Coordination(one=One(OFFSETS_TOPIC, "group_id"), writes=True),
        handler=lambda parts: (
            TxnOffsetCommitHandler(
                parts.requests,
                parts.topics,
                parts.transactions,
                parts.endings,
                parts.transaction_ends,
                parts.groups,
                parts.group_runtime,
            ).on_txn_offset_commit
        ),
    ),
    ApiRow(
        Api(61, "DescribeProducers", 0, 0, flexible_from=0),
        right=rule(each(READ, TOPIC, "topics.name")),
        shapes=(
            Shape(
                of_partitions(Level("topics", "topics", ("name",)), "partition_indexes"), at_once=50
            ),
        ),
        handler=lambda parts: partial(on_describe_producers, parts.requests, parts.cluster),
    ),
    ApiRow(
        Api(65, "DescribeTransactions", 0, 0, flexible_from=0),
        right=rule(
            each(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids"),
            in_answer(
                guards.hide_topics_of_transactions, Ask(DESCRIBE, TOPIC, "for each in the answer")
            ),
        ),
        shapes=(Shape(of_rows("transactional_ids", "transaction_states"), at_once=10),),
        coordination=Coordination(
            several=Several(TRANSACTIONS_TOPIC, "transactional_ids", "transaction_states")
        ),
        read=lambda parts: DescribeTransactionsWithHostsRequest.read,
        handler=lambda parts: partial(
            on_describe_transactions,
            parts.requests,
            parts.transactions,
            parts.transaction_ends,
            parts.connections,
        ),
    ),
    ApiRow(
        Api(66, "ListTransactions", 0, 2, flexible_from=0, most_elements=10_000),
        right=rule(in_handler(Ask(DESCRIBE, TRANSACTIONAL_ID, "for each that is listed"))),
        coordination=Coordination(
            listed=Several(TRANSACTIONS_TOPIC, "", "transaction_states", "transactional_id")
        ),
        handler=lambda parts: partial(
            on_list_transactions, parts.requests, parts.access, parts.cluster, parts.transactions
        ),
    ),
)
