"""What a client knows of a cluster: its brokers, the leaders of partitions, and the coordinators of
groups and transactional ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.client.connection import HERE, Calls, Connection, Connections
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from barnabas.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.coordinators import Check, Coordinator

GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
# from version 10 on, the response has topic ids
METADATA = RequestKind(MetadataRequest, MetadataResponse, 1, 12)
# the first version in which a client can ask for a topic without creating it
METADATA_WITHOUT_CREATION = 4


class Cluster:
    """The brokers of a cluster, as one client knows them. It belongs to one thread.

    leaders: the id of each partition's leader, of all topics that were requested; -1 for a
    partition without a leader. controller_id, cluster_id: those of the last Metadata response.
    """

    def __init__(self, options: ClientOptions, calls: Calls = HERE) -> None:
        self.connections = Connections(options, calls)
        self.leaders: dict[TopicPartition, int] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._calls = calls
        self._coordinators: dict[tuple[int, str], Coordinator] = {}

    def forget(self) -> None:
        """Discard the known leaders and coordinators, which may have changed."""
        self.leaders.clear()
        self._coordinators.clear()

    def refresh(
        self, topics: Sequence[str] | None, *, create: bool = False, purpose: str = ""
    ) -> MetadataResponse:
        """Ask any broker for Metadata.

        Takes:  topics, None for all topics; create, whether missing topics are created if the
                broker allows this.
        After:  `connections.nodes` has the brokers in the response, `leaders` the leaders.
        """
        connection = self.connections.any(purpose)
        # Older versions of the request have no field for this. Their brokers create missing topics
        # if they are configured to do so.
        create = create or connection.version_of(METADATA) < METADATA_WITHOUT_CREATION
        rows = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=create)
        answer = self._calls.ask(connection, METADATA, request)
        self.connections.nodes = {row.node_id: (row.host, row.port) for row in answer.brokers}
        self.controller_id, self.cluster_id = answer.controller_id, answer.cluster_id
        for topic in answer.topics:
            for row in topic.partitions:
                self.leaders[TopicPartition(topic.name or "", row.partition_index)] = row.leader_id
        return answer

    # --- coordinators

    def coordinators(
        self, keys: Sequence[str], key_type: int, check: Check, purpose: str = ""
    ) -> list[Coordinator]:
        """The coordinators of groups or transactional ids, which are requested once.

        Takes:  check, which raises the error for a refusal.
        """
        missing = [key for key in keys if (key_type, key) not in self._coordinators]
        if missing:
            from barnabas.client.coordinators import find_coordinators

            connection = self.connections.any(purpose)
            found = find_coordinators(self._calls, connection, missing, key_type, check)
            for key, coordinator in found.items():
                self._coordinators[key_type, key] = coordinator
                self.connections.nodes.setdefault(*coordinator)
        return [self._coordinators[key_type, key] for key in keys]

    def coordinator(self, key: str, key_type: int, check: Check, purpose: str = "") -> Connection:
        """The connection to the coordinator of a group or a transactional id."""
        (found,) = self.coordinators([key], key_type, check, purpose)
        return self.connections.at(found.address, purpose)
