"""The location of the schema of keys or values: the values of --key-schema and --value-schema.

    registry        from a registry: the schema that a record names; for produce the newest of
                    the subject
    registry:ID     for produce: the schema with that id
    registry:FILE   for produce: the schema in the file, which is registered in the subject if
                    it is new
    FILE            the schema in the file; records are without the registry's wire format

The suffix of a file's name determines the kind of its schema: Avro, Protobuf, and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

REGISTRY = "registry"
AVRO, PROTOBUF, JSON, DESCRIPTORS = "AVRO", "PROTOBUF", "JSON", "DESCRIPTORS"
KINDS = {
    ".avsc": AVRO,
    ".proto": PROTOBUF,
    ".json": JSON,
    ".desc": DESCRIPTORS,
    ".binpb": DESCRIPTORS,
    ".pb": DESCRIPTORS,
}
KINDS_TEXT = (
    ".avsc is Avro, .proto Protobuf, .desc, .binpb or .pb compiled Protobuf (protoc "
    "--include_imports --descriptor_set_out), .json JSON Schema"
)


class SchemaSource(NamedTuple):
    """The location of a schema. schema_id and file are None if they are not given."""

    is_registered: bool
    schema_id: int | None = None
    file: Path | None = None

    @property
    def kind(self) -> str:
        """The kind of schema in the file, by the suffix of its name."""
        assert self.file is not None
        return KINDS[self.file.suffix]


class SchemaSourceType(click.ParamType[SchemaSource]):
    """The SCHEMA argument of --key-schema and --value-schema."""

    name = "SCHEMA"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> SchemaSource:
        if isinstance(value, SchemaSource):
            return value
        text = str(value)
        if text == REGISTRY:
            return SchemaSource(True)
        rest = text.removeprefix(f"{REGISTRY}:")
        is_registered = rest != text
        if is_registered and rest.isdigit():
            return SchemaSource(True, int(rest))
        from pathlib import Path

        file = Path(rest)
        if not file.is_file():
            hint = "write registry, or a file's name" if not is_registered else "or an id"
            self.fail(f"there is no file {rest!r}: {hint}", param, ctx)
        if file.suffix not in KINDS:
            self.fail(f"{rest!r} has an unknown suffix: use {KINDS_TEXT}", param, ctx)
        return SchemaSource(is_registered, None, file)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """`registry`, and files."""
        from click.shell_completion import CompletionItem

        _, colon, rest = incomplete.rpartition(":")
        found = [CompletionItem(rest if colon else incomplete, type="file")]
        if not colon and REGISTRY.startswith(incomplete):
            found.append(CompletionItem(REGISTRY))
        return found


SCHEMA_SOURCE = SchemaSourceType()
