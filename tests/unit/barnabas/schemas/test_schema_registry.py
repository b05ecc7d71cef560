"""The client of a schema registry against registries that send too much, or too slowly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from barnabas.schemas import registry
from barnabas.schemas.errors import SchemaError
from barnabas.schemas.registry import RegistrySettings, SchemaRegistry, UnreachableError, Wording

WORDING = Wording("--registry", "CA", "LOGIN", "CERTIFICATE", " (--timeout)")


class Handler(BaseHTTPRequestHandler):
    """Answers each request as the test has chosen."""

    server: Any

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        answer = self.server.answer
        self.send_response(302 if answer == "elsewhere" else 200)
        if answer == "elsewhere":
            self.send_header("Location", "/stolen")
        self.end_headers()
        try:
            if answer == "deep":
                self.wfile.write(b'{"schema": ' + b"[" * 1000 + b"]" * 1000 + b"}")
            while answer == "drip" and not self.server.is_over.wait(0.02):
                self.wfile.write(b" ")
            while answer == "endless":
                self.wfile.write(b" " * (1 << 16))
        except OSError:
            pass

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@contextmanager
def served(answer: str) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answer, server.asked, server.is_over = answer, [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.is_over.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("drip", UnreachableError, "no answer for 0.3 s (--timeout)"),
        ("endless", SchemaError, "it answers more than 65,536 bytes"),
        ("deep", SchemaError, "HTTP 200: is it a schema registry?"),
        ("elsewhere", SchemaError, "HTTP 302: the registry is at another address"),
    ],
)
def test_a_registry_without_bounds_gets_an_error_in_words(
    answer: str, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ANSWER_BYTES_MOST", 1 << 16)
    timeout_s = 0.3 if answer == "drip" else 60.0
    with served(answer) as server:
        settings = RegistrySettings(f"http://127.0.0.1:{server.server_port}/base/", "me:secret")
        with pytest.raises(kind) as raised:
            SchemaRegistry(settings, timeout_s, WORDING).schema(7)
        assert words in str(raised.value)
        assert [path for path, _ in server.asked] == ["/base/schemas/ids/7"]
