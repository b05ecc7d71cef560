"""Admission to a leader's port: which of the connections becomes the standby."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable

import pytest
from sim.disk import SimDisk

from barnabas.replication import admission as admission_module
from barnabas.replication.admission import Admission, Reply
from barnabas.replication.following import Following
from barnabas.replication.leading import Leading, ReplicationSettings
from barnabas.replication.lease_record import NodeAddresses
from barnabas.replication.operations import Kind, Operation
from barnabas.replication.wire import NONCE_BYTES, VERSION, Frames, WireError, frame

SECRET, NONCE = "of both", b"n" * NONCE_BYTES
ANOTHER = "another standby is connected, and only one is possible"


def new_disk() -> SimDisk:
    disk = SimDisk(random.Random(0), lambda: 0)
    disk.mkdir("/x")
    return disk


def new_admission() -> tuple[Admission[str], Leading]:
    """The admission of a leader without a standby."""
    settings = ReplicationSettings(True, True, 1000, SECRET)
    leading = Leading(new_disk(), "/x", settings, lambda: None)
    return Admission(leading), leading


def connect(admission: Admission[str], peer: str, host: str = "h") -> str:
    """Add a connection. Gives: the connection that is closed to make room for the new one, or
    "".
    """
    made_room = admission.on_accepted(peer, host)
    admission.on_connected(peer, NONCE, 0)
    return "" if made_room is None else made_room.peer


def greet(
    admission: Admission[str], peer: str, secret: str = SECRET, *, node_id: int = 2
) -> tuple[Following, Reply]:
    """Act as a standby until the leader has received its proof. Gives: the standby's side, and the
    leader's reply.
    """
    following = Following(new_disk(), "/x", secret, NONCE, lambda: None, node_id=node_id)
    challenged = admission.on_bytes(peer, following.greeting(), 0)
    assert not challenged.end and not challenged.is_admitted
    (proven,) = following.on_bytes(challenged.data)
    return following, admission.on_bytes(peer, proven, 0)


def follow(admission: Admission[str], leading: Leading, peer: str) -> None:
    """Act as a standby until it has caught up."""
    following, reply = greet(admission, peer)
    assert reply == Reply(is_admitted=True)
    while not leading.follows:
        for answer in following.on_bytes(leading.take_output()):
            assert admission.on_bytes(peer, answer, 0) == Reply()


def test_a_connection_becomes_the_standbys_when_it_has_proved_the_secret() -> None:
    admission, leading = new_admission()
    assert connect(admission, "a") == ""
    assert admission.greeting == ["a"] and admission.standby is None and leading.link is None
    follow(admission, leading, "a")
    assert admission.greeting == [] and admission.standby == "a"
    assert admission.on_bytes("a", frame(["end"]), 0).end, "what it says wrongly ends it"


def test_a_second_standby_is_refused_with_a_reason_and_the_first_remains() -> None:
    admission, leading = new_admission()
    connect(admission, "a")
    follow(admission, leading, "a")
    connect(admission, "b")
    following, reply = greet(admission, "b")
    assert reply.end == ANOTHER and not reply.is_admitted
    with pytest.raises(WireError, match=f"it refuses this standby: {ANOTHER}"):
        list(following.on_bytes(reply.data))
    assert admission.standby == "a" and leading.follows
    assert not admission.on_closed("b"), "the closed connection was not the standby's"
    assert admission.standby == "a" and admission.greeting == []


class InSyncAlone:
    """The in-sync set of a lease that contains only this node."""

    node_id = 1

    def may_be_in_sync(self) -> frozenset[int]:
        return frozenset({1})

    def want_in_sync(self, node_ids: Iterable[int]) -> None:
        """Ignore the request, so that the set stays as it is."""

    def add_node(self, node_id: int, addresses: NodeAddresses) -> None:
        assert node_id != self.node_id, "the address of this node is overwritten"


def test_a_standby_with_the_leaders_own_node_id_is_refused_in_words_and_takes_no_place() -> None:
    """The mistake is in the settings of one node, and is corrected only there."""
    settings = ReplicationSettings(True, True, 1000, SECRET)
    leading = Leading(new_disk(), "/x", settings, lambda: None, InSyncAlone())
    admission: Admission[str] = Admission(leading)
    connect(admission, "a")
    following, reply = greet(admission, "a", node_id=1)
    assert "this node's node.id, 1: set another" in reply.end and not reply.is_admitted
    with pytest.raises(WireError, match="it refuses this standby: the standby has this node's"):
        list(following.on_bytes(reply.data))
    assert leading.link is None and admission.standby is None
    admission.on_closed("a")
    connect(admission, "b")
    follow(admission, leading, "b")


@pytest.mark.parametrize(
    "said", [["proof", b"", 1, "", {}], ["hello", VERSION + 1, NONCE], ["end"], ["welcome", ""]]
)
def test_a_connection_with_an_invalid_first_message_is_closed_without_a_response(
    said: list[object],
) -> None:
    admission, leading = new_admission()
    connect(admission, "a")
    reply = admission.on_bytes("a", frame(said), 0)
    assert reply.end and not reply.data and leading.link is None


def test_a_wrong_secret_closes_the_connection_without_a_response() -> None:
    admission, leading = new_admission()
    connect(admission, "a")
    reply = admission.on_bytes("a", frame(["hello", VERSION, NONCE]), 0)
    assert [name for name, *_ in Frames().feed(reply.data)] == ["challenge"]
    reply = admission.on_bytes("a", frame(["proof", b"p" * 32, 1, "", {}]), 0)
    assert reply == Reply(
        end="the standby has another barnabas.replication.secret: set the same on both"
    )
    assert leading.link is None


def test_what_the_leader_proves_proves_nothing_to_it() -> None:
    """A stranger tries to make the leader respond to its own challenge, by using another
    connection.
    """
    admission, leading = new_admission()
    for peer, nonce in (("a", NONCE), ("b", b"m" * NONCE_BYTES)):
        admission.on_accepted(peer, "h")
        admission.on_connected(peer, nonce, 0)

    def challenged(peer: str, nonce: bytes) -> tuple[bytes, bytes]:
        reply = admission.on_bytes(peer, frame(["hello", VERSION, nonce]), 0)
        ((_, its_nonce, proof),) = Frames().feed(reply.data)
        return its_nonce, proof

    nonce, proof = challenged("a", NONCE)
    _, proof_of_nonce = challenged("b", nonce)
    for shown in (proof, proof_of_nonce):
        reply = admission.on_bytes("a", frame(["proof", shown, 2, "", {}]), 0)
        assert reply.end and not reply.is_admitted
    assert leading.link is None


@pytest.mark.parametrize(("most", "most_by_descriptors"), [(3, sys.maxsize), (3, 9), (9, 3)])
def test_with_too_many_connections_the_busiest_host_loses_its_oldest(
    monkeypatch: pytest.MonkeyPatch, most: int, most_by_descriptors: int
) -> None:
    """A host with many connections loses the oldest of its own, and not a connection of another
    host.
    """
    monkeypatch.setattr(admission_module, "MOST_GREETING", most)
    _, leading = new_admission()
    admission: Admission[str] = Admission(leading, most_by_descriptors)
    hosts = {"s": "standby", "1": "stranger", "2": "stranger", "3": "stranger", "4": "stranger"}
    ended = [connect(admission, peer, host) for peer, host in hosts.items()]
    assert ended == ["", "", "", "1", "2"]
    assert admission.greeting == ["s", "3", "4"]
    assert admission.on_bytes("1", frame(["hello", VERSION, NONCE]), 0) == Reply()
    follow(admission, leading, "s")
    assert connect(admission, "5", "stranger") == "", "the standby takes no place among them"


def test_a_connection_that_ended_before_tls_was_set_up_is_forgotten() -> None:
    admission, _ = new_admission()
    admission.on_accepted("a", "h")
    assert not admission.on_closed("a")
    admission.on_connected("a", NONCE, 0)
    assert admission.greeting == []


def test_a_lost_standby_can_connect_again_and_follow() -> None:
    """The reason why the leader closed the earlier connection does not apply to the new one."""
    admission, leading = new_admission()
    connect(admission, "a")
    follow(admission, leading, "a")
    leading.on_tick(1001)
    assert leading.lost is not None
    assert admission.on_closed("a") and admission.standby is None
    leading.on_closed()
    connect(admission, "b")
    follow(admission, leading, "b")
    assert leading.lost is None and admission.standby == "b"
    leading.publish(Operation(Kind.CREATE, "f"))
    assert leading.take_output()
