"""Describe a streams group for the response to StreamsGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordinator.descriptions import InSlices, members_in_slices
from barnabas.coordinator.groups.streams.streams_group import StreamsGroup
from barnabas.coordinator.groups.streams.streams_group_records import CurrentValue, MemberValue
from barnabas.coordinator.groups.streams.tasks import HeldTasks, TaskSet
from barnabas.coordinator.groups.streams.topic_plan import TopicPlan
from barnabas.coordinator.groups.streams.topology import Topology
from barnabas.coordinator.result import InternalTopic
from barnabas.protocol.messages import streams_group_describe as describing


def describe(
    group_id: str, group: StreamsGroup, most: int | None = None
) -> InSlices[describing.DescribedGroup]:
    """Describe the group with its topology and members, in slices.

    If the topology is ready, each topic has the planned number of partitions; otherwise it has the
    number that the application requested.

    Takes:  most, the maximum number of members.
    """
    described = describing.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=None if group.topology is None else _topology(group.topology, group.plan),
    )
    members = (
        (member_id, value, group.current(member_id), group.target(member_id))
        for member_id, value in group.members.items()
    )
    described.members = yield from members_in_slices(members, _member, most)
    return described


def _topology(topology: Topology, plan: TopicPlan | None) -> describing.Topology:
    """The topology, with the planned numbers of partitions if they are known."""
    planned = {} if plan is None or not plan.is_ready else plan.subtopologies
    rows = []
    for subtopology_id, one in topology.subtopologies.items():
        known = planned.get(subtopology_id)
        repartition, changelog = (
            (one.repartition_source_topics, one.changelog_topics)
            if known is None
            else (known.repartition_source_topics, known.changelog_topics)
        )
        rows.append(
            describing.Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(one.source_topics),
                repartition_sink_topics=sorted(one.repartition_sink_topics),
                state_changelog_topics=_topics(changelog),
                repartition_source_topics=_topics(repartition),
            )
        )
    return describing.Topology(topology.epoch, rows)


def _topics(topics: Iterable[InternalTopic]) -> list[describing.TopicInfo]:
    """The rows of internal topics, by name."""
    return [
        describing.TopicInfo(
            topic.name,
            topic.partition_count,
            topic.replication_factor,
            [describing.KeyValue(key, value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(one: tuple[str, MemberValue, CurrentValue, TaskSet]) -> describing.Member:
    """The row of a member."""
    member_id, value, current, target = one
    return describing.Member(
        member_id=member_id,
        member_epoch=current.member_epoch,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if value.endpoint is None else describing.Endpoint(*value.endpoint),
        client_tags=[describing.KeyValue(key, text) for key, text in value.client_tags],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(current.assigned),
        target_assignment=_assignment(target),
        is_classic=False,
    )


def _assignment(tasks: HeldTasks | TaskSet) -> describing.Assignment:
    """The row of the tasks in the three roles."""
    active, standby, warmup = (
        [describing.TaskIds(name, sorted(partitions)) for name, partitions in role.items()]
        for role in tasks
    )
    return describing.Assignment(active, standby, warmup)
