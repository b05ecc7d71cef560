"""The steps of a start on an opened data directory, before the first client is served.

| step | function |
|---|---|
| interrupted deletions are continued: the remaining directories are deleted | `adopt_logs` |
| topics of another broker are adopted; every topic gets its logs | `adopt_logs` |
| internal topics are replayed into the coordinators | `resume` |
| decisions that are only in a flush journal are appended to their logs | `resume` |
| producer ids that logs contain are skipped | `resume` |
| decided transactions are completed; those that no client can end are aborted | `resume` |
| after a power loss: transactional producers are fenced, offsets of groups are checked | `resume` |
| the same in a copy that may lack acknowledged data (`barnabas/replication/`) | `resume` |
| committed offsets beyond the end of a log are set back to the end | `resume` |
| states of share partitions are replayed, and set back in the same way | `resume` |
| the offsets of deleted topics are deleted | `resume` |
| data that readers may have read are flushed | `resume` |
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from barnabas.broker.groups.group_runtime import GroupRuntime
from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.topics import (
    UNREADABLE,
    TopicRegistry,
    internal_log_is_damaged,
    internal_record_is_unreadable,
)
from barnabas.broker.outbox import Ids
from barnabas.broker.slices import run_through
from barnabas.broker.topic_changes.topic_deletion import TopicDeletion
from barnabas.broker.transactions.transaction_end import TransactionEnds
from barnabas.broker.transactions.transaction_recovery import TransactionRecovery
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.records import Record, decode_marker, records_of
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import Syncable
from barnabas.storage.files.checkpoints import NO_TOPIC_ID
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.durability import FlushToken
from barnabas.storage.log.log import Log

if TYPE_CHECKING:
    from barnabas.broker.share_partitions.shares import Shares

logger = logging.getLogger("barnabas.broker")

LAST_LIKELY_PRODUCER_ID = 1 << 62
# A bound on the producer ids that a leader can assign before its standby receives the record about
# them.
UNHEARD_PRODUCER_IDS = 1_000_000_000


TakeOver = Callable[["TopicRegistry", "ProducerIdAllocator", "Ids", int], None]
"""Adds the topics of a directory that another broker has written to the metadata journal. Takes the
topics, the producer ids, the source of random names, and the broker's node id.
"""


def adopt_logs(
    topics: TopicRegistry,
    producer_ids: ProducerIdAllocator,
    ids: Ids,
    node_id: int,
    now_ms: int,
    take_over: TakeOver,
) -> None:
    """Give every topic its logs.

    Takes: take_over, which adds topics that exist only as directories to the metadata journal.
    """
    for topic_id, name in topics.metadata.deletions.items():
        _delete_what_is_left(topics, topic_id, name, now_ms)
    topics.logs.end_removals()
    logs = topics.logs
    if any(topics.metadata.topic(name) is None for name, _ in (*logs.logs, *logs.offline)):
        take_over(topics, producer_ids, ids, node_id)
    for topic in list(topics.metadata.topics.values()):
        topics.load(topic, now_ms)


def _delete_what_is_left(
    topics: TopicRegistry, topic_id: uuid.UUID, name: str, now_ms: int
) -> None:
    """Finish deletions that a kill interrupted. Otherwise the remaining directories would be
    taken over as another broker's topic.
    """
    logs = topics.logs
    for key in [key for key in (*logs.logs, *logs.offline) if key[0] == name]:
        log = logs.logs.get(key)
        id_of_log = log.topic_id if log is not None else NO_TOPIC_ID
        if id_of_log == topic_id or (
            id_of_log == NO_TOPIC_ID and topics.metadata.topic(name) is None
        ):
            logger.info(
                "removing %s: the deletion of its topic was interrupted", TopicPartition(*key)
            )
            logs.remove(*key, now_ms)


class Start:
    """The part of a start that restores the coordinators."""

    def __init__(
        self,
        topics: TopicRegistry,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIdAllocator,
        group_runtime: GroupRuntime,
        shares: Lazy[Shares],
        ends: TransactionEnds,
        recovery: TransactionRecovery,
        deletion: TopicDeletion,
    ) -> None:
        self._topics, self._logs = topics, topics.logs
        self._groups, self._transactions = groups, transactions
        self._producer_ids, self._deletion = producer_ids, deletion
        self._group_runtime, self._shares, self._ends = group_runtime, shares, ends
        self._recovery = recovery

    def resume(self, now_ms: int, sync: Callable[[list[Syncable]], None]) -> None:
        """Replay the internal topics into the coordinators, then finish interrupted work.

        Takes: sync, a function that fsyncs several files.
        """
        self._replay()
        self._transactions.is_loaded = True
        self._recovery.redo_decisions(self._logs.decisions, now_ms)
        self._producer_ids.skip_used(self._highest_producer_id() + 1)
        self._group_runtime.run_or_keep(self._groups.on_loaded(now_ms), now_ms)
        self._recovery.complete_transactions(now_ms)
        self._logs.decisions = []
        if self._logs.config.may_lack_acknowledged:
            self._producer_ids.skip(UNHEARD_PRODUCER_IDS)
        if self._logs.may_lack_acknowledged:
            self._fence(now_ms)
        self._set_offsets_back(now_ms)
        if self._topics.logs_of(SHARE_STATE_TOPIC):
            self._shares.get().set_back(now_ms)
        self._warn_of_undecided()
        if self._logs.lost_power:
            # Recorded last: if this start crashes earlier, the next one has to detect the power
            # loss again.
            self._logs.note_boot()
        deletions = dict(self._topics.metadata.deletions)
        if deletions:
            run_through(self._deletion.end_deletions(deletions, now_ms), now_ms)
        _flush_what_readers_saw(self._logs, sync)

    def _replay(self) -> None:
        """Replay transactions, then offsets. Raises: LogDirectoryError if a log is damaged."""
        for name, replay in (
            (TRANSACTIONS_TOPIC, self._replay_transactions),
            (OFFSETS_TOPIC, self._replay_offsets),
        ):
            for log in self._topics.logs_of(name):
                try:
                    replay(log)
                except CorruptLog as error:
                    raise internal_log_is_damaged(name, log.partition, error) from error

    def _replay_transactions(self, log: Log) -> None:
        """Replay a partition of __transaction_state."""
        for record in records_of_log(log):
            if record.key is None:
                continue
            try:
                self._transactions.replay(log.partition, record.offset, record.key, record.value)
            except UNREADABLE as error:
                raise internal_record_is_unreadable(
                    TRANSACTIONS_TOPIC, log.partition, record.offset, error
                ) from error

    def _replay_offsets(self, log: Log) -> None:
        """Replay a partition of __consumer_offsets; its markers end the transactions of offsets."""
        index = log.partition
        for header, batch in log.read_batches():
            if header.is_control:
                commit = decode_marker(batch).commit
                self._groups.replay_marker(
                    index, header.base_offset, header.producer_id, header.producer_epoch, commit
                )
                continue
            producer = (
                (header.producer_id, header.producer_epoch) if header.is_transactional else None
            )
            for record in records_of(batch):
                if record.key is None:
                    continue
                try:
                    self._groups.replay(index, record.offset, record.key, record.value, producer)
                except UNREADABLE as error:
                    raise internal_record_is_unreadable(
                        OFFSETS_TOPIC, index, record.offset, error
                    ) from error

    def _highest_producer_id(self) -> int:
        """The highest producer id in logs and transactional ids.

        Ids above those of our journal were assigned by another broker. If one of them were assigned
        again, the first batches of the new producer would count as duplicates of the earlier
        producer's batches, and be lost. Ids that are higher than any broker assigns are ignored,
        since any client can write a batch with such an id.
        """
        highest = -1
        for log in self._logs.logs.values():
            for producer_id in log.producer_state.producers:
                if highest < producer_id < LAST_LIKELY_PRODUCER_ID:
                    highest = producer_id
        for metadata in self._transactions.snapshot().values():
            highest = max(highest, metadata.producer_id, metadata.next_producer_id)
        return highest

    def _fence(self, now_ms: int) -> None:
        """Fence every transactional producer once, since records acknowledged to it may be lost.

        A producer with a decided transaction is fenced together with the end of the transaction. If
        it were fenced afterwards, a kill in between would leave a producer that the next start does
        not fence.
        """
        ended = self._transactions.sessions.on_power_loss(
            now_ms, spares_two_phase=not self._logs.config.may_lack_acknowledged
        )
        self._ends.run(ended, now_ms)
        self._recovery.end_all(now_ms)
        for log in self._topics.logs_of(TRANSACTIONS_TOPIC):
            log.flush()
        self._group_runtime.run(self._groups.on_power_loss(now_ms), now_ms)

    def _warn_of_undecided(self) -> None:
        """Log the open transactions of two-phase commit, if the settings do not let clients commit
        them.
        """
        if self._transactions.settings.two_phase_commit_enable:
            return
        for name, metadata in self._transactions.snapshot().items():
            if metadata.is_two_phase and metadata.state is TransactionState.ONGOING:
                logger.warning(
                    "%s has an open transaction of two-phase commit: to commit it, set "
                    "transaction.two.phase.commit.enable=true",
                    name,
                    extra={"transactional_id": name},
                )

    def _set_offsets_back(self, now_ms: int) -> None:
        """Set committed offsets beyond the end of a log back to the end, durably, before any client
        can append there.
        """

        def log_end(topic: str, index: int) -> int | None:
            log = self._topics.partition(topic, index)
            return None if log is None else log.log_end_offset

        def epoch_end(topic: str, index: int, epoch: int) -> tuple[int, int]:
            log = self._topics.partition(topic, index)
            assert log is not None, f"{topic}-{index} had an end"
            leader_epoch, end_offset = log.end_offset_for_epoch(epoch)
            return leader_epoch, max(end_offset, log.log_start_offset) if leader_epoch >= 0 else -1

        rows = self._groups.offsets_beyond_log_end(
            log_end, epoch_end, lost_power=self._logs.may_lack_acknowledged
        )
        if not rows:
            return
        for row in rows:
            logger.warning(
                "group %s continues at offset %d of %s-%d, not at its committed %d: the records "
                "between them were lost",
                row.group_id, row.offset, row.topic, row.partition, row.committed.offset,
                extra={"group": row.group_id, "topic": row.topic, "partition": row.partition},
            )  # fmt: skip
        self._group_runtime.run(self._groups.reset_offsets(rows), now_ms)
        for log in self._topics.logs_of(OFFSETS_TOPIC):
            log.flush()


def records_of_log(log: Log) -> Iterator[Record]:
    """Every data record of a log, in order."""
    for header, batch in log.read_batches():
        if not header.is_control:
            yield from records_of(batch)


def _flush_what_readers_saw(logs: LogManager, sync: Callable[[list[Syncable]], None]) -> None:
    """Flush the data that readers may have read before a kill, since they may be only in the page
    cache.
    """
    tokens: list[tuple[Log, FlushToken]] = []
    files: dict[Syncable, None] = {}
    for log in logs.logs.values():
        token = log.durability.begin_flush() if log.high_watermark < log.log_end_offset else None
        if token is not None:
            tokens.append((log, token))
            files.update(dict.fromkeys(token.files))
    sync(list(files))
    for log, token in tokens:
        log.finish_flush(token)
