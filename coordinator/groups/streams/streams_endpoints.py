"""Lists, for interactive queries of a streams group, the partitions that each endpoint serves."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.coordinator.groups.streams.streams_group_records import (
    NOTHING,
    CurrentValue,
    MemberValue,
)
from barnabas.coordinator.groups.streams.tasks import TaskEpochs, Tasks
from barnabas.coordinator.groups.streams.topic_plan import TopicPlan
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.protocol.messages import streams_group_heartbeat as messages


def tasks_by_endpoint(
    members: Mapping[str, MemberValue],
    currents: Mapping[str, CurrentValue],
    plan: TopicPlan,
    topics: TopicDirectory,
) -> list[messages.EndpointToPartitions]:
    """Return, for each member that has an endpoint, the partitions that the member serves."""
    counts = {
        name: topic[1]
        for one in plan.subtopologies.values()
        for name in one.subtopology.input_topics
        if (topic := topics.topic(name)) is not None
    }
    rows = []
    for member_id, member in members.items():
        if member.endpoint is not None:
            assigned = currents.get(member_id, NOTHING).assigned
            rows.append(
                messages.EndpointToPartitions(
                    messages.Endpoint(*member.endpoint),
                    _partitions(assigned.active, plan, counts),
                    _partitions(assigned.standby, plan, counts),
                )
            )
    return rows


def _partitions(
    tasks: Tasks | TaskEpochs, plan: TopicPlan, counts: Mapping[str, int]
) -> list[messages.TopicPartition]:
    """Return the partitions that the tasks read.

    A topic may have fewer partitions than its subtopology has tasks.
    """
    rows = []
    for subtopology_id, partitions in tasks.items():
        planned = plan.subtopologies.get(subtopology_id)
        if planned is None:
            continue
        for name in planned.subtopology.input_topics:
            some = sorted(one for one in partitions if one < counts.get(name, 0))
            if some:
                rows.append(messages.TopicPartition(name, some))
    return rows
