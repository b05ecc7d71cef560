"""The state that logs share: paths with Apache Kafka's names, and files whose deletion is
delayed.
"""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest
from helpers.storage_kafka_log import kafka_directory, kafka_log

from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.disk import OsDisk


def test_paths_are_kafkas(tmp_path: Path) -> None:
    log_dir = kafka_directory(tmp_path)
    assert log_dir.partition_path("txn", 0) == f"{tmp_path}/txn-0"
    assert Path(log_dir.path("meta.properties")).exists()
    assert str(TopicIdPartition("txn", 0, uuid.UUID(int=1))) == "txn-0"


def test_a_deleted_segments_files_are_renamed_at_once_and_go_later(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    log.log_dir.discard_segments([log.segments[1]], 500)
    names = sorted(path.name for path in (tmp_path / "txn-0").glob("*03.*"))
    assert names == [
        "00000000000000000003.index.deleted",
        "00000000000000000003.log.deleted",
        "00000000000000000003.snapshot",
        "00000000000000000003.timeindex.deleted",
        "00000000000000000003.txnindex.deleted",
    ]
    trash = log.log_dir.trash
    assert trash.next_due_ms == 500 and len(trash.take_due(500, 10)) == 4


def test_a_deleted_segment_leaves_the_cache_and_nothing_is_built_for_it(tmp_path: Path) -> None:
    log = kafka_log(tmp_path)
    first, second = log.segments[0], log.segments[1]
    for segment in (first, second):
        segment.indexes.drop()
        segment.indexes.offset_index()
    bytes_of_both = log.log_dir.cache.bytes
    log.log_dir.discard_segments([second], 500)
    assert second.indexes.is_forgotten and not first.indexes.is_forgotten
    assert 0 < log.log_dir.cache.bytes < bytes_of_both
    log.log_dir.discard_segments([first], 500)
    assert log.log_dir.cache.bytes == 0


def test_a_file_without_space_for_its_longer_name_goes_at_once(tmp_path: Path) -> None:
    """If the file kept its own name, a start would read it again."""

    class FullDisk(OsDisk):
        code = errno.ENOSPC

        def rename(self, old: str, new: str) -> None:
            raise OSError(self.code, os.strerror(self.code), new)

    log = kafka_log(tmp_path)
    disk = log.log_dir.disk = FullDisk()
    log.log_dir.discard_segments([log.segments[1]], 500)
    names = [path.name for path in (tmp_path / "txn-0").glob("*03.*")]
    assert names == ["00000000000000000003.snapshot"] and len(log.log_dir.trash) == 0
    disk.code = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        log.log_dir.discard_segments([log.segments[0]], 500)
    assert (tmp_path / "txn-0" / "00000000000000000000.log").exists()


def test_a_file_that_is_not_there_is_not_missed(tmp_path: Path) -> None:
    log_dir = kafka_directory(tmp_path)
    log_dir.discard(log_dir.path("nothing"), 1)
    assert len(log_dir.trash) == 0
