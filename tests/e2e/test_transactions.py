"""Transactions of the real daemon with all three libraries: the records that readers get, fencing,
timeouts, and consume-transform-produce.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from helpers.e2e_clients import (
    KAFKA_PYTHON_POLL_MS,
    LIBRARIES,
    PATIENCE_S,
    admin,
    committed_offset,
    consumer,
    create_topic,
    eventually,
    in_a_short_transaction,
    producer,
    send_all,
    transact,
    unique,
    values_of,
)

pytestmark = pytest.mark.e2e

_BY_NAME = {"ids": lambda library: library.name}
FENCED = (
    confluent_kafka.KafkaError._FENCED,
    confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    confluent_kafka.KafkaError.PRODUCER_FENCED,
)


@pytest.mark.parametrize("library", LIBRARIES, **_BY_NAME)
def test_committed_is_read_and_aborted_is_not(servers: str, library: type) -> None:
    topic = create_topic(servers, "txn")
    steps = [
        ([b"a1", b"a2"], True),
        ([b"x1", b"x2"], False),
        ([b"b1"], True),
        ([b"x3"], False),
        ([b"c1"], True),
    ]
    library.transactions(servers, topic, steps)
    committed = [value for values, commit in steps if commit for value in values]
    everything = [value for values, _ in steps for value in values]
    for reader in LIBRARIES:
        assert reader.read(servers, topic, committed=True) == committed, reader.name
        assert reader.read(servers, topic) == everything, reader.name


def test_readers_of_committed_records_wait_for_the_end_of_the_first_open_transaction(
    servers: str,
) -> None:
    # contract: kip-98/last-stable-offset
    topic = create_topic(servers, "lso")
    first, second = (
        producer(servers, transactional_id=unique("first")),
        producer(servers, transactional_id=unique("second")),
    )
    for client in (first, second):
        client.init_transactions(PATIENCE_S)
        client.begin_transaction()
    first.produce(topic, b"first", partition=0)
    assert first.flush(PATIENCE_S) == 0
    second.produce(topic, b"second", partition=0)
    assert second.flush(PATIENCE_S) == 0
    send_all(servers, topic, [b"plain"])
    second.commit_transaction(PATIENCE_S)
    assert values_of(servers, topic) == []
    assert values_of(servers, topic, committed=False) == [b"first", b"second", b"plain"]
    first.commit_transaction(PATIENCE_S)
    assert values_of(servers, topic) == [b"first", b"second", b"plain"]


def test_one_transaction_over_many_partitions_is_seen_whole(servers: str) -> None:
    # contract: kip-98/atomic
    topic = create_topic(servers, "many", 20)
    client = producer(servers, transactional_id=unique("many"))
    client.init_transactions(PATIENCE_S)
    for round_number in range(6):
        client.begin_transaction()
        for partition in range(20):
            client.produce(topic, b"%d" % round_number, partition=partition)
        if round_number % 2:
            client.flush(PATIENCE_S)
            client.abort_transaction(PATIENCE_S)
        else:
            client.commit_transaction(PATIENCE_S)
    assert values_of(servers, topic) == [b"0", b"2", b"4"] * 20


def test_an_empty_transaction_ends_either_way(servers: str) -> None:
    client = producer(servers, transactional_id=unique("empty"))
    client.init_transactions(PATIENCE_S)
    for commit in (True, False, True):
        client.begin_transaction()
        client.commit_transaction(PATIENCE_S) if commit else client.abort_transaction(PATIENCE_S)


def test_a_second_session_fences_the_first_of_confluent(servers: str) -> None:
    # contract: kip-98/fencing
    topic, name = create_topic(servers, "zombie"), unique("zombie")
    zombie = producer(servers, transactional_id=name)
    zombie.init_transactions(PATIENCE_S)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    assert zombie.flush(PATIENCE_S) == 0
    successor = producer(servers, transactional_id=name)
    successor.init_transactions(PATIENCE_S)
    transact(successor, topic, [b"successor"])
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        zombie.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].code() in FENCED
    assert caught.value.args[0].fatal()
    transact(successor, topic, [b"again"])
    assert values_of(servers, topic) == [b"successor", b"again"]


def test_a_second_session_fences_the_first_of_kafka_python(servers: str) -> None:
    topic, name = create_topic(servers, "zombie"), unique("zombie")
    zombie = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=name)
    successor = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=name)
    try:
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(topic, b"zombie").get(PATIENCE_S)
        successor.init_transactions()
        successor.begin_transaction()
        successor.send(topic, b"successor").get(PATIENCE_S)
        successor.commit_transaction()
        with pytest.raises(
            (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)
        ):
            zombie.send(topic, b"zombie again").get(PATIENCE_S)
    finally:
        successor.close()
        zombie.close(timeout=1)
    assert values_of(servers, topic) == [b"successor"]


def test_a_second_session_fences_the_first_of_aiokafka(servers: str) -> None:
    topic, name = create_topic(servers, "zombie"), unique("zombie")

    async def run() -> None:
        zombie = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name)
        successor = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name)
        await zombie.start()
        try:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"zombie")
            await successor.start()
            async with successor.transaction():
                await successor.send_and_wait(topic, b"successor")
            with pytest.raises(aiokafka.errors.ProducerFenced):
                await asyncio.wait_for(zombie.commit_transaction(), PATIENCE_S)
        finally:
            await successor.stop()
            await zombie.stop()

    asyncio.run(run())
    assert values_of(servers, topic) == [b"successor"]


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(servers: str) -> None:
    # contract: kip-98/timeout
    topic = create_topic(servers, "timeout")
    slow = in_a_short_transaction(servers, topic, b"slow", timeout_ms=1000)
    send_all(servers, topic, [b"behind"])
    eventually(lambda: values_of(servers, topic) == [b"behind"], what="the transaction is aborted")
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        slow.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].code() in (*FENCED, confluent_kafka.KafkaError.INVALID_TXN_STATE)
    assert values_of(servers, topic) == [b"behind"]
    assert set(values_of(servers, topic, committed=False)) == {b"slow", b"behind"}


def test_a_timeout_longer_than_the_broker_allows_is_refused(servers: str) -> None:
    client = producer(
        servers, transactional_id=unique("too-long"), transaction_timeout_ms=2_000_000
    )
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        client.init_transactions(PATIENCE_S)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_offsets_and_records_of_a_transaction_are_committed_together_or_not_at_all(
    servers: str,
) -> None:
    # contract: kip-98/offsets
    source, target, group = (
        create_topic(servers, "source"),
        create_topic(servers, "target"),
        unique("group"),
    )
    send_all(servers, source, [b"%d" % number for number in range(10)])
    reader = consumer(servers, group, isolation_level="read_committed")
    reader.subscribe([source])
    client = producer(servers, transactional_id=unique("etl"))
    client.init_transactions(PATIENCE_S)

    def one_transaction(offset: int, *, commit: bool) -> None:
        client.begin_transaction()
        client.produce(target, b"to %d" % offset)
        client.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(source, 0, offset)],
            reader.consumer_group_metadata(),
            PATIENCE_S,
        )
        client.commit_transaction(PATIENCE_S) if commit else client.abort_transaction(PATIENCE_S)

    eventually(lambda: reader.poll(0.5), what="the group is joined")
    one_transaction(3, commit=False)
    assert committed_offset(servers, group, source) == confluent_kafka.OFFSET_INVALID
    one_transaction(4, commit=True)
    assert committed_offset(servers, group, source) == 4
    one_transaction(9, commit=False)
    assert committed_offset(servers, group, source) == 4
    assert values_of(servers, target) == [b"to 4"]
    reader.close()


def test_a_new_owner_waits_for_the_end_of_a_transaction_with_offsets(servers: str) -> None:
    # contract: kip-447/require-stable
    """KIP-447: an OffsetFetch with require_stable fails until the transaction has ended."""
    source, group = create_topic(servers, "source"), unique("group")
    send_all(servers, source, [b"%d" % number for number in range(10)])
    client = producer(servers, transactional_id=unique("etl"))
    client.init_transactions(PATIENCE_S)
    client.begin_transaction()
    bystander = consumer(servers, group)
    client.send_offsets_to_transaction(
        [confluent_kafka.TopicPartition(source, 0, 5)],
        bystander.consumer_group_metadata(),
        PATIENCE_S,
    )
    bystander.close()
    reader = consumer(servers, group, isolation_level="read_committed")
    owned: list[object] = []
    reader.subscribe([source], on_assign=lambda _, partitions: owned.extend(partitions))
    early: list[object] = []
    eventually(
        lambda: early.extend(reader.consume(1, 0.1)) or owned,
        what="the partition has its new owner",
        pause_s=0,
    )
    early += reader.consume(1, 1.0)
    assert not early, "the new owner read before the committed offset was known"
    client.commit_transaction(PATIENCE_S)
    message = eventually(lambda: reader.poll(0.5), what="the new owner reads on")
    assert message.offset() == 5
    reader.close()


def _transform(
    servers: str, source: str, target: str, group: str, name: str, *, abort_every: int, stop_at: int
) -> None:
    """Consume, transform and produce with confluent-kafka; every n-th transaction is aborted and
    repeated.
    """
    reader = consumer(servers, group, isolation_level="read_committed")
    reader.subscribe([source])
    client = producer(servers, transactional_id=name)
    client.init_transactions(PATIENCE_S)
    done = rounds = 0
    deadline = time.monotonic() + PATIENCE_S
    while done < stop_at:
        assert time.monotonic() < deadline, f"{done} of {stop_at}"
        messages = [message for message in reader.consume(17, 0.2) if message.error() is None]
        if not messages:
            continue
        rounds += 1
        client.begin_transaction()
        for message in messages:
            client.produce(target, b"<" + message.value() + b">", partition=message.partition())
        client.send_offsets_to_transaction(
            reader.position(reader.assignment()), reader.consumer_group_metadata(), PATIENCE_S
        )
        if rounds % abort_every == 0:
            client.abort_transaction(PATIENCE_S)
            for partition in reader.committed(reader.assignment(), PATIENCE_S):
                start = partition.offset if partition.offset >= 0 else 0
                reader.seek(
                    confluent_kafka.TopicPartition(partition.topic, partition.partition, start)
                )
        else:
            client.commit_transaction(PATIENCE_S)
            done += len(messages)
    reader.close()


def test_consume_transform_produce_with_confluent(servers: str) -> None:
    # contract: kip-129/clients
    source, target, group = (
        create_topic(servers, "source", 3),
        create_topic(servers, "target", 3),
        unique("group"),
    )
    for partition in range(3):
        send_all(
            servers,
            source,
            [b"%d-%d" % (partition, number) for number in range(100)],
            partition=partition,
        )
    _transform(servers, source, target, group, unique("etl"), abort_every=3, stop_at=300)
    assert values_of(servers, target) == [
        b"<%d-%d>" % (partition, number) for partition in range(3) for number in range(100)
    ]
    assert [committed_offset(servers, group, source, partition) for partition in range(3)] == [
        100,
        100,
        100,
    ]


def test_consume_transform_produce_with_kafka_python(servers: str) -> None:
    # contract: kip-129/clients
    source, target, group = (
        create_topic(servers, "source"),
        create_topic(servers, "target"),
        unique("group"),
    )
    send_all(servers, source, [b"%d" % number for number in range(60)])
    reader = kafka.KafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=10,
        fetch_max_wait_ms=50,
    )
    client = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=unique("etl"))
    client.init_transactions()
    done = rounds = 0
    deadline = time.monotonic() + PATIENCE_S
    partition = kafka.TopicPartition(source, 0)
    while done < 60:
        assert time.monotonic() < deadline, done
        messages = [
            message
            for messages in reader.poll(KAFKA_PYTHON_POLL_MS).values()
            for message in messages
        ]
        if not messages:
            continue
        rounds += 1
        client.begin_transaction()
        for message in messages:
            client.send(target, b"<" + message.value + b">", partition=0)
        offset = kafka.structs.OffsetAndMetadata(messages[-1].offset + 1, "", -1)
        client.send_offsets_to_transaction({partition: offset}, reader.group_metadata())
        if rounds % 3 == 0:
            client.abort_transaction()
            reader.seek(partition, messages[0].offset)
        else:
            client.commit_transaction()
            done += len(messages)
    reader.close()
    client.close()
    assert values_of(servers, target) == [b"<%d>" % number for number in range(60)]
    assert committed_offset(servers, group, source) == 60


def test_consume_transform_produce_with_aiokafka(servers: str) -> None:
    # contract: kip-129/clients
    source, target, group = (
        create_topic(servers, "source"),
        create_topic(servers, "target"),
        unique("group"),
    )
    send_all(servers, source, [b"%d" % number for number in range(60)])

    async def run() -> None:
        reader = aiokafka.AIOKafkaConsumer(
            source,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        )
        client = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id=unique("etl")
        )
        await reader.start()
        await client.start()
        try:
            done = rounds = 0
            partition = aiokafka.TopicPartition(source, 0)
            while done < 60:
                found: dict[Any, list[Any]] = await asyncio.wait_for(
                    reader.getmany(timeout_ms=500, max_records=10), PATIENCE_S
                )
                messages = [message for messages in found.values() for message in messages]
                if not messages:
                    continue
                rounds += 1
                await client.begin_transaction()
                for message in messages:
                    await client.send(target, b"<" + message.value + b">", partition=0)
                await client.send_offsets_to_transaction(
                    {partition: messages[-1].offset + 1}, group
                )
                if rounds % 3 == 0:
                    await client.abort_transaction()
                    reader.seek(partition, messages[0].offset)
                else:
                    await client.commit_transaction()
                    done += len(messages)
        finally:
            await client.stop()
            await reader.stop()

    asyncio.run(run())
    assert values_of(servers, target) == [b"<%d>" % number for number in range(60)]
    assert committed_offset(servers, group, source) == 60


def test_kafka_pythons_admin_client_lists_and_describes_open_transactions(servers: str) -> None:
    """kafka-python's admin client lists and describes open transactions (KIP-664)."""
    topic, name = create_topic(servers, "seen"), unique("seen")
    client = producer(servers, transactional_id=name)
    client.init_transactions(PATIENCE_S)
    client.begin_transaction()
    client.produce(topic, b"v", partition=0)
    assert client.flush(PATIENCE_S) == 0
    looking = kafka.KafkaAdminClient(bootstrap_servers=servers)
    try:
        assert name in repr(looking.list_transactions())
        described = repr(looking.describe_transactions([name]))
        assert topic in described
        assert "Ongoing" in described or "ONGOING" in described
        producers = repr(looking.describe_producers([kafka.TopicPartition(topic, 0)]))
        assert "producer_id" in producers
    finally:
        looking.close()
    client.abort_transaction(PATIENCE_S)


def test_a_transaction_can_be_committed_after_one_of_its_topics_was_deleted(servers: str) -> None:
    kept, deleted = create_topic(servers, "kept"), create_topic(servers, "deleted")
    client = producer(servers, transactional_id=unique("deleted"))
    client.init_transactions(PATIENCE_S)
    client.begin_transaction()
    client.produce(kept, b"v")
    client.produce(deleted, b"v")
    assert client.flush(PATIENCE_S) == 0
    deleting = admin(servers)
    for future in deleting.delete_topics([deleted]).values():
        future.result(PATIENCE_S)
    client.commit_transaction(PATIENCE_S)
    assert values_of(servers, kept) == [b"v"]
    transact(client, kept, [b"w"])
    assert values_of(servers, kept) == [b"v", b"w"]
