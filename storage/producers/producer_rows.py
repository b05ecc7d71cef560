"""The rows of a snapshot of many producers, kept packed, so that a snapshot is made at once.

Packing takes about a microsecond for each producer: a hundred thousand of them would hold the
broker's loop for a tenth of a second, at each roll of a segment. So with many producers their rows
stay packed from one snapshot to the next. Who has changed is noted, and is packed when so many
others are as take a millisecond, or with the next snapshot: what that says is the state as of then.
The layout is the table of `producer_state`.
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
    """A snapshot of the producers of one log that grows and changes with them.

    _data: its bytes, as of when the rows were packed; the rows are in no order. _changed: those
    that have changed since, or have no row yet. A producer's `row` is its number here; -1: none.
    """

    __slots__ = ("_changed", "_data", "_producers")

    def __init__(self, producers: Mapping[int, ProducerEntry], snapshot: bytes = b"") -> None:
        """Takes: snapshot, with rows of just these producers, in their order; empty: none has."""
        self._producers = producers
        self._data = bytearray(snapshot or bytes(_FIRST_ROW_AT))
        self._changed: dict[int, ProducerEntry] = {}
        if snapshot:
            for row, entry in enumerate(producers.values()):
                entry.row = row
        else:
            for entry in producers.values():
                entry.row = -1  # an earlier one's, which is gone
            self._changed.update(producers)

    def note(self, entry: ProducerEntry) -> None:
        """Note that the producer has changed, when it has: it may be packed at once."""
        changed = self._changed
        changed[entry.producer_id] = entry
        if len(changed) >= MOST_CHANGED:
            self._pack_changed()

    def remove(self, entry: ProducerEntry) -> None:
        """Take the row of a producer out that was removed: the last row comes to its place."""
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
        """The snapshot as of now."""
        self._pack_changed()
        data = self._data
        COUNT.pack_into(data, HEAD.size, (len(data) - _FIRST_ROW_AT) // PRODUCER.size)
        with memoryview(data) as view, view[HEAD.size :] as body:
            HEAD.pack_into(data, 0, SNAPSHOT_VERSION, crc32c(body))
        return bytes(data)

    def _pack_changed(self) -> None:
        data, size = self._data, PRODUCER.size
        for entry in self._changed.values():
            if entry.row < 0:
                entry.row = (len(data) - _FIRST_ROW_AT) // size
                data += entry.packed()
            else:
                at = _FIRST_ROW_AT + entry.row * size
                data[at : at + size] = entry.packed()
        self._changed.clear()
