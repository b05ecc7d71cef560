"""Compaction in the real daemon, by a separate process, while clients write and read and both
processes are killed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.e2e_clients import PATIENCE_S, RECONNECTING, eventually

from barnabas import LocalBroker

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "100",
    "offsets.topic.segment.bytes": "2000",
    "transaction.state.log.segment.bytes": "2000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "500",
}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker for one test, whose output may have no errors at the end."""
    with LocalBroker(tmp_path / "data", settings=SETTINGS) as broker:
        yield broker
        assert not [
            line for line in broker.output if "Traceback" in line or " CRITICAL " in line
        ], "".join(broker.output[-60:])


def create(broker: LocalBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=COMPACTED)])[name].result(PATIENCE_S)


def transactional(broker: LocalBroker, name: str) -> Producer:
    """A producer with this transactional id, which reconnects soon after the broker was killed."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, **RECONNECTING}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def write(producer: Producer, topic: str, rounds: range) -> dict[bytes, bytes]:
    """Write one transaction in each round, over five keys. Every third transaction is aborted.
    Gives: the last committed value of each key.
    """
    committed: dict[bytes, bytes] = {}
    for turn in rounds:
        producer.begin_transaction()
        pairs = {b"k%d" % number: b"%d.%d" % (turn, number) for number in range(5)}
        for key, value in pairs.items():
            producer.produce(topic, value, key)
        if turn % 3 == 1:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
            committed |= pairs
    return committed


def read(
    broker: LocalBroker, topic: str, isolation: str = "read_committed"
) -> list[tuple[bytes | None, bytes | None]]:
    """The key and value of all records of the topic's only partition, from the start to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reads",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    end = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < end, "the end of the log is not reached"
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append((message.key(), message.value()))
        elif message is not None:
            break
    consumer.close()
    return found


def cleaners(broker: LocalBroker) -> list[psutil.Process]:
    """The running child processes of the broker, all of which are cleaners."""
    return [child for child in psutil.Process(broker.pid).children() if is_running(child)]


def is_running(process: psutil.Process) -> bool:
    """Whether the process runs. A zombie does not run, but may exist for a long time if no process
    reaps orphans.
    """
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def compactions(broker: LocalBroker, name: str) -> int:
    return sum(f"{name}: compacted up to" in line for line in broker.output)


def failures(broker: LocalBroker) -> int:
    return sum("cannot be compacted; tried again in" in line for line in broker.output)


def wait_for_another(broker: LocalBroker, name: str, before: int) -> None:
    eventually(lambda: compactions(broker, name) > before, what=f"{name} is compacted")


def test_readers_see_the_last_committed_value_of_each_key_during_and_after_compaction(
    own: LocalBroker,
) -> None:
    create(own, "t")
    producer = transactional(own, "writes")
    committed: dict[bytes, bytes] = {}
    for turn in range(6):
        committed |= write(producer, "t", range(turn * 20, turn * 20 + 20))
        assert dict(read(own, "t")) == committed
    eventually(
        lambda: len(read(own, "t", "read_uncommitted")) < 200, what="what is left of 600 records"
    )
    wait_for_another(own, "t-0", 0)
    wait_for_another(own, "__transaction_state-0", 0)
    found = cleaners(own)
    assert len(found) <= 1
    assert own.stop() == 0
    assert not any(map(is_running, found)), "the cleaner's process is left behind"
    own.restart()
    assert dict(read(own, "t")) == committed


def test_compaction_continues_after_its_process_was_killed(own: LocalBroker) -> None:
    create(own, "t")
    producer = transactional(own, "writes")
    committed = write(producer, "t", range(30))
    wait_for_another(own, "t-0", 0)
    turn = 0

    def kill_and_write() -> bool:
        """Write, and kill the cleaner's process if there is one. The process exits after some idle
        time, and a later round finds a new process.
        """
        nonlocal turn
        turn += 1
        for child in cleaners(own):
            child.kill()
        committed.update(write(producer, "t", range(turn * 30, turn * 30 + 30)))
        assert dict(read(own, "t")) == committed
        return turn >= 3 and failures(own) > 0

    eventually(kill_and_write, what="a job fails whose process was killed")
    assert own.process is not None and own.process.poll() is None


def test_no_committed_value_is_lost_if_the_broker_is_killed_during_compaction(
    own: LocalBroker,
) -> None:
    """The cleaner's process ends with the broker. The partition's directory then contains only
    files with known suffixes.
    """
    create(own, "t")
    committed: dict[bytes, bytes] = {}
    for turn in range(4):
        producer = transactional(own, "writes")
        committed |= write(producer, "t", range(turn * 25, turn * 25 + 25))
        # In odd turns, the broker may be killed without waiting for another compaction, so that the
        # kill may come during one.
        wait_for_another(own, "t-0", compactions(own, "t-0") - 1 if turn % 2 else 0)
        found = cleaners(own)
        own.kill()
        eventually(
            lambda found=found: not any(map(is_running, found)),
            what="the cleaner's process ends with the broker",
        )
        own.output.clear()
        own.restart()
        assert dict(read(own, "t")) == committed
    own.stop()  # checked after a stop, since a running broker creates and deletes files
    names = {path.suffix for path in (Path(own.data_dir) / "t-0").iterdir()}
    assert names <= {
        ".log",
        ".index",
        ".timeindex",
        ".txnindex",
        ".snapshot",
        ".manifest",
        ".metadata",
        ".deleted",
        ".cleaned",
        ".swap",
        "",
    }
