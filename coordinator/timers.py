"""Deadlines as rows of a table: there are no callbacks; the owner takes the keys that are due.

A key has at most one deadline; scheduling it again moves it. Rows that were moved or cancelled stay
in the heap until they are due, or until they outnumber the current ones, when the heap is rebuilt:
so the heap is never more than twice as large as the table.
"""

from __future__ import annotations

import heapq
import sys
from typing import TypeVar

Key = TypeVar("Key")

# A deadline whose work found no disk space is moved by this time. While groups' deadlines are
# suspended, those that are due within SOON_MS are moved, too: so a member has this time for its
# heartbeat once there is space again.
PUT_OFF_MS, SOON_MS = 10_000, 5_000
_SMALL = 64  # with fewer rows the heap is not rebuilt


class Timers(dict[Key, tuple[int, int]]):
    """A table of keys and their deadlines in ms: a dict, from which `pop` removes a deadline.

    Each key has its deadline and the number of its scheduling, which is also in the heap. Keys that
    are due at the same ms are returned in the order in which they were scheduled.

    earliest_ms: a lower bound of all deadlines; None: no key has a deadline. It may be too early,
    since moving or cancelling a deadline does not change it until `next_deadline_ms` is called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.earliest_ms: int | None = None
        self._heap: list[tuple[int, int, Key]] = []
        self._next_sequence = 0

    def deadline_ms(self, key: Key) -> int | None:
        """The deadline of `key`; None where it has none."""
        row = self.get(key)
        return None if row is None else row[0]

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`, in place of the previous one. O(log n)."""
        row = (deadline_ms, self._next_sequence)
        self._next_sequence += 1
        self[key] = row
        heapq.heappush(self._heap, (*row, key))
        if self.earliest_ms is None or deadline_ms < self.earliest_ms:
            self.earliest_ms = deadline_ms
        if len(self._heap) > _SMALL:
            self._maybe_rebuild()

    def cancel(self, key: Key) -> bool:
        """Remove the deadline of `key`; False where it had none."""
        return self.pop(key, None) is not None

    def pop_due(self, now_ms: int, most: int = sys.maxsize) -> list[Key]:
        """Remove and return the keys whose deadline is at or before `now_ms`, earliest first.

        O(due log n).

        Takes: most, the maximum number of keys; the others stay due.
        """
        due: list[Key] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < most:
            deadline_ms, sequence, key = heapq.heappop(self._heap)
            if self.get(key) == (deadline_ms, sequence):
                del self[key]
                due.append(key)
        self.next_deadline_ms()
        return due

    def put_off(self, now_ms: int, most: int = sys.maxsize) -> None:
        """Move the deadlines that are due within SOON_MS. Takes: most, the maximum number of
        them.
        """
        for key in self.pop_due(now_ms + SOON_MS, most):
            self.schedule(key, now_ms + PUT_OFF_MS)

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline, None where there is none."""
        while self._heap:
            deadline_ms, sequence, key = self._heap[0]
            if self.get(key) == (deadline_ms, sequence):
                self.earliest_ms = deadline_ms
                return deadline_ms
            heapq.heappop(self._heap)
        self.earliest_ms = None
        return None

    def _maybe_rebuild(self) -> None:
        if len(self._heap) <= 2 * len(self):
            return
        self._heap = [(deadline_ms, sequence, key) for key, (deadline_ms, sequence) in self.items()]
        heapq.heapify(self._heap)
