"""The requests that a connection may send before and after authentication. The expected responses
are those of Apache Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost
from helpers.our_messages import request_frame
from helpers.sasl import PASSWORD, REAUTH_MS, USER, plain_token, sasl_host, scram_log_in

from barnabas.broker.admission.gate import READING_TIME_MS
from barnabas.protocol.client_software import PROBE
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest

RIGHT, WRONG = plain_token(USER, PASSWORD), plain_token(USER, "wrong")
ENABLED = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = sasl_host(tmp_path)
    host.connect(1)
    yield host
    host.close()


def versions(host: CoreHost, name: str = "tests") -> int:
    """Send ApiVersions. Gives: the error code."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    code: int = host.call(1, request, 3).error_code
    return code


def handshake(host: CoreHost, mechanism: str = "PLAIN") -> Any:
    return host.call(1, SaslHandshakeRequest(mechanism), 1)


def token(host: CoreHost, data: bytes = RIGHT) -> Any:
    return host.call(1, SaslAuthenticateRequest(data), 2)


def is_served(host: CoreHost) -> bool:
    return bool(host.call(1, MetadataRequest(topics=[]), 1).brokers)


def test_versions_handshake_and_token_authenticate_a_connection(host: CoreHost) -> None:
    assert versions(host) == Code.NONE
    answer = handshake(host)
    assert (answer.error_code, answer.mechanisms) == (Code.NONE, ENABLED)
    answer = token(host)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (Code.NONE, b"", 0)
    assert is_served(host)
    assert host.broker.outbox.admitted == [1]


def test_other_requests_before_the_handshake_close_the_connection(host: CoreHost) -> None:
    host.ask(1, MetadataRequest(topics=[]), 1)
    assert "has to authenticate first" in host.closed[1]
    host.connect(2)
    host.ask(2, SaslAuthenticateRequest(RIGHT), 2)
    assert 2 in host.closed


def test_a_second_api_versions_before_the_handshake_closes_the_connection(host: CoreHost) -> None:
    assert versions(host, "with a blank") == Code.INVALID_REQUEST
    assert versions(host) == Code.NONE
    host.ask(1, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    assert 1 in host.closed


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "PLAIN ", ""])
def test_an_unknown_mechanism_gets_the_enabled_ones_and_closes_the_connection(
    host: CoreHost, mechanism: str
) -> None:
    host.ask(1, SaslHandshakeRequest(mechanism), 1)
    assert host.answers[1] == []
    host.tick(100)
    (answer,) = host.answers[1]
    assert (answer.error_code, answer.mechanisms) == (Code.UNSUPPORTED_SASL_MECHANISM, ENABLED)
    host.tick(READING_TIME_MS)
    assert 1 in host.closed


def test_another_request_between_handshake_and_token_gets_its_own_error_response(
    host: CoreHost,
) -> None:
    handshake(host)
    assert versions(host) == Code.ILLEGAL_SASL_STATE
    assert 1 in host.closed
    host.connect(2)
    host.call(2, SaslHandshakeRequest("PLAIN"), 1)
    assert host.call(2, MetadataRequest(topics=[]), 1).brokers == []
    assert 2 in host.closed


def test_a_wrong_password_is_refused_after_the_delay(host: CoreHost) -> None:
    handshake(host)
    host.ask(1, SaslAuthenticateRequest(WRONG), 2)
    host.tick(99)
    assert host.answers[1][1:] == []
    assert 1 not in host.closed
    host.tick(1)
    answer = host.answers[1][-1]
    assert answer.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert "wrong" not in answer.auth_bytes.decode()
    host.tick(READING_TIME_MS)
    assert USER in host.closed[1]
    assert PASSWORD not in host.closed[1]


def test_after_authentication_a_plain_handshake_is_refused_and_the_connection_stays(
    host: CoreHost,
) -> None:
    """The mechanism has no session lifetime, so there is nothing to renew."""
    handshake(host)
    token(host)
    assert versions(host) == Code.NONE
    assert handshake(host).error_code == Code.ILLEGAL_SASL_STATE
    assert token(host).error_code == Code.ILLEGAL_SASL_STATE
    assert is_served(host)


def test_a_token_without_a_header_follows_a_handshake_of_version_0(host: CoreHost) -> None:
    host.call(1, SaslHandshakeRequest("PLAIN"), 0)
    host.broker.on_frame(1, memoryview(bytearray(RIGHT)), host.event_ms())
    (send,) = host.broker.outbox.sends
    assert b"".join(map(bytes, send[1])) == bytes(4)
    host.broker.outbox.sends.clear()
    assert is_served(host)


def test_a_wrong_token_without_a_header_ends_the_connection(host: CoreHost) -> None:
    host.call(1, SaslHandshakeRequest("PLAIN"), 0)
    host.broker.on_frame(1, memoryview(bytearray(WRONG)), host.event_ms())
    host.tick(100)
    assert "authentication failed" in host.closed[1]
    assert len(host.answers[1]) == 1


# --- sessions that end (KIP-368) ----------------------------------------------------------------


def test_a_session_ends_at_the_next_request(host: CoreHost) -> None:
    assert scram_log_in(host, 1).session_lifetime_ms == REAUTH_MS
    host.tick(REAUTH_MS - 1)
    assert is_served(host)
    host.tick(1)
    assert 1 not in host.closed
    host.ask(1, MetadataRequest(topics=[]), 1)
    assert "has ended" in host.closed[1]


def test_a_session_is_renewed_also_past_its_end(host: CoreHost) -> None:
    scram_log_in(host, 1)
    host.tick(2 * REAUTH_MS)
    assert scram_log_in(host, 1).error_code == Code.NONE
    assert is_served(host)
    # a session may be renewed at most once a second
    assert handshake(host, "SCRAM-SHA-512").error_code == Code.ILLEGAL_SASL_STATE  # just renewed
    host.tick(1000)
    assert scram_log_in(host, 1).error_code == Code.NONE


def test_a_session_is_renewed_only_by_its_own_mechanism(host: CoreHost) -> None:
    scram_log_in(host, 1)
    assert handshake(host).error_code == Code.NONE
    host.ask(1, SaslAuthenticateRequest(RIGHT), 2)
    assert "its own mechanism" in host.closed[1]


def test_a_token_without_a_header_renews_no_session_of_another_mechanism(host: CoreHost) -> None:
    scram_log_in(host, 1)
    host.call(1, SaslHandshakeRequest("PLAIN"), 0)
    host.broker.on_frame(1, memoryview(bytearray(RIGHT)), host.event_ms())
    host.tick(100)
    assert "its own mechanism" in host.closed[1]


def test_a_session_is_renewed_only_by_its_own_user(host: CoreHost) -> None:
    scram_log_in(host, 1)
    scram_log_in(host, 1, user="bob", expects_answer=False)
    host.tick(100)
    assert host.answers[1][-1].error_code == Code.SASL_AUTHENTICATION_FAILED
    host.tick(READING_TIME_MS)
    assert "not 'bob'" in host.closed[1]


def test_a_renewal_with_an_unknown_mechanism_ends_the_connection(host: CoreHost) -> None:
    scram_log_in(host, 1)
    host.ask(1, SaslHandshakeRequest("GSSAPI"), 1)
    assert "GSSAPI" in host.closed[1]


def test_the_command_lines_probe_is_no_failed_login(
    host: CoreHost, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe asks for the mechanisms after a client could not connect. A line about the
    mechanism '?' for each wrong setting of a client would only confuse."""
    monkeypatch.setattr("helpers.core_host.request_frame", partial(request_frame, client_id=PROBE))
    for _ in range(2):
        answer = handshake(host, "?")
        assert answer.mechanisms == ENABLED
        assert answer.error_code == Code.UNSUPPORTED_SASL_MECHANISM
    assert 1 not in host.closed and caplog.messages == []
    assert {row.total for row in host.broker.logins.counts.rows()} == {0}
    assert handshake(host).error_code == Code.NONE
    assert token(host).error_code == Code.NONE and is_served(host)


@pytest.mark.parametrize("release", ["", "3.9", "4.3"])
def test_an_emulated_release_decides_on_the_nonce_of_old_librdkafka(
    tmp_path: Path, release: str
) -> None:
    """It sends the client's nonce twice; Apache Kafka 3.9 accepts that, and 4.x does not."""
    host = sasl_host(tmp_path, barnabas_emulate=release)
    host.connect(1)
    is_refused = release == "4.3"
    answer = scram_log_in(host, 1, before_nonce="nonce", expects_answer=not is_refused)
    if not is_refused:
        assert answer.error_code == Code.NONE
        return
    host.tick(100)
    (*_, refused) = host.answers[1]
    assert refused.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert "librdkafka before 2.6.1" in refused.error_message
    host.tick(READING_TIME_MS)
    assert "librdkafka before 2.6.1" in host.closed[1], "the reason in the log"
