"""Entries of the data directory that have names like those of logs but are not logs: copies that an
operator made, and invalid names.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.core_host import CoreHost, fetch, produce

from barnabas.broker.slices import run_through
from barnabas.storage.files.checkpoints import METADATA_JOURNAL_NAME


def directory_with(tmp_path: Path, *topics: str) -> Path:
    """Create the data directory of a stopped broker with these topics, each with one record."""
    host = CoreHost(tmp_path)
    host.connect(1)
    for topic in topics:
        host.create(topic)
        host.call(1, produce(topic, topic.encode()), 9)
    host.close()
    return tmp_path / "data"


def opened(tmp_path: Path) -> CoreHost:
    host = CoreHost(tmp_path)
    host.connect(1)
    return host


def strays(data: Path) -> list[str]:
    """The names of the directories that were set aside, without their suffix."""
    return sorted(
        path.name.split(".")[0] for path in data.iterdir() if path.name.endswith("-stray")
    )


def size_of(host: CoreHost, topic: str) -> int:
    (row,) = host.call(1, fetch({topic: {0: 0}}), 11).responses
    return len(row.partitions[0].records or b"")


@pytest.mark.parametrize("copy", ["t-0-20241122", "t-0-1", "copy-of-t-0", "t.bak-0"])
@pytest.mark.parametrize("has_journal", [True, False])
def test_a_copy_of_a_partition_is_set_aside_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, copy: str, *, has_journal: bool
) -> None:
    data = directory_with(tmp_path, "t")
    shutil.copytree(data / "t-0", data / copy)
    if not has_journal:
        (data / METADATA_JOURNAL_NAME).unlink()
    host = opened(tmp_path)
    assert list(host.broker.metadata.topics) == ["t"]
    assert len(host.broker.topics.partitions_of("t")) == 1
    assert size_of(host, "t") > 0
    (line,) = [record.getMessage() for record in caplog.records if "is not used" in record.message]
    assert copy in line and "topic t;" in line and "move it out" in line
    assert strays(data) == [copy.split(".", maxsplit=1)[0]]
    host.close()
    caplog.clear()
    opened(tmp_path).close()
    assert not [record for record in caplog.records if "is not used" in record.message], (
        "the second start does not log it again"
    )


@pytest.mark.parametrize("has_journal", [True, False])
def test_a_copy_without_a_topic_id_does_not_become_a_partition_with_a_high_number(
    tmp_path: Path, *, has_journal: bool
) -> None:
    data = directory_with(tmp_path, "t")
    for copy in ("t-0-20241122", "t-20241122"):
        shutil.copytree(data / "t-0", data / copy)
        (data / copy / "partition.metadata").unlink()
        (data / copy / "segments.manifest").unlink()
    if not has_journal:
        (data / METADATA_JOURNAL_NAME).unlink()
    host = opened(tmp_path)
    assert list(host.broker.metadata.topics) == ["t"]
    assert len(host.broker.topics.partitions_of("t")) == 1
    assert strays(data) == ["t-0-20241122", "t-20241122"]
    host.close()


def test_missing_partitions_below_an_existing_one_are_created(tmp_path: Path) -> None:
    """Only partition 2 has a directory, and there is no metadata. In a Kafka cluster, other brokers
    may have had partitions 0 and 1.
    """
    data = directory_with(tmp_path, "t")
    (data / "t-0").rename(data / "t-2")
    (data / METADATA_JOURNAL_NAME).unlink()
    host = opened(tmp_path)
    assert len(host.broker.topics.partitions_of("t")) == 3
    assert strays(data) == []
    host.close()


@pytest.mark.parametrize("name", ["..-0", ".-0", "x" * 250 + "-0", "t-00", "t-007"])
def test_a_directory_whose_name_is_not_a_partitions_is_set_aside(tmp_path: Path, name: str) -> None:
    data = directory_with(tmp_path, "t")
    (data / name).mkdir()
    host = opened(tmp_path)
    assert list(host.broker.metadata.topics) == ["t"]
    assert size_of(host, "t") > 0
    assert not (data / name).exists()
    host.close()


def test_repeated_copies_of_a_partition_are_all_kept(tmp_path: Path) -> None:
    data = directory_with(tmp_path, "t")
    for count in (1, 2, 3):
        shutil.copytree(data / "t-0", data / "t-0-1")
        opened(tmp_path).close()
        assert strays(data) == ["t-0-1"] * count


def test_a_topic_may_have_the_name_of_a_copy(tmp_path: Path) -> None:
    data = directory_with(tmp_path, "t", "t-0", "t-0-20241122")
    for _ in range(2):
        host = opened(tmp_path)
        assert [size_of(host, name) > 0 for name in ("t", "t-0", "t-0-20241122")] == [True] * 3
        host.close()
        (data / METADATA_JOURNAL_NAME).unlink()
    assert strays(data) == []


def test_a_new_partition_takes_over_a_log_that_has_its_name(tmp_path: Path) -> None:
    """The copy t-1 has the topic's id. Since the topic has one partition, the copy is not served
    until a second partition is added.
    """
    data = directory_with(tmp_path, "t")
    shutil.copytree(data / "t-0", data / "t-1")
    host = opened(tmp_path)
    assert len(host.broker.topics.partitions_of("t")) == 1
    run_through(host.broker.topics.add_partitions({"t": 2}, host.now_ms), host.now_ms)
    assert host.broker.topics.partitions_of("t")[1] is host.broker.logs.logs["t", 1]
    assert host.broker.topics.partitions_of("t")[1].log_end_offset == 1
    host.close()
