"""A copy of a data directory for Kafka, beside the original.

Neither broker writes to the log file of a closed segment again, so the copy may have a hard link to
it. All other files (the active segment, indexes, checkpoints) are written to, and so are copied; if
the file system can clone files (Btrfs, XFS), all are cloned.

    what                                              in the copy
    <topic>-<partition>/ and its files                all but segments.manifest, barnabas-not-sent
    meta.properties, checkpoints, the journal,        unchanged
    .kafka_cleanshutdown, barnabas-leader-epoch
    .lock, barnabas-boot-id, flush journals, and      left out
    what else `stays_behind` (`data_files`);
    directories that are being deleted,
    Kafka's earlier metadata

The copy contains `barnabas-unfinished` until it is complete. A copy without this file is never
removed.

This module uses the file system directly, not through `Disk`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator

from barnabas.graduation.survey import GraduationError
from barnabas.storage.directory.graduated import KAFKA_METADATA_NAME
from barnabas.storage.files.data_files import kind_of
from barnabas.storage.files.segment_files import LOG_SUFFIX

UNFINISHED_NAME = "barnabas-unfinished"
_FICLONE = 0x40049409  # linux/fs.h
_SEGMENT = re.compile(r"\d{20}" + re.escape(LOG_SUFFIX))


def copy_directory(source: str, target: str, advance: Callable[[int], None]) -> None:
    """Copy a directory to a target that does not exist yet. `sync_file_system` makes the copy
    durable.

    Takes:  advance, which is called with the size in bytes of each file.
    Raises: OSError.
    """
    os.mkdir(target, 0o700)
    with open(f"{target}/{UNFINISHED_NAME}", "xb"):
        pass  # this file permits `remove_unfinished_copy` to remove the copy
    for name in sorted(os.listdir(source)):
        path = f"{source}/{name}"
        if name == KAFKA_METADATA_NAME or _stays_behind(name):
            continue
        if not os.path.isdir(path):
            _copy_file(path, f"{target}/{name}")
        elif not name.endswith(("-delete", "-stray")):
            os.mkdir(f"{target}/{name}", 0o700)
            for file, is_closed in _files(path):
                _copy_file(f"{path}/{file}", f"{target}/{name}/{file}", may_link=is_closed)
                advance(os.path.getsize(f"{path}/{file}"))


def remove_unfinished_copy(target: str) -> None:
    """Remove an unfinished copy. Raises: GraduationError if the target is something else;
    OSError.
    """
    try:
        names = os.listdir(target)
    except FileNotFoundError:
        return
    if names and UNFINISHED_NAME not in names:
        raise GraduationError(
            f"{target} exists, and is not an unfinished copy of `barnabas graduate`: move it away"
        )
    shutil.rmtree(target)


def _stays_behind(path: str) -> bool:
    """Whether a file of the data directory is not copied."""
    kind = kind_of(path)
    return kind is not None and kind.stays_behind


def _files(directory: str) -> Iterator[tuple[str, bool]]:
    """The files of a partition, and for each whether it is the log file of a closed segment."""
    names = sorted(os.listdir(directory))
    last = max((name for name in names if _SEGMENT.fullmatch(name)), default="")
    for name in names:
        if not _stays_behind(f"{os.path.basename(directory)}/{name}"):
            yield name, bool(_SEGMENT.fullmatch(name)) and name != last


def _copy_file(source: str, target: str, *, may_link: bool = False) -> None:
    """Copy a file by the cheapest means: as a clone that shares its blocks, as a hard link if
    `may_link` (the file never changes), or byte by byte.
    """
    if _is_cloned(source, target):
        return
    if may_link:
        try:
            os.link(source, target)
            return
        except OSError:  # the target is on another file system, or on one without links
            pass
    shutil.copy2(source, target)


def _is_cloned(source: str, target: str) -> bool:
    """Try to clone the file. Gives: whether it was cloned; if not, the target does not exist."""
    with open(source, "rb") as whole, open(target, "xb") as clone:
        try:
            fcntl.ioctl(clone.fileno(), _FICLONE, whole.fileno())
        except OSError:
            os.unlink(target)
            return False
    shutil.copystat(source, target)
    return True
