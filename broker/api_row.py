"""A row for each API. The rows of a family of requests are at the end of its module in
`broker/handlers/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.broker.admission.coordination import Coordination
from barnabas.broker.admission.guard_steps import Rule
from barnabas.broker.parts import Parts
from barnabas.broker.requests.wide_requests import Shape
from barnabas.broker.routes import Handler, Read
from barnabas.protocol.api import Api


class ApiRow(NamedTuple):
    """All that the broker knows about one API.

    api: the key, name and versions, and the bound of elements. right: which rights a client needs,
    on what. handler: makes the handler from the parts of the broker. shapes: the lists of names, if
    a request may name hundreds of things that are answered one by one. coordination: for requests
    that a coordinator answers. read: makes the reader, if it is not the `read` of the request's
    class. encode: encodes the response, if it is not done by the response's `write`.
    """

    api: Api
    right: Rule
    handler: Callable[[Parts], Handler[Any]]
    shapes: tuple[Shape, ...] = ()
    coordination: Coordination | None = None
    read: Callable[[Parts], Read[Any]] | None = None
    encode: Callable[[Any, int], bytes] | None = None
