"""Keyed state: a mapping for each partition, whose changes belong to the open transaction.

Keys and values are stored encoded. A value that was read is a copy: change it, then store it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, MutableMapping
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, cast

from barnabas.exactly_once.errors import StateError

K = TypeVar("K")
V = TypeVar("V")

current_partition: ContextVar[int] = ContextVar("current_partition")
"""The partition whose record is being handled, in this thread or task."""


class PartitionState:
    """One partition of a state. Changes can be undone: those of a record, and of a transaction."""

    def __init__(self, entries: dict[bytes, bytes] | None = None) -> None:
        self.entries: dict[bytes, bytes] = {} if entries is None else entries
        # The former values of what the record, and the transaction, has changed.
        self._before_record: dict[bytes, bytes | None] = {}
        self._before_transaction: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value, or remove it (None)."""
        former = self.entries.get(key)
        self._before_record.setdefault(key, former)
        self._set(key, value)

    def _set(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value

    def keep_record(self) -> None:
        """The record is handled: its changes belong to the transaction."""
        for key, former in self._before_record.items():
            self._before_transaction.setdefault(key, former)
        self._before_record.clear()

    def undo_record(self) -> None:
        """Undo the changes of a record whose handler failed."""
        for key, former in self._before_record.items():
            self._set(key, former)
        self._before_record.clear()

    def changes(self) -> dict[bytes, bytes | None]:
        """The last value of each key that the transaction has changed; None for a removed one."""
        return {
            key: self.entries.get(key)
            for key, former in self._before_transaction.items()
            if self.entries.get(key) != former
        }

    def commit(self) -> None:
        """The transaction is committed."""
        self._before_transaction.clear()

    def abort(self) -> None:
        """The transaction is aborted: undo its changes."""
        self.undo_record()
        for key, former in self._before_transaction.items():
            self._set(key, former)
        self._before_transaction.clear()


def to_json(value: Any) -> bytes:
    """Encode as JSON, in a form that is the same for equal values."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def key_bytes(key: Any) -> bytes:
    """Encode a key: bytes as they are, str as UTF-8.

    Raises: TypeError for others.
    """
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    raise TypeError(
        f"a state's key is str or bytes, not {type(key).__name__}; give the state a key_encoder "
        "and a key_decoder for others"
    )


class State(MutableMapping[K, V], Generic[K, V]):
    """A named mapping, for use inside of a handler: `counts["user-17"] += 1`.

    Each partition of the input has a mapping of its own: records with the same key are in the same
    partition, so state by the record's key is complete. For state by another key, first write the
    records to a topic with that key.

    Made by `Pipeline.state`, which says what the arguments are.
    """

    def __init__(
        self,
        name: str,
        *,
        default: Callable[[], V] | None,
        encoder: Callable[[V], bytes],
        decoder: Callable[[bytes], V],
        key_encoder: Callable[[K], bytes],
        key_decoder: Callable[[bytes], K],
    ) -> None:
        self.name = name
        self.partitions: dict[int, PartitionState] = {}
        self._default = default
        self._encoder, self._decode = encoder, decoder
        self._key_encoder, self._decode_key = key_encoder, key_decoder

    def _encode(self, value: V) -> bytes:
        encoded = self._encoder(value)
        if type(encoded) is not bytes:
            raise self._no_bytes("encoder", encoded)
        return encoded

    def _encode_key(self, key: K) -> bytes:
        encoded = self._key_encoder(key)
        if type(encoded) is not bytes:
            raise self._no_bytes("key_encoder", encoded)
        return encoded

    def _no_bytes(self, which: str, encoded: object) -> TypeError:
        return TypeError(
            f"state {self.name!r}: its {which} returned a {type(encoded).__name__}, and has to "
            "return bytes, as restored entries are: `lambda it: str(it).encode()`, for example"
        )

    def _here(self) -> PartitionState:
        """The partition of the record that is being handled. Raises: StateError."""
        number = current_partition.get(-1)
        here = self.partitions.get(number)
        if here is None:
            raise StateError(
                f"state {self.name!r} is used outside of a handler: each partition of the input "
                "has a mapping of its own, so it can be used only while a record is handled"
            )
        return here

    def __getitem__(self, key: K) -> V:
        encoded = self._here().entries.get(self._encode_key(key))
        if encoded is not None:
            return self._decode(encoded)
        if self._default is None:
            raise KeyError(key)
        return self._default()

    def __setitem__(self, key: K, value: V) -> None:
        self._here().put(self._encode_key(key), self._encode(value))

    def __delitem__(self, key: K) -> None:
        here, encoded = self._here(), self._encode_key(key)
        if encoded not in here.entries:
            raise KeyError(key)
        here.put(encoded, None)

    def __contains__(self, key: object) -> bool:
        return self._encode_key(cast(K, key)) in self._here().entries

    def get(self, key: K, default: Any = None) -> Any:
        """The value, or `default` where there is none (not the state's own default)."""
        encoded = self._here().entries.get(self._encode_key(key))
        return default if encoded is None else self._decode(encoded)

    def __iter__(self) -> Iterator[K]:
        return iter([self._decode_key(key) for key in self._here().entries])

    def __len__(self) -> int:
        return len(self._here().entries)
