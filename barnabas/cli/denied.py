"""Refusals by ACLs: the missing operation on a resource, and the command that allows it.

The error code of Kafka's response shows the kind of the resource, but not the operation. The
operation follows from the request that was refused, and the principal from the client's settings.
"""

from __future__ import annotations

import shlex
from typing import Any

import click

from barnabas.cli.errors import RefusedError

# the key in click's context under which a command stores the principal
PRINCIPAL = "barnabas.cli.principal"
CODES = {29: "Topic", 30: "Group", 31: "Cluster", 53: "TransactionalId"}
_KINDS = {
    "Topic": "topic",
    "Group": "group",
    "Cluster": "cluster",
    "TransactionalId": "transactional-id",
}
# The operation that each request needs, by the kind of the resource in the refusal.
_CONFIGS = ("topic", "cluster", "group")
OF_REQUEST: dict[str, dict[str, str]] = {
    "AddPartitionsToTxn": {"transactional-id": "write", "topic": "write"},
    "AlterClientQuotas": {"cluster": "alter-configs"},
    "AlterShareGroupOffsets": {"group": "read", "topic": "read"},
    "AlterUserScramCredentials": {"cluster": "alter"},
    "ConsumerGroupDescribe": {"group": "describe", "topic": "describe"},
    "CreateAcls": {"cluster": "alter"},
    "CreatePartitions": {"topic": "alter"},
    "CreateTopics": {"topic": "create", "cluster": "create"},
    "DeleteAcls": {"cluster": "alter"},
    "DeleteGroups": {"group": "delete"},
    "DeleteRecords": {"topic": "delete"},
    "DeleteShareGroupOffsets": {"group": "delete", "topic": "read"},
    "DeleteTopics": {"topic": "delete"},
    "DescribeAcls": {"cluster": "describe"},
    "DescribeClientQuotas": {"cluster": "describe-configs"},
    "DescribeConfigs": dict.fromkeys(_CONFIGS, "describe-configs"),
    "DescribeGroups": {"group": "describe"},
    "DescribeLogDirs": {"cluster": "describe"},
    "DescribeProducers": {"topic": "read"},
    "DescribeShareGroupOffsets": {"group": "describe", "topic": "describe"},
    "DescribeTransactions": {"transactional-id": "describe"},
    "DescribeUserScramCredentials": {"cluster": "describe"},
    "EndTxn": {"transactional-id": "write"},
    "Fetch": {"topic": "read"},
    "FindCoordinator": {"group": "describe", "transactional-id": "describe"},
    "IncrementalAlterConfigs": dict.fromkeys(_CONFIGS, "alter-configs"),
    "InitProducerId": {"transactional-id": "write", "cluster": "idempotent-write"},
    "ListGroups": {"cluster": "describe"},
    "ListOffsets": {"topic": "describe"},
    "Metadata": {"topic": "describe"},
    "OffsetCommit": {"group": "read", "topic": "read"},
    "OffsetDelete": {"group": "delete", "topic": "read"},
    "OffsetFetch": {"group": "describe", "topic": "describe"},
    "Produce": {"topic": "write", "transactional-id": "write"},
    "ShareAcknowledge": {"group": "read", "topic": "read"},
    "ShareFetch": {"group": "read", "topic": "read"},
    "ShareGroupDescribe": {"group": "describe", "topic": "describe"},
    "ShareGroupHeartbeat": {"group": "read", "topic": "describe"},
    "StreamsGroupDescribe": {"group": "describe", "topic": "describe"},
    "WriteTxnMarkers": {"cluster": "alter"},
}
# The prefix of the topics and transactional ids of `barnabas check`, whose names end in random
# characters.
CHECK_PREFIX = "barnabas-check-"


def denied_kind(error: Exception) -> str:
    """The kind of the refused resource in an error; empty for other errors."""
    return _KINDS.get(CODES.get(error.code, ""), "") if isinstance(error, RefusedError) else ""


def denied_by(error: Exception, subject: str = "", operation: str = "") -> str:
    """The missing permission, and the command that allows it; empty if no ACL is the reason.

    Takes: subject, the name of the resource; operation, the missing operation. Both are empty if
           unknown.
    """
    kind = denied_kind(error)
    context = click.get_current_context(silent=True)
    if not kind or context is None or not isinstance(error, RefusedError):
        return ""
    operation = operation or OF_REQUEST.get(error.request, {}).get(kind, "all")
    name = error.resource or subject
    resource = kind
    if kind != "cluster":
        name = name or _name_of(kind, context.params)
        resource += f":{CHECK_PREFIX}*" if name.startswith(CHECK_PREFIX) else f":{name}"
    principal = context.meta.get(PRINCIPAL, "User:ANONYMOUS")
    command = shlex.join(["acl", "add", principal.removeprefix("User:"), operation, resource])
    return (
        f"{principal} may not {operation} {resource}: an administrator allows it with "
        f"`barnabas {command}`"
    )


def _name_of(kind: str, params: dict[str, Any]) -> str:
    """The name of the refused resource, taken from the command's arguments."""
    keys = {
        "topic": ("topic", "names", "name", "partition"),
        "group": ("group", "names", "name"),
        "transactional-id": ("transactional_id", "names", "name"),
    }[kind]
    for key in keys:
        value = params.get(key)
        if isinstance(value, tuple) and value and not hasattr(value, "topic"):
            value = value[0]
        value = getattr(value, "topic", value)
        if value:
            return str(value)
    return "*"
