"""What does a request of one small record cost the broker?"""

from __future__ import annotations

import socket
import struct

from barnabas import BrokerProcess
from barnabas.protocol import messages
from barnabas.protocol.records import NewRecord, encode_batch
from bench.common import Row, create_topic, metered


def run(scale: float = 1.0) -> list[Row]:
    """30,000 Produce requests of one 100 B record over one connection, 5 in flight."""
    count = int(30_000 * scale)
    with BrokerProcess() as broker:
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


def one_by_one(broker: BrokerProcess, topic: str, count: int) -> None:
    """Send `count` requests with at most five unanswered."""
    request_class = messages.ProduceRequest
    topic_class = request_class.TopicProduceData
    batch = bytes(encode_batch([NewRecord(None, b"x" * 100, 1_700_000_000_000)]))
    request = request_class(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[topic_class(name=topic, partition_data=[topic_class.PartitionProduceData(index=0, records=batch)])],
    )
    request.API_VERSION = 9
    request.with_header(correlation_id=1, client_id="bench")
    frame = bytes(request.encode(version=9, header=True, framed=True))
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
