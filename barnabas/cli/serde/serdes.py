"""Decoders and encoders of keys and values, made from the options of a command.

A decoder uses the schema whose id is in the record, in the wire format of registries, or the schema
in a file. An encoder has one schema. A command makes each of them once, and they cache schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.cli.errors import CommandError
from barnabas.cli.records import Decoded
from barnabas.cli.serde.schema_source import DESCRIPTORS, PROTOBUF, SchemaSource
from barnabas.schemas import wire_format
from barnabas.schemas.errors import SchemaError
from barnabas.schemas.registry import Reference, SchemaRegistry
from barnabas.schemas.serdes import (
    ProtobufOfRegistry,
    RegisteredSerdes,
    Serde,
    compiled,
    json_serde,
)


class Part(NamedTuple):
    """The schema options for keys, or for values.

    part: key or value. message: the name of a Protobuf message. subject: the subject in the
    registry; empty for the default, TOPIC-key or TOPIC-value.
    """

    part: str
    source: SchemaSource
    message: str | None = None
    subject: str = ""
    proto_path: Sequence[Path] = ()


class Decoder:
    """Decodes keys or values.

    Takes: registry, None if the schema is in a file.
    """

    def __init__(self, part: Part, registry: SchemaRegistry | None) -> None:
        self._file_serde = None if registry is not None else _of_file(part)
        self._serdes = None if registry is None else RegisteredSerdes(registry)

    def decode(self, data: bytes) -> Decoded:
        """The decoded key or value. Raises: SerdeError; SchemaError for an unavailable schema."""
        serde = self._file_serde or self._serdes
        assert serde is not None
        return Decoded(serde.decode_text(data), data)


class Encoder:
    """Encodes keys or values. columns: the types of the schema's fields.

    Takes: topic, which gives the default subject its name; registry, None if the schema is only in
           a file; tell, a function that gets a line about a newly registered schema.
    """

    def __init__(
        self,
        part: Part,
        topic: str,
        registry: SchemaRegistry | None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._header = b""
        self._part = part
        subject = part.subject or f"{topic}-{part.part}"
        if registry is None:
            self._serde: Serde = _of_file(part)
        elif part.source.file is not None:
            self._serde = _of_file(part)
            schema_id = _registered(part, subject, registry, tell)
            self._header = _header(schema_id, self._serde)
        else:
            self._take(registry, subject)
        self.columns = self._serde.columns()

    def _take(self, registry: SchemaRegistry, subject: str) -> None:
        """Use a schema from the registry: the schema with the given id, or the latest schema of the
        subject.
        """
        schema_id = self._part.source.schema_id
        if schema_id is None:
            schema_id, found = registry.latest(subject)
        else:
            found = registry.schema(schema_id)
        schema = compiled(found, f"schema {schema_id}")
        if isinstance(schema, ProtobufOfRegistry):
            schema = schema.schema.named(self._part.message)
        elif self._part.message is not None:
            raise CommandError(
                f"--{self._part.part}-message is for Protobuf, and schema {schema_id} is "
                f"{found.kind}: leave it out"
            )
        self._serde = schema
        self._header = _header(schema_id, schema)

    def encode(self, value: Any) -> bytes:
        """The bytes of a JSON value. Raises: SerdeError."""
        return self._header + self._serde.encode(value)


def _of_file(part: Part) -> Serde:
    """The serde for the schema in a file."""
    file, kind = part.source.file, part.source.kind
    assert file is not None
    if kind in (PROTOBUF, DESCRIPTORS):
        from barnabas.schemas import protobuf

        if kind == PROTOBUF:
            schema = protobuf.compile_file(file, part.proto_path, str(file))
        else:
            schema = protobuf.ProtobufSchema(file.read_bytes(), "", str(file))
        return schema.named(part.message)
    if part.message is not None:
        raise CommandError(
            f"--{part.part}-message is for Protobuf, and {file} is not: leave it out"
        )
    return json_serde(kind, _text(file), {}, str(file))


def _registered(
    part: Part, subject: str, registry: SchemaRegistry, tell: Callable[[str], None]
) -> int:
    """The id of a file's schema in the registry, where the schema is registered if it is new. The
    imports of a Protobuf file are registered first, each in a subject named like the import, as
    Confluent's clients do.
    """
    file, kind = part.source.file, part.source.kind
    assert file is not None
    if kind == DESCRIPTORS:
        raise CommandError(
            f"--{part.part}-schema registry:{file}: a registry takes text: pass the .proto file"
        )

    def register(name: str, path: Path, references: Sequence[Reference]) -> tuple[int, int]:
        schema_id, version, is_new = registry.register(name, kind, _text(path), references)
        if is_new:
            tell(f"{registry.address}: {name}: registered version {version}, schema {schema_id}")
        return schema_id, version

    references: list[Reference] = []
    if kind == PROTOBUF:
        folders = list(part.proto_path) or [file.parent]
        references = _register_imports(file, folders, register, {})
    return register(subject, file, references)[0]


def _register_imports(
    file: Path,
    folders: Sequence[Path],
    register: Callable[[str, Path, Sequence[Reference]], tuple[int, int]],
    done: dict[str, Reference],
) -> list[Reference]:
    """Register the imports of a .proto file, which the compiler has already read.

    Gives: the references to the imports.
    """
    from barnabas.schemas.protobuf import compile_file

    found = []
    for name in compile_file(file, folders, str(file)).imports:
        if name.startswith("google/protobuf/"):
            continue
        if name not in done:
            path = next(folder / name for folder in folders if (folder / name).is_file())
            inner = _register_imports(path, folders, register, done)
            done[name] = Reference(name, name, register(name, path, inner)[1])
        found.append(done[name])
    return found


def _header(schema_id: int, serde: Serde) -> bytes:
    return wire_format.header(schema_id, getattr(serde, "indexes", None))


def _text(path: Path) -> str:
    """The text of a schema's file. Raises: SchemaError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path} cannot be read: {error}") from error
