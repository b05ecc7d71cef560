"""The log lines about closed connections."""

from __future__ import annotations

import asyncio
import logging

from barnabas.broker.observation.log_lines import BoundedLines
from barnabas.broker.outbox import CloseReason

logger = logging.getLogger("barnabas.server")

MOST_LINES_OF_AN_ADDRESS = 20  # lines per minute
# the delay between the end of a minute and the line with the minute's count
AFTER_A_MINUTE_S = 0.05


class ClosingLines:
    """Writes the log lines about closed connections.

    For each address a limited number of lines is written in a minute, and the others are only
    counted. So a client that connects again and again does not fill the disk.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines = BoundedLines(MOST_LINES_OF_AN_ADDRESS)
        self._timer: asyncio.TimerHandle | None = None

    def write(self, peer: str, reason: CloseReason, level: int) -> None:
        """Log why a connection is closed, or only count the line if there are too many."""
        kind, host = logging.getLevelName(level), peer.rpartition(":")[0]
        if self._lines.may_write(kind, host, int(self._loop.time() * 1000)):
            logger.log(
                level, "closing the connection of %s: %s", peer, reason, extra={"client": peer}
            )
        elif self._timer is None:
            self.write_left_out()

    def write_left_out(self) -> None:
        """Log the counts of the minutes that have ended. Do so again when the next minute ends."""
        now_ms = int(self._loop.time() * 1000)
        for row in self._lines.left_out(now_ms):
            logger.log(
                logging.getLevelNamesMapping()[row.kind],
                "%d more connections of %s were closed within a minute",
                row.line_count,
                row.peer,
            )
        deadline_ms, self._timer = self._lines.deadline_ms, None
        if deadline_ms is not None:
            delay_s = max(0, deadline_ms - now_ms) / 1000 + AFTER_A_MINUTE_S
            self._timer = self._loop.call_later(delay_s, self.write_left_out)
