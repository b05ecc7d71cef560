"""The audit records of authorization decisions and logins."""

from __future__ import annotations

from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"
BY_CERTIFICATE = -1  # used in place of an API key for a login by certificate


class AuditRecord(NamedTuple):
    """A decision of the authorizer: principal, host, request, operation and resource.

    operation, resource_type: as named by Kafka's tools. api_key: BY_CERTIFICATE for a login by
    certificate, whether it succeeded or not.
    """

    principal: str
    host: str
    client_id: str
    api_key: int
    operation: str
    resource_type: str
    resource_name: str
    is_allowed: bool
