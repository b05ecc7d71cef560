"""What Apache Kafka's own metadata log says of topics (their settings), users, ACLs and client
quotas, when a log directory is taken over from it.

In KRaft mode Kafka keeps topics and settings in the directory `__cluster_metadata-0` beside the
logs: segments of v2 batches, as in any log, and now and then `<20 digits of the end offset>-<10
digits of the epoch>.checkpoint`, in the same form, which holds all that was true before that
offset. A record's value:

    unsigned varint frame version (0, 1), api key, version; then the fields in the flexible form (a
    length is an unsigned varint, plus one)

    api key                fields that are read here
     2  Topic              name: string, topic_id: uuid
     4  Config             resource_type: int8 (2: topic, 4: broker), resource_name: string, name: string, value: string or null (removed)
     9  RemoveTopic        topic_id: uuid
    11  UserScramCredential        name: string, mechanism: int8, salt: bytes, stored_key: bytes, server_key: bytes, iterations: int32
    14  ClientQuota        entity: array of (entity_type: string, entity_name: string or null (the default), tagged fields), key: string, value: float64, remove: int8
    15  ProducerIds        broker_id: int32, broker_epoch: int64, next_producer_id: int64
    18  AccessControlEntry         id: uuid, resource_type: int8, resource_name: string, pattern_type: int8, principal: string, host: string, operation: int8, permission_type: int8
    19  RemoveAccessControlEntry   id: uuid
    22  RemoveUserScramCredential  name: string, mechanism: int8
    23 24 25               what comes between a begin (23) and an abort (25) never was; an end (24) makes it hold

Nothing is written to it. Source: the message schemas that Apache Kafka 3.9 publishes; KIP-631
(records), KIP-868 (transactions of metadata).
"""

from __future__ import annotations

import logging
import re
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping

from barnabas.broker.config import TOPIC_SETTINGS, ConfigError, Setting
from barnabas.broker.metadata import Acl, QuotaEntity, ScramCredential
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import MAGIC, batches_in, computed_crc, records_of
from barnabas.storage.disk import Disk

DIRECTORY = "__cluster_metadata-0"
TOPIC, CONFIG, REMOVE_TOPIC, PRODUCER_IDS, BEGIN, END, ABORT = 2, 4, 9, 15, 23, 24, 25
SCRAM_CREDENTIAL, CLIENT_QUOTA, ACL, REMOVE_ACL, REMOVE_SCRAM_CREDENTIAL = 11, 14, 18, 19, 22
_READ_IN_VERSION_0 = frozenset((
    TOPIC, CONFIG, REMOVE_TOPIC, PRODUCER_IDS,
    SCRAM_CREDENTIAL, CLIENT_QUOTA, ACL, REMOVE_ACL, REMOVE_SCRAM_CREDENTIAL,
))  # fmt: skip
OF_TOPIC, OF_BROKER = 2, 4
_FRAME_VERSIONS = (0, 1)
_FLOAT = struct.Struct(">d")
_SEGMENT = re.compile(r"(\d{20})\.log")
_CHECKPOINT = re.compile(r"(\d{20})-\d{10}\.checkpoint")

logger = logging.getLogger("barnabas.metadata")


class UnreadableMetadata(Exception):
    """The metadata log is not in the form that is known, or a part of it is missing."""


class KafkaMetadata:
    """Topics, settings, users and ACLs as of the end of a metadata log.

    next_producer_id: the first that no broker of Kafka's can have given out. scram_credentials: by
    (user, mechanism's number). acls: by id. client_quotas: by entity, as the metadata journal has
    them.
    """

    def __init__(self) -> None:
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.next_producer_id = 0
        self.scram_credentials: dict[tuple[str, int], ScramCredential] = {}
        self.acls: dict[uuid.UUID, Acl] = {}
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}

    def topic_configs(self, name: str, topic_id: uuid.UUID) -> dict[str, str] | None:
        """What is set on that very topic; None where Kafka did not know it."""
        return (
            dict(self._configs.get((OF_TOPIC, name), {}))
            if self.topic_ids.get(name) == topic_id
            else None
        )

    def usable_topic_configs(self) -> dict[str, dict[str, str]]:
        """Of each topic what is set on it, as far as it is known here."""
        return {
            name: usable_configs(self._configs.get((OF_TOPIC, name), {}), TOPIC_SETTINGS)[0]
            for name in self.topic_ids
        }

    def broker_configs(self, node_id: int) -> dict[str, str]:
        """The dynamic settings of that broker's own."""
        return dict(self._configs.get((OF_BROKER, str(node_id)), {}))

    def broker_default_configs(self) -> dict[str, str]:
        """The dynamic settings of every broker."""
        return dict(self._configs.get((OF_BROKER, ""), {}))

    def take(self, values: Iterable[bytes]) -> None:
        """Let records hold, in their order. Raises UnreadableMetadata."""
        waiting: list[bytes] | None = None
        for value in values:
            key = _Fields(value).api_key
            if key == BEGIN:
                waiting = []
            elif key == ABORT:
                waiting = None
            elif key == END:
                for held in waiting or ():
                    self._take(held)
                waiting = None
            elif waiting is not None:
                waiting.append(value)
            else:
                self._take(value)

    def _take(self, value: bytes) -> None:
        fields = _Fields(value)
        if fields.api_key == TOPIC:
            name = fields.string() or ""
            self.topic_ids[name] = fields.uuid()
        elif fields.api_key == CONFIG:
            resource = fields.int8(), fields.string() or ""
            name, text = fields.string() or "", fields.string()
            configs = self._configs.setdefault(resource, {})
            if text is None:
                configs.pop(name, None)
            else:
                configs[name] = text
        elif fields.api_key == CLIENT_QUOTA:
            self._take_client_quota(fields)
        elif fields.api_key == PRODUCER_IDS:
            fields.skip(4 + 8)
            self.next_producer_id = fields.int64()
        elif fields.api_key == REMOVE_TOPIC:
            topic_id = fields.uuid()
            for name in [name for name, own_id in self.topic_ids.items() if own_id == topic_id]:
                del self.topic_ids[name]
                self._configs.pop((OF_TOPIC, name), None)
        else:
            self._take_security(fields)

    def _take_security(self, fields: _Fields) -> None:
        if fields.api_key == ACL:
            acl_id = fields.uuid()
            self.acls[acl_id] = Acl(
                fields.int8(), fields.string() or "", fields.int8(), fields.string() or "",
                fields.string() or "", fields.int8(), fields.int8(),
            )  # fmt: skip
        elif fields.api_key == REMOVE_ACL:
            self.acls.pop(fields.uuid(), None)
        elif fields.api_key == SCRAM_CREDENTIAL:
            user = fields.string() or "", fields.int8()
            self.scram_credentials[user] = ScramCredential(
                fields.bytes(), fields.bytes(), fields.bytes(), fields.int32()
            )
        elif fields.api_key == REMOVE_SCRAM_CREDENTIAL:
            self.scram_credentials.pop((fields.string() or "", fields.int8()), None)

    def _take_client_quota(self, fields: _Fields) -> None:
        entity: dict[str, str | None] = {}
        for _ in range(fields.varint() - 1):
            entity_type = fields.string() or ""
            entity[entity_type] = fields.string()
            fields.skip_tagged()
        key, value, is_removed = fields.string() or "", fields.float64(), fields.int8()
        of_entity = tuple(sorted(entity.items()))
        quotas = self.client_quotas.setdefault(of_entity, {})
        if is_removed:
            quotas.pop(key, None)
        else:
            quotas[key] = value
        if not quotas:
            del self.client_quotas[of_entity]


class _Fields:
    """One record's value, read from its front. Raises UnreadableMetadata."""

    def __init__(self, value: bytes) -> None:
        self._value, self._at = value, 0
        frame_version, self.api_key, version = self.varint(), self.varint(), self.varint()
        if frame_version not in _FRAME_VERSIONS or (version and self.api_key in _READ_IN_VERSION_0):
            raise UnreadableMetadata(
                f"a record has the frame version {frame_version}, the api key {self.api_key} and "
                f"the version {version}"
            )

    def _bytes(self, count: int) -> bytes:
        value = self._value[self._at : self._at + count]
        if len(value) != count:
            raise UnreadableMetadata(f"a record of the api key {self.api_key} is cut off")
        self._at += count
        return value

    api_key = -1  # until it is read

    def varint(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            byte = self._bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise UnreadableMetadata("a number is longer than five bytes")

    def int8(self) -> int:
        return int.from_bytes(self._bytes(1), signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._bytes(4), signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._bytes(8), signed=True)

    def float64(self) -> float:
        value: float = _FLOAT.unpack(self._bytes(_FLOAT.size))[0]
        return value

    def skip(self, count: int) -> None:
        self._bytes(count)

    def skip_tagged(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._bytes(16))

    def bytes(self) -> bytes:
        return self._bytes(max(0, self.varint() - 1))

    def string(self) -> str | None:
        length = self.varint()
        try:
            return self._bytes(length - 1).decode() if length else None
        except UnicodeDecodeError as error:
            raise UnreadableMetadata(str(error)) from error


def usable_configs(
    configs: Mapping[str, str], settings: Mapping[str, Setting]
) -> tuple[dict[str, str], list[str]]:
    """Those settings that are known here, and of the others what is wrong with them."""
    usable, refused = {}, []
    for name, text in sorted(configs.items()):
        try:
            if name not in settings:
                raise ConfigError(f"{name} is not known here")
            settings[name].parse(text)
            usable[name] = text
        except ConfigError as error:
            refused.append(str(error))
    return usable, refused


def read_kafka_metadata(disk: Disk, data_dir: str) -> KafkaMetadata | None:
    """What the metadata log in the data directory holds; None where there is none, or (which is
    logged) it cannot be read.
    """
    directory = f"{data_dir}/{DIRECTORY}"
    if not disk.is_dir(directory):
        return None
    metadata = KafkaMetadata()
    try:
        metadata.take(_records(disk, directory))
    except (UnreadableMetadata, KafkaError, OSError) as error:
        logger.warning(
            "%s cannot be read (%s): the settings of Kafka's topics are not known", directory, error
        )
        return None
    return metadata


def _records(disk: Disk, directory: str) -> Iterator[bytes]:
    """The values of all data records: those of the latest checkpoint, then those of the log from
    its end on.
    """
    names = disk.list(directory)
    checkpoints = [name for name in names if _CHECKPOINT.fullmatch(name)]
    start_offset = 0
    if checkpoints:
        start_offset = int(checkpoints[-1][:20])
        yield from _values(disk, f"{directory}/{checkpoints[-1]}", 0)
    expected = start_offset
    for name in names:
        if _SEGMENT.fullmatch(name):
            if int(name[:20]) > expected:
                raise UnreadableMetadata(
                    f"what is between offset {expected} and {int(name[:20])} is missing"
                )
            data = disk.read(f"{directory}/{name}")
            expected = max(
                expected, int(name[:20]), *(header.next_offset for _, header in batches_in(data))
            )
            yield from _values(disk, f"{directory}/{name}", start_offset)


def _values(disk: Disk, path: str, from_offset: int) -> Iterator[bytes]:
    """A batch that is not whole at the end was torn by a kill, and is left out."""
    data = disk.read(path)
    for position, header in batches_in(data):
        batch = memoryview(data)[position : position + header.size_bytes]
        if header.magic != MAGIC or computed_crc(batch) != header.crc:
            raise UnreadableMetadata(f"the batch at byte {position} of {path} is damaged")
        if header.is_control or header.last_offset < from_offset:
            continue
        for record in records_of(batch):
            if record.offset >= from_offset and record.value is not None:
                yield bytes(record.value)
