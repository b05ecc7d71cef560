"""`barnabas acl`: list, add, remove access control lists (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click

from barnabas.cli.cluster import Connection
from barnabas.cli.denied import denied_by
from barnabas.cli.errors import ERROR, OK, RefusedError
from barnabas.cli.options import confirm, connection_options, ending, json_option, yes_option
from barnabas.cli.output import Column, Output, note
from barnabas.client.request_kind import RequestKind

KINDS = {
    "topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7,
}  # fmt: skip
OPERATIONS = {
    "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8,
    "cluster-action": 9, "describe-configs": 10, "alter-configs": 11, "idempotent-write": 12,
    "create-tokens": 13, "describe-tokens": 14, "two-phase-commit": 15,
}  # fmt: skip
PERMISSIONS = {"deny": 2, "allow": 3}
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
CLUSTER_NAME = "kafka-cluster"
COLUMNS = [
    Column("principal", "PRINCIPAL", "name"), Column("permission", "PERMISSION"),
    Column("operation", "OPERATION"), Column("resource", "RESOURCE"), Column("host", "HOST"),
]  # fmt: skip


class Resource(NamedTuple):
    """The resource of an ACL; kind and pattern are the protocol's numbers."""

    kind: int
    name: str
    pattern: int

    def __str__(self) -> str:
        kind = _word(KINDS, self.kind)
        if self.kind == KINDS["cluster"]:
            return kind
        return f"{kind}:{self.name}{'*' if self.pattern == PREFIXED else ''}"


class ResourceType(click.ParamType[Resource]):
    """A resource on the command line: KIND:NAME, KIND:PREFIX*, KIND:* or cluster."""

    name = "RESOURCE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Resource:
        if isinstance(value, Resource):
            return value
        kind, _, name = str(value).partition(":")
        if kind == "cluster" and not name:
            return Resource(KINDS[kind], CLUSTER_NAME, LITERAL)
        if kind not in KINDS or kind == "cluster" or not name:
            kinds = ", ".join(one for one in KINDS if one != "cluster")
            self.fail(
                f"{value!r} is not a resource: write cluster, or KIND:NAME with one of {kinds}; "
                "topic:* is all topics, topic:orders* the topics with that prefix",
                param,
                ctx,
            )
        if name.endswith("*") and name != "*":
            return Resource(KINDS[kind], name[:-1], PREFIXED)
        return Resource(KINDS[kind], name, LITERAL)


class OperationsType(click.ParamType[tuple[int, ...]]):
    """Operations on the command line, separated by commas."""

    name = "OPERATIONS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = [word.strip().lower().replace("_", "-") for word in str(value).split(",")]
        for word in words:
            if word not in OPERATIONS:
                self.fail(f"{word!r} is not an operation: use {', '.join(OPERATIONS)}", param, ctx)
        return tuple(OPERATIONS[word] for word in dict.fromkeys(words))


RESOURCE, OPERATION = ResourceType(), OperationsType()
DENY = click.option(
    "--deny", is_flag=True, help="Deny the operations; a denial overrides every allowance."
)


@click.group()
def acl() -> None:
    """Who may do what: list, add, remove ACLs.

    These commands work with any Kafka broker that has an authorizer. PRINCIPAL is User:NAME, or
    NAME for short; "*" is every principal. RESOURCE is topic:NAME, group:NAME,
    transactional-id:NAME, or cluster; NAME may be a prefix (topic:orders*) or all (topic:*).
    """


def principal_of(text: str) -> str:
    """The principal of a text: User:NAME, or a user's name."""
    return text if ":" in text else f"User:{text}"


@acl.command(
    "list",
    epilog=ending(
        "barnabas acl list", "barnabas acl list alice", "barnabas acl list --for topic:orders",
    ),
)  # fmt: skip
@click.argument("principal", required=False)
@click.option(
    "--for",
    "resource",
    type=RESOURCE,
    help="Only ACLs that apply to that resource, by its name or a prefix.",
)
@connection_options
@json_option
def list_acls(
    connection: Connection, output: Output, principal: str | None, resource: Resource | None
) -> int:
    """List ACLs: all, or those of a principal or for a resource."""
    from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

    pattern = ANY if resource is None else resource.pattern
    if resource is not None and pattern == LITERAL and resource.name != "*":
        pattern = MATCH
    filtered = _filter(principal, None, resource, None)
    filtered["pattern_type_filter"] = pattern
    with connection.admin() as admin:
        kind = RequestKind(DescribeAclsRequest, DescribeAclsResponse, 1, 3)
        answer = admin.any(kind, DescribeAclsRequest(**filtered))
    if answer.error_code:
        raise RefusedError(answer.error_code, answer.error_message)
    rows = [
        _row(Resource(listed.resource_type, listed.resource_name, listed.pattern_type), entry)
        for listed in answer.resources
        for entry in listed.acls
    ]
    _show(output, rows, "no ACLs")
    return OK


@acl.command(
    "add",
    epilog=ending(
        "barnabas acl add alice read topic:orders group:billing",
        "barnabas acl add alice write 'topic:audit-*' transactional-id:alice",
        "barnabas acl add '*' read topic:secrets --deny",
        "barnabas acl add admin all cluster 'topic:*' 'group:*' 'transactional-id:*'",
    ),
)
@click.argument("principal")
@click.argument("operations", type=OPERATION)
@click.argument("resources", metavar="RESOURCE...", type=RESOURCE, nargs=-1, required=True)
@DENY
@click.option("--host", default="*", show_default=True, help="Only connections from that address.")
@connection_options
@json_option
def add(
    connection: Connection,
    output: Output,
    principal: str,
    operations: Sequence[int],
    resources: Sequence[Resource],
    deny: bool,
    host: str,
) -> int:
    """Allow a principal operations on resources, or deny them.

    read, write, delete and alter imply describe. A consumer needs read on its topics and its group;
    a producer needs write on its topics and, if it is transactional, on its transactional id.
    """
    from barnabas.protocol.messages.create_acls import (
        AclCreation,
        CreateAclsRequest,
        CreateAclsResponse,
    )

    creations = [
        AclCreation(
            resource_type=resource.kind,
            resource_name=resource.name,
            resource_pattern_type=resource.pattern,
            principal=principal_of(principal),
            host=host,
            operation=operation,
            permission_type=PERMISSIONS["deny" if deny else "allow"],
        )
        for resource in resources
        for operation in operations
    ]
    with connection.admin() as admin:
        kind = RequestKind(CreateAclsRequest, CreateAclsResponse, 1, 3)
        answer = admin.any(kind, CreateAclsRequest(creations))
    rows = []
    failures = []
    for creation, result in zip(creations, answer.results, strict=True):
        resource = Resource(
            creation.resource_type, creation.resource_name, creation.resource_pattern_type
        )
        row = _row(resource, creation)
        if result.error_code:
            failures.append(f"{row['operation']} {resource}: {_said(result)}")
        else:
            rows.append(row)
    if rows or output.as_json:
        _show(output, rows, "")
    return _report_failures(failures)


@acl.command(
    "remove",
    epilog=ending(
        "barnabas acl remove alice", "barnabas acl remove alice write topic:orders --yes",
    ),
)  # fmt: skip
@click.argument("principal")
@click.argument("operations", type=OPERATION, required=False)
@click.argument("resources", metavar="[RESOURCE]...", type=RESOURCE, nargs=-1)
@click.option("--deny", is_flag=True, help="Only ACLs that deny.")
@click.option("--allow", is_flag=True, help="Only ACLs that allow.")
@yes_option
@connection_options
@json_option
def remove(
    connection: Connection,
    output: Output,
    principal: str,
    operations: Sequence[int] | None,
    resources: Sequence[Resource],
    deny: bool,
    allow: bool,
    yes: bool,
) -> int:
    """Remove a principal's ACLs: all, or those for operations and resources.

    A resource has to be written as it was when its ACL was added.
    """
    from barnabas.protocol.messages.delete_acls import (
        DeleteAclsFilter,
        DeleteAclsRequest,
        DeleteAclsResponse,
    )

    if deny and allow:
        raise click.UsageError("--deny and --allow leave nothing to remove")
    what = "all ACLs" if operations is None else "these ACLs"
    confirm(f"Remove {what} of {principal_of(principal)}?", yes=yes)
    permission = "deny" if deny else "allow" if allow else None
    filters = [
        DeleteAclsFilter(**_filter(principal, operation, resource, permission))
        for resource in resources or (None,)
        for operation in operations or (None,)
    ]
    with connection.admin() as admin:
        kind = RequestKind(DeleteAclsRequest, DeleteAclsResponse, 1, 3)
        answer = admin.any(kind, DeleteAclsRequest(filters))
    rows, failures = [], []
    for result in answer.filter_results:
        if result.error_code:
            failures.append(_said(result))
        for match in result.matching_acls:
            resource = Resource(match.resource_type, match.resource_name, match.pattern_type)
            rows.append(_row(resource, match))
    if not rows and not failures:
        failures.append(f"{principal_of(principal)} has no such ACL")
    if rows or output.as_json:
        _show(output, rows, "")
    return _report_failures(failures)


def _filter(
    principal: str | None, operation: int | None, resource: Resource | None, permission: str | None
) -> dict[str, Any]:
    """The fields of a filter of DescribeAcls or DeleteAcls; None for an argument matches all values
    of the field.
    """
    return {
        "resource_type_filter": ANY if resource is None else resource.kind,
        "resource_name_filter": None if resource is None else resource.name,
        "pattern_type_filter": ANY if resource is None else resource.pattern,
        "principal_filter": None if principal is None else principal_of(principal),
        "host_filter": None,
        "operation": ANY if operation is None else operation,
        "permission_type": ANY if permission is None else PERMISSIONS[permission],
    }


def _word(words: dict[str, int], number: int) -> str:
    return next((word for word, own in words.items() if own == number), str(number))


def _row(resource: Resource, entry: Any) -> dict[str, str]:
    """One ACL as a row of the printed table, with words for the codes of the protocol."""
    return {
        "principal": entry.principal,
        "permission": _word(PERMISSIONS, entry.permission_type),
        "operation": _word(OPERATIONS, entry.operation),
        "resource": str(resource),
        "host": entry.host,
    }


def _show(output: Output, rows: list[dict[str, str]], nothing: str) -> None:
    rows.sort(key=lambda row: (row["principal"], row["resource"], row["operation"]))
    if output.as_json:
        output.data(rows)
    else:
        output.table(rows, COLUMNS, nothing)


def _said(result: Any) -> str:
    error = RefusedError(result.error_code, result.error_message)
    return denied_by(error) or str(error) or error.name


def _report_failures(failures: Iterable[str]) -> int:
    """Print each failure. Gives: the exit code of the command."""
    failures = list(failures)
    for failure in failures:
        note(f"barnabas: {failure}", "bad")
    return ERROR if failures else OK
