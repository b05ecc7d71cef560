"""Offset checkpoints, in the format of Apache Kafka 3.9."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_kafka_log import KAFKA

from barnabas.storage.directory.offset_checkpoints import OffsetCheckpoints
from barnabas.storage.disk import Data, OsDisk, run_at_once
from barnabas.storage.files.checkpoints import encode_offsets

NAME = "recovery-point-offset-checkpoint"


def test_kafkas_checkpoint_is_read_and_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes((KAFKA / NAME).read_bytes())
    checkpoints = OffsetCheckpoints(OsDisk(), str(tmp_path))
    offsets = checkpoints.read(NAME)
    assert offsets is not None and offsets["txn", 0] == 49 and len(offsets) == 9
    before = path.stat().st_ino
    checkpoints.write(NAME, offsets)
    assert path.stat().st_ino == before, (
        "an unchanged checkpoint is not replaced, so the inode is the same"
    )
    checkpoints.write(NAME, offsets, force=True)
    assert path.stat().st_ino != before
    assert path.read_bytes() == (KAFKA / NAME).read_bytes()


def test_a_changed_offset_is_written(tmp_path: Path) -> None:
    checkpoints = OffsetCheckpoints(OsDisk(), str(tmp_path))
    checkpoints.write(NAME, {("t", 0): 1})
    checkpoints.write(NAME, {("t", 0): 2})
    before = (tmp_path / NAME).stat().st_ino
    checkpoints.write(NAME, {("t", 0): 2})
    assert (tmp_path / NAME).stat().st_ino == before, "what was written itself is known as well"
    assert (tmp_path / NAME).read_bytes() == b"0\n1\nt 0 2\n"


def test_a_missing_or_truncated_checkpoint_is_none(tmp_path: Path) -> None:
    checkpoints = OffsetCheckpoints(OsDisk(), str(tmp_path))
    assert checkpoints.read(NAME) is None
    (tmp_path / NAME).write_bytes(b"0\n1\nt 0 1")
    assert checkpoints.read(NAME) is None


@pytest.mark.parametrize(("sync", "step"), [(True, "write and sync"), (False, "write")])
def test_a_checkpoint_is_flushed_only_on_request(tmp_path: Path, sync: bool, step: str) -> None:
    disk = RecordingDisk()
    OffsetCheckpoints(disk, str(tmp_path)).write(NAME, {("t", 0): 1}, sync=sync)
    assert disk.take_steps()[-1] == (step, NAME)


class FullDisk(OsDisk):
    """A disk that has no space for one kind of step."""

    refused = ""

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        self._check("write", path)
        super().write_atomic(path, data, sync=sync)

    def rename(self, old: str, new: str) -> None:
        self._check("rename", new)
        super().rename(old, new)

    def _check(self, step: str, path: str) -> None:
        if step == self.refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@pytest.mark.parametrize("again_in_steps", [False, True])
@pytest.mark.parametrize(
    ("in_steps", "refused"), [(False, "write"), (True, "write"), (True, "rename")]
)
def test_a_checkpoint_that_found_no_space_is_written_the_next_time(
    tmp_path: Path, in_steps: bool, refused: str, again_in_steps: bool
) -> None:
    """The file must be written although the offsets are the same as in the failed write."""
    disk = FullDisk()
    checkpoints = OffsetCheckpoints(disk, str(tmp_path))

    def write(offset: int, *, in_steps: bool) -> None:
        offsets = {("t", 0): offset}
        if in_steps:
            run_at_once(checkpoints.replace({NAME: encode_offsets(offsets)}))
        else:
            checkpoints.write(NAME, offsets)

    write(1, in_steps=False)
    disk.refused = refused
    with pytest.raises(OSError, match="No space"):
        write(2, in_steps=in_steps)
    assert OffsetCheckpoints(disk, str(tmp_path)).read(NAME) == {("t", 0): 1}
    disk.refused = ""
    write(2, in_steps=again_in_steps)
    assert OffsetCheckpoints(disk, str(tmp_path)).read(NAME) == {("t", 0): 2}


def test_an_unfinished_checkpoint_does_not_replace_a_later_one(tmp_path: Path) -> None:
    checkpoints = OffsetCheckpoints(OsDisk(), str(tmp_path))
    steps = checkpoints.replace({NAME: b"0\n1\nt 0 1\n"})
    next(steps)
    checkpoints.write(NAME, {("t", 0): 2})
    for files in steps:
        for file in files:
            file.fsync()
    assert (tmp_path / NAME).read_bytes() == b"0\n1\nt 0 2\n"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
