"""The steps of a node of a pair until it becomes the leader."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from sim.disk import SimDisk

from barnabas.replication import standby_steps
from barnabas.replication.following import Following
from barnabas.replication.leadership import Role
from barnabas.replication.lease_record import (
    LeaseRecord,
    LeaseRecordError,
    NodeAddresses,
)
from barnabas.replication.member_steps import MemberSteps, node_of
from barnabas.replication.standby_steps import (
    Connect,
    Copy,
    HangUp,
    Receive,
    Send,
    StandbySteps,
    Steps,
    Wait,
)
from barnabas.replication.wire import NONCE_BYTES
from barnabas.storage.files.leader_epochs import HighestEpoch

ADDRESS = ("127.0.0.1", 9)
REFUSED = ConnectionRefusedError(111, "Connection refused")


def record_of(leader: int | None, address: str = "127.0.0.1:9") -> LeaseRecord:
    nodes = {1: NodeAddresses("127.0.0.1:8", {}), 2: NodeAddresses(address, {})}
    return LeaseRecord("c", leader, "s", 3, frozenset({1, 2}), nodes, "w")


class CountedSync:
    """A fake sync. `begun`, `finished` and `written` count the calls of its methods."""

    def __init__(self) -> None:
        self.begun = self.finished = self.written = 0

    def on_written(self) -> None:
        self.written += 1

    def begin(self) -> None:
        self.begun += 1

    def finish(self) -> None:
        self.finished += 1


class Member:
    """The steps of node 1 with the objects that they use. `closed` has an entry for each connection
    that was closed.
    """

    def __init__(self) -> None:
        """Prepare the steps of node 1, which a test runs by hand: it sends the result of each step.
        The keeper of the lease is a stand-in whose record names node 2 as the leader.
        """
        self.disk = SimDisk(random.Random(0), lambda: 0)
        self.disk.mkdir("/x")
        self.now_s, self.sync = 100.0, CountedSync()
        self.keeper: Any = SimpleNamespace(
            node_id=1,
            role=Role.WATCHING,
            failure=None,
            record=record_of(2),
            unchanged_ms=0,
            trouble="",
            obstacle="",
        )
        self.closed: list[bool] = []
        self.copy = Copy(self.disk, "/x", self.sync, self.new_following)
        self.member = MemberSteps(
            self.copy,
            1.0,
            keeper=self.keeper,
            session="s1",
            ttl_ms=3000,
            now_s=lambda: self.now_s,
        )
        self.steps = self.member.run()

    def new_following(self, make_durable: Callable[[], None]) -> Following:
        following = Following(self.disk, "/x", "", b"n" * NONCE_BYTES, make_durable, node_id=1)
        following.close = lambda: self.closed.append(True)  # type: ignore[method-assign]
        return following

    def wait_for_connect(self) -> float:
        """Let time pass until the member connects. Gives: the number of seconds."""
        began_s, step = self.now_s, self.steps.send(None)
        while isinstance(step, Wait):
            self.now_s += step.seconds
            step = self.steps.send(None)
        assert step == Connect(ADDRESS, 0.75)
        return round(self.now_s - began_s, 3)

    def refuse(self) -> None:
        """Let the leader's machine refuse the connection."""
        assert self.steps.throw(REFUSED) == HangUp()


def test_pauses_grow_while_a_leader_cannot_be_followed() -> None:
    one = Member()
    pauses = []
    for _ in range(7):
        pauses.append(one.wait_for_connect())
        one.refuse()
    assert pauses == sorted(pauses)
    assert pauses[0] == 0 and 2.0 <= pauses[-1] <= 2.2


def test_another_leader_is_tried_at_once() -> None:
    """A node that could not connect pauses for longer and longer. When the lease's record names
    another leader, the node connects to it without the pause.
    """
    one = Member()
    for _ in range(6):
        one.wait_for_connect()
        one.refuse()
    assert isinstance(one.steps.send(None), Wait)
    one.keeper.record, changed_s = record_of(2, "127.0.0.1:10"), one.now_s
    step = one.steps.send(None)
    while isinstance(step, Wait):
        one.now_s += step.seconds
        step = one.steps.send(None)
    assert one.now_s - changed_s < 0.3, "the pause applies only to the former leader"
    assert step == Connect(("127.0.0.1", 10), 0.75)


def test_a_member_hangs_up_as_soon_as_it_leads() -> None:
    """Once the member's claim is in the lease record, the node at the other end of the connection
    is not the leader any more.
    """
    one = Member()
    one.wait_for_connect()
    assert isinstance(one.steps.send(None), Send)
    assert isinstance(one.steps.send(None), Receive)
    one.keeper.role = Role.LEADING
    assert one.steps.throw(TimeoutError()) == HangUp()
    with pytest.raises(StopIteration):
        one.steps.send(None)
    assert one.disk.read("/x/barnabas-lease-session") == b"s1\n"


def test_a_member_disconnects_from_a_leader_that_is_silent_for_the_timeout() -> None:
    one = Member()
    one.wait_for_connect()
    step: Any = one.steps.send(None)
    assert isinstance(step, Send)
    step, began_s = one.steps.send(None), one.now_s
    while isinstance(step, Receive):
        one.now_s += step.timeout_s
        step = one.steps.throw(TimeoutError())
    assert step == HangUp()
    assert 1.0 <= one.now_s - began_s < 1.2


@pytest.mark.parametrize("failure", [None, ConnectionResetError(104, "reset")])
def test_received_changes_are_synced_and_their_files_closed_when_the_connection_ends(
    failure: OSError | None,
) -> None:
    """The last write on a connection is synced as well, since some operations of an incomplete
    message may have been applied.
    """
    one = Member()
    one.wait_for_connect()
    one.steps.send(None)
    one.steps.send(None)
    written = one.sync.written
    assert isinstance(one.steps.send(b"\0"), Receive)
    assert one.sync.written == written + 1
    assert not one.closed
    step = one.steps.send(b"") if failure is None else one.steps.throw(failure)
    assert step == HangUp()
    assert one.sync.written == written + 2
    assert one.closed == [True]


def test_a_copy_is_flushed_early_while_the_lease_is_not_renewed() -> None:
    """The lease has not been renewed for a third of its TTL (1000 of 3000 ms). The member may soon
    become the leader, and its copy must then be durable.
    """
    one = Member()
    one.wait_for_connect()
    one.steps.send(None)
    one.steps.send(None)
    one.keeper.unchanged_ms = 999
    one.steps.throw(TimeoutError())
    assert one.sync.begun == 0
    one.keeper.unchanged_ms = 1000
    one.steps.throw(TimeoutError())
    assert one.sync.begun == 1


def test_a_copy_is_flushed_before_it_counts_as_caught_up() -> None:
    """The flush covers the whole copy, including what was written since the latest flush began."""
    one = Member()
    written = one.sync.written
    one.member.on_caught_up()
    assert (one.sync.written, one.sync.finished) == (written + 1, 1)


@pytest.mark.parametrize(("epochs", "known"), [([], 0), ([7], 7), ([7, 9], 9)])
def test_a_node_reports_the_highest_leader_epoch_of_its_directory(
    epochs: list[int], known: int
) -> None:
    """The epoch shows whether a directory is an older copy, which must not lead."""
    one = Member()
    for epoch in epochs:
        HighestEpoch(one.disk, "/x").write(epoch)
    addresses = NodeAddresses("127.0.0.1:8", {})
    node = node_of(one.disk, "/x", 1, addresses, "s1")
    assert (node.node_id, node.addresses, node.session) == (1, addresses, "s1")
    assert node.leader_epoch == known


def test_a_copy_gets_this_nodes_id_when_the_node_leads() -> None:
    one = Member()
    one.disk.write_atomic("/x/barnabas-standby", b"following: answers wait always\n")
    one.disk.write_atomic("/x/meta.properties", b"node.id=2\ncluster.id=c\n")
    one.keeper.role, written = Role.LEADING, one.sync.written
    with pytest.raises(StopIteration):
        one.steps.send(None)
    assert b"node.id=1" in one.disk.read("/x/meta.properties")
    assert one.sync.written > written, "it is made durable with the copy"


def test_a_failed_lease_ends_the_steps_without_changes() -> None:
    one = Member()
    one.wait_for_connect()
    one.keeper.failure = LeaseRecordError("of another cluster")
    one.refuse()
    with pytest.raises(StopIteration):
        one.steps.send(None)
    assert not one.disk.exists("/x/barnabas-lease-session")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9", ("127.0.0.1", 9)),
        ("leader.example:19093", ("leader.example", 19093)),
        ("[2001:db8::1]:9", ("2001:db8::1", 9)),
        ("[::1]:9", ("::1", 9)),
    ],
)
def test_a_node_connects_to_the_address_that_the_record_has(
    text: str, address: tuple[str, int]
) -> None:
    one = Member()
    one.keeper.record = record_of(2, text)
    assert one.steps.send(None) == Connect(address, 0.75)


def test_a_record_without_the_leaders_address_is_an_error() -> None:
    one = Member()
    one.keeper.record = record_of(2, "nowhere")
    with pytest.raises(LeaseRecordError, match="has no address of its leader 2"):
        one.steps.send(None)


def test_a_failure_of_this_nodes_disk_ends_the_steps() -> None:
    one = Member()
    one.wait_for_connect()
    with pytest.raises(OSError, match="Input/output error"):
        one.steps.throw(OSError(5, "Input/output error", "/x/t-0"))


# --- one connection after the other --------------------------------------------------------------

ENDS = {
    "refused": "Connection refused",
    "silent": standby_steps.SILENT,
    "followed": "it closed the connection",
}


class CatchesUp:
    """A follower that has caught up with the first bytes."""

    def __init__(self, make_durable: Callable[[], None]) -> None:
        self._make_durable, self.has_caught_up = make_durable, False

    def greeting(self) -> bytes:
        return b"hello"

    def on_bytes(self, data: bytes) -> tuple[bytes, ...]:
        self._make_durable()
        self.has_caught_up = True
        return ()

    def close(self) -> None:
        """There are no files to close."""


def let_end(steps: Steps, end: str) -> None:
    """End the connection that the steps have just requested in one of the ways in ENDS."""
    if end == "refused":
        assert steps.throw(REFUSED) == HangUp()
        return
    assert isinstance(steps.send(None), Send)
    assert isinstance(steps.send(None), Receive)
    if end == "followed":
        assert isinstance(steps.send(b"all"), Receive)
    assert steps.send(b"") == HangUp()


def lines_of(ends: tuple[str, ...]) -> list[str]:
    """Return the expected lines of the log. An end is logged if its line differs from the line
    before.
    """
    lines: list[str] = []
    for end in ends:
        if end == "followed":
            lines.append("caught up")
        if lines[-1:] != [ENDS[end]]:
            lines.append(ENDS[end])
    return lines


def what_lines_say(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [text.partition(" is not followed: ")[2] or text[:9] for text in caplog.messages]
    caplog.clear()
    return lines


def test_a_standby_waits_longer_after_each_failure_and_says_once_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """This holds for all sequences of failed connections. Once a copy has caught up, the pauses are
    short again, and the next failure is logged again.
    """
    copy = Member().copy._replace(new_following=CatchesUp)  # type: ignore[arg-type]
    long_outage = ("refused",) * 8
    for ends in (long_outage, (*long_outage, "followed", *long_outage), *product(ENDS, repeat=3)):
        steps, pause_s = StandbySteps(copy, 1.0, ADDRESS).run(), 0.1
        for end in ends:
            assert steps.send(None) == Connect(ADDRESS, 1.0)
            let_end(steps, end)
            pause_s = 0.1 if end == "followed" else pause_s
            assert steps.send(None) == Wait(pause_s)
            pause_s = min(2 * pause_s, 5.0)
        assert what_lines_say(caplog) == lines_of(ends), ends


def test_a_member_waits_longer_after_each_failure_and_says_once_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for ends in product(ENDS, repeat=3):
        one, pause_s = Member(), 0.0
        one.member.copy = one.copy._replace(new_following=CatchesUp)  # type: ignore[arg-type]
        for end in ends:
            assert pause_s <= one.wait_for_connect() + 1e-6 <= pause_s + 0.3
            let_end(one.steps, end)
            pause_s = 0.0 if end == "followed" else min(max(2 * pause_s, 0.1), 2.0)
        one.wait_for_connect()
        assert what_lines_say(caplog) == lines_of(ends), ends
