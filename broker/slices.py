"""Long work in slices: other clients are served between the slices of a request for thousands of
logs or groups.

The work is a generator. It yields where other work may run, is sent the time when it continues, and
returns the response. The work of a request also yields before its first slice. Requests are
processed one after the other, in the order of arrival. The state that a request finds when its work
begins does not change until the work ends. If a request waits for the disk (`Wait`), the requests
behind it wait as well. The first slice is done at once if no other work is waiting, so a request
for one topic is answered as if there were no slices.

Requests that only read have a separate queue. Each row of their responses is consistent in itself,
but two rows may show the state at different times.

Between two slices anything may happen: other requests, a kill, a power loss. A new topic is
journaled first, and is not visible before all its logs exist. A deleted topic is also journaled
first, and is not visible from then on. A start completes what was interrupted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

Slices = Generator[Any, int, Any]  # each yield is None or a `Wait`
NO_TICKET = 0  # the ticket of work for which no request waits
Pieces = Callable[[], Sequence[Any]]  # a function that encodes the response


class Wait(NamedTuple):
    """A wait for the disk between two slices of some work.

    begin: starts the wait. It takes a function, which is called with the time when the wait is
    over. at_once: blocks until the wait is over.
    """

    begin: Callable[[Callable[[int], None]], None]
    at_once: Callable[[], None]


# the maximum number of partitions that one request may create, as in Apache Kafka's controller
MOST_PARTITIONS_AT_ONCE = 10_000
LOGS_MADE_AT_ONCE = 128
LOGS_DELETED_AT_ONCE = 64
ROWS_READ_AT_ONCE = 250  # number of list elements handled in one slice, which takes one to three ms
GROUPS_DELETED_AT_ONCE = 64


class SlicedWork:
    """The running work, and the work that waits for it. queue: unfinished work by its ticket, of
    which the first is running.

    `on_answer(ticket, answer)` is called at the end of work that did not end in its first slice,
    and `on_error(ticket, error)` if a later slice, or `on_answer`, raises an exception. The next
    work then begins. `on_error` raises errors that end the process.

    Takes: only_reads, whether the work changes nothing. The first slice of such work is always done
           at once, and it is dropped if no client waits for its response.
    """

    def __init__(
        self,
        on_answer: Callable[[int, Any], None],
        on_error: Callable[[int, Exception], None],
        *,
        only_reads: bool = False,
    ) -> None:
        self._on_answer, self._on_error, self._only_reads = on_answer, on_error, only_reads
        self._wait: Wait | None = None
        self._last_key = NO_TICKET
        self.queue: OrderedDict[int, Slices] = OrderedDict()

    def begin(self, ticket: int, work: Slices, now_ms: int) -> tuple[bool, Any]:
        """Do the first slice of some work, if no other work waits. The other slices are done later.
        Gives: whether the work is complete, and its response if it is.
        """
        next(work)
        if not self.queue or self._only_reads:
            is_done, answer = self._go_on(work, now_ms)
            if is_done:
                return True, answer
        if ticket == NO_TICKET:  # each such work has a key of its own
            ticket = self._last_key = self._last_key - 1
        self.queue[ticket] = work
        return False, None

    def drop(self, ticket: int) -> None:
        """Drop work that only reads, since its client has hung up."""
        assert self._only_reads
        self.queue.pop(ticket, None)

    @property
    def is_ready(self) -> bool:
        """Whether `on_tick` has something to do that does not wait for the disk."""
        return bool(self.queue) and self._wait is None

    def on_tick(self, now_ms: int) -> None:
        """Do one slice of the first work in the queue."""
        if self.is_ready:
            ticket, work = next(iter(self.queue.items()))
            try:
                is_done, answer = self._go_on(work, now_ms)
            except Exception as error:
                del self.queue[ticket]
                self._on_error(ticket, error)
                return
            if is_done:
                del self.queue[ticket]
                self._answer(ticket, answer)

    def finish(self, now_ms: int) -> None:
        """Do all remaining work without a break or a wait for flushes, since the process
        is ending.
        """
        if self._wait is not None:
            self._wait.at_once()
        while self.queue:
            ticket, work = self.queue.popitem(last=False)
            try:
                answer = run_through(work, now_ms, is_begun=True)
            except Exception as error:
                self._on_error(ticket, error)
            else:
                self._answer(ticket, answer)

    def _answer(self, ticket: int, answer: Any) -> None:
        """Pass on the result of some work."""
        try:
            self._on_answer(ticket, answer)
        except Exception as error:
            self._on_error(ticket, error)

    def _go_on(self, work: Slices, now_ms: int) -> tuple[bool, Any]:
        """Run the next slice. Gives: whether the work is complete, and its answer."""
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
    """Run the generator of some work without a break. Gives: its return value.

    Takes: is_begun, whether the generator has already reached its first yield.
    """
    try:
        wait = None if is_begun else next(work)
        while True:
            if wait is not None:
                wait.at_once()
            wait = work.send(now_ms)
    except StopIteration as end:
        return end.value
