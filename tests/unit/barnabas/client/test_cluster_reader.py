"""The client of readers: the topics that it requests, and the cost of a fetch. Failures are tested
in test_spark_reading.py.
"""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import KAFKA_2_5, FakeCluster, Versions

from barnabas.client.cluster_reader import FETCH, ClusterReader
from barnabas.client.options import ClientOptions
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.topic_partition import TopicPartition


def options_of(port: int) -> ClientOptions:
    return ClientOptions((("127.0.0.1", port),), retry_timeout_ms=50, retry_backoff_ms=5)


def versions(request: bytes) -> bytes:
    kinds = [
        ApiVersion(api_key=key, min_version=0, max_version=6)
        for key in (FindCoordinatorRequest.API_KEY, 3, 18)
    ]
    return answered(
        request,
        ApiVersionsResponse(error_code=0, api_keys=kinds, throttle_time_ms=0).encode(3),
    )


def answered(request: bytes, body: bytes) -> bytes:
    return struct.pack(">i", 4 + len(body)) + request[8:12] + body


def test_missing_topics_may_be_made_or_left_out() -> None:
    with (
        FakeCluster({"t": 2}, nodes=1) as cluster,
        ClusterReader(options_of(cluster.port)) as client,
    ):
        there = [TopicPartition("t", 0), TopicPartition("t", 1)]
        assert client.partitions_of(["t", "missing"], missing_ok=True) == there
        assert client.partitions_of(["new"], create=True) == [TopicPartition("new", 0)]
        assert client.partitions_of(["new", "t"]) == [TopicPartition("new", 0), *there]
        asked = [
            request.allow_auto_topic_creation
            for _, request in cluster.requests
            if isinstance(request, MetadataRequest)
        ]
        assert asked == [False, True, False]


def test_a_topic_is_not_made_by_who_only_asks_for_it() -> None:
    """From version 4 on, Metadata has a field that forbids the creation of topics. A broker with
    only older versions gets the request without this field.
    """
    oldest: Versions = {
        kind.API_KEY: (kind, low, 3 if kind is MetadataRequest else high)
        for kind, low, high in KAFKA_2_5.values()
    }
    for versions, creates in ((KAFKA_2_5, False), (oldest, True)):
        with (
            FakeCluster({"t": 1}, nodes=1, speaks=versions) as cluster,
            ClusterReader(options_of(cluster.port)) as client,
        ):
            assert client.partitions_of(["t"]) == [TopicPartition("t", 0)]
            (request,) = [each for _, each in cluster.requests if isinstance(each, MetadataRequest)]
            assert request.allow_auto_topic_creation == creates


def test_records_of_a_fetch_are_not_copied() -> None:
    answer = FetchResponse(
        responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=b"records")])]
    )
    for version in range(FETCH.first_version, FETCH.last_version + 1):
        body = memoryview(answer.encode(version))
        records = FetchResponse.decode(body, version).responses[0].partitions[0].records
        assert isinstance(records, memoryview) and records.obj is body.obj and records == b"records"
