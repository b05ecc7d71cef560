"""Records of Apache Kafka's metadata log, `__cluster_metadata` (KIP-631).

Made by `make protocol` from generator/schemas/records/cluster_metadata.json; not to be edited.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection

from barnabas.protocol.internal_records.record import (
    encoded_uvarint,
    read_nullable_string,
    unpack_tag,
)
from barnabas.protocol.internal_records.record_schema import Field, RecordSchema
from barnabas.protocol.primitives import (
    read_bytes,
    read_nullable_numbers,
    read_numbers,
    read_tags,
    read_uvarint,
    refuse_length,
    skip_tags,
)

_INT32 = struct.Struct(">i")
_PACK_FLOAT64_BOOL_NO_TAGS = struct.Struct(">d?x").pack
_PACK_INT16_NO_TAGS = struct.Struct(">hx").pack
_PACK_INT32 = struct.Struct(">i").pack
_PACK_INT32_3_TIMES = struct.Struct(">iii").pack
_PACK_INT32_INT64_2_TIMES_NO_TAGS = struct.Struct(">iqqx").pack
_PACK_INT32_NO_TAGS = struct.Struct(">ix").pack
_PACK_INT32_UUID = struct.Struct(">i16s").pack
_PACK_INT8 = struct.Struct(">b").pack
_PACK_INT8_2_TIMES_NO_TAGS = struct.Struct(">bbx").pack
_PACK_INT8_NO_TAGS = struct.Struct(">bx").pack
_PACK_UUID_INT8 = struct.Struct(">16sb").pack
_PACK_UUID_NO_TAGS = struct.Struct(">16sx").pack
_UNPACK_FLOAT64_BOOL = struct.Struct(">d?").unpack_from
_UNPACK_INT16 = struct.Struct(">h").unpack_from
_UNPACK_INT32 = struct.Struct(">i").unpack_from
_UNPACK_INT32_3_TIMES = struct.Struct(">iii").unpack_from
_UNPACK_INT32_INT64_2_TIMES = struct.Struct(">iqq").unpack_from
_UNPACK_INT32_UUID = struct.Struct(">i16s").unpack_from
_UNPACK_INT8 = struct.Struct(">b").unpack_from
_UNPACK_INT8_2_TIMES = struct.Struct(">bb").unpack_from
_UNPACK_UUID = struct.Struct(">16s").unpack_from
_UNPACK_UUID_INT8 = struct.Struct(">16sb").unpack_from

EntityData = tuple[str | None, str | None]
"""entity_type, entity_name"""


def _encode_entity_data_rows(rows: Collection[EntityData]) -> bytes:
    out = []
    for entity_type, entity_name in rows:
        entity_type_utf8 = b"" if entity_type is None else entity_type.encode()
        entity_name_utf8 = b"" if entity_name is None else entity_name.encode()
        out.append(
            encoded_uvarint(len(entity_type_utf8) + 1 if entity_type is not None else 0)
            + entity_type_utf8
            + encoded_uvarint(len(entity_name_utf8) + 1 if entity_name is not None else 0)
            + entity_name_utf8
            + b"\0"
        )
    return b"".join(out)


def _read_entity_data_rows(data: bytes, at: int, count: int) -> tuple[list[EntityData], int]:
    rows: list[EntityData] = []
    for _ in range(count):
        entity_type, at = read_nullable_string(data, at)
        entity_name, at = read_nullable_string(data, at)
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        rows.append((entity_type, entity_name))
    return rows, at


def encode_topic_record(name: str | None, topic_id: uuid.UUID) -> bytes:
    """A topic."""
    name_utf8 = b"" if name is None else name.encode()
    return (
        b"\x01\x02\x00"
        + encoded_uvarint(len(name_utf8) + 1 if name is not None else 0)
        + name_utf8
        + _PACK_UUID_NO_TAGS(topic_id.bytes)
    )


def _read_topic_record(data: bytes, at: int) -> tuple[str | None, uuid.UUID, int]:
    name, at = read_nullable_string(data, at)
    (topic_id_bytes,) = _UNPACK_UUID(data, at)
    at += 16
    topic_id = uuid.UUID(bytes=topic_id_bytes)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return name, topic_id, at


read_topic_record = (_read_topic_record,)
"""Read name, topic_id, and the position after them. Takes: the version, as the index."""


def encode_partition_record(
    partition_id: int,
    topic_id: uuid.UUID,
    replicas: Collection[int],
    isr: Collection[int],
    removing_replicas: Collection[int],
    adding_replicas: Collection[int],
    leader: int,
    leader_epoch: int,
    partition_epoch: int,
    directories: Collection[uuid.UUID],
    eligible_leader_replicas: Collection[int] | None = None,
    last_known_elr: Collection[int] | None = None,
) -> bytes:
    """A partition, in version 1."""
    tags = []
    if eligible_leader_replicas is not None:
        field = encoded_uvarint(len(eligible_leader_replicas) + 1) + struct.pack(
            f">{len(eligible_leader_replicas)}i", *eligible_leader_replicas
        )
        tags.append(b"\x01" + encoded_uvarint(len(field)) + field)
    if last_known_elr is not None:
        field = encoded_uvarint(len(last_known_elr) + 1) + struct.pack(
            f">{len(last_known_elr)}i", *last_known_elr
        )
        tags.append(b"\x02" + encoded_uvarint(len(field)) + field)
    return b"".join(
        (
            b"\x01\x03\x01",
            _PACK_INT32_UUID(partition_id, topic_id.bytes),
            encoded_uvarint(len(replicas) + 1),
            struct.pack(f">{len(replicas)}i", *replicas),
            encoded_uvarint(len(isr) + 1),
            struct.pack(f">{len(isr)}i", *isr),
            encoded_uvarint(len(removing_replicas) + 1),
            struct.pack(f">{len(removing_replicas)}i", *removing_replicas),
            encoded_uvarint(len(adding_replicas) + 1),
            struct.pack(f">{len(adding_replicas)}i", *adding_replicas),
            _PACK_INT32_3_TIMES(leader, leader_epoch, partition_epoch),
            encoded_uvarint(len(directories) + 1),
            b"".join([one.bytes for one in directories]),
            encoded_uvarint(len(tags)),
            b"".join(tags),
        )
    )


def _read_partition_record_v0(
    data: bytes, at: int
) -> tuple[
    int,
    uuid.UUID,
    Collection[int],
    Collection[int],
    Collection[int],
    Collection[int],
    int,
    int,
    int,
    Collection[uuid.UUID],
    Collection[int] | None,
    Collection[int] | None,
    int,
]:
    partition_id, topic_id_bytes = _UNPACK_INT32_UUID(data, at)
    at += 20
    topic_id = uuid.UUID(bytes=topic_id_bytes)
    replicas, at = read_numbers(data, at, True, "i")
    isr, at = read_numbers(data, at, True, "i")
    removing_replicas, at = read_numbers(data, at, True, "i")
    adding_replicas, at = read_numbers(data, at, True, "i")
    leader, leader_epoch, partition_epoch = _UNPACK_INT32_3_TIMES(data, at)
    at += 12
    eligible_leader_replicas: Collection[int] | None = None
    last_known_elr: Collection[int] | None = None
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 1 in tags:
            eligible_leader_replicas, _ = read_nullable_numbers(tags[1], 0, True, "i")
        if 2 in tags:
            last_known_elr, _ = read_nullable_numbers(tags[2], 0, True, "i")
    return (
        partition_id,
        topic_id,
        replicas,
        isr,
        removing_replicas,
        adding_replicas,
        leader,
        leader_epoch,
        partition_epoch,
        [],
        eligible_leader_replicas,
        last_known_elr,
        at,
    )


def _read_partition_record_v1(
    data: bytes, at: int
) -> tuple[
    int,
    uuid.UUID,
    Collection[int],
    Collection[int],
    Collection[int],
    Collection[int],
    int,
    int,
    int,
    Collection[uuid.UUID],
    Collection[int] | None,
    Collection[int] | None,
    int,
]:
    partition_id, topic_id_bytes = _UNPACK_INT32_UUID(data, at)
    at += 20
    topic_id = uuid.UUID(bytes=topic_id_bytes)
    replicas, at = read_numbers(data, at, True, "i")
    isr, at = read_numbers(data, at, True, "i")
    removing_replicas, at = read_numbers(data, at, True, "i")
    adding_replicas, at = read_numbers(data, at, True, "i")
    leader, leader_epoch, partition_epoch = _UNPACK_INT32_3_TIMES(data, at)
    at += 12
    directories_count, at = read_uvarint(data, at)
    directories_count -= 1
    end = at + 16 * directories_count
    if directories_count < 0 or end > len(data):
        refuse_length(directories_count)
    directories = [uuid.UUID(bytes=data[at : at + 16]) for at in range(at, end, 16)]
    at = end
    eligible_leader_replicas: Collection[int] | None = None
    last_known_elr: Collection[int] | None = None
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 1 in tags:
            eligible_leader_replicas, _ = read_nullable_numbers(tags[1], 0, True, "i")
        if 2 in tags:
            last_known_elr, _ = read_nullable_numbers(tags[2], 0, True, "i")
    return (
        partition_id,
        topic_id,
        replicas,
        isr,
        removing_replicas,
        adding_replicas,
        leader,
        leader_epoch,
        partition_epoch,
        directories,
        eligible_leader_replicas,
        last_known_elr,
        at,
    )


read_partition_record = (
    _read_partition_record_v0,
    _read_partition_record_v1,
    _read_partition_record_v1,
)
"""Read partition_id, topic_id, replicas, isr, removing_replicas, adding_replicas, leader,
leader_epoch, partition_epoch, directories, eligible_leader_replicas, last_known_elr, and the
position after them. Takes: the version, as the index.
"""


def encode_config_record(
    resource_type: int, resource_name: str | None, name: str | None, value: str | None
) -> bytes:
    """A setting of a topic or another resource."""
    resource_name_utf8 = b"" if resource_name is None else resource_name.encode()
    name_utf8 = b"" if name is None else name.encode()
    value_utf8 = b"" if value is None else value.encode()
    return b"".join(
        (
            b"\x01\x04\x00",
            _PACK_INT8(resource_type),
            encoded_uvarint(len(resource_name_utf8) + 1 if resource_name is not None else 0),
            resource_name_utf8,
            encoded_uvarint(len(name_utf8) + 1 if name is not None else 0),
            name_utf8,
            encoded_uvarint(len(value_utf8) + 1 if value is not None else 0),
            value_utf8,
            b"\0",
        )
    )


def _read_config_record(
    data: bytes, at: int
) -> tuple[int, str | None, str | None, str | None, int]:
    (resource_type,) = _UNPACK_INT8(data, at)
    at += 1
    resource_name, at = read_nullable_string(data, at)
    name, at = read_nullable_string(data, at)
    value, at = read_nullable_string(data, at)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return resource_type, resource_name, name, value, at


read_config_record = (_read_config_record,)
"""Read resource_type, resource_name, name, value, and the position after them. Takes: the
version, as the index.
"""


def encode_partition_change_record(
    partition_id: int,
    topic_id: uuid.UUID,
    isr: Collection[int] | None = None,
    leader: int = -2,
    replicas: Collection[int] | None = None,
    eligible_leader_replicas: Collection[int] | None = None,
    last_known_elr: Collection[int] | None = None,
) -> bytes:
    """A change of a partition, in version 2."""
    tags = []
    if isr is not None:
        field = encoded_uvarint(len(isr) + 1) + struct.pack(f">{len(isr)}i", *isr)
        tags.append(b"\x00" + encoded_uvarint(len(field)) + field)
    if leader != -2:
        tags.append(b"\x01\x04" + _PACK_INT32(leader))
    if replicas is not None:
        field = encoded_uvarint(len(replicas) + 1) + struct.pack(f">{len(replicas)}i", *replicas)
        tags.append(b"\x02" + encoded_uvarint(len(field)) + field)
    if eligible_leader_replicas is not None:
        field = encoded_uvarint(len(eligible_leader_replicas) + 1) + struct.pack(
            f">{len(eligible_leader_replicas)}i", *eligible_leader_replicas
        )
        tags.append(b"\x06" + encoded_uvarint(len(field)) + field)
    if last_known_elr is not None:
        field = encoded_uvarint(len(last_known_elr) + 1) + struct.pack(
            f">{len(last_known_elr)}i", *last_known_elr
        )
        tags.append(b"\x07" + encoded_uvarint(len(field)) + field)
    return (
        b"\x01\x05\x02"
        + _PACK_INT32_UUID(partition_id, topic_id.bytes)
        + encoded_uvarint(len(tags))
        + b"".join(tags)
    )


def _read_partition_change_record(
    data: bytes, at: int
) -> tuple[
    int,
    uuid.UUID,
    Collection[int] | None,
    int,
    Collection[int] | None,
    Collection[int] | None,
    Collection[int] | None,
    int,
]:
    partition_id, topic_id_bytes = _UNPACK_INT32_UUID(data, at)
    at += 20
    topic_id = uuid.UUID(bytes=topic_id_bytes)
    isr: Collection[int] | None = None
    leader = -2
    replicas: Collection[int] | None = None
    eligible_leader_replicas: Collection[int] | None = None
    last_known_elr: Collection[int] | None = None
    if data[at] == 0:
        at += 1
    else:
        tags, at = read_tags(data, at)
        if 0 in tags:
            isr, _ = read_nullable_numbers(tags[0], 0, True, "i")
        if 1 in tags:
            leader = unpack_tag(tags, 1, _INT32)
        if 2 in tags:
            replicas, _ = read_nullable_numbers(tags[2], 0, True, "i")
        if 6 in tags:
            eligible_leader_replicas, _ = read_nullable_numbers(tags[6], 0, True, "i")
        if 7 in tags:
            last_known_elr, _ = read_nullable_numbers(tags[7], 0, True, "i")
    return (
        partition_id,
        topic_id,
        isr,
        leader,
        replicas,
        eligible_leader_replicas,
        last_known_elr,
        at,
    )


read_partition_change_record = (
    _read_partition_change_record,
    _read_partition_change_record,
    _read_partition_change_record,
)
"""Read partition_id, topic_id, isr, leader, replicas, eligible_leader_replicas, last_known_elr,
and the position after them. Takes: the version, as the index.
"""


def encode_remove_topic_record(topic_id: uuid.UUID) -> bytes:
    """The deletion of a topic."""
    return b"\x01\t\x00" + _PACK_UUID_NO_TAGS(topic_id.bytes)


def _read_remove_topic_record(data: bytes, at: int) -> tuple[uuid.UUID, int]:
    (topic_id_bytes,) = _UNPACK_UUID(data, at)
    at += 16
    topic_id = uuid.UUID(bytes=topic_id_bytes)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return topic_id, at


read_remove_topic_record = (_read_remove_topic_record,)
"""Read topic_id, and the position after them. Takes: the version, as the index."""


def encode_user_scram_credential_record(
    name: str | None,
    mechanism: int,
    salt: bytes,
    stored_key: bytes,
    server_key: bytes,
    iterations: int,
) -> bytes:
    """A password of a user."""
    name_utf8 = b"" if name is None else name.encode()
    return b"".join(
        (
            b"\x01\x0b\x00",
            encoded_uvarint(len(name_utf8) + 1 if name is not None else 0),
            name_utf8,
            _PACK_INT8(mechanism),
            encoded_uvarint(len(salt) + 1),
            salt,
            encoded_uvarint(len(stored_key) + 1),
            stored_key,
            encoded_uvarint(len(server_key) + 1),
            server_key,
            _PACK_INT32_NO_TAGS(iterations),
        )
    )


def _read_user_scram_credential_record(
    data: bytes, at: int
) -> tuple[str | None, int, bytes, bytes, bytes, int, int]:
    name, at = read_nullable_string(data, at)
    (mechanism,) = _UNPACK_INT8(data, at)
    at += 1
    salt, at = read_bytes(data, at, True)
    stored_key, at = read_bytes(data, at, True)
    server_key, at = read_bytes(data, at, True)
    (iterations,) = _UNPACK_INT32(data, at)
    at += 4
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return name, mechanism, salt, stored_key, server_key, iterations, at


read_user_scram_credential_record = (_read_user_scram_credential_record,)
"""Read name, mechanism, salt, stored_key, server_key, iterations, and the position after them.
Takes: the version, as the index.
"""


def encode_feature_level_record(name: str | None, level: int) -> bytes:
    """The level of a feature."""
    name_utf8 = b"" if name is None else name.encode()
    return (
        b"\x01\x0c\x00"
        + encoded_uvarint(len(name_utf8) + 1 if name is not None else 0)
        + name_utf8
        + _PACK_INT16_NO_TAGS(level)
    )


def _read_feature_level_record(data: bytes, at: int) -> tuple[str | None, int, int]:
    name, at = read_nullable_string(data, at)
    (level,) = _UNPACK_INT16(data, at)
    at += 2
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return name, level, at


read_feature_level_record = (_read_feature_level_record,)
"""Read name, level, and the position after them. Takes: the version, as the index."""


def encode_client_quota_record(
    entity: Collection[EntityData], key: str | None, value: float, remove: bool
) -> bytes:
    """A client quota."""
    key_utf8 = b"" if key is None else key.encode()
    return (
        b"\x01\x0e\x00"
        + encoded_uvarint(len(entity) + 1)
        + _encode_entity_data_rows(entity)
        + encoded_uvarint(len(key_utf8) + 1 if key is not None else 0)
        + key_utf8
        + _PACK_FLOAT64_BOOL_NO_TAGS(value, remove)
    )


def _read_client_quota_record(
    data: bytes, at: int
) -> tuple[Collection[EntityData], str | None, float, bool, int]:
    entity_count, at = read_uvarint(data, at)
    entity_count -= 1
    if entity_count < 0:
        refuse_length(entity_count)
    entity, at = _read_entity_data_rows(data, at, entity_count)
    key, at = read_nullable_string(data, at)
    value, remove = _UNPACK_FLOAT64_BOOL(data, at)
    at += 9
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return entity, key, value, remove, at


read_client_quota_record = (_read_client_quota_record,)
"""Read entity, key, value, remove, and the position after them. Takes: the version, as the
index.
"""


def encode_producer_ids_record(broker_id: int, broker_epoch: int, next_producer_id: int) -> bytes:
    """The next producer id that no broker has."""
    return b"\x01\x0f\x00" + _PACK_INT32_INT64_2_TIMES_NO_TAGS(
        broker_id, broker_epoch, next_producer_id
    )


def _read_producer_ids_record(data: bytes, at: int) -> tuple[int, int, int, int]:
    broker_id, broker_epoch, next_producer_id = _UNPACK_INT32_INT64_2_TIMES(data, at)
    at += 20
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return broker_id, broker_epoch, next_producer_id, at


read_producer_ids_record = (_read_producer_ids_record,)
"""Read broker_id, broker_epoch, next_producer_id, and the position after them. Takes: the
version, as the index.
"""


def encode_access_control_entry_record(
    id: uuid.UUID,
    resource_type: int,
    resource_name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission_type: int,
) -> bytes:
    """An ACL."""
    resource_name_utf8 = b"" if resource_name is None else resource_name.encode()
    principal_utf8 = b"" if principal is None else principal.encode()
    host_utf8 = b"" if host is None else host.encode()
    return b"".join(
        (
            b"\x01\x12\x00",
            _PACK_UUID_INT8(id.bytes, resource_type),
            encoded_uvarint(len(resource_name_utf8) + 1 if resource_name is not None else 0),
            resource_name_utf8,
            _PACK_INT8(pattern_type),
            encoded_uvarint(len(principal_utf8) + 1 if principal is not None else 0),
            principal_utf8,
            encoded_uvarint(len(host_utf8) + 1 if host is not None else 0),
            host_utf8,
            _PACK_INT8_2_TIMES_NO_TAGS(operation, permission_type),
        )
    )


def _read_access_control_entry_record(
    data: bytes, at: int
) -> tuple[uuid.UUID, int, str | None, int, str | None, str | None, int, int, int]:
    id_bytes, resource_type = _UNPACK_UUID_INT8(data, at)
    at += 17
    id = uuid.UUID(bytes=id_bytes)
    resource_name, at = read_nullable_string(data, at)
    (pattern_type,) = _UNPACK_INT8(data, at)
    at += 1
    principal, at = read_nullable_string(data, at)
    host, at = read_nullable_string(data, at)
    operation, permission_type = _UNPACK_INT8_2_TIMES(data, at)
    at += 2
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return (
        id,
        resource_type,
        resource_name,
        pattern_type,
        principal,
        host,
        operation,
        permission_type,
        at,
    )


read_access_control_entry_record = (_read_access_control_entry_record,)
"""Read id, resource_type, resource_name, pattern_type, principal, host, operation,
permission_type, and the position after them. Takes: the version, as the index.
"""


def encode_remove_access_control_entry_record(id: uuid.UUID) -> bytes:
    """The deletion of an ACL."""
    return b"\x01\x13\x00" + _PACK_UUID_NO_TAGS(id.bytes)


def _read_remove_access_control_entry_record(data: bytes, at: int) -> tuple[uuid.UUID, int]:
    (id_bytes,) = _UNPACK_UUID(data, at)
    at += 16
    id = uuid.UUID(bytes=id_bytes)
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return id, at


read_remove_access_control_entry_record = (_read_remove_access_control_entry_record,)
"""Read id, and the position after them. Takes: the version, as the index."""


def encode_remove_user_scram_credential_record(name: str | None, mechanism: int) -> bytes:
    """The deletion of a user's password."""
    name_utf8 = b"" if name is None else name.encode()
    return (
        b"\x01\x16\x00"
        + encoded_uvarint(len(name_utf8) + 1 if name is not None else 0)
        + name_utf8
        + _PACK_INT8_NO_TAGS(mechanism)
    )


def _read_remove_user_scram_credential_record(data: bytes, at: int) -> tuple[str | None, int, int]:
    name, at = read_nullable_string(data, at)
    (mechanism,) = _UNPACK_INT8(data, at)
    at += 1
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return name, mechanism, at


read_remove_user_scram_credential_record = (_read_remove_user_scram_credential_record,)
"""Read name, mechanism, and the position after them. Takes: the version, as the index."""


def encode_begin_transaction_record() -> bytes:
    """The begin of a transaction of the metadata log."""
    return b"\x01\x17\x00" + b"\0"


def _read_begin_transaction_record(data: bytes, at: int) -> tuple[int]:
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return (at,)


read_begin_transaction_record = (_read_begin_transaction_record,)
"""Read and the position after it. Takes: the version, as the index."""


def encode_end_transaction_record() -> bytes:
    """The commit of a transaction of the metadata log."""
    return b"\x01\x18\x00" + b"\0"


def _read_end_transaction_record(data: bytes, at: int) -> tuple[int]:
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return (at,)


read_end_transaction_record = (_read_end_transaction_record,)
"""Read and the position after it. Takes: the version, as the index."""


def encode_abort_transaction_record() -> bytes:
    """The abort of a transaction of the metadata log."""
    return b"\x01\x19\x00" + b"\0"


def _read_abort_transaction_record(data: bytes, at: int) -> tuple[int]:
    at = at + 1 if data[at] == 0 else skip_tags(data, at)
    return (at,)


read_abort_transaction_record = (_read_abort_transaction_record,)
"""Read and the position after it. Takes: the version, as the index."""


SCHEMAS = {
    2: RecordSchema(
        "Topic",
        (
            Field("name", "string"),
            Field("topic_id", "uuid"),
        ),
        read_topic_record,
        encode_topic_record,
    ),
    3: RecordSchema(
        "Partition",
        (
            Field("partition_id", "int32"),
            Field("topic_id", "uuid"),
            Field("replicas", "int32s"),
            Field("isr", "int32s"),
            Field("removing_replicas", "int32s"),
            Field("adding_replicas", "int32s"),
            Field("leader", "int32"),
            Field("leader_epoch", "int32"),
            Field("partition_epoch", "int32"),
            Field("directories", "uuids"),
            Field("eligible_leader_replicas", "int32s", 1, None),
            Field("last_known_elr", "int32s", 2, None),
        ),
        read_partition_record,
        encode_partition_record,
    ),
    4: RecordSchema(
        "Config",
        (
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("name", "string"),
            Field("value", "string"),
        ),
        read_config_record,
        encode_config_record,
    ),
    5: RecordSchema(
        "PartitionChange",
        (
            Field("partition_id", "int32"),
            Field("topic_id", "uuid"),
            Field("isr", "int32s", 0, None),
            Field("leader", "int32", 1, -2),
            Field("replicas", "int32s", 2, None),
            Field("eligible_leader_replicas", "int32s", 6, None),
            Field("last_known_elr", "int32s", 7, None),
        ),
        read_partition_change_record,
        encode_partition_change_record,
    ),
    9: RecordSchema(
        "RemoveTopic",
        (Field("topic_id", "uuid"),),
        read_remove_topic_record,
        encode_remove_topic_record,
    ),
    11: RecordSchema(
        "UserScramCredential",
        (
            Field("name", "string"),
            Field("mechanism", "int8"),
            Field("salt", "bytes"),
            Field("stored_key", "bytes"),
            Field("server_key", "bytes"),
            Field("iterations", "int32"),
        ),
        read_user_scram_credential_record,
        encode_user_scram_credential_record,
    ),
    12: RecordSchema(
        "FeatureLevel",
        (
            Field("name", "string"),
            Field("level", "int16"),
        ),
        read_feature_level_record,
        encode_feature_level_record,
    ),
    14: RecordSchema(
        "ClientQuota",
        (
            Field("entity", "entity"),
            Field("key", "string"),
            Field("value", "float64"),
            Field("remove", "bool"),
        ),
        read_client_quota_record,
        encode_client_quota_record,
    ),
    15: RecordSchema(
        "ProducerIds",
        (
            Field("broker_id", "int32"),
            Field("broker_epoch", "int64"),
            Field("next_producer_id", "int64"),
        ),
        read_producer_ids_record,
        encode_producer_ids_record,
    ),
    18: RecordSchema(
        "AccessControlEntry",
        (
            Field("id", "uuid"),
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("pattern_type", "int8"),
            Field("principal", "string"),
            Field("host", "string"),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        ),
        read_access_control_entry_record,
        encode_access_control_entry_record,
    ),
    19: RecordSchema(
        "RemoveAccessControlEntry",
        (Field("id", "uuid"),),
        read_remove_access_control_entry_record,
        encode_remove_access_control_entry_record,
    ),
    22: RecordSchema(
        "RemoveUserScramCredential",
        (
            Field("name", "string"),
            Field("mechanism", "int8"),
        ),
        read_remove_user_scram_credential_record,
        encode_remove_user_scram_credential_record,
    ),
    23: RecordSchema(
        "BeginTransaction", (), read_begin_transaction_record, encode_begin_transaction_record
    ),
    24: RecordSchema(
        "EndTransaction", (), read_end_transaction_record, encode_end_transaction_record
    ),
    25: RecordSchema(
        "AbortTransaction", (), read_abort_transaction_record, encode_abort_transaction_record
    ),
}
