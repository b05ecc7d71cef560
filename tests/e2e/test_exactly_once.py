"""barnabas.exactly_once on the broker: what a handler gives, failures, rebalances, state, outside
sources and databases. Kills are in test_exactly_once_kills.py.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from barnabas import LocalBroker
from barnabas.exactly_once import (
    Commit,
    ConfigurationError,
    DatabaseSink,
    FatalError,
    FencedError,
    HandlerError,
    Hooks,
    Ingest,
    OffsetsDeletedError,
    Out,
    Pipeline,
    Place,
    PrometheusHooks,
    Record,
    Retry,
    StateError,
    Step,
)

pytestmark = pytest.mark.e2e
TIMEOUT_S = 120.0


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def name() -> str:
    return f"once-{uuid.uuid4().hex[:8]}"


class Shop:
    """Topics and records of a test."""

    def __init__(self, broker: LocalBroker, name: str) -> None:
        self.broker, self.name = broker, name
        self.servers = broker.bootstrap_servers

    def topic(self, suffix: str, partitions: int = 3, **configs: Any) -> str:
        return self.broker.create_topic(f"{self.name}-{suffix}", partitions, **configs)

    def publish(self, topic: str, count: int, first: int = 0) -> None:
        """Numbers as values, one of ten keys, over all partitions."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 1})
        for number in range(first, first + count):
            producer.produce(topic, str(number), f"k{number % 10}")
        assert producer.flush(30) == 0

    def read(self, topic: str) -> list[Any]:
        """All committed records."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reading",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        partitions = list(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        found, ended = [], set()  # while others write, a partition may end more than once
        deadline = time.monotonic() + TIMEOUT_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"{topic} has no end"
            for message in consumer.consume(1000, 1):
                if message.error() is None:
                    found.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        consumer.close()
        return found

    def values(self, topic: str) -> list[int]:
        return sorted(int(message.value()) for message in self.read(topic))

    def lost_producer(self) -> Producer:
        """Of an instance that hangs. Its transaction does not end by itself during a test."""
        lost = Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": f"{self.name}-lost",
                "transaction.timeout.ms": 600_000,
            }
        )
        lost.init_transactions(TIMEOUT_S)
        lost.begin_transaction()
        return lost

    def pipeline(self, reads: Any, **arguments: Any) -> Pipeline:
        arguments.setdefault("commit", Commit(seconds=0.05))
        arguments.setdefault("client", {"log_level": 2})
        arguments.setdefault("transaction_timeout_s", 60)  # no stall of the machine ends one
        return Pipeline(self.servers, self.name, reads=reads, **arguments)


@pytest.fixture
def shop(broker: LocalBroker, name: str) -> Shop:
    return Shop(broker, name)


class Noting(Hooks):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.aborts: list[str] = []
        self.commits: list[int] = []
        self.restored: list[int] = []
        self.waits: list[str] = []
        self.lost: list[Place] = []
        self.assigned = threading.Event()

    def on_abort(self, kind: str, reason: str) -> None:
        self.aborts.append(kind)

    def on_commit(self, records: int, outputs: int, seconds: float) -> None:
        self.commits.append(records)

    def on_restored(self, state: str, partition: int, records: int, seconds: float) -> None:
        self.restored.append(records)

    def on_waiting(self, what: str) -> None:
        self.waits.append(what)

    def on_assigned(self, places: Sequence[Place]) -> None:
        if places:
            self.assigned.set()

    def on_revoked(self, places: Sequence[Place], *, lost: bool) -> None:
        if lost:
            self.lost += places


class InThread(threading.Thread):
    """Runs a pipeline in a thread, and keeps its exception."""

    def __init__(self, pipeline: Any, **arguments: Any) -> None:
        super().__init__(daemon=True)
        self.pipeline, self._arguments = pipeline, arguments
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.pipeline.run(**self._arguments)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.pipeline.stop()
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


@pytest.fixture
def running() -> Iterator[Callable[..., InThread]]:
    """A function that runs a pipeline in a thread; at the end all are stopped."""
    started: list[InThread] = []

    def start(pipeline: Any, **arguments: Any) -> InThread:
        thread = InThread(pipeline, **arguments)
        started.append(thread)
        thread.start()
        return thread

    yield start
    for thread in started:
        thread.pipeline.stop()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def copy_to(pipeline: Pipeline, target: str) -> None:
    @pipeline.each
    def copy(record: Record, out: Out) -> None:
        out.send(target, record.value, key=record.key)


# --- outputs


def test_six_lines(shop: Shop, protocol: Any) -> None:
    orders, loud = shop.topic("in"), shop.topic("out", 2)
    shop.publish(orders, 200)
    pipeline = shop.pipeline(orders, group_protocol=protocol)
    copy_to(pipeline, loud)
    pipeline.run(until_end=True)
    assert shop.values(loud) == list(range(200))
    shop.publish(orders, 50, first=200)
    pipeline.run(until_end=True)  # a new member of the group begins after the last commit
    assert shop.values(loud) == list(range(250))


def test_headers_keys_partitions_and_timestamps_are_kept_as_asked(shop: Shop) -> None:
    source, target = shop.topic("in"), shop.topic("out")
    producer = Producer({"bootstrap.servers": shop.servers})
    producer.produce(source, b"v", b"k", 2, timestamp=1_700_000_000_000, headers=[("a", b"1")])
    assert producer.flush(30) == 0
    pipeline = shop.pipeline(source)

    @pipeline.each
    def forward(record: Record, out: Out) -> None:
        out.forward(target, record.value, keep_partition=True)
        out.send(target, None, key="é", headers=[("b", None)], partition=1, timestamp_ms=5)

    pipeline.run(until_end=True)
    second, first = shop.read(target)
    if first.partition() != 2:
        first, second = second, first
    assert (first.partition(), first.key(), first.value()) == (2, b"k", b"v")
    assert first.headers() == [("a", b"1")] and first.timestamp()[1] == 1_700_000_000_000
    assert (second.partition(), second.key(), second.value()) == (1, "é".encode(), None)
    assert second.headers() == [("b", None)] and second.timestamp()[1] == 5


def test_several_topics_in_and_out(shop: Shop) -> None:
    sources = [shop.topic("a"), shop.topic("b", 2)]
    even, odd = shop.topic("even"), shop.topic("odd")
    shop.publish(sources[0], 50)
    shop.publish(sources[1], 50, first=50)
    pipeline = shop.pipeline(sources)

    @pipeline.each
    def part(record: Record, out: Out) -> None:
        out.send(odd if int(record.value or b"") % 2 else even, record.value)

    pipeline.run(until_end=True)
    assert shop.values(even) == list(range(0, 100, 2))
    assert shop.values(odd) == list(range(1, 100, 2))


@pytest.mark.parametrize("commit", [Commit(50, records=10), Commit(50, bytes=100), Commit(0)])
def test_transactions_end_at_their_bounds(shop: Shop, commit: Commit) -> None:
    source, target, hooks = shop.topic("in"), shop.topic("out"), Noting()
    shop.publish(source, 100)
    pipeline = shop.pipeline(source, commit=commit, hooks=hooks)
    copy_to(pipeline, target)
    pipeline.run(until_end=True)
    assert sum(hooks.commits) == 100 and max(hooks.commits) <= 50
    assert shop.values(target) == list(range(100))


def test_an_async_handler_works_on_partitions_at_a_time_and_in_order_within_one(
    shop: Shop,
) -> None:
    source, target = shop.topic("in", 4), shop.topic("out")
    shop.publish(source, 80)
    pipeline = shop.pipeline(source)
    counts = pipeline.state("counts", default=int)
    at_work = most = 0

    @pipeline.each
    async def copy(record: Record, out: Out) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        number = counts[record.key]
        await asyncio.sleep(0.002)
        counts[record.key] = number + 1  # nothing of this partition has happened meanwhile
        out.send(target, str(counts[record.key]), key=record.key)
        at_work -= 1

    pipeline.run(until_end=True)
    assert most > 1
    assert shop.values(target) == sorted(list(range(1, 9)) * 10)


# --- failures


def test_after_an_exception_the_transaction_is_aborted_and_read_again(shop: Shop) -> None:
    source, target, hooks = shop.topic("in"), shop.topic("out"), Noting()
    shop.publish(source, 60)
    pipeline = shop.pipeline(source, retry=Retry(3, backoff_s=0.01), hooks=hooks)
    failed: Counter[bytes | None] = Counter()

    @pipeline.each
    def fail_twice(record: Record, out: Out) -> None:
        out.send(target, record.value)
        if int(record.value or b"") % 20 == 7 and failed[record.value] < 2:
            failed[record.value] += 1
            raise ValueError("not now")

    pipeline.run(until_end=True)
    assert hooks.aborts == ["handler"] * 6
    assert shop.values(target) == list(range(60))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_record_that_fails_for_good_goes_to_the_dead_letter_topic(
    shop: Shop, is_async: bool
) -> None:
    source, target, dead = shop.topic("in"), shop.topic("out"), shop.topic("dead")
    shop.publish(source, 40)
    pipeline = shop.pipeline(source, retry=Retry(2, backoff_s=0.01), dead_letter=dead)
    seen = pipeline.state("seen")

    def fail(record: Record, out: Out) -> None:
        seen[record.value] = 1
        out.send(target, record.value)
        if int(record.value or b"") % 10 == 3:
            raise ValueError("never")

    if is_async:

        @pipeline.each
        async def fail_later(record: Record, out: Out) -> None:
            await asyncio.sleep(0)
            fail(record, out)
    else:
        pipeline.each(fail)
    pipeline.run(until_end=True)
    good = [number for number in range(40) if number % 10 != 3]
    assert shop.values(target) == good
    assert shop.values(dead) == [3, 13, 23, 33]
    headers = dict(shop.read(dead)[0].headers())
    assert headers["dead-letter.message"] == b"ValueError: never"
    assert headers["dead-letter.attempts"] == b"2"
    changes = shop.read(f"{shop.name}-seen-changelog")
    assert sorted(int(message.key()) for message in changes) == good


def test_without_a_dead_letter_topic_the_pipeline_ends_and_commits_nothing_of_it(
    shop: Shop,
) -> None:
    source, target = shop.topic("in", 1), shop.topic("out")
    shop.publish(source, 10)
    pipeline = shop.pipeline(source, commit=Commit(50))

    @pipeline.each
    def fail(record: Record, out: Out) -> None:
        out.send(target, record.value)
        if record.value == b"5":
            raise ValueError("no 5")

    with pytest.raises(HandlerError, match=r"offset 5 after 1 attempt.*no 5"):
        pipeline.run(until_end=True)
    assert shop.values(target) == []
    again = shop.pipeline(source)
    copy_to(again, target)
    again.run(until_end=True)
    assert shop.values(target) == list(range(10))


def test_an_output_that_is_too_large_is_a_failure_of_its_record(shop: Shop) -> None:
    source, target, dead = shop.topic("in", 1), shop.topic("out"), shop.topic("dead")
    shop.publish(source, 10)
    pipeline = shop.pipeline(source, dead_letter=dead)

    @pipeline.each
    def grow(record: Record, out: Out) -> None:
        out.send(target, record.value)
        if record.value == b"5":
            out.send(target, b"x" * 2_000_000)

    pipeline.run(until_end=True)
    assert shop.values(target) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert shop.values(dead) == [5]


def test_a_dead_letter_that_is_too_large_ends_the_pipeline(shop: Shop) -> None:
    """The broker takes records of 1,048,588 bytes, the client sends 1,000,000."""
    source, dead = shop.topic("in", 1), shop.topic("dead")
    producer = Producer({"bootstrap.servers": shop.servers, "message.max.bytes": 1_048_000})
    producer.produce(source, b"x" * 999_990)
    assert producer.flush(30) == 0
    hooks = Noting()
    pipeline = shop.pipeline(source, dead_letter=dead, hooks=hooks)

    @pipeline.each
    def fail(record: Record, out: Out) -> None:
        if len(hooks.aborts) > 5:
            pipeline.stop()
        raise ValueError("never")

    with pytest.raises(HandlerError, match=r"never.*cannot be written to .*dead.*message\.max"):
        pipeline.run(until_end=True)
    assert shop.read(dead) == []


@pytest.mark.parametrize(
    "output",
    [
        {"value": 3},
        {"value": b"v", "key": 3},
        {"value": b"v", "headers": [("h", 3)]},
        {"value": b"v", "headers": {"h": b"3"}},
        {"value": b"v", "partition": "0"},
        {"value": b"v", "timestamp_ms": 1.5},
    ],
    ids=str,
)
def test_an_output_of_another_type_is_a_failure_of_its_record(
    shop: Shop, output: dict[str, Any]
) -> None:
    source, target, dead = shop.topic("in", 1), shop.topic("out"), shop.topic("dead")
    shop.publish(source, 10)
    pipeline = shop.pipeline(source, dead_letter=dead)

    @pipeline.each
    def mistake(record: Record, out: Out) -> None:
        if record.value == b"5":
            out.send(target, **output)
        out.send(target, record.value)

    pipeline.run(until_end=True)
    assert shop.values(target) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert shop.values(dead) == [5]
    headers = dict(shop.read(dead)[0].headers())
    assert b"int" in headers["dead-letter.message"] or b"list" in headers["dead-letter.message"]


def test_slow_async_handlers_do_not_exceed_the_transactions_time(shop: Shop) -> None:
    """The records that wait for one partition take longer than a transaction may."""
    source, target = shop.topic("in", 1), shop.topic("out", 1)
    shop.publish(source, 100)
    hooks = Noting()
    pipeline = shop.pipeline(source, hooks=hooks)

    @pipeline.each
    async def slow(record: Record, out: Out) -> None:
        await asyncio.sleep(0.03)
        out.send(target, record.value)

    pipeline.run(until_end=True)
    assert [int(message.value()) for message in shop.read(target)] == list(range(100))
    assert max(hooks.commits) < 50, "a transaction of 50 ms has as much as fits into it"


def test_an_async_handler_that_was_cancelled_is_a_failure_of_its_record(shop: Shop) -> None:
    source, target, dead = shop.topic("in", 1), shop.topic("out"), shop.topic("dead")
    shop.publish(source, 10)
    pipeline = shop.pipeline(source, dead_letter=dead)

    @pipeline.each
    async def cancelled(record: Record, out: Out) -> None:
        if record.value == b"5":
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()
            await task
        out.send(target, record.value)

    pipeline.run(until_end=True)
    assert shop.values(target) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert shop.values(dead) == [5]


def test_a_second_process_with_the_same_instance_name_ends_the_first(
    shop: Shop, running: Callable[..., InThread]
) -> None:
    source, target = shop.topic("in"), shop.topic("out")
    hooks = Noting()
    first = shop.pipeline(source, instance="one", hooks=hooks)
    second = shop.pipeline(source, instance="one")
    copy_to(first, target)
    copy_to(second, target)
    fenced = running(first)
    assert hooks.assigned.wait(TIMEOUT_S)
    shop.publish(source, 20)
    eventually(lambda: len(shop.values(target)) == 20)
    successor = running(second)
    shop.publish(source, 20, first=20)
    eventually(lambda: len(shop.values(target)) == 40)
    eventually(lambda: not fenced.is_alive())
    with pytest.raises(FencedError, match="Another process runs with the same"):
        fenced.end()
    successor.end()
    assert shop.values(target) == list(range(40))


def test_records_that_were_deleted_unread_are_not_skipped_silently(shop: Shop) -> None:
    source, target = shop.topic("in", 1), shop.topic("out")
    shop.publish(source, 20)
    pipeline = shop.pipeline(source)
    copy_to(pipeline, target)
    pipeline.run(until_end=True)
    shop.publish(source, 20)
    admin = AdminClient({"bootstrap.servers": shop.servers})
    place = TopicPartition(source, 0, 30)
    admin.delete_records([place])[place].result(30)
    with pytest.raises(OffsetsDeletedError, match=r"no offset 20 any more.*reset-offsets"):
        pipeline.run(until_end=True)


def test_a_topic_that_does_not_exist_is_named(shop: Shop) -> None:
    pipeline = shop.pipeline(f"{shop.name}-none")
    copy_to(pipeline, "out")
    with pytest.raises(ConfigurationError, match=f"no such topic: {shop.name}-none"):
        pipeline.run()


@pytest.mark.parametrize("by", ["pipeline", "dead letter", "ingest"])
def test_an_output_topic_that_does_not_exist_is_named(by: str) -> None:
    """The broker does not create it. The client only reports, after 10 s, that a record was not
    delivered, and the broker has aborted the transaction by then.
    """
    client = {"log_level": 0}
    with LocalBroker(topics={"in": 1}, settings={"auto.create.topics.enable": "false"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("in", b"v")
        assert producer.flush(30) == 0
        servers = broker.bootstrap_servers
        each: Any = Pipeline(servers, "app", reads="in", dead_letter="none", client=client)
        if by == "ingest":
            each = Ingest(servers, "app", Numbers(3), client=client)

        @each.each
        def send(_: object, out: Out) -> None:
            if by == "dead letter":
                raise ValueError("never")
            out.send("none", b"v")

        with pytest.raises(ConfigurationError, match=r"no such topic: none\. .*auto\.create"):
            each.run()


def test_a_broker_that_cannot_be_reached_ends_it() -> None:
    pipeline = Pipeline("127.0.0.1:1", "app", reads="in", client={"log_level": 0})
    copy_to(pipeline, "out")
    with pytest.raises(FatalError, match=r"no answer from 127\.0\.0\.1:1.*the address"):
        pipeline.run()


# --- a broker that restarts


def test_a_broker_that_is_killed_during_commits_costs_no_record(
    running: Callable[..., InThread],
) -> None:
    """Most kills hit a call that adds the offsets, as the pipeline does little else."""
    with LocalBroker(topics={"in": 1, "out": 1}) as broker:
        shop = Shop(broker, "app")
        hooks = Noting()
        pipeline = shop.pipeline(
            "in", commit=Commit(seconds=0.01), client={"log_level": 0}, hooks=hooks
        )
        copy_to(pipeline, "out")
        thread = running(pipeline)
        count = 0
        for _ in range(6):
            for _ in range(100):  # one transaction after the other, while the broker is killed
                shop.publish("in", 1, first=count)
                count += 1
            broker.kill()
            broker.start()
            seen = len(hooks.commits)
            shop.publish("in", 1, first=count)
            count += 1
            eventually(lambda seen=seen: len(hooks.commits) > seen or not thread.is_alive())
        eventually(lambda: len(shop.values("out")) == count or not thread.is_alive())
        thread.end()
        assert shop.values("out") == list(range(count))


# --- rebalances


def test_each_record_is_handled_once_while_instances_come_and_go(
    shop: Shop, running: Callable[..., InThread], protocol: Any
) -> None:
    """A rebalance in mid-transaction commits what was handled before partitions go."""
    source, target = shop.topic("in", 4), shop.topic("out")
    total = 0

    def instance() -> InThread:
        pipeline = shop.pipeline(source, group_protocol=protocol, commit=Commit(0.5))
        counts = pipeline.state("counts", default=int)

        @pipeline.each
        def count(record: Record, out: Out) -> None:
            counts[record.key] += 1
            out.send(target, f"{record.key!r} {counts[record.key]}")

        return running(pipeline)

    def more() -> None:
        nonlocal total
        shop.publish(source, 100)
        total += 100

    first = instance()
    more()
    eventually(lambda: bool(shop.read(target)))
    second = instance()
    more()
    third = instance()
    more()
    eventually(lambda: len(shop.read(target)) == total)
    first.end()
    more()
    third.end()
    more()
    eventually(lambda: len(shop.read(target)) == total)
    second.end()
    found = sorted(message.value().decode() for message in shop.read(target))
    each = total // 10
    assert found == sorted(
        f"{f'k{key}'.encode()!r} {count}" for key in range(10) for count in range(1, each + 1)
    )


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_that_were_lost_are_not_committed(
    shop: Shop, running: Callable[..., InThread], strategy: str
) -> None:
    """A handler that takes longer than max.poll.interval.ms: another instance has the partitions,
    and has handled the record, when it returns.
    """
    source, target, hooks = shop.topic("in", 1), shop.topic("out"), Noting()
    consumer = {
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": 1000,
        "max.poll.interval.ms": 1000,
    }
    slow = shop.pipeline(source, hooks=hooks, consumer=consumer, transaction_timeout_s=60)
    entered, go_on = threading.Event(), threading.Event()

    @slow.each
    def wait(record: Record, out: Out) -> None:
        entered.set()
        go_on.wait(TIMEOUT_S)
        out.send(target, record.value)

    first = running(slow)
    shop.publish(source, 20)
    assert entered.wait(TIMEOUT_S)
    other = shop.pipeline(source, consumer={"partition.assignment.strategy": strategy})
    copy_to(other, target)
    second = running(other)
    eventually(lambda: len(shop.values(target)) == 20)
    go_on.set()
    # the hook of the lost partitions is called before the one of the abort
    eventually(lambda: bool(hooks.lost and hooks.aborts))
    assert hooks.aborts[0] in ("lost", "rebalance")
    shop.publish(source, 10, first=20)
    eventually(lambda: len(shop.values(target)) >= 30)
    first.end()
    second.end()
    assert shop.values(target) == list(range(30))


# --- state: KIP-129's cases


def counting(shop: Shop, source: str, target: str, **arguments: Any) -> Pipeline:
    pipeline = shop.pipeline(source, **arguments)
    counts = pipeline.state("counts", default=int)

    @pipeline.each
    def count(record: Record, out: Out) -> None:
        counts[record.key] += 1
        out.send(target, str(counts[record.key]), key=record.key)

    return pipeline


def last_counts(shop: Shop, topic: str) -> dict[bytes, int]:
    return {message.key(): int(message.value()) for message in shop.read(topic)}


def test_state_is_restored_from_the_changelog(shop: Shop) -> None:
    # contract: kip-129/state
    source, target = shop.topic("in"), shop.topic("out")
    for run in range(1, 4):
        shop.publish(source, 100)
        hooks = Noting()
        counting(shop, source, target, hooks=hooks).run(until_end=True)
        assert set(last_counts(shop, target).values()) == {10 * run}
        assert last_counts(shop, f"{shop.name}-counts-changelog") == last_counts(shop, target)
        assert (sum(hooks.restored) > 0) == (run > 1)


def test_with_a_checkpoint_only_the_tail_is_read(shop: Shop, tmp_path: Path) -> None:
    source, target = shop.topic("in"), shop.topic("out")
    shop.publish(source, 100)
    counting(shop, source, target, state_dir=tmp_path).run(until_end=True)
    shop.publish(source, 100)
    hooks = Noting()
    counting(shop, source, target, state_dir=tmp_path, hooks=hooks).run(until_end=True)
    assert hooks.restored == [0, 0, 0]
    shop.publish(source, 10)
    counting(shop, source, target).run(until_end=True)  # the checkpoint does not see this run
    hooks = Noting()
    counting(shop, source, target, state_dir=tmp_path, hooks=hooks).run(until_end=True)
    assert sum(hooks.restored) == 10
    shop.publish(source, 10)
    for path in tmp_path.rglob("*.db"):
        path.write_bytes(b"damaged" * 1000)
    hooks = Noting()
    counting(shop, source, target, state_dir=tmp_path, hooks=hooks).run(until_end=True)
    assert sum(hooks.restored) >= 10
    assert set(last_counts(shop, target).values()) == {22}


def test_an_aborted_transaction_leaves_no_change_of_state(shop: Shop) -> None:
    """In memory nor in the changelog: what read_committed would not show is not restored."""
    source, target = shop.topic("in", 1), shop.topic("out")
    shop.publish(source, 50)
    pipeline = shop.pipeline(source, retry=Retry(2, backoff_s=0.01), commit=Commit(50, records=7))
    counts = pipeline.state("counts", default=int)
    failed: set[int] = set()

    @pipeline.each
    def count(record: Record, out: Out) -> None:
        counts[record.key] += 1
        out.send(target, str(counts[record.key]), key=record.key)
        if record.offset % 5 == 4 and record.offset not in failed:
            failed.add(record.offset)
            raise ValueError("at first")

    pipeline.run(until_end=True)
    assert len(failed) == 10
    assert set(last_counts(shop, target).values()) == {5}
    assert len(shop.read(target)) == 50
    hooks = Noting()
    shop.publish(source, 10)
    counting(shop, source, target, hooks=hooks).run(until_end=True)
    assert set(last_counts(shop, target).values()) == {6}


def test_a_transaction_that_hangs_on_the_changelog_is_waited_for_in_words(
    shop: Shop, running: Callable[..., InThread]
) -> None:
    """What a lost instance has written is committed or not only when its transaction has ended."""
    source, target = shop.topic("in"), shop.topic("out")
    shop.publish(source, 100)
    counting(shop, source, target).run(until_end=True)
    changelog = f"{shop.name}-counts-changelog"
    lost = shop.lost_producer()
    for partition in range(3):
        lost.produce(changelog, b"99", b"k0", partition)
    assert lost.flush(30) == 0
    hooks = Noting()
    shop.publish(source, 10)
    thread = running(counting(shop, source, target, hooks=hooks))
    # a slow coordinator is waited for in other words
    eventually(lambda: any("open transaction at offset" in each for each in hooks.waits))
    assert all("timeout" in each for each in hooks.waits)
    assert not hooks.restored and len(shop.read(target)) == 100
    lost.abort_transaction(30)
    eventually(lambda: len(shop.read(target)) == 110)
    thread.end()
    assert set(last_counts(shop, target).values()) == {11}


def test_offsets_in_a_transaction_that_hangs_are_waited_for_in_words(
    shop: Shop, running: Callable[..., InThread]
) -> None:
    source, target = shop.topic("in", 1), shop.topic("out")
    shop.publish(source, 10)
    lost = shop.lost_producer()
    consumer = Consumer({"bootstrap.servers": shop.servers, "group.id": shop.name})
    metadata = consumer.consumer_group_metadata()
    lost.send_offsets_to_transaction([TopicPartition(source, 0, 5)], metadata, 30)
    hooks = Noting()
    pipeline = shop.pipeline(source, hooks=hooks)
    copy_to(pipeline, target)
    thread = running(pipeline)
    eventually(lambda: bool(hooks.waits))
    assert "in a transaction that has not ended" in hooks.waits[0]
    lost.commit_transaction(30)
    eventually(lambda: len(shop.values(target)) == 5)
    thread.end()
    consumer.close()


def test_state_is_restored_while_the_broker_restarts(tmp_path: Path) -> None:
    """The broker begins another leader epoch, and the client refuses to notice by itself."""

    class Restarting(Hooks):
        def on_step(self, step: Step) -> None:
            if step is Step.BEFORE_RESTORE and not has_restarted.is_set():
                has_restarted.set()
                broker.kill()
                broker.start()

    has_restarted = threading.Event()
    # the broker that was killed may have known a member that nobody has heard of
    settings = {"group.min.session.timeout.ms": "1000"}
    with LocalBroker(tmp_path, topics={"in": 2, "out": 1}, settings=settings) as broker:
        shop = Shop(broker, "app")
        for first, hooks in ((0, None), (40, Restarting())):
            shop.publish("in", 40, first=first)
            pipeline = shop.pipeline(
                "in", hooks=hooks, consumer={"session.timeout.ms": 3000}, client={"log_level": 0}
            )
            counts = pipeline.state("counts", default=int)

            @pipeline.each
            def count(record: Record, out: Out, counts: Any = counts) -> None:
                counts[record.key] += 1
                out.send("out", str(counts[record.key]))

            thread = InThread(pipeline, until_end=True)
            thread.start()
            thread.join(TIMEOUT_S)
            thread.end()
        assert has_restarted.is_set()
        assert shop.values("out") == sorted(list(range(1, 9)) * 10)


def test_several_states_are_one_transaction_and_deletion_is_kept(shop: Shop) -> None:
    source, target = shop.topic("in"), shop.topic("out")
    shop.publish(source, 30)

    def run() -> dict[str, int]:
        pipeline = shop.pipeline(source)
        totals = pipeline.state("totals", default=int)
        last = pipeline.state("last")
        found: dict[str, int] = {}

        @pipeline.each
        def count(record: Record, out: Out) -> None:
            totals[record.key] += int(record.value or b"")
            if record.key == b"k3":
                last.pop(record.key, None)
            else:
                last[record.key] = record.value.decode() if record.value else ""
            found.update({key: totals[key] for key in totals})
            out.send(target, json.dumps(sorted(last)))

        pipeline.run(until_end=True)
        return found

    run()
    shop.publish(source, 1, first=100)  # k0
    assert run()["k0"] == 0 + 10 + 20 + 100
    assert b"k3" not in last_keys(shop, f"{shop.name}-last-changelog")


def last_keys(shop: Shop, topic: str) -> set[bytes]:
    return {key for key, value in ((m.key(), m.value()) for m in shop.read(topic)) if value}


def test_state_of_several_topics_is_assigned_together(
    shop: Shop, running: Callable[..., InThread], protocol: Any
) -> None:
    """Partition n of both topics has one state, also while instances come and go."""
    sources = [shop.topic("a", 4), shop.topic("b", 4)]
    target = shop.topic("out")

    def instance() -> InThread:
        pipeline = shop.pipeline(sources, group_protocol=protocol)
        counts = pipeline.state("counts", default=int)

        @pipeline.each
        def count(record: Record, out: Out) -> None:
            counts[record.key] += 1
            out.send(target, f"{counts[record.key]}", key=record.key)

        return running(pipeline)

    first = instance()
    for source in sources:
        shop.publish(source, 100)
    eventually(lambda: bool(shop.read(target)))
    second = instance()
    for source in sources:
        shop.publish(source, 100)
    eventually(lambda: len(shop.read(target)) == 400)
    first.end()
    shop.publish(sources[0], 100)
    eventually(lambda: len(shop.read(target)) == 500)
    second.end()
    assert shop.values(target) == sorted(list(range(1, 51)) * 10)


def test_partitions_that_are_added_to_the_input_have_no_state_and_end_it(
    shop: Shop, running: Callable[..., InThread]
) -> None:
    source, target = shop.topic("in", 1), shop.topic("out")
    shop.publish(source, 10)
    pipeline = shop.pipeline(
        source, client={"topic.metadata.refresh.interval.ms": 200, "log_level": 2}
    )
    pipeline.state("counts", default=int)
    copy_to(pipeline, target)
    thread = running(pipeline)
    eventually(lambda: len(shop.values(target)) == 10)
    admin = AdminClient({"bootstrap.servers": shop.servers})
    admin.create_partitions([NewPartitions(source, 2)])[source].result(30)
    eventually(lambda: not thread.is_alive())
    with pytest.raises(ConfigurationError, match=r"number of partitions was changed.*keys"):
        thread.end()


def test_topics_with_different_numbers_of_partitions_have_no_common_state(shop: Shop) -> None:
    pipeline = shop.pipeline([shop.topic("a", 2), shop.topic("b", 3)])
    pipeline.state("counts")
    copy_to(pipeline, "out")
    with pytest.raises(ConfigurationError, match="same number"):
        pipeline.run()


@pytest.mark.parametrize(
    ("partitions", "policy", "message"),
    [(2, "compact", "keys have moved"), (3, "delete", "cleanup.policy=compact")],
)
def test_a_changelog_that_does_not_fit_is_refused(
    shop: Shop, partitions: int, policy: str, message: str
) -> None:
    source = shop.topic("in", 3)
    shop.topic("counts-changelog", partitions, **{"cleanup.policy": policy})
    with pytest.raises(ConfigurationError, match=message):
        counting(shop, source, "out").run()


def test_state_is_for_handlers_only(shop: Shop) -> None:
    counts = shop.pipeline("in").state("counts")
    with pytest.raises(StateError):
        len(counts)


# --- metrics


def test_metrics_have_prometheus_names(shop: Shop) -> None:
    from prometheus_client import CollectorRegistry

    source, target, registry = shop.topic("in"), shop.topic("out"), CollectorRegistry()
    shop.publish(source, 30)
    counting(shop, source, target, hooks=PrometheusHooks("app", registry)).run(until_end=True)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(
            f"barnabas_pipeline_{name}", {"application": "app", **labels}
        )

    assert value("records_total") == value("outputs_total") == 30
    assert value("commit_seconds_count")
    assert value("assigned_partitions") == 0
    assert value("restore_seconds_count", state="counts") == 3


# --- from an outside source


class Numbers:
    """A source of numbers, which counts what it was asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[int | None] = []

    def read(self, after: int | None) -> Iterator[tuple[int, int] | None]:
        self.asked.append(after)
        for number in range(-1 if after is None else after, self.count - 1):
            if number % 7 == 0:
                yield None
            yield number + 1, number + 1


def test_a_source_is_read_again_from_the_committed_position(shop: Shop) -> None:
    target = shop.topic("out")
    source = Numbers(100)
    failures = 3

    def ingest() -> Ingest[int, int]:
        made = Ingest(
            shop.servers,
            shop.name,
            source,
            commit=Commit(50, records=7),
            retry=Retry(2, 0.01),
            transaction_timeout_s=60,
        )

        @made.each
        def send(number: int, out: Out) -> None:
            nonlocal failures
            out.send(target, str(number))
            if number == 50 and failures:
                failures -= 1
                raise ValueError("not yet")

        return made

    with pytest.raises(HandlerError, match="not yet"):
        ingest().run()
    assert source.asked == [None, 48]
    assert shop.values(target) == list(range(49))
    ingest().run()
    assert source.asked == [None, 48, 48, 48]
    assert shop.values(target) == list(range(100))
    source.count = 120
    last = ingest()
    last.run()
    assert source.asked[-1] == 99 and last.position == 119
    assert shop.values(target) == list(range(120))


def test_a_second_process_for_the_same_split_fences_the_first(
    shop: Shop, running: Callable[..., InThread]
) -> None:
    target = shop.topic("out")
    entered, go_on = threading.Event(), threading.Event()

    def ingest(waits: bool) -> Ingest[int, int]:
        made: Ingest[int, int] = Ingest(
            shop.servers, shop.name, Numbers(40), commit=Commit(50), transaction_timeout_s=60
        )

        @made.each
        def send(number: int, out: Out) -> None:
            out.send(target, str(number))
            if waits and number == 20:
                entered.set()
                go_on.wait(TIMEOUT_S)

        return made

    first = running(ingest(True))
    assert entered.wait(TIMEOUT_S)
    ingest(False).run()
    go_on.set()
    eventually(lambda: not first.is_alive())
    with pytest.raises(FencedError):
        first.end()
    assert shop.values(target) == list(range(40))


# --- into a database


def sink_into(shop: Shop, path: Path, source: str, **arguments: Any) -> DatabaseSink:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=30)
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number int)")
        return connection

    return DatabaseSink(
        shop.servers,
        shop.name,
        reads=source,
        connect=connect,
        placeholder="?",
        batch=7,
        client={"log_level": 2},
        **arguments,
    )


def numbers_in(path: Path) -> list[int]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT number FROM numbers ORDER BY 1").fetchall()
    return [row[0] for row in rows]


def insert(cursor: Any, records: Sequence[Record]) -> None:
    cursor.executemany(
        "INSERT INTO numbers VALUES (?)", [(int(record.value or b""),) for record in records]
    )


def test_rows_and_offsets_are_stored_together(shop: Shop, tmp_path: Path, protocol: Any) -> None:
    source, path = shop.topic("in"), tmp_path / "numbers.db"
    shop.publish(source, 100)
    sink = sink_into(shop, path, source, group_protocol=protocol)
    sink.each_batch(insert)
    sink.run(until_end=True)
    assert numbers_in(path) == list(range(100))
    shop.publish(source, 20, first=100)
    failing = sink_into(shop, path, source, retry=Retry(2, 0.01))
    calls = 0

    @failing.each_batch
    def fail(cursor: Any, records: Sequence[Record]) -> None:
        nonlocal calls
        calls += 1
        insert(cursor, records)
        raise ValueError("after the rows")

    with pytest.raises(HandlerError, match="after the rows"):
        failing.run(until_end=True)
    assert calls == 2 and numbers_in(path) == list(range(100))
    sink.run(until_end=True)
    assert numbers_in(path) == list(range(120))


def test_a_writer_that_was_superseded_reads_from_the_stored_offsets(
    shop: Shop, tmp_path: Path
) -> None:
    """While the first writer is at work, a second one, which is in no group with it, stores the
    same records.
    """
    source, path, hooks = shop.topic("in"), tmp_path / "numbers.db", Noting()
    shop.publish(source, 50)
    first = sink_into(shop, path, source, hooks=hooks)
    calls = 0

    @first.each_batch
    def slow(cursor: Any, records: Sequence[Record]) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            with sqlite3.connect(path, timeout=30) as connection:
                other = connection.cursor()
                insert(other, records)
                for record in records:
                    other.execute(
                        "UPDATE consumer_offsets SET next_offset = ? WHERE partition_number = ?",
                        (record.offset + 1, record.partition),
                    )
        insert(cursor, records)

    first.run(until_end=True)
    assert hooks.aborts == ["rebalance"]
    assert numbers_in(path) == list(range(50))


def test_a_lost_connection_to_the_database_is_opened_again(shop: Shop, tmp_path: Path) -> None:
    source, path, hooks = shop.topic("in"), tmp_path / "numbers.db", Noting()
    shop.publish(source, 50)
    sink = sink_into(shop, path, source, hooks=hooks)
    calls = 0

    @sink.each_batch
    def lose(cursor: Any, records: Sequence[Record]) -> None:
        nonlocal calls
        calls += 1
        insert(cursor, records)
        if calls in (2, 4):
            raise sqlite3.OperationalError("the server has gone")

    sink.run(until_end=True)
    assert hooks.aborts == ["error", "error"]
    assert numbers_in(path) == list(range(50))


def test_a_connection_in_autocommit_mode_is_refused(shop: Shop, tmp_path: Path) -> None:
    """Its rows would be stored without their offsets."""
    source, path = shop.topic("in"), tmp_path / "numbers.db"
    shop.publish(source, 10)
    sink = DatabaseSink(
        shop.servers,
        shop.name,
        reads=source,
        connect=lambda: sqlite3.connect(path, isolation_level=None),
        placeholder="?",
        client={"log_level": 2},
    )
    sink.each_batch(insert)
    with pytest.raises(ConfigurationError, match="autocommit"):
        sink.run(until_end=True)
