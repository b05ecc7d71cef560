"""What does TLS cost the broker: produce and fetch of a gigabyte, beside a bare TLS server that
throws the same bytes away, and one that sends them?

    python -m bench tls            --scale 0.1 for a tenth
    python -m bench.tls SERVER     receive | send: a bare server, for the run above
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas import LocalBroker
from barnabas.certificates import make_certificates
from bench.common import Meter, Row, cpu_seconds, metered

RECORD_BYTES, CHUNK_BYTES = 10_000, 1 << 18
CLIENTS_CHUNK_BYTES = 6_000  # as librdkafka's TLS records are


def _client_context(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


# --- the bare servers ---------------------------------------------------------------------------


def serve(direction: str, certificate: str, size: int) -> None:
    """One connection, `size` bytes one way, then standard input's end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        raw, _ = listener.accept()
        with context.wrap_socket(raw, server_side=True) as peer:
            buffer, left = bytearray(CHUNK_BYTES), size
            while left > 0:
                if direction == "receive":
                    left -= peer.recv_into(buffer)
                else:
                    left -= peer.send(buffer[: min(left, CHUNK_BYTES)])
            peer.send(b".")
            print("done", flush=True)
            sys.stdin.read()


def bare(direction: str, directory: Path, size: int) -> float:
    """The CPU seconds of a bare server for `size` bytes."""
    arguments = ["-m", "bench.tls", direction, str(directory / "broker.pem"), str(size)]
    with subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        port = int(server.stdout.readline())
        before = cpu_seconds(server.pid)
        context = _client_context(str(directory / "ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as peer,
        ):
            buffer, left = bytearray(CHUNK_BYTES), size
            while left > 0:
                if direction == "receive":
                    left -= peer.send(buffer[: min(left, CLIENTS_CHUNK_BYTES)])
                else:
                    left -= peer.recv_into(buffer)
            server.stdout.readline()
            spent = cpu_seconds(server.pid) - before
            server.stdin.close()
    return spent


# --- the broker ---------------------------------------------------------------------------------


def client_settings(broker: LocalBroker) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": broker.security_protocol,
    }
    with contextlib.suppress(RuntimeError):
        settings["ssl.ca.location"] = broker.ca_file
    return settings


def produce(broker: LocalBroker, count: int) -> None:
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
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(client_settings(broker) | {"group.id": "bench"})
    consumer.assign([TopicPartition("bench", 0, 0)])
    read = 0
    while read < count:
        read += len(consumer.consume(1000, 10))
    consumer.close()


@contextlib.contextmanager
def measured(*, tls: bool, count: int) -> Iterator[tuple[Meter, Meter]]:
    """What the broker spends on producing and on fetching so many records."""
    with LocalBroker(tls=tls, topics=["bench"], settings={"fetch.max.bytes": 55 << 20}) as broker:
        produce(broker, 100)
        with metered(broker) as producing:
            produce(broker, count)
        fetch(broker, 100)
        with metered(broker) as fetching:
            fetch(broker, count)
        yield producing, fetching


def run(scale: float = 1.0) -> list[Row]:
    """A gigabyte each way, with TLS, without, and of the bare servers."""
    count = int(100_000 * scale)
    size = count * RECORD_BYTES
    with tempfile.TemporaryDirectory() as name:
        make_certificates(name)
        receives, sends = (bare(direction, Path(name), size) for direction in ("receive", "send"))
    rows = []
    with measured(tls=False, count=count) as plain, measured(tls=True, count=count) as secured:
        whole = sum(meter.cpu_s for meter in secured)
        for what, without, meter, bare_s in zip(
            ("produce", "fetch"), plain, secured, (receives, sends), strict=True
        ):
            rows.append(
                Row(
                    f"{what} {size / 1e6:,.0f} MB over TLS",
                    f"{meter.cpu_s:.2f} s; bare TLS {bare_s:.2f} s, no TLS {without.cpu_s:.2f} s",
                    f"{meter.wall_s:.1f} s",
                    "-",
                    "-",
                )
            )
        ratio = f"{whole / (receives + sends):.2f} times"
        rows.append(Row("both over TLS, beside a bare echo", ratio, "-", "-", "-"))
    return rows


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
