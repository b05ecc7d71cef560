"""Holds the answers to clients that may not be sent yet.

An answer waits until the standby has everything that the leader did before it. With a lease it is
sent only while the leader's right to answer lasts (`leadership`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class HeldAnswers(Generic[Answer]):
    """The waiting answers, in order.

    Takes: may_go_out, a test of whether an answer that was ready at a position may be sent.
    """

    def __init__(self, may_go_out: Callable[[int], bool]) -> None:
        self._may_go_out = may_go_out
        self._waiting: deque[tuple[int, Answer]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def holds(self, position: int, answer: Answer) -> bool:
        """Whether an answer has to wait; if so it is kept. No answer overtakes an earlier one."""
        if not self._waiting and self._may_go_out(position):
            return False
        self._waiting.append((position, answer))
        return True

    def released(self) -> Iterator[Answer]:
        """The answers that may be sent, each after the one before has been sent."""
        waiting = self._waiting
        while waiting and self._may_go_out(waiting[0][0]):
            yield waiting.popleft()[1]
