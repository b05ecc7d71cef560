"""Which directories are partitions', by Kafka's names and by what lies in them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.storage_kafka_log import KAFKA, kafka_directory

from barnabas.storage.checkpoints import encode_partition_metadata
from barnabas.storage.disk import OsDisk
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.partition_directories import PartitionDirectories, deleted_name


class Topic(NamedTuple):
    name: str
    partition_count: int = 20_000


class Topics:
    def __init__(self, **ids: int) -> None:
        self._ids = ids

    def topic(self, name: str) -> Topic | None:
        return Topic(name) if name in self._ids else None

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return next((Topic(name) for name, id in self._ids.items() if id == topic_id.int), None)


def made(path: Path, *names: str, topic_id: int = 1) -> LogDirectory:
    for name in names:
        (path / name).mkdir()
        metadata = encode_partition_metadata(uuid.UUID(int=topic_id))
        (path / name / "partition.metadata").write_bytes(metadata)
    return LogDirectory(OsDisk(), str(path))


def strays(path: Path) -> list[str]:
    return sorted(each.name.split(".")[0] for each in path.glob("*-stray"))


def test_all_of_kafkas_partitions_are_found(tmp_path: Path) -> None:
    partitions = PartitionDirectories(kafka_directory(tmp_path)).find(None)
    assert [str(each) for each in partitions] == sorted(
        path.name for path in KAFKA.iterdir() if path.is_dir()
    )


def test_kafkas_metadata_log_and_plain_files_are_left_alone(tmp_path: Path) -> None:
    log_dir = made(tmp_path, "__cluster_metadata-0", "lost+found")
    (tmp_path / "t-0").write_bytes(b"a file")
    assert PartitionDirectories(log_dir).find(None) == [] and strays(tmp_path) == []


def test_a_directory_that_is_being_deleted_is_told(tmp_path: Path) -> None:
    name = deleted_name("t", f"-0.{uuid.UUID(int=1).hex}-delete")
    directories = PartitionDirectories(made(tmp_path, name, "t-1"))
    assert directories.find(None) == [("t", 1)]
    assert directories.deleted == [f"{tmp_path}/{name}"]


@pytest.mark.parametrize("name", ["t-01", "..-0", "t-99999999"])
def test_names_that_no_partition_has_are_set_aside(tmp_path: Path, name: str) -> None:
    log_dir = made(tmp_path, "t-0", name)
    assert PartitionDirectories(log_dir).find(None) == [("t", 0)]
    assert len(list(tmp_path.glob("*-stray"))) == 1 and not (tmp_path / name).exists()


def test_a_high_number_is_a_partition_of_a_topic_that_has_as_many(tmp_path: Path) -> None:
    log_dir = made(tmp_path, "t-15000", "u-15000")
    assert PartitionDirectories(log_dir).find(Topics(t=1)) == [("t", 15_000)]
    assert strays(tmp_path) == ["u-15000"]


def test_a_copy_has_the_id_of_the_topic_that_it_was_made_of(tmp_path: Path) -> None:
    log_dir = made(tmp_path, "t-0", "t-0-20241122")
    assert PartitionDirectories(log_dir).find(Topics(t=1)) == [("t", 0)]
    assert strays(tmp_path) == ["t-0-20241122"]


def test_of_two_unknown_names_with_one_id_the_shorter_is_right(tmp_path: Path) -> None:
    log_dir = made(tmp_path, "t-0", "t-0-1")
    assert PartitionDirectories(log_dir).find(Topics()) == [("t", 0)]


def test_without_anybody_who_knows_topics_an_id_tells_nothing(tmp_path: Path) -> None:
    log_dir = made(tmp_path, "t-0", "u-0")
    assert PartitionDirectories(log_dir).find(None) == [("t", 0), ("u", 0)]


def test_the_longest_name_is_cut_and_not_its_ending() -> None:
    assert len(deleted_name("t" * 249, "-0." + "a" * 32 + "-delete")) == 255
