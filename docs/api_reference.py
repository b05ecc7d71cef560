"""Writes docs/REQUESTS.md from protocol/api_table.py.

Run it with `make docs-pages`. A test checks that the page is up to date.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.dispatch import row_of
from barnabas.broker.settings.features import EMULATED, FEATURES, release_of
from barnabas.broker.settings.releases import advertised_versions
from barnabas.protocol.api import NEVER, Api
from barnabas.protocol.api_table import APIS

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "REQUESTS.md"
_BEFORE = """\
# Requests

*Written by `make docs-pages` from `protocol/api_table.py` and `broker/settings/releases.py`.*

The requests that this broker supports: ApiVersions returns them, and `barnabas check --apis` prints
them. The columns beside them have the versions of Apache Kafka 3.9 and 4.3; with
`barnabas start --emulate 3.9` (or 4.3) exactly those are supported
([COMPATIBILITY.md](COMPATIBILITY.md#other-releases)). *Flexible*
is the first version with compact types and tagged fields (KIP-482). Tests compare the answers with
those that Apache Kafka gave to the same requests ([VERIFICATION.md](VERIFICATION.md)); the last
column has the intended differences.

| key | request | versions | Kafka 3.9 | Kafka 4.3 | flexible | what differs |
|---|---|---|---|---|---|---|
"""
_FEATURES = """
## Features

ApiVersions returns these from version 3 on (KIP-584). The level is the one finalised by default;
`barnabas.features` sets another ([CONFIGURATION.md](CONFIGURATION.md)), and so does UpdateFeatures,
which takes effect at once. `metadata.version` is listed, since clients ask for it, and has no effect.

| feature | supported | level | emulating 3.9 | emulating 4.3 |
|---|---|---|---|---|
"""
_ACLS = """
## Needed rights

With `authorizer.class.name=StandardAuthorizer` ([SECURITY.md](SECURITY.md#authorization)) each
request needs these operations on each topic, group or transactional id that it names. Without them
it is refused, row by row where the answer has rows. The broker runs on this table
(the rows in `broker/handlers/`).

| request | needs |
|---|---|
"""
_AFTER = """
## Not supported

Of the requests that clients send to a broker of Apache Kafka 4.3, none is missing. Those that its
brokers and controllers send each other are not listed by ApiVersions; such a request ends its
connection, with a line in the broker's log.
"""

_TOKENS = "Refused, as by a Kafka without `delegation.token.secret.key`."
_VOTERS = "Refused, as by a Kafka whose quorum is `controller.quorum.voters`."
_TELEMETRY = "Listed by ApiVersions while a subscription of clients' metrics is set; pushed metrics are counted, and not read."
DIFFERENCES = {
    "Produce": "Below version 3 a message set of more than 1 MiB, also when it is decompressed, is refused; of one request 4 MiB are converted, and the rest has to be sent again.",
    "Fetch": "Below version 4 an answer has up to 1 MiB of older messages, without compression.",
    "ListOffsets": "There is no tiered storage. Two ranges of timestamps mean recorded cuts of "
    "whole transactions ([TRANSACTIONS.md](TRANSACTIONS.md#cuts-in-the-past)).",
    "Metadata": "A topic that the request creates is visible from the next request on, as in Kafka.",
    "OffsetCommit": "An offset beyond a log that a power loss cut is set back at the start. Version 0 is refused, see OffsetFetch.",
    "ShareFetch": "A partition of an unknown topic id is answered when the request names it, at once, and is not kept in the session; Kafka keeps it, and repeats the error in each answer. Partitions of sessions are bounded ([LIMITS.md](LIMITS.md#size)).",
    "AlterShareGroupOffsets": "The next member reads from the offsets that were set. In Apache Kafka 4.3 it goes on where the share partition in memory is, as long as the connection of the group's last share session is open, and the next acknowledgement replaces the offset that was set.",
    "CreateTopics": "One request creates 10,000 partitions at most.",
    "InitProducerId": "Version 6: two-phase commit ([TWO_PHASE_COMMIT.md](TWO_PHASE_COMMIT.md)). Where a transaction is open, the answer comes after its end, instead of CONCURRENT_TRANSACTIONS. An old producer id and epoch are PRODUCER_FENCED in every state.",
    "AddPartitionsToTxn": "Without partitions it begins no transaction.",
    "EndTxn": "Below version 5 a late request, over a connection that its producer has replaced, ends nothing; from 5 on its epoch shows that it is late ([TRANSACTIONS.md](TRANSACTIONS.md)).",
    "ElectLeaders": "With one broker there is no other leader to elect; with several, the leader moves at once.",
    "DescribeLogDirs": "The usable bytes are those that clients may still write: the free space without `barnabas.disk.reserve.bytes`, and 0 while writes are refused.",
    "AlterReplicaLogDirs": "There is one log directory.",
    "DescribeQuorum": "The quorum is this process.",
    "AlterPartitionReassignments": "With one broker partitions do not move; with several, replicas move at once.",
    "ListPartitionReassignments": "A move is done at once, so the list is always empty.",
    "CreateDelegationToken": _TOKENS, "RenewDelegationToken": _TOKENS,
    "ExpireDelegationToken": _TOKENS, "DescribeDelegationToken": _TOKENS,
    "GetTelemetrySubscriptions": _TELEMETRY, "PushTelemetry": _TELEMETRY,
    "ListConfigResources": "Version 0 is what Kafka 3.9 calls ListClientMetricsResources.",
    "ListTransactions": "Of RE2's syntax, `\\b` and `\\B` are refused in a pattern.",
    "OffsetFetch": "Version 0 asks for offsets in ZooKeeper, which does not exist: UNSUPPORTED_VERSION, as in Kafka.",
    "StreamsGroupHeartbeat": "A member that lists other tasks than those that are assigned to it gets them again: it has missed an answer. A topology that Kafka fails over (UNKNOWN_SERVER_ERROR) is STREAMS_INVALID_TOPOLOGY, and so is one with more tasks than [the bound](LIMITS.md#size).",
    "UnregisterBroker": "A running broker cannot be unregistered: INVALID_REQUEST.",
    "AddRaftVoter": _VOTERS, "RemoveRaftVoter": _VOTERS,
    "UpdateFeatures": "`metadata.version` has no effect.",
}  # fmt: skip


def _versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _versions_by_release(key: int) -> str:
    """The versions of a request in each emulated release, as cells of a table."""
    cells = []
    for name in EMULATED:
        versions = advertised_versions(name).get(key)
        cells.append("-" if versions is None else _versions(*versions))
    return " | ".join(cells)


def _row(api: Api) -> str:
    flexible = "never" if api.flexible_from == NEVER else f"from {api.flexible_from}"
    versions = _versions(api.min_version, api.max_version)
    differs = DIFFERENCES.get(api.name, "")
    releases = _versions_by_release(api.key)
    return f"| {api.key} | `{api.name}` | {versions} | {releases} | {flexible} | {differs} |"


def _feature_rows() -> list[str]:
    """Return a table row for each feature of this broker or of a release that it emulates."""
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
        for ask in row_of(api).right.asks
    ]
    return f"| `{api.name}` | {'; '.join(asks) or 'nothing'} |"


def text() -> str:
    """The whole file."""
    apis = sorted(APIS, key=lambda api: api.key)
    rows = [_row(api) for api in apis]
    asks = [_asks_row(api) for api in apis]
    parts = [_BEFORE, rows, _FEATURES, _feature_rows(), _ACLS, asks, _AFTER]
    return "".join(part if isinstance(part, str) else "\n".join(part) + "\n" for part in parts)
