"""The data directory: its logs, the common files, opening and closing.

The kinds of its files are a table in `files/data_files`, those of its directories in
`partition_directories`. A log that cannot be loaded is not in `logs` but in `offline`, with the
error; the other logs are served.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.protocol.errors import detached
from barnabas.protocol.topic_partition import TopicIdPartition, TopicPartition
from barnabas.storage.directory.graduated import check_is_ours
from barnabas.storage.directory.log_starts import LogStarts
from barnabas.storage.directory.log_upkeep import LogUpkeep
from barnabas.storage.directory.meta_properties import MetaProperties, take_directory
from barnabas.storage.directory.partition_directories import (
    PartitionDirectories,
    Topics,
    deleted_name,
)
from barnabas.storage.disk import (
    DirectorySync,
    Disk,
    Lock,
    Syncable,
    SyncSteps,
    is_out_of_resources,
    log_lack_of_space,
    run_at_once,
)
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_NAME,
    LOCK_NAME,
    LOG_START_NAME,
    META_PROPERTIES_NAME,
    RECOVERY_POINT_NAME,
    REPLICATION_NAME,
    Offsets,
)
from barnabas.storage.files.flush_journal import FlushJournal, JournalDecision, Redo
from barnabas.storage.files.leader_epochs import HighestEpoch
from barnabas.storage.files.segment_files import CorruptLog, ForeignLog
from barnabas.storage.log.log_directory import (
    DamagedFlushJournalError,
    LogDirectory,
    LogDirectoryError,
)
from barnabas.storage.log_config import LogConfig, LogManagerConfig
from barnabas.storage.opening.last_run import LastRun, RunNote
from barnabas.storage.segments.index_cache import IndexCache

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log
    from barnabas.storage.log.new_files import NewFiles
    from barnabas.storage.opening.log_loader import Opening

logger = logging.getLogger(__name__)


def sync_one_by_one(files: list[Syncable]) -> None:
    """Fsync each of the files."""
    for file in files:
        file.fsync()


# more epochs than a leader without a lease can begin before its standby has received one of them
UNHEARD_LEADER_EPOCHS = 100


class LogManager(LogStarts):
    """All logs of one directory. It works only within calls; `on_tick` has to be called at its
    deadline.

    log_dir, cache, wall: shared by all logs; the rim feeds the wall clock. last_run: after `load`,
    how the last run ended, confirmed by all logs. decisions: after `load`, the decisions in the
    flush journals, in order. leader_epoch: after `load`, the epoch that began in every log.
    journal: set by `load`. run_steps: carries out changes of files; by default immediately.
    _points: the stored recovery points. _offline_points, _offline_starts: the points and starts of
    logs that are offline, which remain unchanged in the checkpoints.
    """

    journal: FlushJournal

    def __init__(self, disk: Disk, data_dir: str, *, config: LogManagerConfig, now_ms: int) -> None:
        self.disk = disk
        self.data_dir = data_dir.rstrip("/") or "/"
        self.config = config
        log_dir = LogDirectory(disk, self.data_dir, IndexCache(config.index_cache_bytes))
        super().__init__(log_dir)
        self.cache = self.log_dir.cache
        self.wall = self.log_dir.wall
        self.offline: dict[tuple[str, int], CorruptLog] = {}
        self.last_run = LastRun.CLEAN
        self.decisions: list[JournalDecision] = []
        self.leader_epoch, self._lowest_leader_epoch = 0, config.lowest_leader_epoch
        self.cluster_id = config.cluster_id
        self.node_id = config.node_id
        self._lock: Lock | None = None
        self._run_note = RunNote(disk, self.data_dir)
        self._upkeep = LogUpkeep(self.log_dir, self.logs, config, now_ms)
        self._next_checkpoint_ms = now_ms + config.initial_task_delay_ms
        self._points: Offsets = {}
        self._offline_points: Offsets = {}
        self._removed: set[str] = set()
        self.run_steps: Callable[[SyncSteps], None] = run_at_once
        self._deletion_count = self._new_files_count = 0

    @property
    def lost_power(self) -> bool:
        """Whether unflushed data of the last run may be lost."""
        return self.last_run in (LastRun.POWER_LOST, LastRun.FOREIGN)

    @property
    def may_lack_acknowledged(self) -> bool:
        """Whether acknowledged writes of the last leader may be missing.

        They may be missing after a power loss, or in a copy for which the leader did not wait.
        """
        return self.lost_power or self.config.may_lack_acknowledged

    # --- start -----------------------------------------------------------------------------------

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        now_ms: int,
        progress: Callable[[int, int, int], None] | None = None,
        known_topics: Callable[[], Topics] | None = None,
    ) -> None:
        """Lock the directory, and open every log in it.

        Takes:  config_of, which returns a topic's settings; progress, called with (loaded logs, all
                logs, bytes read); known_topics, called once the directory is locked and ours.
        Raises: LogDirectoryError if another process has the directory, it belongs to another node,
                or a flush journal is damaged; OSError.
        After:  `logs`, `offline` and `last_run` are set; the mark of a clean stop is removed. All
                logs are in a leader epoch that no client has seen before, and that no later start
                will use.
        """
        self._take_directory()
        self.journal = FlushJournal(self.disk, self.data_dir)
        redo = self._read_journals()
        self.decisions = [] if redo is None else redo.decisions
        points = self._checkpoints.read(RECOVERY_POINT_NAME)
        if redo is not None and self.last_run is LastRun.KILLED:
            path = redo.lacking(self.disk, self.data_dir, points or {})
            if path:
                self._set_copy(f"{path} lacks durable data")
        starts = self._checkpoints.read(LOG_START_NAME) or {}
        directories = PartitionDirectories(self.log_dir)
        topics = known_topics() if known_topics is not None else None
        partitions = directories.find(topics)
        for path in directories.deleted:
            self._upkeep.deleted_directories.add(now_ms, path)
        self._upkeep.make_space(now_ms)  # a start needs space for its writes
        if partitions:
            from barnabas.storage.opening.log_loader import Opening  # unused without logs

            reading = _Progress(progress, len(partitions))
            for partition in partitions:
                opening = Opening(self.last_run, now_ms, redo, reading.on_read)
                self._load_log(partition, config_of(partition.topic), opening, points, starts)
                reading.on_log_done()
        self._upkeep.hasten_checkpoints(now_ms)
        self._report_lost(points or {}, topics)
        self._begin_leader_epoch()
        try:
            self.write_checkpoints()
        except OSError as error:
            log_lack_of_space(f"the checkpoint of {self.data_dir}", error)  # the old file remains
        is_clean = self.last_run is LastRun.CLEAN
        # Data of a log may be only in the page cache even after a power loss: an earlier start may
        # have written them again and been killed before its flush. So the journals are kept until
        # all logs were flushed.
        if redo is not None and is_clean and not redo.decisions:
            self.journal.forget_older(keep_earlier=bool(self.offline))
            self.disk.fsync_dir(self.data_dir)
        if not self.lost_power:
            self.note_boot()
        if is_clean:
            self.disk.unlink(self.log_dir.path(CLEAN_SHUTDOWN_NAME))
            self.disk.fsync_dir(self.data_dir)  # otherwise a power loss could restore the mark

    def _take_directory(self) -> None:
        """Lock the directory, determine how the last run ended, and check that it is ours."""
        if not self.disk.is_dir(self.data_dir):
            self.disk.mkdir(self.data_dir)
            parent, slash, _ = self.data_dir.rpartition("/")
            self.disk.fsync_dir(parent or slash or ".")
        try:
            self._lock = self.disk.lock(self.log_dir.path(LOCK_NAME))
        except BlockingIOError as error:
            raise LogDirectoryError(
                f"{self.data_dir} is in use by another broker: stop it, or give another log.dirs"
            ) from error
        check_is_ours(self.disk, self.data_dir)
        used_before = self.disk.exists(self.log_dir.path(META_PROPERTIES_NAME))
        self.last_run = self._run_note.last_run()
        config = self.config
        ids = MetaProperties(config.node_id, config.cluster_id, config.directory_id)
        taken = take_directory(self.disk, self.data_dir, ids)
        self.cluster_id, self.directory_id = taken.cluster_id, taken.directory_id
        if used_before and self.last_run is not LastRun.CLEAN:
            # The names of logs that were made shortly before a kill may not be durable.
            self.disk.fsync_dir(self.data_dir)

    def _read_journals(self) -> Redo | None:
        try:
            return self.journal.read() if self.journal.has_older else None
        except CorruptLog as error:
            raise DamagedFlushJournalError(str(error)) from error

    def _load_log(
        self,
        partition: TopicPartition,
        config: LogConfig,
        opening: Opening,
        points: Offsets | None,
        starts: Offsets,
    ) -> None:
        """Open one log, or take it offline. points: None if the recovery points are unknown."""
        from barnabas.storage.opening.recovery import load_log

        point = None if points is None else points.get(partition, 0)
        start = starts.get(partition)
        try:
            log = self.logs[partition] = load_log(
                self.log_dir,
                *partition,
                config,
                opening,
                recovery_point=point,
                log_start_offset=start,
            )
        except CorruptLog as error:
            logger.error("the log of %s is off line: %s", partition, error)
            self.offline[partition] = detached(error)
            self._flush_offline(self.log_dir.partition_path(*partition))
            if points is not None and partition in points:
                self._offline_points[partition] = points[partition]
            if start is not None:
                self._offline_starts[partition] = start
        else:
            end_offset = log.log_end_offset
            if self.last_run is LastRun.KILLED and end_offset < (point or 0):
                self._set_copy(
                    f"{partition} ends at offset {end_offset}, and was durable up to {point}"
                )

    def _report_lost(self, points: Offsets, topics: Topics | None) -> None:
        """Log which partitions had durable records and lost their directory. They begin empty."""
        for key, point in sorted(points.items()):
            topic = None if topics is None else topics.topic(key[0])
            is_there = key in self.logs or key in self.offline
            if point > 0 and not is_there and topic is not None and key[1] < topic.partition_count:
                logger.error(
                    "%s is missing, and had records up to offset %d: stop the broker and "
                    "restore it from a copy; without it the partition starts empty",
                    self.log_dir.path(f"{key[0]}-{key[1]}"),
                    point - 1,
                )

    def _flush_offline(self, directory: str) -> None:
        """Flush a log that is offline.

        A transaction with data in the log may still be committed, and after a clean stop everything
        counts as durable, including the topic's id.
        """
        for name in self.disk.list(directory):
            path = f"{directory}/{name}"
            if not self.disk.is_dir(path):
                self.disk.fsync_file(path)
        self.disk.fsync_dir(directory)

    def _set_copy(self, why: str) -> None:
        """Treat the directory as after a power loss, as it is a copy that lacks unflushed data."""
        logger.warning(
            "this directory is an older copy of the disk, or a part of one, not what the last "
            "broker left: %s",
            why,
        )
        self.last_run = LastRun.POWER_LOST

    def _begin_leader_epoch(self) -> None:
        """Begin a leader epoch in all logs, as Apache Kafka does when a broker starts.

        Clients then compare their positions with the log. The epoch is on the disk before a client
        sees it. The logs' own files are not enough: they contain an epoch only from its first batch
        on, and a power loss may remove both after clients have read the batch. All partitions have
        the same epoch, since there may be gaps between epochs.
        """
        latest = max((log.epochs.latest for log in self.logs.values()), default=-1)
        highest = HighestEpoch(self.disk, self.data_dir).read()
        self.leader_epoch = max(latest, highest, self._lowest_leader_epoch - 1)
        if self.config.may_lack_acknowledged and not self._lowest_leader_epoch:
            # Skip all epochs that the former leader can have begun, so that none is used twice.
            self.leader_epoch += UNHEARD_LEADER_EPOCHS
        self.begin_leader_epoch(self.logs.values())
        self.log_dir.store_epoch()

    def begin_leader_epoch(self, logs: Iterable[Log]) -> None:
        """Begin an epoch in these logs that is above all earlier ones.

        It is durable on return, or if its file cannot be changed, before one of the logs gets a
        batch.
        """
        self.leader_epoch += 1
        self.log_dir.unstored_epoch = self.leader_epoch
        try:
            self.log_dir.store_epoch()
        except OSError as error:
            log_lack_of_space(f"the leader epoch {self.leader_epoch}", error)
        for log in logs:
            log.begin_leader_epoch(self.leader_epoch)

    def note_boot(self) -> None:
        """Record that all work after a power loss has been done in this run, and is durable."""
        self._run_note.write()

    @property
    def lacks_run_note(self) -> bool:
        """Whether there was no space for `note_boot`. Until it is written, a kill counts as a power
        loss.
        """
        return self._run_note.is_due

    def note_failure(self) -> None:
        """Record that the disk failed. The kernel may then have dropped written data."""
        if self._lock is not None:  # otherwise the directory does not belong to this broker
            self._run_note.write_failure()

    # --- creation and removal of logs ------------------------------------------------------------

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        now_ms: int,
        *,
        leader_epoch: int = 0,
    ) -> Log:
        """Make a new, empty log. It gets its files with its first batch, or from `LogFiles.make`.

        Takes:  leader_epoch, 0 for a new partition; `self.leader_epoch` if clients may know it and
                its log was lost.
        """
        key = topic, partition
        assert key not in self.logs and key not in self.offline, f"{topic}-{partition} exists"
        # many starts make no log, so this is imported here
        from barnabas.storage.opening.new_log import new_log

        log = new_log(
            self.log_dir, TopicIdPartition(topic, partition, topic_id), config, now_ms, leader_epoch
        )
        self.logs[key] = log
        return log

    def take_off_line(self, log: Log, error: CorruptLog) -> None:
        """Close a loaded log that cannot be served. Its files are not changed."""
        key = log.topic, log.partition
        logger.error("the log of %s-%d is off line: %s", *key, error)
        log.flush()
        log.end_close()
        log.forget()
        del self.logs[key]
        self.log_dir.changed_starts.discard(key)
        self.offline[key] = error
        self._offline_points[key] = log.durability.recovery_point
        if log.log_start_offset:
            self._offline_starts[key] = log.log_start_offset

    def begin_files(self, log: Log) -> NewFiles:
        """The files for a log that has none, which another thread makes; see `LogFiles.take`."""
        from barnabas.storage.log.new_files import NewFiles, new_suffix

        self._new_files_count += 1
        name = f"{log!r} {self.leader_epoch} {self._new_files_count}"
        suffix = new_suffix(log.partition, uuid.uuid5(log.topic_id, name).hex)
        path = self.log_dir.path(deleted_name(log.topic, suffix))
        log.files.new_files = NewFiles(self.disk, path, log.topic_id, log.epochs.entries)
        return log.files.new_files

    def take_files(self, log: Log, files: NewFiles, now_ms: int) -> None:
        """Give a log the files that were made for it.

        If they could not be made or renamed, or are no longer needed, the log keeps its present
        state, and its first batch reports an error.
        """
        if files.is_taken:
            return
        if log.files.new_files is files:
            log.files.new_files = None
        if files.is_made and self.logs.get((log.topic, log.partition)) is log:
            try:
                log.files.take(files)
            except OSError as error:
                if not is_out_of_resources(error):
                    raise
        if files.is_made and not files.is_taken:
            files.is_made = False  # other waiting work must not use these files
            self._upkeep.deleted_directories.add(now_ms, files.directory)

    def remove(self, topic: str, partition: int, now_ms: int) -> None:
        """Delete one of many logs: immediately in memory, and durably with `end_removals`."""
        key = topic, partition
        log = self.logs.pop(key, None)
        error = self.offline.pop(key, None)
        # Otherwise these would apply to the next log of this name.
        self._offline_points.pop(key, None)
        self._offline_starts.pop(key, None)
        self.log_dir.changed_starts.discard(key)
        delay_ms = 0
        topic_id = uuid.UUID(int=0)
        if log is not None:
            log.forget()
            delay_ms, topic_id = log.config.file_delete_delay_ms, log.topic_id
        directory = self.log_dir.partition_path(topic, partition)
        if isinstance(error, ForeignLog):
            PartitionDirectories(self.log_dir).set_aside(f"{topic}-{partition}", str(error))
            return
        if log is not None and not self._has_directory(log):
            return
        self._deletion_count += 1
        unique = uuid.uuid5(topic_id, f"{topic} {partition} {now_ms} {self._deletion_count}").hex
        path = self.log_dir.path(deleted_name(topic, f"-{partition}.{unique}-delete"))
        try:
            self.disk.rename(directory, path)
        except OSError as no_space:
            if not is_out_of_resources(no_space):
                raise
            # There is no space for the longer name. The directory is removed, so that another
            # partition with this name does not find it.
            logger.warning("%s is removed at once: %s", directory, no_space)
            self.disk.rmtree(directory)
        else:
            self._upkeep.deleted_directories.add(now_ms + delay_ms, path)
        self._removed.add(directory)

    @property
    def has_removed(self) -> bool:
        """Whether `end_removals` has work to do."""
        return bool(self._removed)

    def end_removals(self) -> None:
        """Make removals durable, also after an error, and remove the logs from the checkpoints."""
        run_at_once(self.removal_steps())

    def removal_steps(self) -> SyncSteps:
        """`end_removals` in steps."""
        if self._removed:
            removed = set(self._removed)
            # The removal must be durable before the logs are removed from the checkpoints below.
            yield [DirectorySync(self.disk, self.data_dir)]
            self.log_dir.trash.remove_in(removed)
            self._removed -= removed
            yield from self.checkpoint_steps(with_starts=True)

    def _has_directory(self, log: Log) -> bool:
        # An attempt to make the files may have left a directory, whose removal also failed for lack
        # of descriptors.
        return log.files.are_made or self.disk.is_dir(log.directory)

    # --- periodic work ---------------------------------------------------------------------------

    def next_deadline_ms(self) -> int:
        """When `on_tick` has work next."""
        if self.log_dir.changed_starts or self.log_dir.builds:
            return 0
        due = self._upkeep.next_deadline_ms()
        return self._next_checkpoint_ms if self._next_checkpoint_ms < due else due

    def on_tick(self, now_ms: int) -> None:
        """Do due work: retention, checkpoints, expiration of producers, deletion of files."""
        if self.log_dir.builds is not None:
            self.log_dir.builds.on_tick(now_ms)
        self._upkeep.retain(now_ms)
        if self.log_dir.changed_starts:
            # The starts are stored before any file is deleted, since a log start that clients have
            # seen must not move back.
            self._write_changed_starts()
        if now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + self.config.recovery_checkpoint_interval_ms
            self.run_steps(self._periodic_checkpoint())
        self._upkeep.expire(now_ms)
        self._upkeep.checkpoint_logs(now_ms)
        self._upkeep.empty_trash(now_ms)

    # --- checkpoints -----------------------------------------------------------------------------

    def write_checkpoints(self, *, force: bool = False) -> None:
        """Write changed recovery points, high watermarks and log starts."""
        points = self._recovery_points()
        self._checkpoints.write(RECOVERY_POINT_NAME, self._offline_points | points, force=force)
        self._points = points  # not earlier, since the write may fail on a full disk
        high_watermarks = {
            key: log.high_watermark for key, log in self.logs.items() if log.files.are_made
        }
        self._checkpoints.write(REPLICATION_NAME, high_watermarks, force=force)
        self.write_starts()

    def checkpoint_steps(self, *, with_starts: bool = False) -> SyncSteps:
        """Do the work of `write_checkpoints` in steps.

        Takes:  with_starts, whether to write the log starts as well, which `write_starts` stores
                when they change.
        """
        self._points = yield from self._checkpoints.replace_offsets(
            self.logs, self._offline_points, self._starts if with_starts else None
        )

    def _periodic_checkpoint(self) -> SyncSteps:
        if self._run_note.is_due:
            self._run_note.write()
        try:
            yield from self.checkpoint_steps()
        except OSError as error:
            log_lack_of_space(f"the checkpoint of {self.data_dir}", error)

    def _recovery_points(self) -> Offsets:
        return {
            key: log.durability.recovery_point
            for key, log in self.logs.items()
            if log.files.are_made
        }

    def lacks_recovery_point(self, log: Log, offset: int) -> bool:
        """Whether the stored recovery point is below `offset`, although everything below `offset`
        is durable.
        """
        assert log.durability.recovery_point >= offset, (
            f"{log!r} is durable up to {log.durability.recovery_point}, not {offset}"
        )
        return self._points.get((log.topic, log.partition), 0) < offset

    def write_starts(self) -> None:
        """Store the changed log start offsets.

        A start is stored even if it is the base offset of the first segment, since a power loss may
        restore deleted segments before it.
        """
        for key in sorted(self.log_dir.changed_starts):
            log = self.logs[key]
            try:
                log.checkpoint()  # the manifest also has the start, with a checksum
            except Exception as error:
                contain(error, f"the checkpoint of {log!r}")
        self.log_dir.changed_starts.clear()
        self._checkpoints.write(LOG_START_NAME, self._starts())

    # --- stop ------------------------------------------------------------------------------------

    def close(self, now_ms: int, sync: Callable[[list[Syncable]], None] = sync_one_by_one) -> None:
        """Stop cleanly: make all logs durable, close them, write all checkpoints and then the mark.

        Takes:  sync, which fsyncs many files, in parallel to be fast.
        """
        files: dict[Syncable, None] = {}
        for log in self.logs.values():
            files.update(dict.fromkeys(log.begin_close()))
        sync(list(files))
        for log in self.logs.values():
            log.end_close()
        self.log_dir.store_epoch()
        self.write_checkpoints(force=True)
        self.journal.begin_next()
        self.journal.forget_older(keep_earlier=bool(self.offline))
        self.disk.write_atomic(self.log_dir.path(CLEAN_SHUTDOWN_NAME), CLEAN_SHUTDOWN)
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class _Progress:
    """Reports the progress of loading logs: (loaded logs, all logs, bytes read)."""

    def __init__(self, progress: Callable[[int, int, int], None] | None, count: int) -> None:
        self._progress = progress
        self._count = count
        self._done = 0
        self._read_bytes = 0

    def on_read(self, count: int) -> None:
        """Count bytes that were read from a log."""
        self._read_bytes += count
        if self._progress is not None:
            self._progress(self._done, self._count, self._read_bytes)

    def on_log_done(self) -> None:
        """Count a log that was loaded, or taken offline."""
        self._done += 1
        self.on_read(0)
