"""The log directory: which partitions there are, what is written about all of them, and what is
done from time to time.

    meta.properties                       node.id, cluster.id, directory.id
    .lock                                 held while a broker runs here
    .kafka_cleanshutdown                  after a clean stop alone
    recovery-point-offset-checkpoint      all below is durable            log-start-offset-checkpoint   where it is not 0
    replication-offset-checkpoint         the high watermarks             cleaner-offset-checkpoint     kept by the cleaner
    barnabas-boot-id                      the run of the machine, and the mount, in which a broker last used the directory
    barnabas-leader-epoch                 the highest leader epoch that clients may have been told of, and its CRC-32C
    barnabas-flush-<n>.journal            ends of logs that are durable there and not in the logs' files yet
    <topic>-<partition>/                  a log                           <…>.<32 hex digits>-delete/   one that is going
    <…>.<32 hex digits>-stray/            no log, though its name was that of one: a copy, mostly; never touched again

A log that cannot be loaded is not among `logs` but in `offline`, with the error that says why; the
others are served.
"""

from __future__ import annotations

import heapq
import logging
import re
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from crc32c import crc32c

from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_NAME,
    LOCK_NAME,
    LOG_START_NAME,
    META_PROPERTIES_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    REPLICATION_NAME,
    CorruptCheckpoint,
    Offsets,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
)
from barnabas.storage.disk import Disk, Lock, Syncable, is_want_of_room
from barnabas.storage.flush_journal import FlushJournal, JournalDecision, Redo
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import Log, LogContents
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_directory import LogDirectory, TopicIdPartition
from barnabas.storage.producer_snapshots import ProducerSnapshots
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.recovery import load_log
from barnabas.storage.segment import LOG_SUFFIX, CorruptLog, IndexCache, Segment
from barnabas.storage.segment_list import SegmentList
from barnabas.storage.trash import Trash

_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)")
_GOING = re.compile(r".+\.[0-9a-f]{32}-delete")
BOOT_ID_NAME = "barnabas-boot-id"
LEADER_EPOCH_NAME = "barnabas-leader-epoch"
_NOT_OURS = "__cluster_metadata"  # Apache Kafka's own log of its metadata
_LONGEST_NAME = 255
_LONGEST_TOPIC = 249
# in the numbers of a topic's partitions; where another broker has the others, gaps are right
_WIDEST_GAP = 10_000
_CHECKPOINTS_AT_ONCE = 8
_PRODUCERS_AS_A_LOG = 500  # so many are written in about the time that a log without any takes
_LOG_CHECK_INTERVAL_MS = 1000
_LOGS_LOOKED_AT_AT_ONCE = 1000
_LOGS_AS_A_SEGMENT = 30  # a segment that goes costs as much as a look at so many logs
_PRODUCERS_LOOKED_AT_AS_A_LOG = 20
_FILES_GO_AT_ONCE, _DIRECTORIES_GO_AT_ONCE = 64, 8

logger = logging.getLogger(__name__)


def _checkpoint_cost(log: Log) -> int:
    return 1 + len(log.producer_state.producers) // _PRODUCERS_AS_A_LOG


def sync_one_by_one(files: list[Syncable]) -> None:
    for file in files:
        file.fsync()


class KnownTopic(Protocol):
    """A topic of the metadata journal."""

    name: str


class KnownTopics(Protocol):
    """What the metadata journal has, in so far as it tells what a directory is of."""

    def topic(self, name: str) -> KnownTopic | None: ...

    def topic_by_id(self, topic_id: uuid.UUID) -> KnownTopic | None: ...


class LogDirectoryError(Exception):
    """The log directory cannot be used; the text says why and what to do."""


class DamagedFlushJournalError(LogDirectoryError):
    """A flush journal is damaged where it was durable: the last of commits may be in it alone."""


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """Intervals as Apache Kafka's broker settings name them; ids for a directory that has none yet.

    producer_snapshot_interval_ms: how long a log may differ from its last checkpoint (producers,
    indexes, manifest). most_unread_bytes: how much all logs together may hold that no checkpoint
    knows, as `Log.unread_bytes` counts it: a start after a kill reads about that much.
    """

    node_id: int = 1
    cluster_id: str | None = None
    directory_id: str | None = None
    recovery_checkpoint_interval_ms: int = 60_000
    retention_check_interval_ms: int = 300_000
    producer_expiration_check_interval_ms: int = 600_000
    initial_task_delay_ms: int = 30_000
    producer_snapshot_interval_ms: int = 30_000
    most_unread_bytes: int = 1 << 30
    index_cache_bytes: int = 8 << 20


class LogManager:
    """All logs of one directory. Nothing happens between calls: `on_tick` is to be called by
    `next_deadline_ms`.

    wall: the wall clock, of which all logs know; the rim feeds it. lost_power: after `load`,
    whether the machine was down, and not only the broker, since the last run, or the disk is a copy
    from mid-run: what was written and not flushed may be gone. decisions: after `load`, those that
    flush journals hold, in their order. leader_epoch: after `load`, the one that began with it in
    every log.
    """

    def __init__(self, disk: Disk, data_dir: str, *, config: LogManagerConfig, now_ms: int) -> None:
        self.disk = disk
        self.data_dir = data_dir.rstrip("/") or "/"
        self.config = config
        self.logs: dict[tuple[str, int], Log] = {}
        self.offline: dict[tuple[str, int], CorruptLog] = {}
        self.lost_power = False
        self.decisions: list[JournalDecision] = []
        self.leader_epoch = 0
        self.cluster_id = config.cluster_id
        self.node_id = config.node_id
        self.log_dir = LogDirectory(disk, self.data_dir, IndexCache(config.index_cache_bytes))
        self.cache = self.log_dir.cache
        self.wall = self.log_dir.wall
        self._going = Trash()
        self._removed: set[str] = set()
        self._kept_points: Offsets = {}
        self._kept_starts: Offsets = {}
        self._written: dict[str, bytes] = {}
        self._points: Offsets = {}
        self._lock: Lock | None = None
        self.journal: FlushJournal  # from `load` on, when the directory is ours
        self._deletion_count = 0
        first = now_ms + config.initial_task_delay_ms
        self._next_checkpoint_ms = first
        self._next_retention_ms = first
        self._to_retain: deque[Log] = deque()
        self._to_expire: deque[Log] = deque()
        self._next_expiration_ms = now_ms + config.producer_expiration_check_interval_ms
        self._next_log_check_ms = now_ms

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    # --- starting --------------------------------------------------------------------------------

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        now_ms: int,
        progress: Callable[[int, int, int], None] | None = None,
        known_topics: Callable[[], KnownTopics] | None = None,
    ) -> None:
        """Take the directory, and open every log in it.

        Takes:  config_of, a topic's settings; progress, told (logs done, logs in all, bytes read of
                them); known_topics, asked once the directory is ours.
        Raises: LogDirectoryError where another process has the directory, it belongs to another
                node, or a flush journal is damaged. OSError.
        After:  `logs`, `offline` and `lost_power` say what there is; the mark of a clean stop is
                gone. All logs are in a leader epoch that no client was ever told of, nor will be by
                a later start.
        """
        if not self.disk.is_dir(self.data_dir):
            self.disk.mkdir(self.data_dir)
            parent, slash, _ = self.data_dir.rpartition("/")
            self.disk.fsync_dir(parent or slash or ".")
        try:
            self._lock = self.disk.lock(self._path(LOCK_NAME))
        except BlockingIOError as error:
            raise LogDirectoryError(
                f"{self.data_dir} is in use by another broker: stop it, or give another log.dirs"
            ) from error
        used_before = self.disk.exists(self._path(META_PROPERTIES_NAME))
        self._load_meta_properties()
        clean = self.disk.exists(self._path(CLEAN_SHUTDOWN_NAME))
        self.lost_power = used_before and not clean and not self._is_same_run()
        if used_before and not clean:
            self.disk.fsync_dir(
                self.data_dir
            )  # logs that were made just before the process was killed may not be durable by name
        self.journal = FlushJournal(self.disk, self.data_dir)
        redo = self._read_journals()
        self.decisions = [] if redo is None else redo.decisions
        points = self._load_offsets(RECOVERY_POINT_NAME)
        if redo is not None and not clean and not self.lost_power:
            lacking = redo.lacking(self.disk, self.data_dir, points)
            if lacking:
                self._note_copy(f"{lacking} lacks what was durable")
        starts = self._load_offsets(LOG_START_NAME)
        is_ours = self.disk.exists(self._path(BOOT_ID_NAME))
        found = self._without_strays(
            self._directories(now_ms), known_topics() if known_topics is not None else None
        )
        done = read_bytes = 0

        def on_read(count: int) -> None:
            nonlocal read_bytes
            read_bytes += count
            if progress is not None:
                progress(done, len(found), read_bytes)

        for topic, partition in found:
            key = topic, partition
            try:
                self.logs[key] = load_log(
                    self.log_dir,
                    topic,
                    partition,
                    config_of(topic),
                    recovery_point=points.get(key, 0),
                    log_start_offset=starts.get(key),
                    clean=clean,
                    intact=not self.lost_power,
                    redo=redo if self.lost_power or clean else None,
                    knows_recovery_point=is_ours and RECOVERY_POINT_NAME in self._written,
                    now_ms=now_ms,
                    on_read=on_read,
                )
            except CorruptLog as error:
                logger.error("the log of %s-%d is off line: %s", topic, partition, error)
                self.offline[key] = error
                self._flush_offline(self._directory(topic, partition))
                if key in points:
                    self._kept_points[key] = points[key]
                if key in starts:
                    self._kept_starts[key] = starts[key]
            else:
                reached = self.logs[key].log_end_offset
                if not clean and not self.lost_power and reached < points.get(key, 0):
                    self._note_copy(
                        f"{topic}-{partition} ends at offset {reached}, and was durable up to "
                        f"{points[key]}"
                    )
            done += 1
            on_read(0)
        self._begin_leader_epoch()
        self._checkpoint(force=False)
        # After a power loss, too, what a log holds may be in the page cache alone: a start before
        # this one may have written it again and been killed before its flush. So the journals stay
        # until all logs were flushed.
        if redo is not None and clean and not redo.decisions:
            self.journal.forget_older(keep_found=bool(self.offline))
        if not self.lost_power:
            self.note_boot()
        if clean:
            self.disk.unlink(self._path(CLEAN_SHUTDOWN_NAME))
            self.disk.fsync_dir(self.data_dir)  # else a power loss may bring the mark back

    def _read_journals(self) -> Redo | None:
        try:
            return self.journal.read() if self.journal.has_older else None
        except CorruptLog as error:
            raise DamagedFlushJournalError(str(error)) from error

    def _begin_leader_epoch(self) -> None:
        """Begin an epoch in all logs, as Apache Kafka does when a broker comes up: clients then
        compare what they read with what there is.

        The number is on the disk before a client hears of it. The logs' own files would not do:
        they have an epoch from its first batch on, and a power loss may take both, after clients
        read what it takes. One number serves all partitions, since epochs may skip.
        """
        latest = max((log.epochs.latest for log in self.logs.values()), default=-1)
        self.leader_epoch = max(latest, self._read_leader_epoch()) + 1
        number = b"%d" % self.leader_epoch
        self.disk.write_atomic(
            self._path(LEADER_EPOCH_NAME), b"%s %08x\n" % (number, crc32c(number))
        )
        for log in self.logs.values():
            log.begin_leader_epoch(self.leader_epoch)

    def _read_leader_epoch(self) -> int:
        path = self._path(LEADER_EPOCH_NAME)
        try:
            number, _, crc = self.disk.read(path).rstrip(b"\n").partition(b" ")
        except FileNotFoundError:
            return -1
        if crc != b"%08x" % crc32c(number):
            logger.warning(
                "%s cannot be used (its checksum is wrong): the highest leader epoch is that of "
                "the logs",
                path,
            )
            return -1
        return int(number)

    def _flush_offline(self, directory: str) -> None:
        """A transaction that has data there may be committed all the same, and they are to be
        durable then.
        """
        for name in self.disk.list(directory):
            if name.endswith(LOG_SUFFIX):
                self.disk.open(f"{directory}/{name}").fsync()
        self.disk.fsync_dir(directory)

    def _note_copy(self, why: str) -> None:
        """What was written and not flushed is gone, although the machine was not down: it is
        treated as a power loss.
        """
        logger.warning(
            "this is not what the last broker left, but a copy of the disk from before, or a part "
            "of one: %s",
            why,
        )
        self.lost_power = True

    def _noted_run(self) -> list[str]:
        try:
            return self.disk.read(self._path(BOOT_ID_NAME)).decode().split()
        except (FileNotFoundError, UnicodeDecodeError):
            return []

    def _is_same_run(self) -> bool:
        """Whether all that was written is there: the machine has not been down since, and the file
        system is mounted as it was.
        """
        return self._noted_run() == [self.disk.boot_id(), self.disk.mount_id(self.data_dir)]

    def note_boot(self) -> None:
        """All that follows from a power loss is done and durable: it need not be done again in this
        run of the machine.
        """
        boot_id = self.disk.boot_id()
        if boot_id is not None and not self._is_same_run():
            self.disk.write_atomic(
                self._path(BOOT_ID_NAME), f"{boot_id} {self.disk.mount_id(self.data_dir)}".encode()
            )

    def note_failure(self) -> None:
        """The disk failed: the kernel may have dropped what was written, and the next start is not
        to believe that all of it is there.
        """
        if self._lock is None:
            return  # the directory is not ours
        with suppress(OSError):
            self.disk.write_atomic(
                self._path(BOOT_ID_NAME), f"{self.disk.boot_id()} failed".encode(), sync=False
            )

    def _load_meta_properties(self) -> None:
        path = self._path(META_PROPERTIES_NAME)
        try:
            properties = decode_properties(self.disk.read(path))
        except FileNotFoundError:
            properties = {}
        except CorruptCheckpoint as error:
            raise LogDirectoryError(
                f"{path} cannot be read ({error}): restore it, or remove it to have it written anew"
            ) from error
        node_id = properties.get("node.id", str(self.config.node_id))
        if node_id != str(self.config.node_id):
            raise LogDirectoryError(
                f"{path} says that this is the directory of node {node_id}, not of node "
                f"{self.config.node_id}: "
                f"set node.id to that, or restore the file, or give another log.dirs"
            )
        cluster_id = properties.get("cluster.id", self.config.cluster_id)
        directory_id = properties.get("directory.id", self.config.directory_id)
        self.cluster_id = cluster_id
        wanted = {
            "node.id": node_id,
            "directory.id": directory_id,
            "version": "1",
            "cluster.id": cluster_id,
        }
        wanted |= {key: value for key, value in properties.items() if key not in wanted}
        wanted_text = {key: value for key, value in wanted.items() if value is not None}
        if wanted_text != properties:
            self.disk.write_atomic(path, encode_properties(wanted_text))

    def _load_offsets(self, name: str) -> Offsets:
        try:
            data = self.disk.read(self._path(name))
            offsets = decode_offsets(data)
        except FileNotFoundError:
            return {}
        except CorruptCheckpoint as error:
            logger.warning(
                "%s cannot be used (%s): the logs are checked from further back",
                self._path(name),
                error,
            )
            return {}
        self._written[name] = data
        return offsets

    def _directories(self, now_ms: int) -> list[tuple[str, int]]:
        found = []
        for name in self.disk.list(self.data_dir):
            match = _DIRECTORY.fullmatch(name)
            if _GOING.fullmatch(name):
                self._going.add(now_ms, self._path(name))
            elif match and match["topic"] != _NOT_OURS and self.disk.is_dir(self._path(name)):
                topic, number = match["topic"], match["partition"]
                if topic in (".", "..") or len(topic) > _LONGEST_TOPIC:
                    self._set_aside(name, "no topic may be called so")
                elif len(number) > 1 and number.startswith("0"):
                    self._set_aside(name, f"{number} is no partition's number")
                else:
                    found.append((topic, int(number)))
        return found

    def _without_strays(
        self, found: list[tuple[str, int]], known: KnownTopics | None
    ) -> list[tuple[str, int]]:
        """Set aside what is there under the name of a log and cannot be one: most often a copy that
        somebody made.

        The number behind the last dash of `t-0-20241122` would be a partition's, and its topic
        would have twenty million. By its id a directory is told to be of a topic of another name;
        of two names that nobody knows the shorter one is right.
        """
        indexes: dict[str, list[int]] = {}
        for topic, partition in found:
            indexes.setdefault(topic, []).append(partition)
        names: dict[uuid.UUID, str] = {}
        kept: list[tuple[str, int]] = []
        for topic in sorted(indexes, key=len):
            is_known = known is None or known.topic(topic) is not None
            last = -1
            for partition in sorted(indexes[topic]):
                name = f"{topic}-{partition}"
                other = None if is_known else self._other_topic(name, topic, known, names)
                if other is not None:
                    self._set_aside(
                        name, f"its {PARTITION_METADATA_NAME} says that it is of topic {other}"
                    )
                elif partition - last - 1 > _WIDEST_GAP:
                    self._set_aside(
                        name,
                        f"the highest number of a partition of {topic} below it is {last}"
                        if last >= 0
                        else f"{topic} has no partition with a lower number",
                    )
                else:
                    kept.append((topic, partition))
                    last = partition
        return sorted(kept)

    def _other_topic(
        self, name: str, topic: str, known: KnownTopics | None, names: dict[uuid.UUID, str]
    ) -> str | None:
        """The topic of another name that the directory is of."""
        try:
            topic_id = decode_partition_metadata(
                self.disk.read(self._path(f"{name}/{PARTITION_METADATA_NAME}"))
            )
        except (FileNotFoundError, CorruptCheckpoint):
            return None
        of = known.topic_by_id(topic_id) if known is not None else None
        other = of.name if of is not None else names.setdefault(topic_id, topic)
        return None if other == topic else other

    def _set_aside(self, name: str, why: str) -> None:
        ending = f".{uuid.uuid5(uuid.UUID(int=0), name).hex}-stray"
        aside = name[: _LONGEST_NAME - len(ending)] + ending
        number = 0
        while self.disk.exists(self._path(aside)):
            number += 1
            ending = f".{uuid.uuid5(uuid.UUID(int=number), name).hex}-stray"
            aside = name[: _LONGEST_NAME - len(ending)] + ending
        self.disk.rename(self._path(name), self._path(aside))
        self.disk.fsync_dir(self.data_dir)
        logger.warning(
            "%s is not used, and is called %s from now on: %s; move it out of the data directory, "
            "or, if you miss something, give it its "
            "topic's name and partition's number back",
            self._path(name), aside, why,
        )  # fmt: skip

    def _directory(self, topic: str, partition: int) -> str:
        return self._path(f"{topic}-{partition}")

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
        """A new, empty log; it keeps a descriptor open. Where one of its files cannot be made none
        of them is there after the OSError.

        leader_epoch: 0 of a new partition, `self.leader_epoch` of one that clients may know and
        whose log is gone.
        """
        key = topic, partition
        assert key not in self.logs and key not in self.offline, f"{topic}-{partition} exists"
        directory = self._directory(topic, partition)
        self.disk.mkdir(directory)
        try:
            self.disk.write_atomic(
                f"{directory}/{PARTITION_METADATA_NAME}",
                encode_partition_metadata(topic_id),
                sync=False,
            )
            epochs = LeaderEpochs(self.disk, directory, [])
            epochs.assign(leader_epoch, 0)
            segment = Segment.create(
                self.disk,
                directory,
                0,
                now_ms=now_ms,
                cache=self.cache,
                index_interval_bytes=config.index_interval_bytes,
            )
        except OSError:
            with suppress(OSError):
                self.disk.rmtree(directory)
            raise
        contents = LogContents(
            segments=SegmentList([segment], 0),
            log_start_offset=0,
            recovery_point=0,
            producer_state=ProducerStateManager(),
            epochs=epochs,
            snapshots=ProducerSnapshots(self.disk, directory, []),
            names_are_durable=True,
        )
        log = Log(self.log_dir, TopicIdPartition(topic, partition, topic_id), config, contents)
        log.durability.add_names(f"{directory}/{PARTITION_METADATA_NAME}")
        self.logs[key] = log
        return log

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """The log is gone at once; its files go after file.delete.delay.ms."""
        self.remove(topic, partition, now_ms)
        self.end_removals()

    def remove(self, topic: str, partition: int, now_ms: int) -> None:
        """One of many logs that are deleted: it is gone at once, and for good after `end_removals`."""
        key = topic, partition
        log = self.logs.pop(key, None)
        self.offline.pop(key, None)
        self.log_dir.changed_starts.discard(key)
        delay_ms = 0
        topic_id = uuid.UUID(int=0)
        if log is not None:
            log.forget()
            delay_ms, topic_id = log.config.file_delete_delay_ms, log.topic_id
        self._deletion_count += 1
        unique = uuid.uuid5(topic_id, f"{topic} {partition} {now_ms} {self._deletion_count}").hex
        ending = f"-{partition}.{unique}-delete"
        directory = self._path(topic[: _LONGEST_NAME - len(ending)] + ending)
        self.disk.rename(self._directory(topic, partition), directory)
        self._going.add(now_ms + delay_ms, directory)
        self._removed.add(self._directory(topic, partition))

    def end_removals(self) -> None:
        """What was removed stays removed, whatever happens; the checkpoints know of it no more."""
        if self._removed:
            self.disk.fsync_dir(self.data_dir)
            self.log_dir.trash.remove_in(self._removed)
            self._removed.clear()
            self._checkpoint(force=False)

    def discard(self, firsts: Mapping[str, int]) -> None:
        """New logs that nobody was told of go at once, and what was made of the next: of each topic
        those from this number on.

        The logs first: where descriptors are what is wanting, theirs are free then for the
        directories.
        """
        directories = []
        for topic, index in firsts.items():
            while self.disk.exists(self._directory(topic, index)):
                log = self.logs.pop((topic, index), None)
                if log is not None:
                    log.forget()
                directories.append(self._directory(topic, index))
                index += 1
        log = None
        for directory in directories:
            self.disk.rmtree(directory)
        self.disk.fsync_dir(self.data_dir)

    # --- from time to time -----------------------------------------------------------------------

    def next_deadline_ms(self) -> int:
        """When `on_tick` has something to do."""
        due = min(self._next_checkpoint_ms, self._next_retention_ms, self._next_expiration_ms)
        for waiting in (self._going, self.log_dir.trash):
            at = waiting.next_due_ms()
            if at is not None and at < due:
                due = at
        if self.log_dir.changed_logs and self._next_log_check_ms < due:
            due = self._next_log_check_ms
        return 0 if self.log_dir.changed_starts or self._to_retain or self._to_expire else due

    def on_tick(self, now_ms: int) -> None:
        """Do what is due: retention, checkpoints, producers that expire, files that go."""
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + self.config.retention_check_interval_ms
            self._to_retain = self._to_retain or deque(self.logs.values())
        if self._to_retain:
            self._retain_some(now_ms)
        if (
            self.log_dir.changed_starts
        ):  # before any file goes: a start that was told must not fall back
            self._write_changed_starts()
        if now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + self.config.recovery_checkpoint_interval_ms
            try:
                self._checkpoint(force=False)
            except OSError as error:
                if not is_want_of_room(error):
                    raise
                logger.warning("the checkpoint of %s waits for room: %s", self.data_dir, error)
        if now_ms >= self._next_expiration_ms:
            self._next_expiration_ms = now_ms + self.config.producer_expiration_check_interval_ms
            self._to_expire = self._to_expire or deque(self.logs.values())
        if self._to_expire:
            self._expire_some(now_ms)
        if self.log_dir.changed_logs and now_ms >= self._next_log_check_ms:
            self._checkpoint_logs(now_ms)
        self._empty_trash(now_ms)

    def _retain_some(self, now_ms: int) -> None:
        """The retention of a few logs, so that requests get their turn: the others are due at once."""
        room = _LOGS_LOOKED_AT_AT_ONCE
        while room > 0 and self._to_retain:
            log = self._to_retain.popleft()
            room -= 1
            if self._has(log):
                room -= _LOGS_AS_A_SEGMENT * self._retain(log, now_ms)

    def _retain(self, log: Log, now_ms: int) -> int:
        """Gives how many segments were let go."""
        try:
            return log.delete_old_segments(now_ms)
        except CorruptLog as error:
            logger.error("retention of %r stops: %s", log, error)
            return 0

    def _expire_some(self, now_ms: int) -> None:
        """The same for producers that are to be forgotten."""
        room = _LOGS_LOOKED_AT_AT_ONCE
        while room > 0 and self._to_expire:
            log = self._to_expire.popleft()
            room -= 1 + len(log.producer_state.producers) // _PRODUCERS_LOOKED_AT_AS_A_LOG
            if self._has(log):
                log.expire_producers(now_ms)

    def _has(self, log: Log) -> bool:
        return self.logs.get((log.topic, log.partition)) is log

    def _checkpoint_logs(self, now_ms: int) -> None:
        """Bring up the checkpoints of logs that are due; and, where all together hold too much that
        none knows, of those that hold the most.

        A few at a call, so that requests get their turn: what is left is due at once.
        """
        interval_ms = self.config.producer_snapshot_interval_ms
        try:
            excess = self._checkpoint_due_logs(now_ms, interval_ms)
        except OSError as error:
            if not is_want_of_room(error):
                raise
            logger.warning("the checkpoints of logs wait for room: %s", error)
            self._next_log_check_ms = now_ms + max(_LOG_CHECK_INTERVAL_MS, interval_ms)
            return
        self._next_log_check_ms = now_ms + min(_LOG_CHECK_INTERVAL_MS, interval_ms)
        if self.log_dir.changed_logs:
            due_ms = next(iter(self.log_dir.changed_logs.values())) + interval_ms
            self._next_log_check_ms = (
                now_ms if excess > 0 else max(now_ms, min(self._next_log_check_ms, due_ms))
            )

    def _checkpoint_due_logs(self, now_ms: int, interval_ms: int) -> int:
        """Gives by how many bytes too much is still in no checkpoint."""
        room = _CHECKPOINTS_AT_ONCE
        while room > 0 and self.log_dir.changed_logs:
            log, changed_ms = next(iter(self.log_dir.changed_logs.items()))
            if now_ms - changed_ms < interval_ms:
                break
            room -= _checkpoint_cost(log)
            log.checkpoint()
        excess = (
            sum(log.unread_bytes for log in self.log_dir.changed_logs)
            - self.config.most_unread_bytes
        )
        for log in (
            heapq.nlargest(
                _CHECKPOINTS_AT_ONCE, self.log_dir.changed_logs, key=lambda log: log.unread_bytes
            )
            if excess > 0
            else ()
        ):
            if excess <= 0 or room <= 0:
                break
            excess -= log.unread_bytes
            room -= _checkpoint_cost(log)
            log.checkpoint()
        return excess

    def _empty_trash(self, now_ms: int) -> None:
        """A few at a call, so that requests get their turn: what is left is due at once."""
        for path in self.log_dir.trash.take_due(now_ms, _FILES_GO_AT_ONCE):
            self.disk.unlink(path)
        for path in self._going.take_due(now_ms, _DIRECTORIES_GO_AT_ONCE):
            try:
                self.disk.rmtree(path)
            except OSError as error:
                if not is_want_of_room(error):
                    raise
                self._going.add(now_ms + _LOG_CHECK_INTERVAL_MS, path)  # it takes descriptors

    def _checkpoint(self, *, force: bool) -> None:
        logs = self.logs
        points = {key: log.durability.recovery_point for key, log in logs.items()}
        self._write(RECOVERY_POINT_NAME, encode_offsets(self._kept_points | points), force)
        self._points = points
        self._write(
            REPLICATION_NAME,
            encode_offsets({key: log.high_watermark for key, log in logs.items()}),
            force,
        )
        self.write_starts()

    def write_recovery_point(self, log: Log, offset: int) -> None:
        """Have it written down that all below `offset` is durable in its files, which it is: gaps
        below are no damage then.
        """
        assert log.durability.is_flushed_in_place(offset), (
            f"{log!r} is durable up to {log.durability.recovery_point}, not {offset}"
        )
        if self._points.get((log.topic, log.partition), 0) < offset:
            self._checkpoint(force=False)

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
        self._write(LOG_START_NAME, encode_offsets(self._kept_starts | starts), False)

    def _write_changed_starts(self) -> None:
        """The same; where there is no room for it, which what retention took will give, what it
        took is made to stay away.
        """
        changed = [self.logs[key] for key in sorted(self.log_dir.changed_starts)]
        try:
            self.write_starts()
        except OSError as error:
            if not is_want_of_room(error) or any(
                log.log_start_offset != log.segments[0].base_offset for log in changed
            ):
                raise
            logger.warning("the starts of %s wait for room: %s", changed, error)
            self.log_dir.changed_starts.clear()
            for log in changed:
                self.disk.fsync_dir(log.directory)

    def _write(self, name: str, data: bytes, force: bool) -> None:
        if force or self._written.get(name) != data:
            self.disk.write_atomic(self._path(name), data)
            self._written[name] = data

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
        self._checkpoint(force=True)
        self.journal.begin_next()
        self.journal.forget_older(keep_found=bool(self.offline))
        self.disk.write_atomic(self._path(CLEAN_SHUTDOWN_NAME), CLEAN_SHUTDOWN)
        if self._lock is not None:
            self._lock.release()
            self._lock = None
