"""The route of an API's requests: the types of the functions that read and handle them.

dispatch.py makes the routes from the rows of the APIs, which are at the ends of the modules of
`broker/handlers/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.outbox import Answer
from barnabas.broker.slices import Slices
from barnabas.coordinator.result import Result
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer
from barnabas.protocol.request_context import RequestContext

Request = TypeVar("Request", bound=Message)
Read = Callable[[Buffer, int, int], tuple[Request, int]]
Handler = Callable[[Request, RequestContext], Answer]
Decide = Callable[[Request, RequestContext, int], Result]
"""The type of a coordinator's `on_<request>`."""

Respond = Callable[[Request, RequestContext, int], Message]
"""The type of a coordinator's `on_<request>` that writes no record and never waits."""

ReadInSlices = Callable[[Request, RequestContext], Slices]
"""The type of a coordinator's method that only reads."""


class Route(NamedTuple):
    """The reader and the handler of an API's requests.

    handle: the handler from the API's row, perhaps within further steps (`dispatch.load_route`).
    is_wide: whether requests with many names are handled in parts.
    """

    name: str
    read: Read[Any]
    handle: Handler[Any]
    is_wide: bool = False
