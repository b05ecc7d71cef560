"""A line of the log for people. What clients say in it stays within the line, and how many lines
they cause is bounded.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

LONGEST_MESSAGE = 8192  # an id that a client names may have 32,767 letters
PLAIN_LOG = "%(asctime)s %(levelname)s %(name)s: %(message)s"
INTERVAL_MS = 60_000
MOST_PEERS = 1000
OTHERS = "other addresses"


class LineFormatter(logging.Formatter):
    """Writes PLAIN_LOG. What cannot be printed in a message is escaped: a client that names itself
    with a line feed writes no line of its own into the log, and none with an escape sequence
    changes the terminal of who reads it.
    """

    def __init__(self) -> None:
        super().__init__(PLAIN_LOG)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without its exception."""
        record.message = on_one_line(record.message)
        return super().formatMessage(record)


def on_one_line(text: str) -> str:
    """The text, with Python's escapes for what cannot be printed; of a long one the beginning."""
    text = shortened(text)
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shortened(text: str) -> str:
    """A message without what is too long for a line of the log."""
    left = len(text) - LONGEST_MESSAGE
    return text if left <= 0 else f"{text[:LONGEST_MESSAGE]}... and {left} letters more"


class LeftOut(NamedTuple):
    """How many lines of a kind were not written that were of one peer."""

    kind: str
    peer: str
    line_count: int


class BoundedLines:
    """Lines that peers cause: of each kind and peer so many are written in a minute, the others are
    counted.

    The minute begins with its first line. MOST_PEERS kinds and peers are counted each; beyond them
    all other peers are one, so that neither lines nor memory grow with the addresses of a stranger.
    """

    def __init__(self, most: int, most_peers: int = MOST_PEERS) -> None:
        self._most, self._most_peers = most, most_peers
        self._rows: dict[tuple[str, str], list[int]] = {}  # in order of when each minute began

    def may_write(self, kind: str, peer: str, now_ms: int) -> bool:
        """Whether one more line is written; if not, it is counted."""
        key = (kind, peer)
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
        """What was counted in the minutes that have ended. It is forgotten here."""
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
        """When the eldest minute ends; None where nothing is counted."""
        return next((row[0] + INTERVAL_MS for row in self._rows.values()), None)
