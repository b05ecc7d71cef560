"""kafka-python's admin client, with what it lacks: waiting for coordinators that are not there yet,
groups of the consumer protocol (KIP-848), share groups (KIP-932) and streams groups (KIP-1071), and
the hosts of transactions' producers, which Barnabas adds to its answers
(`barnabas.protocol.client_hosts`).

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
from kafka.protocol.metadata import CoordinatorType, MetadataRequest

COORDINATOR_RETRY_S = 0.2
_SCHEMAS = "barnabas.cli.schemas"
SHARE, STREAMS, UNKNOWN = "share", "streams", -1


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


class ShareGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.1."""


class ShareGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The answer of Apache Kafka 4.1."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.1."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The answer of Apache Kafka 4.1; with the lag since 4.2."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.1."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The answer of Apache Kafka 4.1."""


class ShareGroupHeartbeatRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.1."""


class ShareGroupHeartbeatResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The answer of Apache Kafka 4.1."""


class ShareFetchRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.1."""


class ShareFetchResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The answer of Apache Kafka 4.1."""


class ShareAcknowledgeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.1."""


class ShareAcknowledgeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
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

        DescribeGroups is for classic groups: a group of another protocol is Dead or not found in
        its answer, and is described by its own request.
        """
        described = await super()._async_describe_groups(group_ids, *args, **kwargs)
        for group, row in described.items():
            if GroupIdNotFoundError.__name__ in (row["error"] or ""):
                row |= {"error": None, "group_state": "Dead"}  # as below version 6
            if row["group_state"] == "Dead":
                for protocol, request_class in _OTHER_KINDS.items():
                    if (found := await self._described(group, request_class)) is not None:
                        described[group] = _group(protocol, found)
                        break
        return described

    async def _described(self, group: str, request_class: type[ApiMessage]) -> Any:
        """The group as the request of its kind describes it; None for a group of another kind."""
        request = request_class(group_ids=[group], include_authorized_operations=False)
        answer = await self._of_coordinator(group, request)
        if answer is None or answer.groups[0].error_code:
            return None
        return answer.groups[0]

    async def _of_coordinator(self, group: str, request: ApiMessage) -> Any:
        """The answer of a group's coordinator; None where it does not have the request."""
        try:
            self._manager.broker_version_data.api_version(request)
        except IncompatibleBrokerVersion:
            return None
        coordinator = await self._find_coordinator_id(group)
        return await self._manager.send(request, node_id=coordinator)

    def share_heartbeat(self, group: str, member_id: str, epoch: int, topics: list[str]) -> Any:
        """The answer to a heartbeat of a member of a share group; None where the cluster has no
        share groups.
        """
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=topics if epoch == 0 else None,
        )
        return self._manager.run(self._of_coordinator, group, request)

    def share_fetch(self, node_id: int, request: ApiMessage) -> Any:
        """The answer of a broker to a ShareFetch or a ShareAcknowledge."""
        return self._manager.run(self._manager.send, request, node_id)

    def topics_by_id(self, names: list[str]) -> dict[Any, tuple[str, dict[int, int]]]:
        """The name of each topic, and the leaders of its partitions, by its id."""
        rows = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = self.send_anywhere(MetadataRequest(topics=rows, allow_auto_topic_creation=False))
        return {
            topic.topic_id: (
                topic.name,
                {row.partition_index: row.leader_id for row in topic.partitions},
            )
            for topic in answer.topics
            if not topic.error_code
        }

    def share_group_offsets(self, group: str) -> dict[tuple[str, int], tuple[int, int]]:
        """The start offset and the lag of each partition of a share group; -1 for unknown ones.

        Raises: the error of the group.
        """
        row = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
            group_id=group, topics=None
        )
        request = DescribeShareGroupOffsetsRequest(groups=[row])
        answer = self._manager.run(self._of_coordinator, group, request)
        (found,) = answer.groups
        if found.error_code:
            raise for_code(found.error_code)(found.error_message or f"share group {group}")
        return {
            (topic.topic_name, one.partition_index): (
                one.start_offset, UNKNOWN if one.lag is None else one.lag
            )
            for topic in found.topics
            for one in topic.partitions
            if not one.error_code
        }  # fmt: skip

    def alter_share_group_offsets(
        self, group: str, offsets: dict[tuple[str, int], int]
    ) -> dict[tuple[str, int], Exception | None]:
        """Set where a share group without members reads. Gives: the error of each partition."""
        made = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        topics: dict[str, list[Any]] = {}
        for (name, index), offset in offsets.items():
            partition = made.AlterShareGroupOffsetsRequestPartition(
                partition_index=index, start_offset=offset
            )
            topics.setdefault(name, []).append(partition)
        request = AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[made(topic_name=name, partitions=rows) for name, rows in topics.items()],
        )
        answer = self._manager.run(self._of_coordinator, group, request)
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or f"share group {group}")
        return {
            (topic.topic_name, one.partition_index): for_code(one.error_code)(one.error_message)
            if one.error_code
            else None
            for topic in answer.responses
            for one in topic.partitions
        }


_OTHER_KINDS = {
    "consumer": ConsumerGroupDescribeRequest,
    SHARE: ShareGroupDescribeRequest,
    STREAMS: StreamsGroupDescribeRequest,
}


def _group(protocol: str, row: Any) -> dict[str, Any]:
    """A group that its own request described, in the form of the classic ones."""
    is_streams = protocol == STREAMS
    topics = _topics_read(row.topology) if is_streams else {}
    return {
        "error": None,
        "group_id": row.group_id,
        "group_state": row.group_state,
        "protocol_type": protocol,
        "protocol_data": "" if is_streams else row.assignor_name,
        "members": [
            _member(one, _partitions_of_tasks(one, topics) if is_streams else _partitions(one))
            for one in row.members
        ],
    }


def _topics_read(topology: Any) -> dict[str, list[str]]:
    """The topics that each subtopology reads."""
    subtopologies = None if topology is None else topology.subtopologies
    return {
        one.subtopology_id: [
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        ]
        for one in subtopologies or ()
    }


def _partitions(member: Any) -> dict[str, list[int]]:
    return {row.topic_name: row.partitions for row in member.assignment.topic_partitions}


def _partitions_of_tasks(member: Any, topics: dict[str, list[str]]) -> dict[str, list[int]]:
    """The partitions that a member of a streams group reads: those of each topic of its tasks."""
    return {
        topic: task.partitions
        for task in member.assignment.active_tasks
        for topic in topics.get(task.subtopology_id, ())
    }


def _member(member: Any, partitions: dict[str, list[int]]) -> dict[str, Any]:
    assigned = [{"topic": name, "partitions": list(found)} for name, found in partitions.items()]
    return {
        "member_id": member.member_id,
        "group_instance_id": getattr(member, "instance_id", None),
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_assignment": {"assigned_partitions": assigned},
    }
