"""The rows of a snapshot of many producers. They are kept packed, so that a snapshot is made
quickly.

Packing takes about a microsecond for each producer. For a hundred thousand producers it would block
the broker's loop for a tenth of a second, at each roll of a segment. If there are many producers,
their rows therefore remain packed from one snapshot to the next. Changed producers are recorded.
They are packed when that would take a millisecond, or with the next snapshot. The layout is the
table in `producer_state`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from barnabas.protocol.checksum import crc32c
from barnabas.storage.producers.producer_state import (
    COUNT,
    HEAD,
    PRODUCER,
    SNAPSHOT_VERSION,
    ProducerEntry,
)

MOST_CHANGED = 1000
_PRODUCER_ID = struct.Struct(">q")
_FIRST_ROW_AT = HEAD.size + COUNT.size


class ProducerRows:
    """A snapshot of the producers of one log, which is updated when they change.

    _data: the bytes of the snapshot, with the rows in any order. _changed: producers that have
    changed since they were packed, or have no row yet. The `row` of a producer is the index of its
    row; -1 if it has none.
    """

    __slots__ = ("_changed", "_data", "_producers")

    def __init__(self, producers: Mapping[int, ProducerEntry], snapshot: bytes = b"") -> None:
        """Takes: snapshot, a snapshot with the rows of exactly these producers, in order; empty if
        there are no rows.
        """
        self._producers = producers
        self._data = bytearray(snapshot or bytes(_FIRST_ROW_AT))
        self._changed: dict[int, ProducerEntry] = {}
        if snapshot:
            for row, entry in enumerate(producers.values()):
                entry.row = row
        else:
            for entry in producers.values():
                entry.row = -1  # the entry may still have the index of an earlier row
            self._changed.update(producers)

    def note(self, entry: ProducerEntry) -> None:
        """Record a changed producer. This is called after the change, since it may pack the
        producer.
        """
        changed = self._changed
        changed[entry.producer_id] = entry
        if len(changed) >= MOST_CHANGED:
            self._pack_changed()

    def remove(self, entry: ProducerEntry) -> None:
        """Remove the row of a removed producer, and move the last row to its place."""
        self._changed.pop(entry.producer_id, None)
        if entry.row < 0:
            return
        data, size = self._data, PRODUCER.size
        last_at = len(data) - size
        at = _FIRST_ROW_AT + entry.row * size
        if at != last_at:
            (moved,) = _PRODUCER_ID.unpack_from(data, last_at)
            data[at : at + size] = data[last_at:]
            self._producers[moved].row = entry.row
        del data[last_at:]

    def encode(self) -> bytes:
        """The current snapshot."""
        self._pack_changed()
        data = self._data
        COUNT.pack_into(data, HEAD.size, (len(data) - _FIRST_ROW_AT) // PRODUCER.size)
        with memoryview(data) as view, view[HEAD.size :] as body:
            HEAD.pack_into(data, 0, SNAPSHOT_VERSION, crc32c(body))
        return bytes(data)

    def _pack_changed(self) -> None:
        """Write the rows of changed producers."""
        data, size = self._data, PRODUCER.size
        for entry in self._changed.values():
            if entry.row < 0:
                entry.row = (len(data) - _FIRST_ROW_AT) // size
                data += entry.packed()
            else:
                at = _FIRST_ROW_AT + entry.row * size
                data[at : at + size] = entry.packed()
        self._changed.clear()
