"""Decisions whose records could not be written for lack of disk space. The writes are repeated
until they succeed.

If nothing depends on such a decision yet, it is dropped and its request is refused
(`requests/without_space.py`). Otherwise the decision remains. Its remaining steps are a call that
waits here and is repeated every RETRY_MS. Requests that depend on the decision are refused until
then:

| what | waits in | until then |
|---|---|---|
| the end of a transaction, from its decision on | `Ending.left` | its transactional id is ending |
| a Result that has changed soft state of a group | `GroupRuntime` | its partition takes no more |
| the states of share partitions | `StateChanges` | later changes wait |
| offsets of deleted topics | `TopicDeletion` | no topic of these names is made |

Calls are tried one after another. A call that fails postpones the others and moves to the end of
the queue. So a single log that cannot grow, for example because of a limit on its file's size,
delays the others only once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from barnabas.broker.observation.log_lines import BoundedLines
from barnabas.storage.exception_guard import contain

logger = logging.getLogger("barnabas.broker")

RETRY_MS = 1_000
MOST_AT_ONCE = 16
MOST_LINES_OF_A_LOG = 1  # maximum log lines per minute about one kind of decision


class UnwrittenWork:
    """The calls that wait for disk space.

    may_wait: whether calls may wait at all. If a start has to write something before it serves the
    first client, as after a power loss, calls may not wait, and an error ends the start.

    Takes: on_not_written, which is called with each error.
    """

    def __init__(self, on_not_written: Callable[[OSError], None] = lambda error: None) -> None:
        self._on_not_written = on_not_written
        self.calls: deque[Callable[[int], None]] = deque()
        self._due_ms = 0
        self.may_wait = False
        self._lines = BoundedLines(MOST_LINES_OF_A_LOG)

    def __len__(self) -> int:
        return len(self.calls)

    def later(self, call: Callable[[int], None], now_ms: int) -> None:
        """Make the call after RETRY_MS. If there is still no space then, the call has to call this
        method again.
        """
        self.calls.append(call)
        self._due_ms = now_ms + RETRY_MS

    def next_deadline_ms(self) -> int | None:
        """The time at which `on_tick` has work; None if no calls wait."""
        return self._due_ms if self.calls else None

    def on_tick(self, now_ms: int) -> None:
        """Make some of the calls, up to the first one for which there is no space."""
        for _ in range(MOST_AT_ONCE):
            if not self.calls or self._due_ms > now_ms:
                return
            try:
                self.calls.popleft()(now_ms)
            except Exception as error:
                contain(error, "a decision that waited for disk space")

    def note(self, what: str, error: OSError, now_ms: int) -> None:
        """Log that a decision was not written, at most once a minute for each text."""
        self._on_not_written(error)
        if self._lines.may_write("no space", what, now_ms):
            logger.error("%s: not written, since the disk is full: %s", what, error)
