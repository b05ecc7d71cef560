"""JSON texts that keep what they were made from: the digits of numbers, and doubled names.

A JSON text that came from outside is not parsed and written again: Python would write 0.1 for
0.1000000000000000055, and one of two members with the same name. It is carried as a JsonText.

In a string, characters that a terminal takes for commands are written as escapes of JSON, so a
text has the same meaning and can be printed anywhere.

Bytes are a string where they are UTF-8, otherwise {"base64": "…"}.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import Any, NoReturn

# DEL and C1, which `json` leaves; line separators and changes of direction; halves of pairs, which
# cannot be encoded.
_UNSAFE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SPACE = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|([,:])|[ \t\r\n]+')
_SURROGATES = re.compile("[\ud800-\udfff]")


class JsonText(str):
    """A valid JSON text in one line, whose numbers and names `json_line` writes unchanged."""

    __slots__ = ()


def json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON; a JsonText is already JSON."""
    if isinstance(value, JsonText):
        return _escaped(value)
    return _escaped(_dumps(value, indent))


def json_line(fields: Mapping[str, Any]) -> str:
    """An object as one line of JSON, without a line end. Its values may be JsonTexts."""
    members = (f"{json_text(name)}: {json_text(value)}" for name, value in fields.items())
    return f"{{{', '.join(members)}}}"


class Digits(float):
    """A number of a JSON text, which is written with the digits that it came with."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Digits:
        """The number that a text means."""
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text, whose numbers with a point are Digits.

    NaN and Infinity, which Python reads, are no JSON, and of two members with the same name a value
    could keep only one.

    Raises: ValueError; RecursionError.
    """
    import json

    return json.loads(
        text,
        parse_float=Digits,
        parse_constant=_refuse_constant,
        object_pairs_hook=_refuse_doubled_names,
    )


def compact_json(value: Any) -> str:
    """A value as JSON without white space between tokens. Raises: RecursionError."""
    if isinstance(value, dict):
        members = (f"{_compact_string(name)}:{compact_json(one)}" for name, one in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(compact_json, value))}]"
    if isinstance(value, Digits):
        return value.text
    return _compact_string(value) if isinstance(value, str) else _dumps(value)


def decoded_json(data: bytes) -> tuple[JsonText, Any]:
    """The text of JSON in UTF-8, -16 or -32, in one line, and its value.

    Raises: ValueError; RecursionError.
    """
    import json

    text = data.decode(json.detect_encoding(data))
    value = json.loads(text, parse_constant=_refuse_constant)
    return JsonText(_SPACE.sub(_as_python_writes, text)), value


def bytes_to_json(data: bytes) -> Any:
    """The JSON value of bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": binascii.b2a_base64(data, newline=False).decode()}


def bytes_from_json(value: Any) -> Any:
    """The bytes of a JSON value; NotImplemented for a value of another form.

    Raises: ValueError for wrong base64.
    """
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, dict) or list(value) != ["base64"]:
        return NotImplemented
    try:
        return binascii.a2b_base64(value["base64"], strict_mode=True)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{value['base64']!r} is not base64: {error}") from error


def _dumps(value: Any, indent: int | None = None) -> str:
    """A value as JSON. `json` is imported here, since most commands print none."""
    import json

    return json.dumps(value, indent=indent, ensure_ascii=False)


def _escaped(text: str) -> str:
    if text.isascii() and "\x7f" not in text:
        return str(text)
    return _UNSAFE.sub(_escape, text)


def _as_python_writes(match: re.Match[str]) -> str:
    """A string unchanged, `, ` and `: ` between tokens, and no other white space."""
    string, sign = match.groups()
    return string or (f"{sign} " if sign else "")


def _compact_string(text: str) -> str:
    return _SURROGATES.sub(_escape, _dumps(text))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _refuse_doubled_names(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members:
        if name in found:
            raise ValueError(f"an object has the name {name!r} twice")
        found[name] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
