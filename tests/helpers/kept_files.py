"""A check that a log's state agrees with its files: no file is unknown or missing, and no state of
a deleted segment is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.replication.operations import is_stray
from barnabas.storage.directory.graduated import KAFKA_METADATA_NAME
from barnabas.storage.disk import Disk
from barnabas.storage.files.data_files import kind_of
from barnabas.storage.files.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
)
from barnabas.storage.log.log import Log


def wrong_files(broker: Any) -> list[str]:
    """The differences between the state of the broker's logs and their files.

    Takes: broker, an idle broker.
    """
    logs = broker.routes.parts.logs
    found: list[str] = []
    trash = {path for _, path in logs.log_dir.trash._heap}
    present = set()
    for log in logs.logs.values():
        present |= {id(segment.indexes) for segment in log.segments}
        found += _wrong_in_memory(log)
        if log.files.are_made and logs.disk.is_dir(log.directory):
            found += _wrong_on_disk(log, logs.disk.list(log.directory), trash)
    found += unknown_files(logs.disk, logs.data_dir)
    found += [
        f"indexes of a segment that is gone are kept: {indexes!r}"
        for indexes, _ in logs.cache._entries.values()
        if id(indexes) not in present
    ]
    return found


def unknown_files(disk: Disk, data_dir: str) -> Iterator[str]:
    """The files of a data directory, and of its partitions, that have no row in the table of
    files.
    """
    for name in disk.list(data_dir):
        if not disk.is_dir(f"{data_dir}/{name}"):
            paths = [name]
        elif name == KAFKA_METADATA_NAME or is_stray(name):
            continue
        else:
            paths = [f"{name}/{file}" for file in disk.list(f"{data_dir}/{name}")]
        for path in paths:
            if kind_of(path) is None:
                yield f"{path} has no row in storage/files/data_files.py: add one for its kind"


def _wrong_in_memory(log: Log) -> Iterator[str]:
    """The parts of a log's state in memory that refer to files or segments that no longer exist."""
    if log.snapshots.sound_offset not in (-1, *log.snapshots.offsets):
        yield f"{log!r}: the sound snapshot, of {log.snapshots.sound_offset}, is gone"
    gone = [one for one in log.durability._unflushed if one not in list(log.segments)]
    if gone:
        yield f"{log!r}: segments that are gone are to be flushed: {gone}"
    if log.durability.recovery_point > log.log_end_offset:
        yield f"{log!r}: it is durable up to {log.durability.recovery_point}, and has no more"


def _wrong_on_disk(log: Log, names: list[str], trash: set[str]) -> Iterator[str]:
    """The differences between a log and the names in its directory."""
    held = [int(name[:20]) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
    if held != sorted(log.snapshots.offsets):
        yield f"{log!r}: it has snapshots of {held}, and knows {log.snapshots.offsets}"
    bases = [int(name[:20]) for name in names if name.endswith(LOG_SUFFIX)]
    if bases != [segment.base_offset for segment in log.segments]:
        yield f"{log!r}: it has files of the segments {bases}"
    for name in names:
        if name.endswith(DELETED_SUFFIX) and f"{log.directory}/{name}" not in trash:
            yield f"{log!r}: nothing deletes {name}"
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
            yield f"{log!r}: it keeps {name}"
