"""Stores the start offsets of logs: in a checkpoint, and in each log's manifest."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.storage.directory.offset_checkpoints import OffsetCheckpoints
from barnabas.storage.disk import is_out_of_resources, not_written
from barnabas.storage.files.checkpoints import LOG_START_NAME, Offsets
from barnabas.storage.log.log_directory import LogDirectory

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.storage.directory.log_manager")


class LogStarts(ABC):
    """The part of `LogManager` that stores the starts of its logs.

    raised: logs whose starts retention has raised, for the caller of `on_tick`, who empties the
    list: a fetch may wait below the new start. _offline_starts: the starts of logs that are
    offline, which remain unchanged in the checkpoint.
    """

    def __init__(self, log_dir: LogDirectory) -> None:
        self.log_dir = log_dir
        self.logs: dict[tuple[str, int], Log] = {}
        self._checkpoints = OffsetCheckpoints(log_dir.disk, log_dir.data_dir)
        self._offline_starts: Offsets = {}
        self.raised: list[Log] = []

    @abstractmethod
    def write_starts(self) -> None:
        """Store the changed log start offsets."""

    def _starts(self) -> Offsets:
        return self._offline_starts | {
            key: log.log_start_offset for key, log in self.logs.items() if log.log_start_offset
        }

    def raise_starts(self, starts: Mapping[Log, int]) -> None:
        """Raise the starts of logs, up to their high watermarks.

        The new starts are durable before readers can see them, since they must never move back.

        Raises: NotWrittenError without disk space, in which case no start is raised.
        """
        ahead = {(log.topic, log.partition): start for log, start in starts.items()}
        try:
            self._checkpoints.write(LOG_START_NAME, self._starts() | ahead)
        except OSError as error:
            raise not_written(error) from error
        for log, start in starts.items():
            log.delete_records_before(start)
        try:
            self.write_starts()
        # The manifests get the starts later. Until then, a start of the broker uses the greater of
        # the two values.
        except OSError as error:
            if not is_out_of_resources(error):
                raise

    def _write_changed_starts(self) -> None:
        """Store the log starts. If the disk is full, files are deleted nevertheless.

        The deletion of segments frees space for the next attempt. A log start within a segment is
        already stored (`raise_starts`).
        """
        changed = [self.logs[key] for key in sorted(self.log_dir.changed_starts)]
        self.raised += changed
        try:
            self.write_starts()
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            logger.warning("the starts of %s wait for space: %s", changed, error)
            self.log_dir.changed_starts.clear()
            for log in changed:
                self.log_dir.disk.fsync_dir(log.directory)
