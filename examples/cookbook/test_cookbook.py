"""Situations of Kafka clients as tests, to copy. They run with `pytest` if Barnabas is installed.

The functions before the first test are shared by all. docs/TESTING.md lists the situations.
"""

import json
import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

pytestmark = pytest.mark.barnabas(control=True, topics={"orders": 1, "invoices": 1})


@pytest.fixture
def broker(fresh_barnabas_broker):
    return fresh_barnabas_broker


def producer(broker, **settings):
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **settings})


def transactional(broker, name, **settings):
    made = producer(broker, **{"transactional.id": name, **settings})
    made.init_transactions(30)
    return made


def consumer(broker, group, topic="orders", **settings):
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    made.subscribe([topic])
    return made


def read(made, count):
    values = []
    while len(values) < count:
        message = made.poll(30)
        assert message is not None, f"{count} are expected, and {values} came"
        assert message.error() is None, message.error()
        values.append(message.value())
    return values


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_an_acknowledgement_is_lost(broker, is_idempotent):
    """A lost acknowledgement, and a retry. Is the record duplicated? With idempotence it is not."""
    sender = producer(
        broker,
        **{"enable.idempotence": is_idempotent, "socket.timeout.ms": 1000, "retry.backoff.ms": 10},
    )
    with broker.control.fault("drop_answer", api="Produce", nth=1):
        sender.produce("orders", b"coffee")
        assert sender.flush(30) == 0
    sender.produce("orders", b"the end")
    assert sender.flush(30) == 0
    values = read(consumer(broker, "g"), 2 if is_idempotent else 3)
    assert values.count(b"coffee") == (1 if is_idempotent else 2)


def test_fenced_in_the_middle_of_a_commit(broker):
    """A producer that is fenced during its commit. Its successor starts while the EndTxn is in
    the network.
    """
    old = transactional(broker, "shop")
    old.begin_transaction()
    old.produce("orders", b"by the old one")
    old.flush(30)
    with broker.control.fault("hold", api="EndTxn", nth=1) as held:
        with pytest.raises(KafkaException):
            old.commit_transaction(1)
        new = transactional(broker, "shop")  # aborts what its predecessor left open
        held.release()
        with pytest.raises(KafkaException) as refused:
            old.commit_transaction(30)
        assert refused.value.args[0].code() in (
            KafkaError._FENCED,
            KafkaError.PRODUCER_FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
        )
    new.begin_transaction()
    new.produce("orders", b"by the new one")
    new.commit_transaction(30)
    assert read(consumer(broker, "g"), 1) == [b"by the new one"]


def test_the_answer_to_a_commit_is_lost(broker):
    """The answer to a commit is lost. The retry succeeds, and nothing is duplicated."""
    sender = transactional(broker, "shop", **{"socket.timeout.ms": 1000})
    sender.begin_transaction()
    sender.produce("orders", b"once")
    with broker.control.fault("drop_answer", api="EndTxn", nth=1):
        sender.commit_transaction(30)
    outcomes = [request["outcome"] for request in broker.requests(api="EndTxn")]
    assert outcomes == ["answer dropped", "answered"]
    assert read(consumer(broker, "g"), 1) == [b"once"]


def test_the_late_commit_of_the_transaction_before(broker):
    """The late EndTxn. A delayed commit arrives after its retry, during the next transaction of
    the same producer. The first version of Kafka's transaction protocol cannot distinguish the
    two, so in Apache Kafka the late request ends the second transaction (KAFKA-14402).
    Barnabas ignores requests over a connection that their producer has replaced.
    """
    sender = transactional(broker, "shop", **{"socket.timeout.ms": 1000})
    sender.begin_transaction()
    sender.produce("orders", b"first")
    with broker.control.fault("hold", api="EndTxn", nth=1) as held:
        sender.commit_transaction(30)  # the first try is under way, the second does it
        sender.begin_transaction()
        sender.produce("orders", b"second")
        sender.flush(30)
        held.release()
        reader = consumer(broker, "g")
        assert read(reader, 1) == [b"first"]
        assert reader.poll(1) is None
    sender.commit_transaction(30)
    assert read(reader, 1) == [b"second"]


def test_a_rebalance_between_read_and_commit(broker):
    """A rebalance between read and commit. The member that lost the partition must not commit for
    it.
    """
    settings = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
    first = consumer(broker, "kitchen", **settings)
    sender = producer(broker)
    sender.produce("orders", b"coffee")
    sender.flush(30)
    assert read(first, 1) == [b"coffee"]
    with broker.control.fault("hold", group="kitchen", client_id="rdkafka"):
        broker.control.advance(seconds=10)  # its session ends: the group goes on without it
    with pytest.raises(KafkaException) as refused:
        first.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() in (
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
    )
    assert read(consumer(broker, "kitchen"), 1) == [b"coffee"]


def test_an_idle_week(broker):
    """An idle week. The transactional id expires (`transactional.id.expiration.ms`), and its
    producer gets an error. Retention (`log.retention.hours`) has deleted the records.
    """
    sender = transactional(broker, "shop")
    sender.begin_transaction()
    sender.produce("orders", b"before the holidays")
    sender.commit_transaction(30)
    broker.control.advance(days=8)
    sender.begin_transaction()
    sender.produce("orders", b"after them")
    with pytest.raises(KafkaException):
        sender.commit_transaction(30)
    again = transactional(broker, "shop")
    again.begin_transaction()
    again.produce("orders", b"as a new session")
    again.commit_transaction(30)
    assert read(consumer(broker, "g"), 1) == [b"as a new session"]


def test_a_transaction_times_out_while_a_consumer_waits(broker):
    """A transaction that times out while a consumer waits behind it."""
    stuck = transactional(broker, "stuck", **{"transaction.timeout.ms": 60000})
    stuck.begin_transaction()
    stuck.produce("orders", b"never committed")
    stuck.flush(30)
    sender = producer(broker)
    sender.produce("orders", b"behind it")
    sender.flush(30)
    reader = consumer(broker, "g")
    assert reader.poll(2) is None  # the last stable offset is at the open transaction
    (transaction,) = broker.open_transactions()
    assert transaction.transactional_id == "stuck"
    broker.control.advance(minutes=2)
    assert broker.open_transactions() == []
    assert read(reader, 1) == [b"behind it"]


@pytest.mark.parametrize("how", ["kill", "lose_power"])
def test_the_broker_dies_before_it_decides(broker, how):
    """A broker that dies between the data and the decision."""
    sender = transactional(broker, "shop", **{"transaction.timeout.ms": 60000})
    sender.begin_transaction()
    sender.produce("orders", b"undecided")
    sender.flush(30)
    getattr(broker, how)()
    broker.restart()
    if how == "kill":
        broker.control.advance(minutes=2)  # after a kill it goes on, until it times out
    with pytest.raises(KafkaException):  # after a power loss it cannot be committed
        sender.commit_transaction(30)
    again = transactional(broker, "shop")
    again.begin_transaction()
    again.produce("orders", b"decided")
    again.commit_transaction(30)
    assert read(consumer(broker, "g"), 1) == [b"decided"]


def test_a_power_loss_takes_what_was_not_flushed(broker):
    """A power loss. Records that were acknowledged without a flush are lost; committed ones are
    not.
    """
    sender = transactional(broker, "shop")
    sender.begin_transaction()
    sender.produce("orders", b"committed")
    sender.commit_transaction(30)
    plain = producer(broker)
    plain.produce("orders", b"acknowledged by one machine")
    assert plain.flush(30) == 0
    broker.lose_power()
    broker.restart()
    reader = consumer(broker, "g")
    assert read(reader, 1) == [b"committed"]
    assert reader.poll(2) is None


def test_a_poison_record(broker):
    """A poison record. The consumer stops at it for ever, or skips it and processes the rest."""
    sender = producer(broker)
    for value in (b'{"cups": 1}', b"\xff\xfe not JSON", b'{"cups": 2}'):
        sender.produce("orders", value)
    assert sender.flush(30) == 0
    cups, poison = 0, []
    reader = consumer(broker, "kitchen")
    for value in read(reader, 3):
        try:
            cups += json.loads(value)["cups"]
        except ValueError:
            poison.append(value)
    reader.commit(asynchronous=False)
    assert (cups, len(poison)) == (3, 1)


def test_a_slow_broker(broker):
    """A slow broker. Each request takes long; nothing is lost, and the client does not give up."""
    with broker.control.fault("delay", ms=150):
        sender = transactional(broker, "shop")
        sender.begin_transaction()
        sender.produce("orders", b"patience")
        sender.commit_transaction(30)
        assert read(consumer(broker, "g"), 1) == [b"patience"]


def test_offsets_in_an_open_transaction(broker):
    """UNSTABLE_OFFSET_COMMIT. A consumer that starts while its group's offsets are in an open
    transaction waits for the end of the transaction, and begins at these offsets.
    """
    sender = producer(broker)
    for value in (b"1", b"2"):
        sender.produce("orders", value)
    sender.flush(30)
    first = consumer(broker, "kitchen")
    assert read(first, 1) == [b"1"]
    worker = transactional(broker, "worker")
    worker.begin_transaction()
    worker.produce("invoices", b"for 1")
    offsets = [TopicPartition("orders", 0, 1)]
    worker.send_offsets_to_transaction(offsets, first.consumer_group_metadata(), 30)
    first.close()
    second = consumer(broker, "kitchen")
    assert second.poll(2) is None
    answered = {error for one in broker.requests("OffsetFetch") for error in one["errors"]}
    assert "UNSTABLE_OFFSET_COMMIT" in answered
    worker.commit_transaction(30)
    assert read(second, 1) == [b"2"]


def test_a_coordinator_moves(broker):
    """A coordinator that moves. Clients look up the new coordinator, and continue."""
    sender = transactional(broker, "shop")
    sender.begin_transaction()
    sender.produce("orders", b"found again")
    with broker.control.fault("error", api="EndTxn", code="NOT_COORDINATOR", times=2) as fault:
        sender.commit_transaction(30)
        assert fault.met == 2
    assert read(consumer(broker, "g"), 1) == [b"found again"]


@pytest.mark.barnabas(brokers=3, control=True, topics={"orders": 3})
def test_a_broker_of_three_dies(broker):
    """A broker that dies between data and commit, and returns. Meanwhile other brokers lead its
    partitions and coordinate its transactions; producer and consumer find them, and nothing is
    lost or duplicated.
    """
    sender = transactional(broker, "shop")
    reader = consumer(broker, "kitchen")
    while not reader.assignment():  # a librdkafka that loses its broker while it joins may hang
        assert reader.poll(0.1) is None
    expected = []
    for dead in (1, 2, 3):
        sender.begin_transaction()
        for partition in range(3):
            value = f"{dead}-{partition}".encode()
            sender.produce("orders", value, partition=partition)
            expected.append(value)
        sender.flush(30)
        with broker.control.without_broker(dead):
            assert all(broker.control.leader("orders", index) != dead for index in range(3))
            sender.commit_transaction(30)
            assert sorted(read(reader, 3)) == sorted(expected[-3:])
    everything = read(consumer(broker, "audit"), len(expected))
    assert sorted(everything) == sorted(expected)


@pytest.mark.barnabas(brokers=3, control=True, topics=["orders"])
def test_a_leader_moves(broker):
    """A leader that moves under a producer. Its next batch is refused with
    NOT_LEADER_OR_FOLLOWER, and sent again to the new leader.
    """
    sender = producer(broker, **{"enable.idempotence": True, "retry.backoff.ms": 10})
    for number in range(10):
        leader = broker.control.leader("orders")
        broker.control.move_leader("orders", 0, leader % 3 + 1)
        began = time.monotonic()
        sender.produce("orders", str(number).encode())
        assert sender.flush(30) == 0
        assert time.monotonic() - began < 5
    refused = [one for one in broker.requests("Produce") if one["errors"]]
    assert {error for one in refused for error in one["errors"]} == {"NOT_LEADER_OR_FOLLOWER"}
    assert read(consumer(broker, "g"), 10) == [str(number).encode() for number in range(10)]


@pytest.mark.barnabas(brokers=3, control=True, topics={"orders": 3})
def test_the_coordinator_of_a_transaction_moves(broker):
    """A transaction whose coordinator moves. It continues where it was."""
    sender = transactional(broker, "shop")
    for number, node in enumerate((2, 3, 1)):
        sender.begin_transaction()
        sender.produce("orders", str(number).encode(), partition=0)
        sender.flush(30)
        broker.control.move_coordinator(node, transactional_id="shop")
        sender.commit_transaction(30)
    assert read(consumer(broker, "g"), 3) == [b"0", b"1", b"2"]
    assert broker.open_transactions() == []
