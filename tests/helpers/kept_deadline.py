"""Passing a request to the core, as a rim does that has just set its timer."""

from __future__ import annotations

from barnabas.broker.core import Broker


def pass_frame(broker: Broker, connection: int, frame: memoryview, now_ms: int) -> None:
    """Let the core process a request. If it then believes that the timer is early enough, it has to
    be: a handler may answer `DeadlineKept` only if no part has earlier work than before.
    """
    deadline_ms = broker.next_deadline_ms()
    broker.on_timer_set()
    broker.on_frame(connection, frame, now_ms)
    if broker.timer_is_set:
        earliest_ms = broker.next_deadline_ms()
        assert earliest_ms >= deadline_ms, (
            f"the timer is set to {deadline_ms}, and there is work at {earliest_ms}"
        )
