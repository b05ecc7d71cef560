"""Which broker owns a data directory, according to the three files of a hand-over. The tests follow
the table of the module row by row.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk

from barnabas.protocol.records import NewRecord, encode_batch, encode_marker
from barnabas.storage.directory.bootstrap_checkpoint import mark_of
from barnabas.storage.directory.graduated import (
    BOOTSTRAP_NAME,
    GIVEN_NAME,
    KAFKA_METADATA_NAME,
    MARK_NAME,
    check_is_ours,
    is_graduated,
)
from barnabas.storage.disk import OsDisk
from barnabas.storage.log.log_directory import LogDirectoryError

BOOTSTRAP = b"records"


@pytest.mark.parametrize(
    ("mark", "bootstrap", "has_metadata", "graduated"),
    [
        (None, None, False, False),
        (None, BOOTSTRAP, True, False),
        (None, BOOTSTRAP, False, False),
        (mark_of(BOOTSTRAP), None, False, False),
        (mark_of(BOOTSTRAP), b"others", False, False),
        (mark_of(BOOTSTRAP), BOOTSTRAP, False, True),
        (mark_of(BOOTSTRAP), None, True, True),
        (mark_of(BOOTSTRAP), BOOTSTRAP, True, True),
    ],
)
def test_whose_a_directory_is(
    tmp_path: Path, mark: bytes | None, bootstrap: bytes | None, has_metadata: bool, graduated: bool
) -> None:
    if mark is not None:
        (tmp_path / MARK_NAME).write_bytes(mark)
    if bootstrap is not None:
        (tmp_path / BOOTSTRAP_NAME).write_bytes(bootstrap)
    if has_metadata:
        (tmp_path / KAFKA_METADATA_NAME).mkdir()
    disk = OsDisk()
    assert is_graduated(disk, str(tmp_path)) is graduated
    if graduated:
        with pytest.raises(LogDirectoryError, match="handed over to Apache Kafka"):
            check_is_ours(disk, str(tmp_path))
    else:
        check_is_ours(disk, str(tmp_path))
        assert not (tmp_path / MARK_NAME).exists()


def records(*values: bytes) -> bytes:
    return bytes(encode_batch([NewRecord(None, value, 5) for value in values]))


# frame version, API key, and further bytes
FEATURES, TOPIC = b"\x01\x0c\0feature", b"\x01\x02\0topic"
GIVEN = records(FEATURES, TOPIC)
MARKER = bytes(
    encode_marker(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=5)
)


@pytest.mark.parametrize(
    ("bootstrap", "is_kafkas"),
    [
        (GIVEN, True),
        (MARKER + records(FEATURES) + records(TOPIC), True),
        (records(FEATURES) + MARKER, False),
        (b"", False),
        (GIVEN[:-1], False),
        (GIVEN[:-1] + b"\1", False),
        (records(FEATURES) + GIVEN[:-1] + b"\1", False),
        (records(TOPIC[:1], b"", TOPIC[1:]), False),
    ],
    ids=["topics", "later", "features", "empty", "cut", "damaged", "damaged later", "others"],
)
def test_after_a_loss_of_the_mark_the_topics_of_the_bootstrap_file_tell(
    tmp_path: Path, bootstrap: bytes, is_kafkas: bool
) -> None:
    """Only a readable bootstrap file with topics proves a hand-over. The bootstrap file that Kafka
    writes has no topics.
    """
    (tmp_path / BOOTSTRAP_NAME).write_bytes(bootstrap)
    assert not is_graduated(OsDisk(), str(tmp_path)), "Kafka has not started there"
    (tmp_path / KAFKA_METADATA_NAME).mkdir()
    assert is_graduated(OsDisk(), str(tmp_path)) is is_kafkas


def test_java_and_we_keep_each_other_out(tmp_path: Path) -> None:
    """Java's FileChannel.tryLock uses the lock of fcntl(2), which applies between processes."""
    lock = OsDisk().lock(str(tmp_path / ".lock"))
    code = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    lock.release()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_mark_of_a_hand_over_that_was_cut_short_goes_last(tmp_path: Path) -> None:
    """If this start is killed, the mark is still there, so the next start continues the work."""
    for name in (MARK_NAME, GIVEN_NAME):
        (tmp_path / name).write_bytes(mark_of(BOOTSTRAP))
    disk = RecordingDisk()
    check_is_ours(disk, str(tmp_path))
    assert disk.take_steps() == [("unlink", GIVEN_NAME), ("unlink", MARK_NAME)]
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_was_handed_over_nothing_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / GIVEN_NAME).write_bytes(b"somebody's")
    check_is_ours(OsDisk(), str(tmp_path))
    assert (tmp_path / GIVEN_NAME).read_bytes() == b"somebody's"
