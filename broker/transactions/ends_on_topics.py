"""The parts of transaction ends that other requests use: the deletion and creation of topics that
have partitions in ending transactions, and responses that wait for the disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from barnabas.coordinator.internal_topics import TRANSACTIONS_TOPIC
from barnabas.storage.disk import NotWrittenError

if TYPE_CHECKING:
    from barnabas.broker.logs.flush_queue import FlushQueue
    from barnabas.broker.logs.topics import TopicRegistry
    from barnabas.broker.transactions.transaction_end import Ending
    from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from barnabas.storage.log.log import Log


class EndsOnTopics:
    """The part of `TransactionEnds` for requests that do not end transactions.

    flushes_commits: whether commits survive a power loss. _completions: the logs with Complete
    records that have to be durable, each with the offset up to which it has to be flushed.
    """

    def __init__(
        self,
        by_id: dict[str, Ending],
        coordinator: TransactionCoordinator,
        topics: TopicRegistry,
        flushes: FlushQueue,
        *,
        flushes_commits: bool,
    ) -> None:
        self._by_id, self._coordinator = by_id, coordinator
        self._topics, self._flushes = topics, flushes
        self.flushes_commits = flushes_commits
        self._completions: dict[Log, int] = {}

    def _has_lost_partition(self, ending: Ending) -> bool:
        """Whether a partition with a marker was deleted after the marker was written."""
        partition = self._topics.partition
        return any(partition(log.topic, log.partition) is not log for log in ending.logs)

    def flush_completions(self, now_ms: int) -> None:
        """Flush the Complete records of transactions, since topics that contain their partitions
        are deleted.

        If a power loss removes a Complete record, the decision is carried out again. If another
        topic of the same name exists by then, a later transaction that is open in it could not be
        distinguished from the decided one, since the marker was deleted with the old topic. So a
        topic is not created before these records are durable (`undurable`), nor while a decision on
        partitions of that name is being carried out.
        """
        # without flushed commits, a power loss aborts open transactions in any case
        if not self.flushes_commits:
            return
        logs = [
            log
            for log in self._topics.logs_of(TRANSACTIONS_TOPIC)
            if log.durability.durable_offset < log.log_end_offset
        ]
        self._completions.update((log, log.log_end_offset) for log in logs)
        self._flushes.wait(logs, lambda _: None, now_ms)

    def is_ending_on(self, topics: Collection[str]) -> bool:
        """Whether a decision on partitions of the given topics is being carried out."""
        return self._ending_on(topics) is not None

    def _ending_on(self, topics: Collection[str]) -> Ending | None:
        """A transaction that is being ended with partitions of these topics; None if there is
        none.
        """
        for ending in self._by_id.values():
            decision = ending.decision
            if decision is not None and any(name in topics for name, _ in decision.partitions):
                return ending
        return None

    def check_not_stuck_on(self, topics: Collection[str]) -> None:
        """Check that no decision on partitions of these topics waits for disk space. Raises:
        NotWrittenError if one does.
        """
        for ending in self._by_id.values():
            if ending.left and ending.decision is not None:
                for name, _ in ending.decision.partitions:
                    if name in topics:
                        raise NotWrittenError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def after_ends_on(
        self, topics: Collection[str], call: Callable[[int], None], now_ms: int
    ) -> None:
        """Make the call once no decision on partitions of the given topics is being carried out."""
        ending = self._ending_on(topics)
        if ending is None:
            call(now_ms)
        else:
            ending.held_back.append(lambda now_ms: self.after_ends_on(topics, call, now_ms))

    def undurable(self) -> list[Log]:
        """The logs with Complete records that have to be durable before a topic is created."""
        self._completions = {
            log: offset
            for log, offset in self._completions.items()
            if log.durability.durable_offset < offset
        }
        return list(self._completions)

    def two_phase_logs(self, transactional_id: str | None, now_ms: int) -> list[Log]:
        """The log of __transaction_state that contains the transactional id, if the producer's
        session uses two-phase commit (KIP-939); otherwise no log.

        Responses to such a producer also wait for that log. Its open transaction survives a power
        loss, so the record of each partition that it wrote to has to survive as well.
        """
        coordinator = self._coordinator
        if (
            transactional_id is None
            or transactional_id not in coordinator.two_phase
            or not coordinator.settings.is_durable
        ):
            return []
        index = coordinator.partition_of(transactional_id)
        return [self._topics.internal_log(TRANSACTIONS_TOPIC, index, now_ms)]
