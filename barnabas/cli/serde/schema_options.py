"""The options of `consume` and `produce` for schemas."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from barnabas.cli.cluster import Connection
from barnabas.cli.serde.schema_source import SCHEMA_SOURCE, SchemaSource

if TYPE_CHECKING:
    from pathlib import Path

Command = TypeVar("Command", bound=Callable[..., Any])
ENVIRONMENT = "BARNABAS_SCHEMA_REGISTRY"
KEY, VALUE = "key", "value"


class SchemaOptions(NamedTuple):
    """The schema options of a command. key, value: the source of the schema; None for bytes without
    a schema.
    """

    registry_url: str
    registry_ca: str
    key: SchemaSource | None
    value: SchemaSource | None
    key_message: str | None
    value_message: str | None
    key_subject: str
    value_subject: str
    proto_path: Sequence[Path]

    def needs_registry(self) -> bool:
        """Whether a schema comes from a registry."""
        return any(source and source.is_registered for source in (self.key, self.value))

    def is_used(self) -> bool:
        """Whether keys or values have a schema."""
        return self.key is not None or self.value is not None

    def part(self, name: str) -> Any:
        """The schema options for keys or for values, as `serdes` takes them; None if they have no
        schema.
        """
        from barnabas.cli.serde.serdes import Part

        source = getattr(self, name)
        if source is None:
            return None
        message, subject = getattr(self, f"{name}_message"), getattr(self, f"{name}_subject")
        return Part(name, source, message, subject, self.proto_path)

    def registry(self, connection: Connection) -> Any:
        """The client of the registry; None if no schema comes from a registry.

        Raises: click.UsageError.
        """
        if not self.needs_registry():
            return None
        from barnabas.cli.serde.registry_client import registry_client, registry_settings

        settings = registry_settings(connection.registry_properties(), self.registry_url)
        if self.registry_ca:
            settings = settings._replace(ca=self.registry_ca)
        if not settings.url:
            raise click.UsageError(
                "`registry` needs an address: pass --schema-registry http://HOST:PORT, or set "
                f"the environment's {ENVIRONMENT}"
            )
        return registry_client(settings, connection.timeout_s)


def schema_options(*, producing: bool) -> Callable[[Command], Command]:
    """A decorator that adds the schema options to a command. The command gets SchemaOptions.

    Takes: producing, whether to add the options for subjects.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_schemas(
            *args: Any,
            schema_registry: str | None,
            schema_registry_ca: str | None,
            key_schema: SchemaSource | None,
            value_schema: SchemaSource | None,
            key_message: str | None,
            value_message: str | None,
            proto_path: Sequence[str],
            key_subject: str | None = None,
            value_subject: str | None = None,
            **kwargs: Any,
        ) -> Any:
            """The parameters of this function are the command's options."""
            found = SchemaOptions(
                schema_registry or "",
                schema_registry_ca or "",
                key_schema,
                _value_source(value_schema, key_schema, schema_registry),
                key_message,
                value_message,
                key_subject or "",
                value_subject or "",
                _paths(proto_path),
            )
            _check(found, producing=producing)
            if _is_typed("schema_registry") and not found.needs_registry():
                raise click.UsageError(
                    "--schema-registry has no effect: write registry for --value-schema or "
                    "--key-schema"
                )
            return command(*args, schemas=found, **kwargs)

        decorated: Any = with_schemas
        for option in reversed(_options(producing)):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return] # click's decorators keep no types

    return decorate


def _options(producing: bool) -> list[Callable[[Any], Any]]:
    """The schema options of `consume` or `produce`."""
    how = "registry, registry:ID, registry:FILE or FILE" if producing else "registry or FILE"
    parts = (VALUE, KEY)
    options = [
        *_OF_REGISTRY,
        *(
            click.option(
                f"--{part}-schema",
                metavar="SCHEMA",
                type=SCHEMA_SOURCE,
                help=f"The schema of {part}s: {how}: see below.",
            )
            for part in parts
        ),
        *(
            click.option(
                f"--{part}-message",
                metavar="NAME",
                help=f"The Protobuf message of {part}s. [default: the file's first]",
            )
            for part in parts
        ),
        _PROTO_PATH,
    ]
    if producing:
        options += [
            click.option(
                f"--{part}-subject",
                metavar="NAME",
                help=f"The registry's subject of {part}s. [default: TOPIC-{part}]",
            )
            for part in parts
        ]
    return options


_OF_REGISTRY = (
    click.option(
        "-s",
        "--schema-registry",
        metavar="URL",
        envvar=ENVIRONMENT,
        show_envvar=True,
        help=(
            "The schema registry's address. On the command line, and without --key-schema and "
            "--value-schema, it is for values."
        ),
    ),
    click.option(
        "--schema-registry-ca",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="The CA of the schema registry's certificate, as PEM.",
    ),
)
_PROTO_PATH = click.option(
    "--proto-path",
    metavar="DIRECTORY",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help=(
        "The directory of a .proto file's imports; may be given many times. [default: the "
        "file's own]"
    ),
)


def _value_source(
    value: SchemaSource | None, key: SchemaSource | None, url: str | None
) -> SchemaSource | None:
    """The source of the schema for values; the registry, if only --schema-registry is given."""
    if value is not None or key is not None or not url:
        return value
    return SchemaSource(True) if _is_typed("schema_registry") else None


def _is_typed(name: str) -> bool:
    """Whether an option was given on the command line rather than in the environment."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _check(options: SchemaOptions, *, producing: bool) -> None:
    """Raise click.UsageError for options that have no effect."""
    for name in (KEY, VALUE):
        source: SchemaSource | None = getattr(options, name)
        for what in ("message", "subject"):
            if getattr(options, f"{name}_{what}") and source is None:
                raise click.UsageError(f"--{name}-{what} needs --{name}-schema")
        if source is None:
            continue
        if source.is_registered and not producing:
            if source != SchemaSource(True):
                raise click.UsageError(
                    f"--{name}-schema: a record names its schema itself: write registry alone"
                )
            if getattr(options, f"{name}_message"):
                raise click.UsageError(
                    f"--{name}-message: with a registry a record names its message itself"
                )
        if getattr(options, f"{name}_subject") and not source.is_registered:
            raise click.UsageError(f"--{name}-subject needs --{name}-schema registry…")


def schema_help(*, producing: bool) -> Sequence[str]:
    """The lines about SCHEMA in a command's help."""
    first = (
        (
            "registry       the newest schema of the subject; records get its id",
            "registry:ID    the schema of that id",
            "registry:FILE  the file's schema, registered in the subject where it is new",
            "FILE           the file's schema; records get no id",
        )
        if producing
        else (
            "registry  the schema whose id a record begins with (Confluent's wire format)",
            "FILE      the file's schema, for records without an id",
        )
    )
    return (
        *first,
        "A file's kind is the end of its name: .avsc Avro, .proto Protobuf, .json JSON Schema,",
        ".desc .binpb .pb a FileDescriptorSet of protoc.",
        "User, password, token and certificates of a registry are settings of --client-config:",
        "basic.auth.user.info=USER:PASSWORD, bearer.auth.token, schema.registry.url,",
        "schema.registry.ssl.truststore.location, ...certificate.location, ...key.location",
    )


def _paths(names: Sequence[str]) -> list[Path]:
    """The directories of --proto-path. Most commands have none, and do not import pathlib."""
    if not names:
        return []
    from pathlib import Path

    return [Path(name) for name in names]
