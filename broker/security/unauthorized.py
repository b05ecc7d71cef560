"""Refusals for want of rights, where `broker/requests/refusals.py` has none for a request. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.requests import refusals
from barnabas.protocol.api_table import Api
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    delete_acls,
    describe_configs,
    describe_producers,
    describe_topic_partitions,
    describe_user_scram_credentials,
    incremental_alter_configs,
    offset_commit,
    offset_delete,
    write_txn_markers,
)
from barnabas.protocol.messages.message import Message


def unauthorized(api: Api, version: int, request: Message, code: Code) -> Message:
    """The answer with that error, in the shape that the request's kind has."""
    if api.name in _WHOLE:
        response: Any = refusals.message_class(api, "Response")()
        response.error_code = code
        answer: Message = response
        return answer
    if api.name in _BY_ROW:
        return _BY_ROW[api.name](request, code)
    return refusals.refusal(api, version, request, code)


def can_tell_unauthorized(api_name: str) -> bool:
    """Whether there is an answer to those who may not ask it."""
    return api_name in _WHOLE or api_name in _BY_ROW or refusals.can_refuse(api_name)


_WHOLE = frozenset(
    ("DescribeAcls", "DescribeLogDirs", "ListPartitionReassignments", "DescribeQuorum",
     "ListConfigResources", "DescribeClientQuotas", "UpdateFeatures",
     "UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter")
)  # fmt: skip


def _offset_commit(request: offset_commit.OffsetCommitRequest, code: Code) -> Message:
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(row.partition_index, code)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_delete(request: offset_delete.OffsetDeleteRequest, code: Code) -> Message:
    """The refusal of topics; the group has its error in the whole answer."""
    return offset_delete.OffsetDeleteResponse(
        topics=[
            offset_delete.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    offset_delete.OffsetDeleteResponsePartition(row.partition_index, code)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _create_partitions(request: create_partitions.CreatePartitionsRequest, code: Code) -> Message:
    return create_partitions.CreatePartitionsResponse(
        results=[
            create_partitions.CreatePartitionsTopicResult(topic.name, code)
            for topic in request.topics
        ]
    )


def _describe_producers(
    request: describe_producers.DescribeProducersRequest, code: Code
) -> Message:
    return describe_producers.DescribeProducersResponse(
        topics=[
            describe_producers.TopicResponse(
                topic.name,
                [
                    describe_producers.PartitionResponse(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_topic_partitions(
    request: describe_topic_partitions.DescribeTopicPartitionsRequest, code: Code
) -> Message:
    return describe_topic_partitions.DescribeTopicPartitionsResponse(
        topics=[
            describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
                error_code=code, name=topic.name
            )
            for topic in request.topics
        ]
    )


def _describe_configs(request: describe_configs.DescribeConfigsRequest, code: Code) -> Message:
    return describe_configs.DescribeConfigsResponse(
        results=[
            describe_configs.DescribeConfigsResult(
                error_code=code,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_configs(request: alter_configs.AlterConfigsRequest, code: Code) -> Message:
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                code, None, resource.resource_type, resource.resource_name
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, code: Code
) -> Message:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                code, None, resource.resource_type, resource.resource_name
            )
            for resource in request.resources
        ]
    )


def _write_txn_markers(request: write_txn_markers.WriteTxnMarkersRequest, code: Code) -> Message:
    return write_txn_markers.WriteTxnMarkersResponse(
        markers=[
            write_txn_markers.WritableTxnMarkerResult(
                marker.producer_id,
                [
                    write_txn_markers.WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            write_txn_markers.WritableTxnMarkerPartitionResult(index, code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _alter_replica_log_dirs(
    request: alter_replica_log_dirs.AlterReplicaLogDirsRequest, code: Code
) -> Message:
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(
        results=[
            alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
                topic.name,
                [
                    alter_replica_log_dirs.AlterReplicaLogDirPartitionResult(index, code)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _alter_partition_reassignments(
    request: alter_partition_reassignments.AlterPartitionReassignmentsRequest, code: Code
) -> Message:
    return alter_partition_reassignments.AlterPartitionReassignmentsResponse(
        error_code=code,
        responses=[
            alter_partition_reassignments.ReassignableTopicResponse(
                topic.name,
                [
                    alter_partition_reassignments.ReassignablePartitionResponse(
                        row.partition_index, code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _create_acls(request: create_acls.CreateAclsRequest, code: Code) -> Message:
    return create_acls.CreateAclsResponse(
        results=[create_acls.AclCreationResult(code, None) for _ in request.creations]
    )


def _delete_acls(request: delete_acls.DeleteAclsRequest, code: Code) -> Message:
    return delete_acls.DeleteAclsResponse(
        filter_results=[delete_acls.DeleteAclsFilterResult(code, None) for _ in request.filters]
    )


def _alter_client_quotas(
    request: alter_client_quotas.AlterClientQuotasRequest, code: Code
) -> Message:
    result = alter_client_quotas.AlterClientQuotasResponseEntryData
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[result(code, None, list(entry.entity)) for entry in request.entries]
    )


def _describe_user_scram_credentials(
    request: describe_user_scram_credentials.DescribeUserScramCredentialsRequest, code: Code
) -> Message:
    """The refusal as Apache Kafka answers it: a row for each user, without the name."""
    return describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=None,
        results=[
            describe_user_scram_credentials.DescribeUserScramCredentialsResult("", code, None)
            for _ in request.users or ()
        ],
    )


def _alter_user_scram_credentials(
    request: alter_user_scram_credentials.AlterUserScramCredentialsRequest, code: Code
) -> Message:
    names = dict.fromkeys(
        [one.name for one in request.deletions] + [one.name for one in request.upsertions]
    )
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=[
            alter_user_scram_credentials.AlterUserScramCredentialsResult(name, code, None)
            for name in names
        ]
    )


_BY_ROW: dict[str, Callable[[Any, Code], Message]] = {
    "OffsetCommit": _offset_commit,
    "OffsetDelete": _offset_delete,
    "CreatePartitions": _create_partitions,
    "DescribeProducers": _describe_producers,
    "DescribeTopicPartitions": _describe_topic_partitions,
    "DescribeConfigs": _describe_configs,
    "AlterConfigs": _alter_configs,
    "IncrementalAlterConfigs": _incremental_alter_configs,
    "WriteTxnMarkers": _write_txn_markers,
    "AlterReplicaLogDirs": _alter_replica_log_dirs,
    "AlterPartitionReassignments": _alter_partition_reassignments,
    "CreateAcls": _create_acls,
    "DeleteAcls": _delete_acls,
    "AlterClientQuotas": _alter_client_quotas,
    "DescribeUserScramCredentials": _describe_user_scram_credentials,
    "AlterUserScramCredentials": _alter_user_scram_credentials,
}
