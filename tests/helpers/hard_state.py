"""The hard state of a group coordinator as plain values, for comparison with a coordinator that
replayed the same log.

Times of the monotonic clock are left out, because they depend on when a log was replayed.
"""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.groups.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_offsets import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupOffsets,
)
from barnabas.coordinator.groups.share.share_group import ShareGroup
from barnabas.coordinator.groups.streams.streams_group import StreamsGroup
from barnabas.protocol.topic_partition import TopicPartition


def hard_state(holder: GroupCoordinator | ConsumerGroup | GroupOffsets | None) -> Any:
    """The hard state of a coordinator, a group, or a group's offsets. It is None for a consumer
    group that does not exist.
    """
    if isinstance(holder, GroupCoordinator):
        return _of_coordinator(holder)
    if isinstance(holder, GroupOffsets):
        pending = {
            producer_id: _without_age(offsets) for producer_id, offsets in holder.pending.items()
        }
        return _without_age(holder.committed), pending
    if holder is None or holder.epoch == 0:
        return None
    return {
        "epochs": (holder.epoch, holder.metadata_hash, holder.target_epoch),
        "members": holder.members,
        "currents": holder.currents,
        "targets": holder.targets,
        "patterns": holder.patterns,
        "owners": holder.owners,
        "static": holder.static_members,
    }


def _of_coordinator(coordinator: GroupCoordinator) -> dict[str, Any]:
    """The groups with hard state, and the open transactions."""
    groups = {
        group.group_id: (
            group.partition,
            group.metadata_value,
            hard_state(group.offsets),
            _of_modern(group.modern),
        )
        for group in coordinator.all_groups()
        if group.has_hard_state
    }
    return {
        "groups": groups,
        "open": {
            key: (transaction.producer_epoch, tuple(transaction.group_ids))
            for key, transaction in coordinator.open_transactions.items()
        },
    }


def _of_modern(typed: Any) -> Any:
    """The hard state of a consumer, share or streams group; None if it does not exist."""
    if typed is None or not typed.exists:
        return None
    if isinstance(typed, ConsumerGroup):
        return hard_state(typed)
    if isinstance(typed, StreamsGroup):
        return _of_streams(typed)
    assert isinstance(typed, ShareGroup)
    return {
        "epochs": (typed.epoch, typed.metadata_hash, typed.target_epoch),
        "members": typed.members,
        "currents": typed.currents,
        "targets": typed.targets,
        "states": typed.states,
    }


def _of_streams(streams: StreamsGroup) -> dict[str, Any]:
    return {
        "epochs": (streams.epoch, streams.metadata_hash, streams.target_epoch),
        "validated": (streams.validated_topology_epoch, streams.assignment_configs),
        "topology": streams.topology,
        "members": streams.members,
        "currents": streams.currents,
        "targets": streams.targets,
        "processes": (
            streams.active_processes,
            streams.standby_processes,
            streams.warmup_processes,
        ),
    }


def _without_age(
    offsets: dict[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets without the times at which their retention began, which a replay does not
    restore.
    """
    return {
        partition: committed._replace(since_ms=NO_TIMESTAMP)
        for partition, committed in offsets.items()
    }
