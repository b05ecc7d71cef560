"""The data directory: its logs, what is written about all of them, and how it is opened and closed.

    meta.properties                       node.id, cluster.id, directory.id: `meta_properties`
    .lock                                 held while a broker runs here
    .kafka_cleanshutdown                  after a clean stop alone
    *-offset-checkpoint                   offsets of all partitions: `offset_checkpoints`
    cleaner-offset-checkpoint             kept by the cleaner
    barnabas-boot-id                      the run of the machine and the mount: `last_run`
    barnabas-graduated                    it was handed over to Apache Kafka: `graduated`
    barnabas-leader-epoch                 the highest leader epoch that clients may have been told
                                          of, and its CRC-32C
    barnabas-flush-<n>.journal            ends of logs that are durable there and not in the logs'
                                          files yet: `flush_journal`
    <topic>-<partition>/ and others       `partition_directories`

A log that cannot be loaded is not among `logs` but in `offline`, with the error that says why; the
others are served.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.protocol.topic_partition import TopicIdPartition, TopicPartition
from barnabas.storage.directory.flush_journal import FlushJournal, JournalDecision, Redo
from barnabas.storage.directory.graduated import check_is_ours
from barnabas.storage.directory.last_run import LastRun, RunNote
from barnabas.storage.directory.log_directory import (
    DamagedFlushJournalError,
    LogDirectory,
    LogDirectoryError,
)
from barnabas.storage.directory.log_upkeep import LogUpkeep
from barnabas.storage.directory.meta_properties import MetaProperties, take_directory
from barnabas.storage.directory.offset_checkpoints import OffsetCheckpoints
from barnabas.storage.directory.partition_directories import (
    PartitionDirectories,
    Topics,
    deleted_name,
)
from barnabas.storage.disk import Disk, Lock, Syncable, is_out_of_resources
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
from barnabas.storage.files.leader_epochs import HighestEpoch, LeaderEpochs
from barnabas.storage.log.log import Log, LogContents
from barnabas.storage.log.segment import CorruptLog, ForeignLog, IndexCache, Segment
from barnabas.storage.log.segment_list import SegmentList
from barnabas.storage.log_config import LogConfig, LogManagerConfig
from barnabas.storage.opening.log_loader import Opening
from barnabas.storage.opening.recovery import load_log
from barnabas.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.storage.producers.producer_state import ProducerStateManager

if TYPE_CHECKING:
    from barnabas.storage.directory.new_files import NewFiles

logger = logging.getLogger(__name__)


def sync_one_by_one(files: list[Syncable]) -> None:
    """Fsync each of the files."""
    for file in files:
        file.fsync()


# more than a leader without a lease begins before its standby hears of it
UNHEARD_LEADER_EPOCHS = 100


class LogManager:
    """All logs of one directory. Nothing happens between calls: `on_tick` is due by its deadline.

    log_dir, cache, wall: what all logs share; the rim feeds the wall clock. last_run: after `load`,
    how the last run ended, in so far as all logs bear it out. decisions: after `load`, those that
    flush journals hold, in their order. leader_epoch: after `load`, the one that began with it in
    every log. journal: from `load` on, when the directory is ours. _points: the recovery points as
    they are written down. _offline_points, _offline_starts: of logs that are off line, kept in the
    checkpoints as they were.
    """

    journal: FlushJournal

    def __init__(self, disk: Disk, data_dir: str, *, config: LogManagerConfig, now_ms: int) -> None:
        self.disk = disk
        self.data_dir = data_dir.rstrip("/") or "/"
        self.config = config
        self.log_dir = LogDirectory(disk, self.data_dir, IndexCache(config.index_cache_bytes))
        self.cache = self.log_dir.cache
        self.wall = self.log_dir.wall
        self.logs: dict[tuple[str, int], Log] = {}
        self.offline: dict[tuple[str, int], CorruptLog] = {}
        self.last_run = LastRun.CLEAN
        self.decisions: list[JournalDecision] = []
        self.leader_epoch, self._lowest_leader_epoch = 0, config.lowest_leader_epoch
        self.cluster_id = config.cluster_id
        self.node_id = config.node_id
        self._lock: Lock | None = None
        self._run_note = RunNote(disk, self.data_dir)
        self._checkpoints = OffsetCheckpoints(disk, self.data_dir)
        self._upkeep = LogUpkeep(self.log_dir, self.logs, config, now_ms)
        self._next_checkpoint_ms = now_ms + config.initial_task_delay_ms
        self._points: Offsets = {}
        self._offline_points: Offsets = {}
        self._offline_starts: Offsets = {}
        self._removed: set[str] = set()
        self._deletion_count = self._new_files_count = 0

    @property
    def lost_power(self) -> bool:
        """Whether what the last run wrote and did not flush may be gone."""
        return self.last_run in (LastRun.POWER_LOST, LastRun.FOREIGN)

    @property
    def may_lack_acknowledged(self) -> bool:
        """Whether what the last leader answered may be gone: after a power loss, and in a copy that
        its answers did not wait for.
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
        """Take the directory, and open every log in it.

        Takes:  config_of, a topic's settings; progress, told (logs done, logs in all, bytes read of
                them); known_topics, called once the directory is ours.
        Raises: LogDirectoryError where another process has the directory, it belongs to another
                node, or a flush journal is damaged. OSError.
        After:  `logs`, `offline` and `last_run` say what there is; the mark of a clean stop is
                gone. All logs are in a leader epoch that no client was ever told of, nor will be by
                a later start.
        """
        self._take_directory()
        self.journal = FlushJournal(self.disk, self.data_dir)
        redo = self._read_journals()
        self.decisions = [] if redo is None else redo.decisions
        points = self._checkpoints.read(RECOVERY_POINT_NAME)
        if redo is not None and self.last_run is LastRun.KILLED:
            path = redo.lacking(self.disk, self.data_dir, points or {})
            if path:
                self._set_copy(f"{path} lacks what was durable")
        starts = self._checkpoints.read(LOG_START_NAME) or {}
        directories = PartitionDirectories(self.log_dir)
        topics = known_topics() if known_topics is not None else None
        partitions = directories.find(topics)
        for path in directories.deleted:
            self._upkeep.deleted_directories.add(now_ms, path)
        reading = _Progress(progress, len(partitions))
        for partition in partitions:
            opening = Opening(self.last_run, now_ms, redo, reading.on_read)
            self._load_log(partition, config_of(partition.topic), opening, points, starts)
            reading.on_log_done()
        self._upkeep.hasten_checkpoints(now_ms)
        self._report_lost(points or {}, topics)
        self._begin_leader_epoch()
        self.write_checkpoints()
        is_clean = self.last_run is LastRun.CLEAN
        # After a power loss, too, what a log holds may be in the page cache alone: a start before
        # this one may have written it again and been killed before its flush. So the journals stay
        # until all logs were flushed.
        if redo is not None and is_clean and not redo.decisions:
            self.journal.forget_older(keep_earlier=bool(self.offline))
            self.disk.fsync_dir(self.data_dir)
        if not self.lost_power:
            self.note_boot()
        if is_clean:
            self.disk.unlink(self.log_dir.path(CLEAN_SHUTDOWN_NAME))
            self.disk.fsync_dir(self.data_dir)  # else a power loss may bring the mark back

    def _take_directory(self) -> None:
        """Lock the directory, find out how the last run ended, and see that it is ours."""
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
            # Logs that were made just before a kill may not be durable by name.
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
        """Open one log, or take it off line. points: None where nobody knows recovery points."""
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
            self.offline[partition] = error
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
        """Log which partitions had durable records and have no directory: they begin anew."""
        for key, point in sorted(points.items()):
            topic = None if topics is None else topics.topic(key[0])
            is_there = key in self.logs or key in self.offline
            if point > 0 and not is_there and topic is not None and key[1] < topic.partition_count:
                logger.error(
                    "%s is gone, and had records up to offset %d: stop the broker and restore it "
                    "from a copy; without it the partition begins anew",
                    self.log_dir.path(f"{key[0]}-{key[1]}"),
                    point - 1,
                )

    def _flush_offline(self, directory: str) -> None:
        """Flush a log that is off line: a transaction with data there may yet be committed, and
        after a clean stop all is taken to be on the disk, the topic's id, too.
        """
        for name in self.disk.list(directory):
            path = f"{directory}/{name}"
            if not self.disk.is_dir(path):
                self.disk.fsync_file(path)
        self.disk.fsync_dir(directory)

    def _set_copy(self, why: str) -> None:
        """Treat it as a power loss: what was not flushed is gone, as in a copy of a disk."""
        logger.warning(
            "this is not what the last broker left, but a copy of the disk from before, or a part "
            "of one: %s",
            why,
        )
        self.last_run = LastRun.POWER_LOST

    def _begin_leader_epoch(self) -> None:
        """Begin an epoch in all logs, as Apache Kafka does when a broker comes up.

        Clients then compare what they read with what there is. The number is on the disk before a
        client hears of it. The logs' own files would not do: they have an epoch from its first
        batch on, and a power loss may take both, after clients read what it takes. One number
        serves all partitions, since epochs may skip.
        """
        latest = max((log.epochs.latest for log in self.logs.values()), default=-1)
        highest = HighestEpoch(self.disk, self.data_dir).read()
        self.leader_epoch = max(latest, highest, self._lowest_leader_epoch - 1)
        if self.config.may_lack_acknowledged and not self._lowest_leader_epoch:
            self.leader_epoch += UNHEARD_LEADER_EPOCHS  # a claim is above all that were claimed
        self.begin_leader_epoch(self.logs.values())

    def begin_leader_epoch(self, logs: Iterable[Log]) -> None:
        """Begin an epoch in these logs that is above all before it; it is durable then."""
        self.leader_epoch += 1
        HighestEpoch(self.disk, self.data_dir).write(self.leader_epoch)
        for log in logs:
            log.begin_leader_epoch(self.leader_epoch)

    def note_boot(self) -> None:
        """Note that all that follows from a power loss is done and durable in this run."""
        self._run_note.write()

    def note_failure(self) -> None:
        """Note that the disk failed: the kernel may have dropped what was written."""
        if self._lock is not None:  # else the directory is not ours
            self._run_note.write_failure()

    # --- logs that come and go -------------------------------------------------------------------

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
        """Make a new, empty log. It gets its files with its first batch, or by `Log.make_files`.

        Takes:  leader_epoch: 0 of a new partition, `self.leader_epoch` of one that clients may know
                and whose log is gone.
        """
        key = topic, partition
        assert key not in self.logs and key not in self.offline, f"{topic}-{partition} exists"
        directory = self.log_dir.partition_path(topic, partition)
        segment = Segment.without_files(
            self.disk,
            directory,
            0,
            now_ms=now_ms,
            cache=self.cache,
            index_interval_bytes=config.index_interval_bytes,
        )
        contents = LogContents(
            segments=SegmentList([segment], 0),
            log_start_offset=0,
            recovery_point=0,
            producer_state=ProducerStateManager(),
            epochs=LeaderEpochs(self.disk, directory, [(leader_epoch, 0)]),
            snapshots=ProducerSnapshots(self.disk, directory, []),
            names_are_durable=True,
            has_files=False,
        )
        log = Log(self.log_dir, TopicIdPartition(topic, partition, topic_id), config, contents)
        self.logs[key] = log
        return log

    def take_off_line(self, log: Log, error: CorruptLog) -> None:
        """Close a log that is loaded and cannot be served; its files stay as they are."""
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
        """Give a log without files what another thread can make them by; see `take_files`."""
        from barnabas.storage.directory.new_files import NewFiles, new_suffix

        self._new_files_count += 1
        name = f"{log!r} {self.leader_epoch} {self._new_files_count}"
        suffix = new_suffix(log.partition, uuid.uuid5(log.topic_id, name).hex)
        path = self.log_dir.path(deleted_name(log.topic, suffix))
        log.new_files = NewFiles(self.disk, path, log.topic_id, log.epochs.entries)
        return log.new_files

    def take_files(self, log: Log, files: NewFiles, now_ms: int) -> None:
        """Give a log the files that were made for it. Where they were not, are not wanted any more
        or find no room, it has none, or those that it has: its first batch says why.
        """
        if files.is_taken:
            return
        if log.new_files is files:
            log.new_files = None
        if files.is_made and self.logs.get((log.topic, log.partition)) is log:
            try:
                log.take_files(files)
            except OSError as error:
                if not is_out_of_resources(error):
                    raise
        if files.is_made and not files.is_taken:
            self._upkeep.deleted_directories.add(now_ms, files.directory)

    def remove(self, topic: str, partition: int, now_ms: int) -> None:
        """Delete one of many logs: it is gone at once, and for good after `end_removals`."""
        key = topic, partition
        log = self.logs.pop(key, None)
        error = self.offline.pop(key, None)
        self._offline_points.pop(key, None)  # else they hold of the next log of this name
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
        self.disk.rename(directory, path)
        self._upkeep.deleted_directories.add(now_ms + delay_ms, path)
        self._removed.add(directory)

    def end_removals(self) -> None:
        """Make removals durable, whatever happens, and take the logs out of the checkpoints."""
        if self._removed:
            self.disk.fsync_dir(self.data_dir)
            self.log_dir.trash.remove_in(self._removed)
            self._removed.clear()
            self.write_checkpoints()

    def _has_directory(self, log: Log) -> bool:
        # One may be left of an attempt to make the files: where descriptors are wanting, removing
        # it failed, too.
        return log.has_files or self.disk.is_dir(log.directory)

    # --- from time to time -----------------------------------------------------------------------

    def next_deadline_ms(self) -> int:
        """When `on_tick` has something to do."""
        if self.log_dir.changed_starts or self.log_dir.builds:
            return 0
        due = self._upkeep.next_deadline_ms()
        return self._next_checkpoint_ms if self._next_checkpoint_ms < due else due

    def on_tick(self, now_ms: int) -> None:
        """Do what is due: retention, checkpoints, producers that expire, files that go."""
        if self.log_dir.builds is not None:
            self.log_dir.builds.on_tick(now_ms)
        self._upkeep.retain(now_ms)
        if self.log_dir.changed_starts:
            # Before any file goes: a start that was told must not fall back.
            self._write_changed_starts()
        if now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + self.config.recovery_checkpoint_interval_ms
            try:
                self.write_checkpoints()
            except OSError as error:
                if not is_out_of_resources(error):
                    raise
                logger.warning("the checkpoint of %s waits for space: %s", self.data_dir, error)
        self._upkeep.expire(now_ms)
        self._upkeep.checkpoint_logs(now_ms)
        self._upkeep.empty_trash(now_ms)

    # --- checkpoints -----------------------------------------------------------------------------

    def write_checkpoints(self, *, force: bool = False) -> None:
        """Write recovery points, high watermarks and log starts, as far as they changed."""
        points = self._recovery_points()
        self._checkpoints.write(RECOVERY_POINT_NAME, self._offline_points | points, force=force)
        self._points = points  # not before: a full disk may have refused them
        high_watermarks = {
            key: log.high_watermark for key, log in self.logs.items() if log.has_files
        }
        self._checkpoints.write(REPLICATION_NAME, high_watermarks, force=force)
        self.write_starts()

    def _recovery_points(self) -> Offsets:
        return {
            key: log.durability.recovery_point for key, log in self.logs.items() if log.has_files
        }

    def write_recovery_point(self, log: Log, offset: int) -> None:
        """Have it written down that all below `offset` is durable in the log's files, which it is.

        Gaps below are no damage then.
        """
        assert log.durability.recovery_point >= offset, (
            f"{log!r} is durable up to {log.durability.recovery_point}, not {offset}"
        )
        if self._points.get((log.topic, log.partition), 0) < offset:
            self.write_checkpoints()

    def write_starts(self) -> None:
        """Write down the log start offsets that changed.

        Of a log that begins with its first segment, too: a power loss may bring the segments back
        that were before it.
        """
        for key in sorted(self.log_dir.changed_starts):
            self.logs[key].checkpoint()  # the manifest has the start too, with a checksum
        self.log_dir.changed_starts.clear()
        starts = {
            key: log.log_start_offset for key, log in self.logs.items() if log.log_start_offset
        }
        self._checkpoints.write(LOG_START_NAME, self._offline_starts | starts)

    def _write_changed_starts(self) -> None:
        """Write down the log starts; where the disk is too full for it, make deletions stay.

        What retention deleted will give the space for the next time.
        """
        changed = [self.logs[key] for key in sorted(self.log_dir.changed_starts)]
        try:
            self.write_starts()
        except OSError as error:
            if not is_out_of_resources(error) or any(
                log.log_start_offset != log.segments[0].base_offset for log in changed
            ):
                raise
            logger.warning("the starts of %s wait for space: %s", changed, error)
            self.log_dir.changed_starts.clear()
            for log in changed:
                self.disk.fsync_dir(log.directory)

    # --- stop ------------------------------------------------------------------------------------

    def close(self, now_ms: int, sync: Callable[[list[Syncable]], None] = sync_one_by_one) -> None:
        """Stop cleanly: every log durable and closed, all checkpoints, then the mark that says so.

        Takes:  sync, which fsyncs many files; one that does several at a time makes the stop of
                many logs quick.
        """
        files: dict[Syncable, None] = {}
        for log in self.logs.values():
            files.update(dict.fromkeys(log.begin_close()))
        sync(list(files))
        for log in self.logs.values():
            log.end_close()
        self.write_checkpoints(force=True)
        self.journal.begin_next()
        self.journal.forget_older(keep_earlier=bool(self.offline))
        self.disk.write_atomic(self.log_dir.path(CLEAN_SHUTDOWN_NAME), CLEAN_SHUTDOWN)
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class _Progress:
    """Tells how far the loading of many logs is: (logs done, logs in all, bytes read of them)."""

    def __init__(self, progress: Callable[[int, int, int], None] | None, count: int) -> None:
        self._progress = progress
        self._count = count
        self._done = 0
        self._read_bytes = 0

    def on_read(self, count: int) -> None:
        """Note that so many bytes of a log were read."""
        self._read_bytes += count
        if self._progress is not None:
            self._progress(self._done, self._count, self._read_bytes)

    def on_log_done(self) -> None:
        """A log is loaded, or off line."""
        self._done += 1
        self.on_read(0)
