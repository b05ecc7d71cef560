"""Holds the responses to clients that may not be sent yet.

A response waits until the standby has everything that the leader did before it. With a lease it is
sent only while the leader's right to respond lasts (`leadership`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class HeldAnswers(Generic[Answer]):
    """The waiting responses, in order.

    Takes: may_go_out, a function that returns whether a response that was ready at a given position
           may be sent.
    """

    def __init__(self, may_go_out: Callable[[int], bool]) -> None:
        self._may_go_out = may_go_out
        self._waiting: deque[tuple[int, Answer]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def holds(self, position: int, answer: Answer) -> bool:
        """Whether a response has to wait. If so, this call stores it. No response overtakes an
        earlier one.
        """
        if not self._waiting and self._may_go_out(position):
            return False
        self._waiting.append((position, answer))
        return True

    def released(self) -> Iterator[Answer]:
        """The responses that may be sent. Each is checked after the previous one has been sent."""
        waiting = self._waiting
        while waiting and self._may_go_out(waiting[0][0]):
            yield waiting.popleft()[1]
