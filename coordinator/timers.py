"""Deadlines as rows of a table. There are no callbacks: the owner takes the keys that are due.

A key has at most one deadline, and scheduling the key again moves it. Rows that were moved or
cancelled stay in the heap until they are due. If they outnumber the current rows, the heap is
rebuilt, so it is never more than twice as large as the table.
"""

from __future__ import annotations

import heapq
import sys
from typing import TypeVar

Key = TypeVar("Key")

# If the work of a deadline finds no disk space, the deadline is moved by PUT_OFF_MS. While groups'
# deadlines are suspended, those that are due within SOON_MS are moved too: a member then has this
# time to send a heartbeat once there is space again.
PUT_OFF_MS, SOON_MS = 10_000, 5_000
_SMALL = 64  # a heap with fewer rows is not rebuilt


class Timers(dict[Key, tuple[int, int]]):
    """A table of keys and their deadlines in ms. It is a dict, from which `pop` removes a deadline.

    The value of a key is its deadline and a sequence number, which are also in the heap. Keys that
    are due in the same millisecond are returned in the order in which they were scheduled.

    earliest_ms: a lower bound of all deadlines, None if no key has one. It may be too early, since
    moving or cancelling a deadline does not change it until `next_deadline_ms` is called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.earliest_ms: int | None = None
        self._heap: list[tuple[int, int, Key]] = []
        self._next_sequence = 0

    def deadline_ms(self, key: Key) -> int | None:
        """The deadline of `key`; None if it has none."""
        row = self.get(key)
        return None if row is None else row[0]

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`, in place of a previous one. It takes O(log n) steps."""
        row = (deadline_ms, self._next_sequence)
        self._next_sequence += 1
        self[key] = row
        heapq.heappush(self._heap, (*row, key))
        if self.earliest_ms is None or deadline_ms < self.earliest_ms:
            self.earliest_ms = deadline_ms
        if len(self._heap) > _SMALL:
            self._maybe_rebuild()

    def cancel(self, key: Key) -> bool:
        """Remove the deadline of `key`. Gives: False if it had none."""
        return self.pop(key, None) is not None

    def pop_due(self, now_ms: int, most: int = sys.maxsize) -> list[Key]:
        """Remove and return the keys whose deadline is at or before `now_ms`, earliest first.

        It takes O(log n) steps for each key.

        Takes:  most, the maximum number of keys; further ones remain due.
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
        """Move the deadlines that are due within SOON_MS, at most `most` of them."""
        for key in self.pop_due(now_ms + SOON_MS, most):
            self.schedule(key, now_ms + PUT_OFF_MS)

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None if there is none."""
        while self._heap:
            deadline_ms, sequence, key = self._heap[0]
            if self.get(key) == (deadline_ms, sequence):
                self.earliest_ms = deadline_ms
                return deadline_ms
            heapq.heappop(self._heap)
        self.earliest_ms = None
        return None

    def _maybe_rebuild(self) -> None:
        """Drop the cancelled entries of the heap if they are more than half of it."""
        if len(self._heap) <= 2 * len(self):
            return
        self._heap = [(deadline_ms, sequence, key) for key, (deadline_ms, sequence) in self.items()]
        heapq.heapify(self._heap)
