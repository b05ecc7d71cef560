"""Typical mistakes in a broker, planted into the real classes one at a time: they prove that the
simulator can find them.

Each is a context manager that replaces one method and restores it. `kinds` are the kinds of
findings that count as a detection; `tweak` changes a drawn scenario so that the mistake is more
likely to be found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from barnabas.broker.admission.coordinator_edge import _Edge
from barnabas.broker.brokers.cluster import NodeTopics
from barnabas.broker.core import Broker
from barnabas.broker.handlers import fetch as fetch_handler
from barnabas.broker.handlers.produce import ProduceHandler, TransactionalBatches
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.transactions import transaction_end
from barnabas.broker.transactions.transaction_end import (
    Ending,
    Endings,
    TransactionEnds,
    TransactionMarkers,
)
from barnabas.broker.transactions.transaction_recovery import JournaledDecision, TransactionRecovery
from barnabas.coordinator.groups.classic.classic_group import ClassicGroup
from barnabas.coordinator.groups.classic.group_members import GroupMembers
from barnabas.coordinator.groups.classic.rebalance import State
from barnabas.coordinator.groups.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.consumer.consumer_group_change import GroupChange
from barnabas.coordinator.groups.consumer.consumer_groups import ConsumerGroups
from barnabas.coordinator.groups.consumer.group_conversion import GroupConversion
from barnabas.coordinator.groups.group import Group as CoordinatorGroup
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_offsets import GroupOffsets
from barnabas.coordinator.groups.group_state import CommitCheck
from barnabas.coordinator.groups.offsets.offset_commits import OffsetCommits
from barnabas.coordinator.groups.offsets.offset_fetches import OffsetFetches
from barnabas.coordinator.groups.offsets.offset_removal import OffsetRemoval
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import Result
from barnabas.coordinator.transactions import fencing, transaction_state
from barnabas.coordinator.transactions.partition_additions import PartitionAdditions
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.coordinator.transactions.producer_sessions import ProducerSessions
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction_state import (
    Decision,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import HEADER, read_header
from barnabas.protocol.wall_clock import WallClock
from barnabas.storage.batch import validate
from barnabas.storage.cleaning import clean_plan, cleaner, segment_swap
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.directory.offset_checkpoints import OffsetCheckpoints
from barnabas.storage.disk import DirectorySync
from barnabas.storage.files import flush_journal
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    LOG_START_NAME,
    Offsets,
)
from barnabas.storage.files.flush_journal import OFFLINE_END, FlushJournal, Redo
from barnabas.storage.log import broker_appends, log_reader, retention
from barnabas.storage.log import log as log_module
from barnabas.storage.log.broker_appends import append_records
from barnabas.storage.log.durability import Durability
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_files import LogFiles
from barnabas.storage.log.log_reader import Isolation, LogReader
from barnabas.storage.opening import log_loader
from barnabas.storage.opening.last_run import RunNote
from barnabas.storage.opening.log_loader import LogLoader
from barnabas.storage.pooled_disk import PooledDisk
from barnabas.storage.producers import producer_window, repetition
from barnabas.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.storage.producers.producer_state import ProducerEntry, ProducerStateManager
from barnabas.storage.segments import segment
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_list import SegmentList
from sim import focuses
from sim.disk import SimDisk, SimFile
from sim.node import Node
from sim.scenario import Scenario

Tweak = Callable[[Scenario], None]


class Defect(NamedTuple):
    """A planted mistake. says: a sentence that describes it."""

    name: str
    says: str
    kinds: frozenset[str]
    plant: Callable[[], contextlib.AbstractContextManager[None]]
    tweak: Tweak


DEFECTS: list[Defect] = []


def _as_drawn(scenario: Scenario) -> None:
    pass


def defect(
    says: str, *kinds: str, tweak: Tweak = _as_drawn
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Any]]:
    """A decorator that adds a generator function to the list of mistakes, as a context manager."""

    def enter(plant: Callable[[], Iterator[None]]) -> Callable[[], Any]:
        manager = contextlib.contextmanager(plant)
        DEFECTS.append(Defect(plant.__name__, says, frozenset(kinds), manager, tweak))
        return manager

    return enter


@contextlib.contextmanager
def changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute in the class that defines it while the context lasts."""
    if isinstance(owner, type):
        owner = next(one for one in owner.__mro__ if name in one.__dict__)
    old = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


@contextlib.contextmanager
def _unstored_starts() -> Iterator[None]:
    def raise_starts(self: LogManager, starts: dict[Log, int]) -> None:
        for log, start in starts.items():
            log.delete_records_before(start)
        self.write_starts()

    with changed(LogManager, "raise_starts", raise_starts):
        yield


# --- durability ---------------------------------------------------------------------------------


@defect(
    "commits and flushed topics are answered before the flush",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_power,
)
def answer_before_flush() -> Iterator[None]:
    def wait(self: FlushQueue, logs: Any, then: Any, now_ms: int) -> None:
        then(now_ms)

    def wait_for_frame(self: FlushQueue, logs: Any, then: Any, now_ms: int) -> None:
        then(None, now_ms)

    with (
        changed(FlushQueue, "wait", wait),
        changed(FlushQueue, "wait_for_frame", wait_for_frame),
    ):
        yield


@defect(
    "a decision is made when the data are written, and its frame is not waited for",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_power_and_slow_flushes,
)
def decision_before_its_frame() -> Iterator[None]:
    write = FlushQueue._write_frame

    def write_frame(self: FlushQueue, frame: Any, entries: Any, files: Any, now_ms: int) -> None:
        write(self, frame, entries, files, now_ms)
        followers, self._followers = self._followers, []
        for then in followers:
            then(now_ms)

    with changed(FlushQueue, "_write_frame", write_frame):
        yield


@defect(
    "decisions that a flush journal has are not looked for at a start",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_power,
)
def decisions_are_not_redone() -> Iterator[None]:
    def redo_decisions(self: TransactionRecovery, decisions: Any, now_ms: int) -> None:
        pass

    with changed(TransactionRecovery, "redo_decisions", redo_decisions):
        yield


@defect(
    "markers that went with the power are not written again",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_power_on_transactions,
)
def markers_are_not_redone() -> Iterator[None]:
    def redo_markers(self: TransactionRecovery, journaled: Any, now_ms: int) -> None:
        pass

    with changed(TransactionRecovery, "_redo_markers", redo_markers):
        yield


@defect(
    "a journal goes before the markers of its decisions are on the disk",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_power_and_short_journals,
)
def markers_are_not_flushed_later() -> Iterator[None]:
    def flush_later(self: FlushQueue, logs: Any, now_ms: int) -> None:
        pass

    with changed(FlushQueue, "flush_later", flush_later):
        yield


@defect(
    "a commit marker written again is for whatever is open",
    "aborted-read",
    "precommitted-read",
    tweak=focuses.with_power_on_transactions,
)
def redone_markers_end_the_next_transaction() -> Iterator[None]:
    def is_open(self: Any, log: Log, topic_id: bytes) -> bool:
        return log.producer_state.has_ongoing_transaction_of(self.decision.producer_id)

    with changed(JournaledDecision, "is_open", is_open):
        yield


@defect(
    "a flush is over when the first of its files is on the disk",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_power,
)
def half_a_flush() -> Iterator[None]:
    begin = Durability.begin_flush

    def begin_flush(self: Durability) -> Any:
        token = begin(self)
        return (
            token
            if token is None
            else replace(token, files=token.files[:1] if len(token.files) > 1 else token.files)
        )

    with changed(Durability, "begin_flush", begin_flush):
        yield


@defect(
    "flush journals are not read after a power loss",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_power,
)
def journals_are_not_read() -> Iterator[None]:
    def read(self: FlushJournal) -> Redo:
        return Redo()

    with changed(FlushJournal, "read", read):
        yield


@defect(
    "a flush journal goes before its logs are flushed",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_power,
)
def journals_go_too_early() -> Iterator[None]:
    begin = FlushJournal.begin_next

    def begin_next(self: FlushJournal) -> None:
        begin(self)
        self.forget_older()

    with changed(FlushJournal, "begin_next", begin_next):
        yield


@defect(
    "the boot id is noted before the power loss is handled",
    "torn",
    "lost",
    "aborted-read",
    "offsets",
    "stuck",
    tweak=focuses.with_crashes_of_starts,
)
def boot_is_noted_too_early() -> Iterator[None]:
    load = LogManager.load

    def load_and_note(self: LogManager, *arguments: Any, **more: Any) -> None:
        load(self, *arguments, **more)
        self.note_boot()

    with changed(LogManager, "load", load_and_note):
        yield


@defect(
    "what a start writes again from the journal is not flushed, and the journal goes at once",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_flushed_records_and_power,
)
def written_again_and_not_flushed() -> Iterator[None]:
    write_again, load = LogLoader._write_again, LogManager.load

    def write(self: Any, segment: Any, position: int, end_offset: int) -> bool:
        with changed(SimFile, "fsync", lambda self: None):
            return write_again(self, segment, position, end_offset)

    def load_and_forget(self: LogManager, *arguments: Any, **more: Any) -> None:
        load(self, *arguments, **more)
        if self.lost_power and not self.decisions:
            self.journal.forget_older()

    with (
        changed(LogLoader, "_write_again", write),
        changed(LogManager, "load", load_and_forget),
    ):
        yield


@defect(
    "the mark of a clean stop may come back",
    "lost",
    "torn",
    "stuck",
    "aborted-read",
    "offsets",
    "crashed",
    tweak=focuses.with_stops_and_power,
)
def mark_of_a_clean_stop_comes_back() -> Iterator[None]:
    unlink, fsync_dir = SimDisk.unlink, SimDisk.fsync_dir
    was_mark = False

    def unlink_mark(self: SimDisk, path: str) -> None:
        nonlocal was_mark
        unlink(self, path)
        was_mark = path.endswith(CLEAN_SHUTDOWN_NAME)

    def fsync_others(self: SimDisk, path: str) -> None:
        nonlocal was_mark
        if not was_mark:
            fsync_dir(self, path)
        was_mark = False

    with changed(SimDisk, "unlink", unlink_mark), changed(SimDisk, "fsync_dir", fsync_others):
        yield


@defect(
    "decisions that a kill left are believed and not flushed, where there is no journal",
    "torn",
    "lost",
    "offsets",
    "aborted-read",
    tweak=focuses.with_kills_and_power_without_journal,
)
def decisions_after_a_kill_are_not_flushed() -> Iterator[None]:
    complete = TransactionRecovery.complete_transactions

    def complete_transactions(self: TransactionRecovery, *arguments: Any) -> None:
        with changed(Log, "flush", lambda self: None):
            complete(self, *arguments)

    with changed(TransactionRecovery, "complete_transactions", complete_transactions):
        yield


@defect(
    "a flush makes durable what was written while it ran",
    "lost",
    "torn",
    "offsets",
    tweak=focuses.with_flushed_records_and_power,
)
def flushes_reach_too_far() -> Iterator[None]:
    finish = Log.finish_flush

    def finish_flush(self: Log, token: Any) -> None:
        finish(self, replace(token, end_offset=self.log_end_offset))

    with changed(Log, "finish_flush", finish_flush):
        yield


@defect(
    "the recovery point is the end of what was written",
    "stuck",
    "crashed",
    "lost",
    "torn",
    "offsets",
    "refused",
    tweak=focuses.with_power,
)
def recovery_point_too_high() -> Iterator[None]:
    def ends(self: LogManager) -> Offsets:
        return {key: log.log_end_offset for key, log in self.logs.items()}

    with changed(LogManager, "_recovery_points", ends):
        yield


@defect(
    "the Complete record is written before the markers",
    "lost",
    "aborted-read",
    "torn",
    "stuck",
    "offsets",
    tweak=focuses.with_kills,
)
def complete_before_marker() -> Iterator[None]:
    write_markers = TransactionEnds._write_markers
    write_complete = TransactionEnds._write_complete

    def write_markers_later(self: TransactionEnds, ending: Any, now_ms: int) -> None:
        with changed(TransactionEnds, "flush_completions", lambda self, now_ms: None):
            write_complete(self, ending, now_ms)
        logs = self._topics.logs_of(TRANSACTIONS_TOPIC)
        self._flushes.wait(logs, lambda then_ms: write_markers(self, ending, then_ms), now_ms)

    def nothing(self: TransactionEnds, ending: Any, now_ms: int) -> None:
        pass

    with (
        changed(TransactionEnds, "_write_markers", write_markers_later),
        changed(TransactionEnds, "_write_complete", nothing),
    ):
        yield


@defect(
    "data may be written before the record that says so",
    "lost",
    "refused",
    "torn",
    "offsets",
    tweak=focuses.with_kills,
)
def data_before_ongoing() -> Iterator[None]:
    run = TransactionEnds.run
    internal_log = TopicRegistry.internal_log

    def run_unwritten(self: TransactionEnds, result: Result, now_ms: int) -> None:
        held = self._topics.__dict__.setdefault("held", [])
        if result.records and not result.effects and not result.more and _is_ongoing(result):
            for record in result.records:
                self._coordinator.replay(result.partition, 0, record.key, record.value)
            held.append(result)
            self._conclude(result, now_ms)
            return
        run(self, result, now_ms)

    def log_with_held(self: TopicRegistry, name: str, index: int, now_ms: int) -> Any:
        if name == TRANSACTIONS_TOPIC:
            for earlier in self.__dict__.pop("held", ()):
                log = internal_log(self, name, earlier.partition, now_ms)
                append_records(log, earlier.records, now_ms)
        return internal_log(self, name, index, now_ms)

    with (
        changed(TransactionEnds, "run", run_unwritten),
        changed(TopicRegistry, "internal_log", log_with_held),
    ):
        yield


def _is_ongoing(result: Result) -> bool:
    from barnabas.coordinator.transactions.transaction_records import decode_key, decode_value

    for record in result.records:
        transactional_id = decode_key(record.key)
        if transactional_id is None or record.value is None:
            return False
        if decode_value(transactional_id, record.value).state is not TransactionState.ONGOING:
            return False
    return True


@defect(
    "what was decided and not completed is forgotten at a start",
    "stuck",
    "lost",
    "torn",
    tweak=focuses.with_kills,
)
def prepared_is_forgotten() -> Iterator[None]:
    def prepared(self: TransactionCoordinator) -> list[Decision]:
        return []

    with changed(TransactionCoordinator, "prepared", prepared):
        yield


@defect(
    "new names in directories are not made durable",
    "lost",
    "torn",
    "offsets",
    "refused",
    tweak=focuses.with_power,
)
def names_are_not_durable() -> Iterator[None]:
    begin = Durability.begin_flush

    def begin_flush(self: Durability) -> Any:
        token = begin(self)
        if token is None:
            return None
        return replace(
            token, files=tuple(file for file in token.files if not isinstance(file, DirectorySync))
        )

    with changed(Durability, "begin_flush", begin_flush):
        yield


@defect(
    "a power loss is taken for a kill",
    "lost",
    "torn",
    "aborted-read",
    "offsets",
    tweak=focuses.with_power_and_survivors,
)
def power_loss_is_not_noticed() -> Iterator[None]:
    def is_same_run(self: RunNote) -> bool:
        return True

    def lacking(self: Redo, *args: Any) -> str:
        return ""

    with changed(RunNote, "is_same_run", is_same_run), changed(Redo, "lacking", lacking):
        yield


@defect(
    "a failure of the disk is noted in a new file alone, for which there may be no space",
    "lost",
    "aborted-read",
    "offsets",
    "torn",
    tweak=focuses.with_a_disk_that_fails,
)
def failures_need_a_new_file() -> Iterator[None]:
    def write_failure(self: RunNote) -> None:
        with contextlib.suppress(OSError):
            self._disk.write_atomic(self._path, b"failed", sync=False)

    with changed(RunNote, "write_failure", write_failure):
        yield


@defect(
    "a hole between two segments is not the end of the log",
    "lost",
    "stuck",
    "skipped",
    "torn",
    tweak=focuses.with_small_segments_and_power,
)
def holes_are_kept() -> Iterator[None]:
    def is_torn_before(self: Any, number: int, end_offset: int) -> bool:
        return False

    with changed(LogLoader, "_is_torn_before", is_torn_before):
        yield


@defect(
    "a marker written again ends whatever is open",
    "aborted-read",
    "precommitted-read",
    tweak=focuses.with_power_on_transactions,
)
def markers_end_the_next_transaction() -> Iterator[None]:
    def ended_before(self: Log, producer_id: int, decided_ms: int) -> bool:
        return False

    with changed(Log, "ended_before_open_transaction", ended_before):
        yield


@defect(
    "what a power loss leaves open is committed, where commits are not flushed",
    "aborted-read",
    "precommitted-read",
    tweak=focuses.with_power_on_unflushed_transactions,
)
def hanging_transactions_are_committed() -> Iterator[None]:
    abort = TransactionRecovery._abort_hanging_transactions
    append = TransactionMarkers.append_to

    def abort_hanging_transactions(self: TransactionRecovery, now_ms: int) -> None:
        def append_commit(
            self: TransactionMarkers, log: Log, marker: Any, then_ms: int, **how: Any
        ) -> Any:
            return append(self, log, replace(marker, commit=True), then_ms, **how)

        with changed(TransactionMarkers, "append_to", append_commit):
            abort(self, now_ms)

    with changed(TransactionRecovery, "_abort_hanging_transactions", abort_hanging_transactions):
        yield


@defect("where a log begins is not written down", "watermark", tweak=focuses.with_deletions)
def deletions_are_forgotten() -> Iterator[None]:
    def write_starts(self: LogManager) -> None:
        self.log_dir.changed_starts.clear()

    with changed(LogManager, "write_starts", write_starts), _unstored_starts():
        yield


@defect("transactions do not time out", "stuck", tweak=focuses.with_deaths)
def no_timeouts() -> Iterator[None]:
    def next_deadline_ms(self: TransactionCoordinator) -> int | None:
        return None

    with changed(TransactionCoordinator, "next_deadline_ms", next_deadline_ms):
        yield


# --- topics that go and grow, records that are deleted ------------------------------------------


@defect(
    "a deleted topic leaves its logs where the next one of its name finds them",
    "deleted",
    tweak=focuses.with_remakes,
)
def deleted_logs_are_found_again() -> Iterator[None]:
    create = LogManager.create

    def remove(self: LogManager, topic: str, partition: int, now_ms: int) -> None:
        pass

    def create_or_find(
        self: LogManager, topic: str, partition: int, *arguments: Any, **more: Any
    ) -> Log:
        found = self.logs.get((topic, partition))
        return create(self, topic, partition, *arguments, **more) if found is None else found

    with changed(LogManager, "remove", remove), changed(LogManager, "create", create_or_find):
        yield


@defect(
    "offsets that groups committed on a deleted topic hold for the next one of its name",
    "offsets",
    tweak=focuses.with_remakes,
)
def offsets_outlive_their_topic() -> Iterator[None]:
    def on_topics_deleted(self: OffsetRemoval, *_: Any) -> Iterator[Result]:
        return iter(())

    with changed(OffsetRemoval, "on_topics_deleted", on_topics_deleted):
        yield


@defect("that a topic grew is not written down", "lost", tweak=focuses.with_growth)
def growth_is_forgotten() -> Iterator[None]:
    def grow_topics(self: ClusterMetadata, counts: Any) -> list[Any]:
        for name, count in counts.items():
            self.topics[name].partition_count = count
        self.generation += 1
        return [self.topics[name] for name in counts]

    with changed(ClusterMetadata, "grow_topics", grow_topics):
        yield


@defect(
    "partitions that a topic got later begin again with each start",
    "lost",
    tweak=focuses.with_growth,
)
def grown_partitions_begin_again() -> Iterator[None]:
    load = LogManager.load

    def load_all(self: LogManager, *arguments: Any, **more: Any) -> None:
        for name in self.disk.list(self.data_dir) if self.disk.is_dir(self.data_dir) else ():
            if name.startswith("plain-") and name != "plain-0":
                self.disk.rmtree(f"{self.data_dir}/{name}")
        load(self, *arguments, **more)

    with changed(LogManager, "load", load_all):
        yield


@defect(
    "a start that DeleteRecords has raised is written down and not flushed",
    "deleted",
    tweak=focuses.with_deletions_and_power,
)
def deletions_are_not_durable() -> Iterator[None]:
    write = OffsetCheckpoints.write

    def write_some(
        self: OffsetCheckpoints, name: str, offsets: Offsets, *, force: bool = False
    ) -> None:
        write(self, name, offsets, force=force, sync=name != LOG_START_NAME)

    with changed(OffsetCheckpoints, "write", write_some):
        yield


@defect(
    "a copy of the disk is believed to be what the last broker left",
    "torn",
    "lost",
    "order",
    "stuck",
    "crashed",
    tweak=focuses.with_power_and_survivors,
)
def copies_are_believed() -> Iterator[None]:
    def lacking(self: Redo, *args: Any) -> str:
        return ""

    def is_same_boot(self: RunNote) -> bool:
        if not self._disk.exists(self._path):
            return False
        return self._disk.read(self._path).decode().split()[:1] == [self._disk.boot_id()]

    with changed(RunNote, "is_same_run", is_same_boot), changed(Redo, "lacking", lacking):
        yield


@defect(
    "a roll that finds no room counts the active segment all the same",
    "crashed",
    "lost",
    "deleted",
    tweak=focuses.with_refused_rolls,
)
def failed_rolls_count() -> Iterator[None]:
    roll = Log._roll

    def roll_and_count(self: Log, now_ms: int) -> None:
        try:
            roll(self, now_ms)
        except OSError:
            self.segments._closed_bytes += self.segments.active.batches.size
            raise

    with changed(Log, "_roll", roll_and_count):
        yield


@defect(
    "a decision does not keep for a partition that is off line",
    "torn",
    "lost",
    "aborted-read",
    tweak=focuses.with_outages,
)
def decisions_do_not_keep() -> Iterator[None]:
    def note_offline(self: TransactionMarkers, decision: Any) -> None:
        pass

    with changed(TransactionMarkers, "_note_offline", note_offline):
        yield


@defect(
    "a decision in the flush journal does not name the partitions that are off line",
    "torn",
    "lost",
    "aborted-read",
    tweak=focuses.with_outages_and_slow_flushes,
)
def off_line_partitions_have_no_end() -> Iterator[None]:
    partition_ends = Ending.partition_ends

    def ends_on_line(self: Ending, topics: Any) -> Any:
        return tuple(end for end in partition_ends(self, topics) if end[3] != OFFLINE_END)

    with changed(Ending, "partition_ends", ends_on_line):
        yield


@defect(
    "the coordinator's epoch is 0 for ever",
    "epoch",
    tweak=focuses.from_kafka,
)
def coordinator_epochs_stand_still() -> Iterator[None]:
    decision = TransactionMetadata.decision

    def of_epoch_0(self: TransactionMetadata, _coordinator_epoch: int, *waiting: Any) -> Decision:
        return decision(self, 0, *waiting)

    epochs = ProducerStateManager.epochs_of_decision

    def of_decision(
        self: ProducerStateManager, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> tuple[int, int] | None:
        right = epochs(self, producer_id, producer_epoch, coordinator_epoch)
        return None if right is None else (right[0], coordinator_epoch)

    with (
        changed(TransactionMetadata, "decision", of_epoch_0),
        changed(ProducerStateManager, "epochs_of_decision", of_decision),
    ):
        yield


@defect(
    "a log that Apache Kafka's cleaner has gone over ends with its first gap",
    "lost",
    "watermark",
    tweak=focuses.from_killed_kafka,
)
def kafkas_gaps_are_torn_ends() -> Iterator[None]:
    def is_torn(self: Any, number: int, end_offset: int) -> bool:
        return end_offset >= self.recovery_point

    with changed(LogLoader, "_is_torn_before", is_torn):
        yield


@defect(
    "new names count as durable when their flush begins",
    "lost",
    "watermark",
    "torn",
    "contradicted",
    tweak=focuses.with_stops_amid_flushes,
)
def names_are_durable_at_once() -> Iterator[None]:
    begin = Durability.begin_flush

    def begin_flush(self: Durability) -> Any:
        token = begin(self)
        self._durable_names = self._name_changes
        return token

    with changed(Durability, "begin_flush", begin_flush):
        yield


@defect(
    "a damaged frame ends the flush journal, whatever comes behind it",
    "torn",
    "lost",
    "offsets",
    tweak=focuses.with_damaged_journals,
)
def damaged_frames_end_the_journal() -> Iterator[None]:
    def knows(data: bytes, position: int) -> int:
        return -1

    with changed(flush_journal, "later_frame", knows):
        yield


@defect(
    "a file that was closed for others' sake is taken to be flushed",
    "lost",
    tweak=focuses.with_power,
)
def closed_files_are_not_flushed() -> Iterator[None]:
    def fsync_closed(self: PooledDisk, file: Any) -> None:
        pass

    with changed(PooledDisk, "fsync_closed", fsync_closed):
        yield


@defect(
    "the names of files that a thread has made are taken to be durable",
    "lost",
    tweak=focuses.with_power,
)
def names_of_new_files_are_not_flushed() -> Iterator[None]:
    def note(self: LogFiles) -> None:
        self.are_made, self.lacks_epoch = True, False

    with changed(LogFiles, "_note", note):
        yield


@defect(
    "the start that retention has raised is not written down",
    "watermark",
    "deleted",
    tweak=focuses.with_retention_and_power,
)
def retained_starts_are_not_written() -> Iterator[None]:
    def write_starts(self: LogManager) -> None:
        for key in sorted(self.log_dir.changed_starts):
            self.logs[key].checkpoint()
        self.log_dir.changed_starts.clear()
        starts = {
            key: log.log_start_offset
            for key, log in self.logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        self._checkpoints.write(LOG_START_NAME, self._offline_starts | starts)

    with changed(LogManager, "write_starts", write_starts):
        yield


@defect(
    "what DeleteRecords took is there again after a kill", "deleted", tweak=focuses.with_deletions
)
def deleted_records_come_back() -> Iterator[None]:
    def write_starts(self: LogManager) -> None:
        self.log_dir.changed_starts.clear()

    with changed(LogManager, "write_starts", write_starts), _unstored_starts():
        yield


# --- fencing ------------------------------------------------------------------------------------


@defect(
    "a new session has the epoch of the last",
    "refused",
    "aborted-read",
    "lost",
    "precommitted-read",
    "duplicate",
    "torn",
    "order",
    "offsets",
)
def no_fencing_on_init() -> Iterator[None]:
    begin = ProducerSessions._next_session

    def next_session(
        self: ProducerSessions, found: TransactionMetadata, init: Any, now_ms: int
    ) -> TransactionMetadata:
        if init.requester.producer_id >= 0:
            return begin(self, found, init, now_ms)
        return found.in_new_session(found.producer, init.requester, init.timeout_ms, now_ms)

    def fenced(self: TransactionMetadata, requester: Any, now_ms: int) -> TransactionMetadata:
        return self.prepared(False, now_ms)

    with (
        changed(ProducerSessions, "_next_session", next_session),
        changed(TransactionMetadata, "fenced", fenced),
    ):
        yield


@defect(
    "a transaction that timed out is aborted without a new epoch",
    "refused",
    "aborted-read",
    "stuck",
    "lost",
    "offsets",
)
def timeout_does_not_fence() -> Iterator[None]:
    def fenced(self: TransactionMetadata, requester: Any, now_ms: int) -> TransactionMetadata:
        return self.prepared(False, now_ms)

    with changed(TransactionMetadata, "fenced", fenced):
        yield


@defect(
    "batches of fenced producers are taken",
    "aborted-read",
    "stuck",
    "unwritten",
    "order",
    "refused",
    "precommitted-read",
    "torn",
    "lost",
    "offsets",
)
def zombies_may_write() -> Iterator[None]:
    check = ProducerStateManager.check_batch

    def check_batch(
        self: ProducerStateManager, producer_id: int, producer_epoch: int, *rest: Any
    ) -> Any:
        try:
            return check(self, producer_id, producer_epoch, *rest)
        except KafkaError as error:
            if error.code is Code.INVALID_PRODUCER_EPOCH:
                return None
            raise

    def verify(batches: Any, produce: Any, log: Log, records: Any) -> Code:
        return Code.NONE

    with (
        changed(ProducerStateManager, "check_batch", check_batch),
        changed(TransactionalBatches, "verify", verify),
    ):
        yield


@defect(
    "offsets of members that the group has left behind are taken",
    "offsets",
    tweak=focuses.with_group,
)
def group_does_not_fence() -> Iterator[None]:
    def check(self: OffsetCommits, *args: Any, **kwargs: Any) -> CommitCheck:
        return CommitCheck(Code.NONE)

    with changed(OffsetCommits, "_check", check):
        yield


@defect(
    "a static member that comes back is one more member, and its former self stays",
    "member",
    tweak=focuses.with_static_members,
)
def static_members_are_not_replaced() -> Iterator[None]:
    def join_new_static(
        self: ClassicGroup, join: Any, group_instance_id: str, result: Result, now_ms: int
    ) -> None:
        self._add_member(f"{group_instance_id}-{self._new_member_suffix()}", join, result, now_ms)

    def check(self: GroupMembers, member_id: str, group_instance_id: str | None) -> Code:
        return Code.NONE if member_id in self.by_id else Code.UNKNOWN_MEMBER_ID

    with (
        changed(ClassicGroup, "_join_new_static", join_new_static),
        changed(GroupMembers, "check", check),
    ):
        yield


@defect(
    "a member may go on in a generation that is over",
    "member",
    tweak=focuses.with_static_members_and_rebalances,
)
def former_generations_are_let_on() -> Iterator[None]:
    def on_heartbeat(self: ClassicGroup, request: Any, now_ms: int) -> Code:
        code = self._members.check(request.member_id, request.group_instance_id)
        if code is Code.NONE:
            self._members.restart_session(self.members[request.member_id], now_ms)
        return code

    with changed(ClassicGroup, "on_heartbeat", on_heartbeat):
        yield


@defect(
    "a member that leaves stays until it is silent for too long",
    "member",
    tweak=focuses.with_departures,
)
def departures_are_put_off() -> Iterator[None]:
    def on_leave(self: ClassicGroup, leaving: Any, result: Result, now_ms: int) -> list[Code]:
        return [Code.NONE for _ in leaving]

    with changed(ClassicGroup, "on_leave", on_leave):
        yield


@defect(
    "producer ids begin again with each start",
    "duplicate",
    "refused",
    "lost",
    "torn",
    "order",
    "crashed",
    tweak=focuses.with_new_producers,
)
def producer_ids_are_given_twice() -> Iterator[None]:
    init = ProducerIdAllocator.__init__

    def begin(self: ProducerIdAllocator, **fields: Any) -> None:
        init(self, **fields | {"next_id": 0})

    def skip_used(self: ProducerIdAllocator, next_id: int) -> None:
        pass

    with (
        changed(ProducerIdAllocator, "__init__", begin),
        changed(ProducerIdAllocator, "skip_used", skip_used),
    ):
        yield


# --- the consumer protocol ------------------------------------------------------------------------


@defect(
    "a partition is assigned before its former owner has given it up",
    "owners",
    tweak=focuses.with_consumer_protocol,
)
def partitions_have_two_owners() -> Iterator[None]:
    def is_free(self: GroupChange, member_id: str, topic_id: Any, partition: int) -> bool:
        return True

    with changed(GroupChange, "_is_free", is_free):
        yield


@defect(
    "who was a member may commit offsets, in whichever epoch",
    "owners",
    "offsets",
    tweak=focuses.with_consumer_protocol,
)
def former_epochs_may_commit() -> Iterator[None]:
    def check_commit(self: ConsumerGroup, *args: Any, **kwargs: Any) -> CommitCheck:
        return CommitCheck(Code.NONE)

    with changed(ConsumerGroup, "check_commit", check_commit):
        yield


@defect(
    "what classic members have is forgotten when their group becomes a consumer group",
    "owners",
    tweak=focuses.with_consumer_protocol,
)
def conversions_forget_assignments() -> Iterator[None]:
    def by_id(self: GroupConversion, partitions: Any) -> Any:
        return {}

    with changed(GroupConversion, "by_id", by_id):
        yield


@defect(
    "the sessions of a consumer group's members do not begin again with a start",
    "stuck",
    tweak=focuses.with_consumer_protocol,
)
def sessions_end_with_a_restart() -> Iterator[None]:
    def on_loaded(self: ConsumerGroups, group: Any, result: Any, now_ms: int) -> None:
        pass

    with changed(ConsumerGroups, "on_loaded", on_loaded):
        yield


@defect(
    "damage with good batches behind it is taken for what a loss of power left, and cut",
    "lost",
    "watermark",
    tweak=focuses.with_damaged_batches,
)
def damage_passes_for_a_hole() -> Iterator[None]:
    def is_hole(segment: Segment, position: int, next_offset: int) -> bool:
        return True

    with changed(log_loader, "is_hole", is_hole):
        yield


@defect(
    "a start completes a swap and leaves the segments that it stands for",
    "stuck",
    "lost",
    tweak=focuses.with_crashes_amid_swaps,
)
def swaps_leave_old_segments() -> Iterator[None]:
    def next_offset(disk: SimDisk, path: str) -> int:
        return -1

    with changed(segment_swap, "_next_offset", next_offset):
        yield


# --- idempotence --------------------------------------------------------------------------------


@defect(
    "a restart keeps one of a producer's last five batches",
    "refused",
    "duplicate",
    tweak=focuses.with_lost_answers,
)
def window_lost_on_restart() -> Iterator[None]:
    def restore_window(self: Log, entry: ProducerEntry, at_once: Any = None) -> None:
        entry.has_whole_window = True

    with changed(Log, "_restore_window", restore_window):
        yield


@defect(
    "after a start the batches of others on the partition pass for a producer's own",
    "refused",
    "lost",
    tweak=focuses.with_many_producers_and_kills,
)
def window_of_all_producers() -> Iterator[None]:
    def restore_window(self: Log, entry: ProducerEntry, at_once: Any = None) -> None:
        headers_before = SegmentList.headers_before

        def renamed(segments: SegmentList, offset: int) -> Iterator[Any]:
            for header in headers_before(segments, offset):
                yield header._replace(producer_id=entry.producer_id)

        with changed(SegmentList, "headers_before", renamed):
            producer_window.restore_window(entry, self.segments, at_once)

    with changed(Log, "_restore_window", restore_window):
        yield


@defect(
    "a batch that comes again is written again",
    "duplicate",
    "order",
    tweak=focuses.with_lost_answers,
)
def duplicates_are_written() -> Iterator[None]:
    check = ProducerStateManager.check_batch

    def check_batch(self: ProducerStateManager, *args: Any) -> Any:
        check(self, *args)
        return None

    with changed(ProducerStateManager, "check_batch", check_batch):
        yield


@defect(
    "a batch is taken for an earlier one with the same sequences",
    "lost",
    "torn",
    "moved",
    "order",
    tweak=focuses.with_reused_sequences,
)
def reused_sequences_are_repetitions() -> Iterator[None]:
    check = ProducerStateManager.check_batch

    def check_batch(
        self: ProducerStateManager, producer_id: int, epoch: int, first: int, last: int, *rest: Any
    ) -> Any:
        try:
            return check(self, producer_id, epoch, first, last, *rest)
        except KafkaError:
            duplicate = self.producers[producer_id].find(first, last)
            if duplicate is None:
                raise
            return duplicate

    with (
        changed(ProducerStateManager, "check_batch", check_batch),
        changed(log_module, "is_repetition", lambda *_, **__: True),
    ):
        yield


@defect(
    "a batch that was encoded again for its second attempt is taken for other records",
    "refused",
    tweak=focuses.with_batches_encoded_again,
)
def repetitions_have_the_first_time() -> Iterator[None]:
    have_same_content = repetition.have_same_content

    def have_same_time(stored: bytes, batch: bytes, *bounds: Any) -> bool | None:
        times = [read_header(one).base_timestamp for one in (stored, batch)]
        return times[0] == times[1] and have_same_content(stored, batch, *bounds)

    with changed(repetition, "have_same_content", have_same_time):
        yield


@defect(
    "a batch that comes late over a connection that was given up joins the next transaction",
    "aborted-read",
    tweak=focuses.with_late_batches_anywhere,
)
def late_batches_join_the_next_transaction() -> Iterator[None]:
    def check_connection(broker: Any, produce: Any) -> None:
        pass

    with changed(TransactionalBatches, "check_connection", check_connection):
        yield


@defect(
    "batches of the former epoch are remembered beside the new one's, a repetition is recognised "
    "by its sequences alone",
    "moved",
    "lost",
    "order",
    tweak=focuses.with_bumped_epochs,
)
def former_epochs_are_remembered() -> Iterator[None]:
    on_batch = ProducerStateManager.on_batch

    def keep(self: ProducerStateManager, producer_id: int, *rest: Any) -> None:
        entry = self.producers.get(producer_id)
        before = (entry.producer_epoch, list(entry.batches)) if entry is not None else None
        on_batch(self, producer_id, *rest)
        entry = self.producers[producer_id]
        if before is not None and before[0] != entry.producer_epoch:
            entry.batches[:0] = before[1]

    with (
        changed(ProducerStateManager, "on_batch", keep),
        # otherwise its different records would show that a batch is no repetition
        changed(log_module, "is_repetition", lambda *_, **__: True),
    ):
        yield


# --- version 2 of transactions --------------------------------------------------------------------


@defect(
    "that a partition is part of a transaction is kept in memory only",
    "torn",
    "lost",
    "early",
    "refused",
    tweak=focuses.with_version_2,
)
def adding_is_not_written() -> Iterator[None]:
    def on_writing(
        self: PartitionAdditions, name: str, producer: Any, pairs: Any, now_ms: int
    ) -> Result:
        try:
            added = self.with_partitions(
                self._table.by_id.get(name), name, producer, pairs, now_ms, 2
            )
        except KafkaError:
            return Result()
        if added is not None:
            self._table.by_id[name] = added
        return Result()

    with changed(PartitionAdditions, "on_writing", on_writing):
        yield


@defect(
    "an EndTxn that comes late ends the next transaction, although its epoch is of the last",
    "torn",
    "lost",
    "aborted-read",
    "early",
    "precommitted-read",
    tweak=focuses.with_version_2,
)
def late_ends_end_the_next_transaction() -> Iterator[None]:
    ended_by = fencing.require_current_or_last

    def any_epoch(transaction: Any, name: str, producer: Any) -> Any:
        if transaction is not None and transaction.state is TransactionState.ONGOING:
            return transaction, False
        return ended_by(transaction, name, producer)

    with changed(fencing, "require_current_or_last", any_epoch):
        yield


@defect("an EndTxn that is sent again is refused", "early", "refused", tweak=focuses.with_version_2)
def ends_are_not_repeated() -> Iterator[None]:
    def was_ended_by(self: TransactionMetadata, producer: Any) -> bool:
        return False

    with changed(TransactionMetadata, "was_ended_by", was_ended_by):
        yield


@defect(
    "a batch that comes late begins a transaction again, in the epoch before",
    "stuck",
    "aborted-read",
    "torn",
    "unwritten",
    "lost",
    tweak=focuses.with_version_2,
)
def late_batches_begin_transactions() -> Iterator[None]:
    check = ProducerStateManager.check_batch

    def verify(batches: Any, produce: Any, log: Log, records: Any) -> Code:
        return Code.NONE

    def check_batch(self: ProducerStateManager, *args: Any) -> Any:
        try:
            return check(self, *args)
        except KafkaError as error:
            if error.code is Code.INVALID_PRODUCER_EPOCH:
                return None
            raise

    with (
        changed(TransactionalBatches, "verify", verify),
        changed(ProducerStateManager, "check_batch", check_batch),
    ):
        yield


# --- isolation ----------------------------------------------------------------------------------


@defect("the aborted index says that a transaction began one offset later", "aborted-read")
def aborted_index_off_by_one() -> Iterator[None]:
    entry_of = log_module.aborted_entry

    def entry(completed: Any) -> Any:
        right = entry_of(completed)
        return right._replace(first_offset=right.first_offset + 1)

    with (
        changed(log_module, "aborted_entry", entry),
        changed(log_reader, "aborted_entry", entry),
    ):
        yield


@defect(
    "the last stable offset is that of the latest open transaction",
    "aborted-read",
    "precommitted-read",
    "watermark",
)
def stable_offset_of_the_wrong_transaction() -> Iterator[None]:
    def first_open_offset(self: ProducerStateManager) -> int | None:
        return next(reversed(self.open_txns.values()), None)

    with changed(ProducerStateManager, "first_open_offset", first_open_offset):
        yield


@defect(
    "a snapshot leaves out open transactions",
    "precommitted-read",
    "aborted-read",
    "torn",
    "stuck",
    "offsets",
    tweak=focuses.with_kills,
)
def snapshot_without_open_transactions() -> Iterator[None]:
    encode = ProducerStateManager.encode_snapshot

    def encode_snapshot(self: ProducerStateManager) -> bytes:
        kept = {
            producer_id: entry.txn_first_offset for producer_id, entry in self.producers.items()
        }
        for entry in self.producers.values():
            entry.txn_first_offset = -1
        try:
            return encode(self)
        finally:
            for producer_id, offset in kept.items():
                self.producers[producer_id].txn_first_offset = offset

    with changed(ProducerStateManager, "encode_snapshot", encode_snapshot):
        yield


@defect(
    "a fetch that waited is answered with uncommitted records", "aborted-read", "precommitted-read"
)
def waiting_fetch_forgets_its_isolation() -> Iterator[None]:
    fetch_class = fetch_handler._Fetch
    complete = fetch_class.try_complete

    def try_complete(self: Any, now_ms: int, out_of_time: bool) -> bool:
        self._isolation = Isolation.READ_UNCOMMITTED
        return complete(self, now_ms, out_of_time)

    with changed(fetch_class, "try_complete", try_complete):
        yield


@defect("readers of committed records do not get the list of aborted transactions", "aborted-read")
def aborted_transactions_are_not_told() -> Iterator[None]:
    def aborted(self: LogReader, *arguments: Any) -> list[Any]:
        return []

    with changed(LogReader, "aborted", aborted):
        yield


@defect(
    "the marker of an abort says commit", "aborted-read", "precommitted-read", "offsets", "torn"
)
def aborts_are_marked_as_commits() -> Iterator[None]:
    write = transaction_end.write_marker

    def write_marker(log: Log, marker: Any, *times: Any) -> Any:
        return write(log, replace(marker, commit=True), *times)

    with changed(transaction_end, "write_marker", write_marker):
        yield


@defect(
    "what times out is committed",
    "aborted-read",
    "precommitted-read",
    "offsets",
    "torn",
    "duplicate",
    tweak=focuses.with_deaths,
)
def timeouts_commit() -> Iterator[None]:
    fenced = TransactionMetadata.fenced

    def commit(self: TransactionMetadata, *arguments: Any) -> TransactionMetadata:
        return fenced(self, *arguments)._replace(state=TransactionState.PREPARE_COMMIT)

    with changed(TransactionMetadata, "fenced", commit):
        yield


@defect(
    "aborts are looked for in the segment that is read, and not in the later ones",
    "aborted-read",
    tweak=focuses.with_small_segments,
)
def aborts_of_later_segments_are_missed() -> Iterator[None]:
    def aborted(self: LogReader, offset: int, segment: Any, slice: Any) -> list[Any]:
        upper = segment.indexes.upper_bound_offset(slice.position + slice.size)
        end_offset = self._segments.end_of(segment) if upper is None else upper
        transactions: list[Any] = []
        self.txn_index(segment).collect(offset, end_offset, transactions)
        return transactions

    with changed(LogReader, "aborted", aborted):
        yield


@defect(
    "markers go to one partition of a transaction",
    "stuck",
    "torn",
    "lost",
    "offsets",
    tweak=focuses.with_several_partitions,
)
def one_marker_a_transaction() -> Iterator[None]:
    write = TransactionEnds._write_markers

    def write_markers(self: TransactionEnds, ending: Any, now_ms: int) -> None:
        decision = ending.decision
        ending.decision = decision._replace(partitions=decision.partitions[:1])
        write(self, ending, now_ms)

    with changed(TransactionEnds, "_write_markers", write_markers):
        yield


@defect(
    "a second open transaction does not hold back the last stable offset",
    "precommitted-read",
    "aborted-read",
    "watermark",
    "lost",
    "torn",
)
def second_transaction_does_not_hold_back() -> Iterator[None]:
    on_marker = ProducerStateManager.on_marker

    def forget_others(self: ProducerStateManager, *arguments: Any) -> Any:
        completed = on_marker(self, *arguments)
        return (
            completed
            if completed is None
            else replace(completed, last_stable_offset=self.end_offset)
        )

    def first_open_offset(self: ProducerStateManager) -> int | None:
        return next(iter(self.open_txns.values()), None) if len(self.open_txns) == 1 else None

    with (
        changed(ProducerStateManager, "on_marker", forget_others),
        changed(ProducerStateManager, "first_open_offset", first_open_offset),
    ):
        yield


# --- compaction ---------------------------------------------------------------------------------


@defect(
    "compaction goes beyond the last stable offset",
    "lost",
    "aborted-read",
    "crashed",
    "torn",
    tweak=focuses.with_compaction,
)
def compaction_beyond_the_stable_offset() -> Iterator[None]:
    assess = clean_plan.assess

    def bold(log: Log, *rest: Any) -> Any:
        stable, log.last_stable_offset = log.last_stable_offset, log.high_watermark
        try:
            return assess(log, *rest)
        finally:
            log.last_stable_offset = stable

    with changed(clean_plan, "assess", bold):
        yield


@defect(
    "compaction keeps the records of aborted transactions",
    "aborted-read",
    "lost",
    tweak=focuses.with_compaction,
)
def compaction_forgets_what_was_aborted() -> Iterator[None]:
    def is_aborted(self: Any, header: Any) -> bool:
        return False

    with changed(cleaner._Transactions, "is_aborted", is_aborted):
        yield


# --- offsets ------------------------------------------------------------------------------------


@defect("offsets of a transaction hold before its marker", "offsets", tweak=focuses.with_group)
def offsets_before_the_marker() -> Iterator[None]:
    store = GroupCoordinator._store_offset

    def eager(self: GroupCoordinator, *arguments: Any) -> None:
        store(self, *arguments[:-1], None)

    with changed(GroupCoordinator, "_store_offset", eager):
        yield


@defect("the markers of offsets are not written", "offsets", "stuck", tweak=focuses.with_group)
def offsets_without_markers() -> Iterator[None]:
    append = TransactionMarkers.append_to

    def append_to(self: TransactionMarkers, log: Log, *arguments: Any) -> bool:
        return log.topic != OFFSETS_TOPIC and append(self, log, *arguments)

    with changed(TransactionMarkers, "append_to", append_to):
        yield


@defect(
    "offsets are given out while a transaction may change them", "offsets", tweak=focuses.with_group
)
def unstable_offsets_are_given_out() -> Iterator[None]:
    offsets_of = OffsetFetches._offsets_of

    def unstable(self: OffsetFetches, group_id: str, topics: Any, require_stable: bool) -> Any:
        return offsets_of(self, group_id, topics, False)

    with changed(OffsetFetches, "_offsets_of", unstable):
        yield


@defect(
    "offsets of a transaction hold whether it commits or aborts",
    "offsets",
    tweak=focuses.with_group,
)
def aborted_offsets_hold() -> Iterator[None]:
    replay_end = GroupOffsets.replay_end

    def commit_all(self: GroupOffsets, producer_id: int, commit: bool) -> None:
        replay_end(self, producer_id, True)

    with changed(GroupOffsets, "replay_end", commit_all):
        yield


@defect("groups are not notified of markers", "offsets", "stuck", tweak=focuses.with_group)
def markers_do_not_reach_groups() -> Iterator[None]:
    def replay_marker(self: GroupCoordinator, *arguments: Any) -> None:
        pass

    with changed(GroupCoordinator, "replay_marker", replay_marker):
        yield


# --- leader epochs ------------------------------------------------------------------------------


@defect(
    "leader epochs do not rise after a power loss",
    "skipped",
    "stuck",
    tweak=focuses.with_lost_tails,
)
def leader_epochs_stand_still() -> Iterator[None]:
    begin = LogManager._begin_leader_epoch

    def begin_epoch(self: LogManager) -> None:
        if not self.lost_power:
            begin(self)
            return
        self.leader_epoch = max([log.leader_epoch for log in self.logs.values()], default=0)
        for log in self.logs.values():
            if log.leader_epoch < self.leader_epoch:
                log.begin_leader_epoch(self.leader_epoch)

    with changed(LogManager, "_begin_leader_epoch", begin_epoch):
        yield


@defect(
    "offsets beyond the end of a log that a power loss cut stay",
    "offsets",
    tweak=focuses.with_lost_tails,
)
def offsets_of_lost_tails_stay() -> Iterator[None]:
    with changed(GroupCoordinator, "offsets_beyond_log_end", lambda self, *args, **kwargs: []):
        yield


@defect(
    "members go on over a power loss from where they stand",
    "offsets",
    tweak=focuses.with_lost_tails_and_members_that_go_on,
)
def members_outlive_a_power_loss() -> Iterator[None]:
    with changed(GroupCoordinator, "on_power_loss", lambda self, now_ms: Result()):
        yield


def _with_lost_tails_and_fetches(scenario: Scenario) -> None:
    focuses.with_lost_tails(scenario)
    scenario.follows_by_fetch = True


@defect(
    "a Fetch does not say where the reader's log parts from this one",
    "skipped",
    tweak=_with_lost_tails_and_fetches,
)
def fetches_do_not_compare() -> Iterator[None]:
    with changed(fetch_handler, "_divergence", lambda log, target: None):
        yield


# --- time ---------------------------------------------------------------------------------------


@defect(
    "deadlines move with the wall clock when it is set",
    "stuck",
    "crashed",
    tweak=focuses.with_a_clock_set_back,
)
def deadlines_follow_the_wall_clock() -> Iterator[None]:
    tick = Broker.on_tick
    shown: dict[int, int] = {}

    def on_tick(self: Broker, now_ms: int) -> None:
        ahead_ms = self.wall.ahead_ms
        tick(self, now_ms + ahead_ms - shown.setdefault(id(self), ahead_ms))

    with changed(Broker, "on_tick", on_tick):
        yield


@defect(
    "after a start, timestamps written while the clock was ahead count as the future",
    "stuck",
    tweak=focuses.with_a_clock_set_back_and_kills,
)
def records_begin_in_the_future() -> Iterator[None]:
    def since_ms(self: WallClock, timestamp_ms: int) -> int:
        return timestamp_ms - self.ahead_ms

    with changed(WallClock, "since_ms", since_ms):
        yield


@defect(
    "a marker gets the time of its decision even if the clock was ahead then",
    "clock",
    tweak=focuses.with_a_clock_set_back,
)
def markers_keep_a_clock_that_was_ahead() -> Iterator[None]:
    with (
        changed(broker_appends, "MOST_LEAD_MS", 1 << 62),
        changed(transaction_state, "MOST_LEAD_MS", 1 << 62),
    ):
        yield


@defect(
    "sessions and transactions end early when the wall clock is put forward",
    "early",
    tweak=focuses.with_a_clock_put_forward,
)
def deadlines_jump_with_the_wall_clock() -> Iterator[None]:
    with deadlines_follow_the_wall_clock():
        yield


@defect(
    "after a stop of the process deadlines are judged before the sockets are heard",
    "early",
    tweak=focuses.with_stops,
)
def judged_before_heard() -> Iterator[None]:
    with changed(Node, "hears_first", False):
        yield


@defect(
    "a member's session is as long as the shortest there may be", "early", tweak=focuses.with_groups
)
def sessions_are_cut_short() -> Iterator[None]:
    def restart_session(self: GroupMembers, member: Any, now_ms: int) -> None:
        self.set_session_end(member.member_id, now_ms + 100)

    with changed(GroupMembers, "restart_session", restart_session):
        yield


@defect(
    "a partition forgets an idle producer with its transaction open",
    "stuck",
    "aborted-read",
    "lost",
    tweak=focuses.with_expiry,
)
def open_producers_expire() -> Iterator[None]:
    def expire(self: ProducerStateManager, now_ms: int, expiration_ms: int, most: int) -> int:
        gone = [
            row for row, entry in self.producers.items() if now_ms - entry.seen_ms >= expiration_ms
        ]
        for producer_id in gone:
            del self.producers[producer_id]
            self.open_txns.pop(producer_id, None)
        return len(gone)

    with changed(ProducerStateManager, "expire", expire):
        yield


@defect(
    "retention deletes segments 600 ms too early",
    "lost",
    tweak=focuses.with_retention,
)
def retention_is_early() -> Iterator[None]:
    beyond_time = retention._beyond_time

    def early(segments: Any, retention_ms: int, wall_ms: int, most: int) -> int:
        return beyond_time(segments, retention_ms, wall_ms + 600, most)

    with changed(retention, "_beyond_time", early):
        yield


# --- what clients claim -------------------------------------------------------------------------


@defect(
    "the highest timestamp that a header claims is believed",
    "crashed",
    "lost",
    tweak=focuses.with_meddlers,
)
def claimed_times_are_believed() -> Iterator[None]:
    highest_time_delta = validate.highest_time_delta

    def claimed(body: Any, start: int, count: int) -> int:
        real = highest_time_delta(body, start, count)
        header = HEADER.unpack_from(body) if start else None
        return real if header is None else int(header[8] - header[7])

    with changed(validate, "highest_time_delta", claimed):
        yield


@defect("the records of a batch are not looked at", "taken", tweak=focuses.with_meddlers)
def bodies_are_believed() -> Iterator[None]:
    def unseen(body: Any, start: int, count: int) -> int:
        return 0

    with changed(validate, "highest_time_delta", unseen):
        yield


@defect("control batches of clients are taken", "taken", tweak=focuses.with_meddlers)
def control_batches_are_taken() -> Iterator[None]:
    with changed(validate, "CONTROL", 0):
        yield


@defect(
    "attributes that no producer has defined are written as they come",
    "crashed",
    tweak=focuses.with_meddlers,
)
def attributes_are_kept() -> Iterator[None]:
    with changed(validate, "_OF_CLIENTS", 0x7FFF):
        yield


@defect(
    "a marker of an epoch that was left behind ends what is open",
    "taken",
    tweak=focuses.with_meddlers,
)
def former_epochs_end_transactions() -> Iterator[None]:
    def check_marker(self: ProducerStateManager, *rest: Any) -> None:
        pass

    with changed(ProducerStateManager, "check_marker", check_marker):
        yield


@defect("a batch may decompress to any size", "taken", tweak=focuses.with_meddlers)
def bombs_go_off() -> Iterator[None]:
    def decompressed(codec: int, data: Any, rules: Any, at_once: Any) -> Any:
        return validate.decompress_to_memory(codec, data, 1 << 30)

    with changed(validate, "_decompressed", decompressed):
        yield


@defect(
    "a batch for a partition that was not added to its transaction is taken",
    "taken",
    "unwritten",
    tweak=focuses.with_meddlers,
)
def anybody_may_write() -> Iterator[None]:
    def verify(batches: Any, produce: Any, log: Log, records: Any) -> Code:
        return Code.NONE

    with changed(TransactionalBatches, "verify", verify):
        yield


@defect(
    "a producer's epoch may be one of the future", "taken", "crashed", tweak=focuses.with_meddlers
)
def epochs_of_the_future_pass() -> Iterator[None]:
    def current(
        found: TransactionMetadata | None, transactional_id: str, producer: Any
    ) -> TransactionMetadata:
        if found is None or found.producer_id != producer.producer_id:
            raise KafkaError(Code.INVALID_PRODUCER_ID_MAPPING)
        if found.producer_epoch > producer.producer_epoch:
            raise KafkaError(Code.PRODUCER_FENCED)
        return found

    with changed(fencing, "require_current", current):
        yield


@defect(
    "a batch that was checked elsewhere is appended without asking whether its transaction goes on",
    "stuck",
    "aborted-read",
    "torn",
    "order",
    "precommitted-read",
    tweak=focuses.with_large_batches,
)
def late_batches_are_not_verified() -> Iterator[None]:
    append, verify = ProduceHandler._append, TransactionalBatches.verify
    is_late: list[bool] = []

    def append_late(*args: Any) -> Any:
        is_late.append(len(args) > 6)
        try:
            return append(*args)
        finally:
            is_late.pop()

    def verify_early(*args: Any) -> Code:
        return Code.NONE if is_late[-1] else verify(*args)

    with (
        changed(ProduceHandler, "_append", append_late),
        changed(TransactionalBatches, "verify", verify_early),
    ):
        yield


# --- offsets that expire -------------------------------------------------------------------------


@defect(
    "the offsets of a group with members expire, too",
    "contradicted",
    "offsets",
    tweak=focuses.with_offsets_that_expire,
)
def offsets_expire_under_members() -> Iterator[None]:
    def subscribed_to_nothing(self: ClassicGroup, topic: str) -> bool:
        return False

    with changed(ClassicGroup, "is_subscribed_to", subscribed_to_nothing):
        yield


@defect(
    "the retention of offsets runs from their commits where a group is empty",
    "contradicted",
    "offsets",
    tweak=focuses.with_offsets_that_expire,
)
def offsets_expire_by_their_commits() -> Iterator[None]:
    expiry = CoordinatorGroup.expiry

    def by_commits(self: CoordinatorGroup, *args: Any, **named: Any) -> Any:
        rebalance = self.classic.rebalance
        protocol_type = rebalance.protocol_type
        if rebalance.state is State.EMPTY:
            rebalance.protocol_type = None
        try:
            return expiry(self, *args, **named)
        finally:
            rebalance.protocol_type = protocol_type

    with changed(CoordinatorGroup, "expiry", by_commits):
        yield


# --- what clients are answered-------------------------------------------------------------------


@defect(
    "readers of a topic with flush.messages=1 are shown what is not on the disk",
    "contradicted",
    "watermark",
    tweak=focuses.with_power_on_flushed_topics,
)
def shown_before_the_flush() -> Iterator[None]:
    set_config = Log.config.fset
    assert set_config is not None

    def shows_at_once(self: Log, config: Any) -> None:
        set_config(self, config)
        self.durability.waits_for_disk = False

    with changed(Log, "config", Log.config.setter(shows_at_once)):
        yield


@defect(
    "DescribeProducers lists ended transactions as open", "stuck", tweak=focuses.with_an_auditor
)
def ended_transactions_are_told_as_open() -> Iterator[None]:
    each_active_producer = ProducerStateManager.each_active_producer

    def all_open(self: ProducerStateManager) -> Iterator[Any]:
        for row in each_active_producer(self):
            yield row._replace(current_txn_start_offset=0)

    with changed(ProducerStateManager, "each_active_producer", all_open):
        yield


# --- requests without an answer ----------------------------------------------------------------


@defect("a commit that waits for its data is forgotten", "stuck")
def waiting_commits_are_forgotten() -> Iterator[None]:
    def offer(self: FlushQueue, frame: Any, entries: Any, now_ms: int) -> bool:
        self._waiting_for_frame = []
        return False

    with changed(FlushQueue, "_offer", offer):
        yield


@defect("requests that arrive while a transaction ends are dropped", "stuck")
def held_back_requests_are_dropped() -> Iterator[None]:
    after_end_of = Endings.after_end_of

    def drop(self: Endings, transactional_id: str | None, call: Any, now_ms: int) -> None:
        if transactional_id is None or not self.is_decided(transactional_id):
            after_end_of(self, transactional_id, call, now_ms)

    with changed(Endings, "after_end_of", drop):
        yield


@defect(
    "the log of a deleted topic is waited for", "stuck", tweak=focuses.with_remakes_amid_flushes
)
def deleted_logs_are_waited_for() -> Iterator[None]:
    def forget(self: FlushQueue, log: Log, now_ms: int) -> None:
        for logs in (self._next, self._later, self._in_journal, self._to_checkpoint):
            logs.pop(log, None)  # type: ignore[attr-defined]

    with changed(FlushQueue, "forget", forget):
        yield


@defect(
    "a producer with acks=0 loses its connection even if its batches are appended",
    "refused",
    tweak=focuses.with_unanswered_batches,
)
def unanswered_batches_cost_the_connection() -> Iterator[None]:
    hang_up = ProduceHandler._hang_up_if_failed

    def hang_up_always(broker: Any, produce: Any) -> None:
        produce.failed = True
        hang_up(broker, produce)

    with changed(ProduceHandler, "_hang_up_if_failed", hang_up_always):
        yield


@defect(
    "snapshots of producers stay when retention deletes their segments",
    "left",
    tweak=focuses.with_retention,
)
def snapshots_of_deleted_segments_stay() -> Iterator[None]:
    def take_none(self: ProducerSnapshots, log_start_offset: int) -> list[str]:
        return []

    with changed(ProducerSnapshots, "take_deleted", take_none):
        yield


# --- several brokers ----------------------------------------------------------------------------


def _with_brokers(scenario: Scenario) -> None:
    """Let leaders move frequently."""
    scenario.spread_over_brokers(20)


@defect("a broker goes on answering for a partition that it leads no more", "misled",
        tweak=_with_brokers)  # fmt: skip
def answer_as_a_former_leader() -> Iterator[None]:
    def partition(self: NodeTopics, topic: str, index: int) -> Any:
        return self._topics.partition(topic, index)

    with changed(NodeTopics, "partition", partition):
        yield


@defect(
    "a broker goes on coordinating what another broker took over", "misled", tweak=_with_brokers
)
def answer_as_a_former_coordinator() -> Iterator[None]:
    def is_own(self: _Edge, topic: str, key: str, context: Any) -> bool:
        return True

    with changed(_Edge, "_is_own", is_own):
        yield


@defect("another leader leads in the leader epoch of the one before", "epoch", tweak=_with_brokers)
def move_leaders_in_one_epoch() -> Iterator[None]:
    def begin_leader_epoch(self: TopicRegistry, partitions: Any) -> list[Log]:
        logs = [self.partition(name, index) for name, index in partitions]
        return [log for log in logs if log is not None]

    with changed(TopicRegistry, "begin_leader_epoch", begin_leader_epoch):
        yield


@defect("a full disk ends the broker", "crashed", tweak=focuses.with_no_space)
def no_space_is_fatal() -> Iterator[None]:
    def same(error: OSError) -> OSError:
        return error

    with changed(segment, "not_written", same), changed(log_module, "not_written", same):
        yield


@defect(
    "what is written before a marker that finds no room belongs to the decided transaction",
    "aborted-read",
    tweak=focuses.with_no_space_and_the_same_bytes,
)
def decided_transactions_take_batches() -> Iterator[None]:
    class Forgetful(set[str]):
        def add(self, element: str) -> None:
            pass

    begin = Endings.__init__

    def forgetful(self: Endings) -> None:
        begin(self)
        self.without_space = Forgetful()

    with changed(Endings, "__init__", forgetful):
        yield


@defect("a fetch that waited is kept after its response", "left")
def keep_answered_fetches() -> Iterator[None]:
    reply = Requests.reply

    def keep(self: Requests, ticket: int, response: Any) -> None:
        fetch = self._waiting_fetches.get(ticket)
        reply(self, ticket, response)
        if fetch is not None:
            self._waiting_fetches[ticket] = fetch

    with changed(Requests, "reply", keep):
        yield
