"""The HTTP requests to the engines of the lease, etcd and Kubernetes, and the responses.

The module does no IO: an exchange is a generator that yields HTTP requests and gets the result of
each. A read or write of the lease's record is one exchange. An endpoint that refuses the connection
is skipped. If there is no response in time, the result is Unknown, and the next request is sent to
the next endpoint.

etcd's JSON gateway (API v3):    POST /v3/kv/range           the key, linearizably
                                 POST /v3/kv/txn             put, if mod_revision is as read
                                 POST /v3/auth/authenticate  a token, if there is a user
Kubernetes (coordination.k8s.io/v1, one Lease):
                                 GET .../leases/NAME         404: it does not exist
                                 POST .../leases             create it; 409: it exists
                                 PUT .../leases/NAME         with the resourceVersion as read;
                                                             409: the Lease has another one

The record is in an annotation of the Lease. The Lease's spec shows people which node leads.
"""

from __future__ import annotations

import base64
import http.client
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from barnabas.replication.leadership import (
    ABSENT,
    Answer,
    Conflict,
    Found,
    Read,
    Request,
    Unknown,
    Write,
    Written,
)
from barnabas.replication.lease_record import decode_lease_record

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ANNOTATION = "barnabas/record"
NOT_FOUND, CONFLICT = 404, 409


class EngineError(Exception):
    """The engine cannot be reached, or its response is invalid."""


class EngineSettings(NamedTuple):
    """The address of the record.

    endpoints: URLs, of which one is used at a time. name: the name of the record. namespace: the
    namespace in Kubernetes. ca_file: the certificate authority of the endpoints; None for the
    system's authorities.
    """

    endpoints: tuple[str, ...]
    name: str
    timeout_ms: int
    ttl_ms: int
    namespace: str = "default"
    user: str = ""
    password: str = ""
    ca_file: str | None = None
    token_file: str = f"{ACCOUNT}/token"


class HttpCall(NamedTuple):
    """One HTTP request. body: a value to send as JSON, or None."""

    endpoint: str
    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = {}


class HttpAnswer(NamedTuple):
    """The response to an HTTP request: its status, and its content, decoded from JSON."""

    status: int
    content: Any


class HttpFailure(NamedTuple):
    """The result of an HTTP request without a response. is_refused: whether the connection was
    refused, so nothing was sent.
    """

    reason: str
    is_refused: bool = False


HttpOutcome = HttpAnswer | HttpFailure
Asking = Generator[HttpCall, HttpOutcome, Any]
Exchange = Generator[HttpCall, HttpOutcome, Answer]


class LeaseExchange:
    """The requests to one engine. last_error: the reason why the last answer was Unknown."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings, self._at = settings, 0
        self.last_error = ""

    def ask(self, request: Request) -> Exchange:
        """Execute one request of the lease. The generator yields HTTP requests and returns the
        answer. It never raises an exception.
        """
        try:
            answer: Answer = yield from (
                self._read() if isinstance(request, Read) else self._write(request)
            )
            self.last_error = ""
            return answer
        except EngineError as error:
            self.last_error = str(error)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            self.last_error = f"an answer that cannot be read: {error!r}"
        return Unknown()

    def _read(self) -> Asking:
        raise NotImplementedError

    def _write(self, write: Write) -> Asking:
        raise NotImplementedError

    def _send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Asking:
        """The response of the first endpoint that does not refuse the connection.

        Raises: EngineError.
        """
        endpoints = self._settings.endpoints
        for left in range(len(endpoints) - 1, -1, -1):
            endpoint = endpoints[self._at % len(endpoints)]
            outcome = yield HttpCall(endpoint, method, path, body, headers or {})
            if isinstance(outcome, HttpAnswer):
                return outcome
            self._at += 1
            if not (left and outcome.is_refused):
                raise EngineError(f"{endpoint}: {outcome.reason}")
        raise AssertionError("no endpoint was asked")


class EtcdExchange(LeaseExchange):
    """The requests for a key of etcd. The record's version is the key's mod_revision."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._key = _base64(settings.name.encode())
        self._token = ""

    def _read(self) -> Asking:
        """The record and its version, which is the key's mod_revision."""
        answer = yield from self._call("/v3/kv/range", {"key": self._key})
        pairs = answer.get("kvs")
        if not pairs:
            return Found(ABSENT, b"")
        return Found(str(pairs[0]["mod_revision"]), base64.b64decode(pairs[0]["value"]))

    def _write(self, write: Write) -> Asking:
        """Write the record if its version is unchanged, as a transaction with a comparison. Version
        0 means that the key does not exist.
        """
        compare = {
            "key": self._key,
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": write.version or "0",
        }
        put = {"request_put": {"key": self._key, "value": _base64(write.value)}}
        answer = yield from self._call("/v3/kv/txn", {"compare": [compare], "success": [put]})
        return Written(str(answer["header"]["revision"])) if answer.get("succeeded") else Conflict()

    def _call(self, path: str, body: Any) -> Asking:
        """The answer to a request, after a login if a user is set. Raises: EngineError."""
        settings = self._settings
        if settings.user and not self._token:
            login = {"name": settings.user, "password": settings.password}
            status, answer = yield from self._send("POST", "/v3/auth/authenticate", login)
            if status != http.client.OK:
                raise EngineError(f"etcd refuses the user {settings.user}: {_reason(answer)}")
            token = answer["token"]
            if not (isinstance(token, str) and token.isascii() and token.isprintable()):
                raise EngineError("etcd answers with a token that cannot be a header")
            self._token = token
        headers = {"Authorization": self._token} if self._token else None
        status, answer = yield from self._send("POST", path, body, headers)
        if status != http.client.OK:
            self._token = ""  # the token may have expired
            raise EngineError(f"etcd answers {status}: {_reason(answer)}")
        return answer


class KubernetesExchange(LeaseExchange):
    """The requests for a Lease of Kubernetes. The record's version is the Lease's
    resourceVersion.
    """

    def __init__(
        self, settings: EngineSettings, token: Callable[[], str], now: Callable[[], datetime]
    ) -> None:
        """Takes: token, a function that may raise OSError; now, the clock of the Lease's times."""
        super().__init__(settings)
        self._token = token
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
        self._now = now
        # the Lease's metadata, which may contain labels of other programs
        self._metadata: dict[str, Any] = {}

    def _read(self) -> Asking:
        """The record, from an annotation of the Lease, and its version, which is the
        resourceVersion.
        """
        status, lease = yield from self._call("GET", f"{self._path}/{self._settings.name}")
        if status == NOT_FOUND:
            return Found(ABSENT, b"")
        self._check(status, lease)
        metadata = lease["metadata"]
        value = (metadata.get("annotations") or {}).get(ANNOTATION, "")
        found = Found(str(metadata["resourceVersion"]), value.encode())
        self._metadata = metadata  # set only after the whole response was read
        return found

    def _write(self, write: Write) -> Asking:
        """Create or replace the Lease if its version is unchanged."""
        name = self._settings.name
        if write.version == ABSENT:
            body = self._lease({"name": name}, write.value)
            status, lease = yield from self._call("POST", self._path, body)
        else:
            metadata = {**self._metadata, "name": name, "resourceVersion": write.version}
            body = self._lease(metadata, write.value)
            status, lease = yield from self._call("PUT", f"{self._path}/{name}", body)
        if status in (CONFLICT, NOT_FOUND):
            return Conflict()
        self._check(status, lease)
        written = Written(str(lease["metadata"]["resourceVersion"]))
        self._metadata = lease["metadata"]
        return written

    def _lease(self, metadata: Mapping[str, Any], value: bytes) -> dict[str, Any]:
        """The Lease. Its annotation contains the record, and its spec shows the leader to the tools
        of Kubernetes.
        """
        record = decode_lease_record(value)
        annotations = {**(metadata.get("annotations") or {}), ANNOTATION: value.decode()}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**metadata, "annotations": annotations},
            "spec": {
                "holderIdentity": "" if record.leader is None else str(record.leader),
                "leaseDurationSeconds": max(1, self._settings.ttl_ms // 1000),
                "leaseTransitions": record.leader_epoch,
                "renewTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }

    def _call(self, method: str, path: str, body: Any = None) -> Asking:
        """The answer to a request with the pod's token. Raises: EngineError."""
        try:
            headers = {"Authorization": f"Bearer {self._token()}"}
        except OSError as error:
            raise EngineError(f"the token of Kubernetes: {error}") from error
        return (yield from self._send(method, path, body, headers))

    def _check(self, status: int, answer: Any) -> None:
        if status not in (http.client.OK, http.client.CREATED):
            raise EngineError(f"Kubernetes answers {status}: {_reason(answer)}")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _reason(answer: Any) -> str:
    known = answer if isinstance(answer, dict) else {}
    return str(known.get("message") or known.get("error") or answer)[:200]
