"""Requests that create, change and delete topics, and their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.cli.client.cluster_client import PASSING, ClusterClient
from barnabas.cli.client.topics import by_topic, leaders
from barnabas.cli.errors import RefusedError
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.topic_partition import TopicPartition

Answers = dict[str, RefusedError | None]


def create_topics(
    client: ClusterClient,
    names: Sequence[str],
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    *,
    dry_run: bool = False,
) -> Answers:
    """Create topics; -1 means the broker's default. Gives: the error of each topic."""
    from barnabas.protocol.messages.create_topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

    kind = RequestKind(CreateTopicsRequest, CreateTopicsResponse, 1, 7)
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[CreatableTopicConfig(key, value) for key, value in configs.items()],
            )
            for name in dict.fromkeys(names)
        ],
        timeout_ms=_timeout_ms(client),
        validate_only=dry_run,
    )
    answer = client.controller(kind, request, lambda answer: answer.topics[0].error_code)
    rows = {row.name: _error(row.error_code, row.error_message, row.name) for row in answer.topics}
    return {name: rows.get(name) for name in dict.fromkeys(names)}


def add_partitions(
    client: ClusterClient, name: str, count: int, *, dry_run: bool = False
) -> RefusedError | None:
    """Grow a topic to a number of partitions. Gives: the error."""
    from barnabas.protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
    )

    kind = RequestKind(CreatePartitionsRequest, CreatePartitionsResponse, 0, 3)
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest([topic], _timeout_ms(client), dry_run)
    answer = client.controller(kind, request, lambda answer: answer.results[0].error_code)
    (row,) = answer.results
    return _error(row.error_code, row.error_message, name)


def delete_topics(client: ClusterClient, names: Sequence[str]) -> Answers:
    """Delete topics. Gives: the error of each."""
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

    kind = RequestKind(DeleteTopicsRequest, DeleteTopicsResponse, 1, 5)
    wanted = list(dict.fromkeys(names))
    request = DeleteTopicsRequest(topic_names=wanted, timeout_ms=_timeout_ms(client))
    answer = client.controller(kind, request, lambda answer: answer.responses[0].error_code)
    rows = {
        row.name or "": _error(row.error_code, row.error_message, row.name or "")
        for row in answer.responses
    }
    return {name: rows.get(name) for name in wanted}


def delete_records(
    client: ClusterClient, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | RefusedError]:
    """Delete the records before the given offsets. Gives: the new log start offset of each
    partition, or its error.
    """
    from barnabas.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    kind = RequestKind(DeleteRecordsRequest, DeleteRecordsResponse, 0, 2)

    def ask() -> dict[TopicPartition, int | RefusedError]:
        found: dict[TopicPartition, int | RefusedError] = {}
        for node_id, partitions in leaders(client, offsets).items():
            rows = by_topic(
                partitions, lambda row: DeleteRecordsPartition(row.partition, offsets[row])
            )
            request = DeleteRecordsRequest(
                [DeleteRecordsTopic(name, part) for name, part in rows.items()],
                _timeout_ms(client),
            )
            for topic in client.node(node_id, kind, request).topics:
                for row in topic.partitions:
                    error = _error(row.error_code, None, topic.name)
                    if error is not None and error.code in PASSING:
                        raise error
                    found[TopicPartition(topic.name, row.partition_index)] = (
                        row.low_watermark if error is None else error
                    )
        return found

    return client.trying(ask)


def _timeout_ms(client: ClusterClient) -> int:
    return max(round(client.waiting.timeout_s * 1000), 1)


def _error(code: int, message: str | None, resource: str = "") -> RefusedError | None:
    return RefusedError(code, message, resource) if code else None
