"""How long clients wait while thousands of topics are created and deleted (`python -m bench.topics
[--scale X]`).
"""

from __future__ import annotations

import argparse
import socket
import struct
import tempfile
import threading
import time

from barnabas import LocalBroker
from barnabas.protocol.framing import SHARED_BYTES, encode_request
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from bench.common import rss_mb

PING = struct.pack(">hhih", 18, 0, 1, -1)
PAUSE_S = 0.002
IDLE_CONNECTIONS = 5_000


class Client:
    """One connection with one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._stream = self._socket.makefile("rb")

    def ask(self, frame: bytes) -> bytes:
        """The answer's frame."""
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        return self._answer()

    def call(self, request: Message, version: int) -> bytes:
        self._socket.sendall(encode_request(request, version, 1, "bench"))
        return self._answer()

    def _answer(self) -> bytes:
        (size,) = struct.unpack(">i", self._stream.read(4))
        return self._stream.read(size)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


class Pinger(threading.Thread):
    """A second client, which repeats ApiVersions. longest_s: the longest wait for a response."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._client = Client(port)
        self._ended = threading.Event()
        self.longest_s = 0.0

    def run(self) -> None:
        """Repeat a small request, and record the longest response time."""
        while not self._ended.wait(PAUSE_S):
            began = time.perf_counter()
            self._client.ask(PING)
            self.longest_s = max(self.longest_s, time.perf_counter() - began)

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()
        self.join()
        self._client.close()


def _measure(port: int, what: str, client: Client, request: Message, version: int) -> None:
    """Print the time of one large request, and how long another client waited meanwhile."""
    pinger = Pinger(port)
    pinger.start()
    began = time.perf_counter()
    client.call(request, version)
    took_s = time.perf_counter() - began
    pinger.end()
    print(
        f"{what:50} {took_s:7.2f} s, another client waited {pinger.longest_s * 1000:8.1f} ms at "
        "most",
        flush=True,
    )


def _creation(names: list[str], partitions: int) -> CreateTopicsRequest:
    """The request that creates topics."""
    return CreateTopicsRequest(
        [CreatableTopic(name, partitions, replication_factor=1) for name in names]
    )


def _deletion(names: list[str]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)


def _query(names: list[str]) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names])


def _one_by_one(client: Client, count: int) -> None:
    """Print the median times of the creation and the deletion of a single topic."""
    times: tuple[list[float], list[float]] = [], []
    for number in range(count):
        for kind, (request, version) in enumerate(
            ((_creation([f"single-{number}"], 1), 7), (_deletion([f"single-{number}"]), 3))
        ):
            began = time.perf_counter()
            client.call(request, version)
            times[kind].append(time.perf_counter() - began)
    made, gone = (sorted(column)[count // 2] * 1000 for column in times)
    print(
        f"one topic, median of {count}: made in {made:.2f} ms, deleted in {gone:.2f} ms", flush=True
    )


def _idle(broker: LocalBroker, count: int) -> None:
    """Print the broker's memory for each idle connection."""
    before = rss_mb(broker.pid)
    clients = [Client(broker.port) for _ in range(count)]
    for client in clients:
        client.ask(PING)
    after = rss_mb(broker.pid)
    print(
        f"{count} idle connections: {after - before:.0f} MB = "
        f"{(after - before) * 1024 / count:.1f} KB each",
        flush=True,
    )
    for client in clients:
        client.close()


def _half_sent(broker: LocalBroker, count: int, size: int) -> None:
    """Print the broker's memory for large requests of which a part has arrived. The broker stops
    reading from most of these connections, which bounds its memory.
    """
    before = rss_mb(broker.pid)
    sockets = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(count)]
    for sock in sockets:
        sock.sendall(struct.pack(">i", size))
        sock.settimeout(0.2)
    half, chunk = size // 2 + size // 4, bytes(SHARED_BYTES)
    for sock in sockets:
        try:
            for _ in range(half // len(chunk)):
                sock.sendall(chunk)
        except TimeoutError:
            pass  # the broker has stopped reading from this connection
    print(
        f"{count} frames of {size >> 20} MB, three quarters sent: "
        f"{rss_mb(broker.pid) - before:.0f} MB more",
        flush=True,
    )
    for sock in sockets:
        sock.close()


def main() -> None:
    """Print a line for each measurement."""
    parser = argparse.ArgumentParser(prog="python -m bench.topics", description=__doc__)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="fraction of the full number of topics"
    )
    parser.add_argument("--connections", type=int, default=IDLE_CONNECTIONS)
    options = parser.parse_args()
    many = max(1, int(2000 * options.scale))
    names = [f"topic-{number}" for number in range(many)]
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory,
        LocalBroker(directory) as broker,
    ):
        client = Client(broker.port)
        _one_by_one(client, 30)
        _measure(broker.port, f"CreateTopics of {many} topics", client, _creation(names, 1), 7)
        _one_by_one(client, 30)
        _measure(broker.port, f"DeleteTopics of {many} topics", client, _deletion(names), 3)
        _measure(
            broker.port,
            f"CreateTopics of one topic of {many} partitions",
            client,
            _creation(["wide"], many),
            7,
        )
        _measure(
            broker.port,
            f"DeleteTopics of one topic of {many} partitions",
            client,
            _deletion(["wide"]),
            3,
        )
        _measure(broker.port, f"Metadata that makes {many} topics", client, _query(names), 4)
        _measure(broker.port, f"DeleteTopics of {many} topics", client, _deletion(names), 3)
        client.close()
        _idle(broker, options.connections)
        _half_sent(broker, 20, 40 << 20)


if __name__ == "__main__":
    main()
