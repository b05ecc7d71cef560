"""The reader with brokers of another implementation, librdkafka's mock cluster. It has three nodes,
and the partitions have leaders on different nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("confluent_kafka")

import confluent_kafka

from barnabas.client.cluster_reader import ClusterReader
from barnabas.spark_connector.read.options import SourceOptions, parse_source_options
from barnabas.spark_connector.read.planning import plan
from barnabas.spark_connector.read.reading import read_range
from barnabas.spark_connector.read.stream_planning import StreamPlanner

Row = tuple[bytes, list[tuple[str, bytes | None]] | None]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """The addresses of a mock cluster. The cluster exists as long as the client that created it."""
    host = confluent_kafka.Producer(
        {"bootstrap.servers": "none", "test.mock.num.brokers": 3, "log_level": 0}
    )
    yield ",".join(
        f"{broker.host}:{broker.port}" for broker in host.list_topics(timeout=60).brokers.values()
    )
    host.flush(0)


def write(servers: str, topic: str, numbers: range, codec: str = "none") -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "log_level": 0}
    )
    for number in numbers:
        headers = [("even", None), ("n", b"%d" % number)] if number % 2 == 0 else None
        producer.produce(topic, b"v%d" % number, b"k%d" % number, headers=headers)
    assert producer.flush(60) == 0


def options_of(servers: str, *, streaming: bool = False, **options: str) -> SourceOptions:
    given = {
        "kafka.bootstrap.servers": servers,
        "kafka.max.partition.fetch.bytes": "3000",
        "includeHeaders": "true",
    }
    return parse_source_options(given | options, streaming=streaming)


def expected(numbers: range) -> list[Row]:
    return sorted(
        (b"v%d" % number, [("even", None), ("n", b"%d" % number)] if number % 2 == 0 else None)
        for number in numbers
    )


def rows_of(part: object) -> list[Row]:
    found = part.to_pylist()  # type: ignore[attr-defined]
    return [
        (row["value"], row["headers"] and [(each["key"], each["value"]) for each in row["headers"]])
        for row in found
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_a_batch_read_over_all_leaders(servers: str, codec: str) -> None:
    write(servers, f"batch-{codec}", range(600), codec)
    options = options_of(servers, subscribe=f"batch-{codec}", minPartitions="11")
    with ClusterReader(options.client) as client:
        ranges = plan(client, options)
        parts = [
            part
            for each in ranges
            for part in read_range(
                client, each, ("value", "headers"), read_committed=True, fail_on_data_loss=True
            )
        ]
    assert len(ranges) == 11
    assert sorted(row for part in parts for row in rows_of(part)) == expected(range(600))


def test_a_stream_goes_on_where_it_stood(servers: str) -> None:
    write(servers, "stream-1", range(100))
    options = options_of(
        servers, streaming=True, subscribePattern="stream-.*", startingOffsets="earliest"
    )
    seen: list[Row] = []
    position = None
    for numbers, topic in (
        (range(0), ""),
        (range(100, 150), "stream-1"),
        (range(150, 170), "stream-2"),
    ):
        if topic:
            write(servers, topic, numbers)
        planner = StreamPlanner(options)  # a new planner, as after a restart of the query
        try:
            start = planner.initial() if position is None else position
            position = planner.latest(start)
            for each in planner.ranges(start, position):
                with ClusterReader(options.client) as client:
                    for part in read_range(
                        client,
                        each,
                        ("value", "headers"),
                        read_committed=True,
                        fail_on_data_loss=True,
                    ):
                        seen += rows_of(part)
        finally:
            planner.close()
    assert sorted(seen) == expected(range(170))
