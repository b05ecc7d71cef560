"""What a client knows of a cluster: leaders and coordinators, and what it asks again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.fake_broker import FakeCluster

from barnabas.client.cluster import GROUP, TRANSACTION, Cluster
from barnabas.client.errors import UnreachableError
from barnabas.client.options import ClientOptions
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.topic_partition import TopicPartition


class Refused(Exception):
    """What the check of a test raises."""


def check(key: str, code: int, message: str) -> None:
    if code:
        raise Refused(key, code)


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster({"t": 2, "u": 1}, nodes=2) as running:
        yield running


@pytest.fixture
def cluster(fake: FakeCluster) -> Iterator[Cluster]:
    made = Cluster(ClientOptions((("127.0.0.1", fake.port),)))
    yield made
    made.connections.close()


def test_metadata_name_the_brokers_and_the_leaders(cluster: Cluster) -> None:
    cluster.refresh(["t"])
    cluster.refresh(["u"])
    assert set(cluster.connections.nodes) == {1, 2}
    assert cluster.leaders == {
        TopicPartition("t", 0): 1,
        TopicPartition("t", 1): 2,
        TopicPartition("u", 0): 1,
    }
    assert (cluster.controller_id, cluster.cluster_id) == (1, "fake")


def test_a_coordinator_is_asked_for_once(fake: FakeCluster, cluster: Cluster) -> None:
    first = cluster.coordinator("g", GROUP, check)
    assert cluster.coordinator("g", GROUP, check) is first
    assert cluster.coordinator("g", TRANSACTION, check).address != first.address
    assert fake.asked(FindCoordinatorRequest) == 2
    cluster.forget()
    cluster.coordinator("g", GROUP, check)
    assert fake.asked(FindCoordinatorRequest) == 3


def test_many_coordinators_are_in_the_order_of_their_keys(
    fake: FakeCluster, cluster: Cluster
) -> None:
    keys = [f"id-{number}" for number in range(250)]  # more than are sent at once
    cluster.coordinators(keys[:1], TRANSACTION, check)
    found = cluster.coordinators(keys, TRANSACTION, check)
    assert [coordinator.node_id for coordinator in found] == [1] * 250
    assert fake.asked(FindCoordinatorRequest) == 250


def test_a_refusal_is_the_caller_s_error_and_is_not_kept(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.disturb = lambda node, request: (
        Code.COORDINATOR_NOT_AVAILABLE if isinstance(request, FindCoordinatorRequest) else None
    )
    with pytest.raises(Refused) as refused:
        cluster.coordinator("g", GROUP, check)
    assert refused.value.args == ("g", Code.COORDINATOR_NOT_AVAILABLE)
    fake.disturb = lambda node, request: None
    assert cluster.coordinator("g", GROUP, check).speaks


def test_a_broker_that_metadata_do_not_name_is_unreachable(cluster: Cluster) -> None:
    with pytest.raises(UnreachableError, match="broker 7 is not in the metadata"):
        cluster.connections.of_node(7)
