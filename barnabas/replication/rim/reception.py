"""The reception accepts the clients of a node that does not lead, and forwards their requests to
the leader.

If the standby refused clients after the loss of the leader, librdkafka and kafka-python would drop
both addresses and restart from `bootstrap.servers`, which may contain only the lost one. So a
standby accepts clients. It forwards the requests of a connection unchanged to the leader, one after
the other, and returns the responses. Without a leader the request waits. A connection survives a
take-over if its current request can be repeated. When this node leads, the broker takes the
connection. Produce and Fetch are not forwarded: they close the connection, and the client then
requests Metadata.

Only listeners without TLS and SASL are served, and only without an authorizer and quotas. All of
these need the client's address, but the leader sees the address of this node. Other listeners
refuse clients. The reception runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import ListenerConfig

Address = tuple[str, int]
LeaderAddress = Callable[[str], Address | None]
Heir = Callable[[str, socket.socket], None]

PRODUCE, FETCH = 0, 1
LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER = 2, 3, 10, 18, 60
REPEATABLE = frozenset((LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER))
MOST_CONNECTIONS = 1000
HOLD_S = 30.0  # how long clients wait for a response
RECEIVED_BYTES = 1 << 16
RETRY_S, CONNECT_S, LOOK_S = 0.05, 1.0, 0.2
_SIZE = struct.Struct(">i")
_KEY = struct.Struct(">h")

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Upstream(NamedTuple):
    """The connection to the leader that belongs to one client."""

    address: Address
    stream: Stream


def may_be_carried(config: BrokerConfig, listener: ListenerConfig) -> bool:
    """Whether a listener accepts clients while another node leads."""
    is_plain = not (listener.has_tls or listener.has_sasl or listener.path is not None)
    return is_plain and not (config.authorizer_class_name or config.barnabas_audit_log)


class Reception:
    """The clients of a node, until it leads.

    Takes: listen, a function that makes the sockets of listeners; leader, a function that returns
    the
           leader's address for the name of a listener, or None without a leader.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listen: Callable[[list[ListenerConfig]], list[socket.socket]],
        leader: LeaderAddress,
    ) -> None:
        self._config, self._listen, self._leader = config, listen, leader
        self._served = [one for one in config.listeners if may_be_carried(config, one)]
        self._sockets: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="reception", daemon=True)
        self._ends = asyncio.Event()
        self._accepting: list[socket.socket] = []
        self._clients: set[asyncio.Task[None]] = set()
        # the tasks of connections that wait for their client's next request
        self._idle: set[asyncio.Task[None]] = set()
        self._heir: Heir | None = None
        self._most_bytes: int = config.barnabas_request_max_bytes
        self._idle_s = config.connections_max_idle_ms / 1000

    def start(self) -> None:
        """Begin to accept clients. Raises: the errors of `listen`."""
        self._sockets = self._listen(self._served)
        if self._sockets:
            self._loop = asyncio.new_event_loop()
            self._thread.start()

    def take(self) -> list[socket.socket]:
        """Return the sockets of all listeners to the broker, which then calls `hand_over`."""
        kept = dict(zip((one.name for one in self._served), self._release(), strict=True))
        others = [one for one in self._config.listeners if one.name not in kept]
        made = dict(zip((one.name for one in others), self._listen(others), strict=True))
        return [(kept | made)[one.name] for one in self._config.listeners]

    def hand_over(self, heir: Heir) -> None:
        """Pass all connections to the broker, each after its current response.

        Takes: heir, a function that is called in this thread with each connection and the name of
               its listener.
        """

        def begin() -> None:
            self._heir = heir
            for task in self._idle:
                task.cancel()
            self._ends.set()

        self._call(begin)

    def close(self) -> None:
        """Accept no more clients, and close all connections."""
        for sock in self._release():
            sock.close()

        def end() -> None:
            for task in self._clients:
                task.cancel()
            self._ends.set()

        if self._call(end):
            self._thread.join(CONNECT_S)

    def _call(self, call: Callable[[], None]) -> bool:
        """Call a function in the reception's thread. Gives: whether the thread is running."""
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call)
                return True
        return False

    def _release(self) -> list[socket.socket]:
        """Stop accepting. Gives: the listening sockets, which stay open; empty at a second call."""
        sockets, self._sockets = self._sockets, []
        if sockets and self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._stop_accepting(), self._loop).result()
        return sockets

    async def _stop_accepting(self) -> None:
        """Stop accepting, in the reception's thread."""
        accepting, self._accepting = self._accepting, []
        for sock in accepting:
            asyncio.get_running_loop().remove_reader(sock)

    def _run(self) -> None:
        """The thread's function: accept and serve clients until `close`, or until all connections
        are handed over.
        """
        assert self._loop is not None, "no connection is to be accepted"
        asyncio.set_event_loop(self._loop)
        for listener, sock in zip(self._served, self._sockets, strict=True):
            self._accepting.append(sock)
            self._accept_from(listener.name, sock)
        try:
            self._loop.run_until_complete(self._until_end())
        finally:
            self._loop.close()

    async def _until_end(self) -> None:
        await self._ends.wait()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _accept_from(self, name: str, listening: socket.socket) -> None:
        """Accept connections on a socket until it is closed."""
        if listening in self._accepting and self._loop is not None:
            self._loop.add_reader(listening, self._accept, name, listening)

    def _accept(self, name: str, listening: socket.socket) -> None:
        """Accept one connection of a listener, and serve it in a task."""
        loop = asyncio.get_running_loop()
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        # No file descriptor is free. The reader is removed for a while: the socket stays readable,
        # so the loop would call it again and again.
        except OSError:
            loop.remove_reader(listening)
            loop.call_later(RETRY_S, self._accept_from, name, listening)
            return
        sock.setblocking(False)
        if len(self._clients) >= MOST_CONNECTIONS:
            sock.close()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = loop.create_task(self._serve(name, sock))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, name: str, sock: socket.socket) -> None:
        """Serve one client until its connection closes, or the broker takes it."""
        upstream: _Upstream | None = None
        is_kept = False
        try:
            while self._heir is None:
                request = await self._next_request(sock)
                if request is None:
                    break
                answer, upstream = await self._carry(name, request, upstream)
                if answer is None:
                    return
                await asyncio.get_running_loop().sock_sendall(sock, answer)
            is_kept = True
        except (OSError, EOFError, TimeoutError, ValueError):
            return
        finally:
            if upstream is not None:
                upstream.stream[1].close()
            if is_kept and self._heir is not None:
                self._heir(name, sock)
            else:
                sock.close()

    async def _next_request(self, sock: socket.socket) -> bytes | None:
        """The next frame, including its size. No byte beyond the frame is read.

        Gives:  None if the broker takes the connection.
        Raises: EOFError; ValueError if the frame is too long.
        """
        task = asyncio.current_task()
        assert task is not None, "outside of a task"
        self._idle.add(task)
        try:
            async with asyncio.timeout(self._idle_s if self._idle_s >= 0 else None):
                await _until_readable(sock)
        except asyncio.CancelledError:
            if self._heir is None:
                raise
            task.uncancel()
            return None
        finally:
            self._idle.discard(task)
        start = await self._receive(sock, _SIZE.size)
        (size,) = _SIZE.unpack(start)
        _check_size(size, self._most_bytes)
        return start + await self._receive(sock, size)

    async def _receive(self, sock: socket.socket, count: int) -> bytes:
        """Receive exactly `count` bytes. Raises: EOFError."""
        data, loop = bytearray(), asyncio.get_running_loop()
        while len(data) < count:
            part = await loop.sock_recv(sock, min(count - len(data), RECEIVED_BYTES))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    async def _carry(
        self, name: str, request: bytes, upstream: _Upstream | None
    ) -> tuple[bytes | None, _Upstream | None]:
        """Forward a request. Gives: the leader's response, or None if there is none; and the
        connection to the leader.
        """
        (api_key,) = _KEY.unpack_from(request, _SIZE.size)
        # Clients send Produce and Fetch only to the leader that Metadata names. So this client has
        # old metadata. It requests the current metadata after its connection is closed.
        if api_key in (PRODUCE, FETCH) and self._heir is None:
            return None, upstream
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + HOLD_S
        while loop.time() < ends_s:
            is_sent = False
            if upstream is None or upstream.address != self._leader(name):
                if upstream is not None:
                    upstream.stream[1].close()
                upstream = await self._connect(name)
            if upstream is not None:
                try:
                    upstream.stream[1].write(request)
                    is_sent = True
                    return await self._answer(name, upstream), upstream
                except (OSError, EOFError):
                    upstream.stream[1].close()
                    upstream = None
            # Do not repeat the request: the leader may have handled it, and a repetition could have
            # another effect.
            if is_sent and api_key not in REPEATABLE:
                break
            await asyncio.sleep(RETRY_S)
        return None, upstream

    async def _connect(self, name: str) -> _Upstream | None:
        """A new connection to the leader; None if there is no leader, or it does not answer in
        time.
        """
        address = self._leader(name)
        if address is None:
            return None
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                return _Upstream(address, await asyncio.open_connection(*address))
        return None

    async def _answer(self, name: str, upstream: _Upstream) -> bytes:
        """Receive the leader's response. Raises: EOFError; OSError if that node no longer leads."""
        most_bytes: int = self._config.socket_request_max_bytes
        reading = asyncio.ensure_future(_read_frame(upstream.stream[0], most_bytes))
        try:
            while not (await asyncio.wait({reading}, timeout=LOOK_S))[0]:
                if self._leader(name) != upstream.address:
                    raise ConnectionResetError("another node leads")
            return reading.result()
        finally:
            reading.cancel()


async def _until_readable(sock: socket.socket) -> None:
    """Wait until bytes, or the end of the stream, can be read, without reading anything.

    A task may be cancelled in the same round of the loop in which its `sock_recv` received bytes.
    Such bytes would be lost, and the broker would take later bytes for a frame's size.
    """
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def wake() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(sock, wake)
    try:
        await readable
    finally:
        loop.remove_reader(sock)


def _check_size(size: int, most_bytes: int) -> None:
    """Check a frame's size. Raises: ValueError."""
    if not _KEY.size <= size <= most_bytes:
        raise ValueError(f"a frame of {size} bytes")


async def _read_frame(reader: asyncio.StreamReader, most_bytes: int) -> bytes:
    """Read one frame, including its size. Raises: EOFError; ValueError if the frame is too long."""
    start = await reader.readexactly(_SIZE.size)
    (size,) = _SIZE.unpack(start)
    _check_size(size, most_bytes)
    return start + await reader.readexactly(size)
