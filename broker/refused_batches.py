"""Batches of idempotent producers that a full disk refused, which later ones must not overtake."""

from __future__ import annotations

import struct

from barnabas.protocol.primitives import Buffer

MOST_REFUSED = 10_000
_PRODUCER_AND_SEQUENCE = struct.Struct(">qhi")
_PRODUCER_AT = 43
_BATCH_BYTES = 61

Producer = tuple[str, int, int, int]  # topic, partition, producer id, producer epoch


class RefusedBatches:
    """The first sequence of each producer that was refused on a partition and did not come again.

    A log takes the first batch of a producer that it has nothing of with any sequence. So a batch
    that is under way behind the refused one would leave a hole in the producer's order, and the
    refused one, sent again, be out of order for good.
    """

    def __init__(self) -> None:
        self._sequences: dict[Producer, int] = {}

    def add(self, topic: str, partition: int, batch: Buffer) -> None:
        """Remember a batch that was refused, if it is an idempotent producer's."""
        if len(batch) < _BATCH_BYTES or len(self._sequences) >= MOST_REFUSED:
            return
        producer_id, epoch, sequence = _PRODUCER_AND_SEQUENCE.unpack_from(batch, _PRODUCER_AT)
        if producer_id >= 0:
            producer = topic, partition, producer_id, epoch
            self._sequences[producer] = min(sequence, self._sequences.get(producer, sequence))

    def is_overtaken_by(self, topic: str, partition: int, batch: Buffer) -> bool:
        """Whether an earlier batch of this one's producer was refused and did not come again yet.

        After: where this batch is the refused one, nothing of its producer is remembered.
        """
        if not self._sequences or len(batch) < _BATCH_BYTES:
            return False
        producer_id, epoch, sequence = _PRODUCER_AND_SEQUENCE.unpack_from(batch, _PRODUCER_AT)
        producer = topic, partition, producer_id, epoch
        first = self._sequences.get(producer)
        if first is None or sequence > first:
            return first is not None
        del self._sequences[producer]
        return False
