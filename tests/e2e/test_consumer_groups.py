"""Groups of the consumer protocol (KIP-848) with librdkafka. Members join and leave, members and
the broker are killed, groups change their protocol, and records are processed exactly once.

The heartbeat interval is 0.1 s, so that rebalances are fast.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient
from helpers.e2e_clients import (
    PATIENCE_S,
    consumer,
    create_named_topic,
    create_topic,
    eventually,
    send_all,
    unique,
    values_of,
    wait_until_ready,
)

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e

SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.assignment.interval.ms": "50",
    "group.min.session.timeout.ms": "1000",
    "transaction.max.timeout.ms": "60000",
}
RECORDS = 600
# The worker's program, which runs one transaction for each poll until it is killed.
WORKER = """
import sys
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
servers, group, source, target, name = sys.argv[1:]
common = {"bootstrap.servers": servers, "metadata.recovery.strategy": "none",
    "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 0}
consumer = Consumer({**common, "group.id": group, "group.protocol": "consumer",
    "enable.auto.commit": False, "auto.offset.reset": "earliest",
    "isolation.level": "read_committed", "fetch.wait.max.ms": 20})
producer = Producer({**common, "transactional.id": name, "transaction.timeout.ms": 5000,
    "linger.ms": 0})
producer.init_transactions(30)
consumer.subscribe([source])
print("ready", flush=True)
while True:
    messages = [m for m in consumer.consume(20, 0.1) if m.error() is None]
    if not messages:
        continue
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(target, message.value())
        ends = {}
        for m in messages:
            ends[m.partition()] = TopicPartition(m.topic(), m.partition(), m.offset() + 1)
        producer.send_offsets_to_transaction(
            list(ends.values()), consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
    except KafkaException as error:
        if error.args[0].fatal():
            sys.exit(3)
        producer.abort_transaction(30)
        for partition in consumer.committed(consumer.assignment(), 30):
            try:
                consumer.seek(TopicPartition(partition.topic, partition.partition,
                    partition.offset if partition.offset >= 0 else -2))
            except KafkaException:
                pass
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker for one test. At the end, its output must contain no traceback and no critical
    message.
    """
    with LocalBroker(tmp_path / "data", settings=SETTINGS) as broker:
        yield broker
        assert not [
            line for line in broker.output if "Traceback" in line or " CRITICAL " in line
        ], "".join(broker.output[-60:])


Join = Callable[..., confluent_kafka.Consumer]


@pytest.fixture
def join(own: LocalBroker) -> Iterator[Join]:
    """A function that creates a consumer in a group. Consumers that a test leaves open are closed
    before the broker stops.
    """
    made: list[confluent_kafka.Consumer] = []

    def new_member(group: str, *topics: str, **settings: Any) -> confluent_kafka.Consumer:
        one = consumer(own.bootstrap_servers, group, **{"group_protocol": "consumer", **settings})
        one.subscribe(list(topics))
        made.append(one)
        return one

    yield new_member
    for one in made:
        one.close()


def owned(one: confluent_kafka.Consumer) -> set[tuple[str, int]]:
    return {(row.topic, row.partition) for row in one.assignment()}


def until_shared(*members: confluent_kafka.Consumer, partitions: int) -> None:
    """Poll until each partition has one owner, and the numbers of partitions that the members own
    differ by at most one.

    The second condition is needed because all partitions may already have an owner while one member
    still has to give a partition to another.
    """

    def is_shared() -> bool:
        for one in members:
            one.poll(0.05)
        held = [owned(one) for one in members]
        together = set().union(*held)
        shares = sorted(map(len, held))
        return sum(shares) == len(together) == partitions and shares[-1] - shares[0] <= 1

    try:
        eventually(is_shared, what="each partition has one owner, and all have as many")
    except AssertionError as error:
        error.add_note(f"the members have {[sorted(owned(one)) for one in members]}")
        raise


def described(servers: str, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": servers})
    return admin.describe_consumer_groups([group])[group].result(PATIENCE_S)


def test_each_partition_has_one_owner_while_members_join_and_leave(
    own: LocalBroker, join: Join
) -> None:
    servers, group = own.bootstrap_servers, unique("group")
    topic = create_topic(servers, "churn", 6)
    members = [join(group, topic) for _ in range(3)]
    until_shared(*members, partitions=6)
    assert sorted(len(owned(one)) for one in members) == [2, 2, 2]
    seen = described(servers, group)
    assert (seen.type, seen.state) == (ConsumerGroupType.CONSUMER, ConsumerGroupState.STABLE)
    assert len(seen.members) == 3
    before = owned(members[1])
    members.pop().close()
    until_shared(*members, partitions=6)
    assert before <= owned(members[1]), "what a member had stays with it"
    members.append(join(group, topic))
    until_shared(*members, partitions=6)
    for one in members:
        one.close()
    assert described(servers, group).state == ConsumerGroupState.EMPTY


def test_a_pattern_subscription_includes_topics_that_are_created_later(
    own: LocalBroker, join: Join
) -> None:
    servers, prefix = own.bootstrap_servers, unique("pattern")
    create_named_topic(servers, f"{prefix}.one", 2)
    create_named_topic(servers, "of-another-name", 2)
    one = join(unique("group"), f"^{prefix}\\..*")
    until_shared(one, partitions=2)
    create_named_topic(servers, f"{prefix}.two", 3)
    until_shared(one, partitions=5)
    assert {topic for topic, _ in owned(one)} == {f"{prefix}.one", f"{prefix}.two"}


def test_a_static_member_that_rejoins_gets_its_partitions_back(
    own: LocalBroker, join: Join
) -> None:
    servers, group = own.bootstrap_servers, unique("group")
    topic = create_topic(servers, "static", 4)
    first = join(group, topic, group_instance_id="i")
    other = join(group, topic, group_instance_id="j")
    until_shared(first, other, partitions=4)
    had, others = owned(first), owned(other)
    first.close()
    first = join(group, topic, group_instance_id="i")
    until_shared(first, other, partitions=4)
    assert (owned(first), owned(other)) == (had, others)


def test_groups_keep_members_and_assignments_when_the_broker_is_killed_and_restarted(
    own: LocalBroker, join: Join
) -> None:
    servers, group = own.bootstrap_servers, unique("group")
    topic = create_topic(servers, "restart", 4)
    members = [join(group, topic) for _ in range(2)]
    until_shared(*members, partitions=4)
    before = [owned(one) for one in members]
    ids = {row.member_id for row in described(servers, group).members}
    own.kill()
    own.restart()
    wait_until_ready(servers)
    send_all(servers, topic, [b"1", b"2", b"3", b"4"])
    values: list[bytes] = []

    def all_are_read() -> bool:
        for one in members:
            message = one.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value())
        return len(values) == 4

    eventually(all_are_read, what="all records are read")
    assert sorted(values) == [b"1", b"2", b"3", b"4"]
    assert [owned(one) for one in members] == before
    assert {row.member_id for row in described(servers, group).members} == ids


def test_a_group_changes_its_protocol_and_back_while_members_are_in_it(
    own: LocalBroker, join: Join
) -> None:
    servers, group = own.bootstrap_servers, unique("group")
    topic = create_topic(servers, "online", 4)
    old = join(group, topic, group_protocol="classic", heartbeat_interval_ms=100,
               session_timeout_ms=6000)  # fmt: skip
    until_shared(old, partitions=4)
    assert described(servers, group).type == ConsumerGroupType.CLASSIC
    new = join(group, topic)
    until_shared(old, new, partitions=4)
    assert described(servers, group).type == ConsumerGroupType.CONSUMER
    new.close()
    until_shared(old, partitions=4)
    assert described(servers, group).type == ConsumerGroupType.CLASSIC


@contextmanager
def workers(*arguments: str) -> Iterator[Any]:
    """A function that starts a worker process with a name. All workers are killed at the end."""
    running: list[subprocess.Popen[str]] = []

    def start(name: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, *arguments, name], stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_exactly_once_while_members_and_the_broker_are_killed(own: LocalBroker) -> None:
    # contract: kip-447/rebalance
    """Members consume records, and produce the results in transactions. A transaction commits the
    offsets together with the member's epoch, so that a removed member cannot commit offsets of a
    partition that another member has (KIP-447).
    """
    servers, group = own.bootstrap_servers, unique("group")
    source, target = create_topic(servers, "source", 4), create_topic(servers, "target", 2)
    numbers = [json.dumps(number).encode() for number in range(RECORDS)]

    def copied() -> int:
        return len(values_of(servers, target))

    with workers(servers, group, source, target) as start:
        first, second = start("worker-1"), start("worker-2")
        send_all(servers, source, numbers[: RECORDS // 3])
        eventually(lambda: copied() > 20, what="records are copied")
        first.kill()
        send_all(servers, source, numbers[RECORDS // 3 : 2 * RECORDS // 3])
        start("worker-3")
        eventually(lambda: copied() > RECORDS // 3 + 20, what="others go on")
        own.kill()
        own.restart()
        wait_until_ready(servers)
        send_all(servers, source, numbers[2 * RECORDS // 3 :])
        second.kill()
        start("worker-2")  # another process, but with the same transactional id
        deadline = time.monotonic() + 2 * PATIENCE_S
        while copied() < RECORDS and time.monotonic() < deadline:
            time.sleep(0.2)
    assert sorted(values_of(servers, target), key=lambda one: int(one or b"-1")) == numbers
