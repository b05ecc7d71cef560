"""The join of a coordinator and its internal topic: appends what it decides, replays it, releases
its answers, carries out its effects.

The ordering law of transactions is kept here. With `barnabas.transaction.durability=flush`:

    data and decision (PrepareCommit) on the disk, the decision in the flush journal -> decision
    appended -> answer -> markers appended -> CompleteCommit appended -> markers on the disk, in a
    while

    without the journal: data on the disk -> decision appended and on the disk -> answer -> markers
    appended and on the disk -> CompleteCommit appended

With the decision the transaction is committed; after a crash it is found, and the markers are
written, or written again. The answer is sent while markers are appended to what may be a thousand
logs, and this is done before any other request is heard: whoever knows of the commit reads it. What
the transactional id asks is held back from the decision until CompleteCommit. With `os` the order
of appends is the same, without the waits, and the answer follows the markers. An abort needs no
waits: what a crash forgets of it is aborted again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.flush_queue import Decision
from barnabas.broker.unwritten_markers import UnwrittenMarker, UnwrittenMarkers
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import Reply, Result, WriteMarkers
from barnabas.coordinator.transaction_records import producer_id_of
from barnabas.protocol.errors import Code, DelayedRequest, KafkaError
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.flush_journal import OFFLINE_END, JournalDecision, PartitionEnd
from barnabas.storage.log import AppendOrigin

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.coordinator.transaction_state import TransactionMetadata
    from barnabas.protocol.messages.end_txn import EndTxnRequest
    from barnabas.storage.log import Log

logger = logging.getLogger("barnabas.transactions")


class _Found(NamedTuple):
    """A decision that a flush journal holds, at a start."""

    effect: WriteMarkers
    ends: dict[tuple[str, int], PartitionEnd]

    def is_open(self, log: Log, topic_id: bytes) -> bool:
        """Whether its transaction is open there: what the producer has open began before the log's
        end of then.

        Of a partition that was off line then, the end is not known: what is open there is this one,
        but where its marker stands before it.
        """
        end = self.ends.get((log.topic, log.partition))
        first_offset = log.producer_state.first_offset_of_transaction(self.effect.producer_id)
        if end is None or first_offset is None or end.topic_id != topic_id:
            return False
        if end.offset == OFFLINE_END:
            return not log.ended_before_open_transaction(
                self.effect.producer_id, self.effect.decided_ms
            )
        return first_offset < end.offset


class CoordinatorRuntime:
    """Runs the Results of both coordinators against the logs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.flushes_transactions = broker.config["barnabas.transaction.durability"] == "flush"
        self._completing: dict[str, list[Callable[[int], None]]] = {}
        self._is_recovering = False
        self._unwritten_markers = UnwrittenMarkers(broker.logs.disk, broker.logs.data_dir)
        self._decisions_found: dict[
            tuple[str, int], _Found
        ] = {}  # by transactional id and time of the decision
        self._adding_connections: dict[tuple[str, bool], tuple[tuple[int, int], int]] = {}

    # --- results ---------------------------------------------------------------------------------

    def run_groups(self, result: Result, now_ms: int) -> None:
        """Carry out what the group coordinator decided."""
        while True:
            if result.records:
                log = self._append(OFFSETS_TOPIC, result, now_ms)
                base_offset = log.log_end_offset - len(result.records)
                for delta, record in enumerate(result.records):
                    self._broker.groups.replay(
                        result.partition,
                        base_offset + delta,
                        record.key,
                        record.value,
                        result.producer,
                    )
                self._broker.on_progress(log, now_ms)
            self._reply(result.replies)
            if not result.more:
                return
            for further in result.more[:-1]:
                self.run_groups(further, now_ms)
            result = result.more[-1]

    def run_transactions(self, result: Result, now_ms: int, *, is_durable: bool = False) -> None:
        """Carry out what the transaction coordinator decided. is_durable: the flush journal has it
        already.
        """
        if result.records:
            log = self._append(TRANSACTIONS_TOPIC, result, now_ms)
            base_offset = log.log_end_offset - len(result.records)
            for delta, record in enumerate(result.records):
                self._broker.transactions.replay(
                    result.partition, base_offset + delta, record.key, record.value
                )
            self._broker.on_progress(log, now_ms)
            waits = self.flushes_transactions and (
                result.durable or any(effect.commit for effect in result.effects)
            )
            if waits and not is_durable:
                self._broker.flushes.wait(
                    [log], lambda then_ms: self._conclude(result, then_ms), now_ms
                )
            else:
                self._conclude(result, now_ms, is_durable=is_durable)
        else:
            self._conclude(result, now_ms)
        for further in result.more:
            self.run_transactions(further, now_ms)

    def _conclude(self, result: Result, now_ms: int, *, is_durable: bool = False) -> None:
        self._reply(result.replies)
        for effect in result.effects:
            self.write_markers(effect, now_ms, is_journaled=is_durable)

    def _reply(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            self._broker.reply(reply.ticket, reply.response)

    def _append(self, topic: str, result: Result, now_ms: int) -> Log:
        log = self._broker.internal_log(topic, result.partition, now_ms)
        wall_ms = self._broker.wall.at(now_ms)
        records = [NewRecord(record.key, record.value, wall_ms) for record in result.records]
        if result.producer is None:
            batch = encode_batch(records)
        else:
            batch = encode_batch(
                records,
                producer_id=result.producer[0],
                producer_epoch=result.producer[1],
                transactional=True,
            )
        log.append(batch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
        return log

    # --- transactions ----------------------------------------------------------------------------

    def check_connection(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        connection_id: int,
        *,
        adds: bool,
        offsets: bool = False,
    ) -> None:
        """Refuse what was delayed on a connection that the producer has given up: it is not meant
        for the transaction of now.

        The first version of the protocol does not tell a late EndTxn from a new one (KIP-890,
        "Motivation"): the client has sent it again over a new connection, begun its next
        transaction there, and the late one would end that. Connections are numbered as they are
        accepted, so one is given up when the producer adds to its transaction over a later one. It
        is closed, not answered: a client that uses two at once, or a coordinator that ends what
        others began, connects again and is heard.

        Takes:  adds, whether the request adds to the transaction: AddPartitionsToTxn,
                AddOffsetsToTxn, TxnOffsetCommit. offsets: it is a TxnOffsetCommit, which goes to
                the group's coordinator and may have connections of its own.
        Raises: DelayedRequest.
        """
        known = self._broker.transactions.metadata(transactional_id)
        if known is None or known.producer != producer:
            return
        key = (transactional_id, offsets)
        of_producer, latest = self._adding_connections.get(key, (producer, 0))
        if of_producer != producer:
            # InitProducerId came between, over whichever connection: what is late from before bears
            # the epoch of before
            latest = 0
        if connection_id < latest:
            raise DelayedRequest(
                f"a request for the transactional id {transactional_id} comes over a connection "
                "that its producer has given up since"
            )
        if adds and connection_id > latest:
            self._adding_connections[key] = (producer, connection_id)

    def end_transaction(
        self, request: EndTxnRequest, context: RequestContext, connection_id: int, now_ms: int
    ) -> None:
        """EndTxn: a commit is decided only when the transaction's data are on the disk, or come
        there with the decision.
        """
        self.when_complete(
            request.transactional_id,
            lambda then_ms: self._end_transaction(request, context, connection_id, then_ms),
            now_ms,
        )

    def _end_transaction(
        self, request: EndTxnRequest, context: RequestContext, connection_id: int, now_ms: int
    ) -> None:
        broker = self._broker
        if self._is_given_up(request, connection_id):
            return
        partitions = broker.transactions.data_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
        if not (partitions and request.committed and self.flushes_transactions):
            self.run_transactions(broker.transactions.on_end_txn(request, context, now_ms), now_ms)
            return
        broker.transactions.put_off_timeout(request.transactional_id, now_ms)
        asked_for = broker.transactions.metadata(request.transactional_id)
        assert asked_for is not None, "a transaction that is not there has partitions"
        logs = [
            log
            for log in (broker.partition(topic, index) for topic, index in partitions)
            if log is not None
        ]
        broker.flushes.commit(
            logs,
            lambda then_ms: self._decide(request, context, connection_id, asked_for, then_ms),
            now_ms,
        )

    def _is_given_up(self, request: EndTxnRequest, connection_id: int) -> bool:
        """Whether the producer has gone on over a later connection while the request waited; it is
        closed then.
        """
        try:
            self.check_connection(
                request.transactional_id,
                (request.producer_id, request.producer_epoch),
                connection_id,
                adds=False,
            )
        except DelayedRequest as error:
            self._broker.close(connection_id, error)
            return True
        return False

    def _decide(
        self,
        request: EndTxnRequest,
        context: RequestContext,
        connection_id: int,
        asked_for: TransactionMetadata,
        now_ms: int,
    ) -> Decision | None:
        """The decision on an EndTxn(commit); None where there is none to make any more.

        From here on nothing else is decided on this transactional id until the markers are written.
        """
        transactional_id = request.transactional_id
        found = self._broker.transactions.metadata(transactional_id)
        if (
            transactional_id in self._completing or found is not asked_for
        ):  # another one has ended it, or is about to
            if found is not None and found.partitions and found.start_ms != asked_for.start_ms:
                self._broker.close(
                    connection_id,
                    f"the transaction of {transactional_id} that an EndTxn was meant for has ended "
                    "long since",
                )
            else:
                self.end_transaction(request, context, connection_id, now_ms)
            return None
        result = self._broker.transactions.on_end_txn(request, context, now_ms)
        if not result.records:
            self.run_transactions(result, now_ms)
            return None
        self._completing[transactional_id] = []
        (record,), (effect,) = result.records, result.effects
        assert record.value is not None
        logs = [
            log
            for log in (self._broker.partition(topic, index) for topic, index in effect.partitions)
            if log is not None
        ]
        ends = tuple(
            PartitionEnd(log.topic, log.partition, self._topic_id(log), log.log_end_offset)
            for log in logs
        )
        ends += self._offline_ends(effect)
        return Decision(
            self._broker.internal_log(TRANSACTIONS_TOPIC, result.partition, now_ms),
            JournalDecision(record.key, record.value, ends),
            lambda then_ms, is_durable: self.run_transactions(
                result, then_ms, is_durable=is_durable
            ),
        )

    def _offline_ends(self, effect: WriteMarkers) -> tuple[PartitionEnd, ...]:
        """Of the transaction's partitions that are off line: a kill may come before the decision is
        kept for them.
        """
        broker = self._broker
        found = (
            (broker.metadata.topic(name), name, index)
            for name, index in effect.partitions
            if (name, index) in broker.logs.offline
        )
        return tuple(
            PartitionEnd(name, index, topic.topic_id.bytes, OFFLINE_END)
            for topic, name, index in found
            if topic is not None
        )

    def write_markers(
        self, effect: WriteMarkers, now_ms: int, *, is_journaled: bool = False
    ) -> None:
        """Answer a commit, whose decision is durable; then append the markers, and let the
        coordinator complete it.

        Takes:  is_journaled, whether the flush journal has the decision: then a power loss takes no
                markers for good.
        """
        if effect.commit and self.flushes_transactions:
            self._completing.setdefault(effect.transactional_id, [])
            answer = self._broker.transactions.on_decision_durable(
                effect.transactional_id, effect.producer_id, effect.producer_epoch
            )
            self.run_transactions(answer, now_ms)
            if answer.replies:
                self._broker.outbox.deferred.append(
                    lambda then_ms: self._append_markers(effect, then_ms, is_journaled=is_journaled)
                )
                return
        self._append_markers(effect, now_ms, is_journaled=is_journaled)

    def _append_markers(
        self, effect: WriteMarkers, now_ms: int, *, is_journaled: bool = False
    ) -> None:
        """Append the marker to every partition of the transaction, then let the coordinator
        complete it.

        Readers are told when all markers are there: one that waits for several of the partitions
        gets the transaction with one answer.
        """
        logs = []
        for topic, index in effect.partitions:
            log = self._end_on_partition(topic, index, effect, now_ms)
            if log is not None:
                logs.append(log)
        self._keep_for_offline(effect)
        if is_journaled:  # then they come to the disk soon, and what is before them is there
            for log in logs:
                self._broker.purgatory.on_progress(log, now_ms)
        else:
            self._broker.on_appended(logs, now_ms)

        transactions = self._broker.transactions
        identity = (effect.transactional_id, effect.producer_id, effect.producer_epoch)

        def complete(then_ms: int) -> None:
            self.run_transactions(transactions.on_markers_written(*identity, then_ms), then_ms)
            if len(logs) < len(effect.partitions) or any(
                self._broker.partition(log.topic, log.partition) is not log for log in logs
            ):
                self.flush_completions()
            for call in self._completing.pop(effect.transactional_id, ()):
                self.when_complete(
                    effect.transactional_id, call, then_ms
                )  # one of them may have ended the next transaction

        if is_journaled:
            self._broker.flushes.owe(logs, now_ms)
            complete(now_ms)
        elif effect.commit and self.flushes_transactions:
            self._broker.flushes.wait(logs, complete, now_ms)
        else:
            complete(now_ms)

    def flush_completions(self) -> None:
        """Have it on the disk, here and now, which transactions are completed: topics go that some
        of them wrote to.

        A decision that a power loss brings back is carried out again. On another topic of the same
        name nothing would tell that what is open there is of a later transaction: the marker went
        with the topic.
        """
        if (
            self.flushes_transactions
        ):  # else what is open is aborted after a power loss, whatever was decided
            for log in self._broker.partitions_of(TRANSACTIONS_TOPIC):
                if log is not None:
                    log.flush()

    def _keep_for_offline(self, effect: WriteMarkers) -> None:
        """Before the transaction is complete: note the decision for those of its partitions that
        are off line.
        """
        offline = self._broker.logs.offline
        if not offline:
            return
        markers = []
        for name, index in effect.partitions:
            topic = self._broker.metadata.topic(name)
            if (name, index) in offline and topic is not None:
                decision = (
                    effect.producer_id,
                    effect.producer_epoch,
                    effect.coordinator_epoch,
                    effect.commit,
                    effect.decided_ms,
                )
                markers.append(UnwrittenMarker(name, index, topic.topic_id.bytes, *decision))
                logger.warning(
                    "%s-%d is off line: that a transaction of producer %d has ended is kept for it",
                    name,
                    index,
                    decision[0],
                )
        self._unwritten_markers.add(markers)

    def _tell_those_back(self, now_ms: int) -> None:
        """At a start: end what is open on partitions that were off line when it was decided, and
        are back.
        """
        broker = self._broker

        def is_over(marker: UnwrittenMarker) -> bool:
            topic = broker.metadata.topic(marker.topic)
            if topic is None or topic.topic_id.bytes != marker.topic_id:
                return True
            log = broker.partition(marker.topic, marker.partition)
            if log is None:
                return (marker.topic, marker.partition) not in broker.logs.offline
            if log.producer_state.has_ongoing_transaction_of(marker.producer_id):
                decision = (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)
                timestamp = marker.decided_ms
                self.append_marker(
                    marker.topic,
                    marker.partition,
                    *decision,
                    commit=marker.commit,
                    now_ms=now_ms,
                    timestamp=timestamp,
                )
                log.flush()
            return True

        self._unwritten_markers.remove(is_over)

    def _end_on_partition(
        self, topic: str, index: int, effect: WriteMarkers, now_ms: int
    ) -> Log | None:
        """Write the transaction's marker there; or, where it stands there already and a later
        transaction is open, abort that one.

        The second is so only after a power loss that spared a batch of the next transaction and not
        its record: the markers, which are written again then, must not end what they were not meant
        for. Nobody can commit that one any more. With durability=os nothing tells after a power
        loss whether what is open is this transaction, or an aborted one before it whose marker is
        gone: it is aborted.
        """
        log = self._broker.partition(topic, index)
        commit = effect.commit
        if self._is_recovering and log is not None and commit and self._is_not_meant(log, effect):
            logger.warning(
                "%s-%d: aborting a transaction of producer %d that a power loss left open",
                topic,
                index,
                effect.producer_id,
            )
            commit = False
        return self.append_marker(
            topic,
            index,
            effect.producer_id,
            effect.producer_epoch,
            effect.coordinator_epoch,
            commit=commit,
            now_ms=now_ms,
            timestamp=effect.decided_ms,
        )

    def _is_not_meant(self, log: Log, effect: WriteMarkers) -> bool:
        found = self._decisions_found.get((effect.transactional_id, effect.decided_ms))
        if found is not None:
            return log.producer_state.has_ongoing_transaction_of(
                effect.producer_id
            ) and not found.is_open(log, self._topic_id(log))
        if self._broker.logs.lost_power and not self.flushes_transactions:
            return log.producer_state.has_ongoing_transaction_of(effect.producer_id)
        return log.ended_before_open_transaction(effect.producer_id, effect.decided_ms)

    def _topic_id(self, log: Log) -> bytes:
        """Of the topic as it is now; after a power loss the log's own may be missing."""
        topic = self._broker.metadata.topic(log.topic)
        assert topic is not None, f"{log!r} has no topic"
        topic_id: bytes = topic.topic_id.bytes
        return topic_id

    def when_complete(
        self, transactional_id: str | None, call: Callable[[int], None], now_ms: int
    ) -> None:
        """Make the call when no transaction of that id waits for its markers to be on the disk:
        nearly always now.

        So the next transaction, which a client may begin once its EndTxn is answered, never meets
        CONCURRENT_TRANSACTIONS.
        """
        waiting = None if transactional_id is None else self._completing.get(transactional_id)
        if waiting is None:
            call(now_ms)
        else:
            waiting.append(call)

    def append_marker(
        self,
        topic: str,
        index: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        now_ms: int,
        timestamp: int | None = None,
    ) -> Log | None:
        """One marker of a coordinator's own decision; None where the partition is no more, or the
        producer has gone on to a later epoch there.

        A transaction that is open there always ends: there is no other coordinator, so a higher
        epoch in the partition is a client's doing (WriteTxnMarkers takes any coordinator epoch, a
        batch any producer epoch), and the marker bears it. Apache Kafka gives up on such a marker,
        and the transaction hangs. Markers of internal offsets also materialise (or drop) the group
        offsets that waited for them. The caller tells those who read.
        """
        log = self._broker.partition(topic, index)
        if log is None:
            return None
        coordinator_epoch = max(
            coordinator_epoch, log.producer_state.coordinator_epoch_of(producer_id)
        )
        is_open = log.producer_state.has_ongoing_transaction_of(producer_id)
        if is_open:
            producer_epoch = max(producer_epoch, log.producer_state.producer_epoch_of(producer_id))
        try:
            info = log.append_marker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                commit=commit,
                now_ms=now_ms,
                timestamp=timestamp,
            )
        except KafkaError as error:
            assert error.code is Code.INVALID_PRODUCER_EPOCH and not is_open, (
                f"{log!r} refuses our own marker: {error}"
            )
            logger.info(
                "%r: nothing of producer %d, epoch %d, is open to be ended: %s",
                log,
                producer_id,
                producer_epoch,
                error,
            )
            return None
        if topic == OFFSETS_TOPIC:
            self._broker.groups.replay_marker(
                index, info.first_offset, producer_id, producer_epoch, commit
            )
        return log

    # --- a start ---------------------------------------------------------------------------------

    def redo_decisions(self, decisions: Sequence[JournalDecision], now_ms: int) -> None:
        """Once the coordinators have read their logs: append the decisions of the flush journals
        that are not there.

        A kill comes between a decision's flush and its append; a power loss takes what was appended
        since the last flush of the log itself.
        """
        broker = self._broker
        open_there = {
            producer_id
            for log in broker.logs.logs.values()
            for producer_id in log.producer_state.open_transactions()
        }
        marked: dict[Log, None] = {}
        for key, value, ends in decisions:
            for end in ends:
                log = broker.partition(end.topic, end.partition)
                if log is not None:
                    marked[log] = None
            effect = (
                broker.transactions.markers_of(key, value)
                if producer_id_of(value) in open_there
                else None
            )
            if effect is not None:
                by_partition = {(end.topic, end.partition): end for end in ends}
                self._decisions_found[effect.transactional_id, effect.decided_ms] = _Found(
                    effect, by_partition
                )
        if marked:
            broker.flushes.owe(marked, now_ms)  # a kill leaves markers that are not durable yet
        for key, value, _ in {
            decision.key: decision for decision in decisions
        }.values():  # the last of each transactional id
            self.run_transactions(
                broker.transactions.on_decision_found(key, value), now_ms, is_durable=True
            )

    def complete_transactions(self, now_ms: int) -> None:
        """End on all partitions what was decided before the start, and what nobody can decide any
        more.
        """
        self._tell_those_back(now_ms)
        for found in self._decisions_found.values():
            self._redo_markers(found, now_ms)
        ending = self._broker.transactions.on_loaded(now_ms)
        if ending.effects and self.flushes_transactions:
            for log in self._broker.partitions_of(TRANSACTIONS_TOPIC):
                if log is not None:
                    # a kill leaves decisions that are not durable yet, and readers are to see what
                    # follows from them
                    log.flush()
        self._is_recovering = True
        self.run_transactions(ending, now_ms)
        self._is_recovering = False
        self._decisions_found.clear()
        self.abort_hanging_transactions(now_ms)

    def _redo_markers(self, found: _Found, now_ms: int) -> None:
        """The coordinator may think the commit completed, and have gone on; its markers may be gone
        with the power nevertheless.
        """
        for topic, index in found.effect.partitions:
            log = self._broker.partition(topic, index)
            if log is not None and found.is_open(log, self._topic_id(log)):
                self._end_on_partition(topic, index, found.effect, now_ms)

    def abort_hanging_transactions(self, now_ms: int) -> None:
        """After a start: end what is open in a log and unknown to the coordinator.

        A power loss may keep a batch and lose the record that its partition was in the transaction
        (that record is not flushed of itself). Nobody can commit such a transaction any more, since
        its coordinator has forgotten it; left alone it would hold back the last stable offset for
        ever. A kill of the process alone never leads here.
        """
        broker = self._broker
        known: dict[tuple[str, int], set[int]] = {}
        for metadata in broker.transactions.snapshot().values():
            for pair in metadata.partitions:
                known.setdefault(pair, set()).add(metadata.producer_id)
        for (topic, index), log in sorted(broker.logs.logs.items()):
            for producer_id in log.producer_state.open_transactions():
                if producer_id in known.get((topic, index), ()):
                    continue
                epoch = log.producer_state.producer_epoch_of(producer_id)
                logger.warning(
                    "%s-%d: aborting the transaction of producer %d, which its coordinator does "
                    "not know",
                    topic,
                    index,
                    producer_id,
                )
                self.append_marker(
                    topic,
                    index,
                    producer_id,
                    epoch,
                    log.producer_state.coordinator_epoch_of(producer_id),
                    commit=False,
                    now_ms=now_ms,
                )
