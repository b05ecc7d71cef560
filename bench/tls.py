"""The cost of TLS in the broker: produce and fetch of the same bytes, compared with bare TLS
servers.

    python -m bench tls            --scale 0.1 for a tenth
    python -m bench.tls SERVER     only a bare server: receive | send | send-file | echo

Produce and fetch are compared with `echo`, which sends each TLS record back as it was received. The
other servers are lower bounds for one direction: `receive` drops the bytes, `send` sends one buffer
repeatedly, and `send-file` sends a file.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas import LocalBroker
from barnabas.certificates import make_certificates
from bench.common import Row, threads_cpu_seconds

RECORD_BYTES, CHUNK_BYTES = 10_000, 1 << 18
CLIENTS_CHUNK_BYTES = 6_000  # the size of librdkafka's TLS records
# the maximum number of bytes in flight, which the sockets' buffers can hold
MOST_UNDER_WAY = 2 << 20
FILE_NAME = "bytes"
# the kinds of bare servers to which the client sends, and those from which it receives
SENT, RECEIVED = ("receive", "echo"), ("send", "send-file", "echo")
ROUNDS = 5
WORK = ("produce", "fetch")


def _client_context(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


# --- the bare servers ---------------------------------------------------------------------------


def serve(kind: str, certificate: str, size: int, file: str) -> None:
    """Serve one connection until `size` bytes are transferred, then wait for the end of standard
    input.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        raw, _ = listener.accept()
        with context.wrap_socket(raw, server_side=True) as peer:
            _carry(kind, peer, size, os.open(file, os.O_RDONLY))
            peer.send(b".")
            print("done", flush=True)
            sys.stdin.read()


def _carry(kind: str, peer: ssl.SSLSocket, size: int, file: int) -> None:
    """Transfer `size` bytes as a server of that kind does: receive, send, send from a file, or
    echo.
    """
    view, done = memoryview(bytearray(CHUNK_BYTES)), 0
    while done < size:
        if kind == "send":
            done += peer.send(view[: min(CHUNK_BYTES, size - done)])
        elif kind == "send-file":
            done += peer.send(view[: os.preadv(file, [view], done)])
        else:
            count = peer.recv_into(view)
            if kind == "echo":
                peer.sendall(view[:count])
            done += count


def bare(kind: str, directory: Path, size: int) -> float:
    """The CPU seconds of a bare server that transfers `size` bytes. An echo transfers them in each
    direction.
    """
    arguments = [kind, str(directory / "broker.pem"), str(size), str(directory / FILE_NAME)]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.tls", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        port = int(server.stdout.readline())
        before = threads_cpu_seconds(server.pid)
        context = _client_context(str(directory / "ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as peer,
        ):
            _exchange(peer, size if kind in SENT else 0, size if kind in RECEIVED else 0)
            server.stdout.readline()
            spent = threads_cpu_seconds(server.pid) - before
            server.stdin.close()
    return spent


def _exchange(peer: ssl.SSLSocket, to_send: int, to_receive: int) -> None:
    """Send bytes in TLS records of librdkafka's size, and receive bytes at the same time."""
    piece, buffer = bytes(CLIENTS_CHUNK_BYTES), bytearray(CHUNK_BYTES)
    peer.setblocking(False)
    while to_send > 0 or to_receive > 0:
        has_moved = False
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            # With an echo server, stop sending while too many bytes are on their way back:
            # otherwise both sides would wait for each other.
            while to_send > 0 and (not to_receive or to_receive - to_send < MOST_UNDER_WAY):
                to_send -= peer.send(piece[: min(to_send, len(piece))])
                has_moved = True
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while to_receive > 0:
                to_receive -= peer.recv_into(buffer)
                has_moved = True
        if not has_moved:
            select.select([peer] if to_receive else [], [] if to_receive else [peer], [])
    peer.setblocking(True)


# --- the broker ---------------------------------------------------------------------------------


def client_settings(broker: LocalBroker) -> dict[str, Any]:
    """The settings of a client for a broker with or without TLS."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": broker.security_protocol,
    }
    # `ca_file` raises this error if the broker has no TLS
    with contextlib.suppress(RuntimeError):
        settings["ssl.ca.location"] = broker.ca_file
    return settings


def produce(broker: LocalBroker, count: int) -> None:
    """Write records with librdkafka."""
    from confluent_kafka import Producer

    producer = Producer(
        client_settings(broker)
        | {"batch.size": 1_000_000, "linger.ms": 100, "queue.buffering.max.kbytes": 200_000}
    )
    value = bytes(RECORD_BYTES)
    for _ in range(count):
        while True:
            try:
                producer.produce("bench", value)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(300) == 0


def fetch(broker: LocalBroker, count: int) -> None:
    """Read records with librdkafka, from the start."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(client_settings(broker) | {"group.id": "bench"})
    consumer.assign([TopicPartition("bench", 0, 0)])
    read = 0
    while read < count:
        read += len(consumer.consume(min(1000, count - read), 10))
    consumer.close()


@contextlib.contextmanager
def started(*, tls: bool) -> Iterator[LocalBroker]:
    """A broker after a warm-up, so that the topic, connections and caches exist."""
    settings = {"fetch.max.bytes": 55 << 20}
    with LocalBroker(tls=tls, topics=["bench"], settings=settings) as broker:
        produce(broker, 100)
        fetch(broker, 100)
        yield broker


def measured(broker: LocalBroker, count: int) -> tuple[float, float]:
    """The CPU seconds for producing `count` records, and for fetching as many."""
    seconds = []
    for work in (produce, fetch):
        before = threads_cpu_seconds(broker.pid)
        work(broker, count)
        seconds.append(threads_cpu_seconds(broker.pid) - before)
    return seconds[0], seconds[1]


def run(scale: float = 1.0) -> list[Row]:
    """Transfer a gigabyte in each direction. Bare servers, and brokers with and without TLS, do it
    by turns.
    """
    count = int(100_000 * scale) // ROUNDS
    size = count * RECORD_BYTES
    seconds: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        # the file system in which LocalBroker creates its directories
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=memory))
        make_certificates(name)
        Path(name, FILE_NAME).write_bytes(bytes(size))
        brokers = {tls: stack.enter_context(started(tls=tls)) for tls in (False, True)}
        for _ in range(ROUNDS):
            for kind in ("receive", "send", "send-file", "echo"):
                seconds.setdefault(kind, []).append(bare(kind, Path(name), size))
            for tls, broker in brokers.items():
                for what, spent in zip(WORK, measured(broker, count), strict=True):
                    seconds.setdefault(f"{what}{', TLS' * tls}", []).append(spent)
    return _rows(seconds, size)


def _rows(seconds: dict[str, list[float]], size: int) -> list[Row]:
    """The rows of the report, from the CPU seconds of each kind of work."""
    medians = {what: statistics.median(each) for what, each in seconds.items()}
    rows = []
    for what, bare_kinds in (("produce", ("receive",)), ("fetch", ("send", "send-file"))):
        beside = ", ".join(f"bare {kind} {medians[kind]:.3f}" for kind in bare_kinds)
        figures = f"{medians[f'{what}, TLS']:.3f} s; {beside}, no TLS {medians[what]:.3f}"
        rows.append(Row(f"{what} {size / 1e6:,.0f} MB over TLS", figures, "-", "-", "-"))
    ratios = [
        (produced + fetched) / echoed
        for produced, fetched, echoed in zip(
            seconds["produce, TLS"], seconds["fetch, TLS"], seconds["echo"], strict=True
        )
    ]
    figures = f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
    rows.append(Row("both over TLS, beside a bare echo", figures, "-", "-", "-"))
    return rows


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
