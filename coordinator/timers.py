"""A table of deadlines by key. There are no callbacks: the owner takes the keys that are due.

A key has at most one deadline, and scheduling the key again moves it. Nearly all deadlines are
cancelled or moved to a later time before they are due, many with each request. So the heap entry of
a key stays where it is until it comes to the top of the heap; then it moves to the current
deadline. A deadline that is moved to an earlier time gets a further entry. If the entries outnumber
the deadlines, the heap is rebuilt, so it is never more than twice as large as the table.
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

    The value of a key is its deadline and a sequence number. Keys that are due in the same
    millisecond are returned in the order in which they were scheduled. _queued_ms: the time of each
    key's entry in the heap, which is at or before its deadline.

    earliest_ms: a lower bound of all deadlines; None if there are no deadlines. It may be too
    early, since it is not updated when a deadline is moved or cancelled, but only by
    `next_deadline_ms`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.earliest_ms: int | None = None
        self._heap: list[tuple[int, int, Key]] = []
        self._queued_ms: dict[Key, int] = {}
        self._next_sequence = 0

    def deadline_ms(self, key: Key) -> int | None:
        """Return the deadline of `key`, or None if the key has no deadline."""
        row = self.get(key)
        return None if row is None else row[0]

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`, in place of any earlier one. This takes O(log n) steps if the
        deadline becomes earlier, otherwise O(1).
        """
        sequence = self._next_sequence
        self._next_sequence = sequence + 1
        self[key] = deadline_ms, sequence
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or deadline_ms < queued_ms:
            self._queued_ms[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, sequence, key))
            if len(self._heap) > _SMALL and len(self._heap) > 2 * len(self):
                self._rebuild()
        if self.earliest_ms is None or deadline_ms < self.earliest_ms:
            self.earliest_ms = deadline_ms

    def cancel(self, key: Key) -> bool:
        """Remove the deadline of `key`. Return False if the key had no deadline."""
        return self.pop(key, None) is not None

    def pop_due(self, now_ms: int, most: int = sys.maxsize) -> list[Key]:
        """Remove and return the keys whose deadline is at or before `now_ms`, earliest first.

        This takes O(log n) steps for each key.

        Takes:  most, the maximum number of keys. Any further keys remain due.
        """
        due: list[Key] = []
        while len(due) < most:
            deadline_ms = self.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                return due
            key = heapq.heappop(self._heap)[2]
            del self[key], self._queued_ms[key]
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
        heap = self._heap
        while heap:
            queued_ms, sequence, key = heap[0]
            row = self.get(key)
            if row == (queued_ms, sequence):
                self.earliest_ms = queued_ms
                return queued_ms
            if self._queued_ms.get(key) != queued_ms:
                heapq.heappop(heap)  # an earlier entry has replaced it
            elif row is None:
                heapq.heappop(heap)
                del self._queued_ms[key]
            else:
                heapq.heapreplace(heap, (*row, key))
                self._queued_ms[key] = row[0]
        self.earliest_ms = None
        return None

    def _rebuild(self) -> None:
        """Make the heap again, with one entry for each deadline."""
        self._heap = [(deadline_ms, sequence, key) for key, (deadline_ms, sequence) in self.items()]
        heapq.heapify(self._heap)
        self._queued_ms = {key: deadline_ms for key, (deadline_ms, _) in self.items()}
