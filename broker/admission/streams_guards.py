"""Steps of rules for requests about streams groups (KIP-1071)."""

from __future__ import annotations

from typing import Any

from barnabas.broker.admission.guard_steps import Case
from barnabas.broker.outbox import Answer
from barnabas.broker.security.acls import FAILED, Operation, ResourceType
from barnabas.broker.topic_changes.streams_topics import check_names, names_of
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import streams_group_describe
from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

DESCRIBE, TOPIC = Operation.DESCRIBE, ResourceType.TOPIC


def describe_topology(case: Case[StreamsGroupHeartbeatRequest]) -> Answer | None:
    """Requires DESCRIBE on all topics of the topology. A topology with invalid names is left to the
    handler, which refuses it.
    """
    topology = case.request.topology
    if topology is None:
        return None
    try:
        check_names(topology)
    except KafkaError:
        return None  # the handler refuses invalid names
    if all(case.access.may(DESCRIBE, TOPIC, name) for name in dict.fromkeys(names_of(topology))):
        return None
    return case.refuse(FAILED[TOPIC])


def hide_groups_of_hidden_topics(case: Case[Any], answer: Any) -> None:
    """Refuse a described group if its topology contains a topic that the client may
    not describe.
    """
    answer.groups[:] = [
        group
        if all(case.access.sees(DESCRIBE, TOPIC, name) for name in _topics_of(group))
        else streams_group_describe.DescribedGroup(
            error_code=FAILED[TOPIC],
            error_message="the group uses topics that the client may not describe.",
            group_id=group.group_id,
        )
        for group in answer.groups
    ]


def _topics_of(group: streams_group_describe.DescribedGroup) -> set[str]:
    """The names of all topics in the topology of a described group."""
    topology = group.topology
    if topology is None:
        return set()
    return {
        name
        for one in topology.subtopologies or ()
        for name in (
            *one.source_topics,
            *one.repartition_sink_topics,
            *(topic.name for topic in one.repartition_source_topics),
            *(topic.name for topic in one.state_changelog_topics),
        )
    }
