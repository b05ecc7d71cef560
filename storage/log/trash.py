"""Unused paths, which are deleted later, since readers have to finish first."""

from __future__ import annotations

from collections.abc import Container
from heapq import heapify, heappop, heappush


class Trash:
    """Paths by the time of their deletion, the earliest first.

    next_due_ms: when the first path is due; None if there are no paths.
    """

    __slots__ = ("_heap", "next_due_ms")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self.next_due_ms: int | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_ms: int, path: str) -> None:
        """Add a path that may be deleted from the given time on."""
        heappush(self._heap, (due_ms, path))
        self._note_first()

    def take_due(self, now_ms: int, most: int) -> list[str]:
        """Remove and return at most `most` paths that are due, the earliest first."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < most:
            due.append(heappop(self._heap)[1])
        self._note_first()
        return due

    def remove_in(self, directories: Container[str]) -> None:
        """Remove all paths in these directories, since the directories are deleted as a whole."""
        self._heap = [
            (due_ms, path)
            for due_ms, path in self._heap
            if path.rpartition("/")[0] not in directories
        ]
        heapify(self._heap)
        self._note_first()

    def _note_first(self) -> None:
        self.next_due_ms = self._heap[0][0] if self._heap else None
