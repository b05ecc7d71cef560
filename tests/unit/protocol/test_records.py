"""The encoding of batches in record format v2."""

from __future__ import annotations

import pytest

from barnabas.protocol.records import (
    NewRecord,
    encode_batch,
    encode_pairs,
    has_right_crc,
    header_name_bytes,
    read_header,
    records_of,
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


def test_a_header_name_that_is_not_utf8_is_read_and_written_with_the_same_bytes() -> None:
    record = NewRecord(b"k", b"v", 1000, ((b"h\xff".decode(errors="surrogateescape"), b"\xfe"),))
    (read,) = records_of(encode_batch([record]))
    assert header_name_bytes(read.headers[0][0]) == b"h\xff"
    assert b"\x04h\xff\x02\xfe" in bytes(encode_batch([read]))
