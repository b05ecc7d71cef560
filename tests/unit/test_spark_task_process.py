"""The work that a task's process does once for all its tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import FakeCluster

from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.spark_connector import task_process
from barnabas.spark_connector.connection import METADATA
from barnabas.spark_connector.options import ClientOptions
from barnabas.spark_connector.task_process import (
    FREEZES,
    MOST_CLIENTS,
    exempt_modules_from_collection,
    task_client,
)


@pytest.fixture(autouse=True)
def collections_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test the state of a process before its first task."""
    monkeypatch.setattr(task_process, "_process", task_process._Process())
    yield
    for client in task_process._process.clients.values():
        client.close()


def test_modules_are_exempt_and_what_comes_later_is_not() -> None:
    before = gc.get_freeze_count()
    imported: list[list[object]] = [[] for _ in range(5000)]
    exempt_modules_from_collection()
    assert gc.get_freeze_count() - before >= len(imported)
    later: list[object] = []
    later.append(later)
    del later
    assert gc.collect() >= 1


def test_it_is_done_by_the_first_tasks_alone() -> None:
    """Modules that the first tasks import are exempted by one of the next calls."""
    counts = []
    kept: list[list[list[object]]] = []
    for _ in range(FREEZES + 2):
        exempt_modules_from_collection()
        counts.append(gc.get_freeze_count())
        kept.append([[] for _ in range(5000)])
    growth = [later - earlier for earlier, later in pairwise(counts)]
    assert all(each >= 5000 for each in growth[: FREEZES - 1])
    assert all(each <= 0 for each in growth[FREEZES - 1 :])
    assert len(kept) == FREEZES + 2


# --- connections that are kept


def options_of(cluster: FakeCluster, client_id: str = "spark") -> ClientOptions:
    return ClientOptions(
        (("127.0.0.1", cluster.port),), client_id, retry_timeout_ms=2000, retry_backoff_ms=5
    )


def test_a_task_uses_the_connection_of_the_one_before_it_and_asks_again() -> None:
    with FakeCluster({"t": 2}, nodes=1) as cluster:
        for _ in range(3):
            with task_client(options_of(cluster)) as client:
                assert len(client.partitions_of(["t"])) == 2
        assert (cluster.asked(ApiVersionsRequest), cluster.asked(MetadataRequest)) == (1, 3)


def fail(options: ClientOptions) -> None:
    with task_client(options) as client:
        client.partitions_of(["t"])
        raise RuntimeError("failed on purpose")


def test_nothing_is_kept_of_a_task_that_failed() -> None:
    with FakeCluster({"t": 2}, nodes=1) as cluster:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="failed on purpose"):
                fail(options_of(cluster))
        assert cluster.asked(ApiVersionsRequest) == 2


def test_a_request_that_is_under_way_ends_with_its_task() -> None:
    """Spark may end a read early, while a prefetch is under way."""
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


def test_few_clients_are_kept() -> None:
    with FakeCluster({"t": 1}, nodes=1) as cluster:
        for nth in range(MOST_CLIENTS + 2):
            with task_client(options_of(cluster, f"spark-{nth}")) as client:
                client.partitions_of(["t"])
        kept = [options.client_id for options in task_process._process.clients]
        assert kept == [f"spark-{nth}" for nth in range(2, MOST_CLIENTS + 2)]
