"""What the records of consumer, share and streams groups have in common: the format of their keys,
and parts of their values.

Source: Apache Kafka 4.3, the schemas of the group coordinator's records.
"""

from __future__ import annotations

import struct
import uuid

from barnabas.protocol.primitives import Buffer, read_uuid, write_string

_INT16 = struct.Struct(">h")


def encode_key(version: int, group_id: str, member_id: str | None) -> bytes:
    """Encode the key of a record.

    Takes:  member_id, the member or other subject of the record; None for a record of the group
            itself.
    """
    out = bytearray(_INT16.pack(version))
    write_string(out, group_id, False)
    if member_id is not None:
        write_string(out, member_id, False)
    return bytes(out)


def value_start(value: bytes, kind: str) -> int:
    """Check the version of a value. Gives: the position after the version. Takes: kind, the kind of
    group, for the error text.

    Raises: ValueError if the version is unknown.
    """
    (version,) = _INT16.unpack_from(value)
    if version != 0:
        raise ValueError(f"a record of a {kind} group has the unknown version {version}")
    return _INT16.size


def read_topic_id(data: Buffer, at: int) -> tuple[uuid.UUID, int]:
    """Read a topic id. Gives: the id, and the position after it.

    A zero id, which means no topic, is returned as a zero UUID.
    """
    topic_id, at = read_uuid(data, at)
    return topic_id or uuid.UUID(int=0), at
