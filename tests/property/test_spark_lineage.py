"""The sink in a world that copies and restores checkpoints, runs several drivers, forgets groups,
and kills at each step: a row is never doubled and never lost without a word.

The sink is the real one: `StreamWriter.commit`, its decisions, its files in real checkpoint
directories, its attempts. What is made up is around it: a driver that does what Spark does with
`offsets/N` and `commits/N`, and brokers that keep to the protocol of transactions and groups. The
naive model is a set: which rows of the source are in the sink.

    after each batch that a driver ended without an error
        all rows of the source up to its end that pass the filter are in the sink
    always
        no row is in the sink twice

A driver that stops in words (SinkError) ends; nothing is asked of what it did not end. With one
checkpoint and one driver at a time none stops, whatever kills it and however long nothing is
published, but where it is down for longer than the group's offsets last after it was killed within
an attempt.

Other drivers run in the middle of an attempt, before any of its requests, and while it waits
between what it read and what it writes; drivers are killed there, and before and after each file is
written. Time passes between batches, not within an attempt: `offsets.retention.minutes` is longer
than a driver hangs between two requests.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule
from pyspark.sql.types import StringType, StructType

from barnabas.protocol.records import NewRecord, encode_batch, records_of
from barnabas.spark_connector import sink
from barnabas.spark_connector.checkpoint import NAME, Checkpoint, CheckpointPlace
from barnabas.spark_connector.connection import PassingError
from barnabas.spark_connector.deduplication import CommittedBatch, GroupState, parse_note
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.publishing import Publisher
from barnabas.spark_connector.sink import SinkError, StreamWriter, TaskMessage
from barnabas.spark_connector.sink_options import parse_sink_options
from barnabas.spark_connector.spool import to_message
from barnabas.spark_connector.transactional_producer import FencedError

QUERY = "query"
KEPT_BATCHES = 2  # of Spark's files, spark.sql.streaming.minBatchesToRetain
SCHEMA = StructType().add("value", StringType())


class Killed(BaseException):
    """SIGKILL of the driver: nothing of it goes on, not even what cleans up."""


@dataclass
class Brokers:
    """The topic, the two groups and the transactional id of one query."""

    topic: list[bytes] = field(default_factory=list)
    committed: tuple[int, str] | None = None
    begun: tuple[int, str] | None = None
    epoch: int = 0

    def forget(self) -> None:
        """The offsets' retention is over."""
        self.committed = None


class Steps:
    """What happens before the next steps of the driver that runs: nothing, a kill, other drivers.

    `act` is None, or what is done before step `at`, counted from the start of a batch.
    """

    def __init__(self) -> None:
        self.at, self.act = 0, None  # type: int, Callable[[], None] | None

    def plan(self, at: int, act: Callable[[], None] | None) -> None:
        self.at, self.act = at, act

    def reach(self) -> None:
        """A step of a driver."""
        if self.act is None:
            return
        self.at -= 1
        if self.at < 0:
            act, self.act = self.act, None
            act()


class ModelProducer:
    """The producer of one attempt after the other, as the brokers answer it."""

    def __init__(self, brokers: Brokers, steps: Steps) -> None:
        self._brokers, self._steps = brokers, steps
        self._epoch, self._rows = -1, []  # type: int, list[bytes]
        self.record_count = self.byte_count = 0

    def begin(self) -> None:
        self._steps.reach()
        self._brokers.epoch += 1
        self._epoch, self._rows, self.record_count = self._brokers.epoch, [], 0

    def group_state(self, *, with_begun: bool = False) -> GroupState:
        assert with_begun
        self._steps.reach()
        return GroupState(*(_as_offsets(each) for each in self._notes))

    @property
    def _notes(self) -> tuple[tuple[int, str] | None, tuple[int, str] | None]:
        return self._brokers.committed, self._brokers.begun

    def announce(self, topics: Any, offset: int, metadata_text: str) -> None:
        self.commit(topics, offset, metadata_text)

    def note_begun(self, topics: Any, offset: int, metadata_text: str) -> None:
        assert topics
        self._steps.reach()
        self._brokers.begun = offset, metadata_text

    def send(self, record_batch: EncodedRecordBatch) -> None:
        self._steps.reach()
        self._rows += [record.value or b"" for record in records_of(record_batch.data)]
        self.record_count += record_batch.record_count

    def commit(self, topics: Any, offset: int, metadata_text: str) -> None:
        self._steps.reach()
        if self._epoch != self._brokers.epoch:
            raise FencedError("fenced")
        self._brokers.topic += self._rows
        self._brokers.committed = offset, metadata_text
        self._epoch = -1
        self._steps.reach()  # killed here, the driver does not know

    def abort(self) -> None:
        self._rows = []

    def forget_connections(self) -> None:
        self._epoch = -1

    def advice(self, error: PassingError) -> str:
        return str(error)


def _as_offsets(each: tuple[int, str] | None) -> dict[str, CommittedBatch]:
    return {} if each is None else {"t": CommittedBatch(each[0], parse_note(each[1]))}


class StepwiseCheckpoint(Checkpoint):
    """A checkpoint whose writing is a step, too."""

    steps: Steps

    def write(self, trail: Any) -> None:
        self.steps.reach()
        super().write(trail)
        self.steps.reach()


@dataclass
class Driver:
    """One run of the query on a checkpoint: the part of Spark that numbers batches."""

    directory: Path
    run: str
    limit: int
    is_running: bool = True
    next_batch: int | None = None
    position: int = 0  # in the source, where the next batch begins

    def _end_of(self, batch_id: int) -> int:
        text = (self.directory / "offsets" / str(batch_id)).read_text() if batch_id >= 0 else "{}"
        return int(json.loads(text).get("end", 0))

    def plan(self, available: int, time: int) -> tuple[int, int, int] | None:
        """The batch to run: number, start and end; the one of a driver before, or a new one."""
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
        (self.directory / "commits" / str(number)).write_text("{}")
        for kind in ("offsets", "commits"):
            for path in (self.directory / kind).iterdir():
                if int(path.name) <= number - KEPT_BATCHES:
                    path.unlink()
        self.next_batch, self.position = number + 1, end


STEP = st.integers(0, 12)
LIMIT = st.integers(1, 4)
PASSES = st.lists(st.booleans(), min_size=1, max_size=4)


class Lineages(RuleBasedStateMachine):
    """One query, its checkpoint and copies of it, and those who run them."""

    drivers = Bundle("drivers")
    checkpoints = Bundle("checkpoints")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.root = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.brokers, self.steps = Brokers(), Steps()
        self.source: list[bool] = []  # of each row, whether it passes the filter
        self.running: list[Driver] = []
        self.names = self.time = 0
        StepwiseCheckpoint.steps = self.steps
        for target, name, value in (
            (sink, "Publisher", lambda *_: self._publisher()),
            (sink, "Checkpoint", StepwiseCheckpoint),
            (sink, "_without_traceback", SinkError),
        ):
            self.stack.enter_context(mock.patch.object(target, name, value))

    def teardown(self) -> None:
        self.stack.close()

    def _publisher(self) -> Publisher:
        publisher = Publisher(self.writer.options.client)
        producer = ModelProducer(self.brokers, self.steps)
        publisher._producer_for = lambda *_: producer  # type: ignore[method-assign,assignment,return-value]
        return publisher

    def _name(self, what: str) -> str:
        self.names += 1
        return f"{what}-{self.names}"

    # --- what happens

    @initialize(target=checkpoints)
    def first_checkpoint(self) -> Path:
        options = {"kafka.bootstrap.servers": "x:1", "topic": "t"}
        self.writer = StreamWriter(parse_sink_options(options, streaming=True), SCHEMA)
        directory = self.root / self._name("checkpoint")
        for part in ("offsets", "commits"):
            (directory / part).mkdir(parents=True)
        (directory / "metadata").write_text(json.dumps({"id": QUERY}))
        return directory

    @rule(passes=PASSES)
    def write_to_the_source(self, passes: list[bool]) -> None:
        self.source += passes

    @rule(target=drivers, directory=checkpoints, limit=LIMIT)
    def start(self, directory: Path, limit: int) -> Driver:
        driver = Driver(directory, self._name("run"), limit)
        self.running.append(driver)
        return driver

    @rule(target=checkpoints, directory=checkpoints)
    def copy(self, directory: Path) -> Path:
        copy = self.root / self._name("checkpoint")
        shutil.copytree(directory, copy)
        return copy

    @rule(directory=checkpoints, backup=checkpoints)
    def restore(self, directory: Path, backup: Path) -> None:
        if directory == backup:
            return
        for driver in self.running:
            driver.is_running &= driver.directory != directory
        shutil.rmtree(directory)
        shutil.copytree(backup, directory)

    @rule()
    def retention(self) -> None:
        self.brokers.forget()

    @rule(passes=PASSES, directory=checkpoints, limit=LIMIT, batches=st.integers(1, 4))
    def go_on(self, passes: list[bool], directory: Path, limit: int, batches: int) -> None:
        """A run from its start to its end, of what is there and what comes."""
        self.source += passes
        driver = self.start(directory, limit)
        for _ in range(batches):
            self._run(driver)
        driver.is_running = False

    @rule(directory=checkpoints, limit=LIMIT, at=STEP)
    def killed_batch(self, directory: Path, limit: int, at: int) -> None:
        def kill() -> None:
            raise Killed

        self._run(self.start(directory, limit), at, kill)

    @rule(driver=drivers, batches=st.integers(1, 5))
    def batch(self, driver: Driver, batches: int) -> None:
        for _ in range(batches):
            self._run(driver)

    @rule(driver=drivers, other=checkpoints, limit=LIMIT, at=STEP, batches=st.integers(1, 3))
    def overtaken_batch(
        self, driver: Driver, other: Path, limit: int, at: int, batches: int
    ) -> None:
        """Another driver runs in the middle of the batch, as of one that was thought dead."""

        def overtake() -> None:
            successor = self.start(other, limit)
            for _ in range(batches):
                self._run(successor)
            successor.is_running = False

        self._run(driver, at, overtake)

    # --- a batch

    def _run(self, driver: Driver, at: int = 0, act: Callable[[], None] | None = None) -> None:
        """The driver's next batch, with something in the middle of it."""
        if not driver.is_running:
            return
        self.time += 1
        planned = driver.plan(len(self.source), self.time)
        if planned is None:
            return
        number, start, end = planned
        self.steps.plan(at, act)
        try:
            self.writer.commit([self._message(driver, start, end)], number)
            self.steps.reach()
        except (SinkError, Killed):
            driver.is_running = False
            return
        finally:
            self.steps.plan(0, None)
            self._nothing_is_doubled()
        if driver.is_running:  # it was not killed under the batch
            driver.done(number, end)
            self._nothing_is_lost(end)

    def _message(self, driver: Driver, start: int, end: int) -> TaskMessage:
        values = [b"%d" % row for row in range(start, end) if self.source[row]]
        batches = []
        if values:
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
        )

    def _nothing_is_doubled(self) -> None:
        assert len(set(self.brokers.topic)) == len(self.brokers.topic), self.brokers.topic

    def _nothing_is_lost(self, end: int) -> None:
        wanted = {b"%d" % row for row in range(end) if self.source[row]}
        missing = wanted - set(self.brokers.topic)
        assert not missing, f"lost: {sorted(missing)}"


ONE_AFTER_THE_OTHER = st.one_of(
    st.tuples(st.just("write"), PASSES),
    st.tuples(st.just("batch"), st.none()),
    st.tuples(st.just("restart"), LIMIT),
    st.tuples(st.just("kill"), STEP),
    st.tuples(st.just("forget"), st.none()),
)


@settings(max_examples=100, deadline=None)
@given(actions=st.lists(ONE_AFTER_THE_OTHER, max_size=40))
def test_one_driver_at_a_time_never_stops(actions: list[tuple[str, Any]]) -> None:
    world = Lineages()
    try:
        directory = world.first_checkpoint()
        driver, is_cut_off = world.start(directory, 2), False
        for what, value in actions:
            if what == "write":
                world.write_to_the_source(value)
            elif what == "forget" and not is_cut_off:
                world.retention()
            elif what == "restart":
                driver.is_running = False
                driver = world.start(directory, value)
            elif what == "kill":
                driver.is_running = False
                world.killed_batch(directory, 2, value)
                is_cut_off = True
            elif what == "batch":
                if not driver.is_running:
                    driver = world.start(directory, 2)
                world.batch(driver, 1)
                assert driver.is_running, "it stopped"
                is_cut_off = False
        driver = world.start(directory, 1)
        world.batch(driver, len(world.source) + 1)
        assert driver.is_running and driver.position == len(world.source)
        assert len(world.brokers.topic) == sum(world.source)
    finally:
        world.teardown()


# --- schedules that random ones seldom come to


@pytest.fixture
def world() -> Iterator[Lineages]:
    world = Lineages()
    yield world
    world.teardown()


def ran(world: Lineages, directory: Path, *, limit: int, batches: int = 9) -> bool:
    """A run from its start to its end. Gives: whether it ended without a word."""
    driver = world.start(directory, limit)
    world.batch(driver, batches)
    is_fine, driver.is_running = driver.is_running, False
    return is_fine


def test_an_older_checkpoint_whose_first_batch_has_no_rows_stops_at_that(world: Lineages) -> None:
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


def test_a_copy_goes_on_where_the_original_had_no_rows(world: Lineages) -> None:
    """Blue/green: the original's last batch left no note, and the copy's note is another's."""
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


def test_a_group_that_is_forgotten_stops_an_older_checkpoint_alone(world: Lineages) -> None:
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


def test_a_query_of_an_earlier_release_goes_on(world: Lineages) -> None:
    """It noted its first batch alone, and Spark has deleted the plan of the last one with rows."""
    directory = world.first_checkpoint()
    world.write_to_the_source([True, True] + [False] * 2 * KEPT_BATCHES)
    assert ran(world, directory, limit=1)
    earlier = {"version": 1, "group": "g", "batch": 0, "state": "done"}
    (directory / NAME).write_text(json.dumps(earlier))
    world.write_to_the_source([False, False, True])
    assert ran(world, directory, limit=1, batches=1), "without rows"
    assert ran(world, directory, limit=1), "with rows"
    assert len(world.brokers.topic) == 3


def test_a_driver_that_hung_sets_the_begun_note_back(world: Lineages) -> None:
    """And its successor is killed before Spark knows of its last batch, and the group forgets."""
    directory = world.first_checkpoint()
    world.write_to_the_source([True] * 3)
    hung = world.start(directory, 1)
    world.batch(hung, 1)

    def kill() -> None:
        raise Killed

    def overtake() -> None:
        successor = world.start(directory, 1)
        world.batch(successor, 1)  # the same one
        world._run(successor, 7, kill)  # the next, which is committed
        assert not successor.is_running

    world._run(hung, 4, overtake)  # at its begun note
    assert not hung.is_running and world.brokers.topic == [b"0", b"1", b"2"]
    begun = _as_offsets(world.brokers.begun)["t"]
    assert begun.planned.batch_id == 1, "the schedule is as it should be"
    world.retention()
    assert not ran(world, directory, limit=1)
    assert world.brokers.topic == [b"0", b"1", b"2"]


Lineages.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLineages = Lineages.TestCase
