"""Checks a request to create a topic, which comes from CreateTopics or from a streams group."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.logs.metadata import Topic
from barnabas.broker.logs.topic_names import CLUSTER_METADATA, TakenNames, check_topic_name
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import Ids
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.features import Release
from barnabas.broker.settings.setting import ConfigError
from barnabas.broker.settings.topic_config import validate_topic_configs
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic

UNSET = -1


class NewTopics:
    """Checks requests for new topics, and makes the Topic that a valid request describes."""

    __slots__ = ("_cluster", "_config", "_ids", "_topics")

    def __init__(
        self, config: BrokerConfig, ids: Ids, topics: TopicRegistry, cluster: Cluster
    ) -> None:
        self._config, self._ids = config, ids
        self._topics, self._cluster = topics, cluster

    def checked(self, topic_request: CreatableTopic, taken: TakenNames) -> Topic:
        """The topic to create. Raises: KafkaError if the request for it is not valid."""
        if self._topics.metadata.topic(topic_request.name) is not None:
            raise KafkaError(
                Code.TOPIC_ALREADY_EXISTS, f"The topic '{topic_request.name}' exists already."
            )
        check_topic_name(topic_request.name)
        if topic_request.name == CLUSTER_METADATA:
            raise KafkaError(
                Code.TOPIC_AUTHORIZATION_FAILED,
                f"The name '{CLUSTER_METADATA}' is reserved for Apache Kafka's metadata: choose "
                "another.",
            )
        if topic_request.name in INTERNAL_TOPICS:
            raise KafkaError(
                Code.INVALID_TOPIC_EXCEPTION,
                f"The topic '{topic_request.name}' is internal, and created when it is first "
                "needed: choose another name.",
            )
        taken.check(topic_request.name)
        configs = _checked_configs(topic_request, self._config.release)
        partition_count = self._checked_partition_count(topic_request)
        replicas = () if self._cluster.is_one else self._replicas(topic_request, partition_count)
        return Topic(topic_request.name, self._ids.uuid(), partition_count, configs, replicas)

    def _replicas(
        self, topic_request: CreatableTopic, partition_count: int
    ) -> tuple[tuple[int, ...], ...]:
        """The replicas of each partition of a new topic, with several brokers."""
        if topic_request.assignments:
            return tuple(
                tuple(one.broker_ids)
                for one in sorted(topic_request.assignments, key=lambda one: one.partition_index)
            )
        cluster = self._cluster
        factor = topic_request.replication_factor
        if factor == UNSET:
            factor = cluster.default_factor(topic_request.name)
        return tuple(cluster.place(topic_request.name, 0, partition_count, factor))

    def requested_count(self, topic_request: CreatableTopic) -> int:
        """The number of partitions that a request asks for, even if the request is invalid."""
        if topic_request.assignments:
            return len(topic_request.assignments)
        count: int = (
            self._config.num_partitions
            if topic_request.num_partitions == UNSET
            else max(0, topic_request.num_partitions)
        )
        return count

    def _checked_partition_count(self, topic_request: CreatableTopic) -> int:
        """The number of partitions of a new topic. Raises: KafkaError for counts and replicas that
        are not possible.
        """
        if topic_request.assignments:
            if topic_request.num_partitions != UNSET or topic_request.replication_factor != UNSET:
                raise KafkaError(
                    Code.INVALID_REQUEST,
                    "Replicas are assigned by hand: leave the partition count and the replication "
                    "factor at -1 then.",
                )
            self._check_assignments(topic_request.assignments)
        elif topic_request.replication_factor <= 0:
            self._check_factor(topic_request.replication_factor)
        if topic_request.num_partitions != UNSET and topic_request.num_partitions <= 0:
            raise KafkaError(
                Code.INVALID_PARTITIONS,
                f"A topic cannot have {topic_request.num_partitions} partitions: give a number "
                "from 1 on, or "
                "-1 for the broker's num.partitions.",
            )
        # After the number of partitions, as in Kafka, which counts brokers when it places replicas.
        if not topic_request.assignments:
            self._check_factor(topic_request.replication_factor)
        return self.requested_count(topic_request)

    def _check_factor(self, factor: int) -> None:
        """Raise KafkaError INVALID_REPLICATION_FACTOR for a number of replicas that is not
        possible.
        """
        if not self._cluster.is_one and factor != UNSET:
            self._cluster.check_factor(factor)
        elif factor not in (UNSET, 1, len(self._cluster.node_ids)):
            raise KafkaError(
                Code.INVALID_REPLICATION_FACTOR,
                f"The replication factor {factor} is not possible: "
                + (
                    "there is one broker, so give 1, or -1 for the default."
                    if self._cluster.standby is None
                    else "there are two brokers, so give 2, or -1 for the default."
                ),
            )

    def _check_assignments(self, assignments: Sequence[CreatableReplicaAssignment]) -> None:
        """Check replicas that are assigned by hand. Raises: KafkaError
        INVALID_REPLICA_ASSIGNMENT.
        """
        indexes = sorted(assignment.partition_index for assignment in assignments)
        for assignment in assignments:
            self.check_replicas(assignment.partition_index, assignment.broker_ids)
        if indexes != list(range(len(indexes))):
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"The partitions {indexes} are assigned: number them from 0 on, each once and "
                "without a gap.",
            )
        if len({len(assignment.broker_ids) for assignment in assignments}) > 1:
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                "Partitions are assigned to different numbers of brokers: give each the same "
                "number.",
            )

    def check_replicas(self, index: int, broker_ids: Sequence[int]) -> None:
        """Check the replicas of one partition. Raises: KafkaError INVALID_REPLICA_ASSIGNMENT."""
        if not self._cluster.is_one:
            self._cluster.check_replicas(index, broker_ids)
            return
        if (
            list(broker_ids) != [self._cluster.node_id]
            and sorted(broker_ids) != self._cluster.node_ids
        ):
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {index} cannot be on {list(broker_ids)}: broker "
                f"{self._cluster.node_id} is the only one, so give [{self._cluster.node_id}].",
            )


def _checked_configs(topic_request: CreatableTopic, release: Release) -> dict[str, str]:
    """The settings of a new topic. Raises: KafkaError INVALID_CONFIG."""
    configs = {config.name: config.value for config in topic_request.configs}
    try:
        validate_topic_configs(configs, release)
    except ConfigError as error:
        raise KafkaError(Code.INVALID_CONFIG, str(error)) from error
    return {name: value for name, value in configs.items() if value is not None}
