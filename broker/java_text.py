"""Java's rules for text and patterns, for names that identify a principal.

Python's `str.strip`, and `\\w`, `\\d`, `\\s` and `.` in its patterns, cover all of Unicode; Java's
cover ASCII. Two principals that are different in Apache Kafka must not become the same one here:

    String.trim()              U+0000 to U+0020 at both ends, and no other blank characters
    Pattern, \\w \\d \\s (?i)     only ASCII
    Pattern, .                 neither LF nor CR, U+0085, U+2028 and U+2029
    Pattern, $ and \\Z          also before one of these at the end
    String.replaceAll          after an empty match the search continues one character later

A pattern that only one of the two languages accepts, or that they read differently, is refused.
`\\b` and `\\B` follow Unicode before Java 19 and ASCII since then: here they match only where both
rules agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

BLANKS = "".join(map(chr, range(0x21)))
_NOT_A_LINE_END = r"[^\n\r\x85\u2028\u2029]"
_END = r"(?=(?:\r\n|[\r\x85\u2028\u2029]|(?<!\r)\n)?\Z)"
_PART = re.compile(r"\\.|.", re.DOTALL)
_IN_JAVA_TOO = re.compile(r"\(\?(?:[:=!>]|<[=!]|i\)|i:)")  # the allowed groups that begin with (?
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
    """The text without the leading and trailing characters that Java's `trim` removes."""
    return text.strip(BLANKS)


def java_pattern(text: str) -> re.Pattern[str]:
    """Compile a Java pattern. Raises: re.error or ValueError if Python has no equal pattern."""
    return re.compile("".join(_pieces(text)), re.ASCII)


def java_template(text: str, group_count: int) -> Callable[[re.Match[str]], str]:
    """A function from a match to its replacement, made from a replacement text in Java's syntax, in
    which \\ escapes the next character. Raises: ValueError if the text names an unknown group.

    Takes: group_count, the number of groups in the pattern. The longest number that is a group
           counts: $12 may be group 1 followed by the digit 2.
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
    """The text after Java's `replaceAll`."""
    parts: list[str] = []
    copied = start = 0
    while start <= len(text) and (match := pattern.search(text, start)):
        parts += (text[copied : match.start()], make(match))
        copied = match.end()
        # after an empty match the search continues one character later
        start = copied + (match.start() == copied)
    return "".join(parts) + text[copied:]


def _pieces(text: str) -> Iterator[str]:
    """The pattern in Python's syntax, piece by piece.

    Raises: re.error for syntax that Python reads differently, or that Java does not accept.
    """
    class_began = -1  # the start of the enclosing character class
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
    """Raise re.error for a piece of a pattern that has another meaning in Python than in Java."""
    if piece in _OTHER_MEANING or (is_in_class and piece == r"\b"):
        raise re.error(f"{piece} is not read here", text, at)
    if is_in_class:
        if piece == "[" or text.startswith("&&", at):
            raise re.error("a class within a class, or &&, is not read here", text, at)
    elif piece == "{" and not _QUANTIFIER.match(text, at):
        raise re.error("Java takes { for a quantifier", text, at)
    elif text.startswith("(?", at) and not _IN_JAVA_TOO.match(text, at):
        raise re.error("such a group is not read here", text, at)
