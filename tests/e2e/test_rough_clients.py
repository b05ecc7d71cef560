"""Clients that misbehave do not disturb others: invalid bytes, slow readers, many connections,
incomplete requests.
"""

from __future__ import annotations

import random
import socket
import struct

import psutil
import pytest
from helpers.e2e_clients import PATIENCE_S, create_topic, eventually, producer, send_all, values_of
from helpers.e2e_wire import Wire
from sim import wire

from barnabas import LocalBroker
from barnabas.protocol.messages.metadata import MetadataRequest

pytestmark = pytest.mark.e2e

METADATA = wire.request(MetadataRequest(topics=[]), 1)


def _connect(broker: LocalBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE_S)


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


BAD_BYTES = {
    "a web browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "a negative size": struct.pack(">i", -5),
    "a size of two gigabytes": struct.pack(">i", 2**31 - 1) + b"x" * 100,
    "an empty request": _framed(b""),
    "a request of three bytes": _framed(b"abc"),
    "an API that there is not": _framed(struct.pack(">hhih", 999, 0, 1, -1)),
    "a version that there is not": _framed(struct.pack(">hhih", 3, 99, 1, -1)),
    "a cut-off body": _framed(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 5)),
    "an array that is too long": _framed(
        struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1)
    ),
    "a produce request of noise": _framed(struct.pack(">hhih", 0, 8, 1, -1) + bytes(range(256))),
}


@pytest.mark.parametrize("what", BAD_BYTES)
def test_invalid_bytes_end_only_their_own_connection(broker: LocalBroker, what: str) -> None:
    with Wire(broker.port) as other, Wire(broker.port) as bad:
        other.call(METADATA)
        bad.socket.sendall(BAD_BYTES[what])
        assert bad.is_closed_by_broker()
        assert other.call(METADATA).brokers


def test_corrupt_requests_do_not_disturb_other_clients(broker: LocalBroker) -> None:
    """A thousand corrupt requests of all kinds are sent, from a fixed seed. Each gets a response,
    or its connection is closed. There is no error in the log and no crash.
    """
    generator = random.Random(20)
    topic = create_topic(broker.bootstrap_servers, "noise")
    connection = _connect(broker)
    for _ in range(1000):
        key, version = (
            generator.choice(
                [
                    0,
                    1,
                    2,
                    3,
                    8,
                    9,
                    10,
                    11,
                    12,
                    13,
                    14,
                    15,
                    16,
                    18,
                    19,
                    20,
                    22,
                    24,
                    25,
                    26,
                    28,
                    32,
                    37,
                    42,
                    44,
                ]
            ),
            generator.randrange(10),
        )
        if key in (19, 20, 37, 42, 32, 44):  # APIs with few versions
            version = generator.randrange(3)
        body = struct.pack(">hhih", key, version, 7, -1) + generator.randbytes(
            generator.choice([0, 1, 4, 20, 200])
        )
        try:
            connection.sendall(_framed(body))
            connection.settimeout(0.01)
            if not connection.recv(65536):
                raise ConnectionError
        except (ConnectionError, TimeoutError):
            connection.close()
            connection = _connect(broker)
    connection.close()
    send_all(broker.bootstrap_servers, topic, [b"well"])
    assert values_of(broker.bootstrap_servers, topic) == [b"well"]


def test_two_hundred_connections_at_once(broker: LocalBroker) -> None:
    process = psutil.Process(broker.pid)
    connections = [Wire(broker.port) for _ in range(200)]
    for connection in connections:
        connection.send(METADATA)
    for connection in connections:
        assert connection.receive(METADATA).brokers
    ours = {connection.socket.getsockname()[1] for connection in connections}

    def held() -> set[int]:
        return ours & {each.raddr.port for each in process.net_connections("tcp") if each.raddr}

    assert held() == ours
    for connection in connections:
        connection.socket.close()
    eventually(lambda: not held(), what="the broker lets go of the connections")


def test_fifty_producers_at_once(servers: str) -> None:
    topic = create_topic(servers, "fifty", 10)
    clients = [producer(servers) for _ in range(50)]
    for number in range(20):
        for index, client in enumerate(clients):
            client.produce(topic, b"%d-%d" % (index, number), partition=index % 10)
    for client in clients:
        assert client.flush(PATIENCE_S) == 0
    found = values_of(servers, topic)
    assert sorted(found) == sorted(
        b"%d-%d" % (index, number) for index in range(50) for number in range(20)
    )


def test_a_request_in_single_bytes_is_answered(broker: LocalBroker) -> None:
    with Wire(broker.port) as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = wire.frame(METADATA, 1)
        connection._correlation_id = 1
        for byte in _framed(frame):
            connection.socket.sendall(bytes([byte]))
        assert connection.receive(METADATA).brokers


def test_many_requests_in_one_go_are_answered_in_order(broker: LocalBroker) -> None:
    with Wire(broker.port) as connection:
        connection.socket.sendall(
            b"".join(_framed(wire.frame(METADATA, number)) for number in range(1, 301))
        )
        for number in range(1, 301):
            connection._correlation_id = number
            assert connection.receive(METADATA).brokers


def test_an_incomplete_request_does_not_delay_other_clients(broker: LocalBroker) -> None:
    with Wire(broker.port) as half, Wire(broker.port) as other:
        half.socket.sendall(struct.pack(">i", 50_000_000) + b"\0" * 1000)
        # The request gets a response although the first client never sends the rest of its own
        # request.
        assert other.call(METADATA).brokers


def test_announced_request_sizes_take_no_memory(broker: LocalBroker) -> None:
    """Forty clients announce requests of 100 MB and send none of their bytes."""
    process = psutil.Process(broker.pid)
    before = process.memory_info().rss
    connections = [_connect(broker) for _ in range(40)]
    for connection in connections:
        connection.sendall(struct.pack(">i", 100_000_000) + b"\0\3")
    with Wire(broker.port) as other:
        for _ in range(20):
            assert other.call(METADATA).brokers
    assert process.memory_info().rss - before < 60_000_000
    for connection in connections:
        connection.close()


def test_clients_that_read_no_responses_do_not_make_the_broker_grow(
    broker: LocalBroker,
) -> None:
    """Clients send thousands of fetches of a megabyte each, and read none of the responses."""
    topic = create_topic(broker.bootstrap_servers, "slow", max_message_bytes=str(3 << 20))
    send_all(broker.bootstrap_servers, topic, [bytes(1 << 20)] * 8, message_max_bytes=3 << 20)
    process = psutil.Process(broker.pid)
    before = process.memory_info().rss
    slow = [Wire(broker.port) for _ in range(20)]
    for connection in slow:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.socket.setblocking(False)
        request = _framed(
            wire.frame(
                wire.fetch(
                    [(topic, 0, 0)],
                    committed=True,
                    max_wait_ms=0,
                    max_bytes=8 << 20,
                    partition_max_bytes=8 << 20,
                ),
                1,
            )
        )
        try:
            for _ in range(2000):
                connection.socket.sendall(request)
        except BlockingIOError:
            pass  # the broker reads no more requests from a client that reads no responses
    with Wire(broker.port) as other:
        for _ in range(50):
            assert other.call(METADATA).brokers
        grown = process.memory_info().rss - before
    for connection in slow:
        connection.socket.close()
    assert grown < 30_000_000, f"{grown / 1e6:.0f} MB"
    assert len(values_of(broker.bootstrap_servers, topic)) == 8


def test_a_waiting_fetch_of_a_closed_connection_does_not_disturb_other_clients(
    broker: LocalBroker,
) -> None:
    topic = create_topic(broker.bootstrap_servers, "gone")
    for _ in range(50):
        with Wire(broker.port) as connection:
            connection.send(wire.fetch([(topic, 0, 0)], committed=False, max_wait_ms=60_000))
    send_all(broker.bootstrap_servers, topic, [b"v"])
    assert values_of(broker.bootstrap_servers, topic) == [b"v"]
