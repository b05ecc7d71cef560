"""Appends of the broker's own batches: a coordinator's records, and the markers of transactions.

They are not checked like a client's batches (`Log.append`). The order is the same: write the batch,
then update the producers' state, then move the log's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.protocol.records import (
    NO_SEQUENCE,
    encode_marker,
    encode_pairs,
    set_offset_and_epoch,
)
from barnabas.protocol.wall_clock import MOST_LEAD_MS
from barnabas.storage.log.append_info import AppendInfo
from barnabas.storage.producers.producer_snapshots import aborted_entry

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log


def append_records(
    log: Log,
    records: Sequence[tuple[bytes, bytes | None]],
    now_ms: int,
    producer: tuple[int, int] | None = None,
) -> None:
    """Append a coordinator's keys and values as one batch, which is not checked.

    Takes:  producer, (producer_id, producer_epoch) of the batch's transaction.
    Raises: NotWrittenError where the disk has no space; OSError, which is fatal.
    After:  log_end_offset is the offset after the last of the records.
    """
    time_ms = now_ms + log.wall.ahead_ms
    batch = encode_pairs(
        records,
        time_ms,
        producer,
        base_offset=log.log_end_offset,
        leader_epoch=log.leader_epoch,
    )
    first_offset, last_offset = log.write(batch, len(batch), len(records) - 1, time_ms, now_ms)
    if producer is not None:
        log.producer_state.on_batch(
            *producer,
            NO_SEQUENCE,
            NO_SEQUENCE,
            first_offset,
            last_offset,
            time_ms,
            True,
            now_ms,
        )
    log.advance(last_offset + 1)


def append_marker(
    log: Log,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    commit: bool,
    now_ms: int,
    decided_ms: int | None = None,
    is_decided: bool = True,
    transaction_version: int = 0,
) -> AppendInfo:
    """Write a marker, which ends the producer's transaction on this partition.

    As in Apache Kafka it is written even if no transaction is open. Its timestamp is that of the
    clock, since retention and look-ups by time use it. Its parameters are the fields of the marker.

    Takes:  decided_ms, the time that orders the decisions of the transactional id. It becomes the
            base timestamp of the batch, and also the record's timestamp if the clock is near
            (MOST_LEAD_MS). is_decided: whether a coordinator's decision restores the marker after a
            power loss. If not, and with flush.messages=1, the transaction is stable only when the
            disk has the marker. transaction_version, the marker's version (KIP-1228).
    Raises: KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; NotWrittenError
            where the disk has no space for the marker.
    After:  last_stable_offset is past the transaction unless an earlier one is open; an aborted
            one with data is in the index.
    Source: KIP-98, "Control messages".
    """
    log.producer_state.check_marker(
        producer_id, producer_epoch, coordinator_epoch, transaction_version
    )
    time_ms = now_ms + log.wall.ahead_ms
    if decided_ms is None or -MOST_LEAD_MS <= decided_ms - time_ms <= MOST_LEAD_MS:
        time_ms = time_ms if decided_ms is None else decided_ms
        base_ms = time_ms
    else:
        base_ms = decided_ms
    batch = bytearray(
        encode_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=time_ms,
            base_timestamp=base_ms,
        )
    )
    first_offset = log.producer_state.open_txns.get(producer_id)
    set_offset_and_epoch(batch, log.log_end_offset, log.leader_epoch)
    offset, _ = log.write(batch, len(batch), 0, time_ms, now_ms)
    if log.durability.waits_for_disk and not is_decided and first_offset is not None:
        log.durability.add_pending_marker(first_offset, offset)
    completed = log.producer_state.on_marker(
        producer_id, producer_epoch, coordinator_epoch, commit, offset, time_ms, now_ms
    )
    if completed is not None and completed.aborted:
        log.segments.active.indexes.append_aborted(aborted_entry(completed))
    log.advance(offset + 1)
    return AppendInfo(offset, offset, -1, False)
