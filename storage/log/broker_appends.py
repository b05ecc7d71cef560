"""Appends of the broker's own batches: a coordinator's records, and the markers of transactions.

Unlike a client's batches (`Log.append`), these batches are not checked. `Log.write` writes both.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.records import (
    NO_SEQUENCE,
    crc_without_last,
    encode_marker,
    encode_pairs,
    set_last_bytes,
)
from barnabas.protocol.wall_clock import MOST_LEAD_MS
from barnabas.storage.log.append_info import EncodedMarker, MarkerHeader, NewMarker
from barnabas.storage.log.log import Log
from barnabas.storage.producers.producer_state import NO_CRC


def append_records(
    log: Log,
    records: Sequence[tuple[bytes, bytes | None]],
    now_ms: int,
    producer: tuple[int, int] | None = None,
) -> None:
    """Append a coordinator's keys and values as one batch, without checks.

    Takes:  producer, the (producer_id, producer_epoch) of the batch's transaction, if it has one.
    Raises: NotWrittenError if the disk has no space; OSError, which is fatal.
    After:  log_end_offset is the offset after the last of the records.
    """
    time_ms = now_ms + log.wall.ahead_ms
    batch = encode_pairs(records, time_ms, producer)
    batch_of = None
    if producer is not None:
        batch_of = (*producer, NO_SEQUENCE, NO_SEQUENCE, True, NO_CRC)
    log.write(batch, len(batch), len(records) - 1, time_ms, now_ms, batch_of)


def append_marker(
    log: Log,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    commit: bool,
    now_ms: int,
    is_decided: bool = True,
    transaction_version: int = 0,
) -> int:
    """Check and write a marker, which ends the producer's transaction on this partition.

    Takes:  is_decided, see `NewMarker`; transaction_version, the marker's version (KIP-1228).
    Gives:  the marker's offset.
    Raises: KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; NotWrittenError if
            the disk has no space for the marker.
    Source: KIP-98, "Control messages".
    """
    log.producer_state.check_marker(
        producer_id, producer_epoch, coordinator_epoch, transaction_version
    )
    marker = NewMarker(producer_id, producer_epoch, coordinator_epoch, commit, is_decided)
    return write_marker(log, marker, now_ms)


def write_marker(
    log: Log,
    marker: NewMarker,
    now_ms: int,
    header: MarkerHeader | None = None,
    last_bytes: bytes = b"",
) -> int:
    """Write a marker whose epochs were checked. Gives: the marker's offset.

    As in Apache Kafka, the marker is written even if no transaction is open. Its timestamp is the
    current time, since retention and look-ups by time use it. The time of the decision becomes the
    base timestamp of the batch, and also the record's timestamp if it is near the current time
    (MOST_LEAD_MS).

    Takes:  header: that of the marker's record. last_bytes: what replaces the last bytes of the
            header, so that the other bytes are encoded once for all partitions.
    Raises: NotWrittenError if the disk has no space for the marker.
    After:  last_stable_offset is past the transaction unless an earlier one is open; an aborted
            transaction with data is in the aborted index.
    """
    wall_ms = now_ms + log.wall.ahead_ms
    encoded = marker.encoded
    if encoded is None or encoded[2] != wall_ms or encoded[3] != header:
        encoded = marker.encoded = _encoded(marker, wall_ms, header, len(last_bytes))
    batch, time_ms, _, _, crc_before = encoded
    if last_bytes:
        set_last_bytes(batch, last_bytes, crc_before)
    return log.write(batch, len(batch), 0, time_ms, now_ms, None, marker)[0]


def _encoded(
    marker: NewMarker, wall_ms: int, header: MarkerHeader | None, last_count: int
) -> EncodedMarker:
    time_ms = wall_ms
    base_ms = wall_ms if marker.decided_ms is None else marker.decided_ms
    if -MOST_LEAD_MS <= base_ms - wall_ms <= MOST_LEAD_MS:
        time_ms = base_ms
    encoded = encode_marker(
        commit=marker.commit,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=time_ms,
        base_timestamp=base_ms,
        header=header,
    )
    batch = bytearray(encoded)
    crc_before = crc_without_last(batch, last_count) if last_count else 0
    return batch, time_ms, wall_ms, header, crc_before
