"""Parts of the broker that are rarely needed. Each is made, and its modules are loaded, at its
first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Part = TypeVar("Part")


class Lazy(Generic[Part]):
    """A part of the broker that is made at its first use. made: the part, or None before that."""

    __slots__ = ("_make", "made")

    def __init__(self, make: Callable[[], Part]) -> None:
        self._make = make
        self.made: Part | None = None

    def get(self) -> Part:
        """The part, which the first call makes."""
        if self.made is None:
            self.made = self._make()
        return self.made
