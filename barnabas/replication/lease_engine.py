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

from barnabas.http_client import HttpClient, bounded_json
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

MOST_ANSWER_BYTES = 1 << 20
# TypeError: a token of another type than a header's
_FAILURES = (OSError, ValueError, TypeError, http.client.HTTPException)


class LeaseEngine(Protocol):
    """The engine that stores the lease's record. last_error: the reason why the last answer was
    Unknown.
    """

    @property
    def last_error(self) -> str: ...

    def ask(self, request: Request) -> Answer:
        """Send a request and wait for the answer. Never raises an exception."""

    def close(self) -> None:
        """Close the connection, and let a running request fail at once. Any thread may call it."""


class _Http:
    """A connection to one of the endpoints, which stays open until it fails."""

    def __init__(self, settings: EngineSettings) -> None:
        self._client = HttpClient(
            settings.timeout_ms / 1000,
            MOST_ANSWER_BYTES,
            tls=lambda: ssl.create_default_context(cafile=settings.ca_file),
            keeps_connection=True,
        )

    def send(self, call: HttpCall) -> HttpOutcome:
        """Send a request and wait for the response, up to the timeout. Never raises an
        exception.
        """
        try:
            data = None if call.body is None else json.dumps(call.body).encode()
            headers = {"Content-Type": "application/json", **call.headers}
            answer = self._client.send(call.method, call.endpoint + call.path, data, headers)
            return HttpAnswer(answer.status, bounded_json(answer.body) if answer.body else {})
        except _FAILURES as error:
            self._client.disconnect()
            is_refused = isinstance(error, ConnectionError) and not self._client.may_have_sent
            return HttpFailure(str(error) or type(error).__name__, is_refused)

    def close(self) -> None:
        """End a running request, and close the connection."""
        self._client.close()


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
        """Close the connection, and let a running request fail at once."""
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
