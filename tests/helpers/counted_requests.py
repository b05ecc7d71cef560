"""A port in front of a broker that forwards a number of requests, and drops all later ones.

    with CountedRequests() as port:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port.number}"}
        with LocalBroker(settings=advertised) as broker:
            port.allow(broker.port, 4)      # the fifth and all later requests get no response

The port still accepts connections, as the kernel does for a stopped broker.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType

CHUNK_BYTES = 1 << 16


class CountedRequests:
    """The port in front of the broker. `number` is its number on 127.0.0.1, and `broker_port` is
    the port of the broker.
    """

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.number: int = self._listening.getsockname()[1]
        self.broker_port = 0
        self._left: int | None = 0
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_closed = False

    def __enter__(self) -> CountedRequests:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            # without it, `accept` would take one more client, which nobody would end
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._is_closed = True
        self.hang_up()

    @property
    def address(self) -> str:
        """For `bootstrap.servers`."""
        return f"127.0.0.1:{self.number}"

    def allow(self, broker_port: int, requests: int | None) -> None:
        """From now on, forward this many requests, or all of them if `requests` is None."""
        with self._lock:
            self.broker_port, self._left = broker_port, requests

    def hang_up(self) -> None:
        """End all connections."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for sock in sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        """Serve each client in a thread of its own."""
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Forward the client's requests while they are allowed, and drop the others. A second
        thread forwards the responses.
        """
        self._keep(client)
        broker = None
        with suppress(OSError):
            while frame := _read_frame(client):
                if not self._take():
                    continue
                if broker is None:
                    broker = socket.create_connection(("127.0.0.1", self.broker_port))
                    self._keep(broker)
                    pump = threading.Thread(target=_pump, args=(broker, client), daemon=True)
                    pump.start()
                broker.sendall(frame)

    def _keep(self, sock: socket.socket) -> None:
        """Close the socket with all others."""
        with self._lock:
            self._sockets.append(sock)
        if self._is_closed:  # meanwhile
            self.hang_up()

    def _take(self) -> bool:
        """Whether one more request may be forwarded."""
        with self._lock:
            if self._left is None:
                return True
            self._left = max(self._left - 1, -1)
            return self._left >= 0


def _read_frame(sock: socket.socket) -> bytes:
    head = _read(sock, 4)
    return head + _read(sock, struct.unpack(">i", head)[0]) if head else b""


def _read(sock: socket.socket, count: int) -> bytes:
    """Read `count` bytes. Return no bytes if the connection ends before that."""
    data = b""
    while len(data) < count:
        part = sock.recv(min(count - len(data), CHUNK_BYTES))
        if not part:
            return b""
        data += part
    return data


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes from one connection to the other until either ends."""
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            sink.sendall(data)
