"""The server on real sockets, with a broker whose responses the test defines: order, partial
writes, sendfile, slow readers, pipelines, failures.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from helpers.places import TESTS

from barnabas.broker.observation import log_lines
from barnabas.broker.observation.counters import Counters
from barnabas.broker.outbox import Encoded, FlushJob, Outbox, Work
from barnabas.broker.rim import server
from barnabas.broker.rim.acceptor import _most_connections, listener_at, unix_listener_at
from barnabas.broker.rim.closing_lines import MOST_LINES_OF_AN_ADDRESS, ClosingLines
from barnabas.broker.rim.connection import Connection
from barnabas.broker.rim.poller import PolledLoop, Poller
from barnabas.broker.rim.server import SYNCED_TOGETHER, Server
from barnabas.broker.rim.tls import TlsListener
from barnabas.broker.settings.config import BrokerConfig
from barnabas.certificates import make_certificates
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.wall_clock import WallClock
from barnabas.replication import wire
from barnabas.replication.leadership import Role
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.replication.rim.leader_endpoint import Leader
from barnabas.replication.rim.lease_endpoint import LeasedLeader
from barnabas.storage.disk import OsDisk, Slice
from barnabas.storage.pooled_disk import PooledDisk

Answer = Callable[[int, bytes], None]
IDLE_MS = 600_000
PATIENCE_S = 120.0
NO_DEADLINE_MS = 1 << 50
TLS_FILES = TESTS / "fixtures" / "tls"


class ScriptedBroker:
    """A fake broker. `frames` has the received frames with their connections.
    `answer(connection, frame)` fills the outbox.
    """

    def __init__(self) -> None:
        """Set the attributes of a broker that the server uses. The responses are those of `answer`,
        which repeats the request by default.
        """
        self.settings: dict[str, int | str] = {
            "socket.request.max.bytes": 1 << 20,
            "connections.max.idle.ms": IDLE_MS,
            "queued.max.request.bytes": 4 << 20,
            "barnabas.request.max.bytes": 1 << 20,
        }
        self.outbox = Outbox()
        self.counters = Counters()
        self.wall = WallClock()
        self.frames: list[tuple[int, bytes]] = []
        self.gone: list[int] = []
        self.flushed: list[FlushJob] = []
        self.closed_logs = False
        self.quotas = SimpleNamespace(have_addresses=False, busy_ns=None)
        self.metadata = SimpleNamespace(client_quotas={})
        self.cluster = SimpleNamespace(nodes={1: None})
        self.families = SimpleNamespace(waiting_count=0)
        self.times: list[tuple[int, int]] = []
        self.deadline_ms = NO_DEADLINE_MS
        self.timer_is_set = False
        self.logs: Any = SimpleNamespace(disk=OsDisk())
        self.connections: dict[int, Any] = {}
        self.answer: Answer = self.echo

    @property
    def config(self) -> BrokerConfig:
        return BrokerConfig.from_properties({name: str(n) for name, n in self.settings.items()})

    def echo(self, connection: int, frame: bytes) -> None:
        self.outbox.sends.append((connection, (b"<" + frame + b">",)))

    def on_connected(
        self,
        connection: int,
        client_host: str,
        local_host: str,
        local_port: int,
        node_id: int,
        listener: Any,
    ) -> None: ...

    def on_listening(self, node_id: int, listener: Any, port: int) -> None: ...

    def on_frame(self, connection: int, frame: memoryview, now_ms: int) -> None:
        content = bytes(frame)
        self.times.append((now_ms, now_ms + self.wall.ahead_ms))
        self.frames.append((connection, content))
        self.answer(connection, content)

    def answer_frame(self, connection: int, frame: memoryview, now_ms: int) -> Encoded | None:
        self.on_frame(connection, frame, now_ms)
        sends = self.outbox.sends
        return Encoded(sends.pop()[1]) if sends and sends[-1][0] == connection else None

    def on_closed(self, connection: int) -> None:
        self.gone.append(connection)

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        self.flushed.append(job)

    def on_tick(self, now_ms: int) -> None:
        self.frames.append((0, b"tick"))
        self.deadline_ms = NO_DEADLINE_MS

    def next_deadline_ms(self) -> int:
        return self.deadline_ms

    def on_timer_set(self) -> None: ...

    def close_logs(self, now_ms: int, sync: Any = None) -> None:
        self.closed_logs = True


class ScriptedKeeper:
    """A fake keeper of the lease. Node 1 has the lease until the test changes this."""

    def __init__(self) -> None:
        """Create a lease keeper whose state the test sets. `has_right` tells whether responses may
        be sent.
        """
        self.node_id, self.leader_epoch, self.role = 1, 3, Role.LEADING
        self.failure, self.trouble = None, ""
        self.nodes: dict[int, Any] = {}
        self.in_sync = frozenset({1})
        self.has_right = True
        self.on_change: Callable[[], None] = lambda: None

    def may_answer(self) -> bool:
        return self.has_right

    def may_be_in_sync(self) -> frozenset[int]:
        return self.in_sync

    def want_in_sync(self, node_ids: Any) -> None: ...

    def set_opened(self, cluster_id: str, leader_epoch: int) -> None: ...

    def stop(self) -> None: ...


LeaderT = TypeVar("LeaderT", bound=Leader)


class Rim:
    """A server on an event loop that runs only when the test runs it, and clients at the other ends
    of socket pairs.
    """

    def __init__(self) -> None:
        """Start a server on a free port, with a scripted broker and a separate event loop."""
        poller = self.poller = Poller()
        self.loop = PolledLoop(poller)  # as in a daemon
        self.now_s = self.loop.time()
        self.broker = ScriptedBroker()
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.server: Server = Server(cast(Any, self.broker), listener, self.loop, sockets=poller)
        self._clients: list[socket.socket] = []

    def client(
        self, connection: int = 1, *, buffer_bytes: int = 0, certs: Path | None = None
    ) -> socket.socket:
        """Connect a client.

        Takes: certs, a directory of certificates; if given, the client uses TLS.
        """
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
            if buffer_bytes:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        secured = ours if certs is None else _tls(certs).wrap(ours)
        self.server.add_connection(connection, secured, f"client {connection}", 0)
        if certs is not None:
            theirs = self._shaken(theirs, certs)
        self._clients.append(theirs)
        return theirs

    def _shaken(self, sock: socket.socket, certs: Path) -> ssl.SSLSocket:
        """The client's side of TLS, after the handshake."""
        context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
        client = context.wrap_socket(
            sock, server_hostname="localhost", do_handshake_on_connect=False
        )
        for _ in range(100):
            try:
                client.do_handshake()
                return client
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self.run()
        raise AssertionError("the handshake does not come to an end")

    def restart(self, host: str = "127.0.0.1", **config: int) -> None:
        """Replace the server by one with these settings (with _ for .). Only `pass_time` advances
        the clock of the new server.
        """
        self.broker.settings |= {name.replace("_", "."): value for name, value in config.items()}
        self.server.close()
        self.loop.time = self.poller.clock = lambda: self.now_s  # type: ignore[method-assign]
        self.server = Server(cast(Any, self.broker), listener_at(host, 0), self.loop)

    def restart_with_standby_missing(self) -> Leader:
        """Replace the server by one whose responses wait for a standby that is not connected."""
        self.broker.settings |= {
            "barnabas.replication.mode": "sync",
            "barnabas.replication.alone": "false",
        }
        return self._restart_as(
            lambda broker, sock: Leader(broker.config, broker.logs.disk, sock, self.loop)
        )

    def restart_with_lease(self, keeper: ScriptedKeeper) -> LeasedLeader:
        """Replace the server by a leader that has a lease and no standby."""
        return self._restart_as(
            lambda broker, sock: LeasedLeader(
                broker.config, broker.logs, broker.cluster, sock, self.loop, cast(Any, keeper)
            )
        )

    def _restart_as(self, make: Callable[[Any, socket.socket], LeaderT]) -> LeaderT:
        """Replace the server by one that sends responses as the leader allows."""
        disk = ReplicatedDisk(OsDisk(), self.broker.config.data_dir)
        self.broker.logs = SimpleNamespace(disk=disk, cluster_id="c", leader_epoch=3)
        self.server.close()
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        for listener in listeners:
            listener.setblocking(False)
        leader = make(self.broker, listeners[1])
        self.server = Server(cast(Any, self.broker), listeners[0], self.loop, gate=leader)
        return leader

    def stop_clock(self) -> None:
        """Let the server's clock show `clock_ns` from now on."""
        self.clock_ns = 1_000_000_000
        self.server._steady_ns = lambda: self.clock_ns

    def pass_time(self, ms: int, *, step_ms: int = IDLE_MS // 100) -> None:
        """Advance the clock in steps, and run the event loop after each."""
        for _ in range(ms // step_ms):
            self.now_s += step_ms / 1000
            self.run(3)

    def run(self, rounds: int = 5) -> None:
        """Run the event loop for some rounds."""

        async def a_few_rounds() -> None:
            for _ in range(rounds):
                await asyncio.sleep(0)

        self.loop.run_until_complete(a_few_rounds())
        self._check_memory()

    def _check_memory(self) -> None:
        """Check that each memory budget counts exactly the buffers of the connections that take
        turns for it.
        """
        server = self.server
        for memory, turns in (
            (server.memory, server.turns),
            (server.greeting_memory, server.greeting_turns),
        ):
            buffers = [one._buffer.own for one in server.connections() if one.takes_turns_of(turns)]
            assert memory.held_bytes == sum(len(own) for own in buffers if own is not None)

    def run_until(self, condition: Callable[[], object]) -> None:
        """Run the event loop, while other threads work, until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "it did not come about"
            self.run(1)
            time.sleep(0.001)

    def receive(self, client: socket.socket, size: int, *, step: int = 1 << 20) -> bytes:
        """Receive `size` bytes in steps, and run the event loop in between."""
        found = b""
        for _ in range(100_000):
            if len(found) >= size:
                return found
            self.run(2)
            try:
                part = client.recv(min(step, size - len(found)))
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            assert part, f"the broker hung up after {len(found)} of {size} bytes"
            found += part
        raise AssertionError(f"only {len(found)} of {size} bytes came")

    def is_hung_up(self, client: socket.socket) -> bool:
        """Whether the server has closed the client's connection."""
        self.run()
        try:
            return client.recv(1 << 16) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.run()
        if not self.server.is_closed:
            self.server.close()
        self.loop.close()


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs")
    make_certificates(directory)
    return directory


def _tls(certs: Path) -> TlsListener:
    return TlsListener({"ssl.keystore.location": str(certs / "broker.pem")})


@pytest.fixture
def rim() -> Iterator[Rim]:
    rim = Rim()
    yield rim
    rim.close()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


# --- in -----------------------------------------------------------------------------------------


def test_a_request_may_arrive_in_any_pieces(rim: Rim) -> None:
    client = rim.client()
    for byte in framed(b"hello"):
        client.send(bytes([byte]))
        rim.run()
    assert rim.broker.frames == [(1, b"hello")]
    assert rim.receive(client, 7) == b"<hello>"


def test_a_pipeline_is_answered_in_order(rim: Rim) -> None:
    client = rim.client()
    client.send(b"".join(framed(b"%03d" % number) for number in range(100)))
    assert rim.receive(client, 500) == b"".join(b"<%03d>" % number for number in range(100))


def test_small_responses_to_a_pipeline_are_sent_together(rim: Rim) -> None:
    client = rim.client()
    rim.stop_clock()
    client.send(b"".join(framed(b"x") for _ in range(50)))
    rim.run(3)
    assert client.recv(1 << 16) == b"<x>" * 50, "in one piece"


@pytest.mark.parametrize("takes_ms", [1, 30])
def test_connections_take_turns_when_requests_take_long(rim: Rim, takes_ms: int) -> None:
    first, second, third = rim.client(1), rim.client(2), rim.client(3)
    rim.stop_clock()

    def take_long(connection: int, frame: bytes) -> None:
        rim.clock_ns += takes_ms * 1_000_000
        rim.broker.echo(connection, frame)

    rim.broker.answer = take_long
    for client in (first, second):
        client.send(b"".join(framed(b"%02d" % number) for number in range(20)))
    rim.run(2)
    sent_after = len(rim.broker.frames)
    third.send(framed(b"only one"))
    rim.run(60)
    served = [connection for connection, _ in rim.broker.frames]
    place = served.index(3)
    assert sent_after <= place <= sent_after + 5, (
        "the third client is served soon after its request arrived"
    )
    del served[place]
    ahead = [served[:end].count(1) - served[:end].count(2) for end in range(len(served))]
    assert max(ahead) <= 2 and min(ahead) >= -2, served
    for client in (first, second):
        assert rim.receive(client, 80) == b"".join(b"<%02d>" % number for number in range(20))


def test_a_turn_has_the_small_requests_of_a_millisecond(rim: Rim) -> None:
    first, second = rim.client(1), rim.client(2)
    rim.stop_clock()

    def take_a_tenth(connection: int, frame: bytes) -> None:
        rim.clock_ns += 100_000
        rim.broker.echo(connection, frame)

    rim.broker.answer = take_a_tenth
    for client in (first, second):
        client.send(framed(b"x") * 25)
    rim.run(20)
    served = "".join(str(connection) for connection, _ in rim.broker.frames)
    assert served == "1" * 10 + "2" * 10 + "1" * 10 + "2" * 10 + "1" * 5 + "2" * 5


def test_a_connection_can_be_closed_while_it_waits_for_its_turn(rim: Rim) -> None:
    client = rim.client()
    rim.stop_clock()

    def take_long(connection: int, frame: bytes) -> None:
        rim.clock_ns += 10_000_000
        rim.broker.echo(connection, frame)
        if len(rim.broker.frames) == 3:
            rim.broker.outbox.closes.append((connection, "enough"))

    rim.broker.answer = take_long
    client.send(framed(b"x") * 10)
    rim.run(20)
    assert len(rim.broker.frames) == 3 and rim.broker.gone == [1]


def test_large_requests_of_a_client_do_not_delay_the_turns_of_others(rim: Rim) -> None:
    """There are always more bytes to receive from the first client."""
    first, second = rim.client(1, buffer_bytes=4 << 20), rim.client(2)
    rim.stop_clock()

    def take_long(connection: int, frame: bytes) -> None:
        rim.clock_ns += 10_000_000
        rim.broker.echo(connection, frame[:2])

    rim.broker.answer = take_long
    data = framed(bytes(200_000)) * 8
    sent = first.send(data)
    second.send(framed(b"a") + framed(b"b"))
    for _ in range(100):
        rim.run(2)
        if sent < len(data):
            try:
                sent += first.send(data[sent:])
            except BlockingIOError:
                pass
    served = [connection for connection, _ in rim.broker.frames]
    assert len(served) == 10
    assert served.index(2) < 2 and served[:6].count(2) == 2, served


def test_the_next_request_waits_for_a_parked_one(rim: Rim) -> None:
    client = rim.client()
    rim.broker.answer = lambda connection, frame: None
    client.send(framed(b"parked") + framed(b"next"))
    rim.run()
    assert [frame for _, frame in rim.broker.frames] == [b"parked"]
    rim.broker.answer = rim.broker.echo
    rim.broker.echo(1, b"parked")
    rim.server.carry_out()
    assert rim.receive(client, 14) == b"<parked><next>"


def test_a_parked_request_does_not_delay_another_connection(rim: Rim) -> None:
    first, second = rim.client(1), rim.client(2)
    rim.broker.answer = lambda connection, frame: (
        None if connection == 1 else rim.broker.echo(connection, frame)
    )
    first.send(framed(b"a"))
    second.send(framed(b"b"))
    assert rim.receive(second, 3) == b"<b>"


def test_after_a_request_without_a_response_the_next_one_is_processed(rim: Rim) -> None:
    client = rim.client()
    rim.broker.answer = lambda connection, frame: (
        rim.broker.outbox.sends.append((connection, ()))
        if frame == b"quiet"
        else rim.broker.echo(connection, frame)
    )
    client.send(framed(b"quiet") + framed(b"quiet") + framed(b"loud"))
    assert rim.receive(client, 6) == b"<loud>"


def test_the_server_stops_reading_from_a_client_that_reads_no_responses(rim: Rim) -> None:
    """Otherwise the requests of a client that does not read its responses would fill the broker's
    memory.
    """
    client = rim.client(buffer_bytes=4096)
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, (bytes(50_000),))
    )
    request = framed(bytes(1000))
    sent = 0
    for _ in range(2000):
        rim.run(2)
        try:
            sent += client.send(request)
        except BlockingIOError:
            pass
    handled = len(rim.broker.frames)
    assert handled < 5
    assert rim.receive(client, 50_000 * (sent // len(request)), step=65536) == bytes(
        50_000 * (sent // len(request))
    )


# --- out ----------------------------------------------------------------------------------------


def test_a_large_response_is_sent_as_fast_as_the_client_reads(rim: Rim) -> None:
    client = rim.client(buffer_bytes=4096)
    body = bytes(range(256)) * 4000
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, (body,))
    )
    client.send(framed(b"x"))
    assert rim.receive(client, len(body), step=3000) == body


def test_a_response_of_file_slices_and_bytes_is_sent_in_order(rim: Rim, tmp_path: Path) -> None:
    """The response to a fetch consists of a header, records from a file, another header, and
    records from another place in the file. The size of the client's reads makes no difference.
    """
    file = OsDisk().open(str(tmp_path / "segment"), create=True)
    content = bytes(number % 251 for number in range(3_000_000))
    file.append(content)
    pieces = (b"head", Slice(file, 100, 1_500_000), b"between", Slice(file, 2_000_000, 999), b"end")
    expected = b"head" + content[100:1_500_100] + b"between" + content[2_000_000:2_000_999] + b"end"
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, pieces)
    )
    client = rim.client(buffer_bytes=8192)
    client.send(framed(b"a") + framed(b"b"))
    assert rim.receive(client, 2 * len(expected), step=50_000) == expected * 2
    file.close()


@pytest.mark.parametrize("step", [50_000, 1 << 20])
def test_slices_and_bytes_of_any_size_are_sent_over_tls(
    rim: Rim, tmp_path: Path, certs: Path, step: int
) -> None:
    """TLS may not accept all data at once, whether it was gathered or is one large piece. TLS must
    then get the same data again, even when more responses follow.
    """
    file = OsDisk().open(str(tmp_path / "segment"), create=True)
    content = bytes(number % 251 for number in range(900_000))
    file.append(content)
    large = bytes(number % 249 for number in range(400_000))
    pieces = (b"head", Slice(file, 100, 600_000), b"", large, Slice(file, 5, 5_000), b"end", b"")
    expected = b"head" + content[100:600_100] + large + content[5:5_005] + b"end"
    answers = {b"a": pieces, b"b": (large,), b"c": (b"small",), b"d": pieces}
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, answers[frame])
    )
    client = rim.client(buffer_bytes=8192, certs=certs)
    for frame in answers:
        client.send(framed(frame))
    expected += large + b"small" + expected
    assert rim.receive(client, len(expected), step=step) == expected
    assert not rim.server._connections[1]._out
    file.close()


def test_small_slices_are_read_and_sent_together_and_large_ones_by_sendfile(
    rim: Rim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk().open(str(tmp_path / "segment"), create=True)
    content = bytes(number % 251 for number in range(9000))
    file.append(content)
    small = [(b"head", Slice(file, 10 * number, 7)) for number in range(100)]
    pieces = [*(piece for pair in small for piece in pair), Slice(file, 0, 5000), b"end"]
    expected = (
        b"".join(b"head" + content[10 * number : 10 * number + 7] for number in range(100))
        + content[:5000]
        + b"end"
    )
    calls: list[int] = []
    sendfile = os.sendfile
    monkeypatch.setattr(os, "sendfile", lambda *args: calls.append(args[3]) or sendfile(*args))
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, pieces)
    )
    client = rim.client()
    client.send(framed(b"a"))
    assert rim.receive(client, len(expected)) == expected
    assert calls == [5000]
    file.close()


def test_a_client_that_reads_nothing_uses_a_bounded_amount_of_memory(
    rim: Rim, tmp_path: Path
) -> None:
    """The response has many small slices, and the client sends many requests."""
    file = OsDisk().open(str(tmp_path / "segment"), create=True)
    content = bytes(number % 251 for number in range(9000))
    file.append(content)
    pieces = [piece for number in range(3000) for piece in (b"head", Slice(file, number, 4096))]
    expected = b"".join(b"head" + content[number : number + 4096] for number in range(3000))
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, pieces)
    )
    client = rim.client(buffer_bytes=8192)
    client.send(framed(b"x") * 100)
    rim.run(20)

    def held_bytes() -> int:
        connection = rim.server._connections[1]
        pieces = [*connection._out, *connection._gathered]
        return sum(len(piece) for piece in pieces if type(piece) is not Slice)

    assert len(rim.broker.frames) == 1
    # one MiB of slices that were read, one more slice, and the heads
    most = (1 << 20) + 4096 + 3000 * 4
    assert 0 < held_bytes() <= most
    received = b""
    while len(received) < 2 * len(expected):
        received += rim.receive(client, 1 << 20)
        assert held_bytes() <= most
    assert received[: 2 * len(expected)] == expected * 2
    file.close()


def test_a_small_answer_before_a_slice_keeps_its_place(rim: Rim, tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "segment"), create=True)
    file.append(b"records")
    answers = {b"a": (b"first.",), b"b": (b"head.", Slice(file, 0, 7)), b"c": (b".last",)}
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, answers[frame])
    )
    client = rim.client()
    client.send(framed(b"a") + framed(b"b") + framed(b"c"))
    assert rim.receive(client, 23) == b"first.head.records.last"
    file.close()


@pytest.mark.parametrize("promised", [50, 50_000])
@pytest.mark.parametrize("secured", [False, True])
def test_a_file_that_is_shorter_than_its_slice_ends_the_connection(
    rim: Rim, tmp_path: Path, certs: Path, promised: int, *, secured: bool
) -> None:
    """The server neither loops endlessly nor sends other bytes in place of the missing ones,
    whether the slice is small and read into memory, or large and sent by sendfile.
    """
    file = OsDisk().open(str(tmp_path / "segment"), create=True)
    file.append(b"short")
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, (b"head", Slice(file, 0, promised)))
    )
    client = rim.client(certs=certs if secured else None)
    client.send(framed(b"a"))
    rim.run()
    assert rim.broker.gone == [1]
    file.close()


# --- ends ---------------------------------------------------------------------------------------


def test_the_broker_is_notified_when_a_client_disconnects(rim: Rim) -> None:
    client = rim.client()
    client.send(framed(b"a")[:3])
    client.close()
    rim.run()
    assert rim.broker.gone == [1] and rim.server._connections == {}


def test_the_broker_is_notified_when_a_client_disconnects_during_a_response(rim: Rim) -> None:
    client = rim.client(buffer_bytes=4096)
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, (bytes(1 << 20),))
    )
    client.send(framed(b"a"))
    rim.run()
    client.close()
    rim.run()
    assert rim.broker.gone == [1]


def test_a_response_for_a_disconnected_client_is_dropped(rim: Rim) -> None:
    client = rim.client()
    rim.broker.answer = lambda connection, frame: None
    client.send(framed(b"a"))
    rim.run()
    client.close()
    rim.run()
    rim.broker.echo(1, b"late")
    rim.server.carry_out()
    assert rim.broker.gone == [1]


def test_log_lines_about_closed_connections_are_limited_for_each_address(
    rim: Rim, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections above the limit are only counted. Each address, and each log level, has its own
    limit.
    """

    def break_off(connection: int, host: str, level: int = logging.WARNING) -> None:
        rim.client(connection)
        broken = rim.server._connections[connection]
        broken.peer = f"{host}:{connection}"
        rim.server.disconnect(broken, "it speaks in tongues", level)

    caplog.set_level(logging.INFO)
    for connection in range(1, 101):
        break_off(connection, "192.0.2.1")
    said = [record for record in caplog.records if "closing the connection of" in record.message]
    assert len(said) == 20
    break_off(101, "192.0.2.2")
    break_off(102, "192.0.2.1", logging.INFO)
    assert len(caplog.records) == 22
    monkeypatch.setattr(log_lines, "INTERVAL_MS", 0)  # ends the minute
    rim.server._closing_lines.write_left_out()
    rest = [record for record in caplog.records if "more connections of" in record.message]
    assert [(record.levelname, record.message) for record in rest] == [
        ("WARNING", "80 more connections of 192.0.2.1 were closed within a minute")
    ]
    assert rim.broker.gone == list(range(1, 103)), (
        "each is closed, whether it gets an answer or not"
    )


class WaitingLoop:
    """A fake event loop with a clock and at most one pending call."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        self.due.append((self.now_s + delay_s, call))
        return object()

    def go_on(self) -> None:
        """Advance the clock to the time of the pending call, and run the call."""
        ((self.now_s, call),) = self.due
        self.due.clear()
        call()


def test_omitted_log_lines_are_counted_and_reported_each_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At most one timer is set, and none while the count is 0."""
    loop = WaitingLoop()
    closing = ClosingLines(loop)  # type: ignore[arg-type]
    for minute in range(3):
        for _ in range(MOST_LINES_OF_AN_ADDRESS + 5 + minute):
            closing.write("192.0.2.1:7", "it hung up", logging.WARNING)
        assert len(loop.due) == 1
        loop.go_on()
        assert loop.due == []
        loop.now_s += 1000
    lines = [record.message for record in caplog.records if "more connections" in record.message]
    assert lines == [
        f"{count} more connections of 192.0.2.1 were closed within a minute" for count in (5, 6, 7)
    ]


def test_the_minute_of_each_address_ends_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    loop = WaitingLoop()
    lines = ClosingLines(loop)  # type: ignore[arg-type]
    for host, began_s in (("192.0.2.1", 0.0), ("192.0.2.2", 30.0)):
        loop.now_s = began_s
        for _ in range(MOST_LINES_OF_AN_ADDRESS + 1):
            lines.write(f"{host}:7", "it hung up", logging.WARNING)
    caplog.clear()
    loop.go_on()
    assert [record.message.split()[4] for record in caplog.records] == ["192.0.2.1"]
    assert 60 <= loop.now_s < 61
    loop.go_on()
    assert [record.message.split()[4] for record in caplog.records] == ["192.0.2.1", "192.0.2.2"]
    assert 90 <= loop.now_s < 91 and loop.due == []


@pytest.mark.parametrize("size", [-1, 0, (1 << 20) + 1])
def test_a_frame_of_a_wrong_size_ends_the_connection(rim: Rim, size: int) -> None:
    client = rim.client()
    client.send(struct.pack(">i", size))
    assert rim.is_hung_up(client) and rim.broker.gone == [1]


def test_responses_to_requests_before_an_invalid_one_are_still_sent(rim: Rim) -> None:
    client = rim.client()

    def answer(connection: int, frame: bytes) -> None:
        if frame == b"wrong":
            rim.broker.outbox.closes.append((connection, "wrong"))
        else:
            rim.broker.echo(connection, frame)

    rim.broker.answer = answer
    client.send(framed(b"good") + framed(b"wrong") + framed(b"after"))
    assert rim.receive(client, 6) == b"<good>"
    assert rim.is_hung_up(client)
    assert [frame for _, frame in rim.broker.frames] == [b"good", b"wrong"]


def raising(error: Exception) -> Answer:
    """A script for the broker that raises the error at each request."""

    def answer(connection: int, frame: bytes) -> None:
        raise error

    return answer


def test_a_protocol_violation_closes_only_its_connection(rim: Rim) -> None:
    bad, good = rim.client(1), rim.client(2)
    rim.broker.answer = raising(ProtocolViolation("no"))
    bad.send(framed(b"x"))
    assert rim.is_hung_up(bad)
    rim.broker.answer = rim.broker.echo
    good.send(framed(b"y"))
    assert rim.receive(good, 3) == b"<y>" and not rim.server.failed


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), AssertionError("an invariant")]
)
def test_after_a_disk_failure_or_broken_invariant_no_response_is_sent(
    rim: Rim, error: Exception
) -> None:
    bad, other = rim.client(1), rim.client(2)
    rim.broker.answer = raising(error)
    bad.send(framed(b"x"))
    rim.run()
    assert rim.server.failure.result() is error
    rim.broker.answer = rim.broker.echo
    other.send(framed(b"y"))
    rim.run()
    with pytest.raises(BlockingIOError):
        other.recv(10)


def test_logs_are_not_closed_cleanly_after_a_failure(rim: Rim) -> None:
    rim.server.fail(OSError(5, "Input/output error"))
    rim.server.close()
    assert not rim.broker.closed_logs
    # the fixture must not close the server again
    rim.server._flusher.stop = lambda: None  # type: ignore[method-assign]
    rim.server.close = lambda: None  # type: ignore[method-assign]


# --- idle connections ---------------------------------------------------------------------------


def test_an_idle_connection_is_closed_after_connections_max_idle_ms(
    rim: Rim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "barnabas.server")
    rim.restart(connections_max_idle_ms=IDLE_MS)
    quiet, other = rim.client(1), rim.client(2)
    rim.pass_time(IDLE_MS // 2)
    other.send(framed(b"a")[:3])  # an incomplete request counts as activity
    rim.pass_time(IDLE_MS // 2)
    assert not rim.is_hung_up(quiet) and rim.broker.gone == [], "only the next sweep closes it"
    rim.pass_time(IDLE_MS // 10)
    assert rim.is_hung_up(quiet) and rim.broker.gone == [1]
    assert [record.getMessage() for record in caplog.records] == [
        "closing the connection of client 1: no data were received or sent for "
        f"connections.max.idle.ms={IDLE_MS}"
    ]
    assert caplog.records[0].levelname == "INFO"
    other.send(framed(b"a")[3:])
    assert rim.receive(other, 3) == b"<a>"
    rim.pass_time(IDLE_MS)
    assert rim.broker.gone == [1], "the idle time begins with the last data"
    rim.pass_time(IDLE_MS // 10)
    assert rim.broker.gone == [1, 2]


@pytest.mark.parametrize("part_of_a_sweep", [0, 0.5, 0.9])
def test_a_client_that_waits_for_its_answer_is_not_idle(rim: Rim, part_of_a_sweep: float) -> None:
    """The JoinGroup of a client may wait for other members, or its fetch for data."""
    sweep_ms = IDLE_MS / 20
    rim.restart(connections_max_idle_ms=IDLE_MS)
    client = rim.client()
    rim.broker.answer = lambda connection, frame: None
    client.send(framed(b"parked"))
    rim.pass_time(3 * IDLE_MS)
    rim.pass_time(round(part_of_a_sweep * sweep_ms), step_ms=round(sweep_ms / 10))
    assert rim.broker.gone == []
    rim.broker.echo(1, b"parked")
    rim.server.carry_out()
    assert rim.receive(client, 8) == b"<parked>"
    rim.pass_time(round(IDLE_MS - sweep_ms / 10), step_ms=round(sweep_ms / 10))
    assert rim.broker.gone == [], "its time begins with the answer"
    rim.pass_time(round(2 * sweep_ms), step_ms=round(sweep_ms / 10))
    assert rim.broker.gone == [1]


def test_a_client_that_reads_slowly_is_not_idle_but_one_that_does_not_read_is(
    rim: Rim,
) -> None:
    rim.restart(connections_max_idle_ms=IDLE_MS)
    slow, stuck = rim.client(1, buffer_bytes=4096), rim.client(2, buffer_bytes=4096)
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, (bytes(1_000_000),))
    )
    for client in (slow, stuck):
        client.send(framed(b"much"))
    rim.run()
    for _ in range(30):
        rim.pass_time(IDLE_MS // 10)
        assert slow.recv(20_000)
        rim.run()
    assert rim.broker.gone == [2]


def test_after_a_pause_of_the_process_no_connection_counts_as_idle(rim: Rim) -> None:
    rim.restart(connections_max_idle_ms=IDLE_MS)
    client = rim.client()
    rim.pass_time(50 * IDLE_MS, step_ms=50 * IDLE_MS)
    rim.run()
    assert not rim.is_hung_up(client)


@pytest.mark.parametrize("idle_ms", [-1, -600_000, 2**63 - 1])
def test_some_values_keep_idle_connections_for_ever(rim: Rim, idle_ms: int) -> None:
    rim.restart(connections_max_idle_ms=idle_ms)
    client = rim.client()
    rim.pass_time(5 * IDLE_MS)
    assert not rim.is_hung_up(client)


def test_while_many_idle_connections_are_closed_others_are_answered(
    rim: Rim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.rim.server.HANG_UPS_PER_EVENT", 1)
    rim.restart(connections_max_idle_ms=IDLE_MS)
    for number in range(1, 41):
        rim.client(number)
    last = rim.client(41)
    rim.pass_time(IDLE_MS)
    gone_when_asked: list[int] = []
    rim.broker.answer = lambda connection, frame: (
        gone_when_asked.append(len(rim.broker.gone)),
        rim.broker.echo(connection, frame),
    )
    rim.now_s += IDLE_MS / 1000
    rim.run(1)
    last.send(framed(b"a"))  # sent after the connection was listed as idle
    rim.run(100)
    assert sorted(rim.broker.gone) == list(range(1, 41))
    assert rim.receive(last, 3) == b"<a>"
    assert 0 < gone_when_asked[0] < 40


# --- flushes ------------------------------------------------------------------------------------


class SlowFile:
    """A file whose fsync waits for `go_on`, which is set unless a test clears it."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.synced = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def fsync(self) -> None:
        assert self.go_on.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.synced += 1


def flush(rim: Rim, *files: SlowFile) -> FlushJob:
    """Request a flush of these files from the server, as the broker would."""
    job = FlushJob(1, (), files)
    rim.broker.outbox.flushes.append(job)
    rim.server.carry_out()
    return job


def test_a_flush_is_reported_when_all_its_files_are_synced(rim: Rim) -> None:
    files = [SlowFile() for _ in range(5)]
    job = flush(rim, *files)
    rim.run_until(lambda: rim.broker.flushed)
    assert rim.broker.flushed == [job] and [file.synced for file in files] == [1] * 5


def test_a_failed_flush_is_never_reported_as_done(rim: Rim) -> None:
    flush(rim, SlowFile(), SlowFile(OSError(5, "Input/output error")))
    rim.run_until(lambda: rim.server.failed)
    assert rim.broker.flushed == [] and isinstance(rim.server.failure.result(), OSError)


def test_a_flush_that_fails_while_the_server_closes_prevents_a_clean_stop(rim: Rim) -> None:
    """A second fsync of the file would succeed, since the kernel has dropped the pages that it
    could not write.
    """
    file = SlowFile(OSError(5, "Input/output error"))
    file.go_on.clear()
    flush(rim, file)
    threading.Timer(0.1, file.go_on.set).start()
    rim.server.close()
    assert not rim.broker.closed_logs and rim.server.failed


def test_logs_that_cannot_be_closed_are_a_failure(rim: Rim) -> None:
    error = OSError(5, "Input/output error")

    def close_logs(now_ms: int, sync: Any = None) -> None:
        raise error

    rim.broker.close_logs = close_logs  # type: ignore[method-assign]
    rim.server.close()
    assert rim.server.failure.result() is error


@pytest.mark.parametrize("below", [OsDisk, type("Replicated", (OsDisk,), {})])
@pytest.mark.parametrize("count", [SYNCED_TOGETHER - 1, SYNCED_TOGETHER])
def test_a_stop_with_very_many_files_syncs_the_file_system_instead(
    rim: Rim, monkeypatch: pytest.MonkeyPatch, count: int, below: type[OsDisk]
) -> None:
    """With a standby or with test control, each file needs a separate fsync, so the file system is
    not synced as a whole.
    """
    synced: list[str] = []
    monkeypatch.setattr(server, "sync_file_system", synced.append)
    files = [SimpleNamespace(fsync=lambda: synced.append("a file")) for _ in range(count)]
    rim.broker.logs = SimpleNamespace(disk=PooledDisk(below()))
    rim.broker.close_logs = lambda _, sync: sync(files)  # type: ignore[method-assign]
    rim.server.close()
    is_one_call = count == SYNCED_TOGETHER and below is OsDisk
    assert synced == ([rim.broker.config.data_dir] if is_one_call else ["a file"] * count)


# --- time ---------------------------------------------------------------------------------------


def test_the_broker_gets_a_monotonic_time_and_the_present_wall_clock(
    rim: Rim, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = rim.client()
    # The wall clock is set two minutes forward, then one hour back.
    shown = [1_700_000_000_000, 1_700_000_120_000, 1_699_996_400_000]
    before_ms = time.monotonic_ns() // 1_000_000
    for wall_ms in shown:
        monkeypatch.setattr(rim.server, "_wall_ns", lambda wall_ms=wall_ms: wall_ms * 1_000_000)
        client.send(framed(b"."))
        rim.run()
    after_ms = time.monotonic_ns() // 1_000_000
    steady = [now_ms for now_ms, _ in rim.broker.times]
    assert steady == sorted(steady) and before_ms <= steady[0] and steady[-1] <= after_ms
    assert [wall_ms for _, wall_ms in rim.broker.times] == shown


@pytest.mark.parametrize("is_late", [False, True])
def test_a_late_tick_comes_after_the_requests_that_are_in_the_sockets(
    rim: Rim, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause of the process, some deadlines have passed, although requests that are already
    in the sockets would have extended them. Some of these requests are on connections that are not
    yet accepted, so that they arrive a round of the event loop later.
    """
    monkeypatch.setattr("barnabas.broker.rim.server.LATE_MS", 0 if is_late else 1 << 40)
    first = rim.client(99)
    rim.broker.deadline_ms = time.monotonic_ns() // 1_000_000
    rim.server.carry_out()
    with socket.create_connection(rim.server.address) as second:
        second.sendall(framed(b"second"))
        first.send(framed(b"first"))
        rim.run(20)
        heard = [what for _, what in rim.broker.frames]
        if is_late:
            assert heard == [b"first", b"second", b"tick"]
        else:
            assert sorted(heard) == [b"first", b"second", b"tick"]
            assert heard.index(b"tick") < 2, "in time it does not wait"


def test_a_late_tick_waits_for_requests_whose_family_is_loaded(
    rim: Rim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.rim.server.LATE_MS", 0)
    rim.broker.families.waiting_count = 1
    rim.broker.deadline_ms = time.monotonic_ns() // 1_000_000
    rim.server.carry_out()
    rim.run(50)
    rim.client().send(framed(b"while it waits"))
    rim.run_until(lambda: rim.broker.frames)
    assert [what for _, what in rim.broker.frames] == [b"while it waits"]
    rim.broker.families.waiting_count = 0
    rim.run_until(lambda: len(rim.broker.frames) == 2)
    assert rim.broker.frames[1][1] == b"tick"


def test_continuous_requests_do_not_delay_a_passed_deadline(rim: Rim) -> None:
    client = rim.client()
    rim.broker.deadline_ms = time.monotonic_ns() // 1_000_000 - 5
    rim.server.carry_out()

    def answer_and_send_another(connection: int, frame: bytes) -> None:
        client.send(framed(b"."))
        rim.broker.echo(connection, frame)

    rim.broker.answer = answer_and_send_another
    client.send(framed(b"."))
    rim.run(20)
    assert b"tick" in [what for _, what in rim.broker.frames][:3]


# --- memory and descriptors ---------------------------------------------------------------------


HELD_BYTES = 4 << 20
BIG = (1 << 20) - 1


def push(rim: Rim, client: socket.socket, data: bytes) -> bytes:
    """Send as many bytes as the server currently accepts. Gives: the remaining bytes."""
    left = memoryview(data)
    refused = 0
    while left and refused < 5:
        try:
            left = left[client.send(left[: 1 << 16]) :]
            refused = 0
        except BlockingIOError:
            refused += 1
        rim.run(2)
    return bytes(left)


def half_sent(rim: Rim, count: int) -> list[tuple[socket.socket, bytes]]:
    """Connect clients that each send three quarters of a large request, or as much of it as the
    server accepts. Gives: the clients, each with the bytes that it has not sent.
    """
    data = framed(bytes(BIG))
    cut = len(data) * 3 // 4
    return [
        (client, push(rim, client, data[:cut]) + data[cut:])
        for client in (rim.client(number) for number in range(10, 10 + count))
    ]


def test_memory_of_partly_received_requests_is_bounded_and_all_are_answered(rim: Rim) -> None:
    clients = half_sent(rim, 20)
    assert rim.server.memory.is_full
    assert rim.server.memory.held_bytes <= HELD_BYTES + 2 * BIG
    small = rim.client(1)
    small.send(framed(b"small"))
    assert rim.receive(small, 7) == b"<small>"
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, (b"%d" % len(frame),))
    )
    for _ in range(100):
        clients = [(client, push(rim, client, rest)) for client, rest in clients]
        assert rim.server.memory.held_bytes <= HELD_BYTES + 2 * BIG
        if not any(rest for _, rest in clients):
            break
    for client, _ in clients:
        assert rim.receive(client, 7) == b"%d" % BIG
    assert rim.server.memory.held_bytes == 0
    assert len(rim.broker.frames) == 21


def test_memory_of_requests_that_wait_for_the_worker_is_bounded(
    rim: Rim, request: pytest.FixtureRequest
) -> None:
    go_on = threading.Event()
    request.addfinalizer(go_on.set)
    memory = rim.server.memory

    def work(connection: int, frame: bytes) -> None:
        def done(_: Any, now_ms: int) -> None:
            rim.broker.outbox.sends.append((connection, (b"%d" % len(frame),)))

        rim.broker.outbox.work.append(
            Work(connection, lambda: go_on.wait(PATIENCE_S), done, len(frame))
        )

    rim.broker.answer = work
    rim.broker.on_worked = lambda work, result, error, now_ms: work.done(result, now_ms)  # type: ignore[attr-defined]
    clients = half_sent(rim, 20)
    for _ in range(30):
        clients = [(client, push(rim, client, rest)) for client, rest in clients]
        assert memory.held_bytes + memory.worked_bytes <= HELD_BYTES * 3 // 2 + 2 * BIG
    assert memory.is_full_of_work and any(rest for _, rest in clients)
    go_on.set()

    def is_all_sent() -> bool:
        clients[:] = [(client, push(rim, client, rest)) for client, rest in clients]
        return not any(rest for _, rest in clients) and not memory.worked_bytes

    rim.run_until(is_all_sent)
    for client, _ in clients:
        assert rim.receive(client, 7) == b"%d" % BIG
    assert memory.held_bytes == 0


def test_memory_that_the_core_gives_back_lets_those_who_wait_for_it_go_on(rim: Rim) -> None:
    """The core holds the memory of requests that are handled in slices, and releases it at the
    end.
    """
    outbox = rim.broker.outbox
    outbox.held_bytes = HELD_BYTES
    rim.server.carry_out()
    ((client, rest),) = half_sent(rim, 1)
    rest = push(rim, client, rest)
    assert rest, "it is not read from"
    outbox.held_bytes = 1 - HELD_BYTES
    rim.server.carry_out()
    rim.run()
    assert push(rim, client, rest) == b"" and rim.receive(client, 3) == b"<" + bytes(2)
    outbox.held_bytes = -1
    rim.server.carry_out()
    assert rim.server.request_memory_bytes == 0


def test_a_client_that_disconnects_passes_its_turn_to_receive_to_the_next(rim: Rim) -> None:
    clients = half_sent(rim, 12)
    (before,) = cast(dict[str, Connection], rim.server.turns.holders).values()
    clients[before.connection_id - 10][0].close()
    rim.run()
    assert before.closed
    assert not rim.server.turns.has_turn(before) and len(rim.server.turns.holders) == 1


def test_partly_received_requests_of_a_principal_do_not_block_another_principal(rim: Rim) -> None:
    """One connection of the first principal has the turn to receive, and many others wait for
    it.
    """
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, (b"%d" % len(frame),))
    )
    half_sent(rim, 20)
    assert rim.server.memory.is_full and rim.server.turns.holders
    rim.broker.connections[99] = SimpleNamespace(principal="User:admin")
    admin = rim.client(99)
    left = framed(bytes(BIG))
    for _ in range(10):
        left = push(rim, admin, left)
    assert left == b"" and rim.receive(admin, 7) == b"%d" % BIG


def test_a_client_that_sends_nothing_during_its_turn_to_receive_is_disconnected(
    rim: Rim, caplog: pytest.LogCaptureFixture
) -> None:
    rim.restart()
    clients = dict(enumerate(half_sent(rim, 12), 10))
    rim.pass_time(100_000, step_ms=1000)
    left = sorted(rim.server._connections)
    assert 0 < len(left) < 12
    lines = [
        record.getMessage()
        for record in caplog.records
        if "sent a part of a large request" in record.message
    ]
    assert len(lines) == 12 - len(left)
    rim.broker.answer = lambda connection, frame: rim.broker.outbox.sends.append(
        (connection, (b"%d" % len(frame),))
    )
    for _ in range(20):
        clients = {number: (clients[number][0], push(rim, *clients[number])) for number in left}
        if not any(rest for _, rest in clients.values()):
            break
    for client, _ in clients.values():
        assert rim.receive(client, 7) == b"%d" % BIG
    assert rim.server.memory.held_bytes == 0


def test_without_descriptors_new_connections_wait_and_one_line_is_logged(
    rim: Rim, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rim.restart()
    with ExitStack() as clients:
        for _ in range(12):
            clients.enter_context(socket.create_connection(rim.server.address))
        bound = "barnabas.broker.rim.acceptor._most_connections"
        monkeypatch.setattr(bound, lambda: 5)
        rim.pass_time(10_000, step_ms=250)
        assert len(rim.server._connections) == 5
        complaints = [
            record
            for record in caplog.records
            if "no connections are accepted for now" in record.message
        ]
        assert len(complaints) == 1
        monkeypatch.setattr(bound, lambda: sys.maxsize)
        rim.pass_time(2_000, step_ms=250)
        assert len(rim.server._connections) == 12


def test_an_accept_that_fails_is_tried_again_later(
    rim: Rim, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rim.restart()

    class Full:
        """A listening socket in a process that has no descriptor left."""

        def __init__(self, listener: socket.socket) -> None:
            self.listener, self.tried = listener, 0

        def accept(self) -> Any:
            self.tried += 1
            raise OSError(24, "Too many open files")

        def fileno(self) -> int:
            return self.listener.fileno()

        def getsockname(self) -> Any:
            return self.listener.getsockname()

        def close(self) -> None:
            self.listener.close()

    listener = rim.server.acceptor.listeners[0].socket
    full = Full(listener)
    rim.server.acceptor.listeners[0].socket = cast(Any, full)
    with socket.create_connection(rim.server.address):
        rim.pass_time(20_000, step_ms=250)
        assert 1 < full.tried <= 41
        assert (
            len([record for record in caplog.records if "Too many open files" in record.message])
            == 1
        )
        rim.server.acceptor.listeners[0].socket = listener
        rim.pass_time(1_000, step_ms=250)
        assert len(rim.server._connections) == 1


def test_a_share_of_the_descriptors_is_reserved_for_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, most in ((1024, 896), (256, 192), (100, 50), (-1, None)):
        monkeypatch.setattr(
            "barnabas.broker.rim.acceptor.resource.getrlimit", lambda _, limit=limit: (limit, limit)
        )
        found = _most_connections()
        assert found == most or (most is None and found > 10**9)


class _NotedDisk:
    """A disk that records how many descriptors are reserved for connections. `reserved` has these
    numbers, the latest at the end.
    """

    def __init__(self) -> None:
        self.reserved: list[int] = []

    def reserve_descriptors(self, count: int) -> None:
        self.reserved.append(count)


def test_each_connection_takes_a_descriptor_from_the_file_pool_and_returns_it(rim: Rim) -> None:
    disk = _NotedDisk()
    rim.broker.logs = SimpleNamespace(disk=disk)
    rim.restart()
    with ExitStack() as clients:
        for _ in range(3):
            clients.enter_context(socket.create_connection(rim.server.address))
        rim.run()
        assert disk.reserved == [1, 2, 3]
    rim.run()
    assert disk.reserved == [1, 2, 3, 2, 1, 0]


def test_an_accept_that_lacks_a_descriptor_closes_pooled_files(rim: Rim) -> None:
    disk = _NotedDisk()
    rim.broker.logs = SimpleNamespace(disk=disk)
    rim.restart()
    kept = rim.server.acceptor.listeners[0].socket
    assert kept is not None
    error = OSError(errno.EMFILE, "Too many open files")
    full = SimpleNamespace(accept=lambda: _raise(error), fileno=kept.fileno)
    rim.server.acceptor.listeners[0].socket = cast(Any, full)
    with socket.create_connection(rim.server.address):
        rim.run()
        assert disk.reserved == [_most_connections()]
        rim.server.acceptor.listeners[0].socket = kept
        rim.pass_time(1_000, step_ms=250)
        assert disk.reserved[1:] == [1], "afterwards only the descriptors of clients are reserved"


def _raise(error: Exception) -> None:
    raise error


def test_no_event_reaches_the_broker_after_its_logs_are_closed(rim: Rim) -> None:
    """The work of a thread ends while the server closes. The event loop then runs once more."""
    begun, go_on, heard = threading.Event(), threading.Event(), []
    rim.broker.on_worked = lambda *arguments: heard.append(arguments)  # type: ignore[attr-defined]

    def run() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    file = SlowFile()
    file.go_on.clear()
    job = flush(rim, file)
    rim.broker.outbox.work.append(Work(1, run, lambda result, now_ms: None))
    rim.server.carry_out()
    assert begun.wait(PATIENCE_S)
    threading.Timer(0.1, lambda: (go_on.set(), file.go_on.set())).start()
    rim.server.close()
    assert rim.broker.closed_logs
    rim.server._tick_after_reading()
    rim.run(20)
    assert not heard and job not in rim.broker.flushed and (0, b"tick") not in rim.broker.frames


def test_a_throttled_client_gets_its_response_and_is_then_muted(rim: Rim) -> None:
    """The response is sent immediately, but the client's next requests wait until the quota allows
    them.
    """

    def throttle(connection: int, frame: bytes) -> None:
        rim.broker.echo(connection, frame)
        if frame == b"much":
            rim.broker.outbox.mutes.append((connection, 2000))

    rim.restart()
    rim.broker.answer = throttle
    client, other = rim.client(1), rim.client(2)
    client.sendall(framed(b"much") + framed(b"more"))
    other.sendall(framed(b"less"))
    assert rim.receive(client, 6) == b"<much>"
    assert rim.receive(other, 6) == b"<less>"
    client.sendall(framed(b"yet more"))
    rim.pass_time(1_800, step_ms=200)
    assert (1, b"more") not in rim.broker.frames
    rim.pass_time(400, step_ms=200)
    assert rim.receive(client, 16) == b"<more><yet more>"
    assert rim.server.broker.counters.of("barnabas_throttled_requests_total") == 1


@pytest.mark.parametrize("by", ["broker", "client"])
def test_a_muted_connection_can_be_closed(rim: Rim, by: str) -> None:
    def throttle(connection: int, frame: bytes) -> None:
        rim.broker.echo(connection, frame)
        rim.broker.outbox.mutes.append((connection, 2000))

    rim.restart()
    rim.broker.answer = throttle
    client = rim.client()
    client.sendall(framed(b"a"))
    assert rim.receive(client, 3) == b"<a>"
    if by == "client":
        client.close()
    else:
        rim.broker.outbox.closes.append((1, "it has to"))
        rim.server.carry_out()
    rim.pass_time(3_000, step_ms=200)
    assert rim.broker.gone == [1]
    assert rim.server._muted == {}


# --- limits of connections ----------------------------------------------------------------------


@pytest.fixture
def connect(rim: Rim) -> Iterator[Callable[[], socket.socket]]:
    """A function that connects to the listener and lets the event loop accept the connection."""
    clients = []

    def connect() -> socket.socket:
        client = socket.create_connection(rim.server.address, timeout=PATIENCE_S)
        client.setblocking(False)
        clients.append(client)
        rim.run()
        return client

    yield connect
    for client in clients:
        client.close()


def test_connections_beyond_max_connections_wait(
    rim: Rim, connect: Callable[[], socket.socket]
) -> None:
    rim.restart(max_connections=2)
    first, _, third = connect(), connect(), connect()
    assert len(rim.server._connections) == 2
    third.sendall(framed(b"third"))
    rim.pass_time(1_000, step_ms=250)
    assert rim.broker.frames == []
    first.close()
    rim.pass_time(1_000, step_ms=250)
    assert rim.receive(third, 7) == b"<third>"
    assert len(rim.server._connections) == 2


def test_connections_beyond_max_connections_per_ip_are_closed(
    rim: Rim, connect: Callable[[], socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    rim.restart(max_connections_per_ip=1)
    first, second, third = connect(), connect(), connect()
    assert (rim.is_hung_up(second), rim.is_hung_up(third)) == (True, True)
    assert caplog.text.count("max.connections.per.ip") == 1, "one line a minute is logged"
    first.sendall(framed(b"first"))
    assert rim.receive(first, 7) == b"<first>"
    first.close()
    rim.run()
    connect().sendall(framed(b"next"))
    rim.run_until(lambda: (4, b"next") in rim.broker.frames or (2, b"next") in rim.broker.frames)


@pytest.mark.parametrize("bound", ["max_connections_per_ip", "max_connections"])
def test_a_client_that_is_gone_before_its_tls_counts_no_longer(
    rim: Rim, connect: Callable[[], socket.socket], bound: str
) -> None:
    class GoneListener:
        asks_for_certificates = False

        def wrap(self, sock: socket.socket) -> socket.socket:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    rim.restart(**{bound: 1})
    listener: Any = rim.server.acceptor.listeners[0].config
    for tls in (GoneListener(), None):
        listener.tls = tls
        client = connect()
        assert rim.is_hung_up(client) is (tls is not None)
    client.sendall(framed(b"one"))
    assert rim.receive(client, 5) == b"<one>"
    assert len(rim.server.connections()) == 1


def test_a_socket_in_the_file_system_comes_and_goes_with_its_listener(
    rim: Rim, tmp_path: Path
) -> None:
    path = tmp_path / "b.sock"
    rim.broker.settings["listeners"] = f"unix://{path}"
    rim.server.close()
    rim.server = Server(cast(Any, rim.broker), unix_listener_at(str(path)), rim.loop)
    acceptor = rim.server.acceptor
    (listener,) = acceptor.listeners
    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.setblocking(False)
            client.sendall(framed(b"a"))
            assert rim.receive(client, 3) == b"<a>"
        assert path.stat().st_mode & 0o777 == 0o600
        acceptor.close_listener(listener.node_id)
        assert not path.exists()
        acceptor.open_listener(listener.node_id)
    rim.server.close()
    assert not path.exists()


def test_a_client_that_connected_elsewhere_is_taken_up_by_the_listener_of_a_name(rim: Rim) -> None:
    """A pair's node holds clients until it leads; then its server takes them up."""
    connected: list[Any] = []
    rim.broker.on_connected = lambda *found: connected.append(found)  # type: ignore[method-assign]
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        for is_gone in (True, False):
            client = socket.create_connection(elsewhere.getsockname())
            rim._clients.append(client)
            accepted, peer = elsewhere.accept()
            if is_gone:
                accepted.close()
            rim.server.acceptor.adopt("PLAINTEXT", accepted)
            assert len(connected) == (not is_gone)
    client.setblocking(False)
    client.sendall(framed(b"a"))
    assert rim.receive(client, 3) == b"<a>"
    (found,) = connected
    assert (found[1], found[5].name) == (peer[0], "PLAINTEXT")


def test_an_ipv4_override_applies_to_ipv4_clients_of_an_ipv6_listener(rim: Rim) -> None:
    rim.broker.settings["max.connections.per.ip.overrides"] = "127.0.0.1:0"
    try:
        rim.restart("::")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with socket.create_connection(("127.0.0.1", rim.server.address[1])) as client:
        client.setblocking(False)
        assert rim.is_hung_up(client)


def test_a_connection_limit_that_is_set_later_counts_existing_connections(
    rim: Rim, connect: Callable[[], socket.socket]
) -> None:
    rim.restart()
    connect()
    rim.broker.settings["max.connections.per.ip"] = 2
    assert not rim.is_hung_up(connect())
    assert rim.is_hung_up(connect())


def test_a_connection_above_the_rate_of_its_address_is_closed_after_the_delay(
    rim: Rim, connect: Callable[[], socket.socket]
) -> None:
    rim.broker.quotas.have_addresses = True
    rim.broker.metadata.client_quotas[("ip", None),] = {"connection_creation_rate": 1.0}
    rim.restart(quota_window_num=1)  # with one window, any connection exceeds the rate
    client = connect()
    assert not rim.is_hung_up(client)
    assert rim.server._connections == {}
    rim.pass_time(1_250, step_ms=250)
    assert rim.is_hung_up(client)
    connect()  # another connection, which is closed with the server


def test_connections_above_max_connection_creation_rate_wait(
    rim: Rim, connect: Callable[[], socket.socket]
) -> None:
    rim.restart(max_connection_creation_rate=1, quota_window_num=1)
    connect(), connect()
    assert len(rim.server._connections) == 1
    rim.pass_time(1_250, step_ms=250)
    assert len(rim.server._connections) == 2


@pytest.mark.parametrize(
    ("protocol", "parts"),
    [
        ("SASL_PLAINTEXT", (b"\x00\x00\x00\x20", b"\x00\x12")),  # parts of a Kafka frame
        ("SSL", (b"\x16\x03\x01\x01\x00", b"\x01\x00\x00\xfc")),  # parts of a ClientHello
    ],
)
def test_a_client_that_does_not_authenticate_in_time_is_disconnected(
    rim: Rim, connect: Callable[[], socket.socket], protocol: str, parts: tuple[bytes, bytes]
) -> None:
    """The connection is closed although it is not idle, since the client sends some bytes now
    and then.
    """
    rim.broker.settings["listeners"] = f"{protocol}://127.0.0.1:0"
    rim.restart(barnabas_authentication_timeout_ms=30_000)
    if protocol == "SSL":
        rim.server.acceptor.listeners[0].config.tls = TlsListener(
            {"ssl.keystore.location": str(TLS_FILES / "server.pem")}
        )
    client = connect()
    for part in parts:
        rim.pass_time(10_000, step_ms=1_000)
        client.sendall(part)
        assert not rim.is_hung_up(client)
    another = connect()
    rim.pass_time(11_000, step_ms=1_000)
    assert rim.is_hung_up(client)
    assert not rim.is_hung_up(another)
    third = connect()
    rim.pass_time(20_000, step_ms=1_000)
    assert (rim.is_hung_up(another), rim.is_hung_up(third)) == (True, False)
    rim.pass_time(11_000, step_ms=1_000)
    assert rim.is_hung_up(third), "each has its own time"


def test_an_authenticated_client_stays_connected(
    rim: Rim, connect: Callable[[], socket.socket]
) -> None:
    rim.broker.settings["listeners"] = "SASL_PLAINTEXT://127.0.0.1:0"
    rim.restart(barnabas_authentication_timeout_ms=1_000)
    client = connect()
    rim.broker.outbox.admitted.append(1)
    next_request = framed(bytes(100_000))
    client.sendall(framed(b"token") + next_request[:50_000])
    assert rim.receive(client, 7) == b"<token>"
    assert rim.server.memory.held_bytes >= 50_000 and not rim.server.greeting_memory.held_bytes
    rim.pass_time(3_000, step_ms=500)
    assert not rim.is_hung_up(client)
    client.sendall(next_request[50_000:])
    assert rim.receive(client, 100_002) == b"<" + bytes(100_000) + b">"


def test_the_next_request_waits_while_a_response_waits_for_the_standby(rim: Rim) -> None:
    """A quota may mute the client at the same time. Either of the two waits may end first."""
    leader = rim.restart_with_standby_missing()

    def answer(connection: int, frame: bytes) -> None:
        if frame != b"parked":
            rim.broker.echo(connection, frame)
        if frame == b"throttled":
            rim.broker.outbox.mutes.append((connection, 1))

    rim.broker.answer = answer
    client = rim.client()
    client.sendall(framed(b"throttled") + framed(b"parked") + framed(b"next"))
    rim.run_until(lambda: rim.broker.frames and not rim.server.is_muted(1))
    assert [frame for _, frame in rim.broker.frames] == [b"throttled"]
    leader.leading.settings = leader.leading.settings._replace(may_be_alone=True)
    leader._release()
    assert rim.receive(client, 11) == b"<throttled>"
    rim.run()
    assert [frame for _, frame in rim.broker.frames] == [b"throttled", b"parked"]


def test_a_muted_client_stays_muted_when_its_response_is_released_by_the_standby(rim: Rim) -> None:
    leader = rim.restart_with_standby_missing()

    def answer(connection: int, frame: bytes) -> None:
        rim.broker.echo(connection, frame)
        rim.broker.outbox.mutes.append((connection, 600_000))

    rim.broker.answer = answer
    client = rim.client()
    client.sendall(framed(b"throttled") + framed(b"next"))
    rim.run()
    leader.leading.settings = leader.leading.settings._replace(may_be_alone=True)
    leader._release()
    assert rim.receive(client, 11) == b"<throttled>"
    rim.run()
    assert [frame for _, frame in rim.broker.frames] == [b"throttled"]


def test_a_response_that_is_ready_after_the_lease_waits_for_its_renewal(rim: Rim) -> None:
    """The connection stays open, and its next request waits as well."""
    keeper = ScriptedKeeper()
    rim.restart_with_lease(keeper)
    client = rim.client()
    client.sendall(framed(b"within"))
    assert rim.receive(client, 8) == b"<within>"
    keeper.has_right = False
    client.sendall(framed(b"past") + framed(b"next"))
    rim.run()
    assert [frame for _, frame in rim.broker.frames] == [b"within", b"past"]
    assert not rim.is_hung_up(client) and rim.broker.gone == []
    keeper.on_change()
    rim.run()
    assert not rim.is_hung_up(client), "nothing has changed"
    keeper.has_right = True
    keeper.on_change()
    assert rim.receive(client, 12) == b"<past><next>"
    assert [frame for _, frame in rim.broker.frames] == [b"within", b"past", b"next"]


def test_waiting_responses_are_dropped_when_another_node_leads(rim: Rim) -> None:
    keeper, deposed = ScriptedKeeper(), []
    leader = rim.restart_with_lease(keeper)
    rim.broker.closed_logs = False
    leader.on_deposed(lambda: deposed.append(True))
    client = rim.client()
    keeper.has_right = False
    client.sendall(framed(b"past"))
    rim.run()
    keeper.role = Role.DEPOSED
    keeper.on_change()
    rim.run()
    assert (leader.is_deposed, deposed, leader.waiting_count) == (True, [True], 1)
    leader.abandon()
    keeper.has_right = True  # this right comes from a later lease
    keeper.on_change()
    assert rim.is_hung_up(client)
    assert not rim.broker.closed_logs, (
        "the logs are not closed, so the directory is as after a kill"
    )
    late: list[bool] = []
    leader.on_deposed(lambda: late.append(True))
    assert late == [True], "a callback that is added later is called at once"


def test_an_unauthenticated_connection_does_not_block_the_standby(rim: Rim) -> None:
    leader = rim.restart_with_standby_missing()
    with ExitStack() as sockets:

        def connect() -> socket.socket:
            sock = sockets.enter_context(socket.create_connection(leader.address))
            sock.setblocking(False)
            return sock

        idle = connect()
        rim.run_until(lambda: leader.endpoint.admission.greeting)
        standby = connect()
        standby.sendall(wire.frame(["hello", wire.VERSION, bytes(wire.NONCE_BYTES)]))
        (size,) = struct.unpack(">I", rim.receive(standby, 4))
        assert b"challenge" in rim.receive(standby, size)
        assert not rim.is_hung_up(idle)
        assert leader.leading.link is None, "no peer has shown the secret"
    rim.run_until(lambda: not leader.endpoint.admission.greeting)
