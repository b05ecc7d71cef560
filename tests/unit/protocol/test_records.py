"""The encoding of batches in record format v2."""

from __future__ import annotations

import pytest

from barnabas.protocol.records import (
    NewRecord,
    crc_without_last,
    encode_batch,
    encode_marker,
    encode_pairs,
    has_right_crc,
    header_name_bytes,
    read_header,
    records_of,
    set_last_bytes,
)

PAIRS: list[tuple[bytes, bytes | None]] = [
    (b"", b""),
    (b"key", None),
    (b"k" * 63, b"v" * 64),
    (b"long" * 100, b"value" * 5_000),
]


@pytest.mark.parametrize("pairs", [PAIRS, *([pair] for pair in PAIRS), PAIRS * 100])
@pytest.mark.parametrize("producer", [None, (1 << 40, 7)])
def test_a_coordinators_batch_is_what_encode_batch_makes_of_its_records(
    pairs: list[tuple[bytes, bytes | None]], producer: tuple[int, int] | None
) -> None:
    timestamp = 1_700_000_000_000
    producer_id, producer_epoch = producer or (-1, -1)
    batch = encode_pairs(pairs, timestamp, producer, base_offset=1 << 33, leader_epoch=3)
    assert batch == encode_batch(
        [NewRecord(key, value, timestamp) for key, value in pairs],
        base_offset=1 << 33,
        leader_epoch=3,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=producer is not None,
    )
    assert has_right_crc(batch, read_header(batch))
    assert [(record.key, record.value) for record in records_of(batch)] == pairs


@pytest.mark.parametrize("header", [None, ("note", b""), ("note", b"v" * 44)])
@pytest.mark.parametrize("base_timestamp", [None, 1_000, 700, 1_300])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_what_encode_batch_makes_of_its_record(
    header: tuple[str, bytes] | None, base_timestamp: int | None, commit: bool
) -> None:
    """Source: KIP-98, "Control messages"."""
    batch = encode_marker(
        commit=commit, producer_id=1 << 40, producer_epoch=7, coordinator_epoch=3,
        timestamp=1_000, base_timestamp=base_timestamp, header=header,
    )  # fmt: skip
    key, value = bytes((0, 0, 0, commit)), bytes((0, 0, 0, 0, 0, 3))
    record = NewRecord(key, value, 1_000, () if header is None else (header,))
    (read,) = records_of(batch)
    assert (read.key, read.value, read.timestamp, read.headers) == record[:4]
    assert has_right_crc(batch, read_header(batch))
    if base_timestamp in (None, 1_000):
        assert batch == encode_batch(
            [record],
            producer_id=1 << 40,
            producer_epoch=7,
            transactional=True,
            control=True,
        )


def test_a_batch_with_other_last_bytes_has_their_checksum() -> None:
    batch = bytearray(encode_batch([NewRecord(b"key", b"value", 1, (("name", b"12345678"),))]))
    crc_before = crc_without_last(batch, 4)
    for last_bytes in (b"abcd", b"wxyz", b"5678"):
        set_last_bytes(batch, last_bytes, crc_before)
        assert records_of(batch)[0].headers == (("name", b"1234" + last_bytes),)
        assert has_right_crc(batch, read_header(batch))


def test_a_header_name_that_is_not_utf8_is_read_and_written_with_the_same_bytes() -> None:
    record = NewRecord(b"k", b"v", 1000, ((b"h\xff".decode(errors="surrogateescape"), b"\xfe"),))
    (read,) = records_of(encode_batch([record]))
    assert header_name_bytes(read.headers[0][0]) == b"h\xff"
    assert b"\x04h\xff\x02\xfe" in bytes(encode_batch([read]))
