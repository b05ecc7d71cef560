"""Several brokers in one process with real clients: leaders and coordinators move, and brokers
leave and return, without lost or duplicated records.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from barnabas import LocalBroker
from barnabas.control import ControlError

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

NODES = (1, 2, 3)


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """Three brokers, with two topics of three partitions."""
    settings = {"group.initial.rebalance.delay.ms": 0}
    with LocalBroker(brokers=3, control=True, topics={"t": 3, "copy": 3}, settings=settings) as one:
        yield one


def confluent(broker: LocalBroker, **settings: Any) -> dict[str, Any]:
    """librdkafka's settings with short pauses before it retries."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": 0,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 10,
        **settings,
    }


def everything(broker: LocalBroker, topic: str, count: int) -> list[bytes]:
    """All values that a read_committed reader gets. At the end it waits a short time for
    duplicates.
    """
    reader = Consumer(
        confluent(broker, **{"group.id": f"audit-{topic}", "auto.offset.reset": "earliest"})
    )
    reader.subscribe([topic])
    values: list[bytes] = []
    while len(values) < count:
        message = reader.poll(30)
        assert message is not None, f"{len(values)} of {count} came"
        if message.error() is None:
            values.append(message.value())
    assert reader.poll(0.5) is None
    reader.close()
    return values


def test_metadata_lists_three_brokers_and_a_leader_on_each(broker: LocalBroker) -> None:
    metadata = AdminClient(confluent(broker)).list_topics(timeout=30)
    assert {one.id: one.port for one in metadata.brokers.values()} == dict(
        zip(NODES, broker.ports, strict=True)
    )
    leaders = {index: one.leader for index, one in metadata.topics["t"].partitions.items()}
    assert sorted(leaders.values()) == [1, 2, 3]
    assert leaders == {index: broker.control.leader("t", index) for index in range(3)}
    assert all(
        sorted(one.replicas) == [1, 2, 3] for one in metadata.topics["t"].partitions.values()
    )


def test_a_broker_that_was_taken_away_refuses_connections_until_it_is_given_back(
    broker: LocalBroker,
) -> None:
    control = broker.control
    control.set_controller(2)
    with control.without_broker(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.ports[1]), timeout=10)
        rows = {one["id"]: one for one in control.brokers()}
        assert [one["is_there"] for one in rows.values()] == [True, False, True]
        assert rows[2]["leads"] == {}
        assert [number for number, one in rows.items() if one["is_controller"]] == [1]
    socket.create_connection(("127.0.0.1", broker.ports[1]), timeout=10).close()
    with pytest.raises(ControlError, match="there is no broker 9"):
        control.take_away(9)
    with pytest.raises(ControlError, match="give topic, partition, broker"):
        control.ask("POST", "/leaders", {"topic": "t"})
    for node_id in NODES:
        control.take_away(node_id)
    assert all(not one["is_there"] for one in control.brokers())
    for node_id in NODES:
        control.give_back(node_id)
    # The replica that was in sync last leads again.
    assert {one["id"]: one["leads"].get("t") for one in control.brokers()} == {
        1: None,
        2: None,
        3: [0, 1, 2],
    }


def test_leaders_and_brokers_are_moved_by_http_requests(broker: LocalBroker) -> None:
    def ask(path: str, values: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            broker.control.url + path, data=json.dumps(values).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    other = next(one for one in NODES if one != broker.control.leader("t", 0))
    rows = ask("/leaders", {"topic": "t", "partition": 0, "broker": other})
    assert [one["id"] for one in rows if 0 in one["leads"].get("t", ())] == [other]
    ask("/coordinators", {"group": "g", "broker": 3})
    assert not ask("/brokers/3/take-away", {})[2]["is_there"]
    assert ask("/brokers/3/give-back", {})[2]["is_there"]


def test_ports_are_kept_over_a_restart(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data", brokers=2, topics={"t": 4}) as broker:
        ports, before = broker.ports, AdminClient(confluent(broker)).list_topics("t", timeout=30)
        broker.restart()
        after = AdminClient(confluent(broker)).list_topics("t", timeout=30)
        assert broker.ports == ports
        assert [one.leader for one in before.topics["t"].partitions.values()] == [
            one.leader for one in after.topics["t"].partitions.values()
        ]


def test_a_producer_and_a_group_continue_while_leaders_and_coordinators_move(
    broker: LocalBroker,
) -> None:
    """A producer and a group of confluent-kafka work while each broker leaves and returns, and a
    leader and a coordinator move.
    """
    sender = Producer(confluent(broker, **{"enable.idempotence": True}))
    reader = Consumer(
        confluent(
            broker,
            **{"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False},
        )
    )
    reader.subscribe(["t"])
    sent: list[bytes] = []
    got: list[bytes] = []

    def write_and_read() -> None:
        for _ in range(30):
            sent.append(str(len(sent)).encode())
            sender.produce("t", sent[-1], partition=len(sent) % 3)
        assert sender.flush(30) == 0
        while len(got) < len(sent):
            message = reader.poll(30)
            assert message is not None, f"{len(got)} of {len(sent)} came"
            if message.error() is None:
                got.append(message.value())
        reader.commit(asynchronous=False)

    write_and_read()
    for node_id in NODES:
        with broker.control.without_broker(node_id):
            write_and_read()
        broker.control.move_leader("t", node_id - 1, node_id)
        broker.control.move_coordinator(node_id, group="g")
        write_and_read()
    reader.close()
    assert sorted(got) == sorted(sent)
    assert sorted(everything(broker, "t", len(sent))) == sorted(sent)


def test_exactly_once_copying_continues_while_leaders_and_coordinators_move(
    broker: LocalBroker,
) -> None:
    """confluent-kafka consumes, produces and commits offsets in one transaction, during which
    coordinators move.
    """
    source = Producer(confluent(broker))
    values = [str(number).encode() for number in range(90)]
    for number, value in enumerate(values):
        source.produce("t", value, partition=number % 3)
    assert source.flush(30) == 0
    reader = Consumer(
        confluent(
            broker,
            **{"group.id": "copier", "auto.offset.reset": "earliest", "enable.auto.commit": False},
        )
    )
    reader.subscribe(["t"])
    sender = Producer(confluent(broker, **{"transactional.id": "copier"}))
    sender.init_transactions(30)
    copied, round_number = 0, 0
    while copied < len(values):
        messages = [one for one in reader.consume(20, timeout=5) if one.error() is None]
        if not messages:
            continue
        sender.begin_transaction()
        for message in messages:
            sender.produce("copy", message.value(), partition=message.partition())
        node_id = NODES[round_number % 3]
        round_number += 1
        broker.control.move_coordinator(node_id, transactional_id="copier")
        broker.control.move_coordinator(NODES[round_number % 3], group="copier")
        broker.control.move_leader("copy", 0, node_id)
        sender.send_offsets_to_transaction(
            reader.position(reader.assignment()), reader.consumer_group_metadata(), 30
        )
        with broker.control.without_broker(node_id):
            sender.commit_transaction(30)
        copied += len(messages)
    reader.close()
    assert sorted(everything(broker, "copy", len(values))) == sorted(values)
    assert broker.open_transactions() == []


def test_a_failover_takes_milliseconds(broker: LocalBroker) -> None:
    """librdkafka learns the new leader from the error response (KIP-951), without another
    request.
    """
    sender = Producer(confluent(broker, **{"enable.idempotence": True, "linger.ms": 0}))
    sender.produce("t", b"first", partition=0)
    assert sender.flush(30) == 0
    took = []
    for _ in range(6):
        leader = broker.control.leader("t", 0)
        assert leader is not None
        broker.control.move_leader("t", 0, leader % 3 + 1)
        began = time.monotonic()
        sender.produce("t", b"v", partition=0)
        assert sender.flush(30) == 0
        took.append(time.monotonic() - began)
    # The fastest of six is checked, since a busy machine may delay some. A metadata refresh alone
    # would take longer.
    assert min(took) < 1.0, took


@pytest.fixture
def collects_sockets() -> Iterator[None]:
    """Collect the sockets that the client left open, since the warnings about them would otherwise
    fail a later test.
    """
    yield
    gc.collect()


@pytest.mark.usefixtures("collects_sockets")
def test_kafka_pythons_producers_continue_while_leaders_and_coordinators_move(
    broker: LocalBroker,
) -> None:
    """If a coordinator is down, kafka-python's transactional producer waits for several whole
    request timeouts. Brokers are therefore stopped only while a plain producer runs. With the
    transactional producer, only coordinators move. kafka-python's consumer may keep searching for a
    stopped broker, and is not tested.
    """
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers.split(","),
        "retry_backoff_ms": 20,
        "reconnect_backoff_ms": 20,
        "reconnect_backoff_max_ms": 200,
    }
    with (
        contextlib.closing(KafkaProducer(**settings, enable_idempotence=True, acks="all")) as plain,
        contextlib.closing(KafkaProducer(**settings, transactional_id="kp", acks="all")) as sender,
    ):
        sender.init_transactions()
        sent: list[bytes] = []

        def write(producer: KafkaProducer) -> None:
            for partition in range(3):
                sent.append(str(len(sent)).encode())
                producer.send("t", sent[-1], partition=partition)

        for node_id in NODES:
            with broker.control.without_broker(node_id):
                write(plain)
                plain.flush(30)
            sender.begin_transaction()
            write(sender)
            broker.control.move_coordinator(node_id, transactional_id="kp")
            broker.control.move_leader("t", 0, node_id)
            sender.commit_transaction()
    assert sorted(everything(broker, "t", len(sent))) == sorted(sent)


def test_aiokafka_continues_while_leaders_and_coordinators_move(broker: LocalBroker) -> None:
    sent: list[bytes] = []
    got: list[bytes] = []

    async def run() -> None:
        servers = {"bootstrap_servers": broker.bootstrap_servers, "retry_backoff_ms": 20}
        sender = AIOKafkaProducer(**servers, transactional_id="aio")
        reader = AIOKafkaConsumer(
            **servers, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await sender.start()
        await reader.start()
        reader.assign([AioTopicPartition("t", index) for index in range(3)])

        async def write_and_read() -> None:
            async with sender.transaction():
                for partition in range(3):
                    sent.append(str(len(sent)).encode())
                    await sender.send_and_wait("t", sent[-1], partition=partition)
            while len(got) < len(sent):
                got.append((await asyncio.wait_for(reader.getone(), 30)).value)

        try:
            await write_and_read()
            for node_id in NODES:
                broker.control.take_away(node_id)
                await write_and_read()
                broker.control.give_back(node_id)
                broker.control.move_coordinator(node_id, transactional_id="aio")
                broker.control.move_leader("t", 0, node_id)
                await write_and_read()
        finally:
            await sender.stop()
            await reader.stop()

    asyncio.run(run())
    assert sorted(got) == sorted(sent)
    assert sorted(everything(broker, "t", len(sent))) == sorted(sent)
