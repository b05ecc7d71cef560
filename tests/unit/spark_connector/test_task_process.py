"""Work that a process for tasks does only once for all of its tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import FakeCluster

from barnabas.client.cluster import METADATA
from barnabas.client.options import ClientOptions
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector import task_process
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.task_process import (
    FREEZES,
    MOST_CLIENTS,
    MOST_PUBLISHERS,
    MOST_RUNS,
    exempt_modules_from_collection,
    is_first_of_run,
    task_client,
)
from barnabas.spark_connector.write.publishing import (
    Publication,
    PublishError,
    PublishSettings,
    driver_publisher,
)


@pytest.fixture(autouse=True)
def collections_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start each test in the state of a process that has not run a task."""
    monkeypatch.setattr(task_process, "_process", task_process._Process())
    yield
    for client in task_process._process.clients.values():
        client.close()
    for publisher in task_process._process.publishers.values():
        publisher.close()


def test_imported_modules_are_exempt_from_collection_and_later_objects_are_not() -> None:
    before = gc.get_freeze_count()
    imported: list[list[object]] = [[] for _ in range(5000)]
    exempt_modules_from_collection()
    assert gc.get_freeze_count() - before >= len(imported)
    later: list[object] = []
    later.append(later)
    del later
    assert gc.collect() >= 1


def test_the_first_batch_of_each_run_is_known_without_a_checkpoint() -> None:
    assert [is_first_of_run("a", run) for run in ("1", "1", "2", "2", "1")] == [
        True, False, True, False, True,
    ]  # fmt: skip
    assert is_first_of_run("b", "1") and not is_first_of_run("a", "1")
    assert is_first_of_run("c", "") and is_first_of_run("c", ""), "a write outside of a query"
    for number in range(2 * MOST_RUNS):
        assert is_first_of_run(f"driver {number}", "1")
    assert len(task_process._process.runs) == MOST_RUNS


def test_only_the_first_tasks_exempt_modules_from_collection() -> None:
    """The exemption from garbage collection is repeated. This way, one of the calls includes the
    modules that the first tasks import.
    """
    counts = []
    kept: list[list[list[object]]] = []
    for _ in range(FREEZES + 2):
        exempt_modules_from_collection()
        counts.append(gc.get_freeze_count())
        kept.append([[] for _ in range(5000)])
    growth = [later - earlier for earlier, later in pairwise(counts)]
    # some other objects, exempted before, end meanwhile
    assert all(each > 2500 for each in growth[: FREEZES - 1])
    assert all(each < 2500 for each in growth[FREEZES - 1 :])
    assert len(kept) == FREEZES + 2


# --- connections that are kept


def options_of(cluster: FakeCluster, client_id: str = "spark") -> ClientOptions:
    return ClientOptions(
        (("127.0.0.1", cluster.port),), client_id, retry_timeout_ms=2000, retry_backoff_ms=5
    )


def test_a_task_reuses_the_previous_connection_and_fetches_metadata_again() -> None:
    with FakeCluster({"t": 2}, nodes=1) as cluster:
        for _ in range(3):
            with task_client(options_of(cluster)) as client:
                assert len(client.partitions_of(["t"])) == 2
        assert (cluster.asked(ApiVersionsRequest), cluster.asked(MetadataRequest)) == (1, 3)


def fail(options: ClientOptions) -> None:
    """Run a task that fails after its first request."""
    with task_client(options) as client:
        client.partitions_of(["t"])
        raise RuntimeError("failed on purpose")


def test_the_connection_of_a_failed_task_is_not_kept() -> None:
    with FakeCluster({"t": 2}, nodes=1) as cluster:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="failed on purpose"):
                fail(options_of(cluster))
        assert cluster.asked(ApiVersionsRequest) == 2


def test_a_connection_with_a_request_in_progress_is_not_kept() -> None:
    """Spark may end a read early, while the next fetch is in progress."""
    with FakeCluster({"t": 2}, nodes=1) as cluster:
        for _ in range(2):
            with task_client(options_of(cluster)) as client:
                client._connections.any().send(METADATA, MetadataRequest([]))
        assert cluster.asked(ApiVersionsRequest) == 2


def test_a_connection_that_the_broker_closed_is_not_used() -> None:
    with FakeCluster({"t": 2}, nodes=1) as cluster:
        options = options_of(cluster)
        with task_client(options) as client:
            client.partitions_of(["t"])
        cluster.hang_up()
        with task_client(options) as client:
            assert len(client.partitions_of(["t"])) == 2
        assert cluster.asked(ApiVersionsRequest) == 2


def test_only_the_latest_clients_are_kept() -> None:
    with FakeCluster({"t": 1}, nodes=1) as cluster:
        for nth in range(MOST_CLIENTS + 2):
            with task_client(options_of(cluster, f"spark-{nth}")) as client:
                client.partitions_of(["t"])
        kept = [options.client_id for options in task_process._process.clients]
        assert kept == [f"spark-{nth}" for nth in range(2, MOST_CLIENTS + 2)]


# --- the driver's publisher


def publish(cluster: FakeCluster, batch_id: int, name: str = "query") -> Publication:
    """Publish a micro-batch with one record."""
    data = encode_batch([NewRecord(None, b"%d" % batch_id, 1)], transactional=True)
    settings = PublishSettings(delivery_timeout_ms=600_000)
    with driver_publisher(options_of(cluster), settings, name) as publisher:
        return publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=batch_id,
            metadata="m",
            record_batches=lambda: [EncodedRecordBatch("t", 0, 1, data)],
        )


def test_a_batch_reuses_the_previous_connections_coordinators_and_leaders() -> None:
    with FakeCluster({"t": 1}, nodes=1) as cluster:
        publish(cluster, 0)
        asked = [
            cluster.asked(kind)
            for kind in (ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest)
        ]
        for batch_id in (1, 2):
            assert publish(cluster, batch_id).attempts == 1
        assert asked == [
            cluster.asked(kind)
            for kind in (ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest)
        ]
        assert cluster.values("t", 0) == [b"0", b"1", b"2"] and cluster.offsets == {"query": 3}


def test_each_batch_fences_the_drivers_before_it() -> None:
    with FakeCluster({"t": 1}, nodes=1) as cluster:
        for batch_id in range(3):
            publish(cluster, batch_id)
        assert cluster.asked(InitProducerIdRequest) == cluster.asked(EndTxnRequest) == 3


def test_a_batch_looks_again_for_leaders_that_moved() -> None:
    with FakeCluster({"t": 1}, nodes=1) as cluster:
        publish(cluster, 0)
        left = [Code.NOT_LEADER_OR_FOLLOWER]
        cluster.disturb = lambda node, request: (
            left.pop() if isinstance(request, ProduceRequest) and left else None
        )
        before = cluster.asked(MetadataRequest)
        assert publish(cluster, 1).attempts == 2
        assert cluster.asked(MetadataRequest) > before
        assert cluster.values("t", 0) == [b"0", b"1"]


def test_connections_that_the_broker_closed_between_batches_are_made_again() -> None:
    with FakeCluster({"t": 1}, nodes=1) as cluster:
        publish(cluster, 0)
        cluster.hang_up()
        assert publish(cluster, 1).attempts == 1
        assert cluster.values("t", 0) == [b"0", b"1"]


def test_the_publisher_of_a_failed_batch_is_not_kept() -> None:
    with FakeCluster({"t": 1}, nodes=1) as cluster:
        publish(cluster, 0)
        cluster.disturb = lambda node, request: (
            Code.TOPIC_AUTHORIZATION_FAILED if isinstance(request, ProduceRequest) else None
        )
        with pytest.raises(PublishError, match="TOPIC_AUTHORIZATION_FAILED"):
            publish(cluster, 1)
        assert task_process._process.publishers == {}


def test_only_the_latest_publishers_are_kept() -> None:
    with FakeCluster({"t": 1}, nodes=1) as cluster:
        for nth in range(MOST_PUBLISHERS + 2):
            publish(cluster, 0, f"query-{nth}")
        kept = [name for _, _, name in task_process._process.publishers]
        assert kept == [f"query-{nth}" for nth in range(2, MOST_PUBLISHERS + 2)]
