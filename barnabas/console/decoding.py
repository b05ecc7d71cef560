"""Decoded keys and values of records, for the views and the search.

A key or value may be in the wire format of schema registries if it begins with the byte 0 and four
bytes of an id. Another process decodes it (`rim/decoder.py`). This module defines the results, and
does no I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from barnabas.protocol.records import Record

HEADER_BYTES = 5
MOST_SHOWN_CHARACTERS = 64 * 1024
"""A longer JSON text is cut for the page."""
MOST_AT_ONCE, MOST_BYTES_AT_ONCE = 100, 4 << 20


class Decoded(NamedTuple):
    """A key or value in the wire format. text: its JSON; empty if it was not decoded.

    kind: AVRO, PROTOBUF or JSON; empty if the schema is unknown. error: the reason why the key or
    value was not decoded.
    """

    schema_id: int
    kind: str
    text: str
    error: str = ""


class Values(NamedTuple):
    """The decoded key and value of a record; None for a part that is not in the wire format."""

    key: Decoded | None = None
    value: Decoded | None = None


NOT_DECODED = Values()
Decode = Callable[[Sequence[Record]], Sequence[Values]]
"""The decoded keys and values of records, in their order."""


def has_schema_id(data: bytes | None) -> bool:
    """Whether bytes may be in the wire format of schema registries."""
    return data is not None and len(data) >= HEADER_BYTES and data[0] == 0


def schema_id_of(data: bytes) -> int:
    """The schema id in data that has the wire format."""
    schema_id: int = struct.unpack_from(">I", data, 1)[0]
    return schema_id


def first_part(records: Sequence[Record]) -> Sequence[Record]:
    """The first records of a list, as many as one request to the decoder may have, but at least
    one.
    """
    size = 0
    for place, record in enumerate(records[:MOST_AT_ONCE]):
        size += len(record.key or b"") + len(record.value or b"")
        if size > MOST_BYTES_AT_ONCE and place:
            return records[:place]
    return records[:MOST_AT_ONCE]


def decoded_value(values: Values) -> dict[str, Any]:
    """The decoded key and value as a JSON object."""
    return {"key": _shown(values.key), "value": _shown(values.value)}


def _shown(decoded: Decoded | None) -> dict[str, Any] | None:
    """A decoded key or value as the page shows it, truncated; None if it has no schema id."""
    if decoded is None:
        return None
    return {
        "schema_id": decoded.schema_id,
        "kind": decoded.kind,
        "json": None if decoded.error else decoded.text[:MOST_SHOWN_CHARACTERS],
        "size": len(decoded.text),
        "error": decoded.error,
    }
