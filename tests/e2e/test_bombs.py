"""What one client sends that takes long to check does not keep another from being served, by the
daemon itself.
"""

from __future__ import annotations

import socket
import struct

from helpers.e2e_clients import create_named_topic
from helpers.our_messages import request_frame

from barnabas import LocalBroker
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch

TIME_MS = 1_700_000_000_000


def produce(correlation_id: int, records: bytes) -> bytes:
    data = [
        TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    ]
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=data)
    frame = request_frame(request, 8, correlation_id)
    return struct.pack(">i", len(frame)) + frame


def answer(sock: socket.socket) -> int:
    """The error code of the only partition."""
    size = struct.unpack(">i", _exactly(sock, 4))[0]
    response = ProduceResponse.decode(memoryview(_exactly(sock, size))[4:], 8)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the daemon hung up"
        data += piece
    return data


def test_others_are_served_before_a_bomb_is_answered() -> None:
    """Of 400,000 records no two neighbours are alike, and behind them comes 1 GiB of zeros:
    another's requests are answered before.
    """
    bomb = bytes(encode_batch([NewRecord(None, bytes(1 << 30), TIME_MS)], codec=4))
    many = bytes(
        encode_batch(
            [NewRecord(None, b"x" * (number % 40), TIME_MS) for number in range(400_000)], codec=4
        )
    )
    small = bytes(encode_batch([NewRecord(None, b"v", TIME_MS)]))
    with LocalBroker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")

        def connect() -> socket.socket:
            return socket.create_connection((host, int(port)), timeout=60)

        with connect() as one, connect() as two, connect() as other:
            create_named_topic(broker.bootstrap_servers, "t")
            other.sendall(produce(1, small))
            assert answer(other) == 0
            one.sendall(produce(2, many))
            two.sendall(produce(3, bomb))
            for number in range(20):
                other.sendall(produce(10 + number, small))
                assert answer(other) == 0
            one.setblocking(False)
            two.setblocking(False)
            early = [sock for sock in (one, two) if _has_data(sock)]
            one.settimeout(60)
            two.settimeout(60)
            assert two not in early, (
                "the bomb, which waits behind the other, was answered before 20 small requests"
            )
            assert (answer(one), answer(two)) == (0, Code.MESSAGE_TOO_LARGE)


def _has_data(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
