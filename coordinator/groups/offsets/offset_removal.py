"""The removal of committed offsets: when their retention is over (KIP-211), by OffsetDelete
(KIP-496), and with their topics.

A timer with the key (RETENTION, group, "") checks the retention of a group's offsets, and removes a
group that has no state left. The rules of retention are in a table in group.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator

from barnabas.coordinator.groups.group import Group, PartitionCodes
from barnabas.coordinator.groups.group_records import offset_tombstone
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_table import GroupTable
from barnabas.coordinator.groups.group_timers import RETENTION
from barnabas.coordinator.result import (
    RECORDS_PER_BATCH,
    Counted,
    PartitionExists,
    Reply,
    Result,
    ResultsByPartition,
)
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition

OFFSETS_CHECKED_PER_RECORD = 16  # checking this many offsets takes as long as removing one


class OffsetRemoval:
    """Removes offsets. A group whose last offset expires is removed with it."""

    def __init__(
        self, table: GroupTable, settings: GroupSettings, partition_exists: PartitionExists
    ) -> None:
        self._table, self._settings = table, settings
        self._partition_exists = partition_exists

    # --- retention -------------------------------------------------------------------------------

    def schedule_check(self, group: Group, now_ms: int) -> None:
        """Schedule a check of the retention of the group's offsets, one interval from now at the
        latest.
        """
        key = (RETENTION, group.group_id, "")
        timers = self._table.timers
        latest_ms = now_ms + self._settings.offsets_retention_check_interval_ms
        deadline_ms = timers.deadline_ms(key)
        if deadline_ms is None or deadline_ms > latest_ms:
            timers.schedule(key, latest_ms)

    def check(self, group: Group, results: ResultsByPartition, now_ms: int) -> None:
        """Remove the offsets whose retention is over, and the group if it has no state left.

        Source: KIP-211.
        """
        key = (RETENTION, group.group_id, "")
        timers = self._table.timers
        expiry = group.expiry(self._settings, now_ms, max_count=RECORDS_PER_BATCH)
        if expiry is not None:
            records = [offset_tombstone(group.group_id, *partition) for partition in expiry.expired]
            if records:
                results.of(group.partition).count(Counted.OFFSET_EXPIRATION, len(records))
            if expiry.has_more:  # the next tick removes the others, after requests are served
                results.add(group.partition, records)
                timers.schedule(key, now_ms)
                return
            if expiry.is_complete and group.state.is_unused:
                if not group.has_hard_state:
                    del self._table.by_id[group.group_id]
                    return
                records += group.state.tombstones(group.group_id)
            results.add(group.partition, records)
        timers.schedule(key, group.next_retention_check_ms(self._settings, now_ms))

    # --- deletion --------------------------------------------------------------------------------

    def on_offset_delete(
        self, request: OffsetDeleteRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Delete committed and pending offsets of topics that no member reads.

        A group without members remains without its last offset, until its next retention check:
        tools delete the group next. A missing group is an error even if no partition exists.

        Source: KIP-496.
        """
        result = self._table.result(request.group_id)
        codes: PartitionCodes = {}
        existing: list[TopicPartition] = []
        for topic in request.topics:
            of_topic = codes.setdefault(topic.name, {})
            for requested in topic.partitions:
                exists = self._partition_exists(topic.name, requested.partition_index)
                of_topic[requested.partition_index] = (
                    Code.NONE if exists else Code.UNKNOWN_TOPIC_OR_PARTITION
                )
                if exists:
                    existing.append(TopicPartition(topic.name, requested.partition_index))
        code = self._check_offset_delete(request.group_id)
        if code is not Code.NONE:
            codes, existing = {}, []
        if existing:
            group = self._table.by_id[request.group_id]
            group.delete_offsets(existing, codes, result)
            self.schedule_check(group, now_ms)
        topics = [
            OffsetDeleteResponseTopic(
                name, [OffsetDeleteResponsePartition(*row) for row in of_topic.items()]
            )
            for name, of_topic in codes.items()
        ]
        response = OffsetDeleteResponse(error_code=code, topics=topics)
        result.replies.append(Reply(context.ticket, response))
        return result

    def _check_offset_delete(self, group_id: str) -> Code:
        """The error code if offsets of the group cannot be deleted, otherwise NONE."""
        if not group_id:
            return Code.INVALID_GROUP_ID
        group = self._table.by_id.get(group_id)
        return Code.GROUP_ID_NOT_FOUND if group is None else group.state.check_offset_delete()

    def on_topics_deleted(
        self, names: Iterable[str], topic_ids: Collection[uuid.UUID]
    ) -> Iterator[Result]:
        """Delete all committed and pending offsets of deleted topics, and the states that share and
        streams groups have for these topics.

        Gives:  Results, one for each part of the work. Between two parts any event may happen,
                except the creation of a topic with one of these names.
        """
        deleted = dict.fromkeys(names)
        results, cost = ResultsByPartition(), 0
        for group_id in list(self._table.by_id):
            group = self._table.by_id.get(group_id)
            if group is None:
                continue
            partitions = [
                partition for partition in group.offsets.all_partitions() if partition[0] in deleted
            ]
            cost += 1 + len(group.offsets.committed) // OFFSETS_CHECKED_PER_RECORD
            results.add(group.partition, group.state.without_topics(group_id, topic_ids))
            for first in range(0, len(partitions), RECORDS_PER_BATCH):
                part = partitions[first : first + RECORDS_PER_BATCH]
                results.add(
                    group.partition, [offset_tombstone(group_id, *partition) for partition in part]
                )
                cost += len(part)
                if cost >= RECORDS_PER_BATCH:
                    yield results.as_one()
                    results, cost = ResultsByPartition(), 0
            if cost >= RECORDS_PER_BATCH:
                yield results.as_one()
                results, cost = ResultsByPartition(), 0
        yield results.as_one()
