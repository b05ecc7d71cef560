"""The aborted transactions that end in one segment, which read_committed consumers skip.

An entry of `.txnindex`, big-endian:

    at  size  field
     0   2    version (0)
     2   8    producer_id
    10   8    first_offset: of the transaction's first batch on this partition
    18   8    last_offset: of its abort marker
    26   8    last_stable_offset at the marker, without this transaction

The file exists only if a transaction was aborted there. Source: KIP-98, "Fetch"; the layout as
Apache Kafka 3.9 writes it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

ENTRY_SIZE = 34
VERSION = 0
_ENTRY = struct.Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """An aborted transaction, as in the response to a Fetch.

    The consumer drops the producer's batches from first_offset up to the abort marker.
    """

    producer_id: int
    first_offset: int


class AbortedEntry(NamedTuple):
    """One entry of the index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """One segment's aborted transactions, in the order of their markers."""

    __slots__ = ("entries",)

    def __init__(self, entries: list[AbortedEntry] | None = None) -> None:
        self.entries: list[AbortedEntry] = entries if entries is not None else []

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, entry: AbortedEntry) -> None:
        self.entries.append(entry)

    def collect(self, fetch_offset: int, upper_bound_offset: int, into: list[AbortedTxn]) -> bool:
        """Add the transactions that overlap [fetch_offset, upper_bound_offset) to `into`.

        Gives: True once no later entry, in this segment or a later one, can overlap this range.
        """
        for entry in self.entries:
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
                into.append(AbortedTxn(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper_bound_offset:
                return True
        return False

    def encode(self) -> bytes:
        return b"".join([encode_entry(entry) for entry in self.entries])

    @classmethod
    def decode(cls, data: bytes) -> TxnIndex:
        """Decode the entries of a file. Raises: ValueError for an invalid entry."""
        if len(data) % ENTRY_SIZE:
            raise ValueError(f"{len(data)} bytes are not a whole number of entries")
        entries: list[AbortedEntry] = []
        last = -1
        for version, *rest in _ENTRY.iter_unpack(data):
            entry = AbortedEntry(*rest)
            if (
                version != VERSION
                or entry.producer_id < 0
                or not 0 <= entry.first_offset <= entry.last_offset
            ):
                raise ValueError(f"entry {len(entries)} is none")
            if entry.last_offset <= last:
                raise ValueError(f"entry {len(entries)} is out of order")
            last = entry.last_offset
            entries.append(entry)
        return cls(entries)


def encode_entry(entry: AbortedEntry) -> bytes:
    return _ENTRY.pack(VERSION, *entry)
