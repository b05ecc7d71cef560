"""Carries out the share coordinator's decisions on the logs of its internal topic.

Records are appended and replayed at once. Responses wait until the records are durable, so that no
acknowledgement is lost after its response. One flush serves all waiting responses
(broker/logs/flush_queue.py). With `barnabas.transaction.durability=os` acknowledgements are
answered at once. Even then, responses to the initialization and the deletion of a state wait, since
a group requests these only once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.share_partitions.share_counts import StateWrites
from barnabas.coordinator.internal_topics import SHARE_STATE_TOPIC
from barnabas.coordinator.result import EncodedRecord, Result
from barnabas.coordinator.share_states.share_coordinator import ShareCoordinator
from barnabas.coordinator.share_states.share_state import Change
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.log.broker_appends import append_records
from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.groups")


class ShareRuntime:
    """Carries out the Results of the share coordinator on its logs."""

    def __init__(
        self,
        coordinator: ShareCoordinator,
        topics: TopicRegistry,
        flushes: FlushQueue,
        progress: LogProgress,
        requests: Requests,
        unwritten: UnwrittenWork,
        *,
        is_durable: bool,
    ) -> None:
        """Takes: is_durable, whether acknowledgements wait for the disk."""
        self._coordinator, self._topics = coordinator, topics
        self._flushes, self._progress, self._requests = flushes, progress, requests
        self._is_durable = is_durable
        self._unwritten = unwritten
        self.writes = StateWrites()

    def run(self, result: Result, now_ms: int) -> None:
        """Carry out a Result, and send its responses once its records are durable.

        Raises: NotWrittenError if there is no disk space for the records; OSError.
        """
        replies = [reply for each in (result, *result.more) for reply in each.replies]

        def send(_: int) -> None:
            for reply in replies:
                self._requests.reply(reply.ticket, reply.response)

        written: dict[Log, None] = {}
        for each in (result, *result.more):
            if each.records:
                log = self._topics.internal_log(SHARE_STATE_TOPIC, each.partition, now_ms)
                offset = self._write(log, each.records, now_ms)
                for key, value in each.records:
                    self._coordinator.replay(log.partition, offset, key, value)
                    offset += 1
                written[log] = None
        self._on_written(written, send, now_ms, waits=True)

    def store(
        self,
        changes: Iterable[Change],
        then: Callable[[int], None],
        now_ms: int,
        *,
        is_acknowledgement: bool = False,
    ) -> None:
        """Store decisions about several share partitions. `then` is called once they are durable.

        Raises: NotWrittenError if there is no disk space; some of the records may be written then.
        """
        by_log: dict[int, list[Change]] = {}
        for change in changes:
            if change.record is not None:
                by_log.setdefault(change.log_partition, []).append(change)
        written: dict[Log, None] = {}
        for log_partition, of_log in by_log.items():
            log = self._topics.internal_log(SHARE_STATE_TOPIC, log_partition, now_ms)
            offset = self._write(log, [one.record for one in of_log if one.record], now_ms)
            for change in of_log:
                self._coordinator.apply(log_partition, offset, change)
                offset += 1
            written[log] = None
        self._on_written(written, then, now_ms, waits=self._is_durable or not is_acknowledgement)

    def prune(self, now_ms: int) -> None:
        """Delete the records that are superseded by later snapshots, once these snapshots are
        durable. If there is no disk space for the new starts of the logs, the records are deleted
        later.
        """
        redundant = {
            log: offset
            for log in self._topics.logs_of(SHARE_STATE_TOPIC)
            if (offset := self._coordinator.redundant_offset(log.partition)) > log.log_start_offset
        }
        if redundant:
            # In place, since a start cuts a log whose own files end before its start offset.
            self._flushes.wait(
                redundant, lambda at_ms: self._raise_starts(redundant, at_ms), now_ms, in_place=True
            )

    def _raise_starts(self, redundant: dict[Log, int], now_ms: int) -> None:
        """Delete the records before these offsets, which are redundant."""
        raised = {log: offset for log, offset in redundant.items() if offset > log.log_start_offset}
        try:
            self._topics.logs.raise_starts(raised)
        except NotWrittenError as error:
            self._unwritten.note("the starts of logs of share groups", error, now_ms)
            return
        self._progress.on_appended(list(raised), now_ms)

    def _write(self, log: Log, records: list[EncodedRecord], now_ms: int) -> int:
        """Append records. Gives: the offset of the first one."""
        try:
            append_records(log, records, now_ms)
        except NotWrittenError as error:
            self._unwritten.note(f"states of share partitions to {log!r}", error, now_ms)
            raise
        return log.log_end_offset - len(records)

    def _on_written(
        self, written: dict[Log, None], then: Callable[[int], None], now_ms: int, *, waits: bool
    ) -> None:
        """Notify the readers of the logs, and call `then` once the records are durable. If `waits`
        is False, call `then` without waiting for the disk.
        """
        if not written:
            then(now_ms)
            return
        self._progress.on_appended(list(written), now_ms)

        def done(at_ms: int) -> None:
            self.writes.writes += 1
            self.writes.total_ms += at_ms - now_ms
            then(at_ms)

        self._flushes.wait(written if waits else (), done, now_ms)
