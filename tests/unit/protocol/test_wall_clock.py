"""The difference between the wall clock and the steady clock, as of the latest reading."""

from __future__ import annotations

from barnabas.protocol.wall_clock import WallClock


def test_without_a_reading_wall_time_equals_steady_time() -> None:
    clock = WallClock()
    assert 7 + clock.ahead_ms == 7
    assert clock.since_ms(7) == 7


def test_the_wall_time_is_ahead_by_the_latest_difference() -> None:
    clock = WallClock()
    clock.feed(100, 5_000)
    assert [100 + clock.ahead_ms, 130 + clock.ahead_ms] == [5_000, 5_030]
    clock.feed(200, 4_000)  # set back
    assert 200 + clock.ahead_ms == 4_000


def test_a_future_timestamp_counts_as_now() -> None:
    clock = WallClock()
    clock.feed(100, 5_000)
    assert clock.since_ms(4_990) == 90
    assert clock.since_ms(9_000) == 100
