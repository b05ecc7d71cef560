"""Carries out the Results of the group coordinator on the logs of its internal topic.

The records of a Result are appended and replayed; then its answers are sent, and the changes of
share partitions' states that it contains are carried out (share_partitions/state_changes.py).
Results of the transaction coordinator are carried out in transactions/transaction_end.py.

If there is no space on the disk for the records, the Result is dropped or kept:

| Result of | what happens to it |
|---|---|
| a commit, an administrator, a heartbeat of a member that stays | dropped: nothing depends on it |
| a request of a member, a timer, states of share partitions | kept until it is written |

A Result that is kept has already changed soft state: the members of a classic group, or the
requests that it answers. These requests are refused. Until its records are written, its partition
accepts no other Result with records, and the deadlines of groups are suspended, since members could
not renew their sessions.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.observation.counters import Counters
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.slices import Wait
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.coordinator.result import Reply, Result, StateChange
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.log.broker_appends import append_records
from barnabas.storage.log.log import Log

if TYPE_CHECKING:
    from barnabas.broker.share_partitions.shares import Shares

PUT_OFF_AT_ONCE = 5_000  # handling this many deadlines takes 10 ms

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


class Heartbeat(Protocol):
    """The heartbeat of a consumer, share or streams group."""

    group_id: str
    member_id: str
    member_epoch: int


def _refusal(response: Message) -> Message:
    """A response of the same class, with the error COORDINATOR_NOT_AVAILABLE."""
    refused: Any = type(response)()
    refused.error_code = int(Code.COORDINATOR_NOT_AVAILABLE)
    return cast("Message", refused)


class GroupRuntime:
    """Carries out the Results of the group coordinator on its logs."""

    def __init__(
        self,
        groups: GroupCoordinator,
        topics: TopicRegistry,
        flushes: FlushQueue,
        progress: LogProgress,
        requests: Requests,
        shares: Lazy[Shares],
        unwritten: UnwrittenWork,
        counters: Counters,
    ) -> None:
        self._shares, self._unwritten, self._counters = shares, unwritten, counters
        self._groups, self._topics = groups, topics
        self._flushes, self._progress, self._requests = flushes, progress, requests
        self._kept: dict[int, deque[Result]] = {}  # Results that wait for space, by partition

    def run(self, result: Result, now_ms: int) -> bool:
        """Carry out a Result: append its records and replay them, then send its responses.

        Gives:  whether another part of the core may have got work by this.
        Raises: NotWrittenError if there is no space for the records. The Results in `result.more`
                are then dropped as well. OSError.
        """
        has_work = False
        while True:
            if result.records:
                log = self._topics.internal_log(OFFSETS_TOPIC, result.partition, now_ms)
                try:
                    append_records(log, result.records, now_ms, result.producer)
                except NotWrittenError as error:
                    self._unwritten.note(f"records of groups to {log!r}", error, now_ms)
                    raise
                offset = log.log_end_offset - len(result.records)
                if result.offsets:
                    assert len(result.offsets) == len(result.records), "a record without content"
                    for content in result.offsets:
                        self._groups.apply_offset(
                            result.partition, offset, content, result.producer
                        )
                        offset += 1
                else:
                    for key, value in result.records:
                        self._groups.replay(result.partition, offset, key, value, result.producer)
                        offset += 1
                has_work = self._progress.on_appended([log], now_ms) or has_work
                if result.producer is not None and logger.isEnabledFor(logging.DEBUG):
                    _trace_offsets(log, result, offset)
            for what, count in result.counts.items():
                self._counters.add(*what.row, count=count)
            for reply in result.replies:
                self._requests.reply(reply.ticket, reply.response)
            for change in result.state_changes:
                self._change_states(change, result.partition, now_ms)
                has_work = True
            if not result.more:
                return has_work
            for further in result.more[:-1]:
                has_work = self.run(further, now_ms) or has_work
            result = result.more[-1]

    def _change_states(self, change: StateChange, partition: int, now_ms: int) -> None:
        """Carry out a share group's decision about the states of its partitions.

        A record is durable before the step that relies on it. The record of a deletion is durable
        before the states are deleted; the record of an initialisation is durable before a member's
        acknowledgement is answered. Otherwise a power loss could leave a group without its states,
        or reset states that already contain acknowledgements.
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
        """Carry out the Result that follows from a change of share partitions' states. Without disk
        space for its records, it is carried out later.
        """
        result = self._groups.share_offsets.on_states_changed(change, codes)
        if result.partition in self._kept:
            self._keep(result, now_ms)
            return
        try:
            self.run_durably(result, [], now_ms)
        except NotWrittenError:
            self._keep(result, now_ms)

    def durable(self, partition: int, now_ms: int) -> Wait:
        """A Wait that ends once all records of a partition of the internal topic are on
        the disk.
        """
        log = self._topics.internal_log(OFFSETS_TOPIC, partition, now_ms)
        return Wait(partial(self._flushes.wait, [log], now_ms=now_ms), log.flush)

    def run_durably(self, result: Result, logs: list[Log], now_ms: int) -> None:
        """Carry out a Result; send its answers once its records and `logs` are on the disk.

        Raises: NotWrittenError, as `run`.
        """
        *_, last = (result, *result.more)
        replies, last.replies = last.replies, []
        try:
            self.run(result, now_ms)
        except NotWrittenError:
            last.replies = replies
            raise
        written = [
            self._topics.internal_log(OFFSETS_TOPIC, each.partition, now_ms)
            for each in (result, *result.more)
            if each.records
        ]
        self._flushes.wait([*written, *logs], lambda _: self._reply(replies), now_ms)

    # --- without space ---------------------------------------------------------------------------

    def check_writable(self, group_id: str) -> None:
        """Check that a Result of a group may be written, before it is decided.

        Raises: NotWrittenError if an earlier Result waits for space.
        """
        if self._kept and self._topics.group_partition(group_id) in self._kept:
            raise NotWrittenError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def run_or_keep(self, result: Result, now_ms: int) -> bool:
        """Carry out a Result that has changed soft state. If there is no space for its records, the
        Result is kept until they can be written. Gives: whether records are kept.
        """
        further, result.more = result.more, []
        is_kept = False
        for one in (result, *further):
            if one.records and one.partition in self._kept:
                self._keep(one, now_ms)
                is_kept = True
                continue
            try:
                self.run(one, now_ms)
            except NotWrittenError:
                if not self._unwritten.may_wait:
                    raise
                self._keep(one, now_ms)
                is_kept = True
        return is_kept

    def run_heartbeat(
        self,
        decide: Callable[[], Result],
        request: Heartbeat,
        context: RequestContext,
        then: Callable[[Result], None] | None = None,
    ) -> None:
        """Decide about a heartbeat that has a member epoch, and carry out the Result.

        Takes:  then, a callback that gets the Result before it is carried out.
        Raises: NotWrittenError if there is no space. The session of a member that stays is renewed
                all the same, and the member sends its change again with its next heartbeat.
        """
        group = self._groups.group(request.group_id)
        stays = request.member_epoch > 0 and group is not None and group.state.has_member_epochs
        if not stays or self._groups.is_being_removed(request.group_id, request.member_id):
            self.check_writable(request.group_id)
        result = decide()
        if then is not None:
            then(result)
        if not stays:
            self.run_or_keep(result, context.now_ms)
            return
        try:
            if result.records:
                self.check_writable(request.group_id)
            self.run(result, context.now_ms)
        except NotWrittenError:
            self._groups.on_records_dropped(request.group_id)
            raise

    def on_tick(self, now_ms: int) -> None:
        """Handle the due deadlines of groups; while a Result waits for space, suspend the deadlines
        instead.
        """
        if self._kept:
            self._groups.timers.put_off(now_ms, PUT_OFF_AT_ONCE)
        else:
            self.run_or_keep(self._groups.on_tick(now_ms), now_ms)

    def _keep(self, result: Result, now_ms: int) -> None:
        """Refuse the requests that a Result answers, and write its records later."""
        for one in (result, *result.more):
            for ticket, response in one.replies:
                self._requests.reply(ticket, _refusal(response))
            one.replies = []
        kept = self._kept.get(result.partition)
        if kept is None:
            self._kept[result.partition] = deque([result])
            self._unwritten.later(partial(self._write_kept, result.partition), now_ms)
        else:
            kept.append(result)

    def _write_kept(self, partition: int, now_ms: int) -> None:
        """Write the kept Results of a partition in their order. If there is still no space, try
        again later.
        """
        kept = self._kept[partition]
        while kept:
            try:
                self.run(kept[0], now_ms)
            except NotWrittenError:
                self._unwritten.later(partial(self._write_kept, partition), now_ms)
                return
            kept.popleft()
        del self._kept[partition]
        if not self._kept:  # members need time to send a heartbeat before deadlines run again
            self._groups.timers.put_off(now_ms, PUT_OFF_AT_ONCE)

    def _reply(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            self._requests.reply(reply.ticket, reply.response)
