"""CreateAcls, DescribeAcls, DeleteAcls (KIP-140, KIP-290)."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from barnabas.broker.admission.guard_steps import on_cluster, rule
from barnabas.broker.admission.rights import ALTER, DESCRIBE
from barnabas.broker.api_row import ApiRow
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.outbox import Answer, Ids
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import Repeats, Shape, of_rows
from barnabas.broker.security.acls import (
    CLUSTER_NAME,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.stored import Acl
from barnabas.broker.slices import Slices
from barnabas.protocol.api import CHANGES, FEW, Api
from barnabas.protocol.errors import Code, KafkaError, ProtocolViolation
from barnabas.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.protocol.request_context import RequestContext

NO_AUTHORIZER = "No authorizer is configured: set authorizer.class.name=StandardAuthorizer."
_NUMBERS = (ResourceType, PatternType, Operation, Permission)
LONGEST_NAME = 32767
ACLS_AT_ONCE = 4_000  # maximum number of ACLs that one slice compares with a filter


def on_create_acls(
    access: ClientAccess,
    metadata: ClusterMetadata,
    ids: Ids,
    request: CreateAclsRequest,
    context: RequestContext,
) -> CreateAclsResponse:
    """Store ACLs. An ACL that exists already is not an error. The ACLs are in force before the
    response is sent.

    Errors: SECURITY_DISABLED for all ACLs without an authorizer. UNKNOWN_SERVER_ERROR for all ACLs,
    as in Apache Kafka, if one of them has ANY or MATCH, which are only for filters. INVALID_REQUEST
    for an ACL with an unknown number, without a name, or about a cluster other than
    `kafka-cluster`.
    Raises: ProtocolViolation if a number is 0.
    """
    authorizer = access.authorizer
    if authorizer is None or not authorizer.is_on:
        return _all_refused(request, KafkaError(Code.SECURITY_DISABLED, NO_AUTHORIZER))
    for creation in request.creations:
        _check_not_zero(_numbers_of(creation, "resource_pattern_type"))
    if any(_has_any(creation) for creation in request.creations):
        error = KafkaError(
            Code.UNKNOWN_SERVER_ERROR, "ANY and MATCH are for filters: name what the ACL is about."
        )
        return _all_refused(request, error)
    present = set(metadata.acls.values())
    acls: dict[uuid.UUID, Acl] = {}
    results = []
    for creation in request.creations:
        try:
            acl = _checked(creation)
        except KafkaError as error:
            results.append(AclCreationResult(error.code, error.message))
            continue
        results.append(AclCreationResult(Code.NONE, None))
        if acl not in present:
            present.add(acl)
            acls[ids.uuid()] = acl
    if acls:
        authorizer.add(acls)
    return CreateAclsResponse(results=results)


def _all_refused(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    """The answer that refuses all creations of a request with the same error."""
    return CreateAclsResponse(
        results=[AclCreationResult(error.code, error.message) for _ in request.creations]
    )


def _numbers_of(acl: Any, pattern_field: str) -> tuple[int, int, int, int]:
    """The numbers of an ACL or a filter: resource type, pattern type, operation, permission."""
    resource_type = (
        acl.resource_type
        if pattern_field == "resource_pattern_type"
        else (acl.resource_type_filter)
    )
    return resource_type, getattr(acl, pattern_field), acl.operation, acl.permission_type


def _check_not_zero(numbers: tuple[int, int, int, int]) -> None:
    if 0 in numbers:
        raise ProtocolViolation("an ACL or a filter has the number 0, which has no meaning")


def _has_any(creation: AclCreation) -> bool:
    """Whether a creation has a value that only filters may have."""
    return (
        creation.resource_type == ResourceType.ANY
        or creation.resource_pattern_type in (PatternType.ANY, PatternType.MATCH)
        or creation.operation == Operation.ANY
        or creation.permission_type == Permission.ANY
    )


def _is_known(numbers: tuple[int, int, int, int]) -> bool:
    """Whether all numbers of an ACL or a filter are values of Kafka's protocol."""
    return all(
        number in kind.__members__.values() for kind, number in zip(_NUMBERS, numbers, strict=True)
    )


def _checked(creation: AclCreation) -> Acl:
    """The ACL that a creation describes. Raises: KafkaError if it is invalid."""
    if not _is_known(_numbers_of(creation, "resource_pattern_type")):
        raise KafkaError(
            Code.INVALID_REQUEST,
            "The ACL has an unknown number: use the numbers of Kafka's protocol.",
        )
    name = creation.resource_name
    if not name:
        raise KafkaError(Code.INVALID_REQUEST, "The ACL names no resource: name one.")
    if len(name) > LONGEST_NAME:
        raise KafkaError(Code.INVALID_REQUEST, "The name of the resource is too long: shorten it.")
    if (
        creation.resource_type == ResourceType.CLUSTER
        and creation.resource_pattern_type == PatternType.LITERAL
        and name != CLUSTER_NAME
    ):
        raise KafkaError(
            Code.INVALID_REQUEST, f"The cluster's name is wrong: the only one is '{CLUSTER_NAME}'."
        )
    return Acl(
        creation.resource_type, name, creation.resource_pattern_type, creation.principal,
        creation.host, creation.operation, creation.permission_type,
    )  # fmt: skip


def on_describe_acls(
    access: ClientAccess,
    metadata: ClusterMetadata,
    requests: Requests,
    request: DescribeAclsRequest,
    context: RequestContext,
) -> Answer:
    """The ACLs that match a filter, by resource. A filter with an unknown number matches no ACL.

    Errors: SECURITY_DISABLED without an authorizer. Raises: ProtocolViolation if a number is 0.
    """
    if access.authorizer is None or not access.authorizer.is_on:
        return DescribeAclsResponse(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    _check_not_zero(_numbers_of(request, "pattern_type_filter"))
    return requests.read_in_slices(context, _describing(metadata, _filter(request)))


def _describing(metadata: ClusterMetadata, wanted: AclFilter) -> Slices:
    """Describe the ACLs that match a filter, in slices."""
    yield
    resources: dict[tuple[int, str, int], list[AclDescription]] = {}
    for count, acl in enumerate(list(metadata.acls.values())):
        if count and count % ACLS_AT_ONCE == 0:
            yield
        if wanted.finds(acl):
            resource = acl.resource_type, acl.resource_name, acl.pattern_type
            resources.setdefault(resource, []).append(
                AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type)
            )
    return DescribeAclsResponse(
        error_message=None,
        resources=[DescribeAclsResource(*resource, acls) for resource, acls in resources.items()],
    )


def _filter(wire: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter of a request as an AclFilter, which does not depend on the API."""
    return AclFilter(
        wire.resource_type_filter, wire.resource_name_filter, wire.pattern_type_filter,
        wire.principal_filter, wire.host_filter, wire.operation, wire.permission_type,
    )  # fmt: skip


def on_delete_acls(
    access: ClientAccess,
    metadata: ClusterMetadata,
    requests: Requests,
    request: DeleteAclsRequest,
    context: RequestContext,
) -> Answer:
    """Delete the ACLs that match filters; an ACL that matches several filters is in the result of
    each.

    Errors: SECURITY_DISABLED without an authorizer; INVALID_REQUEST for a filter with an unknown
    number. Raises: ProtocolViolation if a number is 0.
    """
    authorizer = access.authorizer
    if authorizer is None or not authorizer.is_on:
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(Code.SECURITY_DISABLED, NO_AUTHORIZER)
                for _ in request.filters
            ]
        )
    for one in request.filters:
        _check_not_zero(_numbers_of(one, "pattern_type_filter"))
    work = _deleting(authorizer, metadata, request)
    return requests.answer_in_slices(request, context, work)


def _deleting(
    authorizer: Authorizer, metadata: ClusterMetadata, request: DeleteAclsRequest
) -> Slices:
    """Delete the ACLs that match the filters of a request, in slices: all filters are compared with
    all ACLs, and then the ACLs are deleted at once.
    """
    yield
    doomed: dict[uuid.UUID, Acl] = {}
    results = []
    count = 0
    for one in request.filters:
        if not _is_known(_numbers_of(one, "pattern_type_filter")):
            results.append(
                DeleteAclsFilterResult(
                    Code.INVALID_REQUEST,
                    "The filter has an unknown number: use the numbers of Kafka's protocol.",
                )
            )
            continue
        wanted = _filter(one)
        found = {}
        for acl_id, acl in list(metadata.acls.items()):
            count += 1
            if count % ACLS_AT_ONCE == 0:
                yield
            if wanted.finds(acl):
                found[acl_id] = acl
        doomed.update(found)
        results.append(
            DeleteAclsFilterResult(
                Code.NONE, None,
                [DeleteAclsMatchingAcl(Code.NONE, None, *acl) for acl in found.values()],
            )
        )  # fmt: skip
    present = [acl_id for acl_id in doomed if acl_id in metadata.acls]
    if present:
        authorizer.remove(present)
    return DeleteAclsResponse(filter_results=results)


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(29, "DescribeAcls", 0, 3, flexible_from=2, most_elements=FEW),
        right=rule(on_cluster(DESCRIBE)),
        handler=lambda parts: partial(
            on_describe_acls, parts.access, parts.metadata, parts.requests
        ),
    ),
    ApiRow(
        Api(30, "CreateAcls", 0, 3, flexible_from=2, most_elements=CHANGES),
        right=rule(on_cluster(ALTER)),
        shapes=(Shape(of_rows("creations", "results"), Repeats.KEPT),),
        handler=lambda parts: partial(on_create_acls, parts.access, parts.metadata, parts.ids),
    ),
    ApiRow(
        Api(31, "DeleteAcls", 0, 3, flexible_from=2, most_elements=FEW),
        right=rule(on_cluster(ALTER)),
        shapes=(Shape(of_rows("filters", "filter_results"), Repeats.KEPT, 10),),
        handler=lambda parts: partial(on_delete_acls, parts.access, parts.metadata, parts.requests),
    ),
)
