"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

from barnabas.broker.admission.guard_steps import on_cluster, rule
from barnabas.broker.admission.rights import ALTER_CONFIGS, DESCRIBE_CONFIGS
from barnabas.broker.api_row import ApiRow
from barnabas.broker.logs.metadata import ClusterMetadata, QuotaEntity
from barnabas.broker.quotas import client_quotas  # noqa: F401 - made with the first quota
from barnabas.broker.quotas.entities import CLIENT_ID, IP, USER, check_entity, check_quota
from barnabas.broker.quotas.quotas import Quotas
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.errors import Code, KafkaError, detached
from barnabas.protocol.messages import alter_client_quotas as altering
from barnabas.protocol.messages import describe_client_quotas as describing
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
from barnabas.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from barnabas.protocol.request_context import RequestContext

EXACT, DEFAULT, ANY = 0, 1, 2
SLOTS_OF_CHANGES = 16


def on_describe_client_quotas(
    metadata: ClusterMetadata, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that match all components. If the request is strict, an entity
    with further components does not match.

    Errors: UNSUPPORTED_VERSION for an unknown type, INVALID_REQUEST for other invalid components.
    """
    try:
        _check_components(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    entries = [
        describing.EntryData(
            [describing.EntityData(*pair) for pair in entity],
            [describing.ValueData(key, value) for key, value in in_kafkas_order(quotas).items()],
        )
        for entity, quotas in metadata.client_quotas.items()
        if _matches(dict(entity), request.components, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _check_components(components: Sequence[ComponentData]) -> None:
    """Check the components of a filter. Raises: KafkaError."""
    types = [component.entity_type for component in components]
    for component in components:
        entity_type, match_type = component.entity_type, component.match_type
        if not entity_type:
            raise KafkaError(
                Code.INVALID_REQUEST, "A component has an empty type: use user, client-id or ip."
            )
        if entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(
                Code.UNSUPPORTED_VERSION,
                f"There are no quotas for '{entity_type}': ask for user, client-id or ip.",
            )
        if match_type not in (EXACT, DEFAULT, ANY):
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"The match type {match_type} is unknown: use 0 (exact), 1 (default) or 2 (any).",
            )
        if (match_type == EXACT) is (component.match is None):
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"The {entity_type} needs a name for an exact match, and takes none for other "
                "matches.",
            )
    if len(set(types)) < len(types):
        raise KafkaError(Code.INVALID_REQUEST, "A type is named twice: name it once.")
    if IP in types and len(types) > 1:
        raise KafkaError(Code.INVALID_REQUEST, "An ip cannot be combined: ask for it alone.")


def _matches(
    entity: Mapping[str, str | None], components: Sequence[ComponentData], *, strict: bool
) -> bool:
    """Whether an entity has every component of the filter and, if `strict`, no other component."""
    for component in components:
        if component.entity_type not in entity:
            return False
        name = entity[component.entity_type]
        if component.match_type != ANY and name != component.match:
            return False
    return not strict or len(entity) == len(components)


def on_alter_client_quotas(
    metadata: ClusterMetadata,
    quotas: Quotas,
    request: AlterClientQuotasRequest,
    context: RequestContext,
) -> AlterClientQuotasResponse:
    """Set and remove quotas, or only check whether they could be set.

    Errors, by entity: INVALID_REQUEST for an invalid entity, key or value, and for a key that is
    named twice; the entity is then unchanged. INVALID_REQUEST also for an entity that is named
    twice, although its first entry is applied.
    """
    present = metadata.client_quotas
    answers: dict[QuotaEntity, KafkaError | None] = {}
    changes: dict[QuotaEntity, Mapping[str, float]] = {}
    for entry in request.entries:
        names = {part.entity_type: part.entity_name for part in entry.entity}
        entity = tuple(sorted(names.items()))
        try:
            if entity in answers:
                raise KafkaError(Code.INVALID_REQUEST, "The entity is named twice: name it once.")
            changed = _changed(names, present.get(entity, {}), entry.ops)
            answers[entity] = None
            if changed != present.get(entity, {}):
                changes[entity] = changed
        except KafkaError as error:
            answers[entity] = detached(error)
    if changes and not request.validate_only:
        quotas.set(changes)
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntryData(
                Code.NONE if error is None else error.code,
                None if error is None else error.message,
                [altering.EntityData(*pair) for pair in entity],
            )
            for entity, error in answers.items()
        ]
    )


def _changed(
    entity: Mapping[str, str | None],
    quotas: Mapping[str, float],
    operations: Sequence[altering.OpData],
) -> dict[str, float]:
    """The quotas of an entity after the change. Raises: KafkaError."""
    check_entity(entity)
    changed = in_kafkas_order(quotas)
    added: dict[str, float] = {}
    if len({operation.key for operation in operations}) < len(operations):
        raise KafkaError(Code.INVALID_REQUEST, "A key is named twice: name it once.")
    for operation in operations:
        if operation.remove:
            changed.pop(operation.key, None)
        else:
            check_quota(entity, operation.key, operation.value)
            where = changed if operation.key in changed else added
            where[operation.key] = operation.value
    for key in sorted(added, key=lambda key: _slot(key, SLOTS_OF_CHANGES)):
        changed[key] = added[key]
    return changed


def in_kafkas_order(quotas: Mapping[str, float]) -> dict[str, float]:
    """An entity's quotas in the order in which Apache Kafka lists them; clients' tests expect it.

    Kafka stores them in a Java HashMap, and lists it slot by slot. Keys in the same slot are in the
    order in which they were set; keys that one request sets are in the order of a HashMap of 16
    slots.
    """
    # a HashMap grows when three quarters of its slots are in use
    slots = 4 if len(quotas) <= 3 else 8
    return {key: quotas[key] for key in sorted(quotas, key=lambda key: _slot(key, slots))}


@cache
def _slot(key: str, slots: int) -> int:
    """The index of the slot in which a Java HashMap with `slots` slots stores a key."""
    code = 0
    for letter in key:  # String.hashCode
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return (code ^ code >> 16) % slots


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(48, "DescribeClientQuotas", 0, 1, flexible_from=1, most_elements=FEW),
        right=rule(on_cluster(DESCRIBE_CONFIGS)),
        handler=lambda parts: partial(on_describe_client_quotas, parts.metadata),
    ),
    ApiRow(
        Api(49, "AlterClientQuotas", 0, 1, flexible_from=1, most_elements=12_000),
        right=rule(on_cluster(ALTER_CONFIGS)),
        handler=lambda parts: partial(on_alter_client_quotas, parts.metadata, parts.quotas),
    ),
)
