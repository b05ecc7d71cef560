"""A small HTTP server in its own threads, for the console, metrics and test control.

It adds three things to `http.server`: `Host` and `Origin` are checked, so that pages of other
sites in a local browser cannot reach it; bodies and connections are bounded; and it uses no CPU
while there are no requests. A function that takes a Request and returns a Response answers each
request. It is called in the connection's thread. With `in_loop` it runs code in the loop's thread,
which is the only thread that may read the broker's state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlsplit

from barnabas.storage.disk import OsDisk
from barnabas.storage.pooled_disk import most_beside_clients

logger = logging.getLogger("barnabas.http")

T = TypeVar("T")

OWN_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
LOOPBACK = ("127.0.0.1", "::1")
LONGEST_BODY_BYTES, LONGEST_NUMBER = 1 << 20, 20
MOST_CONNECTIONS = 64
# A server may use this fraction (one in 16) of the descriptors that clients' connections may
# not use. There are up to three servers.
DESCRIPTORS_PART = 16
IDLE_S = 60.0  # time after which a connection that has not sent a whole request is closed
ANSWER_WITHIN_S = 60.0
JSON = "application/json"
COMPLAINT_INTERVAL_S = 60.0
_CLOSED_CHECK_S = 1.0


class Request(NamedTuple):
    """One request. query: the last value of each name. headers: names are compared without regard
    to case.

    client_host: the client's address.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: Message
    body: bytes
    client_host: str = ""


class Response(NamedTuple):
    """A response. body: the whole body, or an iterator of parts, each of which is sent when it is
    available (server-sent events). The iterator is closed when the client disconnects.
    """

    status: int
    body: bytes | Iterator[bytes]
    content_type: str = JSON
    headers: Mapping[str, str] = {}


def json_response(value: Any, status: int = 200) -> Response:
    """A response that contains a value as JSON."""
    return Response(status, json.dumps(value).encode() + b"\n")


def error_response(status: int, text: str) -> Response:
    """The response to a failed request, with the reason as a sentence."""
    return json_response({"error": text}, status)


def in_loop(loop: asyncio.AbstractEventLoop, steps: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine in the loop's thread, and wait. Raises: the coroutine's errors;
    TimeoutError.
    """
    return asyncio.run_coroutine_threadsafe(steps, loop).result(ANSWER_WITHIN_S)


def in_slices(loop: asyncio.AbstractEventLoop, look: Generator[None, None, T]) -> T:
    """Run a generator of `broker/observation` in the loop's thread, one slice in each round of the
    loop, and wait for its result.
    """

    async def run() -> T:
        while True:
            try:
                next(look)
            except StopIteration as end:
                value: T = end.value
                return value
            await asyncio.sleep(0)

    return in_loop(loop, run())


class HttpServer:
    """A listening socket, the thread that accepts connections, and a thread for each connection.

    Takes: sock, which already listens, so that a port in use is found before anything is started;
           answer, the function that answers requests: it is called in threads, and if it raises
           an exception, the response has status 500; name, the name of the threads;
           changes_things, whether requests have effects.

    On a loopback address, a request whose Host or Origin does not name this machine is refused
    (403). On another address, which the user chose, any Host is accepted, and an Origin has to be
    equal to the Host. If requests have effects, an Origin always has to be equal to the Host
    including the port, since another port belongs to another program. A browser would only hide the
    response from that program's page: the effects would still occur.
    """

    def __init__(
        self,
        sock: socket.socket,
        answer: Callable[[Request], Response],
        name: str,
        *,
        changes_things: bool = False,
    ) -> None:
        sock.setblocking(True)
        self._answer, self._changes_things = answer, changes_things
        self._is_closed = False
        self._is_loopback = sock.getsockname()[0] in LOOPBACK
        self._http = _Listener(sock, _handler_of(self), name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """The address at which the server listens."""
        host, port = self._http.server_address[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """The URL for a browser on this machine."""
        host, port = self.address
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def most_connections(self) -> int:
        """The maximum number of connections."""
        return self._http.most_connections

    @property
    def is_closed(self) -> bool:
        """Whether the server is closed. If so, the iterator of a response body has to end."""
        return self._is_closed

    def close(self) -> None:
        """Stop listening. An open connection ends when its client disconnects, or with
        the process.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._http.wake()
        self._thread.join(_CLOSED_CHECK_S)
        self._http.server_close()

    def _run(self) -> None:
        while not self._is_closed:
            self._http.handle_request()

    def respond(self, handler: BaseHTTPRequestHandler) -> Response:
        """Return the response to a request whose headers the handler has read."""
        headers = handler.headers
        length = headers.get("Content-Length") or "0"
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in headers:
            handler.close_connection = True  # the end of the request's body is unknown
            return error_response(400, "a body needs its Content-Length, and no Transfer-Encoding")
        size = int(length) if len(length) <= LONGEST_NUMBER else LONGEST_BODY_BYTES + 1
        is_reading = handler.command in ("GET", "HEAD")
        may_ask = self._may_ask(headers.get("Host"), headers.get("Origin"))
        if not (may_ask and (is_reading or _is_of_own_page(headers.get("Sec-Fetch-Site")))):
            handler.close_connection = True  # the request's body is not read
            return error_response(403, "requests from pages of other hosts are refused")
        if size > LONGEST_BODY_BYTES:
            handler.close_connection = True
            return error_response(413, "a body may have at most one mebibyte")
        try:
            body = handler.rfile.read(size)
        except OSError:  # the connection failed, or was closed by the client
            handler.close_connection = True
            return error_response(400, "the body did not arrive")
        self._http.mark_answering(handler.connection)
        try:
            url = urlsplit(handler.path)
            query = dict(parse_qsl(url.query, keep_blank_values=True))
        except ValueError as error:
            return error_response(400, f"the target of the request is wrong: {error}")
        try:
            method = str(handler.command)
            method = "GET" if method == "HEAD" else method
            host = str(handler.client_address[0])
            return self._answer(Request(method, url.path, query, headers, body, host))
        except Exception as error:
            logger.exception("%s %s", handler.command, handler.path)
            return error_response(500, repr(error))

    def send(self, handler: BaseHTTPRequestHandler, response: Response) -> None:
        """Send a response. While the client is slow to read it, the connection may be closed to
        make room for another.
        """
        # The connection of a stream (an iterator of pieces) does not count as waiting for its
        # client, so that it is not closed while the stream is sent.
        if isinstance(response.body, bytes):
            self._http.waits(handler.connection)
        try:
            _send(handler, response)
        finally:
            self._http.waits(handler.connection)

    def _may_ask(self, host: str | None, origin: str | None) -> bool:
        """Whether the request may come from a page of this server. Takes: the headers Host and
        Origin.

        A page of another site could send requests by the user's browser. If the name of that site
        resolves to this address (DNS rebinding), Host contains that name. Origin contains the
        origin of the page. Requests that change something must have exactly this server's origin.
        """
        name = _name_of(host)
        if self._is_loopback and name not in OWN_HOSTS:
            return False
        if origin is None:
            return True
        authority = origin.partition("://")[2]
        if self._changes_things:
            return authority.lower() == (host or "").lower()
        return _name_of(authority) in (OWN_HOSTS if self._is_loopback else (name,))


def _is_of_own_page(site: str | None) -> bool:
    """Whether a request that changes something comes from a page of this server, from a user's own
    action, or from a program. Takes: the header Sec-Fetch-Site, which a browser sends even where it
    leaves out Origin, and which a page cannot set.
    """
    return site is None or site.strip().lower() in ("same-origin", "none")


def _name_of(authority: str | None) -> str:
    """The host in HOST or HOST:PORT, in lower case. An IPv6 address keeps its brackets."""
    text = (authority or "").lower()
    name, colon, port = text.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else text


# the type of requests in `socketserver`; the second alternative is for datagrams
_Request = socket.socket | tuple[bytes, socket.socket]


class _Listener(ThreadingHTTPServer):
    """The server of `http.server`, on a socket that already listens, and with a maximum number of
    connections.

    most_connections: the maximum, which is lower if the process may have few descriptors. _waiting:
    the connections whose clients have yet to send a request or read the response, the longest
    waiting first. If there are too many connections, the first of these is closed, so that silent
    or slow clients do not block others.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, sock: socket.socket, handler: type[BaseHTTPRequestHandler], name: str
    ) -> None:
        super().__init__(sock.getsockname(), handler, bind_and_activate=False)
        self.socket.close()  # the socket that the base class made
        self.socket = sock
        self.server_address = sock.getsockname()
        self._name = name
        self.most_connections = most_beside_clients(
            OsDisk().most_open_files(), DESCRIPTORS_PART, MOST_CONNECTIONS
        )
        self._free = threading.BoundedSemaphore(self.most_connections)
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}
        self._complain_at_s = 0.0

    def process_request(self, request: _Request, client_address: Any) -> None:
        """Serve a connection in a thread. If there are too many connections, close another one."""
        assert isinstance(request, socket.socket)
        if not self._free.acquire(blocking=False):
            self._complain()
            if not self._make_room():
                self.shutdown_request(request)
                return
        self.waits(request)
        threading.Thread(
            target=self._serve, args=(request, client_address), name=self._name, daemon=True
        ).start()

    def _complain(self) -> None:
        """Log that there are too many connections, at most once in each interval."""
        now_s = time.monotonic()
        if now_s >= self._complain_at_s:
            self._complain_at_s = now_s + COMPLAINT_INTERVAL_S
            logger.warning(
                "%s: more than %d connections; the longest waiting ones are closed",
                self._name, self.most_connections,
            )  # fmt: skip

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for its client. Gives: False if no
        connection is waiting for its client.
        """
        with self._lock:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            del self._waiting[longest]
            with contextlib.suppress(OSError):
                longest.shutdown(socket.SHUT_RDWR)
        # the thread of the closed connection ends, and releases its place
        return self._free.acquire(timeout=_CLOSED_CHECK_S)

    def waits(self, connection: socket.socket) -> None:
        """Record that the connection waits for its client, so that it may be closed to
        make room.
        """
        with self._lock:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def mark_answering(self, connection: socket.socket) -> None:
        """Record that the client is waiting for a response, so that its connection is not closed to
        make room.
        """
        with self._lock:
            self._waiting.pop(connection, None)

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        """Serve the requests of a connection in its thread, then release its place."""
        try:
            self.process_request_thread(request, client_address)
        finally:
            self.mark_answering(request)
            self._free.release()

    def handle_error(self, request: _Request, client_address: Any) -> None:
        """Log that a connection failed."""
        logger.debug("%s: the connection of %s broke off", self._name, client_address)

    def wake(self) -> None:
        """Make `handle_request`, which waits for a connection, return."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # on systems other than Linux a listening socket cannot be shut down
            socket.create_connection(self.socket.getsockname()[:2], _CLOSED_CHECK_S).close()


def _handler_of(server: HttpServer) -> type[BaseHTTPRequestHandler]:
    """The class that serves a connection of a server, in the form that `http.server` requires."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "barnabas"
        sys_version = ""
        timeout = IDLE_S

        def do_GET(self) -> None:
            server.send(self, server.respond(self))

        do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            logger.debug(format, *arguments)

    return Handler


def _send(handler: BaseHTTPRequestHandler, response: Response) -> None:
    """Send the answer: bytes with their length, or a stream piece by piece, which ends with the
    connection.
    """
    body = response.body
    handler.send_response(response.status)
    handler.send_header("Content-Type", response.content_type)
    handler.send_header("X-Content-Type-Options", "nosniff")
    for name, value in response.headers.items():
        handler.send_header(name, value)
    if isinstance(body, bytes):
        handler.send_header("Content-Length", str(len(body)))
    else:
        handler.send_header("Connection", "close")
    handler.end_headers()
    if isinstance(body, bytes):
        if handler.command != "HEAD":
            handler.wfile.write(body)
        return
    try:
        for piece in body if handler.command != "HEAD" else ():
            handler.wfile.write(piece)
            handler.wfile.flush()
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()
