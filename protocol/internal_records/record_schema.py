"""The rows of the table of metadata records, whose fields are known by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Field(NamedTuple):
    """A field of a record: its name and type, its tag (-1 if it is not tagged), and its default."""

    name: str
    type: str
    tag: int = -1
    default: Any = None


class RecordSchema(NamedTuple):
    """The fields of a record, the functions that read it, by version, and the one that encodes it
    in the version that Barnabas writes.
    """

    name: str
    fields: tuple[Field, ...]
    read: tuple[Callable[[bytes, int], tuple[Any, ...]], ...]
    encode: Callable[..., bytes]
