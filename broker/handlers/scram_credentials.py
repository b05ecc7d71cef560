"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554), and the SASL requests on
listeners without SASL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from barnabas.broker.admission.guard_steps import on_cluster, rule
from barnabas.broker.admission.rights import ALTER, DESCRIBE
from barnabas.broker.api_row import ApiRow
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.security.scram import (
    BY_NUMBER,
    FEWEST_ITERATIONS,
    MOST_ITERATIONS,
    credential_of,
)
from barnabas.broker.security.stored import ScramCredential
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code, KafkaError, detached
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.protocol.request_context import RequestContext

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def on_describe_user_scram_credentials(
    metadata: ClusterMetadata, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of users; of all users if the request names none.

    Errors, by user: RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE for a user that is named twice.
    """
    infos: dict[str, list[CredentialInfo]] = {}
    for (user, number), credential in sorted(metadata.scram_credentials.items()):
        infos.setdefault(user, []).append(CredentialInfo(number, credential.iterations))
    wanted = Counter(user.name for user in request.users or ())
    results = []
    for name in wanted or infos:
        code, message = Code.NONE, None
        if wanted[name] > 1:
            code, message = (
                Code.DUPLICATE_RESOURCE,
                f"User '{name}' is named twice: name it once.",
            )
        elif name not in infos:
            code, message = Code.RESOURCE_NOT_FOUND, f"There is no SCRAM user '{name}'."
        found = infos[name] if code is Code.NONE else []
        results.append(DescribeUserScramCredentialsResult(name, code, message, found))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def on_alter_user_scram_credentials(
    metadata: ClusterMetadata, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Set and remove the credentials of users. The request contains salted and iterated passwords.

    Errors, by user: UNACCEPTABLE_CREDENTIAL for an empty name or password, or iterations that are
    out of bounds; UNSUPPORTED_SASL_MECHANISM; RESOURCE_NOT_FOUND if there is nothing to remove;
    DUPLICATE_RESOURCE for a user that is named twice, whose credentials are unchanged.
    """
    errors: dict[str, KafkaError] = {}
    changes: dict[tuple[str, int], ScramCredential | None] = {}
    times = Counter(change.name for change in _changes(request))
    for change in _changes(request):
        try:
            credential = _checked(metadata, change)
            if times[change.name] > 1:
                raise KafkaError(
                    Code.DUPLICATE_RESOURCE, f"User '{change.name}' is named twice: name it once."
                )
            changes[change.name, change.mechanism] = credential
        except KafkaError as error:
            errors.setdefault(change.name, detached(error))
    if changes:
        metadata.set_scram_credentials(changes)
    results = []
    for name in times:
        refusal = errors.get(name)
        results.append(
            AlterUserScramCredentialsResult(name)
            if refusal is None
            else AlterUserScramCredentialsResult(name, refusal.code, refusal.message)
        )
    return AlterUserScramCredentialsResponse(results=results)


def _changes(request: AlterUserScramCredentialsRequest) -> Iterator[Change]:
    yield from request.deletions
    yield from request.upsertions


def _checked(metadata: ClusterMetadata, change: Change) -> ScramCredential | None:
    """The credential to store; None if the user's credential is to be deleted. Raises:
    KafkaError.
    """
    if not change.name:
        raise KafkaError(Code.UNACCEPTABLE_CREDENTIAL, "A user has no name: give one.")
    mechanism = BY_NUMBER.get(change.mechanism)
    if mechanism is None:
        raise KafkaError(
            Code.UNSUPPORTED_SASL_MECHANISM,
            f"There is no SCRAM mechanism {change.mechanism}: use 1 (SHA-256) or 2 (SHA-512).",
        )
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in metadata.scram_credentials:
            raise KafkaError(
                Code.RESOURCE_NOT_FOUND,
                f"User '{change.name}' has no credential for {mechanism.name}.",
            )
        return None
    if not FEWEST_ITERATIONS <= change.iterations <= MOST_ITERATIONS:
        raise KafkaError(
            Code.UNACCEPTABLE_CREDENTIAL,
            f"{change.iterations} iterations: use {FEWEST_ITERATIONS} to {MOST_ITERATIONS}.",
        )
    if not change.salted_password:
        raise KafkaError(Code.UNACCEPTABLE_CREDENTIAL, "The salted password is empty: send one.")
    return credential_of(
        mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations
    )


# --- listeners without SASL ---------------------------------------------------------------------


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(50, "DescribeUserScramCredentials", 0, 0, flexible_from=0, most_elements=10_000),
        right=rule(on_cluster(DESCRIBE)),
        handler=lambda parts: partial(on_describe_user_scram_credentials, parts.metadata),
    ),
    ApiRow(
        Api(51, "AlterUserScramCredentials", 0, 0, flexible_from=0, most_elements=10_000),
        right=rule(on_cluster(ALTER)),
        handler=lambda parts: partial(on_alter_user_scram_credentials, parts.metadata),
    ),
)
