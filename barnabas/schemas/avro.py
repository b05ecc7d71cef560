"""Avro by fastavro, and its data as JSON.

    Avro               JSON
    -----------------  --------------------------------------------------------------------------
    record, map        an object; a field with a default may be left out
    array              an array
    union              the value itself if it has one type besides null; otherwise, as in Avro's
                       JSON encoding, {"type": value}. Both are read
    bytes, fixed       a string where they are UTF-8, otherwise {"base64": "…"}
    float, double      a number; "NaN", "Infinity", "-Infinity"
    enum               its symbol
    logical types      see avro_logical.py

fastavro reads and writes without logical types: this module converts their numbers to JSON, so that
a time outside of Python's calendar is not an error.

Source: Apache Avro 1.12, "Specification".
"""

from __future__ import annotations

import difflib
import io
import json
import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from barnabas.json_text import JsonText, bytes_from_json, bytes_to_json, compact_json, json_text
from barnabas.schemas import avro_logical
from barnabas.schemas.avro_sizes import check_sizes, has_unbounded_data
from barnabas.schemas.errors import SchemaError, SerdeError, libraries

Schema = Any  # a name, a list of a union, or a dict
_INTEGERS = {"int": 31, "long": 63}
_NAMED = ("record", "enum", "fixed", "error")
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_COLUMNS = {"int": "int", "long": "int", "float": "float", "double": "float", "boolean": "bool"}
_OF_PYTHON: Sequence[tuple[type, Sequence[str]]] = (
    (bool, ("boolean",)),
    (int, ("int", "long")),
    (float, ("double", "float")),
    (str, ("string", "enum")),
    (bytes, ("bytes", "fixed")),
    (list, ("array",)),
    (dict, ("map", "record")),
)


class AvroSerde:
    """Decodes and encodes data of one Avro schema.

    Takes:  text, the schema; references, the texts of schemas that it names, ordered so that each
            names only earlier ones; origin, the source of the schema, for errors.
    Raises: SchemaError.
    """

    def __init__(self, text: str, references: Sequence[str] = (), origin: str = "") -> None:
        with libraries("Avro"):
            import fastavro
        self._library = fastavro
        self._names: dict[str, Any] = {}
        names: dict[str, Any] = {}
        try:
            for one in (*references, text):
                whole = fastavro.parse_schema(json.loads(one), names)
            if references:
                whole = _with_definitions(whole, names, set())
            self.schema = fastavro.parse_schema(whole, self._names, _force=True)
            self._plain = fastavro.parse_schema(_without_logical_types(whole), {}, _force=True)
            self._has_unbounded_data = has_unbounded_data(self.schema, self._names)
        except (ValueError, TypeError, KeyError, RecursionError, _schema_errors(fastavro)) as error:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise SchemaError(f"{origin or 'the schema'} is no Avro schema: {said}") from error

    def decode(self, data: bytes) -> Any:
        """The JSON value of data. Raises: SerdeError."""
        if self._has_unbounded_data:
            check_sizes(self.schema, self._names, data)
        stream = io.BytesIO(data)
        try:
            datum = self._library.schemaless_reader(
                stream, self._plain, None, return_named_type=True
            )
        except Exception as error:  # fastavro raises many kinds
            raise SerdeError(f"it is not data of the Avro schema: {error!r}") from error
        if rest := len(data) - stream.tell():
            raise SerdeError(f"it is not data of the Avro schema: {rest} bytes are left over")
        try:
            return self._to_json(self.schema, datum)
        except RecursionError:
            raise SerdeError("it is nested too deeply") from None

    def decode_text(self, data: bytes) -> JsonText:
        """The JSON text of data. Raises: SerdeError."""
        value = self.decode(data)
        try:
            return JsonText(json_text(value))
        except RecursionError:
            raise SerdeError("it is nested too deeply") from None

    def encode(self, value: Any) -> bytes:
        """The data of a JSON value. Raises: SerdeError."""
        datum = self._to_avro(self.schema, value, "")
        stream = io.BytesIO()
        try:
            self._library.schemaless_writer(stream, self._plain, datum)
        except Exception as error:
            raise SerdeError(f"it does not fit the Avro schema: {error}") from error
        return stream.getvalue()

    def columns(self) -> dict[str, str]:
        """The types of a record's fields, by column of the CSV; other data are one column, ""."""
        schema = self._resolved(self.schema)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            return {"": self._column(self.schema)}
        return {field["name"]: self._column(field["type"]) for field in schema["fields"]}

    def _column(self, schema: Schema) -> str:
        if isinstance(schema, list):
            others = [one for one in schema if self._kind(one) != "null"]
            return self._column(others[0]) if len(others) == 1 else "json"
        resolved = self._resolved(schema)
        if isinstance(resolved, dict) and "logicalType" in resolved:
            return "string"
        kind = self._kind(schema)
        return "json" if kind in ("array", "map", "record") else _COLUMNS.get(kind, "string")

    def _resolved(self, schema: Schema) -> Schema:
        """The schema that a name refers to."""
        return self._names.get(schema, schema) if isinstance(schema, str) else schema

    def _kind(self, schema: Schema) -> str:
        resolved = self._resolved(schema)
        if isinstance(resolved, dict):
            kind = resolved["type"]
            return kind if isinstance(kind, str) else self._kind(kind)
        return "union" if isinstance(resolved, list) else str(resolved)

    def _branch_name(self, schema: Schema) -> str:
        """The name of a union's branch: a named type's full name, otherwise its type."""
        resolved = self._resolved(schema)
        kind = self._kind(schema)
        return str(resolved["name"]) if kind in ("record", "enum", "fixed") else kind

    # --- to JSON -----------------------------------------------------------------------------

    def _to_json(self, schema: Schema, datum: Any) -> Any:
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._union_to_json(schema, datum)
        kind = self._kind(schema)
        if isinstance(datum, tuple):
            datum = datum[1]
        if isinstance(schema, dict) and "logicalType" in schema:
            found = avro_logical.to_json(schema, datum)
            if found is not NotImplemented:
                return found
        if kind == "record":
            return {
                field["name"]: self._to_json(field["type"], datum[field["name"]])
                for field in schema["fields"]
            }
        if kind == "array":
            return [self._to_json(schema["items"], one) for one in datum]
        if kind == "map":
            return {key: self._to_json(schema["values"], one) for key, one in datum.items()}
        if kind in ("bytes", "fixed"):
            return bytes_to_json(datum)
        if kind in ("float", "double") and not math.isfinite(datum):
            return "NaN" if math.isnan(datum) else "Infinity" if datum > 0 else "-Infinity"
        return datum

    def _union_to_json(self, union: Sequence[Schema], datum: Any) -> Any:
        if datum is None:
            return None
        branches = {self._branch_name(one): one for one in union if self._kind(one) != "null"}
        if isinstance(datum, tuple):
            name, datum = datum
        elif len(branches) == 1:
            name = next(iter(branches))
        else:
            name = _branch_of(datum, branches)
        value = self._to_json(branches[name], datum)
        return value if len(branches) == 1 else {name: value}

    # --- to Avro -----------------------------------------------------------------------------

    def _to_avro(self, schema: Schema, value: Any, path: str) -> Any:
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._union_to_avro(schema, value, path)
        if isinstance(schema, dict) and "logicalType" in schema:
            try:
                found = avro_logical.from_json(schema, value)
            except SerdeError as error:
                raise SerdeError(f"{_place(path)}: {error}") from error
            if found is not NotImplemented:
                return found
        kind = self._kind(schema)
        convert = _CONVERTERS.get(kind, AvroSerde._scalar_to_avro)
        converted = convert(self, schema, value, path)
        if converted is NotImplemented:
            raise SerdeError(f"{_place(path)}: {_shown(value)} is no {_described(schema, kind)}")
        return converted

    def _scalar_to_avro(self, schema: Schema, value: Any, path: str) -> Any:
        kind = self._kind(schema)
        if kind == "null":
            return None if value is None else NotImplemented
        if kind == "boolean":
            return value if isinstance(value, bool) else NotImplemented
        if kind == "string":
            return value if isinstance(value, str) else NotImplemented
        if kind in _INTEGERS:
            bound = 1 << _INTEGERS[kind]
            is_right = type(value) is int and -bound <= value < bound
            return value if is_right else NotImplemented
        if kind in ("float", "double"):
            if isinstance(value, str):
                return _FLOATS.get(value, NotImplemented)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return float(value) if is_number else NotImplemented
        return NotImplemented

    def _enum_to_avro(self, schema: Schema, value: Any, path: str) -> Any:
        return value if value in schema["symbols"] else NotImplemented

    def _bytes_to_avro(self, schema: Schema, value: Any, path: str) -> Any:
        try:
            return bytes_from_json(value)
        except ValueError as error:
            raise SerdeError(f"{_place(path)}: {error}") from error

    def _fixed_to_avro(self, schema: Schema, value: Any, path: str) -> Any:
        data = self._bytes_to_avro(schema, value, path)
        return data if data is NotImplemented or len(data) == schema["size"] else NotImplemented

    def _array_to_avro(self, schema: Schema, value: Any, path: str) -> Any:
        if not isinstance(value, list):
            return NotImplemented
        return [
            self._to_avro(schema["items"], one, f"{path}[{index}]")
            for index, one in enumerate(value)
        ]

    def _map_to_avro(self, schema: Schema, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return NotImplemented
        return {
            key: self._to_avro(schema["values"], one, _below(path, key))
            for key, one in value.items()
        }

    def _record_to_avro(self, schema: Schema, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return NotImplemented
        fields = {field["name"]: field for field in schema["fields"]}
        for name in value:
            if name not in fields:
                near = difflib.get_close_matches(name, fields, 1)
                known = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(fields)}"
                raise SerdeError(f"{_place(path)} has no field {name!r}: {known}")
        datum = {}
        for name, field in fields.items():
            if name in value:
                datum[name] = self._to_avro(field["type"], value[name], _below(path, name))
            elif "default" not in field:
                raise SerdeError(
                    f"{_place(path)} lacks the field {name!r}, which has no default in the schema"
                )
        return datum

    def _union_to_avro(self, union: Sequence[Schema], value: Any, path: str) -> Any:
        branches = {self._branch_name(one): one for one in union}
        if value is None and "null" in branches:
            return None
        tagged: list[SerdeError] = []
        if isinstance(value, dict) and len(value) == 1 and (name := next(iter(value))) in branches:
            try:
                return (name, self._to_avro(branches[name], value[name], _below(path, name)))
            except SerdeError as error:
                tagged.append(error)  # the value may be a map or record with such a key
        names = [name for name in branches if name != "null"]
        if type(value) is int:  # a whole number is also a double
            names.sort(key=lambda name: name in ("float", "double"))
        problems = []
        for name in names:
            try:
                return (name, self._to_avro(branches[name], value, path))
            except SerdeError as error:
                problems.append(error)
        if tagged or len(problems) == 1:
            raise [*tagged, *problems][0]
        raise SerdeError(f"{_place(path)}: {_shown(value)} is none of {', '.join(branches)}")


_CONVERTERS: Mapping[str, Callable[[AvroSerde, Schema, Any, str], Any]] = {
    "enum": AvroSerde._enum_to_avro,
    "bytes": AvroSerde._bytes_to_avro,
    "fixed": AvroSerde._fixed_to_avro,
    "array": AvroSerde._array_to_avro,
    "map": AvroSerde._map_to_avro,
    "record": AvroSerde._record_to_avro,
}


def _branch_of(datum: Any, branches: Container[str]) -> str:
    """The unnamed branch of a union from which fastavro read a value."""
    is_int = type(datum) is int and -(2**31) <= datum < 2**31
    return next(
        name
        for kind, kinds in _OF_PYTHON
        if isinstance(datum, kind)
        for name in kinds
        if name in branches and (name != "int" or is_int)
    )


def _schema_errors(fastavro: Any) -> type[Exception]:
    """The base of fastavro's errors of schemas."""
    kind: type[Exception] = fastavro.schema.SchemaParseException
    return kind


def _with_definitions(schema: Schema, names: dict[str, Any], defined: set[str]) -> Schema:
    """A parsed schema that contains the definition of each name at its first use: fastavro uses no
    definition outside of the given schema.
    """
    if isinstance(schema, list):
        return [_with_definitions(one, names, defined) for one in schema]
    if isinstance(schema, str):
        if schema not in names or schema in defined:
            return schema
        return _with_definitions(names[schema], names, defined)
    if schema["type"] in _NAMED:
        defined.add(schema["name"])
    whole = {name: one for name, one in schema.items() if not name.startswith("__")}
    for name in ("type", "items", "values"):
        if name in whole and whole[name] not in (*_NAMED, "array", "map"):
            whole[name] = _with_definitions(whole[name], names, defined)
    if isinstance(whole.get("fields"), list):
        whole["fields"] = [
            {**field, "type": _with_definitions(field["type"], names, defined)}
            for field in whole["fields"]
        ]
    return whole


def _without_logical_types(schema: Schema) -> Schema:
    """The schema whose data are the stored numbers and bytes."""
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: _without_logical_types(value) if key in ("type", "items", "values") else value
        for key, value in schema.items()
        if key != "logicalType"
    }
    if isinstance(plain.get("fields"), list):
        plain["fields"] = [_without_logical_types(field) for field in plain["fields"]]
    return plain


def _place(path: str) -> str:
    return f"the field {path.removeprefix('.')}" if path else "the value"


def _below(path: str, name: str) -> str:
    return f"{path}.{name}"


def _shown(value: Any) -> str:
    text = compact_json(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _described(schema: Schema, kind: str) -> str:
    if kind == "enum":
        return f"symbol of {schema['name']}: there are {', '.join(schema['symbols'])}"
    if kind == "fixed":
        return f"{schema['name']} of {schema['size']} bytes"
    if isinstance(schema, dict) and "logicalType" in schema:
        return f"{schema['logicalType']}"
    return kind
