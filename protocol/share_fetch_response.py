"""A hand-written encoder of the response to ShareFetch. Its records are slices of segment files, as
in a Fetch response.

ShareFetch, versions 1-2; all strings and arrays are compact, each struct ends in tagged fields:

    int32 size, int32 correlation_id, tags
    int32 throttle_time_ms, int16 error_code, nullable string error_message,
    int32 acquisition_lock_timeout_ms
    array of topics: uuid; array of partitions:
        int32 index, int16 error_code, nullable string error_message, int16 acknowledge_error_code,
        nullable string acknowledge_error_message, leader (int32 id, int32 epoch), records,
        array of acquired (int64 first_offset, int64 last_offset, int16 delivery_count)
    array of nodes (int32 id, string host, int32 port, nullable string rack)
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from barnabas.protocol.hot_responses import CurrentLeader, Endpoint, Piece
from barnabas.protocol.primitives import write_nullable_string, write_string, write_uvarint

_FRAME = struct.Struct(">iib")
_HEAD = struct.Struct(">ihbi")  # the fields that precede the topics; the error message is null
_PARTITION = struct.Struct(">ihb")
_CODE = struct.Struct(">h")
_LEADER = struct.Struct(">iib")
_ACQUIRED = struct.Struct(">qqhx")
_NODE = struct.Struct(">i")
NO_LEADER = CurrentLeader(0, 0)


class SharedPartition(NamedTuple):
    """One partition in the response.

    records: a slice of a file, bytes, or None if there are none. acquired: (first offset, last
    offset, delivery count) of each range of acquired records.
    """

    index: int  # type: ignore[assignment]  # the name of the wire, which is a method of tuples
    error_code: int = 0
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    records: Any = None
    acquired: Sequence[tuple[int, int, int]] = ()
    leader: CurrentLeader | None = None


def encode_share_fetch(
    correlation_id: int,
    topics: Sequence[tuple[uuid.UUID, Sequence[SharedPartition]]],
    *,
    error_code: int = 0,
    throttle_time_ms: int = 0,
    lock_timeout_ms: int = 0,
    endpoints: Iterable[Endpoint] = (),
) -> list[Piece]:
    """Encode the whole frame of the response, as bytes and slices of files in order."""
    pieces: list[Piece] = []
    total = 0
    out = first = bytearray(_FRAME.pack(0, correlation_id, 0))
    out += _HEAD.pack(throttle_time_ms, error_code, 0, lock_timeout_ms)
    write_uvarint(out, len(topics) + 1)
    for topic_id, partitions in topics:
        out += topic_id.bytes
        write_uvarint(out, len(partitions) + 1)
        for row in partitions:
            out += _PARTITION.pack(row.index, row.error_code, 0)
            out += _CODE.pack(row.acknowledge_error_code)
            write_nullable_string(out, row.acknowledge_error_message, True)
            out += _LEADER.pack(*(row.leader or NO_LEADER), 0)
            records = row.records
            size = 0
            if records is not None:
                size = records.size if hasattr(records, "size") else len(records)
            write_uvarint(out, size + 1)
            if size:
                pieces += (out, records)
                total += len(out) + size
                out = bytearray()
            write_uvarint(out, len(row.acquired) + 1)
            for one in row.acquired:
                out += _ACQUIRED.pack(*one)
            out.append(0)
        out.append(0)
    _write_endpoints(out, list(endpoints))
    out.append(0)
    pieces.append(out)
    struct.pack_into(">i", first, 0, total + len(out) - 4)
    return pieces


def _write_endpoints(out: bytearray, endpoints: Sequence[Endpoint]) -> None:
    """Append the addresses of leaders."""
    write_uvarint(out, len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        out += _NODE.pack(node_id)
        write_string(out, host, True)
        out += _NODE.pack(port)
        write_nullable_string(out, rack, True)
        out.append(0)
