"""The responses to JoinGroup and SyncGroup, and the requests that are parked until they are
answered.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse

NO_GENERATION = -1
FIRST_VERSION_WITH_NULLABLE_PROTOCOL = 7


class JoinRequest(NamedTuple):
    """A JoinGroup request, with its bytes copied from the frame."""

    ticket: int
    api_version: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: dict[str, bytes]


class ParkedRequest(NamedTuple):
    """A JoinGroup or SyncGroup request that a later event will answer."""

    ticket: int
    api_version: int


def join_error_response(code: Code, member_id: str, api_version: int) -> JoinGroupResponse:
    """A JoinGroup response with an error. From version 7 on, the name of the protocol may
    be null.
    """
    return JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_type=None,
        protocol_name=None if api_version >= FIRST_VERSION_WITH_NULLABLE_PROTOCOL else "",
        leader="",
        skip_assignment=False,
        member_id=member_id,
        members=[],
    )


def sync_response(
    code: Code,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
    assignment: bytes = b"",
) -> SyncGroupResponse:
    """A SyncGroup response. A response with an error has no assignment."""
    return SyncGroupResponse(
        error_code=code,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignment=assignment,
    )
