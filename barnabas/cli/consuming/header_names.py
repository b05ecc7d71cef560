"""Names of headers that are not UTF-8, which kafka-python's consumer takes for corrupt records.

One such record would end every `consume` of its partition. Apache Kafka stores such names.
"""

from __future__ import annotations

from typing import Any

from kafka.record import memory_records
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from barnabas.protocol.records import decode_records, decode_varint


class _HeaderName(str):
    """A name with surrogates, which kafka-python encodes to count its bytes."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return super().encode(encoding, "surrogateescape")


class _RecordBatch(DefaultRecordBatch):  # type: ignore[misc] # kafka-python has no types
    """A batch whose headers may have any name: bytes that are not UTF-8 become surrogates, as in
    `barnabas.protocol.records`.
    """

    _pos: int

    def _read_msg(self, *arguments: Any) -> Any:
        start = self._pos
        try:
            return super()._read_msg(*arguments)
        except UnicodeDecodeError:
            size, body = decode_varint(self._buffer, start)
            end = body + size
        fixed_ms = self.max_timestamp if self.timestamp_type == self.LOG_APPEND_TIME else None
        (record,) = decode_records(
            bytes(self._buffer[start:end]), 1, self.base_offset, self.first_timestamp, fixed_ms
        )
        self._pos = end
        return DefaultRecord(
            size, record.offset, record.timestamp, self.timestamp_type, record.key, record.value,
            [(_HeaderName(name), value) for name, value in record.headers],
        )  # fmt: skip


def allow_all_header_names() -> None:
    """Let kafka-python's consumers in this process read such records."""
    memory_records.DefaultRecordBatch = _RecordBatch
