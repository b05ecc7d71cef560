"""The broker's cost of a request with one small record."""

from __future__ import annotations

import socket
import struct

from barnabas import LocalBroker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from bench.common import Row, create_topic, metered


def run(scale: float = 1.0) -> list[Row]:
    """Measure 30,000 Produce requests with one 100 B record each over one connection, 5 in
    flight.
    """
    count = int(30_000 * scale)
    with LocalBroker(in_memory=False) as broker:
        create_topic(broker, "bench", 1)
        one_by_one(broker, "bench", count // 10)
        with metered(broker) as meter:
            one_by_one(broker, "bench", count)
    return [
        Row(
            f"{count:,} requests of one 100 B record, 5 in flight",
            f"{meter.cpu_s:.2f} s = {meter.cpu_s / count * 1e6:.0f} us each",
            f"{meter.wall_s:.1f} s",
            "2.3 s = 77 us each",
            "1.5 s = 50 us each",
        )
    ]


def one_by_one(broker: LocalBroker, topic: str, count: int) -> None:
    """Send `count` requests, with at most five in flight."""
    batch = encode_batch([NewRecord(None, b"x" * 100, 1_700_000_000_000)])
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, batch)])
    frame = encode_request(
        ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 9, 1, "bench"
    )
    with socket.create_connection(("127.0.0.1", broker.port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = sock.makefile("rb")
        for sent in range(count + 5):
            if sent < count:
                sock.sendall(frame)
            if sent >= 5:
                (size,) = struct.unpack(">i", stream.read(4))
                stream.read(size)
        stream.close()
