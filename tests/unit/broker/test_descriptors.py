"""If no file descriptor is left, the broker refuses only the requests that need one."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest
from helpers.disk_broker import READER, DiskBroker, Producer
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, open_manager
from sim.disk import Refusal

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.storage.disk import File, OsDisk
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.segments import segment_indexes
from barnabas.storage.segments.segment import Segment


@pytest.mark.parametrize("name", [".log", ".index", ".timeindex"])
def test_a_first_append_that_cannot_open_a_file_leaves_no_files(tmp_path: Path, name: str) -> None:
    class Refusing(OsDisk):
        def open(self, path: str, *, create: bool = False) -> File:
            if path.endswith(name):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            return super().open(path, create=create)

    manager = open_manager(tmp_path, LogConfig(), disk=Refusing())
    before = sorted(os.listdir(manager.data_dir))
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    for _ in range(2):
        with pytest.raises(OSError, match="Too many open files"):
            log.append(batch(), now_ms=NOW_MS)
        assert sorted(os.listdir(manager.data_dir)) == before
        assert log.log_end_offset == 0 and not log.files.are_made


# --- a read that finds none -----------------------------------------------------------------------


SEGMENTS, MAX_TIMESTAMP = 8, -3


@pytest.fixture
def b() -> DiskBroker:
    """A broker with only two file descriptors, one for the file in use and a spare, and a topic
    with many segments.
    """
    b = DiskBroker()
    b.disk.descriptors = 2
    # the kill and restart make the new limit effective
    b.kill()
    b.topic("t", 1, segment_bytes="400")
    p = Producer(b, "txn")
    p.add("t", 0)
    for number in range(SEGMENTS):
        p.send("t", 0, b"%d" % number + b"x" * 250)
    assert p.end(True) == 0
    assert len(log_of(b).segments) >= SEGMENTS
    return b


def log_of(b: DiskBroker) -> Log:
    return b.broker.topics.logs_of("t")[0]


def close_file(segment: Segment) -> None:
    if segment.batches.open_file is not None:
        segment.batches.open_file.close()
        segment.batches.open_file = None


def refuse(b: DiskBroker) -> None:
    """Close the topic's files and make every open fail, as if the system had no descriptor left."""
    for segment in list(log_of(b).segments):
        close_file(segment)
    b.disk.refuse(Refusal(frozenset(["open"]), errno.ENFILE))


def list_offsets(b: DiskBroker, timestamp: int, version: int) -> tuple[int, int]:
    """The error code and the offset in a ListOffsets response."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    if not version:
        partition.max_num_offsets = 10
    topic = ListOffsetsTopic(name="t", partitions=[partition])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
    b.send(READER, request, version)
    while b.answer(READER) is None:
        assert b.broker.next_deadline_ms() == 0, "it waits for something else than a build"
        b.tick(0)
    answer = b.answer(READER).topics[0].partitions[0]
    return answer.error_code, answer.offset if version else (*answer.old_style_offsets, -1)[0]


@pytest.mark.parametrize("committed", [False, True])
def test_a_fetch_without_a_free_descriptor_is_refused_and_succeeds_later(
    b: DiskBroker, committed: bool
) -> None:
    refuse(b)
    b.send_fetch(READER, "t", 0, committed=committed)
    found = b.fetched()
    assert found is not None and found.code == Code.KAFKA_STORAGE_ERROR and not found.data
    b.disk.refuse(None)
    assert len(b.rows("t", committed=committed)) == SEGMENTS


@pytest.mark.parametrize("is_in_slices", [False, True])
@pytest.mark.parametrize(("timestamp", "version"), [(1, 5), (MAX_TIMESTAMP, 7), (NOW_MS * 2, 0)])
def test_a_search_by_time_without_a_free_descriptor_is_refused_and_succeeds_later(
    b: DiskBroker,
    timestamp: int,
    version: int,
    is_in_slices: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_in_slices:
        monkeypatch.setattr(segment_indexes, "BUILT_AT_ONCE_BYTES", 0)
    expected = list_offsets(b, timestamp, version)
    b.kill()  # after this restart, the time indexes are not in memory
    for path, _ in list(b.disk.files()):
        if path.endswith((".timeindex", ".manifest")) and "/t-0/" in path:
            b.disk.unlink(path)
    b.kill()
    b.hold_flushes()
    refuse(b)
    assert list_offsets(b, timestamp, version)[0] == Code.KAFKA_STORAGE_ERROR
    b.disk.refuse(None)
    b.release_flushes()
    assert list_offsets(b, timestamp, version) == expected


def test_a_batch_without_a_free_descriptor_is_refused_and_appended_later(b: DiskBroker) -> None:
    refuse(b)
    close_file(log_of(b).segments.active)
    assert b.produce("t", (b"a",))[0] == Code.KAFKA_STORAGE_ERROR
    b.disk.refuse(None)
    assert b.produce("t", (b"a",))[0] == Code.NONE


def test_retention_without_a_free_descriptor_waits_and_deletes_later(
    b: DiskBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention needs the time of each segment's last record. Here it has to read the segments for
    this, and cannot open them.
    """
    b.kill()
    log = log_of(b)
    log.config = dataclasses.replace(log.config, retention_ms=1)
    for segment in log.segments:
        segment.indexes.has_times = False
    b.hold_flushes()
    refuse(b)
    b.tick(10 * 60_000)
    assert len(log.segments) >= SEGMENTS and "waits for descriptors" in caplog.text
    b.disk.refuse(None)
    b.release_flushes()
    b.tick(10 * 60_000)
    assert len(log.segments) == 1
