"""Requests about transactions and producers (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.topics import by_topic, leaders
from barnabas.cli.errors import RefusedError
from barnabas.client.cluster import TRANSACTION
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition


class ListedTransaction(NamedTuple):
    """A transactional id as ListTransactions returns it."""

    transactional_id: str
    producer_id: int
    state: str


class Transaction(NamedTuple):
    """A transactional id as its coordinator describes it. started_ms: -1 if no transaction is
    open.
    """

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    started_ms: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]


class ActiveProducer(NamedTuple):
    """A producer that wrote to a partition. start_offset: the first offset of its open transaction,
    or -1.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


def list_transactions(
    client: ClusterClient, producer_ids: Sequence[int] = ()
) -> list[ListedTransaction]:
    """The transactional ids of all coordinators, by name, filtered by `producer_ids` unless it is
    empty.
    """
    from barnabas.protocol.messages.list_transactions import (
        ListTransactionsRequest,
        ListTransactionsResponse,
    )

    kind = RequestKind(ListTransactionsRequest, ListTransactionsResponse, 0, 1)
    request = ListTransactionsRequest(producer_id_filters=list(producer_ids))
    found = []
    for node_id in list(client.brokers):

        def ask(node_id: int = node_id) -> ListTransactionsResponse:
            answer = client.node(node_id, kind, request)
            if answer.error_code:
                raise RefusedError(answer.error_code)
            return answer

        found += [
            ListedTransaction(row.transactional_id, row.producer_id, row.transaction_state)
            for row in client.trying(ask).transaction_states
        ]
    return sorted(found)


def describe_transactions(
    client: ClusterClient, names: Iterable[str], *, missing_ok: bool = False
) -> dict[str, Transaction]:
    """Transactional ids as their coordinators describe them, by id.

    Raises: RefusedError. With `missing_ok`, an unknown id is left out instead.
    """
    from barnabas.protocol.messages.describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )

    kind = RequestKind(DescribeTransactionsRequest, DescribeTransactionsResponse, 0, 0)
    found = {}
    for name in names:
        answer = client.coordinator(
            name, kind, DescribeTransactionsRequest([name]),
            lambda answer: answer.transaction_states[0].error_code, key_type=TRANSACTION,
        )  # fmt: skip
        (row,) = answer.transaction_states
        if row.error_code == Code.TRANSACTIONAL_ID_NOT_FOUND and missing_ok:
            continue
        if row.error_code:
            raise RefusedError(row.error_code, "", name)
        found[name] = Transaction(
            name, client.coordinator_id(name, TRANSACTION), row.transaction_state, row.producer_id,
            row.producer_epoch, row.transaction_start_time_ms, row.transaction_timeout_ms,
            frozenset(
                TopicPartition(topic.topic, number)
                for topic in row.topics
                for number in topic.partitions
            ),
        )  # fmt: skip
    return found


def client_hosts(client: ClusterClient, names: Iterable[str]) -> dict[str, str]:
    """The host of each open transaction's producer, by transactional id, if the cluster returns
    it.
    """
    from barnabas.protocol.client_hosts import (
        DescribeTransactionsWithHostsRequest,
        DescribeTransactionsWithHostsResponse,
    )

    kind = RequestKind(
        DescribeTransactionsWithHostsRequest, DescribeTransactionsWithHostsResponse, 0, 0
    )
    hosts = {}
    for name in names:
        request = DescribeTransactionsWithHostsRequest([name], asks_for_hosts=True)
        answer = client.coordinator(name, kind, request, lambda _: 0, key_type=TRANSACTION)
        for row in answer.transaction_states:
            if host := getattr(row, "client_host", ""):
                hosts[row.transactional_id] = host
    return hosts


def active_producers(
    client: ClusterClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    """The producers that have written to each partition, requested from the partition's leader."""
    from barnabas.protocol.messages.describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponse,
        TopicRequest,
    )

    kind = RequestKind(DescribeProducersRequest, DescribeProducersResponse, 0, 0)
    wanted = list(partitions)

    def ask() -> dict[TopicPartition, list[ActiveProducer]]:
        found: dict[TopicPartition, list[ActiveProducer]] = {}
        for node_id, part in leaders(client, wanted).items():
            rows = by_topic(part, lambda row: row.partition)
            request = DescribeProducersRequest(
                [TopicRequest(name, numbers) for name, numbers in rows.items()]
            )
            for topic in client.node(node_id, kind, request).topics:
                for row in topic.partitions:
                    if row.error_code:
                        raise RefusedError(row.error_code, row.error_message, topic.name)
                    found[TopicPartition(topic.name, row.partition_index)] = [
                        ActiveProducer(
                            one.producer_id, one.producer_epoch, one.coordinator_epoch,
                            one.current_txn_start_offset, one.last_timestamp,
                        )
                        for one in row.active_producers
                    ]  # fmt: skip
        return found

    return client.trying(ask)


def write_abort_marker(
    client: ClusterClient,
    partition: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Write the marker that aborts a transaction on one partition. Raises: RefusedError."""
    from barnabas.protocol.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

    kind = RequestKind(WriteTxnMarkersRequest, WriteTxnMarkersResponse, 0, 1)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(partition.topic, [partition.partition])],
        coordinator_epoch=coordinator_epoch,
    )
    ((node_id, _),) = leaders(client, [partition]).items()
    answer = client.node(node_id, kind, WriteTxnMarkersRequest([marker]))
    for written in answer.markers:
        for topic in written.topics:
            for row in topic.partitions:
                if row.error_code:
                    raise RefusedError(row.error_code, "", topic.name)


def init_producer(client: ClusterClient, name: str | None, timeout_ms: int) -> tuple[int, int]:
    """Request the producer id and a new epoch of a transactional id. This fences the previous
    producer with that id. Without an id, request a new producer id for an idempotent producer.

    Gives:  the producer id and its epoch.
    Raises: RefusedError.
    """
    from barnabas.protocol.messages.init_producer_id import (
        InitProducerIdRequest,
        InitProducerIdResponse,
    )

    kind = RequestKind(InitProducerIdRequest, InitProducerIdResponse, 0, 5)
    request = InitProducerIdRequest(name, timeout_ms, -1, -1)
    if name is None:
        answer = client.any(kind, request)
    else:
        answer = client.coordinator(
            name, kind, request, lambda answer: answer.error_code, key_type=TRANSACTION
        )
    if answer.error_code:
        raise RefusedError(answer.error_code, "", name or "")
    return answer.producer_id, answer.producer_epoch


def add_partitions(
    client: ClusterClient,
    name: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> None:
    """Add partitions to the open transaction of a transactional id, or begin one with them.

    Raises: RefusedError.
    """
    from barnabas.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnTopic,
    )

    kind = RequestKind(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, 0, 3)
    rows = by_topic(partitions, lambda row: row.partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(*row) for row in rows.items()],
    )

    def codes_in(answer: AddPartitionsToTxnResponse) -> dict[str, int]:
        """The error code of each topic that has one."""
        return {
            topic.name: row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
            if row.partition_error_code
        }

    def code_of(answer: AddPartitionsToTxnResponse) -> int:
        return next(iter(codes_in(answer).values()), 0)

    answer = client.coordinator(name, kind, request, code_of, key_type=TRANSACTION)
    for topic, code in codes_in(answer).items():
        raise RefusedError(code, "", topic)


def end_transaction(
    client: ClusterClient, name: str, producer_id: int, producer_epoch: int, *, commit: bool
) -> None:
    """Commit or abort the open transaction of a transactional id. Raises: RefusedError."""
    from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

    kind = RequestKind(EndTxnRequest, EndTxnResponse, 0, 4)
    request = EndTxnRequest(name, producer_id, producer_epoch, commit)
    answer = client.coordinator(
        name, kind, request, lambda answer: answer.error_code, key_type=TRANSACTION
    )
    if answer.error_code:
        raise RefusedError(answer.error_code, "", name)
