"""A schema registry for tests, with the part of Confluent's REST interface that clients need.

It responds as the API reference specifies, with the same error codes, and keeps schemas in memory.
It neither parses schemas nor checks compatibility, but it refuses new versions of the subjects in
`incompatible`. The same tests pass with a real registry (see tests/README.md).

Source: Confluent Platform, "Schema Registry API Reference".
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
Answer = tuple[int, Mapping[str, Any]]


class FakeRegistry:
    """The schemas of the registry, and the requests that it received.

    Each new version of a subject in `incompatible` is refused. `authorization` is the Authorization
    header that clients must send, if any. `requests` has the method, the path and the Authorization
    header of each request.
    """

    def __init__(self) -> None:
        self.url = ""
        self.incompatible: set[str] = set()
        self.authorization: str | None = None
        self.requests: list[tuple[str, str, str | None]] = []
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}

    def answer(self, method: str, path: str, body: Any, authorization: str | None) -> Answer:
        """The status and the body of the response to a request."""
        self.requests.append((method, path, authorization))
        if self.authorization is not None and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "GET", ["schemas", "ids", schema_id]:
                if not 0 < int(schema_id) <= len(self._schemas):
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, _shown(self._schemas[int(schema_id) - 1])
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case "POST", ["subjects", subject]:
                return self._look_up(subject, body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, version: str) -> Answer:
        """The response to a request for a version of a subject."""
        ids = self._subjects.get(subject)
        if ids is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(ids) if version == "latest" else int(version)
        if not 0 < number <= len(ids):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        schema_id = ids[number - 1]
        found = _shown(self._schemas[schema_id - 1])
        return 200, {"subject": subject, "version": number, "id": schema_id, **found}

    def _register(self, subject: str, body: Any) -> Answer:
        """The response to the registration of a schema. Equal schemas have the same id."""
        if subject in self.incompatible:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        schema_id = self._id_of(body)
        ids = self._subjects.setdefault(subject, [])
        if schema_id not in ids:
            ids.append(schema_id)
        return 200, {"id": schema_id}

    def _look_up(self, subject: str, body: Any) -> Answer:
        """The response to a search for a schema among a subject's versions."""
        ids = self._subjects.get(subject)
        if ids is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for version, schema_id in enumerate(ids, 1):
            if self._schemas[schema_id - 1] == body:
                return 200, {"subject": subject, "id": schema_id, "version": version, **body}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _id_of(self, body: Any) -> int:
        if body not in self._schemas:
            self._schemas.append(body)
        return self._schemas.index(body) + 1


def _shown(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema in the form of a response, which leaves out the type of an Avro schema."""
    return {name: one for name, one in schema.items() if (name, one) != ("schemaType", "AVRO")}


def basic(user: str, password: str) -> str:
    """The Authorization header of a login with a password (RFC 7617)."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@contextmanager
def fake_registry(context: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """A registry that listens while the block runs.

    Takes: context, for TLS.
    """
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == CONTENT_TYPE
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            path = urlsplit(self.path).path
            status, found = registry.answer(self.command, path, body, self.headers["Authorization"])
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        registry.url = f"{scheme}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
