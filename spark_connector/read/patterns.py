"""The regular expressions of `subscribePattern`. Expressions in Java's syntax are translated to
Python's, and tested on topic names.

Spark's own source selects every topic in which the expression is found, even if it does not match
the whole name. Topics have names of ASCII letters, digits, `.`, `_` and `-`, so Java's classes can
be reduced to sets of ASCII characters. A construct without a counterpart is rejected, and the error
names the construct.
"""

from __future__ import annotations

import re
import warnings

_LOWER, _UPPER, _DIGIT = "a-z", "A-Z", "0-9"
# Source: java.util.regex.Pattern, POSIX character classes (US-ASCII) and classes for Unicode
# categories.
_CLASSES = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": r"\x00-\x7f",
    "Alpha": _LOWER + _UPPER,
    "Digit": _DIGIT,
    "Alnum": _LOWER + _UPPER + _DIGIT,
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
    "L": _LOWER + _UPPER,
    "Ll": _LOWER,
    "Lu": _UPPER,
    "N": _DIGIT,
    "Nd": _DIGIT,
    "IsAlphabetic": _LOWER + _UPPER,
    "IsLowercase": _LOWER,
    "IsUppercase": _UPPER,
    "IsDigit": _DIGIT,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
}
_CLASS = re.compile(r"([pP])(?:\{(\w+)(?:=\w+)?\}|(\w))")


class PatternError(ValueError):
    """The expression is invalid, or has a construct without a counterpart in Python."""


def translate_pattern(java: str) -> str:
    r"""Translate a Java expression to Python's syntax.

    `\p{Alpha}`, `\Q...\E`, `\z` and `(?<name>...)` exist only in Java.

    Raises: PatternError.
    """
    out: list[str] = []
    position, in_set = 0, False
    while position < len(java):
        here = java[position]
        if here == "\\":
            text, position = _escape(java, position + 1, in_set)
            out.append(text)
            continue
        if not in_set and (named := re.compile(r"\(\?<([A-Za-z]\w*)>").match(java, position)):
            out.append(f"(?P<{named[1]}>")
            position = named.end()
            continue
        if here == "[" and not in_set:
            in_set = True
            # As the first character of a set, a bracket is literal in Python. In Java it opens or
            # closes a set.
            position += 1 + java.startswith("^", position + 1)
            out.append("[^" if java[position - 1] == "^" else "[")
            continue
        in_set = in_set and here != "]"
        out.append(here)
        position += 1
    pattern = "".join(out)
    try:
        with warnings.catch_warnings():
            # In Java [a-z&&[^b]] is an intersection of sets. In Python it is not, and causes a
            # FutureWarning.
            warnings.simplefilter("error", FutureWarning)
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise PatternError(f"not a regular expression of Python ({error})") from error
    return pattern


def _escape(java: str, position: int, in_set: bool) -> tuple[str, int]:
    """Translate the escape after a backslash. Gives: also the position of the escape's end."""
    if java.startswith("Q", position):
        end = java.find("\\E", position)
        quoted = java[position + 1 :] if end < 0 else java[position + 1 : end]
        return re.escape(quoted), len(java) if end < 0 else end + 2
    match = _CLASS.match(java, position)
    if match:
        name = match[2] or match[3]
        if name not in _CLASSES:
            raise PatternError(
                f"the class {match[0]!r} has no counterpart: write the characters, as [A-Za-z]"
            )
        if match[1] == "p":
            return (_CLASSES[name] if in_set else f"[{_CLASSES[name]}]"), match.end()
        if in_set:
            raise PatternError(
                f"the class {match[0]!r} cannot be in a set: write the characters, as [A-Za-z]"
            )
        return f"[^{_CLASSES[name]}]", match.end()
    if java.startswith("z", position):
        return "\\Z", position + 1
    return java[position - 1 : position + 1], position + 1


def is_found_in(pattern: str, topic: str) -> bool:
    """Whether the (translated) expression is found in the topic's name."""
    return re.search(pattern, topic) is not None
