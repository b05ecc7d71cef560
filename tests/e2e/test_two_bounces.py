"""From a producer for each task to one for each thread, in two rolling bounces (KIP-447).

Two instances behave as those of Kafka Streams do: they read, transform and write in transactions
with their offsets, with one of three kinds of producers:

    tasks       a producer for each input partition, with its transactional id; the offsets name
                only the group (`exactly_once` of clients before 2.5)
    aware       the same producers, but the offsets come with the member and its generation
    thread      one producer for all partitions of the instance, with generation (`exactly_once_v2`)

A new owner of a partition fences the former one by the transactional id in the first two kinds, by
the generation in the last two. So `tasks` and `thread` have nothing in common, and may not be in
one group: the first bounce leads to `aware`, the second one to `thread`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from helpers.e2e_clients import create_topic, eventually, send_all, unique, values_of

from barnabas import LocalBroker

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

PARTITIONS = 4
A_PART = 25
TIMEOUT_S = 60.0


class Instance:
    """An instance of the application, in a thread."""

    def __init__(self, servers: str, group: str, source: str, target: str, kind: str) -> None:
        self.common: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        self.group, self.source, self.target, self.kind = group, source, target, kind
        self.name = unique("instance")
        self.count = 0
        self.error: BaseException | None = None
        self._producers: dict[str, Producer] = {}
        self._stopping = threading.Event()
        # reads the committed offsets as stable ones (`require_stable`), as all read_committed do
        self.consumer = Consumer(
            {
                **self.common,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 20,
            }
        )
        # A client that is no member has metadata without a generation, as clients before KIP-447.
        self._outside = Consumer({**self.common, "group.id": group})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group after the current transaction."""
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        self._outside.close()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self.consumer.subscribe([self.source], on_revoke=lambda *_: self._producers.clear())
            while not self._stopping.is_set():
                by_producer: dict[str, list[Message]] = {}
                for message in self.consumer.consume(10, 0.05):
                    assert message.error() is None, message.error()
                    name = f"{self.group}-{message.partition()}"
                    name = self.name if self.kind == "thread" else name
                    by_producer.setdefault(name, []).append(message)
                for name, messages in by_producer.items():
                    self._transact(name, messages)
            self.consumer.close()
        except BaseException as error:
            self.error = error

    def _transact(self, name: str, messages: list[Message]) -> None:
        """Write results and offsets in one transaction. After an error go back."""
        try:
            producer = self._producers.get(name)
            if producer is None:
                producer = self._producers[name] = new_producer(self.common, name)
            transact(producer, self.member(), self.target, messages)
            self.count += len(messages)
        except KafkaException:
            self._producers.pop(name, None)  # the next one begins a session, which aborts this
            back_to_committed(self.consumer, messages)

    def member(self) -> Any:
        """The metadata that come with the offsets."""
        return (self._outside if self.kind == "tasks" else self.consumer).consumer_group_metadata()


def new_producer(common: dict[str, Any], name: str) -> Producer:
    producer = Producer({**common, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def transact(producer: Producer, member: Any, target: str, messages: list[Message]) -> None:
    """Copy messages to the target, with their offsets, in one transaction."""
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, message.value())
    ends = {message.partition(): message.offset() for message in messages}
    source = messages[0].topic()
    offsets = [TopicPartition(source, at, end + 1) for at, end in ends.items()]
    producer.send_offsets_to_transaction(offsets, member, TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)


def back_to_committed(consumer: Consumer, messages: list[Message]) -> None:
    """Read the partitions from their committed offsets on, if they are still assigned."""
    first = {message.partition(): message for message in reversed(messages)}
    assigned = {each.partition for each in consumer.assignment()}
    places = [TopicPartition(messages[0].topic(), at) for at in first if at in assigned]
    for place in consumer.committed(places, TIMEOUT_S) if places else []:
        place.offset = max(place.offset, 0)
        consumer.seek(place)


@contextmanager
def instances(servers: str, group: str, source: str, target: str) -> Iterator[Any]:
    """A function that starts instances, which end with the block."""
    started: list[Instance] = []

    def start(kind: str) -> Instance:
        started.append(Instance(servers, group, source, target, kind))
        return started[-1]

    try:
        yield start
    finally:
        for instance in started:
            if instance._thread.is_alive():
                instance.stop()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "100", "group.min.session.timeout.ms": "1000"}
    with LocalBroker(settings=settings) as broker:
        yield broker.bootstrap_servers


def test_two_rolling_bounces_lead_from_task_producers_to_thread_producers(servers: str) -> None:
    # contract: kip-447/two-bounces
    group, source = unique("streams"), create_topic(servers, "source", PARTITIONS)
    target, sent = create_topic(servers, "target", 2), 0

    def all_copied() -> bool:
        return len(values_of(servers, target)) >= sent

    def copy_a_part(*running: Instance) -> None:
        """Send a part, and wait until all of it is copied. Repeat until each instance took part."""
        nonlocal sent
        before = [instance.count for instance in running]
        while any(one.count == count for one, count in zip(running, before, strict=True)):
            for partition in range(PARTITIONS):
                values = [b"%d" % number for number in range(sent, sent + A_PART)]
                send_all(servers, source, values, partition=partition)
                sent += A_PART
            eventually(all_copied, what="the part is copied")

    with instances(servers, group, source, target) as start:
        running = [start("tasks"), start("tasks")]
        copy_a_part(*running)
        for kind, may_be_together in (
            ("aware", {"tasks", "aware"}),
            ("thread", {"aware", "thread"}),
        ):
            for at in range(2):
                running[at].stop()
                copy_a_part(running[1 - at])
                running[at] = start(kind)
                assert {instance.kind for instance in running} <= may_be_together
                copy_a_part(*running)
    values = [int(value or b"") for value in values_of(servers, target)]
    assert sorted(values) == list(range(sent))


@pytest.mark.parametrize(("kind", "copies"), [("tasks", 2), ("aware", 1)])
def test_a_bounce_less_would_double_what_a_former_owner_still_writes(
    servers: str, kind: str, copies: int
) -> None:
    """A partition moves from an instance with a task producer to one with a thread producer, while
    the former owner has read a record and not written it yet.

    The transactional ids differ, so that nothing but the generation fences it.
    """
    # contract: kip-447/two-bounces
    group, source = unique("streams"), create_topic(servers, "source")
    target = create_topic(servers, "target")
    common: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
    settings = {**common, "group.id": group, "enable.auto.commit": False}
    former = Consumer({**settings, "auto.offset.reset": "earliest"})
    outside = Consumer(settings)
    former.subscribe([source])
    send_all(servers, source, [b"order"])
    messages = former.consume(1, TIMEOUT_S)
    assert [message.value() for message in messages] == [b"order"]
    member = (outside if kind == "tasks" else former).consumer_group_metadata()
    task_producer = new_producer(common, f"{group}-0")
    former.close()  # the group has another generation
    with instances(servers, group, source, target) as start:
        start("thread")
        eventually(lambda: values_of(servers, target) == [b"order"], what="the new owner writes")
        if kind == "tasks":
            transact(task_producer, member, target, messages)
        else:
            with pytest.raises(KafkaException):
                transact(task_producer, member, target, messages)
            task_producer.abort_transaction(TIMEOUT_S)
    outside.close()
    assert values_of(servers, target) == [b"order"] * copies
