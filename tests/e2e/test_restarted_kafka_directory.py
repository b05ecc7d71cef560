"""The daemon on a log directory of an Apache Kafka 3.9 that was restarted twice.

Its partitions have the leader epochs 0, 2 and 4, its markers were written by coordinators with
these epochs, and the transaction of the transactional id delta was left open. expected.json has
what librdkafka read from Kafka immediately before Kafka's last stop, which was clean. Each test
works on a copy.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from helpers.e2e_clients import (
    PATIENCE_S,
    committed_offset,
    consumer,
    producer,
    transact,
    wait_until_ready,
)
from helpers.e2e_rows import READERS, Row, rows_by_confluent
from helpers.e2e_wire import Wire
from sim import wire

from barnabas import LocalBroker
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

FIXTURE = Path(__file__).parent.parent / "fixtures" / "kafka-logdir-restarted"
EXPECTED: dict[str, Any] = json.loads((FIXTURE / "expected.json").read_text())
KAFKAS_LATEST_EPOCH = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker on a copy of the directory. At the end, its output must contain no traceback and no
    error.
    """
    shutil.copytree(FIXTURE / "logdir", tmp_path / "data")
    with LocalBroker(
        tmp_path / "data", settings={"log.retention.ms": "-1"}
    ) as running:  # the directory's records are of 2023, and would expire
        yield running
        wrong = [
            line
            for line in running.output
            if "Traceback" in line or " ERROR " in line or " CRITICAL " in line
        ]
        assert not wrong, "".join(running.output)


def stopped(broker: LocalBroker) -> None:
    assert broker.stop() == 0


def killed(broker: LocalBroker) -> None:
    broker.kill()


def expected_rows(section: str, partition: int) -> list[Row]:
    return [tuple(row) for row in EXPECTED[section][str(partition)]["records"]]


@pytest.mark.parametrize("read", READERS)
def test_records_and_offsets_that_kafka_wrote_between_two_restarts_are_read(
    broker: LocalBroker, read: Callable[..., list[Row]]
) -> None:
    servers = broker.bootstrap_servers
    for topic, partition in (("plain", 0), ("plain", 1), ("compacted", 0)):
        assert read(servers, topic, partition, committed=True) == expected_rows(topic, partition)
    for partition in range(2):
        assert read(servers, "txn", partition, committed=True) == expected_rows(
            "txn read_committed", partition
        )
        assert read(servers, "txn", partition, committed=False) == expected_rows(
            "txn read_uncommitted", partition
        )
    for name, (offset, _) in EXPECTED["committed offsets"]["readers"].items():
        topic, _, index = name.rpartition("-")
        assert committed_offset(servers, "readers", topic, int(index)) == offset


def test_a_consumer_with_kafkas_last_leader_epoch_continues(broker: LocalBroker) -> None:
    reader = consumer(broker.bootstrap_servers, auto_offset_reset="error")
    try:
        reader.assign(
            [confluent_kafka.TopicPartition("plain", 0, 40, leader_epoch=KAFKAS_LATEST_EPOCH)]
        )
        found = [message for message in reader.consume(5, PATIENCE_S) if message.error() is None]
    finally:
        reader.close()
    assert [(message.offset(), message.leader_epoch()) for message in found] == [
        (offset, KAFKAS_LATEST_EPOCH) for offset in range(40, 45)
    ]


def leader_epoch_in_metadata(connection: Wire, topic: str) -> int:
    call = wire.request(
        MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
        ),
        7,
    )
    epoch: int = connection.call(call).topics[0].partitions[0].leader_epoch
    return epoch


def test_the_leader_epoch_is_one_above_kafkas_last(broker: LocalBroker) -> None:
    """Kafka led the partition in the epochs 0, 2 and 4, which end at 15, 30 and 45. This broker's
    epoch is the next one, and requests with another current epoch are refused.
    """
    with Wire(broker.port) as connection:
        epoch = leader_epoch_in_metadata(connection, "plain")
        assert epoch == KAFKAS_LATEST_EPOCH + 1

        def end_of(asked: int, current: int = epoch) -> tuple[int, int, int]:
            partition = OffsetForLeaderPartition(
                partition=0, current_leader_epoch=current, leader_epoch=asked
            )
            call = wire.request(
                OffsetForLeaderEpochRequest(
                    replica_id=-1,
                    topics=[OffsetForLeaderTopic(topic="plain", partitions=[partition])],
                ),
                4,
            )
            found = connection.call(call).topics[0].partitions[0]
            return found.error_code, found.leader_epoch, found.end_offset

        assert [end_of(asked) for asked in range(epoch + 2)] == [
            (0, 0, 15),
            (0, 0, 15),
            (0, 2, 30),
            (0, 2, 30),
            (0, 4, 45),
            (0, epoch, 45),
            (0, -1, -1),
        ]
        assert end_of(0, current=KAFKAS_LATEST_EPOCH)[0] == Code.FENCED_LEADER_EPOCH
        assert end_of(0, current=epoch + 1)[0] == Code.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("end", [stopped, killed])
def test_transactions_and_offsets_continue_across_restarts(
    broker: LocalBroker, end: Callable[[LocalBroker], None]
) -> None:
    """Transactions of transactional ids that Kafka wrote, on partitions with markers of coordinator
    epoch 4, stay committed across restarts.
    """
    servers = broker.bootstrap_servers
    wait_until_ready(servers)
    reader = consumer(servers, "readers")
    values: list[list[str]] = [[], []]
    for life in range(3):
        for name in ("alpha", "beta"):
            client = producer(servers, transactional_id=name)
            client.init_transactions(PATIENCE_S)
            client.begin_transaction()
            for partition in range(2):
                value = f"{name} in life {life}"
                client.produce("txn", value, partition=partition)
                values[partition].append(value)
            position = confluent_kafka.TopicPartition("plain", 0, 20 + life)
            client.send_offsets_to_transaction(
                [position], reader.consumer_group_metadata(), PATIENCE_S
            )
            client.commit_transaction(PATIENCE_S)
            transact(client, "txn", [b"aborted"], commit=False)
        for _ in range(2):
            for partition in range(2):
                rows = rows_by_confluent(servers, "txn", partition, committed=True)
                known = len(expected_rows("txn read_committed", partition))
                assert [row[3] for row in rows[known:]] == values[partition]
            assert committed_offset(servers, "readers", "plain", 0) == 20 + life
            end(broker)
            broker.restart()
            wait_until_ready(servers)
    reader.close()


def test_the_open_transaction_of_delta_is_aborted_by_its_next_session(
    broker: LocalBroker,
) -> None:
    """Kafka was stopped while the producer "delta" had a transaction open."""
    servers = broker.bootstrap_servers
    client = producer(servers, transactional_id="delta")
    client.init_transactions(PATIENCE_S)
    transact(client, "txn", [b"delta again"])
    rows = rows_by_confluent(servers, "txn", 0, committed=True)
    assert rows[:-1] == expected_rows("txn read_committed", 0)
    assert rows[-1][3] == "delta again"
