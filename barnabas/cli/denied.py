"""Refusals by ACLs: which operation on which resource a user lacks, and the command that allows it.

Kafka's answer names the kind of the resource by its code, and no operation. The operation follows
from the command, the principal from the settings of --client-config.
"""

from __future__ import annotations

import re
from typing import Any

import click

from barnabas.cli.errors import RefusedError

PRINCIPAL = "barnabas.cli.principal"  # in the context of a command
CODES = {29: "Topic", 30: "Group", 31: "Cluster", 53: "TransactionalId"}
_NAME = re.compile(r"(Topic|Group|Cluster|TransactionalId)AuthorizationFailed")
_CODE = re.compile(r"\[Error (29|30|31|53)\]")
_RESOURCE = re.compile(r"AuthorizationFailed(?:Error)?\W+(?:\{|\[)'([^']+)'")
_KINDS = {
    "Topic": "topic",
    "Group": "group",
    "Cluster": "cluster",
    "TransactionalId": "transactional-id",
}
NEEDS: dict[str, dict[str, str]] = {
    "acl add": {"cluster": "alter"},
    "acl list": {"cluster": "describe"},
    "acl remove": {"cluster": "alter"},
    "check": {
        "topic": "create,read,write,delete", "cluster": "create", "transactional-id": "write",
    },
    "config describe": {
        "topic": "describe-configs", "cluster": "describe-configs", "group": "describe-configs",
    },
    "config set": {"topic": "alter-configs", "cluster": "alter-configs", "group": "alter-configs"},
    "config unset": {
        "topic": "alter-configs", "cluster": "alter-configs", "group": "alter-configs",
    },
    "consume": {"topic": "read", "group": "read"},
    "groups delete": {"group": "delete"},
    "groups delete-offsets": {"group": "delete", "topic": "read"},
    "groups describe": {"group": "describe", "topic": "describe"},
    "groups export-offsets": {"group": "describe", "topic": "describe"},
    "groups list": {"cluster": "describe"},
    "groups reset-offsets": {"group": "read", "topic": "read"},
    "produce": {"topic": "write", "transactional-id": "write", "cluster": "idempotent-write"},
    "quota list": {"cluster": "describe-configs"},
    "quota remove": {"cluster": "alter-configs"},
    "quota set": {"cluster": "alter-configs"},
    "records delete": {"topic": "delete"},
    "share consume": {"topic": "read", "group": "read"},
    "support-bundle": {"cluster": "describe-configs", "topic": "describe,describe-configs"},
    "topics alter": {"topic": "alter,alter-configs"},
    "topics create": {"topic": "create", "cluster": "create"},
    "topics delete": {"topic": "delete"},
    "topics describe": {"topic": "describe,describe-configs"},
    "topics list": {"topic": "describe"},
    "topics offsets": {"topic": "describe"},
    "txn abort": {"cluster": "alter", "transactional-id": "describe,write", "topic": "read"},
    "txn commit": {"transactional-id": "describe,write,two-phase-commit"},
    "txn describe": {"transactional-id": "describe"},
    "txn list": {"transactional-id": "describe"},
    "txn why-stuck": {"topic": "read", "group": "describe", "transactional-id": "describe"},
    "user add": {"cluster": "alter"},
    "user list": {"cluster": "describe"},
    "user remove": {"cluster": "alter"},
}  # fmt: skip


def denied_kind(error: Exception) -> str:
    """The kind of the resource that an error says was refused; empty for another error."""
    if isinstance(error, RefusedError):
        return _KINDS.get(CODES.get(error.code, ""), "")
    text = f"{type(error).__name__}: {error}"
    if match := _NAME.search(text):
        return _KINDS[match[1]]
    if match := _CODE.search(text):
        return _KINDS[CODES[int(match[1])]]
    return ""


def denied_by(error: Exception, subject: str = "") -> str:
    """What is missing, and the command that allows it; empty where no ACL is the reason.

    Takes: subject, the resource's name, if it is known.
    """
    kind = denied_kind(error)
    context = click.get_current_context(silent=True)
    if not kind or context is None:
        return ""
    verb = context.command_path.partition(" ")[2]
    operations = NEEDS.get(verb, {}).get(kind, "all")
    named = _RESOURCE.search(f"{type(error).__name__}: {error}")
    name = getattr(error, "resource", "") or (named[1] if named else "") or subject
    resource = kind
    if kind != "cluster":
        resource += f":{name or _name_of(kind, context.params)}"
    principal = context.meta.get(PRINCIPAL, "User:ANONYMOUS")
    user = principal.removeprefix("User:")
    what = f"{operations.replace(',', ' or ')} {resource}"
    return (
        f"{principal} may not {what}: an administrator allows it with"
        f" `barnabas acl add {user} {operations} {resource}`"
    )


def _name_of(kind: str, params: dict[str, Any]) -> str:
    """The name of the resource among a command's arguments."""
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
