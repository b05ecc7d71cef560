"""The leaders of partitions in a cluster of several brokers; the rules are those of Apache Kafka's
controller (KRaft's ReplicationControlManager and PartitionChangeBuilder).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.core_host import CoreHost, delete_topic

from barnabas.broker.brokers.cluster import NO_LEADER, Cluster, Leadership
from barnabas.broker.settings.config import BrokerConfig
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.topic_partition import TopicPartition


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    made = CoreHost(tmp_path, barnabas_brokers="3")
    yield made
    made.close()


@pytest.fixture
def cluster(host: CoreHost) -> Cluster:
    return host.broker.cluster


def make(host: CoreHost, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
    """Create a topic whose partitions have the given replicas."""
    host.create(name, len(replicas), **configs)
    host.broker.metadata.set_topic_replicas(name, replicas)
    # creation placed the replicas itself; drop the leaders derived from that placement
    host.broker.cluster._leaderships.clear()


def test_a_cluster_has_one_broker_by_default(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    assert host.broker.cluster.is_one
    assert list(host.broker.cluster.nodes) == [1]
    host.close()


def test_brokers_have_consecutive_ids_from_node_id(tmp_path: Path) -> None:
    host = CoreHost(tmp_path, barnabas_brokers="3", node_id="4")
    assert list(host.broker.cluster.nodes) == [4, 5, 6]
    assert host.broker.cluster.controller_id == 4
    host.close()


def test_the_default_replication_factor_is_the_number_of_brokers_and_three_at_most() -> None:
    for count, factor in (("2", 2), ("3", 3), ("5", 3)):
        config = BrokerConfig.from_properties({"barnabas.brokers": count})
        assert config["default.replication.factor"] == factor
        assert config["offsets.topic.replication.factor"] == factor
        assert config["transaction.state.log.replication.factor"] == factor
    config = BrokerConfig.from_properties(
        {"barnabas.brokers": "3", "default.replication.factor": "1"}
    )
    assert config["default.replication.factor"] == 1
    assert BrokerConfig.from_properties({})["default.replication.factor"] == 1


def test_leaders_go_round_robin(host: CoreHost, cluster: Cluster) -> None:
    host.create("t", 6)
    leaders = [one.leader for one in cluster.leaderships("t")]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert leaders[:3] == leaders[3:]
    for leadership in cluster.leaderships("t"):
        assert sorted(leadership.replicas) == [1, 2, 3]
        assert leadership.replicas[0] == leadership.leader
        assert leadership.in_sync == leadership.replicas
    host.create("t1")
    host.create("t2")
    assert cluster.leaderships("t1")[0].leader != cluster.leaderships("t2")[0].leader


def test_replicas_are_the_same_after_a_restart_also_with_fewer_brokers(tmp_path: Path) -> None:
    host = CoreHost(tmp_path, barnabas_brokers="3")
    host.create("placed", 4)
    make(host, "given", (3, 1), (2,))
    before = [one.replicas for one in host.broker.cluster.leaderships("placed")]
    host.close()
    host = CoreHost(tmp_path, barnabas_brokers="3")
    cluster = host.broker.cluster
    assert [one.replicas for one in cluster.leaderships("placed")] == before
    assert [one.replicas for one in cluster.leaderships("given")] == [(3, 1), (2,)]
    host.close()
    host = CoreHost(tmp_path, barnabas_brokers="1")
    assert host.broker.topics.partition("given", 1) is not None
    host.close()
    host = CoreHost(tmp_path, barnabas_brokers="2")
    assert [one.leader for one in host.broker.cluster.leaderships("given")] == [1, 2]
    host.close()


def test_a_topic_that_is_created_again_does_not_keep_the_leaders_of_the_deleted_one(
    host: CoreHost, cluster: Cluster
) -> None:
    """The partition's leader moved to broker 2. The topic of the same name that is created later
    begins with its first replica as the leader.
    """
    make(host, "t", (1, 2))
    cluster.move(TopicPartition("t", 0), 2)
    delete_topic(host.parts.deletion, "t", host.now_ms)
    assert cluster.leaderships("t") == []
    make(host, "t", (1, 2))
    assert cluster.leadership("t", 0) == Leadership(1, (1, 2), (1, 2))


def test_leaders_move_when_their_broker_leaves_and_do_not_move_back_when_it_returns(
    host: CoreHost, cluster: Cluster
) -> None:
    make(host, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    moved = cluster.take_away(1)
    assert moved == [TopicPartition("t", 0)]
    assert cluster.leaderships("t") == [
        Leadership(2, (1, 2, 3), (2, 3)),
        Leadership(2, (2, 3, 1), (2, 3)),
        Leadership(3, (3, 1, 2), (3, 2)),
    ]
    assert cluster.give_back(1) == []
    assert cluster.leaderships("t") == [
        Leadership(2, (1, 2, 3), (1, 2, 3)),
        Leadership(2, (2, 3, 1), (2, 3, 1)),
        Leadership(3, (3, 1, 2), (3, 1, 2)),
    ]


def test_the_last_in_sync_replica_stays_in_the_isr_and_only_it_may_lead_again(
    host: CoreHost, cluster: Cluster
) -> None:
    make(host, "t", (1, 2))
    cluster.take_away(1)
    assert cluster.take_away(2) == [TopicPartition("t", 0)]
    assert cluster.leadership("t", 0) == Leadership(NO_LEADER, (1, 2), (2,))
    assert cluster.give_back(1) == []
    assert cluster.leadership("t", 0) == Leadership(NO_LEADER, (1, 2), (2,))
    assert cluster.give_back(2) == [TopicPartition("t", 0)]
    assert cluster.leadership("t", 0) == Leadership(2, (1, 2), (1, 2))


def test_an_unclean_election_takes_any_replica(host: CoreHost, cluster: Cluster) -> None:
    make(host, "t", (1, 2), unclean_leader_election_enable="true")
    cluster.take_away(1)
    cluster.take_away(2)
    assert cluster.give_back(1) == [TopicPartition("t", 0)]
    assert cluster.leadership("t", 0) == Leadership(1, (1, 2), (1,))


def test_a_partition_with_one_replica_goes_off_line_with_it(
    host: CoreHost, cluster: Cluster
) -> None:
    make(host, "t", (3,))
    cluster.take_away(3)
    assert cluster.leadership("t", 0) == Leadership(NO_LEADER, (3,), (3,))
    host.create("later", 3)
    assert {one.leader for one in cluster.leaderships("later")} == {1, 2}
    cluster.give_back(3)
    assert cluster.leadership("t", 0) == Leadership(3, (3,), (3,))


def test_only_an_available_replica_that_is_in_sync_may_lead(
    host: CoreHost, cluster: Cluster
) -> None:
    make(host, "t", (1, 2))
    with pytest.raises(ValueError, match="broker 3 cannot lead t-0: its replicas are"):
        cluster.move(TopicPartition("t", 0), 3)
    with pytest.raises(ValueError, match="there is no broker 9: the brokers are 1, 2, 3"):
        cluster.move(TopicPartition("t", 0), 9)
    with pytest.raises(ValueError, match="the partition t-5 does not exist"):
        cluster.move(TopicPartition("t", 5), 1)
    cluster.take_away(2)
    with pytest.raises(ValueError, match="cannot lead"):
        cluster.move(TopicPartition("t", 0), 2)
    assert cluster.move(TopicPartition("t", 0), 1) == []


def test_the_controller_is_an_available_broker(cluster: Cluster) -> None:
    """The controller moves only when its broker leaves. The return of broker 1 does not move it."""
    cluster.take_away(1)
    assert cluster.controller_id == 2
    cluster.take_away(2)
    cluster.take_away(3)
    assert cluster.nodes_there() == []
    cluster.give_back(2)
    assert cluster.controller_id == 2
    cluster.give_back(1)
    assert cluster.controller_id == 2


def test_invalid_replica_assignments_and_replication_factors_are_refused(cluster: Cluster) -> None:
    for replicas in ([], [1, 1], [4]):
        with pytest.raises(KafkaError) as refused:
            cluster.check_replicas(0, replicas)
        assert refused.value.code is Code.INVALID_REPLICA_ASSIGNMENT
    cluster.check_replicas(0, [3, 1])
    for factor in (0, -2, 4):
        with pytest.raises(KafkaError) as refused:
            cluster.check_factor(factor)
        assert refused.value.code is Code.INVALID_REPLICATION_FACTOR
    cluster.check_factor(3)
    cluster.take_away(1)
    with pytest.raises(KafkaError):
        cluster.check_factor(3)


def test_each_broker_gives_producer_ids_from_its_own_block(host: CoreHost) -> None:
    """As in Apache Kafka, each broker has a block of 1000 producer ids."""
    from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

    ids = []
    for connection, node_id in enumerate((1, 2, 1, 2, 3), 10):
        host.connect(connection, node_id)
        answer = host.call(connection, InitProducerIdRequest(transactional_id=None), 4)
        ids.append(answer.producer_id)
    assert ids == [0, 1000, 1, 1001, 2000]
