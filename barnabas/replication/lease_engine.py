"""The HTTP clients of the engines that store the lease's record. They use only the standard
library.

A call may block, so it is made in the thread of `lease_keeper`. `lease_exchange` decides which
requests are sent to which endpoint.
"""

from __future__ import annotations

import http.client
import json
import ssl
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import urlsplit

from barnabas.replication.leadership import Answer, Request
from barnabas.replication.lease_exchange import (
    EngineSettings,
    EtcdExchange,
    HttpAnswer,
    HttpCall,
    HttpFailure,
    HttpOutcome,
    KubernetesExchange,
    LeaseExchange,
)


class LeaseEngine(Protocol):
    """The engine that stores the lease's record. last_error: the reason why the last answer was
    Unknown.
    """

    @property
    def last_error(self) -> str: ...

    def ask(self, request: Request) -> Answer:
        """Send a request and wait for the answer. Never raises an exception."""

    def close(self) -> None:
        """Close the connection."""


class _Http:
    """A connection to one of the endpoints, which stays open until it fails."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._endpoint = ""
        self._connection: http.client.HTTPConnection | None = None

    def send(self, call: HttpCall) -> HttpOutcome:
        """Send a request and wait for the response, up to the timeout at each step. Never raises an
        exception.
        """
        try:
            connection = self._connected_to(call.endpoint)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            return HttpFailure(_text_of(error), is_refused=isinstance(error, ConnectionError))
        try:
            data = None if call.body is None else json.dumps(call.body).encode()
            headers = {"Content-Type": "application/json", **call.headers}
            connection.request(call.method, call.path, data, headers)
            response = connection.getresponse()
            text = response.read()
            return HttpAnswer(response.status, json.loads(text) if text else {})
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            return HttpFailure(_text_of(error))

    def _connected_to(self, endpoint: str) -> http.client.HTTPConnection:
        """The open connection to an endpoint, or a new one. Raises: OSError."""
        if self._connection is None or self._endpoint != endpoint:
            self.close()
            self._endpoint, self._connection = endpoint, self._connection_to(endpoint)
            self._connection.connect()
        return self._connection

    def _connection_to(self, endpoint: str) -> http.client.HTTPConnection:
        """A connection to an endpoint. It is not open yet."""
        parts = urlsplit(endpoint)
        host, timeout_s = parts.hostname or "", self._settings.timeout_ms / 1000
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._settings.ca_file)
            return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


class _Engine:
    """The common base of the engines. It sends each HTTP request of an exchange and waits for the
    response.
    """

    def __init__(self, settings: EngineSettings, exchange: LeaseExchange) -> None:
        self._http, self._exchange = _Http(settings), exchange

    @property
    def last_error(self) -> str:
        return self._exchange.last_error

    def ask(self, request: Request) -> Answer:
        """Send a request and wait for the answer. Never raises an exception."""
        steps = self._exchange.ask(request)
        try:
            call = next(steps)
            while True:
                call = steps.send(self._http.send(call))
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


class EtcdEngine(_Engine):
    """Stores the lease's record as a key of etcd."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings, EtcdExchange(settings))


class KubernetesEngine(_Engine):
    """Stores the lease's record as a Lease of Kubernetes."""

    def __init__(self, settings: EngineSettings) -> None:
        def token() -> str:
            with open(settings.token_file, encoding="ascii") as file:
                return file.read().strip()

        exchange = KubernetesExchange(settings, token, lambda: datetime.now(UTC))
        super().__init__(settings, exchange)
