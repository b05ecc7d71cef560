"""The request that finds the coordinators of groups and transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.client.connection import Address, Calls, Connection
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIND_COORDINATOR = RequestKind(FindCoordinatorRequest, FindCoordinatorResponse, 1, 3)

# Raises the error for a response: of the key, with its error code and the broker's message. Returns
# if the code is 0.
Check = Callable[[str, int, str], None]


class Coordinator(NamedTuple):
    """A broker that coordinates a group or a transactional id."""

    node_id: int
    address: Address


def find_coordinators(
    calls: Calls, connection: Connection, keys: Sequence[str], key_type: int, check: Check
) -> dict[str, Coordinator]:
    """The coordinator of each key. Takes: check, which raises the error for a refusal."""
    found = {}
    requests = [FindCoordinatorRequest(key=key, key_type=key_type) for key in keys]
    answers = calls.ask_all(connection, FIND_COORDINATOR, requests)
    for key, answer in zip(keys, answers, strict=True):
        check(key, answer.error_code, answer.error_message or "")
        found[key] = Coordinator(answer.node_id, (answer.host, answer.port))
    return found
