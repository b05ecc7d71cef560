"""The gate applies the results of logins: it sends responses, delays them, closes connections, and
allows larger frames.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.core_host import CoreHost
from helpers.our_messages import request_class
from helpers.sasl import PASSWORD, USER, plain_token, sasl_host
from helpers.slowness import least_desk_s

from barnabas.protocol.api import Api
from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = sasl_host(tmp_path)
    yield host
    host.close()


def fail(host: CoreHost, connection: int) -> None:
    """Connect, and send a wrong password. The refusal arrives after a delay."""
    host.connect(connection)
    host.call(connection, SaslHandshakeRequest("PLAIN"), 1)
    host.ask(connection, SaslAuthenticateRequest(plain_token(USER, "wrong")), 1)


def test_the_audit_record_of_a_login_names_the_user(tmp_path: Path) -> None:
    """The first line about the connection already has its user."""
    host = sasl_host(tmp_path, barnabas_audit_log="/dev/null")
    host.connect(1)
    host.call(1, SaslHandshakeRequest("PLAIN"), 1)
    host.call(1, SaslAuthenticateRequest(plain_token(USER, PASSWORD)), 1)
    (record,) = host.broker.outbox.audit
    assert (record.principal, record.is_allowed) == (f"User:{USER}", True)
    host.close()


def test_each_refused_login_is_answered_after_the_same_delay(host: CoreHost) -> None:
    """Each refusal is sent after 100 ms (connection.failed.authentication.delay.ms), and the
    connection is closed 100 ms later.
    """
    fail(host, 1)
    first_ms = host.now_ms
    host.tick(60)
    fail(host, 2)
    assert host.broker.next_deadline_ms() == first_ms + 100
    host.tick(40)
    assert (sorted(host.closed), len(host.answers[1]), len(host.answers[2])) == ([], 2, 1)
    host.tick(60)
    assert len(host.answers[2]) == 2
    host.tick(40)
    assert sorted(host.closed) == [1]
    host.tick(60)
    assert sorted(host.closed) == [1, 2]
    assert host.broker.sasl is not None and host.broker.sasl.next_deadline_ms() is None


def test_all_that_is_put_off_is_done_at_the_times_that_the_broker_names(host: CoreHost) -> None:
    """The rim calls the core only at these times."""
    began_ms: dict[int, int] = {}
    for connection, pause_ms in ((1, 0), (2, 30), (3, 0), (4, 45)):
        host.tick(pause_ms)
        fail(host, connection)
        began_ms[connection] = host.now_ms
    answered_ms: dict[int, int] = {}
    closed_ms: dict[int, int] = {}
    while (deadline_ms := host.broker.next_deadline_ms()) is not None and len(closed_ms) < 4:
        host.tick(deadline_ms - host.now_ms)
        for connection in began_ms:
            if len(host.answers[connection]) == 2:
                answered_ms.setdefault(connection, host.now_ms)
            if connection in host.closed:
                closed_ms.setdefault(connection, host.now_ms)
    assert answered_ms == {connection: at_ms + 100 for connection, at_ms in began_ms.items()}
    assert closed_ms == {connection: at_ms + 200 for connection, at_ms in began_ms.items()}


def test_a_client_that_has_hung_up_gets_no_refusal(
    host: CoreHost, caplog: pytest.LogCaptureFixture
) -> None:
    """The failed attempt is logged nevertheless, since a client that gets no immediate response
    knows that the login failed.
    """
    fail(host, 1)
    host.broker.on_closed(1)
    host.connect(1)  # another connection with the same number
    host.tick(100)
    assert host.answers[1] == []
    assert host.closed == {}
    (line,) = caplog.messages
    assert "closed the connection: authentication failed" in line and USER in line


def test_log_lines_about_clients_that_disconnect_early_are_limited_per_minute(
    host: CoreHost, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, 51):
        fail(host, number)
        host.broker.on_closed(number)
    host.tick(100)
    assert len(caplog.messages) == 20
    host.tick(60_000)
    fail(host, 51)
    host.tick(100)
    assert caplog.messages[20:] == [
        "30 more clients of 192.0.2.9 closed the connection within a minute before their refusal"
    ]


def test_a_failed_connection_gets_no_second_attempt(host: CoreHost) -> None:
    fail(host, 1)
    host.tick(100)
    assert host.closed == {}, "it may read the answer before its connection ends"
    host.ask(1, SaslAuthenticateRequest(plain_token(USER, PASSWORD)), 1)
    assert "failed already" in host.closed[1]
    assert host.broker.outbox.admitted == []


def test_large_frames_are_allowed_after_a_successful_login_only(host: CoreHost) -> None:
    """`admitted` lists the connections whose frame limit the server raises."""
    fail(host, 1)
    host.tick(100)
    host.connect(2)
    host.call(2, SaslHandshakeRequest("PLAIN"), 1)
    answer = host.call(2, SaslAuthenticateRequest(plain_token(USER, PASSWORD)), 1)
    assert answer.error_code == Code.NONE
    assert host.broker.outbox.admitted == [2]


@pytest.mark.parametrize("body", [b"", b"\0", b"\xff\xff\xff\xff"])
def test_a_request_that_cannot_be_read_ends_the_connection(host: CoreHost, body: bytes) -> None:
    host.connect(1)
    header = b"\0\x11\0\x01\0\0\0\x05\xff\xff"  # SaslHandshake 1
    host.broker.on_frame(1, memoryview(bytearray(header + body)), host.event_ms())
    host.carry_out()
    assert "cannot be read" in host.closed[1]


@pytest.mark.parametrize("api", BY_KEY.values(), ids=lambda api: api.name)
def test_other_requests_during_a_login_get_an_error_response_of_their_own_type(
    host: CoreHost, api: Api
) -> None:
    if api.name == "SaslAuthenticate":
        return  # this is the only request that is allowed at this point
    for version in range(api.min_version, api.max_version + 1):
        host.connect(version)
        host.call(version, SaslHandshakeRequest("PLAIN"), 1)
        request = request_class(api.name)()
        host.ask(version, request, version)  # raises if the response cannot be encoded
        assert len(host.answers[version]) == 2
        assert "is out of order" in host.closed[version]


def test_each_key_of_a_find_coordinator_during_a_login_has_the_error(host: CoreHost) -> None:
    host.connect(1)
    host.call(1, SaslHandshakeRequest("PLAIN"), 1)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"])
    answer = host.call(1, request, 4)
    assert [(row.key, row.error_code) for row in answer.coordinators] == [
        ("a", Code.ILLEGAL_SASL_STATE),
        ("b", Code.ILLEGAL_SASL_STATE),
    ]


def test_each_resource_of_a_describe_configs_during_a_login_has_the_error(host: CoreHost) -> None:
    host.connect(1)
    host.call(1, SaslHandshakeRequest("PLAIN"), 1)
    resources = [DescribeConfigsResource(2, name) for name in ("t", "u")]
    answer = host.call(1, DescribeConfigsRequest(resources), 4)
    assert [(row.resource_name, row.error_code) for row in answer.results] == [
        ("t", Code.ILLEGAL_SASL_STATE),
        ("u", Code.ILLEGAL_SASL_STATE),
    ]


def test_sasl_requests_are_refused_on_a_listener_without_sasl(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.connect(1)
    assert host.call(1, SaslHandshakeRequest("PLAIN"), 1).error_code == Code.ILLEGAL_SASL_STATE
    token = SaslAuthenticateRequest(plain_token(USER, PASSWORD))
    assert host.call(1, token, 2).error_code == Code.ILLEGAL_SASL_STATE
    host.close()


LARGEST_BYTES = 512 << 10
TAGS = b"\x80\x80\x08" + b"\1\0" * 131_072 + bytes(LARGEST_BYTES - 262_200)
NAMES = bytes([0x80, 0x80, 0x04]) + b"\2a\0" * 65_535
MOST_S = 0.015


def header(api_key: int, version: int, tags: bytes = b"\0") -> bytes:
    flexible = version >= BY_KEY[api_key].flexible_from
    return struct.pack(">hhih", api_key, version, 7, -1) + (tags if flexible else b"")


LARGE_BEFORE_LOGIN = {
    "tagged fields in a header": (False, header(18, 3, TAGS)),
    "tagged fields in a body": (False, header(18, 3) + b"\2a\2b" + TAGS),
    "a long name": (False, header(18, 3) + b"\x80\x80\x1e" + b"a" * 491_519 + b"\2b\0"),
    "a long mechanism": (False, header(17, 1) + b"\x7f\xff" + b"m" * 32_767),
    "tagged fields after a token": (True, header(36, 2) + b"\2a" + TAGS),
    "a long token": (True, header(36, 2) + b"\x80\x80\x1e" + b"\0a" * 245_759 + b"\0"),
    "another request": (True, header(3, 9) + NAMES + b"\0\0\0\0"),
}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("content", LARGE_BEFORE_LOGIN)
def test_large_requests_before_a_login_take_little_time(
    content: str, mechanism: str, tmp_path: Path
) -> None:
    """The requests are the largest and the most repetitive ones. The measure is CPU time, the
    shortest of some attempts.
    """
    has_shaken_hands, sent = LARGE_BEFORE_LOGIN[content]
    host = sasl_host(tmp_path)

    def attempts() -> Iterator[float]:
        for connection in range(1, 5):
            host.connect(connection)
            if has_shaken_hands:
                host.call(connection, SaslHandshakeRequest(mechanism), 1)
            frame = memoryview(bytearray(sent))
            before = time.thread_time()
            host.broker.on_frame(connection, frame, host.event_ms())
            yield time.thread_time() - before
            host.broker.outbox.sends.clear()

    assert least_desk_s(attempts(), MOST_S) < MOST_S
    host.broker.on_closed(1)
