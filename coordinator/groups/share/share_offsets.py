"""The offsets of share groups: setting and deleting the states of their partitions (KIP-932).

AlterShareGroupOffsets and DeleteShareGroupOffsets are handled in two events. First, a record lists
the states that are being initialised or deleted, and the Result has the `StateChange` for the share
coordinator. Once that change is durable, a second record says that the change is done, and the
request is answered. If the broker is killed in between, only the first record exists: the next
heartbeat of a member, or the same request, repeats the change. When a group is deleted, its states
are deleted first.

Source: KIP-932; Apache Kafka 4.3's responses where the KIP does not specify them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_table import GroupTable
from barnabas.coordinator.groups.group_types import SHARE_TYPE
from barnabas.coordinator.groups.share import partition_states
from barnabas.coordinator.groups.share.share_group import ShareGroup
from barnabas.coordinator.groups.share.share_group_records import StatesValue, states_record
from barnabas.coordinator.groups.share.share_groups import share_group
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.result import BY_THE_GROUP, Reply, Result, StateChange, StateRow
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.request_context import RequestContext

UNKNOWN_TOPIC = "the topic is unknown."
UNKNOWN_PARTITION = "the partition is unknown."
NO_STATES_TO_DELETE = "the group has no offsets of this topic."


class ShareOffsets:
    """Sets and deletes the states of share groups' partitions."""

    def __init__(self, table: GroupTable, topics: TopicDirectory) -> None:
        self._table, self._topics = table, topics

    # --- setting ---------------------------------------------------------------------------------

    def on_alter(
        self, request: AlterShareGroupOffsetsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Set the start offsets of a group's partitions.

        The group must have no members. It is created if it does not exist.
        """
        result = self._table.result(request.group_id)
        try:
            group = self._group_to_alter(request.group_id, result.partition)
        except KafkaError as error:
            return _replied(
                result,
                context,
                AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message),
            )
        names: dict[uuid.UUID, str] = {}
        rows: dict[tuple[uuid.UUID, int], StateRow] = {}
        topics = [self._row_of_alter(topic, names, rows) for topic in request.topics]
        # Put the rows of unknown partitions first, as Kafka does.
        topics.sort(key=lambda topic: topic.topic_id is not None)
        response = AlterShareGroupOffsetsResponse(responses=topics)
        if not rows:
            return _replied(result, context, response)
        share = group.modern = share_group(group)
        self._table.by_id[group.group_id] = group
        begun = partition_states.begun(share.states, rows.values(), names)
        result.records.append(states_record(group.group_id, begun))
        result.state_changes.append(
            StateChange(
                group.group_id,
                is_deletion=False,
                rows=tuple(rows.values()),
                state_epoch=share.epoch,
                reply=Reply(context.ticket, response),
            )
        )
        return result

    def _group_to_alter(self, group_id: str, partition: int) -> Group:
        """The group whose offsets are set.

        Raises: KafkaError INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        if not group_id:
            raise KafkaError(Code.INVALID_GROUP_ID, "GroupId is empty: name the group.")
        group = self._table.by_id.get(group_id)
        if group is None:
            return self._table.new_group(partition, group_id)
        if group.kind != SHARE_TYPE:
            raise _not_a_share_group(group_id)
        if group.has_members:
            raise _not_empty(group_id)
        return group

    def _row_of_alter(
        self,
        topic: AlterShareGroupOffsetsRequestTopic,
        names: dict[uuid.UUID, str],
        rows: dict[tuple[uuid.UUID, int], StateRow],
    ) -> AlterShareGroupOffsetsResponseTopic:
        """The response row for one topic. After: `rows` contains the partitions of the topic
        without an error.
        """
        known = self._topics.topic(topic.topic_name)
        answered = []
        for one in topic.partitions:
            index, code, message = one.partition_index, Code.NONE, None
            if known is None:
                code, message = Code.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC
            elif not 0 <= index < known[1]:
                code, message = Code.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION
            elif one.start_offset < BY_THE_GROUP:
                code, message = Code.INVALID_REQUEST, "StartOffset is below -1: set 0 or more."
            else:
                names[known[0]] = topic.topic_name
                rows[known[0], index] = StateRow(known[0], index, one.start_offset)
            answered.append(AlterShareGroupOffsetsResponsePartition(index, code, message))
        return AlterShareGroupOffsetsResponseTopic(
            topic.topic_name, None if known is None else known[0], answered
        )

    # --- deleting --------------------------------------------------------------------------------

    def on_delete(
        self, request: DeleteShareGroupOffsetsRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Delete the offsets of whole topics in a group that has no members."""
        result = self._table.result(request.group_id)
        try:
            share = self._group_to_delete_of(request.group_id)
        except KafkaError as error:
            return _replied(
                result,
                context,
                DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message),
            )
        names: dict[uuid.UUID, str] = {}
        rows: list[StateRow] = []
        topics = []
        for name in dict.fromkeys(topic.topic_name for topic in request.topics):
            known = self._topics.topic(name)
            states = () if known is None else _states_to_delete(share.states, *known)
            row = DeleteShareGroupOffsetsResponseTopic(name, None if known is None else known[0])
            if known is None or not states:
                row.topic_id = None
                row.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
                row.error_message = UNKNOWN_TOPIC if known is None else NO_STATES_TO_DELETE
            else:
                names[known[0]] = name
                rows += states
            topics.append(row)
        # Put the rows of topics with an error last, as Kafka does.
        topics.sort(key=lambda topic: topic.error_code)
        response = DeleteShareGroupOffsetsResponse(responses=topics)
        if not rows:
            return _replied(result, context, response)
        ending = partition_states.ending(share.states, names)
        result.records.append(states_record(request.group_id, ending))
        reply = Reply(context.ticket, response)
        result.state_changes.append(
            StateChange(request.group_id, is_deletion=True, rows=tuple(rows), reply=reply)
        )
        return result

    def _group_to_delete_of(self, group_id: str) -> ShareGroup:
        """The group whose offsets are deleted.

        Raises: KafkaError INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        if not group_id:
            raise KafkaError(Code.INVALID_GROUP_ID, "GroupId is empty: name the group.")
        group = self._table.by_id.get(group_id)
        if group is None or group.kind != SHARE_TYPE:
            raise _not_a_share_group(group_id)
        if group.has_members:
            raise _not_empty(group_id)
        return share_group(group)

    def begin_deletion(self, group_ids: Iterable[str]) -> list[Result]:
        """Begin to delete the states of groups that will be deleted.

        Gives: a Result with one `StateChange` for each share group that has states and no members.
        """
        results = []
        for group_id in group_ids:
            group = self._table.by_id.get(group_id)
            if group is None or group.kind != SHARE_TYPE or group.has_members:
                continue
            states = share_group(group).states
            rows = [
                StateRow(topic_id, index)
                for topic_id, of_topic in (
                    *states.initialized.items(),
                    *states.initializing.items(),
                )
                for index in of_topic.partitions
            ]
            for topic_id, name in states.deleting.items():
                known = self._topics.topic(name)
                if known is not None and known[0] == topic_id:
                    rows += [StateRow(topic_id, index) for index in range(known[1])]
            if rows:
                result = self._table.result(group_id)
                result.records.append(states_record(group_id, partition_states.all_ending(states)))
                distinct = tuple(dict.fromkeys(rows))
                result.state_changes.append(StateChange(group_id, is_deletion=True, rows=distinct))
                results.append(result)
        return results

    # --- completion ------------------------------------------------------------------------------

    def on_states_changed(self, change: StateChange, codes: Sequence[int]) -> Result:
        """Record the share coordinator's results, and answer the request that caused the change.

        Takes:  codes, one for each row of the change.
        """
        result = self._table.result(change.group_id)
        group = self._table.by_id.get(change.group_id)
        wrong = {
            (row.topic_id, row.partition): code
            for row, code in zip(change.rows, codes, strict=True)
            if code != Code.NONE
        }
        if group is not None and group.kind == SHARE_TYPE:
            share = share_group(group)
            states = self._states_after(change, share.states, wrong)
            if states != share.states:
                result.records.append(states_record(change.group_id, states))
            unwanted = [
                row
                for row in change.rows
                if wrong.get((row.topic_id, row.partition)) == Code.FENCED_STATE_EPOCH
                and row.partition not in _indexes(states, row.topic_id)
            ]
        else:
            unwanted = [row for row in change.rows if (row.topic_id, row.partition) not in wrong]
        # Delete states that were initialised for an earlier group of this name, or for a group that
        # is deleted by now.
        if unwanted and not change.is_deletion:
            result.state_changes.append(
                StateChange(change.group_id, is_deletion=True, rows=tuple(unwanted))
            )
        if change.reply is not None:
            _add_errors(change.reply.response, wrong)
            result.replies.append(change.reply)
        return result

    def _states_after(
        self, change: StateChange, states: StatesValue, wrong: dict[tuple[uuid.UUID, int], int]
    ) -> StatesValue:
        """The states after the change. Takes: wrong, the error codes of its failed rows. A deletion
        removes a topic only if all its rows succeeded.
        """
        if change.is_deletion:
            kept = {topic_id for topic_id, _ in wrong}
            gone = {row.topic_id for row in change.rows} - kept
            return partition_states.ended(states, gone)
        done = [row for row in change.rows if (row.topic_id, row.partition) not in wrong]
        failed = [row for row in change.rows if (row.topic_id, row.partition) in wrong]
        names = {
            topic_id: name
            for topic_id in dict.fromkeys(row.topic_id for row in done)
            if (name := self._topics.name(topic_id)) is not None
        }
        states = partition_states.failed(states, failed) if failed else states
        return partition_states.done(states, done, names) if names else states


def _indexes(states: StatesValue, topic_id: uuid.UUID) -> tuple[int, ...]:
    """The partitions of a topic whose states are initialised."""
    of_topic = states.initialized.get(topic_id)
    return () if of_topic is None else of_topic.partitions


def _states_to_delete(states: StatesValue, topic_id: uuid.UUID, count: int) -> list[StateRow]:
    """The states of a topic that the group has, or that an interrupted deletion may have left
    behind.
    """
    initialized = states.initialized.get(topic_id)
    if initialized is not None:
        return [StateRow(topic_id, index) for index in initialized.partitions]
    if topic_id in states.deleting:
        return [StateRow(topic_id, index) for index in range(count)]
    return []


def _add_errors(response: object, wrong: dict[tuple[uuid.UUID, int], int]) -> None:
    """Put the error codes of partitions into the response."""
    if not wrong:
        return
    if isinstance(response, AlterShareGroupOffsetsResponse):
        for topic in response.responses:
            for row in topic.partitions:
                if topic.topic_id is not None and row.error_code == Code.NONE:
                    row.error_code = wrong.get((topic.topic_id, row.partition_index), Code.NONE)
    elif isinstance(response, DeleteShareGroupOffsetsResponse):
        by_topic = {topic_id: code for (topic_id, _), code in wrong.items()}
        for deleted in response.responses:
            if deleted.topic_id in by_topic:
                deleted.error_code = by_topic[deleted.topic_id]


def _replied(
    result: Result,
    context: RequestContext,
    response: AlterShareGroupOffsetsResponse | DeleteShareGroupOffsetsResponse,
) -> Result:
    """The Result with the response."""
    result.replies.append(Reply(context.ticket, response))
    return result


def _not_a_share_group(group_id: str) -> KafkaError:
    return KafkaError(Code.GROUP_ID_NOT_FOUND, f"there is no share group '{group_id}'.")


def _not_empty(group_id: str) -> KafkaError:
    return KafkaError(
        Code.NON_EMPTY_GROUP, f"the share group '{group_id}' has members: stop them first."
    )
