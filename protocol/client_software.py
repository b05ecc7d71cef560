"""The name and version that a client gives of its software (KIP-511)."""

from __future__ import annotations

import re

from barnabas.protocol.messages.api_versions import ApiVersionsRequest

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3


def names_software(request: ApiVersionsRequest, api_version: int) -> bool:
    """Whether the client's software has a name and version as KIP-511 allows; before version 3 of
    the request there is none.
    """
    name, version = request.client_software_name, request.client_software_version
    return api_version < SOFTWARE_SINCE or bool(
        SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)
    )
