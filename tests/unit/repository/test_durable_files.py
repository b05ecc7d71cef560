"""The small files that must be durable before the broker continues. Each is written by a call that
makes it durable, and each of these calls has an entry in the table WRITES.
"""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.places import ROOT
from helpers.recording_disk import RecordingDisk
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, new_log, open_manager

from barnabas.broker.transactions.unwritten_markers import (
    UNWRITTEN_MARKERS_NAME,
    UnwrittenMarker,
    UnwrittenMarkers,
)
from barnabas.replication.following import AnswersWait, StandbyNote
from barnabas.storage.directory.meta_properties import MetaProperties, take_directory
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    META_PROPERTIES_NAME,
    NO_TOPIC_ID,
    PARTITION_METADATA_NAME,
    STANDBY_NOTE_NAME,
)
from barnabas.storage.files.leader_epochs import HIGHEST_EPOCH_NAME, HighestEpoch
from barnabas.storage.log_config import LogConfig
from barnabas.storage.opening.last_run import BOOT_ID_NAME, RunNote

PRODUCT = ("barnabas", "broker", "coordinator", "protocol", "storage", "spark_connector")

# Calls that other tests cover, which restart after a power loss or check the order of steps.
SEEN_ELSEWHERE = {
    "broker/settings/deletion.py:write": "unit/broker/settings/test_deletion.py",
    "barnabas/graduation/steps.py:hand_over": "unit/barnabas/graduation/test_steps.py",
    "storage/cleaning/segment_swap.py:_manifest_after": "property/test_storage_cleaner.py",
    "storage/cleaning/segment_swap.py:_complete": "unit/storage/cleaning/test_segment_swap.py",
    "storage/directory/offset_checkpoints.py:write": (
        "unit/storage/directory/test_offset_checkpoints.py"
    ),
}
SYNCED_WITH_THE_COPY = {"barnabas/replication/member_steps.py:_take_directory"}
PASSED_ON = {  # callers choose whether the write is synced
    "barnabas/test_control/forgetful_disk.py:write_atomic",
    "barnabas/replication/replicated_disk.py:write_atomic",
}

Write = Callable[[RecordingDisk, str], None]


def _add_a_marker(disk: RecordingDisk, data_dir: str) -> None:
    marker = UnwrittenMarker("t", 0, TOPIC_ID.bytes, 7, 0, 0, True, NOW_MS)
    UnwrittenMarkers(disk, data_dir).add([marker])


def _stop(disk: RecordingDisk, data_dir: str) -> None:
    open_manager(Path(data_dir), disk=disk).close(NOW_MS)


def _adopt_a_topic_id(disk: RecordingDisk, data_dir: str) -> None:
    manager = open_manager(Path(data_dir), disk=disk)
    log = manager.create("t", 0, NO_TOPIC_ID, LogConfig(), NOW_MS)
    log.files.make()
    disk.take_steps()
    log.adopt_topic_id(uuid.UUID(int=5))


def _find_the_topic_id_in_the_manifest(disk: RecordingDisk, data_dir: str) -> None:
    manager, log = new_log(data_dir)
    log.append(batch([b"v"]), now_ms=NOW_MS)
    manager.close(NOW_MS)
    Path(log.directory, PARTITION_METADATA_NAME).unlink()
    open_manager(data_dir, disk=disk)


WRITES: dict[str, tuple[str, Write]] = {
    "storage/files/leader_epochs.py:write": (
        HIGHEST_EPOCH_NAME,
        lambda disk, data_dir: HighestEpoch(disk, data_dir).write(17),
    ),
    "storage/opening/last_run.py:write": (
        BOOT_ID_NAME,
        lambda disk, data_dir: RunNote(disk, data_dir).write(),
    ),
    "storage/directory/meta_properties.py:take_directory": (
        META_PROPERTIES_NAME,
        lambda disk, data_dir: take_directory(disk, data_dir, MetaProperties(1, "c", "d")),
    ),
    "storage/directory/log_manager.py:close": (CLEAN_SHUTDOWN_NAME, _stop),
    "storage/log/log_files.py:adopt": (PARTITION_METADATA_NAME, _adopt_a_topic_id),
    "storage/opening/partition_files.py:_read_topic_id": (
        PARTITION_METADATA_NAME,
        _find_the_topic_id_in_the_manifest,
    ),
    "broker/transactions/unwritten_markers.py:_write": (UNWRITTEN_MARKERS_NAME, _add_a_marker),
    "barnabas/replication/following.py:_write": (
        STANDBY_NOTE_NAME,
        lambda disk, data_dir: StandbyNote(disk, data_dir).write_following(AnswersWait.ALWAYS),
    ),
}


@pytest.mark.parametrize("call", WRITES)
def test_each_such_file_is_durable_when_its_write_returns(tmp_path: Path, call: str) -> None:
    """Without this, a power loss could restore the former file. An epoch would be assigned twice,
    an old mark of a clean stop would be trusted, or a missing marker would be forgotten.
    """
    name, write = WRITES[call]
    disk = RecordingDisk()
    write(disk, str(tmp_path))
    assert [step for step in disk.take_steps() if step[1] == name][-1:] == [
        ("write and sync", name)
    ]


def test_each_durable_write_of_the_product_has_its_test() -> None:
    durable: set[str] = set()
    for path in (path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if _is_durable_write(call):
                    durable.add(f"{path.relative_to(ROOT).as_posix()}:{function.name}")
    assert durable == {*WRITES, *SEEN_ELSEWHERE, *SYNCED_WITH_THE_COPY, *PASSED_ON}, (
        "add a new write to WRITES, or to SEEN_ELSEWHERE with the test that shows it durable"
    )
    for test in SEEN_ELSEWHERE.values():
        assert (ROOT / "tests" / test).is_file()


def _is_durable_write(node: ast.AST) -> bool:
    """Whether a write makes its file durable, or leaves this decision to its caller."""
    if not (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "write_atomic"
    ):
        return False
    sync = next((one.value for one in node.keywords if one.arg == "sync"), None)
    return not (isinstance(sync, ast.Constant) and sync.value is False)
