"""Writes docs/REQUESTS.md from protocol/api_table.py: `make docs-pages` (a test checks that it was
done).
"""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.security.authorization import RULES
from barnabas.broker.settings.features import EMULATED, FEATURES, release_of
from barnabas.broker.settings.releases import versions_told
from barnabas.protocol.api_table import APIS, NEVER, Api

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "REQUESTS.md"
_BEFORE = """\
# Requests

*Written by `make docs-pages` from `protocol/api_table.py` and `broker/settings/releases.py`.*

What this broker speaks: what ApiVersions tells, and `barnabas check --apis` prints. Beside it
stands what Apache Kafka 3.9 and 4.3 tell; with `barnabas start --emulate 3.9` (or 4.3) those
versions are spoken, and no others ([COMPATIBILITY.md](COMPATIBILITY.md#other-releases)). *Flexible*
is the first version with compact types and tagged fields (KIP-482). The answers are held to those
that Apache Kafka gave to the same requests ([VERIFICATION.md](VERIFICATION.md)); where one differs
by intention, the last column says so.

| key | request | versions | Kafka 3.9 | Kafka 4.3 | flexible | what differs |
|---|---|---|---|---|---|---|
"""
_FEATURES = """
## Features

ApiVersions tells of these from version 3 on (KIP-584). The level is what is finalised by default;
`barnabas.features` sets another ([CONFIGURATION.md](CONFIGURATION.md)), and so does UpdateFeatures,
which holds at once. `metadata.version` is told, since clients ask for it, and acts on nothing.

| feature | supported | level | emulating 3.9 | emulating 4.3 |
|---|---|---|---|---|
"""
_ACLS = """
## What is asked of whom

With `authorizer.class.name=StandardAuthorizer` ([SECURITY.md](SECURITY.md#who-may-do-what)) each
request asks for these operations, of each topic, group or transactional id that it names; what is
not allowed is refused, row by row where the answer has rows. It is the table that the broker runs
on (`broker/security/authorization.py`).

| request | asks for |
|---|---|
"""
_BETWEEN = """
## Not spoken

What Apache Kafka tells clients of, and this broker does not. Such a request ends its connection,
with a line in the broker's log; clients ask ApiVersions first and do not send it.

| key | request | Kafka 3.9 | Kafka 4.3 | why |
|---|---|---|---|---|
"""

_TOKENS = "Refused, as by a Kafka without `delegation.token.secret.key`."
_VOTERS = "Refused, as by a Kafka whose quorum is `controller.quorum.voters`."
_TELEMETRY = "Told while a subscription of clients' metrics is set; what clients push is counted, and not read."
DIFFERENCES = {
    "Produce": "Below version 3 a message set of more than 1 MiB, also when it is decompressed, is refused; of one request 4 MiB are converted, and the rest is to be sent again.",
    "Fetch": "Below version 4 an answer has up to 1 MiB of older messages, without compression.",
    "ListOffsets": "Tiered storage has nothing to answer for.",
    "Metadata": "A topic that the request makes is told of from the next request on, as in Kafka.",
    "OffsetCommit": "An offset beyond a log that a power loss cut is set back at the start. Version 0 is refused, see OffsetFetch.",
    "CreateTopics": "One request makes 10,000 partitions at most.",
    "InitProducerId": "Version 6: two-phase commit ([TWO_PHASE_COMMIT.md](TWO_PHASE_COMMIT.md)). Answered when the transaction that it met has ended, instead of CONCURRENT_TRANSACTIONS. An old producer id and epoch are PRODUCER_FENCED in every state.",
    "AddPartitionsToTxn": "Without partitions it begins no transaction.",
    "EndTxn": "Below version 5 a request that comes late, by a connection which its producer has given up, ends nothing; from 5 on its epoch tells ([TRANSACTIONS.md](TRANSACTIONS.md)).",
    "ElectLeaders": "Of one broker there is no other leader to elect; of several, the leader moves at once.",
    "AlterReplicaLogDirs": "There is one log directory.",
    "DescribeQuorum": "The one process is all of the quorum.",
    "AlterPartitionReassignments": "Of one broker partitions stay where they are; of several, replicas move at once.",
    "ListPartitionReassignments": "A move is done at once, so none is ever under way.",
    "CreateDelegationToken": _TOKENS, "RenewDelegationToken": _TOKENS,
    "ExpireDelegationToken": _TOKENS, "DescribeDelegationToken": _TOKENS,
    "GetTelemetrySubscriptions": _TELEMETRY, "PushTelemetry": _TELEMETRY,
    "ListConfigResources": "Version 0 is what Kafka 3.9 calls ListClientMetricsResources.",
    "ListTransactions": "Of RE2's syntax, `\\b` and `\\B` are refused in a pattern.",
    "OffsetFetch": "Version 0 asks for offsets in ZooKeeper, which is not there: UNSUPPORTED_VERSION, as in Kafka.",
    "UnregisterBroker": "A broker that runs is not forgotten: INVALID_REQUEST.",
    "AddRaftVoter": _VOTERS, "RemoveRaftVoter": _VOTERS,
    "UpdateFeatures": "`metadata.version` acts on nothing.",
}  # fmt: skip

_SHARE = "There are no share groups (KIP-932)."
_STREAMS = "There are no streams groups (KIP-1071); Kafka Streams goes by classic ones."
NOT_SPOKEN = {
    76: ("ShareGroupHeartbeat", _SHARE), 77: ("ShareGroupDescribe", _SHARE),
    78: ("ShareFetch", _SHARE), 79: ("ShareAcknowledge", _SHARE),
    83: ("InitializeShareGroupState", _SHARE), 84: ("ReadShareGroupState", _SHARE),
    85: ("WriteShareGroupState", _SHARE), 86: ("DeleteShareGroupState", _SHARE),
    87: ("ReadShareGroupStateSummary", _SHARE), 88: ("StreamsGroupHeartbeat", _STREAMS),
    89: ("StreamsGroupDescribe", _STREAMS), 90: ("DescribeShareGroupOffsets", _SHARE),
    91: ("AlterShareGroupOffsets", _SHARE), 92: ("DeleteShareGroupOffsets", _SHARE),
}  # fmt: skip


def _versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _told(key: int) -> str:
    """What the releases tell of a request, as cells."""
    cells = []
    for name in EMULATED:
        told = versions_told(name).get(key)
        cells.append("-" if told is None else _versions(*told))
    return " | ".join(cells)


def _row(api: Api) -> str:
    flexible = "never" if api.flexible_from == NEVER else f"from {api.flexible_from}"
    versions = _versions(api.min_version, api.max_version)
    differs = DIFFERENCES.get(api.name, "")
    return f"| {api.key} | `{api.name}` | {versions} | {_told(api.key)} | {flexible} | {differs} |"


def _feature_rows() -> list[str]:
    """The features of this broker, and of the releases that it emulates."""
    own = {feature.name: feature for feature in FEATURES}
    emulated = [{one.name: one for one in release_of(name).features} for name in EMULATED]
    rows = []
    for name in dict.fromkeys([*own, *sorted({name for of in emulated for name in of})]):
        feature = own.get(name)
        supported = "-" if feature is None else _versions(*feature[1:3])
        level = "-" if feature is None else str(feature.default_level)
        cells = [str(of[name].default_level) if name in of else "-" for of in emulated]
        rows.append(f"| `{name}` | {supported} | {level} | {' | '.join(cells)} |")
    return rows


def _asks_row(api: Api) -> str:
    asks = [
        f"{ask.operation.name} on {ask.resource_type.name}" + (f" ({ask.when})" if ask.when else "")
        for ask in RULES[api.name].asks
    ]
    return f"| `{api.name}` | {'; '.join(asks) or 'nothing'} |"


def text() -> str:
    """The whole file."""
    spoken = {api.key for api in APIS}
    missing = [
        f"| {key} | `{name}` | {_told(key)} | {why} |"
        for key, (name, why) in NOT_SPOKEN.items()
        if key not in spoken
    ]
    apis = sorted(APIS, key=lambda api: api.key)
    rows = [_row(api) for api in apis]
    asks = [_asks_row(api) for api in apis]
    parts = [_BEFORE, rows, _FEATURES, _feature_rows(), _ACLS, asks, _BETWEEN, missing]
    return "".join(part if isinstance(part, str) else "\n".join(part) + "\n" for part in parts)
