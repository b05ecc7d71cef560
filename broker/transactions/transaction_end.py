"""The end of a transaction: from EndTxn, a fence, a timeout or a start to its Complete record.

`LAW` is the ordering law of transactions. The code runs from this table: for each step, event and
durability it has the next step and the actions on the way, in order. The order is defined only
here.

The reasons for this order are as follows.

The decision commits the transaction: after a crash, the decision is read from the journal or from
__transaction_state, and its markers are written, or written again. So all data are on the disk
before the decision, or in one frame of the journal with it.

The response is sent before the markers are appended, since there may be a thousand logs. The
markers are appended before any other request is processed, so that a client that knows of the
commit can read its data. Requests with the transactional id are held back until the Complete
record. A client may begin the next transaction once its EndTxn is answered, and that transaction
then never gets CONCURRENT_TRANSACTIONS.

The markers of many partitions are appended in parts, between which other requests are processed.
Then the rows of `LAW_IN_PARTS` apply, and the response is sent after the last part.

An abort waits for no flush: if a crash loses its decision, the transaction is aborted again. The
exception is a session of two-phase commit (KIP-939), whose open transactions survive a power loss:
its aborts wait like a commit without a journal.

If partitions have no files for their markers, commits and aborts wait for these files before
anything is decided.

Version 2 of the protocol (KIP-890, part two) uses the same rows. Requests of its producer in the
next epoch are held back until the Complete record, like every other request with the transactional
id.

A transaction that is prepared for two-phase commit is an open transaction: Kafka's protocol has no
request for the preparation, and all writes of its producer that were answered are already durable.

Comments in the table mark what a second node would add to it.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from barnabas.broker.logs.flush_queue import FlushQueue, Frame
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.new_files import FilesAhead
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.outbox import PARKED, Outbox, Parked
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.slices import NO_TICKET
from barnabas.broker.transactions.unwritten_markers import UnwrittenMarker, UnwrittenMarkers
from barnabas.broker.transactions.whole_transactions import WholeTransactions
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import EncodedRecord, Result, partition_for
from barnabas.coordinator.transactions.transaction_coordinator import (
    END_GIVES_EPOCH,
    TransactionCoordinator,
    end_txn_response,
)
from barnabas.coordinator.transactions.transaction_records import record_of
from barnabas.coordinator.transactions.transaction_state import (
    Channel,
    Decision,
    KeyEnum,
    SessionAtEnd,
    TransactionMetadata,
    WaitingEndTxn,
    WaitingInit,
)
from barnabas.protocol.errors import Code, DelayedRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.disk import NotWrittenError, is_out_of_resources
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.flush_journal import OFFLINE_END
from barnabas.storage.log.append_info import MarkerHeader, NewMarker
from barnabas.storage.log.broker_appends import append_records, write_marker
from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.transactions")

_NO_SPACE = Code.COORDINATOR_NOT_AVAILABLE


# --- the law ------------------------------------------------------------------------------------


class Step(KeyEnum):
    """The step of an ending transaction. Each step is named by what it waits for."""

    OPEN = "nothing: it has not begun to end"
    FLUSH_DATA = "its data; nothing is decided, and a fence or an abort may come before the commit"
    FLUSH_DECISION = "its decision; from here on nothing else is decided on the transactional id"
    ANSWER = "its answer to be sent"
    MARKERS = "the next part of its markers"
    FLUSH_MARKERS = "its markers"
    COMPLETE = "nothing: it has ended"


class Event(KeyEnum):
    """An event that moves an ending transaction to its next step."""

    COMMIT = "its producer asks for its commit"
    ABORT = "it is aborted: its producer asks for it, a session fences it, or it times out"
    RESUME = "a start finds its decision in the log, without a Complete record"
    DATA = "its data are on the disk, or in the frame of the journal that is being made"
    FLUSHED = "what it waits for is on the disk"
    SENT = "the answer is sent, and no other request was processed since"
    MARKED = "the last part of its markers is appended"


class CommitDurability(KeyEnum):
    """How a commit survives a power loss."""

    JOURNAL = "the flush journal: one frame takes the last data and the decision"
    FLUSH = "the logs' own files: there is no journal, or no space on the disk for it"
    OS = "nothing: barnabas.transaction.durability=os leaves it to the operating system"


class Action(KeyEnum):
    """An action on the way to a step. Only the last action of a row may cause an event."""

    FLUSH_DATA = "wait for DATA"
    FRAME_DECISION = "put the Prepare record into the journal's frame, and wait for FLUSHED"
    WRITE_PREPARE = "append the Prepare record to __transaction_state, and replay it"
    FLUSH_PREPARE = "wait for FLUSHED: the log of the Prepare record"
    ANSWER = "answer the EndTxn, if one waits"
    AFTER_ANSWER = "wait for SENT"
    WRITE_MARKERS = "append the markers, then try the fetches that wait for them"
    WRITE_PARTS = "do so with a part of the markers at each tick, and wait for MARKED"
    FLUSH_MARKERS = "wait for FLUSHED: the logs with the markers"
    FLUSH_MARKERS_LATER = "have the markers flushed soon; the journal is kept until then"
    WRITE_COMPLETE = "append the Complete record, and begin the session that waits for it"


class Row(NamedTuple):
    """One cell of the law: the next step, and the actions on the way."""

    step: Step
    actions: tuple[Action, ...]


_S, _E, _D, _A = Step, Event, CommitDurability, Action
_BEGIN_COMMIT = Row(_S.FLUSH_DATA, (_A.FLUSH_DATA,))
_END_NOW = Row(_S.COMPLETE, (_A.WRITE_PREPARE, _A.WRITE_MARKERS, _A.WRITE_COMPLETE, _A.ANSWER))

# A commit that has to survive a power loss begins in the column JOURNAL. If the flush queue
# provides no frame with the event DATA, the commit continues in the column FLUSH. An abort uses the
# column OS, whatever durability commits have, but an abort of two-phase commit uses FLUSH. A second
# node would add a column, in which the steps that wait for the disk also wait for in-sync replicas.
LAW: Mapping[tuple[Step, Event], Mapping[CommitDurability, Row]] = {
    (_S.OPEN, _E.COMMIT): {
        _D.JOURNAL: _BEGIN_COMMIT,
        _D.FLUSH: _BEGIN_COMMIT,
        _D.OS: _END_NOW,
    },
    (_S.FLUSH_DATA, _E.DATA): {
        _D.JOURNAL: Row(_S.FLUSH_DECISION, (_A.FRAME_DECISION,)),
        _D.FLUSH: Row(_S.FLUSH_DECISION, (_A.WRITE_PREPARE, _A.FLUSH_PREPARE)),
    },
    # In version 2 the Prepare record raises the epoch, the markers contain the new epoch, and the
    # response returns it to the producer.
    (_S.FLUSH_DECISION, _E.FLUSHED): {
        _D.JOURNAL: Row(_S.ANSWER, (_A.WRITE_PREPARE, _A.ANSWER, _A.AFTER_ANSWER)),
        _D.FLUSH: Row(_S.ANSWER, (_A.ANSWER, _A.AFTER_ANSWER)),
    },
    # A second node would add a step after WRITE_MARKERS, in which other leaders acknowledge their
    # markers.
    (_S.ANSWER, _E.SENT): {
        _D.JOURNAL: Row(_S.COMPLETE, (_A.WRITE_MARKERS, _A.FLUSH_MARKERS_LATER, _A.WRITE_COMPLETE)),
        _D.FLUSH: Row(_S.FLUSH_MARKERS, (_A.WRITE_MARKERS, _A.FLUSH_MARKERS)),
    },
    (_S.FLUSH_MARKERS, _E.FLUSHED): {
        _D.FLUSH: Row(_S.COMPLETE, (_A.WRITE_COMPLETE,)),
    },
    (_S.OPEN, _E.ABORT): {
        _D.FLUSH: Row(_S.FLUSH_DECISION, (_A.WRITE_PREPARE, _A.FLUSH_PREPARE)),
        _D.OS: _END_NOW,
    },
    (_S.OPEN, _E.RESUME): {
        _D.FLUSH: Row(_S.FLUSH_MARKERS, (_A.WRITE_MARKERS, _A.FLUSH_MARKERS)),
        _D.OS: Row(_S.COMPLETE, (_A.WRITE_MARKERS, _A.WRITE_COMPLETE)),
    },
}

_MARK_IN_PARTS = Row(_S.MARKERS, (_A.WRITE_PARTS,))
_PREPARE_AND_MARK = Row(_S.MARKERS, (_A.WRITE_PREPARE, _A.WRITE_PARTS))

# The rows for a transaction with many partitions. Between two parts anything may happen: other
# requests, a kill, a power loss. A start carries the decision out as if no marker were written. It
# serves no client before that, and appends all markers at once. Markers that can be restored from
# the journal are flushed soon after each part, and the journal is kept until the last part.
LAW_IN_PARTS: Mapping[tuple[Step, Event], Mapping[CommitDurability, Row]] = {
    (_S.FLUSH_DATA, _E.DATA): LAW[_S.FLUSH_DATA, _E.DATA],
    (_S.OPEN, _E.COMMIT): {_D.OS: _PREPARE_AND_MARK},
    (_S.OPEN, _E.ABORT): {
        _D.FLUSH: LAW[_S.OPEN, _E.ABORT][_D.FLUSH],
        _D.OS: _PREPARE_AND_MARK,
    },
    (_S.FLUSH_DECISION, _E.FLUSHED): {
        _D.JOURNAL: _PREPARE_AND_MARK,
        _D.FLUSH: _MARK_IN_PARTS,
    },
    (_S.MARKERS, _E.MARKED): {
        _D.JOURNAL: Row(_S.COMPLETE, (_A.WRITE_COMPLETE, _A.ANSWER)),
        _D.FLUSH: Row(_S.FLUSH_MARKERS, (_A.ANSWER, _A.FLUSH_MARKERS)),
        _D.OS: Row(_S.COMPLETE, (_A.WRITE_COMPLETE, _A.ANSWER)),
    },
    (_S.FLUSH_MARKERS, _E.FLUSHED): LAW[_S.FLUSH_MARKERS, _E.FLUSHED],
}
# Appending the marker of a commit takes 15 us. Appending that of an abort may create the index file
# of aborted transactions, which takes more than 1 ms on a busy disk.
MARKERS_AT_ONCE, COSTS_OF_ABORT = 256, 16
# the version of the registry of topics before the first look-up, or before the first marker
NO_VERSION = -1


# Each commit uses these members, and a module's name is found sooner than an Enum's member.
_OPEN, _FLUSH_DATA, _COMPLETE = _S.OPEN, _S.FLUSH_DATA, _S.COMPLETE
_COMMIT, _DATA, _FLUSHED, _SENT = _E.COMMIT, _E.DATA, _E.FLUSHED, _E.SENT
_JOURNAL, _FLUSH = _D.JOURNAL, _D.FLUSH
_OF_ENDS = (Channel.COORDINATOR, Channel.ENDS)


# --- the state of an ending transaction ---------------------------------------------------------


class Ending:
    """One transaction that is ending.

    request, context: the EndTxn(commit) that began the end, and its context; None if the end was
    begun in another way. transaction: the transaction's state when the EndTxn arrived. decision:
    None until it is made. frame: the journal's frame, while it is being made. prepare: the encoded
    record of the decision; None until the decision. log: the log of __transaction_state for the
    transaction's records. partition_logs: the logs of its partitions, in order; None for a
    partition that does not exist or is off line. looked_up_at: the version of the registry of
    topics when all these logs were looked up. logs: the logs to which a marker was appended.
    topics_version: the version of the registry when the first of these markers was appended. law:
    LAW, or LAW_IN_PARTS. tried: with markers in parts, the number of partitions whose marker was
    tried. held_back: calls to make when the transaction has ended, in the order of arrival. left:
    the remaining actions of the step, if there was no disk space for the first of them; requests
    are not held back then. is_again: whether that first action has already appended some of its
    markers. is_traced: whether its steps are logged.
    """

    __slots__ = (
        "context",
        "decision",
        "durability",
        "frame",
        "held_back",
        "is_again",
        "is_traced",
        "law",
        "left",
        "log",
        "logs",
        "looked_up_at",
        "partition_logs",
        "prepare",
        "request",
        "step",
        "topics_version",
        "transaction",
        "transactional_id",
        "tried",
    )

    def __init__(
        self, transactional_id: str, durability: CommitDurability, decision: Decision | None = None
    ) -> None:
        self.transactional_id = transactional_id
        self.step = _OPEN
        self.law = LAW
        self.durability = durability
        self.request: EndTxnRequest | None = None
        self.context: RequestContext | None = None
        self.transaction: TransactionMetadata | None = None
        self.decision = decision
        self.frame: Frame | None = None
        self.prepare: EncodedRecord | None = None
        self.log: Log | None = None
        self.partition_logs: list[Log | None] = []
        self.looked_up_at = NO_VERSION
        self.logs: list[Log] = []
        self.topics_version, self.tried = NO_VERSION, 0
        self.held_back: list[Callable[[int], None]] = []
        self.left: tuple[Action, ...] = ()
        self.is_again, self.is_traced = False, logger.isEnabledFor(logging.DEBUG)

    def look_up_logs(self, topics: TopicRegistry, partition_count: int, now_ms: int) -> None:
        """Look up the logs of the transaction's records and of its partitions. They are looked up
        again only after a change of topics.

        Takes: partition_count, the number of partitions of __transaction_state.
        """
        transaction = self.decision or self.transaction
        assert transaction is not None
        index = partition_for(self.transactional_id, partition_count)
        self.log = topics.internal_log(TRANSACTIONS_TOPIC, index, now_ms)
        self.looked_up_at = topics.version
        self.partition_logs = topics.logs_at(transaction.partitions)

    def partition_ends(self, topics: TopicRegistry) -> list[tuple[str, int, bytes, int]]:
        """The end offsets of the transaction's partitions, for a start that finds the decision:
        the fields of a PartitionEnd for each.

        Partitions that are off line are included, since a kill may come before their missing
        markers are recorded. Those that were deleted since the look-up do no harm: an end has the
        topic's id.
        """
        assert self.decision is not None
        known, offline = topics.metadata.topics, topics.logs.offline
        ends = []
        for (name, index), log in zip(self.decision.partitions, self.partition_logs, strict=True):
            if log is not None:
                ends.append((*log.durability.names, log.log_end_offset))
            elif (name, index) in offline and name in known:
                ends.append((name, index, known[name].topic_id.bytes, OFFLINE_END))
        return ends


def _cost_of_marker(decision: Decision) -> int:
    return 1 if decision.commit else COSTS_OF_ABORT


def _trace_step(ending: Ending, before: Step, event: Event) -> None:
    """Log the event and the new step of an ending transaction, at debug level."""
    of = ending.decision or ending.request
    logger.debug(
        "%s: %s leads from %s to %s",
        ending.transactional_id, event.name, before.name, ending.step.name,
        extra={
            "transactional_id": ending.transactional_id,
            "producer_id": None if of is None else of.producer_id,
            "producer_epoch": None if of is None else of.producer_epoch,
            "state": ending.step.name,
        },
    )  # fmt: skip


class Endings:
    """The transactions that are ending, by transactional id, and the calls that wait for them.

    without_space: the transactional ids whose markers or records wait for disk space. While a
    partition lacks its marker, no data may be written to it for such an id, since they would become
    part of the decided transaction.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Ending] = {}
        self.without_space: set[str] = set()

    def is_decided(self, transactional_id: str) -> bool:
        """Whether a decision on the transaction of the transactional id is being carried out."""
        ending = self.by_id.get(transactional_id)
        return ending is not None and ending.step is not _FLUSH_DATA

    def holds_back(self, transactional_id: str) -> bool:
        """Whether requests with the transactional id wait until a decision is carried out. While
        the decision waits for disk space, they do not wait, but get CONCURRENT_TRANSACTIONS.
        """
        ending = self.by_id.get(transactional_id)
        return ending is not None and ending.step is not _FLUSH_DATA and not ending.left

    def after_end_of(
        self, transactional_id: str | None, call: Callable[[int], None], now_ms: int
    ) -> None:
        """Make the call once no decision on the transactional id is being carried out. Usually this
        is at once.

        Takes: call, which answers its request even if there is no disk space.
        """
        ending = None if transactional_id is None else self.by_id.get(transactional_id)
        if ending is None or ending.step is _FLUSH_DATA or ending.left:
            call(now_ms)
        else:
            ending.held_back.append(call)


# --- markers ------------------------------------------------------------------------------------


class TransactionMarkers:
    """Appends the markers of the coordinator's own decisions.

    whole: keeps the last stable offsets of some topics together. unwritten: the missing markers of
    partitions that are off line. commits_on: a function that
    returns whether a decision commits the transaction that is open in a log. It is set only while
    a start resumes decisions.
    """

    def __init__(
        self, topics: TopicRegistry, groups: GroupCoordinator, whole: WholeTransactions
    ) -> None:
        self._topics, self._groups, self.whole = topics, groups, whole
        self._offline: Mapping[tuple[str, int], object] = topics.logs.offline
        self.unwritten = UnwrittenMarkers(topics.logs.disk, topics.logs.data_dir)
        self.commits_on: Callable[[Log, Decision], bool] | None = None
        self._is_traced = False

    def write(
        self,
        decision: Decision,
        logs: list[Log | None],
        marked: list[Log],
        now_ms: int,
        *,
        is_again: bool = False,
        is_last: bool = True,
    ) -> None:
        """Append the markers of a decision.

        Takes:  logs, the logs of the decision's partitions; marked, a list to which each log is
                added when its marker is appended; is_again, whether an earlier call, which found
                no disk space, has appended some of the markers; is_last, whether these are the last
                markers of the decision.
        Raises: NotWrittenError without disk space; some of the markers may be appended.
        After:  the missing markers of partitions that are off line are recorded durably.
        """
        is_kept_whole = bool(self.whole.in_parts)
        for log in logs:
            if log is not None and log.is_whole:
                is_kept_whole = True
                break
        if not is_kept_whole or not decision.commit:
            self._write(decision, logs, marked, now_ms, is_again=is_again)
            return
        self.whole.begin(decision, logs, now_ms)
        is_complete = False
        try:
            self._write(decision, logs, marked, now_ms, is_again=is_again)
            is_complete = is_last
        finally:
            self.whole.end(decision, is_complete=is_complete)

    def _write(
        self,
        decision: Decision,
        logs: list[Log | None],
        marked: list[Log],
        now_ms: int,
        *,
        is_again: bool,
    ) -> None:
        self._is_traced = logger.isEnabledFor(logging.DEBUG)
        marker = NewMarker(*decision[1:5], True, decision.decided_ms)
        marked_before = frozenset(marked) if is_again else ()
        for log in logs:
            if log is None or log in marked_before:
                continue
            here = marker
            if self.commits_on is not None:
                here = self._marker_of_a_start(log, decision, marker)
            elif not log.files.are_made and not _can_make_files(log):
                continue
            if self.append_to(log, here, now_ms):
                marked.append(log)
        if self._offline:
            self._note_offline(decision)

    def append(self, topic: str, index: int, marker: NewMarker, now_ms: int) -> Log | None:
        """Append a marker to the log of a partition, as `append_to` does. After a power loss,
        readers may have seen it before. Gives: the log; None if no marker was appended.
        """
        self._is_traced = logger.isEnabledFor(logging.DEBUG)
        log = self._topics.partition(topic, index)
        may_be_known = self._topics.logs.lost_power
        if log is None or not self.append_to(log, marker, now_ms, may_be_known=may_be_known):
            return None
        return log

    def append_to(
        self, log: Log, marker: NewMarker, now_ms: int, *, may_be_known: bool = False
    ) -> bool:
        """Append a marker of the coordinator's own decision. The caller then tries the waiting
        fetches.

        Gives: whether the marker was appended; False if the producer has a later epoch in this log.

        A transaction that is open in the log always ends (`epochs_of_decision`). A marker on a
        partition of __consumer_offsets also commits (or drops) the transaction's group offsets.
        """
        producer_id, producer_epoch = marker.producer_id, marker.producer_epoch
        epochs = log.producer_state.epochs_of_decision(
            producer_id, producer_epoch, marker.coordinator_epoch
        )
        if epochs is None:
            logger.info(
                "%r: producer %d, epoch %d, has no open transaction to end, and a later epoch",
                log,
                producer_id,
                producer_epoch,
                extra={"producer_id": producer_id, "producer_epoch": producer_epoch},
            )
            return False
        commit = marker.commit
        if epochs[1] != marker.coordinator_epoch or epochs[0] != producer_epoch:
            producer_epoch = epochs[0]
            marker = replace(marker, producer_epoch=producer_epoch, coordinator_epoch=epochs[1])
        header: MarkerHeader | None = None
        last_bytes = b""
        if log.is_whole and commit and marker.decided_ms is not None:
            header, last_bytes = self.whole.header(
                log, producer_id, marker.decided_ms, now_ms, is_live=not may_be_known
            )
        offset = write_marker(log, marker, now_ms, header, last_bytes)
        if self._is_traced:
            logger.debug(
                "%r: the marker %s of producer %d at offset %d",
                log, "COMMIT" if commit else "ABORT", producer_id, offset,
                extra={
                    "producer_id": producer_id, "producer_epoch": producer_epoch,
                    "offset": offset,
                },
            )  # fmt: skip
        if log.topic == OFFSETS_TOPIC:
            self._groups.replay_marker(log.partition, offset, producer_id, producer_epoch, commit)
        return True

    def _marker_of_a_start(self, log: Log, decision: Decision, marker: NewMarker) -> NewMarker:
        """The marker that a start writes to one partition. It is an abort marker if a transaction
        other than the decided one is open there.

        This happens only if a power loss kept a batch of the next transaction, but not its record.
        The repeated markers must not commit that transaction, which can no longer be committed.
        """
        assert self.commits_on is not None
        if not decision.commit or self.commits_on(log, decision):
            return marker
        logger.warning(
            "%s: aborting a transaction of producer %d, which a power loss left open",
            TopicPartition(log.topic, log.partition),
            decision.producer_id,
            extra={"producer_id": decision.producer_id},
        )
        return replace(marker, commit=False)

    def _note_offline(self, decision: Decision) -> None:
        """Record the missing markers of partitions that are off line, before the transaction is
        complete.
        """
        markers = []
        for name, index in decision.partitions:
            topic = self._topics.metadata.topic(name)
            if (name, index) in self._offline and topic is not None:
                topic_id = topic.topic_id.bytes
                markers.append(
                    UnwrittenMarker(name, index, topic_id, *decision[1:5], decision.decided_ms)
                )
                logger.warning(
                    "%s is off line: the marker of producer %d is kept until it is back",
                    TopicPartition(name, index),
                    decision.producer_id,
                    extra={"producer_id": decision.producer_id},
                )
        self.unwritten.add(markers)


def _can_make_files(log: Log) -> bool:
    """Whether files can be made for the first marker of a log that has no files yet.

    A log without files has no open transaction, and no reader needs the marker. So if there is no
    disk space or descriptor for the files (and the transaction has no batch in this log), the
    marker is omitted: the transaction ends, and the broker continues. The Complete record is then
    flushed as for a deleted partition. A start does not omit the marker, since the decision may be
    from a time when the partition was off line.
    """
    try:
        log.files.make()
    except OSError as error:
        if not is_out_of_resources(error):
            raise
        logger.warning("%r: the first marker is left out: %s", log, error)
        return False
    return True


def _refuse(requests: Requests, waiting: WaitingEndTxn | WaitingInit | None) -> None:
    """Refuse a request that waits for the end of its transaction, with an error code after which
    clients retry.
    """
    if isinstance(waiting, WaitingEndTxn):
        requests.reply(waiting.ticket, end_txn_response(_NO_SPACE))
    elif waiting is not None:
        refusal = InitProducerIdResponse(error_code=_NO_SPACE, producer_id=-1, producer_epoch=-1)
        requests.reply(waiting.ticket, refusal)


# --- running the law ------------------------------------------------------------------------------


class TransactionEnds:
    """Carries out the Results of the transaction coordinator on the logs, and ends transactions.

    flushes_commits: whether commits survive a power loss. in_parts: the transactions whose markers
    `on_tick` appends in parts. markers_at_once: the maximum number of markers in one call; an abort
    marker counts as COSTS_OF_ABORT. _completions: the logs with Complete records that have to be
    durable, each with the offset up to which it has to be flushed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        endings: Endings,
        transactions: TransactionCoordinator,
        markers: TransactionMarkers,
        topics: TopicRegistry,
        flushes: FlushQueue,
        progress: LogProgress,
        requests: Requests,
        outbox: Outbox,
        files_ahead: FilesAhead,
        unwritten: UnwrittenWork,
    ) -> None:
        self.flushes_commits = config.barnabas_transaction_durability == "flush"
        self._endings, self._by_id = endings, endings.by_id
        self._coordinator, self._topics, self._flushes = transactions, topics, flushes
        self._completions: dict[Log, int] = {}
        self._markers = markers
        self._progress = progress
        self._requests, self._outbox, self._files_ahead = requests, outbox, files_ahead
        self._unwritten = unwritten
        self.markers_at_once, self._soon_marked_count = MARKERS_AT_ONCE, 0
        self.in_parts: deque[Ending] = deque()
        self._actions: Mapping[Action, Callable[[Ending, int], None]] = {
            Action.FLUSH_DATA: self._flush_data,
            Action.FRAME_DECISION: self._frame_decision,
            Action.WRITE_PREPARE: self._write_prepare,
            Action.FLUSH_PREPARE: self._flush_prepare,
            Action.ANSWER: self._answer,
            Action.AFTER_ANSWER: self._await_sent,
            Action.WRITE_MARKERS: self._write_markers,
            Action.WRITE_PARTS: self._write_parts,
            Action.FLUSH_MARKERS: self._flush_markers,
            Action.FLUSH_MARKERS_LATER: self._flush_markers_later,
            Action.WRITE_COMPLETE: self._write_complete,
        }

    # --- the coordinator's decisions --------------------------------------------------------------

    def run(self, result: Result, now_ms: int) -> None:
        """Carry out a Result of the transaction coordinator: append its records and replay them,
        then send its responses and carry out its effects.

        Raises: NotWrittenError without disk space, before further results are written. An effect
                without disk space is not carried out, and its request is refused.
        """
        logs: list[Log] = []
        for one in (result, *result.more):
            if one.records:
                log = self._topics.internal_log(TRANSACTIONS_TOPIC, one.partition, now_ms)
                append_records(log, one.records, now_ms)
                assert len(one.transactions) == len(one.records), "a record without its content"
                for metadata in one.transactions:
                    self._coordinator.apply(metadata, now_ms)
                self._progress.on_appended([log], now_ms)
                logs.append(log)
            if one.durable and self.flushes_commits:
                if not logs:  # the response relies on a record that was written earlier
                    logs.append(
                        self._topics.internal_log(TRANSACTIONS_TOPIC, one.partition, now_ms)
                    )
                self._flushes.wait(logs, partial(self._conclude, one), now_ms)
            else:
                self._conclude(one, now_ms)

    def _conclude(self, result: Result, now_ms: int) -> None:
        for reply in result.replies:
            self._requests.reply(reply.ticket, reply.response)
        for effect in result.effects:
            if isinstance(effect, Decision):
                self._begin(effect, now_ms)
            else:
                self._set_session_at_end(effect)

    # --- events ----------------------------------------------------------------------------------

    def on_end_txn(self, request: EndTxnRequest, context: RequestContext) -> Parked:
        """Handle EndTxn. Close a connection that its producer has replaced (`check_connection`)."""
        if context.api_version < END_GIVES_EPOCH:  # in version 2 a late request has an old epoch
            self._coordinator.check_connection(
                request.transactional_id,
                (request.producer_id, request.producer_epoch),
                context.connection_id,
                _OF_ENDS,
                node_id=context.node_id,
            )
        self._requests.park(context)
        ending = self._by_id.get(request.transactional_id)
        if ending is None or ending.step is _FLUSH_DATA or ending.left:
            self._end(request, context, context.now_ms)
        else:
            ending.held_back.append(lambda now_ms: self._end_again(request, context, now_ms))
        return PARKED

    def _begin(self, decision: Decision, now_ms: int) -> None:
        """Carry out a decision that requires no flushed data: an abort, or any decision with `os`.

        The decision overtakes a commit of the same transaction that still waits for its data. The
        EndTxn of that commit is processed again after the end of the transaction.
        """
        assert not (decision.commit and self.flushes_commits), "a commit's data come first"
        ending = Ending(decision.transactional_id, self._durability_of(decision), decision)
        overtaken = self._by_id.get(decision.transactional_id)
        if overtaken is not None:
            ending.held_back = self._calls_of(overtaken)
        self._by_id[decision.transactional_id] = ending
        if len(decision.partitions) * _cost_of_marker(decision) > self.markers_at_once:
            ending.law = LAW_IN_PARTS
        event = _COMMIT if decision.commit else Event.ABORT
        self._with_files(decision, partial(self._on, ending, event), now_ms)

    def resume(self, decision: Decision, now_ms: int) -> None:
        """Carry out a decision whose Prepare record a start has found in the log."""
        ending = Ending(decision.transactional_id, self._durability_of(decision), decision)
        self._by_id[decision.transactional_id] = ending
        self._on(ending, Event.RESUME, now_ms)

    def _durability_of(self, decision: Decision) -> CommitDurability:
        if self.flushes_commits and (decision.commit or decision.prepare.is_two_phase):
            return _FLUSH
        return CommitDurability.OS

    def _set_session_at_end(self, effect: SessionAtEnd) -> None:
        """Set the session that begins when the transaction is complete."""
        ending = self._by_id[effect.transactional_id]
        assert ending.decision is not None and ending.decision.waiting is None
        ending.decision = ending.decision._replace(waiting=effect.init)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is ending."""
        return not self._by_id

    def _on(self, ending: Ending, event: Event | None, now_ms: int) -> None:
        """Move the ending transaction to the next step of the law, and do the row's actions.

        Takes: event, or None to retry the remaining actions, since the disk may have space now.
        """
        before = ending.step
        if event is None:
            actions, ending.left = ending.left, ()
            self._endings.without_space.discard(ending.transactional_id)
        else:
            ending.step, actions = ending.law[before, event][ending.durability]
            if ending.is_traced:
                _trace_step(ending, before, event)
        action = actions[0]
        try:
            # the last action may cause an event, which calls this method again
            for action in actions:
                self._actions[action](ending, now_ms)
        except NotWrittenError as error:
            self._on_not_written(ending, actions[actions.index(action) :], error, now_ms)
            return
        except Exception as error:
            self._on_error(ending, error)
            return
        # The last action may have removed this ending, and a held-back call may have begun another.
        if ending.step is _COMPLETE and self._by_id.get(ending.transactional_id) is ending:
            del self._by_id[ending.transactional_id]
            if ending.held_back:  # one of these calls may end the next transaction
                self._release(ending.transactional_id, ending.held_back, now_ms)

    def _release(
        self, transactional_id: str, calls: Iterable[Callable[[int], None]], now_ms: int
    ) -> None:
        """Make the calls that waited for an end, or hold them back for the next one. An exception
        ends only the request of its call.
        """
        for call in calls:
            try:
                self._endings.after_end_of(transactional_id, call, now_ms)
            except Exception as error:
                contain(error, f"a request that waited for the end of {transactional_id!r}")

    def _on_error(self, ending: Ending, error: Exception) -> None:
        """An action has failed: end the connection of the request that waits for it. The next start
        completes a transaction that is decided. Raises: the error if it ends the process.
        """
        waiting = None if ending.decision is None else ending.decision.waiting
        ticket = NO_TICKET if ending.context is None else ending.context.ticket
        self._requests.on_failed(ticket if waiting is None else waiting.ticket, error)

    # --- topics that are deleted or created, and responses that wait for the disk ----------------

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

    # --- without space ---------------------------------------------------------------------------

    def _on_not_written(
        self, ending: Ending, left: tuple[Action, ...], error: NotWrittenError, now_ms: int
    ) -> None:
        """Handle an action that found no disk space. If no part of the decision is written, drop
        the decision. Otherwise repeat its remaining actions until they succeed.
        """
        if not self._unwritten.may_wait:
            raise error
        self._unwritten.note("the end of a transaction", error, now_ms)
        is_in_journal = ending.prepare is not None
        if left[0] is Action.WRITE_PREPARE and not is_in_journal:
            self._drop(ending, now_ms)
            return
        ending.left, ending.is_again = left, True
        self._endings.without_space.add(ending.transactional_id)
        assert ending.decision is not None
        waiting = ending.decision.waiting
        _refuse(self._requests, waiting)
        if isinstance(waiting, WaitingInit):  # the producer will request the session again
            ending.decision = ending.decision._replace(waiting=None)
        self._unwritten.later(lambda now_ms: self._on(ending, None, now_ms), now_ms)
        held_back, ending.held_back = ending.held_back, []
        # these requests get CONCURRENT_TRANSACTIONS
        self._release(ending.transactional_id, held_back, now_ms)

    def _drop(self, ending: Ending, now_ms: int) -> None:
        """Drop a decision of which no part is written, so that its transaction is still open."""
        name, decision, context = ending.transactional_id, ending.decision, ending.context
        if decision is not None and context is not None and ending.law is LAW:
            self._soon_marked_count -= len(decision.partitions)
        del self._by_id[name]
        if decision is not None:
            _refuse(self._requests, decision.waiting)
        elif context is not None:
            self._requests.reply(context.ticket, end_txn_response(_NO_SPACE))
        self._coordinator.on_not_ended(name, now_ms, is_requested=context is not None)
        self._release(name, ending.held_back, now_ms)

    # --- before the decision ---------------------------------------------------------------------

    def _end(self, request: EndTxnRequest, context: RequestContext, now_ms: int) -> None:
        coordinator, name = self._coordinator, request.transactional_id
        earlier = self._by_id.get(name)
        if request.committed and self.flushes_commits and (earlier is None or not earlier.left):
            transaction = coordinator.on_commit_requested(
                name, request.producer_id, request.producer_epoch, now_ms
            )
            if transaction is not None:
                # The producer has repeated the EndTxn of a commit that is being carried out.
                if earlier is not None:
                    earlier.held_back.append(
                        lambda now_ms: self._end_again(request, context, now_ms)
                    )
                    return
                ending = self._by_id[name] = Ending(name, _JOURNAL)
                ending.request, ending.context = request, context
                ending.transaction = transaction
                self._on(ending, _COMMIT, now_ms)
                return
        self.run(coordinator.on_end_txn(request, context, now_ms), now_ms)

    def _end_again(self, request: EndTxnRequest, context: RequestContext, now_ms: int) -> None:
        """Process an EndTxn that was held back, unless its producer now uses another connection."""
        if context.api_version < END_GIVES_EPOCH:
            try:
                self._coordinator.check_connection(
                    request.transactional_id,
                    (request.producer_id, request.producer_epoch),
                    context.connection_id,
                    is_noted=False,
                    node_id=context.node_id,
                )
            except DelayedRequest as error:
                self._requests.close(context.connection_id, error)
                return
        try:
            self._end(request, context, now_ms)
        except NotWrittenError:
            self._requests.reply(context.ticket, end_txn_response(_NO_SPACE))

    def _calls_of(self, ending: Ending) -> list[Callable[[int], None]]:
        """The calls to make again when a commit was overtaken, beginning with its EndTxn."""
        request, context = ending.request, ending.context
        assert ending.step is _FLUSH_DATA, "a decision was overtaken by another"
        assert request is not None and context is not None
        return [lambda now_ms: self._end_again(request, context, now_ms), *ending.held_back]

    def _on_data(self, ending: Ending, frame: Frame | None, now_ms: int) -> None:
        """Make the decision, since the data are durable or will become durable with the frame. The
        frame is None without a journal.

        This is not done when the EndTxn arrives, since until now a fence, a timeout or an abort
        could overtake the commit.
        """
        name, context = ending.transactional_id, ending.context
        if self._by_id.get(name) is not ending:  # an abort has overtaken this commit
            return
        assert context is not None and ending.transaction is not None and ending.log is not None
        coordinator = self._coordinator
        try:
            decision = coordinator.on_data(
                ending.transaction, context, ending.log.leader_epoch, now_ms
            )
        except NotWrittenError as error:  # a new producer id could not be reserved
            self._on_not_written(ending, (Action.WRITE_PREPARE,), error, now_ms)
            return
        except Exception as error:
            self._on_error(ending, error)
            return
        if decision is None:  # partitions were added meanwhile, whose data may not be durable
            del self._by_id[name]
            self._release(name, self._calls_of(ending), now_ms)
            return
        ending.decision, ending.frame = decision, frame
        ending.durability = _FLUSH if frame is None else _JOURNAL
        # transactions that become durable with the same flush may get their markers in one call
        count = self._soon_marked_count + len(decision.partitions)
        if count > self.markers_at_once:
            ending.law = LAW_IN_PARTS
        else:
            self._soon_marked_count = count
        self._on(ending, _DATA, now_ms)

    def _with_files(self, decision: Decision, then: Callable[[int], None], now_ms: int) -> None:
        """Call `then`, which appends markers, once the logs of the partitions have their files.
        This is at once, unless a partition without records has no files yet.
        """
        without = [
            log
            for topic, index in decision.partitions
            if (log := self._topics.partition(topic, index)) is not None and not log.files.are_made
        ]
        if without:
            self._files_ahead.make(without, then)
        else:
            then(now_ms)

    # --- actions ---------------------------------------------------------------------------------

    def _flush_data(self, ending: Ending, now_ms: int) -> None:
        """Make the files that are missing for the markers, and then wait for the data.

        This repeats the code of `_with_files`, since each further call costs measurable time here.
        """
        ending.look_up_logs(self._topics, self._coordinator.partition_count, now_ms)
        logs, without = [], []
        for log in ending.partition_logs:
            if log is not None:
                logs.append(log)
                if not log.files.are_made:
                    without.append(log)
        on_data = partial(self._on_data, ending)
        if not without:
            self._flushes.wait_for_frame(logs, on_data, now_ms)
            return

        def flush(now_ms: int) -> None:
            if self._by_id.get(ending.transactional_id) is ending:  # no abort has overtaken it
                self._flushes.wait_for_frame(logs, on_data, now_ms)

        self._files_ahead.make(without, flush)

    def _frame_decision(self, ending: Ending, now_ms: int) -> None:
        decision, frame, log = ending.decision, ending.frame, ending.log
        assert decision is not None and frame is not None and log is not None
        ends = ending.partition_ends(self._topics)
        ending.prepare, ending.frame = record_of(decision.prepare), None
        frame.add(
            (*ending.prepare, ends),
            log,
            partial(self._on, ending, _FLUSHED),
            partial(self._on_no_frame, ending),
        )

    def _on_no_frame(self, ending: Ending, now_ms: int) -> None:
        """Wait for the data and decide again, without a frame: there is no disk space for one."""
        assert ending.decision is not None
        if ending.law is LAW:
            self._soon_marked_count -= len(ending.decision.partitions)
        ending.law, ending.step = LAW, _FLUSH_DATA
        ending.decision = ending.prepare = None
        self._flush_data(ending, now_ms)

    def _write_prepare(self, ending: Ending, now_ms: int) -> None:
        decision = ending.decision
        assert decision is not None
        if ending.log is None:
            ending.look_up_logs(self._topics, self._coordinator.partition_count, now_ms)
        record = ending.prepare or record_of(decision.prepare)
        self._append(ending, record, decision.prepare, now_ms)

    def _append(
        self,
        ending: Ending,
        record: EncodedRecord,
        content: TransactionMetadata,
        now_ms: int,
    ) -> None:
        log = ending.log
        assert log is not None, "its logs were looked up before its first record"
        append_records(log, (record,), now_ms)
        self._coordinator.apply(content, now_ms)
        self._progress.on_appended([log], now_ms)

    def _flush_prepare(self, ending: Ending, now_ms: int) -> None:
        assert ending.log is not None, "the Prepare record is in it"
        self._flushes.wait([ending.log], partial(self._on, ending, _FLUSHED), now_ms)

    def _answer(self, ending: Ending, now_ms: int) -> None:
        assert ending.decision is not None
        waiting = ending.decision.waiting
        if isinstance(waiting, WaitingEndTxn):
            response = EndTxnResponse(
                producer_id=waiting.producer_id, producer_epoch=waiting.producer_epoch
            )
            self._requests.reply(waiting.ticket, response)

    def _await_sent(self, ending: Ending, now_ms: int) -> None:
        self._outbox.deferred.append(partial(self._on, ending, _SENT))

    def _write_markers(self, ending: Ending, now_ms: int) -> None:
        """Append all markers, and only then try the waiting fetches.

        A fetch that waits for several partitions gets the whole transaction in one response.
        """
        decision = ending.decision
        assert decision is not None
        if ending.topics_version == NO_VERSION:
            if ending.request is not None:  # `_on_data` has counted this transaction
                self._soon_marked_count -= len(decision.partitions)
            ending.topics_version = self._topics.version
        if ending.looked_up_at != self._topics.version:
            ending.look_up_logs(self._topics, self._coordinator.partition_count, now_ms)
        try:
            self._markers.write(
                decision, ending.partition_logs, ending.logs, now_ms, is_again=ending.is_again
            )
            ending.is_again = False
        finally:  # without disk space some of the markers may be written
            if ending.durability is _JOURNAL:
                # All data before the markers are durable, and the markers will be durable soon.
                self._progress.try_fetches(ending.logs, now_ms)
            else:
                self._progress.on_appended(ending.logs, now_ms)

    def _write_parts(self, ending: Ending, now_ms: int) -> None:
        if ending.topics_version == NO_VERSION:
            ending.topics_version = self._topics.version
            if ending.durability is _JOURNAL:
                self._flushes.hold_journals()
        self.in_parts.append(ending)

    def on_tick(self, now_ms: int) -> None:
        """Append the next markers of the transactions whose markers are appended in parts."""
        left = self.markers_at_once
        while left > 0 and self.in_parts:
            ending = self.in_parts[0]
            assert ending.decision is not None
            partitions, cost = ending.decision.partitions, _cost_of_marker(ending.decision)
            count = min(len(partitions) - ending.tried, max(1, left // cost))
            left -= count * cost
            try:
                self._write_part(ending, count, now_ms)
            except NotWrittenError as error:
                self.in_parts.popleft()
                self._on_not_written(ending, (Action.WRITE_PARTS,), error, now_ms)
                continue
            if ending.tried == len(partitions):
                self.in_parts.popleft()
                if ending.durability is _JOURNAL:
                    self._flushes.release_journals()
                self._on(ending, Event.MARKED, now_ms)

    def _write_part(self, ending: Ending, count: int, now_ms: int) -> None:
        """Append the markers of the next partitions, as `_write_markers` does for all partitions.

        Takes: count, the number of partitions.
        """
        assert ending.decision is not None
        if ending.looked_up_at != self._topics.version:
            ending.look_up_logs(self._topics, self._coordinator.partition_count, now_ms)
        of_part = slice(ending.tried, ending.tried + count)
        part = ending.decision._replace(partitions=ending.decision.partitions[of_part])
        logs = ending.partition_logs[of_part]
        marked_count = len(ending.logs)
        try:
            self._markers.write(
                part, logs, ending.logs, now_ms, is_again=ending.is_again,
                is_last=of_part.stop == len(ending.decision.partitions),
            )  # fmt: skip
            ending.tried += count
            ending.is_again = False
        finally:
            marked = ending.logs[marked_count:]
            if ending.durability is _JOURNAL:
                self._progress.try_fetches(marked, now_ms)
                self._flushes.flush_later(marked, now_ms)
            else:
                self._progress.on_appended(marked, now_ms)

    def _flush_markers(self, ending: Ending, now_ms: int) -> None:
        self._flushes.wait(ending.logs, partial(self._on, ending, _FLUSHED), now_ms)

    def _flush_markers_later(self, ending: Ending, now_ms: int) -> None:
        self._flushes.flush_later(ending.logs, now_ms)

    def _write_complete(self, ending: Ending, now_ms: int) -> None:
        decision = ending.decision
        assert decision is not None
        complete = self._coordinator.complete(decision, now_ms)
        if complete is not None:
            self._append(ending, record_of(complete), complete, now_ms)
            if isinstance(decision.waiting, WaitingInit):
                self._begin_session(complete, decision.waiting, now_ms)
        if len(ending.logs) < len(decision.partitions) or (
            ending.topics_version != self._topics.version and self._has_lost_partition(ending)
        ):
            self.flush_completions(now_ms)

    def _begin_session(
        self, complete: TransactionMetadata, waiting: WaitingInit, now_ms: int
    ) -> None:
        """Begin the session for which a request waits. If there is no disk space, the request is
        refused, but the transaction is still complete.
        """
        try:
            self.run(self._coordinator.sessions.begin_session(complete, waiting, now_ms), now_ms)
        except NotWrittenError as error:
            if not self._unwritten.may_wait:
                raise
            self._unwritten.note("the session of a producer", error, now_ms)
            _refuse(self._requests, waiting)
