"""A clock that a test can advance."""

from __future__ import annotations

import pytest

from barnabas.test_control.rim.clock import ControlledClock


class Machine:
    """A machine whose clocks the test sets."""

    steady, wall = 1_000, 5_000_000

    def clock(self) -> ControlledClock:
        return ControlledClock(lambda: self.steady, lambda: self.wall)

    def go_on(self, by_ms: int) -> None:
        self.steady += by_ms
        self.wall += by_ms


def test_the_clock_follows_the_machine_plus_what_it_was_advanced_by() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.go_on(7)
    assert (clock.steady_ms(), clock.wall_ms(), clock.ahead_ms) == (1_007, 5_000_007, 0)
    clock.advance(100)
    machine.go_on(1)
    assert (clock.steady_ms(), clock.wall_ms(), clock.ahead_ms) == (1_108, 5_000_108, 100)


def test_a_frozen_clock_changes_only_by_advance() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.advance(100)
    clock.freeze()
    machine.go_on(30)
    assert (clock.steady_ms(), clock.wall_ms(), clock.is_frozen) == (1_100, 5_000_100, True)
    clock.advance(5)
    assert (clock.steady_ms(), clock.wall_ms()) == (1_105, 5_000_105)
    clock.unfreeze()
    assert (clock.steady_ms(), clock.ahead_ms, clock.is_frozen) == (1_105, 75, False)
    machine.go_on(2)
    assert (clock.steady_ms(), clock.wall_ms()) == (1_107, 5_000_107)
    clock.unfreeze()
    assert clock.steady_ms() == 1_107


def test_it_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="only be moved forward"):
        Machine().clock().advance(-1)


def test_ahead_ms_is_exact_although_the_machine_clock_advances_between_readings() -> None:
    """The machine's clock advances by a millisecond between any two readings."""
    readings = iter(range(5_000_000, 6_000_000))
    clock = ControlledClock(lambda: 1_000, lambda: next(readings))
    clock.advance(691_200_000)
    assert clock.ahead_ms == 691_200_000
