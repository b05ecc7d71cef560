"""SIGKILL, restart, and the state that clients find afterwards. Each test has its own broker.

A SIGKILL loses nothing that was acknowledged, since the operating system still has the written
data. If a transaction was open, the log has a record of its state, and the producer continues the
transaction if it still runs. Otherwise the transaction is aborted by the next session of its
transactional id or by its timeout (KIP-98).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from helpers.e2e_clients import (
    PATIENCE_S,
    KafkaPython,
    admin,
    committed_offset,
    consumer,
    create_topic,
    eventually,
    in_a_short_transaction,
    producer,
    read_all,
    send_all,
    transact,
    unique,
    values_of,
    wait_until_ready,
)
from helpers.e2e_wire import Wire
from sim import wire

from barnabas import LocalBroker
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.records import NewRecord, encode_batch

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

DUPLICATE, OUT_OF_ORDER, INVALID_EPOCH = 46, 45, 47
Restart = Callable[[LocalBroker], None]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker for one test. At the end, its output must contain no traceback and no critical
    message.
    """
    settings = {
        "group.min.session.timeout.ms": "500",
        "barnabas.transaction.durability": "flush",
        "log.retention.ms": "-1",  # some records are of 2023, and would expire
    }
    with LocalBroker(tmp_path / "data", settings=settings) as broker:
        yield broker
        assert not [
            line for line in broker.output if "Traceback" in line or " CRITICAL " in line
        ], "".join(broker.output[-60:])


def killed(broker: LocalBroker) -> None:
    """Kill the broker, start it again, and wait until it answers."""
    broker.kill()
    broker.restart()
    wait_until_ready(broker.bootstrap_servers)


def stopped(broker: LocalBroker) -> None:
    """Stop the broker, start it again, and wait until it answers."""
    assert broker.stop() == 0
    broker.restart()
    wait_until_ready(broker.bootstrap_servers)


both_ways = pytest.mark.parametrize("again", [killed, stopped])


@both_ways
def test_acknowledged_records_topics_and_settings_survive_a_restart(
    own: LocalBroker, again: Restart
) -> None:
    servers = own.bootstrap_servers
    topic = create_topic(servers, "kept", 3, retention_ms="123456789", max_message_bytes="777777")
    for partition in range(3):
        send_all(
            servers,
            topic,
            [b"%d-%d" % (partition, number) for number in range(500)],
            partition=partition,
        )
    before = read_all(servers, topic)
    again(own)
    assert sorted(read_all(servers, topic)) == sorted(before)
    assert len(before) == 1500
    resource = confluent_kafka.admin.ConfigResource(
        confluent_kafka.admin.ConfigResource.Type.TOPIC, topic
    )
    client = admin(servers)
    settings = client.describe_configs([resource])[resource].result(PATIENCE_S)
    assert (settings["retention.ms"].value, settings["max.message.bytes"].value) == (
        "123456789",
        "777777",
    )
    assert send_all(servers, topic, [b"next"]) == [500]


@both_ways
def test_an_open_transaction_continues_after_a_restart_if_its_producer_lives(
    own: LocalBroker, again: Restart
) -> None:
    servers = own.bootstrap_servers
    topic = create_topic(servers, "open", 2)
    client = producer(
        servers,
        transactional_id=unique("living"),
        socket_connection_setup_timeout_ms=2000,
        reconnect_backoff_max_ms=200,
    )
    client.init_transactions(PATIENCE_S)
    transact(client, topic, [b"before"])
    client.begin_transaction()
    client.produce(topic, b"in-1", partition=0)
    client.produce(topic, b"in-2", partition=1)
    assert client.flush(PATIENCE_S) == 0
    again(own)
    assert values_of(servers, topic) == [b"before"], "an open transaction shows after the restart"
    client.produce(topic, b"in-3", partition=0)
    client.commit_transaction(PATIENCE_S)
    assert values_of(servers, topic) == [b"before", b"in-1", b"in-3", b"in-2"]
    transact(client, topic, [b"after"])
    assert values_of(servers, topic) == [b"before", b"in-1", b"in-3", b"after", b"in-2"]


@both_ways
def test_the_open_transaction_of_a_dead_producer_is_aborted_by_its_next_session(
    own: LocalBroker, again: Restart
) -> None:
    # contract: kip-98/sessions
    servers = own.bootstrap_servers
    topic, name = create_topic(servers, "dead"), unique("dead")
    dead = producer(servers, transactional_id=name)
    dead.init_transactions(PATIENCE_S)
    transact(dead, topic, [b"committed"])
    transact(dead, topic, [b"aborted"], commit=False)
    dead.begin_transaction()
    dead.produce(topic, b"lost")
    assert dead.flush(PATIENCE_S) == 0
    again(own)
    send_all(servers, topic, [b"plain"])
    assert values_of(servers, topic) == [b"committed"], (
        "the last stable offset passed an open transaction"
    )
    successor = producer(servers, transactional_id=name)
    successor.init_transactions(PATIENCE_S)
    assert values_of(servers, topic) == [b"committed", b"plain"]
    transact(successor, topic, [b"successor"])
    assert values_of(servers, topic) == [b"committed", b"plain", b"successor"]
    with pytest.raises(confluent_kafka.KafkaException):
        dead.commit_transaction(PATIENCE_S)
    assert values_of(servers, topic) == [b"committed", b"plain", b"successor"]


def test_the_open_transaction_of_a_dead_producer_times_out_after_a_kill(own: LocalBroker) -> None:
    servers = own.bootstrap_servers
    topic = create_topic(servers, "timeout")
    dead = in_a_short_transaction(servers, topic, b"lost", timeout_ms=1500)
    killed(own)
    send_all(servers, topic, [b"plain"])
    eventually(lambda: values_of(servers, topic) == [b"plain"], what="the transaction is aborted")
    assert set(values_of(servers, topic, committed=False)) == {b"lost", b"plain"}
    del dead


@both_ways
def test_offsets_in_an_open_transaction_are_pending_after_a_restart_until_its_commit(
    own: LocalBroker, again: Restart
) -> None:
    servers = own.bootstrap_servers
    source, target, group = (
        create_topic(servers, "source"),
        create_topic(servers, "target"),
        unique("group"),
    )
    send_all(servers, source, [b"%d" % number for number in range(10)])
    reader = consumer(servers, group)
    client = producer(servers, transactional_id=unique("etl"))
    client.init_transactions(PATIENCE_S)
    for offset, commit in ((4, True), (7, False)):
        client.begin_transaction()
        client.produce(target, b"to %d" % offset)
        client.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(source, 0, offset)],
            reader.consumer_group_metadata(),
            PATIENCE_S,
        )
        if commit:
            client.commit_transaction(PATIENCE_S)
    assert client.flush(PATIENCE_S) == 0
    again(own)
    # The open transaction's offset is pending. An OffsetFetch without require_stable returns the
    # last committed offset.
    with Wire(own.port) as connection:
        fetch = wire.request(
            OffsetFetchRequest(
                group_id=group, topics=[OffsetFetchRequestTopic(name=source, partition_indexes=[0])]
            ),
            6,
        )
        answer = connection.call(fetch)
        assert answer.topics[0].partitions[0].committed_offset == 4
    assert values_of(servers, target) == [b"to 4"]
    client.commit_transaction(PATIENCE_S)
    assert committed_offset(servers, group, source) == 7
    assert values_of(servers, target) == [b"to 4", b"to 7"]
    killed(own)
    assert committed_offset(servers, group, source) == 7
    reader.close()


@both_ways
def test_an_idempotent_producer_continues_without_duplicate_or_gap(
    own: LocalBroker, again: Restart
) -> None:
    # contract: kip-98/sequences
    """The producer sends continuously while the broker is killed and restarted three times."""
    servers = own.bootstrap_servers
    topic = create_topic(servers, "steady")
    failures: list[object] = []
    sent = 0
    ending = threading.Event()

    def run() -> None:
        nonlocal sent
        client = producer(
            servers,
            enable_idempotence=True,
            linger_ms=1,
            reconnect_backoff_max_ms=200,
            reconnect_backoff_ms=20,
        )
        while not ending.is_set():
            client.produce(
                topic,
                b"%d" % sent,
                partition=0,
                on_delivery=lambda error, _: failures.append(error) if error is not None else None,
            )
            sent += 1
            client.poll(0.001)
        assert client.flush(PATIENCE_S) == 0

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(3):
            mark = sent
            eventually(lambda mark=mark: sent > mark + 300, what="records are sent")
            again(own)
    finally:
        ending.set()
        thread.join()
    assert not failures, failures[:3]
    assert values_of(servers, topic) == [b"%d" % number for number in range(sent)]


def _batch(
    producer_id: int, epoch: int, sequence: int, *values: bytes, transactional: bool = False
) -> bytearray:
    """A batch of an idempotent or transactional producer, with a fixed time."""
    records = [NewRecord(None, value, timestamp=1_700_000_000_000) for value in values]
    return encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


@both_ways
def test_the_last_five_batches_of_a_producer_are_remembered(
    own: LocalBroker, again: Restart
) -> None:
    # contract: kip-98/window
    """If one of the last five batches is sent again, the response contains the first offset of that
    batch. Older batches, and batches after a gap, are refused.
    """
    topic = create_topic(own.bootstrap_servers, "window")
    with Wire(own.port) as connection:
        session = connection.call(
            wire.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 1
            )
        )
        offsets = []
        for sequence in range(0, 14, 2):
            batch = _batch(
                session.producer_id,
                session.producer_epoch,
                sequence,
                b"%d" % sequence,
                b"%d" % (sequence + 1),
            )
            answer = connection.call(wire.produce(None, topic, 0, batch))
            assert answer.error_code == Code.NONE
            offsets.append(answer.base_offset)
    assert offsets == [0, 2, 4, 6, 8, 10, 12]
    again(own)
    with Wire(own.port) as connection:
        for sequence in (4, 6, 8, 10, 12, 4):
            batch = _batch(
                session.producer_id,
                session.producer_epoch,
                sequence,
                b"%d" % sequence,
                b"%d" % (sequence + 1),
            )
            answer = connection.call(wire.produce(None, topic, 0, batch))
            assert (answer.error_code, answer.base_offset) == (Code.NONE, sequence)
        old = connection.call(
            wire.produce(
                None, topic, 0, _batch(session.producer_id, session.producer_epoch, 2, b"2", b"3")
            )
        )
        assert old.error_code in (DUPLICATE, OUT_OF_ORDER)
        gap = connection.call(
            wire.produce(
                None, topic, 0, _batch(session.producer_id, session.producer_epoch, 16, b"gap")
            )
        )
        assert gap.error_code == OUT_OF_ORDER
        stale = connection.call(
            wire.produce(
                None,
                topic,
                0,
                _batch(session.producer_id, session.producer_epoch + 1, 5, b"not from 0"),
            )
        )
        assert stale.error_code == OUT_OF_ORDER
        following = connection.call(
            wire.produce(
                None, topic, 0, _batch(session.producer_id, session.producer_epoch, 14, b"14")
            )
        )
        assert (following.error_code, following.base_offset) == (Code.NONE, 14)
    assert values_of(own.bootstrap_servers, topic) == [b"%d" % number for number in range(15)]


def test_producer_ids_are_not_given_twice(own: LocalBroker) -> None:
    # contract: kip-98/producer-ids
    given = []
    for _ in range(3):
        with Wire(own.port) as connection:
            for _ in range(3):
                answer = connection.call(
                    wire.request(
                        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
                        1,
                    )
                )
                given.append(answer.producer_id)
        killed(own)
    assert len(set(given)) == 9, given


@both_ways
def test_a_group_keeps_its_offsets_and_its_members(own: LocalBroker, again: Restart) -> None:
    """A running member continues in its generation. There is no rebalance, and no record is read
    twice.
    """
    servers = own.bootstrap_servers
    topic, group = create_topic(servers, "group", 2), unique("group")
    for partition in range(2):
        send_all(
            servers,
            topic,
            [b"%d-%d" % (partition, number) for number in range(20)],
            partition=partition,
        )
    rebalances: list[str] = []
    values: list[bytes] = []
    member = consumer(
        servers,
        group,
        session_timeout_ms=120_000,
        heartbeat_interval_ms=200,
        reconnect_backoff_max_ms=200,
        partition_assignment_strategy="range",
    )
    member.subscribe(
        [topic],
        on_assign=lambda *_: rebalances.append("assign"),
        on_revoke=lambda *_: rebalances.append("revoke"),
    )

    def poll() -> int:
        values.extend(
            message.value() for message in member.consume(100, 0.05) if message.error() is None
        )
        return len(values)

    eventually(lambda: poll() == 40, what="everything is read", pause_s=0)
    member.commit(asynchronous=False)
    client = admin(servers)
    before = client.describe_consumer_groups([group])[group].result(PATIENCE_S)
    again(own)
    send_all(servers, topic, [b"late"])
    eventually(lambda: poll() == 41, what="the member reads on", pause_s=0)
    member.commit(asynchronous=False)
    client = admin(servers)
    after = client.describe_consumer_groups([group])[group].result(PATIENCE_S)
    assert [found.member_id for found in after.members] == [
        found.member_id for found in before.members
    ]
    assert after.state == before.state == confluent_kafka.ConsumerGroupState.STABLE
    assert rebalances == ["assign"], "the member was rebalanced"
    member.close()
    assert values[-1] == b"late"
    assert [committed_offset(servers, group, topic, partition) for partition in range(2)] == [
        21,
        20,
    ]


def test_a_transaction_is_whole_whenever_the_broker_is_killed(own: LocalBroker) -> None:
    # contract: kip-98/atomic
    """The transactions have records in four partitions. Each kill comes at another stage of a
    transaction.
    """
    servers = own.bootstrap_servers
    topic = create_topic(servers, "whole", 4)
    sure: set[bytes] = set()
    aborted: set[bytes] = set()
    unsure: set[bytes] = set()
    done = threading.Event()
    progress = [0]
    died: list[BaseException] = []

    def run() -> None:
        number = 0
        try:
            while not done.is_set():
                client = producer(
                    servers,
                    transactional_id="one",
                    reconnect_backoff_max_ms=100,
                    reconnect_backoff_ms=10,
                    socket_timeout_ms=5000,
                )
                client.init_transactions(PATIENCE_S)
                try:
                    while not done.is_set():
                        number += 1
                        value = b"%d" % number
                        client.begin_transaction()
                        for partition in range(4):
                            client.produce(topic, value, partition=partition)
                        if number % 5 == 0:
                            client.flush(PATIENCE_S)
                            aborted.add(value)
                            client.abort_transaction(PATIENCE_S)
                        else:
                            unsure.add(value)
                            client.commit_transaction(PATIENCE_S)
                            unsure.discard(value)
                            sure.add(value)
                        progress[0] = number
                except confluent_kafka.KafkaException:
                    # a new session ends the last transaction, whose outcome is unknown until then
                    continue
        except BaseException as error:
            died.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for round_number in range(6):
            mark = progress[0]
            eventually(lambda mark=mark: died or progress[0] > mark + 20, what="transactions go on")
            time.sleep(0.0007 * round_number)  # varies the transaction's stage at the kill
            killed(own)
    finally:
        done.set()
        thread.join()
    assert not died, died
    last = producer(servers, transactional_id="one")
    last.init_transactions(PATIENCE_S)
    found: dict[int, list[bytes | None]] = {}
    for seen in sorted(read_all(servers, topic)):
        found.setdefault(seen.partition, []).append(seen.value)
    assert found[0] == found[1] == found[2] == found[3], "a transaction is torn"
    values = found[0]
    assert len(set(values)) == len(values), "a transaction is there twice"
    assert values == sorted(values, key=lambda value: int(value or b"")), (
        "the order is not that of the commits"
    )
    assert sure <= set(values), "a committed transaction is lost"
    assert not aborted & set(values), "an aborted transaction shows"
    assert set(values) <= sure | unsure


def test_kafka_python_reads_committed_records_after_a_kill(own: LocalBroker) -> None:
    topic = create_topic(own.bootstrap_servers, "other")
    KafkaPython.transactions(
        own.bootstrap_servers, topic, [([b"a"], True), ([b"x"], False), ([b"b"], True)]
    )
    killed(own)
    assert KafkaPython.read(own.bootstrap_servers, topic, committed=True) == [b"a", b"b"]
    KafkaPython.transactions(own.bootstrap_servers, topic, [([b"y"], False), ([b"c"], True)])
    assert KafkaPython.read(own.bootstrap_servers, topic, committed=True) == [b"a", b"b", b"c"]


def test_deleted_topics_do_not_come_back(own: LocalBroker) -> None:
    servers = own.bootstrap_servers
    kept, deleted = create_topic(servers, "kept"), create_topic(servers, "deleted")
    send_all(servers, deleted, [b"old"])
    client = admin(servers)
    for future in client.delete_topics([deleted]).values():
        future.result(PATIENCE_S)
    killed(own)
    names = set(admin(servers).list_topics(timeout=PATIENCE_S).topics)
    assert kept in names
    assert deleted not in names
    (future,) = client.create_topics([confluent_kafka.admin.NewTopic(deleted, 1, 1)]).values()
    future.result(PATIENCE_S)
    assert values_of(servers, deleted) == []


def test_deleted_records_do_not_come_back(own: LocalBroker) -> None:
    servers = own.bootstrap_servers
    topic = create_topic(servers, "cut")
    send_all(servers, topic, [b"%d" % number for number in range(10)])
    client = admin(servers)
    (future,) = client.delete_records([confluent_kafka.TopicPartition(topic, 0, 6)]).values()
    assert future.result(PATIENCE_S).low_watermark == 6
    stopped(own)
    assert values_of(servers, topic) == [b"6", b"7", b"8", b"9"]
