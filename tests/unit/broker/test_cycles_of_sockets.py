"""Connections with their sockets and TLS are freed without the collector, when clients hang up.

A real server runs in this process's event loop, one round after the other, and clients connect to
it over the loopback device.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import CountedIds
from helpers.core_host import SETTINGS, fetch, produce
from helpers.cycles import without_collector
from helpers.our_messages import request_frame
from helpers.repeating import repeat_until

from barnabas.broker.rim.clocks import steady_ms, wall_ms
from barnabas.broker.rim.server import Server
from barnabas.broker.rim.tls import TlsListener
from barnabas.broker.settings.config import BrokerConfig
from barnabas.certificates import make_certificates
from barnabas.daemon.opening import open_broker
from barnabas.protocol.messages.api_versions import ApiVersionsRequest

USES = 20


class Served:
    """A server, whose loop runs while a test waits for something."""

    def __init__(self, directory: Path, **settings: str) -> None:
        properties = {**SETTINGS, "log.dirs": str(directory / "data")} | {
            name.replace("_", "."): value for name, value in settings.items()
        }
        self.loop = asyncio.SelectorEventLoop()
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.sock.setblocking(False)
        config = BrokerConfig.from_properties(properties)
        for listener in config.listeners:
            if listener.has_tls:
                listener.tls = TlsListener(listener.tls_settings(config.explicit))
        broker = open_broker(
            config,
            CountedIds(),
            now_ms=steady_ms(),
            wall_ms=wall_ms(),
        )
        broker.topics.create_topic("t", 1, {}, now_ms=steady_ms())
        self.server = Server(broker, self.sock, self.loop)
        self.address = self.sock.getsockname()

    def run_until(self, is_so: Callable[[], object]) -> None:
        def step() -> None:
            self.loop.call_later(0.001, self.loop.stop)
            self.loop.run_forever()

        repeat_until(is_so, step)

    def connect(self, context: ssl.SSLContext | None = None) -> socket.socket:
        """Connect a client. With TLS the handshake is made in a thread."""
        client = socket.create_connection(self.address, timeout=60)
        if context is None:
            return client
        done: list[Any] = []

        def shake_hands() -> None:
            with contextlib.suppress(ssl.SSLCertVerificationError):
                done.append(context.wrap_socket(client, server_hostname="localhost"))
            done.append(None)

        thread = threading.Thread(target=shake_hands)
        thread.start()
        self.run_until(lambda: None in done)
        thread.join()
        return done[0] or client

    def call(self, client: socket.socket, request: Any, version: int) -> None:
        """Send a request and wait for some bytes of its response."""
        frame = bytes(request_frame(request, version, 1))
        client.sendall(len(frame).to_bytes(4, "big") + frame)
        received: list[bytes] = []
        client.settimeout(0)

        def has_answer() -> bool:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                received.append(client.recv(1 << 16))
            return bool(received)

        self.run_until(has_answer)

    def run_for(self, seconds: float) -> None:
        self.loop.call_later(seconds, self.loop.stop)
        self.loop.run_forever()

    def until_gone(self) -> None:
        self.run_until(lambda: not self.server.connection_count)

    def close(self) -> None:
        self.server.close()
        self.loop.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def check_no_cycles(use: Callable[[], None]) -> None:
    for _ in range(3):
        use()
    with without_collector() as cycles:
        for _ in range(USES):
            use()
    assert not cycles.kinds, str(cycles)


def test_a_connection_is_freed(served: Served) -> None:
    def use() -> None:
        with served.connect() as client:
            served.call(client, ApiVersionsRequest(), 0)
            served.call(client, produce("t"), 9)
            served.call(client, fetch({"t": {0: 0}}), 11)
        served.until_gone()

    check_no_cycles(use)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x08\0\0\0\0", b"\0\x10\0\0" + bytes(200_000)],
    ids=["nothing", "HTTP", "no header", "half a request"],
)
def test_a_connection_that_ends_early_is_freed(served: Served, sent: bytes) -> None:
    def use() -> None:
        with served.connect() as client:
            client.sendall(sent)
            served.run_until(lambda: served.server.connection_count or sent)
        time.sleep(0.001)
        served.run_until(lambda: served.sock)
        served.until_gone()

    check_no_cycles(use)


def framed(request: Any, version: int) -> bytes:
    frame = bytes(request_frame(request, version, 1))
    return len(frame).to_bytes(4, "big") + frame


LONG_FETCH = framed(fetch({"t": {0: 0}}, max_wait_ms=2**31 - 1), 11)


@pytest.mark.parametrize("behind", [b"", framed(ApiVersionsRequest(), 0)], ids=["", "more bytes"])
def test_a_fetch_whose_client_hangs_up_is_dropped(tmp_path: Path, behind: bytes) -> None:
    """Its max_wait_ms is 24 days. Bytes that the server does not read before the response may hide
    the end of the connection: then it is noticed within a twentieth of the idle time.
    """
    served = Served(tmp_path, connections_max_idle_ms="1000")
    waiting = served.server.broker.purgatory

    def use() -> None:
        with served.connect() as client:
            client.sendall(LONG_FETCH)
            served.run_until(lambda: waiting.waiting_count)
            client.sendall(behind)
            served.run_for(0.005)
            assert waiting.waiting_count == 1
        served.until_gone()
        assert waiting.waiting_count == 0 and waiting.memory.held_bytes == 0

    check_no_cycles(use)
    served.close()


def test_a_client_that_only_stops_sending_gets_its_response(served: Served) -> None:
    """Its fetch does not wait, since the broker cannot know whether anybody reads the response."""
    with served.connect() as client:
        served.call(client, ApiVersionsRequest(), 0)
        client.sendall(LONG_FETCH)
        served.run_until(lambda: served.server.broker.purgatory.waiting_count)
        client.shutdown(socket.SHUT_WR)
        served.until_gone()
        client.settimeout(60)
        (size,) = struct.unpack(">i", client.recv(4))
        assert len(client.recv(1 << 16)) == size


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_connection_with_tls_is_freed(tmp_path: Path, is_trusted: bool) -> None:
    """Its client trusts the certificate of the broker, or ends the handshake with an alert."""
    make_certificates(tmp_path)
    served = Served(
        tmp_path,
        listeners="SSL://127.0.0.1:9092",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(tmp_path / "broker.pem"),
    )
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem" if is_trusted else None)

    def use() -> None:
        client = served.connect(context)
        assert isinstance(client, ssl.SSLSocket) == is_trusted
        if is_trusted:
            served.call(client, ApiVersionsRequest(), 0)
            served.call(client, produce("t"), 9)
        client.close()
        served.until_gone()

    check_no_cycles(use)
    served.close()
