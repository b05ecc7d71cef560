"""The generated class of a request or a response, found by its API. Its module is loaded then."""

from __future__ import annotations

import importlib
import re

from barnabas.protocol.api import Api
from barnabas.protocol.messages.message import Message


def message_class(api: Api, kind: str) -> type[Message]:
    """The class of an API's request or response. Takes: kind, "Request" or "Response"."""
    module = re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
    found: type[Message] = getattr(
        importlib.import_module(f"barnabas.protocol.messages.{module}"), api.name + kind
    )
    return found
