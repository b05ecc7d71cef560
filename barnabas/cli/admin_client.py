"""kafka-python's admin client, with what it lacks: patience with coordinators that are not there
yet, groups of the consumer protocol (KIP-848), and the hosts of transactions' producers, which
Barnabas tells (`barnabas.protocol.client_hosts`).

It imports kafka-python, so it is imported when a client is made.
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
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import CoordinatorType

COORDINATOR_RETRY_S = 0.2
_SCHEMAS = "barnabas.cli.schemas"


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.0."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka 4.0.

    It is known by its class: kafka-python looks it up by its API key.
    """


class DescribeTransactionsWithHostsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The request of Apache Kafka, with a tagged field that asks for clients' hosts."""


class DescribeTransactionsWithHostsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg, misc]
    """The answer of Apache Kafka, with a tagged field that Barnabas fills.

    It is known by its class, and read in place of kafka-python's own.
    """


class AdminClient(KafkaAdminClient):  # type: ignore[misc] # it has no types
    """kafka-python's client, with what it lacks.

    Takes: patience_s, how long a coordinator is asked for.
    """

    def __init__(self, patience_s: float, **settings: Any) -> None:
        self._patience_s = patience_s
        super().__init__(**settings)

    def send_anywhere(self, request: ApiMessage) -> Any:
        """The answer of whatever broker is asked, as its message."""
        return self._manager.run(self._manager.send, request)

    def client_hosts(self, transactional_ids: Iterable[str]) -> dict[str, str]:
        """From where the producers of open transactions work, of those that the cluster tells."""
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

    async def _find_coordinator_ids(self, *args: Any, **kwargs: Any) -> Any:
        """Apache Kafka makes the topic of groups or transactions when it is first asked for a
        coordinator, and answers COORDINATOR_NOT_AVAILABLE meanwhile.
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
        """A coordinator that was just named may not have its partition of the internal topic yet,
        and answers NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS while it reads it.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return await super()._async_list_group_offsets(group_specs)
            except (CoordinatorLoadInProgressError, NotCoordinatorError):
                if time.monotonic() >= deadline:
                    raise
                await self._net.sleep(COORDINATOR_RETRY_S)
                self._manager.cluster._coordinators.clear()  # else it asks the same one again

    async def _async_describe_groups(self, group_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """A group of the consumer protocol is Dead or not found for DescribeGroups, which is of the
        classic one; so it is asked for by its own request.
        """
        described = await super()._async_describe_groups(group_ids, *args, **kwargs)
        for group, row in described.items():
            if GroupIdNotFoundError.__name__ in (row["error"] or ""):
                row |= {"error": None, "group_state": "Dead"}  # as below version 6
            if row["group_state"] == "Dead":
                described[group] = await self._consumer_group(group) or row
        return described

    async def _consumer_group(self, group: str) -> dict[str, Any] | None:
        """A group of the consumer protocol in the form of the others; None where it is none."""
        request = ConsumerGroupDescribeRequest(
            group_ids=[group], include_authorized_operations=False
        )
        try:
            self._manager.broker_version_data.api_version(request)
        except IncompatibleBrokerVersion:
            return None
        coordinator = await self._find_coordinator_id(group)
        answer = await self._manager.send(request, node_id=coordinator)
        (row,) = answer.groups
        if row.error_code:
            return None
        return {
            "error": None,
            "group_id": group,
            "group_state": row.group_state,
            "protocol_type": "consumer",
            "protocol_data": row.assignor_name,
            "members": [_member(member) for member in row.members],
        }


def _member(member: Any) -> dict[str, Any]:
    assigned = [
        {"topic": row.topic_name, "partitions": list(row.partitions)}
        for row in member.assignment.topic_partitions
    ]
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_assignment": {"assigned_partitions": assigned},
    }
