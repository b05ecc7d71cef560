"""Kafka's message schemas as Python objects.

They are read from the JSON files in the package kafka-python. For messages that are not in
kafka-python, `schemas/` has files in the same format.

A field has a range of versions, a range of versions in which it may be null, and possibly a tag.

Source: Apache Kafka's clients/src/main/resources/common/message/README.md (the schema language).
"""

from __future__ import annotations

import importlib.resources
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
OWN_SCHEMAS = (_HERE / "schemas",)
FAMILIES = _HERE / "schemas" / "records"
COMMENTS = re.compile(r"^\s*//.*\n?", re.MULTILINE)
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_ENDLESS = 1 << 15


@dataclass(frozen=True)
class Versions:
    """A range of versions, including both ends. It is empty if first > last."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """Parse a range of versions: "3", "0-7", "2+" or "none"."""
        if not text or text == "none":
            return cls(1, 0)
        first, dash, last = text.partition("-")
        if dash:
            return cls(int(first), int(last))
        return cls(int(text[:-1]), _ENDLESS) if text.endswith("+") else cls(int(text), int(text))

    def within(self, other: Versions) -> Versions:
        """The versions that are in both ranges."""
        return Versions(max(self.first, other.first), min(self.last, other.last))

    def __bool__(self) -> bool:
        return self.first <= self.last


@dataclass(frozen=True)
class Field:
    """One field of a struct.

    struct: the name of the field's type, if this type is a struct. is_raw: whether a uuid is kept
    as its 16 bytes.
    """

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    default: str | None
    is_ignorable: bool
    about: str
    struct: str | None
    is_raw: bool = False

    @property
    def may_be_null(self) -> bool:
        return bool(self.nullable)


@dataclass
class Struct:
    """A class to be generated: a whole message, or a part of one."""

    name: str
    about: str
    valid: Versions
    flexible: Versions
    fields: list[Field] = field(default_factory=list)
    api_key: int | None = None


@dataclass(frozen=True)
class Record:
    """A key or value of an internal topic, or a record of Kafka's metadata log.

    kind: key, value or metadata. api_key: of a record of the metadata log. written: the versions in
    which Barnabas writes it.
    """

    name: str
    kind: str
    about: str
    api_key: int | None
    written: tuple[int, ...]
    struct: Struct


@dataclass(frozen=True)
class Family:
    """The records of one file of `schemas/records/`, which become one module of this name.

    parts: the structs in the records. Each part precedes the part that contains it.
    """

    name: str
    about: str
    records: list[Record]
    parts: list[Struct]


def snake_case(name: str) -> str:
    """Convert a field's name to the form of kafka-python: "ProducerId" becomes producer_id."""
    return _WORD.sub("_", name).lower()


def load(name: str) -> dict[str, Any]:
    """Load the schema of a message by its name ("FetchRequest")."""
    own = [path for folder in OWN_SCHEMAS if (path := folder / f"{name}.json").exists()]
    if own:
        text = own[0].read_text()
    else:
        text = importlib.resources.read_text("kafka.protocol.schemas.resources", f"{name}.json")
    schema: dict[str, Any] = json.loads(COMMENTS.sub("", text))
    return schema


def family_of(path: Path) -> Family:
    """Return the records in a file of `schemas/records/`."""
    whole = json.loads(COMMENTS.sub("", path.read_text()))
    records: list[Record] = []
    found: dict[str, tuple[Any, Struct]] = {}
    for schema in whole["records"]:
        struct = _Collector(schema, schema["name"], found, None).collect()
        del found[schema["name"]]
        written = schema.get("writtenVersions")
        records.append(
            Record(
                schema["name"],
                schema["type"],
                schema["about"],
                schema.get("apiKey"),
                tuple(map(int, written.split(",")))
                if written
                else tuple(range(struct.valid.first, struct.valid.last + 1)),
                struct,
            )
        )
    return Family(path.stem, whole["about"], records, [struct for _, struct in found.values()])


def structs_of(api_name: str, first_version: int | None = None) -> list[Struct]:
    """Return the classes of an API's request and response. Each part precedes the class that
    contains it.

    If the request and the response have different parts with the same name, the name of the message
    is put before it.

    Takes:  first_version, the first supported version, if the schemas of Apache Kafka 4 omit a
            version of 3.9. They still have the fields of that version.
    """
    found: dict[str, tuple[Any, Struct]] = {}
    for message in (f"{api_name}Request", f"{api_name}Response"):
        schema = load(message)
        struct = _Collector(schema, message, found, first_version).collect()
        struct.api_key = schema["apiKey"]
    return [struct for _, struct in found.values()]


class _Collector:
    """Collects the structs of one message into the table of its module."""

    def __init__(
        self,
        schema: dict[str, Any],
        message: str,
        found: dict[str, tuple[Any, Struct]],
        first_version: int | None,
    ) -> None:
        self._schema, self._message, self._found = schema, message, found
        self._valid = Versions.parse(schema["validVersions"])
        if first_version is not None:
            self._valid = Versions(min(self._valid.first, first_version), self._valid.last)
        self._flexible = Versions.parse(schema["flexibleVersions"])
        self._common = {part["name"]: part for part in schema.get("commonStructs", ())}

    def collect(self) -> Struct:
        """Add the message and its parts. Gives: the message."""
        about = f"{self._schema['type'].capitalize()}"
        return self._add(self._message, about, self._schema["fields"])

    def _add(self, name: str, about: str, fields: list[dict[str, Any]]) -> Struct:
        """Add a struct with the fields of supported versions."""
        struct = Struct(name, about, self._valid, self._flexible)
        # Fields that are in no supported version are left out.
        struct.fields = [each for each in map(self._field, fields) if each.versions]
        self._found[name] = (fields, struct)
        return struct

    def _field(self, one: dict[str, Any]) -> Field:
        """A field of a schema, with its versions limited to the supported ones."""
        is_array = one["type"].startswith("[]")
        kind = one["type"].removeprefix("[]")
        versions = Versions.parse(one["versions"]).within(self._valid)
        part = None
        if kind[0].isupper():
            part = self._part(kind, one)
        tag = one.get("tag")
        assert tag is None or one["versions"] == one["taggedVersions"], (
            f"{one['name']} is tagged in some versions"
        )
        return Field(
            snake_case(one["name"]),
            kind,
            is_array,
            versions,
            Versions.parse(one.get("nullableVersions")).within(versions),
            tag,
            None if "default" not in one else str(one["default"]),
            bool(one.get("ignorable", False)),
            one.get("about", ""),
            part,
            bool(one.get("rawBytes", False)),
        )

    def _part(self, kind: str, one: dict[str, Any]) -> str:
        """The name of the struct that a field has. If another struct has that name, the name of the
        message is put before it.
        """
        common = self._common.get(kind)
        fields = one.get("fields") or (common or {})["fields"]
        for name in (kind, self._message + kind):
            known = self._found.get(name)
            if known is None:
                self._add(name, one.get("about", ""), fields)
                return name
            if (
                known[0] == fields
                and known[1].valid == self._valid
                and known[1].flexible == self._flexible
            ):
                return name
        raise ValueError(f"{self._message} has several structs named {kind}")
