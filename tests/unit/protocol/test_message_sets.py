"""Message sets, the format before record batches, compared with kafka-python's reader and
writer.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from itertools import count
from pathlib import Path
from typing import Any

import cramjam
import pytest
from helpers.core_host import CoreHost, fetch, produce
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.message_sets import (
    MOST_BYTES,
    _with_header_checksum,
    _xxh32,
    downgraded,
    is_message_set,
    upgraded,
)
from barnabas.protocol.messages.produce import PartitionProduceData
from barnabas.protocol.records import (
    NewRecord,
    encode_batch,
    encode_marker,
    read_header,
    records_of,
)
from barnabas.storage.log.broker_appends import append_marker

TIME_MS = 1_600_000_000_000
PAIRS: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v"), (None, b"w" * 300), (b"", None)]


def old(magic: int, codec: int = 0) -> bytes:
    """A message set of PAIRS in the given magic, as kafka-python writes it."""
    builder = MemoryRecordsBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for number, (key, value) in enumerate(PAIRS):
        builder.append(timestamp=TIME_MS + number, key=key, value=value)
    builder.close()
    return bytes(builder.buffer())


def with_checksum(body: bytes) -> bytes:
    return struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


def message(value: bytes | None, codec: int = 0, magic: int = 1) -> bytes:
    """One message of a message set. With a codec, `value` is the compressed inner message set."""
    blob = struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    time = struct.pack(">q", TIME_MS) if magic else b""
    return with_checksum(bytes([magic, codec]) + time + struct.pack(">i", -1) + blob)


HALF_A_BOMB = message(gzip.compress(message(bytes(MOST_BYTES // 2 - 100))), 1)


def read_by_kafka_python(data: bytes) -> list[tuple[int, int | None, Any, Any]]:
    records, found = MemoryRecords(data), []
    while records.has_next():
        found += [(one.offset, one.timestamp, one.key, one.value) for one in records.next_batch()]
    return found


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
)
def test_old_messages_become_a_batch(magic: int, codec: int) -> None:
    data = old(magic, codec)
    assert is_message_set(data)
    batch, converted_bytes = upgraded(data)
    assert converted_bytes >= len(data)
    assert not is_message_set(batch)
    assert read_header(batch).codec == codec
    times = [TIME_MS + number if magic else -1 for number in range(3)]
    read = records_of(bytes(batch))
    assert [(one.offset, one.timestamp, one.key, one.value) for one in read] == [
        (number, times[number], *pair) for number, pair in enumerate(PAIRS)
    ]


@pytest.mark.parametrize("size", [None, 3, 70_000])
def test_frames_of_lz4_have_a_wrong_checksum_in_magic_0(size: int | None) -> None:
    """Such frames have a wrong header checksum (KAFKA-3160). The compression library writes the
    right one, which the reader must restore.
    """
    compressor = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
    compressor.compress(message(b"a", magic=0))
    frame = bytes(compressor.finish())
    if size is not None:
        frame = bytes(cramjam.lz4.compress(message(bytes(size), magic=0)))
    # the header checksum follows the content size, which is optional and has 8 bytes
    end = 6 + 8 * bool(frame[4] & 0x08)
    wrong = frame[:end] + bytes([frame[end] ^ 0x55]) + frame[end + 1 :]
    assert _with_header_checksum(wrong) == frame
    if not frame[4] & 0x20:
        return  # frames with dependent blocks are refused
    (read,) = records_of(bytes(upgraded(message(wrong, 3, magic=0))[0]))
    assert read.value == (b"a" if size is None else bytes(size))
    with pytest.raises(KafkaError):
        upgraded(message(wrong, 3, magic=1))
    with pytest.raises(KafkaError):
        upgraded(message(b"\x04", 3, magic=0))


@pytest.mark.parametrize(
    ("data", "checksum"), [(b"", 0x02CC5D05), (b"abc", 0x32D153FF), (b"abcd", 0xA3643705)]
)
def test_xxhash_has_the_published_values(data: bytes, checksum: int) -> None:
    assert _xxh32(data) == checksum


@pytest.mark.parametrize("magic", [0, 1])
def test_batches_become_old_messages(magic: int) -> None:
    records = [NewRecord(key, value, TIME_MS, (("h", b"1"),)) for key, value in PAIRS]
    marker = encode_marker(
        commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=TIME_MS
    )
    batches = (
        encode_batch(records, base_offset=5, codec=1)
        + marker
        + encode_batch(records[:1], base_offset=9)
    )
    found = read_by_kafka_python(downgraded(bytes(batches), magic, 0, MOST_BYTES)[0])
    time = TIME_MS if magic else None
    expected = [(5 + number, time, *pair) for number, pair in enumerate(PAIRS)]
    assert found == [*expected, (9, time, *PAIRS[0])]


def down(batches: bytes, from_offset: int = 0, most_bytes: int = MOST_BYTES) -> list[Any]:
    return read_by_kafka_python(downgraded(batches, 1, from_offset, most_bytes)[0])


def test_what_is_cut_off_at_the_end_is_left_out() -> None:
    batch = bytes(encode_batch([NewRecord(None, b"a", TIME_MS)]))
    assert down(batch + batch[:-1]) == down(batch) != []


def test_a_conversion_is_bounded_but_has_at_least_one_message() -> None:
    """Batches are converted to old messages up to a number of bytes, and up to the maximum of
    decompressed bytes. The first message is always included, so that a reader makes progress.
    """
    values = [bytes(1000), b"1", b"2", b"3"]
    batch = bytes(encode_batch([NewRecord(None, value, TIME_MS) for value in values], codec=1))
    assert [one[0] for one in down(batch, 0, 1)] == [0]
    # A message whose value has one byte takes 35 bytes.
    assert [one[0] for one in down(batch, 1, 36)] == [1, 2]
    assert [one[0] for one in down(batch, 1)] == [1, 2, 3]
    bomb = bytes(
        encode_batch([NewRecord(None, bytes(MOST_BYTES), TIME_MS)], base_offset=4, codec=1)
    )
    assert [one[0] for one in down(batch + bomb)] == [0, 1, 2, 3]
    assert [one[0] for one in down(bomb)] == [4]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (old(1)[:-1], Code.CORRUPT_MESSAGE),
        (old(1)[:-1] + b"?", Code.CORRUPT_MESSAGE),
        (old(1)[:9], Code.CORRUPT_MESSAGE),
        (bytes(MOST_BYTES + 1), Code.MESSAGE_TOO_LARGE),
        (b"", Code.INVALID_RECORD),
        (message(gzip.compress(message(gzip.compress(message(b"a")), 1)), 1), Code.INVALID_RECORD),
        (message(b"a", 4), Code.UNSUPPORTED_COMPRESSION_TYPE),
        (message(b"a", 5), Code.UNKNOWN_SERVER_ERROR),
        (message(b"a", 7), Code.UNKNOWN_SERVER_ERROR),
        (message(None, 1), Code.UNKNOWN_SERVER_ERROR),
        (message(gzip.compress(message(bytes(MOST_BYTES))), 1), Code.MESSAGE_TOO_LARGE),
        (HALF_A_BOMB * 3, Code.MESSAGE_TOO_LARGE),
        (with_checksum(bytes(2)) + b"\xff" * 8, Code.CORRUPT_MESSAGE),
        (with_checksum(bytes(2)), Code.CORRUPT_MESSAGE),
        (with_checksum(b"\0\0" + b"\xff" * 8 + b"more"), Code.CORRUPT_MESSAGE),
    ],
    # the bytes are unsuitable as ids: they contain the time of compression, and some are long
    ids=count(),
)
def test_invalid_message_sets_are_refused(data: bytes, code: Code) -> None:
    with pytest.raises(KafkaError) as refused:
        upgraded(data)
    assert refused.value.code == code


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_of_old_messages_writes_and_reads_them(version: int, tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.create("t")
    connection, magic = host.connect(1), int(version == 2)
    request = produce("t")
    request.topic_data[0].partition_data[0].records = old(magic, 1)
    written = host.call(connection, request, version).responses[0].partition_responses[0]
    assert (written.error_code, written.base_offset) == (Code.NONE, 0)
    request.topic_data[0].partition_data[0].records = b"\0" * 40
    refused = host.call(connection, request, version).responses[0].partition_responses[0]
    assert refused.error_code == Code.CORRUPT_MESSAGE
    answer = host.call(connection, fetch({"t": {0: 0}}), version + (version == 2))
    (row,) = answer.responses[0].partitions
    assert (row.error_code, row.high_watermark) == (Code.NONE, 3)
    found = read_by_kafka_python(bytes(row.records))
    assert [(offset, key, value) for offset, _, key, value in found] == [
        (number, *pair) for number, pair in enumerate(PAIRS)
    ]
    assert [time for _, time, _, _ in found] == [
        TIME_MS + number if magic else None for number in range(3)
    ]
    batch = host.call(connection, fetch({"t": {0: 0}}), 12).responses[0].partitions[0].records
    assert not is_message_set(batch)


def test_a_fetch_of_old_messages_waits_as_others_do(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.create("t")
    host.ask(host.connect(1), fetch({"t": {0: 0}}, max_wait_ms=1000), 2)
    assert host.answers[1] == []
    host.call(host.connect(2), produce("t", b"new"), 9)
    (row,) = host.answers[1][0].responses[0].partitions
    assert [one[3] for one in read_by_kafka_python(bytes(row.records))] == [b"new"]


def test_an_old_consumer_gets_the_next_records_after_batches_without_messages(
    tmp_path: Path,
) -> None:
    """Old message formats cannot represent markers. An old consumer that gets an empty response
    would fetch the same offset forever.
    """
    host = CoreHost(tmp_path)
    host.create("t")
    log = host.broker.topics.partition("t", 0)
    for epoch in range(3):
        append_marker(
            log, producer_id=1, producer_epoch=epoch, commit=False, coordinator_epoch=0, now_ms=0
        )
    connection = host.connect(1)
    host.call(connection, produce("t", b"data"), 9)
    request = fetch({"t": {0: 0}})
    request.topics[0].partitions[0].partition_max_bytes = 80  # the size of a marker
    (row,) = host.call(connection, request, 2).responses[0].partitions
    assert [one[3] for one in read_by_kafka_python(bytes(row.records))] == [b"data"]


def test_the_conversion_in_one_request_is_bounded(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.create("t", 8)
    connection, data = host.connect(1), HALF_A_BOMB * 2
    request = produce("t")
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=data) for index in range(8)
    ]
    written = host.call(connection, request, 2).responses[0].partition_responses
    assert [one.error_code for one in written] == [Code.NONE] * 4 + [Code.REQUEST_TIMED_OUT] * 4
    begun_with = set()
    for _ in range(4):
        (topic,) = host.call(connection, fetch({"t": dict.fromkeys(range(4), 0)}), 2).responses
        sizes = [len(row.records) for row in topic.partitions]
        assert MOST_BYTES // 2 < sum(sizes) <= 2 * MOST_BYTES
        begun_with.add(sizes.index(max(sizes)))
    # Each partition is the first one in turn, even if the offsets do not change.
    assert begun_with == {0, 1, 2, 3}
