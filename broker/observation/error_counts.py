"""Counts the errors in responses by API, if metrics or the console are used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from barnabas.protocol.messages.message import Message

_CODE_FIELDS = frozenset({"error_code", "partition_error_code"})


class HasCode(Protocol):
    """A part of a response that has an error code."""

    @property
    def error_code(self) -> int: ...


class ErrorCounts:
    """Counts of errors. Each error in a response counts: a Produce with three refused partitions
    counts 3.

    counts: by (API key, error code). An error counts whether or not the response reached the
    client.
    """

    def __init__(self) -> None:
        self.counts: dict[tuple[int, int], int] = {}
        self._fields: dict[type[Message], tuple[list[str], list[str]]] = {}

    def count(self, api_key: int, code: int) -> None:
        """Count one error."""
        key = (api_key, code)
        self.counts[key] = self.counts.get(key, 0) + 1

    def add(self, others: ErrorCounts) -> None:
        """Add the counts of another instance."""
        for (api_key, code), count in others.counts.items():
            self.counts[api_key, code] = self.counts.get((api_key, code), 0) + count

    def count_rows(self, api_key: int, rows: Iterable[HasCode]) -> None:
        """Count the errors in parts of a response that its handler has encoded itself."""
        for row in rows:
            if row.error_code:
                self.count(api_key, row.error_code)

    def count_in(self, api_key: int, message: Message) -> None:
        """Count the errors in a response, at any depth."""
        kind = type(message)
        fields = self._fields.get(kind)
        if fields is None:
            fields = self._fields[kind] = (
                [name for name in kind.__slots__ if name in _CODE_FIELDS],
                [name for name in kind.__slots__ if name not in _CODE_FIELDS],
            )
        for name in fields[0]:
            code = getattr(message, name)
            if code:
                self.count(api_key, code)
        for name in fields[1]:
            rows = getattr(message, name)
            if type(rows) is list and rows and isinstance(rows[0], Message):
                for row in rows:
                    self.count_in(api_key, row)
