"""Avro data that would take fastavro's memory, or its stack.

Nearly every value of Avro takes a byte, so data of a bounded size have a bounded number of values.
Nulls do not, nor records of nulls: the array of 2**40 nulls takes eight bytes, and fastavro would
make the list. A record within itself takes a byte for each level, and 300,000 levels end fastavro's
process. `check_sizes` follows the data of such schemas, without making values.

Source: Apache Avro 1.12, "Binary Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.schemas.errors import SerdeError

MOST_ITEMS = 100_000
Schema = Any
_SIZES = {"boolean": 1, "float": 4, "double": 8, "null": 0}


def has_unbounded_data(schema: Schema, names: Mapping[str, Schema]) -> bool:
    """Whether the schema has an array of items that may take no bytes, or a type within itself."""
    return _any(schema, names, set(), lambda one: _takes_none(one["items"], names, set()))


def check_sizes(schema: Schema, names: Mapping[str, Schema], data: bytes) -> None:
    """Raises: SerdeError if there are more than MOST_ITEMS items that take no bytes, or more levels
    than Python's stack has.
    """
    try:
        _Walk(names, data).skip(schema)
    except IndexError:
        return  # fastavro says what is wrong with the data
    except RecursionError:
        raise SerdeError("it is nested too deeply") from None


def _any(
    schema: Schema, names: Mapping[str, Schema], seen: set[str], holds: Callable[[Schema], bool]
) -> bool:
    """Whether a condition holds for one of the arrays in a schema, or a type is within itself."""
    if isinstance(schema, str):
        if schema in seen or schema not in names:
            return schema in seen
        return _any(names[schema], names, seen | {schema}, holds)
    if isinstance(schema, list):
        return any(_any(one, names, seen, holds) for one in schema)
    if schema["type"] == "array" and holds(schema):
        return True
    if "name" in schema:
        seen = seen | {schema["name"]}
    inner = [schema[name] for name in ("items", "values") if name in schema]
    inner += [field["type"] for field in schema.get("fields", ())]
    if isinstance(schema["type"], dict | list):
        inner.append(schema["type"])
    return any(_any(one, names, seen, holds) for one in inner)


def _takes_none(schema: Schema, names: Mapping[str, Schema], seen: set[str]) -> bool:
    """Whether a value may take no bytes."""
    if isinstance(schema, str):
        if schema in seen:
            return True  # a record within itself: its other fields decide
        known = names.get(schema)
        return schema == "null" if known is None else _takes_none(known, names, seen | {schema})
    if isinstance(schema, list):
        return False
    kind = schema["type"]
    if kind in ("record", "error"):
        seen = seen | {schema["name"]}
        return all(_takes_none(field["type"], names, seen) for field in schema["fields"])
    if kind == "fixed":
        return bool(schema["size"] == 0)
    return kind == "null" or (isinstance(kind, dict) and _takes_none(kind, names, seen))


class _Walk:
    """Follows data by their schema. Raises: IndexError at their end."""

    def __init__(self, names: Mapping[str, Schema], data: bytes) -> None:
        self._names, self._data, self._at = names, data, 0
        self._left = MOST_ITEMS

    def skip(self, schema: Schema) -> None:
        """Skip one value."""
        if isinstance(schema, str):
            schema = self._names.get(schema, schema)
        if isinstance(schema, list):
            self.skip(schema[self._long()])
            return
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            self.skip(kind)
        elif kind in ("record", "error"):
            for field in schema["fields"]:
                self.skip(field["type"])
        elif kind in ("array", "map"):
            self._skip_blocks(schema, is_map=kind == "map")
        elif kind in ("string", "bytes"):
            self._skip_bytes(self._long())
        elif kind == "fixed":
            self._skip_bytes(schema["size"])
        elif kind in _SIZES:
            self._skip_bytes(_SIZES[kind])
        else:  # int, long, enum
            self._long()

    def _skip_blocks(self, schema: Schema, *, is_map: bool) -> None:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # the size of the block
            for _ in range(count):
                before = self._at
                if is_map:
                    self._skip_bytes(self._long())
                self.skip(schema["values"] if is_map else schema["items"])
                if self._at == before:
                    self._left -= 1
                    if self._left < 0:
                        raise SerdeError(
                            f"it has more than {MOST_ITEMS:,} items that take no bytes"
                        )

    def _skip_bytes(self, size: int) -> None:
        self._at += size
        if size < 0 or self._at > len(self._data):
            raise IndexError

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise IndexError
