"""The recovery of transactions at a start: decisions in flush journals, missing markers, and
hanging transactions.

Once the coordinators have read their logs, `redo_decisions` is called, and then
`complete_transactions`. No request is processed before both are done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.outbox import Outbox
from barnabas.broker.transactions.transaction_end import TransactionEnds, TransactionMarkers
from barnabas.broker.transactions.unwritten_markers import UnwrittenMarker
from barnabas.coordinator.internal_topics import TRANSACTIONS_TOPIC
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction_records import producer_id_of
from barnabas.coordinator.transactions.transaction_state import (
    VERSION_2,
    Decision,
    TransactionState,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.files.flush_journal import OFFLINE_END, JournalDecision, PartitionEnd
from barnabas.storage.log.append_info import NewMarker
from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.transactions")


class JournaledDecision(NamedTuple):
    """A decision in a flush journal, with the end offsets of its partitions at the time of the
    decision.
    """

    decision: Decision
    ends: dict[tuple[str, int], PartitionEnd]

    def is_open(self, log: Log, topic_id: bytes) -> bool:
        """Whether the decision's transaction is open in the log. It is if the open transaction
        began before the journal's end offset for the partition.

        If the journal marks the partition as off line at the decision, the open transaction is the
        decided one, unless a marker of the decision precedes it.
        """
        end = self.ends.get((log.topic, log.partition))
        first_offset = log.producer_state.first_offset_of_transaction(self.decision.producer_id)
        if end is None or first_offset is None or end.topic_id != topic_id:
            return False
        if end.offset == OFFLINE_END:
            return not log.ended_before_open_transaction(
                self.decision.producer_id, self.decision.decided_ms
            )
        return first_offset < end.offset


class TransactionRecovery:
    """The work on transactions during one start.

    _journaled: by transactional id and time, the decisions in the flush journals whose producers
    have an open transaction or a missing marker in any partition.
    """

    def __init__(
        self,
        ends: TransactionEnds,
        markers: TransactionMarkers,
        transactions: TransactionCoordinator,
        topics: TopicRegistry,
        flushes: FlushQueue,
        outbox: Outbox,
    ) -> None:
        self._ends, self._markers, self._transactions = ends, markers, transactions
        self._topics, self._logs = topics, topics.logs
        self._flushes, self._outbox = flushes, outbox
        self._journaled: dict[tuple[str, int], JournaledDecision] = {}

    def redo_decisions(self, decisions: Sequence[JournalDecision], now_ms: int) -> None:
        """Append the decisions of the flush journals that are missing in their log.

        A kill may happen after a decision is flushed and before it is appended. A power loss
        removes the records that were appended since the last flush of the log itself.
        """
        open_producers = {
            producer_id
            for log in self._logs.logs.values()
            for producer_id in log.producer_state.open_transactions()
        }
        open_producers |= self._markers.unwritten.producer_ids
        marked: dict[Log, None] = {}
        for key, value, ends in decisions:
            for end in ends:
                log = self._topics.partition(end.topic, end.partition)
                if log is not None:
                    marked[log] = None
            decision = (
                self._transactions.decision_of(key, value)
                if producer_id_of(value) in open_producers
                else None
            )
            if decision is not None:
                by_partition = {(end.topic, end.partition): end for end in ends}
                self._journaled[decision.transactional_id, decision.decided_ms] = JournaledDecision(
                    decision, by_partition
                )
        if marked:  # after a kill some markers may not be durable yet
            self._flushes.flush_later(marked, now_ms)
        last_values = {key: value for key, value, _ in decisions}  # decisions by transactional id
        for key, value in last_values.items():
            self._ends.run(self._transactions.on_journaled_decision(key, value), now_ms)

    def complete_transactions(self, now_ms: int) -> None:
        """Complete the transactions that are decided, and abort those that no client can end."""
        ends = self._ends
        self._markers.unwritten.remove(lambda marker: self._is_over(marker, now_ms))
        for journaled in self._journaled.values():
            self._redo_markers(journaled, now_ms)
        prepared = self._transactions.prepared()
        if prepared and ends.flushes_commits:
            # After a kill some decisions may not be durable yet. They must be durable before
            # readers see their markers.
            for log in self._topics.logs_of(TRANSACTIONS_TOPIC):
                log.flush()
        self._markers.commits_on = self._commits_on
        for decision in prepared:
            ends.resume(decision, now_ms)
        self._markers.commits_on = None
        self._abort_hanging_transactions(now_ms)
        self._markers.whole.recover(self._logs.logs.values(), now_ms)

    def end_all(self, now_ms: int) -> None:
        """Complete all decided transactions now, including the flushes for which they wait."""
        outbox = self._outbox
        while not self._ends.is_idle:
            jobs, outbox.flushes = outbox.flushes, []
            works, outbox.work = outbox.work, []
            deferred, outbox.deferred = outbox.deferred, []
            assert jobs or works or deferred or self._ends.in_parts, (
                "an end waits for an event that no start brings"
            )
            self._ends.on_tick(now_ms)
            for call in deferred:
                call(now_ms)
            for work in works:
                work.done(work.run(), now_ms)
            for job in jobs:
                for file in job.files:
                    file.fsync()
                self._flushes.on_flushed(job, now_ms)

    def _is_over(self, unwritten: UnwrittenMarker, now_ms: int) -> bool:
        """If the partition of a missing marker is on line again, write the marker.

        The marker is written even if no transaction is open in the partition. A later start may
        read the decision in a flush journal again, and must not confuse another open transaction
        with the decided one. For this reason the marker has the time of the producer's last
        decision in the journals.

        Gives: whether the missing marker need no longer be recorded.
        """
        topic = self._topics.metadata.topic(unwritten.topic)
        if topic is None or topic.topic_id.bytes != unwritten.topic_id:
            return True
        log = self._topics.partition(unwritten.topic, unwritten.partition)
        if log is None:
            return (unwritten.topic, unwritten.partition) not in self._logs.offline
        journaled = [
            one.decision.decided_ms
            for one in self._journaled.values()
            if one.decision.producer_id == unwritten.producer_id
        ]
        marker = NewMarker(*unwritten[3:7], True, max([unwritten.decided_ms, *journaled]))
        self._markers.append(unwritten.topic, unwritten.partition, marker, now_ms)
        log.flush()
        return True

    def _redo_markers(self, journaled: JournaledDecision, now_ms: int) -> None:
        """Write the markers of a journal's decision to the logs in which its transaction is still
        open.

        Even if the coordinator has completed the commit and begun the next transaction, a power
        loss may have removed markers.
        """
        decision = journaled.decision
        marker = NewMarker(*decision[1:5], True, decision.decided_ms)
        for topic, index in decision.partitions:
            log = self._topics.partition(topic, index)
            if log is not None and journaled.is_open(log, self._topic_id(log)):
                self._markers.append(topic, index, marker, now_ms)

    def _commits_on(self, log: Log, decision: Decision) -> bool:
        """Whether a decision to commit commits the transaction that is open in a log.

        With durability=os a power loss may have removed the marker of an earlier, aborted
        transaction, which cannot be distinguished from the decided one. Then the open transaction
        is aborted.
        """
        journaled = self._journaled.get((decision.transactional_id, decision.decided_ms))
        if journaled is not None:
            return not log.producer_state.has_ongoing_transaction_of(
                decision.producer_id
            ) or journaled.is_open(log, self._topic_id(log))
        if self._logs.lost_power and not self._ends.flushes_commits:
            return not log.producer_state.has_ongoing_transaction_of(decision.producer_id)
        return not log.ended_before_open_transaction(decision.producer_id, decision.decided_ms)

    def _topic_id(self, log: Log) -> bytes:
        """The topic's id in the metadata, since after a power loss the log's own id may
        be missing.
        """
        topic_id: bytes = self._topics.metadata.topics[log.topic].topic_id.bytes
        return topic_id

    def _abort_hanging_transactions(self, now_ms: int) -> None:
        """Abort transactions that are open in a log and unknown to the coordinator.

        A power loss may keep a batch, but not the record which says that its partition was in the
        transaction (that record is not flushed by itself). Such a transaction can no longer be
        committed, since its coordinator does not know it. If it stayed open, the last stable offset
        would never advance. This never happens after a kill of the process alone.

        The marker is durable before any request is processed. Otherwise another power loss could
        remove it, and the batch would be committed with the producer's next transaction. A batch
        with an earlier epoch than the coordinator's transaction is not part of that transaction.

        An open transaction of two-phase commit is known to the coordinator. A partition whose
        record was lost still belongs to it. Its producer got no response for the batch, and sends
        the batch again.
        """
        of_coordinator: dict[tuple[str, int], dict[int, int]] = {}
        two_phase: dict[tuple[int, int], str] = {}
        for metadata in self._transactions.snapshot().values():
            # the markers of decided transactions are already written
            for partition in metadata.partitions:
                epochs = of_coordinator.setdefault(partition, {})
                epochs[metadata.producer_id] = metadata.producer_epoch
            if metadata.is_two_phase and metadata.state is TransactionState.ONGOING:
                two_phase[metadata.producer] = metadata.transactional_id
        for (topic, index), log in sorted(self._logs.logs.items()):
            for producer_id in log.producer_state.open_transactions():
                producer = (producer_id, log.producer_state.producer_epoch_of(producer_id))
                least = of_coordinator.get((topic, index), {}).get(producer_id)
                if least is not None and producer[1] >= least:
                    continue
                if producer in two_phase and self._adopt(two_phase[producer], log, now_ms):
                    continue
                logger.warning(
                    "%r: aborting the transaction of producer %d, which is unknown to its "
                    "coordinator",
                    log,
                    producer_id,
                    extra={"producer_id": producer_id},
                )
                marker = NewMarker(
                    *producer, log.producer_state.coordinator_epoch_of(producer_id), commit=False
                )
                self._markers.append(topic, index, marker, now_ms)
                log.flush()

    def _adopt(self, transactional_id: str, log: Log, now_ms: int) -> bool:
        """Add the partition to the open transaction that has written to it in the same epoch.

        This is only needed in version 2 of the protocol, which has an epoch for each transaction.
        In version 1, the record of the partition is durable before a batch is sent.
        """
        metadata = self._transactions.metadata(transactional_id)
        assert metadata is not None
        if metadata.client_transaction_version < VERSION_2:
            return False
        self._ends.run(
            self._transactions.on_partition_recovered(
                metadata, TopicPartition(log.topic, log.partition), now_ms
            ),
            now_ms,
        )
        return True
