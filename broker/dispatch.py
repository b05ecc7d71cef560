"""The table from a request to who answers it, with what is done around it.

| what is done around a request | by |
|---|---|
| its body is read; one that cannot be read ends the connection | `route` |
| it is parked, and a coordinator's Result answers it, now or later | `to_groups`, `to_transactions` |
| one that was delayed on a connection that its producer has given up ends that | `guard` |
| it is held back while the last transaction of its transactional id is completed | `hold_back` |

Handlers of `broker/handlers` do the rest themselves. Each row loads its handler and its messages
when the first such request comes: all of them together would be a tenth of the broker's start.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.outbox import PARKED, Answer
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.result import Result
from barnabas.coordinator.transaction_coordinator import TransactionCoordinator
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer, MalformedMessageError
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.core import Broker

Request = TypeVar("Request", bound=Message)
Read = Callable[[Buffer, int, int], tuple[Request, int]]
Handler = Callable[["Broker", Request, RequestContext], Answer]
Prepared = Callable[["Broker", RequestContext], Answer]
"""A request that is read, ready to be handled."""

Route = Callable[[memoryview, int, int], Prepared]
"""Reads the body of one kind of request: f(frame, where the body begins, version).

Raises: ProtocolViolation where it cannot be read.
After:  nothing of the request is a view of the frame but the records of a Produce.
"""


def route(
    request_class: type[Request], handle: Handler[Request], read: Read[Request] | None = None
) -> Route:
    """A row: how the request is read (if None, by its class), and who handles it."""
    read = read or request_class.read
    name = request_class.__name__.removesuffix("Request")

    def read_request(frame: memoryview, at: int, version: int) -> Prepared:
        try:
            request, _ = read(frame, at, version)
        except (struct.error, IndexError, MalformedMessageError) as error:
            raise ProtocolViolation(
                f"the body of a {name} request cannot be read: {error}"
            ) from error
        return lambda broker, context: handle(broker, request, context)

    return read_request


# --- around a request ---------------------------------------------------------------------------


def to_groups(
    decide: Callable[[GroupCoordinator, Request, RequestContext, int], Result],
) -> Handler[Request]:
    """The group coordinator answers it: parked first, since the answer comes out of a Result."""

    def handle(broker: Broker, request: Request, context: RequestContext) -> Answer:
        broker.park(context)
        result = decide(broker.groups, request, context, context.now_ms)
        broker.runtime.run_groups(result, context.now_ms)
        return PARKED

    return handle


def to_transactions(
    decide: Callable[[TransactionCoordinator, Request, RequestContext, int], Result],
    *,
    hold_back: Callable[[Request], str | None] | None = None,
    guard: Callable[[Request], tuple[str, int, int]] | None = None,
) -> Handler[Request]:
    """The transaction coordinator answers it.

    Takes: hold_back, the transactional id whose last transaction is completed first. guard, for
           what adds to a transaction: (transactional id, producer id, producer epoch) of whom it
           says it is from.
    """

    def handle(broker: Broker, request: Request, context: RequestContext) -> Answer:
        if guard is not None:
            transactional_id, producer_id, producer_epoch = guard(request)
            broker.runtime.check_connection(
                transactional_id, (producer_id, producer_epoch), context.connection_id, adds=True
            )
        broker.park(context)

        def run(now_ms: int) -> None:
            broker.runtime.run_transactions(
                decide(broker.transactions, request, context, now_ms), now_ms
            )

        broker.runtime.when_complete(
            None if hold_back is None else hold_back(request), run, context.now_ms
        )
        return PARKED

    return handle


# --- the rows -----------------------------------------------------------------------------------


def _produce() -> Route:
    from barnabas.broker.handlers.produce import on_produce
    from barnabas.protocol.hot_requests import read_produce
    from barnabas.protocol.messages.produce import ProduceRequest

    return route(ProduceRequest, on_produce, read_produce)


def _fetch() -> Route:
    from barnabas.broker.handlers.fetch import on_fetch
    from barnabas.protocol.hot_requests import read_fetch
    from barnabas.protocol.messages.fetch import FetchRequest

    return route(FetchRequest, on_fetch, read_fetch)


def _list_offsets() -> Route:
    from barnabas.broker.handlers.list_offsets import on_list_offsets
    from barnabas.protocol.messages.list_offsets import ListOffsetsRequest

    return route(ListOffsetsRequest, on_list_offsets)


def _metadata() -> Route:
    from barnabas.broker.handlers.metadata import on_metadata
    from barnabas.protocol.messages.metadata import MetadataRequest

    return route(MetadataRequest, on_metadata)


def _offset_commit() -> Route:
    from barnabas.protocol.messages.offset_commit import OffsetCommitRequest

    return route(OffsetCommitRequest, to_groups(GroupCoordinator.on_offset_commit))


def _offset_fetch() -> Route:
    from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest

    return route(OffsetFetchRequest, to_groups(GroupCoordinator.on_offset_fetch))


def _find_coordinator() -> Route:
    from barnabas.broker.handlers.coordinators import on_find_coordinator
    from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest

    return route(FindCoordinatorRequest, on_find_coordinator)


def _join_group() -> Route:
    from barnabas.protocol.messages.join_group import JoinGroupRequest

    return route(JoinGroupRequest, to_groups(GroupCoordinator.on_join_group))


def _heartbeat() -> Route:
    from barnabas.protocol.messages.heartbeat import HeartbeatRequest

    return route(HeartbeatRequest, to_groups(GroupCoordinator.on_heartbeat))


def _leave_group() -> Route:
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest

    return route(LeaveGroupRequest, to_groups(GroupCoordinator.on_leave_group))


def _sync_group() -> Route:
    from barnabas.protocol.messages.sync_group import SyncGroupRequest

    return route(SyncGroupRequest, to_groups(GroupCoordinator.on_sync_group))


def _describe_groups() -> Route:
    from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest

    return route(DescribeGroupsRequest, to_groups(GroupCoordinator.on_describe_groups))


def _list_groups() -> Route:
    from barnabas.protocol.messages.list_groups import ListGroupsRequest

    return route(ListGroupsRequest, to_groups(GroupCoordinator.on_list_groups))


def _api_versions() -> Route:
    from barnabas.broker.handlers.api_versions import on_api_versions
    from barnabas.protocol.messages.api_versions import ApiVersionsRequest

    return route(ApiVersionsRequest, on_api_versions)


def _create_topics() -> Route:
    from barnabas.broker.handlers.topics import on_create_topics
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest

    return route(CreateTopicsRequest, on_create_topics)


def _delete_topics() -> Route:
    from barnabas.broker.handlers.topics import on_delete_topics
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest

    return route(DeleteTopicsRequest, on_delete_topics)


def _delete_records() -> Route:
    from barnabas.broker.handlers.delete_records import on_delete_records
    from barnabas.protocol.messages.delete_records import DeleteRecordsRequest

    return route(DeleteRecordsRequest, on_delete_records)


def _init_producer_id() -> Route:
    from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

    return route(
        InitProducerIdRequest,
        to_transactions(
            TransactionCoordinator.on_init_producer_id,
            hold_back=lambda request: request.transactional_id,
        ),
    )


def _offset_for_leader_epoch() -> Route:
    from barnabas.broker.handlers.leader_epochs import on_offset_for_leader_epoch
    from barnabas.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

    return route(OffsetForLeaderEpochRequest, on_offset_for_leader_epoch)


def _add_partitions_to_txn() -> Route:
    from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

    return route(
        AddPartitionsToTxnRequest,
        to_transactions(
            TransactionCoordinator.on_add_partitions_to_txn,
            hold_back=lambda request: (
                request.v3_and_below_transactional_id
            ),  # none where it names many
            guard=lambda request: (
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
            ),
        ),
    )


def _add_offsets_to_txn() -> Route:
    from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

    return route(
        AddOffsetsToTxnRequest,
        to_transactions(
            TransactionCoordinator.on_add_offsets_to_txn,
            hold_back=lambda request: request.transactional_id,
            guard=lambda request: (
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
            ),
        ),
    )


def _end_txn() -> Route:
    from barnabas.broker.handlers.transactions import on_end_txn
    from barnabas.protocol.messages.end_txn import EndTxnRequest

    return route(EndTxnRequest, on_end_txn)


def _write_txn_markers() -> Route:
    from barnabas.broker.handlers.transactions import on_write_txn_markers
    from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

    return route(WriteTxnMarkersRequest, on_write_txn_markers)


def _txn_offset_commit() -> Route:
    from barnabas.broker.handlers.transactions import on_txn_offset_commit
    from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

    return route(TxnOffsetCommitRequest, on_txn_offset_commit)


def _describe_configs() -> Route:
    from barnabas.broker.handlers.configs import on_describe_configs
    from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest

    return route(DescribeConfigsRequest, on_describe_configs)


def _alter_configs() -> Route:
    from barnabas.broker.handlers.configs import on_alter_configs
    from barnabas.protocol.messages.alter_configs import AlterConfigsRequest

    return route(AlterConfigsRequest, on_alter_configs)


def _describe_log_dirs() -> Route:
    from barnabas.broker.handlers.log_dirs import on_describe_log_dirs
    from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

    return route(DescribeLogDirsRequest, on_describe_log_dirs)


def _create_partitions() -> Route:
    from barnabas.broker.handlers.topics import on_create_partitions
    from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest

    return route(CreatePartitionsRequest, on_create_partitions)


def _delete_groups() -> Route:
    from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest

    return route(DeleteGroupsRequest, to_groups(GroupCoordinator.on_delete_groups))


def _elect_leaders() -> Route:
    from barnabas.broker.handlers.cluster import on_elect_leaders
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest

    return route(ElectLeadersRequest, on_elect_leaders)


def _incremental_alter_configs() -> Route:
    from barnabas.broker.handlers.configs import on_incremental_alter_configs
    from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

    return route(IncrementalAlterConfigsRequest, on_incremental_alter_configs)


def _alter_partition_reassignments() -> Route:
    from barnabas.broker.handlers.cluster import on_alter_partition_reassignments
    from barnabas.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
    )

    return route(AlterPartitionReassignmentsRequest, on_alter_partition_reassignments)


def _list_partition_reassignments() -> Route:
    from barnabas.broker.handlers.cluster import on_list_partition_reassignments
    from barnabas.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
    )

    return route(ListPartitionReassignmentsRequest, on_list_partition_reassignments)


def _offset_delete() -> Route:
    from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest

    return route(OffsetDeleteRequest, to_groups(GroupCoordinator.on_offset_delete))


def _describe_cluster() -> Route:
    from barnabas.broker.handlers.cluster import on_describe_cluster
    from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest

    return route(DescribeClusterRequest, on_describe_cluster)


def _describe_producers() -> Route:
    from barnabas.broker.handlers.transactions import on_describe_producers
    from barnabas.protocol.messages.describe_producers import DescribeProducersRequest

    return route(DescribeProducersRequest, on_describe_producers)


def _describe_transactions() -> Route:
    from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest

    return route(
        DescribeTransactionsRequest,
        to_transactions(TransactionCoordinator.on_describe_transactions),
    )


def _list_transactions() -> Route:
    from barnabas.protocol.messages.list_transactions import ListTransactionsRequest

    return route(
        ListTransactionsRequest, to_transactions(TransactionCoordinator.on_list_transactions)
    )


def _list_config_resources() -> Route:
    from barnabas.broker.handlers.configs import on_list_client_metrics_resources
    from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest

    return route(ListConfigResourcesRequest, on_list_client_metrics_resources)


def _describe_topic_partitions() -> Route:
    from barnabas.broker.handlers.cluster import on_describe_topic_partitions
    from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest

    return route(DescribeTopicPartitionsRequest, on_describe_topic_partitions)


ROUTES: dict[int, Callable[[], Route]] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _join_group,
    12: _heartbeat,
    13: _leave_group,
    14: _sync_group,
    15: _describe_groups,
    16: _list_groups,
    18: _api_versions,
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    22: _init_producer_id,
    23: _offset_for_leader_epoch,
    24: _add_partitions_to_txn,
    25: _add_offsets_to_txn,
    26: _end_txn,
    27: _write_txn_markers,
    28: _txn_offset_commit,
    32: _describe_configs,
    33: _alter_configs,
    35: _describe_log_dirs,
    37: _create_partitions,
    42: _delete_groups,
    43: _elect_leaders,
    44: _incremental_alter_configs,
    45: _alter_partition_reassignments,
    46: _list_partition_reassignments,
    47: _offset_delete,
    60: _describe_cluster,
    61: _describe_producers,
    65: _describe_transactions,
    66: _list_transactions,
    74: _list_config_resources,
    75: _describe_topic_partitions,
}
"""By API key: what loads the route."""
