"""Generates the text of one module of `protocol/internal_records/`.

A record is not a class but two functions: `encode_X` takes the fields and returns the bytes, and
`read_X` returns the fields and the position after them. A part of a record, such as the row of an
array, is a tuple. So nothing is created between the bytes and the values of a coordinator, which
encodes and reads such records in each transaction, each commit of offsets and each start.

Each version has code of its own, without conditions: numbers that follow each other, and the
lengths before strings and arrays, are packed and unpacked by one call.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace

from barnabas.protocol.generator.emit import LETTERS
from barnabas.protocol.generator.record_pieces import (
    NO_TAGS,
    SIZES,
    UUID,
    Pieces,
    Reading,
    format_name,
)
from barnabas.protocol.generator.schema import (
    Family,
    Field,
    Record,
    Struct,
    Versions,
    snake_case,
)

_PYTHON = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes"}
_SUPPORT = {
    "internal_records.record": (
        "encoded_strings", "encoded_uvarint", "read_nullable_string", "read_string",
        "read_strings", "unpack_tag",
    ),
    "internal_records.record_schema": ("Field", "RecordSchema"),
    "primitives": (
        "read_bytes", "read_nullable_numbers", "read_numbers", "read_tags", "read_uvarint",
        "refuse_length", "skip_tags",
    ),
}  # fmt: skip
# The names that the generated functions use for themselves.
_RESERVED = {"at", "count", "data", "end", "out", "row", "rows", "size", "struct", "tags", "uuid"}
_FRAME_VERSION = 1  # of the metadata log
_VERSION_SIZE = 2  # of the version before the fields of another record
_COLUMNS = 100


def module_text(family: Family) -> str:
    """Return the text of the module for a family of records, before it is formatted."""
    return _Module(family).text()


class _Module:
    """One module. It collects the formats, and the functions of the parts that are used."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._records = family.records
        self._parts = {one.name: one for one in family.parts}
        self._formats: dict[str, str] = {}
        self._functions: dict[str, list[str]] = {}

    def text(self) -> str:
        public = [line for record in self._records for line in self._record(record)]
        tables = [*self._tables_of_keys(), *self._table_of_metadata()]
        aliases = [line for part in self._parts.values() for line in self._alias(part)]
        functions = [line for lines in self._functions.values() for line in [*lines, "", ""]]
        body = "\n".join([*aliases, "", "", *functions, *public, *tables])
        imports = []
        if re.search(r"\bstruct\.", body) or self._formats:
            imports.append("import struct")
        if "uuid.UUID" in body:
            imports.append("import uuid")
        names = [name for name in ("Callable", "Collection") if name in body]
        if names:
            imports.append(f"from collections.abc import {', '.join(names)}")
        if "Any" in body:
            imports.append("from typing import Any")
        support = [(name, _uses(names, body)) for name, names in _SUPPORT.items()]
        head = [
            f'"""{self._family.about}',
            "",
            f"Made by `make protocol` from generator/schemas/records/{self._family.name}.json; not "
            "to be edited.",
            '"""',
            "",
            "from __future__ import annotations",
            "",
            *imports,
            "",
            *(f"from barnabas.protocol.{name} import {used}" for name, used in support if used),
            "",
            *(f"{name} = {form}" for name, form in sorted(self._formats.items())),
            "",
        ]
        return "\n".join([*head, body, ""])

    # --- records ---------------------------------------------------------------------------------

    def _record(self, record: Record) -> Iterator[str]:
        """The functions of one record."""
        for version in record.written:
            yield from self._encode_record(record, version)
            yield from ("", "")
        struct = record.struct
        name = f"read_{snake_case(record.name)}"
        layouts = self._layouts(struct)
        if len(layouts) == 1 and record.api_key is None:
            yield from self._read_record(name, record, struct.valid.first)
            yield from ("", "")
            return
        for layout in layouts:
            versioned = self._versioned(f"_{name}", struct, layout)
            yield from self._read_record(versioned, record, layout)
            yield from ("", "")
        readers = ", ".join(
            self._versioned(f"_{name}", struct, version)
            for version in range(struct.valid.first, struct.valid.last + 1)
        )
        yield f"{name} = ({readers},)"
        yield from _docstring(f"{_reading(record)} Takes: the version, as the index.", 0)
        yield from ("", "")

    def _encode_record(self, record: Record, version: int) -> Iterator[str]:
        """The function that encodes a record in one version."""
        name = f"encode_{snake_case(record.name)}"
        if len(record.written) > 1:
            name += f"_v{version}"
        fields = _of_version(record.struct, version, tagged=False)
        tagged = _of_version(record.struct, version, tagged=True)
        parameters = [f"{one.name}: {self._type(one)}" for one in fields]
        parameters += [f"{one.name}: {self._type(one)} = {_default(one)}" for one in tagged]
        pieces = Pieces(self._formats)
        if record.api_key is None:
            pieces.number("h", str(version))
        else:
            pieces.add(repr(b"".join(map(_varint, (_FRAME_VERSION, record.api_key, version)))))
        self._write(record.struct, version, pieces)
        yield f"def {name}({', '.join(parameters)}) -> bytes:"
        yield from _docstring(_encoding(record, version), 4)
        for line in pieces.lines:
            yield f"    {line}"
        yield f"    return {pieces.expression()}"

    def _read_record(self, name: str, record: Record, version: int) -> Iterator[str]:
        """The function that reads a record, of those versions that have the layout of this one."""
        fields = record.struct.fields
        types = ", ".join([self._type(one) for one in fields] + ["int"])
        is_metadata = record.api_key is not None
        reading = Reading(self._formats, None if is_metadata else _VERSION_SIZE)
        values = self._read(record.struct, version, reading)
        yield f"def {name}(data: bytes{', at: int' * is_metadata}) -> tuple[{types}]:"
        if not name.startswith("_"):
            yield from _docstring(_reading(record), 4)
        for line in reading.lines:
            yield f"    {line}"
        yield f"    return {', '.join([*values, 'at'])}" if fields else "    return (at,)"

    def _tables_of_keys(self) -> Iterator[str]:
        """The functions by the version of the key, if there are several kinds of keys."""
        keys = [one for one in self._records if one.kind == "key"]
        if len(keys) < 2:
            return
        by_version = [
            (version, snake_case(one.name))
            for one in keys
            for version in range(one.struct.valid.first, one.struct.valid.last + 1)
        ]
        yield "READ_KEY: dict[int, Callable[[bytes], tuple[Any, ...]]] = {"
        yield from (f"    {version}: read_{name}," for version, name in by_version)
        yield from ("}", "ENCODE_KEY: dict[int, Callable[..., bytes]] = {")
        yield from (
            f"    {version}: encode_{snake_case(one.name)},"
            for one in keys
            for version in one.written
        )
        yield "}"

    def _table_of_metadata(self) -> Iterator[str]:
        """The records of the metadata log, by API key."""
        records = [one for one in self._records if one.api_key is not None]
        if not records:
            return
        yield "SCHEMAS = {"
        for record in records:
            name = snake_case(record.name)
            fields = "".join(f"{_field_row(one)}, " for one in record.struct.fields)
            yield (
                f'    {record.api_key}: RecordSchema("{record.name.removesuffix("Record")}", '
                f"({fields}), read_{name}, encode_{name}),"
            )
        yield "}"

    # --- parts -----------------------------------------------------------------------------------

    def _alias(self, part: Struct) -> Iterator[str]:
        types = ", ".join(self._type(one) for one in part.fields)
        yield f"{part.name} = tuple[{types}]"
        yield from _docstring(", ".join(one.name for one in part.fields), 0)

    def _type(self, one: Field) -> str:
        base = one.struct or _PYTHON.get(one.type, "int")
        if one.type == "uuid":
            base = "bytes" if one.is_raw else "uuid.UUID"
        text = f"Collection[{base}]" if one.is_array else base
        return f"{text} | None" if one.may_be_null else text

    def _layouts(self, struct: Struct) -> list[int]:
        """The first version of each layout."""
        seen: dict[object, int] = {}
        for version in range(struct.valid.first, struct.valid.last + 1):
            seen.setdefault(self._layout(struct, version), version)
        return list(seen.values())

    def _layout(self, struct: Struct, version: int) -> object:
        """What the code for a version depends on."""
        return (
            _is_flexible(struct, version),
            tuple(
                (one.name, one.struct and self._layout(self._parts[one.struct], version))
                for one in _of_version(struct, version, tagged=False)
            ),
        )

    def _versioned(self, name: str, struct: Struct, version: int) -> str:
        """The name of the function for a version; with the version if there are several layouts."""
        layouts = self._layouts(struct)
        if len(layouts) == 1:
            return name
        layout = self._layout(struct, version)
        first = next(one for one in layouts if self._layout(struct, one) == layout)
        return f"{name}_v{first}"

    def _encoder(self, part: Struct, version: int, *, of_rows: bool) -> str:
        """The name of the function that encodes a part, or the rows of an array of parts."""
        return self._function("_encode", self._encode_part, part, version, of_rows)

    def _reader(self, part: Struct, version: int, *, of_rows: bool) -> str:
        """The name of the function that reads a part, or the rows of an array of parts."""
        return self._function("_read", self._read_part, part, version, of_rows)

    def _function(
        self,
        verb: str,
        made: Callable[[str, Struct, int, bool], Iterator[str]],
        part: Struct,
        version: int,
        of_rows: bool,
    ) -> str:
        """The name of a function of a part. It is made at its first use, after those that it
        calls.
        """
        name = f"{verb}_{snake_case(part.name)}{'_rows' if of_rows else ''}"
        name = self._versioned(name, part, version)
        if name not in self._functions:
            self._functions[name] = list(made(name, part, version, of_rows))
        return name

    def _encode_part(self, name: str, part: Struct, version: int, of_rows: bool) -> Iterator[str]:
        pieces = Pieces(self._formats)
        self._write(part, version, pieces)
        expression, targets = pieces.expression(), _targets(part)
        if not of_rows:
            yield f"def {name}(row: {part.name}) -> bytes:"
            yield f"    {targets} = row"
            yield from (f"    {line}" for line in pieces.lines)
            yield f"    return {expression}"
            return
        yield f"def {name}(rows: Collection[{part.name}]) -> bytes:"
        plain = ", ".join(one.name for one in part.fields)
        if not pieces.lines and re.fullmatch(rf"_PACK_\w+\({plain}\)", expression):
            packed = expression.replace(f"({plain})", "(*row)")
            yield f'    return b"".join([{packed} for row in rows])'
            return
        yield "    out = []"
        yield f"    for {targets} in rows:"
        yield from (f"        {line}" for line in pieces.lines)
        yield f"        out.append({expression})"
        yield '    return b"".join(out)'

    def _read_part(self, name: str, part: Struct, version: int, of_rows: bool) -> Iterator[str]:
        reading = Reading(self._formats)
        values = self._read(part, version, reading)
        row = ", ".join(values)
        if not of_rows:
            yield f"def {name}(data: bytes, at: int) -> tuple[{part.name}, int]:"
            yield from (f"    {line}" for line in reading.lines)
            yield f"    return ({row}), at"
            return
        lines = list(reading.lines)
        if lines[0].startswith(f"{row} = "):
            lines[:1] = [f"row = {lines[0].removeprefix(f'{row} = ')}"]
            row = "row"
        else:
            row = f"({row})"
        yield f"def {name}(data: bytes, at: int, count: int) -> tuple[list[{part.name}], int]:"
        yield f"    rows: list[{part.name}] = []"
        yield "    for _ in range(count):"
        yield from (f"        {line}" for line in lines)
        yield f"        rows.append({row})"
        yield "    return rows, at"

    # --- writing ---------------------------------------------------------------------------------

    def _write(self, struct: Struct, version: int, pieces: Pieces) -> None:
        """Add the pieces of the fields, and of the tagged fields."""
        compact = _is_flexible(struct, version)
        for one in _of_version(struct, version, tagged=False):
            self._write_field(one, version, compact, pieces)
        if compact:
            self._write_tagged(_of_version(struct, version, tagged=True), version, pieces)

    def _write_field(self, one: Field, version: int, compact: bool, pieces: Pieces) -> None:
        """Add the pieces of one field."""
        name = one.name
        assert name not in _RESERVED, name
        if one.is_array:
            self._write_array(one, version, compact, pieces)
        elif one.type in LETTERS:
            pieces.number(LETTERS[one.type], name)
        elif one.type == "uuid":
            pieces.number(UUID, name if one.is_raw else f"{name}.bytes")
        elif one.struct is not None:
            assert one.may_be_null, f"{name} is a struct that may not be null"
            encode = self._encoder(self._parts[one.struct], version, of_rows=False)
            pieces.add(rf'(b"\xff" if {name} is None else b"\x01" + {encode}({name}))')
        elif one.type == "string":
            value = f"{name}_utf8"
            null = f'b"" if {name} is None else ' if one.may_be_null else ""
            pieces.lines.append(f"{value} = {null}{name}.encode()")
            pieces.length(one, f"len({value})", "h", compact)
            pieces.add(value)
        else:
            assert one.type == "bytes" and not one.may_be_null, name
            pieces.length(one, f"len({name})", "i", compact)
            pieces.add(name)

    def _write_array(self, one: Field, version: int, compact: bool, pieces: Pieces) -> None:
        name = one.name
        null = f'b"" if {name} is None else ' if one.may_be_null else ""
        if one.type in LETTERS and not compact:
            # the count and the numbers have one format, which depends on the count
            assert not one.may_be_null, name
            pieces.add(
                f'struct.pack(f">i{{len({name})}}{LETTERS[one.type]}", len({name}), *{name})'
            )
            return
        pieces.length(one, f"len({name})", "i", compact)
        if one.type in LETTERS:
            made = f'struct.pack(f">{{len({name})}}{LETTERS[one.type]}", *{name})'
        elif one.type == "uuid":
            made = f'b"".join([one.bytes for one in {name}])'
        elif one.struct is not None:
            made = f"{self._encoder(self._parts[one.struct], version, of_rows=True)}({name})"
            null = null and f'b"" if not {name} else '
        else:
            assert one.type == "string" and compact, name
            made = f"encoded_strings({name})"
        pieces.add(f"({null}{made})" if null else made)

    def _write_tagged(self, tagged: list[Field], version: int, pieces: Pieces) -> None:
        if not tagged:
            pieces.number(NO_TAGS, None)
            return
        pieces.flush()
        is_only = len(tagged) == 1
        if not is_only:
            pieces.lines.append("tags = []")
        for one in sorted(tagged, key=lambda one: one.tag or 0):
            inner = Pieces(self._formats)
            # null is the default, which is not written; only a struct has a mark before it
            given = (
                one if one.struct and not one.is_array else replace(one, nullable=Versions(1, 0))
            )
            self._write_field(given, version, True, inner)
            head, size = _varint(one.tag or 0), _size_of(one)
            field = inner.expression()
            if size:
                made = f"{head + _varint(size)!r} + {field}"
            else:
                inner.lines.append(f"field = {field}")
                made = f"{head!r} + encoded_uvarint(len(field)) + field"
            if is_only:
                pieces.lines.append(r'tags = b"\0"')
                made = f"tags = {_varint(1)!r} + {made}".replace("' + b'", "")
            else:
                made = f"tags.append({made})"
            pieces.lines.append(f"if {_is_set(one)}:")
            pieces.lines += [f"    {line}" for line in [*inner.lines, made]]
        if is_only:
            pieces.add("tags")
        else:
            pieces.add("encoded_uvarint(len(tags))")
            pieces.add('b"".join(tags)')

    # --- reading ---------------------------------------------------------------------------------

    def _read(self, struct: Struct, version: int, reading: Reading) -> list[str]:
        """Add the lines that read the fields. Gives: an expression for each field of the struct."""
        compact = _is_flexible(struct, version)
        for one in _of_version(struct, version, tagged=False):
            self._read_field(one, version, compact, reading)
        reading.flush()
        if compact:
            self._read_tagged(_of_version(struct, version, tagged=True), version, reading)
        here = _of_version(struct, version, tagged=False)
        if compact:
            here += _of_version(struct, version, tagged=True)
        names = {one.name for one in here}
        return [one.name if one.name in names else _default(one) for one in struct.fields]

    def _read_field(self, one: Field, version: int, compact: bool, reading: Reading) -> None:
        name = one.name
        if one.is_array:
            self._read_array(one, version, compact, reading)
        elif one.type in LETTERS:
            reading.number(LETTERS[one.type], name)
        elif one.type == "uuid":
            if one.is_raw:
                reading.number(UUID, name)
            else:
                reading.number(UUID, f"{name}_bytes", f"{name} = uuid.UUID(bytes={name}_bytes)")
        elif one.struct is not None:
            read = self._reader(self._parts[one.struct], version, of_rows=False)
            reading.flush()
            reading.lines += [
                f"{name}: {self._type(one)} = None",
                "at += 1",
                "if data[at - 1] < 0x80:",
                f"    {name}, at = {read}(data, at)",
            ]
        elif compact:
            reading.flush()
            nullable = "nullable_" if one.may_be_null else ""
            arguments = "data, at" if one.type == "string" else "data, at, True"
            reading.lines.append(f"{name}, at = read_{nullable}{one.type}({arguments})")
        else:
            reading.sized(one)

    def _read_array(self, one: Field, version: int, compact: bool, reading: Reading) -> None:
        name = one.name
        nullable = "nullable_" if one.may_be_null else ""
        if one.type in LETTERS and compact:
            reading.flush()
            reading.lines.append(
                f'{name}, at = read_{nullable}numbers(data, at, True, "{LETTERS[one.type]}")'
            )
            return
        if one.type == "string":
            assert compact and not one.may_be_null, name
            reading.flush()
            reading.lines.append(f"{name}, at = read_strings(data, at)")
            return
        count = f"{name}_count"
        if compact:
            reading.flush()
            reading.lines += [f"{count}, at = read_uvarint(data, at)", f"{count} -= 1"]
        else:
            reading.number("i", count)
            reading.flush()
        if one.type in LETTERS:
            letter = LETTERS[one.type]
            reading.lines += [
                f'{name} = struct.unpack_from(f">{{{count}}}{letter}", data, at)',
                f"at += {SIZES[letter]} * {count}",
            ]
            return
        if one.type == "uuid":
            reading.lines += [
                f"end = at + 16 * {count}",
                f"if {count} < 0 or end > len(data):",
                f"    refuse_length({count})",
                f"{name} = [uuid.UUID(bytes=data[at : at + 16]) for at in range(at, end, 16)]",
                "at = end",
            ]
            return
        assert one.struct is not None
        read = f"{self._reader(self._parts[one.struct], version, of_rows=True)}(data, at, {count})"
        if one.may_be_null:
            reading.lines += [
                f"{name}: {self._type(one)} = None",
                f"if {count} >= 0:",
                f"    {name}, at = {read}",
            ]
        else:
            reading.lines += [
                f"if {count} < 0:",
                f"    refuse_length({count})",
                f"{name}, at = {read}",
            ]

    def _read_tagged(self, tagged: list[Field], version: int, reading: Reading) -> None:
        if not tagged:
            reading.lines.append("at = at + 1 if data[at] == 0 else skip_tags(data, at)")
            return
        for one in tagged:
            annotation = f": {self._type(one)}" if one.may_be_null else ""
            reading.lines.append(f"{one.name}{annotation} = {_default(one)}")
        reading.lines += ["if data[at] == 0:", "    at += 1", "else:"]
        lines = ["tags, at = read_tags(data, at)"]
        for one in tagged:
            lines.append(f"if {one.tag} in tags:")
            if one.type in LETTERS and not one.is_array:
                form = format_name([LETTERS[one.type]], "", self._formats)
                lines.append(f"    {one.name} = unpack_tag(tags, {one.tag}, {form})")
                continue
            inner = Reading(self._formats)
            self._read_field(one, version, True, inner)
            if one.struct and not one.is_array:
                # in a tag the mark of null is 0, not a negative byte
                inner.lines = [line.replace("] < 0x80:", "] == 1:") for line in inner.lines]
            lines += [
                f"    {line.replace(f': {self._type(one)} = None', ' = None')}"
                for line in _in_tag(inner.lines, one.tag or 0)
            ]
        reading.lines += [f"    {line}" for line in lines]


def _uses(names: tuple[str, ...], body: str) -> str:
    """Those of the names that a text calls, for an import."""
    return ", ".join(name for name in names if re.search(rf"\b{name}\(", body))


# --- small parts --------------------------------------------------------------------------------


def _is_flexible(struct: Struct, version: int) -> bool:
    return struct.flexible.first <= version <= struct.flexible.last


def _of_version(struct: Struct, version: int, *, tagged: bool) -> list[Field]:
    """The fields of a version. A tagged field may be in each flexible version, since the number of
    a tag has only one meaning.
    """
    if tagged:
        is_flexible = _is_flexible(struct, version)
        return [one for one in struct.fields if one.tag is not None and is_flexible]
    return [
        one
        for one in struct.fields
        if one.tag is None and one.versions.first <= version <= one.versions.last
    ]


def _default(one: Field) -> str:
    """The default of a field as an expression."""
    if one.default == "null":
        return "None"
    if one.is_array:
        return "[]"
    assert one.type in LETTERS, one.name
    return str(int(one.default or "0"))


def _is_set(one: Field) -> str:
    default = _default(one)
    return f"{one.name} is not None" if default == "None" else f"{one.name} != {default}"


def _size_of(one: Field) -> int:
    """The size of a tagged field; 0 if it depends on the value."""
    return 0 if one.is_array or one.type not in LETTERS else SIZES[LETTERS[one.type]]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes([*out, value])


def _targets(part: Struct) -> str:
    names = ", ".join(one.name for one in part.fields)
    return names if len(part.fields) > 1 else f"({names},)"


def _in_tag(lines: list[str], tag: int) -> list[str]:
    """The lines that read a field, for a field whose bytes are those of a tag."""
    if len(lines) == 1:
        return [lines[0].replace(", at = ", ", _ = ").replace("(data, at,", f"(tags[{tag}], 0,")]
    start = [f"field, start = tags[{tag}], 0"]
    return start + [re.sub(r"\bat\b", "start", re.sub(r"\bdata\b", "field", one)) for one in lines]


def _encoding(record: Record, version: int) -> str:
    about = record.about.removesuffix(".")
    many = record.struct.valid.first < record.struct.valid.last
    return f"{about}, in version {version}." if many and record.kind != "key" else f"{about}."


def _reading(record: Record) -> str:
    names = "".join(f"{one.name}, " for one in record.struct.fields)
    return f"Read {names}and the position after {'them' if names else 'it'}."


def _docstring(text: str, indent: int) -> list[str]:
    lines = textwrap.wrap(text, _COLUMNS - indent - 6)
    closed = [*lines, '"""'] if len(lines) > 1 else [f'{lines[0]}"""']
    return [" " * indent + line for line in [f'"""{closed[0]}', *closed[1:]]]


def _field_row(one: Field) -> str:
    """The row of a field in the table of the metadata log."""
    kind = one.type
    if one.is_array:
        kind = one.name if one.struct else f"{one.type}s"
    tag = "" if one.tag is None else f", {one.tag}, {_default(one)}"
    return f'Field("{one.name}", "{kind}"{tag})'
