"""Long work in slices: requests for thousands of logs or groups, between which other clients are
served.

The work is a generator. It yields where others may have their turn, is sent the time when it goes
on, and returns the answer. That of a request yields before its first slice, too. One request's work
is done after the other, in the order in which they came: what a request finds when its turn comes
stays so until it ends. Where it has to wait for the disk (`Wait`), what comes behind it does, too.
The first slice is done at once where nobody's work goes before it, so that a request for one topic
is answered as if there were no slices.

What only reads goes in slices of its own, beside what changes something: each row that it gives is
of one moment, two rows may be of two.

Between two slices anything may happen: other requests, a kill, a power loss. A topic that comes is
journaled first, and nobody is told of it before all its logs are there; a topic that goes is
journaled first, and nobody is told of it from then on. A start ends what was cut short.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

Slices = Generator[Any, int, Any]  # yields None, or a `Wait`
Pieces = Callable[[], Sequence[Any]]  # encodes an answer that the work has in values


class Wait(NamedTuple):
    """What some work waits for between two slices: the disk.

    begin: begins to wait; it calls what it is given, with the time, when that is over. at_once:
    does it without a break.
    """

    begin: Callable[[Callable[[int], None]], None]
    at_once: Callable[[], None]


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
        self._wait: Wait | None = None
        self.queue: deque[tuple[int, Slices]] = deque()

    def begin(self, ticket: int, work: Slices, now_ms: int) -> tuple[bool, Any]:
        """Do the first slice, if nobody goes before it. Gives whether that was all, and the answer
        then; the rest has its turn later.
        """
        next(work)
        if not self.queue or self._is_wanted is not None:
            is_done, answer = self._go_on(work, now_ms)
            if is_done:
                return True, answer
        self.queue.append((ticket, work))
        return False, None

    @property
    def is_ready(self) -> bool:
        """Whether `on_tick` has something to do: there is work, and it waits for nothing."""
        return bool(self.queue) and self._wait is None

    def on_tick(self, now_ms: int) -> None:
        """Do one slice of the work that is next."""
        while self._is_wanted is not None and self.queue and not self._is_wanted(self.queue[0][0]):
            self.queue.popleft()
        if self.is_ready:
            ticket, work = self.queue[0]
            is_done, answer = self._go_on(work, now_ms)
            if is_done:
                self.queue.popleft()
                self._on_answer(ticket, answer)

    def finish(self, now_ms: int) -> None:
        """Do all that is left, without a break: nobody flushes for what waits any more."""
        if self._wait is not None:
            self._wait.at_once()
        while self.queue:
            ticket, work = self.queue.popleft()
            self._on_answer(ticket, run_through(work, now_ms, is_begun=True))

    def _go_on(self, work: Slices, now_ms: int) -> tuple[bool, Any]:
        try:
            wait = work.send(now_ms)
        except StopIteration as end:
            return True, end.value
        if wait is not None:
            self._wait = wait
            wait.begin(self._on_waited)
        return False, None

    def _on_waited(self, now_ms: int) -> None:
        self._wait = None


def run_through(work: Slices, now_ms: int, *, is_begun: bool = False) -> Any:
    """Do what is a part of some work without a break. Gives what it returns.

    Takes: is_begun, whether it has come to its first yield already.
    """
    try:
        wait = None if is_begun else next(work)
        while True:
            if wait is not None:
                wait.at_once()
            wait = work.send(now_ms)
    except StopIteration as end:
        return end.value
