"""Answers that bear an error: what a client is told by a fault with a code, and by a broker that
is not its coordinator. Pure.

Each is shaped after the request, as Kafka's is: the error stands in every partition, topic or group
that the request names, and where the answer has one error for the whole, there.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from barnabas.protocol.api_table import Api
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    consumer_group_describe,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_groups,
    describe_transactions,
    elect_leaders,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    txn_offset_commit,
)
from barnabas.protocol.messages.message import Message

Refuse = Callable[[Any, int, Code], Message]


def can_refuse(api_name: str) -> bool:
    """Whether an answer of that API can bear an error."""
    return api_name in _BY_PARTITION or api_name in _WHOLE


def refusal(api: Api, version: int, body: Message, code: Code) -> Message:
    """The answer with the error. `can_refuse` its API."""
    if api.name in _WHOLE:
        response: Any = message_class(api, "Response")(error_code=code)  # type: ignore[call-arg]
        if api.name == "InitProducerId":
            response.producer_epoch = -1  # not the schema's default
        elif api.name == "JoinGroup" and version >= 7:
            response.protocol_name = None
        answer: Message = response
        return answer
    return _BY_PARTITION[api.name](body, version, code)


def message_class(api: Api, kind: str) -> type[Message]:
    """The class of an API's "Request" or "Response"."""
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
    found: type[Message] = getattr(
        importlib.import_module(f"barnabas.protocol.messages.{module}"), api.name + kind
    )
    return found


_WHOLE = frozenset(
    ("InitProducerId", "AddOffsetsToTxn", "EndTxn", "JoinGroup", "SyncGroup", "Heartbeat",
     "LeaveGroup", "ConsumerGroupHeartbeat", "OffsetDelete", "ListGroups", "ListTransactions",
     "DescribeCluster", "ApiVersions")
)  # fmt: skip


def _produce(request: produce.ProduceRequest, _: int, code: Code) -> Message:
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=-1
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: fetch.FetchRequest, version: int, code: Code) -> Message:
    if version >= 7:
        return fetch.FetchResponse(error_code=code)
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    fetch.PartitionData(
                        partition_index=row.partition,
                        error_code=code,
                        high_watermark=-1,
                        records=b"",
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offsets(request: list_offsets.ListOffsetsRequest, _: int, code: Code) -> Message:
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(request: metadata.MetadataRequest, _: int, code: Code) -> Message:
    return metadata.MetadataResponse(
        topics=[
            metadata.MetadataResponseTopic(
                name=topic.name, topic_id=topic.topic_id, error_code=code
            )
            for topic in request.topics or []
        ]
    )


def _offset_commit(request: offset_commit.OffsetCommitRequest, _: int, code: Code) -> Message:
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _txn_offset_commit(
    request: txn_offset_commit.TxnOffsetCommitRequest, _: int, code: Code
) -> Message:
    return txn_offset_commit.TxnOffsetCommitResponse(
        topics=[
            txn_offset_commit.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: offset_fetch.OffsetFetchRequest, version: int, code: Code) -> Message:
    if version >= 8:
        return offset_fetch.OffsetFetchResponse(
            groups=[
                offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
                for group in request.groups
            ]
        )
    if version >= 2:
        return offset_fetch.OffsetFetchResponse(error_code=code)
    return offset_fetch.OffsetFetchResponse(
        topics=[
            offset_fetch.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ]
    )


def _find_coordinator(
    request: find_coordinator.FindCoordinatorRequest, version: int, code: Code
) -> Message:
    if version < 4:
        return find_coordinator.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    return find_coordinator.FindCoordinatorResponse(
        coordinators=[
            find_coordinator.Coordinator(key=key, node_id=-1, port=-1, error_code=code)
            for key in request.coordinator_keys
        ]
    )


def _add_partitions_to_txn(
    request: add_partitions_to_txn.AddPartitionsToTxnRequest, version: int, code: Code
) -> Message:
    def results(
        topics: list[add_partitions_to_txn.AddPartitionsToTxnTopic],
    ) -> list[add_partitions_to_txn.AddPartitionsToTxnTopicResult]:
        return [
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]

    if version < 4:
        return add_partitions_to_txn.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=results(request.v3_and_below_topics)
        )
    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_transaction=[
            add_partitions_to_txn.AddPartitionsToTxnResult(
                transactional_id=one.transactional_id, topic_results=results(one.topics)
            )
            for one in request.transactions
        ]
    )


def _create_topics(request: create_topics.CreateTopicsRequest, _: int, code: Code) -> Message:
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ]
    )


def _delete_topics(request: delete_topics.DeleteTopicsRequest, version: int, code: Code) -> Message:
    if version >= 6:
        return delete_topics.DeleteTopicsResponse(
            responses=[
                delete_topics.DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=code
                )
                for topic in request.topics
            ]
        )
    return delete_topics.DeleteTopicsResponse(
        responses=[
            delete_topics.DeletableTopicResult(name=name, error_code=code)
            for name in request.topic_names
        ]
    )


def _delete_records(request: delete_records.DeleteRecordsRequest, _: int, code: Code) -> Message:
    return delete_records.DeleteRecordsResponse(
        topics=[
            delete_records.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    delete_records.DeleteRecordsPartitionResult(
                        partition_index=row.partition_index, low_watermark=-1, error_code=code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for_leader_epoch(
    request: offset_for_leader_epoch.OffsetForLeaderEpochRequest, _: int, code: Code
) -> Message:
    return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    offset_for_leader_epoch.EpochEndOffset(partition=row.partition, error_code=code)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_groups(request: describe_groups.DescribeGroupsRequest, _: int, code: Code) -> Message:
    return describe_groups.DescribeGroupsResponse(
        groups=[
            describe_groups.DescribedGroup(error_code=code, group_id=group_id)
            for group_id in request.groups
        ]
    )


def _describe_consumer_groups(
    request: consumer_group_describe.ConsumerGroupDescribeRequest, _: int, code: Code
) -> Message:
    return consumer_group_describe.ConsumerGroupDescribeResponse(
        groups=[
            consumer_group_describe.DescribedGroup(error_code=code, group_id=group_id)
            for group_id in request.group_ids
        ]
    )


def _delete_groups(request: delete_groups.DeleteGroupsRequest, _: int, code: Code) -> Message:
    return delete_groups.DeleteGroupsResponse(
        results=[
            delete_groups.DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ]
    )


def _describe_transactions(
    request: describe_transactions.DescribeTransactionsRequest, _: int, code: Code
) -> Message:
    return describe_transactions.DescribeTransactionsResponse(
        transaction_states=[
            describe_transactions.TransactionState(error_code=code, transactional_id=name)
            for name in request.transactional_ids
        ]
    )


def _elect_leaders(request: elect_leaders.ElectLeadersRequest, version: int, code: Code) -> Message:
    return elect_leaders.ElectLeadersResponse(
        error_code=code if version > 0 else Code.NONE,
        replica_election_results=[
            elect_leaders.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    elect_leaders.PartitionResult(partition_id=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or []
        ],
    )


_BY_PARTITION: dict[str, Refuse] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _list_offsets,
    "Metadata": _metadata,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "FindCoordinator": _find_coordinator,
    "AddPartitionsToTxn": _add_partitions_to_txn,
    "TxnOffsetCommit": _txn_offset_commit,
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "DeleteRecords": _delete_records,
    "DescribeGroups": _describe_groups,
    "ConsumerGroupDescribe": _describe_consumer_groups,
    "DeleteGroups": _delete_groups,
    "DescribeTransactions": _describe_transactions,
    "ElectLeaders": _elect_leaders,
    "OffsetForLeaderEpoch": _offset_for_leader_epoch,
}
