"""OffsetCommit and TxnOffsetCommit: the checks of a request's offsets, and the records of the
accepted offsets.

Both requests pass the same checks: that the partitions exist, that the member and its generation or
epoch are those of the group (`CommitCheck`), and that the metadata are not too long. A rejected
offset has an error code in `PartitionCodes`, and each other offset has a record.

Source: KIP-447 (commits in a transaction), KIP-848, KIP-1251.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

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
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

# a module's name is found sooner than the member of an Enum
_NONE, _COMMITS = Code.NONE, Counted.OFFSET_COMMIT
_new = tuple.__new__  # makes a NamedTuple without its constructor, which is a function of Python
# The version of OffsetCommit from which on a missing group has a code of its own (KIP-848).
GROUP_NOT_FOUND_SINCE = 9
NO_IDS: Mapping[str, uuid.UUID | None] = {}


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
        topics, topic_ids = request.topics, NO_IDS
        unknown: list[OffsetCommitRequestTopic] = []
        if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topics, unknown = with_names(topics, self._topics)
            topic_ids = {topic.name: topic.topic_id for topic in topics}
        check = self._check(
            request, request.generation_id_or_member_epoch, context.api_version, transactional=False
        )
        retention_ms, wall_ms = request.retention_time_ms, now_ms + self._wall.ahead_ms
        expire_ms = (
            NO_TIMESTAMP if retention_ms < 0 else min(wall_ms + retention_ms, LAST_TIMESTAMP)
        )
        codes, is_accepted = self._write(
            result, request.group_id, topics, check, wall_ms, expire_ms
        )
        if is_accepted:
            group = self._table.get_or_create(result.partition, request.group_id)
            group.classic.on_commit(request.member_id, now_ms)
            self._removal.schedule_check(group, now_ms)
        response = _commit_response(codes, topic_ids)
        if unknown:
            response.topics += map(_unknown_topic, unknown)
        result.replies.append(_new(Reply, (context.ticket, response)))
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
        check = self._check(request, request.generation_id, context.api_version, transactional=True)
        wall_ms = now_ms + self._wall.ahead_ms
        codes, is_accepted = self._write(
            result, request.group_id, request.topics, check, wall_ms, NO_TIMESTAMP
        )
        if is_accepted:
            result.producer = (request.producer_id, request.producer_epoch)
            group = self._table.get_or_create(result.partition, request.group_id)
            self._removal.schedule_check(group, now_ms)
        result.replies.append(Reply(context.ticket, _txn_commit_response(codes)))
        return result

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
            fields = (
                request.member_id, generation, api_version, transactional,
                request.group_instance_id, self._is_preview,
            )  # fmt: skip
            return group.state.check_commit(_new(CommitSender, fields))
        if generation < 0:
            return MAY_COMMIT
        is_old = api_version < GROUP_NOT_FOUND_SINCE or self._is_preview
        if transactional or is_old:
            return CommitCheck(Code.ILLEGAL_GENERATION)
        return CommitCheck(Code.GROUP_ID_NOT_FOUND)

    def _write(
        self,
        result: Result,
        group_id: str,
        topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
        check: CommitCheck,
        wall_ms: int,
        expire_ms: int,
    ) -> tuple[PartitionCodes, bool]:
        """Add the records of the offsets to a Result, unless they are refused.

        Gives:  an error code for each partition; and whether the member may commit the offset of
                any partition that exists, even if its metadata are too long.
        """
        codes: PartitionCodes = {}
        most_metadata, is_accepted, count = self._settings.offset_metadata_max_size, False, 0
        for topic in topics:
            name = topic.name
            of_topic = codes.setdefault(name, {})
            for requested in topic.partitions:
                index = requested.partition_index
                if not self._partition_exists(name, index):
                    of_topic[index] = Code.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                if check is not MAY_COMMIT:
                    code = self._code_of(check, group_id, name, index)
                    if code is not _NONE:
                        of_topic[index] = code
                        continue
                is_accepted = True
                metadata = requested.committed_metadata or ""
                if len(metadata) > most_metadata:
                    of_topic[index] = Code.OFFSET_METADATA_TOO_LARGE
                    continue
                # a partition that is named twice keeps its error
                of_topic.setdefault(index, _NONE)
                value = (
                    requested.committed_offset, requested.committed_leader_epoch, metadata,
                    wall_ms, expire_ms,
                )  # fmt: skip
                count += 1
                result.records.append(offset_record(group_id, name, index, value))
                place = _new(TopicPartition, (name, index))
                result.offsets.append((group_id, place, value))
        if count:
            result.count(_COMMITS, count)
        return codes, is_accepted

    def _code_of(self, check: CommitCheck, group_id: str, name: str, index: int) -> Code:
        """The error code for the offset of one partition, after the check of its member."""
        if check.code is not _NONE or check.partition_code is None:
            return check.code
        known = self._topics.topic(name)
        topic_id = None if known is None else known[0]
        has_had = self._table.by_id[group_id].state.has_had(check, name, topic_id, index)
        return _NONE if has_had else check.partition_code


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
    codes: PartitionCodes, topic_ids: Mapping[str, uuid.UUID | None]
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
