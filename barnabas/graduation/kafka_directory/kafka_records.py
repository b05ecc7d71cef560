"""Records of Apache Kafka's metadata log, read and written according to a table of their fields.

A record's value begins with three unsigned varints: the frame version (1, but 0 is accepted, too),
the api key and the version. The fields follow, in the flexible form: a length is written as an
unsigned varint plus one (0 means null), and tagged fields are at the end of a record and of each
structure in it. SCHEMAS contains the known records. Other records are skipped. Source: the message
schemas that Apache Kafka 3.9 and 4.3 publish; KIP-631 (records), KIP-966 (eligible leader
replicas).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

TOPIC, PARTITION, CONFIG, PARTITION_CHANGE, REMOVE_TOPIC = 2, 3, 4, 5, 9
USER_SCRAM_CREDENTIAL, FEATURE_LEVEL, CLIENT_QUOTA, PRODUCER_IDS = 11, 12, 14, 15
ACCESS_CONTROL_ENTRY, REMOVE_ACCESS_CONTROL_ENTRY, REMOVE_USER_SCRAM_CREDENTIAL = 18, 19, 22
BEGIN, END, ABORT = 23, 24, 25
FRAME_VERSION = 1
NO_LEADER_CHANGE = -2


class UnreadableMetadata(Exception):
    """The metadata log has an unknown form, or a part of it is missing."""


class KafkaRecord(NamedTuple):
    """One record. fields: the values by the names of the fields. A tagged field that is absent has
    its default.
    """

    api_key: int
    fields: Mapping[str, Any]


class Field(NamedTuple):
    """A field of a record: its name, its type, the first version with the field, its tag if it is
    tagged (otherwise -1), and its default.
    """

    name: str
    type: str
    since: int = 0
    tag: int = -1
    default: Any = None


class Schema(NamedTuple):
    """The fields of a record. written: the version in which Barnabas writes the record. latest: the
    last version that it can read.
    """

    name: str
    fields: tuple[Field, ...]
    written: int = 0
    latest: int = 0


def _schema(name: str, *fields: Field, written: int = 0, latest: int = 0) -> Schema:
    return Schema(name, fields, written, latest)


SCHEMAS = {
    TOPIC: _schema("Topic", Field("name", "string"), Field("topic_id", "uuid")),
    PARTITION: _schema(
        "Partition",
        Field("partition_id", "int32"),
        Field("topic_id", "uuid"),
        Field("replicas", "int32s"),
        Field("isr", "int32s"),
        Field("removing_replicas", "int32s"),
        Field("adding_replicas", "int32s"),
        Field("leader", "int32"),
        Field("leader_epoch", "int32"),
        Field("partition_epoch", "int32"),
        Field("directories", "uuids", 1, default=[]),
        Field("eligible_leader_replicas", "int32s", 2, tag=1),
        Field("last_known_elr", "int32s", 2, tag=2),
        written=1,
        latest=2,
    ),
    CONFIG: _schema(
        "Config",
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("name", "string"),
        Field("value", "string"),
    ),
    PARTITION_CHANGE: _schema(
        "PartitionChange",
        Field("partition_id", "int32"),
        Field("topic_id", "uuid"),
        Field("isr", "int32s", tag=0),
        Field("leader", "int32", tag=1, default=NO_LEADER_CHANGE),
        Field("replicas", "int32s", tag=2),
        Field("eligible_leader_replicas", "int32s", 2, tag=6),
        Field("last_known_elr", "int32s", 2, tag=7),
        written=2,
        latest=2,
    ),
    REMOVE_TOPIC: _schema("RemoveTopic", Field("topic_id", "uuid")),
    USER_SCRAM_CREDENTIAL: _schema(
        "UserScramCredential",
        Field("name", "string"),
        Field("mechanism", "int8"),
        Field("salt", "bytes"),
        Field("stored_key", "bytes"),
        Field("server_key", "bytes"),
        Field("iterations", "int32"),
    ),
    FEATURE_LEVEL: _schema("FeatureLevel", Field("name", "string"), Field("level", "int16")),
    CLIENT_QUOTA: _schema(
        "ClientQuota",
        Field("entity", "entity"),
        Field("key", "string"),
        Field("value", "float64"),
        Field("remove", "bool"),
    ),
    PRODUCER_IDS: _schema(
        "ProducerIds",
        Field("broker_id", "int32"),
        Field("broker_epoch", "int64"),
        Field("next_producer_id", "int64"),
    ),
    ACCESS_CONTROL_ENTRY: _schema(
        "AccessControlEntry",
        Field("id", "uuid"),
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("pattern_type", "int8"),
        Field("principal", "string"),
        Field("host", "string"),
        Field("operation", "int8"),
        Field("permission_type", "int8"),
    ),
    REMOVE_ACCESS_CONTROL_ENTRY: _schema("RemoveAccessControlEntry", Field("id", "uuid")),
    REMOVE_USER_SCRAM_CREDENTIAL: _schema(
        "RemoveUserScramCredential", Field("name", "string"), Field("mechanism", "int8")
    ),
    BEGIN: _schema("BeginTransaction"),
    END: _schema("EndTransaction"),
    ABORT: _schema("AbortTransaction"),
}

_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
}

# --- reading ------------------------------------------------------------------------------------


def decode_record(value: bytes, api_keys: Collection[int]) -> KafkaRecord | None:
    """Decode the value of a record; None if its API key is not in `api_keys`.

    Raises: UnreadableMetadata for a record that has one of these keys but an unknown form.
    """
    reader = _Reader(value)
    frame_version, api_key, version = reader.varint(), reader.varint(), reader.varint()
    if frame_version > FRAME_VERSION:
        raise UnreadableMetadata(f"a record has the frame version {frame_version}")
    if api_key not in api_keys:
        return None
    schema = SCHEMAS[api_key]
    if version > schema.latest:
        raise UnreadableMetadata(f"a {schema.name} record has the version {version}")
    fields = {
        field.name: reader.of_type(field.type) if field.tag < 0 <= version - field.since
        else field.default
        for field in schema.fields
    }  # fmt: skip
    by_tag = {field.tag: field for field in schema.fields if field.tag >= 0}
    if by_tag:
        for tag, data in reader.tagged().items():
            if tag in by_tag:
                fields[by_tag[tag].name] = _Reader(data).of_type(by_tag[tag].type)
    return KafkaRecord(api_key, fields)


class _Reader:
    """Reads a record's value from its beginning. Raises UnreadableMetadata."""

    def __init__(self, value: bytes) -> None:
        self._value, self._at = value, 0

    def _take(self, count: int) -> bytes:
        """The next bytes. Raises: UnreadableMetadata if there are fewer."""
        value = self._value[self._at : self._at + count]
        if len(value) != count:
            raise UnreadableMetadata("a record is cut off")
        self._at += count
        return value

    def varint(self) -> int:
        """Read an unsigned varint."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise UnreadableMetadata("a number is longer than five bytes")

    def of_type(self, kind: str) -> Any:
        """Read the next field as a value of a given type."""
        if kind in _NUMBERS:
            number = _NUMBERS[kind]
            return number.unpack(self._take(number.size))[0]
        return _READ[kind](self)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._take(16))

    def blob(self) -> bytes | None:
        length = self.varint()
        return self._take(length - 1) if length else None

    def string(self) -> str | None:
        """Read a text, or null."""
        data = self.blob()
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise UnreadableMetadata(str(error)) from error

    def list_of(self, read: Callable[[], Any]) -> list[Any] | None:
        length = self.varint()
        return [read() for _ in range(length - 1)] if length else None

    def entity(self) -> tuple[str | None, str | None]:
        """A component of a quota's entity: its type and name. The name None means the default
        entity.
        """
        part = self.string(), self.string()
        self.tagged()
        return part

    def tagged(self) -> dict[int, bytes]:
        """The tagged fields of a structure."""
        return {self.varint(): self._take(self.varint()) for _ in range(self.varint())}


_READ: dict[str, Callable[[_Reader], Any]] = {
    "uuid": _Reader.uuid,
    "bytes": _Reader.blob,
    "string": _Reader.string,
    "int32s": lambda reader: reader.list_of(lambda: reader.of_type("int32")),
    "uuids": lambda reader: reader.list_of(reader.uuid),
    "entity": lambda reader: reader.list_of(reader.entity),
}

# --- writing ------------------------------------------------------------------------------------


def encode_record(record: KafkaRecord) -> bytes:
    """Encode the value of a record, in the version `written` of its schema."""
    schema = SCHEMAS[record.api_key]
    out = bytearray()
    for number in (FRAME_VERSION, record.api_key, schema.written):
        _put_varint(number, out)
    tagged = []
    for field in schema.fields:
        if field.tag < 0:
            _put(field.type, record.fields[field.name], out)
        elif (value := record.fields.get(field.name, field.default)) != field.default:
            data = bytearray()
            _put(field.type, value, data)
            tagged.append((field.tag, data))
    _put_varint(len(tagged), out)
    for tag, data in tagged:
        _put_varint(tag, out)
        _put_varint(len(data), out)
        out += data
    return bytes(out)


def _put_varint(number: int, out: bytearray) -> None:
    """Append an unsigned varint."""
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _put_bytes(data: bytes | None, out: bytearray) -> None:
    """Append bytes in the compact form: the length + 1 as a varint, 0 for None."""
    if data is None:
        out.append(0)
    else:
        _put_varint(len(data) + 1, out)
        out += data


def _put(kind: str, value: Any, out: bytearray) -> None:
    """Append a value of that type. The name of an array type is the name of its element type with
    an s.
    """
    if kind in _NUMBERS:
        out += _NUMBERS[kind].pack(value)
    elif kind == "uuid":
        out += value.bytes
    elif kind == "bytes":
        _put_bytes(value, out)
    elif kind == "string":
        _put_bytes(None if value is None else value.encode(), out)
    elif value is None:
        out.append(0)
    else:
        _put_varint(len(value) + 1, out)
        for part in value:
            if kind == "entity":
                _put("string", part[0], out)
                _put("string", part[1], out)
                out.append(0)
            else:
                _put(kind.removesuffix("s"), part, out)
