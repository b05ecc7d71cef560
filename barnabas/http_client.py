"""A small HTTP client that trusts no server: each bound holds for a whole exchange.

An exchange is one request and its answer, with the look-up of the address, TLS and redirects. Its
time is bounded however slowly bytes come, and so are its bytes, those of headers and chunks
included. `close` ends it from another thread. A redirect is followed only if the caller asks for
it, and never to another scheme. JSON has a bound on its depth.

It is used for the store of a lease, the keys of tokens, a schema registry, metrics and tokens.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

MOST_HEAD_BYTES = 64 << 10
MOST_REDIRECTS = 5
DEEPEST_JSON = 64
REDIRECTS = (301, 302, 303, 307, 308)

TlsContext = Callable[[], ssl.SSLContext]


class AnswerError(ValueError):
    """An answer breaks a bound; the text says which."""


class HttpResponse(NamedTuple):
    """The answer to a request: its status, its words and its whole body."""

    status: int
    reason: str
    body: bytes


class HttpClient:
    """Sends one request at a time, and waits for its answer.

    may_have_sent: whether the server may have received a part of the last request.

    Takes: timeout_s, for a whole exchange; most_bytes, of an answer's body; tls, for https;
           keeps_connection, whether a connection stays open for the next request to the same
           address; uses_proxy, whether the environment's proxies are used.
    """

    def __init__(
        self,
        timeout_s: float,
        most_bytes: int,
        *,
        tls: TlsContext = ssl.create_default_context,
        keeps_connection: bool = False,
        uses_proxy: bool = False,
    ) -> None:
        self._timeout_s, self._most_bytes, self._tls = timeout_s, most_bytes, tls
        self._keeps_connection, self._uses_proxy = keeps_connection, uses_proxy
        self._turn = threading.Lock()
        self._is_closed = False
        self.may_have_sent = False
        self._sock: socket.socket | None = None
        self._connection: _Connection | None = None

    def send(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        follows: bool = False,
    ) -> HttpResponse:
        """Send a request and wait for its answer.

        Takes:  follows, whether to follow redirects within the URL's scheme. The headers are sent
                to each target.
        Raises: OSError, TimeoutError included; http.client.HTTPException; ValueError for a wrong
                URL or header; AnswerError.
        """
        with self._exchange() as deadline:
            for _ in range(MOST_REDIRECTS + 1):
                response, location = self._ask(method, url, body, headers or {}, deadline)
                if not (follows and location is not None):
                    return response
                target = urljoin(url, location)
                if urlsplit(target).scheme != urlsplit(url).scheme:
                    raise AnswerError(f"it redirects to another scheme: {target[:200]}")
                url = target
            raise AnswerError(f"it redirects more than {MOST_REDIRECTS} times")

    def disconnect(self) -> None:
        """Close the connection. The next request opens another one."""
        with self._turn:
            self._drop()

    def close(self) -> None:
        """Close the connection, and let a running exchange fail at once. Any thread may call it."""
        self._is_closed = True
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):
                # the method of a plain socket: ssl's own would change the object in use
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        if self._turn.acquire(blocking=False):  # otherwise the running exchange drops it
            try:
                self._drop()
            finally:
                self._turn.release()

    # --- one exchange ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[_Deadline]:
        """The deadline of an exchange. After an error, or if the client was closed meanwhile, no
        connection is left.
        """
        with self._turn:
            self.may_have_sent = False
            try:
                yield _Deadline(self._timeout_s, self._most_bytes + MOST_HEAD_BYTES)
            except BaseException:
                self._drop()
                raise
            finally:
                if self._is_closed:
                    self._drop()

    def _ask(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: _Deadline,
    ) -> tuple[HttpResponse, str | None]:
        """The answer to one request, and the target of a redirect."""
        connection = self._connect(url, deadline)
        parts = urlsplit(url)
        target = url if connection.is_proxied else parts.path or "/"
        if parts.query and not connection.is_proxied:
            target += f"?{parts.query}"
        own = {**connection.own_headers, **headers}
        self.may_have_sent = True
        connection.request(method, target, body, own)
        answer = connection.getresponse()
        if answer.length is not None and answer.length > self._most_bytes:
            raise AnswerError(f"it answers {answer.length:,} bytes: more than {self._most_bytes:,}")
        data = answer.read(self._most_bytes + 1)
        if len(data) > self._most_bytes:
            raise AnswerError(f"it answers more than {self._most_bytes:,} bytes")
        if answer.length:  # the connection was closed before
            raise http.client.IncompleteRead(data, answer.length)
        if not (self._keeps_connection and answer.isclosed() and connection.sock is not None):
            self._drop()
        location = answer.getheader("Location") if answer.status in REDIRECTS else None
        return HttpResponse(answer.status, answer.reason, data), location

    def _connect(self, url: str, deadline: _Deadline) -> _Connection:
        """The connection to the address of a URL, which is opened if it is not open."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url[:200]} is no address: write http://HOST:PORT or https://…")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        place = (parts.scheme, parts.hostname, port)
        if self._connection is not None and self._connection.place == place:
            self._connection.deadline = deadline
            return self._connection
        self._drop()
        proxy = _proxy(parts.scheme, parts.hostname) if self._uses_proxy else ""
        self._connection = connection = _Connection(place, deadline, proxy)
        connection.open(self._opened, self._tls)
        return connection

    def _opened(self, sock: socket.socket) -> None:
        """Note a socket, which `close` may shut down. Raises: ConnectionAbortedError after it."""
        self._sock = sock
        if self._is_closed:
            raise ConnectionAbortedError("the client is closed")

    def _drop(self) -> None:
        sock, self._sock, self._connection = self._sock, None, None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()


class _Deadline:
    """What is left of the time and the bytes of an exchange."""

    def __init__(self, timeout_s: float, most_bytes: int) -> None:
        self._end_s, self._left_bytes = time.monotonic() + timeout_s, most_bytes

    def left_s(self) -> float:
        """The seconds that are left. Raises: TimeoutError."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def count(self, size: int) -> None:
        """Count received bytes. Raises: AnswerError if there are too many."""
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise AnswerError("its answer is too long")


class _Connection(http.client.HTTPConnection):
    """A connection whose socket obeys the deadline of the exchange. is_proxied: whether a proxy
    gets whole URLs; own_headers: its login.
    """

    def __init__(self, place: tuple[str, str, int], deadline: _Deadline, proxy: str) -> None:
        self.place, self.deadline = place, deadline
        scheme, host, port = place
        self.own_headers: dict[str, str] = {}
        through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        self.is_proxied = bool(proxy) and scheme == "http"
        if not proxy:
            super().__init__(host, port)
            return
        super().__init__(through.hostname or "", through.port or 80)
        login = _basic(through.username, through.password)
        if scheme == "https":
            self.set_tunnel(host, port, login)
        else:
            self.own_headers = login

    def open(self, opened: Callable[[socket.socket], None], tls: TlsContext) -> None:
        """Connect. Takes: opened, which gets each socket. Raises: OSError, HTTPException."""
        raw = self._connected(opened)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        scheme, host, _ = self.place
        self.sock: Any = _TimedSocket(raw, self)
        if self._tunnel_host:  # type: ignore[attr-defined] # not in the stubs
            self._tunnel()  # type: ignore[attr-defined]
        if scheme == "https":
            raw.settimeout(self.deadline.left_s())
            secure = tls().wrap_socket(raw, server_hostname=host, do_handshake_on_connect=False)
            opened(secure)
            secure.do_handshake()
            self.sock = _TimedSocket(secure, self)

    def _connected(self, opened: Callable[[socket.socket], None]) -> socket.socket:
        """A socket that is connected to the first address that takes a connection."""
        problem: OSError | None = None
        found = socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            sock = socket.socket(family, kind, protocol)
            try:
                opened(sock)
                sock.settimeout(self.deadline.left_s())
                sock.connect(address)
                return sock
            except OSError as error:
                sock.close()
                if isinstance(error, ConnectionAbortedError | TimeoutError):
                    raise
                problem = error
        raise problem or OSError(f"{self.host} has no address")


class _TimedSocket:
    """What http.client needs of a socket, within the connection's deadline. The client closes the
    socket itself, since http.client does so before it reads an answer's body.
    """

    def __init__(self, sock: socket.socket, connection: _Connection) -> None:
        self._sock, self._connection = sock, connection

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(self._connection.deadline.left_s())
        self._sock.sendall(data)

    def makefile(self, mode: str, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._sock, self._connection))

    def close(self) -> None:
        pass


class _TimedReader(io.RawIOBase):
    """The bytes that come, counted, within the connection's deadline."""

    def __init__(self, sock: socket.socket, connection: _Connection) -> None:
        self._sock, self._connection = sock, connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        deadline = self._connection.deadline
        self._sock.settimeout(deadline.left_s())
        size = self._sock.recv_into(buffer)
        deadline.count(size)
        return size


def bounded_json(data: bytes) -> Any:
    """The value of JSON from a server. Raises: ValueError, AnswerError for a deep one included."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise AnswerError("its JSON is nested too deeply") from None
    level = [value]
    for _ in range(DEEPEST_JSON):
        level = [one for outer in level for one in _inner(outer)]
        if not level:
            return value
    raise AnswerError(f"its JSON is nested deeper than {DEEPEST_JSON} levels")


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _proxy(scheme: str, host: str) -> str:
    """The environment's proxy for a host; empty if there is none."""
    import urllib.request  # it takes long to import, and is rarely needed

    if urllib.request.proxy_bypass(host):
        return ""
    return urllib.request.getproxies().get(scheme, "")


def _basic(user: str | None, password: str | None) -> dict[str, str]:
    """The header of a login at a proxy."""
    if user is None:
        return {}
    login = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login).decode()}"}
