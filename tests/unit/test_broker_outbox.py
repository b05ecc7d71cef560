"""What the core puts out."""

from __future__ import annotations

from barnabas.broker.outbox import (
    ANONYMOUS,
    NO_RESPONSE,
    PARKED,
    ConnectionState,
    NoResponse,
    Outbox,
    Parked,
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
