"""The daemon on a log directory that Apache Kafka 3.9 wrote. Clients read the same as from Kafka,
and transactions continue in their state.

expected.json has what clients read from Apache Kafka. Kafka was stopped cleanly, while the
transaction of the transactional id delta was open. Each test works on a copy of the directory.
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
    eventually,
    producer,
    send_all,
    transact,
    wait_until_ready,
)
from helpers.e2e_rows import READERS, Row, rows_by_confluent

from barnabas import LocalBroker

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

FIXTURE = Path(__file__).parent.parent / "fixtures" / "kafka-logdir"
EXPECTED: dict[str, Any] = json.loads((FIXTURE / "expected.json").read_text())
SETTINGS = {"log.retention.ms": "-1"}  # the directory's records are of 2023, and would expire
KAFKAS_OWN = {
    "__cluster_metadata-0/00000000000000000000.log": b"\0" * 100,
    "__cluster_metadata-0/quorum-state": b'{"data_version":1}',
    "bootstrap.checkpoint": b"\1" * 50,
}
PARTITIONS = [("plain", 0), ("plain", 1), ("txn", 0), ("txn", 1), ("compacted", 0)]
NOTHING = -1001
Restart = Callable[[LocalBroker], None]


def copy_of_the_directory(path: Path) -> Path:
    """A copy of the directory, with the other files that a KRaft node has in it."""
    shutil.copytree(FIXTURE / "logdir", path)
    for name, content in KAFKAS_OWN.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    return path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker on a copy of the directory. At the end, its output must contain no traceback and no
    error.
    """
    with LocalBroker(copy_of_the_directory(tmp_path / "data"), settings=SETTINGS) as running:
        yield running
        assert not [
            line
            for line in running.output
            if "Traceback" in line or " ERROR " in line or " CRITICAL " in line
        ], "".join(running.output)


def stopped(broker: LocalBroker) -> None:
    assert broker.stop() == 0


def killed(broker: LocalBroker) -> None:
    broker.kill()


def expected_rows(topic: str, partition: int, *, committed: bool) -> list[Row]:
    """The records that Kafka itself returned for this partition."""
    name = f"txn read_{'' if committed else 'un'}committed" if topic == "txn" else topic
    rows: list[Row] = [tuple(row) for row in EXPECTED[name][str(partition)]["records"]]
    return rows


def check_all_rows(servers: str, read: Callable[..., list[Row]]) -> None:
    """Check that a library's reader gets the same records as from Kafka, at both isolation
    levels.
    """
    for topic, partition in PARTITIONS:
        for committed in (True, False):
            assert read(servers, topic, partition, committed=committed) == expected_rows(
                topic, partition, committed=committed
            )


def check_committed_offsets(servers: str) -> None:
    """Check each group's committed offsets and metadata against Kafka's."""
    for group, rows in EXPECTED["committed offsets"].items():
        reader = consumer(servers, group)
        try:
            for name, (offset, metadata) in rows.items():
                topic, _, partition = name.rpartition("-")
                (found,) = reader.committed(
                    [confluent_kafka.TopicPartition(topic, int(partition))], PATIENCE_S
                )
                assert (found.offset, found.metadata or None) == (offset, metadata), (group, name)
        finally:
            reader.close()


@pytest.mark.parametrize("read", READERS)
def test_what_kafka_wrote_is_read(broker: LocalBroker, read: Callable[..., list[Row]]) -> None:
    check_all_rows(broker.bootstrap_servers, read)
    check_committed_offsets(broker.bootstrap_servers)


def test_topics_groups_and_cluster_id_are_taken_from_kafkas_directory(broker: LocalBroker) -> None:
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    listed = client.list_topics(timeout=PATIENCE_S)
    topics = {name: len(topic.partitions) for name, topic in listed.topics.items()}
    assert topics == {
        "plain": 2,
        "txn": 2,
        "compacted": 1,
        "__consumer_offsets": 2,
        "__transaction_state": 2,
    }
    assert listed.cluster_id == "S77YdvnpTm-HVUzxuSPgvQ"
    assert {group.group_id for group in client.list_consumer_groups().result(PATIENCE_S).valid} == {
        "readers",
        "plain-group",
    }
    for name, content in KAFKAS_OWN.items():
        assert Path(broker.data_dir, name).read_bytes() == content, f"{name} is Kafka's"


@pytest.mark.parametrize("end", [stopped, killed])
def test_a_second_start_has_kafkas_records_and_those_written_since(
    broker: LocalBroker, end: Restart
) -> None:
    """Clients read the earlier records and those written after the first start. The internal topics
    keep their two partitions.
    """
    servers = broker.bootstrap_servers
    wait_until_ready(servers)
    # one of the transactional ids that Kafka wrote
    client = producer(servers, transactional_id="alpha")
    client.init_transactions(PATIENCE_S)
    transact(client, "plain", [b"by alpha"])
    transact(client, "plain", [b"not by alpha"], commit=False)
    assert send_all(servers, "plain", [b"later"], partition=1) == [50]
    reader = consumer(servers, "plain-group")
    reader.commit(offsets=[confluent_kafka.TopicPartition("plain", 1, 20)], asynchronous=False)
    reader.close()
    for _ in range(2):
        end(broker)
        broker.restart()
        wait_until_ready(servers)
        for read in READERS:
            for committed, more in ((True, [50]), (False, [50, 52])):
                rows = read(servers, "plain", 0, committed=committed)
                assert rows[:50] == expected_rows("plain", 0, committed=committed)
                assert [row[0] for row in rows[50:]] == more
            rows = read(servers, "txn", 1, committed=True)
            assert rows == expected_rows("txn", 1, committed=True)
            assert read(servers, "txn", 0, committed=False) == expected_rows(
                "txn", 0, committed=False
            )
        assert committed_offset(servers, "plain-group", "plain", 1) == 20
        assert committed_offset(servers, "readers", "plain", 0) == 11
        assert committed_offset(servers, "readers", "plain", 1) == NOTHING


def test_the_open_transaction_of_delta_is_aborted_by_its_next_session(
    broker: LocalBroker,
) -> None:
    """Kafka was stopped while the producer "delta" had a transaction open."""
    servers = broker.bootstrap_servers
    client = producer(servers, transactional_id="delta")
    client.init_transactions(PATIENCE_S)
    transact(client, "txn", [b"delta again"])
    rows = rows_by_confluent(servers, "txn", 0, committed=True)
    assert rows[:-1] == expected_rows("txn", 0, committed=True)
    assert rows[-1][3] == "delta again"
    assert "open" in [row[3] for row in rows_by_confluent(servers, "txn", 0, committed=False)]


def test_the_open_transaction_of_delta_is_aborted_by_its_timeout(broker: LocalBroker) -> None:
    """The transaction's timeout of ten minutes has passed long ago. The broker aborts the
    transaction, the last stable offset moves to the end, and the transaction's records are not
    read.
    """
    servers = broker.bootstrap_servers
    reader = consumer(servers, isolation_level="read_committed")
    try:
        place = confluent_kafka.TopicPartition("txn", 0)
        eventually(
            lambda: reader.get_watermark_offsets(place, timeout=PATIENCE_S)[1] >= 50,
            what="the marker of delta's transaction",
        )
    finally:
        reader.close()
    assert rows_by_confluent(servers, "txn", 0, committed=True) == expected_rows(
        "txn", 0, committed=True
    )
