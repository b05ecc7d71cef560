"""Text as Java reads it, where who somebody is depends on it.

Python's `str.strip`, and `\\w`, `\\d`, `\\s` and `.` of its patterns, know all of Unicode; Java's
know ASCII. A principal that Apache Kafka distinguishes from another must not become that other one
here:

    String.trim()              U+0000 to U+0020 at both ends, and no other blank
    Pattern, \\w \\d \\s (?i)     ASCII alone
    Pattern, .                 not LF, and not CR, U+0085, U+2028 and U+2029 either
    Pattern, $ and \\Z          before any of these at the end, too
    String.replaceAll          the search goes on one letter behind an empty match

What one of the two reads and the other not, or reads as something else, is refused. `\\b` and `\\B`
know Unicode before Java 19 and ASCII since: they match where both agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

BLANKS = "".join(map(chr, range(0x21)))
_NOT_A_LINE_END = r"[^\n\r\x85\u2028\u2029]"
_END = r"(?=(?:\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n)?\Z)"
_PART = re.compile(r"\\.|.", re.DOTALL)
_IN_JAVA_TOO = re.compile(r"\(\?(?:[:=!>]|<[=!]|i\)|i:)")  # of what begins with (?
_QUANTIFIER = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_HERE = {
    ".": _NOT_A_LINE_END,
    "$": _END,
    r"\Z": _END,
    r"\z": r"\Z",
    r"\b": r"(?:\b(?u:\b))",
    r"\B": r"(?:\B(?u:\B))",
}
_OTHER_MEANING = (r"\v", r"\0", r"\N", r"\U")
_REFERENCE = re.compile(r"\\(.?)|\$([0-9]*)", re.DOTALL)


def trimmed(text: str) -> str:
    """The text without the blanks around it that Java's `trim` takes away."""
    return text.strip(BLANKS)


def java_pattern(text: str) -> re.Pattern[str]:
    """A pattern of Java's that Python has, too. Raises: re.error of any other, ValueError."""
    return re.compile("".join(_pieces(text)), re.ASCII)


def java_template(text: str, group_count: int) -> Callable[[re.Match[str]], str]:
    """What makes the text that takes a match's place, by a replacement of Java's; \\ is before a
    letter that means itself. Raises: ValueError where it has no such group.

    Takes: group_count, of the pattern. Of digits those name a group with which there is one: $12
           may be $1 and a 2.
    """
    parts: list[str | int] = []
    at = 0
    for match in _REFERENCE.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        escaped, digits = match.groups()
        if not (escaped or digits):
            raise ValueError(f"{match[0]} is not followed by what it takes")
        if escaped:
            parts.append(escaped)
            continue
        used = 1
        while used < len(digits) and int(digits[: used + 1]) <= group_count:
            used += 1
        if int(digits[:used]) > group_count:
            raise ValueError(f"there is no group {digits[:used]}")
        parts += (int(digits[:used]), digits[used:])
    parts.append(text[at:])
    return lambda match: "".join(
        part if isinstance(part, str) else match[part] or "" for part in parts
    )


def replaced(pattern: re.Pattern[str], make: Callable[[re.Match[str]], str], text: str) -> str:
    """The text with what Java's `replaceAll` puts in place of each match."""
    parts: list[str] = []
    copied = start = 0
    while start <= len(text) and (match := pattern.search(text, start)):
        parts += (text[copied : match.start()], make(match))
        copied = match.end()
        start = copied + (match.start() == copied)
    return "".join(parts) + text[copied:]


def _pieces(text: str) -> Iterator[str]:
    """The pattern for Python, piece by piece.

    Raises: re.error of what Python reads as something else, or Java does not read.
    """
    class_began = -1  # where the class begins that this is in
    for match in _PART.finditer(text):
        piece, at = match[0], match.start()
        _check_piece(text, piece, at, is_in_class=class_began >= 0)
        if class_began < 0:
            if piece == "[":
                class_began = at
            yield _HERE.get(piece, piece)
            continue
        is_first = at == class_began + 1 or (at == class_began + 2 and text[class_began + 1] == "^")
        if piece == "]" and not is_first:
            class_began = -1
        yield piece


def _check_piece(text: str, piece: str, at: int, *, is_in_class: bool) -> None:
    if piece in _OTHER_MEANING or (is_in_class and piece == r"\b"):
        raise re.error(f"{piece} is not read here", text, at)
    if is_in_class:
        if piece == "[" or text.startswith("&&", at):
            raise re.error("a class within a class, or &&, is not read here", text, at)
    elif piece == "{" and not _QUANTIFIER.match(text, at):
        raise re.error("Java takes { for a quantifier", text, at)
    elif text.startswith("(?", at) and not _IN_JAVA_TOO.match(text, at):
        raise re.error("such a group is not read here", text, at)
