"""Gives handlers the permissions of the client that sent a request."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.security.authorizer import Access, Authorizer
from barnabas.protocol.request_context import RequestContext


class ClientAccess:
    """The permissions of clients. authorizer: None if every request is allowed."""

    def __init__(
        self, authorizer: Authorizer | None, connections: Mapping[int, ConnectionState]
    ) -> None:
        self.authorizer = authorizer
        self._connections = connections

    def of(self, context: RequestContext) -> Access | None:
        """The permissions of the client that sent a request; None without an authorizer."""
        if self.authorizer is None:
            return None
        refusals = self.authorizer.refusals
        refusals.now_ms, refusals.api_key = context.now_ms, context.api_key
        connection = self._connections[context.connection_id]
        access = connection.access
        if access is None or access.keeper is not self.authorizer:
            access = self.authorizer.access(connection.principal, connection.client_host, context)
            connection.access = access
        return access
