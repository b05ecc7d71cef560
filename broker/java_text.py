"""Text as Java reads it, where who somebody is depends on it.

Python's `str.strip`, and `\\w`, `\\d`, `\\s` and `.` of its patterns, know all of Unicode; Java's
know ASCII. A principal that Apache Kafka tells from another must not become that other one here:

    String.trim()              U+0000 to U+0020 at both ends, and no other blank
    Pattern, \\w \\d \\s (?i)     ASCII alone
    Pattern, .                 not LF, and not CR, U+0085, U+2028 and U+2029 either
"""

from __future__ import annotations

import re
from collections.abc import Iterator

BLANKS = "".join(map(chr, range(0x21)))
_NOT_A_LINE_END = r"[^\n\r\x85\u2028\u2029]"
_PART = re.compile(r"\\.|.", re.DOTALL)


def trimmed(text: str) -> str:
    """The text without the blanks around it that Java's `trim` takes away."""
    return text.strip(BLANKS)


def java_pattern(text: str) -> re.Pattern[str]:
    """A pattern of Java's that Python has, too. Raises: re.error of any other, ValueError."""
    return re.compile("".join(_pieces(text)), re.ASCII)


def _pieces(text: str) -> Iterator[str]:
    """The pattern for Python, piece by piece.

    Raises: re.error of a class within a class, which Python reads as something else.
    """
    class_began = -1  # where the class begins that this is in
    for match in _PART.finditer(text):
        piece, at = match[0], match.start()
        if class_began < 0:
            if piece == "[":
                class_began = at
            yield _NOT_A_LINE_END if piece == "." else piece
            continue
        if piece == "[" or text.startswith("&&", at):
            raise re.error("a class within a class, or &&, is not read here", text, at)
        is_first = at == class_began + 1 or (at == class_began + 2 and text[class_began + 1] == "^")
        if piece == "]" and not is_first:
            class_began = -1
        yield piece
