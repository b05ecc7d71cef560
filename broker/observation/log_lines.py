"""The lines of the log in plain text. Text that comes from clients cannot begin a new line, and the
number of lines that clients cause is bounded.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

LONGEST_MESSAGE = 8192  # a bound is needed, since an id in a request may have 32,767 characters
PLAIN_LOG = "%(asctime)s %(levelname)s %(name)s: %(message)s"
INTERVAL_MS = 60_000
MOST_PEERS = 1000
OTHERS = "other addresses"


class LineFormatter(logging.Formatter):
    """A formatter of PLAIN_LOG that escapes unprintable characters.

    So a client id with a line feed cannot add a line to the log, and a client id with an escape
    sequence cannot change the terminal of a person who reads the log.
    """

    def __init__(self) -> None:
        super().__init__(PLAIN_LOG)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The log line, without the text of its exception."""
        record.message = on_one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """The traceback, in which an error may quote a client."""
        return "\n".join(map(on_one_line, super().formatException(ei).split("\n")))


def on_one_line(text: str) -> str:
    """The text, shortened, with Python's escapes for unprintable characters."""
    text = shortened(text)
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shortened(text: str) -> str:
    """A message, cut to the maximum length of a log line."""
    left = len(text) - LONGEST_MESSAGE
    return text if left <= 0 else f"{text[:LONGEST_MESSAGE]}... and {left} more characters"


class LeftOut(NamedTuple):
    """How many lines of one kind, caused by one peer, were not written."""

    kind: str
    peer: str
    line_count: int


class BoundedLines:
    """A bound on the log lines that peers cause: a number per minute for each kind and peer.
    Further lines are only counted.

    A minute begins with its first line. MOST_PEERS pairs of kind and peer are counted separately.
    All further peers count as one, so that neither lines nor memory grow with the number of
    addresses.
    """

    def __init__(self, most: int, most_peers: int = MOST_PEERS) -> None:
        self._most, self._most_peers = most, most_peers
        # the entries are in the order in which their minutes began
        self._rows: dict[tuple[str, str], list[int]] = {}

    def may_write(self, kind: str, peer: str, now_ms: int) -> bool:
        """Whether one more line may be written. If not, the line is counted as left out."""
        key = (kind, peer)
        # a row is the time at which its minute began, and the number of lines since
        row = self._rows.get(key)
        if row is None and len(self._rows) >= self._most_peers:
            key = (kind, OTHERS)
            row = self._rows.get(key)
        if row is not None and row[0] + INTERVAL_MS <= now_ms and row[1] <= self._most:
            del self._rows[key]
            row = None
        if row is None:
            row = self._rows[key] = [now_ms, 0]
        row[1] += 1
        return row[1] <= self._most

    def left_out(self, now_ms: int) -> list[LeftOut]:
        """The numbers of left-out lines for the minutes that have ended. The call removes these
        numbers.
        """
        ended = []
        for key, (began_ms, count) in list(self._rows.items()):
            if began_ms + INTERVAL_MS > now_ms:
                break
            del self._rows[key]
            if count > self._most:
                ended.append(LeftOut(*key, count - self._most))
        return ended

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the oldest minute ends; None if nothing is counted."""
        return next((row[0] + INTERVAL_MS for row in self._rows.values()), None)
