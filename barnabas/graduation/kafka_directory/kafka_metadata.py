"""Apache Kafka's metadata log, from which a take-over reads settings of topics and groups, users,
ACLs and client quotas.

In KRaft mode Kafka stores topics and settings in the directory `__cluster_metadata-0` beside the
logs. The directory has segments of v2 batches, as any log. It also has checkpoints in the same
form, `<20 digits of the end offset>-<10 digits of the epoch>.checkpoint`, which contain the state
before that offset, and, after a clean stop, `<20 digits of the end offset>.snapshot`.
`kafka_records` defines the form of a record's value. The records between a BeginTransaction and an
AbortTransaction are ignored; an EndTransaction commits them. A checkpoint begins with a control
record of type 3 (header) and ends with one of type 4 (footer). Without both it is incomplete.

This module never writes to the metadata log. Source: KIP-631 (records), KIP-868 (transactions of
metadata).
"""

from __future__ import annotations

import logging
import re
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from barnabas.broker.logs.metadata import QuotaEntity
from barnabas.broker.security.stored import Acl, ScramCredential
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.setting import ConfigError, Setting
from barnabas.graduation.kafka_directory.kafka_records import (
    ABORT,
    ACCESS_CONTROL_ENTRY,
    BEGIN,
    CLIENT_QUOTA,
    CONFIG,
    END,
    PRODUCER_IDS,
    REMOVE_ACCESS_CONTROL_ENTRY,
    REMOVE_TOPIC,
    REMOVE_USER_SCRAM_CREDENTIAL,
    TOPIC,
    USER_SCRAM_CREDENTIAL,
    KafkaRecord,
    UnreadableMetadata,
    decode_record,
)
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import MAGIC, Record, batches_in, computed_crc, records_of
from barnabas.storage.disk import Disk

DIRECTORY = "__cluster_metadata-0"
OF_TOPIC, OF_BROKER, OF_CLIENT_METRICS, OF_GROUP = 2, 4, 16, 32
_SEGMENT = re.compile(r"(\d{20})\.log")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot")
_CHECKPOINT = re.compile(r"(\d{20})-\d{10}\.checkpoint")
_OF_TRANSACTIONS = frozenset({BEGIN, END, ABORT})
HEADER_TYPE, FOOTER_TYPE = 3, 4
CONTROL_KEY = struct.Struct(">hh")  # the key of a control record: version, type

logger = logging.getLogger("barnabas.metadata")


class KafkaMetadata:
    """Topics, settings, users, ACLs and quotas as of the end of a metadata log.

    next_producer_id: the first id that no Kafka broker can have assigned. scram_credentials: the
    credentials, by user and the number of the mechanism. acls: the ACLs, by id. client_quotas: the
    quotas, by entity, in the form of the metadata journal. API_KEYS: the keys of the records that
    are read.
    """

    API_KEYS = frozenset({
        TOPIC, CONFIG, REMOVE_TOPIC, PRODUCER_IDS, CLIENT_QUOTA, ACCESS_CONTROL_ENTRY,
        REMOVE_ACCESS_CONTROL_ENTRY, USER_SCRAM_CREDENTIAL, REMOVE_USER_SCRAM_CREDENTIAL,
    })  # fmt: skip

    def __init__(self) -> None:
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.next_producer_id = 0
        self.scram_credentials: dict[tuple[str, int], ScramCredential] = {}
        self.acls: dict[uuid.UUID, Acl] = {}
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}

    def topic_configs(self, name: str, topic_id: uuid.UUID) -> dict[str, str] | None:
        """The settings of the topic with the given name and id; None if Kafka did not know the
        topic.
        """
        return (
            dict(self._configs.get((OF_TOPIC, name), {}))
            if self.topic_ids.get(name) == topic_id
            else None
        )

    def usable_topic_configs(self) -> dict[str, dict[str, str]]:
        """The settings of each topic, without settings that Barnabas does not know."""
        return {
            name: usable_configs(self._configs.get((OF_TOPIC, name), {}), TOPIC_SETTINGS)[0]
            for name in self.topic_ids
        }

    def broker_configs(self, node_id: int) -> dict[str, str]:
        """The dynamic settings of one broker."""
        return dict(self._configs.get((OF_BROKER, str(node_id)), {}))

    def broker_default_configs(self) -> dict[str, str]:
        """The dynamic settings that apply to all brokers."""
        return dict(self._configs.get((OF_BROKER, ""), {}))

    def configs_of(self, kind: int) -> dict[str, dict[str, str]]:
        """The settings of all resources of one kind, indexed by the name of the resource."""
        return {
            name: dict(configs)
            for (own, name), configs in self._configs.items()
            if own == kind and configs
        }

    def take(self, values: Iterable[bytes]) -> None:
        """Apply records, in their order. Raises UnreadableMetadata."""
        # the records of an unfinished metadata transaction (KIP-868); None outside of one
        waiting: list[KafkaRecord] | None = None
        api_keys = self.API_KEYS | _OF_TRANSACTIONS
        for value in values:
            record = decode_record(value, api_keys)
            if record is None:
                continue
            if record.api_key == BEGIN:
                waiting = []
            elif record.api_key == ABORT:
                waiting = None
            elif record.api_key == END:
                for held in waiting or ():
                    self._take(held)
                waiting = None
            elif waiting is not None:
                waiting.append(record)
            else:
                self._take(record)

    def _take(self, record: KafkaRecord) -> None:
        """Apply one record."""
        fields = record.fields
        if record.api_key == TOPIC:
            self.topic_ids[fields["name"]] = fields["topic_id"]
        elif record.api_key == CONFIG:
            resource = fields["resource_type"], fields["resource_name"]
            configs = self._configs.setdefault(resource, {})
            if fields["value"] is None:
                configs.pop(fields["name"], None)
            else:
                configs[fields["name"]] = fields["value"]
        elif record.api_key == CLIENT_QUOTA:
            self._take_client_quota(fields)
        elif record.api_key == PRODUCER_IDS:
            self.next_producer_id = fields["next_producer_id"]
        elif record.api_key == REMOVE_TOPIC:
            topic_id = fields["topic_id"]
            for name in [name for name, own_id in self.topic_ids.items() if own_id == topic_id]:
                del self.topic_ids[name]
                self._configs.pop((OF_TOPIC, name), None)
        else:
            self._take_security(record)

    def _take_security(self, record: KafkaRecord) -> None:
        """Apply a record of users or ACLs; other records are ignored."""
        fields = record.fields
        if record.api_key == ACCESS_CONTROL_ENTRY:
            self.acls[fields["id"]] = Acl(*(fields[name] for name in Acl._fields))
        elif record.api_key == REMOVE_ACCESS_CONTROL_ENTRY:
            self.acls.pop(fields["id"], None)
        elif record.api_key == USER_SCRAM_CREDENTIAL:
            self.scram_credentials[fields["name"], fields["mechanism"]] = ScramCredential(
                *(fields[name] for name in ScramCredential._fields)
            )
        elif record.api_key == REMOVE_USER_SCRAM_CREDENTIAL:
            self.scram_credentials.pop((fields["name"], fields["mechanism"]), None)

    def _take_client_quota(self, fields: Mapping[str, Any]) -> None:
        """Apply a change of one quota; an entity without quotas is removed."""
        entity = tuple(sorted(fields["entity"]))
        quotas = self.client_quotas.setdefault(entity, {})
        if fields["remove"]:
            quotas.pop(fields["key"], None)
        else:
            quotas[fields["key"]] = fields["value"]
        if not quotas:
            del self.client_quotas[entity]


def usable_configs(
    configs: Mapping[str, str], settings: Mapping[str, Setting[Any]]
) -> tuple[dict[str, str], list[str]]:
    """The settings that Barnabas knows, and errors for the other settings."""
    usable, refused = {}, []
    for name, text in sorted(configs.items()):
        try:
            if name not in settings:
                raise ConfigError(f"{name} is unknown")
            settings[name].parse(text)
            usable[name] = text
        except ConfigError as error:
            refused.append(str(error))
    return usable, refused


def read_kafka_metadata(disk: Disk, data_dir: str) -> KafkaMetadata | None:
    """The metadata in Kafka's metadata log of the data directory.

    Gives:  the metadata, or None if there is no such log or if it cannot be read. A log that cannot
            be read is reported in the broker's log.
    """
    directory = f"{data_dir}/{DIRECTORY}"
    if not disk.is_dir(directory):
        return None
    metadata = KafkaMetadata()
    try:
        metadata.take(values_of_log(disk, directory))
    except (UnreadableMetadata, KafkaError, OSError) as error:
        logger.warning(
            "%s cannot be read (%s): the settings of Kafka's topics are unknown", directory, error
        )
        return None
    return metadata


def values_of_log(disk: Disk, directory: str) -> Iterator[bytes]:
    """The values of all data records of a metadata log: first the latest checkpoint's, then those
    of the log from the end of the checkpoint on.

    Raises: UnreadableMetadata, KafkaError, OSError.
    """
    names = disk.list(directory)
    checkpoint = latest_checkpoint(names)
    start_offset = 0
    if checkpoint:
        start_offset = int(checkpoint[:20])
        yield from values_of_checkpoint(disk, f"{directory}/{checkpoint}")
    expected = start_offset
    for name in names:
        if _SEGMENT.fullmatch(name):
            if int(name[:20]) > expected:
                raise UnreadableMetadata(
                    f"the records between offset {expected} and {int(name[:20])} is missing"
                )
            data = disk.read(f"{directory}/{name}")
            expected = max(
                expected, int(name[:20]), *(header.next_offset for _, header in batches_in(data))
            )
            yield from values_of_file(disk, f"{directory}/{name}", start_offset)
    reached = max((int(name[:20]) for name in names if _SNAPSHOT.fullmatch(name)), default=0)
    if reached > expected or (checkpoint and not any(map(_SEGMENT.fullmatch, names))):
        raise UnreadableMetadata(f"everything from offset {expected} on is missing")


def latest_checkpoint(names: Iterable[str]) -> str:
    """The name of the latest checkpoint of a metadata log; empty if there is none."""
    return max((name for name in names if _CHECKPOINT.fullmatch(name)), default="")


def values_of_checkpoint(disk: Disk, path: str) -> list[bytes]:
    """The values of the data records of a checkpoint. Raises: UnreadableMetadata, OSError.

    A checkpoint that is empty or cut off is refused, since the missing records would count as
    deletions.
    """
    values, control_types = [], []
    for is_control, record in _records_of_file(disk, path):
        if is_control:
            key = b"" if record.key is None else bytes(record.key)
            control_types.append(CONTROL_KEY.unpack(key)[1] if len(key) == CONTROL_KEY.size else 0)
        elif record.value is not None:
            values.append(bytes(record.value))
    if not control_types or (control_types[0], control_types[-1]) != (HEADER_TYPE, FOOTER_TYPE):
        raise UnreadableMetadata(f"{path} is incomplete: it has no header, or no footer")
    return values


def torn_segment(disk: Disk, directory: str) -> str:
    """The path of a segment of a metadata log that ends within a batch; empty if none does."""
    for name in filter(_SEGMENT.fullmatch, disk.list(directory)):
        path = f"{directory}/{name}"
        data = disk.read(path)
        end = max((at + header.size_bytes for at, header in batches_in(data)), default=0)
        if end < len(data):
            return path
    return ""


def values_of_file(disk: Disk, path: str, from_offset: int) -> Iterator[bytes]:
    """The values of the data records of one file, from an offset on.

    An incomplete batch at the end was torn by a kill, and is skipped.
    """
    for is_control, record in _records_of_file(disk, path, from_offset):
        if not is_control and record.value is not None:
            yield bytes(record.value)


def _records_of_file(disk: Disk, path: str, from_offset: int = 0) -> Iterator[tuple[bool, Record]]:
    """The records of one file from an offset on, and for each whether it is a control record."""
    data = disk.read(path)
    for position, header in batches_in(data):
        batch = memoryview(data)[position : position + header.size_bytes]
        if header.magic != MAGIC or computed_crc(batch) != header.crc:
            raise UnreadableMetadata(f"the batch at byte {position} of {path} is damaged")
        if header.last_offset < from_offset:
            continue
        for record in records_of(batch):
            if record.offset >= from_offset:
                yield header.is_control, record
