"""The name and version of a client's software, as the client sends them (KIP-511)."""

from __future__ import annotations

import re

from barnabas.protocol.messages.api_versions import ApiVersionsRequest

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3
PROBE = "barnabas-probe"
"""The client id of the command line's probe, which asks a port for its mechanisms of SASL."""


def names_software(request: ApiVersionsRequest, api_version: int) -> bool:
    """Whether the software name and version in the request are valid according to KIP-511.

    A request before version 3 has neither, and is always valid.
    """
    name, version = request.client_software_name, request.client_software_version
    return api_version < SOFTWARE_SINCE or bool(
        SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)
    )
