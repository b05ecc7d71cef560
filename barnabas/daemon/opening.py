"""Makes a running broker from a configuration, and defines the order in which the parts of a data
directory are opened.

lock -> metadata journal -> logs (recovered if the last stop was not clean) -> internal topics
replayed -> transactions whose end was prepared completed.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from barnabas.broker.assemble import assemble
from barnabas.broker.core import Broker
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import Ids
from barnabas.broker.quotas.quotas import no_time
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.deletion import StartNote, deleting
from barnabas.broker.settings.topic_config import topic_log_config
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.storage.directory.log_manager import LogManager, sync_one_by_one
from barnabas.storage.disk import Disk, OsDisk, Syncable, may_have_lost_pages
from barnabas.storage.files.checkpoints import METADATA_JOURNAL_NAME, STANDBY_NOTE_NAME
from barnabas.storage.log_config import LogConfig, LogManagerConfig
from barnabas.storage.pooled_disk import PooledDisk

logger = logging.getLogger("barnabas.opening")

# The settings for a topic whose own settings are unknown. Its log may be compacted, so gaps in its
# offsets must not count as damage.
COMPACTED = {"cleanup.policy": "compact"}


def open_broker(
    config: BrokerConfig,
    ids: Ids,
    *,
    disk: Disk | None = None,
    now_ms: int,
    wall_ms: int | None = None,
    sync: Callable[[list[Syncable]], None] = sync_one_by_one,
    leader_epoch: int = 0,
    clock_ns: Callable[[], int] = no_time,
    notes_settings: bool = True,
) -> Broker:
    """Open the data directory that the configuration names, with all its contents. The parameters
    that have defaults are what only the daemon knows.

    Takes:  now_ms, the steady time; wall_ms, the wall time, which is now_ms if it is not given;
            sync, a function that fsyncs several files: a start with many logs is faster if it
            fsyncs them in parallel; leader_epoch, the epoch with which this node claimed the
            lease, or 0 without a lease: the leader epoch of each partition is at least this one,
            and a standby's copy that was in sync is assumed to have all acknowledged data;
            clock_ns, a clock for measuring the parts of the start; notes_settings, whether the
            settings are those of a start of the broker, which are noted (settings/deletion.py).
    Raises: LogDirectoryError, with one line that says which file is wrong and what to do; OSError
            of the disk.
    """
    disk = PooledDisk(OsDisk() if disk is None else disk)
    was_standby = _was_standby(disk, config.data_dir)
    log_config = _log_manager_config(config, ids, leader_epoch)
    if was_standby:
        log_config = replace(
            log_config,
            may_lack_acknowledged=_may_lack_acknowledged(disk, config.data_dir, leader_epoch),
        )
    logs = LogManager(disk, config.data_dir, config=log_config, now_ms=now_ms)
    if wall_ms is not None:
        logs.wall.feed(now_ms, wall_ms)

    settings = _TopicSettings(config, disk)
    try:
        logs.load(settings.log_config, now_ms, progress=_Progress(), known_topics=settings.metadata)
        # Cut the torn change at the journal's end only after the logs are loaded, so that a start
        # that is refused leaves the change for the next start.
        settings.metadata().cut_torn()
        broker = assemble(
            config, settings.metadata(), logs, ids, now_ms, _take_over, sync, clock_ns
        )
        if was_standby:
            _end_standby(disk, config.data_dir)
        if notes_settings:
            StartNote(disk, config.data_dir).write(
                config.explicit, config.dynamic.keys() | config.dynamic_defaults.keys()
            )
        return broker
    except OSError as error:
        if may_have_lost_pages(error):
            logs.note_failure()
        raise


def _take_over(
    topics: TopicRegistry, producer_ids: ProducerIdAllocator, ids: Ids, node_id: int
) -> None:
    """Add the topics of a directory that another broker has written to the journal."""
    from barnabas.graduation.kafka_directory.take_over import (
        take_over_topics,  # imported here, since few starts find such topics
    )

    take_over_topics(topics, producer_ids, ids, node_id)


def _was_standby(disk: Disk, data_dir: str) -> bool:
    """Whether the directory is a standby's copy. Raises: LogDirectoryError if the copy is
    incomplete.
    """
    if not disk.exists(f"{data_dir}/{STANDBY_NOTE_NAME}"):
        return False
    from barnabas.replication.following import StandbyNote

    return StandbyNote(disk, data_dir).check()


def _may_lack_acknowledged(disk: Disk, data_dir: str, leader_epoch: int) -> bool:
    """Whether the standby's copy may lack records that its leader acknowledged."""
    from barnabas.replication.following import StandbyNote

    lacks = StandbyNote(disk, data_dir).may_lack_acknowledged(is_claimed=leader_epoch > 0)
    if lacks:
        logger.warning(
            "%s was a standby's, and may lack acknowledged data: transactional producers are "
            "fenced, and open transactions aborted", data_dir,
        )  # fmt: skip
    return lacks


def _end_standby(disk: Disk, data_dir: str) -> None:
    """Remove the standby's note: the directory is this broker's from now on."""
    from barnabas.replication.following import StandbyNote

    StandbyNote(disk, data_dir).remove()
    logger.warning(
        "%s was a standby's: this broker continues with all data that its leader sent. That "
        "leader must not run again, except as a standby of this broker", data_dir,
    )  # fmt: skip


class _TopicSettings:
    """The settings of topics, from the metadata journal or else from Apache Kafka's metadata log.

    The journal and the metadata log are each read once, at the first use. This lets the log manager
    lock the directory before either is read.
    """

    def __init__(self, config: BrokerConfig, disk: Disk) -> None:
        self._config = config
        self._disk = disk
        self._metadata: ClusterMetadata | None = None
        self._kafkas_configs: dict[str, dict[str, str]] | None = None
        self._log_configs: dict[str, LogConfig] = {}

    def metadata(self) -> ClusterMetadata:
        """The metadata in the journal. The first call reads the journal, and applies the broker's
        dynamic settings from it.
        """
        metadata = self._metadata
        if metadata is None:
            path = f"{self._config.data_dir}/{METADATA_JOURNAL_NAME}"
            metadata = self._metadata = ClusterMetadata(self._disk, path)
            self._config.set_dynamic(metadata.broker_configs)
            self._config.set_dynamic_defaults(metadata.broker_default_configs)
        return metadata

    def log_config(self, name: str) -> LogConfig:
        """The settings of the logs of a topic."""
        if name not in self._log_configs:
            topic = self.metadata().topic(name)
            configs = self._of_kafka(name) if topic is None else topic.configs
            self._log_configs[name] = topic_log_config(
                self._config, configs, is_internal=name in INTERNAL_TOPICS
            )
        return self._log_configs[name]

    def _of_kafka(self, name: str) -> dict[str, str]:
        """The settings of a topic that is not in the metadata journal, but may be in Apache Kafka's
        metadata log.
        """
        if self._kafkas_configs is None:
            from barnabas.graduation.kafka_directory.kafka_metadata import (
                read_kafka_metadata,  # imported here: most starts have no such log
            )

            kafka = read_kafka_metadata(self._disk, self._config.data_dir)
            self._kafkas_configs = {} if kafka is None else kafka.usable_topic_configs()
            if kafka is not None and not deleting(self._config.explicit):
                logger.warning(
                    "the settings of Kafka's properties file are not in its metadata log: if "
                    "it has log.retention.*, offsets.retention.minutes or others that keep data, "
                    "start with that file (--config), or this broker deletes by its defaults"
                )
        return self._kafkas_configs.get(name, COMPACTED)


def _log_manager_config(config: BrokerConfig, ids: Ids, leader_epoch: int) -> LogManagerConfig:
    """The log manager's settings. A new directory gets the random ids; an existing one keeps its
    own.
    """
    return LogManagerConfig(
        node_id=config.node_id,
        cluster_id=base64.urlsafe_b64encode(ids.uuid().bytes).decode().rstrip("="),
        directory_id=base64.urlsafe_b64encode(ids.uuid().bytes).decode().rstrip("="),
        recovery_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        producer_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        initial_task_delay_ms=config.log_initial_task_delay_ms,
        producer_snapshot_interval_ms=config.barnabas_producer_snapshot_interval_ms,
        lowest_leader_epoch=leader_epoch,
    )


class _Progress:
    """Logs the progress of a long recovery, once a second."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + 1.0

    def __call__(self, done: int, total: int, read_bytes: int) -> None:
        """Log how many logs are open, at most once a second."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + 1.0
            logger.info(
                "opened %d of %d logs, read %d MB without a checkpoint",
                done,
                total,
                read_bytes >> 20,
            )
