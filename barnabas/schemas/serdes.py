"""The serde of a schema, chosen by its kind; and the serdes of records that name a schema of a
registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from barnabas.json_text import JsonText
from barnabas.schemas import wire_format
from barnabas.schemas.errors import SchemaError, SerdeError
from barnabas.schemas.registry import (
    AVRO,
    JSON,
    PROTOBUF,
    RegisteredSchema,
    RegistryError,
    SchemaRegistry,
)


class Serde(Protocol):
    """Decodes and encodes data of one schema."""

    def decode(self, data: bytes) -> Any:
        """The JSON value of data. Raises: SerdeError."""

    def decode_text(self, data: bytes) -> JsonText:
        """The JSON text of data; of JSON, the data themselves. Raises: SerdeError."""

    def encode(self, value: Any) -> bytes:
        """The data of a JSON value. Raises: SerdeError."""

    def columns(self) -> dict[str, str]:
        """The types of fields as types of CSV columns."""


class ProtobufOfRegistry(NamedTuple):
    """A Protobuf schema whose message is named by each record."""

    schema: Any


MOST_SCHEMAS = 1000


class RegisteredSerdes:
    """The serdes of a registry's schemas. Each schema is requested once and cached, at most
    MOST_SCHEMAS of them.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._schemas: dict[int, tuple[str, Any]] = {}
        self._messages: dict[tuple[int, tuple[int, ...]], Serde] = {}

    def kind(self, schema_id: int) -> str:
        """The kind of the schema that decoded the data; empty if it is unknown."""
        return self._schemas.get(schema_id, ("", None))[0]

    def prepare(self, data: bytes) -> None:
        """Request and compile the schema that a key or value names. Raises: SerdeError;
        SchemaError.
        """
        self._schema(wire_format.split(data)[0])

    def decode(self, data: bytes) -> Any:
        """The JSON value of a key or value. Raises: SerdeError; SchemaError."""
        serde, rest = self._serde(data)
        return serde.decode(rest)

    def decode_text(self, data: bytes) -> JsonText:
        """The JSON text of a key or value. Raises: SerdeError; SchemaError."""
        serde, rest = self._serde(data)
        return serde.decode_text(rest)

    def _serde(self, data: bytes) -> tuple[Serde, bytes]:
        """The serde that a key or value names, and its data after the schema's id."""
        schema_id, rest = wire_format.split(data)
        schema = self._schema(schema_id)
        if not isinstance(schema, ProtobufOfRegistry):
            return schema, rest
        indexes, rest = wire_format.split_indexes(rest)
        key = (schema_id, indexes)
        serde = self._messages.get(key)
        if serde is None:
            serde = schema.schema.at(indexes)
            if len(self._messages) < MOST_SCHEMAS:
                self._messages[key] = serde
        return serde, rest

    def _schema(self, schema_id: int) -> Any:
        known = self._schemas.get(schema_id)
        if known is None:
            try:
                found = self._registry.schema(schema_id)
            except RegistryError as error:
                if error.status != 404:
                    raise
                raise SerdeError(str(error)) from error
            known = (found.kind, compiled(found, f"schema {schema_id}"))
            if len(self._schemas) >= MOST_SCHEMAS:
                self._schemas.clear()
                self._messages.clear()
            self._schemas[schema_id] = known
        return known[1]


def compiled(found: RegisteredSchema, origin: str) -> Any:
    """The serde of a registry's schema; a ProtobufOfRegistry for Protobuf. Raises: SchemaError."""
    if found.kind == PROTOBUF:
        from barnabas.schemas.protobuf import compile_text

        return ProtobufOfRegistry(compile_text(found.text, found.references, origin))
    return json_serde(found.kind, found.text, found.references, origin)


def json_serde(kind: str, text: str, references: Mapping[str, str], origin: str) -> Serde:
    """The serde of an Avro or a JSON schema. Raises: SchemaError."""
    if kind == AVRO:
        from barnabas.schemas.avro import AvroSerde

        return AvroSerde(text, list(references.values()), origin)
    if kind == JSON:
        from barnabas.schemas.json_schema import JsonSchemaSerde

        return JsonSchemaSerde(text, references, origin)
    raise SchemaError(f"{origin} is of the kind {kind}: AVRO, PROTOBUF and JSON are read")
