"""What an audit log has of each decision and login."""

from __future__ import annotations

from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"
BY_CERTIFICATE = -1  # instead of an API key


class AuditRecord(NamedTuple):
    """What an authorizer decided: who, from where, by which request, what, on what.

    operation, resource_type: by the names of Kafka's tools. api_key: BY_CERTIFICATE of who has
    shown by TLS who it is.
    """

    principal: str
    host: str
    client_id: str
    api_key: int
    operation: str
    resource_type: str
    resource_name: str
    is_allowed: bool
