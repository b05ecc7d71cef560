"""Generates the text of one module of `protocol/messages/`."""

from __future__ import annotations

import re
import textwrap
from itertools import groupby

from barnabas.protocol.generator.error_responses import answered_rows, error_response
from barnabas.protocol.generator.schema import Field, Struct, Versions, snake_case

LETTERS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}
_BYTES = {"b": 1, "h": 2, "H": 2, "i": 4, "q": 8, "d": 8, "?": 1}
_CONSTANTS = {
    "b": "INT8",
    "h": "INT16",
    "H": "UINT16",
    "i": "INT32",
    "q": "INT64",
    "d": "FLOAT64",
    "?": "BOOL",
}
_PYTHON = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "Buffer",
    "uuid": "uuid.UUID",
}
NEVER = "False"
NO_VERSION = 1 << 15
_INDENT = " " * 8
_COLUMNS = 100


def module_text(api_name: str, structs: list[Struct]) -> str:
    """Return the text of the module for an API, before it is formatted."""
    request = next(struct for struct in structs if struct.name == f"{api_name}Request")
    response = next(struct for struct in structs if struct.name == f"{api_name}Response")
    constants: dict[str, str] = {}
    of_request = (answered_rows(api_name, structs), ["", *error_response(api_name, structs)])
    classes = "\n\n\n".join(
        _class(struct, constants, *(of_request if struct is request else ([], [])))
        for struct in structs
    )
    primitives = sorted(
        set(re.findall(r"\b(?:read|write|skip|refuse)_[a-z_]+(?=\()", classes)) - {"read", "write"}
    )
    if "Buffer" in classes:
        primitives.insert(0, "Buffer")
    imports = ["from typing import ClassVar"]
    if constants:
        imports.insert(0, "import struct")
    if "uuid.UUID" in classes:
        imports.insert(len(imports) - 1, "import uuid")
    head = [
        f'"""{api_name}, API key {request.api_key}: {_range(request.valid)}{_flexible(request)}.',
        "",
        "Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to "
        "be edited.",
        '"""'
        if request.valid == response.valid
        else f'The answer has {_range(response.valid)}{_flexible(response)}.\n"""',
        "",
        "from __future__ import annotations",
        "",
        *imports,
        "",
        "from barnabas.protocol.errors import Code",
        "from barnabas.protocol.messages.message import NOTHING, Message",
        f"from barnabas.protocol.primitives import {', '.join(primitives)}" if primitives else "",
        "",
        *(f'{name} = struct.Struct(">{letters}")' for name, letters in sorted(constants.items())),
        "",
        "",
    ]
    return "\n".join(head) + classes + "\n"


def _range(versions: Versions) -> str:
    """The versions as words for a docstring."""
    return (
        f"version {versions.first}"
        if versions.first == versions.last
        else f"versions {versions.first} to {versions.last}"
    )


def _flexible(struct: Struct) -> str:
    flexible = struct.flexible.within(struct.valid)
    return f", flexible from {flexible.first}" if flexible else ""


def _class(
    struct: Struct, constants: dict[str, str], attributes: list[str], methods: list[str]
) -> str:
    """The text of a message's class. Takes: constants, to which the needed struct formats are
    added; attributes and methods, further lines.
    """
    fields = struct.fields
    lines = [f"class {struct.name}(Message):", *_docstring(struct), ""]
    slots = ", ".join(f'"{one.name}"' for one in fields)
    lines.append(f"    __slots__ = ({slots}{',' if len(fields) == 1 else ''})")
    flexible = struct.flexible.within(struct.valid)
    if struct.api_key is not None:
        lines += [
            f"    API_KEY: ClassVar[int] = {struct.api_key}",
            f"    FIRST_VERSION: ClassVar[int] = {struct.valid.first}",
            f"    LAST_VERSION: ClassVar[int] = {struct.valid.last}",
            f"    FLEXIBLE_FROM: ClassVar[int] = {flexible.first if flexible else NO_VERSION}",
        ]
    lines += attributes
    lines += ["", *_init(struct), "", *_read(struct, constants), "", *_write(struct, constants)]
    return "\n".join([*lines, *methods])


def _docstring(struct: Struct) -> list[str]:
    """The lines of the docstring: what the struct is, and each field with its versions."""
    first = (
        f"The {struct.about.lower()}."
        if struct.api_key is not None
        else struct.about or "A part of it."
    )
    lines = textwrap.wrap(first, _COLUMNS - 7)
    text = ['    """' + lines[0], *("    " + line for line in lines[1:])]
    if struct.fields:
        text.append("")
    for one in struct.fields:
        where = "" if one.versions == struct.valid else f" ({_since(one.versions, struct.valid)})"
        about = f"{one.name}{where}: {one.about}".rstrip(": ")
        text += textwrap.wrap(
            about,
            _COLUMNS - 4,
            initial_indent="    ",
            subsequent_indent="        ",
            break_long_words=False,
        )
    return [*text, '    """'] if len(text) > 1 else [text[0] + '"""']


def _since(versions: Versions, valid: Versions) -> str:
    """The versions that have a field, as words for a docstring."""
    if versions.last == valid.last:
        return (
            f"from version {versions.first}"
            if versions.first < valid.last
            else f"version {versions.first}"
        )
    return _range(versions)


# --- types and defaults -------------------------------------------------------------------------


def _type(one: Field) -> str:
    base = one.struct or _PYTHON.get(one.type, "int")
    text = f"list[{base}]" if one.is_array else base
    return f"{text} | None" if one.may_be_null or one.type in ("uuid", "records") else text


def _default(one: Field) -> str:
    """Return the default of a field as an expression. "[]" and "X()" are evaluated for each
    message.
    """
    default = one.default
    if default == "null":
        return "None"
    if one.is_array:
        return "[]"
    if one.struct:
        return "None" if one.may_be_null else f"{one.struct}()"
    if one.type == "uuid":
        return "None"
    if one.type == "records":
        return "None"
    if one.type == "string":
        return f'"{default or ""}"'
    if one.type == "bytes":
        return 'b""'
    if one.type == "bool":
        return str((default or "false").lower() == "true")
    if one.type == "float64":
        return str(float(default or 0))
    return str(int(default or "0", 0))


def _init(struct: Struct) -> list[str]:
    """The lines of `__init__`, which has a parameter for each field."""
    parameters, body = [], []
    for one in struct.fields:
        default = _default(one)
        if default.endswith(("[]", "()")):
            # As an argument, None means "not given". For a nullable list, None means null, and
            # NOTHING means "not given".
            if one.may_be_null:
                parameters.append(f"{one.name}: {_type(one)} = NOTHING")
                body.append(
                    f"self.{one.name}: {_type(one)} = {default} if {one.name} is NOTHING else "
                    f"{one.name}"
                )
            else:
                parameters.append(f"{one.name}: {_type(one)} | None = None")
                body.append(
                    f"self.{one.name}: {_type(one)} = {default} if {one.name} is None else "
                    f"{one.name}"
                )
        else:
            parameters.append(f"{one.name}: {_type(one)} = {default}")
            body.append(f"self.{one.name} = {one.name}")
    given = ", ".join(["self", *parameters])
    return [
        f"    def __init__({given}) -> None:",
        *(f"{_INDENT}{line}" for line in body or ["pass"]),
    ]


# --- reading and writing ------------------------------------------------------------------------


def _condition(versions: Versions, valid: Versions) -> str | None:
    """Return the condition on `version` under which a field exists; None if it always exists."""
    if not versions:
        return NEVER
    if versions.first <= valid.first and versions.last >= valid.last:
        return None
    if versions.last >= valid.last:
        return f"version >= {versions.first}"
    if versions.first == versions.last > valid.first:
        return f"version == {versions.first}"
    if versions.first <= valid.first:
        return f"version <= {versions.last}"
    return f"{versions.first} <= version <= {versions.last}"


def _runs(struct: Struct) -> list[tuple[str | None, list[Field]]]:
    """Group consecutive fields that have the same versions. Tagged fields are left out."""
    plain = [one for one in struct.fields if one.tag is None]
    return [
        (key, list(group))
        for key, group in groupby(plain, lambda one: _condition(one.versions, struct.valid))
    ]


def _compact(struct: Struct) -> tuple[list[str], str]:
    """Return the code that finds out whether a version is flexible.

    Gives:  (the lines before the expression, the expression).
    """
    condition = _condition(struct.flexible.within(struct.valid), struct.valid)
    if condition in (None, NEVER):
        return [], str(condition is None)
    return [f"compact = {condition}"], "compact"


def _constant(letters: str, constants: dict[str, str]) -> str:
    """Return the name of the constant, a `struct.Struct`, that reads these numbers in one call."""
    parts = [(letter, len(list(group))) for letter, group in groupby(letters)]
    name = "_" + "_".join(
        _CONSTANTS[letter] + (f"_{count}_TIMES" if count > 1 else "") for letter, count in parts
    )
    constants[name] = letters
    return name


def _pieces(fields: list[Field]) -> list[list[Field]]:
    """Divide the fields into groups that are read by one call each.

    Consecutive numbers form one group, which a single `struct` reads. Any other field is a group of
    its own.
    """
    pieces: list[list[Field]] = []
    for one in fields:
        is_number = one.type in LETTERS and not one.is_array
        if is_number and pieces and pieces[-1][0].type in LETTERS and not pieces[-1][0].is_array:
            pieces[-1].append(one)
        else:
            pieces.append([one])
    return pieces


def _read_one(one: Field, compact: str, source: str = "data, at") -> str:
    """The expression that reads a field. Takes: compact, an expression: whether lengths are
    compact; source, the data and the position.
    """
    nullable = "nullable_" if one.may_be_null else ""
    if one.struct:
        if one.is_array:
            return f"read_{nullable}structs({source}, {compact}, {one.struct}.read, version)"
        if one.may_be_null:
            return f"read_nullable_struct({source}, {one.struct}.read, version)"
        return f"{one.struct}.read({source}, version)"
    if one.is_array:
        if one.type == "string":
            return f"read_{nullable}strings({source}, {compact})"
        return f'read_{nullable}numbers({source}, {compact}, "{LETTERS[one.type]}")'
    if one.type == "uuid":
        return f"read_uuid({source})"
    if one.type == "records":
        nullable = "nullable_"
    return f"read_{nullable}{one.type}({source}, {compact})"


def _read(struct: Struct, constants: dict[str, str]) -> list[str]:
    """The lines of `read`. Adjacent numbers are unpacked by one call."""
    prelude, compact = _compact(struct)
    body: list[str] = []
    for condition, fields in _runs(struct):
        lines: list[str] = []
        for piece in _pieces(fields):
            names = [one.name for one in piece]
            if piece[0].type in LETTERS and not piece[0].is_array:
                letters = "".join(LETTERS[one.type] for one in piece)
                target = f"({names[0]},)" if len(names) == 1 else ", ".join(names)
                lines.append(f"{target} = {_constant(letters, constants)}.unpack_from(data, at)")
                lines.append(f"at += {sum(_BYTES[letter] for letter in letters)}")
            else:
                lines.append(f"{names[0]}, at = {_read_one(piece[0], compact)}")
                lines += _refused_null(piece[0], struct, "refuse_null", names[0])
        if condition is None:
            body += lines
        else:
            body += map(_default_line, fields)
            body.append(f"if {condition}:")
            body += [f"    {line}" for line in lines]
    body += _read_tagged(struct, compact)
    given = ", ".join(one.name for one in struct.fields)
    return [
        "    @classmethod",
        f"    def read(cls, data: Buffer, at: int, version: int) -> tuple[{struct.name}, int]:",
        *(f"{_INDENT}{line}" for line in [*prelude, *body, f"return cls({given}), at"]),
    ]


def _default_line(one: Field) -> str:
    """The line that sets a field that the version lacks to its default."""
    annotation = (
        f": {_type(one)}"
        if _default(one) == "[]" or one.may_be_null or one.type in ("uuid", "records")
        else ""
    )
    return f"{one.name}{annotation} = {_default(one)}"


def _refused_null(one: Field, struct: Struct, refuse: str, value: str) -> list[str]:
    """Return the lines that reject null, for a field that may be null only in some versions."""
    if not one.may_be_null or one.nullable == one.versions:
        return []
    condition = _condition(one.nullable, struct.valid)
    return [f"if {value} is None and not ({condition}):", f'    {refuse}("{one.name}", version)']


def _read_tagged(struct: Struct, compact: str) -> list[str]:
    """The lines that read the tagged fields of flexible versions."""
    tagged = [one for one in struct.fields if one.tag is not None]
    if compact == "False":
        return []
    if not tagged:
        return (
            ["at = at + 1 if data[at] == 0 else skip_tags(data, at)"]
            if compact == "True"
            else [f"if {compact}:", "    at = at + 1 if data[at] == 0 else skip_tags(data, at)"]
        )
    lines = ["tags, at = read_tags(data, at)"]
    for one in tagged:
        condition = _condition(
            one.versions.within(struct.valid), struct.flexible.within(struct.valid)
        )
        extra = f" and {condition}" if condition else ""
        lines.append(f"if {one.tag} in tags{extra}:")
        if one.type in LETTERS and not one.is_array:
            lines.append(
                f'    ({one.name},) = struct.unpack(">{LETTERS[one.type]}", tags[{one.tag}])'
            )
        else:
            lines.append(f"    {one.name}, _ = {_read_one(one, 'True', f'tags[{one.tag}], 0')}")
    return [*map(_default_line, tagged)] + (
        lines if compact == "True" else [f"if {compact}:", *(f"    {line}" for line in lines)]
    )


def _write_one(one: Field, compact: str, value: str, out: str = "out") -> str:
    """The statement that writes a field. Takes: compact, an expression: whether lengths are
    compact.
    """
    nullable = "nullable_" if one.may_be_null else ""
    if one.struct:
        if one.is_array:
            return f"write_{nullable}structs({out}, {value}, {compact}, version)"
        return (
            f"write_nullable_struct({out}, {value}, version)"
            if one.may_be_null
            else f"{value}.write({out}, version)"
        )
    if one.is_array:
        if one.type == "string":
            return f"write_{nullable}strings({out}, {value}, {compact})"
        return f'write_{nullable}numbers({out}, {value}, {compact}, "{LETTERS[one.type]}")'
    if one.type == "uuid":
        return f"write_uuid({out}, {value})"
    if one.type == "records":
        return f"write_nullable_bytes({out}, {value}, {compact})"
    return f"write_{nullable}{one.type}({out}, {value}, {compact})"


def _write(struct: Struct, constants: dict[str, str]) -> list[str]:
    """The lines of `write`. A field that the version lacks must have its default, unless it may be
    ignored.
    """
    prelude, compact = _compact(struct)
    body: list[str] = []
    for condition, fields in _runs(struct):
        lines: list[str] = []
        for piece in _pieces(fields):
            values = [f"self.{one.name}" for one in piece]
            if piece[0].type in LETTERS and not piece[0].is_array:
                letters = "".join(LETTERS[one.type] for one in piece)
                lines.append(f"out += {_constant(letters, constants)}.pack({', '.join(values)})")
            else:
                lines += _refused_null(piece[0], struct, "refuse_value", values[0])
                lines.append(_write_one(piece[0], compact, values[0]))
        if condition is None:
            body += lines
            continue
        body.append(f"if {condition}:")
        body += [f"    {line}" for line in lines]
        for one in fields:
            if not one.is_ignorable:
                body.append(f"elif {_is_set(one)}:")
                body.append(f'    refuse_value("{one.name}", version)')
    body += _write_tagged(struct, compact)
    return [
        "    def write(self, out: bytearray, version: int) -> None:",
        *(f"{_INDENT}{line}" for line in [*prelude, *(body or ["pass"])]),
    ]


def _is_set(one: Field) -> str:
    """Return the condition under which a field differs from its default."""
    default = _default(one)
    if default == "None":
        return f"self.{one.name} is not None"
    if default in ("True", "False"):
        return f"not self.{one.name}" if default == "True" else f"self.{one.name}"
    return f"self.{one.name} != {default}"


def _write_tagged(struct: Struct, compact: str) -> list[str]:
    """The lines that write the tagged fields of flexible versions."""
    tagged = sorted(
        (one for one in struct.fields if one.tag is not None), key=lambda one: one.tag or 0
    )
    if compact == "False":
        return []
    if not tagged:
        return ["out.append(0)"] if compact == "True" else [f"if {compact}:", "    out.append(0)"]
    lines = ["tags: dict[int, bytearray] = {}"]
    for one in tagged:
        condition = _condition(
            one.versions.within(struct.valid), struct.flexible.within(struct.valid)
        )
        extra = f" and {condition}" if condition else ""
        lines.append(f"if {_is_set(one)}{extra}:")
        if one.type in LETTERS and not one.is_array:
            packed = f'struct.pack(">{LETTERS[one.type]}", self.{one.name})'
            lines.append(f"    tags[{one.tag}] = bytearray({packed})")
        else:
            lines.append(f"    tags[{one.tag}] = bytearray()")
            lines.append(f"    {_write_one(one, 'True', f'self.{one.name}', f'tags[{one.tag}]')}")
    lines.append("write_tags(out, tags)")
    refusals = []
    if compact != "True":
        for one in tagged:
            if not one.is_ignorable:
                refusals += [f"elif {_is_set(one)}:", f'    refuse_value("{one.name}", version)']
        return [f"if {compact}:", *(f"    {line}" for line in lines), *refusals]
    return lines


def module_name(api_name: str) -> str:
    """Return the name of a message's module: `end_txn` for "EndTxn"."""
    return snake_case(api_name)
