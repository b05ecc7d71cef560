"""The broker as a value: frames, ticks, flush completions and hang-ups go in; an Outbox comes out.

Nothing here knows of sockets, threads or clocks. The rim (server.py) calls one method at a time,
then carries out the outbox. Each connection has one request under way at a time, as with Apache
Kafka: the rim holds back a connection's next frame until the answer to the last is in the outbox,
which keeps answers in order and slow readers from piling up work.

A request's way: `on_frame` -> table look-up and decode -> handler -> response, encoded here; or
PARKED, and `reply` later.
"""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from barnabas.broker.compaction import Compaction
from barnabas.broker.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, topic_log_config
from barnabas.broker.coordinator_runtime import CoordinatorRuntime
from barnabas.broker.disk_room import DiskRoom
from barnabas.broker.dispatch import ROUTES, Prepared, Route
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.flush_queue import FlushQueue
from barnabas.broker.kafka_metadata import KafkaMetadata, read_kafka_metadata, usable_configs
from barnabas.broker.metadata import ClusterMetadata, Topic
from barnabas.broker.outbox import (
    PARKED,
    Answer,
    CloseReason,
    ConnectionState,
    Encoded,
    FlushJob,
    Ids,
    NoResponse,
    Outbox,
    Parked,
    Work,
)
from barnabas.broker.purgatory import Purgatory, WaitingFetch
from barnabas.broker.slices import (
    LOGS_DELETED_AT_ONCE,
    LOGS_MADE_AT_ONCE,
    SlicedWork,
    Slices,
    run_through,
)
from barnabas.coordinator.classic_group import GroupSettings
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.producer_ids import ProducerIdAllocator
from barnabas.coordinator.result import partition_for
from barnabas.coordinator.transaction_coordinator import TransactionCoordinator, TxnSettings
from barnabas.protocol.api_table import API_VERSIONS, BY_KEY, Api
from barnabas.protocol.errors import Code, KafkaError, ProtocolViolation
from barnabas.protocol.framing import RequestHeader, read_request_header, response_has_tagged_header
from barnabas.protocol.hot_responses import Piece
from barnabas.protocol.messages.message import Message
from barnabas.protocol.records import Record, decode_marker, records_of
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.checkpoints import NO_TOPIC_ID
from barnabas.storage.cleaner import CleanJob, CleanResult
from barnabas.storage.disk import Syncable, is_want_of_room, may_have_lost_pages
from barnabas.storage.log import FlushToken, Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogDirectoryError, LogManager, sync_one_by_one
from barnabas.storage.segment import CorruptLog

logger = logging.getLogger("barnabas.broker")

PRODUCER_ID_BLOCK = 1000
NEW_LOG_BYTES = 16 * 1024  # a directory and the files in it, in blocks
DECODED_AT_ONCE_BYTES = 128 * 1024  # takes 20 ms where it is all small elements
LAST_LIKELY_PRODUCER_ID = 1 << 62
KEPT_DESCRIPTORS = 4  # a quarter is not for logs of new partitions
_FRAME = struct.Struct(">ii")
_FRAME_TAGGED = _FRAME.size + 1  # no tagged fields
PRODUCE = 0


class Broker:
    """One broker: its topics, logs, coordinators, and the requests under way.

    Takes: config; metadata and logs, both loaded; ids, the source of random names; now_ms, the time
           of start; sync, which fsyncs many files.
    Time: every `now_ms` is steady. The rim feeds `wall` what the wall clock shows, before each
          event.
    After: internal topics are replayed into the coordinators; transactions found in PREPARE_* are
           under way to completion.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        logs: LogManager,
        ids: Ids,
        now_ms: int,
        sync: Callable[[list[Syncable]], None] = sync_one_by_one,
    ) -> None:
        self.config, self.metadata, self.logs, self.ids = config, metadata, logs, ids
        self.wall = logs.wall
        self.node_id: int = config["node.id"]
        self.outbox = Outbox()
        self.purgatory = Purgatory()
        self.flushes = FlushQueue(
            self.outbox,
            logs.journal,
            fewest_logs=config["barnabas.flush.journal.logs"],
            turn_over_ms=config["log.flush.offset.checkpoint.interval.ms"],
            to_settle=logs.logs.values() if logs.journal.has_older else (),
            keep_found=lambda: bool(logs.offline),
            has_room=lambda: not self.room.is_full,
            on_advanced=self.purgatory.on_progress,
        )
        self.compaction = Compaction(config, logs, self.flushes, self.outbox, now_ms)
        self.room = DiskRoom(
            lambda: logs.disk.free_bytes(logs.data_dir), config["barnabas.disk.reserve.bytes"]
        )
        self.fetch_sessions = FetchSessions(
            config["max.incremental.fetch.session.cache.slots"], ids
        )
        self.connections: dict[int, ConnectionState] = {}
        self._partitions: dict[str, list[Log | None]] = {}
        self._leader_epochs: dict[str, tuple[int, ...]] = {}
        self._parked: dict[int, RequestContext] = {}
        self.work = SlicedWork(self.reply)
        self._waiting_fetches: dict[int, WaitingFetch] = {}
        self._flush_due: dict[Log, int] = {}
        self._next_flush_ms: int | None = None
        self._next_ticket = 1
        self._routes: dict[int, Route] = {}
        self._producer_ids = ProducerIdAllocator(
            block_size=PRODUCER_ID_BLOCK,
            persist=metadata.set_next_producer_id,
            next_id=metadata.next_producer_id,
        )
        self._adopt_logs(now_ms)
        self.transactions = TransactionCoordinator(
            partition_count=self._internal_partition_count(TRANSACTIONS_TOPIC),
            settings=_transaction_settings(config),
            partition_exists=self.partition_exists,
            allocate_producer_id=self._producer_ids.allocate,
            group_partition=self._group_partition,
            wall=self.wall,
            coordinator_epoch=lambda index: self.leader_epoch(TRANSACTIONS_TOPIC, index),
        )
        self.groups = GroupCoordinator(
            partition_count=self._internal_partition_count(OFFSETS_TOPIC),
            settings=_group_settings(config),
            partition_exists=self.partition_exists,
            new_member_suffix=lambda: str(ids.uuid()),
            wall=self.wall,
        )
        self.runtime = CoordinatorRuntime(self)
        self._replay(now_ms)
        if metadata.deletions:
            run_through(self._end_deletions(dict(metadata.deletions), now_ms), now_ms)
        self._flush_what_readers_saw(sync)

    def _flush_what_readers_saw(self, sync: Callable[[list[Syncable]], None]) -> None:
        """Readers may have seen it before a kill; that the disk has it is not written down."""
        tokens: list[tuple[Log, FlushToken]] = []
        files: dict[Syncable, None] = {}
        for log in self.logs.logs.values():
            token = log.begin_flush() if log.high_watermark < log.log_end_offset else None
            if token is not None:
                tokens.append((log, token))
                files.update(dict.fromkeys(token.files))
        sync(list(files))
        for log, token in tokens:
            log.finish_flush(token)

    # --- start -----------------------------------------------------------------------------------

    def _adopt_logs(self, now_ms: int) -> None:
        """Give every topic its logs; topics that only the directories know (another broker wrote
        them) are taken over.
        """
        for topic_id, name in self.metadata.deletions.items():
            self._delete_what_is_left(topic_id, name, now_ms)
        self.logs.end_removals()
        counts: dict[str, int] = {}
        for name, index in [*self.logs.logs, *self.logs.offline]:
            counts[name] = max(counts.get(name, 0), index + 1)
        unknown = [name for name in sorted(counts) if self.metadata.topic(name) is None]
        if unknown:
            self._adopt_topics({name: counts[name] for name in unknown})
        for topic in list(self.metadata.topics.values()):
            self._partitions[topic.name] = []
            self._add_logs(topic, now_ms, leader_epoch=self.logs.leader_epoch)

    def _delete_what_is_left(self, topic_id: uuid.UUID, name: str, now_ms: int) -> None:
        """A deletion was cut short by a kill: the directories that it did not come to would be
        taken for another broker's topic.
        """
        for key in [key for key in (*self.logs.logs, *self.logs.offline) if key[0] == name]:
            log = self.logs.logs.get(key)
            found = log.topic_id if log is not None else NO_TOPIC_ID
            if found == topic_id or (found == NO_TOPIC_ID and self.metadata.topic(name) is None):
                logger.info("%s-%d goes: the deletion of its topic was cut short", *key)
                if log is not None:
                    self.flushes.forget(log, now_ms)
                self.logs.remove(*key, now_ms)

    def _adopt_topics(self, counts: dict[str, int]) -> None:
        """Take topics over, with their settings where Kafka's metadata log is there to tell them."""
        kafka = read_kafka_metadata(self.logs.disk, self.logs.data_dir)
        refused: dict[str, None] = {}
        if kafka is not None:
            refused.update(dict.fromkeys(self._adopt_broker_configs(kafka)))
            self._producer_ids.skip_used(kafka.next_producer_id)
        for name, count in counts.items():
            topic_id = self._topic_id_of_logs(name)
            configs = kafka.topic_configs(name, topic_id) if kafka is not None else None
            if configs is not None:
                configs, wrong = usable_configs(configs, TOPIC_SETTINGS)
                refused.update(dict.fromkeys(wrong))
            self.metadata.adopt_topic(name, topic_id, count, configs)
        if refused:
            logger.warning(
                "settings in Kafka's metadata log that are not taken over: %s", "; ".join(refused)
            )

    def _adopt_broker_configs(self, kafka: KafkaMetadata) -> list[str]:
        """Take over the dynamic settings that are defaults of topics, of each layer where none is
        set.

        Gives: what is wrong with those that are not taken over.
        """
        defaults = {
            synonym
            for setting in TOPIC_SETTINGS.values()
            for synonym in setting.synonyms
            if BROKER_SETTINGS[synonym].dynamic
        }
        refused: list[str] = []
        for configs, known, take in (
            (
                kafka.broker_default_configs(),
                self.metadata.broker_default_configs,
                self._set_broker_default_configs,
            ),
            (
                kafka.broker_configs(self.node_id),
                self.metadata.broker_configs,
                self._set_broker_configs,
            ),
        ):
            wanted = {name: text for name, text in configs.items() if name in defaults}
            usable, wrong = usable_configs(wanted, BROKER_SETTINGS)
            if usable and not known:
                logger.info(
                    "taking over the broker settings that Kafka's metadata log has: %s", usable
                )
                take(usable)
            refused += wrong if not known else ()
        return refused

    def _topic_id_of_logs(self, name: str) -> Any:
        known = [
            log.topic_id
            for (topic, _), log in sorted(self.logs.logs.items())
            if topic == name and log.topic_id
        ]
        return known[0] if known else self.ids.uuid()

    def _internal_partition_count(self, name: str) -> int:
        topic = self.metadata.topic(name)
        if topic is not None:
            return topic.partition_count
        count: int = self.config[
            "transaction.state.log.num.partitions"
            if name == TRANSACTIONS_TOPIC
            else "offsets.topic.num.partitions"
        ]
        return count

    def _replay(self, now_ms: int) -> None:
        """Feed the internal topics to the coordinators, then end what a crash left half-ended."""
        for name, replay in (
            (TRANSACTIONS_TOPIC, self._replay_transactions),
            (OFFSETS_TOPIC, self._replay_offsets),
        ):
            for index, log in enumerate(self._partitions.get(name, ())):
                if log is not None:
                    try:
                        replay(index, log)
                    except CorruptLog as error:
                        raise _internal_log_is_damaged(name, index, error) from error
        self.runtime.redo_decisions(self.logs.decisions, now_ms)
        self._producer_ids.skip_used(self._highest_producer_id() + 1)
        self.runtime.run_groups(self.groups.on_loaded(now_ms), now_ms)
        self.runtime.complete_transactions(now_ms)
        self.logs.decisions = []
        if self.logs.lost_power:
            self.runtime.run_transactions(
                self.transactions.on_power_loss(
                    now_ms, forgets_epochs=not self.runtime.flushes_transactions
                ),
                now_ms,
            )
            for log in self._partitions.get(TRANSACTIONS_TOPIC, ()):
                if log is not None:
                    log.flush()
            self.runtime.run_groups(self.groups.on_power_loss(now_ms), now_ms)
        self._set_offsets_back(now_ms)
        if self.logs.lost_power:
            self.logs.note_boot()  # not before: a crash until here must find the power loss again

    def _set_offsets_back(self, now_ms: int) -> None:
        """Groups that have committed beyond the end of a log go on from where it was cut; durably,
        before anybody writes there.
        """

        def log_end(topic: str, index: int) -> int | None:
            log = self.partition(topic, index)
            return None if log is None else log.log_end_offset

        def epoch_end(topic: str, index: int, epoch: int) -> tuple[int, int]:
            log = self.partition(topic, index)
            assert log is not None, f"{topic}-{index} had an end"
            leader_epoch, end_offset = log.end_offset_for_epoch(epoch)
            return leader_epoch, max(end_offset, log.log_start_offset) if leader_epoch >= 0 else -1

        rows = self.groups.offsets_beyond_log_end(
            log_end, epoch_end, lost_power=self.logs.lost_power
        )
        if not rows:
            return
        for row in rows:
            logger.warning(
                "group %s goes on at %d of %s-%d: it has committed %d, and the records from there "
                "to that were lost",
                row.group_id, row.offset, row.topic, row.partition, row.committed.offset,
            )  # fmt: skip
        self.runtime.run_groups(self.groups.reset_offsets(rows), now_ms)
        for log in self._partitions.get(OFFSETS_TOPIC, ()):
            if log is not None:
                log.flush()

    def _highest_producer_id(self) -> int:
        """Of those that logs and transactional ids know. Another broker gave them out, where our
        journal does not know them; given out again, a producer's first batches would pass for
        repeated ones of the earlier producer, and be lost.

        Ids that no broker comes to are left out: any client can write a batch with one.
        """
        highest = -1
        for log in self.logs.logs.values():
            for producer_id in log.producer_state.producers:
                if highest < producer_id < LAST_LIKELY_PRODUCER_ID:
                    highest = producer_id
        for metadata in self.transactions.snapshot().values():
            highest = max(highest, metadata.producer_id)
        return highest

    def records_of_log(self, log: Log) -> Iterator[Record]:
        """Every data record of a log, in order."""
        for header, batch in log.read_batches():
            if not header.is_control:
                yield from records_of(batch)

    def _replay_transactions(self, index: int, log: Log) -> None:
        for record in self.records_of_log(log):
            if record.key is not None:
                self.transactions.replay(index, record.offset, record.key, record.value)

    def _replay_offsets(self, index: int, log: Log) -> None:
        for header, batch in log.read_batches():
            if header.is_control:
                commit = decode_marker(batch).commit
                self.groups.replay_marker(
                    index, header.base_offset, header.producer_id, header.producer_epoch, commit
                )
                continue
            producer = (
                (header.producer_id, header.producer_epoch) if header.is_transactional else None
            )
            for record in records_of(batch):
                if record.key is not None:
                    self.groups.replay(index, record.offset, record.key, record.value, producer)

    # --- input -----------------------------------------------------------------------------------

    def on_connected(
        self, connection_id: int, client_host: str, local_host: str, local_port: int
    ) -> None:
        """A client connected. Its address is shown with the slash that Kafka's tools expect."""
        self.connections[connection_id] = ConnectionState(
            connection_id, f"/{client_host}", local_host, local_port
        )

    def on_frame(self, connection_id: int, frame: memoryview, now_ms: int) -> None:
        """One whole request without its size. The frame's memory may be written to and is not used
        after the call.

        The connection's next frame may come once its answer (or its closing) has been put into the
        outbox.
        """
        if self.outbox.deferred:
            self.outbox.run_deferred(now_ms)
        connection = self.connections[connection_id]
        assert not connection.in_flight, (
            "a connection's next request came before the last was answered"
        )
        connection.in_flight = True
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        try:
            header = read_request_header(frame)
            api = header.api
            if api is None:
                self._refuse(connection, header)
                return
            read = self._routes.get(api.key) or self._load_route(api)
            if len(frame) > DECODED_AT_ONCE_BYTES and api.key != PRODUCE:
                self._decode_elsewhere(connection, ticket, api, header, frame, read)
                return
            request = read(frame, header.body_start, header.api_version)
        except ProtocolViolation as error:
            self.close(connection_id, error)
            return
        self._handle(connection, ticket, api, header, request, now_ms)

    def _handle(
        self,
        connection: ConnectionState,
        ticket: int,
        api: Api,
        header: RequestHeader,
        request: Prepared,
        now_ms: int,
    ) -> None:
        connection_id = connection.connection_id
        context = RequestContext(
            ticket, header.api_version, header.client_id, connection.client_host, connection_id,
            api.key, header.correlation_id, now_ms, connection.local_host, connection.local_port,
        )  # fmt: skip
        try:
            response = request(self, context)
        except ProtocolViolation as error:
            self.close(connection_id, error)
            return
        if isinstance(response, Parked):
            return
        if isinstance(response, NoResponse):
            self._answer(connection_id, ())
        elif isinstance(response, Encoded):
            self._answer(connection_id, response.pieces)
        else:
            self._answer(connection_id, self._encode(api, context, response))

    def _decode_elsewhere(
        self,
        connection: ConnectionState,
        ticket: int,
        api: Api,
        header: RequestHeader,
        frame: memoryview,
        read: Route,
    ) -> None:
        """Have the worker decode what may hold hundreds of thousands of elements; it is handled
        afterwards.
        """
        body = memoryview(bytes(frame))

        def run() -> Prepared | ProtocolViolation:
            try:
                return read(body, header.body_start, header.api_version)
            except ProtocolViolation as error:
                return error

        def done(request: Prepared | ProtocolViolation, now_ms: int) -> None:
            if self.connections.get(connection.connection_id) is not connection:
                return
            if isinstance(request, ProtocolViolation):
                self.close(connection.connection_id, request)
                return
            try:
                self._handle(connection, ticket, api, header, request, now_ms)
            except (OSError, AssertionError):
                raise
            except Exception as error:  # ends the connection, as the rim has it for requests that are handled at once
                self._give_up(connection.connection_id, error)

        self.outbox.work.append(Work(connection.connection_id, run, done, len(body)))

    def on_tick(self, now_ms: int) -> None:
        """Time passed. Cheap when nothing is due."""
        self.outbox.run_deferred(now_ms)
        self.purgatory.on_tick(now_ms)
        if self._next_flush_ms is not None and self._next_flush_ms <= now_ms:
            due = [log for log, at in self._flush_due.items() if at <= now_ms]
            for log in due:
                del self._flush_due[log]
            self._next_flush_ms = min(self._flush_due.values(), default=None)
            self.flushes.wait(due, lambda _: None, now_ms)
        deadline = self.groups.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            self.runtime.run_groups(self.groups.on_tick(now_ms), now_ms)
        deadline = self.transactions.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            self.runtime.run_transactions(self.transactions.on_tick(now_ms), now_ms)
        deadline = self.logs.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            self.logs.on_tick(now_ms)
        self.compaction.on_tick(now_ms)
        self.flushes.on_tick(now_ms)
        self.work.on_tick(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `on_tick` has something to do next; None: nothing is waiting."""
        if self.work:
            return 0
        earliest: int | None = self.logs.next_deadline_ms()
        for deadline in (
            self.purgatory.next_deadline_ms(),
            self.groups.next_deadline_ms(),
            self.transactions.next_deadline_ms(),
            self.compaction.next_deadline_ms(),
            self.flushes.next_deadline_ms(),
            self._next_flush_ms,
        ):
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        """The files of that job are on the disk."""
        self.outbox.run_deferred(now_ms)
        self.flushes.on_flushed(job, now_ms)

    def on_cleaned(
        self, job: CleanJob, result: CleanResult | None, error: str, now_ms: int
    ) -> None:
        """A cleaning ended; result is None where it failed, and the error says why."""
        self.compaction.on_cleaned(job, result, error, now_ms)

    def on_worked(self, work: Work, result: Any, error: Exception | None, now_ms: int) -> None:
        """Work ended; error is not None where it failed, which ends its connection as an error in a
        handler does.
        """
        self.outbox.run_deferred(now_ms)
        if error is None:
            work.done(result, now_ms)
        elif work.connection_id in self.connections:
            self._give_up(work.connection_id, error)

    def _give_up(self, connection_id: int, error: Exception) -> None:
        logger.error("a request could not be handled", exc_info=error)
        self.close(connection_id, f"an error in the broker: {error!r}; please report it")

    def on_closed(self, connection_id: int) -> None:
        """The connection is gone; what it had under way is finished without an answer."""
        connection = self.connections.pop(connection_id, None)
        if connection is not None and connection.parked_ticket >= 0:
            self._parked.pop(connection.parked_ticket, None)
            fetch = self._waiting_fetches.pop(connection.parked_ticket, None)
            if fetch is not None:
                self.purgatory.cancel(fetch)

    def close_logs(self, now_ms: int, sync: Callable[[list[Any]], None] = sync_one_by_one) -> None:
        """A clean stop: everything is written down so that the next start has nothing to recover.
        `sync` fsyncs many files.
        """
        self.outbox.run_deferred(now_ms)
        self.work.finish(now_ms)
        try:
            self.logs.close(now_ms, sync)
        except OSError as error:
            if may_have_lost_pages(error):
                self.logs.note_failure()
            raise
        self.metadata.close()

    # --- answers ---------------------------------------------------------------------------------

    def reply(self, ticket: int, response: Message | Encoded) -> None:
        """Answer a request by its ticket: one that is parked, or (from within its handler) the one
        under way.
        """
        context = self._parked.pop(ticket, None)
        if context is None:
            return  # its connection is gone
        connection = self.connections[context.connection_id]
        connection.parked_ticket = -1
        self._waiting_fetches.pop(ticket, None)
        if isinstance(response, Encoded):
            self._answer(context.connection_id, response.pieces)
        else:
            self._answer(
                context.connection_id, self._encode(BY_KEY[context.api_key], context, response)
            )

    def park(self, context: RequestContext) -> None:
        """Make `reply` possible for the request under way, before its handler returns PARKED."""
        self._park(context, self.connections[context.connection_id])

    def answer_in_slices(self, context: RequestContext, work: Slices) -> Answer:
        """What the work gives; PARKED where others have their turn before its end."""
        answer: Answer
        is_done, answer = self.work.begin(context.ticket, work, context.now_ms)
        if is_done:
            return answer
        self.park(context)
        return PARKED

    def park_fetch(self, context: RequestContext, fetch: WaitingFetch, deadline_ms: int) -> None:
        """Let a fetch wait in the purgatory."""
        self.park(context)
        self._waiting_fetches[context.ticket] = fetch
        self.purgatory.park(fetch, deadline_ms)

    def close(self, connection_id: int, reason: CloseReason) -> None:
        """End a connection, with a line in the log."""
        self.outbox.closes.append((connection_id, reason))

    def _park(self, context: RequestContext, connection: ConnectionState) -> None:
        self._parked[context.ticket] = context
        connection.parked_ticket = context.ticket

    def _answer(self, connection_id: int, pieces: Sequence[Piece]) -> None:
        self.connections[connection_id].in_flight = False
        self.outbox.sends.append((connection_id, pieces))

    def _refuse(self, connection: ConnectionState, header: RequestHeader) -> None:
        """A request that is not spoken: ApiVersions is answered in the form that every client reads
        (KIP-511), others end the connection.
        """
        if header.api_key == API_VERSIONS:
            from barnabas.broker.handlers.api_versions import unsupported_version_response

            body = unsupported_version_response().encode(version=0)
            self._answer(
                connection.connection_id,
                (_FRAME.pack(4 + len(body), header.correlation_id) + body,),
            )
            return
        known = BY_KEY.get(header.api_key)
        what = (
            f"{known.name} version {header.api_version}"
            if known
            else f"a request with API key {header.api_key}"
        )
        spoken = (
            f"; versions {known.min_version} to {known.max_version} are spoken" if known else ""
        )
        raise ProtocolViolation(f"{what} is not spoken here{spoken}")

    def _load_route(self, api: Api) -> Route:
        loaded = self._routes[api.key] = ROUTES[api.key]()
        return loaded

    def _encode(self, api: Api, context: RequestContext, response: Message) -> tuple[bytearray]:
        is_tagged = response_has_tagged_header(api, context.api_version)
        out = bytearray(_FRAME_TAGGED if is_tagged else _FRAME.size)
        response.write(out, context.api_version)
        _FRAME.pack_into(out, 0, len(out) - 4, context.correlation_id)
        return (out,)

    # --- topics and logs -------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Log | None:
        """The log of a partition, or None where there is none."""
        logs = self._partitions.get(topic)
        if logs is None or not 0 <= index < len(logs):
            return None
        return logs[index]

    def leader_epochs(self, topic: str) -> tuple[int, ...]:
        """The leader epoch of each partition of a topic; of one that is off line the one that it
        comes back with, at the least.
        """
        epochs = self._leader_epochs.get(topic)
        if epochs is None:
            latest = self.logs.leader_epoch
            logs = self.partitions_of(topic)
            epochs = self._leader_epochs[topic] = tuple(
                [latest if log is None else log.leader_epoch for log in logs]
            )
        return epochs

    def leader_epoch(self, topic: str, index: int) -> int:
        """The leader epoch of a partition; 0, with which it begins, of one that does not exist yet."""
        log = self.partition(topic, index)
        return 0 if log is None else log.leader_epoch

    def partition_exists(self, topic: str, index: int) -> bool:
        """Whether there is such a partition, be it off line: then offsets on it and transactions
        with it wait for it to return.
        """
        return self.partition(topic, index) is not None or (topic, index) in self.logs.offline

    def missing_code(self, topic: str, index: int) -> Code:
        """Why `partition` gave None: there is no such partition, or its log is damaged and off
        line.
        """
        return (
            Code.KAFKA_STORAGE_ERROR
            if (topic, index) in self.logs.offline
            else Code.UNKNOWN_TOPIC_OR_PARTITION
        )

    def partitions_of(self, topic: str) -> list[Log | None]:
        """All logs of a topic, by index."""
        return self._partitions.get(topic, [])

    def log_config(self, topic: Topic) -> LogConfig:
        return topic_log_config(self.config, topic.configs)

    def check_descriptors(self, partition_count: int) -> None:
        """Raise KafkaError POLICY_VIOLATION where so many partitions more would take descriptors
        that something else needs.

        Each log keeps its active segment open. What is left serves clients, further segments, and
        the internal topics to come.
        """
        used, most = self.logs.disk.open_files()
        internal = sum(
            self._internal_partition_count(name)
            for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
            if name not in self._partitions
        )
        left = max(0, most - most // KEPT_DESCRIPTORS - internal - used)
        if partition_count > left:
            raise KafkaError(
                Code.POLICY_VIOLATION,
                f"There are descriptors for {left} partitions more, and {partition_count} are "
                f"asked for: this broker may open {most} "
                f"files, {used} are open, and a quarter is kept for clients and further segments. "
                "Raise its RLIMIT_NOFILE (ulimit -n).",
            )

    def create_topic(
        self,
        name: str,
        partition_count: int,
        configs: dict[str, str],
        *,
        topic_id: Any = None,
        now_ms: int,
    ) -> Topic:
        """Make a topic and its logs, at once. The name is free and everything is valid: handlers
        see to that.
        """
        topic = Topic(name, topic_id or self.ids.uuid(), partition_count, dict(configs))
        self._begin_topics([topic])
        run_through(self._make_logs([topic], now_ms), now_ms)
        return topic

    def create_topics(self, topics: Sequence[Topic], now_ms: int) -> Slices:
        """Make topics and their logs. Names and ids are free and everything is valid. A topic is
        there once all its logs are.

        Gives: the names of those for which there is no room; nothing is left of them.
        """
        if not self._takes_room_for(sum(topic.partition_count for topic in topics)):
            return [topic.name for topic in topics]
        self._begin_topics(topics)
        if (yield from self._try_make_logs(topics, now_ms)):
            return []
        lacking = [topic for topic in topics if topic.topic_id in self.metadata.coming]
        self.metadata.cancel_creations(lacking)
        self.logs.discard({topic.name: 0 for topic in lacking})
        for topic in lacking:
            self.metadata.end_deletion(topic.topic_id)
        return [topic.name for topic in lacking]

    def _begin_topics(self, topics: Sequence[Topic]) -> None:
        self._settle_deletions({topic.name for topic in topics})
        self.metadata.begin_topics(topics)

    def _takes_room_for(self, partition_count: int) -> bool:
        return self.room.take(NEW_LOG_BYTES * partition_count)

    def delete_topic(self, name: str, now_ms: int) -> None:
        """Remove a topic, its logs and the offsets that groups committed on it, at once."""
        run_through(self.delete_topics([name], now_ms), now_ms)

    def delete_topics(self, names: Sequence[str], now_ms: int) -> Slices:
        """Remove topics, their logs and the offsets that groups committed on them. From the first
        slice on nobody finds them.
        """
        self.runtime.flush_completions()
        topic_ids = self.metadata.delete_topics(names)
        for name in names:
            self._leader_epochs.pop(name, None)
        gone = [
            (name, index, log)
            for name in names
            for index, log in enumerate(self._partitions.pop(name, ()))
        ]
        for first in range(0, len(gone), LOGS_DELETED_AT_ONCE):
            if first:
                now_ms = yield
            self._delete_logs(gone[first : first + LOGS_DELETED_AT_ONCE], now_ms)
        self.logs.end_removals()
        yield from self._end_deletions(dict(zip(topic_ids, names, strict=True)), now_ms)

    def _delete_logs(self, gone: Sequence[tuple[str, int, Log | None]], now_ms: int) -> None:
        for name, index, log in gone:
            self.logs.remove(name, index, now_ms)
            if log is not None:
                self.purgatory.on_progress(log, now_ms)
                self._flush_due.pop(log, None)
                self.flushes.forget(log, now_ms)
        self.compaction.forget([TopicPartition(name, index) for name, index, _ in gone])

    def _end_deletions(self, names: Mapping[uuid.UUID, str], now_ms: int) -> Slices:
        """The topics' logs are gone: so go the offsets that groups committed on them, or they would
        hold for topics of the same names.
        """
        gone = [
            name for name in names.values() if self.metadata.topic(name) is None
        ]  # after a start there may be one, with offsets of its own
        for number, result in enumerate(self.groups.on_topics_deleted(gone)):
            if number:
                now_ms = yield
            self.runtime.run_groups(result, now_ms)
        offsets = [log for log in self.partitions_of(OFFSETS_TOPIC) if log is not None]

        def end(_: int) -> None:
            for topic_id in names:
                self.metadata.end_deletion(topic_id)

        self.flushes.wait(offsets, end, now_ms)

    def _settle_deletions(self, names: set[str]) -> None:
        """Topics of these names come: that the offsets of those before them are gone is brought to
        the disk at once.
        """
        settled = [
            topic_id for topic_id, deleted in self.metadata.deletions.items() if deleted in names
        ]
        if settled:
            for log in self.partitions_of(OFFSETS_TOPIC):
                if log is not None:
                    log.flush()
        for topic_id in settled:
            self.metadata.end_deletion(topic_id)

    def add_partitions(self, counts: Mapping[str, int], now_ms: int) -> Slices:
        """Let topics grow to these numbers of partitions. A topic's new ones are there all at once.

        Gives: the names of those for which there is no room; they are as they were.
        """
        if not self._takes_room_for(
            sum(count - len(self._partitions[name]) for name, count in counts.items())
        ):
            return list(counts)
        if (yield from self._try_make_logs(self.metadata.grow_topics(counts), now_ms)):
            return []
        lacking = {
            name: len(self._partitions[name])
            for name, count in counts.items()
            if len(self._partitions[name]) < count
        }
        self.metadata.cancel_growth(lacking)
        self.logs.discard(lacking)
        return list(lacking)

    def _try_make_logs(self, topics: Iterable[Topic], now_ms: int) -> Slices:
        """Give each topic the logs that it lacks. Gives whether there was room for all."""
        try:
            yield from self._make_logs(topics, now_ms)
        except OSError as error:
            if not is_want_of_room(error):
                raise
            logger.warning(
                "topics that a client asks for are not made: %s (%s)",
                error.strerror,
                error.filename,
            )
            return False
        return True

    def _make_logs(self, topics: Iterable[Topic], now_ms: int) -> Slices:
        """Give each topic the logs that it lacks."""
        made = 0
        for topic in topics:
            logs = list(self._partitions.get(topic.name, ()))
            config, is_interrupted = self.log_config(topic), False
            while len(logs) < topic.partition_count:
                if made == LOGS_MADE_AT_ONCE:
                    made, now_ms = 0, (yield)
                    is_interrupted = True
                for index in range(
                    len(logs), min(topic.partition_count, len(logs) + LOGS_MADE_AT_ONCE - made)
                ):
                    logs.append(self._found_or_new_log(topic, index, config, now_ms))
                    made += 1
            self._partitions[topic.name] = logs
            self._leader_epochs.pop(topic.name, None)
            if (
                is_interrupted and self.log_config(topic) != config
            ):  # it was altered between two slices
                self._configure(topic)
            if topic.topic_id in self.metadata.coming:
                self.metadata.end_creation(topic)

    def set_topic_configs(self, name: str, configs: dict[str, str], now_ms: int) -> None:
        """Replace a topic's configs; its logs heed them from the next append on."""
        self.metadata.set_topic_configs(name, configs)
        topic = self.metadata.topic(name)
        assert topic is not None
        self._configure(topic)
        self.on_appended(
            [log for log in self._partitions[name] if log is not None], now_ms
        )  # flush.messages=1 may have held back some

    def set_broker_configs(self, configs: dict[str, str]) -> None:
        """Replace the dynamic configs of this broker; topics heed those that are their defaults."""
        self._set_broker_configs(configs)
        self._heed_broker_configs()

    def set_broker_default_configs(self, configs: dict[str, str]) -> None:
        """Replace the dynamic configs of every broker; topics heed those that are their defaults."""
        self._set_broker_default_configs(configs)
        self._heed_broker_configs()

    def _set_broker_configs(self, configs: dict[str, str]) -> None:
        self.metadata.set_broker_configs(configs)
        self.config.set_dynamic(configs)

    def _set_broker_default_configs(self, configs: dict[str, str]) -> None:
        self.metadata.set_broker_default_configs(configs)
        self.config.set_dynamic_defaults(configs)

    def _heed_broker_configs(self) -> None:
        for topic in self.metadata.topics.values():
            self._configure(topic)

    def _configure(self, topic: Topic) -> None:
        config = self.log_config(topic)
        for log in self._partitions[topic.name]:
            if log is not None:
                log.config = config

    def _add_logs(self, topic: Topic, now_ms: int, *, leader_epoch: int = 0) -> None:
        """At a start: those that were found, and new ones where a kill came before they were made.

        leader_epoch: of those that are made, above 0 where clients may know the partitions.
        """
        self._leader_epochs.pop(topic.name, None)
        config = self.log_config(topic)
        logs = self._partitions[topic.name]
        for index in range(len(logs), topic.partition_count):
            logs.append(
                self._found_or_new_log(topic, index, config, now_ms, leader_epoch=leader_epoch)
            )

    def _found_or_new_log(
        self, topic: Topic, index: int, config: LogConfig, now_ms: int, *, leader_epoch: int = 0
    ) -> Log | None:
        log = self.logs.logs.get((topic.name, index))
        if (topic.name, index) in self.logs.offline:
            if topic.internal:
                raise _internal_log_is_damaged(
                    topic.name, index, self.logs.offline[topic.name, index]
                )
        elif log is None:
            log = self.logs.create(
                topic.name, index, topic.topic_id, config, now_ms, leader_epoch=leader_epoch
            )
        else:
            log.config = config
        return log

    def ensure_internal_topic(self, name: str, now_ms: int) -> None:
        """Make an internal topic when it is first needed, as Kafka does."""
        if name not in self._partitions:
            prefix = "transaction.state.log" if name == TRANSACTIONS_TOPIC else "offsets.topic"
            configs = {
                "cleanup.policy": "compact",
                "segment.bytes": str(self.config[f"{prefix}.segment.bytes"]),
            }
            self.create_topic(name, self._internal_partition_count(name), configs, now_ms=now_ms)

    def internal_log(self, name: str, index: int, now_ms: int) -> Log:
        """A partition of an internal topic."""
        self.ensure_internal_topic(name, now_ms)
        log = self.partition(name, index)
        assert log is not None, f"{name}-{index} is missing"
        return log

    def _group_partition(self, group_id: str) -> int:
        return partition_for(group_id, self._internal_partition_count(OFFSETS_TOPIC))

    def on_progress(self, log: Log, now_ms: int) -> None:
        """Something was appended to a log, or became stable in it."""
        self.on_appended([log], now_ms)

    def on_appended(self, logs: list[Log], now_ms: int) -> None:
        """Tell those who wait for the logs. What readers may not see before the disk has it
        (flush.messages=1) is brought there, in one flush.
        """
        for log in logs:
            if log.high_watermark < log.log_end_offset:
                self.flushes.wait(
                    [log for log in logs if log.high_watermark < log.log_end_offset],
                    lambda _: None,
                    now_ms,
                )
                break
        for log in logs:
            self.purgatory.on_progress(log, now_ms)

    def flush_later(self, log: Log, due_ms: int) -> None:
        """Something was appended that is to be on the disk by then (`flush.ms`)."""
        if log not in self._flush_due:
            self._flush_due[log] = due_ms
            if self._next_flush_ms is None or due_ms < self._next_flush_ms:
                self._next_flush_ms = due_ms

    def advertised(self, context: RequestContext) -> tuple[str, int]:
        """The address that a client is told to come back to: what advertised.listeners says, else
        where it came in.
        """
        configured: tuple[str, int] | None = self.config.advertised_listener
        return configured or (context.local_host, context.local_port)


def _internal_log_is_damaged(topic: str, index: int, error: CorruptLog) -> LogDirectoryError:
    return LogDirectoryError(
        f"{topic}-{index} is damaged, and without it groups or transactions would be forgotten: "
        f"{error}"
    )


def _transaction_settings(config: BrokerConfig) -> TxnSettings:
    return TxnSettings(
        transaction_max_timeout_ms=config["transaction.max.timeout.ms"],
        transactional_id_expiration_ms=config["transactional.id.expiration.ms"],
    )


def _group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config["group.min.session.timeout.ms"],
        max_session_timeout_ms=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        max_size=config["group.max.size"],
        offset_metadata_max_size=config["offset.metadata.max.bytes"],
        max_record_bytes=config["message.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
    )
