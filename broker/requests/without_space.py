"""The response to a request that has to write while there is no space on the disk.

No byte of such a request remains written, and no state that its client relies on has changed. So
the client may retry, and stock clients do so after these codes. Apache Kafka has no special error
for a full disk: its log directory goes offline. The codes here are those that Kafka returns when a
coordinator's append fails (COORDINATOR_NOT_AVAILABLE) and when a partition's disk fails
(KAFKA_STORAGE_ERROR). Requests that are not in the table write nothing.

The handlers of Produce, CreateTopics, CreatePartitions, DeleteRecords, ShareFetch and
ShareAcknowledge refuse parts of a request themselves. A Metadata request that names missing topics
does not create them, and gets UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import NotWrittenError

if TYPE_CHECKING:
    from barnabas.broker.requests.pending_requests import Requests

_STORAGE, _COORDINATOR = Code.KAFKA_STORAGE_ERROR, Code.COORDINATOR_NOT_AVAILABLE

CODES: dict[int, Code] = {
    0: _STORAGE,  # Produce
    8: _COORDINATOR,  # OffsetCommit
    10: _COORDINATOR,  # FindCoordinator, which creates the internal topic
    11: _COORDINATOR,  # JoinGroup
    13: _COORDINATOR,  # LeaveGroup
    14: _COORDINATOR,  # SyncGroup
    19: _STORAGE,  # CreateTopics
    20: _STORAGE,  # DeleteTopics
    21: _STORAGE,  # DeleteRecords
    22: _COORDINATOR,  # InitProducerId
    24: _COORDINATOR,  # AddPartitionsToTxn
    25: _COORDINATOR,  # AddOffsetsToTxn
    26: _COORDINATOR,  # EndTxn
    27: _STORAGE,  # WriteTxnMarkers
    28: _COORDINATOR,  # TxnOffsetCommit
    30: _STORAGE,  # CreateAcls
    31: _STORAGE,  # DeleteAcls
    33: _STORAGE,  # AlterConfigs
    37: _STORAGE,  # CreatePartitions
    42: _COORDINATOR,  # DeleteGroups
    43: _STORAGE,  # ElectLeaders
    44: _STORAGE,  # IncrementalAlterConfigs
    45: _STORAGE,  # AlterPartitionReassignments
    47: _COORDINATOR,  # OffsetDelete
    49: _STORAGE,  # AlterClientQuotas
    51: _STORAGE,  # AlterUserScramCredentials
    57: _STORAGE,  # UpdateFeatures
    68: _COORDINATOR,  # ConsumerGroupHeartbeat
    76: _COORDINATOR,  # ShareGroupHeartbeat
    78: _COORDINATOR,  # ShareFetch
    79: _COORDINATOR,  # ShareAcknowledge
    83: _COORDINATOR,  # InitializeShareGroupState
    84: _COORDINATOR,  # ReadShareGroupState, which stores the leader's epoch
    85: _COORDINATOR,  # WriteShareGroupState
    86: _COORDINATOR,  # DeleteShareGroupState
    88: _COORDINATOR,  # StreamsGroupHeartbeat
    91: _COORDINATOR,  # AlterShareGroupOffsets
    92: _COORDINATOR,  # DeleteShareGroupOffsets
}
"""The codes by API key."""


def refusal(request: Message, context: RequestContext) -> Message:
    """The response to a request that could not write because there was no disk space."""
    return request.error_response(context.api_version, CODES[context.api_key])


def refuse(requests: Requests, request: Message, context: RequestContext) -> None:
    """Refuse a request that could not write because there was no disk space. The request may be
    parked or current.
    """
    if not requests.is_parked(context.ticket):
        if not requests.is_waited_for(context):
            return
        requests.park(context)
    requests.reply(context.ticket, refusal(request, context))


def refusing(
    work: Generator[Any, int, Any], request: Message, context: RequestContext
) -> Generator[Any, int, Any]:
    """The work of a request in slices. If there is no space for a write of a slice, the request is
    refused.
    """
    try:
        return (yield from work)
    except NotWrittenError:
        return refusal(request, context)
