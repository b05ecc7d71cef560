"""Reads JAAS texts, the values of `sasl.jaas.config`: the class of a login module, a flag, and
options.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret" user_alice="her password";

A text may contain only one module. Source: KIP-85, KIP-103.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from barnabas.broker.java_text import BLANKS

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(  # the white space is that of Java's StreamTokenizer
    r'[\0-\x20]*(?:"((?:[^"\\]|\\.)*)"|([^\0-\x20="\';]+)|([=;]))', re.DOTALL
)
USER_PREFIX = "user_"


class JaasError(ValueError):
    """The text is not valid. The message says what is wrong, and contains no value of the text."""


class LoginModule(NamedTuple):
    """The content of a JAAS text."""

    class_name: str
    options: dict[str, str]

    @property
    def passwords(self) -> dict[str, str]:
        """The passwords by user, from the options `user_NAME`."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> LoginModule:
    """Read a JAAS text. Raises: JaasError."""
    words = _words(text)
    if len(words) < 3 or words[-1] != ("", ";"):
        raise JaasError("it must be: CLASS required OPTION=\"VALUE\" ...; with the ';' at its end")
    (class_name, _), (flag, _), *options = words[:-1]
    if flag.lower() not in _FLAGS:
        raise JaasError(f"the class must be followed by one of {', '.join(_FLAGS)}")
    values: dict[str, str] = {}
    if len(options) % 3:
        raise JaasError('each option must have the form NAME="VALUE"')
    for (name, _), (_, equals), (value, mark) in zip(
        options[::3], options[1::3], options[2::3], strict=True
    ):
        if not name or equals != "=" or mark:
            raise JaasError('each option must have the form NAME="VALUE"')
        values[name] = value
    return LoginModule(class_name, values)


def _words(text: str) -> list[tuple[str, str]]:
    """The words and punctuation marks of a text, in order, as (word, "") or ("", mark)."""
    words: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip(BLANKS))
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise JaasError(f"it cannot be read from character {at + 1} on: a quote may be missing")
        quoted, bare, mark = match.groups()
        if mark:
            words.append(("", mark))
        else:
            words.append((bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted), ""))
        at = match.end()
    return words
