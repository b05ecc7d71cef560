"""Tasks of the Spark source over a connection that an earlier task of their process left open.
Between the tasks, the broker restarts or the topic is created again.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from helpers.e2e_clients import admin, create_named_topic, create_topic, send_all

from barnabas import LocalBroker
from barnabas.client.cluster_reader import ClusterReader
from barnabas.client.options import ClientOptions
from barnabas.spark_connector.read.offsets import OffsetRange
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.read.reading import DataLossError, read_range
from barnabas.spark_connector.task_process import task_client

VALUES = [b"%d" % number for number in range(300)]


def options_of(broker: LocalBroker) -> ClientOptions:
    """The connector's options for a client of this broker."""
    return parse_source_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "unused"}
    ).client


def task(options: ClientOptions, topic: str, topic_id: str = "") -> list[bytes]:
    """The values that a task reads."""
    with task_client(options) as client:
        return [
            value
            for batch in read_range(
                client,
                OffsetRange(topic, 0, 0, len(VALUES)),
                ["value"],
                read_committed=True,
                fail_on_data_loss=True,
                topic_id=topic_id,
            )
            for value in batch.column(0).to_pylist()
        ]


def test_a_task_reads_after_the_broker_restarted() -> None:
    with LocalBroker(in_memory=False) as broker:
        topic = create_topic(broker.bootstrap_servers, "kept")
        send_all(broker.bootstrap_servers, topic, VALUES)
        options = options_of(broker)
        assert task(options, topic) == VALUES
        broker.kill()
        broker.restart()
        for _ in range(2):
            assert task(options, topic) == VALUES


def test_a_task_notices_that_the_topic_was_deleted_and_recreated() -> None:
    """The task must not use the metadata that an earlier task requested."""
    with LocalBroker() as broker:
        servers = broker.bootstrap_servers
        topic = create_topic(servers, "made-again")
        send_all(servers, topic, VALUES)
        options = options_of(broker)
        with ClusterReader(options) as client:
            client.partitions_of([topic])
            topic_id = client.topic_ids[topic]
        assert task(options, topic, topic_id) == VALUES
        client_of_topics = admin(servers)
        client_of_topics.delete_topics([topic])[topic].result(60)
        create_named_topic(servers, topic)
        send_all(servers, topic, VALUES)
        with pytest.raises(DataLossError, match="was deleted and recreated"):
            task(options, topic, topic_id)
        assert task(options, topic) == VALUES
