"""Requests counted by API."""

from __future__ import annotations

from barnabas.console.request_counts import RequestCounts
from barnabas.protocol.api_table import BY_KEY


def frame(api_key: int) -> memoryview:
    return memoryview(api_key.to_bytes(2, "big") + bytes(6))


def test_requests_are_counted_and_handed_on() -> None:
    handed_on = []
    counts = RequestCounts()
    on_frame = counts.around(lambda *arguments: handed_on.append(arguments))
    # 68 is a key of some versions only, 250 is not an API key
    for number, key in enumerate((0, 1, 1, 68, 250)):
        on_frame(7, frame(key), number)
    assert [arguments[2] for arguments in handed_on] == [0, 1, 2, 3, 4]
    expected = {BY_KEY[0].name: 1, BY_KEY[1].name: 2}
    if 68 in BY_KEY:
        expected[BY_KEY[68].name] = 1
    assert counts.by_api() == expected, "an API key that the broker does not support is not shown"


def test_a_frame_without_a_key_is_handed_on() -> None:
    handed_on = []
    RequestCounts().around(lambda *arguments: handed_on.append(arguments))(1, memoryview(b"\0"), 0)
    assert len(handed_on) == 1
