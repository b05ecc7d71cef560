"""A node that is not the leader forwards its clients' requests to the leader. The tests use the
loopback interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.settings.config import BrokerConfig
from barnabas.replication.rim import reception as reception_module
from barnabas.replication.rim.reception import Reception, may_be_carried

METADATA, FETCH, END_TXN = 3, 1, 26
PATIENCE_S = 30.0
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def frame(api_key: int, text: bytes = b"") -> bytes:
    body = struct.pack(">h", api_key) + text
    return struct.pack(">i", len(body)) + body


def receive(sock: socket.socket, count: int) -> bytes:
    """Receive up to `count` bytes, or fewer if the connection ends."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while len(data) < count and (part := sock.recv(count - len(data))):
            data += part
    return data


class Leader:
    """A fake leader that responds to each frame with its name. With `hangs`, it closes the
    connection instead of responding. With `is_stuck`, it neither responds nor closes the
    connection.
    """

    def __init__(self, name: bytes, *, hangs: bool = False, is_stuck: bool = False) -> None:
        self._name, self._hangs, self._is_stuck = name, hangs, is_stuck
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self.frames: list[bytes] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        """Store each frame, and respond with the leader's name. Depending on the options, close the
        connection after a frame, or never respond.
        """
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            while size := receive(sock, 4):
                self.frames.append(receive(sock, struct.unpack(">i", size)[0]))
                if self._hangs:
                    break
                if self._is_stuck:
                    continue
                sock.sendall(struct.pack(">i", len(self._name)) + self._name)
            sock.close()

    def close(self) -> None:
        self._listening.close()


class Scarce(socket.socket):
    """A listening socket that has no file descriptor for its first connections."""

    refusals, asked = 3, 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Fail for the first connections, as when no file descriptors are left."""
        self.asked += 1
        if self.asked <= self.refusals:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


class Node:
    """The reception of a node, with the leader that the node knows. `is_scarce`: whether the first
    attempts to accept a connection fail.
    """

    def __init__(self, *, is_scarce: bool = False, **properties: str) -> None:
        """A node that is not the leader, and forwards requests to `leader`. With `is_scarce`, no
        file descriptor is free at its first attempts to accept a connection.
        """
        self._is_scarce = is_scarce
        self.leader: tuple[str, int] | None = None
        config = BrokerConfig.from_properties(
            {name.replace("_", "."): text for name, text in properties.items()}
        )
        self.listening: list[socket.socket] = []
        self.reception = Reception(config, self._listen, lambda name: self.leader)
        self.reception.start()

    def _listen(self, listeners: list[Any]) -> list[socket.socket]:
        made = [socket.create_server(("127.0.0.1", 0)) for _ in listeners]
        if self._is_scarce:
            made = [Scarce(fileno=sock.detach()) for sock in made]
        for sock in made:
            sock.setblocking(False)
        self.listening += made
        return made

    def connect(self) -> socket.socket:
        address = self.listening[0].getsockname()
        return socket.create_connection(address, timeout=PATIENCE_S)


@pytest.fixture
def new_leader() -> Iterator[Callable[..., Leader]]:
    made: list[Leader] = []

    def new(*arguments: Any, **named: Any) -> Leader:
        made.append(Leader(*arguments, **named))
        return made[-1]

    yield new
    for leader in made:
        leader.close()


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.reception.close()


def test_a_request_goes_to_the_leader_and_to_its_successor(
    node: Node, new_leader: Callable[..., Leader]
) -> None:
    first, second = new_leader(b"one"), new_leader(b"two")
    node.leader = first.address
    with node.connect() as client:
        client.sendall(frame(METADATA, b"x") + frame(END_TXN))
        assert receive(client, 14)[4:7] == b"one"
        node.leader = second.address
        client.sendall(frame(END_TXN))
        assert receive(client, 7)[4:] == b"two"
    assert first.frames == [frame(METADATA, b"x")[4:], frame(END_TXN)[4:]]


def test_a_request_waits_until_there_is_a_leader(
    node: Node, new_leader: Callable[..., Leader]
) -> None:
    with node.connect() as client:
        client.sendall(frame(METADATA))
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        node.leader = new_leader(b"one").address
        client.settimeout(PATIENCE_S)
        assert receive(client, 7)[4:] == b"one"


def test_without_descriptors_a_client_waits_until_there_are_some(
    new_leader: Callable[..., Leader],
) -> None:
    """The waiting connection keeps the listening socket readable, so the event loop could try to
    accept it again and again without a pause.
    """
    node = Node(is_scarce=True)
    node.leader = new_leader(b"one").address
    with node.connect() as client:
        client.sendall(frame(METADATA))
        assert receive(client, 7)[4:] == b"one"
    (listening,) = node.listening
    assert isinstance(listening, Scarce) and listening.asked == listening.refusals + 1
    node.reception.close()


def test_beyond_the_number_of_clients_one_is_refused_until_another_one_has_gone(
    node: Node, new_leader: Callable[..., Leader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception_module, "MOST_CONNECTIONS", 2)
    clients = [node.connect() for _ in range(3)]
    assert receive(clients[2], 1) == b"", (
        "the third connection is closed, and the first two wait for a leader"
    )
    clients.pop().close()
    node.leader = new_leader(b"one").address
    for client in clients:
        client.sendall(frame(METADATA))
        assert receive(client, 7)[4:] == b"one"
        client.close()
    answer = b""
    for _ in range(1000):  # the node notices the end of a connection a little later
        if answer:
            break
        with node.connect() as client, contextlib.suppress(OSError):
            client.sendall(frame(METADATA))
            answer = receive(client, 7)
    assert answer[4:] == b"one"


@pytest.mark.parametrize(("api_key", "is_asked_again"), [(METADATA, True), (END_TXN, False)])
def test_only_requests_without_effects_are_sent_again_to_the_next_leader(
    node: Node, new_leader: Callable[..., Leader], api_key: int, is_asked_again: bool
) -> None:
    """The leader ends the connection after it has received the request. Metadata may be sent again,
    to the next leader. EndTxn must not, since it may already have been carried out.
    """
    lost, successor = new_leader(b"", hangs=True), new_leader(b"two")
    node.leader = lost.address
    with node.connect() as client:
        client.sendall(frame(api_key))
        while not lost.frames:
            pass
        node.leader = successor.address
        assert receive(client, 7)[4:] == (b"two" if is_asked_again else b"")


@pytest.mark.parametrize(("api_key", "is_asked_again"), [(METADATA, True), (END_TXN, False)])
def test_a_request_does_not_wait_for_a_stuck_leader_once_another_node_leads(
    node: Node, new_leader: Callable[..., Leader], api_key: int, is_asked_again: bool
) -> None:
    """The machine of the stuck leader may be down. In this case the connection to it does not
    end.
    """
    stuck, successor = new_leader(b"", is_stuck=True), new_leader(b"two")
    node.leader = stuck.address
    with node.connect() as client:
        client.sendall(frame(api_key))
        while not stuck.frames:
            pass
        node.leader = successor.address
        assert receive(client, 7)[4:] == (b"two" if is_asked_again else b"")


@pytest.mark.parametrize("data", [frame(FETCH), struct.pack(">i", 1 << 30), b"\0\0\0\1x"])
def test_other_requests_and_malformed_frames_close_the_connection(
    node: Node, new_leader: Callable[..., Leader], data: bytes
) -> None:
    node.leader = new_leader(b"one").address
    with node.connect() as client:
        client.sendall(data)
        assert receive(client, 1) == b""


def test_the_broker_gets_the_connections_when_it_leads(
    node: Node, new_leader: Callable[..., Leader]
) -> None:
    """A node that forwarded a client's requests becomes the leader. Its broker takes over the
    client's connection, and gets the client's next request.
    """
    node.leader = new_leader(b"one").address
    handed: list[tuple[str, socket.socket]] = []
    is_handed = threading.Event()

    def heir(name: str, sock: socket.socket) -> None:
        handed.append((name, sock))
        is_handed.set()

    with node.connect() as client:
        client.sendall(frame(METADATA))
        receive(client, 7)
        (listening,) = node.reception.take()
        assert listening in node.listening
        node.reception.hand_over(heir)
        assert is_handed.wait(PATIENCE_S)
        ((name, sock),) = handed
        sock.setblocking(True)
        client.sendall(frame(FETCH))
        assert (name, receive(sock, 6)) == ("PLAINTEXT", frame(FETCH))
        sock.close()
    listening.close()


def test_a_forwarded_request_is_answered_before_its_connection_is_handed_over(
    node: Node, new_leader: Callable[..., Leader]
) -> None:
    """The request waited for a leader, and in the meantime this node has become the leader."""
    handed: list[socket.socket] = []
    is_handed = threading.Event()

    def heir(name: str, sock: socket.socket) -> None:
        handed.append(sock)
        is_handed.set()

    with node.connect() as client:
        client.sendall(frame(METADATA))
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(PATIENCE_S)
        (listening,) = node.reception.take()
        node.reception.hand_over(heir)
        node.leader = new_leader(b"one").address
        assert receive(client, 7)[4:] == b"one"
        assert is_handed.wait(PATIENCE_S)
        handed[0].close()
    listening.close()


@pytest.mark.parametrize(
    ("listener", "settings", "is_carried"),
    [
        ("PLAINTEXT://127.0.0.1:1", {}, True),
        ("SSL://127.0.0.1:1", {"ssl.keystore.location": "/k.pem"}, False),
        (
            "SASL_PLAINTEXT://127.0.0.1:1",
            {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},
            False,
        ),
        ("unix:///b.sock", {}, False),
        ("PLAINTEXT://127.0.0.1:1", {"authorizer.class.name": AUTHORIZER}, False),
        ("PLAINTEXT://127.0.0.1:1", {"barnabas.audit.log": "/a.log"}, False),
    ],
)
def test_requests_are_forwarded_only_for_listeners_without_security(
    listener: str, settings: dict[str, str], is_carried: bool
) -> None:
    """A node that is not the leader cannot authenticate, authorize or audit clients. It therefore
    serves only plain TCP listeners of brokers without ACLs and audit log.
    """
    config = BrokerConfig.from_properties({"listeners": listener, **settings})
    (one,) = config.listeners
    assert may_be_carried(config, one) is is_carried


def test_with_an_authorizer_clients_are_refused() -> None:
    node = Node(authorizer_class_name=AUTHORIZER)
    assert node.listening == []
    (listening,) = node.reception.take()
    listening.close()


@pytest.mark.parametrize("rounds", range(6))
def test_a_request_that_arrives_during_the_hand_over_reaches_the_broker_whole(
    node: Node, rounds: int
) -> None:
    """The hand-over may occur in any round of the event loop. If a byte were missing, the broker
    would read a wrong frame size and wait for the rest of the frame.
    """
    asked = frame(METADATA, b"asked")

    async def race(mine: socket.socket, theirs: socket.socket) -> bytes:
        reading = asyncio.ensure_future(node.reception._next_request(mine))
        for _ in range(3):
            await asyncio.sleep(0)
        theirs.sendall(asked)
        for _ in range(rounds):
            await asyncio.sleep(0)
        node.reception._heir = lambda name, sock: None
        if reading in node.reception._idle:
            reading.cancel()
        return await reading or mine.recv(100)

    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    with mine, theirs:
        assert asyncio.run(race(mine, theirs)) == asked
