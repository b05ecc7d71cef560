"""The files that the sink reads from a query's checkpoint, and the file that it writes there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from barnabas.spark_connector.write.checkpoint import (
    NAME,
    Checkpoint,
    CheckpointError,
    CheckpointPlace,
)
from barnabas.spark_connector.write.deduplication import PlannedBatch, Trail

ID = "the-query"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "session" / "ck"
    (place / "offsets").mkdir(parents=True)
    (place / "metadata").write_text(json.dumps({"id": ID}))
    (place / "offsets" / "3").write_text("v1\n{}\n{}")
    (place / "offsets" / "4").write_text("v1\n{}\n{} ")
    return place


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_trail_comes_back(directory: Path, scheme: str) -> None:
    """The trail (the group, the run and the planned batches that the sink notes in the checkpoint)
    is read as it was written, and needs one file.
    """
    checkpoint = Checkpoint(f"{scheme}{directory}", ID)
    before = sorted(path.name for path in directory.iterdir())
    assert checkpoint.trail() == Trail()
    for trail in (
        Trail("g", "run"),
        Trail("g", "run", PlannedBatch(3, "a")),
        Trail("g", "run 2", PlannedBatch(4, "b"), PlannedBatch(3, "a")),
        Trail("g", "run 3", PlannedBatch(3, ""), is_complete=False),
    ):
        checkpoint.write(trail)
        assert checkpoint.trail() == checkpoint.lineage().trail == trail
    assert sorted(path.name for path in directory.iterdir()) == sorted([*before, NAME])


def test_the_file_of_an_earlier_release(directory: Path) -> None:
    (directory / NAME).write_text('{"version": 1, "group": "g", "batch": 3, "state": "done"}')
    trail = Checkpoint(str(directory), ID).trail()
    assert trail == Trail("g", begun=PlannedBatch(3, ""), is_complete=False)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"version": 2}', '{"version": 1, "batch": "x"}']
)
def test_a_damaged_trail_is_an_error(directory: Path, text: str) -> None:
    (directory / NAME).write_text(text)
    with pytest.raises(CheckpointError, match=f"the file {NAME} in the checkpoint .* is damaged"):
        Checkpoint(str(directory), ID).trail()


def test_the_plan_of_a_batch(directory: Path) -> None:
    checkpoint = Checkpoint(str(directory), ID)
    plan = checkpoint.plan_of_batch(3, check_id=True)
    assert plan == checkpoint.plan_of(3) != checkpoint.plan_of(4)
    assert checkpoint.plan_of(2) == "", "Spark has deleted it, or it is another checkpoint's"


def test_what_should_be_there_and_is_not_is_an_error(directory: Path) -> None:
    """The files are missing if Spark's checkpoint is on a different file system than the one that
    the sink reads.
    """
    checkpoint = Checkpoint(str(directory), ID)
    says = r"has no file offsets/5, .*checkpointLocation as a URI.*compareCheckpoint=false"
    with pytest.raises(CheckpointError, match=says):
        checkpoint.plan_of_batch(5, check_id=False)
    (directory / "offsets" / "3").unlink()
    with pytest.raises(CheckpointError, match="has no file offsets/3"):
        checkpoint.plan_of_batch(3, check_id=False)
    with pytest.raises(CheckpointError, match="belongs to query the-query, where that of query q"):
        Checkpoint(str(directory), "q").plan_of_batch(4, check_id=True)
    with pytest.raises(CheckpointError, match="has no file metadata of Spark's"):
        Checkpoint(str(directory / "offsets"), ID).plan_of_batch(4, check_id=True)


@pytest.mark.parametrize("location", ["unknown://host/x", "relative", "hdfs://127.0.0.1:1/x"])
def test_what_cannot_be_read_is_an_error(location: str) -> None:
    checkpoint = Checkpoint(location, ID)
    for read in (
        checkpoint.trail,
        lambda: checkpoint.plan_of(3),
        lambda: checkpoint.plan_of_batch(3, check_id=True),
    ):
        with pytest.raises(CheckpointError, match=r"cannot be read: .*compareCheckpoint=false"):
            read()
    with pytest.raises(CheckpointError, match="cannot be written into the checkpoint at"):
        checkpoint.write(Trail("g"))


def test_a_directory_where_a_file_should_be_is_an_error(directory: Path) -> None:
    (directory / NAME).mkdir()
    with pytest.raises(CheckpointError, match="cannot be read"):
        Checkpoint(str(directory), ID).trail()


def test_a_checkpoint_of_a_random_name_is_found_by_the_querys_id(directory: Path) -> None:
    root = directory.parent
    for name in ("barnabas-spool", "other", "empty"):
        (root / name).mkdir()
    (root / "other" / "metadata").write_text('{"id": "another"}')
    found = Checkpoint.at(CheckpointPlace(root=str(root)), ID)
    assert found.plan_of(3) == Checkpoint(str(directory), ID).plan_of(3) != ""
    assert Checkpoint.at(CheckpointPlace(str(directory)), ID).plan_of(3) == found.plan_of(3)
    with pytest.raises(CheckpointError, match=r"no directory in .* is the checkpoint of query q"):
        Checkpoint.at(CheckpointPlace(root=str(root)), "q")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Checkpoint.at(CheckpointPlace(root=str(root / "missing")), ID)
    with pytest.raises(CheckpointError, match="Give the option checkpointLocation"):
        Checkpoint.at(CheckpointPlace(), ID)
