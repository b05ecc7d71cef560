"""Clients that are configured with the address of only one node of a pair. They learn the other
address from Metadata, and continue there.

Each of three libraries has a producer (two of the libraries with transactions) and a member of a
group. Their only bootstrap server is the first leader. That node is killed, comes back as the
standby, and takes over again.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.e2e_clients import KAFKA_PYTHON_POLL_MS, PATIENCE_S, QUIET, eventually
from helpers.pair import PairNode, etcd, pair, take_over

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed"),
]
PAUSE_S, AT_ONCE = 0.1, 3


class Program:
    """A producer or a consumer in a thread.

    values: the values that it committed, or saw. at: the values that a consumer saw, by offset.
    unknown: the values of transactions with an unknown outcome.
    """

    def __init__(self, name: str, servers: str) -> None:
        self.name, self.servers = name, servers
        self.values: list[bytes] = []
        self.at: dict[int, set[bytes]] = {}
        self.unknown: set[bytes] = set()
        self.failure: BaseException | None = None
        self._number, self._ends = 0, threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        return not self._ends.is_set()

    def _run(self) -> None:
        """Run the client in this thread, and store its error for the test."""
        try:
            self.run()
        except BaseException as error:
            self.failure = error

    def run(self) -> None:
        raise NotImplementedError

    def next_values(self) -> list[bytes]:
        """The values to write in the next transaction."""
        time.sleep(PAUSE_S)
        self._number += 1
        return [b"%d-%d" % (self._number, at) for at in range(AT_ONCE)]

    def see(self, offset: int, value: bytes) -> None:
        self.values.append(value)
        self.at.setdefault(offset, set()).add(value)

    def end(self) -> None:
        self.stop()
        assert self.failure is None, self.failure

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(PATIENCE_S)


class ConfluentProducer(Program):
    """A producer with confluent-kafka, with librdkafka's defaults."""

    def run(self) -> None:
        client = Producer(
            {"bootstrap.servers": self.servers, "transactional.id": self.name, **QUIET}
        )
        client.init_transactions(PATIENCE_S)
        while self.goes_on:
            values = self.next_values()
            client.begin_transaction()
            for value in values:
                client.produce("confluent", value)
            while True:
                try:
                    client.commit_transaction(PATIENCE_S)
                    self.values += values
                    break
                except KafkaException as error:
                    if error.args[0].txn_requires_abort():
                        client.abort_transaction(PATIENCE_S)
                        break
                    if not error.args[0].retriable():
                        raise


class ConfluentMember(Program):
    """confluent-kafka's consumer."""

    def run(self) -> None:
        client = Consumer(
            {"bootstrap.servers": self.servers, "group.id": self.name, **QUIET,
             "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        )  # fmt: skip
        client.subscribe(["confluent"])
        while self.goes_on:
            message = client.poll(0.2)
            if message is not None and message.error() is None:
                offset, value = message.offset(), message.value()
                assert offset is not None and value is not None
                self.see(offset, value)
        client.close()


class KafkaPythonProducer(Program):
    """An idempotent producer with kafka-python.

    kafka-python's transactional producer loses its AddPartitionsToTxn if the coordinator is
    unavailable when a transaction begins, and then waits for ever.
    """

    def run(self) -> None:
        client = kafka.KafkaProducer(bootstrap_servers=self.servers, enable_idempotence=True)
        while self.goes_on:
            values = self.next_values()
            sent = [client.send("kafka-python", value) for value in values]
            for future in sent:
                future.get(PATIENCE_S)
            self.values += values
        client.close()


class KafkaPythonMember(Program):
    """kafka-python's consumer."""

    def run(self) -> None:
        client = kafka.KafkaConsumer(
            "kafka-python", bootstrap_servers=self.servers, group_id=self.name,
            auto_offset_reset="earliest", isolation_level="read_committed",
        )  # fmt: skip
        while self.goes_on:
            for records in client.poll(KAFKA_PYTHON_POLL_MS).values():
                for record in records:
                    self.see(record.offset, record.value)
        client.close()


class AioKafkaProducer(Program):
    """aiokafka."""

    def run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        """Write transactions until the end. The values of a failed transaction remain unknown."""
        client = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.servers, transactional_id=self.name
        )
        await client.start()
        while self.goes_on:
            values = await asyncio.to_thread(self.next_values)
            self.unknown.update(values)
            with contextlib.suppress(aiokafka.errors.KafkaError):
                async with client.transaction():
                    for value in values:
                        await client.send("aiokafka", value)
                self.unknown.difference_update(values)
                self.values += values
        await client.stop()


class AioKafkaMember(Program):
    """aiokafka's consumer."""

    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        client = aiokafka.AIOKafkaConsumer(
            "aiokafka", bootstrap_servers=self.servers, group_id=self.name,
            auto_offset_reset="earliest", isolation_level="read_committed",
        )  # fmt: skip
        await client.start()
        while self.goes_on:
            found: dict[Any, Any] = await client.getmany(timeout_ms=200)
            for records in found.values():
                for record in records:
                    self.see(record.offset, record.value)
        await client.stop()


PROGRAMS = {
    "confluent": (ConfluentProducer, ConfluentMember),
    "kafka-python": (KafkaPythonProducer, KafkaPythonMember),
    "aiokafka": (AioKafkaProducer, AioKafkaMember),
}


@contextlib.contextmanager
def started(servers: str) -> Iterator[list[Program]]:
    """A context in which all programs run."""
    programs: list[Program] = []
    try:
        for topic, kinds in PROGRAMS.items():
            programs += [kind(f"{topic} {kind.__name__}", servers) for kind in kinds]
        yield programs
    finally:
        for program in programs:
            program.stop()


def await_progress(programs: list[Program]) -> None:
    """Wait until each program has written or seen two more transactions."""
    before = [len(program.values) for program in programs]

    def waiting() -> list[str]:
        return [
            program.name
            for program, count in zip(programs, before, strict=True)
            if len(program.values) < count + 2 * AT_ONCE and program.failure is None
        ]

    eventually(lambda: not waiting(), what="every client continues")


def test_clients_with_one_address_survive_two_takeovers(tmp_path: Path) -> None:
    with etcd(tmp_path / "etcd") as (engine, _), pair(tmp_path, engine) as (first, second):
        client = AdminClient({"bootstrap.servers": first.servers, **QUIET})
        for made in client.create_topics([NewTopic(topic, 1, 2) for topic in PROGRAMS]).values():
            made.result(PATIENCE_S)
        check_metadata(client, first, second)
        with started(first.servers) as programs:
            await_progress(programs)
            take_over(first, second)
            await_progress(programs)
            take_over(second, first)
            await_progress(programs)
            producers, members = programs[::2], programs[1::2]
            for producer in producers:
                producer.end()
            for producer, member in zip(producers, members, strict=True):
                check(producer, member)


def check(producer: Program, member: Program) -> None:
    """Check that the member saw every committed value and no aborted one, each at one offset.

    If a member was removed from the group while there was no leader, it may see records again, at
    the same offsets.
    """
    committed = set(producer.values)
    eventually(lambda: committed <= set(member.values), what=f"{member.name} sees all")
    member.end()
    assert len(producer.values) == len(committed)
    records = [value for values in member.at.values() for value in values]
    assert len(records) == len(set(records)), f"{member.name} saw a record at two offsets"
    assert len(records) == len(member.at), f"{member.name} saw two records at an offset"
    assert set(records) <= committed | producer.unknown, f"{member.name} saw what is aborted"


def check_metadata(client: AdminClient, leader: PairNode, standby: PairNode) -> None:
    """Check that both nodes are listed, and that both have a replica of each partition."""
    found = client.list_topics(timeout=PATIENCE_S)
    ports = {broker.id: broker.port for broker in found.brokers.values()}
    assert ports == {node.node_id: node.port for node in (leader, standby)}
    partition = found.topics["aiokafka"].partitions[0]
    assert (partition.leader, sorted(partition.replicas)) == (leader.node_id, [1, 2])
    assert sorted(partition.isrs) == [1, 2]
