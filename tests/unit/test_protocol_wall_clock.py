"""The difference between the wall clock and the steady time, as of the latest reading."""

from __future__ import annotations

from barnabas.protocol.wall_clock import WallClock


def test_unfed_both_times_are_the_same() -> None:
    clock = WallClock()
    assert 7 + clock.ahead_ms == 7
    assert clock.since_ms(7) == 7


def test_the_wall_time_of_an_event_is_as_far_ahead_as_it_was_fed() -> None:
    clock = WallClock()
    clock.feed(100, 5_000)
    assert [100 + clock.ahead_ms, 130 + clock.ahead_ms] == [5_000, 5_030]
    clock.feed(200, 4_000)  # set back
    assert 200 + clock.ahead_ms == 4_000


def test_a_timestamp_that_is_yet_to_come_began_now() -> None:
    clock = WallClock()
    clock.feed(100, 5_000)
    assert clock.since_ms(4_990) == 90
    assert clock.since_ms(9_000) == 100
