"""The search for batches in a slice of a log: which batches it finds, and how few bytes it
reads.
"""

from __future__ import annotations

import random
import struct

import pytest
from helpers.storage_logs import set_offset_and_epoch

from barnabas.broker.share_partitions.log_batches import READ_AT_ONCE, aborted_batches, batches_of
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import (
    HEADER_SIZE,
    NewRecord,
    computed_crc,
    encode_batch,
    encode_marker,
)
from barnabas.storage.files.txn_index import AbortedTxn
from barnabas.storage.log.log_reader import Slice


class CountedFile:
    """A file that counts its reads and their bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.calls, self.bytes = data, 0, 0

    def pread(self, size: int, position: int) -> bytes:
        self.calls += 1
        self.bytes += size
        return self.data[position : position + size]


def a_file(sizes: list[int]) -> tuple[CountedFile, list[tuple[int, int, int, int]]]:
    """Return a file of batches with one record each, and the first offset, last offset, position
    and size of each batch.
    """
    out, rows = bytearray(b"before"), []
    for offset, size in enumerate(sizes):
        batch = bytearray(encode_batch([NewRecord(None, bytes(size), 0)]))
        set_offset_and_epoch(batch, offset, 0)
        rows.append((offset, offset, len(out) - 6, len(batch)))
        out += batch
    return CountedFile(bytes(out)), rows


@pytest.mark.parametrize(
    "sizes",
    [
        [1],
        [1] * 2000,
        [50_000] * 20,
        [1, 900, 1, 3_000, 1, 1, 40_000, 1] * 30,
        [960, 961, 962, 963],
    ],
)
def test_each_whole_batch_is_found(sizes: list[int]) -> None:
    """The slice begins at byte 6. A batch is left out if its last byte is not in the slice, or if
    it begins after the wanted offset.
    """
    file, rows = a_file(sizes)
    whole = Slice(file, 6, len(file.data) - 6)
    assert [tuple(one.batch) for one in batches_of(whole, len(sizes), len(sizes))] == rows
    cut = whole._replace(size=whole.size - 1)
    assert [tuple(one.batch) for one in batches_of(cut, len(sizes), len(sizes))] == rows[:-1]
    up_to = len(sizes) // 2
    assert [tuple(one.batch) for one in batches_of(whole, up_to, len(sizes))] == rows[: up_to + 1]


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, struct.pack(">q", 1)),
        (0, struct.pack(">q", -3)),
        (0, struct.pack(">q", 1 << 60)),
        (8, struct.pack(">i", -12)),
        (8, struct.pack(">i", -1 << 28)),
        (8, struct.pack(">i", 1 << 30)),
        (16, b"\x07"),
        (23, struct.pack(">i", -1)),
        (23, struct.pack(">i", 1 << 30)),
    ],
)
def test_the_search_ends_before_a_damaged_header(at: int, data: bytes) -> None:
    """A header with such values would lead the search backwards, for ever to the same place, or a
    member beyond the end of the log.
    """
    file, rows = a_file([1] * 5)
    position = rows[2][2] + 6 + at
    file.data = file.data[:position] + data + file.data[position + len(data) :]
    found = batches_of(Slice(file, 6, len(file.data) - 6), 5, 5)
    assert [tuple(one.batch) for one in found] == rows[:2]
    begins_there = Slice(file, rows[2][2] + 6, len(file.data) - 6 - rows[2][2])
    if at:
        assert batches_of(begins_there, 5, 5) == []


def test_the_first_batch_is_found_even_if_compaction_has_removed_many_before_it() -> None:
    file, rows = a_file([1] * 5)
    data = Slice(file, rows[3][2] + 6, rows[3][3])
    assert [tuple(one.batch)[:2] for one in batches_of(data, 1, 5)] == [(3, 3)]


def test_a_damaged_marker_is_an_error_and_an_emptied_one_ends_its_transaction() -> None:
    def transaction(offset: int, marker: bytes) -> bytes:
        record = [NewRecord(None, b"x", 0)]
        batch = bytearray(
            encode_batch(
                record, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
            )
        )
        set_offset_and_epoch(batch, offset, 0)
        ending = bytearray(marker)
        set_offset_and_epoch(ending, offset + 1, 0)
        return bytes(batch + ending)

    marker = encode_marker(
        commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=0
    )
    emptied = bytearray(marker[:HEADER_SIZE])
    struct.pack_into(">i", emptied, 8, HEADER_SIZE - 12)
    struct.pack_into(">i", emptied, 57, 0)
    struct.pack_into(">I", emptied, 17, computed_crc(emptied))
    file = CountedFile(transaction(0, bytes(emptied)) + transaction(2, marker))
    data = Slice(file, 0, len(file.data))
    read = batches_of(data, 4, 4)
    first = [AbortedTxn(7, 0)]
    assert [one.first_offset for one in aborted_batches(data, read, first)] == [0]
    damaged = bytearray(file.data)
    damaged[-1] ^= 1
    file.data = bytes(damaged)
    with pytest.raises(KafkaError, match="marker at 3 is damaged"):
        aborted_batches(data, read, [AbortedTxn(7, 2)])


@pytest.mark.parametrize("seed", range(30))
def test_aborted_batches_are_those_whose_producers_next_marker_aborts(seed: int) -> None:
    """Three producers have transactions in sequence and at the same time. The log is read from
    every offset on.
    """
    rng = random.Random(seed)
    steps = [(rng.randrange(3), rng.choice("ddca")) for _ in range(15)]
    steps += [(producer_id, "c") for producer_id in range(3)]
    out, aborted, wanted = bytearray(), list[tuple[int, AbortedTxn]](), set[int]()
    positions, begun = list[int](), dict[int, list[int]]()
    for offset, (producer_id, kind) in enumerate(steps):
        batch = bytearray(
            encode_batch(
                [NewRecord(None, b"x", 0)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            if kind == "d"
            else encode_marker(
                commit=kind == "c",
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=0,
            )
        )
        if kind == "d":
            begun.setdefault(producer_id, []).append(offset)
        elif (offsets := begun.pop(producer_id, None)) and kind == "a":
            aborted.append((offset, AbortedTxn(producer_id, offsets[0])))
            wanted.update(offsets)
        set_offset_and_epoch(batch, offset, 0)
        positions.append(len(out))
        out += batch
    file = CountedFile(bytes(out))
    for first, position in enumerate(positions):
        data = Slice(file, position, len(out) - position)
        overlapping = [one for end, one in aborted if end >= first]
        found = aborted_batches(data, batches_of(data, len(steps), len(steps)), overlapping)
        assert [one.first_offset for one in found] == sorted(at for at in wanted if at >= first)


def test_the_search_reads_only_headers_of_large_batches_and_many_small_ones_at_once() -> None:
    large, _ = a_file([50_000] * 20)
    batches_of(Slice(large, 6, len(large.data) - 6), 20, 20)
    assert large.bytes <= 20 * 1024
    small, _ = a_file([1] * 5000)
    batches_of(Slice(small, 6, len(small.data) - 6), 5000, 5000)
    assert small.calls <= len(small.data) // READ_AT_ONCE + 5
