"""The HTTP client against servers that send too much, too slowly, too deep, or elsewhere."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.places import TESTS

from barnabas.http_client import (
    DEEPEST_JSON,
    MOST_HEAD_BYTES,
    AnswerError,
    HttpClient,
    bounded_json,
)

TLS = TESTS / "fixtures" / "tls"
MOST = 1 << 16
Serve = Callable[[Any], None]


class Server:
    """Runs a function for each connection, after it has read a request's head. heads: what was
    read.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.heads: list[bytes] = []
        self.serve: Serve = lambda sock: None
        self.is_over = threading.Event()
        self._context = context
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'http' if self._context is None else 'https'}://127.0.0.1:{self.port}"

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(sock,), daemon=True).start()

    def _one(self, sock: Any) -> None:
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    more = sock.recv(1)
                    if not more:
                        return
                    head += more
                self.heads.append(head)
                self.serve(sock)
        except OSError:
            pass
        finally:
            sock.close()

    def close(self) -> None:
        self.is_over.set()
        self._listening.close()

    # --- what servers do -------------------------------------------------------------------------

    def answers(self, body: bytes, head: str = "HTTP/1.1 200 OK") -> Serve:
        data = f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        return lambda sock: sock.sendall(data)

    def drips(self, before: bytes, piece: bytes) -> Serve:
        """Sends a piece again and again, with pauses that are shorter than any timeout."""

        def serve(sock: Any) -> None:
            sock.sendall(before)
            while not self.is_over.wait(0.02):
                sock.sendall(piece)

        return serve


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


def client(timeout_s: float = 30.0, **options: Any) -> HttpClient:
    return HttpClient(timeout_s, MOST, **options)


# --- what comes back ----------------------------------------------------------------------------


def test_an_answer_is_read_whole_with_its_status(server: Server) -> None:
    server.serve = server.answers(b"x" * MOST, "HTTP/1.1 404 Not Found")
    answer = client().send("POST", f"{server.url}/a/b?c=d", b"body", {"X-Own": "1"})
    assert (answer.status, answer.reason, answer.body) == (404, "Not Found", b"x" * MOST)
    (head,) = server.heads
    assert head.startswith(b"POST /a/b?c=d HTTP/1.1\r\n") and b"X-Own: 1" in head


def test_a_connection_is_kept_for_the_same_address_and_made_again_after_a_failure(
    server: Server,
) -> None:
    accepted: list[object] = []
    server.serve = lambda sock: (accepted.append(sock), server.answers(b"{}")(sock))[0]
    one = client(keeps_connection=True)
    for _ in range(3):
        assert one.send("GET", f"{server.url}/").body == b"{}"
    assert len(set(map(id, accepted))) == 1
    server.serve = lambda sock: sock.sendall(b"nonsense\r\n\r\n")
    with pytest.raises(http.client.HTTPException):
        one.send("GET", f"{server.url}/")
    server.serve = server.answers(b"again")
    assert one.send("GET", f"{server.url}/").body == b"again"
    one.close()


def test_an_answer_that_is_cut_off_is_an_error(server: Server) -> None:
    def serve(sock: Any) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)

    server.serve = serve
    with pytest.raises(http.client.IncompleteRead):
        client().send("GET", server.url)


def test_a_refused_connection_is_told_apart_before_anything_is_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    one = client()
    with pytest.raises(ConnectionRefusedError):
        one.send("POST", f"http://127.0.0.1:{port}", b"x")
    assert not one.may_have_sent
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = client(timeout_s=0.1)
        with pytest.raises(TimeoutError):
            one.send("POST", f"http://127.0.0.1:{silent.getsockname()[1]}", b"x")
        assert one.may_have_sent


def test_tls_checks_the_certificate() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    server = Server(context)
    server.serve = server.answers(b"secret")
    trusting = client(tls=lambda: ssl.create_default_context(cafile=str(TLS / "ca.pem")))
    url = server.url.replace("127.0.0.1", "localhost")
    assert trusting.send("GET", url).body == b"secret"
    with pytest.raises(ssl.SSLCertVerificationError):
        client().send("GET", url)
    server.close()


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
    ],
    ids=["endless", "length", "chunk", "trailers", "continue", "headers"],
)
def test_an_endless_answer_is_refused_after_its_bound(server: Server, head: bytes) -> None:
    sent = 0

    def serve(sock: Any) -> None:
        nonlocal sent
        sock.sendall(head)
        piece = head if head.endswith(b"Continue\r\n\r\n") else b"a: " + b"b" * 1000 + b"\r\n"
        while True:
            sock.sendall(piece)
            sent += len(piece)

    server.serve = serve
    with pytest.raises((AnswerError, http.client.HTTPException)):
        client().send("GET", server.url)
    # what is beyond the bound was in buffers of the sockets
    assert sent < MOST + MOST_HEAD_BYTES + (16 << 20)


@pytest.mark.parametrize(
    ("before", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"", b""),
    ],
    ids=["body", "headers", "continue", "chunks", "silence"],
)
def test_the_time_is_that_of_the_whole_exchange(
    server: Server, before: bytes, piece: bytes
) -> None:
    """Each single read is answered in time."""
    server.serve = server.drips(before, piece)
    with pytest.raises(TimeoutError):
        client(timeout_s=0.3).send("GET", server.url)


def test_a_request_that_is_not_read_ends_in_time(server: Server) -> None:
    server.serve = lambda sock: server.is_over.wait()  # type: ignore[assignment,return-value]
    with pytest.raises(TimeoutError):
        client(timeout_s=0.3).send("POST", server.url, bytes(64 << 20))


def test_close_ends_a_running_exchange_from_another_thread(server: Server) -> None:
    one = client(timeout_s=600.0)
    begun = threading.Event()

    def serve(sock: Any) -> None:
        begun.set()
        server.drips(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b" ")(sock)

    server.serve = serve
    failures: list[BaseException] = []

    def send() -> None:
        try:
            one.send("GET", server.url)
        except (OSError, http.client.HTTPException) as error:
            failures.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    assert begun.wait(30)
    one.close()
    thread.join(30)
    assert not thread.is_alive() and failures
    with pytest.raises(ConnectionAbortedError):
        one.send("GET", server.url)


def test_close_ends_a_connect_that_nothing_answers() -> None:
    """A listening socket whose queue is full takes no connection."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        others = [socket.socket() for _ in range(3)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(("127.0.0.1", port))
        one = client(timeout_s=600.0)
        failures: list[BaseException] = []

        def connect() -> None:
            try:
                one.send("GET", f"http://127.0.0.1:{port}")
            except OSError as error:
                failures.append(error)

        thread = threading.Thread(target=connect)
        thread.start()
        deadline = time.monotonic() + 30
        while one._sock is None and time.monotonic() < deadline:
            time.sleep(0.01)
        one.close()
        thread.join(30)
        assert not thread.is_alive() and failures
        for other in others:
            other.close()


# --- redirects ------------------------------------------------------------------------------------


def test_a_redirect_is_followed_only_where_asked_and_within_its_scheme(server: Server) -> None:
    def serve(sock: Any) -> None:
        path = server.heads[-1].split()[1].decode()
        if path == "/end":
            server.answers(b"found")(sock)
        else:
            target = {"/a": "/end", "/loop": "/loop"}.get(path, path[1:])
            server.answers(b"", f"HTTP/1.1 302 Found\r\nLocation: {target}")(sock)

    server.serve = serve
    assert client().send("GET", f"{server.url}/a").status == 302
    assert client().send("GET", f"{server.url}/a", follows=True).body == b"found"
    with pytest.raises(AnswerError, match="more than 5 times"):
        client().send("GET", f"{server.url}/loop", follows=True)
    for target in ("file:///etc/passwd", "https://localhost:1/x", "ftp://h/x", "gopher://h"):
        with pytest.raises(AnswerError, match="another scheme"):
            client().send("GET", f"{server.url}/{target}", follows=True)


# --- JSON -----------------------------------------------------------------------------------------


def test_json_has_a_bound_on_its_depth() -> None:
    deep = b"[" * (DEEPEST_JSON - 1) + b"]" * (DEEPEST_JSON - 1)
    assert json.dumps(bounded_json(deep)).encode() == deep
    for depth in (DEEPEST_JSON + 1, 900, 300_000):
        with pytest.raises(AnswerError, match="deep"):
            bounded_json(b'{"a":' * depth + b"1" + b"}" * depth)
        with pytest.raises((AnswerError, json.JSONDecodeError)):
            bounded_json(b"[" * depth)


# --- proxies ------------------------------------------------------------------------------------


def test_a_proxy_of_the_environment_is_used_where_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{server.port}")
    server.serve = server.answers(b"by the proxy")
    url = "http://keys.invalid/set?a=1"
    assert client(uses_proxy=True).send("GET", url).body == b"by the proxy"
    (head,) = server.heads
    assert head.startswith(f"GET {url} HTTP/1.1".encode())
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in head and b"Host: keys.invalid" in head
    with pytest.raises(socket.gaierror):
        client().send("GET", url)


def test_tls_through_a_proxy_is_with_the_server_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    proxy = Server()

    def tunnel(sock: Any) -> None:
        sock.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        with context.wrap_socket(sock, server_side=True) as secure:
            secure.recv(4096)
            secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    proxy.serve = tunnel
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("no_proxy", "")
    trusting = client(
        uses_proxy=True, tls=lambda: ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    )
    assert trusting.send("GET", "https://localhost/keys").body == b"hi"
    assert proxy.heads[0].startswith(b"CONNECT localhost:443 ")
    proxy.close()
