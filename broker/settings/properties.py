"""Reads Java properties files, the format of Apache Kafka's server.properties."""

from __future__ import annotations

import re

from barnabas.broker.settings.setting import ConfigError

_LINE_END = re.compile(r"\r\n|\r|\n")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{4}")


def read_properties(text: str) -> dict[str, str]:
    """The names and values in a Java properties file. A line that begins with # or ! is a comment.
    A backslash at the end of a line continues it in the next one. The name ends at =, : or a blank.

    Raises: ConfigError if \\u is not followed by four hexadecimal digits; its text shows no part of
            the line, which may contain a password.
    """
    properties: dict[str, str] = {}
    pending, number = "", 0
    # splitlines() would also split the text at a form feed and other separators inside a value
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = pending + raw.lstrip(" \t\f")
        pending = ""
        if not line or (not pending and line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        properties.update([_read_pair(line, number)])
    if pending:
        properties.update([_read_pair(pending, number)])
    return properties


def _read_pair(line: str, number: int) -> tuple[str, str]:
    """The key and the value of a line. Takes: number, the line number for an error. Raises:
    ConfigError.
    """
    key, value = _split_pair(line)
    try:
        return _unescape(key), _unescape(value)
    except ConfigError as error:
        raise ConfigError(f"line {number}: {error}") from None


def _split_pair(line: str) -> tuple[str, str]:
    """The line before and after the first separator that is not escaped; both still have their
    escapes.
    """
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return key, rest


def _unescape(text: str) -> str:
    """The text with its escapes replaced by their characters. Raises: ConfigError for a wrong
    \\u.
    """
    if "\\" not in text:
        return text
    out, position = [], 0
    while position < len(text):
        character = text[position]
        if character == "\\" and position + 1 < len(text):
            position += 1
            character = text[position]
            if character == "u":
                digits = text[position + 1 : position + 5]
                if not _HEXADECIMAL.fullmatch(digits):
                    raise ConfigError(
                        "a \\u is not followed by four hexadecimal digits; write \\\\ for a "
                        "backslash"
                    )
                out.append(chr(int(digits, 16)))
                position += 5
                continue
            character = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(character, character)
        out.append(character)
        position += 1
    return _with_whole_letters("".join(out))


def _with_whole_letters(text: str) -> str:
    """Join each two \\u escapes that are a surrogate pair in UTF-16. Raises: ConfigError if half of
    a pair is missing.
    """
    try:
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise ConfigError("a \\u is half of a letter, and the other half is missing") from None
