"""Paths that are out of use, and go from the disk a while later so that readers may finish."""

from __future__ import annotations

from collections.abc import Container
from heapq import heapify, heappop, heappush


class Trash:
    """Paths by the time at which they are due to go, the earliest first."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_ms: int, path: str) -> None:
        """Add a path that may go from then on."""
        heappush(self._heap, (due_ms, path))

    def next_due_ms(self) -> int | None:
        """When the first path is due; None where there is none."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int, most: int) -> list[str]:
        """Take out at most so many of the paths that are due, the earliest first."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < most:
            due.append(heappop(self._heap)[1])
        return due

    def remove_in(self, directories: Container[str]) -> None:
        """Take out all paths within these directories, which go as a whole."""
        self._heap = [
            (due_ms, path)
            for due_ms, path in self._heap
            if path.rpartition("/")[0] not in directories
        ]
        heapify(self._heap)
