"""Secrets in texts, such as log lines of other programs.

A text shows its secrets by the words before them (`password=`, `x-api-key:`, `--sasl-password X`),
or by their form (a key of PEM, a token, a URL with a password). A doubtful text is removed: a
bundle for support may lack a word, and may not have a secret. No pattern takes more than a bounded
number of steps at each letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

REMOVED = "(removed)"
SHORTEST_SECRET = 4  # a shorter secret is not searched for, since it would match everywhere
LONGEST_KEY_LINES = 200
# A word by which the name of a setting, an option or a header shows that its value is a secret.
_WORD = (
    r"passw|passphrase|passcode|secret|token|credential|jaas|authorization|cookie"
    r"|(?<![a-z])(?:pass|pwd|sig)(?![a-z])|pwd(?=[\W_])|(?<=[\W_])pwd|(?:salted|saslpass)"
    r"|(?:api|access|account|auth|encryption|keystore|master|private|secret|server|shared|signing"
    r"|stored)[_.\-]?key"
)
# It begins where a name can begin, so that long runs of letters take no time.
_NAME = rf"(?<![\w.\-])[\w.\-]{{0,100}}?(?:{_WORD})[\w.\-]{{0,100}}"
# A string of JSON within JSON, a string, a list; otherwise all up to a space: a secret may have
# commas. A string that was cut ends with its line.
_VALUE = (
    r"""(?:\\"(?:(?!\\").)*(?:\\"|$)|"(?:[^"\\\n]|\\.)*(?:"|$)|'(?:[^'\\\n]|\\.)*(?:'|$)"""
    r"""|\[[^\]\n]*(?:\]|$)|\S+)"""
)
_FLAGS = re.IGNORECASE | re.MULTILINE
_REPLACED = [
    (re.compile(pattern, _FLAGS), replacement)
    for pattern, replacement in (
        # a line of a settings file, or a header: all of it, since its value may have spaces
        (rf"^([ \t#>|]*{_NAME}[ \t]*[=:][ \t]*)\S.*$", r"\1{removed}"),
        (
            r"\b((?:proxy-)?authorization|x-[\w\-]{0,60}key)([\"']?\s*[=:]\s*[\"']?)(?:\w+\s+)?\S+",
            r"\1\2{removed}",
        ),
        # name=value, "name": "value", name => value, name 'value', --name value, <name>value</name>
        (rf"""({_NAME}\\?["'\]]*\s*(?:=>|:=|[=:])\s*){_VALUE}""", r"\1{removed}"),
        (rf"""({_NAME}\s+)(?:"[^"\n]*(?:"|$)|'[^'\n]*(?:'|$))""", r"\1{removed}"),
        (rf"((?<![\w\-])--{_NAME}\s+){_VALUE}".replace(r"(?<![\w.\-])", ""), r"\1{removed}"),
        (rf"""({_NAME}["']\s*,?\s*["']?value["']?\s*[=:]\s*){_VALUE}""", r"\1{removed}"),
        (rf"(<{_NAME}[^<>\n]*>)[^<]*", r"\1{removed}"),
        (r"(\s(?:-u|--user)[ =]+[^\s:]+:)\S+", r"\1{removed}"),
        # a user and a password in a URL, of which the password may have a slash or an @
        (
            r"(\b[a-z][a-z0-9+.\-]{0,30}://)(?:[^\s/]{0,200}@|[^\s/:@]{0,200}:\S{0,200}@)",
            r"\1{removed}@",
        ),
        (r"\b(bearer|basic)\s+(?=[^\s\d=_.+/-]{0,40}[\d=_.+/-])\S{8,}", r"\1 {removed}"),
        (
            r"(?<![\w\-])(?:gh[oprsu]_|glpat-|xox[a-z]-|sk-|akia|asia|aiza|hvs\.|npm_|pypi-)[\w\-.]{12,}",
            "{removed}",
        ),
        (r"(?<![\w\-.])eyJ[\w\-]+\.[\w\-]+\.[\w\-]*", "{removed}"),
    )
]


class Cleaner:
    """Removes secrets from texts.

    Takes: secrets, the client's own secrets.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        known = sorted({text for text in secrets if len(text) >= SHORTEST_SECRET}, key=len)
        escaped = [re.escape(text) for text in reversed(known)]
        self._known = re.compile("|".join(escaped)) if escaped else None

    def text(self, text: str) -> str:
        """The text, with secrets and texts that look like secrets replaced."""
        text = _without_keys(text)
        for pattern, replacement in _REPLACED:
            text = pattern.sub(replacement.format(removed=REMOVED), text)
        return text if self._known is None else self._known.sub(REMOVED, text)

    def data(self, value: Any) -> Any:
        """A JSON document with all texts cleaned except the names of fields."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {name: self.data(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(part) for part in value]
        return value


_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_WHOLE_LINE = range(60, 77)  # the letters of a line of PEM


def _without_keys(text: str) -> str:
    """The text without private keys of PEM. The text may begin or end within a key, and where a log
    has several writers, lines of others may be between those of the key.
    """
    lines = text.split("\n")
    if "PRIVATE KEY-----" not in text and not any(map(_is_key_line, lines)):
        return text
    kept: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if begin := _BEGIN.search(line):
            after, rest = _after_key(lines, at, begin.end())
            lines[after - 1] = f"{line[: begin.start()]}{REMOVED}{rest}"
            at = after - 1
            if rest:
                continue  # another key may follow in the line
            kept.append(lines[at])
        elif end := _END.search(line):
            del kept[_begin_of_key(kept) :]
            kept.append(f"{REMOVED}{line[end.end() :]}")
        elif _is_key_line(line):
            kept += [REMOVED] if kept[-1:] != [REMOVED] else []
        else:
            kept.append(line)
        at += 1
    return "\n".join(kept)


def _after_key(lines: list[str], begin: int, position: int) -> tuple[int, str]:
    """The line after a key that begins in a line, before a position, and the rest of its last
    line.
    """
    for at in range(begin, min(begin + LONGEST_KEY_LINES, len(lines))):
        if end := _END.search(lines[at], position if at == begin else 0):
            return at + 1, lines[at][end.end() :]
    at = begin + 1
    while at < len(lines) and _is_part_of_key(lines[at]):
        at += 1
    is_short = at < len(lines) and _BASE64.fullmatch(lines[at].strip())
    return at + 1 if is_short else at, ""


def _begin_of_key(lines: list[str]) -> int:
    """The first of the last lines that belong to a key whose beginning was cut off."""
    at = len(lines)
    if at and _BASE64.fullmatch(lines[at - 1].strip()):  # its last line is short
        at -= 1
    while at and (_is_part_of_key(lines[at - 1]) or lines[at - 1] == REMOVED):
        at -= 1
    return at


def _is_part_of_key(line: str) -> bool:
    """Whether a line ends with base64, after what a log may put before it."""
    words = line.split()
    return bool(words) and len(words[-1]) >= 40 and _BASE64.fullmatch(words[-1]) is not None


def _is_key_line(line: str) -> bool:
    """Whether a line is nothing but a whole line of PEM."""
    text = line.strip()
    return len(text) in _WHOLE_LINE and _BASE64.fullmatch(text) is not None
