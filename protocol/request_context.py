"""What is known of a request beside its body: its header, and the connection that it came by."""

from __future__ import annotations

from typing import NamedTuple


class RequestContext(NamedTuple):
    """One request, as handlers and coordinators see it beside its body.

    ticket: names the request as long as the broker runs; its answer may come from a later event.
    client_host: with the slash before it that Kafka's tools expect. now_ms: the steady time at
    which the request came. local_host, local_port: the broker's end of the connection.
    node_id: of the broker that it came to, where a process is several. keeps_frame: whether the
    memory of a Produce's records is the request's own, and stays while it is under way.
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
