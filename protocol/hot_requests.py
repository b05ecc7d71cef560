"""Hand-written readers of Produce and Fetch, the two requests on the hot path.

A client that follows a thousand partitions sends a thousand partition structs with each Fetch. If
none of them has tagged fields, all of them have the same size in one version, and are unpacked
together. Both readers return what the generated readers return, and leave unusual requests to them.
A property test compares the results.

One partition of a Fetch, by version:

    4      int32 partition, int64 fetch_offset, int32 partition_max_bytes
    5-8    int32 partition, int64 fetch_offset, int64 log_start_offset, int32 partition_max_bytes
    9-11   int32 partition, int32 current_leader_epoch, int64 fetch_offset, int64 log_start_offset,
           int32 partition_max_bytes
    12-    int32 partition, int32 current_leader_epoch, int64 fetch_offset,
           int32 last_fetched_epoch, int64 log_start_offset, int32 partition_max_bytes,
           tagged fields (one byte, 0: none)
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.primitives import (
    MOST_TAGGED_FIELDS,
    BoundedBytes,
    Buffer,
    MalformedMessageError,
    read_nullable_string,
    read_string,
    read_structs,
    read_uuid,
    read_uvarint,
    skip_tags,
)

FETCH_FLEXIBLE, FETCH_SESSIONS, FETCH_TOPIC_IDS = 12, 7, 13
PRODUCE_FLEXIBLE, PRODUCE_TOPIC_IDS = 9, 13
# Requests of earlier versions contain messages in older formats (message_sets.py).
BATCHES_IN_PRODUCE, BATCHES_IN_FETCH = 3, 4
# This is enough for 1 MiB, which contains at most 13,800 partitions with the smallest batches.
MOST_PRODUCE_ELEMENTS = 16_000
MOST_IN_PLACE = 0x7F  # the highest value of a one-byte uvarint

_INT32 = struct.Struct(">i")
_TWO_INT32 = struct.Struct(">ii")
_LIMITS = struct.Struct(">iiib")
_ACKS = struct.Struct(">hi")
_ROW_4 = struct.Struct(">iqi")
_ROW_5 = struct.Struct(">iqqi")
_ROW_9 = struct.Struct(">iiqqi")
_ROW_12 = struct.Struct(">iiqiqix")
_NO_REPLICA = ReplicaState()
# no tagged fields of a partition, its topic and the request
_TAGS, _NO_TAGS = struct.Struct("3s"), bytes(3)
_MOST_HEADS = 1000
_LONGEST_HEAD = 512  # more bytes than a head with lengths of one byte, and what follows the records
# The fields of a Fetch of one partition but for its numbers, by version and the bytes around them.
_FETCHES: dict[tuple[int, bytes, bytes, bytes], tuple[Any, ...]] = {}
# by its size, the form of a head and the two bytes after it
head_form = lru_cache(maxsize=_LONGEST_HEAD)(lambda size: struct.Struct(f"{size}sBB"))
_Head = tuple[str | None, int, int, str, uuid.UUID | None, int]
# The fields of a Produce before the records of its only partition, by their bytes.
_HEADS_BY_NAME: dict[bytes, _Head] = {}
_HEADS_BY_ID: dict[bytes, _Head] = {}


def read_fetch(data: Buffer, at: int, version: int) -> tuple[FetchRequest, int]:
    """Read a Fetch as `FetchRequest.read` does.

    A reader of one partition sends requests that differ in the session epoch and the fetch offset.
    What the bytes around these numbers mean is remembered in `_FETCHES`. It depends on nothing
    else, so it never has to be forgotten, but for the space.
    """
    form = None
    if type(data) is bytes and len(data) <= _LONGEST_HEAD:
        form = _form_of_fetch(version, len(data) - at)
    if form is None:
        return _read_fetch(data, at, version)
    before, session_epoch, between, offset, after = form.unpack_from(data, at)
    key = version, before, between, after
    known = _FETCHES.get(key)
    if known is None:
        request, end = _read_fetch(data, at, version)
        if end == len(data):
            _remember_fetch(key, request, bytes(data[at:]))
        return request, end
    (
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, name, topic_id,
        index, leader_epoch, last_epoch, log_start, most_bytes,
    ) = known  # fmt: skip
    row = FetchPartition(index, leader_epoch, offset, last_epoch, log_start, most_bytes)
    request = FetchRequest(
        None, replica_id, _NO_REPLICA, max_wait_ms, min_bytes, max_bytes, isolation_level,
        session_id, session_epoch, [FetchTopic(name, topic_id, [row])], [], "",
    )  # fmt: skip
    return request, len(data)


@lru_cache(maxsize=_LONGEST_HEAD)
def _form_of_fetch(version: int, size: int) -> struct.Struct | None:
    """The form of a Fetch of one partition, without forgotten topics, rack and tagged fields: the
    bytes before the session epoch, the epoch, the bytes between, the fetch offset, and the bytes
    after it. None if no such request has that size. Takes: size, that of the body.
    """
    if version < FETCH_SESSIONS:
        return None
    before = _LIMITS.size + 4 + (4 if version <= 14 else 0)  # with the session id, the replica id
    if version >= FETCH_FLEXIBLE:  # no tags of the topic, an empty array, an empty string, no tags
        after = _ROW_12.size - 16 + 4
    else:  # an empty array, and from version 11 an empty string
        after = 8 + 4 + 4 + (2 if version >= 11 else 0)
    between = size - before - 4 - 8 - after
    return struct.Struct(f">{before}si{between}sq{after}s") if between > 0 else None


def _remember_fetch(
    key: tuple[int, bytes, bytes, bytes], request: FetchRequest, body: bytes
) -> None:
    """Remember the fields of a request, if it has the one form in which its numbers are where
    `_form_of_fetch` expects them.
    """
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or request.rack_id:
        return
    if request.forgotten_topics_data or request.replica_state is not _NO_REPLICA:
        return
    if request.encode(key[0]) != body:  # it has tagged fields
        return
    if len(_FETCHES) >= _MOST_HEADS:
        _FETCHES.clear()
    row = topics[0].partitions[0]
    _FETCHES[key] = (
        request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes,
        request.isolation_level, request.session_id, topics[0].topic, topics[0].topic_id,
        row.partition, row.current_leader_epoch, row.last_fetched_epoch, row.log_start_offset,
        row.partition_max_bytes,
    )  # fmt: skip


def _read_fetch(data: Buffer, at: int, version: int) -> tuple[FetchRequest, int]:
    """Read a Fetch in one piece. Its fields are read in wire order."""
    if version < BATCHES_IN_FETCH:
        return FetchRequest.read(data, at, version)
    if not isinstance(data, bytes):
        # Indexing bytes is faster than indexing a memoryview, and a Fetch is small.
        data = bytes(data)
    bounded = data if type(data) is BoundedBytes else None
    start = at
    compact = version >= FETCH_FLEXIBLE
    replica_id = -1
    if version <= 14:
        (replica_id,) = _INT32.unpack_from(data, at)
        at += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(data, at)
    at += 13
    session_id, session_epoch = 0, -1
    if version >= FETCH_SESSIONS:
        session_id, session_epoch = _TWO_INT32.unpack_from(data, at)
        at += 8
    # A compact count is a uvarint, one higher than the count (0 means null). Usually it has one
    # byte, and is read without a call, here and below. Otherwise a function is called.
    if compact and 0 < (count := data[at] - 1) < MOST_IN_PLACE:
        at += 1
    else:
        count, at = _read_count(data, at, compact)
    topics = []
    for _ in range(count):
        topic, topic_id = "", None
        if version < FETCH_TOPIC_IDS:
            topic, at = read_string(data, at, compact)
        else:
            topic_id, at = read_uuid(data, at)
        if compact and 0 < (row_count := data[at] - 1) < MOST_IN_PLACE:
            at += 1
        else:
            row_count, at = _read_count(data, at, compact)
        if bounded is not None:
            bounded.take(1 + row_count)
        partitions, at = _read_rows(data, at, version, row_count)
        # A partition with tagged fields has another size. The generated reader then reads the
        # request from its start.
        if partitions is None:
            return FetchRequest.read(data, start, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        topics.append(FetchTopic(topic, topic_id, partitions))
    forgotten: list[ForgottenTopic] = []
    # a compact length is the length plus one, so 1 means an empty array, or below an empty string
    if compact and data[at] == 1:
        at += 1
    elif version >= FETCH_SESSIONS:
        forgotten, at = read_structs(data, at, compact, ForgottenTopic.read, version)
    rack_id = ""
    if compact and data[at] == 1:
        at += 1
    elif version >= 11:
        rack_id, at = read_string(data, at, compact)
    if compact:
        if data[at]:  # there are tagged fields, such as the replica state of a follower
            return FetchRequest.read(data, start, version)
        at += 1
    request = FetchRequest(
        None,
        replica_id,
        _NO_REPLICA,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
    )
    return request, at


def _read_rows(
    data: bytes, at: int, version: int, count: int
) -> tuple[list[FetchPartition] | None, int]:
    """Read the partitions of a topic.

    Gives:  the partitions and the position after them. The list is None if a partition has tagged
            fields, or if the data end too early.
    """
    form = (
        _ROW_12 if version >= 12 else _ROW_9 if version >= 9 else _ROW_5 if version >= 5 else _ROW_4
    )
    end = at + count * form.size
    if end > len(data):
        return None, at
    rows = form.iter_unpack(data[at:end])
    if version >= 12:
        # The last byte of each partition is its count of tagged fields. The partitions before the
        # first one that has tagged fields have the usual size, so the count of this one is where it
        # is expected. A count that is not 0 is therefore found.
        if any(data[at + form.size - 1 : end : form.size]):
            return None, at
        return [FetchPartition(*row) for row in rows], end
    if version >= 9:
        return [
            FetchPartition(index, epoch, offset, -1, log_start, size)
            for index, epoch, offset, log_start, size in rows
        ], end
    if version >= 5:
        return [
            FetchPartition(index, -1, offset, -1, log_start, size)
            for index, offset, log_start, size in rows
        ], end
    return [FetchPartition(index, -1, offset, -1, -1, size) for index, offset, size in rows], end


def produce_reader(
    most_other_bytes: int | None,
) -> Callable[[Buffer, int, int], tuple[ProduceRequest, int]]:
    """Make the function that reads a Produce as `ProduceRequest.read` does, in one piece. Only the
    records are views.

    Nearly all requests have one partition of one topic, and a client sends the same bytes before
    the records again and again. `_HEADS_BY_NAME` and `_HEADS_BY_ID` have what such bytes mean. It
    depends on nothing else, so it never has to be forgotten, but for the space. What they do not
    have is read by `_read_produce`.

    Takes:  most_other_bytes, the limit of the bytes that are not records: topics, partitions and
            other fields; None for no limit.
    Gives:  the function for the table of requests, called with data, position and version.
    """
    knows_heads = most_other_bytes is None or most_other_bytes >= _LONGEST_HEAD

    def read(data: Buffer, at: int, version: int) -> tuple[ProduceRequest, int]:
        size_bytes = len(data)
        if version < PRODUCE_FLEXIBLE or type(data) is not memoryview or at >= size_bytes:
            return _read_produce(data, at, version, most_other_bytes, b"")
        # the transactional id, acks, timeout and number of topics come first
        size_at = at + (data[at] or 1) + 28
        heads = _HEADS_BY_ID
        if version < PRODUCE_TOPIC_IDS:
            if size_at - 21 >= size_bytes:
                return _read_produce(data, at, version, most_other_bytes, b"")
            size_at += data[size_at - 21] - 16
            heads = _HEADS_BY_NAME
        if size_at + 2 > size_bytes:
            return _read_produce(data, at, version, most_other_bytes, b"")
        head, size, high = head_form(size_at - at).unpack_from(data, at)
        known = heads.get(head)
        if known is not None and knows_heads:
            if size <= MOST_IN_PLACE:
                start = size_at + 1
            elif high <= MOST_IN_PLACE:  # two bytes, as in most batches
                size, start = size + (high << 7) - 0x80, size_at + 2
            else:
                size, start = read_uvarint(data, size_at)
            end = start + size - 1
            if end + 3 == size_bytes and size and _TAGS.unpack_from(data, end)[0] == _NO_TAGS:
                transactional_id, acks, timeout_ms, name, topic_id, index = known
                partition = PartitionProduceData(index, data[start:end])
                topic = TopicProduceData(name, topic_id, [partition])
                return ProduceRequest(transactional_id, acks, timeout_ms, [topic]), size_bytes
        return _read_produce(data, at, version, most_other_bytes, head)

    return read


def _read_produce(
    data: Buffer, at: int, version: int, most_other_bytes: int | None, head: bytes
) -> tuple[ProduceRequest, int]:
    """Read every field of a Produce, and remember what its head means.

    In the flexible form nearly all counts and lengths have one byte. These are read without a call,
    others by a function. Six calls would take a twentieth of the time of the request.

    Takes:  head, the bytes before the size of the records, if the request has the usual form; b""
            if it has not.
    Raises: MalformedMessageError if there are more bytes that are not records than the limit, or
            more topics, partitions and tagged fields than `MOST_PRODUCE_ELEMENTS`. It is raised
            before the objects of the array are made. With the smallest partitions, a Produce of 100
            MiB would become 4 GB of objects.
    """
    compact = version >= PRODUCE_FLEXIBLE
    by_id = version >= PRODUCE_TOPIC_IDS
    size_bytes = len(data)
    begin = at
    name_at = at + (data[at] or 1) + 7 if head else at  # where the topic is
    # The highest position at which the request may end. The size of each batch is added to it.
    end = at + (size_bytes if most_other_bytes is None else most_other_bytes)
    elements_left = MOST_PRODUCE_ELEMENTS
    transactional_id = None
    if compact and data[at] == 0:
        at += 1
    elif version >= BATCHES_IN_PRODUCE:
        _check_length(data, at, end, compact)
        transactional_id, at = read_nullable_string(data, at, compact)
    acks, timeout_ms = _ACKS.unpack_from(data, at)
    at += 6
    if compact and 0 < (count := data[at] - 1) < MOST_IN_PLACE:
        at += 1
    else:
        count, at = _read_count(data, at, compact)
        _check_elements(elements_left - count)
    elements_left -= count
    topics = []
    topic_id = None
    for _ in range(count):
        if by_id:
            name = ""
            topic_id, at = read_uuid(data, at)
        # As in all compact lengths, `size` is the length plus one, so the text ends at `at + size`.
        elif compact and 1 < (size := data[at]) <= MOST_IN_PLACE and at + size <= size_bytes:
            name, at = str(data[at + 1 : at + size], "utf-8", "replace"), at + size
        else:
            _check_length(data, at, end, compact)
            name, at = read_string(data, at, compact)
        if compact and 0 < (partition_count := data[at] - 1) < MOST_IN_PLACE:
            at += 1
        else:
            partition_count, at = _read_count(data, at, compact)
            _check_elements(elements_left - partition_count)
        # A count of one byte needs no check here. It is checked below, with its topic.
        elements_left -= partition_count
        partitions = []
        for _ in range(partition_count):
            if compact:
                (index,) = _INT32.unpack_from(data, at)
                size = data[at + 4] - 1
                if size < MOST_IN_PLACE:
                    at += 5
                elif (high := data[at + 5]) <= MOST_IN_PLACE:
                    # The size has two bytes, as in most batches. The first byte still contains its
                    # top bit, 0x80, which means that another byte follows, and which is subtracted
                    # here.
                    size += (high << 7) - 0x80
                    at += 6
                else:
                    size, at = read_uvarint(data, at + 4)
                    size -= 1
            else:
                index, size = _TWO_INT32.unpack_from(data, at)
                at += 8
            records: Buffer | None = None
            if size >= 0:
                start, at = at, at + size
                if at > size_bytes:
                    raise MalformedMessageError("the bytes end before the message does")
                records = data[start:at]
                end += size
            if compact:
                if data[at] == 0:
                    at += 1
                else:
                    at, elements_left = _skip_tags(data, at, end, elements_left)
            partitions.append(PartitionProduceData(index, records))
        if compact:
            if data[at] == 0:
                at += 1
            else:
                at, elements_left = _skip_tags(data, at, end, elements_left)
        # This is checked only once for each topic. A topic either has few partitions, or
        # `elements_left` has already limited them.
        if at > end or elements_left < 0:
            _check_elements(elements_left)
            _refuse_others(most_other_bytes)
        topics.append(TopicProduceData(name, topic_id, partitions))
    if compact:
        at = at + 1 if data[at] == 0 else _skip_tags(data, at, end, elements_left)[0]
    # The bytes of a head say where it ends if its counts are 1 and each length has one byte.
    if (
        head
        and head[0] <= MOST_IN_PLACE
        and head[name_at - begin - 1] == head[-5] == 2
        and (by_id or head[name_at - begin] <= MOST_IN_PLACE)
        and topics[0].partition_data  # else the head ends with the request, before the index
    ):
        heads = _HEADS_BY_ID if by_id else _HEADS_BY_NAME
        if len(heads) >= _MOST_HEADS:
            heads.clear()
        index = topics[0].partition_data[0].index
        heads[head] = (transactional_id, acks, timeout_ms, topics[0].name, topic_id, index)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), at


def _check_elements(left: int) -> None:
    """Reject a request that has too many elements.

    Takes:  left, the number of elements that may still follow; negative if there are too many.
    """
    if left < 0:
        raise MalformedMessageError(
            f"it has more than {MOST_PRODUCE_ELEMENTS} topics, partitions and tagged fields: send "
            "fewer partitions with each request"
        )


def _check_length(data: Buffer, at: int, end: int, compact: bool) -> None:
    """Reject a text that extends beyond `end`, before it is decoded.

    Only a compact length is checked. A text with a classic length (int16) is always small.
    """
    if compact and at + read_uvarint(data, at)[0] > end:
        raise MalformedMessageError("a text is too long, or the bytes end before it does")


def _skip_tags(data: Buffer, at: int, end: int, elements_left: int) -> tuple[int, int]:
    """Skip tagged fields. Gives: the position after them, and the number of elements that may
    follow.
    """
    count, at = read_uvarint(data, at)
    if count > MOST_TAGGED_FIELDS:
        raise MalformedMessageError(f"it has more than {MOST_TAGGED_FIELDS} tagged fields")
    elements_left -= count
    _check_elements(elements_left)
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
    if at > min(end, len(data)):
        raise MalformedMessageError("a tagged field is too long, or the bytes end before it does")
    return at, elements_left


def _refuse_others(most_other_bytes: int | None) -> None:
    """Raise the error for a request with too many bytes that are not records."""
    raise MalformedMessageError(
        f"more than {most_other_bytes} bytes of it are not records (barnabas.request.max.bytes)"
    )


def _read_count(data: Buffer, at: int, compact: bool) -> tuple[int, int]:
    """Read the count of an array that may not be null. Gives: the count, and the position
    after it.
    """
    if compact:
        count, at = read_uvarint(data, at)
        count -= 1
    else:
        (count,) = _INT32.unpack_from(data, at)
        at += 4
    if count < 0:
        raise MalformedMessageError("null is not allowed there")
    if count > len(data) - at:
        raise MalformedMessageError("the bytes end before the message does")
    return count, at
