"""The selection of record batches from a fetch: aborted, corrupt, truncated and unknown batches."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import pytest

pytest.importorskip("pyarrow")

from helpers.spark_decoding import timestamp_types
from hypothesis import strategies as st

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.protocol.records import (
    NewRecord,
    encode_batch,
    encode_marker,
)
from barnabas.spark_connector.arrow import decoding, record_loops
from barnabas.spark_connector.arrow.numba_loops import CompiledLoops, UnavailableError, load
from barnabas.spark_connector.arrow.record_batches import Selection, select_record_batches

FAR = 2**62


class Row(NamedTuple):
    """The fields of a decoded record."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@lru_cache(maxsize=1)
def ways() -> list[CompiledLoops | None]:
    """The implementations of decoding: array operations, loops in plain Python and, if numba is
    installed, compiled loops.
    """
    found = [None, CompiledLoops(record_loops.parse, record_loops.headers, record_loops.gather)]
    with suppress(UnavailableError):
        found.append(load())
    return found


def decoded(
    buffer: bytes,
    aborted: list[AbortedTransaction] | None = None,
    start: int = 0,
    end: int = FAR,
    *,
    check_crc: bool = True,
) -> list[Row]:
    """The decoded rows. All implementations must give the same rows or the same error."""
    selection = select_record_batches(
        buffer, aborted, start_offset=start, end_offset=end, check_crc=check_crc
    )
    try:
        expected = rows_of(buffer, selection, start, end, None)
    except KafkaError as error:
        for way in ways()[1:]:
            with pytest.raises(KafkaError, match=re.escape(str(error))) as caught:
                rows_of(buffer, selection, start, end, way)
            assert caught.value.code == error.code
        raise
    for way in ways()[1:]:
        assert rows_of(buffer, selection, start, end, way) == expected
    return expected


def rows_of(
    buffer: bytes, selection: Selection, start: int, end: int, way: CompiledLoops | None
) -> list[Row]:
    """The rows that one implementation of decoding gives. The Arrow arrays are validated."""
    rows: list[Row] = []
    for part in decoding.decode(
        buffer,
        selection.record_batches,
        start_offset=start,
        end_offset=end,
        headers=True,
        loops=way,
    ):
        assert part.key is not None and part.value is not None and part.headers is not None
        for array in (part.key, part.value, part.headers):
            array.validate(full=True)
        headers = [
            each and [(entry["key"], entry["value"]) for entry in each]
            for each in part.headers.to_pylist()
        ]
        columns = (part.offset.tolist(), part.timestamp_ms.tolist(), timestamp_types(part))
        rows += map(Row, *columns, part.key.to_pylist(), part.value.to_pylist(), headers)
    return rows


# Bytes that look like the start of a record: lengths, zero bytes, and values between them.
tricky = st.lists(
    st.sampled_from(
        [b"\0", b"\x0c", b"\x0c\0", b"\x0e\0\0\0\1\1\0", b"\x80\1", b"\x8c\1\0", b"\xff", b"x"]
    ),
    max_size=40,
).map(b"".join)


headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5) | tricky), max_size=3
).map(tuple)


def test_an_abort_that_ended_before_the_range_hides_nothing_in_it() -> None:
    """A response may begin with an aborted batch before the requested offset. The reader must then
    process the marker of this batch as well.
    """
    marker = encode_marker(
        commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    aborted = encode_batch(
        [NewRecord(None, b"a", 1)], base_offset=1, producer_id=7, transactional=True
    )
    kept = encode_batch(
        [NewRecord(None, b"b", 1)], base_offset=3, producer_id=7, transactional=True
    )
    buffer = aborted + (2).to_bytes(8, "big") + marker[8:] + kept
    assert [row.offset for row in decoded(buffer, [AbortedTransaction(7, 1)], 3, 5)] == [3]


def test_a_wrong_checksum_is_an_error_unless_the_check_is_off() -> None:
    batch = encode_batch([NewRecord(b"key", b"value", 5)])
    batch[-2] ^= 1
    with pytest.raises(KafkaError, match="checksum of the batch at offset 0") as caught:
        select_record_batches(batch, None, start_offset=0, end_offset=FAR)
    assert caught.value.code == Code.CORRUPT_MESSAGE
    assert (
        len(
            select_record_batches(
                batch, None, start_offset=0, end_offset=FAR, check_crc=False
            ).record_batches
        )
        == 1
    )


def test_a_fetch_that_begins_within_an_aborted_transaction() -> None:
    """The fetch begins within an aborted transaction, whose first offset, in the list of aborted
    transactions, is before the start of the fetch.

    Source: platformatic/kafka#391, Kafka: TransactionIndex.
    """
    buffer = bytes(
        encode_batch(
            [NewRecord(None, b"aborted", 1)],
            base_offset=5,
            producer_id=7,
            producer_epoch=0,
            base_sequence=1,
            transactional=True,
        )
        + _at(
            encode_marker(
                commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
            ),
            6,
        )
        + encode_batch(
            [NewRecord(None, b"next", 1)],
            base_offset=7,
            producer_id=7,
            producer_epoch=0,
            base_sequence=2,
            transactional=True,
        )
        + _at(
            encode_marker(
                commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
            ),
            8,
        )
    )
    assert [row.value for row in decoded(buffer, [AbortedTransaction(7, 0)], 5)] == [b"next"]
    assert [row.value for row in decoded(buffer, None, 5)] == [b"aborted", b"next"]
    assert (
        select_record_batches(
            buffer, [AbortedTransaction(7, 0)], start_offset=5, end_offset=9
        ).next_offset
        == 9
    )


def _at(batch: bytearray, offset: int) -> bytearray:
    return bytearray(offset.to_bytes(8, "big")) + batch[8:]


def test_a_truncated_batch_is_left_for_the_next_fetch() -> None:
    whole, cut = (
        encode_batch([NewRecord(None, b"1", 1)]),
        encode_batch([NewRecord(None, b"2", 1)], base_offset=1),
    )
    selection = select_record_batches(whole + cut[:-1], None, start_offset=0, end_offset=2)
    assert (len(selection.record_batches), selection.next_offset) == (1, 1)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_an_error_unless_its_batch_is_skipped(codec: int) -> None:
    log = bytearray(encode_batch([NewRecord(None, b"v", 1)], base_offset=3))
    log[22] |= codec
    with pytest.raises(
        KafkaError,
        match=f"the batch at offset 3 is compressed with codec {codec}, which is unknown",
    ):
        select_record_batches(log, None, start_offset=0, end_offset=9, check_crc=False)
    assert (
        select_record_batches(
            log, None, start_offset=4, end_offset=9, check_crc=False
        ).record_batches
        == []
    )


def test_old_message_formats_are_named() -> None:
    with pytest.raises(KafkaError, match="format 1"):
        select_record_batches(bytes(16) + b"\1" + bytes(40), None, start_offset=0, end_offset=1)
