"""OffsetCommit and TxnOffsetCommit: the checks of a request's offsets, and the records of the
accepted offsets.

Both requests pass the same checks: that the partitions exist, that the member and its generation or
epoch are those of the group (`CommitCheck`), and that the metadata are not too long. A rejected
offset has an error code in `PartitionCodes`, and each other offset has a record.

Source: KIP-447 (commits in a transaction), KIP-848, KIP-1251.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from barnabas.coordinator.groups.group import PartitionCodes
from barnabas.coordinator.groups.group_offsets import LAST_TIMESTAMP, NO_TIMESTAMP
from barnabas.coordinator.groups.group_records import offset_record
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_state import MAY_COMMIT, CommitCheck, CommitSender
from barnabas.coordinator.groups.group_table import GroupTable
from barnabas.coordinator.groups.offsets.offset_removal import OffsetRemoval
from barnabas.coordinator.groups.offsets.topics_by_id import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    with_names,
)
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.result import Counted, PartitionExists, Reply, Result
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

_NONE = Code.NONE  # a module's name is found sooner than the member of an Enum
# The version of OffsetCommit from which on a missing group has a code of its own (KIP-848).
GROUP_NOT_FOUND_SINCE = 9
# The name of a topic, and the row of one of its partitions in the request.
RequestedOffset = tuple[str, "OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition"]


class OffsetCommits:
    """Checks commits of offsets, and makes the records of the accepted offsets."""

    def __init__(
        self,
        table: GroupTable,
        removal: OffsetRemoval,
        settings: GroupSettings,
        topics: TopicDirectory,
        wall: WallClock,
        partition_exists: PartitionExists,
        *,
        is_preview: bool,
    ) -> None:
        """Takes:  is_preview, whether the broker answers as the preview of consumer groups does."""
        self._table, self._removal, self._partition_exists = table, removal, partition_exists
        self._settings, self._topics, self._wall = settings, topics, wall
        self._is_preview = is_preview

    def on_offset_commit(
        self, request: OffsetCommitRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Commit offsets.

        If a partition is unknown or its metadata are too long, only its own offset is rejected.
        Other errors reject the whole request.
        """
        result = self._table.result(request.group_id)
        topics = request.topics
        unknown: list[OffsetCommitRequestTopic] = []
        if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topics, unknown = with_names(topics, self._topics)
        codes, offsets = self._partition_codes(topics)
        if offsets:
            check = self._check(
                request,
                request.generation_id_or_member_epoch,
                context.api_version,
                transactional=False,
            )
            offsets = self._accepted(request.group_id, check, codes, offsets)
            if offsets:
                retention_ms, wall_ms = request.retention_time_ms, now_ms + self._wall.ahead_ms
                expire_ms = (
                    NO_TIMESTAMP
                    if retention_ms < 0
                    else min(wall_ms + retention_ms, LAST_TIMESTAMP)
                )
                self._write(result, request.group_id, offsets, codes, wall_ms, expire_ms)
                group = self._table.get_or_create(result.partition, request.group_id)
                group.classic.on_commit(request.member_id, now_ms)
                self._removal.schedule_check(group, now_ms)
        topic_ids = {topic.name: topic.topic_id for topic in topics if topic.topic_id is not None}
        response = _commit_response(codes, topic_ids)
        response.topics += map(_unknown_topic, unknown)
        result.replies.append(Reply(context.ticket, response))
        return result

    def on_txn_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Store offsets as pending until the producer's transaction ends.

        The host has verified that the group is in the transaction, and has checked the producer's
        epoch (`PartitionAdditions.verify_offsets`).

        Source: KIP-447: a zombie is fenced by its member id and generation, besides its producer
                epoch.
        """
        result = self._table.result(request.group_id)
        codes, offsets = self._partition_codes(request.topics)
        if offsets:
            check = self._check(
                request, request.generation_id, context.api_version, transactional=True
            )
            offsets = self._accepted(request.group_id, check, codes, offsets)
            if offsets:
                result.producer = (request.producer_id, request.producer_epoch)
                wall_ms = now_ms + self._wall.ahead_ms
                self._write(result, request.group_id, offsets, codes, wall_ms, NO_TIMESTAMP)
                group = self._table.get_or_create(result.partition, request.group_id)
                self._removal.schedule_check(group, now_ms)
        result.replies.append(Reply(context.ticket, _txn_commit_response(codes)))
        return result

    def _partition_codes(
        self, topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic]
    ) -> tuple[PartitionCodes, list[RequestedOffset]]:
        """An error code for each partition, and the offsets whose partitions exist."""
        codes: PartitionCodes = {}
        existing: list[RequestedOffset] = []
        for topic in topics:
            of_topic = codes.setdefault(topic.name, {})
            for requested in topic.partitions:
                if self._partition_exists(topic.name, requested.partition_index):
                    of_topic[requested.partition_index] = _NONE
                    existing.append((topic.name, requested))
                else:
                    of_topic[requested.partition_index] = Code.UNKNOWN_TOPIC_OR_PARTITION
        return codes, existing

    def _check(
        self,
        request: OffsetCommitRequest | TxnOffsetCommitRequest,
        generation: int,
        api_version: int,
        *,
        transactional: bool,
    ) -> CommitCheck:
        """Check whether the member that the request names may commit in that generation."""
        group = self._table.by_id.get(request.group_id)
        if group is not None:
            return group.state.check_commit(
                CommitSender(
                    request.member_id,
                    generation,
                    api_version,
                    transactional,
                    request.group_instance_id,
                    self._is_preview,
                )
            )
        if generation < 0:
            return MAY_COMMIT
        is_old = api_version < GROUP_NOT_FOUND_SINCE or self._is_preview
        if transactional or is_old:
            return CommitCheck(Code.ILLEGAL_GENERATION)
        return CommitCheck(Code.GROUP_ID_NOT_FOUND)

    def _accepted(
        self,
        group_id: str,
        check: CommitCheck,
        codes: PartitionCodes,
        offsets: list[RequestedOffset],
    ) -> list[RequestedOffset]:
        """The offsets that may be committed. After: `codes` has an error code for each other
        offset.
        """
        if check.code is not _NONE:
            for topic, requested in offsets:
                codes[topic][requested.partition_index] = check.code
            return []
        if check.partition_code is None:
            return offsets
        state = self._table.by_id[group_id].state
        accepted = []
        for topic, requested in offsets:
            known = self._topics.topic(topic)
            topic_id = None if known is None else known[0]
            if state.has_had(check, topic, topic_id, requested.partition_index):
                accepted.append((topic, requested))
            else:
                codes[topic][requested.partition_index] = check.partition_code
        return accepted

    def _write(
        self,
        result: Result,
        group_id: str,
        offsets: Iterable[RequestedOffset],
        codes: PartitionCodes,
        wall_ms: int,
        expire_ms: int,
    ) -> None:
        """Add the records of the offsets to a Result.

        After:  `codes` has OFFSET_METADATA_TOO_LARGE for each offset whose metadata are too long.
        """
        count = 0
        for topic, requested in offsets:
            metadata = requested.committed_metadata or ""
            if len(metadata) > self._settings.offset_metadata_max_size:
                codes[topic][requested.partition_index] = Code.OFFSET_METADATA_TOO_LARGE
                continue
            value = (
                requested.committed_offset,
                requested.committed_leader_epoch,
                metadata,
                wall_ms,
                expire_ms,
            )
            count += 1
            index = requested.partition_index
            result.records.append(offset_record(group_id, topic, index, value))
            result.offsets.append((group_id, TopicPartition(topic, index), value))
        if count:
            result.count(Counted.OFFSET_COMMIT, count)


def _unknown_topic(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    """The row of the response for a topic id that does not exist."""
    return OffsetCommitResponseTopic(
        "",
        topic.topic_id,
        [
            OffsetCommitResponsePartition(requested.partition_index, Code.UNKNOWN_TOPIC_ID)
            for requested in topic.partitions
        ],
    )


def _commit_response(
    codes: PartitionCodes, topic_ids: Mapping[str, uuid.UUID]
) -> OffsetCommitResponse:
    """The response with the code of each partition. Takes: topic_ids, the ids of the topics that
    the request named by id.
    """
    topics = [
        OffsetCommitResponseTopic(
            "" if topic in topic_ids else topic,
            topic_ids.get(topic),
            partitions=[OffsetCommitResponsePartition(*row) for row in of_topic.items()],
        )
        for topic, of_topic in codes.items()
    ]
    return OffsetCommitResponse(topics=topics)


def _txn_commit_response(codes: PartitionCodes) -> TxnOffsetCommitResponse:
    """The response with the code of each partition."""
    topics = [
        TxnOffsetCommitResponseTopic(
            topic, [TxnOffsetCommitResponsePartition(*row) for row in of_topic.items()]
        )
        for topic, of_topic in codes.items()
    ]
    return TxnOffsetCommitResponse(topics=topics)
