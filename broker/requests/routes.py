"""How requests of one API are read and answered, and the types of what does it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.outbox import Answer
from barnabas.coordinator.result import Result
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.framing import RequestHeader
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer, MalformedMessageError, TooManyElementsError
from barnabas.protocol.request_context import RequestContext

Request = TypeVar("Request", bound=Message)
Read = Callable[[Buffer, int, int], tuple[Request, int]]
Handler = Callable[[Request, RequestContext], Answer]
Decide = Callable[[Request, RequestContext, int], Result]
"""A coordinator's `on_<request>`."""


class Route(NamedTuple):
    """What reads the requests of an API, and what answers them.

    is_wide: whether requests are handled in parts where they name many things.
    """

    name: str
    read: Read[Any]
    handle: Handler[Any]
    is_wide: bool = False


def route(
    request_class: type[Request], handle: Handler[Request], read: Read[Request] | None = None
) -> Route:
    """A row. Takes: read, where the request is not read by its class."""
    name = request_class.__name__.removesuffix("Request")
    return Route(name, read or request_class.read, handle)


def read_body(row: Route, frame: Buffer, header: RequestHeader) -> Message:
    """Decode the body of a request.

    Raises: ProtocolViolation where it cannot be read.
    After:  nothing of the request is a view of the frame but the records of a Produce.
    """
    try:
        request: Message = row.read(frame, header.body_start, header.api_version)[0]
    except TooManyElementsError as error:
        raise ProtocolViolation(
            f"a {row.name} request of {len(frame):,} bytes names more than may be read of one: its "
            "lists have more elements than requests of its kind may have. Name less in each "
            "request; the bounds grow with barnabas.request.max.bytes"
        ) from error
    except (struct.error, IndexError, MalformedMessageError) as error:
        raise ProtocolViolation(
            f"the body of a {row.name} request cannot be read: {error}"
        ) from error
    return request
