"""From a request to its handler, and the steps around each handler.

Every request passes these steps, in this order:

| step | module or function |
|---|---|
| its header is read; an unsupported API or version is refused | `Broker.on_frame` |
| its body is read without repeated names; a damaged body ends the connection | `Broker.on_frame` |
| a request with many names is divided into parts, which pass the next steps | `wide_requests.py` |
| with an authorizer: its parts that are not allowed are refused | `admission/authorization.py` |
| with several brokers: a broker that is not its coordinator refuses it | `coordinator_edge.py` |
| its handler answers it | `Route.handle` |
| ...or parks it; the Result of a coordinator answers it, now or later | `to_groups.py`, |
| | `to_transactions.py`, `to_share_coordinator.py` |
| ...or ends the connection if the producer has left it | `to_transactions`: guard |
| ...or holds it back while the id's last transaction is ending | `Endings.after_end_of` |
| ...for EndTxn: the three steps above | `TransactionEnds.on_end_txn` |
| with client quotas: its usage is recorded, its client throttled | `quotas/client_quotas.py` |
| its response is encoded and sent, later for a parked request | `Requests` |

The rows of the APIs are at the ends of the modules of `broker/handlers/`, one module for each
family of requests. A family is loaded with the first request of one of its APIs
(`requests/families.py`). `protocol/api_table.py`, which is generated from the rows, says to which
family an API belongs.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.admission.authorization import authorized
from barnabas.broker.admission.guard_steps import GuardParts
from barnabas.broker.api_row import ApiRow
from barnabas.broker.parts import Parts
from barnabas.broker.requests.families import load
from barnabas.broker.requests.wide_requests import reading_once
from barnabas.broker.routes import Read, Route
from barnabas.protocol.api import Api
from barnabas.protocol.message_classes import message_class


class Routes:
    """The routes of requests. A route is loaded with the first request of its API.

    loaded: the loaded routes, by API key. It is cleared when the steps around handlers change.
    families: whether the worker loads a family before its first request is handled, and how many
    requests wait for this.
    """

    def __init__(self, parts: Parts, loaded: dict[int, Route]) -> None:
        self.parts, self.loaded, self.families = parts, loaded, parts.families

    def load(self, api: Api) -> Route:
        """Load the route of an API, for its first request."""
        route = self.loaded[api.key] = load_route(self.parts, api)
        return route


def row_of(api: Api) -> ApiRow:
    """The row of an API. Its family is loaded if it is not yet."""
    rows: tuple[ApiRow, ...] = load(api.family).ROWS
    return next(row for row in rows if row.api.key == api.key)


def load_route(parts: Parts, api: Api) -> Route:
    """The route of an API, with the steps around its handler."""
    row = row_of(api)
    route = Route(api.name, _reader(parts, row), row.handler(parts))
    if row.encode is not None:
        parts.requests.encoders[api.key] = row.encode
    if row.shapes:
        route = route._replace(read=reading_once(row.shapes, route.read), is_wide=True)
    if row.coordination is not None and parts.edge is not None:
        route = parts.edge.around(row.coordination, route)
    if parts.access.authorizer is not None:
        of_guards = GuardParts(
            parts.access, parts.requests, parts.wide, parts.topics, parts.config.release
        )
        route = authorized(of_guards, row.right, route)
    if parts.quotas.clients is not None:
        route = parts.quotas.clients.around(api, route)
    if row.shapes:
        route = parts.wide.around(api, row.shapes, route)
    return route


def _reader(parts: Parts, row: ApiRow) -> Read[Any]:
    """The function that reads requests of an API: the reader of the message class, unless the row
    has another one.
    """
    if row.read is not None:
        return row.read(parts)
    read: Read[Any] = message_class(row.api, "Request").read
    return read
