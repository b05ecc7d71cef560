"""kafka-python's admin client, with what it lacks: waiting for coordinators that are not there yet,
groups of the consumer protocol (KIP-848) and of Kafka Streams (KIP-1071), and the hosts of
transactions' producers, which Barnabas adds to its answers (`barnabas.protocol.client_hosts`).

This module imports kafka-python, so it is imported when a client is created.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    IncompatibleBrokerVersion,
    NotCoordinatorError,
    for_code,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import CoordinatorType

COORDINATOR_RETRY_S = 0.2
_SCHEMAS = "barnabas.cli.schemas"


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.0."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.0.

    kafka-python finds the class by its API key.
    """


class StreamsGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.1."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The answer of Apache Kafka 4.1."""


class DescribeTransactionsWithHostsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka, with a tagged field that asks for clients' hosts."""


class DescribeTransactionsWithHostsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The answer of Apache Kafka, with a tagged field that Barnabas fills.

    kafka-python uses this class instead of its own.
    """


class AdminClient(KafkaAdminClient):  # type: ignore[misc] # it has no types
    """kafka-python's client, with what it lacks.

    Takes: patience_s, how long to wait for a coordinator.
    """

    def __init__(self, patience_s: float, **settings: Any) -> None:
        self._patience_s = patience_s
        super().__init__(**settings)

    def send_anywhere(self, request: ApiMessage) -> Any:
        """The answer of any broker, as its message."""
        return self._manager.run(self._manager.send, request)

    def client_hosts(self, transactional_ids: Iterable[str]) -> dict[str, str]:
        """The hosts of producers of open transactions, if the cluster returns them."""
        return self._manager.run(  # type: ignore[no-any-return]
            self._async_client_hosts, list(transactional_ids)
        )

    async def _async_client_hosts(self, transactional_ids: list[str]) -> dict[str, str]:
        coordinators = await self._find_coordinator_ids(
            transactional_ids, key_type=CoordinatorType.TRANSACTION
        )
        hosts = {}
        for transactional_id, coordinator in coordinators.items():
            request = DescribeTransactionsWithHostsRequest(
                transactional_ids=[transactional_id], client_host=True
            )
            answer = await self._manager.send(request, node_id=coordinator)
            for row in answer.transaction_states:
                if row.client_host:
                    hosts[row.transactional_id] = row.client_host
        return hosts

    def _describe_configs_process_responses(self, responses: Any, *args: Any, **kwargs: Any) -> Any:
        """The settings of resources. Raises the error of a resource, which kafka-python drops."""
        for response in responses:
            for result in response.results:
                if result.error_code:
                    kind = for_code(result.error_code)
                    raise kind(result.error_message or f"settings of {result.resource_name}")
        return super()._describe_configs_process_responses(responses, *args, **kwargs)

    async def _find_coordinator_ids(self, *args: Any, **kwargs: Any) -> Any:
        """Find coordinators, and retry COORDINATOR_NOT_AVAILABLE.

        Apache Kafka answers it while it creates the topic of groups or transactions, when it is
        first asked for a coordinator.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return await super()._find_coordinator_ids(*args, **kwargs)
            except (CoordinatorLoadInProgressError, CoordinatorNotAvailableError):
                if time.monotonic() >= deadline:
                    raise
                await self._net.sleep(COORDINATOR_RETRY_S)

    async def _async_list_group_offsets(self, group_specs: Any) -> Any:
        """The offsets of a group, with retries.

        A new coordinator may not have its partition of the internal topic yet, and answers
        NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS while it reads it.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return await super()._async_list_group_offsets(group_specs)
            except (CoordinatorLoadInProgressError, NotCoordinatorError):
                if time.monotonic() >= deadline:
                    raise
                await self._net.sleep(COORDINATOR_RETRY_S)
                self._manager.cluster._coordinators.clear()  # else the same one again

    async def _async_describe_groups(self, group_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Describe groups of each protocol.

        DescribeGroups is for classic groups: another group is Dead or not found in its answer, and
        is described by the request of its kind.
        """
        described = await super()._async_describe_groups(group_ids, *args, **kwargs)
        for group, row in described.items():
            if GroupIdNotFoundError.__name__ in (row["error"] or ""):
                row |= {"error": None, "group_state": "Dead"}  # as below version 6
            if row["group_state"] != "Dead":
                continue
            if (found := await self._ask_for(group, ConsumerGroupDescribeRequest)) is not None:
                described[group] = _consumer_group(found)
            elif (found := await self._ask_for(group, StreamsGroupDescribeRequest)) is not None:
                described[group] = _streams_group(found)
        return described

    async def _ask_for(self, group: str, request_class: type[ApiMessage]) -> Any:
        """The group as the request of its kind describes it; None for a group of another kind."""
        request = request_class(group_ids=[group], include_authorized_operations=False)
        try:
            self._manager.broker_version_data.api_version(request)
        except IncompatibleBrokerVersion:
            return None
        coordinator = await self._find_coordinator_id(group)
        answer = await self._manager.send(request, node_id=coordinator)
        (row,) = answer.groups
        return None if row.error_code else row


def _consumer_group(row: Any) -> dict[str, Any]:
    """A group of the consumer protocol in the form of the classic ones."""
    return {
        "error": None,
        "group_id": row.group_id,
        "group_state": row.group_state,
        "protocol_type": "consumer",
        "protocol_data": row.assignor_name,
        "members": [
            _member(
                member,
                {part.topic_name: part.partitions for part in member.assignment.topic_partitions},
            )
            for member in row.members
        ],
    }


def _streams_group(row: Any) -> dict[str, Any]:
    """A group of Kafka Streams in the form of the classic ones.

    A task has a partition of each topic that its subtopology reads.
    """
    topology = row.topology
    topics = {
        part.subtopology_id: [
            *part.source_topics,
            *(t.name for t in part.repartition_source_topics),
        ]
        for part in ((topology and topology.subtopologies) or ())
    }
    return {
        "error": None,
        "group_id": row.group_id,
        "group_state": row.group_state,
        "protocol_type": "streams",
        "protocol_data": "",
        "members": [
            _member(
                member,
                {
                    topic: task.partitions
                    for task in member.assignment.active_tasks
                    for topic in topics.get(task.subtopology_id, ())
                },
            )
            for member in row.members
        ],
    }


def _member(member: Any, partitions: dict[str, Any]) -> dict[str, Any]:
    assigned = [{"topic": name, "partitions": list(found)} for name, found in partitions.items()]
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_assignment": {"assigned_partitions": assigned},
    }
