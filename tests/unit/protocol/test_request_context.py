"""The context that handlers get together with the body of a request."""

from __future__ import annotations

from barnabas.protocol.request_context import RequestContext


def test_a_delayed_requests_context_differs_only_in_its_time() -> None:
    came = RequestContext(5, 9, "client", "/10.0.0.1", 3, 0, 77, 1_000, "10.0.0.2", 9092)
    later = came.replace(now_ms=2_000)
    assert (came.now_ms, later.now_ms) == (1_000, 2_000)
    for name in set(RequestContext.__slots__) - {"now_ms"}:
        assert getattr(later, name) == getattr(came, name), name
    assert (came.ticket, came.api_version, came.connection_id, came.api_key) == (5, 9, 3, 0)
