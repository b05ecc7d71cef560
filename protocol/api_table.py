"""The list of supported APIs: the key, name and versions of each request.

`broker/dispatch.py` has the handler of each request.

`min_version` and `max_version` are the versions that ApiVersions returns and the broker accepts:
from the oldest that Apache Kafka 3.9 supports to the newest of 4.3. `flexible_from` is the first
version whose request header is v2 (KIP-482).

`most_elements` limits the total number of elements in all arrays of a request, at any depth. A
number, which has 4 bytes, counts as a quarter of an element. The limit is for a request of 2 MiB,
and grows with `barnabas.request.max.bytes`. It allows what clients send in 2 MiB: structs of 16
bytes, or partition numbers. Requests that change metadata have a lower limit, as Apache Kafka
accepts at most 10,000 metadata records at once. The limit is lowest for requests whose arrays name
protocols, features or components.
"""

from __future__ import annotations

from typing import NamedTuple

NEVER = 1 << 15
ROWS = 2 << 20 >> 4  # the number of structs of 16 bytes in 2 MiB
CHANGES = 25_000  # enough for 10,000 changes and for the arrays that each of them contains
FEW = 1_000


class Api(NamedTuple):
    """One API, which is a row of the table."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    most_elements: int = ROWS


API_VERSIONS = 18

APIS = (
    Api(0, "Produce", 0, 13, 9),
    Api(1, "Fetch", 0, 18, 12, 80_000),
    Api(2, "ListOffsets", 0, 11, 6),
    Api(3, "Metadata", 0, 13, 9),
    Api(8, "OffsetCommit", 0, 10, 8),
    Api(9, "OffsetFetch", 0, 10, 6),
    Api(10, "FindCoordinator", 0, 6, 3),
    Api(11, "JoinGroup", 0, 9, 6, FEW),
    Api(12, "Heartbeat", 0, 4, 4, FEW),
    Api(13, "LeaveGroup", 0, 5, 4),
    Api(14, "SyncGroup", 0, 5, 4),
    Api(15, "DescribeGroups", 0, 6, 5),
    Api(16, "ListGroups", 0, 5, 3, FEW),
    Api(17, "SaslHandshake", 0, 1, NEVER, FEW),
    Api(18, "ApiVersions", 0, 4, 3, FEW),
    Api(19, "CreateTopics", 0, 7, 5, 2 * CHANGES),
    Api(20, "DeleteTopics", 0, 6, 4, CHANGES),
    Api(21, "DeleteRecords", 0, 2, 2),
    Api(22, "InitProducerId", 0, 6, 2, FEW),
    Api(23, "OffsetForLeaderEpoch", 0, 4, 4),
    Api(24, "AddPartitionsToTxn", 0, 5, 3, 5_000),
    Api(25, "AddOffsetsToTxn", 0, 4, 3, FEW),
    Api(26, "EndTxn", 0, 5, 3, FEW),
    Api(27, "WriteTxnMarkers", 0, 2, 1),
    Api(28, "TxnOffsetCommit", 0, 5, 3),
    Api(29, "DescribeAcls", 0, 3, 2, FEW),
    Api(30, "CreateAcls", 0, 3, 2, CHANGES),
    Api(31, "DeleteAcls", 0, 3, 2, FEW),
    Api(32, "DescribeConfigs", 0, 4, 4),
    Api(33, "AlterConfigs", 0, 2, 2),
    Api(34, "AlterReplicaLogDirs", 0, 2, 2, 10_000),
    Api(35, "DescribeLogDirs", 0, 5, 2, 30_000),
    Api(36, "SaslAuthenticate", 0, 2, 2, FEW),
    Api(37, "CreatePartitions", 0, 3, 2, CHANGES),
    Api(38, "CreateDelegationToken", 0, 3, 2, FEW),
    Api(39, "RenewDelegationToken", 0, 2, 2, FEW),
    Api(40, "ExpireDelegationToken", 0, 2, 2, FEW),
    Api(41, "DescribeDelegationToken", 0, 3, 2, FEW),
    Api(42, "DeleteGroups", 0, 2, 2),
    Api(43, "ElectLeaders", 0, 2, 2),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1),
    Api(45, "AlterPartitionReassignments", 0, 1, 0),
    Api(46, "ListPartitionReassignments", 0, 0, 0),
    Api(47, "OffsetDelete", 0, 0, NEVER),
    Api(48, "DescribeClientQuotas", 0, 1, 1, FEW),
    Api(49, "AlterClientQuotas", 0, 1, 1, 12_000),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0, 10_000),
    Api(51, "AlterUserScramCredentials", 0, 0, 0, 10_000),
    Api(55, "DescribeQuorum", 0, 2, 0, FEW),
    Api(57, "UpdateFeatures", 0, 2, 0, FEW),
    Api(60, "DescribeCluster", 0, 2, 0, FEW),
    Api(61, "DescribeProducers", 0, 0, 0),
    Api(64, "UnregisterBroker", 0, 0, 0, FEW),
    Api(65, "DescribeTransactions", 0, 0, 0),
    Api(66, "ListTransactions", 0, 2, 0, 10_000),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, 20_000),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0),
    Api(71, "GetTelemetrySubscriptions", 0, 0, 0, FEW),
    Api(72, "PushTelemetry", 0, 0, 0, FEW),
    Api(74, "ListConfigResources", 0, 1, 0, FEW),
    Api(75, "DescribeTopicPartitions", 0, 0, 0),
    Api(76, "ShareGroupHeartbeat", 1, 1, 1, 20_000),
    Api(77, "ShareGroupDescribe", 1, 1, 1),
    Api(78, "ShareFetch", 1, 2, 1, 80_000),
    Api(79, "ShareAcknowledge", 1, 2, 1, 80_000),
    Api(80, "AddRaftVoter", 0, 1, 0, FEW),
    Api(81, "RemoveRaftVoter", 0, 0, 0, FEW),
    Api(83, "InitializeShareGroupState", 0, 0, 0, 20_000),
    Api(84, "ReadShareGroupState", 0, 0, 0, 20_000),
    Api(85, "WriteShareGroupState", 0, 1, 0, 20_000),
    Api(86, "DeleteShareGroupState", 0, 0, 0, 20_000),
    Api(87, "ReadShareGroupStateSummary", 0, 1, 0, 20_000),
    Api(88, "StreamsGroupHeartbeat", 0, 0, 0, 20_000),
    Api(89, "StreamsGroupDescribe", 0, 0, 0),
    Api(90, "DescribeShareGroupOffsets", 0, 1, 0),
    Api(91, "AlterShareGroupOffsets", 0, 0, 0),
    Api(92, "DeleteShareGroupOffsets", 0, 0, 0),
)

BY_KEY = {api.key: api for api in APIS}
# By API key, the first version whose response header has tagged fields. The response header of
# ApiVersions never has them, so that every client can read it (KIP-511).
RESPONSE_TAGGED_FROM = {
    api.key: NEVER if api.key == API_VERSIONS else api.flexible_from for api in APIS
}
