"""A line of the log for people. What clients say in it stays within the line."""

from __future__ import annotations

import logging

LONGEST_MESSAGE = 8192  # an id that a client names may have 32,767 letters
PLAIN_LOG = "%(asctime)s %(levelname)s %(name)s: %(message)s"


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
