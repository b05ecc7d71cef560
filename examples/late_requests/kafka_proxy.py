"""A proxy between clients and a broker that splits the streams into requests and responses, so that
a failure can be injected at an exact point.

    with KafkaProxy(broker_port=9092) as proxy:
        # the broker ends the transaction, and the client gets no response
        proxy.on_response(END_TXN, once(CUT))
        # the first Produce arrives later, when its client has another connection
        proxy.on_request(PRODUCE, once(KEEP))
        servers = proxy.bootstrap_servers
        ...
        proxy.late[0].deliver()

A hook is called with each `Frame` of its api_key (None: of all keys), in the thread that forwards
one direction of a connection. A hook that blocks therefore delays only the later frames of that
direction. Its return value is the action for the frame:

    PASS or None     forward it
    CUT              close the connection; the frame is lost
    PASS_THEN_CUT    forward it, then close the connection; if it is a request, the broker executes
                     it, and the response is lost, however soon it is sent
    SWALLOW          drop the frame, keep the connection
    KEEP             a request: close the client's connection and keep the broker's, over which
                     `LateRequest.deliver` sends the request later
    bytes            forward these bytes instead (a whole frame without its size)

If a frame has several hooks, the first that returns neither PASS nor None decides. Hooks may be
added and cleared at any time.

Clients connect to the addresses that the broker advertises. They use only the proxy if that is the
proxy's address, or if the answers are rewritten (`ClusterProxy`).
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import NamedTuple

from barnabas.protocol.framing import decode_response
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR, API_VERSIONS = (
    0,
    1,
    2,
    3,
    9,
    10,
    18,
)
OFFSET_COMMIT = 8
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = (
    22,
    24,
    25,
    26,
    28,
)


class Action(Enum):
    """What the proxy does with a frame."""

    PASS = "pass"
    CUT = "cut"
    PASS_THEN_CUT = "pass then cut"
    SWALLOW = "swallow"
    KEEP = "keep"


PASS, CUT, PASS_THEN_CUT, SWALLOW, KEEP = Action


class Frame(NamedTuple):
    """A request or a response. `data` is the frame without the size field."""

    api_key: int
    api_version: int
    correlation_id: int
    connection: int  # connections are numbered from 0 in the order in which they are accepted
    data: bytes


Hook = Callable[[Frame], Action | bytes | None]


class LateRequest:
    """A request that the proxy has kept, and the connection to the broker over which it was sent.

    Its client has lost the connection and does not get the response.
    """

    def __init__(self, frame: Frame, broker: socket.socket) -> None:
        self.frame = frame
        self._broker = broker
        self._unsent = frame.data
        self._lock = threading.Lock()
        self._response: bytes | None = None
        self._is_processed = threading.Event()

    def deliver(self, timeout_s: float = 30.0) -> bytes | None:
        """Send the request to the broker, and wait until it is processed. It is sent only once; a
        second call gives the same.

        Gives: the response without its size field, or None if the broker closed the connection
               instead.
        Raises: TimeoutError.
        """
        with self._lock:
            data, self._unsent = self._unsent, b""
        if data:
            with suppress(OSError):
                self._broker.sendall(struct.pack(">i", len(data)) + data)
        if not self._is_processed.wait(timeout_s):
            raise TimeoutError(f"no response to the late request in {timeout_s:.0f} s")
        return self._response

    def on_response(self, response: bytes) -> None:
        """Keep the response."""
        self._response = response

    def on_end(self) -> None:
        """The connection has ended: there is no other response."""
        self._is_processed.set()


class _Link:
    """What the two directions of one connection share."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.unanswered: dict[int, tuple[int, int]] = {}  # API key and version, by correlation id
        self.late: LateRequest | None = None


def once(action: Action | bytes | Hook, *, after: int = 0) -> Hook:
    """A hook that applies to a single frame: to the first one, or to the one that follows `after`
    other frames. Several threads may share the hook.
    """
    lock, seen = threading.Lock(), 0

    def hook(frame: Frame) -> Action | bytes | None:
        nonlocal seen
        with lock:
            seen += 1
            if seen != after + 1:
                return PASS
        return action(frame) if callable(action) else action

    return hook


def hold(
    release: threading.Event, reached: threading.Event | None = None, *, timeout_s: float = 120
) -> Hook:
    """A hook that sets `reached`, and forwards the frame when `release` is set."""

    def hook(frame: Frame) -> Action:
        if reached is not None:
            reached.set()
        assert release.wait(timeout_s), "the frame was not released"
        return PASS

    return hook


class KafkaProxy:
    """Listens on a free port of 127.0.0.1 while the context lasts, and forwards everything to
    `broker_port`, which may be set later, at `broker_host`.
    """

    def __init__(self, broker_port: int = 0, broker_host: str = "127.0.0.1") -> None:
        self.broker_host, self.broker_port = broker_host, broker_port
        self.port = 0
        self.requests: list[int] = []  # the api_key of each request, in the order of arrival
        self.late: list[LateRequest] = []  # the requests that hooks have kept
        self._hooks: dict[bool, list[tuple[int | None, Hook]]] = {False: [], True: []}
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def on_request(self, api_key: int | None, hook: Hook | Action) -> KafkaProxy:
        """Call the hook with each request of this kind before the broker gets it."""
        return self._add(False, api_key, hook)

    def on_response(self, api_key: int | None, hook: Hook | Action) -> KafkaProxy:
        """Call the hook with the response to each request of this kind before the client gets
        it.
        """
        return self._add(True, api_key, hook)

    def _add(self, response: bool, api_key: int | None, hook: Hook | Action) -> KafkaProxy:
        """Add a hook for the requests or responses of this API, or of all APIs."""
        called: Hook = (lambda frame: hook) if isinstance(hook, Action) else hook
        self._hooks[response] = [*self._hooks[response], (api_key, called)]
        return self

    def clear(self) -> None:
        """Remove all hooks."""
        self._hooks = {False: [], True: []}

    def cut_all(self) -> None:
        """Close all open connections. New connections are accepted."""
        with self._lock:
            for each in self._sockets:
                _end(each)

    def __enter__(self) -> KafkaProxy:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for thread in list(self._threads):
            thread.join(35)
        with self._lock:
            for each in self._sockets:
                each.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        """Connect each client to the broker, and forward each direction in its own thread."""
        number = 0
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((self.broker_host, self.broker_port), 10)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [client, broker]
            link = _Link(number)
            self._start(self._carry, client, broker, False, link)
            self._start(self._carry, broker, client, True, link)
            number += 1

    def _carry(
        self, source: socket.socket, target: socket.socket, response: bool, link: _Link
    ) -> None:
        """Forward one direction of a connection until one side or a hook closes it."""
        is_kept = False
        try:
            while (data := _read_frame(source)) is not None:
                frame = self._frame(data, response, link)
                if frame is None or (action := self._decide(response, frame)) is CUT:
                    return
                if response and (late := link.late) is not None:
                    if frame.correlation_id == late.frame.correlation_id:
                        late.on_response(data)
                        return
                    continue  # of a request before it; its client has gone
                if action is KEEP and not response:
                    link.late = LateRequest(frame, target)
                    self.late.append(link.late)
                    is_kept = True
                    return
                if action is PASS_THEN_CUT and not response:
                    # deleted before the request is forwarded, since the response may arrive at once
                    del link.unanswered[frame.correlation_id]
                if action is not SWALLOW:
                    handed_on = action if isinstance(action, bytes) else data
                    try:
                        target.sendall(struct.pack(">i", len(handed_on)) + handed_on)
                    except OSError:
                        if not response or link.late is None:
                            return
                if action is PASS_THEN_CUT:
                    return
        except OSError:
            pass
        finally:
            _end(source)
            if not is_kept:
                _end(target)
            if response and link.late is not None:
                link.late.on_end()

    def _frame(self, data: bytes, response: bool, link: _Link) -> Frame | None:
        """The frame with the API key and the version of its request, or None for a response that is
        to be dropped.
        """
        if response:
            (correlation_id,) = struct.unpack_from(">i", data)
            if correlation_id not in link.unanswered:
                return None
            api_key, api_version = link.unanswered.pop(correlation_id)
        else:
            api_key, api_version, correlation_id = struct.unpack_from(">hhi", data)
            link.unanswered[correlation_id] = api_key, api_version
            self.requests.append(api_key)
        return Frame(api_key, api_version, correlation_id, link.number, data)

    def _decide(self, response: bool, frame: Frame) -> Action | bytes:
        """Call the hooks for the frame. Return the action of the first hook that does not let the
        frame pass.
        """
        for api_key, hook in self._hooks[response]:
            if api_key is None or api_key == frame.api_key:
                action = hook(frame)
                if action is not None and action is not PASS:
                    return action
        return PASS


class ClusterProxy:
    """A proxy for each broker of a cluster, which may advertise any addresses.

    The answers to Metadata and FindCoordinator are rewritten, so that a client that begins at
    `bootstrap_servers` connects to proxies only. Hooks apply to all brokers.
    """

    def __init__(self, bootstrap_server: str) -> None:
        self._hooks: list[tuple[bool, int | None, Hook | Action]] = [
            (True, METADATA, self._through_proxies),
            (True, FIND_COORDINATOR, self._through_proxies),
        ]
        self._proxies: dict[tuple[str, int], KafkaProxy] = {}
        self._lock = threading.Lock()
        host, _, port = bootstrap_server.rpartition(":")
        self._first = self._proxy_of(host, int(port))

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`."""
        return self._first.bootstrap_servers

    @property
    def late(self) -> list[LateRequest]:
        """The requests that hooks have kept."""
        with self._lock:
            return [late for proxy in self._proxies.values() for late in proxy.late]

    def on_request(self, api_key: int | None, hook: Hook | Action) -> None:
        """Call the hook with each request of this kind before its broker gets it."""
        with self._lock:
            self._hooks.append((False, api_key, hook))
            for proxy in self._proxies.values():
                proxy.on_request(api_key, hook)

    def __enter__(self) -> ClusterProxy:
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in list(self._proxies.values()):
            proxy.__exit__(None, None, None)

    def _proxy_of(self, host: str, port: int) -> KafkaProxy:
        """The proxy in front of the broker with this address. It runs until the end."""
        with self._lock:
            proxy = self._proxies.get((host, port))
            if proxy is None:
                proxy = self._proxies[host, port] = KafkaProxy(port, host).__enter__()
                for response, api_key, hook in self._hooks:
                    (proxy.on_response if response else proxy.on_request)(api_key, hook)
            return proxy

    def _through_proxies(self, frame: Frame) -> bytes:
        """Replace each broker's address in a response by that of its proxy."""
        message: MetadataResponse | FindCoordinatorResponse
        rows: Sequence[MetadataResponseBroker | Coordinator | FindCoordinatorResponse]
        if frame.api_key == METADATA:
            _, metadata = decode_response(MetadataResponse, frame.data, frame.api_version)
            message, rows = metadata, metadata.brokers
        else:
            _, found = decode_response(FindCoordinatorResponse, frame.data, frame.api_version)
            message, rows = found, found.coordinators if frame.api_version >= 4 else [found]
        for row in rows:
            if row.host:
                row.host, row.port = "127.0.0.1", self._proxy_of(row.host, row.port).port
        header = struct.pack(">i", frame.correlation_id)
        if frame.api_version >= message.FLEXIBLE_FROM:
            header += b"\0"  # no tagged fields
        return header + message.encode(frame.api_version)


def _read_frame(source: socket.socket) -> bytes | None:
    """Read one whole frame, or return None if the connection ends before it is complete."""
    prefix = _read(source, 4)
    return None if prefix is None else _read(source, struct.unpack(">i", prefix)[0])


def _read(source: socket.socket, size: int) -> bytes | None:
    """Read `size` bytes, or return None if the connection ends before that."""
    data = bytearray()
    while len(data) < size:
        part = source.recv(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
