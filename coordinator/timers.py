"""A table of deadlines by key. There are no callbacks: the owner takes the keys that are due.

A key has at most one deadline, and scheduling the key again moves it. The heap keeps the entries of
moved and cancelled deadlines until they are due. If these outnumber the current entries, the heap
is rebuilt, so it is never more than twice as large as the table.

A deadline that is moved to a later time, as with each heartbeat, gets no entry at once: when the
earlier entry is due, it is replaced by one for the present deadline.
"""

from __future__ import annotations

import heapq
import sys
from typing import TypeVar

Key = TypeVar("Key")

# PUT_OFF_MS is the time by which a deadline is moved if there is no disk space for its work. While
# the deadlines of groups are suspended, those that are due within SOON_MS are moved too. A member
# then has this time to send a heartbeat once there is space again.
PUT_OFF_MS, SOON_MS = 10_000, 5_000
_SMALL = 64  # a heap with fewer entries is not rebuilt


class Timers(dict[Key, tuple[int, int]]):
    """A table of keys and their deadlines in ms. It is a dict, from which `pop` removes a deadline.

    The value of a key is its deadline and a sequence number. The heap has an entry with these, or
    an earlier one of the key. Keys that are due in the same millisecond are returned in the order
    in which they were scheduled.

    earliest_ms: a lower bound of all deadlines; None if there are no deadlines. It may be too
    early, since it is not updated when a deadline is moved or cancelled, but only by
    `next_deadline_ms`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.earliest_ms: int | None = None
        self._heap: list[tuple[int, int, Key]] = []
        self._next_sequence = 0

    def deadline_ms(self, key: Key) -> int | None:
        """Return the deadline of `key`, or None if the key has no deadline."""
        row = self.get(key)
        return None if row is None else row[0]

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`, in place of any earlier one. This takes O(log n) steps."""
        sequence = self._next_sequence
        self._next_sequence = sequence + 1
        present = self.get(key)
        self[key] = deadline_ms, sequence
        if present is not None and present[0] <= deadline_ms:
            return  # an entry of the heap is early enough
        heap = self._heap
        heapq.heappush(heap, (deadline_ms, sequence, key))
        if self.earliest_ms is None or deadline_ms < self.earliest_ms:
            self.earliest_ms = deadline_ms
        if len(heap) > _SMALL and len(heap) > 2 * len(self):
            self._rebuild()

    def cancel(self, key: Key) -> bool:
        """Remove the deadline of `key`. Return False if the key had no deadline."""
        return self.pop(key, None) is not None

    def pop_due(self, now_ms: int, most: int = sys.maxsize) -> list[Key]:
        """Remove and return the keys whose deadline is at or before `now_ms`, earliest first.

        This takes O(log n) steps for each key.

        Takes:  most, the maximum number of keys. Any further keys remain due.
        """
        due: list[Key] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms and len(due) < most:
            deadline_ms, sequence, key = heap[0]
            present = self.get(key)
            if present is not None and present != (deadline_ms, sequence):
                heapq.heapreplace(heap, (*present, key))
                continue
            heapq.heappop(heap)
            if present is not None:
                del self[key]
                due.append(key)
        self.next_deadline_ms()
        return due

    def put_off(self, now_ms: int, most: int = sys.maxsize) -> None:
        """Move deadlines that are due within SOON_MS to PUT_OFF_MS from now.

        Takes:  most, the maximum number of deadlines to move.
        """
        for key in self.pop_due(now_ms + SOON_MS, most):
            self.schedule(key, now_ms + PUT_OFF_MS)

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline, or None if there are no deadlines."""
        while self._heap:
            deadline_ms, sequence, key = self._heap[0]
            present = self.get(key)
            if present == (deadline_ms, sequence):
                self.earliest_ms = deadline_ms
                return deadline_ms
            if present is None:
                heapq.heappop(self._heap)
            else:
                heapq.heapreplace(self._heap, (*present, key))
        self.earliest_ms = None
        return None

    def _rebuild(self) -> None:
        """Drop the entries of cancelled and earlier deadlines, which are more than half of all."""
        self._heap = [(deadline_ms, sequence, key) for key, (deadline_ms, sequence) in self.items()]
        heapq.heapify(self._heap)
