"""JSON Schema by jsonschema: data are JSON text, which is validated by the schema.

No other source is loaded: a `$ref` refers to a part of the schema, or to a reference of the
registry. A schema without `$schema` is read as draft 7, as registries do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from barnabas.json_text import JsonText, compact_json, decoded_json
from barnabas.schemas.errors import SchemaError, SerdeError, libraries

_COLUMNS = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "string",
    "object": "json",
    "array": "json",
}
SHOWN_MOST = 300  # letters of an error of jsonschema, which may contain the whole value


class JsonSchemaSerde:
    """Decodes and encodes data of one JSON Schema.

    Takes:  text, the schema; references, the texts of other schemas, by their names in `$ref`;
            origin, the source of the schema, for errors.
    Raises: SchemaError.
    """

    def __init__(
        self, text: str, references: Mapping[str, str] | None = None, origin: str = "the schema"
    ) -> None:
        with libraries("JSON Schema"):
            import jsonschema
            import referencing
            import referencing.jsonschema
        self._origin = origin
        self._best_match = jsonschema.exceptions.best_match
        self._unresolvable = referencing.exceptions.Unresolvable
        try:
            self._schema = json.loads(text)
            known = {name: json.loads(one) for name, one in (references or {}).items()}
            kind = jsonschema.validators.validator_for(
                self._schema, default=jsonschema.Draft7Validator
            )
            kind.check_schema(self._schema)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"{origin} is not JSON: {error}") from error
        except jsonschema.exceptions.SchemaError as error:
            raise SchemaError(f"{origin} is no JSON Schema: {error.message}") from error
        registry: Any = referencing.Registry()
        for name, contents in known.items():
            resource: Any = referencing.Resource.from_contents(
                contents, default_specification=referencing.jsonschema.DRAFT7
            )
            registry = registry.with_resource(name, resource)
        self._validator = kind(self._schema, registry=registry)

    def decode(self, data: bytes) -> Any:
        """The JSON value of data. Raises: SerdeError."""
        return self._checked(data)[1]

    def decode_text(self, data: bytes) -> JsonText:
        """The JSON text of data, unchanged. Raises: SerdeError."""
        return self._checked(data)[0]

    def _checked(self, data: bytes) -> tuple[JsonText, Any]:
        """The text and the value of data that fit the schema. Raises: SerdeError."""
        try:
            text, value = decoded_json(data)
        except (ValueError, RecursionError) as error:
            raise SerdeError(f"it is not JSON: {error}") from error
        self._check(value)
        return text, value

    def encode(self, value: Any) -> bytes:
        """The data of a JSON value. Raises: SerdeError."""
        self._check(value)
        return compact_json(value).encode()

    def columns(self) -> dict[str, str]:
        """The types of properties as types of CSV columns; other data are one column, ""."""
        properties = self._schema.get("properties") if isinstance(self._schema, dict) else None
        if not properties:
            return {"": _column(self._schema)}
        return {name: _column(one) for name, one in properties.items()}

    def _check(self, value: Any) -> None:
        try:
            error = self._best_match(self._validator.iter_errors(value))
        except (RecursionError, ArithmeticError, re.error) as fault:
            raise SchemaError(f"{self._origin} cannot be applied: {fault}") from fault
        except self._unresolvable as missing:
            raise SchemaError(
                f"{self._origin} refers to {missing.ref!r}, which is neither in it nor a reference "
                "of it in the registry"
            ) from missing
        if error is None:
            return
        said = error.message
        said = said if len(said) <= SHOWN_MOST else f"{said[: SHOWN_MOST - 3]}..."
        path = error.json_path.removeprefix("$").removeprefix(".")
        place = f"the field {path}" if path else "the value"
        raise SerdeError(f"{place} does not fit the JSON Schema: {said}")


def _column(schema: Any) -> str:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    named = [kind for kind in kinds if kind != "null"]
    if len(named) == 1:
        return _COLUMNS.get(str(named[0]), "string")
    return "string" if not named or "string" in named else "json"
