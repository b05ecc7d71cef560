"""A client's calls as commands make them: the thread that waits, and the words of errors, which
name settings of --client-config and no option of the connector.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from helpers.fake_broker import FakeBroker, FakeCluster, FakeLog

from barnabas.cli.client.calls import WaitingCalls, client_options
from barnabas.cli.client.wording import worded
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.waiting import TimeoutOver, Waiting
from barnabas.client.cluster import METADATA, Cluster
from barnabas.client.connection import Connection, Connections
from barnabas.client.coordinators import FIND_COORDINATOR
from barnabas.client.errors import ConnectionLostError, PassingError, UnreachableError
from barnabas.client.oauth import TokenError
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "secret",
}


def connections_of(
    port: int, settings: dict[str, Any] | None = None, timeout_s: float = 20, mistake: str = ""
) -> tuple[Connections, WaitingCalls]:
    """A command's connections to a port. Takes: mistake, what a probe of the port finds."""
    calls = WaitingCalls(Waiting(f"127.0.0.1:{port}", timeout_s), lambda: mistake)
    options = client_options([("127.0.0.1", port)], settings or {}, timeout_s)
    return Connections(options, calls), calls


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """A port that answers the first bytes of each connection with `data`, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(60)


def test_each_call_that_waits_is_made_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, bool] = {}

    def noted(name: str) -> None:
        method = getattr(Connection, name)

        def note(self: Connection, *args: Any) -> Any:
            threads[name] = threading.current_thread() is threading.main_thread()
            return method(self, *args)

        monkeypatch.setattr(Connection, name, note)

    for name in ("connect", "negotiate", "request"):
        noted(name)
    with FakeBroker({("t", 0): FakeLog()}) as broker:
        connections, calls = connections_of(broker.port)
        cluster = Cluster(connections.options, calls)
        assert [topic.name for topic in cluster.refresh(["t"]).topics] == ["t"]
        cluster.connections.close()
    assert threads == {"connect": False, "negotiate": False, "request": False}


def test_a_port_without_a_listener_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(UnreachableError, match=rf"127.0.0.1:{port}: Connection refused"):
        connections_of(port)[0].any()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", r"does not speak Kafka's protocol \(HTTP\)"),
        (b"\x15\x03\x01\x00\x02\x02\x46", r"\(a response of 352,518,400 bytes\)"),
        (b"", "the connection was closed"),
    ],
)
def test_what_is_no_broker_is_an_error_without_options_of_the_connector(
    data: bytes, says: str
) -> None:
    with answering(data) as port, pytest.raises(ConnectionLostError, match=says) as lost:
        connections_of(port)[0].any()
    assert "kafka." not in str(lost.value)


def test_a_port_that_does_not_answer_ends_the_command_at_its_timeout() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(TimeoutOver, match="its answer to a new client"),
    ):
        connections_of(silent.getsockname()[1], timeout_s=0.2)[0].any()


def test_a_probe_explains_a_port_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.cli.client.calls.PROBE_AFTER_S", 0.01)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(CommandError, match=r"set security\.protocol=SSL"),
    ):
        connections_of(silent.getsockname()[1], mistake="set security.protocol=SSL")[0].any()


def test_a_port_without_a_login_is_left_to_the_probe() -> None:
    with FakeBroker({("t", 0): FakeLog()}) as broker:
        connections, _ = connections_of(broker.port, LOGIN)
        with pytest.raises(ConnectionLostError, match="takes no login") as lost:
            connections.any()
    assert "kafka." not in str(lost.value)


def test_a_request_that_the_broker_lacks_leaves_the_connection_open() -> None:
    with FakeBroker({("t", 0): FakeLog()}) as broker:
        connections, calls = connections_of(broker.port)
        connection = connections.any()
        with pytest.raises(RefusedError) as refused:
            calls.ask(connection, FIND_COORDINATOR, FindCoordinatorRequest(key="k", key_type=1))
        assert (refused.value.code, str(refused.value)) == (
            Code.UNSUPPORTED_VERSION,
            "FindCoordinator",
        )
        assert calls.ask(connection, METADATA, MetadataRequest([])).brokers
        connections.close()


def test_a_connection_is_not_used_after_a_failed_request() -> None:
    """A late response would be taken for that of the next request."""
    with FakeCluster({"t": 1}, nodes=1) as cluster:
        connections, calls = connections_of(cluster.port)
        connection = connections.any()
        cluster.hang_up()
        with pytest.raises(ConnectionLostError):
            calls.ask(connection, METADATA, MetadataRequest([]))
        assert connection.is_closed and connections.any() is not connection
        connections.close()


def test_a_token_that_cannot_be_read_names_no_option_of_the_connector() -> None:
    error = PassingError("127.0.0.1:1: there is no token for the login: /nowhere")
    error.__cause__ = TokenError("the token in /nowhere/token cannot be read", passes=True)
    found = worded(error, "127.0.0.1:1")
    assert isinstance(found, CommandError)
    assert str(found) == "--client-config: the token in /nowhere/token cannot be read"
