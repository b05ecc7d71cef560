"""Decisions of the core whose records found no disk space: the writes are repeated until they
succeed.

A decision whose records could not be written is of one of two kinds. If nothing depends on it yet,
it is dropped and its request is refused (`requests/without_space.py`). Otherwise the decision
stays: its remaining steps are a call here, which is made again RETRY_MS later, and requests that
depend on it are refused meanwhile:

| what | waits as | meanwhile |
|---|---|---|
| the end of a transaction, from its decision on | `Ending.left` | its transactional id is ending |
| a Result that has changed soft state of a group | `GroupRuntime` | its partition takes no other |
| the states of share partitions | `StateChanges` | later changes wait |
| offsets of deleted topics | `TopicDeletion` | no topic of these names is made |

Calls are tried one after another. A call that fails postpones the others and moves to the end: so a
single log that cannot grow, for example at a limit of its file's size, delays the others only once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from barnabas.broker.observation.log_lines import BoundedLines

logger = logging.getLogger("barnabas.broker")

RETRY_MS = 1_000
MOST_AT_ONCE = 16
MOST_LINES_OF_A_LOG = 1  # maximum log lines per minute about one kind of decision


class UnwrittenWork:
    """The calls that wait for space.

    may_wait: whether calls may wait at all. They may not during a start that has to write something
    before it serves the first client, as after a power loss: an error ends such a start.
    """

    def __init__(self) -> None:
        self.calls: deque[Callable[[int], None]] = deque()
        self._due_ms = 0
        self.may_wait = False
        self._lines = BoundedLines(MOST_LINES_OF_A_LOG)

    def __len__(self) -> int:
        return len(self.calls)

    def later(self, call: Callable[[int], None], now_ms: int) -> None:
        """Make the call after RETRY_MS; if there is still no space, the call calls this method
        again.
        """
        self.calls.append(call)
        self._due_ms = now_ms + RETRY_MS

    def next_deadline_ms(self) -> int | None:
        """When `on_tick` has work; None without waiting calls."""
        return self._due_ms if self.calls else None

    def on_tick(self, now_ms: int) -> None:
        """Make some calls, up to the first one that finds no space."""
        for _ in range(MOST_AT_ONCE):
            if not self.calls or self._due_ms > now_ms:
                return
            self.calls.popleft()(now_ms)

    def note(self, what: str, error: OSError, now_ms: int) -> None:
        """Log a decision that was not written, at most once a minute for each text."""
        if self._lines.may_write("no space", what, now_ms):
            logger.error("%s: not written, since the disk is full: %s", what, error)
