"""The engines that keep the lease's record: etcd, and Kubernetes; one request, one answer.

Each is asked over HTTP with the standard library, from a thread that may wait (`lease_keeper`).
An endpoint that refuses the connection is passed over. What is not answered in time is Unknown, and
the next request goes to the next endpoint.

etcd's JSON gateway (API v3):    POST /v3/kv/range           the key, linearizably
                                 POST /v3/kv/txn             put, if mod_revision is that
                                 POST /v3/auth/authenticate  a token, where there is a user
Kubernetes (coordination.k8s.io/v1, one Lease):
                                 GET .../leases/NAME         404: it is not there
                                 POST .../leases             make it; 409: it is there
                                 PUT .../leases/NAME         with its resourceVersion; 409: another

The Lease has the record in an annotation; its spec tells people who leads.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from barnabas.broker.replication.leadership import (
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
from barnabas.broker.replication.lease_record import decode_lease_record

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ANNOTATION = "barnabas/record"
NOT_FOUND, CONFLICT = 404, 409


class EngineError(Exception):
    """The engine cannot be reached, or answers with what is no answer."""


class LeaseEngine(Protocol):
    """What keeps the record. last_error: why the last answer was Unknown."""

    last_error: str

    def ask(self, request: Request) -> Answer:
        """Waits for the answer; never raises."""

    def close(self) -> None:
        """Close the connection."""


class EngineSettings(NamedTuple):
    """endpoints: URLs, of which one is asked at a time. name: of the record. namespace: of
    Kubernetes. ca_file: what signs the endpoints' certificates; None: what the system trusts.
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


class _Http:
    """A connection to one endpoint at a time, kept open; the next one after a failure."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._at = 0
        self._connection: http.client.HTTPConnection | None = None

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status, and the JSON of the answer. Raises: EngineError."""
        try:
            if self._connection is None:
                self._connection = self._connect_to_any()
            data = None if body is None else json.dumps(body).encode()
            sent = {"Content-Type": "application/json", **(headers or {})}
            self._connection.request(method, path, data, sent)
            response = self._connection.getresponse()
            status, text = response.status, response.read()
            return status, json.loads(text) if text else {}
        except (OSError, ValueError, http.client.HTTPException) as error:
            endpoint = self._endpoint
            self.close()
            self._at += 1
            raise EngineError(f"{endpoint}: {error or type(error).__name__}") from error

    @property
    def _endpoint(self) -> str:
        return self._settings.endpoints[self._at % len(self._settings.endpoints)]

    def _connect_to_any(self) -> http.client.HTTPConnection:
        """A connection to the first endpoint that does not refuse it. Raises: OSError."""
        for _ in self._settings.endpoints[1:]:
            connection = self._connection_to(self._endpoint)
            try:
                connection.connect()
                return connection
            except ConnectionError:
                connection.close()
                self._at += 1
        return self._connection_to(self._endpoint)

    def _connection_to(self, endpoint: str) -> http.client.HTTPConnection:
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


class _Engine:
    """What both engines have: failures become Unknown."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings, self._http = settings, _Http(settings)
        self.last_error = ""

    def ask(self, request: Request) -> Answer:
        """Waits for the answer; never raises."""
        try:
            answer = self._read() if isinstance(request, Read) else self._write(request)
            self.last_error = ""
            return answer
        except EngineError as error:
            self.last_error = str(error)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            self.last_error = f"an answer that cannot be read: {error!r}"
        return Unknown()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _read(self) -> Answer:
        raise NotImplementedError

    def _write(self, write: Write) -> Answer:
        raise NotImplementedError


class EtcdEngine(_Engine):
    """A key of etcd; its version is the key's mod_revision."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._key = _base64(settings.name.encode())
        self._token = ""

    def _read(self) -> Answer:
        pairs = self._call("/v3/kv/range", {"key": self._key}).get("kvs")
        if not pairs:
            return Found(ABSENT, b"")
        return Found(str(pairs[0]["mod_revision"]), base64.b64decode(pairs[0]["value"]))

    def _write(self, write: Write) -> Answer:
        compare = {
            "key": self._key,
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": write.version or "0",
        }
        put = {"request_put": {"key": self._key, "value": _base64(write.value)}}
        answer = self._call("/v3/kv/txn", {"compare": [compare], "success": [put]})
        return Written(str(answer["header"]["revision"])) if answer.get("succeeded") else Conflict()

    def _call(self, path: str, body: Any) -> Any:
        settings = self._settings
        if settings.user and not self._token:
            login = {"name": settings.user, "password": settings.password}
            status, answer = self._http.send("POST", "/v3/auth/authenticate", login)
            if status != http.client.OK:
                raise EngineError(f"etcd refuses the user {settings.user}: {_reason(answer)}")
            self._token = answer["token"]
        headers = {"Authorization": self._token} if self._token else None
        status, answer = self._http.send("POST", path, body, headers)
        if status != http.client.OK:
            self._token = ""  # it may have expired
            raise EngineError(f"etcd answers {status}: {_reason(answer)}")
        return answer


class KubernetesEngine(_Engine):
    """A Lease of Kubernetes; its version is its resourceVersion."""

    def __init__(
        self,
        settings: EngineSettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(settings)
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
        self._now = now
        self._metadata: dict[str, Any] = {}  # with labels of others

    def _read(self) -> Answer:
        status, lease = self._send("GET", f"{self._path}/{self._settings.name}")
        if status == NOT_FOUND:
            return Found(ABSENT, b"")
        self._check(status, lease)
        self._metadata = lease["metadata"]
        value = (self._metadata.get("annotations") or {}).get(ANNOTATION, "")
        return Found(str(self._metadata["resourceVersion"]), value.encode())

    def _write(self, write: Write) -> Answer:
        name = self._settings.name
        if write.version == ABSENT:
            status, lease = self._send("POST", self._path, self._lease({"name": name}, write.value))
        else:
            metadata = {**self._metadata, "name": name, "resourceVersion": write.version}
            body = self._lease(metadata, write.value)
            status, lease = self._send("PUT", f"{self._path}/{name}", body)
        if status in (CONFLICT, NOT_FOUND):
            return Conflict()
        self._check(status, lease)
        self._metadata = lease["metadata"]
        return Written(str(self._metadata["resourceVersion"]))

    def _lease(self, metadata: Mapping[str, Any], value: bytes) -> dict[str, Any]:
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

    def _send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        try:
            with open(self._settings.token_file, encoding="ascii") as file:
                headers = {"Authorization": f"Bearer {file.read().strip()}"}
        except OSError as error:
            raise EngineError(f"the token of Kubernetes: {error}") from error
        return self._http.send(method, path, body, headers)

    def _check(self, status: int, answer: Any) -> None:
        if status not in (http.client.OK, http.client.CREATED):
            raise EngineError(f"Kubernetes answers {status}: {_reason(answer)}")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _reason(answer: Any) -> str:
    known = answer if isinstance(answer, dict) else {}
    return str(known.get("message") or known.get("error") or answer)[:200]
