"""DeleteRecords (KIP-107). The expected codes are those of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.core_host import CoreHost, delete_topic, fetch, produce
from helpers.disk_broker import DiskBroker
from helpers.repeating import repeat_until

from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.checkpoints import LOG_START_NAME, decode_offsets


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path)
    host.connect(1)
    yield host
    host.close()


def delete(host: CoreHost, topic: str, offset: int, index: int = 0) -> tuple[int, int]:
    rows = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])]
    answer = host.call(1, DeleteRecordsRequest(topics=rows, timeout_ms=1000), 2)
    row = answer.topics[0].partitions[0]
    return row.error_code, row.low_watermark


def test_delete_records_raises_the_log_start_offset_and_never_lowers_it(host: CoreHost) -> None:
    (log,) = host.create("t")
    for _ in range(4):
        host.call(1, produce("t"), 9)
    assert log.log_end_offset == 4
    assert delete(host, "t", 2) == (Code.NONE, 2)
    assert delete(host, "t", 1) == (Code.NONE, 2)
    assert delete(host, "t", -1) == (Code.NONE, 4)


def test_a_fetch_that_waits_below_the_new_start_is_answered(host: CoreHost) -> None:
    host.create("t")
    host.call(1, produce("t"), 9)
    host.connect(2)
    host.ask(2, fetch({"t": {0: 0}}, min_bytes=10_000, max_wait_ms=60_000), 11)
    assert host.answers[2] == []
    assert delete(host, "t", -1) == (Code.NONE, 1)
    (row,) = host.answers[2].pop().responses[0].partitions
    assert row.error_code == Code.OFFSET_OUT_OF_RANGE


def test_all_partitions_of_a_request_are_stored_together(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop syncs only once, for all partitions, and processes no other request before
    that.
    """
    logs = host.create("t", 5)
    for log in logs:
        log.append(encode_batch([NewRecord(None, b"v", host.now_ms)]), now_ms=host.now_ms)
    synced: list[str] = []
    sync = OsDisk.fsync_dir
    monkeypatch.setattr(
        OsDisk, "fsync_dir", lambda disk, path: (synced.append(path), sync(disk, path))
    )
    partitions = [DeleteRecordsPartition(log.partition, 1) for log in logs]
    request = DeleteRecordsRequest([DeleteRecordsTopic("t", partitions)], 1000)
    rows = host.call(1, request, 2).topics[0].partitions
    assert [(row.error_code, row.low_watermark) for row in rows] == [(Code.NONE, 1)] * 5
    assert synced == [host.broker.logs.data_dir]
    stored = decode_offsets((Path(synced[0]) / LOG_START_NAME).read_bytes())
    assert stored == {("t", log.partition): 1 for log in logs}


def test_records_of_a_topic_that_is_compacted_and_deleted_may_be_deleted(host: CoreHost) -> None:
    (log,) = host.create("both", cleanup_policy="compact,delete")
    log.append(encode_batch([NewRecord(b"k", b"v", host.now_ms)]), now_ms=host.now_ms)
    assert delete(host, "both", -1) == (Code.NONE, 1)


def test_invalid_delete_records_requests_are_refused(host: CoreHost) -> None:
    host.create("t")
    host.create("compacted", cleanup_policy="compact")
    assert delete(host, "t", 1) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert delete(host, "t", -2) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert delete(host, "t", 0, 1) == (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(host, "u", 0) == (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(host, "compacted", 0) == (Code.POLICY_VIOLATION, -1)
    assert delete(host, OFFSETS_TOPIC, 0) == (Code.INVALID_TOPIC_EXCEPTION, -1)


def test_a_delete_records_request_in_slices_deletes_nothing_of_a_recreated_topic() -> None:
    """A request for 60 partitions is handled in several events. Between two of these the topic is
    deleted and one of the same name is created.
    """
    b = DiskBroker()
    b.topic("t", 60)
    rows = [DeleteRecordsPartition(index, -1) for index in range(60)]
    asking = b.connect()
    b.send(asking, DeleteRecordsRequest([DeleteRecordsTopic("t", rows)], 1000), 2)
    assert b.answer(asking) is None, "some parts wait"
    delete_topic(b.parts.deletion, "t", b.now_ms)
    b.parts.topics.create_topic("t", 60, {}, now_ms=b.now_ms)
    assert b.produce("t", (b"kept",), partition=59)[0] == 0
    repeat_until(lambda: b.answer(asking) is not None, b.tick)
    codes = {row.error_code for row in b.answer(asking).topics[0].partitions}
    assert Code.UNKNOWN_TOPIC_OR_PARTITION in codes
    assert b.read("t", 59) == [b"kept"]
