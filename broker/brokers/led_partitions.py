"""The rows of partitions for Metadata, with the leader and the replicas of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.broker.brokers.cluster import NO_LEADER, Cluster, Leadership
from barnabas.protocol.metadata_response import LedPartition

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log


def led_partitions(
    cluster: Cluster, topic: str, logs: Sequence[Log | None]
) -> tuple[LedPartition, ...]:
    """The rows of a topic's partitions for Metadata. A partition whose log is damaged has no
    leader.
    """
    if cluster.is_one:
        return tuple(led_partition_of_pair(cluster, log) for log in logs)
    return tuple(
        led_partition(cluster, log, leadership)
        for log, leadership in zip(logs, cluster.leaderships(topic), strict=False)
    )


def led_partition(cluster: Cluster, log: Log | None, leadership: Leadership) -> LedPartition:
    """The row of one partition for Metadata, in a process with several brokers. log: None if the
    log is offline.
    """
    leader, replicas, in_sync = leadership
    if log is None:
        return LedPartition(NO_LEADER, replicas, in_sync, replicas)
    offline = tuple(one for one in replicas if not cluster.nodes[one].is_there)
    return LedPartition(leader, replicas, in_sync, offline)


def led_partition_of_pair(cluster: Cluster, log: Log | None) -> LedPartition:
    """The row of one partition for Metadata, with a single broker or a pair."""
    me, standby, replicas = cluster.controller_id, cluster.standby, tuple(cluster.node_ids)
    if log is None:
        return LedPartition(NO_LEADER, replicas, replicas, replicas)
    if standby is None:
        return LedPartition(me, replicas, replicas, ())
    in_sync = replicas if standby.is_in_sync else (me,)
    return LedPartition(me, replicas, in_sync, () if standby.is_there else (standby.node_id,))
