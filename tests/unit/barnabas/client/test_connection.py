"""Connections: the errors for a port on which no broker listens, and for a port that expects
another protocol.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import FakeBroker, FakeLog

from barnabas.client.cluster_reader import ClientError, ClusterReader
from barnabas.client.connection import Connections
from barnabas.client.coordinators import FIND_COORDINATOR
from barnabas.client.errors import PassingError
from barnabas.client.options import ClientOptions
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.write.publishing import Publisher, PublishError, PublishSettings
from barnabas.spark_connector.write.task_parts import NO_PARTS


@contextmanager
def answering(*answers: bytes | Callable[[bytes], bytes]) -> Iterator[int]:
    """A port that sends the given responses, one for each request, and then closes the
    connection.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                for answer in answers:
                    request = connection.recv(65536)
                    if not request:
                        break
                    connection.sendall(answer(request) if callable(answer) else answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def options_of(port: int) -> ClientOptions:
    return ClientOptions((("127.0.0.1", port),), retry_timeout_ms=50, retry_backoff_ms=5)


def test_a_port_that_does_not_answer_is_named_before_its_timeout(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A web server waits for the end of what it takes for a long first line."""
    monkeypatch.setattr("barnabas.client.connection.SILENCE_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        options = options_of(port)._replace(request_timeout_ms=100)
        with pytest.raises(PassingError, match="no answer in time; is a Kafka broker's listener"):
            Connections(options).any()
    (said,) = caplog.messages
    assert f"127.0.0.1:{port} has taken the connection and does not answer" in said


def test_the_log_says_once_that_no_broker_is_there_while_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("barnabas.client.notices.NOTICE_S", 0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    client = ClusterReader(options_of(port)._replace(retry_timeout_ms=300))
    with pytest.raises(ClientError, match="looking for t failed"):
        client.partitions_of(["t"])
    (said,) = caplog.messages
    unreached = f"no broker of kafka.bootstrap.servers can be reached (127.0.0.1:{port}"
    assert f"looking for t: {unreached}" in said and said.endswith("it is tried again for 0 s")
    publisher = Publisher(client.options, PublishSettings(delivery_timeout_ms=300))
    with pytest.raises(PublishError):
        publisher.abandon(
            transactional_id="query", group_id="query", parts=NO_PARTS._replace(looks_for_open=True)
        )
    assert f"aborting as 'query': {unreached}" in caplog.messages[1]
    assert len(caplog.messages) == 2


def versions(request: bytes) -> bytes:
    """The ApiVersions response of a broker that supports FindCoordinator, Metadata (3) and
    ApiVersions (18).
    """
    kinds = [
        ApiVersion(api_key=key, min_version=0, max_version=6)
        for key in (FindCoordinatorRequest.API_KEY, 3, 18)
    ]
    return answered(
        request,
        ApiVersionsResponse(error_code=0, api_keys=kinds, throttle_time_ms=0).encode(3),
    )


def answered(request: bytes, body: bytes) -> bytes:
    return struct.pack(">i", 4 + len(body)) + request[8:12] + body


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (
            [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
            "speaks HTTP, not Kafka's protocol: give the port of a listener",
        ),
        (
            [b"\x15\x03\x01\x00\x02\x02\x46"],
            r"does not speak Kafka's protocol, or speaks it over TLS",
        ),
        ([lambda request: struct.pack(">iih", 6, 4711, 0)], "answers request 4711 instead of 1"),
        ([lambda request: answered(request, b"\0\0\0\0\0\7")], "an answer that cannot be decoded"),
        (
            2 * [lambda request: answered(request, struct.pack(">hi", 35, 0))],
            "refuses ApiVersions with UNSUPPORTED_VERSION",
        ),
    ],
)
def test_the_error_for_a_port_that_is_no_kafka_broker(
    answers: Sequence[bytes | Callable[[bytes], bytes]], says: str
) -> None:
    with (
        answering(*answers) as port,
        ClusterReader(options_of(port)) as client,
        pytest.raises(ClientError, match=says),
    ):
        client.partitions_of(["t"])


def test_the_error_for_a_port_that_closes_the_connection_after_api_versions() -> None:
    says = r"the connection was closed; is kafka.security.protocol right for this port\?"
    with (
        answering(versions, b"") as port,
        ClusterReader(options_of(port)) as client,
        pytest.raises(ClientError, match=says),
    ):
        client.partitions_of(["t"])


def test_answers_of_flexible_versions_with_tagged_fields_in_their_header() -> None:
    coordinator = FindCoordinatorResponse(
        throttle_time_ms=0, error_code=0, error_message=None, node_id=5, host="h", port=9
    ).encode(3)
    tags = bytes([2, 0, 1, 255, 0x81, 1, 130, 1]) + bytes(
        130
    )  # tag 0 has one byte, and tag 129 has 130 bytes
    with answering(versions, lambda request: answered(request, tags + coordinator)) as port:
        connections = Connections(options_of(port))
        answer = connections.any().request(
            FIND_COORDINATOR, FindCoordinatorRequest(key="k", key_type=1)
        )
        assert (answer.node_id, answer.host, answer.port) == (5, "h", 9)
        connections.close()


def test_the_error_for_a_request_that_the_broker_does_not_support() -> None:
    with FakeBroker({("t", 0): FakeLog()}) as broker:
        connections = Connections(options_of(broker.port))
        with pytest.raises(
            ClientError,
            match=r"does not have FindCoordinatorRequest; versions 1 to 3 are supported",
        ):
            connections.any().request(FIND_COORDINATOR, FindCoordinatorRequest(key="k", key_type=1))
        connections.close()


def test_connections_that_were_closed_while_idle_are_not_used_again() -> None:
    with FakeBroker({("t", 0): FakeLog()}) as broker:
        connections = Connections(options_of(broker.port))
        idle = connections.any()
        connections.close_stale()
        assert connections.any() is idle and connections.any("other") is not idle
    connections.close_stale()
    with pytest.raises(PassingError, match="refused"):
        connections.any()


def test_a_connection_is_kept_in_a_process_with_many_open_files() -> None:
    """The process has more open files than select() can handle. A connection that cannot be checked
    would count as closed, so each batch would open a new one.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 1200:
        pytest.skip("fewer files may be open than it takes")
    with FakeBroker({("t", 0): FakeLog()}) as broker, open(os.devnull) as file:
        others = [os.dup(file.fileno()) for _ in range(1050)]
        try:
            connections = Connections(options_of(broker.port))
            idle = connections.any()
            connections.close_stale()
            assert connections.any() is idle
            connections.close()
        finally:
            for other in others:
                os.close(other)


def test_host_names_that_cannot_be_resolved_are_an_error_without_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unresolved(address: object, timeout: float) -> socket.socket:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unresolved)
    options = ClientOptions(
        (("nowhere.invalid", 9092), ("neither.invalid", 9092)),
        retry_timeout_ms=600_000,
        retry_backoff_ms=600_000,
    )
    says = (
        r"no host of kafka\.bootstrap\.servers can be resolved: .*'nowhere\.invalid' cannot be "
        r"resolved \(Name or service not known\); .*neither"
    )
    with pytest.raises(ClientError, match=says), ClusterReader(options) as client:
        client.partitions_of(["t"])


def test_a_name_that_was_resolved_before_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver may fail temporarily."""
    connect, failures = socket.create_connection, 2

    def sometimes(address: tuple[str, int], timeout: float) -> socket.socket:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return connect(address, timeout)

    with (
        FakeBroker({("t", 0): FakeLog()}) as broker,
        ClusterReader(options_of(broker.port)) as client,
    ):
        client.partitions_of(["t"])
        client.close()
        monkeypatch.setattr(socket, "create_connection", sometimes)
        assert client.partitions_of(["t"]) == [TopicPartition("t", 0)]
    assert failures < 0


def test_tagged_fields_of_a_later_broker_are_skipped() -> None:
    """Newer brokers may add tagged fields at the end of each struct of a flexible version."""
    answer = FindCoordinatorResponse(node_id=5, host="h", port=9).encode(3)
    assert answer.endswith(b"\0"), "no tagged fields"
    # one tagged field with number 77 and three bytes
    later = answer[:-1] + bytes([1, 77, 3]) + b"new"
    with answering(versions, lambda request: answered(request, b"\0" + later)) as port:
        connections = Connections(options_of(port))
        response = connections.any().request(FIND_COORDINATOR, FindCoordinatorRequest("k", 1))
        assert (response.node_id, response.host, response.port) == (5, "h", 9)
        connections.close()


def test_a_host_whose_name_is_too_long_cannot_be_resolved() -> None:
    """A text would be encoded by IDNA, which fails with an error that is no failure of a socket."""
    options = ClientOptions(((f"{'a' * 64}.invalid", 9092),))
    with pytest.raises(ClientError, match=r"no host of kafka\.bootstrap\.servers"):
        Connections(options).any()
