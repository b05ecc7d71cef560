"""The cluster: DescribeCluster, DescribeTopicPartitions, and the requests that elect leaders
and move replicas.
"""

from __future__ import annotations

import uuid

from barnabas.broker.admission import guards
from barnabas.broker.admission.guard_steps import (
    Ask,
    by_hand,
    each,
    in_answer,
    on_cluster,
    operations_of,
    rule,
)
from barnabas.broker.admission.rights import ALTER, CLUSTER, DESCRIBE, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import NO_LEADER, Cluster
from barnabas.broker.brokers.failover import Failover
from barnabas.broker.brokers.led_partitions import led_partition, led_partition_of_pair
from barnabas.broker.logs.metadata import Topic
from barnabas.broker.logs.topic_names import check_topic_name
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.parts import Parts
from barnabas.broker.requests.wide_requests import Level, Repeats, Shape
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition

NO_ID = uuid.UUID(int=0)
BROKERS, CONTROLLERS = 1, 2
PREFERRED, UNCLEAN = 0, 1
MOST_PARTITIONS_IN_ANSWER = 2000
CLUSTER_OPERATIONS_BITS = sum(
    1 << operation for operation in (5, 7, 8, 9, 10, 11, 12)
)  # the AclOperations on a cluster: CREATE (5) to IDEMPOTENT_WRITE (12), without DELETE (6)
OPERATIONS_NOT_ASKED = -(2**31)
TOPIC_OPERATIONS_BITS = sum(
    1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11)
)  # the AclOperations on a topic: READ (3) to DESCRIBE (8), DESCRIBE_CONFIGS, ALTER_CONFIGS


class ClusterHandler:
    """Answers requests about brokers and about the leaders of partitions."""

    __slots__ = (
        "_addresses",
        "_cluster",
        "_failover",
        "_topics",
    )

    def __init__(
        self,
        topics: TopicRegistry,
        cluster: Cluster,
        addresses: Addresses,
        failover: Failover,
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._addresses = addresses
        self._failover = failover

    def on_describe_cluster(
        self, request: DescribeClusterRequest, context: RequestContext
    ) -> DescribeClusterResponse:
        """The running brokers.

        Errors: MISMATCHED_ENDPOINT_TYPE for controllers, which have no address;
        UNSUPPORTED_ENDPOINT_TYPE for other kinds.
        """
        endpoint_type = request.endpoint_type if context.api_version >= 1 else BROKERS
        code, message = Code.NONE, None
        if endpoint_type == CONTROLLERS:
            code, message = (
                Code.MISMATCHED_ENDPOINT_TYPE,
                "This address is a broker's: ask for brokers (endpoint type 1).",
            )
        elif endpoint_type != BROKERS:
            code, message = (
                Code.UNSUPPORTED_ENDPOINT_TYPE,
                f"The endpoint type {endpoint_type} is unknown: ask for brokers (endpoint type 1).",
            )
        rows = [DescribeClusterBroker(*endpoint) for endpoint in self._addresses.endpoints(context)]
        tells_operations = request.include_cluster_authorized_operations and code is Code.NONE
        return DescribeClusterResponse(
            error_code=code,
            error_message=message,
            endpoint_type=endpoint_type,
            cluster_id=self._topics.logs.cluster_id or "",
            controller_id=self._cluster.controller_id if code is Code.NONE else -1,
            brokers=rows if code is Code.NONE else [],
            cluster_authorized_operations=CLUSTER_OPERATIONS_BITS
            if tells_operations
            else OPERATIONS_NOT_ASKED,
        )

    def on_elect_leaders(
        self, request: ElectLeadersRequest, context: RequestContext
    ) -> ElectLeadersResponse:
        """Elect the first replica (preferred), or any replica of a partition without a leader
        (unclean).

        A single broker leads every partition already. Errors, by partition: ELECTION_NOT_NEEDED,
        PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION.
        INVALID_REQUEST for an unknown kind of election.
        """
        if not self._cluster.is_one:
            return self._elect(request, context)
        kind = request.election_type if context.api_version >= 1 else PREFERRED
        known_kind = kind in (PREFERRED, UNCLEAN)
        topics = []
        for topic_partitions in (
            request.topic_partitions or ()
        ):  # None means all; listed are those that needed an election, none with one broker
            rows = []
            for index in topic_partitions.partitions:
                if not known_kind:
                    code, message = (
                        Code.INVALID_REQUEST,
                        f"The election type {kind} is unknown: use 0 (preferred) or 1 (unclean).",
                    )
                elif self._partition_exists(topic_partitions.topic, index):
                    code, message = (
                        Code.ELECTION_NOT_NEEDED,
                        f"Broker {self._cluster.node_id} leads partition {index} of "
                        f"'{topic_partitions.topic}' already.",
                    )
                else:
                    code, message = (
                        Code.UNKNOWN_TOPIC_OR_PARTITION,
                        f"There is no partition {index} of a topic '{topic_partitions.topic}'.",
                    )
                rows.append(PartitionResult(index, code, message))
            topics.append(ReplicaElectionResult(topic_partitions.topic, rows))
        code = Code.NONE if known_kind else Code.INVALID_REQUEST
        return ElectLeadersResponse(error_code=code, replica_election_results=topics)

    def _elect(self, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
        """Hold elections with several brokers, for the named partitions or for all."""
        kind = request.election_type if context.api_version >= 1 else PREFERRED
        if kind not in (PREFERRED, UNCLEAN):
            return ElectLeadersResponse(error_code=Code.INVALID_REQUEST)
        named = request.topic_partitions
        if named is None:
            wanted = {
                name: list(range(topic.partition_count))
                for name, topic in self._topics.metadata.topics.items()
            }
        else:
            wanted = {one.topic: list(one.partitions) for one in named}
        topics = []
        for name, indexes in wanted.items():
            rows = []
            for index in indexes:
                partition = TopicPartition(name, index)
                code, message = self._failover.elect(
                    partition, is_unclean=kind == UNCLEAN, now_ms=context.now_ms
                )
                # if the request names no partitions, the response lists only those that needed an
                # election
                if named is not None or code is not Code.ELECTION_NOT_NEEDED:
                    rows.append(PartitionResult(index, code, message))
            if rows:
                topics.append(ReplicaElectionResult(name, rows))
        return ElectLeadersResponse(error_code=Code.NONE, replica_election_results=topics)

    def on_alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        """Move partitions. A single broker accepts only the present assignment, and has no move to
        cancel.

        With several brokers a partition can be moved to any of them at once, since they share one
        log.

        Errors, by partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT,
        NO_REASSIGNMENT_IN_PROGRESS.
        """
        topics = []
        for reassignable in request.topics:
            rows = []
            for partition in reassignable.partitions:
                code, message = Code.NONE, None
                try:
                    self._check_move(
                        reassignable.name, partition.partition_index, partition.replicas
                    )
                    if not self._cluster.is_one and partition.replicas is not None:
                        self._failover.reassign(
                            TopicPartition(reassignable.name, partition.partition_index),
                            tuple(partition.replicas),
                            context.now_ms,
                        )
                except KafkaError as error:
                    code, message = error.code, error.message
                rows.append(ReassignablePartitionResponse(partition.partition_index, code, message))
            topics.append(ReassignableTopicResponse(reassignable.name, rows))
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None,
            responses=topics,
        )

    def _check_move(self, name: str, index: int, replicas: list[int] | None) -> None:
        """Check that a partition can be moved to these replicas; None cancels a move. Raises:
        KafkaError.
        """
        if not self._partition_exists(name, index):
            raise KafkaError(
                Code.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {index} of a topic '{name}'.",
            )
        if replicas is None:
            raise KafkaError(
                Code.NO_REASSIGNMENT_IN_PROGRESS,
                f"Partition {index} of '{name}' is not being reassigned: there is nothing to "
                "cancel.",
            )
        if not self._cluster.is_one:
            self._cluster.check_replicas(index, replicas)
            return
        here = self._cluster.node_ids
        if sorted(replicas) != here:
            why = (
                f"broker {self._cluster.node_id} is the only one"
                if len(here) == 1
                else f"{here} have all"
            )
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {index} of '{name}' cannot move to {list(replicas)}: {why}.",
            )

    def on_list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        """An empty list, since partitions are moved at once."""
        return ListPartitionReassignmentsResponse(error_message=None)

    def _partition_exists(self, name: str, index: int) -> bool:
        return self._topics.metadata.topic(name) is not None and 0 <= index < len(
            self._topics.partitions_of(name)
        )

    def on_describe_topic_partitions(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> DescribeTopicPartitionsResponse:
        """Topics in the order of their names, up to a number of partitions, and a cursor to the
        next partition (KIP-966).

        A request without names asks for all topics. Errors, by topic: UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_TOPIC_EXCEPTION; INVALID_REQUEST for all if the cursor's topic is not one of the
        requested topics, or its partition is below 0.
        """
        cursor = request.cursor
        requested_names = {topic.name for topic in request.topics}
        if cursor is not None and (
            cursor.partition_index < 0
            or (requested_names and cursor.topic_name not in requested_names)
        ):
            refused = [
                _topic_row(name, None, Code.INVALID_REQUEST, []) for name in sorted(requested_names)
            ]
            return DescribeTopicPartitionsResponse(topics=refused)
        names = sorted(requested_names or self._topics.metadata.topics)
        if cursor is not None:
            names = [name for name in names if name >= cursor.topic_name]
        left = max(1, min(request.response_partition_limit, MOST_PARTITIONS_IN_ANSWER))
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        next_cursor = None
        for name in names:
            first = (
                cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
            )
            topic = self._topics.metadata.topic(name)
            if left == 0:
                next_cursor = Cursor(name, first)
                break
            if topic is None:
                topics.append(_topic_row(name, None, _why_missing(name), []))
                continue
            partition_count = len(self._topics.partitions_of(name))
            end = min(partition_count, first + left)
            rows = [self._partition_row(name, index) for index in range(first, end)]
            topics.append(_topic_row(name, topic, Code.NONE, rows))
            left -= len(rows)
            if end < partition_count:
                next_cursor = Cursor(name, end)
                break
        return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)

    def _partition_row(self, name: str, index: int) -> DescribeTopicPartitionsResponsePartition:
        log = self._topics.partition(name, index)
        if self._cluster.is_one:
            led = led_partition_of_pair(self._cluster, log)
        else:
            leadership = self._cluster.leadership(name, index)
            assert leadership is not None, f"{name}-{index} is there"
            led = led_partition(self._cluster, log, leadership)
        leader, replicas, in_sync, offline = led
        return DescribeTopicPartitionsResponsePartition(
            error_code=Code.NONE if leader != NO_LEADER else Code.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=leader,
            leader_epoch=self._topics.leader_epochs(name)[index],
            replica_nodes=list(replicas),
            isr_nodes=list(in_sync),
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=list(offline),
        )


def _why_missing(name: str) -> Code:
    """The error code for a topic that does not exist: it depends on whether the name is valid."""
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return Code.UNKNOWN_TOPIC_OR_PARTITION


def _topic_row(
    name: str, topic: Topic | None, code: Code, rows: list[DescribeTopicPartitionsResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=NO_ID if topic is None else topic.topic_id,
        is_internal=topic is not None and topic.internal,
        partitions=rows,
        topic_authorized_operations=TOPIC_OPERATIONS_BITS,
    )


# --- the APIs of this family ----------------------------------------------------------------------


def _handler(parts: Parts) -> ClusterHandler:
    return ClusterHandler(parts.topics, parts.cluster, parts.addresses, parts.failover)


ROWS = (
    ApiRow(
        Api(43, "ElectLeaders", 0, 2, flexible_from=2),
        right=rule(on_cluster(ALTER)),
        shapes=(
            Shape(
                (
                    Level("topic_partitions", "replica_election_results", ("topic",)),
                    Level("partitions", "partition_result"),
                )
            ),
        ),
        handler=lambda parts: _handler(parts).on_elect_leaders,
    ),
    ApiRow(
        Api(45, "AlterPartitionReassignments", 0, 1, flexible_from=0),
        right=rule(on_cluster(ALTER)),
        shapes=(
            Shape((Level("topics", "responses"), Level("partitions", "partitions")), Repeats.KEPT),
        ),
        handler=lambda parts: _handler(parts).on_alter_partition_reassignments,
    ),
    ApiRow(
        Api(46, "ListPartitionReassignments", 0, 0, flexible_from=0),
        right=rule(on_cluster(DESCRIBE)),
        handler=lambda parts: _handler(parts).on_list_partition_reassignments,
    ),
    ApiRow(
        Api(60, "DescribeCluster", 0, 2, flexible_from=0, most_elements=FEW),
        right=rule(
            in_answer(
                guards.hide_cluster_operations, Ask(DESCRIBE, CLUSTER, "for the operations on it")
            )
        ),
        handler=lambda parts: _handler(parts).on_describe_cluster,
    ),
    ApiRow(
        Api(75, "DescribeTopicPartitions", 0, 0, flexible_from=0),
        right=rule(
            by_hand(guards.only_topics_to_describe),
            operations_of("topics", TOPIC, "name", "topic_authorized_operations"),
            each(DESCRIBE, TOPIC, "topics.name", "others are left out where all are asked for"),
        ),
        handler=lambda parts: _handler(parts).on_describe_topic_partitions,
    ),
)
