"""Rows of long responses, which are encoded in parts to bound pauses and memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any


class EncodedRows:
    """A list in a response whose rows are already encoded. It can be written only once."""

    __slots__ = ("_chunks", "_count", "size_bytes")

    def __init__(self) -> None:
        self._count = self.size_bytes = 0
        self._chunks: deque[bytearray] = deque()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[EncodedRows]:
        return iter((self,) if self._count else ())

    def write(self, out: bytearray, version: int) -> None:
        """Append the bytes of all rows, and free the rows, so that they are in memory only once."""
        while self._chunks:
            out += self._chunks.popleft()

    def add(self, rows: Sequence[Any], version: int) -> None:
        """Encode rows, so that they are no longer needed as objects."""
        chunk = bytearray()
        for row in rows:
            row.write(chunk, version)
        self._count += len(rows)
        self.size_bytes += len(chunk)
        self._chunks.append(chunk)

    def extend(self, rows: Sequence[Any] | EncodedRows, version: int) -> None:
        """Add the rows of another list, which may be encoded or not."""
        if isinstance(rows, EncodedRows):
            self._count += rows._count
            self.size_bytes += rows.size_bytes
            self._chunks += rows._chunks
        else:
            self.add(rows, version)


def join_rows(answer: Any, field: str, rows: Sequence[Any] | EncodedRows, version: int) -> None:
    """Append rows to a list of a response. If one of the two is encoded, the result is encoded."""
    present = getattr(answer, field)
    if isinstance(present, EncodedRows):
        present.extend(rows, version)
    elif isinstance(rows, EncodedRows):
        encoded = EncodedRows()
        encoded.add(present, version)
        encoded.extend(rows, version)
        setattr(answer, field, encoded)
    else:
        present.extend(rows)
