"""The small HTTP server: access, limits on requests, and responses in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from barnabas.process.http_server import (
    LONGEST_BODY_BYTES,
    HttpServer,
    Request,
    Response,
    in_loop,
    json_response,
)

LARGE = bytes(16 << 20)  # larger than the socket's buffers


def listening(host: str = "127.0.0.1") -> socket.socket:
    sock = socket.socket()
    sock.bind((host, 0))
    sock.listen(256)
    sock.setblocking(False)
    return sock


class Asked:
    """A server that records its requests, and responds with the pieces of a stream."""

    def __init__(self, host: str = "127.0.0.1", *, changes_things: bool = False) -> None:
        self.release, self.has_ended = threading.Event(), threading.Event()
        self.server = HttpServer(
            listening(host), self.answer, "asked", changes_things=changes_things
        )

    def answer(self, request: Request) -> Response:
        """Return a response whose kind depends on the path. By default it repeats the request as
        JSON.
        """
        if request.path == "/stream":
            return Response(200, self.pieces(), "text/event-stream")
        if request.path == "/large":
            return Response(200, LARGE)
        if request.path == "/fail":
            raise RuntimeError("out of order")
        return json_response([request.method, request.path, request.query, request.body.decode()])

    def pieces(self) -> Iterator[bytes]:
        """Yield one piece and, after `release`, further pieces until the server closes the
        generator.
        """
        try:
            yield b"first\n"
            self.release.wait(10)
            while True:
                yield b"x" * 65536
        finally:
            self.has_ended.set()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.server.address[1], timeout=10)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        client = self.connect()
        client.request(method, path, body, headers)
        answer = client.getresponse()
        status, text = answer.status, answer.read()
        client.close()
        return status, text


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    yield asked
    asked.server.close()


def test_a_request_is_answered_and_the_connection_kept(asked: Asked) -> None:
    client = asked.connect()
    for method in ("GET", "POST"):
        client.request(method, "/a/b?x=1&y=&x=2", b"body")
        answer = client.getresponse()
        assert answer.headers["Content-Type"] == "application/json"
        assert json.loads(answer.read()) == [method, "/a/b", {"x": "2", "y": ""}, "body"]
    client.close()
    assert asked.ask("HEAD", "/") == (200, b"")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:9092", "[::1]"])
def test_this_machines_own_names_may_ask(asked: Asked, host: str) -> None:
    assert asked.ask("GET", "/", Host=host)[0] == 200
    assert asked.ask("GET", "/", Origin=f"http://{host}")[0] == 200


def test_a_server_that_changes_things_refuses_other_origins() -> None:
    """A browser sends the origin of the page in the request. A page from another server on this
    machine must not change things in this broker.
    """
    asked = Asked(changes_things=True)
    host = "127.0.0.1:1"
    assert asked.ask("POST", "/", Host=host)[0] == 200
    assert asked.ask("POST", "/", Host=host, Origin=f"http://{host}")[0] == 200
    assert asked.ask("POST", "/", Host="LOCALHOST", Origin="http://localhost")[0] == 200
    for other in ("127.0.0.1:2", "127.0.0.1", "localhost:1", "[::1]:1", "example.org"):
        assert asked.ask("POST", "/", Host=host, Origin=f"http://{other}")[0] == 403
    assert asked.ask("POST", "/", Host=host, Origin="null")[0] == 403
    asked.server.close()


@pytest.mark.parametrize("changes_things", [True, False])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site", "new"])
def test_a_page_of_another_site_may_change_nothing_even_without_an_origin(
    site: str, changes_things: bool
) -> None:
    """A page of the same host at another port is of the same site, and of another origin."""
    asked = Asked(changes_things=changes_things)
    for method in ("POST", "PUT", "DELETE"):
        assert asked.ask(method, "/", **{"Sec-Fetch-Site": site})[0] == 403
        for own in ("same-origin", "none"):
            assert asked.ask(method, "/", **{"Sec-Fetch-Site": own})[0] == 200
    assert asked.ask("GET", "/", **{"Sec-Fetch-Site": site})[0] == 200, "a link leads here"
    asked.server.close()


@pytest.mark.parametrize(
    "host", ["example.org", "127.0.0.1.example.org", "", "[::2]", "localhost."]
)
def test_other_hosts_may_not(asked: Asked, host: str) -> None:
    assert asked.ask("GET", "/", Host=host)[0] == 403
    assert asked.ask("GET", "/", Origin=f"http://{host}")[0] == 403


def test_on_a_public_address_any_host_name_is_accepted_but_no_other_origin() -> None:
    asked = Asked("0.0.0.0")
    assert asked.ask("GET", "/", Host="broker.lan:9404")[0] == 200
    assert asked.ask("GET", "/", Host="broker.lan:1", Origin="http://broker.lan:1")[0] == 200
    assert asked.ask("GET", "/", Host="broker.lan", Origin="http://example.org")[0] == 403
    assert asked.server.url.startswith("http://127.0.0.1:")
    asked.server.close()


def test_a_too_large_body_gets_413_and_a_failed_request_gets_500(asked: Asked) -> None:
    client = asked.connect()
    client.putrequest("POST", "/")
    client.putheader("Content-Length", str(LONGEST_BODY_BYTES + 1))
    client.endheaders()
    assert client.getresponse().status == 413
    client.close()
    status, text = asked.ask("GET", "/fail")
    assert status == 500
    assert "out of order" in json.loads(text)["error"]


@pytest.mark.parametrize(
    "length",
    [
        "Transfer-Encoding: chunked",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity",
        "Content-Length: -1",
        "Content-Length: +4",
        "Content-Length: 1_0",
        "Content-Length: 4, 4",
    ],
)
def test_a_body_whose_end_is_unknown_is_no_next_request(asked: Asked, length: str) -> None:
    """A proxy between client and server may find another end of the body, and may forward a request
    that a web page has hidden in the body.
    """
    body = b"GET /in/the/body HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(asked.server.address, 10) as sock:
        sock.sendall(f"POST / HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode() + body)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := sock.recv(1 << 16):
                answer += part
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 400 ")
    assert b"in/the/body" not in answer


def test_an_invalid_target_or_content_length_is_refused(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    for head, status in (
        (b"GET http://[ HTTP/1.0\r\nHost: localhost\r\n\r\n", b"400"),
        (
            b"GET / HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0000000000000000000009\r\n\r\n",
            b"413",
        ),
    ):
        with socket.create_connection(asked.server.address, 10) as sock:
            sock.sendall(head)
            assert sock.makefile("rb").readline().split()[1] == status
    assert caplog.text == ""


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: localhost\r\n"
                                  b"Content-Length: 9\r\n\r\nhalf"])  # fmt: skip
def test_silent_and_incomplete_requests_do_not_keep_other_clients_out(
    asked: Asked, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    silent = []
    with contextlib.ExitStack() as stack:
        for _ in range(2 * asked.server.most_connections):
            client = socket.create_connection(asked.server.address, 10)
            silent.append(stack.enter_context(client))
            client.sendall(said)
        for _ in range(3):
            assert asked.ask("GET", "/")[0] == 200
        assert caplog.text.count(f"more than {asked.server.most_connections} connections") == 1
        with contextlib.suppress(ConnectionResetError):
            assert silent[0].recv(1) == b"", "the connection that waited longest was not closed"


def test_clients_that_do_not_read_do_not_keep_other_clients_out(asked: Asked) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(asked.server.most_connections):
            client = stack.enter_context(socket.create_connection(asked.server.address, 10))
            client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asked.ask("GET", "/")[0] == 200


def test_connections_with_a_response_in_progress_are_not_closed_for_new_ones(asked: Asked) -> None:
    clients = [asked.connect() for _ in range(asked.server.most_connections)]
    for client in clients:
        client.request("GET", "/stream")
        assert client.getresponse().readline() == b"first\n"
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        asked.ask("GET", "/")
    asked.release.set()
    for client in clients:
        client.close()


def test_an_answer_in_pieces_ends_when_the_client_has_gone(asked: Asked) -> None:
    client = asked.connect()
    client.request("GET", "/stream")
    answer = client.getresponse()
    assert answer.readline() == b"first\n"
    assert not asked.has_ended.is_set()
    answer.close()
    client.close()
    asked.release.set()
    assert asked.has_ended.wait(10)


def test_a_closed_server_refuses_connections(asked: Asked) -> None:
    address = asked.server.address
    asked.server.close()
    assert asked.server.is_closed
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 10)


def test_in_loop_runs_a_coroutine_in_the_loops_thread() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def where() -> int:
        return threading.get_ident()

    assert in_loop(loop, where()) == thread.ident
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
