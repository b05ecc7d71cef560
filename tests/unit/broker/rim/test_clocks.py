"""The two clocks of the machine: the monotonic clock and the wall clock."""

from __future__ import annotations

import time

from barnabas.broker.rim.clocks import steady_ms, wall_ms


def test_both_are_whole_milliseconds_of_the_clocks_that_they_are_named_after() -> None:
    assert 0 <= steady_ms() - int(time.monotonic() * 1000) <= 1000
    assert 0 <= wall_ms() - int(time.time() * 1000) <= 1000
