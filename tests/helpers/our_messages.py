"""Our own messages as frames, and our message classes by the names of their APIs."""

from __future__ import annotations

import importlib
import struct

from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.framing import response_has_tagged_header
from barnabas.protocol.hot_requests import produce_reader, read_fetch
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer

NO_OPERATIONS = -(2**31)  # the default value of a field of authorized operations


def request_class(api_name: str) -> type[Message]:
    """The class of the request of an API."""
    return _class(api_name, "Request")


def response_class(api_name: str) -> type[Message]:
    """The class of the response of an API."""
    return _class(api_name, "Response")


def read_request(api_name: str, data: Buffer, at: int, version: int) -> tuple[Message, int]:
    """Decode a request as the broker does."""
    if api_name == "Fetch":
        return read_fetch(data, at, version)
    if api_name == "Produce":
        return produce_reader(None)(data, at, version)
    return request_class(api_name).read(data, at, version)


def request_frame(
    request: Message, version: int, correlation_id: int, client_id: str | None = "tests"
) -> bytes:
    """A frame with a request and its header, without the size field."""
    out = bytearray(struct.pack(">hhi", request.API_KEY, version, correlation_id))
    if client_id is None:
        out += b"\xff\xff"
    else:
        out += struct.pack(">h", len(client_id.encode())) + client_id.encode()
    if version >= request.FLEXIBLE_FROM:
        out.append(0)  # no tagged fields
    request.write(out, version)
    return bytes(out)


def read_answer(frame: Buffer, request: type[Message], version: int) -> Message:
    """Decode the response to a request of the class `request`. The frame has its header, but no
    size field.
    """
    api = BY_KEY[request.API_KEY]
    start = 5 if response_has_tagged_header(api, version) else 4
    answer, end = response_class(api.name).read(frame, start, version)
    assert end == len(frame), f"{len(frame) - end} bytes follow the answer to {api.name} {version}"
    return answer


def operations_in(bits: int) -> set[int] | None:
    """The operations whose bits are set in a field of authorized operations, or None if the field
    has its default value.
    """
    if bits == NO_OPERATIONS:
        return None
    return {number for number in range(32) if bits >> number & 1}


def _class(api_name: str, kind: str) -> type[Message]:
    """The class of an API's request or response."""
    module = "".join(
        f"_{letter.lower()}" if letter.isupper() else letter for letter in api_name
    ).removeprefix("_")
    found: type[Message] = getattr(
        importlib.import_module(f"barnabas.protocol.messages.{module}"), api_name + kind
    )
    return found
