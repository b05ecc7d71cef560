"""The core's outbox."""

from __future__ import annotations

from barnabas.broker.outbox import NO_RESPONSE, PARKED, NoResponse, Outbox, Parked


def test_a_new_outbox_is_empty() -> None:
    outbox = Outbox()
    assert not (outbox.sends or outbox.closes or outbox.flushes)
    assert not (outbox.cleanings or outbox.work or outbox.deferred or outbox.audit)


def test_there_is_one_of_each_that_says_how_a_request_is_answered_later_or_never() -> None:
    assert isinstance(PARKED, Parked)
    assert isinstance(NO_RESPONSE, NoResponse)
