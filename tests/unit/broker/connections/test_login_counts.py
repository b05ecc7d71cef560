"""Logins are counted by listener and mechanism. Clients cannot add entries to the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.core_host import CoreHost

from barnabas.broker.connections.login_counts import LoginCounts
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest

RIGHT, WRONG = b"\0alice\0secret", b"\0alice\0not-hers"
Counts = dict[tuple[str, str], int]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(
        tmp_path,
        {"alice": "secret"},
        listeners="SASL_PLAINTEXT://:9092",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-512",
        connections_max_reauth_ms="3600000",
    )
    yield host
    host.close()


def nonzero(logins: LoginCounts, *, has_succeeded: bool) -> Counts:
    """The counts above zero, of successful or of failed logins."""
    return {
        (row.listener, row.mechanism): row.total
        for row in logins.rows()
        if row.has_succeeded is has_succeeded and row.total
    }


def log_in(host: CoreHost, connection: int, token: bytes) -> None:
    host.call(connection, SaslHandshakeRequest("PLAIN"), 1)
    host.ask(connection, SaslAuthenticateRequest(token), 1)


def test_there_is_a_row_for_each_mechanism_from_the_start(host: CoreHost) -> None:
    rows = [row for row in host.broker.logins.counts.rows() if not row.has_succeeded]
    assert [(row.listener, row.mechanism, row.total) for row in rows] == [
        ("SASL_PLAINTEXT", "PLAIN", 0),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512", 0),
        ("SASL_PLAINTEXT", "none", 0),
    ]


def test_wrong_passwords_count_as_failures_and_right_ones_and_renewals_as_successes(
    host: CoreHost,
) -> None:
    for connection, token in enumerate((WRONG, RIGHT, WRONG), 1):
        host.connect(connection)
        log_in(host, connection, token)
    host.tick(2_000)
    log_in(host, 2, RIGHT)
    logins = host.broker.logins.counts
    assert nonzero(logins, has_succeeded=False) == {("SASL_PLAINTEXT", "PLAIN"): 2}
    assert nonzero(logins, has_succeeded=True) == {("SASL_PLAINTEXT", "PLAIN"): 2}
    host.ask(2, MetadataRequest(topics=[]), 12)
    assert nonzero(logins, has_succeeded=True) == {("SASL_PLAINTEXT", "PLAIN"): 2}


def test_a_login_without_a_valid_mechanism_counts_as_a_failure_of_none(host: CoreHost) -> None:
    """A request out of order also counts as a failed login. Requests after the failure are not
    counted.
    """
    for number in range(5):
        host.connect(number)
        host.ask(number, SaslHandshakeRequest(f"MADE-UP-{number}"), 1)
        host.tick(100)
        host.ask(number, SaslHandshakeRequest("PLAIN"), 1)
        assert "has failed already" in host.closed[number]
    host.connect(5)
    host.ask(5, ApiVersionsRequest("x", "1"), 3)
    host.ask(5, MetadataRequest(topics=[]), 12)
    logins = host.broker.logins.counts
    assert nonzero(logins, has_succeeded=False) == {("SASL_PLAINTEXT", "none"): 6}
    assert len(list(logins.rows())) == 6


def test_another_request_during_the_exchange_counts_as_a_failed_login(host: CoreHost) -> None:
    host.connect(1)
    host.call(1, SaslHandshakeRequest("SCRAM-SHA-512"), 1)
    host.ask(1, MetadataRequest(topics=[]), 12)
    failed = nonzero(host.broker.logins.counts, has_succeeded=False)
    assert failed == {("SASL_PLAINTEXT", "SCRAM-SHA-512"): 1}


def test_the_audit_log_has_each_counted_login(tmp_path: Path) -> None:
    host = CoreHost(
        tmp_path,
        {"alice": "secret"},
        listeners="SASL_PLAINTEXT://:9092",
        barnabas_audit_log=str(tmp_path / "audit"),
    )
    host.connect(1)
    log_in(host, 1, WRONG)
    host.connect(2)
    host.call(2, SaslHandshakeRequest("PLAIN"), 1)
    host.ask(2, MetadataRequest(topics=[]), 12)
    host.connect(3)
    log_in(host, 3, RIGHT)
    audited = [(row.operation, row.principal, row.is_allowed) for row in host.broker.outbox.audit]
    assert audited == [
        ("AUTHENTICATE", "User:ANONYMOUS", False),
        ("AUTHENTICATE", "User:ANONYMOUS", False),
        ("AUTHENTICATE", "User:alice", True),
    ]
    host.close()


def test_certificates_count_as_logins_on_a_listener_that_requests_them(tmp_path: Path) -> None:
    """Client 1 has a certificate, client 2 has none, and the certificate of client 3 is refused."""
    host = CoreHost(tmp_path, listeners="SSL://:9093", ssl_client_auth="requested")
    for connection in (1, 2, 3):
        host.connect(connection)
    host.broker.on_identified(1, "User:CN=alice")
    host.broker.on_identified(2, "User:ANONYMOUS")
    host.broker.on_not_identified(3)
    logins = host.broker.logins.counts
    assert nonzero(logins, has_succeeded=True) == {("SSL", "TLS"): 1}
    assert nonzero(logins, has_succeeded=False) == {("SSL", "TLS"): 1}
    host.close()


def test_a_listener_without_authentication_has_no_rows(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.connect(1)
    host.broker.on_not_identified(1)
    assert list(host.broker.logins.counts.rows()) == []
    host.close()
