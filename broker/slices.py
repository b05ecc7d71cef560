"""Long work in slices: requests for thousands of logs or groups, between which other clients are
served.

The work is a generator. It yields where others may have their turn, is sent the time when it goes
on, and returns the answer. That of a request yields before its first slice, too. One request's work
is done after the other, in the order in which they came: what a request finds when its turn comes
stays so until it ends. The first slice is done at once where nobody's work goes before it, so that
a request for one topic is answered as if there were no slices.

What only reads goes in slices of its own, beside what changes something: each row that it gives is
of one moment, two rows may be of two.

Between two slices anything may happen: other requests, a kill, a power loss. A topic that comes is
journaled first, and nobody is told of it before all its logs are there; a topic that goes is
journaled first, and nobody is told of it from then on. A start ends what was cut short.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

Slices = Generator[None, int, Any]
Pieces = Callable[[], Sequence[Any]]  # encodes an answer that the work has in values

MOST_PARTITIONS_AT_ONCE = (
    10_000  # that one request may make, as Apache Kafka's controller bounds it
)
LOGS_MADE_AT_ONCE = 128
LOGS_DELETED_AT_ONCE = 64
ROWS_READ_AT_ONCE = 250  # of a list of thousands: one to three milliseconds
GROUPS_DELETED_AT_ONCE = 64


class SlicedWork:
    """The work that is under way and what waits for it. `on_answer(ticket, answer)` is called at
    the end of what did not end at once. queue: what is not done, the first one under way.

    Takes: is_wanted, of work that only reads: whether somebody waits for the answer of that ticket.
           Else it is given up. Its first slice is always done at once.
    """

    def __init__(
        self,
        on_answer: Callable[[int, Any], None],
        is_wanted: Callable[[int], bool] | None = None,
    ) -> None:
        self._on_answer, self._is_wanted = on_answer, is_wanted
        self.queue: deque[tuple[int, Slices]] = deque()

    def begin(self, ticket: int, work: Slices, now_ms: int) -> tuple[bool, Any]:
        """Do the first slice, if nobody goes before it. Gives whether that was all, and the answer
        then; the rest has its turn later.
        """
        next(work)
        if not self.queue or self._is_wanted is not None:
            is_done, answer = _go_on(work, now_ms)
            if is_done:
                return True, answer
        self.queue.append((ticket, work))
        return False, None

    def on_tick(self, now_ms: int) -> None:
        """Do one slice of the work that is next."""
        while self._is_wanted is not None and self.queue and not self._is_wanted(self.queue[0][0]):
            self.queue.popleft()
        if self.queue:
            ticket, work = self.queue[0]
            is_done, answer = _go_on(work, now_ms)
            if is_done:
                self.queue.popleft()
                self._on_answer(ticket, answer)

    def finish(self, now_ms: int) -> None:
        """Do all that is left, without a break."""
        while self.queue:
            self.on_tick(now_ms)


def _go_on(work: Slices, now_ms: int) -> tuple[bool, Any]:
    try:
        work.send(now_ms)
    except StopIteration as end:
        return True, end.value
    return False, None


def run_through(work: Slices, now_ms: int) -> Any:
    """Do what is a part of some work without a break. Gives what it returns."""
    try:
        next(work)
        while True:
            work.send(now_ms)
    except StopIteration as end:
        return end.value
