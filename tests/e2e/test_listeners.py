"""Several listeners of one process, used by Kafka clients and by a plain socket."""

from __future__ import annotations

import re
import socket
import stat
import struct
from pathlib import Path

import pytest
from confluent_kafka import Producer
from helpers.e2e_wire import Wire
from helpers.our_messages import request_frame
from sim import wire

from barnabas import LocalBroker
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

pytestmark = pytest.mark.e2e

BESIDES = re.compile(r"besides: +(\S+)://\S+:(\d+) ")


def test_each_client_gets_the_brokers_addresses_of_the_listener_that_it_uses() -> None:
    with LocalBroker(
        brokers=3,
        users={"alice": "her-secret"},
        tls=True,
        topics={"t": 3},
        settings={
            "listeners": "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        },
    ) as broker:
        ports = {"SASL_SSL": broker.ports, "SASL_PLAINTEXT": []}
        for name, port in BESIDES.findall("".join(broker.output)):
            ports[name].append(int(port))
        assert len({*ports["SASL_SSL"], *ports["SASL_PLAINTEXT"]}) == 6
        for protocol, mechanism in (("SASL_SSL", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-256")):
            producer = Producer(
                {
                    "bootstrap.servers": f"127.0.0.1:{ports[protocol][1]}",
                    "security.protocol": protocol,
                    "sasl.mechanism": mechanism,
                    "sasl.username": "alice",
                    "sasl.password": "her-secret",
                    "ssl.ca.location": broker.ca_file,
                }
            )
            found = producer.list_topics(timeout=20).brokers.values()
            assert sorted(one.port for one in found) == sorted(ports[protocol])
            for partition in range(3):
                producer.produce("t", b"x", partition=partition)
            assert producer.flush(20) == 0


def test_a_unix_socket_serves_clients_and_replaces_a_stale_socket_file(tmp_path: Path) -> None:
    path = tmp_path / "b.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))  # the socket file remains, as after a kill
    stale.close()
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:0,unix://{path}"}
    with LocalBroker(settings=settings, topics=["t"]) as broker:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(path))
            frame = request_frame(MetadataRequest(topics=None), 8, 1)
            client.sendall(struct.pack(">i", len(frame)) + frame)
            with client.makefile("rb") as answers:
                (size,) = struct.unpack(">i", answers.read(4))
                answer = answers.read(size)
        metadata = MetadataResponse.read(memoryview(answer), 4, 8)[0]
        assert [(one.host, one.port) for one in metadata.brokers] == [(f"unix://{path}", 0)]
        assert [topic.name for topic in metadata.topics] == ["t"]
        assert f"unix://{path}" in "".join(broker.output)
    assert not path.exists()


def test_clients_of_a_full_listener_wait_and_clients_of_other_listeners_do_not() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
        "listener.name.b.max.connections": "1",
    }
    with LocalBroker(settings=settings, topics=["t"]) as broker:
        ((_, port),) = BESIDES.findall("".join(broker.output))
        with Wire(int(port)) as first, Wire(int(port)) as second:
            call = wire.request(MetadataRequest(topics=None), 8)
            assert first.call(call).topics[0].name == "t"
            second.send(call)
            with Wire(broker.port) as other:
                assert other.call(call).topics[0].name == "t"
            second.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                second.receive(call)
            first.socket.close()
            second.socket.settimeout(30)
            assert second.receive(call).topics[0].name == "t"
