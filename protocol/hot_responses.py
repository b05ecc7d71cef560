"""Hand-written encoders of the responses to Produce and Fetch, the two requests on the hot path.

The records in a fetch response are not bytes here but slices of segment files, which the rim sends
with sendfile. The response is therefore a list of bytes and slices. Both encoders return byte for
byte what kafka-python's classes encode (a property test compares them).

Produce, versions 0-13; flexible from 9 (compact strings and arrays, and tagged fields at the end of
each struct), topic ids from 13:

    int32 size, int32 correlation_id, [tags]
    array of topics: string name or uuid; array of partitions:
        int32 index, int16 error_code, int64 base_offset, 2+: int64 log_append_time_ms,
        5+: int64 log_start_offset, 8+: array of record_errors (int32 batch_index, nullable string),
        nullable string error_message
    1+: int32 throttle_time_ms

Fetch, versions 4-18; flexible from 12, topic ids from 13:

    int32 size, int32 correlation_id, [tags]
    int32 throttle_time_ms, 7+: int16 error_code, int32 session_id
    array of topics: string name or uuid; array of partitions:
        int32 index, int16 error_code, int64 high_watermark,
        int64 last_stable_offset, 5+: int64 log_start_offset, nullable array of aborted (int64
        producer_id, int64 first_offset), 11+: int32 preferred_read_replica, records: size and bytes
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

PRODUCE_FLEXIBLE, FETCH_FLEXIBLE, FETCH_TOPIC_IDS = 9, 12, 13
MOST_IN_PLACE = 0x7F  # the limit of a length whose compact form has one byte
PRODUCE_LEADERS, FETCH_LEADERS = 10, 16  # the first versions that have the addresses of leaders

_FRAME = struct.Struct(">ii")
_FRAME_TAGGED = struct.Struct(">iib")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_PRODUCED = struct.Struct(">ihqq")
_PRODUCED_5 = struct.Struct(">ihqqq")
_PRODUCED_0 = struct.Struct(">ihq")
# by version of Produce below 5: the struct of a partition, and the number of its fields
_OLDER_ROWS = (
    (_PRODUCED_0, 3), (_PRODUCED_0, 3), (_PRODUCED, 4), (_PRODUCED, 4), (_PRODUCED, 4)
)  # fmt: skip
# The whole frame for one partition without an error, in the flexible form, with a topic id of 16
# bytes: what precedes the numbers of the partition, these numbers, and what follows.
_NO_ERRORS = b"\x01\x00\x00\x00" + bytes(5)  # no record errors, no message, no tags; no throttle
_NO_TAGS = bytes(3)  # of a partition, its topic and the response
_FETCHED = struct.Struct(">ihqq")
_FETCHED_5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_SESSION = struct.Struct(">ihi")
# Each is one tagged field. Its value is a struct, which ends in its own count of tagged fields, 0.
_DIVERGING = struct.Struct(">bbbiqb")  # one field, with tag 0 and 13 bytes
_CURRENT_LEADER = struct.Struct(">bbbiib")  # one field, with tag 1 and 9 bytes


class FileSlice(Protocol):
    """Bytes of a file that are sent without being read (`storage.log.Slice`)."""

    @property
    def size(self) -> int: ...


Piece = bytes | bytearray | memoryview | FileSlice


class Endpoint(NamedTuple):
    """The address of a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class CurrentLeader(NamedTuple):
    """A partition's leader and its epoch, for a client that sent its request to another broker
    (KIP-951).
    """

    leader_id: int
    leader_epoch: int


@dataclass(slots=True)
class ProducedPartition:
    """The row of one partition in a Produce response. current_leader: written from version 10
    on.
    """

    index: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: CurrentLeader | None = None

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """The numbers in the order of the wire; versions before 5 have the first three or four."""
        return (
            self.index, self.error_code, self.base_offset, self.log_append_time_ms,
            self.log_start_offset,
        )  # fmt: skip


class FetchedPartition(NamedTuple):
    """One partition in a Fetch response.

    aborted: None is written as null. records: None is written as empty. diverging_epoch: the
    leader epoch and its end offset where the reader's log diverges from this one (KIP-595).
    current_leader: with an error code, for a reader that asked another broker. Both are written
    from version 12 on, and a row has at most one of them.
    """

    index: int  # type: ignore[assignment]
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    records: Any = None  # a FileSlice or bytes
    diverging_epoch: tuple[int, int] | None = None
    current_leader: CurrentLeader | None = None


@lru_cache(maxsize=1000)
def _one_partition(topic: str | uuid.UUID) -> tuple[struct.Struct, int, bytes] | None:
    """How to pack the whole frame for one partition of a topic, in the flexible form, without an
    error or a throttle time: the form, the frame's size, and the bytes between the correlation id
    and the partition. None for a name whose length has two bytes.

    A compact count or length of one byte is the count or length plus one.
    """
    if isinstance(topic, str):
        name = topic.encode()
        if len(name) >= MOST_IN_PLACE:
            return None
        head = bytes((0, 2, len(name) + 1)) + name + b"\x02"
    else:
        head = b"\x00\x02" + topic.bytes + b"\x02"
    form = struct.Struct(f">ii{len(head)}sihqqq{len(_NO_ERRORS)}s")
    return form, form.size - 4, head


def encode_produce(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[str | uuid.UUID, Sequence[ProducedPartition]]],
    throttle_time_ms: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> bytes:
    """Encode the whole frame of the response to a Produce of versions 0-13.

    The response for a single partition without an error, which is the usual case, has always the
    same fields, and is packed in one call.
    """
    flexible = version >= PRODUCE_FLEXIBLE
    if flexible and len(topics) == 1 and not (throttle_time_ms or endpoints):
        name, partitions = topics[0]
        if len(partitions) == 1 and not partitions[0].error_code:
            packing = _one_partition(name)
            if packing is not None:
                form, size, head = packing
                p = partitions[0]
                return form.pack(
                    size, correlation_id, head, p.index, 0,
                    p.base_offset, p.log_append_time_ms, p.log_start_offset, _NO_ERRORS,
                )  # fmt: skip
    row, width = (_PRODUCED_5, 5) if version >= 5 else _OLDER_ROWS[version]
    # What follows the numbers of a partition without an error: an empty array of record errors, a
    # null message, no tags.
    tail = b"" if version < 8 else b"\x01\x00\x00" if flexible else b"\x00\x00\x00\x00\xff\xff"
    out = bytearray(
        _FRAME_TAGGED.pack(0, correlation_id, 0) if flexible else _FRAME.pack(0, correlation_id)
    )
    _array(out, len(topics), flexible)
    for name, partitions in topics:
        if not isinstance(name, str):
            out += name.bytes
            _array(out, len(partitions), flexible)
        else:
            _string(out, name, flexible)
            _array(out, len(partitions), flexible)
        for p in partitions:
            if p.error_code and (
                p.record_errors or p.error_message is not None or p.current_leader is not None
            ):
                _put_refused(out, p, version)
            else:
                out += row.pack(*(p.numbers if version >= 5 else p.numbers[:width]))
                out += tail
        if flexible:
            out.append(0)
    if version:
        out += _INT.pack(throttle_time_ms)
    if endpoints and version >= PRODUCE_LEADERS:
        _node_endpoints(out, endpoints)
    elif flexible:
        out.append(0)
    _INT.pack_into(out, 0, len(out) - 4)  # the size does not include the size field itself
    return bytes(out)


def _put_refused(out: bytearray, p: ProducedPartition, version: int) -> None:
    """Append one partition with its record errors, message and leader, in the version's form."""
    flexible = version >= PRODUCE_FLEXIBLE
    row, width = (_PRODUCED_5, 5) if version >= 5 else _OLDER_ROWS[version]
    out += row.pack(*p.numbers[:width])
    if version >= 8:
        _array(out, len(p.record_errors), flexible)
        for batch_index, message in p.record_errors:
            out += _INT.pack(batch_index)
            _nullable_string(out, message, flexible)
            if flexible:
                out.append(0)
        _nullable_string(out, p.error_message, flexible)
        if p.current_leader is not None and version >= PRODUCE_LEADERS:
            out += _CURRENT_LEADER.pack(1, 0, 9, *p.current_leader, 0)
        elif flexible:
            out.append(0)


def _node_endpoints(out: bytearray, endpoints: Sequence[Endpoint]) -> None:
    """Append the tagged fields with the addresses of leaders."""
    body = bytearray()
    _uvarint(body, len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        body += _INT.pack(node_id)
        _string(body, host, True)
        body += _INT.pack(port)
        _nullable_string(body, rack, True)
        body.append(0)
    out += b"\x01\x00"  # one field, with the tag 0
    _uvarint(out, len(body))
    out += body


def _fetched_tags(
    diverging_epoch: tuple[int, int] | None, current_leader: CurrentLeader | None
) -> bytes:
    """Encode the tagged fields of one partition in a Fetch response."""
    if diverging_epoch is not None:
        return _DIVERGING.pack(1, 0, 13, *diverging_epoch, 0)
    if current_leader is not None:
        return _CURRENT_LEADER.pack(1, 1, 9, *current_leader, 0)
    return b"\x00"


@lru_cache(maxsize=1000)
def _one_fetched(topic: str | uuid.UUID, version: int) -> tuple[struct.Struct, bytes, bytes, bytes]:
    """How to pack what precedes the records of the only partition of a Fetch response from version
    7 on: the form, the bytes between the session id and the partition, and the bytes between the
    partition and the records for a null list of aborted transactions, and for an empty one.
    """
    flexible = version >= FETCH_FLEXIBLE
    head = bytearray()
    _array(head, 1, flexible)
    if isinstance(topic, str):
        _string(head, topic, flexible)
    else:
        head += topic.bytes
    _array(head, 1, flexible)
    null, none = (b"\x00", b"\x01") if flexible else (b"\xff\xff\xff\xff", bytes(4))
    no_replica = b"\xff\xff\xff\xff" if version >= 11 else b""
    size = len(null) + len(no_replica)
    form = struct.Struct(f">ii{'x' if flexible else ''}ihi{len(head)}sihqqq{size}s")
    return form, bytes(head), null + no_replica, none + no_replica


def _compact(number: int) -> bytes:
    """The bytes of an unsigned varint."""
    out = bytearray()
    _uvarint(out, number)
    return bytes(out)


def encode_fetch(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[str | uuid.UUID, Sequence[FetchedPartition]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> list[Piece]:
    """Encode the whole frame of the response to a Fetch of versions 4-18, as bytes and file slices.

    A response with the records of one partition, which is the usual case, has always the same
    fields before them, which are packed in one call.

    This is one long function. In a response with a thousand partitions, a call for each of them
    would take a third of the time.
    """
    flexible = version >= FETCH_FLEXIBLE
    if len(topics) == 1 and len(topics[0][1]) == 1 and version >= 7 and not endpoints:
        (row,) = topics[0][1]
        (
            index,
            code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted,
            records,
            diverging_epoch,
            current_leader,
        ) = row
        has_tags = diverging_epoch is not None or current_leader is not None
        if records is not None and not aborted and not has_tags:
            form, head, null_aborted, none_aborted = _one_fetched(topics[0][0], version)
            size = records.size if hasattr(records, "size") else len(records)
            if size:
                size_field = _compact(size + 1) if flexible else _INT.pack(size)
                end = _NO_TAGS if flexible else b""
                fields = form.pack(
                    form.size + len(size_field) + size + len(end) - 4, correlation_id,
                    throttle_time_ms, error_code, session_id, head,
                    index, code, high_watermark, last_stable_offset, log_start_offset,
                    null_aborted if aborted is None else none_aborted,
                )  # fmt: skip
                return (
                    [fields + size_field, records, end] if end else [fields + size_field, records]
                )
    no_replica = b"\xff\xff\xff\xff" if version >= 11 else b""
    null_aborted, none_aborted = (
        (b"\x00", b"\x01") if flexible else (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00")
    )
    # These two fields are adjacent, so they are appended together.
    null_aborted, none_aborted = null_aborted + no_replica, none_aborted + no_replica
    pieces: list[Piece] = []
    total = 0
    out = bytearray(
        _FRAME_TAGGED.pack(0, correlation_id, 0) if flexible else _FRAME.pack(0, correlation_id)
    )
    first = out  # after each slice `out` is a new array, but the size is written into the first one
    if version >= 7:
        out += _SESSION.pack(throttle_time_ms, error_code, session_id)
    else:
        out += _INT.pack(throttle_time_ms)
    _array(out, len(topics), flexible)
    for topic, partitions in topics:
        if version >= FETCH_TOPIC_IDS:
            out += topic.bytes  # type: ignore[union-attr]
        else:
            _string(out, topic, flexible)  # type: ignore[arg-type]
        _array(out, len(partitions), flexible)
        for (
            index,
            code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted,
            records,
            diverging_epoch,
            current_leader,
        ) in partitions:
            if version >= 5:
                out += _FETCHED_5.pack(
                    index, code, high_watermark, last_stable_offset, log_start_offset
                )
            else:
                out += _FETCHED.pack(index, code, high_watermark, last_stable_offset)
            if aborted:
                _aborted(out, aborted, flexible)
                out += no_replica
            else:
                out += null_aborted if aborted is None else none_aborted
            size = (
                0 if records is None else records.size if hasattr(records, "size") else len(records)
            )
            if flexible:
                _uvarint(out, size + 1)
            else:
                out += _INT.pack(size)
            if size:
                # The bytes so far come first, then the slice, which the rim sends from the file.
                pieces.append(out)
                pieces.append(records)
                total += len(out) + size
                out = bytearray()
            if flexible:
                if code or diverging_epoch is not None:
                    out += _fetched_tags(diverging_epoch, current_leader)
                else:
                    out.append(0)
        if flexible:
            out.append(0)
    if endpoints and version >= FETCH_LEADERS:
        _node_endpoints(out, endpoints)
    elif flexible:
        out.append(0)
    if out:
        pieces.append(out)
        total += len(out)
    _INT.pack_into(first, 0, total - 4)
    return pieces


def _aborted(out: bytearray, aborted: Sequence[tuple[int, int]], flexible: bool) -> None:
    """Append the list of aborted transactions."""
    _array(out, len(aborted), flexible)
    for producer_id, first_offset in aborted:
        out += _ABORTED.pack(producer_id, first_offset)
        if flexible:
            out.append(0)


def _array(out: bytearray, count: int, flexible: bool) -> None:
    """Append the count of an array: as a compact count (plus one) in flexible versions."""
    if flexible:
        if count < 0x7F:
            out.append(count + 1)
        else:
            _uvarint(out, count + 1)
    else:
        out += _INT.pack(count)


def _string(out: bytearray, text: str, flexible: bool) -> None:
    """Append a string with its length."""
    data = text.encode()
    if flexible:
        _array(out, len(data), flexible)
    else:
        out += _SHORT.pack(len(data))
    out += data


def _nullable_string(out: bytearray, text: str | None, flexible: bool) -> None:
    """Append a string with its length, or null."""
    if text is not None:
        _string(out, text, flexible)
    elif flexible:
        out.append(0)
    else:
        out += b"\xff\xff"


def _uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
