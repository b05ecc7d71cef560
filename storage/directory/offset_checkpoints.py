"""The checkpoints of a data directory: an offset of each partition, in a file that is replaced.

    recovery-point-offset-checkpoint    everything below is durable in the log's own files
    log-start-offset-checkpoint         the log's start, if not 0
    replication-offset-checkpoint       the high watermark

A file is durable when `write` returns. Its format is the table at the head of `checkpoints`.
"""

from __future__ import annotations

import logging

from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    CorruptCheckpoint,
    Offsets,
    decode_offsets,
    encode_offsets,
)

logger = logging.getLogger(__name__)


class OffsetCheckpoints:
    """The offset checkpoints of one data directory; an unchanged file is not written.

    _contents: the content of each file, as last read or written.
    """

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._contents: dict[str, bytes] = {}

    def read(self, name: str) -> Offsets | None:
        """The offsets of a checkpoint; None where it is missing or damaged."""
        path = f"{self._data_dir}/{name}"
        try:
            data = self._disk.read(path)
            offsets = decode_offsets(data)
        except FileNotFoundError:
            return None
        except CorruptCheckpoint as error:
            logger.warning(
                "%s cannot be used (%s): the logs are checked from further back", path, error
            )
            return None
        self._contents[name] = data
        return offsets

    def write(self, name: str, offsets: Offsets, *, force: bool = False, sync: bool = True) -> None:
        """Write a checkpoint, if it changes or with `force`."""
        data = encode_offsets(offsets)
        if force or self._contents.get(name) != data:
            self._disk.write_atomic(f"{self._data_dir}/{name}", data, sync=sync)
            self._contents[name] = data
