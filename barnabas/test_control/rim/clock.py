"""The machine's two clocks, which a test can move and freeze."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.rim import clocks


class ControlledClock:
    """Steady and wall time: `advance` moves both, `freeze` stops both."""

    def __init__(
        self,
        steady_ms: Callable[[], int] = clocks.steady_ms,
        wall_ms: Callable[[], int] = clocks.wall_ms,
    ) -> None:
        self._steady_ms, self._wall_ms = steady_ms, wall_ms
        self._ahead_ms = 0
        self._frozen_at: tuple[int, int] | None = None

    @property
    def is_frozen(self) -> bool:
        """Whether only `advance` moves the time."""
        return self._frozen_at is not None

    @property
    def ahead_ms(self) -> int:
        """How far the clock is ahead of the machine's. The number may be negative after the clock
        was frozen.
        """
        frozen = self._frozen_at
        # Read the machine's clock only once, since two readings may differ by a millisecond.
        return frozen[1] - self._wall_ms() if frozen is not None else self._ahead_ms

    def steady_ms(self) -> int:
        """The steady time; replaces `clocks.steady_ms`."""
        frozen = self._frozen_at
        return frozen[0] if frozen is not None else self._steady_ms() + self._ahead_ms

    def wall_ms(self) -> int:
        """The wall time; replaces `clocks.wall_ms`."""
        frozen = self._frozen_at
        return frozen[1] if frozen is not None else self._wall_ms() + self._ahead_ms

    def advance(self, by_ms: int) -> None:
        """Move both clocks forward. Raises: ValueError for a negative number."""
        if by_ms < 0:
            raise ValueError("the clock can only be moved forward")
        if self._frozen_at is not None:
            steady, wall = self._frozen_at
            self._frozen_at = steady + by_ms, wall + by_ms
        else:
            self._ahead_ms += by_ms

    def freeze(self) -> None:
        """Stop both clocks."""
        self._frozen_at = self.steady_ms(), self.wall_ms()

    def unfreeze(self) -> None:
        """Let both clocks continue from their frozen time."""
        if self._frozen_at is not None:
            self._ahead_ms = self._frozen_at[0] - self._steady_ms()
            self._frozen_at = None
