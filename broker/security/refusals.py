"""Writes log lines about refusals by ACLs: the refused operation, and the command that would allow
it.

A client is a principal at an address. Each client gets one line per minute, so that a client that
is refused a thousand times a second does not fill the disk. The audit log (`barnabas.audit.log`)
has all refusals.
"""

from __future__ import annotations

import logging
import shlex

from barnabas.broker.observation.log_lines import BoundedLines
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.protocol.api_table import BY_KEY

logger = logging.getLogger("barnabas.security")

LINES_OF_A_CLIENT = 1  # lines per minute
KIND = "refusal"
# A topic's name has at most 249 characters, but a name in a request may have 32,767.
LONGEST_NAME = 255


class RefusalLines:
    """Writes the log lines about refusals. now_ms, api_key: the time and the API key of the current
    request.
    """

    __slots__ = ("_lines", "api_key", "now_ms")

    def __init__(self) -> None:
        self._lines = BoundedLines(LINES_OF_A_CLIENT)
        self.now_ms, self.api_key = 0, -1

    def write(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> None:
        """Log a refusal, unless a refusal of this client was already logged in the last minute."""
        self._lines.left_out(self.now_ms)  # this removes the clients whose minutes have ended
        if not self._lines.may_write(KIND, f"{principal} at {host}", self.now_ms):
            return
        api = BY_KEY.get(self.api_key)
        action, resource = names_of(operation, resource_type, name)
        logger.warning(
            "%s at %s may not %s %s (%s): `%s` allows it; its further refusals in this minute are "
            "not logged",
            principal,
            host,
            action,
            resource,
            "a request" if api is None else api.name,
            command_that_allows(principal, operation, resource_type, name),
        )


def names_of(operation: int, resource_type: int, name: str) -> tuple[str, str]:
    """An operation and a resource, as `barnabas acl` writes them."""
    action = Operation(operation).name.lower().replace("_", "-")
    resource = ResourceType(resource_type).name.lower().replace("_", "-")
    if resource_type != ResourceType.CLUSTER:
        resource += f":{name[:LONGEST_NAME]}"
    return action, resource


def command_that_allows(principal: str, operation: int, resource_type: int, name: str) -> str:
    """The command that allows a principal an operation on a resource."""
    action, resource = names_of(operation, resource_type, name)
    words = ["barnabas", "acl", "add", principal.removeprefix("User:"), action, resource]
    return shlex.join(words)
