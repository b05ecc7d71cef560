"""The periodic work on logs. Each call does only a part of it, since requests have to be served in
between.

    task         interval                                      at most in one call
    retention    retention_check_interval_ms, all logs         1,000 logs; a deleted segment counts
                                                               as 30; 34 segments of one log
    expiry       producer_expiration_check_interval_ms, all    1,000 logs; 20 producers count as one
                                                               more; 2,000 forgotten producers
    checkpoint   producer_snapshot_interval_ms after a log     8 logs; 500 producers as one more
                 first differs from its last one; immediately
                 for the largest, if all together have more
                 than most_unread_bytes, and for logs of
                 which a start read MUCH_READ_BYTES
    deletion     renamed files, when they are due              64 files, 8 directories

If the disk has less than LITTLE_SPACE_BYTES free, a start removes all directories of deleted
partitions before it writes. Otherwise these directories are due immediately after the start.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.storage.disk import is_out_of_descriptors, is_out_of_resources
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log_directory import ChangedLog, LogDirectory
from barnabas.storage.log.trash import Trash
from barnabas.storage.log_config import LogManagerConfig
from barnabas.storage.segments.index_cache import BuildDeferred

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log

# To read this many bytes of a log takes longer than to write its checkpoint.
MUCH_READ_BYTES = 1 << 20
LITTLE_SPACE_BYTES = 64 << 20

_CHECKPOINTS_AT_ONCE = 8
_PRODUCERS_AS_A_CHECKPOINT = 500
_CHECK_INTERVAL_MS = 1000
_LOGS_AT_ONCE = 1000
_LOGS_AS_A_SEGMENT, _SEGMENTS_AT_ONCE = 30, 34
_PRODUCERS_AS_A_LOG, _EXPIRED_AT_ONCE = 20, 2000
_FILES_AT_ONCE, _DIRECTORIES_AT_ONCE = 64, 8

logger = logging.getLogger(__name__)


class LogUpkeep:
    """The periodic tasks for the logs of one directory.

    deleted_directories: the directories to delete, with the times at which they are due.
    """

    def __init__(
        self,
        log_dir: LogDirectory,
        logs: Mapping[tuple[str, int], Log],
        config: LogManagerConfig,
        now_ms: int,
    ) -> None:
        self._log_dir = log_dir
        self._disk = log_dir.disk
        self._logs = logs
        self._config = config
        self.deleted_directories = Trash()
        self._next_retention_ms = now_ms + config.initial_task_delay_ms
        self._next_expiration_ms = now_ms + config.producer_expiration_check_interval_ms
        self._next_checkpoint_ms = now_ms
        self._to_retain: deque[Log] = deque()
        self._to_expire: deque[Log] = deque()

    def next_deadline_ms(self) -> int:
        """When a task next has work to do; 0 if one has work now."""
        if self._to_retain or self._to_expire:
            return 0
        due, log_dir = self._next_retention_ms, self._log_dir
        due = min(due, self._next_expiration_ms)
        if log_dir.changed_logs and self._next_checkpoint_ms < due:
            due = self._next_checkpoint_ms
        at = self.deleted_directories.next_due_ms
        if at is not None and at < due:
            due = at
        at = log_dir.trash.next_due_ms
        return due if at is None or due < at else at

    # --- retention and expiry --------------------------------------------------------------------

    def retain(self, now_ms: int) -> None:
        """Delete the segments that retention does not keep."""
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + self._config.retention_check_interval_ms
            self._to_retain = self._to_retain or deque(self._logs.values())
        budget = _LOGS_AT_ONCE
        while budget > 0 and self._to_retain:
            log = self._to_retain.popleft()
            budget -= 1
            if self._has(log):
                count = self._delete_old_segments(log, now_ms)
                budget -= _LOGS_AS_A_SEGMENT * count
                if count >= _SEGMENTS_AT_ONCE:
                    self._to_retain.appendleft(log)

    def _delete_old_segments(self, log: Log, now_ms: int) -> int:
        """Delete old segments of a log. Gives: the number of deleted segments; 0 if the log's
        indexes have to be built first.
        """
        try:
            with self._log_dir.cache.deferring_builds():
                return log.delete_old_segments(now_ms, _SEGMENTS_AT_ONCE)
        except BuildDeferred as deferred:
            self._log_dir.build_later(deferred, lambda _: self._to_retain.append(log))
        except CorruptLog as error:
            logger.error("retention of %r failed: %s", log, error)
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
            logger.warning("retention of %r waits for descriptors: %s", log, error)
        except Exception as error:
            contain(error, f"retention of {log!r}")
        return 0

    def expire(self, now_ms: int) -> None:
        """Remove producers that were idle for a long time."""
        if now_ms >= self._next_expiration_ms:
            self._next_expiration_ms = now_ms + self._config.producer_expiration_check_interval_ms
            self._to_expire = self._to_expire or deque(self._logs.values())
        budget = _LOGS_AT_ONCE
        while budget > 0 and self._to_expire:
            log = self._to_expire.popleft()
            budget -= 1 + len(log.producer_state.producers) // _PRODUCERS_AS_A_LOG
            if not self._has(log):
                continue
            try:
                count = log.expire_producers(now_ms, _EXPIRED_AT_ONCE)
            except Exception as error:
                contain(error, f"expiration of the producers of {log!r}")
                continue
            if count >= _EXPIRED_AT_ONCE:
                self._to_expire.appendleft(log)
                return

    def _has(self, log: Log) -> bool:
        return self._logs.get((log.topic, log.partition)) is log

    # --- checkpoints -----------------------------------------------------------------------------

    def hasten_checkpoints(self, now_ms: int) -> None:
        """Make the checkpoint due now for logs of which the start had to read many bytes.

        Otherwise a broker that is killed repeatedly would read more at each start, since no run
        lasts for a whole interval.
        """
        changed = self._log_dir.changed_logs
        due_ms = now_ms - self._config.producer_snapshot_interval_ms
        much = {log: due_ms for log in changed if log.unread_bytes >= MUCH_READ_BYTES}
        rest = {log: at for log, at in changed.items() if log not in much}
        changed.clear()
        changed.update(much)
        changed.update(rest)

    def checkpoint_logs(self, now_ms: int) -> None:
        """Write the checkpoints of the logs that are due."""
        changed = self._log_dir.changed_logs
        if not changed or now_ms < self._next_checkpoint_ms:
            return
        interval_ms = self._config.producer_snapshot_interval_ms
        try:
            excess_bytes = self._checkpoint_due_logs(now_ms)
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            logger.warning("the checkpoints of logs wait for space: %s", error)
            self._next_checkpoint_ms = now_ms + max(_CHECK_INTERVAL_MS, interval_ms)
            return
        self._next_checkpoint_ms = now_ms + min(_CHECK_INTERVAL_MS, interval_ms)
        if excess_bytes > 0:
            self._next_checkpoint_ms = now_ms
        elif changed:
            first_due_ms = next(iter(changed.values())) + interval_ms
            self._next_checkpoint_ms = max(now_ms, min(self._next_checkpoint_ms, first_due_ms))

    def _checkpoint_due_logs(self, now_ms: int) -> int:
        """Checkpoint the logs that are due, then the largest ones.

        Gives:  the number of bytes by which the data without a checkpoint still exceed the limit.
        """
        changed = self._log_dir.changed_logs
        budget = _CHECKPOINTS_AT_ONCE
        while budget > 0 and changed:
            log, changed_ms = next(iter(changed.items()))
            if now_ms - changed_ms < self._config.producer_snapshot_interval_ms:
                break
            budget -= _checkpoint_cost(log)
            self._checkpoint(log)
        excess = sum(log.unread_bytes for log in changed) - self._config.most_unread_bytes
        if excess <= 0:
            return excess
        for log in heapq.nlargest(_CHECKPOINTS_AT_ONCE, changed, key=lambda log: log.unread_bytes):
            if excess <= 0 or budget <= 0:
                break
            excess -= log.unread_bytes
            budget -= _checkpoint_cost(log)
            self._checkpoint(log)
        return excess

    def _checkpoint(self, log: ChangedLog) -> None:
        """Checkpoint a log. If that fails, the log is due again after its next change."""
        try:
            log.checkpoint()
        except Exception as error:
            contain(error, f"the checkpoint of {log!r}")
            self._log_dir.changed_logs.pop(log, None)

    # --- deletion --------------------------------------------------------------------------------

    def empty_trash(self, now_ms: int) -> None:
        """Remove the unused files and directories that are due."""
        for path in self._log_dir.trash.take_due(now_ms, _FILES_AT_ONCE):
            self._disk.unlink(path)
        self._remove_directories(now_ms, _DIRECTORIES_AT_ONCE)

    def make_space(self, now_ms: int) -> None:
        """If the disk has little space left for a start, remove all directories that are due."""
        count = len(self.deleted_directories)
        if not count:
            return
        free_bytes = self._disk.free_bytes(self._log_dir.data_dir)
        if free_bytes < LITTLE_SPACE_BYTES:
            logger.warning(
                "%s has %d free bytes: removing %d directories of deleted partitions now",
                self._log_dir.data_dir, free_bytes, count,
            )  # fmt: skip
            self._remove_directories(now_ms, count)

    def _remove_directories(self, now_ms: int, most: int) -> None:
        """Remove at most `most` directories of deleted partitions that are due."""
        for path in self.deleted_directories.take_due(now_ms, most):
            try:
                self._disk.rmtree(path)
            except OSError as error:
                if not is_out_of_resources(error):
                    raise
                # The removal needs file descriptors, so it is tried again later.
                self.deleted_directories.add(now_ms + _CHECK_INTERVAL_MS, path)


def _checkpoint_cost(log: ChangedLog) -> int:
    return 1 + len(log.producer_state.producers) // _PRODUCERS_AS_A_CHECKPOINT
