"""DescribeQuorum: the metadata journal, presented as a quorum with one voter (KIP-595, KIP-853).

There are no other controllers: the broker leads its own journal, is the only voter, and has no
observers.
"""

from __future__ import annotations

import base64
import uuid
from functools import partial

from barnabas.broker.admission.guard_steps import on_cluster, rule
from barnabas.broker.admission.rights import DESCRIBE
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.directory.log_manager import LogManager

METADATA_TOPIC = "__cluster_metadata"
LISTENER = "PLAINTEXT"
DIRECTORY_SINCE, NODES_SINCE = 2, 2
NEVER_FETCHED = -1


def on_describe_quorum(
    metadata: ClusterMetadata,
    logs: LogManager,
    cluster: Cluster,
    addresses: Addresses,
    request: DescribeQuorumRequest,
    context: RequestContext,
) -> DescribeQuorumResponse:
    """The leader, voters and high watermark of partition 0 of `__cluster_metadata`.

    The high watermark is the number of changes in the journal. Errors: UNKNOWN_TOPIC_OR_PARTITION
    for every partition of the request if it names any other than this one.
    """
    named = [(topic.topic_name, row.partition_index) for topic in request.topics
             for row in topic.partitions]  # fmt: skip
    if named != [(METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(error_message=None, topics=_refused(request))
    changes = metadata.change_count
    voter = ReplicaState(
        cluster.node_id,
        _directory_id(
            logs,
        )
        if context.api_version >= DIRECTORY_SINCE
        else None,
        changes,
        NEVER_FETCHED,
        context.now_ms + logs.wall.ahead_ms,
    )
    partition = DescribeQuorumResponsePartitionData(
        error_message=None,
        leader_id=cluster.node_id,
        leader_epoch=logs.leader_epoch,
        high_watermark=changes,
        current_voters=[voter],
    )
    nodes = []
    if context.api_version >= NODES_SINCE:
        _, host, port, _ = addresses.endpoint(cluster.node_id, context)
        nodes.append(Node(cluster.node_id, [Listener(LISTENER, host, port)]))
    return DescribeQuorumResponse(
        error_message=None,
        topics=[DescribeQuorumResponseTopicData(METADATA_TOPIC, [partition])],
        nodes=nodes,
    )


def _refused(request: DescribeQuorumRequest) -> list[DescribeQuorumResponseTopicData]:
    """A refusal for each partition that the request names."""
    code = Code.UNKNOWN_TOPIC_OR_PARTITION
    return [
        DescribeQuorumResponseTopicData(
            topic.topic_name,
            [
                DescribeQuorumResponsePartitionData(row.partition_index, code, None)
                for row in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def _directory_id(
    logs: LogManager,
) -> uuid.UUID | None:
    """The directory id of meta.properties, as a UUID."""
    text = logs.directory_id
    return None if text is None else uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(55, "DescribeQuorum", 0, 2, flexible_from=0, most_elements=FEW),
        right=rule(on_cluster(DESCRIBE)),
        handler=lambda parts: partial(
            on_describe_quorum, parts.metadata, parts.logs, parts.cluster, parts.addresses
        ),
    ),
)
