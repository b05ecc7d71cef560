"""The metrics endpoint: GET /metrics, in Prometheus' text format."""

from __future__ import annotations

import socket
from collections.abc import Callable

from barnabas.broker.seams.host import Host
from barnabas.metrics.rim.collector import Collector
from barnabas.metrics.rim.exposition import CONTENT_TYPE
from barnabas.metrics.rim.measured import Measuring
from barnabas.metrics.rim.metric import Detail
from barnabas.process.http_server import HttpServer, Request, Response, error_response
from barnabas.replication.state import ReplicationState

PATH = "/metrics"


class MetricsEndpoint:
    """The HTTP server. A scrape runs in the server's threads, and observes the broker in the loop's
    thread.
    """

    def __init__(
        self,
        server: Host,
        measuring: Measuring,
        sock: socket.socket,
        replication: Callable[[], ReplicationState] | None,
    ) -> None:
        detail = Detail(server.state.config.barnabas_metrics_detail)
        self._loop = server.loop
        self._collector = Collector(server, measuring, detail, replication)
        self._http = HttpServer(sock, self._answer, "metrics")

    @property
    def url(self) -> str:
        """The URL that Prometheus scrapes."""
        return self._http.url + PATH

    def _answer(self, request: Request) -> Response:
        """The answer to an HTTP request; only GET of /metrics has metrics."""
        if request.method != "GET":
            return error_response(405, "only GET /metrics is supported")
        if request.path == "/":
            return Response(200, b"Barnabas: see /metrics\n", "text/plain; charset=utf-8")
        if request.path != PATH:
            return error_response(404, f"there is no {request.path}: see /metrics")
        return Response(200, self._collector.text(self._loop).encode(), CONTENT_TYPE)
