"""Decisions of a leader's server: which responses wait, which data is sent to the standby and when,
and the order of its end. No connection sends anything after the lease has ended.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.rim.connection import Connection
from barnabas.protocol.framing import ReceiveMemory
from barnabas.replication.held_answers import HeldAnswers
from barnabas.replication.leadership import Role
from barnabas.replication.lease_record import LeaseRecordError, NodeAddresses
from barnabas.replication.leased_lead import LeasedLead
from barnabas.replication.rim.lease_endpoint import LAPSED
from barnabas.replication.standby_feed import StandbyFeed, Turn
from barnabas.replication.steps_of_end import Until, steps_of_end
from barnabas.storage.disk import Slice

# --- answers that wait ---------------------------------------------------------------------------


def test_held_responses_are_released_in_their_order() -> None:
    applied = [5]
    held: HeldAnswers[str] = HeldAnswers(lambda position: position <= applied[0])
    assert not held.holds(5, "at once")
    assert held.holds(7, "first")
    assert held.holds(5, "second"), "its position is applied, but an earlier response still waits"
    assert list(held.released()) == []
    applied[0] = 6
    assert list(held.released()) == []
    applied[0] = 7
    assert list(held.released()) == ["first", "second"]
    assert len(held) == 0
    assert not held.holds(7, "at once again")


def test_each_held_response_is_checked_after_the_previous_one_was_sent() -> None:
    """The lease may end between two responses."""
    may_answer = [True]
    held: HeldAnswers[str] = HeldAnswers(lambda position: may_answer[0] and position < 9)
    may_answer[0] = False
    held.holds(1, "a")
    held.holds(2, "b")
    may_answer[0] = True
    released = held.released()
    assert next(released) == "a"
    may_answer[0] = False
    assert list(released) == []
    assert len(held) == 1


# --- what goes to the standby --------------------------------------------------------------------


class Link:
    """The part of a leader that `StandbyFeed` uses."""

    def __init__(self, *outputs: bytes, follows: bool) -> None:
        self.outputs, self.follows, self.lost = list(outputs), follows, None
        self.link: Any = self

    @property
    def is_behind(self) -> bool:
        return bool(self.outputs)

    def take_output(self) -> bytes:
        return self.outputs.pop(0) if self.outputs else b""


def test_data_for_a_standby_that_catches_up_is_limited_by_the_rate() -> None:
    link = Link(b"x" * 1000, b"y" * 100, b"z", follows=False)
    feed = StandbyFeed(link, "s", timeout_s=1.0, catch_up_rate=1000)  # type: ignore[arg-type]
    assert feed.next_turn(may_write=True) == Turn(b"x" * 1000, 0.5), "no longer than it waits"
    assert feed.next_turn(may_write=False) == Turn(), "it goes on when there is room"
    assert feed.next_turn(may_write=True) == Turn(b"y" * 100, 0.1)
    link.follows = True
    link.outputs.append(b"more")
    assert feed.next_turn(may_write=True) == Turn(b"z", 0), "one that follows is not held up"


def test_the_connection_of_a_lost_standby_is_closed_even_if_it_accepts_no_bytes() -> None:
    link: Any = Link(b"x", follows=True)
    link.lost = "it said nothing"
    feed = StandbyFeed(link, "s", timeout_s=1.0, catch_up_rate=0)
    assert feed.next_turn(may_write=False) == Turn(end="it said nothing")
    assert list(feed.rest()) == []


@pytest.mark.parametrize("follows", [True, False])
def test_the_rest_of_the_data_is_sent_only_to_a_standby_that_follows(follows: bool) -> None:
    link: Any = Link(b"a", b"b", follows=follows)
    rest = list(StandbyFeed(link, "s", timeout_s=1.0, catch_up_rate=1).rest())
    assert rest == ([b"a", b"b"] if follows else [])


# --- how a leader ends ---------------------------------------------------------------------------


class Server:
    """A server that is about to end, and its lease. `said` has the calls that it received, in
    order.
    """

    def __init__(self, *, is_deposed: bool = False, failed: bool = False) -> None:
        self.is_deposed, self.failed, self.said = is_deposed, failed, []  # type: ignore[var-annotated]

    def close(self) -> None:
        self.said.append("close")

    def abandon(self) -> None:
        self.said.append("abandon")

    def begin_release(self) -> None:
        self.said.append("release")

    def stop(self) -> None:
        self.said.append("stop")


def ended(server: Any, *, has_lease: bool = True) -> list[str]:
    """Run the steps of a server's end. Gives its calls, and the events that the steps wait for."""
    for until in steps_of_end(server, server if has_lease else None):
        server.said.append(until.name)
    said: list[str] = server.said
    return said


def test_the_lease_is_released_after_the_rest_is_sent_to_the_standby() -> None:
    """Otherwise the standby would claim the lease immediately, and receive no more data. With
    asynchronous replication, the last acknowledged records would then be lost.
    """
    assert ended(Server()) == ["close", "REST_IS_SENT", "release", "RELEASED", "stop"]


def test_the_steps_of_a_leaders_end_without_a_lease_when_deposed_and_after_a_failure() -> None:
    assert ended(Server(), has_lease=False) == ["close", Until.REST_IS_SENT.name]
    assert ended(Server(is_deposed=True)) == ["abandon"]
    assert ended(Server(failed=True)) == ["close"], "the lease ends by itself"
    assert ended(Server(failed=True), has_lease=False) == ["close", "REST_IS_SENT"]
    for has_lease in (True, False):
        assert ended(Server(is_deposed=True, failed=True), has_lease=has_lease) == ["abandon"]


# --- what a leader makes of its lease ------------------------------------------------------------


class Keeper:
    node_id, role, failure, trouble = 1, Role.LEADING, None, ""
    in_sync = frozenset({1})

    def __init__(self) -> None:
        self.nodes = {1: NodeAddresses("", {}), 2: NodeAddresses("", {"PLAINTEXT": "b:9092"})}
        self.said: list[Any] = []

    def set_opened(self, *opened: Any) -> None:
        self.said.append(opened)


def new_lead() -> tuple[LeasedLead, Any, Any]:
    keeper: Any = Keeper()
    leading: Any = SimpleNamespace(
        link=None,
        follows=False,
        on_start=lambda: keeper.said.append("on_start"),
        on_in_sync_changed=lambda: keeper.said.append("on_in_sync_changed"),
    )
    return LeasedLead(keeper, leading, "c", 7), keeper, leading


def test_a_leader_whose_directory_is_open_updates_the_in_sync_set() -> None:
    lead, keeper, leading = new_lead()
    assert keeper.said == [("c", 7), "on_start"]
    assert leading.cluster_id == "c"
    assert lead.on_lease_changed()
    assert keeper.said[-1] == "on_in_sync_changed"


def test_clients_see_whether_the_standby_is_connected_and_in_sync() -> None:
    """The standby may take over if it is connected, lacks nothing, and is in the in-sync set."""
    lead, keeper, leading = new_lead()
    for connected, follows, in_sync in product((None, 2, 3), (False, True), ({1}, {1, 2})):
        leading.link = None if connected is None else SimpleNamespace(node_id=connected)
        leading.follows, keeper.in_sync = follows, frozenset(in_sync)
        assert lead.on_lease_changed()
        assert lead.standby is not None
        is_there, is_whole = connected == 2, follows and 2 in in_sync
        seen = (lead.standby.is_there, lead.standby.is_in_sync)
        assert seen == (is_there, is_there and is_whole), (connected, follows, in_sync)


def test_a_leader_ends_when_deposed_or_when_its_lease_fails() -> None:
    lead, keeper, _ = new_lead()
    keeper.role = Role.DEPOSED
    assert not lead.on_lease_changed()
    lead, keeper, _ = new_lead()
    keeper.failure = LeaseRecordError("of another cluster")
    assert not lead.on_lease_changed()
    assert "on_in_sync_changed" not in keeper.said


# --- nothing goes out past the lease -------------------------------------------------------------


class Leased:
    """A server with one connection. `has_lease` tells whether the node has the lease."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the attributes of a server that a connection uses, with a lease that the test can
        end.
        """
        self.loop = self.sockets = loop
        self.has_lease = True
        self.silence = lambda: None if self.has_lease else LAPSED
        self.turns = SimpleNamespace(on_released=lambda connection: None, holder=None)
        self.memory, self.max_frame_bytes = ReceiveMemory(), 1 << 20
        self.max_other_bytes = 1 << 20
        self.reasons: list[str | None] = []

    def disconnect(self, connection: Connection, reason: str | None) -> None:
        self.reasons.append(reason)
        connection.close()


@contextmanager
def connected() -> Iterator[tuple[Leased, Connection, socket.socket]]:
    """A connection of the server on a socket pair with a small send buffer. Gives the server, the
    connection and the client's socket.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    loop = asyncio.new_event_loop()
    server = Leased(loop)
    connection = Connection(server, 1, ours, "peer")
    try:
        yield server, connection, theirs
    finally:
        connection.close()
        theirs.close()
        loop.close()


def received(sock: socket.socket) -> int:
    """The number of bytes that have arrived and were not read yet."""
    sock.setblocking(False)
    count = 0
    try:
        while data := sock.recv(1 << 16):
            count += len(data)
    except BlockingIOError:
        pass
    return count


def test_buffered_bytes_of_a_connection_are_not_sent_after_the_lease() -> None:
    with connected() as (server, connection, client):
        connection.send((b"x" * 1_000_000,))
        sent = received(client)
        assert 0 < sent < 1_000_000, "the rest waits until the client takes more"
        connection._on_writable()
        assert received(client) > 0
        server.has_lease = False
        connection._on_writable()
        assert received(client) == 0
        assert server.reasons == [LAPSED]
        assert connection.closed


@pytest.mark.parametrize("is_gathered", [False, True])
def test_a_response_is_not_sent_after_the_lease(is_gathered: bool) -> None:
    with connected() as (server, connection, client):
        # This flag is set while the requests of the connection are passed to the core.
        connection._pumping = is_gathered
        connection.send((b"within",))
        server.has_lease = False
        connection.send((b"past",))
        connection.close()
        assert received(client) == (0 if is_gathered else len(b"within"))


def test_a_slice_of_a_file_is_not_sent_after_the_lease() -> None:
    with connected() as (server, connection, client):
        server.has_lease = False
        file: Any = SimpleNamespace(fileno=lambda: -1, pread=lambda size, position: b"x" * size)
        connection.send((b"head", Slice(file, 0, 100_000)))
        assert received(client) == 0
        assert server.reasons == [LAPSED]
