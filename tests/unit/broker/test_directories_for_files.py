"""A directory where the broker expects a file, and partitions whose directory is a symbolic link.

Apache Kafka deletes a topic whose partition directory was moved to another disk and linked back:
the segments in the link's target, and the link.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import uuid
from pathlib import Path

import pytest
from helpers.core_host import CoreHost

from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.broker_appends import append_records
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.log.time_lookup import offset_for_timestamp
from barnabas.storage.pooled_disk import PooledDisk

CONFIGS = {"segment.bytes": "200", "file.delete.delay.ms": "0"}


def filled(path: Path) -> CoreHost:
    """A broker with two topics of several segments."""
    host = CoreHost(path, log_retention_check_interval_ms="10")
    for number, topic in enumerate(("t", "other")):
        host.broker.topics.create_topic(
            topic, 1, CONFIGS, topic_id=uuid.UUID(int=number + 1), now_ms=host.now_ms
        )
        write(host, topic, 6)
    return host


def write(host: CoreHost, topic: str, count: int = 1) -> None:
    log = host.broker.topics.partition(topic, 0)
    assert log is not None
    for number in range(count):
        append_records(log, [CoordinatorRecord(b"k", b"value %d" % number * 5)], host.now_ms)


def read(host: CoreHost, topic: str) -> None:
    """Read a topic by each of its indexes."""
    log = host.broker.topics.partition(topic, 0)
    if log is None:
        return
    for offset in range(log.log_start_offset, log.log_end_offset):
        log.read(offset, max_bytes=1, isolation=Isolation.READ_COMMITTED, min_one_batch=True)
    offset_for_timestamp(log, host.now_ms)


def tick(host: CoreHost, count: int = 5) -> None:
    for _ in range(count):
        host.tick(100_000)
        while host.flushes:
            for file in host.flushes[0].files:
                file.fsync()
            host.flush()


def stopped(path: Path) -> list[Path]:
    """The files of a broker that was stopped."""
    host = filled(path)
    host.broker.close_logs(host.now_ms)
    return [file for file in sorted((path / "data").rglob("*")) if file.is_file()]


def names(tmp_path: Path) -> list[str]:
    """The names of the files of a stopped broker, relative to the data directory."""
    return [str(file.relative_to(tmp_path / "data")) for file in stopped(tmp_path)]


def make_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "inside").write_text("of an operator")


def test_each_file_may_be_a_directory_which_is_set_aside_in_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a file of the whole directory a start may be refused. It is never refused for a file
    of a partition, and never without words.
    """
    set_aside: set[str] = set()
    for number, name in enumerate(names(tmp_path / "first")):
        root = tmp_path / str(number)
        shutil.copytree(tmp_path / "first", root)
        make_directory(root / "data" / name)
        caplog.clear()
        undamaged = "t" if name.startswith("other") else "other"
        try:
            host = CoreHost(root)
        except LogDirectoryError as error:
            assert "/" not in name, f"{name}: {error}"
            continue
        write(host, undamaged)
        for topic in ("t", "other"):
            with contextlib.suppress(KafkaError, CorruptLog):  # a segment has lost its file
                read(host, topic)
        tick(host)
        host.broker.close_logs(host.now_ms)
        if not (root / "data" / name).is_dir():  # the broker needed the file
            set_aside.add(name.rpartition("/")[2].lstrip("0123456789"))
            assert [one for one in caplog.messages if "expects a file" in one and name in one]
            assert (root / "data" / f"{name}.0-stray" / "inside").exists()
        again = CoreHost(root)
        write(again, undamaged)
        again.broker.close_logs(again.now_ms)
    assert {".log", ".index", "segments.manifest", "partition.metadata"} <= set_aside


@pytest.mark.parametrize("suffix", [".tmp", ".new", ".deleted", ".cleaned", ".swap"])
def test_a_directory_with_the_name_of_a_temporary_file_is_set_aside(
    tmp_path: Path, suffix: str
) -> None:
    """No start, tick or stop fails."""
    for name in names(tmp_path):
        (tmp_path / "data" / f"{name}{suffix}").mkdir()
    for _ in range(3):
        host = CoreHost(tmp_path)
        write(host, "t")
        write(host, "other")
        tick(host)
        host.broker.close_logs(host.now_ms)


# --- symbolic links -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_topic_whose_directory_is_a_link_is_deleted(tmp_path: Path, is_dangling: bool) -> None:
    stopped(tmp_path)
    data, bigger = tmp_path / "data", tmp_path / "bigger"
    shutil.move(data / "t-0", bigger)
    (data / "t-0").symlink_to(bigger)
    host = CoreHost(tmp_path)
    write(host, "t")
    host.connect(1)
    host.ask(1, DeleteTopicsRequest(topic_names=["t"]), 3)
    if is_dangling:
        shutil.rmtree(bigger)
    tick(host)
    assert host.answers[1][0].responses[0].error_code == 0
    assert not [one.name for one in data.iterdir() if one.name.startswith("t-0")]
    assert is_dangling or list(bigger.iterdir()) == []
    write(host, "other")
    host.broker.close_logs(host.now_ms)
    CoreHost(tmp_path)


def test_a_start_deletes_what_a_link_to_a_deleted_partition_leads_to(tmp_path: Path) -> None:
    stopped(tmp_path)
    data, bigger = tmp_path / "data", tmp_path / "bigger"
    shutil.copytree(data / "t-0", bigger)
    name = f"t-0.{uuid.uuid4().hex}-delete"
    (data / name).symlink_to(bigger)
    (data / f"t-1.{uuid.uuid4().hex}-delete").write_text("a file in place of a directory")
    host = CoreHost(tmp_path)
    tick(host)
    assert not list(data.glob("*-delete"))
    assert list(bigger.iterdir()) == []


def test_a_link_inside_a_deleted_directory_is_removed_and_not_what_it_leads_to(
    tmp_path: Path,
) -> None:
    kept, directory, target = (tmp_path / name for name in ("kept", "t-0", "target"))
    for one in (kept, target):
        one.mkdir()
        (one / "file").write_text("x")
    (target / "inner").mkdir()
    (target / "link").symlink_to(kept)
    directory.symlink_to(target)
    OsDisk().rmtree(str(directory))
    assert not directory.exists() and not directory.is_symlink()
    assert list(target.iterdir()) == [] and (kept / "file").exists()


def test_only_a_directory_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    disk = PooledDisk(OsDisk())
    path = tmp_path / "checkpoint"
    disk.write_atomic(str(path), b"1")
    for _ in range(2):
        make_directory(path)
        disk.write_atomic(str(path), b"2")
        assert path.read_bytes() == b"2"
    make_directory(tmp_path / "checkpoint.tmp")
    disk.write_atomic(str(path), b"3")
    make_directory(path)
    with pytest.raises(FileNotFoundError):
        disk.read(str(path))
    make_directory(path)
    disk.unlink(str(path))
    assert not path.exists()
    strays = sorted(one.name for one in tmp_path.iterdir())
    assert strays == [
        "checkpoint.0-stray",
        "checkpoint.1-stray",
        "checkpoint.2-stray",
        "checkpoint.3-stray",
        "checkpoint.tmp.0-stray",
    ]
    assert all("move it out of the data directory" in line for line in caplog.messages)
    assert len(caplog.messages) == len(strays)
