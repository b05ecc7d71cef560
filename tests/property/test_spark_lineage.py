"""The sink under copied and restored checkpoints, several drivers, expired groups and kills at each
step. No row is ever duplicated, or lost without an error.

The sink is the real one: `StreamWriter.commit`, its decisions, its files in real checkpoint
directories, its attempts. Its surroundings are models: a driver that handles `offsets/N` and
`commits/N` as Spark does, and brokers that follow the protocols of transactions and groups. The
naive model is the set of the source's rows that are in the sink.

  after each batch that a driver completed without an error
        all rows of the source that pass the filter, up to the batch's end, are in the sink
  always
        no row is in the sink twice

The query writes by `format("barnabas")`, or by a batch write in foreachBatch
(`BatchWriter.commit`). Both have to keep the same promise.

A driver that gets a SinkError stops, and its unfinished batch is not checked. With one checkpoint
and one driver at a time no driver stops, no matter when it is killed or how long it publishes
nothing. There is one exception: a driver that was killed within an attempt and stays down until the
group's offsets have expired.

Other drivers run in the middle of an attempt: before each of its requests, and between its reads
and its writes. Drivers are killed at these points, and before and after each file is written. Time
passes between batches, but not within an attempt, since `offsets.retention.minutes` is longer than
any pause of a driver between two requests.

Some rows are published by the driver, others by tasks in their own transactions
(task_transactions.py), on brokers with and without two-phase commit. Other attempts of these tasks
leave transactions with the same rows, before a batch is committed or long afterwards. Their
transactional ids come from the real pool. With two-phase commit, transactions that no driver keeps
may time out at any time. After the first batch of a single driver, and after each batch that its
tasks write, no transaction is open: a later batch without rows sends no request, so a transaction
of a late attempt stays open until the next such batch. Without two-phase commit no timeouts are
modelled, since a timeout between a decision and its EndTxns loses rows.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark")

from helpers.examples import drawn
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from barnabas.client.errors import PassingError
from barnabas.protocol.records import NewRecord, encode_batch, records_of
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write import sink
from barnabas.spark_connector.write.checkpoint import NAME, Checkpoint, CheckpointPlace
from barnabas.spark_connector.write.deduplication import CommittedBatch, GroupState, parse_note
from barnabas.spark_connector.write.produce_request import Producer
from barnabas.spark_connector.write.publishing import Publisher
from barnabas.spark_connector.write.sink import BatchWriter, SinkError, StreamWriter, TaskMessage
from barnabas.spark_connector.write.sink_options import parse_sink_options
from barnabas.spark_connector.write.spool import to_message
from barnabas.spark_connector.write.task_parts import NO_RUN, run_token
from barnabas.spark_connector.write.task_transactions import (
    ENDED,
    NO_TIMEOUT_MS,
    OPEN,
    Described,
    Held,
    TaskTransaction,
)
from barnabas.spark_connector.write.transactional_ids import TransactionalIds
from barnabas.spark_connector.write.transactional_producer import FencedError

pytestmark = pytest.mark.deep

QUERY = "query"
GROUP = "barnabas-spark-query"
KEPT_BATCHES = 2  # how many batches keep their files, like spark.sql.streaming.minBatchesToRetain
SCHEMA = StructType().add("value", StringType())


class Killed(BaseException):
    """A SIGKILL of the driver, which then executes no further step and no cleanup."""


def _kill() -> None:
    raise Killed


@dataclass
class TaskSession:
    """A transactional id of tasks, and its most recent transaction. `ends_as` is the producer that
    may end the transaction.
    """

    writer: Producer
    ends_as: Producer
    rows: list[bytes] = field(default_factory=list)
    state: str = "Empty"
    # The producer that ended the transaction, and whether it committed.
    ended: tuple[Producer, bool] | None = None
    lasts: bool = False  # whether no timeout ends the transaction

    def end(self, *, commit: bool) -> list[bytes]:
        """End the transaction, and return the rows that become readable."""
        self.state = "CompleteCommit" if commit else "CompleteAbort"
        self.ended = self.ends_as, commit
        return self.rows if commit else []


@dataclass
class Brokers:
    """The brokers of one query, with the topic, the metadata committed in its two groups, and the
    tasks' transactional ids.
    """

    topic: list[bytes] = field(default_factory=list)
    committed: tuple[int, str, tuple[str, ...]] | None = None
    begun: tuple[int, str] | None = None
    epoch: int = 0
    keeps: bool = True  # whether the brokers have two-phase commit
    driver_id: str = GROUP  # the drivers' transactional id
    ids: dict[str, TaskSession] = field(default_factory=dict)

    def forget(self) -> None:
        """Let the group's offsets expire."""
        self.committed = None

    @property
    def open_ids(self) -> list[str]:
        return sorted(name for name, each in self.ids.items() if each.state == OPEN)

    @property
    def kept_ids(self) -> list[str]:
        """The ids with an open transaction that no timeout ends."""
        return [name for name in self.open_ids if self.ids[name].lasts]

    def write_as_task(self, name: str, rows: list[bytes]) -> TaskTransaction:
        """Begin a task's session, and write rows in a transaction."""
        before = self.ids.get(name)
        if before is None:
            number = len(self.ids)
            producer = Producer(number, 0)
        else:
            if before.state == OPEN:
                before.end(commit=False)
            last = max(before.writer, before.ends_as)
            producer = Producer(last.producer_id, last.epoch + 2)
        self.ids[name] = TaskSession(producer, producer, rows, OPEN)
        return TaskTransaction(name, producer)

    def time_out(self) -> None:
        """Let all open transactions that no driver keeps time out."""
        for each in self.ids.values():
            if each.state == OPEN and not each.lasts:
                each.end(commit=False)
                each.ends_as = each.writer = Producer(
                    each.writer.producer_id, each.writer.epoch + 1
                )


class ModelCoordinators:
    """The coordinators of the tasks' transactional ids, as a driver sees them."""

    def __init__(self, brokers: Brokers, steps: Steps) -> None:
        self._brokers, self._steps = brokers, steps

    @property
    def keeps(self) -> bool:
        return self._brokers.keeps

    def close(self) -> None:
        """Do nothing, since the model has no connections."""

    def open_ids(self, prefix: str) -> list[str]:
        self._steps.reach()
        return [name for name in self._brokers.open_ids if name.startswith(prefix)]

    def describe(self, ids: Sequence[str]) -> dict[str, Described]:
        """The state and the producer of each id."""
        self._steps.reach()
        found = self._brokers.ids
        return {
            name: Described(
                found[name].state, found[name].writer, NO_TIMEOUT_MS if found[name].lasts else 1
            )
            for name in ids
        }

    def hold(self, ids: Sequence[str], *, lasting: bool) -> dict[str, Held]:
        """Keep the open transactions of these ids, as InitProducerId with keepPreparedTxn does.
        Return the ones that are open.
        """
        held = {}
        for name in ids:
            self._steps.reach()
            session = self._brokers.ids[name]
            if session.state != OPEN:
                continue
            if self._brokers.keeps:
                session.ends_as = Producer(session.ends_as.producer_id, session.ends_as.epoch + 1)
                session.lasts |= lasting
                held[name] = Held(session.writer, session.ends_as)
            else:
                held[name] = Held(session.writer, session.writer)
        return held

    def abort_kept(self, ids: Sequence[str]) -> None:
        """Abort the open transactions of the ids, as InitProducerId without flags does."""
        for name in ids:
            self._steps.reach()
            session = self._brokers.ids[name]
            if session.state == OPEN:
                session.end(commit=False)
                session.writer = session.ends_as = Producer(
                    session.ends_as.producer_id, session.ends_as.epoch + 2
                )

    def end(self, ends: Mapping[str, Producer], *, commit: bool) -> list[str]:
        """End the transactions, and return the ids whose end was refused."""
        refused = []
        for name, producer in ends.items():
            self._steps.reach()
            session = self._brokers.ids[name]
            if session.state == OPEN and session.ends_as == producer:
                self._brokers.topic += session.end(commit=commit)
                self._steps.reach()  # a driver that is killed here does not learn that it succeeded
            elif session.ended != (producer, commit):
                refused.append(name)
        return refused


class Steps:
    """What happens before a step of the running driver: nothing, a kill, or a run of other drivers.
    If `act` is not None, it runs before step number `at`, counted from the start of a batch.
    """

    def __init__(self) -> None:
        self.at, self.act = 0, None  # type: int, Callable[[], None] | None
        self.turns: Turns | None = None

    def plan(self, at: int, act: Callable[[], None] | None) -> None:
        self.at, self.act = at, act

    def reach(self) -> None:
        """Run what is planned for the driver's next step."""
        if self.turns is not None:
            self.turns.reach()
        if self.act is None:
            return
        self.at -= 1
        if self.at < 0:
            act, self.act = self.act, None
            act()


class Turns:
    """Two concurrent drivers that take turns: one runs for a number of steps, then the other."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = list(lengths)
        self._current, self._alive = 0, {0, 1}
        self._changed = threading.Condition()
        self._mine = threading.local()
        self._failures: list[BaseException] = []

    def run(self, *drivers: Callable[[], None]) -> None:
        """Run two drivers in threads, of which one works at a time."""
        threads = [
            threading.Thread(target=self._drive, args=(number, driver))
            for number, driver in enumerate(drivers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self._failures, self._failures

    def _drive(self, number: int, driver: Callable[[], None]) -> None:
        """Run a driver in its turns. When it ends, the other driver gets all turns."""
        self._mine.number = number
        try:
            self.reach()
            driver()
        except BaseException as error:
            self._failures.append(error)
        finally:
            with self._changed:
                self._alive.remove(number)
                self._current = 1 - number
                self._changed.notify_all()

    def reach(self) -> None:
        """Wait for this driver's turn, and pass the turn on after the planned number of steps."""
        with self._changed:
            self._changed.wait_for(lambda: self._current == self._mine.number)
            if self._lengths and len(self._alive) == 2:
                self._lengths[0] -= 1
                if self._lengths[0] < 0:
                    del self._lengths[0]
                    self._current = 1 - self._current
                    self._changed.notify_all()
            self._changed.wait_for(lambda: self._current == self._mine.number)


class ModelProducer:
    """The producer of successive attempts. The model supplies the brokers' responses."""

    def __init__(self, brokers: Brokers, steps: Steps) -> None:
        self._brokers, self._steps = brokers, steps
        self._epoch, self._rows = -1, []  # type: int, list[bytes]
        self.record_count = self.byte_count = 0
        self.transactional_id = brokers.driver_id

    def begin(self) -> None:
        """Begin a session, which fences all earlier ones."""
        self._steps.reach()
        self._brokers.epoch += 1
        self._epoch, self._rows, self.record_count = self._brokers.epoch, [], 0

    def group_state(self, *, with_begun: bool = False) -> GroupState:
        self._steps.reach()
        return GroupState(_as_offsets(self._brokers.committed), _as_offsets(self._brokers.begun))

    def check_session(self) -> None:
        self._steps.reach()
        if self._epoch != self._brokers.epoch:
            raise FencedError("fenced")

    def announce(self, topics: Any, offset: int, metadata_text: str) -> None:
        self.commit(topics, offset, metadata_text)

    def note_begun(self, topics: Any, offset: int, metadata_text: str) -> None:
        """Commit the begun note, outside of a transaction."""
        assert topics
        self._steps.reach()
        self._brokers.begun = offset, metadata_text

    def send(self, record_batch: EncodedRecordBatch) -> None:
        self._steps.reach()
        self._rows += [record.value or b"" for record in records_of(record_batch.data)]
        self.record_count += record_batch.record_count

    def commit(
        self, topics: Any, offset: int, metadata_text: str, more: Sequence[str] = ()
    ) -> None:
        """Commit rows and offset together, unless the session is fenced."""
        assert topics
        self._steps.reach()
        if self._epoch != self._brokers.epoch:
            raise FencedError("fenced")
        self._brokers.topic += self._rows
        self._brokers.committed = offset, metadata_text, tuple(more)
        self._epoch = -1
        self._steps.reach()  # a driver that is killed here does not learn that it succeeded

    def abort(self) -> None:
        self._rows = []

    def forget_connections(self) -> None:
        self._epoch = -1

    def advice(self, error: PassingError) -> str:
        return str(error)


def _as_offsets(each: tuple[Any, ...] | None) -> dict[str, CommittedBatch]:
    return {} if each is None else {"t": CommittedBatch(each[0], parse_note(each[1]), *each[2:])}


class StepwiseCheckpoint(Checkpoint):
    """A checkpoint in which each write counts as two steps."""

    steps: Steps

    def write(self, trail: Any) -> None:
        self.steps.reach()
        super().write(trail)
        self.steps.reach()


def _transaction_of(message: WriterCommitMessage | None) -> TaskTransaction | None:
    """The transaction that a task wrote, or None if it wrote no rows by itself."""
    return message.transaction if isinstance(message, TaskMessage) else None


@dataclass
class Driver:
    """A run of the query on a checkpoint, with the part of Spark that numbers batches."""

    directory: Path
    run: str
    limit: int
    ways: tuple[int, ...] = ()  # how rows are published (see `_messages`)
    is_running: bool = True
    next_batch: int | None = None
    position: int = 0  # the offset in the source at which the next batch begins

    def _end_of(self, batch_id: int) -> int:
        text = (self.directory / "offsets" / str(batch_id)).read_text() if batch_id >= 0 else "{}"
        return int(json.loads(text).get("end", 0))

    def plan(self, available: int, time: int) -> tuple[int, int, int] | None:
        """The number, start and end of the next batch. It is either new, or one that an earlier
        driver planned.
        """
        offsets, commits = self.directory / "offsets", self.directory / "commits"
        if self.next_batch is None:
            last = max((int(path.name) for path in offsets.iterdir()), default=-1)
            is_done = last < 0 or (commits / str(last)).exists()
            self.next_batch = last + is_done
            self.position = self._end_of(self.next_batch - 1)
            if not is_done:
                return last, self.position, self._end_of(last)
        end = min(available, self.position + self.limit)
        if end == self.position:
            return None
        file = offsets / str(self.next_batch)
        if file.exists():  # CONCURRENT_STREAM_LOG_UPDATE
            self.is_running = False
            return None
        file.write_text(json.dumps({"end": end, "time": time}))
        return self.next_batch, self.position, end

    def done(self, number: int, end: int) -> None:
        """Log the batch as Spark does, and delete old files."""
        (self.directory / "commits" / str(number)).write_text("{}")
        for kind in ("offsets", "commits"):
            for path in (self.directory / kind).iterdir():
                if int(path.name) <= number - KEPT_BATCHES:
                    path.unlink()
        self.next_batch, self.position = number + 1, end


STEP = st.integers(0, 30)
BY_DRIVER, BY_TASK, BY_TASK_WITH_A_LOSER, BY_TASK_WITH_A_ZOMBIE = range(4)
WAYS = st.lists(st.integers(0, 3), max_size=3).map(tuple)
LIMIT = st.integers(1, 4)
PASSES = st.lists(st.booleans(), min_size=1, max_size=4)


class Lineages(RuleBasedStateMachine):
    """One query with its checkpoint, copies of the checkpoint, and their drivers."""

    drivers = Bundle("drivers")
    checkpoints = Bundle("checkpoints")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.root = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.brokers, self.steps = Brokers(), Steps()
        self.source: list[bool] = []  # whether each row passes the filter
        self.running: list[Driver] = []
        self.names = self.time = 0
        self.runs: set[str] = set()  # the runs of drivers that completed a batch
        self.zombies: list[list[bytes]] = []  # the rows of task attempts that write later
        self.is_alone = True  # whether no driver was ever overtaken
        self.in_each = False  # whether foreachBatch writes
        self.sink_mode = "auto"
        self.said = ""  # the last error of a driver
        StepwiseCheckpoint.steps = self.steps
        for target, name, value in (
            (sink, "Publisher", lambda *_: self._publisher()),
            (sink, "driver_publisher", lambda *_: self._publisher()),
            (sink, "Checkpoint", StepwiseCheckpoint),
            (sink, "_without_traceback", SinkError),
        ):
            self.stack.enter_context(mock.patch.object(target, name, value))

    def teardown(self) -> None:
        self.stack.close()

    def _publisher(self) -> Publisher:
        """A publisher whose producer and coordinators are those of the model."""
        publisher = Publisher(self._writer(0).options.client)
        producer = ModelProducer(self.brokers, self.steps)
        publisher._producer_for = lambda *_: producer  # type: ignore[method-assign,assignment,return-value]
        coordinators = ModelCoordinators(self.brokers, self.steps)
        publisher._coordinators_of = lambda _: coordinators  # type: ignore[method-assign]
        return publisher

    def _name(self, what: str) -> str:
        self.names += 1
        return f"{what}-{self.names}"

    def _writer(self, number: int) -> StreamWriter | BatchWriter:
        """The writer of a batch: the query's, or that of a write in foreachBatch."""
        options = {"kafka.bootstrap.servers": "x:1", "topic": "t", "checkpointlocation": "/there"}
        options["sinkmode"] = self.sink_mode
        if not self.in_each:
            return StreamWriter(parse_sink_options(options, streaming=True), SCHEMA)
        options |= {"writeid": QUERY, "batchid": str(number)}
        return BatchWriter(parse_sink_options(options, streaming=False), SCHEMA)

    # --- what happens

    @initialize(target=checkpoints, keeps=st.booleans(), in_each=st.booleans())
    def first_checkpoint(self, keeps: bool = True, in_each: bool | None = None) -> Path:
        self.brokers.keeps = keeps
        self.in_each = self.in_each if in_each is None else in_each
        if self.in_each:
            self.brokers.driver_id = f"{GROUP}-t"
        directory = self.root / self._name("checkpoint")
        for part in ("offsets", "commits"):
            (directory / part).mkdir(parents=True)
        (directory / "metadata").write_text(json.dumps({"id": QUERY}))
        return directory

    @rule(passes=PASSES)
    def write_to_the_source(self, passes: list[bool]) -> None:
        self.source += passes

    @rule(target=drivers, directory=checkpoints, limit=LIMIT, ways=WAYS)
    def start(self, directory: Path, limit: int, ways: tuple[int, ...] = ()) -> Driver:
        """Start a driver on the checkpoint."""
        driver = Driver(directory, self._name("run"), limit, ways)
        self.running.append(driver)
        return driver

    @rule(target=checkpoints, directory=checkpoints)
    def copy(self, directory: Path) -> Path:
        """Copy a checkpoint, as for a second deployment."""
        copy = self.root / self._name("checkpoint")
        shutil.copytree(directory, copy)
        return copy

    @rule(directory=checkpoints, backup=checkpoints)
    def restore(self, directory: Path, backup: Path) -> None:
        """Replace a checkpoint by a copy, as from a backup. The drivers of the checkpoint are
        stopped.
        """
        if directory == backup:
            return
        for driver in self.running:
            driver.is_running &= driver.directory != directory
        shutil.rmtree(directory)
        shutil.copytree(backup, directory)

    @rule()
    def retention(self) -> None:
        self.brokers.forget()

    @rule(keeps=st.booleans())
    def setting_of_two_phase_commit(self, keeps: bool) -> None:
        """Restart the brokers with two-phase commit turned on or off."""
        self.brokers.keeps = keeps

    @rule()
    def time_passes(self) -> None:
        """Let open transactions time out."""
        # Without two-phase commit the timeout might come between a decision and its EndTxns.
        if self.brokers.keeps:
            self.brokers.time_out()

    @rule()
    def late_attempt(self) -> None:
        """Let a task of an earlier batch write now. Its executor was believed dead."""
        if self.zombies:
            name = self._name(f"{self.brokers.driver_id}/late.z")
            self.brokers.write_as_task(name, self.zombies.pop())

    @rule(passes=PASSES, directory=checkpoints, limit=LIMIT, ways=WAYS, batches=st.integers(1, 4))
    def go_on(
        self,
        passes: list[bool],
        directory: Path,
        limit: int,
        batches: int,
        ways: tuple[int, ...] = (),
    ) -> None:
        """Start a driver on a checkpoint, run batches with old rows and new ones, and stop it."""
        self.source += passes
        driver = self.start(directory, limit, ways)
        for _ in range(batches):
            self._run(driver)
        driver.is_running = False

    @rule(directory=checkpoints, limit=LIMIT, at=STEP, ways=WAYS)
    def killed_batch(
        self, directory: Path, limit: int, at: int, ways: tuple[int, ...] = ()
    ) -> None:
        """Start a driver and kill it at a step of its first batch."""
        self._run(self.start(directory, limit, ways), at, _kill)

    @rule(driver=drivers, batches=st.integers(1, 5))
    def batch(self, driver: Driver, batches: int) -> None:
        for _ in range(batches):
            self._run(driver)

    @rule(
        driver=drivers,
        other=checkpoints,
        limit=LIMIT,
        at=STEP,
        batches=st.integers(1, 3),
        ways=WAYS,
        killed_at=st.none() | STEP,
    )
    def overtaken_batch(
        self,
        driver: Driver,
        other: Path,
        limit: int,
        at: int,
        batches: int,
        ways: tuple[int, ...],
        killed_at: int | None,
    ) -> None:
        """Run other drivers in the middle of this driver's batch, as if this driver were believed
        dead.
        """

        def overtake() -> None:
            successor = self.start(other, limit, ways)
            for _ in range(batches - 1):
                self._run(successor)
            if killed_at is None:
                self._run(successor)
            else:
                self._run(successor, killed_at, _kill)
            successor.is_running = False

        self.is_alone = False

        self._run(driver, at, overtake)

    # --- a batch

    def _run(self, driver: Driver, at: int = 0, act: Callable[[], None] | None = None) -> None:
        """Run the driver's next batch. Call `act` before step number `at`."""
        if not driver.is_running:
            return
        self.time += 1
        planned = driver.plan(len(self.source), self.time)
        if planned is None:
            return
        number, start, end = planned
        messages = self._messages(driver, start, end, number)
        self.steps.plan(at, act)
        self._commit(driver, messages, number, end)

    def _commit(
        self,
        driver: Driver,
        messages: list[WriterCommitMessage | None],
        number: int,
        end: int,
    ) -> None:
        """Commit a batch whose tasks have ended."""
        writer = self._writer(number)
        try:
            if isinstance(writer, StreamWriter):
                writer.commit(messages, number)
            else:
                writer.commit(messages)
            self.steps.reach()
        except Killed:
            driver.is_running = False
            return
        except SinkError as error:
            driver.is_running, self.said = False, str(error)
            with suppress(Killed):
                if isinstance(writer, StreamWriter):
                    writer.abort(messages, number)
                else:
                    writer.abort(messages)
            return
        finally:
            self.steps.plan(0, None)
            self._nothing_is_doubled()
        if driver.is_running:  # the driver was not killed during the batch
            driver.done(number, end)
            self._nothing_is_lost(end)
            is_first = driver.run not in self.runs
            self.runs.add(driver.run)
            if self.is_alone and (is_first or any(_transaction_of(each) for each in messages)):
                left = self.brokers.open_ids if self.brokers.keeps else self.brokers.kept_ids
                assert not left, "left open"

    def _messages(
        self, driver: Driver, start: int, end: int, number: int
    ) -> list[WriterCommitMessage | None]:
        """The messages of a batch's tasks. There is one task for each way of publishing, and the
        rows are distributed among the tasks.
        """
        values = [b"%d" % row for row in range(start, end) if self.source[row]]
        ways = driver.ways or (BY_DRIVER,)
        return [
            self._message(driver, values[task :: len(ways)], way, number)
            for task, way in enumerate(ways)
        ]

    def prepared(self, driver: Driver) -> Callable[[], None]:
        """Run the tasks of the driver's next batch. Return a function that commits the batch."""
        self.time += 1
        planned = driver.plan(len(self.source), self.time)
        assert planned is not None
        number, start, end = planned
        messages = self._messages(driver, start, end, number)
        return lambda: self._commit(driver, messages, number, end)

    def _message(self, driver: Driver, values: list[bytes], way: int, number: int) -> TaskMessage:
        """A task's message. It has either the rows for the driver, or the transaction that the task
        has written.
        """
        batches = []
        transaction = None
        if values and way != BY_DRIVER:
            if way == BY_TASK_WITH_A_LOSER:
                self._write_as_task(driver, values, number)
            if way == BY_TASK_WITH_A_ZOMBIE:
                self.zombies.append(values)
            transaction = self._write_as_task(driver, values, number)
        elif values:
            records = [NewRecord(None, value, 1) for value in values]
            data = encode_batch(records, transactional=True)
            batches.append(EncodedRecordBatch("t", 0, len(values), data))
        return TaskMessage(
            QUERY,
            to_message(batches),
            None,
            len(values),
            frozenset("t" if values else ""),
            run=driver.run,
            place=CheckpointPlace(str(driver.directory)),
            transaction=transaction,
            query_id=QUERY,
            query_batch=str(number),
        )

    def _write_as_task(self, driver: Driver, values: list[bytes], number: int) -> TaskTransaction:
        """Write rows as `open_task_writer` would."""
        run = NO_RUN if self.in_each else run_token(driver.run)
        ids = TransactionalIds(self.brokers.driver_id, run, str(self.root / "ids"))
        name = ids.new()
        for earlier in ids.take(number):
            if self.brokers.ids[earlier].state in ENDED:
                name = earlier
                break
        transaction = self.brokers.write_as_task(name, values)
        ids.put_back(name, number)
        return transaction

    def _nothing_is_doubled(self) -> None:
        assert len(set(self.brokers.topic)) == len(self.brokers.topic), self.brokers.topic

    def _nothing_is_lost(self, end: int) -> None:
        """Check that all rows of the logged batches are in the topic."""
        wanted = {b"%d" % row for row in range(end) if self.source[row]}
        missing = wanted - set(self.brokers.topic)
        assert not missing, f"lost: {sorted(missing)}"


ONE_AFTER_THE_OTHER = st.one_of(
    st.tuples(st.just("write"), PASSES),
    st.tuples(st.just("batch"), st.none()),
    st.tuples(st.just("restart"), LIMIT),
    st.tuples(st.just("kill"), STEP),
    st.tuples(st.just("forget"), st.none()),
    st.tuples(st.just("late"), st.none()),
)


@settings(max_examples=drawn(60))
@example(
    actions=[
        ("write", [True]), ("batch", None), ("late", None), ("write", [False]), ("batch", None),
        ("write", [True]), ("batch", None),
    ],
    ways=(BY_TASK_WITH_A_ZOMBIE,),
    keeps=True,
)  # fmt: skip
@given(actions=st.lists(ONE_AFTER_THE_OTHER, max_size=40), ways=WAYS, keeps=st.booleans())
def test_drivers_one_after_the_other_write_every_row_without_an_error(
    actions: list[tuple[str, Any]], ways: tuple[int, ...], keeps: bool
) -> None:
    """The drivers are restarted and killed, offsets expire and late tasks write. Offsets do not
    expire while a killed batch is unfinished, since that could rightly stop the next driver.
    """
    world = Lineages()
    try:
        directory = world.first_checkpoint(keeps)
        driver, is_cut_off = world.start(directory, 2, ways), False
        for what, value in actions:
            if what == "write":
                world.write_to_the_source(value)
            elif what == "forget" and not is_cut_off:
                world.retention()
            elif what == "restart":
                driver.is_running = False
                driver = world.start(directory, value, ways)
            elif what == "kill":
                driver.is_running = False
                world.killed_batch(directory, 2, value, ways)
                is_cut_off = True
            elif what == "late":
                world.late_attempt()
            elif what == "batch":
                if not driver.is_running:
                    driver = world.start(directory, 2, ways)
                world.batch(driver, 1)
                assert driver.is_running, "it stopped"
                is_cut_off = False
        driver = world.start(directory, 1, ways)
        world.batch(driver, len(world.source) + 1)
        assert driver.is_running and driver.position == len(world.source)
        assert len(world.brokers.topic) == sum(world.source)
    finally:
        world.teardown()


# --- schedules that random ones seldom come to


@pytest.fixture(params=[False, True], ids=["stream", "foreachBatch"])
def world(request: pytest.FixtureRequest) -> Iterator[Lineages]:
    """A world of drivers and checkpoints, cleaned up at the end."""
    world = Lineages()
    world.in_each = request.param
    yield world
    world.teardown()


def ran(world: Lineages, directory: Path, *, limit: int, batches: int = 9) -> bool:
    """Run the query from start to end, and return whether it ended without an error."""
    driver = world.start(directory, limit)
    world.batch(driver, batches)
    is_fine, driver.is_running = driver.is_running, False
    return is_fine


def test_an_older_checkpoint_stops_at_its_first_batch_though_that_has_no_rows(
    world: Lineages,
) -> None:
    """The checkpoint is replaced by an older copy, whose next batch was already committed with
    other rows. The query must stop there with an error, although the new batch has no rows.
    """
    directory = world.first_checkpoint()
    world.write_to_the_source([True])
    assert ran(world, directory, limit=1)
    backup = world.copy(directory)
    world.write_to_the_source([False, True])
    assert ran(world, directory, limit=2)
    world.restore(directory, backup)
    assert not ran(world, directory, limit=1, batches=1), "with the batch that has no rows"
    assert not ran(world, directory, limit=2), "it goes on with that batch, and stops again"
    assert world.brokers.topic == [b"0", b"2"]


def test_a_copied_checkpoint_continues_after_a_batch_without_rows(world: Lineages) -> None:
    """In a blue/green deployment the original's last batch has no rows and leaves no note, so the
    group's note is the one of the copy.
    """
    directory = world.first_checkpoint()
    world.write_to_the_source([True])
    assert ran(world, directory, limit=1)
    copy = world.copy(directory)
    world.write_to_the_source([False, True])
    original = world.start(directory, 1)
    world.batch(original, 1)
    assert ran(world, copy, limit=2)
    world.batch(original, 1)
    assert not original.is_running and world.brokers.topic == [b"0", b"2"]


def test_after_the_groups_offsets_expired_only_an_older_checkpoint_is_stopped(
    world: Lineages,
) -> None:
    """Each call of `retention` removes the sink group's offsets. The query's own checkpoint
    continues without them, and an older copy of the checkpoint is stopped.
    """
    directory = world.first_checkpoint()
    running = world.start(directory, 1)
    world.write_to_the_source([True])
    world.batch(running, 1)
    backup = world.copy(directory)
    for number in range(1, 4):
        world.retention()
        world.write_to_the_source([number % 2 == 1, True])
        world.batch(running, 2)
        assert running.is_running
        world.retention()
        assert ran(world, directory, limit=1, batches=1)
        running = world.start(directory, 1)
    world.retention()
    assert not ran(world, backup, limit=1)
    assert len(world.brokers.topic) == sum(world.source)


def test_a_query_of_an_earlier_release_continues(world: Lineages) -> None:
    """The earlier release noted only its first batch, and Spark has deleted the plan of the last
    batch with rows.
    """
    directory = world.first_checkpoint()
    world.write_to_the_source([True, True] + [False] * 2 * KEPT_BATCHES)
    assert ran(world, directory, limit=1)
    earlier = {"version": 1, "group": "g", "batch": 0, "state": "done"}
    (directory / NAME).write_text(json.dumps(earlier))
    world.write_to_the_source([False, False, True])
    assert ran(world, directory, limit=1, batches=1), "without rows"
    assert ran(world, directory, limit=1), "with rows"
    assert len(world.brokers.topic) == 3


def test_an_older_begun_note_of_a_hung_driver_leads_to_an_error_not_to_duplicates(
    world: Lineages,
) -> None:
    """The driver hangs at its begun note, and a successor commits two batches. The successor is
    killed before Spark logs the second one, and the group's offsets expire.
    """
    directory = world.first_checkpoint()
    world.write_to_the_source([True] * 3)
    hung = world.start(directory, 1)
    world.batch(hung, 1)

    def overtake() -> None:
        successor = world.start(directory, 1)
        world.batch(successor, 1)  # the same batch
        world._run(successor, 7, _kill)  # the next batch, which the successor commits
        assert not successor.is_running

    world._run(hung, 4, overtake)  # the driver hangs at its begun note
    assert not hung.is_running and world.brokers.topic == [b"0", b"1", b"2"]
    begun = _as_offsets(world.brokers.begun)["t"]
    assert begun.planned.batch_id == 1, "the schedule is as it should be"
    world.retention()
    assert not ran(world, directory, limit=1)
    assert world.brokers.topic == [b"0", b"1", b"2"]


# --- tasks' transactions: all schedules of one kill, and of a driver that another one overtakes

WRITTEN = [(BY_TASK, BY_TASK), (BY_DRIVER, BY_TASK_WITH_A_LOSER), (BY_TASK_WITH_A_ZOMBIE,)]
STEPS = 30  # a number above the steps of any batch
each_world = pytest.mark.parametrize(
    ("keeps", "in_each"),
    [(True, False), (False, False), (True, True)],
    ids=["two-phase", "plain", "foreachBatch"],
)
each_way = pytest.mark.parametrize("ways", WRITTEN, ids=["tasks", "both", "zombies"])


def ended(world: Lineages, directory: Path, ways: tuple[int, ...]) -> None:
    """Let a last driver finish, and check that every row is in the topic once."""
    world.is_alone = True
    world.late_attempt()
    last = world.start(directory, 2, ways)
    world.batch(last, 9)
    assert last.is_running, "it stopped"
    assert sorted(world.brokers.topic) == [b"%d" % row for row in range(len(world.source))]


@each_world
@each_way
def test_each_row_is_written_once_if_a_driver_is_killed_at_any_step(
    keeps: bool, in_each: bool, ways: tuple[int, ...]
) -> None:
    """The killed driver's successor is killed as well, at the same step or a later one."""
    for at in range(STEPS):
        for next_at in (at, at + 4, STEPS):
            with a_world(keeps, ways, batches=at % 2, in_each=in_each) as (
                world,
                directory,
                driver,
            ):
                world._run(driver, at, _kill)
                is_over, driver.is_running = driver.is_running, False
                world.killed_batch(directory, 2, next_at, ways)
                ended(world, directory, ways)
        if is_over:
            return
    raise AssertionError("a batch has more steps")


@each_world
@each_way
def test_each_row_is_written_once_if_a_driver_is_overtaken_at_any_step(
    keeps: bool, in_each: bool, ways: tuple[int, ...]
) -> None:
    """The successor may be killed at another step. After that the first driver continues."""
    for at in range(STEPS):
        for killed_at in (None, *range(at % 4, STEPS, 4)):
            with a_world(keeps, ways, batches=at % 2, in_each=in_each) as (
                world,
                directory,
                driver,
            ):
                world.overtaken_batch(driver, directory, 2, at, 1, ways, killed_at)
                world.batch(driver, 1)
                driver.is_running = False
                ended(world, directory, ways)


@pytest.mark.parametrize("ways", WRITTEN, ids=["tasks", "both", "zombies"])
def test_a_timeout_at_any_step_fails_a_batch_before_its_decision_or_has_no_effect(
    ways: tuple[int, ...],
) -> None:
    for at in range(STEPS):
        with a_world(True, ways, batches=at % 2) as (world, directory, driver):
            world._run(driver, at, world.brokers.time_out)
            is_stopped, driver.is_running = not driver.is_running, False
            assert not world.brokers.open_ids or not is_stopped, "a failed attempt left it open"
            ended(world, directory, ways)


def test_a_driver_that_writes_itself_aborts_task_transactions_of_a_killed_driver() -> None:
    with a_world(True, (BY_TASK,), batches=0) as (world, directory, driver):
        world._run(driver, 0, _kill)
        assert world.brokers.open_ids
        world.batch(world.start(directory, 2), 1)
        assert not world.brokers.open_ids and world.brokers.topic == [b"0", b"1"]


@pytest.mark.parametrize("in_each", [False, True], ids=["stream", "foreachBatch"])
@pytest.mark.parametrize("keeps", [True, False], ids=["driver", "off"])
def test_what_a_killed_driver_kept_is_ended_by_the_next_start_whatever_the_mode_is_then(
    keeps: bool, in_each: bool
) -> None:
    """A driver is killed at any step of a batch that its tasks wrote. The next one writes by
    itself (sinkMode=driver), or the brokers' two-phase commit was turned off. A transaction that
    is decided can only be committed with it: the query says so, until it is turned on again.
    """
    kept, told = 0, 0
    for at in range(STEPS):
        with a_world(True, (BY_TASK,), batches=at % 2, in_each=in_each) as (world, path, driver):
            world._run(driver, at, _kill)
            is_over, driver.is_running = driver.is_running, False
            kept += bool(world.brokers.kept_ids)
            world.brokers.keeps = keeps
            world.sink_mode, ways = ("driver", ()) if keeps else ("tasks", (BY_TASK,))
            successor = world.start(path, 2, ways)
            world.batch(successor, 1)
            if not successor.is_running:
                assert not keeps and "transaction.two.phase.commit.enable=true" in world.said
                told, world.brokers.keeps = told + 1, True
            ended(world, path, ways)
            assert not world.brokers.kept_ids
        if is_over:
            assert kept > 1 and (keeps or 0 < told < kept)
            return
    raise AssertionError("a batch has more steps")


FEW_TURNS = product([4, 8], [9, 11, 13, 15], [3, 5, 7], [4, STEPS])


@settings(max_examples=drawn(12))
@given(
    lengths=st.tuples(*(st.integers(0, 14) for _ in range(5))),
    ways=st.sampled_from(WRITTEN),
    keeps=st.booleans(),
    batches=st.integers(0, 1),
)
def test_each_row_is_written_once_if_two_drivers_take_turns(
    lengths: tuple[int, ...], ways: tuple[int, ...], keeps: bool, batches: int
) -> None:
    """The tasks of both drivers have written, for the same batch or for two successive batches."""
    with a_world(keeps, ways, batches=0) as (world, directory, zombie):
        world.is_alone = False
        done = world.prepared(zombie)
        world.batch(world.start(directory, 2, ways), batches)
        successor = world.start(directory, 2, ways)
        next_done = world.prepared(successor)
        world.steps.turns = Turns(lengths)
        world.steps.turns.run(done, next_done)
        world.steps.turns = None
        zombie.is_running = successor.is_running = False
        ended(world, directory, ways)


for few_turns in FEW_TURNS:
    for of_two_phase, count in ((True, 0), (True, 1), (False, 0), (False, 1)):
        test_each_row_is_written_once_if_two_drivers_take_turns = example(
            lengths=few_turns, ways=WRITTEN[0], keeps=of_two_phase, batches=count
        )(test_each_row_is_written_once_if_two_drivers_take_turns)


@contextmanager
def a_world(
    keeps: bool, ways: tuple[int, ...], *, batches: int, in_each: bool = False
) -> Iterator[tuple[Lineages, Path, Driver]]:
    """A world with six rows, and a driver that has run `batches` batches."""
    world = Lineages()
    try:
        directory = world.first_checkpoint(keeps, in_each)
        world.write_to_the_source([True] * 6)
        driver = world.start(directory, 2, ways)
        world.batch(driver, batches)
        yield world, directory, driver
    finally:
        world.teardown()


Lineages.TestCase.settings = settings(
    max_examples=drawn(75),
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
TestLineages = Lineages.TestCase
