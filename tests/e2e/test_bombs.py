"""A request that takes long to check does not delay other clients' requests to the daemon."""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest
from helpers.e2e_clients import create_named_topic
from helpers.our_messages import request_frame
from helpers.waiting_input import has_input

from barnabas import LocalBroker
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.primitives import write_uvarint
from barnabas.protocol.records import NewRecord, encode_batch

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

TIME_MS = 1_700_000_000_000


def produce(correlation_id: int, records: bytes) -> bytes:
    data = [
        TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    ]
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=data)
    frame = request_frame(request, 8, correlation_id)
    return struct.pack(">i", len(frame)) + frame


def answer(sock: socket.socket) -> int:
    """The error code of the only partition in a Produce response."""
    size = struct.unpack(">i", _exactly(sock, 4))[0]
    response = ProduceResponse.decode(memoryview(_exactly(sock, size))[4:], 8)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def _exactly(sock: socket.socket, size: int) -> bytes:
    """The next `size` bytes of the socket."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the daemon hung up"
        data += piece
    return data


def test_others_are_served_before_a_bomb_is_answered() -> None:
    """Other clients get responses while a large batch is checked, and before the next batch is
    checked.

    The first batch has 400,000 records, of which no two adjacent ones are equal. The next one
    decompresses to 1 GiB of zeros.
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
            return socket.create_connection((host, int(port)), timeout=600)

        with connect() as one, connect() as two, connect() as other:
            create_named_topic(broker.bootstrap_servers, "t")
            other.sendall(produce(1, small))
            assert answer(other) == 0
            one.sendall(produce(2, many))
            two.sendall(produce(3, bomb))
            served = 0
            while not has_input(two):
                other.sendall(produce(10 + served, small))
                assert answer(other) == 0
                served += 1
            assert served > 1, "nobody was served while the bomb waited behind the other"
            assert (answer(one), answer(two)) == (0, Code.MESSAGE_TOO_LARGE)


def _peak_mib(pid: int) -> int:
    """The peak memory of a process in MiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024


def _frame(rows: bytes, count: int) -> bytes:
    """A Produce request of version 9 with `count` partitions of the topic "t"."""
    number = bytearray()
    write_uvarint(number, count + 1)
    head = struct.pack(">hhihbbhi", 0, 9, 7, -1, 0, 0, 1, 1000)
    body = head + b"\2\2t" + number + rows + b"\0\0"
    return struct.pack(">i", len(body)) + body


def _row(records: bytes) -> bytes:
    """One partition of a Produce request, with index 0."""
    size = bytearray()
    write_uvarint(size, len(records) + 1)
    return bytes(4) + size + records + b"\0"


def test_no_produce_of_100_mib_makes_the_daemon_large() -> None:
    """The daemon's peak memory remains below 350 MiB for Produce requests near the size limit.

    If a request has so many partitions that objects for them would need gigabytes, the daemon
    closes the connection. Large batches, and batches that decompress to 400 MiB, get a response.
    """
    small = _row(bytes(encode_batch([NewRecord(None, b"", TIME_MS)])))
    large = _row(bytes(encode_batch([NewRecord(None, bytes(1_000_000), TIME_MS)])))
    middle = _row(bytes(encode_batch([NewRecord(None, bytes(6_000), TIME_MS)])))
    bomb = _row(bytes(encode_batch([NewRecord(None, bytes(10 << 20), TIME_MS)], codec=4)))
    refused = [_frame(row * (n := (100 << 20) // len(row) - 9), n) for row in (bytes(6), small)]
    taken = [_frame(large * 99, 99), _frame(middle * 15_900, 15_900), _frame(bomb * 40, 40)]
    with LocalBroker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        create_named_topic(broker.bootstrap_servers, "t")
        for frame in refused:
            with (
                socket.create_connection((host, int(port)), timeout=600) as sock,
                contextlib.suppress(ConnectionError),
            ):
                sock.sendall(frame)
                assert sock.recv(1) == b"", "it was answered"
        for frame in taken:
            with socket.create_connection((host, int(port)), timeout=600) as sock:
                sock.sendall(frame)
                _exactly(sock, struct.unpack(">i", _exactly(sock, 4))[0])
        assert _peak_mib(broker.pid) < 350
