"""What the metadata journal stores for security: the credentials of users, and ACLs."""

from __future__ import annotations

from typing import Literal, NamedTuple

ScramNonces = Literal["exact", "or repeated", "any beginning"]
"""The nonces that the final message of a SCRAM login may have: only that of the server's message;
also the client's part twice, as librdkafka before 2.6.1 sends it; any text before it.
"""


class ScramCredential(NamedTuple):
    """The stored credential of a user (RFC 5802). It can verify the password without containing
    it.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Acl(NamedTuple):
    """An operation that is allowed or denied to a principal: Kafka's AccessControlEntryRecord, with
    the numbers of the protocol (KIP-140, KIP-290).
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
