"""The server of a leader, step by step in an event loop with a virtual clock: its port and
connections, waiting responses, its lease, and its end. The tests check that no tasks or sockets are
left.
"""

from __future__ import annotations

import errno
import logging
import random
import ssl
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.virtual_loop import VirtualLoop, VirtualPort, received, stream_pair
from sim.disk import SimDisk

from barnabas.broker.settings.config import BrokerConfig
from barnabas.replication import admission
from barnabas.replication.following import Following
from barnabas.replication.leadership import Role
from barnabas.replication.leading import GREETING_MS
from barnabas.replication.lease_record import LeaseRecordError, NodeAddresses
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.replication.rim.leader_endpoint import SENDS_REST_S, Leader
from barnabas.replication.rim.lease_endpoint import LAPSED, RELEASE_S, LeasedLeader
from barnabas.replication.wire import NONCE_BYTES, VERSION, frame

DIRECTORY = "/x"
TIMEOUT_MS = 1000
SECRET = "of both"
SETTINGS = {
    "log.dirs": DIRECTORY,
    "barnabas.replication.mode": "sync",
    "barnabas.replication.timeout.ms": str(TIMEOUT_MS),
    "barnabas.replication.secret": SECRET,
}


class Keeper:
    """A fake keeper of the lease. `said` has the calls that it received, in order."""

    node_id, leader_epoch, trouble = 1, 7, ""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.has_lease, self.role = True, Role.LEADING
        self.failure: LeaseRecordError | None = None
        self.in_sync, self.maybe = frozenset({1}), frozenset({1})
        self.nodes: dict[int, NodeAddresses] = {1: NodeAddresses("", {})}
        self.on_change: Callable[[], None] = lambda: None

    def may_answer(self) -> bool:
        return self.has_lease

    def may_be_in_sync(self) -> frozenset[int]:
        return self.maybe

    def add_node(self, node_id: int, addresses: NodeAddresses) -> None:
        self.nodes[node_id] = addresses
        self.said.append(("add node", node_id))

    def want_in_sync(self, node_ids: Any) -> None:
        self.said.append(("want", *node_ids))

    def set_opened(self, cluster_id: str, leader_epoch: int) -> None:
        self.said.append(("opened", cluster_id, leader_epoch))

    def begin_release(self) -> None:
        self.said.append("begin release")

    def wait_until_released(self, timeout_s: float) -> None:
        self.said.append(("wait until released", timeout_s))

    def stop(self) -> None:
        self.said.append("stop")


class Connection:
    """A fake client connection. `said` has the calls that it received, in order."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.closed = False

    def hold(self) -> None:
        self.said.append("hold")

    def release(self) -> None:
        self.said.append("release")

    def send(self, pieces: Any) -> None:
        self.said.append(pieces)

    def wake(self) -> None:
        self.said.append("wake")


class Bench:
    """A leader's server in fake surroundings.

    `disk` is the disk to which the broker writes. With `is_leased`, `keeper` is the keeper of the
    lease.
    """

    def __init__(self, *, is_leased: bool = False, **settings: str) -> None:
        """Create a leader's server on a simulated disk and port. With `is_leased`, its leadership
        depends on a lease, whose keeper is a `Keeper`, and `said` records the calls to the keeper.
        """
        self.loop, self.port = VirtualLoop(), VirtualPort()
        self.plain_disk = SimDisk(random.Random(0), lambda: self.loop.now_ms)
        self.plain_disk.mkdir(DIRECTORY)
        self.disk = ReplicatedDisk(self.plain_disk, DIRECTORY)
        changes = {name.replace("_", "."): text for name, text in settings.items()}
        config = BrokerConfig.from_properties({**SETTINGS, **changes})
        self.keeper, self.cluster = Keeper(), SimpleNamespace(standby=None)
        port: Any = self.port
        logs: Any = SimpleNamespace(disk=self.disk, cluster_id="c", leader_epoch=7)
        parts: Any = (self.cluster, port, self.loop, self.keeper)
        self.leader: Any = (
            LeasedLeader(config, logs, *parts)
            if is_leased
            else Leader(config, self.disk, port, self.loop)
        )
        self.said: list[Any] = self.keeper.said
        self.server: Any = SimpleNamespace(
            now_ms=lambda: self.loop.now_ms, is_closed=False, failed=False,
            close=self._close, abandon=lambda: self.said.append("abandon"),
            nodes=SimpleNamespace(
                ports=SimpleNamespace(adopt=lambda *found: self.said.append(found))
            ),
        )  # fmt: skip
        handle = object()
        assert self.leader.around(self.server, handle) is handle, "requests are handled at once"
        self.leader.start()
        self.standbys: list[StandbySide] = []

    def _close(self) -> None:
        self.said.append("close")
        self.server.is_closed = True
        self.leader.close()

    @property
    def endpoint(self) -> Any:
        return self.leader.endpoint

    def standby(self, *, node_id: int = 2, buffer_bytes: int = 0) -> StandbySide:
        """Connect a standby."""
        made = StandbySide(self, node_id, self.port.connect(buffer_bytes=buffer_bytes))
        self.standbys.append(made)
        return made

    def exchange(self) -> None:
        """Let all standbys read and respond until no message is left."""
        for _ in range(20):
            self.loop.settle()
            for one in self.standbys:
                one.take()
        self.loop.settle()

    def followed(self, **named: Any) -> StandbySide:
        """Connect a standby, and wait until it follows."""
        standby = self.standby(**named)
        self.exchange()
        assert self.leader.leading.follows
        return standby

    def write(self, data: bytes = b"x", name: str = "f") -> None:
        """Write to the broker's disk."""
        file = self.disk.open(f"{DIRECTORY}/{name}", create=True)
        file.append(data)
        file.close()

    def close(self) -> None:
        """Close the leader, and check that no task or socket is left. The timeout is long enough
        for the pauses of a catch-up.
        """
        self.port.hang_up_all()
        if not self.server.is_closed:
            self._close()
        self.loop.run_for(TIMEOUT_MS / 1000)
        left = self.loop.leftovers()
        self.loop.close()
        assert left == []
        assert self.port.is_closed
        assert [sock.fileno() for sock in self.port.accepted if sock.fileno() >= 0] == []


class StandbySide:
    """A standby's end of a connection. `ended` tells whether the leader has closed the
    connection.
    """

    def __init__(self, bench: Bench, node_id: int, sock: Any) -> None:
        self.sock, self.ended, self.is_silent = sock, False, False
        self.disk = SimDisk(random.Random(0), lambda: 0)
        self.disk.mkdir(DIRECTORY)
        self.following = Following(
            self.disk, DIRECTORY, SECRET, b"n" * NONCE_BYTES, lambda: None, node_id=node_id
        )
        self.sock.send(self.following.greeting())

    def take(self) -> None:
        """Read what has arrived, apply it, and send the responses."""
        if self.is_silent or self.ended:
            return
        data = received(self.sock)
        if data is None:
            self.ended = True
            self.sock.close()
            return
        for answer in self.following.on_bytes(data):
            self.sock.send(answer)

    def read(self, name: str = "f") -> bytes:
        return self.disk.read(f"{DIRECTORY}/{name}")


@pytest.fixture
def new_bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def new(**named: Any) -> Bench:
        made.append(Bench(**named))
        return made[-1]

    yield new
    for bench in made:
        bench.close()


# --- the port ------------------------------------------------------------------------------------


def test_without_descriptors_the_port_waits_for_the_next_tick(
    new_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    """The listening socket stays readable, so the event loop would try to accept again without a
    pause.
    """
    bench = new_bench()
    error = OSError(errno.EMFILE, "Too many open files")
    bench.port.refusals = [error, error, error, BlockingIOError(), ConnectionAbortedError()]
    bench.standby()
    bench.loop.settle()
    assert len(bench.port.refusals) == 4, "it is asked once"
    bench.loop.run_for(TIMEOUT_MS / 1000 / 10)
    assert len(bench.port.refusals) == 3
    bench.loop.run_for(TIMEOUT_MS / 1000 / 10)
    bench.loop.run_for(TIMEOUT_MS / 1000 / 10)
    assert bench.port.refusals == []
    bench.exchange()
    assert bench.leader.leading.follows
    assert caplog.text.count("a standby has to wait: [Errno 24] Too many open files") == 1


def test_a_connection_that_does_not_prove_the_secret_in_time_is_closed(
    new_bench: Callable[..., Bench],
) -> None:
    bench = new_bench()
    silent, greeting = bench.port.connect(), bench.port.connect()
    greeting.send(frame(["hello", VERSION, b"n" * NONCE_BYTES]))
    bench.loop.run_for((GREETING_MS - 1) / 1000)
    assert received(silent) == b""
    assert received(greeting)
    bench.loop.run_for(2 / 1000)
    assert received(silent) is None
    assert received(greeting) is None
    assert bench.endpoint.admission.greeting == []
    standby = bench.followed()
    bench.standbys = []
    standby.is_silent = True
    for _ in range(20):  # a standby that has proved the secret stays connected while it responds
        bench.loop.run_for(GREETING_MS / 1000 / 10)
        standby.is_silent = False
        standby.take()
        bench.loop.settle()
    assert bench.leader.leading.follows
    assert not standby.ended


def test_a_connection_is_set_up_for_small_messages(new_bench: Callable[..., Bench]) -> None:
    import socket

    bench = new_bench()
    bench.followed()
    (sock,) = bench.port.accepted
    assert (socket.IPPROTO_TCP, socket.TCP_NODELAY) in sock.options
    assert sock.gettimeout() == 0, "else it would hold up all clients"


def test_a_new_connection_replaces_the_oldest_one_without_the_secret(
    new_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MOST_GREETING", 2)
    bench = new_bench()
    first, second, third = (bench.port.connect() for _ in range(3))
    bench.loop.settle()
    assert [received(sock) for sock in (first, second, third)] == [None, b"", b""]
    assert len(bench.endpoint.admission.greeting) == 2


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b""])
def test_a_failed_or_missing_tls_handshake_closes_the_connection(
    new_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    bench = new_bench()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    bench.endpoint._tls = SimpleNamespace(context=lambda: context)
    stranger = bench.port.connect()
    stranger.send(sent)
    bench.loop.settle()
    if not sent:
        assert bench.endpoint.admission.greeting
        bench.loop.run_for(GREETING_MS / 1000 + 0.1)
    assert received(stranger) is None
    assert bench.endpoint.admission.greeting == []
    says = "TLS: " if sent else f"it had not shown the secret within {GREETING_MS} ms"
    assert says in caplog.text


def test_refused_connections_are_logged_once_a_minute_with_their_number(
    new_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = new_bench()
    for _ in range(3):
        stranger = bench.port.connect()
        stranger.send(b"GET / HTTP/1.1\r\n\r\n" * 10)
        bench.loop.settle()
        assert received(stranger) is None
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert warnings[0].startswith("a connection from 10.0.0.2:5000 to barnabas.replication.port")
    bench.loop.run_for(61)
    assert "2 more connections to barnabas.replication.port ended within a minute" in caplog.text
    assert bench.leader.leading.link is None


def test_a_refused_standby_gets_the_reason_before_its_connection_is_closed(
    new_bench: Callable[..., Bench],
) -> None:
    bench = new_bench()
    first = bench.followed()
    second = bench.standby()
    with pytest.raises(Exception, match="another standby is connected"):
        bench.exchange()
    bench.standbys.remove(second)
    bench.loop.settle()
    assert received(second.sock) is None
    assert not first.ended
    assert bench.leader.leading.follows
    second.sock.close()


# --- a standby -----------------------------------------------------------------------------------


def test_a_standby_gets_each_change_and_the_disk_publishes_nothing_without_one(
    new_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = new_bench()
    bench.write(b"before")
    assert bench.disk.publish is None
    bench.loop.settle()
    standby = bench.followed()
    assert standby.read() == b"before"
    bench.write(b" after")
    bench.exchange()
    assert standby.read() == b"before after"
    standby.sock.close()
    bench.standbys.clear()
    bench.loop.settle()
    assert bench.disk.publish is None
    assert bench.leader.leading.link is None
    assert (
        "the standby 10.0.0.2:5000 disconnected: it closed the connection; answers are sent "
        "without it" in caplog.text
    )
    assert bench.followed().read() == b"before after"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"barnabas_replication_alone": "false"}, "answers wait for a standby"),
        ({"barnabas_replication_mode": "async"}, "answers are sent without it"),
        (
            {"barnabas_replication_mode": "async", "barnabas_replication_alone": "false"},
            "answers are sent without it",
        ),
    ],
)
def test_the_log_says_whether_answers_wait_after_a_standby_disconnected(
    new_bench: Callable[..., Bench],
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, str],
    says: str,
) -> None:
    bench = new_bench(**settings)
    bench.followed().sock.close()
    bench.standbys.clear()
    bench.loop.settle()
    assert f"disconnected: it closed the connection; {says}" in caplog.text


def test_a_standby_that_is_silent_for_the_timeout_is_disconnected(
    new_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = new_bench()
    standby = bench.followed()
    bench.loop.run_for(TIMEOUT_MS / 1000 * 0.9)
    assert received(standby.sock), "the leader sends a ping"
    assert bench.leader.leading.follows
    bench.loop.run_for(TIMEOUT_MS / 1000 * 0.4)
    assert bench.leader.leading.link is None
    assert f"disconnected: it sent nothing for {TIMEOUT_MS} ms" in caplog.text
    received(standby.sock)
    assert received(standby.sock) is None


def test_a_standby_that_answers_pings_stays(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench()
    standby = bench.followed()
    for _ in range(40):
        bench.loop.run_for(TIMEOUT_MS / 1000 / 10)
        bench.exchange()
    assert bench.leader.leading.follows
    assert not standby.ended


def test_changes_wait_in_order_for_a_slow_standby(
    new_bench: Callable[..., Bench],
) -> None:
    """The leader does not read its queue until the connection is writable again."""
    bench = new_bench()
    standby = bench.followed(buffer_bytes=4096)
    standby.is_silent = True
    pieces = [bytes([65 + at]) * 200_000 for at in range(20)]
    for piece in pieces:
        bench.write(piece)
        bench.loop.settle()
    link = bench.leader.leading.link
    assert link.waiting_bytes > 2_000_000, "its memory counts, and not the transport's"
    standby.is_silent = False
    for _ in range(200):
        bench.exchange()
        if link.applied == bench.leader.leading.position:
            break
    assert standby.read() == b"".join(pieces)
    assert link.waiting_bytes == 0


def test_a_catch_up_keeps_its_rate(new_bench: Callable[..., Bench]) -> None:
    """The catch-up has several parts of 1 MiB, at 1 MiB per second. A pause between two parts is at
    most half the timeout.
    """
    bench = new_bench(barnabas_replication_catch_up_bytes_per_second=str(1 << 20))
    for number in range(6):
        bench.write(b"x" * (1 << 20), f"f{number}")
    began_ms = bench.loop.now_ms
    standby = bench.standby()
    while not bench.leader.leading.follows:
        bench.exchange()
        bench.loop.run_for(0.05)
        assert bench.loop.now_ms < began_ms + 60_000
    assert bench.loop.now_ms - began_ms >= 5 * TIMEOUT_MS / 2
    assert standby.read("f5") == b"x" * (1 << 20)


# --- answers that wait ---------------------------------------------------------------------------


def test_an_answer_is_held_until_the_standby_has_what_was_written_before_it(
    new_bench: Callable[..., Bench],
) -> None:
    bench = new_bench()
    standby = bench.followed()
    bench.write()
    bench.exchange()
    first, second, third = Connection(), Connection(), Connection()
    bench.leader.send(first, "at once")
    assert first.said == ["at once"]
    bench.write()
    bench.leader.send(first, "one")
    bench.leader.send(second, "two")
    bench.leader.send(third, "three")
    assert (first.said[1:], second.said, third.said) == (["hold"], ["hold"], ["hold"])
    assert bench.leader.waiting_count == 3
    bench.loop.settle()
    third.closed = True
    bench.leader.on_closing(third)
    bench.exchange()
    assert first.said[1:] == ["hold", "release", "one", "wake"]
    assert second.said == ["hold", "release", "two", "wake"]
    assert third.said == ["hold"], "its connection was closed meanwhile, so its response is dropped"
    assert bench.leader.waiting_count == 0
    assert standby.read() == b"xx"


def test_answers_go_out_when_their_standby_is_gone(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench()
    standby = bench.followed()
    bench.write()
    bench.exchange()
    bench.write()
    client = Connection()
    bench.leader.send(client, "one")
    assert client.said == ["hold"]
    standby.sock.close()
    bench.standbys.clear()
    bench.loop.settle()
    assert client.said == ["hold", "release", "one", "wake"]


@pytest.mark.parametrize("is_leased", [False, True])
def test_the_state_of_replication(new_bench: Callable[..., Bench], is_leased: bool) -> None:
    bench = new_bench(is_leased=is_leased)
    epoch = 7 if is_leased else None
    assert bench.leader.replication_state() == (
        "sync", False, False, 0, 0, None, 0, epoch,
    )  # fmt: skip
    standby = bench.standby()
    bench.loop.settle()
    standby.take()
    bench.loop.settle()
    assert bench.leader.leading.link is not None
    assert not bench.leader.replication_state().is_in_sync
    bench.exchange()
    bench.write()
    bench.exchange()
    if is_leased:
        assert not bench.leader.replication_state().is_in_sync, (
            "with a lease, only its record decides who is in sync"
        )
        bench.keeper.in_sync = frozenset({1, 2})
        bench.keeper.on_change()
        bench.loop.settle()
    assert bench.leader.replication_state() == ("sync", True, True, 0, 0, 0, 0, epoch)
    standby.is_silent = True
    bench.write(b"12345")
    bench.leader.send(Connection(), "one")
    state = bench.leader.replication_state()
    assert state.lag_bytes > 5
    assert (state.lag_operations, state.waiting_answers) == (1, 1)
    bench.loop.run_for(0.3)
    state = bench.leader.replication_state()
    assert (state.lag_bytes, state.lag_operations) == (0, 1)
    assert state.lag_ms is not None
    assert 0 < state.lag_ms <= 300
    asynchronous = new_bench(barnabas_replication_mode="async")
    assert asynchronous.leader.replication_state().mode == "async"


# --- the end -------------------------------------------------------------------------------------


def end(bench: Bench) -> Any:
    """Begin the leader's end as the daemon does. Gives: the task."""
    return bench.loop.create_task(bench.leader.end())


def test_a_leader_that_stops_sends_all_changes_first(
    new_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that stops sends its standby all that was written before the stop, and waits until
    the standby closes the connection. It sends no later writes, and nothing to a connection that is
    not its standby's.
    """
    caplog.set_level(logging.INFO)
    bench = new_bench()
    standby = bench.followed()
    stranger = bench.port.connect()
    bench.loop.settle()
    bench.write(b"before the stop")
    ending = end(bench)
    bench.loop.settle()
    assert not ending.done(), "the standby has not closed the connection"
    assert received(stranger) is None
    bench.write(b"after the stop")
    standby.take()
    standby.take()
    assert standby.ended
    bench.loop.settle()
    assert ending.done()
    assert standby.read() == b"before the stop"
    assert "is gone" not in caplog.text
    assert "ended before it was" not in caplog.text


def test_a_leader_that_stops_waits_a_bounded_time_for_its_standby(
    new_bench: Callable[..., Bench],
) -> None:
    bench = new_bench()
    bench.followed().is_silent = True
    ending = end(bench)
    bench.loop.run_for(SENDS_REST_S * 0.9)
    assert not ending.done()
    bench.loop.run_for(SENDS_REST_S * 0.2)
    assert ending.done()
    assert ending.exception() is None


@pytest.mark.parametrize("is_catching_up", [False, True])
def test_a_leader_that_stops_does_not_wait_without_a_following_standby(
    new_bench: Callable[..., Bench], is_catching_up: bool
) -> None:
    bench = new_bench(barnabas_replication_catch_up_bytes_per_second="1000")
    if is_catching_up:
        bench.write(b"x" * (3 << 20))
        standby = bench.standby()
        bench.exchange()
        assert bench.leader.leading.link is not None
        assert not bench.leader.leading.follows
    began_ms = bench.loop.now_ms
    ending = end(bench)
    bench.loop.settle()
    if is_catching_up:
        assert received(standby.sock) is None
    assert ending.done()
    assert bench.loop.now_ms == began_ms


def test_the_lease_is_released_last(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench(is_leased=True)
    standby = bench.followed()
    del bench.said[:]
    ending = end(bench)
    bench.loop.settle()
    assert bench.said == ["close"]
    standby.take()
    bench.loop.settle()
    assert bench.said == ["close", "begin release", ("wait until released", RELEASE_S), "stop"]
    assert ending.done()


@pytest.mark.parametrize("is_full", [False, True], ids=["all is sent", "some waits to be sent"])
def test_a_leader_stops_cleanly_if_its_standby_has_just_gone(
    new_bench: Callable[..., Bench], is_full: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is reset, and the leader has not noticed it yet: the end of its data cannot be
    sent any more (ENOTCONN).
    """
    bench = new_bench(is_leased=True)
    standby = bench.followed(buffer_bytes=4096 if is_full else 0)
    standby.is_silent = True
    if is_full:
        bench.write(b"x" * 100_000)
        bench.loop.settle()

    def refuse(_: int) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    bench.port.accepted[0].shutdown = refuse
    del bench.said[:]
    ending = end(bench)
    bench.loop.settle()
    if is_full:
        assert not ending.done(), "the rest may still be received"
        for _ in range(100):
            received(standby.sock)
            bench.loop.settle()
    assert ending.done()
    assert bench.said == ["close", "begin release", ("wait until released", RELEASE_S), "stop"]
    assert ending.exception() is None
    assert not [record for record in caplog.records if record.exc_info]


# --- the lease -----------------------------------------------------------------------------------


def test_a_leader_that_starts_reports_to_its_lease_and_is_notified_of_changes(
    new_bench: Callable[..., Bench],
) -> None:
    bench = new_bench(is_leased=True)
    assert bench.said == [("opened", "c", 7), ("want",)]
    bench.keeper.nodes[2] = NodeAddresses("", {"PLAINTEXT": "b:9092"})
    assert bench.cluster.standby is None
    bench.keeper.on_change()
    assert bench.cluster.standby is None, "in the loop's thread, and not in the keeper's"
    bench.loop.settle()
    assert bench.cluster.standby.node_id == 2


def test_a_standby_catches_up_only_after_it_left_the_in_sync_set(
    new_bench: Callable[..., Bench],
) -> None:
    """A standby that connects again may lack changes, so it must not be in the in-sync set of the
    lease's record while it catches up.
    """
    bench = new_bench(is_leased=True)
    bench.keeper.maybe = frozenset({1, 2})
    standby = bench.standby()
    bench.exchange()
    assert bench.said[2:] == [("add node", 2), ("want",)]
    assert not bench.leader.leading.follows
    bench.keeper.maybe = frozenset({1})
    bench.keeper.on_change()
    for _ in range(5):
        bench.loop.settle()  # no tick is needed: messages to the standby are sent immediately
        standby.take()
    assert bench.leader.leading.follows


def test_answers_wait_while_the_leader_has_no_lease(
    new_bench: Callable[..., Bench],
) -> None:
    bench = new_bench(is_leased=True)
    client = Connection()
    assert bench.leader.silence() is None
    bench.keeper.has_lease = False
    assert bench.leader.silence() == LAPSED
    bench.leader.send(client, "one")
    assert client.said == ["hold"]
    bench.keeper.on_change()
    bench.loop.settle()
    assert client.said == ["hold"]
    bench.keeper.has_lease = True
    bench.keeper.on_change()
    bench.loop.settle()
    assert client.said == ["hold", "release", "one", "wake"]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_deposed_leader_ends_without_sending_answers(
    new_bench: Callable[..., Bench], is_late: bool
) -> None:
    """Another node may take the lease even before the daemon has registered its callback."""
    bench = new_bench(is_leased=True)
    calls: list[str] = []
    if not is_late:
        bench.leader.on_deposed(lambda: calls.append("deposed"))
    assert calls == []
    client = Connection()
    bench.keeper.has_lease = False
    bench.leader.send(client, "one")
    bench.keeper.role = Role.DEPOSED
    bench.keeper.on_change()
    bench.loop.settle()
    if is_late:
        bench.leader.on_deposed(lambda: calls.append("deposed"))
    assert calls == ["deposed"]
    bench.keeper.has_lease = True
    bench.keeper.on_change()
    bench.loop.settle()
    assert calls == ["deposed"], "once"
    assert client.said == ["hold"], "it never leads again"
    del bench.said[:]
    ending = end(bench)
    bench.loop.settle()
    assert ending.done()
    assert bench.said == ["abandon"]


def test_changes_of_the_lease_after_the_leaders_end_are_ignored(
    new_bench: Callable[..., Bench],
) -> None:
    bench = new_bench(is_leased=True)
    bench.leader.on_deposed(lambda: pytest.fail("it has ended by itself"))
    bench._close()
    bench.keeper.role = Role.DEPOSED
    bench.keeper.on_change()
    bench.loop.settle()
    assert not bench.leader.is_deposed
    bench.leader.abandon()
    bench.loop.settle()
    bench.loop.close()
    bench.keeper.on_change()
    bench.leader.adopt("A", None)
    bench.loop = VirtualLoop()


def test_a_change_of_the_lease_after_the_loop_was_closed_is_ignored(
    new_bench: Callable[..., Bench],
) -> None:
    bench = new_bench(is_leased=True)
    bench._close()
    bench.loop.settle()
    bench.loop.close()
    bench.keeper.on_change()
    bench.loop = VirtualLoop()


def test_connections_from_before_the_failover_are_given_to_their_listener(
    new_bench: Callable[..., Bench],
) -> None:
    """Before a standby leads, it holds clients' connections; the new leader takes these over."""
    bench = new_bench(is_leased=True)
    del bench.said[:]
    mine, theirs = stream_pair()
    bench.leader.adopt("B", mine)
    assert bench.said == [], "in the loop's thread"
    bench.loop.settle()
    assert bench.said == [("B", mine)]
    for sock in (mine, theirs):
        sock.close()
