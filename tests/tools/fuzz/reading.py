"""A second, strict decoder of requests, which interprets Apache Kafka's schemas and checks the
broker's own decoder.

It follows Kafka's generated decoders: a negative length is null; bytes after the request are
ignored; bytes that are not UTF-8 are replaced. The connection ends if a field that is not nullable
is null, if a count or a length is beyond the frame, or if a varint has more than five bytes.
"""

from __future__ import annotations

import struct
import uuid
from enum import Enum
from typing import Any, NamedTuple

from helpers import kafka_messages as messages

from barnabas.protocol.api import Api
from barnabas.protocol.api_table import API_VERSIONS, BY_KEY

PRODUCE = 0
_NUMBERS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
NUMBERS = {name: struct.Struct(">" + code) for name, code in _NUMBERS.items()}
BOUNDS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


class Verdict(Enum):
    """How the broker must handle a frame."""

    UNDERSTOOD = "answer it"
    NOT_UNDERSTOOD = "hang up"
    OTHER_VERSION = "answer with the versions of ApiVersions itself"
    EITHER = "answer it or hang up"


class Reading(NamedTuple):
    """The verdict on a frame, and its API and values if it could be decoded."""

    verdict: Verdict
    api: Api | None = None
    version: int = -1
    correlation_id: int = 0
    values: Any = None
    why: str = ""


class NotUnderstood(Exception):
    """The bytes are not a valid request."""


class Reader:
    """Decodes values from the front of a frame."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.unsure = False

    def number(self, kind: str) -> Any:
        form = NUMBERS[kind]
        return form.unpack(self.take(form.size))[0]

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if size > len(self.data) - self.at:
            raise NotUnderstood(
                f"{size} bytes are wanted at {self.at}, {len(self.data) - self.at} are left"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        """Decode an unsigned varint. `unsure` is set if Java decodes these bytes to another
        number.
        """
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 32:
                    self.unsure = True  # Java's int overflows
                return value
        raise NotUnderstood("a varint is longer than five bytes")

    def length(self, kind: str, flexible: bool) -> int:
        """Decode the length of a string, bytes or array. It is -1 for null."""
        if flexible:
            length = self.varint() - 1
            if length >= 1 << 31:
                self.unsure = True
            return length
        return max(-1, int(self.number("int16" if kind == "string" else "int32")))

    # --- fields ----------------------------------------------------------------------------------

    def fields(self, form: Any, version: int, flexible: bool) -> dict[str, Any]:
        """Decode the untagged fields of a struct, by name. Tagged fields are skipped."""
        values = {
            field.name: self.field(field, version, flexible)
            for field in form.untagged_fields(version)
        }
        if flexible:
            self.tagged(form, version)
        return values

    def tagged(self, form: Any, version: int) -> None:
        """Skip the tagged fields; `unsure` is set if the schema knows one of them, since its value
        is not decoded.
        """
        known = (
            {field.tag for field in form.tagged_fields(version)._fields}
            if form is not None
            else set()
        )
        for _ in range(self.varint()):
            if self.varint() in known:
                self.unsure = True
            self.take(self.varint())

    def field(self, field: Any, version: int, flexible: bool) -> Any:
        """Decode a field. An array becomes a list."""
        kind = field._type_str
        nullable = bool(field.nullable_for_version_q(version))
        if kind.startswith("[]"):
            count = self.length("array", flexible)
            if count < 0:
                return self.null(field, nullable)
            if count > len(self.data) - self.at:
                raise NotUnderstood(f"{count} of {field.name} in {len(self.data) - self.at} bytes")
            return [
                self.single(field.array_of, version, flexible, nullable=False) for _ in range(count)
            ]
        return self.single(field, version, flexible, nullable=nullable)

    def single(self, field: Any, version: int, flexible: bool, *, nullable: bool) -> Any:
        """Decode a field that is not an array."""
        kind = field._type_str
        if kind in NUMBERS:
            return self.number(kind)
        if kind == "bool":
            return self.take(1) != b"\0"
        if kind == "uuid":
            return uuid.UUID(bytes=self.take(16))
        if kind in ("string", "bytes", "records"):
            length = self.length(kind, flexible)
            if length < 0:
                return self.null(field, nullable)
            data = self.take(length)
            return data.decode("utf-8", "replace") if kind == "string" else data
        if nullable:
            mark = self.number("int8")
            if mark < 0:
                self.unsure |= mark != -1
                return None
        return self.fields(field, version, flexible)

    @staticmethod
    def null(field: Any, nullable: bool) -> None:
        if not nullable:
            raise NotUnderstood(f"{field.name} is null")


def read(frame: bytes) -> Reading:
    """Decode one frame, without its size, and return the verdict."""
    reader = Reader(frame)
    try:
        key, version, correlation_id = (
            reader.number("int16"),
            reader.number("int16"),
            reader.number("int32"),
        )
        reader.take(max(0, reader.number("int16")))
        api = BY_KEY.get(key)
        if api is None:
            return Reading(Verdict.NOT_UNDERSTOOD, why=f"API key {key}")
        if version >= api.flexible_from:
            reader.tagged(None, version)
        if not api.min_version <= version <= api.max_version:
            if key == API_VERSIONS:
                return Reading(Verdict.OTHER_VERSION, api, version, correlation_id)
            return Reading(Verdict.NOT_UNDERSTOOD, why=f"{api.name} {version}")
        form = messages.message_class(api.name + "Request")._struct
        values = reader.fields(form, version, version >= api.flexible_from)
    except NotUnderstood as error:
        return Reading(Verdict.EITHER if reader.unsure else Verdict.NOT_UNDERSTOOD, why=str(error))
    return Reading(
        Verdict.EITHER if reader.unsure else Verdict.UNDERSTOOD,
        api,
        version,
        correlation_id,
        values,
    )
