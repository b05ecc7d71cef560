"""The table from an API to what reads and answers its requests, with what is done around each.

Every request goes this way, in this order:

| what | by |
|---|---|
| its header is read; an API or version that is not spoken is refused | `Broker.on_frame` |
| its body is read; one that cannot be read ends the connection | `read_body` |
| with an authorizer: what of it is not allowed is refused | `security/authorization.py` |
| of several brokers: one that its coordinator is not refuses it | `coordinator_edge.py` |
| its handler answers it | `Route.handle` |
| ...parks it; a coordinator's Result answers it, now or later | `to_groups`, `to_transactions` |
| ...ends the connection of a request that was delayed on one given up | `to_transactions`: guard |
| ...holds it back while the id's last transaction is ending | `to_transactions`: hold_back |
| what it names again is left out; where it names much it goes in parts | `wide_requests.py` |
| with client quotas: what it uses is recorded, its client throttled | `quotas/client_quotas.py` |
| its response is encoded and sent; a parked one's later | `Broker` |

A row names the message and the function by reference, and gives the function what it uses of the
broker; one that parks its requests gets the broker. It is loaded when the first such request comes:
all messages and handlers together would be a tenth of the broker's start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.outbox import PARKED, Answer, Work
from barnabas.broker.requests.routes import Decide, Handler, Request, Route, route
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer
from barnabas.protocol.request_context import RequestContext

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.coordinator.groups.consumer.topic_patterns import (
        InvalidPatternError,
        TopicPattern,
    )
    from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def to_groups(broker: Broker, decide: Decide[Request]) -> Handler[Request]:
    """The group coordinator answers it: parked first, since the answer comes out of a Result."""
    runtime = broker.runtime

    def handle(request: Request, context: RequestContext) -> Answer:
        broker.park(context)
        runtime.run_groups(decide(request, context, context.now_ms), context.now_ms)
        return PARKED

    return handle


def after_zookeeper(handle: Handler[Request]) -> Handler[Request]:
    """Hand on requests from version 1 on; version 0 of a request about offsets asks for those in
    ZooKeeper.
    """

    def handle_if_not_there(request: Request, context: RequestContext) -> Answer:
        if context.api_version > 0:
            return handle(request, context)
        from barnabas.broker.handlers.groups import without_zookeeper

        return without_zookeeper(request)

    return handle_if_not_there


def to_consumer_groups(broker: Broker, decide: Decide[Request]) -> Handler[Request]:
    """`to_groups` for a request of the consumer protocol, which may be off (`group.version`)."""
    handle = to_groups(broker, decide)

    def handle_if_spoken(request: Request, context: RequestContext) -> Answer:
        if broker.speaks_consumer_groups:
            return handle(request, context)
        from barnabas.broker.handlers.groups import without_consumer_groups

        return without_consumer_groups(request)

    return handle_if_spoken


def with_pattern_read(
    broker: Broker, handle: Handler[ConsumerGroupHeartbeatRequest]
) -> Handler[ConsumerGroupHeartbeatRequest]:
    """Have the worker read a heartbeat's pattern first, where that takes long."""

    def handle_when_read(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Answer:
        if not request.subscribed_topic_regex or not broker.speaks_consumer_groups:
            return handle(request, context)
        text = broker.groups.pattern_to_read(request)
        if text is None:
            return handle(request, context)
        from barnabas.coordinator.groups.consumer.topic_patterns import read_pattern

        def done(made: TopicPattern | InvalidPatternError, now_ms: int) -> None:
            broker.groups.keep_pattern(text, made)
            if context.connection_id not in broker.connections:
                return
            answer = handle(request, context._replace(now_ms=now_ms))
            if isinstance(answer, Message):
                broker.reply(context.ticket, answer)

        broker.park(context)
        work = Work(context.connection_id, partial(read_pattern, text), done, len(text))
        broker.outbox.work.append(work)
        return PARKED

    return handle_when_read


def to_transactions(
    broker: Broker,
    decide: Decide[Request],
    *,
    hold_back: Callable[[Request], str | None] | None = None,
    guard: Callable[[Request], tuple[str, int, int]] | None = None,
) -> Handler[Request]:
    """The transaction coordinator answers it.

    Takes: hold_back, the transactional id whose last transaction is completed first. guard, for
           what adds to a transaction: (transactional id, producer id, producer epoch) of whom it
           says it is from.
    """
    runtime = broker.runtime

    def handle(request: Request, context: RequestContext) -> Answer:
        if guard is not None:
            transactional_id, producer_id, producer_epoch = guard(request)
            broker.transactions.check_connection(
                transactional_id,
                (producer_id, producer_epoch),
                context.connection_id,
                node_id=context.node_id,
            )
        broker.park(context)

        def run(now_ms: int) -> None:
            runtime.run_transactions(decide(request, context, now_ms), now_ms)

        broker.transaction_ends.hold_back(
            None if hold_back is None else hold_back(request), run, context.now_ms
        )
        return PARKED

    return handle


# --- the rows -----------------------------------------------------------------------------------


def _produce(broker: Broker) -> Route:
    from barnabas.broker.handlers.produce import on_produce
    from barnabas.protocol.hot_requests import read_produce
    from barnabas.protocol.messages.produce import ProduceRequest

    most_other_bytes = broker.config.barnabas_request_max_bytes

    def read(data: Buffer, at: int, version: int) -> tuple[ProduceRequest, int]:
        return read_produce(data, at, version, most_other_bytes)

    return route(ProduceRequest, partial(on_produce, broker), read)


def _fetch(broker: Broker) -> Route:
    from barnabas.broker.handlers.fetch import on_fetch
    from barnabas.protocol.hot_requests import read_fetch
    from barnabas.protocol.messages.fetch import FetchRequest

    return route(FetchRequest, partial(on_fetch, broker), read_fetch)


def _list_offsets(broker: Broker) -> Route:
    from barnabas.broker.handlers.list_offsets import on_list_offsets
    from barnabas.protocol.messages.list_offsets import ListOffsetsRequest

    return route(
        ListOffsetsRequest, lambda request, context: on_list_offsets(broker, request, context)
    )


def _metadata(broker: Broker) -> Route:
    from barnabas.broker.handlers.metadata import on_metadata
    from barnabas.protocol.messages.metadata import MetadataRequest

    return route(MetadataRequest, lambda request, context: on_metadata(broker, request, context))


def _offset_commit(broker: Broker) -> Route:
    from barnabas.protocol.messages.offset_commit import OffsetCommitRequest

    return route(
        OffsetCommitRequest, after_zookeeper(to_groups(broker, broker.groups.on_offset_commit))
    )


def _offset_fetch(broker: Broker) -> Route:
    from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest

    return route(
        OffsetFetchRequest, after_zookeeper(to_groups(broker, broker.groups.on_offset_fetch))
    )


def _find_coordinator(broker: Broker) -> Route:
    from barnabas.broker.handlers.coordinators import on_find_coordinator
    from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest

    return route(
        FindCoordinatorRequest,
        lambda request, context: on_find_coordinator(broker, request, context),
    )


def _join_group(broker: Broker) -> Route:
    from barnabas.protocol.messages.join_group import JoinGroupRequest

    return route(JoinGroupRequest, to_groups(broker, broker.groups.on_join_group))


def _heartbeat(broker: Broker) -> Route:
    from barnabas.protocol.messages.heartbeat import HeartbeatRequest

    return route(HeartbeatRequest, to_groups(broker, broker.groups.on_heartbeat))


def _leave_group(broker: Broker) -> Route:
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest

    return route(LeaveGroupRequest, to_groups(broker, broker.groups.on_leave_group))


def _sync_group(broker: Broker) -> Route:
    from barnabas.protocol.messages.sync_group import SyncGroupRequest

    return route(SyncGroupRequest, to_groups(broker, broker.groups.on_sync_group))


def _describe_groups(broker: Broker) -> Route:
    from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest

    return route(DescribeGroupsRequest, to_groups(broker, broker.groups.on_describe_groups))


def _list_groups(broker: Broker) -> Route:
    from barnabas.protocol.messages.list_groups import ListGroupsRequest

    return route(
        ListGroupsRequest,
        lambda request, context: broker.read_in_slices(context, broker.groups.list_groups(request)),
    )


def _api_versions(broker: Broker) -> Route:
    from barnabas.broker.handlers.api_versions import on_api_versions
    from barnabas.protocol.messages.api_versions import ApiVersionsRequest

    return route(
        ApiVersionsRequest,
        lambda request, context: on_api_versions(
            broker.connections, broker.told_apis(), broker.features, request, context
        ),
    )


def _create_topics(broker: Broker) -> Route:
    from barnabas.broker.handlers.topics import on_create_topics
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest

    return route(
        CreateTopicsRequest, lambda request, context: on_create_topics(broker, request, context)
    )


def _delete_topics(broker: Broker) -> Route:
    from barnabas.broker.handlers.topics import on_delete_topics
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest

    return route(
        DeleteTopicsRequest, lambda request, context: on_delete_topics(broker, request, context)
    )


def _delete_records(broker: Broker) -> Route:
    from barnabas.broker.handlers.delete_records import on_delete_records
    from barnabas.protocol.messages.delete_records import DeleteRecordsRequest

    return route(
        DeleteRecordsRequest,
        lambda request, context: on_delete_records(broker, request, context),
    )


def _init_producer_id(broker: Broker) -> Route:
    from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

    return route(
        InitProducerIdRequest,
        to_transactions(
            broker,
            broker.transactions.on_init_producer_id,
            hold_back=lambda request: request.transactional_id,
        ),
    )


def _offset_for_leader_epoch(broker: Broker) -> Route:
    from barnabas.broker.handlers.leader_epochs import on_offset_for_leader_epoch
    from barnabas.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

    return route(
        OffsetForLeaderEpochRequest,
        lambda request, context: on_offset_for_leader_epoch(
            broker.topics_of(context), request, context
        ),
    )


def _add_partitions_to_txn(broker: Broker) -> Route:
    from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

    return route(
        AddPartitionsToTxnRequest,
        to_transactions(
            broker,
            broker.transactions.on_add_partitions_to_txn,
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


def _add_offsets_to_txn(broker: Broker) -> Route:
    from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

    return route(
        AddOffsetsToTxnRequest,
        to_transactions(
            broker,
            broker.transactions.on_add_offsets_to_txn,
            hold_back=lambda request: request.transactional_id,
            guard=lambda request: (
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
            ),
        ),
    )


def _end_txn(broker: Broker) -> Route:
    from barnabas.protocol.messages.end_txn import EndTxnRequest

    return route(EndTxnRequest, broker.transaction_ends.on_end_txn)


def _write_txn_markers(broker: Broker) -> Route:
    from barnabas.broker.handlers.transactions import on_write_txn_markers
    from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

    return route(
        WriteTxnMarkersRequest,
        lambda request, context: on_write_txn_markers(broker, request, context),
    )


def _txn_offset_commit(broker: Broker) -> Route:
    from barnabas.broker.handlers.transactions import on_txn_offset_commit
    from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

    return route(
        TxnOffsetCommitRequest,
        lambda request, context: on_txn_offset_commit(broker, request, context),
    )


def _describe_acls(broker: Broker) -> Route:
    from barnabas.broker.handlers.acls import on_describe_acls
    from barnabas.protocol.messages.describe_acls import DescribeAclsRequest

    return route(
        DescribeAclsRequest, lambda request, context: on_describe_acls(broker, request, context)
    )


def _create_acls(broker: Broker) -> Route:
    from barnabas.broker.handlers.acls import on_create_acls
    from barnabas.protocol.messages.create_acls import CreateAclsRequest

    return route(
        CreateAclsRequest, lambda request, context: on_create_acls(broker, request, context)
    )


def _delete_acls(broker: Broker) -> Route:
    from barnabas.broker.handlers.acls import on_delete_acls
    from barnabas.protocol.messages.delete_acls import DeleteAclsRequest

    return route(
        DeleteAclsRequest, lambda request, context: on_delete_acls(broker, request, context)
    )


def _describe_configs(broker: Broker) -> Route:
    from barnabas.broker.handlers.configs import on_describe_configs
    from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest

    return route(
        DescribeConfigsRequest,
        lambda request, context: on_describe_configs(broker, request, context),
    )


def _alter_configs(broker: Broker) -> Route:
    from barnabas.broker.handlers.configs import on_alter_configs
    from barnabas.protocol.messages.alter_configs import AlterConfigsRequest

    return route(
        AlterConfigsRequest, lambda request, context: on_alter_configs(broker, request, context)
    )


def _alter_replica_log_dirs(broker: Broker) -> Route:
    from barnabas.broker.handlers.log_dirs import on_alter_replica_log_dirs
    from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest

    return route(
        AlterReplicaLogDirsRequest,
        lambda request, context: on_alter_replica_log_dirs(broker.topics, request, context),
    )


def _describe_log_dirs(broker: Broker) -> Route:
    from barnabas.broker.handlers.log_dirs import on_describe_log_dirs
    from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

    return route(
        DescribeLogDirsRequest,
        lambda request, context: on_describe_log_dirs(broker, request, context),
    )


def _create_partitions(broker: Broker) -> Route:
    from barnabas.broker.handlers.topics import on_create_partitions
    from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest

    return route(
        CreatePartitionsRequest,
        lambda request, context: on_create_partitions(broker, request, context),
    )


def _create_delegation_token(broker: Broker) -> Route:
    from barnabas.broker.handlers.delegation_tokens import on_create_delegation_token
    from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest

    return route(
        CreateDelegationTokenRequest,
        lambda request, context: on_create_delegation_token(broker, request, context),
    )


def _renew_delegation_token(broker: Broker) -> Route:
    from barnabas.broker.handlers.delegation_tokens import on_renew_delegation_token
    from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

    return route(
        RenewDelegationTokenRequest,
        lambda request, context: on_renew_delegation_token(broker, request, context),
    )


def _expire_delegation_token(broker: Broker) -> Route:
    from barnabas.broker.handlers.delegation_tokens import on_expire_delegation_token
    from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest

    return route(
        ExpireDelegationTokenRequest,
        lambda request, context: on_expire_delegation_token(broker, request, context),
    )


def _describe_delegation_token(broker: Broker) -> Route:
    from barnabas.broker.handlers.delegation_tokens import on_describe_delegation_token
    from barnabas.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest

    return route(
        DescribeDelegationTokenRequest,
        lambda request, context: on_describe_delegation_token(broker, request, context),
    )


def _delete_groups(broker: Broker) -> Route:
    from barnabas.broker.handlers.groups import on_delete_groups
    from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest

    return route(
        DeleteGroupsRequest, lambda request, context: on_delete_groups(broker, request, context)
    )


def _elect_leaders(broker: Broker) -> Route:
    from barnabas.broker.handlers.cluster import on_elect_leaders
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest

    return route(
        ElectLeadersRequest, lambda request, context: on_elect_leaders(broker, request, context)
    )


def _incremental_alter_configs(broker: Broker) -> Route:
    from barnabas.broker.handlers.configs import on_incremental_alter_configs
    from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

    return route(
        IncrementalAlterConfigsRequest,
        lambda request, context: on_incremental_alter_configs(broker, request, context),
    )


def _alter_partition_reassignments(broker: Broker) -> Route:
    from barnabas.broker.handlers.cluster import on_alter_partition_reassignments
    from barnabas.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
    )

    return route(
        AlterPartitionReassignmentsRequest,
        lambda request, context: on_alter_partition_reassignments(broker, request, context),
    )


def _list_partition_reassignments(broker: Broker) -> Route:
    from barnabas.broker.handlers.cluster import on_list_partition_reassignments
    from barnabas.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
    )

    return route(
        ListPartitionReassignmentsRequest,
        lambda request, context: on_list_partition_reassignments(broker, request, context),
    )


def _offset_delete(broker: Broker) -> Route:
    from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest

    return route(OffsetDeleteRequest, to_groups(broker, broker.groups.on_offset_delete))


def _sasl_handshake(broker: Broker) -> Route:
    from barnabas.broker.handlers.scram_credentials import on_sasl_handshake
    from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest

    return route(SaslHandshakeRequest, on_sasl_handshake)


def _sasl_authenticate(broker: Broker) -> Route:
    from barnabas.broker.handlers.scram_credentials import on_sasl_authenticate
    from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

    return route(SaslAuthenticateRequest, on_sasl_authenticate)


def _describe_client_quotas(broker: Broker) -> Route:
    from barnabas.broker.handlers.client_quotas import on_describe_client_quotas
    from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

    return route(
        DescribeClientQuotasRequest,
        lambda request, context: on_describe_client_quotas(broker.metadata, request, context),
    )


def _alter_client_quotas(broker: Broker) -> Route:
    from barnabas.broker.handlers.client_quotas import on_alter_client_quotas
    from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

    return route(
        AlterClientQuotasRequest,
        lambda request, context: on_alter_client_quotas(broker, request, context),
    )


def _describe_user_scram_credentials(broker: Broker) -> Route:
    from barnabas.broker.handlers.scram_credentials import on_describe_user_scram_credentials
    from barnabas.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
    )

    return route(
        DescribeUserScramCredentialsRequest,
        lambda request, context: on_describe_user_scram_credentials(
            broker.metadata, request, context
        ),
    )


def _alter_user_scram_credentials(broker: Broker) -> Route:
    from barnabas.broker.handlers.scram_credentials import on_alter_user_scram_credentials
    from barnabas.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
    )

    return route(
        AlterUserScramCredentialsRequest,
        lambda request, context: on_alter_user_scram_credentials(broker.metadata, request, context),
    )


def _describe_quorum(broker: Broker) -> Route:
    from barnabas.broker.handlers.quorum import on_describe_quorum
    from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest

    return route(
        DescribeQuorumRequest,
        lambda request, context: on_describe_quorum(broker, request, context),
    )


def _update_features(broker: Broker) -> Route:
    from barnabas.broker.handlers.update_features import on_update_features
    from barnabas.protocol.messages.update_features import UpdateFeaturesRequest

    return route(
        UpdateFeaturesRequest, lambda request, context: on_update_features(broker, request, context)
    )


def _unregister_broker(broker: Broker) -> Route:
    from barnabas.broker.handlers.voters import on_unregister_broker
    from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest

    return route(
        UnregisterBrokerRequest,
        lambda request, context: on_unregister_broker(broker, request, context),
    )


def _get_telemetry_subscriptions(broker: Broker) -> Route:
    from barnabas.broker.handlers.telemetry import on_get_telemetry_subscriptions
    from barnabas.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest,
    )

    return route(
        GetTelemetrySubscriptionsRequest,
        lambda request, context: on_get_telemetry_subscriptions(broker, request, context),
    )


def _push_telemetry(broker: Broker) -> Route:
    from barnabas.broker.handlers.telemetry import on_push_telemetry
    from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest

    return route(
        PushTelemetryRequest, lambda request, context: on_push_telemetry(broker, request, context)
    )


def _add_raft_voter(broker: Broker) -> Route:
    from barnabas.broker.handlers.voters import on_add_raft_voter
    from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest

    return route(
        AddRaftVoterRequest, lambda request, context: on_add_raft_voter(broker, request, context)
    )


def _remove_raft_voter(broker: Broker) -> Route:
    from barnabas.broker.handlers.voters import on_remove_raft_voter
    from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

    return route(
        RemoveRaftVoterRequest,
        lambda request, context: on_remove_raft_voter(broker, request, context),
    )


def _describe_cluster(broker: Broker) -> Route:
    from barnabas.broker.handlers.cluster import on_describe_cluster
    from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest

    return route(
        DescribeClusterRequest,
        lambda request, context: on_describe_cluster(broker, request, context),
    )


def _describe_producers(broker: Broker) -> Route:
    from barnabas.broker.handlers.transactions import on_describe_producers
    from barnabas.protocol.messages.describe_producers import DescribeProducersRequest

    return route(
        DescribeProducersRequest,
        lambda request, context: on_describe_producers(broker, request, context),
    )


def _describe_transactions(broker: Broker) -> Route:
    from barnabas.broker.handlers.transactions import add_client_hosts
    from barnabas.protocol.client_hosts import DescribeTransactionsWithHostsRequest

    describe = to_transactions(broker, broker.transactions.on_describe_transactions)

    def handle(request: DescribeTransactionsWithHostsRequest, context: RequestContext) -> Answer:
        if request.asks_for_hosts:
            broker.amend(context.ticket, partial(add_client_hosts, broker))
        return describe(request, context)

    return Route("DescribeTransactions", DescribeTransactionsWithHostsRequest.read, handle)


def _list_transactions(broker: Broker) -> Route:
    from barnabas.broker.handlers.transactions import on_list_transactions
    from barnabas.protocol.messages.list_transactions import ListTransactionsRequest

    return route(ListTransactionsRequest, partial(on_list_transactions, broker))


def _consumer_group_heartbeat(broker: Broker) -> Route:
    from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    return route(
        ConsumerGroupHeartbeatRequest,
        with_pattern_read(
            broker, to_consumer_groups(broker, broker.groups.on_consumer_group_heartbeat)
        ),
    )


def _consumer_group_describe(broker: Broker) -> Route:
    from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    return route(
        ConsumerGroupDescribeRequest,
        to_consumer_groups(broker, broker.groups.on_consumer_group_describe),
    )


def _list_config_resources(broker: Broker) -> Route:
    from barnabas.broker.handlers.configs import on_list_config_resources
    from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest

    return route(
        ListConfigResourcesRequest,
        lambda request, context: on_list_config_resources(broker, request, context),
    )


def _describe_topic_partitions(broker: Broker) -> Route:
    from barnabas.broker.handlers.cluster import on_describe_topic_partitions
    from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest

    return route(
        DescribeTopicPartitionsRequest,
        lambda request, context: on_describe_topic_partitions(broker, request, context),
    )


ROUTES: dict[int, Callable[[Broker], Route]] = {
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
    17: _sasl_handshake,
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
    29: _describe_acls,
    30: _create_acls,
    31: _delete_acls,
    32: _describe_configs,
    33: _alter_configs,
    34: _alter_replica_log_dirs,
    35: _describe_log_dirs,
    36: _sasl_authenticate,
    37: _create_partitions,
    38: _create_delegation_token,
    39: _renew_delegation_token,
    40: _expire_delegation_token,
    41: _describe_delegation_token,
    42: _delete_groups,
    43: _elect_leaders,
    44: _incremental_alter_configs,
    45: _alter_partition_reassignments,
    46: _list_partition_reassignments,
    47: _offset_delete,
    48: _describe_client_quotas,
    49: _alter_client_quotas,
    50: _describe_user_scram_credentials,
    51: _alter_user_scram_credentials,
    55: _describe_quorum,
    57: _update_features,
    60: _describe_cluster,
    61: _describe_producers,
    64: _unregister_broker,
    65: _describe_transactions,
    66: _list_transactions,
    68: _consumer_group_heartbeat,
    69: _consumer_group_describe,
    71: _get_telemetry_subscriptions,
    72: _push_telemetry,
    74: _list_config_resources,
    75: _describe_topic_partitions,
    80: _add_raft_voter,
    81: _remove_raft_voter,
}
"""By API key: what loads the route."""
