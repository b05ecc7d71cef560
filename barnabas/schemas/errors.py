"""Errors of schemas, and what to install where a library is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from barnabas.installing import install_command

LIBRARIES = ("fastavro", "google", "grpc_tools", "jsonschema", "referencing")
INSTALL_NAMES = {"google": "protobuf", "grpc_tools": "grpcio-tools"}


class SerdeError(ValueError):
    """A value or bytes do not fit a schema; the text names the place and what fits."""


class SchemaError(Exception):
    """A schema that cannot be had or read: the text says where it is from, and what to do."""


@contextlib.contextmanager
def libraries(kind: str) -> Iterator[None]:
    """Import libraries in the block. Raises: SchemaError where one is not installed."""
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
