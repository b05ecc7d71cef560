"""The core's state of a connection."""

from __future__ import annotations

from barnabas.broker.audit import ANONYMOUS, AuditRecord
from barnabas.broker.connections.connection_state import ConnectionState, login_record
from barnabas.broker.settings.config import BrokerConfig


def test_a_connection_begins_with_nothing_under_way() -> None:
    (listener,) = BrokerConfig.from_properties({}).listeners
    connection = ConnectionState(3, "/10.0.0.1", "10.0.0.2", 9092, 1, listener)
    assert (connection.in_flight, connection.parked_ticket) == (False, -1)
    assert connection.principal == ANONYMOUS


def test_a_login_s_audit_record_names_the_client_and_the_listener() -> None:
    (listener,) = BrokerConfig.from_properties({}).listeners
    connection = ConnectionState(3, "/10.0.0.1", "10.0.0.2", 9092, 1, listener)
    connection.principal = "User:alice"
    assert login_record(connection, 36, is_allowed=True) == AuditRecord(
        "User:alice", "10.0.0.1", "", 36, "AUTHENTICATE", "LISTENER", "PLAINTEXT", True
    )
