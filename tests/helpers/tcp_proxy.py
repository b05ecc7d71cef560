"""A TCP proxy whose connections can be cut or silenced."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

CHUNK_BYTES, WAIT_S, CONNECT_S = 1 << 16, 0.05, 2.0


class TcpProxy:
    """A port in front of another port. While it is cut, all connections are closed, including new
    ones. While it is silent, connections stay open but carry no data.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._is_cut = False
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        """Serve each client in its own thread."""
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Connect a client to the target, and forward both directions. If the proxy is cut, close
        the client's connection at once.
        """
        try:
            if self._is_cut:
                raise ConnectionRefusedError
            server = socket.create_connection(self._target, timeout=CONNECT_S)
            server.settimeout(None)
        except OSError:
            client.close()
            return
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            if not self._is_cut:
                self._pairs.append((client, server))
        if self._is_cut:  # meanwhile: nobody would end these
            self._end(client, server)
            return
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Copy bytes in one direction until either side ends. While the proxy is silent, hold
        them.
        """
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._may_pass.wait()
                sink.sendall(data)
        self._end(source, sink)

    def _end(self, *sockets: socket.socket) -> None:
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def cut(self) -> None:
        """Close all connections, and from now on close new ones immediately."""
        self._is_cut = True
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            self._end(*pair)

    def silence(self) -> None:
        """Pass no data."""
        self._may_pass.clear()

    def heal(self) -> None:
        """Pass data again."""
        self._is_cut = False
        self._may_pass.set()

    def close(self) -> None:
        self.heal()
        with contextlib.suppress(OSError):
            # without it, `accept` would take one more client, which nobody would end
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()


@contextmanager
def harmed(proxy: TcpProxy, seconds: float, *, is_cut: bool) -> Iterator[None]:
    """Cut or silence the proxy for some seconds."""
    (proxy.cut if is_cut else proxy.silence)()
    try:
        yield
        time.sleep(seconds)
    finally:
        proxy.heal()
