"""Readers and encoders of small messages that are sent again and again: Heartbeat, and OffsetCommit
of one offset.

A member sends the same Heartbeat every few seconds. Its commits of the offset of one partition
differ in two numbers, near the end of the request:

    OffsetCommit, from version 8: what is the same | int64 committed_offset,
    int32 committed_leader_epoch | 4 bytes that are the same (metadata of a length of 0, or null;
    no tagged fields of the partition, its topic and the request)

What the same bytes mean is remembered with them. It depends on nothing else, so it never has to be
forgotten, but for the space. All else is left to the generated code, and a property test compares
the results.
"""

from __future__ import annotations

import struct
import uuid
from functools import lru_cache

from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.primitives import Buffer

COMMIT_FLEXIBLE = 8
_MOST_REMEMBERED, _LONGEST_BYTES = 1000, 512
_COMMITTED = struct.Struct(">qi4s")  # the numbers of an offset, and what follows them

_Heartbeat = tuple[str, int, str, str | None]
_Commit = tuple[str, int, str, str | None, str, uuid.UUID | None, int, str | None]
# the fields of a Heartbeat, by version and bytes
_HEARTBEATS: dict[tuple[int, bytes], _Heartbeat] = {}
# those of an OffsetCommit of one offset, by version and the bytes before and after its numbers
_COMMITS: dict[tuple[int, bytes, bytes], _Commit] = {}


def read_heartbeat(data: Buffer, at: int, version: int) -> tuple[HeartbeatRequest, int]:
    """Read a Heartbeat as `HeartbeatRequest.read` does."""
    if type(data) is not bytes:
        return HeartbeatRequest.read(data, at, version)
    key = version, data[at:]
    known = _HEARTBEATS.get(key)
    if known is not None:
        return HeartbeatRequest(*known), len(data)
    request, end = HeartbeatRequest.read(data, at, version)
    if end == len(data) <= _LONGEST_BYTES:
        if len(_HEARTBEATS) >= _MOST_REMEMBERED:
            _HEARTBEATS.clear()
        _HEARTBEATS[key] = (
            request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )  # fmt: skip
    return request, end


def read_offset_commit(data: Buffer, at: int, version: int) -> tuple[OffsetCommitRequest, int]:
    """Read an OffsetCommit as `OffsetCommitRequest.read` does."""
    numbers_at = len(data) - _COMMITTED.size
    if version < COMMIT_FLEXIBLE or type(data) is not bytes or numbers_at < at:
        return OffsetCommitRequest.read(data, at, version)
    offset, leader_epoch, after = _COMMITTED.unpack_from(data, numbers_at)
    key = version, data[at:numbers_at], after
    known = _COMMITS.get(key)
    if known is not None:
        group_id, epoch, member_id, instance_id, name, topic_id, index, metadata = known
        partition = OffsetCommitRequestPartition(index, offset, leader_epoch, -1, metadata)
        topic = OffsetCommitRequestTopic(name, topic_id, [partition])
        return OffsetCommitRequest(group_id, epoch, member_id, instance_id, -1, [topic]), len(data)
    request, end = OffsetCommitRequest.read(data, at, version)
    if end == len(data) <= _LONGEST_BYTES:
        _remember_commit(key, request, data[at:])
    return request, end


def _remember_commit(
    key: tuple[int, bytes, bytes], request: OffsetCommitRequest, body: bytes
) -> None:
    """Remember the fields of a request, if it has the one form in which its numbers are where
    `read_offset_commit` reads them.
    """
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return
    (topic,) = request.topics
    (partition,) = topic.partitions
    # Tagged fields, which are not written again, could end like a request without any.
    if partition.committed_metadata or request.encode(key[0]) != body:
        return
    if len(_COMMITS) >= _MOST_REMEMBERED:
        _COMMITS.clear()
    _COMMITS[key] = (
        request.group_id, request.generation_id_or_member_epoch, request.member_id,
        request.group_instance_id, topic.name, topic.topic_id, partition.partition_index,
        partition.committed_metadata,
    )  # fmt: skip


def encode_heartbeat(response: HeartbeatResponse, version: int) -> bytes:
    """Encode the response to a Heartbeat as `HeartbeatResponse.encode` does."""
    return _encode_heartbeat(version, response.throttle_time_ms, response.error_code)


@lru_cache(maxsize=_MOST_REMEMBERED)
def _encode_heartbeat(version: int, throttle_time_ms: int, error_code: int) -> bytes:
    return HeartbeatResponse(throttle_time_ms, error_code).encode(version)


def encode_committed(response: OffsetCommitResponse, version: int) -> bytes:
    """Encode the response to an OffsetCommit as `OffsetCommitResponse.encode` does."""
    topics = response.topics
    # the rows of a long response are no list, and may be encoded already
    if len(topics) != 1 or response.throttle_time_ms or type(topics) is not list:
        return response.encode(version)
    topic = topics[0]
    if len(topic.partitions) != 1 or type(topic.partitions) is not list:
        return response.encode(version)
    partition = topic.partitions[0]
    return _encode_one_committed(
        version, topic.name, topic.topic_id, partition.partition_index, partition.error_code
    )


@lru_cache(maxsize=_MOST_REMEMBERED)
def _encode_one_committed(
    version: int, name: str, topic_id: uuid.UUID | None, index: int, error_code: int
) -> bytes:
    """The bytes of the response for one partition."""
    topic = OffsetCommitResponseTopic(
        name, topic_id, [OffsetCommitResponsePartition(index, error_code)]
    )
    return OffsetCommitResponse(0, [topic]).encode(version)
