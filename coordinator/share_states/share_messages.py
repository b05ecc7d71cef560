"""The responses to the requests about the state of share partitions.

All five requests have the same form: topics by id, each with its partitions. The responses have
this form too.
"""

from __future__ import annotations

import uuid
from typing import Any

from barnabas.coordinator.share_states.share_state import Change, ShareState
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from barnabas.protocol.messages.message import Message

INITIALIZE, READ, WRITE, DELETE, SUMMARY = 83, 84, 85, 86, 87

TEXTS = {
    Code.FENCED_LEADER_EPOCH: "a later leader of the partition has read the state",
    Code.FENCED_STATE_EPOCH: "the state was initialized again, with a higher state epoch",
    Code.UNKNOWN_TOPIC_OR_PARTITION: "the partition is unknown",
}
StateRequest = (
    initialize_share_group_state.InitializeShareGroupStateRequest
    | read_share_group_state.ReadShareGroupStateRequest
    | write_share_group_state.WriteShareGroupStateRequest
    | delete_share_group_state.DeleteShareGroupStateRequest
    | read_share_group_state_summary.ReadShareGroupStateSummaryRequest
)
_ROWS: dict[int, Any] = {
    INITIALIZE: initialize_share_group_state.PartitionResult,
    READ: read_share_group_state.PartitionResult,
    WRITE: write_share_group_state.PartitionResult,
    DELETE: delete_share_group_state.PartitionResult,
    SUMMARY: read_share_group_state_summary.PartitionResult,
}
_TOPICS: dict[int, Any] = {
    INITIALIZE: initialize_share_group_state.InitializeStateResult,
    READ: read_share_group_state.ReadStateResult,
    WRITE: write_share_group_state.WriteStateResult,
    DELETE: delete_share_group_state.DeleteStateResult,
    SUMMARY: read_share_group_state_summary.ReadStateSummaryResult,
}
_RESPONSES: dict[int, Any] = {
    INITIALIZE: initialize_share_group_state.InitializeShareGroupStateResponse,
    READ: read_share_group_state.ReadShareGroupStateResponse,
    WRITE: write_share_group_state.WriteShareGroupStateResponse,
    DELETE: delete_share_group_state.DeleteShareGroupStateResponse,
    SUMMARY: read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
}


def row(request: StateRequest, asked: Any, change: Change, state: ShareState | None) -> Message:
    """Make the entry of one share partition in the response.

    Takes:  asked, the partition's entry in the request; state, the state before the change.
    """
    answer: Message = _ROWS[request.API_KEY](
        partition=asked.partition,
        error_code=change.error_code,
        error_message=change.error_message,
    )
    if change.error_code == Code.NONE:
        if request.API_KEY == READ and state is not None:
            _add_state(answer, state)
        elif request.API_KEY == SUMMARY:
            _add_summary(answer, state)
    return answer


def _add_state(answer: Any, state: ShareState) -> None:
    answer.state_epoch, answer.start_offset = state.state_epoch, state.start_offset
    answer.state_batches = [read_share_group_state.StateBatch(*run) for run in state.batches]


def _add_summary(answer: Any, state: ShareState | None) -> None:
    """Put the start offset and the epochs of a state into the row; -1 if there is no state."""
    if state is None:
        answer.start_offset = answer.delivery_complete_count = -1
        return
    answer.state_epoch, answer.leader_epoch = state.state_epoch, state.leader_epoch
    answer.start_offset = state.start_offset
    answer.delivery_complete_count = state.delivery_complete_count


def response(
    request: StateRequest, topics: list[tuple[uuid.UUID | None, list[Message]]]
) -> Message:
    """Make the response from the entries of the partitions, which are listed by topic."""
    of_topics = [_TOPICS[request.API_KEY](topic_id, rows) for topic_id, rows in topics]
    made: Message = _RESPONSES[request.API_KEY](results=of_topics)
    return made
