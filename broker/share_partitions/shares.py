"""The part of the broker that handles share partitions. It is made at the first use of a share
group.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.purgatory import Purgatory
from barnabas.broker.logs.topics import (
    UNREADABLE,
    TopicRegistry,
    internal_log_is_damaged,
    internal_record_is_unreadable,
)
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.share_partitions.first_offsets import FirstOffsets
from barnabas.broker.share_partitions.session_ends import SessionEnds
from barnabas.broker.share_partitions.share_partition_cache import SharePartitionCache
from barnabas.broker.share_partitions.share_runtime import ShareRuntime
from barnabas.broker.share_partitions.share_sessions import ShareSessions
from barnabas.broker.share_partitions.state_changes import StateChanges
from barnabas.coordinator.internal_topics import SHARE_STATE_TOPIC
from barnabas.coordinator.result import Result
from barnabas.coordinator.share_states.share_coordinator import ShareCoordinator
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.protocol.records import records_of
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.broker")


class Shares:
    """The share coordinator and the parts that use it.

    This object is made after the logs are opened. The records of the internal topic are replayed
    afterwards.
    """

    def __init__(
        self,
        config: BrokerConfig,
        coordinator: ShareCoordinator,
        runtime: ShareRuntime,
        partitions: SharePartitionCache,
        topics: TopicRegistry,
        unwritten: UnwrittenWork,
        now_ms: int,
        clock_ns: Callable[[], int],
    ) -> None:
        """Takes: clock_ns, the clock that measures the replay."""
        self.coordinator, self.runtime, self._topics = coordinator, runtime, topics
        self.partitions = partitions
        self.sessions = ShareSessions(config.group_share_max_share_sessions)
        self.changes = StateChanges(coordinator, runtime, unwritten)
        self.counts = partitions.counts
        self.session_ends = SessionEnds(partitions, self.sessions)
        self._prune_interval_ms = config.share_coordinator_state_topic_prune_interval_ms
        self._next_prune_ms = now_ms + self._prune_interval_ms
        begin_ns = clock_ns()
        for log in topics.logs_of(SHARE_STATE_TOPIC):
            try:
                self._replay(log)
            except CorruptLog as error:
                raise internal_log_is_damaged(SHARE_STATE_TOPIC, log.partition, error) from error
        runtime.writes.load_ns = clock_ns() - begin_ns
        coordinator.on_loaded(now_ms)

    def _replay(self, log: Log) -> None:
        """Apply the records of a partition of __share_group_state to the coordinator."""
        for header, batch in log.read_batches():
            for record in () if header.is_control else records_of(batch):
                if record.key is None:
                    continue
                try:
                    self.coordinator.replay(log.partition, record.offset, record.key, record.value)
                except UNREADABLE as error:
                    raise internal_record_is_unreadable(
                        SHARE_STATE_TOPIC, log.partition, record.offset, error
                    ) from error

    def set_back(self, now_ms: int) -> None:
        """If the state of a share partition is beyond the end of its log, set it back to the log's
        end. This is made durable before any client can append to the log.
        """

        def log_end(topic_id: bytes, index: int) -> int | None:
            topic = self._topics.metadata.topic_by_id(uuid.UUID(bytes=topic_id))
            log = None if topic is None else self._topics.partition(topic.name, index)
            return None if log is None else log.log_end_offset

        result = self.coordinator.on_records_lost(log_end, now_ms)
        if result.records:
            logger.warning(
                "share groups continue at the end of logs whose last records were lost: they "
                "have acknowledged some of these records"
            )
            self.runtime.run(result, now_ms)
            for log in self._topics.logs_of(SHARE_STATE_TOPIC):
                log.flush()

    def in_flight(self, group_id: str, topic: str, index: int) -> tuple[int, int]:
        """How many records of a share partition are in flight, and in how many batches; (0, 0) if
        the share partition is not loaded.
        """
        found = self._topics.metadata.topic(topic)
        if found is None:
            return 0, 0
        loaded = self.partitions.get(SharePartitionKey(group_id, found.topic_id.bytes, index))
        return (0, 0) if loaded is None else (loaded.value.in_flight_count, len(loaded.value))

    def on_topics_deleted(self, topic_ids: set[uuid.UUID], now_ms: int) -> list[Result]:
        """The Results that delete the states of deleted topics. The caller passes them to
        `ShareRuntime.run` one by one.
        """
        self.partitions.drop_topics(topic_ids, now_ms)
        deleted = {topic_id.bytes for topic_id in topic_ids}
        result = self.coordinator.on_topics_deleted(deleted)
        results = [one for one in (result, *result.more) if one.records]
        result.more = []
        return results

    def next_deadline_ms(self) -> int | None:
        """The next time at which `on_tick` has something to do; None if no timer is needed."""
        if self.changes.is_ready or self.session_ends.is_ready:
            return 0
        cold_ms, lock_ms = self.coordinator.next_deadline_ms(), self.partitions.next_deadline_ms
        due_ms = None if cold_ms is None else min(cold_ms, self._next_prune_ms)
        return min((ms for ms in (due_ms, lock_ms) if ms is not None), default=None)

    def on_tick(self, now_ms: int) -> None:
        """Do what is due at this time. The call is cheap when nothing is due."""
        self.changes.on_tick(now_ms)
        if self.session_ends.is_ready:
            self.session_ends.on_tick(now_ms)
        self.partitions.on_tick(now_ms)
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self._write_cold_snapshots(now_ms)
        if self._next_prune_ms <= now_ms:
            self._next_prune_ms = now_ms + self._prune_interval_ms
            self.runtime.prune(now_ms)

    def _write_cold_snapshots(self, now_ms: int) -> None:
        """Write snapshots of states that have not changed for long, so that old records can be
        deleted.
        """
        try:
            self.runtime.run(self.coordinator.on_tick(now_ms), now_ms)
        except NotWrittenError:
            self.coordinator.on_loaded(now_ms)  # tried again later


def make_shares(
    config: BrokerConfig,
    topics: TopicRegistry,
    flushes: FlushQueue,
    progress: LogProgress,
    requests: Requests,
    purgatory: Purgatory,
    group_configs: GroupConfigs,
    unwritten: UnwrittenWork,
    now_ms: int,
    clock_ns: Callable[[], int],
) -> Shares:
    """Make the part of the broker for share partitions, from an opened data directory."""

    def partition_exists(topic_id: bytes, index: int) -> bool:
        topic = topics.metadata.topic_by_id(uuid.UUID(bytes=topic_id))
        return topic is not None and index < topic.partition_count

    coordinator = ShareCoordinator(
        partition_count=topics.internal_partition_count(SHARE_STATE_TOPIC),
        partition_exists=partition_exists,
        wall=topics.logs.wall,
        updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
        cold_snapshot_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
    )
    runtime = ShareRuntime(
        coordinator,
        topics,
        flushes,
        progress,
        requests,
        unwritten,
        is_durable=config.barnabas_transaction_durability == "flush",
    )
    first_offsets = FirstOffsets(group_configs, topics.logs, requests)
    partitions = SharePartitionCache(coordinator, runtime, group_configs, purgatory, first_offsets)
    return Shares(config, coordinator, runtime, partitions, topics, unwritten, now_ms, clock_ns)
