"""Selects those record batches of a fetch that a reader may see, depending on its isolation level
and range. Only the headers of the batches are read for that.

A read_committed fetch returns batches up to the last stable offset, and a list of the aborted
transactions among them as (producer_id, first_offset). From first_offset on, that producer's
transactional batches belong to the aborted transaction, until its abort marker. The list of each
fetch is complete by itself: it includes a transaction that began before the offset of the fetch.

Source: KIP-98, "Fetch", and "Aborted Transaction Index".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.protocol.records import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    MAGIC_END,
    BatchHeader,
    batches_in,
    decode_marker,
    has_right_crc,
    read_header,
)


class LocatedRecordBatch(NamedTuple):
    """A record batch at `position` in a fetch's bytes."""

    position: int
    header: BatchHeader


class Selection(NamedTuple):
    """The part of a fetch that a reader decodes, and the position that follows it."""

    record_batches: list[LocatedRecordBatch]  # the batches that have records in the range
    next_offset: (
        # the position of the next fetch, after the last complete batch, even if the reader skips
        # that batch
        int
    )
    whole_record_batches: int  # the number of complete batches, including those that are skipped


def select_record_batches(
    buffer: bytes | bytearray | memoryview,
    aborted: Iterable[AbortedTransaction] | None,
    *,
    start_offset: int,
    end_offset: int,
    check_crc: bool = True,
) -> Selection:
    """Choose the batches that have records of [start_offset, end_offset) and were not aborted.

    Control batches are never chosen. (This is one long loop over the headers, since each step uses
    the results of the previous ones.)

    Takes:  buffer, which may end within a batch; aborted, the list in the fetch, None for
            read_uncommitted.
    Raises: KafkaError CORRUPT_MESSAGE for a wrong checksum, UNSUPPORTED_FOR_MESSAGE_FORMAT for
            batches older than version 2, UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(buffer)
    open_aborts = sorted(aborted or (), key=lambda entry: entry.first_offset, reverse=True)
    aborted_producers: set[int] = set()
    chosen: list[LocatedRecordBatch] = []
    next_offset, whole_record_batches = start_offset, 0
    if len(view) >= MAGIC_END and view[MAGIC_AT] != MAGIC:
        raise KafkaError(
            Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"the log holds messages of format {view[MAGIC_AT]}; only record batches (format 2) "
            "are read",
        )
    for position, header in batches_in(view):
        whole_record_batches += 1
        last_offset = header.last_offset
        if header.base_offset >= end_offset:
            return Selection(chosen, end_offset, whole_record_batches)
        is_before = last_offset < start_offset
        if is_before and not header.is_control:
            continue
        if check_crc and not has_right_crc(view[position : position + header.size_bytes], header):
            raise KafkaError(
                Code.CORRUPT_MESSAGE,
                f"the checksum of the batch at offset {header.base_offset} is wrong",
            )
        if not is_before:
            next_offset = last_offset + 1
        while open_aborts and open_aborts[-1].first_offset <= last_offset:
            aborted_producers.add(open_aborts.pop().producer_id)
        if header.is_control:
            if (
                header.producer_id in aborted_producers
                and not decode_marker(view[position : position + header.size_bytes]).commit
            ):
                aborted_producers.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in aborted_producers:
            continue
        if header.codec > Codec.ZSTD:
            raise KafkaError(
                Code.UNSUPPORTED_COMPRESSION_TYPE,
                f"the batch at offset {header.base_offset} is compressed with codec "
                f"{header.codec}, which is unknown",
            )
        if header.record_count:
            chosen.append(LocatedRecordBatch(position, header))
    return Selection(chosen, next_offset, whole_record_batches)


def first_record_batch_size(buffer: bytes | bytearray | memoryview) -> int | None:
    """Return the size of the first record batch of a fetch, or None if its header is incomplete."""
    return read_header(buffer).size_bytes if len(buffer) >= HEADER_SIZE else None
