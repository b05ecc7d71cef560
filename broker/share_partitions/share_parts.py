"""The parts of the broker that are needed for requests of share groups' members."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.share_partitions.shares import Shares
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.hot_responses import CurrentLeader
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.log.log import Log

READ, TOPIC = 3, 2  # numbers of ACLs


class ShareParts(NamedTuple):
    """The parts of the broker that are needed for requests of share groups' members."""

    config: BrokerConfig
    metadata: ClusterMetadata
    logs: LogManager
    connections: Mapping[int, ConnectionState]
    requests: Requests
    quotas: Quotas
    access: ClientAccess
    features: CurrentFeatures
    cluster: Cluster
    addresses: Addresses
    group_configs: GroupConfigs
    shares: Lazy[Shares]

    def leader(self, topic_id: uuid.UUID | None, index: int, code: int) -> CurrentLeader | None:
        """The current leader of a partition, if the error code says that it is another broker."""
        topic = None if topic_id is None else self.metadata.topic_by_id(topic_id)
        return None if topic is None else self.cluster.hint(topic.name, index, code)


class ReadableLogs:
    """Looks up the logs of a request's partitions by topic id, and checks that the client may read
    them.
    """

    def __init__(self, parts: ShareParts, context: RequestContext) -> None:
        self._metadata = parts.metadata
        self._topics = parts.cluster.topics_here(context)
        self._access = parts.access.of(context)

    def log(self, topic_id: uuid.UUID | None, index: int) -> Log:
        """The log of a partition.

        Raises: KafkaError UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
                KAFKA_STORAGE_ERROR; with several brokers NOT_LEADER_OR_FOLLOWER.
        """
        topic = None if topic_id is None else self._metadata.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError(Code.UNKNOWN_TOPIC_ID)
        access = self._access
        if access is not None and not (
            topic.name in access.readable or access.may(READ, TOPIC, topic.name)
        ):
            raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED)
        logs = self._topics.partitions_of(topic.name)
        log = logs[index] if 0 <= index < len(logs) else None
        if log is None:
            raise KafkaError(self._topics.missing_code(topic.name, index))
        return log
