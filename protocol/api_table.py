"""The one list of what is spoken: each request's key, name, versions, family of kafka-python's classes, and handler.

`min_version`/`max_version` are what ApiVersions tells and what is accepted, within what Apache Kafka 3.9 offers. Produce is told of from
version 0 although 3 is the first that is understood: librdkafka before 2.8 turns compression off against a broker that says otherwise.
`flexible_from` is the first version whose header is v2 (KIP-482). `handler` is "module:function" below broker/handlers, or
"group:method" / "txn:method" for requests that a coordinator answers by itself.
"""

from __future__ import annotations

from typing import NamedTuple

NEVER = 1 << 15


class Api(NamedTuple):
    """One row."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    family: str
    handler: str
    told_from: int = -1

    @property
    def told_min_version(self) -> int:
        """The lowest version that ApiVersions tells of."""
        return self.min_version if self.told_from < 0 else self.told_from


API_VERSIONS = 18

APIS = (
    Api(0, "Produce", 3, 11, 9, "producer", "produce:on_produce", told_from=0),
    Api(1, "Fetch", 4, 17, 12, "consumer", "fetch:on_fetch"),
    Api(2, "ListOffsets", 1, 9, 6, "consumer", "list_offsets:on_list_offsets"),
    Api(3, "Metadata", 0, 12, 9, "metadata", "metadata:on_metadata"),
    Api(8, "OffsetCommit", 2, 9, 8, "consumer", "group:on_offset_commit"),
    Api(9, "OffsetFetch", 1, 9, 6, "consumer", "group:on_offset_fetch"),
    Api(10, "FindCoordinator", 0, 6, 3, "metadata", "coordinators:on_find_coordinator"),
    Api(11, "JoinGroup", 0, 9, 6, "consumer", "group:on_join_group"),
    Api(12, "Heartbeat", 0, 4, 4, "consumer", "group:on_heartbeat"),
    Api(13, "LeaveGroup", 0, 5, 4, "consumer", "group:on_leave_group"),
    Api(14, "SyncGroup", 0, 5, 4, "consumer", "group:on_sync_group"),
    Api(15, "DescribeGroups", 0, 5, 5, "admin", "group:on_describe_groups"),
    Api(16, "ListGroups", 0, 5, 3, "admin", "group:on_list_groups"),
    Api(18, "ApiVersions", 0, 4, 3, "metadata", "api_versions:on_api_versions"),
    Api(19, "CreateTopics", 2, 7, 5, "admin", "topics:on_create_topics"),
    Api(20, "DeleteTopics", 1, 6, 4, "admin", "topics:on_delete_topics"),
    Api(21, "DeleteRecords", 0, 2, 2, "admin", "delete_records:on_delete_records"),
    Api(22, "InitProducerId", 0, 5, 2, "producer", "txn:on_init_producer_id"),
    Api(23, "OffsetForLeaderEpoch", 0, 4, 4, "consumer", "leader_epochs:on_offset_for_leader_epoch"),
    Api(24, "AddPartitionsToTxn", 0, 5, 3, "producer", "txn:on_add_partitions_to_txn"),
    Api(25, "AddOffsetsToTxn", 0, 4, 3, "producer", "txn:on_add_offsets_to_txn"),
    Api(26, "EndTxn", 0, 4, 3, "producer", "transactions:on_end_txn"),
    Api(27, "WriteTxnMarkers", 1, 1, 1, "producer", "transactions:on_write_txn_markers"),
    Api(28, "TxnOffsetCommit", 0, 4, 3, "producer", "transactions:on_txn_offset_commit"),
    Api(32, "DescribeConfigs", 0, 4, 4, "admin", "configs:on_describe_configs"),
    Api(33, "AlterConfigs", 0, 2, 2, "admin", "configs:on_alter_configs"),
    Api(35, "DescribeLogDirs", 1, 4, 2, "admin", "log_dirs:on_describe_log_dirs"),
    Api(37, "CreatePartitions", 0, 3, 2, "admin", "topics:on_create_partitions"),
    Api(42, "DeleteGroups", 0, 2, 2, "admin", "group:on_delete_groups"),
    Api(43, "ElectLeaders", 0, 2, 2, "admin", "cluster:on_elect_leaders"),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1, "admin", "configs:on_incremental_alter_configs"),
    Api(45, "AlterPartitionReassignments", 0, 0, 0, "admin", "cluster:on_alter_partition_reassignments"),
    Api(46, "ListPartitionReassignments", 0, 0, 0, "admin", "cluster:on_list_partition_reassignments"),
    Api(47, "OffsetDelete", 0, 0, NEVER, "consumer", "group:on_offset_delete"),
    Api(60, "DescribeCluster", 0, 1, 0, "admin", "cluster:on_describe_cluster"),
    Api(61, "DescribeProducers", 0, 0, 0, "admin", "transactions:on_describe_producers"),
    Api(65, "DescribeTransactions", 0, 0, 0, "admin", "txn:on_describe_transactions"),
    Api(66, "ListTransactions", 0, 1, 0, "admin", "txn:on_list_transactions"),
    Api(74, "ListConfigResources", 0, 0, 0, "admin", "configs:on_list_client_metrics_resources"),
    Api(75, "DescribeTopicPartitions", 0, 0, 0, "admin", "cluster:on_describe_topic_partitions"),
)

BY_KEY = {api.key: api for api in APIS}
