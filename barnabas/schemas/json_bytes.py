"""Bytes as a JSON value: a string where they are UTF-8, otherwise {"base64": "…"}."""

from __future__ import annotations

import base64
from typing import Any


def bytes_to_json(data: bytes) -> Any:
    """The JSON value of bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_from_json(value: Any) -> Any:
    """The bytes of a JSON value; NotImplemented for a value of another form.

    Raises: ValueError for wrong base64.
    """
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, dict) or list(value) != ["base64"]:
        return NotImplemented
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{value['base64']!r} is not base64: {error}") from error
