"""Deletes topics with everything that belongs to them: logs, waiting fetches, flushes, and the
offsets that groups committed on them.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.groups.group_runtime import GroupRuntime
from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.compaction import Compaction
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.slices import LOGS_DELETED_AT_ONCE, NO_TICKET, SlicedWork, Slices, Wait
from barnabas.broker.transactions.cuts import Cuts
from barnabas.broker.transactions.transaction_end import TransactionEnds
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.disk import NotWrittenError, SyncSteps, not_written
from barnabas.storage.log.log import Log

if TYPE_CHECKING:
    from barnabas.broker.share_partitions.shares import Shares


class TopicDeletion:
    """Deletes topics, in this order:

    1. the topics are removed from the journal, and are invisible from then on;
    2. a flush of the records of completed transactions begins;
    3. the directories of their logs are renamed, a few in each slice, and the renames are made
       durable;
    4. the offsets that groups committed on them are deleted, and the states of share groups;
    5. once those tombstones are durable, the deletion is removed from the journal.

    A start continues an interrupted deletion. New topics with the same names are created only after
    the flushes of steps 2 and 5 have ended (`before_creation`).

    If there is no disk space for step 3 or 4, the topics are deleted nevertheless, since step 1 is
    written. The rest is done once there is space (`_unfinished`). Until then no topic with these
    names is created.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        groups: GroupCoordinator,
        group_runtime: GroupRuntime,
        shares: Lazy[Shares],
        transaction_ends: TransactionEnds,
        progress: LogProgress,
        flushes: FlushQueue,
        compaction: Compaction,
        cluster: Cluster,
        syncs: Syncs,
        work: SlicedWork,
        unwritten: UnwrittenWork,
        cuts: Cuts,
    ) -> None:
        self._topics, self._groups, self._group_runtime = topics, groups, group_runtime
        self._shares = shares
        self._transaction_ends = transaction_ends
        self._progress, self._flushes, self._compaction = progress, flushes, compaction
        self._cluster, self._syncs = cluster, syncs
        self._work, self._unwritten, self._cuts = work, unwritten, cuts
        self._unfinished: dict[uuid.UUID, str] = {}
        self._lacks_checkpoint = False
        topics.before_creation = self.before_creation

    def before_creation(self, names: Collection[str], now_ms: int) -> Wait | None:
        """The wait before topics with the given names are created; None if everything is durable
        already.

        The creation waits for the tombstones of offsets of earlier topics with these names, and for
        the Complete records of transactions, including those that are ending on partitions of these
        topics.

        Raises: NotWrittenError if some of these records wait for disk space.
        """
        if self._unfinished and not set(names).isdisjoint(self._unfinished.values()):
            raise NotWrittenError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        logs, ends = self._undurable(names), self._transaction_ends
        ends.check_not_stuck_on(names)
        if not logs and not ends.is_ending_on(names):
            return None

        def begin(then: Callable[[int], None]) -> None:
            ends.after_ends_on(
                names,
                lambda now_ms: self._flushes.wait(self._undurable(names), then, now_ms),
                now_ms,
            )

        return Wait(begin, partial(_flush_all, logs))

    def _undurable(self, names: Collection[str]) -> list[Log]:
        """The logs with records that have to be durable before a new topic of these names is
        created.
        """
        logs = self._transaction_ends.undurable()
        if any(name in names for name in self._topics.metadata.deletions.values()):
            logs += self._topics.logs_of(OFFSETS_TOPIC)
        return [log for log in logs if log.durability.durable_offset < log.log_end_offset]

    def delete_topics(self, names: Sequence[str], now_ms: int) -> Slices:
        """Delete topics, a few logs in each slice."""
        topic_ids = self._topics.metadata.delete_topics(names)
        partitions = deque(self._topics.forget(names))
        self._transaction_ends.flush_completions(now_ms)
        self._cluster.readable_version += 1  # waiting fetches look their logs up again
        while partitions:
            count = min(LOGS_DELETED_AT_ONCE, len(partitions))
            # dropping the last reference to a log frees memory, which takes time, so the logs are
            # dropped in several slices
            self._delete_logs([partitions.popleft() for _ in range(count)], now_ms)
            if partitions:
                now_ms = yield
        yield from self._finish(dict(zip(topic_ids, names, strict=True)), now_ms)

    def _finish(self, names: Mapping[uuid.UUID, str], now_ms: int) -> Slices:
        """Do the steps after the deletion of the logs. If disk space is missing, do the remaining
        steps later.
        """
        logs = self._topics.logs
        try:
            if logs.has_removed or self._lacks_checkpoint:
                steps = self._removal_steps()
                now_ms = yield Wait(partial(self._syncs.run, steps, now_ms), logs.end_removals)
                if self._lacks_checkpoint:
                    raise NotWrittenError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield from self.end_deletions(names, now_ms)
        except NotWrittenError as error:
            self._unwritten.note("the end of the deletion of topics", error, now_ms)
            self._unfinished.update(names)
            self._unwritten.later(partial(self._finish_again, names), now_ms)
            return
        for topic_id in names:
            self._unfinished.pop(topic_id, None)

    def _finish_again(self, names: Mapping[uuid.UUID, str], now_ms: int) -> None:
        """Do the last steps of a deletion for which disk space was missing."""

        def finish() -> Slices:
            now_ms = yield
            yield from self._finish(names, now_ms)

        self._work.begin(NO_TICKET, finish(), now_ms)

    def _removal_steps(self) -> SyncSteps:
        """Make removals durable, and write the checkpoints without the removed logs. After:
        `_lacks_checkpoint` says whether disk space for the checkpoints is missing.
        """
        logs = self._topics.logs
        try:
            if logs.has_removed:
                yield from logs.removal_steps()
            else:
                yield from logs.checkpoint_steps(with_starts=True)
        except OSError as error:
            if not isinstance(not_written(error), NotWrittenError):
                raise
            self._lacks_checkpoint = True
            return
        self._lacks_checkpoint = False

    def _delete_logs(self, partitions: Sequence[tuple[str, int, Log | None]], now_ms: int) -> None:
        """Delete some logs, answer the fetches that wait for them, and cancel their flushes and
        cleaning.
        """
        for name, index, log in partitions:
            self._topics.logs.remove(name, index, now_ms)
            if log is not None:
                self._progress.on_deleted(log, now_ms)
                self._cuts.on_deleted(log)
        self._compaction.forget([TopicPartition(name, index) for name, index, _ in partitions])

    def end_deletions(self, names: Mapping[uuid.UUID, str], now_ms: int) -> Slices:
        """Delete the offsets that groups committed on topics whose logs are deleted. Otherwise they
        would apply to later topics of the same names.
        """
        metadata = self._topics.metadata
        # after a start there may already be a topic of the same name with its own offsets
        absent = [name for name in names.values() if metadata.topic(name) is None]
        for number, result in enumerate(
            self._groups.removal.on_topics_deleted(absent, names.keys())
        ):
            if number:
                now_ms = yield
            self._group_runtime.run(result, now_ms)
        logs = self._topics.logs_of(OFFSETS_TOPIC)
        if self._shares.made is not None:
            logs += self._topics.logs_of(SHARE_STATE_TOPIC)
            for result in self._shares.made.on_topics_deleted(set(names), now_ms):
                now_ms = yield
                self._shares.made.runtime.run(result, now_ms)

        def end(_: int) -> None:
            for topic_id in names:
                metadata.end_deletion(topic_id)

        self._flushes.wait(logs, end, now_ms)


def _flush_all(logs: list[Log]) -> None:
    for log in logs:
        log.flush()
