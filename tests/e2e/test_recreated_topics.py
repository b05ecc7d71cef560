"""A topic that is deleted, created again and filled while the Spark source reads a range of it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from confluent_kafka.admin import AdminClient, NewTopic
from helpers.e2e_clients import create_topic, send_all

from barnabas import LocalBroker
from barnabas.client.cluster_reader import ClusterReader
from barnabas.spark_connector.read.offsets import OffsetRange
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.read.reading import DataLossError, read_range

CHUNKS, CHUNK = 12, 100
COUNT = CHUNKS * CHUNK


def test_a_read_of_a_recreated_topic_fails_instead_of_returning_the_new_topics_records() -> None:
    with LocalBroker() as broker:
        servers = broker.bootstrap_servers
        topic = create_topic(servers, "read")
        fill(servers, topic, b"old")
        options = parse_source_options(
            {
                "kafka.bootstrap.servers": servers,
                "subscribe": topic,
                "kafka.max.partition.fetch.bytes": "2000",
            }
        )
        seen: list[bytes] = []
        with ClusterReader(options.client) as client:
            client.partitions_of([topic])
            parts = read_range(
                client,
                OffsetRange(topic, 0, 0, COUNT),
                ["value"],
                read_committed=True,
                fail_on_data_loss=True,
                topic_id=client.topic_ids[topic],
            )
            seen += next(parts).column(0).to_pylist()
            recreate(servers, topic)
            with pytest.raises(DataLossError, match="was deleted and recreated"):
                seen.extend(value for part in parts for value in part.column(0).to_pylist())
        assert set(seen) == {b"old"} and len(seen) < COUNT


def recreate(servers: str, topic: str) -> None:
    """Delete the topic, and create it again with other records."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    admin.delete_topics([topic])[topic].result(60)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    fill(servers, topic, b"new")


def fill(servers: str, topic: str, value: bytes) -> None:
    """Write records in batches so small that reading all of them takes several fetches."""
    for _ in range(CHUNKS):
        send_all(servers, topic, [value] * CHUNK)
