"""Errors of schemas, and the command that installs a missing library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from barnabas.installing import install_command

LIBRARIES = ("fastavro", "google", "grpc_tools", "jsonschema", "referencing")
INSTALL_NAMES = {"google": "protobuf", "grpc_tools": "grpcio-tools"}


class SerdeError(ValueError):
    """A value or bytes do not fit a schema; the text names the place and the expected form."""


class SchemaError(Exception):
    """A schema is unavailable or invalid; the text names its source, and says what to do."""


@contextlib.contextmanager
def libraries(kind: str) -> Iterator[None]:
    """A context for imports of libraries. Raises: SchemaError if one is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in LIBRARIES:
            raise
        raise SchemaError(
            f"{kind} needs the package {INSTALL_NAMES.get(name, name)}: "
            f"{install_command('schemas')}"
        ) from error
