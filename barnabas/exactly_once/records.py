"""What a handler receives and what it gives: records, and the outputs of one record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(NamedTuple):
    """A record that was read.

    timestamp_ms: the record's time (CreateTime or LogAppendTime, as the topic has it); -1 without.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class Output(NamedTuple):
    """A record to write. partition: -1 for the producer's partitioner; timestamp_ms: 0 for now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = -1
    timestamp_ms: int = 0


class Out:
    """Collects the outputs of one record. They are written after the handler has returned; if it
    raises, they are dropped.
    """

    __slots__ = ("_record", "outputs")

    def __init__(self, record: Record | None = None) -> None:
        self._record = record
        self.outputs: list[Output] = []

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        """Write a record in the transaction.

        Takes:  value and key, where str is encoded as UTF-8, and None is a null (a tombstone);
                partition, -1 to let the key decide; timestamp_ms, 0 for the time of writing.
        """
        self.outputs.append(
            Output(
                topic,
                value.encode() if isinstance(value, str) else value,
                key.encode() if isinstance(key, str) else key,
                headers,
                partition,
                timestamp_ms,
            )
        )

    def forward(
        self, topic: str, value: bytes | str | None, *, keep_partition: bool = False
    ) -> None:
        """Write a record with the key, headers and timestamp of the record that is handled.

        Takes:  keep_partition, whether to keep its partition number, too.
        Raises: TypeError in an `Ingest`, which has no record.
        """
        record = self._record
        if record is None:
            raise TypeError("forward needs an input record; in an Ingest use send")
        self.send(
            topic,
            value,
            key=record.key,
            headers=record.headers,
            partition=record.partition if keep_partition else -1,
            timestamp_ms=max(0, record.timestamp_ms),
        )
