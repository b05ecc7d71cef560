"""Records as `consume` prints them: decoded by schemas, and filtered by --grep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.cli.consuming.record_search import RecordSearch
from barnabas.cli.errors import CommandError
from barnabas.cli.records import ConsumedRecord
from barnabas.schemas.errors import SerdeError

STOP, RAW, SKIP = "stop", "raw", "skip"
ON_UNDECODABLE = (STOP, RAW, SKIP)


class Undecodable(CommandError):
    """A record that does not fit its schema."""


class RecordPreparation:
    """Decodes a record, and compares it with patterns.

    undecodable: the number of records that did not fit their schema.

    Takes: decoders, by the part of the record (key, value); on_undecodable, what to do with a
           record that does not fit its schema.
    """

    def __init__(
        self,
        search: RecordSearch | None,
        decoders: Mapping[str, Any],
        on_undecodable: str = STOP,
    ) -> None:
        self.undecodable = 0
        self._search = search
        self._decoders = decoders
        self._on_undecodable = on_undecodable

    def prepare(self, record: Any) -> Any:
        """The record to print; None if it is not to be printed. Raises: Undecodable."""
        shown = record if not self._decoders else self._decoded(record)
        if shown is None or (self._search is not None and not self._search.has(shown)):
            return None
        return shown

    def _decoded(self, record: Any) -> ConsumedRecord | None:
        """The record with its decoded key and value; None if it is to be skipped. Raises:
        Undecodable.
        """
        parts: dict[str, Any] = {"key": record.key, "value": record.value}
        for name, decoder in self._decoders.items():
            if parts[name] is None:  # null, as in a tombstone
                continue
            try:
                parts[name] = decoder.decode(parts[name])
            except SerdeError as error:
                self.undecodable += 1
                if self._on_undecodable == STOP:
                    raise Undecodable(
                        f"{record.topic}-{record.partition} offset {record.offset}: the {name} "
                        f"cannot be decoded: {error}; --on-undecodable raw prints such records "
                        "undecoded, skip leaves them out"
                    ) from error
                if self._on_undecodable == SKIP:
                    return None
        return ConsumedRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            parts["key"],
            parts["value"],
            record.headers,
        )
