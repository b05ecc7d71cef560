"""A proxy between clients and a broker that splits the streams into requests and responses, so that
a test can inject a failure at an exact point.

    with broker_behind_proxy() as (broker, proxy):
        # the broker ends the transaction, and the client gets no response
        proxy.on_response(END_TXN, once(CUT))
        # the broker dies before the first Produce reaches it
        proxy.on_request(PRODUCE, once(lambda frame: broker.kill()))
        servers = proxy.bootstrap_servers

A hook is called with each `Frame` of its api_key (None: of all keys), in the thread that forwards
one direction of a connection. A hook that blocks therefore delays only the later frames of that
direction. Its return value is the action for the frame:

    PASS or None     forward it
    CUT              close the connection; the frame is lost
    PASS_THEN_CUT    forward it, then close the connection; if it is a request, the broker executes
                     it, and the response is lost, however soon it is sent
    SWALLOW          drop the frame, keep the connection
    bytes            forward these bytes instead (a whole frame without its size)

If a frame has several hooks, the first that returns neither PASS nor None decides. Hooks may be
added and cleared at any time. Clients use only the proxy if the broker advertises the proxy's
address, as with `broker_behind_proxy`.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from types import TracebackType
from typing import NamedTuple

from barnabas import LocalBroker

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


PASS, CUT, PASS_THEN_CUT, SWALLOW = Action.PASS, Action.CUT, Action.PASS_THEN_CUT, Action.SWALLOW


class Frame(NamedTuple):
    """A request or a response. `data` is the frame without the size field."""

    api_key: int
    api_version: int
    correlation_id: int
    connection: int  # connections are numbered from 0 in the order in which they are accepted
    data: bytes


Hook = Callable[[Frame], Action | bytes | None]


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
    `broker_port`, which may be set later.
    """

    def __init__(self, broker_port: int = 0) -> None:
        self.broker_port = broker_port
        self.port = 0
        self.requests: list[int] = []  # the api_key of each request, in the order of arrival
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
                broker = socket.create_connection(("127.0.0.1", self.broker_port), 10)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [client, broker]
            asked: dict[int, tuple[int, int]] = {}
            self._start(self._carry, client, broker, False, number, asked)
            self._start(self._carry, broker, client, True, number, asked)
            number += 1

    def _carry(
        self,
        source: socket.socket,
        target: socket.socket,
        response: bool,
        number: int,
        asked: dict[int, tuple[int, int]],
    ) -> None:
        """Forward one direction of a connection until one side or a hook closes it."""
        try:
            while (data := _read_frame(source)) is not None:
                frame = self._frame(data, response, number, asked)
                if frame is None or (action := self._decide(response, frame)) is CUT:
                    return
                if action is PASS_THEN_CUT and not response:
                    del asked[
                        frame.correlation_id
                        # deleted before the request is forwarded, since the response may arrive at
                        # once
                    ]
                if action is not SWALLOW:
                    handed_on = action if isinstance(action, bytes) else data
                    target.sendall(struct.pack(">i", len(handed_on)) + handed_on)
                if action is PASS_THEN_CUT:
                    return
        except OSError:
            pass
        finally:
            _end(source)
            _end(target)

    def _frame(
        self, data: bytes, response: bool, number: int, asked: dict[int, tuple[int, int]]
    ) -> Frame | None:
        """The frame with the API key and the version of its request, or None for a response that is
        to be dropped.
        """
        if response:
            (correlation_id,) = struct.unpack_from(">i", data)
            if correlation_id not in asked:
                return None
            api_key, api_version = asked.pop(correlation_id)
        else:
            api_key, api_version, correlation_id = struct.unpack_from(">hhi", data)
            asked[correlation_id] = api_key, api_version
            self.requests.append(api_key)
        return Frame(api_key, api_version, correlation_id, number, data)

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


@contextmanager
def broker_behind_proxy(
    settings: Mapping[str, str] | None = None,
) -> Iterator[tuple[LocalBroker, KafkaProxy]]:
    """A broker that advertises the proxy's address to clients, even after it was killed and
    restarted.
    """
    with KafkaProxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with LocalBroker(settings={**(settings or {}), **advertised}) as broker:
            proxy.broker_port = broker.port
            yield broker, proxy


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
