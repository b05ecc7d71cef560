"""Errors of schemas, and what to install where a library is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from barnabas.cli.errors import CommandError
from barnabas.installing import install_command

LIBRARIES = ("fastavro", "google", "grpc_tools", "jsonschema", "referencing")


class SerdeError(ValueError):
    """A value or bytes do not fit a schema; the text names the place and what fits."""


class SchemaError(CommandError):
    """A schema cannot be read; the text names its origin and the error."""


@contextlib.contextmanager
def libraries(kind: str) -> Iterator[None]:
    """Import libraries in the block. Raises: CommandError where one is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LIBRARIES:
            raise
        raise CommandError(
            f"{kind} needs the package {error.name}: {install_command('cli', 'schemas')}"
        ) from error
