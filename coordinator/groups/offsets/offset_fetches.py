"""OffsetFetch: the committed offsets of a group or, from version 8 on, of several groups.

Source: KIP-447 (require_stable), KIP-709 (several groups), KIP-848 (members' epochs, topic ids).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.coordinator.groups.group_offsets import GroupOffsets
from barnabas.coordinator.groups.group_table import GroupTable
from barnabas.coordinator.groups.offsets.topics_by_id import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    with_names,
)
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition

_FIRST_VERSION_WITH_GROUPS = 8


class FetchedOffset(NamedTuple):
    """One partition of an OffsetFetch response, whose class depends on the version of the
    request.
    """

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: Code


class OffsetFetches:
    """Answers OffsetFetch requests, without any change of state."""

    def __init__(self, table: GroupTable, topics: TopicDirectory) -> None:
        self._table, self._topics = table, topics

    def on_offset_fetch(
        self, request: OffsetFetchRequest, context: RequestContext, now_ms: int
    ) -> OffsetFetchResponse:
        """Fetch committed offsets.

        With require_stable, a partition with a pending offset gets the error code
        UNSTABLE_OFFSET_COMMIT.
        """
        if context.api_version < _FIRST_VERSION_WITH_GROUPS:
            topics = [
                OffsetFetchResponseTopic(
                    topic, [OffsetFetchResponsePartition(*row) for row in rows]
                )
                for topic, rows in self._offsets_of(
                    request.group_id, request.topics, request.require_stable
                )
            ]
            return OffsetFetchResponse(topics=topics)
        groups = [
            self._fetch_group(requested, context.api_version, request.require_stable)
            for requested in request.groups
        ]
        return OffsetFetchResponse(groups=groups)

    def _fetch_group(
        self, requested: OffsetFetchRequestGroup, api_version: int, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """The offsets of one group by topic name, or by topic id from version 10 on."""
        group = self._table.by_id.get(requested.group_id)
        if group is not None:
            code = group.state.check_fetch(requested.member_id, requested.member_epoch)
            if code is not Code.NONE:
                return OffsetFetchResponseGroup(requested.group_id, error_code=code)
        by_id = api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        topics = requested.topics
        unknown: list[OffsetFetchRequestTopics] = []
        if by_id and topics is not None:
            topics, unknown = with_names(topics, self._topics)
        rows = []
        for name, offsets in self._offsets_of(requested.group_id, topics, require_stable):
            topic = self._topics.topic(name) if by_id else None
            if topic is not None or not by_id:
                rows.append(
                    OffsetFetchResponseTopics(
                        "" if by_id else name,
                        None if topic is None else topic[0],
                        [OffsetFetchResponsePartitions(*row) for row in offsets],
                    )
                )
        rows += map(_unknown_topic, unknown)
        return OffsetFetchResponseGroup(requested.group_id, rows)

    def _offsets_of(
        self,
        group_id: str,
        topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
        require_stable: bool,
    ) -> Iterator[tuple[str, list[FetchedOffset]]]:
        """Yield (topic, rows) for the requested partitions of a group. If none are requested, do so
        for all partitions that have an offset.
        """
        group = self._table.by_id.get(group_id)
        offsets = group.offsets if group is not None else GroupOffsets()
        if topics is None:
            by_topic: dict[str, list[int]] = {}
            for topic, partition in offsets.committed:
                by_topic.setdefault(topic, []).append(partition)
            requested: list[tuple[str, list[int]]] = list(by_topic.items())
        else:
            requested = [(topic.name, topic.partition_indexes) for topic in topics]
        for topic, partitions in requested:
            yield (
                topic,
                [
                    _fetched(offsets, TopicPartition(topic, partition), require_stable)
                    for partition in partitions
                ],
            )


def _fetched(
    offsets: GroupOffsets, partition: TopicPartition, require_stable: bool
) -> FetchedOffset:
    """The row of one partition. Its offset is -1 if there is no offset, or if the offset is pending
    and must be stable.
    """
    unstable = require_stable and offsets.is_pending(partition)
    committed = None if unstable else offsets.committed.get(partition)
    if committed is None:
        return FetchedOffset(
            partition[1], -1, -1, "", Code.UNSTABLE_OFFSET_COMMIT if unstable else Code.NONE
        )
    return FetchedOffset(
        partition[1], committed.offset, committed.leader_epoch, committed.metadata, Code.NONE
    )


def _unknown_topic(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    """The row of the response for a topic id that does not exist."""
    return OffsetFetchResponseTopics(
        "",
        topic.topic_id,
        [
            OffsetFetchResponsePartitions(partition, -1, -1, "", Code.UNKNOWN_TOPIC_ID)
            for partition in topic.partition_indexes
        ],
    )
