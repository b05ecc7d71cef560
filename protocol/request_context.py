"""The header and connection of a request, for handlers and coordinators."""

from __future__ import annotations

import sys
from typing import Any

# The beginning of a client's host if it is connected over a Unix domain socket.
UNIX_SCHEME = "unix://"


class RequestContext:
    """One request without its body. It is never changed; `replace` makes another one.

    It is no tuple, since one is made for each request, and its fields are read many times.

    ticket: the request's number, unique in the broker's process; an event that sends the response
    later uses it. client_host: preceded by a slash, which Kafka's tools expect. now_ms: the steady
    time at which the request arrived. local_host, local_port: the broker's end of the connection.
    node_id: the id of the broker that received the request, if the process runs several.
    keeps_frame: whether a Produce's records are in separate memory, which stays valid until the
    response is sent. topics_version: the version of the topics when the request arrived
    (`TopicRegistry.version`). request_bytes: the size of a larger request other than Produce; 0 for
    others.
    """

    __slots__ = (
        "api_key", "api_version", "client_host", "client_id", "connection_id", "correlation_id",
        "keeps_frame", "local_host", "local_port", "node_id", "now_ms", "request_bytes", "ticket",
        "topics_version",
    )  # fmt: skip

    def __init__(
        self,
        ticket: int,
        api_version: int,
        client_id: str,
        client_host: str,
        connection_id: int = -1,
        api_key: int = -1,
        correlation_id: int = -1,
        now_ms: int = 0,
        local_host: str = "",
        local_port: int = -1,
        node_id: int = -1,
        keeps_frame: bool = False,
        topics_version: int = sys.maxsize,
        request_bytes: int = 0,
    ) -> None:
        self.ticket, self.api_version = ticket, api_version
        self.client_id, self.client_host = client_id, client_host
        self.connection_id = connection_id
        self.api_key, self.correlation_id = api_key, correlation_id
        self.now_ms = now_ms
        self.local_host, self.local_port = local_host, local_port
        self.node_id = node_id
        self.keeps_frame = keeps_frame
        self.topics_version = topics_version
        self.request_bytes = request_bytes

    def replace(self, **changes: Any) -> RequestContext:
        """The same request with other values of the given fields."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return RequestContext(**(fields | changes))
