"""The header and connection of a request, for handlers and coordinators."""

from __future__ import annotations

import sys
from typing import NamedTuple

# The beginning of a client's host if it is connected over a Unix domain socket.
UNIX_SCHEME = "unix://"


class RequestContext(NamedTuple):
    """One request without its body.

    ticket: the request's number, unique in the broker's process; an event that sends the response
    later uses it. client_host: preceded by a slash, which Kafka's tools expect. now_ms: the steady
    time at which the request arrived. local_host, local_port: the broker's end of the connection.
    node_id: the id of the broker that received the request, if the process runs several.
    keeps_frame: whether a Produce's records are in separate memory, which stays valid until the
    response is sent. topics_version: the version of the topics when the request arrived
    (`TopicRegistry.version`). request_bytes: the size of a larger request other than Produce; 0 for
    others.
    """

    ticket: int
    api_version: int
    client_id: str
    client_host: str
    connection_id: int = -1
    api_key: int = -1
    correlation_id: int = -1
    now_ms: int = 0
    local_host: str = ""
    local_port: int = -1
    node_id: int = -1
    keeps_frame: bool = False
    topics_version: int = sys.maxsize
    request_bytes: int = 0
