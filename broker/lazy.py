"""Parts that are rarely needed: each is made, and its modules are loaded, at its first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Part = TypeVar("Part")


class Lazy(Generic[Part]):
    """A part that is made when it is first needed. made: the part, or None until then."""

    __slots__ = ("_make", "made")

    def __init__(self, make: Callable[[], Part]) -> None:
        self._make = make
        self.made: Part | None = None

    def get(self) -> Part:
        """The part, which the first call makes."""
        if self.made is None:
            self.made = self._make()
        return self.made
