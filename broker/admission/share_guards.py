"""Steps of rules for requests about share groups, which the table in `authorization.py` uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.admission.guard_steps import NO_ID, Case, parted
from barnabas.broker.outbox import Answer
from barnabas.broker.security.acls import FAILED, Operation, ResourceType
from barnabas.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from barnabas.protocol.messages.message import Message

TOPIC, READ, DESCRIBE = ResourceType.TOPIC, Operation.READ, Operation.DESCRIBE
UNKNOWN = -1


def alter_offsets(case: Case[Any]) -> Answer:
    """Requires READ on each topic. The partitions of other topics are refused."""

    def refused(topics: list[Any]) -> Message:
        return alter_share_group_offsets.AlterShareGroupOffsetsResponse(
            responses=[
                alter_share_group_offsets.AlterShareGroupOffsetsResponseTopic(
                    topic.topic_name,
                    NO_ID,
                    [
                        alter_share_group_offsets.AlterShareGroupOffsetsResponsePartition(
                            row.partition_index, FAILED[TOPIC]
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )

    return case.split("topics", _may_read(case), FAILED[TOPIC], refused)


def delete_offsets(case: Case[Any]) -> Answer:
    """Requires READ on each topic. Other topics are refused."""

    def refused(topics: list[Any]) -> Message:
        return delete_share_group_offsets.DeleteShareGroupOffsetsResponse(
            responses=[
                delete_share_group_offsets.DeleteShareGroupOffsetsResponseTopic(
                    topic.topic_name, NO_ID, FAILED[TOPIC]
                )
                for topic in topics
            ]
        )

    return case.split("topics", _may_read(case), FAILED[TOPIC], refused)


def _may_read(case: Case[Any]) -> Callable[[Any], bool]:
    return lambda topic: case.access.may(READ, TOPIC, topic.topic_name)


def describe_offsets(case: Case[Any]) -> None:
    """Requires DESCRIBE on each topic. The partitions of other topics are refused, or omitted if
    the request is for all topics.
    """
    refused: dict[str, list[Any]] = {}
    for group in case.request.groups:
        if group.topics is not None:
            group.topics, denied = parted(
                group.topics, lambda topic: case.access.may(DESCRIBE, TOPIC, topic.topic_name)
            )
            refused.setdefault(group.group_id, []).extend(map(_refusal, denied))

    def amend(case: Case[Any], answer: Any) -> None:
        for group in answer.groups:
            group.topics[:] = [
                row for row in group.topics if case.access.sees(DESCRIBE, TOPIC, row.topic_name)
            ]
            if not group.error_code:
                group.topics += refused.get(group.group_id, ())

    case.amend(amend)


def _refusal(topic: Any) -> Any:
    """The row of the answer for a topic that the client may not describe."""
    return describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic(
        topic.topic_name,
        NO_ID,
        [
            describe_share_group_offsets.DescribeShareGroupOffsetsResponsePartition(
                index, UNKNOWN, 0, UNKNOWN, FAILED[TOPIC], None
            )
            for index in topic.partitions
        ],
    )
