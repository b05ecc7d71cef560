"""Carries out the Results of the group coordinator on the logs of its internal topic.

The records of a Result are appended and replayed; then its answers are sent, and what share groups
decide about their partitions' states is carried out (share/state_changes.py). Results of the
transaction coordinator are carried out in transactions/transaction_end.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.logs.not_written import MOST_LINES_OF_A_LOG, NotWrittenError
from barnabas.broker.observation.log_lines import BoundedLines
from barnabas.broker.slices import Wait
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.coordinator.result import Reply, Result
from barnabas.storage.disk import is_out_of_resources, may_have_lost_pages
from barnabas.storage.log.broker_appends import append_records

if TYPE_CHECKING:
    from barnabas.broker.lazy import Lazy
    from barnabas.broker.logs.flush_queue import FlushQueue
    from barnabas.broker.logs.log_progress import LogProgress
    from barnabas.broker.logs.topics import TopicRegistry
    from barnabas.broker.requests.pending_requests import Requests
    from barnabas.broker.share.shares import Shares
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.coordinator.groups.share.state_changes import StateChange
    from barnabas.storage.log.log import Log


logger = logging.getLogger("barnabas.transactions")


def _trace_offsets(log: Log, result: Result, end_offset: int) -> None:
    """Log at debug level that a transaction has offsets of a group."""
    assert result.producer is not None
    producer_id, producer_epoch = result.producer
    logger.debug(
        "%r: %d offsets of producer %d are pending until its transaction ends",
        log, len(result.records), producer_id,
        extra={
            "producer_id": producer_id, "producer_epoch": producer_epoch,
            "offset": end_offset - len(result.records),
        },
    )  # fmt: skip


class GroupRuntime:
    """Runs the Results of the group coordinator against its logs."""

    def __init__(
        self,
        groups: GroupCoordinator,
        topics: TopicRegistry,
        flushes: FlushQueue,
        progress: LogProgress,
        requests: Requests,
        shares: Lazy[Shares],
    ) -> None:
        self._shares = shares
        self._groups, self._topics = groups, topics
        self._flushes, self._progress, self._requests = flushes, progress, requests
        self._lines = BoundedLines(MOST_LINES_OF_A_LOG)

    def run(self, result: Result, now_ms: int) -> None:
        """Carry out a Result: append its records and replay them, then send its answers.

        Raises: NotWrittenError. OSError.
        """
        while True:
            if result.records:
                log = self._topics.internal_log(OFFSETS_TOPIC, result.partition, now_ms)
                try:
                    append_records(log, result.records, now_ms, result.producer)
                except OSError as error:
                    if may_have_lost_pages(error) or not is_out_of_resources(error):
                        raise
                    raise self._not_written(log, error, now_ms) from error
                offset = log.log_end_offset - len(result.records)
                for key, value in result.records:
                    self._groups.replay(result.partition, offset, key, value, result.producer)
                    offset += 1
                self._progress.on_appended([log], now_ms)
                if result.producer is not None and logger.isEnabledFor(logging.DEBUG):
                    _trace_offsets(log, result, offset)
            self._reply(result.replies)
            for change in result.state_changes:
                self._change_states(change, result.partition, now_ms)
            if not result.more:
                return
            for further in result.more[:-1]:
                self.run(further, now_ms)
            result = result.more[-1]

    def _change_states(self, change: StateChange, partition: int, now_ms: int) -> None:
        """Carry out what a share group decided about the states of its partitions.

        Each record is on the disk before what relies on it: that states are being deleted before
        they are, and that they are initialised before a member's acknowledgement is answered,
        whose flush comes later. Else a power loss would leave a group without its states, or
        initialise states again that have acknowledgements.
        """

        def begin(at_ms: int) -> None:
            self._shares.get().changes.begin(
                change, partial(self._on_states_changed, change), at_ms
            )

        if change.is_deletion:
            self.durable(partition, now_ms).begin(begin)
        else:
            begin(now_ms)

    def _on_states_changed(self, change: StateChange, codes: Sequence[int], now_ms: int) -> None:
        result = self._groups.share_offsets.on_states_changed(change, codes)
        self.run_durably(result, [], now_ms)

    def durable(self, partition: int, now_ms: int) -> Wait:
        """The wait until all records of a partition of the internal topic are on the disk."""
        log = self._topics.internal_log(OFFSETS_TOPIC, partition, now_ms)
        return Wait(partial(self._flushes.wait, [log], now_ms=now_ms), log.flush)

    def run_durably(self, result: Result, logs: list[Log], now_ms: int) -> None:
        """Carry out a Result; send its answers once its records and `logs` are on the disk."""
        *_, last = (result, *result.more)
        replies, last.replies = last.replies, []
        self.run(result, now_ms)
        written = [
            self._topics.internal_log(OFFSETS_TOPIC, each.partition, now_ms)
            for each in (result, *result.more)
            if each.records
        ]
        self._flushes.wait([*written, *logs], lambda _: self._reply(replies), now_ms)

    def _not_written(self, log: Log, error: OSError, now_ms: int) -> NotWrittenError:
        """Log that there was no space, at most once a minute for each log. Gives: the error."""
        if self._lines.may_write("no space", repr(log), now_ms):
            logger.error("%r: a coordinator's records were not written: %s", log, error)
        return NotWrittenError(error.errno, error.strerror, error.filename)

    def _reply(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            self._requests.reply(reply.ticket, reply.response)
