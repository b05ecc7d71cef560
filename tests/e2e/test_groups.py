"""Consumer groups of the real daemon: eager and cooperative rebalances, static members, crashed
members, and members of all three libraries in one group.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from helpers.e2e_clients import (
    PATIENCE_S,
    admin,
    committed_offset,
    consumer,
    create_topic,
    eventually,
    send_all,
    unique,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from barnabas.protocol.errors import Code

pytestmark = pytest.mark.e2e

PARTITIONS = 4
SESSION_MS = 120_000  # long enough that no session times out, unless a test sets a shorter time
FAST = {
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 100,
    "topic_metadata_refresh_interval_ms": 500,
}


class Member:
    """A confluent-kafka consumer of one topic, which the test polls. It records its assigned and
    revoked partitions.
    """

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        self.owned: set[int] = set()
        self.taken: list[set[int]] = []
        self.lost: list[set[int]] = []
        self.given: list[set[int]] = []
        self.values: list[bytes] = []
        self.errors: list[confluent_kafka.KafkaError] = []
        self.cooperative = settings.get("partition_assignment_strategy") == "cooperative-sticky"
        self.client = consumer(servers, group, **{**FAST, **settings})
        self.client.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _on_assign(self, client: Any, partitions: list[Any]) -> None:
        self.given.append({partition.partition for partition in partitions})
        self.owned |= self.given[-1]

    def _on_revoke(self, client: Any, partitions: list[Any]) -> None:
        self.taken.append({partition.partition for partition in partitions})
        self.owned -= self.taken[-1]

    def _on_lost(self, client: Any, partitions: list[Any]) -> None:
        self.lost.append({partition.partition for partition in partitions})
        self.owned -= self.lost[-1]

    def poll(self) -> None:
        """Read for a short time, and store the values and the errors."""
        for message in self.client.consume(100, 0.02):
            if message.error() is None:
                self.values.append(message.value())
            else:
                self.errors.append(message.error())

    def close(self) -> None:
        self.client.close()


def settle(members: list[Member], shares: list[int], *, what: str) -> None:
    """Poll all members until each owns its share of the partitions, and each partition has one
    owner.
    """

    def probe() -> bool:
        for member in members:
            member.poll()
        owned = [partition for member in members for partition in member.owned]
        return sorted(len(member.owned) for member in members) == sorted(shares) and sorted(
            owned
        ) == list(range(PARTITIONS))

    eventually(probe, what=what, pause_s=0)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_are_shared_again_when_members_join_and_leave(
    servers: str, strategy: str
) -> None:
    topic, group = create_topic(servers, "group", PARTITIONS), unique("group")
    for partition in range(PARTITIONS):
        send_all(
            servers,
            topic,
            [b"%d-%d" % (partition, number) for number in range(20)],
            partition=partition,
        )
    first = Member(servers, group, topic, partition_assignment_strategy=strategy)
    settle([first], [4], what="the first member has all")
    eventually(
        lambda: first.poll() or len(first.values) == 80,
        what="the first member reads all",
        pause_s=0,
    )
    first.client.commit(asynchronous=False)
    second = Member(servers, group, topic, partition_assignment_strategy=strategy)
    settle([first, second], [2, 2], what="two members share")
    if strategy == "cooperative-sticky":
        assert first.taken == [second.owned], (
            "a member gives up what goes to the other, and nothing else"
        )
    else:
        assert first.taken == [{0, 1, 2, 3}], (
            "a member gives up everything before it is given its new share"
        )
    third = Member(servers, group, topic, partition_assignment_strategy=strategy)
    settle([first, second, third], [1, 1, 2], what="three members share")
    second.close()
    third.close()
    settle([first], [4], what="the last member has all again")
    send_all(servers, topic, [b"late"], partition=3)
    eventually(
        lambda: first.poll() or b"late" in first.values, what="the last member reads on", pause_s=0
    )
    first.close()
    assert first.values == [*first.values[:80], b"late"]
    assert not second.values, "what was committed was given again"
    assert not third.values, "what was committed was given again"


def test_a_static_member_that_rejoins_causes_no_rebalance_of_others(servers: str) -> None:
    topic, group = create_topic(servers, "static", PARTITIONS), unique("static")
    settings = {"partition_assignment_strategy": "range"}
    members = [
        Member(servers, group, topic, group_instance_id=f"instance-{number}", **settings)
        for number in range(2)
    ]
    settle(members, [2, 2], what="two static members share")
    before = set(members[1].owned)
    rounds = len(members[0].given)
    members[1].close()
    members[1] = Member(servers, group, topic, group_instance_id="instance-1", **settings)
    settle(members, [2, 2], what="the static member is back")
    assert members[1].owned == before
    assert len(members[0].given) == rounds, "the other member was rebalanced"
    client = admin(servers)
    description = client.describe_consumer_groups([group])[group].result(PATIENCE_S)
    assert sorted(member.group_instance_id for member in description.members) == [
        "instance-0",
        "instance-1",
    ]
    for member in members:
        member.close()


def test_a_second_static_member_of_the_same_name_fences_the_first(servers: str) -> None:
    topic, group = create_topic(servers, "fence", PARTITIONS), unique("fence")
    first = Member(
        servers, group, topic, group_instance_id="same", partition_assignment_strategy="range"
    )
    settle([first], [4], what="the first has all")
    second = Member(
        servers, group, topic, group_instance_id="same", partition_assignment_strategy="range"
    )

    def probe() -> bool:
        second.poll()
        first.poll()
        return any(
            error.code() == confluent_kafka.KafkaError._FATAL
            or error.code() == Code.FENCED_INSTANCE_ID
            for error in first.errors
        )

    eventually(probe, what="the first learns that it is fenced", pause_s=0)
    second.close()
    first.close()


CRASHING_MEMBER = """
import sys, confluent_kafka
servers, group, topic = sys.argv[1:]
client = confluent_kafka.Consumer({
    "bootstrap.servers": servers, "group.id": group,
    "session.timeout.ms": 1500, "heartbeat.interval.ms": 300,
    "partition.assignment.strategy": "range",
})
client.subscribe([topic], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    client.poll(0.1)
"""


def test_a_member_that_is_killed_loses_its_partitions(servers: str) -> None:
    """A killed member sends no LeaveGroup. Its session times out, and the other member gets its
    partitions.
    """
    topic, group = create_topic(servers, "killed", PARTITIONS), unique("killed")
    with subprocess.Popen(
        [sys.executable, "-c", CRASHING_MEMBER, servers, group, topic],
        stdout=subprocess.PIPE,
        text=True,
    ) as crashing:
        assert crashing.stdout is not None
        assert crashing.stdout.readline() == "4\n"
        crashing.kill()
    other = Member(servers, group, topic, partition_assignment_strategy="range")
    settle([other], [4], what="the other member took over")
    other.close()


def test_commits_are_kept_with_their_metadata(servers: str) -> None:
    topic, group = create_topic(servers, "commit", 2), unique("commit")
    send_all(servers, topic, [b"a", b"b", b"c"])
    client = consumer(servers, group)
    client.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 2, "näht")], asynchronous=False)
    found = client.committed(
        [confluent_kafka.TopicPartition(topic, 0), confluent_kafka.TopicPartition(topic, 1)],
        PATIENCE_S,
    )
    client.close()
    assert [(partition.offset, partition.metadata) for partition in found] == [
        (2, "näht"),
        (confluent_kafka.OFFSET_INVALID, None),
    ]
    reader = Member(servers, group, topic)
    eventually(
        lambda: reader.poll() or reader.values == [b"c"],
        what="reading goes on where it was committed",
        pause_s=0,
    )
    reader.close()


def test_a_zombie_member_cannot_commit(servers: str) -> None:
    """A commit of a member in an older generation is refused with ILLEGAL_GENERATION or
    UNKNOWN_MEMBER_ID, and its offset is not stored.
    """
    topic, group = create_topic(servers, "zombie", PARTITIONS), unique("zombie")
    zombie = Member(
        servers,
        group,
        topic,
        partition_assignment_strategy="range",
        session_timeout_ms=2000,
        max_poll_interval_ms=2000,
    )
    settle([zombie], [4], what="the zombie has all")
    other = Member(servers, group, topic, partition_assignment_strategy="range")
    # The zombie is not polled, so it does not rejoin, and its generation becomes old.
    eventually(lambda: other.poll() or len(other.owned) == 4, what="the other has all", pause_s=0)
    with pytest.raises(confluent_kafka.KafkaException):
        zombie.client.commit(
            offsets=[confluent_kafka.TopicPartition(topic, 0, 77)], asynchronous=False
        )
    assert committed_offset(servers, group, topic) == confluent_kafka.OFFSET_INVALID
    other.close()
    zombie.close()


class PythonMember:
    """A kafka-python consumer. As in applications, a separate thread polls it."""

    def __init__(self, servers: str, group: str, topic: str, assignor: type) -> None:
        self.values: list[bytes] = []
        self.owned: set[int] = set()
        self._ending = False
        self.client = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            session_timeout_ms=SESSION_MS,
            partition_assignment_strategy=[assignor],
            fetch_max_wait_ms=50,
            auto_commit_interval_ms=50,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        """Poll until the member is to end, then close the consumer."""
        while not self._ending:
            for records in self.client.poll(timeout_ms=2_000).values():
                self.values.extend(record.value for record in records)
            self.owned = {
                partition.partition for partition in self.client.assignment()
            }  # read here, since only one thread may use a consumer
        self.client.close()

    def begin_to_close(self) -> None:
        self._ending = True

    def close(self) -> None:
        self._ending = True
        self._thread.join()


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_kafka_python_rebalances(servers: str, assignor: type) -> None:
    topic, group = create_topic(servers, "kp", PARTITIONS), unique("kp")
    for partition in range(PARTITIONS):
        send_all(
            servers,
            topic,
            [b"%d-%d" % (partition, number) for number in range(10)],
            partition=partition,
        )
    first = PythonMember(servers, group, topic, assignor)
    members = [first]
    try:
        eventually(
            lambda: len(first.owned) == 4 and len(first.values) == 40, what="the first reads all"
        )
        second = PythonMember(servers, group, topic, assignor)
        members.append(second)
        eventually(
            lambda: len(first.owned) == len(second.owned) == 2 and not first.owned & second.owned,
            what="both share",
        )
        first.close()
        members.remove(first)
        eventually(lambda: len(second.owned) == 4, what="the second has all")
        send_all(servers, topic, [b"late"])
        eventually(
            lambda: second.values == [b"late"], what="the second reads what is new and nothing else"
        )
    finally:
        for member in members:
            member.close()


def test_aiokafka_rebalances_and_its_static_members(servers: str) -> None:
    topic, group = create_topic(servers, "aio", PARTITIONS), unique("aio")

    async def run() -> None:
        async def member(instance: str | None) -> aiokafka.AIOKafkaConsumer:
            client = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=servers,
                group_id=group,
                heartbeat_interval_ms=100,
                session_timeout_ms=SESSION_MS,
                group_instance_id=instance,
                fetch_max_wait_ms=50,
            )
            await client.start()
            return client

        async def until(probe: Callable[[], bool], what: str) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while not probe():  # noqa: ASYNC110  (the client has no event to wait for)
                    await asyncio.sleep(0.05)

        first = await member(None)
        await until(lambda: len(first.assignment()) == 4, "the first has all")
        second = await member("static")
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 2, "both share")
        await second.stop()
        third = await member("static")
        await until(
            lambda: len(first.assignment()) == len(third.assignment()) == 2, "both share again"
        )
        await first.stop()
        await until(lambda: len(third.assignment()) == 4, "the third has all")
        await third.stop()

    asyncio.run(run())


def test_the_three_libraries_in_one_group(servers: str) -> None:
    """The leader assigns with the `range` strategy, which all three support."""
    topic, group = create_topic(servers, "mixed", PARTITIONS), unique("mixed")
    loop = asyncio.new_event_loop()

    async def start_aio() -> aiokafka.AIOKafkaConsumer:
        client = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            heartbeat_interval_ms=100,
            session_timeout_ms=SESSION_MS,
            partition_assignment_strategy=[AioRange],
            fetch_max_wait_ms=50,
        )
        await client.start()
        return client

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    confluent = Member(servers, group, topic, partition_assignment_strategy="range")
    python = PythonMember(servers, group, topic, RangePartitionAssignor)
    starting = asyncio.run_coroutine_threadsafe(start_aio(), loop)

    def probe() -> bool:
        confluent.poll()
        if not starting.done():
            return False
        shares = [
            confluent.owned,
            python.owned,
            {partition.partition for partition in starting.result().assignment()},
        ]
        return sorted(partition for share in shares for partition in share) == [0, 1, 2, 3] and all(
            shares
        )

    eventually(probe, what="each of the three has a share", pause_s=0)
    stopping = asyncio.run_coroutine_threadsafe(starting.result().stop(), loop)
    # A rebalance needs all members, so the test polls confluent-kafka's member while the others
    # leave.
    python.begin_to_close()
    settle([confluent], [4], what="the last has all")
    stopping.result(PATIENCE_S)
    python.close()
    confluent.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
