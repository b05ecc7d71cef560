"""Our own message classes by the name of their API, for tests that go through all of them."""

from __future__ import annotations

import importlib

from barnabas.protocol.hot_requests import read_fetch, read_produce
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer


def request_class(api_name: str) -> type[Message]:
    """The class of an API's request."""
    return _class(api_name, "Request")


def response_class(api_name: str) -> type[Message]:
    """The class of an API's response."""
    return _class(api_name, "Response")


def read_request(api_name: str, data: Buffer, at: int, version: int) -> tuple[Message, int]:
    """As the broker reads it."""
    if api_name == "Fetch":
        return read_fetch(data, at, version)
    if api_name == "Produce":
        return read_produce(data, at, version)
    return request_class(api_name).read(data, at, version)


def _class(api_name: str, kind: str) -> type[Message]:
    module = "".join(
        f"_{letter.lower()}" if letter.isupper() else letter for letter in api_name
    ).removeprefix("_")
    found: type[Message] = getattr(
        importlib.import_module(f"barnabas.protocol.messages.{module}"), api_name + kind
    )
    return found
