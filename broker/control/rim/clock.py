"""The machine's two clocks, with a test's hand on them."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.rim import clocks


class ControlledClock:
    """Steady and wall time, moved on together by `advance`, and standing while frozen."""

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
        """Whether time stands but for `advance`."""
        return self._frozen_at is not None

    @property
    def ahead_ms(self) -> int:
        """How far the clock is ahead of the machine's; below 0 after a frozen time."""
        return self.wall_ms() - self._wall_ms()

    def steady_ms(self) -> int:
        """In the place of `clocks.steady_ms`."""
        frozen = self._frozen_at
        return frozen[0] if frozen is not None else self._steady_ms() + self._ahead_ms

    def wall_ms(self) -> int:
        """In the place of `clocks.wall_ms`."""
        frozen = self._frozen_at
        return frozen[1] if frozen is not None else self._wall_ms() + self._ahead_ms

    def advance(self, by_ms: int) -> None:
        """Move both on. Raises: ValueError where that is back."""
        if by_ms < 0:
            raise ValueError("time goes forward only")
        if self._frozen_at is not None:
            steady, wall = self._frozen_at
            self._frozen_at = steady + by_ms, wall + by_ms
        else:
            self._ahead_ms += by_ms

    def freeze(self) -> None:
        """Let time stand."""
        self._frozen_at = self.steady_ms(), self.wall_ms()

    def unfreeze(self) -> None:
        """Let time go on from where it stands."""
        if self._frozen_at is not None:
            self._ahead_ms = self._frozen_at[0] - self._steady_ms()
            self._frozen_at = None
