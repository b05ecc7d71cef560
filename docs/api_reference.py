"""Writes docs/REQUESTS.md from protocol/api_table.py: `make docs-pages` (a test checks that it was
done).
"""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.features import FEATURES
from barnabas.protocol.api_table import APIS, NEVER, Api

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "REQUESTS.md"
_BEFORE = """\
# Requests

*Written by `make docs-pages` from `protocol/api_table.py`.*

What this broker speaks: what ApiVersions tells, and `barnabas check --apis` prints. Beside it
stands what Apache Kafka 3.9 tells. *Flexible* is the first version with compact types and tagged
fields (KIP-482). The answers are held to those that Apache Kafka gave to the same requests
([VERIFICATION.md](VERIFICATION.md)); where one differs by intention, the last column says so.

| key | request | versions | Kafka 3.9 | flexible | what differs |
|---|---|---|---|---|---|
"""
_FEATURES = """
## Features

ApiVersions tells of these from version 3 on (KIP-584). The level is what is finalised by default;
`barnabas.features` sets another ([CONFIGURATION.md](CONFIGURATION.md)).

| feature | supported | level |
|---|---|---|
"""
_BETWEEN = """
## Not spoken

What Apache Kafka 3.9 tells clients of, and this broker does not. Such a request ends its
connection, with a line in the broker's log; clients ask ApiVersions first and do not send it.

| key | request | Kafka 3.9 | why |
|---|---|---|---|
"""

# What Apache Kafka 3.9 tells of (KRaft, one node): key: (name, first version, last version)
KAFKA = {
    0: ("Produce", 0, 11), 1: ("Fetch", 0, 17), 2: ("ListOffsets", 0, 9), 3: ("Metadata", 0, 12),
    8: ("OffsetCommit", 0, 9), 9: ("OffsetFetch", 0, 9), 10: ("FindCoordinator", 0, 6),
    11: ("JoinGroup", 0, 9), 12: ("Heartbeat", 0, 4), 13: ("LeaveGroup", 0, 5),
    14: ("SyncGroup", 0, 5), 15: ("DescribeGroups", 0, 5), 16: ("ListGroups", 0, 5),
    17: ("SaslHandshake", 0, 1), 18: ("ApiVersions", 0, 4), 19: ("CreateTopics", 0, 7),
    20: ("DeleteTopics", 0, 6), 21: ("DeleteRecords", 0, 2), 22: ("InitProducerId", 0, 5),
    23: ("OffsetForLeaderEpoch", 0, 4), 24: ("AddPartitionsToTxn", 0, 5),
    25: ("AddOffsetsToTxn", 0, 4), 26: ("EndTxn", 0, 4), 27: ("WriteTxnMarkers", 0, 1),
    28: ("TxnOffsetCommit", 0, 4), 29: ("DescribeAcls", 0, 3), 30: ("CreateAcls", 0, 3),
    31: ("DeleteAcls", 0, 3), 32: ("DescribeConfigs", 0, 4), 33: ("AlterConfigs", 0, 2),
    34: ("AlterReplicaLogDirs", 0, 2), 35: ("DescribeLogDirs", 0, 4),
    36: ("SaslAuthenticate", 0, 2), 37: ("CreatePartitions", 0, 3),
    38: ("CreateDelegationToken", 0, 3), 39: ("RenewDelegationToken", 0, 2),
    40: ("ExpireDelegationToken", 0, 2), 41: ("DescribeDelegationToken", 0, 3),
    42: ("DeleteGroups", 0, 2), 43: ("ElectLeaders", 0, 2), 44: ("IncrementalAlterConfigs", 0, 1),
    45: ("AlterPartitionReassignments", 0, 0), 46: ("ListPartitionReassignments", 0, 0),
    47: ("OffsetDelete", 0, 0), 48: ("DescribeClientQuotas", 0, 1),
    49: ("AlterClientQuotas", 0, 1), 50: ("DescribeUserScramCredentials", 0, 0),
    51: ("AlterUserScramCredentials", 0, 0), 55: ("DescribeQuorum", 0, 2),
    57: ("UpdateFeatures", 0, 1), 60: ("DescribeCluster", 0, 1), 61: ("DescribeProducers", 0, 0),
    64: ("UnregisterBroker", 0, 0), 65: ("DescribeTransactions", 0, 0),
    66: ("ListTransactions", 0, 1), 68: ("ConsumerGroupHeartbeat", 0, 0),
    69: ("ConsumerGroupDescribe", 0, 0), 74: ("ListClientMetricsResources", 0, 0),
    75: ("DescribeTopicPartitions", 0, 0), 80: ("AddRaftVoter", 0, 0),
    81: ("RemoveRaftVoter", 0, 0),
}  # fmt: skip

DIFFERENCES = {
    "Produce": "Record batches of version 2 alone, so 3 is the first version. ApiVersions tells of 0 on, since librdkafka before 2.8 turns compression off otherwise.",
    "ListOffsets": "Tiered storage has nothing to answer for.",
    "Metadata": "A topic that the request makes is told of from the next request on, as in Kafka.",
    "OffsetCommit": "An offset beyond a log that a power loss cut is set back at the start.",
    "CreateTopics": "One request makes 10,000 partitions at most.",
    "InitProducerId": "Version 6: two-phase commit ([TWO_PHASE_COMMIT.md](TWO_PHASE_COMMIT.md)). Answered when the transaction that it met has ended, instead of CONCURRENT_TRANSACTIONS. An old producer id and epoch are PRODUCER_FENCED in every state.",
    "AddPartitionsToTxn": "Without partitions it begins no transaction.",
    "EndTxn": "Below version 5 a request that comes late, by a connection which its producer has given up, ends nothing; from 5 on its epoch tells ([TRANSACTIONS.md](TRANSACTIONS.md)).",
    "ElectLeaders": "Of one broker there is no other leader to elect; of several, the leader moves at once.",
    "AlterReplicaLogDirs": "There is one log directory.",
    "DescribeQuorum": "The one process is all of the quorum.",
    "AlterPartitionReassignments": "Of one broker partitions stay where they are; of several, replicas move at once.",
    "ListPartitionReassignments": "A move is done at once, so none is ever under way.",
    "ListConfigResources": "Version 0 is what Kafka 3.9 calls ListClientMetricsResources. Subscriptions of metrics are kept, and no client is asked for metrics.",
}  # fmt: skip

_ACCESS = "Access control lists are not there yet."
_TOKENS = "Delegation tokens are not planned."
_REPLICAS = "One log directory, no quorum of controllers."
REASONS = {
    "DescribeAcls": _ACCESS, "CreateAcls": _ACCESS, "DeleteAcls": _ACCESS,
    "DescribeClientQuotas": "Quotas are not there yet.",
    "AlterClientQuotas": "Quotas are not there yet.",
    "CreateDelegationToken": _TOKENS, "RenewDelegationToken": _TOKENS,
    "ExpireDelegationToken": _TOKENS, "DescribeDelegationToken": _TOKENS,
    "UnregisterBroker": _REPLICAS, "AddRaftVoter": _REPLICAS, "RemoveRaftVoter": _REPLICAS,
    "UpdateFeatures": "Features are set when the broker starts.",
}  # fmt: skip


def _versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _row(api: Api) -> str:
    kafka = KAFKA.get(api.key)
    told = f"{_versions(*kafka[1:])}" if kafka else "-"
    flexible = "never" if api.flexible_from == NEVER else f"from {api.flexible_from}"
    versions = _versions(api.min_version, api.max_version)
    differs = DIFFERENCES.get(api.name, "")
    return f"| {api.key} | `{api.name}` | {versions} | {told} | {flexible} | {differs} |"


def text() -> str:
    """The whole file."""
    spoken = {api.key for api in APIS}
    missing = [
        f"| {key} | `{name}` | {_versions(first, last)} | {REASONS.get(name, '')} |"
        for key, (name, first, last) in KAFKA.items()
        if key not in spoken
    ]
    rows = [_row(api) for api in sorted(APIS, key=lambda api: api.key)]
    features = [
        f"| `{feature.name}` | {_versions(feature.min_version, feature.max_version)} | "
        f"{feature.default_level} |"
        for feature in FEATURES
    ]
    parts = [_BEFORE, rows, _FEATURES, features, _BETWEEN, missing]
    return "".join(part if isinstance(part, str) else "\n".join(part) + "\n" for part in parts)
