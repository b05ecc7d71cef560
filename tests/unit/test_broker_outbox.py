"""What the core puts out."""

from __future__ import annotations

from barnabas.broker.outbox import (
    ANONYMOUS,
    BY_CERTIFICATE,
    NO_RESPONSE,
    PARKED,
    AuditRecord,
    ConnectionState,
    NoResponse,
    Outbox,
    Parked,
    login_record,
)
from barnabas.broker.settings.config import BrokerConfig


def test_one_that_is_new_is_empty() -> None:
    outbox = Outbox()
    assert not (outbox.sends or outbox.closes or outbox.flushes)
    assert not (outbox.cleanings or outbox.work or outbox.deferred or outbox.audit)


def test_there_is_one_of_each_that_says_how_a_request_is_answered_later_or_never() -> None:
    assert isinstance(PARKED, Parked)
    assert isinstance(NO_RESPONSE, NoResponse)


def test_a_connection_begins_with_nothing_under_way() -> None:
    (listener,) = BrokerConfig.from_properties({}).listeners
    connection = ConnectionState(3, "/10.0.0.1", "10.0.0.2", 9092, 1, listener)
    assert (connection.in_flight, connection.parked_ticket) == (False, -1)
    assert connection.principal == ANONYMOUS


def test_a_login_is_audited_with_who_came_from_where_by_which_listener() -> None:
    (listener,) = BrokerConfig.from_properties({}).listeners
    connection = ConnectionState(3, "/10.0.0.1", "10.0.0.2", 9092, 1, listener)
    connection.principal = "User:alice"
    assert login_record(connection, BY_CERTIFICATE, is_allowed=True) == AuditRecord(
        principal="User:alice",
        host="10.0.0.1",
        client_id="",
        api_key=BY_CERTIFICATE,
        operation="AUTHENTICATE",
        resource_type="LISTENER",
        resource_name="PLAINTEXT",
        is_allowed=True,
    )
    assert not login_record(connection, 36, is_allowed=False).is_allowed
