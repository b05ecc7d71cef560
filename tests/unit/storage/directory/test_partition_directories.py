"""Which directories are partitions, according to Kafka's names and to their content."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_kafka_log import KAFKA, kafka_directory

from barnabas.storage.directory.partition_directories import PartitionDirectories, deleted_name
from barnabas.storage.disk import Disk, OsDisk
from barnabas.storage.files.checkpoints import encode_partition_metadata
from barnabas.storage.log.log_directory import LogDirectory, LogDirectoryError


class Topic(NamedTuple):
    name: str
    partition_count: int = 20_000


class Topics:
    is_torn = False

    def __init__(self, **ids: int) -> None:
        self._ids = ids

    @property
    def topics(self) -> dict[str, Topic]:
        return {name: Topic(name) for name in self._ids}

    def topic(self, name: str) -> Topic | None:
        return Topic(name) if name in self._ids else None

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return next((Topic(name) for name, id in self._ids.items() if id == topic_id.int), None)


def made(path: Path, *names: str, topic_id: int = 1, disk: Disk | None = None) -> LogDirectory:
    """Make partition directories with this topic id. Gives the data directory."""
    for name in names:
        (path / name).mkdir()
        metadata = encode_partition_metadata(uuid.UUID(int=topic_id))
        (path / name / "partition.metadata").write_bytes(metadata)
    return LogDirectory(disk or OsDisk(), str(path))


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


def test_a_directory_that_is_being_deleted_is_listed_separately(tmp_path: Path) -> None:
    name = deleted_name("t", f"-0.{uuid.UUID(int=1).hex}-delete")
    directories = PartitionDirectories(made(tmp_path, name, "t-1"))
    assert directories.find(None) == [("t", 1)]
    assert directories.deleted == [f"{tmp_path}/{name}"]


@pytest.mark.parametrize("name", ["t-01", "..-0", "t-99999999"])
def test_invalid_partition_names_are_set_aside(tmp_path: Path, name: str) -> None:
    log_dir = made(tmp_path, "t-0", name)
    assert PartitionDirectories(log_dir).find(None) == [("t", 0)]
    assert len(list(tmp_path.glob("*-stray"))) == 1 and not (tmp_path / name).exists()


def test_a_high_number_is_a_partition_of_a_topic_that_has_as_many(tmp_path: Path) -> None:
    log_dir = made(tmp_path, "t-15000", "u-15000")
    assert PartitionDirectories(log_dir).find(Topics(t=1)) == [("t", 15_000)]
    assert strays(tmp_path) == ["u-15000"]


@pytest.mark.parametrize("lower", ["u-0", "t-0"])
def test_with_a_lost_journal_a_high_number_with_an_id_is_not_set_aside(
    tmp_path: Path, lower: str
) -> None:
    """A partition gets its directory only with its first batch, so 15,000 lower directories may be
    missing.
    """
    log_dir = made(tmp_path, lower, "t-15000")
    with pytest.raises(LogDirectoryError, match="t-15000 may be a partition, or a copy of one"):
        PartitionDirectories(log_dir).find(Topics())
    assert strays(tmp_path) == []
    (tmp_path / "t-15000" / "partition.metadata").unlink()
    assert PartitionDirectories(log_dir).find(Topics()) == [(lower[0], 0)]
    assert strays(tmp_path) == ["t-15000"]


def test_with_a_torn_journal_a_high_number_with_an_id_is_not_set_aside(tmp_path: Path) -> None:
    """The torn change may have created the topic. Directories of known topics are found in any
    case.
    """
    log_dir = made(tmp_path, "u-0", "t-15000")
    topics = Topics(u=2)
    topics.is_torn = True
    with pytest.raises(LogDirectoryError, match="ends in an incomplete change"):
        PartitionDirectories(log_dir).find(topics)
    assert strays(tmp_path) == []


def test_a_copy_has_the_id_of_the_topic_that_it_was_made_of(tmp_path: Path) -> None:
    log_dir = made(tmp_path, "t-0", "t-0-20241122")
    assert PartitionDirectories(log_dir).find(Topics(t=1)) == [("t", 0)]
    assert strays(tmp_path) == ["t-0-20241122"]


@pytest.mark.parametrize(("right", "copy"), [("t-0", "t-0-1"), ("t-0", "a.copy-0")])
def test_of_two_unknown_names_with_one_id_the_shorter_is_right(
    tmp_path: Path, right: str, copy: str
) -> None:
    log_dir = made(tmp_path, right, copy)
    assert PartitionDirectories(log_dir).find(Topics()) == [("t", 0)]
    assert not (tmp_path / copy).exists()


def test_with_a_lost_journal_a_foreign_directory_does_not_set_a_topic_aside(tmp_path: Path) -> None:
    """A directory of topic u has the name t-1. Topic u keeps its own directories, and t gets the id
    that most of its directories have.
    """
    log_dir = made(tmp_path, "t-0", "t-2")
    made(tmp_path, "t-1", "u-0", topic_id=2)
    found = PartitionDirectories(log_dir).find(Topics())
    assert found == [("t", 0), ("t", 1), ("t", 2), ("u", 0)] and strays(tmp_path) == []


def test_with_a_lost_journal_two_equally_long_names_with_one_id_are_an_error(
    tmp_path: Path,
) -> None:
    log_dir = made(tmp_path, "t-0", "u-0")
    with pytest.raises(LogDirectoryError, match="u-0 may be a partition, or a copy of one"):
        PartitionDirectories(log_dir).find(Topics())
    assert strays(tmp_path) == []
    assert PartitionDirectories(log_dir).find(Topics(w=7)) == [("t", 0)]


def test_of_a_known_and_an_unknown_name_with_one_id_the_known_is_right(tmp_path: Path) -> None:
    log_dir = made(tmp_path, "longer-0", "t-0")
    assert PartitionDirectories(log_dir).find(Topics(longer=1)) == [("longer", 0)]


def test_a_known_topic_keeps_its_directory_regardless_of_the_id_in_it(tmp_path: Path) -> None:
    """The directory may be left over from an earlier topic with the same name. The id is checked
    when the log is opened.
    """
    log_dir = made(tmp_path, "t-0", topic_id=2)
    assert PartitionDirectories(log_dir).find(Topics(t=1, u=2)) == [("t", 0)]


@pytest.mark.parametrize(
    ("lower", "number", "is_there"),
    [
        (None, 10_000, True),
        (None, 10_001, False),
        (0, 10_001, True),
        (0, 10_002, False),
        (5, 10_006, True),
        (5, 10_007, False),
    ],
)
def test_at_most_ten_thousand_partitions_may_be_missing_below_an_unknown_one(
    tmp_path: Path,
    lower: int | None,
    number: int,
    is_there: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If the other partitions are on another broker, gaps in the numbers are normal."""
    numbers = [number] if lower is None else [lower, number]
    log_dir = made(tmp_path, *(f"t-{each}" for each in numbers))
    found = PartitionDirectories(log_dir).find(None)
    assert found == [("t", each) for each in (numbers if is_there else numbers[:-1])]
    reported = (
        "t has no partition with a lower number"
        if lower is None
        else f"the highest number of a partition of t below it is {lower};"
    )
    assert (reported in caplog.text) is not is_there


@pytest.mark.parametrize(("number", "is_there"), [(19_999, True), (20_000, False)])
def test_a_topic_has_the_numbers_below_its_count_of_partitions(
    tmp_path: Path, number: int, is_there: bool
) -> None:
    log_dir = made(tmp_path, f"t-{number}")
    assert PartitionDirectories(log_dir).find(Topics(t=1)) == ([("t", number)] if is_there else [])


def test_the_log_says_of_which_topic_a_directory_is_a_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the partition number in the name is also far too high, this is not reported."""
    PartitionDirectories(made(tmp_path, "t-0", "t-0-20241122")).find(Topics(t=1))
    assert "its partition.metadata names the topic t;" in caplog.text
    assert "no partition with a lower number" not in caplog.text


@pytest.mark.parametrize(("length", "is_there"), [(249, True), (250, False)])
def test_a_topic_has_249_letters_at_most(tmp_path: Path, length: int, is_there: bool) -> None:
    """Apache Kafka has the same limit."""
    name = "t" * length
    found = PartitionDirectories(made(tmp_path, f"{name}-0")).find(None)
    assert found == ([(name, 0)] if is_there else [])


def test_a_directory_is_set_aside_durably_under_a_unique_name(tmp_path: Path) -> None:
    for _ in range(3):
        disk = RecordingDisk()
        PartitionDirectories(made(tmp_path, "t-01", disk=disk)).find(None)
        operations = [(step, name.startswith("t-01.")) for step, name in disk.take_steps()]
        assert operations == [("rename to", True), ("fsync_dir", False)]
    assert strays(tmp_path) == ["t-01"] * 3


def test_without_anybody_who_knows_topics_an_id_tells_nothing(tmp_path: Path) -> None:
    log_dir = made(tmp_path, "t-0", "u-0")
    assert PartitionDirectories(log_dir).find(None) == [("t", 0), ("u", 0)]


def test_the_longest_name_is_cut_and_not_its_ending() -> None:
    assert len(deleted_name("t" * 249, "-0." + "a" * 32 + "-delete")) == 255
