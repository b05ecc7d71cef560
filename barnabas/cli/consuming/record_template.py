r"""Templates of `consume --format`: the printed form of a record, as in kcat and rpk.

field   its text                              in braces
------  ------------------------------------  -----------------------------------------
%t      topic
%p      partition
%o      offset
%k      key; nothing for a null key           {hex}, {base64}, {json}, {text}
%v %s   value; nothing for a null value       {hex}, {base64}, {json}, {text}
%K      bytes of the key, -1 for null
%V %S   bytes of the value, -1 for null
%h      headers, as name=value,name=value     a template of one header, with %k and %v
%T      time, in milliseconds since 1970
%d      time, local, as ISO 8601              a format of strftime, such as {%H:%M:%S}
%%      a percent sign

\n \r \t \0 \\ and \x with two hexadecimal digits are escapes. A template adds no line end.
"""

from __future__ import annotations

import binascii
import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.cli.records import Decoded, shown_bytes, to_json
from barnabas.json_text import json_text
from barnabas.protocol.records import header_name_bytes

Write = Callable[[Any], bytes]

FIELDS = (
    "%t topic, %p partition, %o offset, %k key, %v or %s value, %h headers, %T time in ms, "
    "%d time, %K and %V lengths of key and value, %% a percent sign"
)
ESCAPES = r"\n, \r, \t, \0, \\ and \x with two hexadecimal digits"
_FORMS = ("text", "hex", "base64", "json")
_ESCAPED = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_HEX = re.compile(r"[0-9a-fA-F]{2}")


class WrongTemplate(ValueError):
    """A template cannot be read; the text names the place and the allowed forms."""


def unchanged(data: bytes) -> bytes:
    """The bytes as they are."""
    return data


def compile_template(template: str, show: Callable[[bytes], bytes] = unchanged) -> Write:
    """A function that returns the printed bytes of a record.

    Takes:  show, a function for the fields of the record. The text between them is unchanged.
    Raises: WrongTemplate.
    """
    parts = _parse(template, _record_field)
    if all(isinstance(part, bytes) for part in parts):
        raise WrongTemplate(f"it names no field of a record: write {FIELDS}")
    return _joined(parts, show)


def _joined(parts: Sequence[bytes | Write], show: Callable[[bytes], bytes] = unchanged) -> Write:
    """A function that joins the literal parts and the fields of a record."""
    return lambda record: b"".join(
        part if isinstance(part, bytes) else show(part(record)) for part in parts
    )


def _parse(template: str, field: Callable[[str, str | None, int], Write]) -> list[bytes | Write]:
    """The literal parts and the fields of a template, in order."""
    parts: list[bytes | Write] = []
    at = 0
    while at < len(template):
        letter = template[at]
        if letter == "\\":
            literal, at = _escape(template, at)
            parts.append(literal)
        elif letter != "%":
            parts.append(letter.encode("utf-8", "surrogateescape"))
            at += 1
        elif template[at + 1 : at + 2] == "%":
            parts.append(b"%")
            at += 2
        else:
            name = template[at + 1 : at + 2]
            argument, end = _argument(template, at + 2)
            parts.append(field(name, argument, at + 1))
            at = end
    return parts


def _escape(template: str, at: int) -> tuple[bytes, int]:
    """The byte for the escape sequence at position `at`, and the position after it."""
    letter = template[at + 1 : at + 2]
    if letter in _ESCAPED:
        return _ESCAPED[letter], at + 2
    if letter == "x" and (digits := _HEX.match(template, at + 2)):
        return bytes.fromhex(digits[0]), at + 4
    raise WrongTemplate(
        f"{template[at : at + 2]!r} at character {at + 1} is not an escape: use {ESCAPES}"
    )


def _argument(template: str, at: int) -> tuple[str | None, int]:
    """The content of the braces at position `at` (None without braces), and the position after
    them.
    """
    if template[at : at + 1] != "{":
        return None, at
    end = template.find("}", at)
    if end < 0:
        raise WrongTemplate(
            f"the brace at character {at + 1} is not closed: write }} after it, or \\x7b for a "
            "brace as text"
        )
    return template[at + 1 : end], end + 1


def _record_field(name: str, argument: str | None, character: int) -> Write:
    """A function that returns one field of a record."""
    if name in ("k", "v", "s"):
        return _data("key" if name == "k" else "value", argument or "text", name, character)
    if name == "h":
        return _headers("%k=%v" if argument is None else argument, "," if argument is None else "")
    if name == "d":
        return _time(argument)
    plain = _PLAIN.get(name)
    if plain is None:
        said = f"%{name}" if name else "a percent sign at the end"
        raise WrongTemplate(f"{said}, at character {character}, is not a field: use {FIELDS}")
    if argument is not None:
        raise WrongTemplate(
            f"%{name}, at character {character}, takes no braces: write \\x7b for a brace as text"
        )
    return plain


def _data(attribute: str, form: str, name: str, character: int) -> Write:
    """A function that returns the key or the value of a record in the given form."""
    if form not in _FORMS:
        raise WrongTemplate(
            f"%{name}{{{form}}}, at character {character}, is not a form of a {attribute}: use "
            f"{', '.join(f'%{name}{{{known}}}' for known in _FORMS)}"
        )
    if form == "json":
        return lambda record: json_text(to_json(getattr(record, attribute))).encode()
    encode = _ENCODE[form]
    return lambda record: encode(shown_bytes(getattr(record, attribute)) or b"")


_ENCODE: Mapping[str, Callable[[bytes], bytes]] = {
    "text": lambda data: data,
    "hex": lambda data: data.hex().encode(),
    "base64": lambda data: binascii.b2a_base64(data, newline=False),
}


def _headers(template: str, separator: str) -> Write:
    """A function that returns the headers of a record, each formatted by a template of %k and
    %v.
    """

    def header_field(name: str, argument: str | None, character: int) -> Write:
        if name not in ("k", "v") or argument is not None:
            raise WrongTemplate(
                f"%{name} within %h{{…}} is not a field of a header: use %k, its name, and %v, "
                "its value"
            )
        return lambda header: header_name_bytes(header[0]) if name == "k" else header[1] or b""

    one = _joined(_parse(template, header_field))
    return lambda record: separator.encode().join(one(header) for header in record.headers or ())


def _time(form: str | None) -> Write:
    """The function that gives a record's time, in ISO 8601 or in a format of strftime."""

    def text(record: Any) -> bytes:
        if record.timestamp is None or record.timestamp < 0:
            return b""
        try:
            moment = datetime.datetime.fromtimestamp(record.timestamp / 1000).astimezone()
        except (OverflowError, ValueError, OSError):  # a time beyond the year 9999
            return b"%d" % record.timestamp
        found = moment.isoformat(timespec="milliseconds") if form is None else moment.strftime(form)
        return found.encode()

    return text


def _length(attribute: str) -> Write:
    """The function that gives the number of bytes of a key or value before decoding; -1 for
    null.
    """

    def text(record: Any) -> bytes:
        data = getattr(record, attribute)
        data = data.raw if isinstance(data, Decoded) else data
        return b"-1" if data is None else b"%d" % len(data)

    return text


_PLAIN: dict[str, Write] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % (-1 if record.timestamp is None else record.timestamp),
    "K": _length("key"),
    "V": _length("value"),
    "S": _length("value"),
}
