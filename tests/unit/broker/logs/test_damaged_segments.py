"""A damaged byte in an old segment, where the segment's indexes have to be built again because
there is no manifest: as in a directory of Apache Kafka, or after a power loss. Readers of the
segment get an error, and everything else goes on. `fuzz/damage.py` damages any byte of any file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from helpers.admin_host import NOW_MS
from helpers.disk_broker import DATA_DIR, READER, DiskBroker, Producer
from helpers.share_member import SHARED, ShareMember, begin_group, configure

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records import batches_in
from barnabas.storage.segments import segment_indexes

SEGMENTS = {"segment_bytes": "400"}
COMPACTED = SEGMENTS | {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


@pytest.fixture(params=["at once", "in slices"])
def built(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How indexes are built."""
    if request.param == "in slices":
        monkeypatch.setattr(segment_indexes, "BUILT_AT_ONCE_BYTES", 1)


def is_marker(header: Any) -> bool:
    return bool(header.is_control)


def is_data(header: Any) -> bool:
    return not header.is_control


def restarted(
    b: DiskBroker, topic: str, *, at: int, which: Callable[[Any], bool] = is_data, number: int = 0
) -> int:
    """Stop the broker, damage a byte of a batch in the topic's first segment, and start the broker
    without manifests. Gives: the offset of the batch.

    Takes: which, number: choose the batch; at, the position of the byte in the batch.
    """
    b.broker.close_logs(b.now_ms)
    files = b.saved()
    path = f"{DATA_DIR}/{topic}-0/{0:020d}.log"
    data = bytearray(files[path])
    position, header = [row for row in batches_in(bytes(data)) if which(row[1])][number]
    data[position + at] ^= 0x10
    files[path] = bytes(data)
    b.load({name: data for name, data in files.items() if not name.endswith("segments.manifest")})
    b.open()
    return int(header.base_offset)


MAGIC, LENGTH_OF_RECORD = 16, 61


def offsets_for(b: DiskBroker, version: int, time: int, *topics: str) -> dict[str, tuple[int, int]]:
    """The error code and the offset of each topic, by ListOffsets."""
    row = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=time)
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [row]) for name in topics])
    connection = b.connect()
    b.send(connection, request, version)
    for _ in range(50):
        if b.answer(connection) is None:
            b.tick()
    return {
        topic.name: (topic.partitions[0].error_code, topic.partitions[0].offset)
        for topic in b.answer(connection).topics
    }


def fill(b: DiskBroker, *topics: str) -> None:
    """Write ten batches of one record to each topic, one batch in each second."""
    for number in range(10):
        for topic in topics:
            b.produce(topic, (b"value %d" % number * 4,))
        b.now_ms += 1000


@pytest.mark.usefixtures("built")
def test_offsets_for_times_are_an_error_of_the_damaged_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = DiskBroker()
    for topic in ("bad", "t"):
        b.topic(topic, **SEGMENTS)
    fill(b, "bad", "t")
    restarted(b, "bad", at=MAGIC, number=1)
    for _ in range(2):
        found = offsets_for(b, 7, NOW_MS + 2000, "bad", "t")
        assert found == {"bad": (Code.CORRUPT_MESSAGE, -1), "t": (Code.NONE, 2)}
    assert offsets_for(b, 7, -3, "bad", "t")["t"] == (Code.NONE, 9)
    (code, _) = offsets_for(b, 0, NOW_MS + 2000, "bad")["bad"]
    assert code == Code.CORRUPT_MESSAGE
    errors = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert all("/data/bad-0/00000000000000000000.log" in line for line in errors) and errors
    assert b.produce("bad", (b"more",))[0] == Code.NONE


@pytest.mark.usefixtures("built")
def test_a_damaged_marker_is_an_error_of_committed_readers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = DiskBroker()
    b.topic("bad", **SEGMENTS)
    producer = Producer(b, "x")
    for number in range(6):
        producer.send("bad", 0, b"value %d" % number * 4)
        producer.end(number % 2 == 0)
    restarted(b, "bad", at=LENGTH_OF_RECORD, which=is_marker)
    connection = b.connect()
    b.send_fetch(connection, "bad", 0, committed=True, max_wait_ms=10)
    for _ in range(20):
        b.tick(1)
    fetched = b.fetched(connection)
    assert fetched is not None and fetched.code == Code.KAFKA_STORAGE_ERROR
    assert b.fetch("bad", 0).code == Code.NONE, "read_uncommitted needs no aborted index"
    assert "the CRC of a transaction's marker is wrong" in caplog.text


@pytest.mark.usefixtures("built")
def test_a_damaged_marker_in_a_compacted_topic_does_not_end_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = DiskBroker(log_cleaner_backoff_ms="100000")
    for topic in ("bad", "kv"):
        b.topic(topic, **COMPACTED)
    producer = Producer(b, "x")
    for number in range(6):
        for topic in ("bad", "kv"):
            assert producer.add(topic, 0) == Code.NONE
        for topic in ("bad", "kv"):
            b.put(topic, b"k", b"value %d" % number * 8)
        producer.end(commit=True)
    b.set_property("log.cleaner.backoff.ms", "1")
    restarted(b, "bad", at=LENGTH_OF_RECORD, which=is_marker)
    for _ in range(10):
        b.compact()
    assert len(b.read("kv")) < 6
    assert "bad-0 cannot be compacted" in caplog.text
    assert "/data/bad-0/00000000000000000000.log" in caplog.text
    assert b.put("bad", b"k", b"more")
    b.kill()
    b.compact()
    assert b.put("bad", b"k", b"more")


@pytest.mark.usefixtures("built")
def test_a_share_group_that_begins_by_time_gets_an_error() -> None:
    b = DiskBroker(**SHARED)
    for topic in ("bad", "t"):
        b.topic(topic, **SEGMENTS)
    fill(b, "bad", "t")
    restarted(b, "bad", at=MAGIC, number=1)
    configure(b, "g", share_auto_offset_reset="by_duration:PT100S")
    begin_group(b, "g", "bad", "t", start=-1)
    member = ShareMember(b, "g", "m")
    codes: dict[int, int] = {}
    for _ in range(3):
        member.send_fetch(("bad", 0), ("t", 0), max_wait_ms=10)
        for _ in range(20):
            b.tick(1)
        answer = member.answer()
        assert answer is not None
        for topic in answer.responses:
            for row in topic.partitions:
                codes[row.error_code] = codes.get(row.error_code, 0) + 1
    assert codes.get(Code.KAFKA_STORAGE_ERROR), codes
    assert codes.get(Code.NONE), codes


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("min_bytes", [1, 100_000])
def test_a_waiting_share_fetch_gets_an_error(min_bytes: int) -> None:
    b = DiskBroker(**SHARED)
    b.topic("bad", **SEGMENTS)
    producer = Producer(b, "x")
    for number in range(6):
        producer.send("bad", 0, b"value %d" % number * 4)
        producer.end(number % 2 == 0)
    restarted(b, "bad", at=LENGTH_OF_RECORD, which=is_marker)
    configure(b, "g", share_isolation_level="read_committed")
    begin_group(b, "g", "bad")
    member = ShareMember(b, "g", "m")
    member.send_fetch(("bad", 0), max_wait_ms=50, min_bytes=min_bytes)
    for _ in range(60):
        b.tick(1)
    answer = member.answer()
    assert answer is not None
    (topic,) = answer.responses
    assert [row.error_code for row in topic.partitions] == [Code.KAFKA_STORAGE_ERROR]


def test_a_file_that_is_gone_is_an_error_of_its_partition() -> None:
    b = DiskBroker()
    for topic in ("bad", "t"):
        b.topic(topic, **SEGMENTS)
    fill(b, "bad", "t")
    b.stop()
    b.disk.unlink(f"{DATA_DIR}/bad-0/{0:020d}.log")
    b.send_fetch(READER, "bad", 0)
    fetched = b.fetched()
    assert fetched is not None and fetched.code == Code.KAFKA_STORAGE_ERROR
    assert b.fetch("t", 0).code == Code.NONE
    assert b.produce("bad", (b"more",))[0] == Code.NONE
