"""The registry of topics: their partitions' logs, leader epochs and settings, their creation and
growth.

The metadata journal is written first (see `slices.py`). A new topic is written to the journal
before its first log is made, and `partition` returns its logs only when all of them exist. A
deleted topic is removed from the journal and from this registry before its first log is removed. A
start finishes a creation or deletion that was interrupted. The other effects of a deletion
(waiting fetches, flushes, offsets of groups) are in `topic_deletion.py`.
"""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.logs.disk_space import DiskSpace
from barnabas.broker.logs.metadata import ClusterMetadata, Topic
from barnabas.broker.outbox import Ids
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.topic_config import topic_log_config, topic_setting_value
from barnabas.broker.slices import LOGS_MADE_AT_ONCE, Slices, Wait, run_through
from barnabas.coordinator.internal_topics import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    RETENTION_CONFIGS,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas.coordinator.result import partition_for
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import NO_LEADER_EPOCH
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import NotWrittenError, is_out_of_resources
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.checkpoints import (
    MANIFEST_NAME,
    NO_TOPIC_ID,
    PARTITION_METADATA_NAME,
    encode_topic_id,
)
from barnabas.storage.files.segment_files import CorruptLog, ForeignLog
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.log_config import LogConfig

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.broker")

NEW_LOG_BYTES = 16 * 1024  # the disk space that a new log's directory and files need
LOGS_CONFIGURED_AT_ONCE, LOGS_AS_A_CONFIG = 500, 4


class _InternalSettings(NamedTuple):
    """The names of the broker settings that apply to a new internal topic."""

    partition_count: str
    segment_bytes: str


_INTERNAL_SETTINGS = {
    OFFSETS_TOPIC: _InternalSettings("offsets.topic.num.partitions", "offsets.topic.segment.bytes"),
    TRANSACTIONS_TOPIC: _InternalSettings(
        "transaction.state.log.num.partitions", "transaction.state.log.segment.bytes"
    ),
    SHARE_STATE_TOPIC: _InternalSettings(
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.segment.bytes",
    ),
}


class TopicRegistry:
    """All topics of the broker, with the logs of their partitions.

    A partition whose log is damaged, or whose directory has the id of another topic, is offline:
    it exists, and `partition` returns None for it.

    before_creation: the wait before topics of given names are created (`TopicDeletion`).
    on_created: called with the logs of new topics. configuring: the change of all logs' settings
    that `on_tick` continues, or None. more_readable: logs in which a changed setting makes more
    records visible; they are kept here until the waiting fetches are notified.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        logs: LogManager,
        ids: Ids,
        disk_space: DiskSpace,
        on_created: Callable[[list[Log]], None] = lambda logs: None,
    ) -> None:
        self._config, self.metadata, self.logs, self._ids = config, metadata, logs, ids
        self.disk_space, self.on_created = disk_space, on_created
        self.version = 0  # increases when a topic is created, gets partitions or is deleted
        self._partitions: dict[str, list[Log | None]] = {}
        # topics that were created in this run, and the value of `version` after their creation
        self._made_at: dict[str, int] = {}
        self._leader_epochs: dict[str, tuple[int, ...]] = {}
        self.configuring: Iterator[None] | None = None
        self.more_readable: list[Log] = []
        self.before_creation: Callable[[Collection[str], int], Wait | None] = lambda *_: None

    # --- partitions ------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        """Whether the topic exists, with all its logs."""
        return name in self._partitions

    def partition(self, topic: str, index: int) -> Log | None:
        """The log of a partition; None if the partition does not exist or is offline."""
        logs = self._partitions.get(topic)
        if logs is None or not 0 <= index < len(logs):
            return None
        return logs[index]

    def logs_at(self, partitions: Iterable[tuple[str, int]]) -> list[Log | None]:
        """The logs of partitions, as `partition` gives each."""
        logs: list[Log | None] = []
        topic, of_topic = "", self._partitions.get("", [])
        for name, index in partitions:
            if name != topic:
                topic, of_topic = name, self._partitions.get(name, [])
            logs.append(of_topic[index] if 0 <= index < len(of_topic) else None)
        return logs

    def is_later(self, topic: str, context: RequestContext) -> bool:
        """Whether the topic was created after the arrival of a request that has waited. Then the
        name in the request means an earlier topic, or none.
        """
        return self._made_at.get(topic, 0) > context.topics_version

    def require_partition(self, topic: str, index: int) -> Log:
        """The log of a partition. Raises: KafkaError, with `missing_code`, if there is no log."""
        log = self.partition(topic, index)
        if log is None:
            raise KafkaError(self.missing_code(topic, index))
        return log

    def partitions_of(self, topic: str) -> list[Log | None]:
        """The logs of a topic by index; None for each partition that is off line."""
        return self._partitions.get(topic, [])

    def logs_of(self, topic: str) -> list[Log]:
        """The logs of a topic, without partitions that are off line."""
        return [log for log in self._partitions.get(topic, ()) if log is not None]

    def partition_exists(self, topic: str, index: int) -> bool:
        """Whether the partition exists, even if it is offline. The offsets and transactions of an
        offline partition are kept until it returns.
        """
        return self.partition(topic, index) is not None or (topic, index) in self.logs.offline

    def missing_code(self, topic: str, index: int) -> Code:
        """The error code for a partition for which `partition` returned None, because the partition
        does not exist or is offline.
        """
        return (
            Code.KAFKA_STORAGE_ERROR
            if (topic, index) in self.logs.offline
            else Code.UNKNOWN_TOPIC_OR_PARTITION
        )

    # --- leader epochs ---------------------------------------------------------------------------

    def leader_epochs(self, topic: str) -> tuple[int, ...]:
        """The leader epoch of each partition of a topic. For an offline partition it is a lower
        bound of the epoch with which the partition returns.
        """
        epochs = self._leader_epochs.get(topic)
        if epochs is None:
            latest = self.logs.leader_epoch
            logs = self.partitions_of(topic)
            epochs = self._leader_epochs[topic] = tuple(
                [latest if log is None else log.leader_epoch for log in logs]
            )
        return epochs

    def leader_epoch(self, topic: str, index: int) -> int:
        """The leader epoch of a partition; 0 if the partition does not exist yet, since this is its
        first epoch.
        """
        logs = self._partitions.get(topic)
        log = None if logs is None or not 0 <= index < len(logs) else logs[index]
        return 0 if log is None else log.leader_epoch

    def begin_leader_epoch(self, partitions: Iterable[TopicPartition]) -> list[Log]:
        """Begin a leader epoch in partitions whose leaders have changed. Gives: the partitions'
        logs.
        """
        logs = []
        for name, index in partitions:
            self._leader_epochs.pop(name, None)
            log = self.partition(name, index)
            if log is not None:
                logs.append(log)
        self.logs.begin_leader_epoch(logs)
        return logs

    def fenced_partition(self, topic: str, index: int, current_leader_epoch: int) -> Log:
        """The log of a partition, for a reader that names the leader's epoch.

        Raises: KafkaError UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH
                if the reader is behind, UNKNOWN_LEADER_EPOCH if it is ahead.
        Source: KIP-320.
        """
        log = self.require_partition(topic, index)
        check_leader_epoch(log, current_leader_epoch)
        return log

    # --- internal topics -------------------------------------------------------------------------

    def internal_partition_count(self, name: str) -> int:
        """The partition count of an internal topic, even before the topic is created."""
        topic = self.metadata.topic(name)
        if topic is not None:
            return topic.partition_count
        count: int = self._config[_INTERNAL_SETTINGS[name].partition_count]
        return count

    def group_partition(self, group_id: str) -> int:
        """The partition of __consumer_offsets that has a group's records."""
        return partition_for(group_id, self.internal_partition_count(OFFSETS_TOPIC))

    def ensure_internal_topic(self, name: str, now_ms: int) -> None:
        """Create an internal topic at its first use, as Kafka does. Its files are made soon
        afterwards.
        """
        if name not in self._partitions:
            segment_bytes = self._config[_INTERNAL_SETTINGS[name].segment_bytes]
            configs = {**RETENTION_CONFIGS[name], "segment.bytes": str(segment_bytes)}
            self.create_topic(name, self.internal_partition_count(name), configs, now_ms=now_ms)
            self.on_created(self.logs_of(name))

    def internal_log(self, name: str, index: int, now_ms: int) -> Log:
        """The log of a partition of an internal topic. The topic is created if it does not
        exist.
        """
        if name not in self._partitions:
            self.ensure_internal_topic(name, now_ms)
        log = self._partitions[name][index]
        assert log is not None, f"{name}-{index} is missing"
        return log

    # --- creation and growth ---------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partition_count: int,
        configs: dict[str, str],
        *,
        topic_id: uuid.UUID | None = None,
        now_ms: int,
    ) -> Topic:
        """Create a topic and its logs at once. The caller has checked that the name is unused and
        all values are valid.
        """
        topic = Topic(name, topic_id or self._ids.uuid(), partition_count, dict(configs))
        wait = self.before_creation([name], now_ms)
        if wait is not None:
            wait.at_once()
        self._begin_topics([topic])
        run_through(self._make_logs([topic], now_ms), now_ms)
        return topic

    def create_topics(self, topics: Sequence[Topic], now_ms: int) -> Slices:
        """Create topics and their logs. The caller has checked that names and ids are unused and
        all values are valid. A topic is visible once all its logs exist.

        Gives: the names of topics that are refused because the disk is full: all of them, or none.
        """
        try:
            wait = self.before_creation({topic.name for topic in topics}, now_ms)
            if wait is not None:
                now_ms = yield wait
            if not self._reserve_logs(sum(topic.partition_count for topic in topics)):
                return [topic.name for topic in topics]
            self._begin_topics(topics)
        except NotWrittenError as error:
            self.disk_space.on_not_written(error)
            return [topic.name for topic in topics]
        yield from self._make_logs(topics, now_ms)
        self._announce_created(topics)
        return []

    def add_partitions(self, counts: Mapping[str, int], now_ms: int) -> Slices:
        """Grow topics to the given numbers of partitions. New partitions of a topic become visible
        together.

        Gives: the names of topics that are refused because the disk is full: all of them, or none.
        """
        if not self._reserve_logs(
            sum(count - len(self._partitions[name]) for name, count in counts.items())
        ):
            return list(counts)
        try:
            topics = self.metadata.grow_topics(counts)
        except NotWrittenError as error:
            self.disk_space.on_not_written(error)
            return list(counts)
        yield from self._make_logs(topics, now_ms)
        self._announce_created(topics)
        return []

    def _announce_created(self, topics: Iterable[Topic]) -> None:
        self.on_created([log for topic in topics for log in self.logs_of(topic.name)])

    def _reserve_logs(self, partition_count: int) -> bool:
        return self.disk_space.reserve(NEW_LOG_BYTES * partition_count)

    def _begin_topics(self, topics: Sequence[Topic]) -> None:
        self._end_deletions_of_namesakes({topic.name for topic in topics})
        self.metadata.begin_topics(topics)

    def _end_deletions_of_namesakes(self, names: set[str]) -> None:
        """Record that the deletions of earlier topics with the given names are complete."""
        deleted = [topic_id for topic_id, name in self.metadata.deletions.items() if name in names]
        for topic_id in deleted:
            self.metadata.end_deletion(topic_id)

    def _make_logs(self, topics: Iterable[Topic], now_ms: int) -> Slices:
        """Give each topic the logs that it lacks."""
        made = 0
        for topic in topics:
            logs = list(self._partitions.get(topic.name, ()))
            config, is_interrupted = self._log_config(topic), False
            while len(logs) < topic.partition_count:
                if made == LOGS_MADE_AT_ONCE:
                    made, now_ms = 0, (yield)
                    is_interrupted = True
                for index in range(
                    len(logs), min(topic.partition_count, len(logs) + LOGS_MADE_AT_ONCE - made)
                ):
                    logs.append(self._loaded_or_new_log(topic, index, config, now_ms))
                    made += 1
            self._partitions[topic.name] = logs
            self.version += 1
            self._leader_epochs.pop(topic.name, None)
            if is_interrupted and self._log_config(topic) != config:
                self._configure(topic)  # the topic's settings were altered between two slices
            if topic.topic_id in self.metadata.coming:
                self._made_at[topic.name] = self.version
                self.metadata.end_creation(topic)

    def load(self, topic: Topic, now_ms: int) -> None:
        """Give a topic its loaded logs at a start, and create logs for partitions whose creation
        was interrupted by a kill.

        The new logs begin with the leader epoch of this start, since clients may already have
        metadata of the partitions.
        """
        self._leader_epochs.pop(topic.name, None)
        config = self._log_config(topic)
        self.version += 1
        self._partitions[topic.name] = [
            self._loaded_or_new_log(
                topic, index, config, now_ms, leader_epoch=self.logs.leader_epoch
            )
            for index in range(topic.partition_count)
        ]
        # the files are made now, so that a coordinator's write does not find the disk full
        if topic.internal:
            self._make_files_of(topic.name)

    def make_internal_files(self) -> None:
        """Make the files of internal topics that no thread has made yet, at a clean stop.

        Programs that read the directory of a stopped broker expect these files. If there is no disk
        space, the next start makes them.
        """
        for name in INTERNAL_TOPICS:
            self._make_files_of(name)

    def _make_files_of(self, name: str) -> None:
        """Make the files of a topic's logs. If space is missing, a log makes its files with its
        first batch.
        """
        for log in self.logs_of(name):
            try:
                log.files.make()
            except OSError as error:
                if not is_out_of_resources(error):
                    raise
                logger.warning("%r has no files: %s", log, error)

    def _loaded_or_new_log(
        self, topic: Topic, index: int, config: LogConfig, now_ms: int, *, leader_epoch: int = 0
    ) -> Log | None:
        """The log of a partition with its topic's settings: the loaded one, or a new one. None if
        it is offline. Raises: LogDirectoryError if a log of an internal topic is damaged.
        """
        log = self.logs.logs.get((topic.name, index))
        if (topic.name, index) in self.logs.offline:
            if topic.internal:
                raise internal_log_is_damaged(
                    topic.name, index, self.logs.offline[topic.name, index]
                )
        elif log is None:
            log = self.logs.create(
                topic.name, index, topic.topic_id, config, now_ms, leader_epoch=leader_epoch
            )
        elif log.topic_id not in (topic.topic_id, NO_TOPIC_ID):
            error = _is_of_another_topic(log, topic)
            if topic.internal:
                raise internal_log_is_damaged(topic.name, index, error)
            self.logs.take_off_line(log, error)
            log = None
        else:
            if log.config != config:
                log.config = config
            if log.topic_id == NO_TOPIC_ID:
                _give_topic_id(log, topic.topic_id)
        return log

    # --- deletion --------------------------------------------------------------------------------

    def forget(self, names: Sequence[str]) -> list[tuple[str, int, Log | None]]:
        """Remove topics that are no longer in the journal. Gives: topic, index and log of each of
        their partitions. The logs are still on the disk.
        """
        self.version += 1
        for name in names:
            self._leader_epochs.pop(name, None)
            self._made_at.pop(name, None)
        return [
            (name, index, log)
            for name in names
            for index, log in enumerate(self._partitions.pop(name, ()))
        ]

    # --- settings --------------------------------------------------------------------------------

    def set_topic_configs(self, name: str, configs: dict[str, str]) -> None:
        """Replace a topic's configs. Its logs apply them from the next append on."""
        self.metadata.set_topic_configs(name, configs)
        topic = self.metadata.topic(name)
        assert topic is not None
        self._configure(topic)

    def set_broker_configs(self, configs: dict[str, str]) -> None:
        """Replace the dynamic configs of this broker, which include defaults of topic settings.

        If there are many logs, some of them apply the change at each tick. Apache Kafka also
        responds before all logs have applied it.
        """
        self.metadata.set_broker_configs(configs)
        self._config.set_dynamic(configs)
        self._configure_all()

    def set_broker_default_configs(self, configs: dict[str, str]) -> None:
        """Replace the dynamic configs for all brokers, which include defaults of topic settings."""
        self.metadata.set_broker_default_configs(configs)
        self._config.set_dynamic_defaults(configs)
        self._configure_all()

    def min_in_sync_replicas(self, name: str) -> int:
        """How many replicas of a topic have to be in sync for acks=all, and for writes of
        coordinators.
        """
        topic = self.metadata.topic(name)
        has_own = topic is not None and "min.insync.replicas" in topic.configs
        is_of_transactions = name == TRANSACTIONS_TOPIC and not has_own
        count: int = (
            self._config.transaction_state_log_min_isr
            if is_of_transactions
            else self._setting(name, "min.insync.replicas")
        )
        return count

    def has_unclean_election(self, name: str) -> bool:
        """Whether an out-of-sync replica of the topic may become leader."""
        return bool(self._setting(name, "unclean.leader.election.enable"))

    def _setting(self, name: str, setting: str) -> Any:
        topic = self.metadata.topic(name)
        return topic_setting_value(self._config, {} if topic is None else topic.configs, setting)

    def _configure_all(self) -> None:
        """Begin to apply a change of the broker's settings to all logs; a change that is under way
        is replaced by this one.
        """
        # each log gets the settings that are in force at its turn
        self.configuring = self._configuring_all()
        self.on_tick()

    def on_tick(self) -> None:
        """Apply a change of the broker's settings to some more logs."""
        if self.configuring is not None:
            # the generator yields None; True means that it has ended
            is_done = next(self.configuring, True)
            if is_done:
                self.configuring = None

    def _configuring_all(self) -> Iterator[None]:
        """Configure all logs, LOGS_CONFIGURED_AT_ONCE in each slice."""
        left = LOGS_CONFIGURED_AT_ONCE
        for topic in list(self.metadata.topics.values()):
            logs = self._partitions.get(topic.name, [])
            config = self._log_config(topic)
            left -= LOGS_AS_A_CONFIG
            index = 0
            while index < len(logs):
                if left <= 0:
                    left = LOGS_CONFIGURED_AT_ONCE
                    # during the yield a topic may be deleted or grow, and its own settings may
                    # change
                    yield
                    logs = self._partitions.get(topic.name, [])
                    config = self._log_config(self.metadata.topics.get(topic.name, topic))
                    continue
                try:
                    self._set_config(logs[index], config)
                except Exception as error:
                    contain(error, f"the settings of {logs[index]!r}")
                index, left = index + 1, left - 1

    def _configure(self, topic: Topic) -> None:
        """Apply a topic's settings to its logs."""
        config = self._log_config(topic)
        for log in self._partitions.get(topic.name, ()):
            self._set_config(log, config)

    def _set_config(self, log: Log | None, config: LogConfig) -> None:
        """Set a log's settings. If this makes more records readable, the waiting fetches are tried
        at the next tick.
        """
        if log is not None and log.config != config:
            before = log.high_watermark
            log.config = config
            # more records are visible if they no longer have to be flushed before readers get them
            if log.high_watermark > before:
                self.more_readable.append(log)

    def _log_config(self, topic: Topic) -> LogConfig:
        return topic_log_config(self._config, topic.configs, is_internal=topic.internal)


def check_leader_epoch(log: Log, current_leader_epoch: int) -> None:
    """Check the leader epoch that a reader names. A reader with another epoch is refused, so that
    it requests metadata and compares logs.

    Only this function fences a reader by its leader epoch. NO_LEADER_EPOCH means that the reader
    names no epoch, or that the request version has no field for it.

    Raises: KafkaError FENCED_LEADER_EPOCH if the reader is behind, UNKNOWN_LEADER_EPOCH if it is
            ahead.

    Source: KIP-320.
    """
    if current_leader_epoch in (NO_LEADER_EPOCH, log.leader_epoch):
        return
    code = (
        Code.FENCED_LEADER_EPOCH
        if current_leader_epoch < log.leader_epoch
        else Code.UNKNOWN_LEADER_EPOCH
    )
    raise KafkaError(
        code, f"{log!r} is in leader epoch {log.leader_epoch}, not {current_leader_epoch}"
    )


# what readers of records raise for bytes that they do not understand
UNREADABLE = (ValueError, IndexError, struct.error)


def internal_log_is_damaged(topic: str, index: int, error: CorruptLog) -> LogDirectoryError:
    """The error that ends a start: the log of an internal topic cannot be read."""
    return LogDirectoryError(
        f"{topic}-{index} is damaged, and without it state of groups or transactions would be "
        f"lost: {error}"
    )


def internal_record_is_unreadable(
    topic: str, index: int, offset: int, error: Exception
) -> LogDirectoryError:
    """The error that ends a start: a record of an internal topic has a form that is not known."""
    return LogDirectoryError(
        f"{topic}-{index} has a record at offset {offset} that cannot be read ({error!r}), and "
        "without it state of groups or transactions would be lost. Nothing was changed. Start the "
        "version that wrote it, or restore the directory from a copy"
    )


def _is_of_another_topic(log: Log, topic: Topic) -> ForeignLog:
    """The error for a directory that was copied from another topic, or restored from an earlier
    topic of the same name.
    """
    return ForeignLog(
        f"{log.directory}/{PARTITION_METADATA_NAME}",
        0,
        f"the directory belongs to the topic with the id {encode_topic_id(log.topic_id)}, and "
        f"{topic.name} has the id {encode_topic_id(topic.topic_id)}",
        "Move the directory out of the data directory; or, if its records belong to "
        f"{log.topic}-{log.partition}, remove that file and {MANIFEST_NAME}. Then start the "
        "broker again",
    )


def _give_topic_id(log: Log, topic_id: uuid.UUID) -> None:
    """Store the topic's id in a log that has none. If the disk is full, a later start stores it."""
    try:
        log.adopt_topic_id(topic_id)
    except OSError as error:
        if not is_out_of_resources(error):
            raise
        logger.warning("%r has no topic id until there is space: %s", log, error)
