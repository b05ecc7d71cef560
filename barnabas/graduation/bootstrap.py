"""`bootstrap.checkpoint`: the first records of Kafka's metadata log.

The file consists of batches as in a log (v2, leader epoch 0, offsets from 0 on). The records of
metadata have null keys.

    batch    content
    first    a control batch with one control record, SnapshotHeader: key `version=0, type=3` (int16
             each); value int16 version, int64 time of the last record in it, no tagged fields
    next     FeatureLevel
    next     topics with their partitions, settings, users, ACLs, quotas, the producer ids;
             RECORDS_A_BATCH each
    last     a control batch, SnapshotFooter: type=4; value int16 version, no tagged fields

Source: KIP-630 (snapshots), KIP-631 (records), KIP-778 (bootstrap), KIP-858 (directories).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from barnabas.graduation.hand_over import HandOver
from barnabas.graduation.kafka_directory.kafka_metadata import (
    CONTROL_KEY,
    FOOTER_TYPE,
    HEADER_TYPE,
    OF_BROKER,
    OF_CLIENT_METRICS,
    OF_GROUP,
    OF_TOPIC,
    KafkaMetadata,
    values_of_checkpoint,
)
from barnabas.graduation.kafka_directory.kafka_records import (
    ACCESS_CONTROL_ENTRY,
    CLIENT_QUOTA,
    CONFIG,
    FEATURE_LEVEL,
    NO_LEADER_CHANGE,
    PARTITION,
    PARTITION_CHANGE,
    PRODUCER_IDS,
    REMOVE_TOPIC,
    TOPIC,
    USER_SCRAM_CREDENTIAL,
    KafkaRecord,
    encode_record,
)
from barnabas.graduation.kafka_versions import METADATA_VERSION
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import decode_topic_id

RECORDS_A_BATCH = 500
NO_EPOCH = -1
_HEADER_VALUE, _FOOTER_VALUE = struct.Struct(">hqx"), struct.Struct(">hx")


class KafkaPartition(NamedTuple):
    """A partition in Kafka's metadata. Replicas and leaders are node ids.

    eligible: the replicas that are not in sync but have all committed records. last_known: the last
    leader, if no replica is in sync or eligible (KIP-966).
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()

    def is_whole_on(self, node_id: int) -> bool:
        """Whether the node's replica has all committed records.

        If eligible leader replicas are enabled, no replica is in sync after a clean stop of the
        last in-sync replica. A replica then has all records if it is the only replica, or if it is
        eligible, or, if no replica is eligible, if it is the replica of the last leader.
        """
        if self.isr:
            return node_id in self.isr
        return self.replicas == (node_id,) or node_id in (self.eligible or self.last_known)


class ClusterImage(KafkaMetadata):
    """The metadata of a directory that comes back from Kafka.

    partitions: the partitions, by topic id and partition number. removed: the ids of topics whose
    deletion is recorded. is_of_checkpoint: whether the metadata were read from a checkpoint, which
    does not record earlier deletions. The settings are indexed by the kind and name of the
    resource.
    """

    API_KEYS = KafkaMetadata.API_KEYS | {PARTITION, PARTITION_CHANGE, FEATURE_LEVEL}

    def __init__(self) -> None:
        super().__init__()
        self.partitions: dict[uuid.UUID, dict[int, KafkaPartition]] = {}
        self.features: dict[str, int] = {}
        self.removed: set[uuid.UUID] = set()
        self.is_of_checkpoint = False

    @property
    def is_begun(self) -> bool:
        """Whether Kafka has begun its metadata log.

        Kafka writes the level of metadata.version with the first records; without that level it
        starts again from `bootstrap.checkpoint`.
        """
        return METADATA_VERSION in self.features

    def _take(self, record: KafkaRecord) -> None:
        """Apply a record. Records of partitions and features are applied here; the other records
        are applied as for a take-over.
        """
        fields = record.fields
        if record.api_key == PARTITION:
            self.partitions.setdefault(fields["topic_id"], {})[fields["partition_id"]] = (
                KafkaPartition(
                    tuple(fields["replicas"]),
                    tuple(fields["isr"]),
                    fields["leader"],
                    fields["leader_epoch"],
                    tuple(fields["eligible_leader_replicas"] or ()),
                    tuple(fields["last_known_elr"] or ()),
                )
            )
        elif record.api_key == PARTITION_CHANGE:
            self._change(self.partitions[fields["topic_id"]], fields)
        elif record.api_key == FEATURE_LEVEL:
            self.features[fields["name"]] = fields["level"]
        else:
            if record.api_key == REMOVE_TOPIC:
                self.partitions.pop(fields["topic_id"], None)
                self.removed.add(fields["topic_id"])
            super()._take(record)

    @staticmethod
    def _change(partitions: dict[int, KafkaPartition], fields: Mapping[str, Any]) -> None:
        """Apply a change of a partition. A change that names a leader begins a leader epoch, even
        if the leader stays the same.
        """
        index = fields["partition_id"]
        state = partitions[index]

        def changed(field: str, before: tuple[int, ...]) -> tuple[int, ...]:
            return before if fields[field] is None else tuple(fields[field])

        state = state._replace(
            isr=changed("isr", state.isr),
            replicas=changed("replicas", state.replicas),
            eligible=changed("eligible_leader_replicas", state.eligible),
            last_known=changed("last_known_elr", state.last_known),
        )
        if fields["leader"] != NO_LEADER_CHANGE:
            state = state._replace(leader=fields["leader"], leader_epoch=state.leader_epoch + 1)
        partitions[index] = state


def read_bootstrap(disk: Disk, path: str) -> ClusterImage:
    """The metadata of a `bootstrap.checkpoint`. Raises: UnreadableMetadata, OSError."""
    image = ClusterImage()
    image.take(values_of_checkpoint(disk, path))
    return image


def encode_bootstrap(plan: HandOver, wall_ms: int) -> bytes:
    """The content of `bootstrap.checkpoint` for a hand-over. wall_ms: the timestamp of its
    records.
    """
    offset = 0
    out = bytearray()

    def add(batch: bytearray, count: int) -> None:
        nonlocal offset, out
        out += batch
        offset += count

    add(_control_batch(HEADER_TYPE, _HEADER_VALUE.pack(0, wall_ms), offset, wall_ms), 1)
    for records in _parts(plan):
        values = [NewRecord(None, encode_record(record), wall_ms) for record in records]
        add(encode_batch(values, base_offset=offset, leader_epoch=0), len(values))
    add(_control_batch(FOOTER_TYPE, _FOOTER_VALUE.pack(0), offset, wall_ms), 1)
    return bytes(out)


def _control_batch(kind: int, value: bytes, offset: int, wall_ms: int) -> bytearray:
    record = NewRecord(CONTROL_KEY.pack(0, kind), value, wall_ms)
    return encode_batch([record], base_offset=offset, leader_epoch=0, control=True)


def _parts(plan: HandOver) -> Iterator[list[KafkaRecord]]:
    """The records of the file in the batches in which they are written. The feature levels are
    first, since they determine how Kafka reads the other records.
    """
    yield [
        KafkaRecord(FEATURE_LEVEL, {"name": name, "level": level})
        for name, level in sorted(plan.features.items())
    ]
    records = _records(plan)
    while part := list(islice(records, RECORDS_A_BATCH)):
        yield part


def _records(plan: HandOver) -> Iterator[KafkaRecord]:
    """The records of topics, settings, users, ACLs and quotas, and the next producer id."""
    survey, metadata = plan.survey, plan.survey.metadata
    directory_id = decode_topic_id(survey.directory_id)
    for topic in survey.topics:
        yield KafkaRecord(TOPIC, {"name": topic.name, "topic_id": topic.topic_id})
        for index, leader_epoch in enumerate(survey.leader_epochs[topic.name]):
            place = survey.node_id, leader_epoch, directory_id
            yield _partition(topic.topic_id, index, *place)
    for name, configs in plan.topic_configs.items():
        yield from _configs(OF_TOPIC, name, configs)
    yield from _configs(OF_BROKER, "", plan.broker_default_configs)
    yield from _configs(OF_BROKER, str(survey.node_id), plan.broker_configs)
    for name, configs in metadata.client_metrics.items():
        yield from _configs(OF_CLIENT_METRICS, name, configs)
    for name, configs in metadata.group_configs.items():
        yield from _configs(OF_GROUP, name, configs)
    for (user, mechanism), credential in plan.scram_credentials.items():
        fields = {"name": user, "mechanism": mechanism, **credential._asdict()}
        yield KafkaRecord(USER_SCRAM_CREDENTIAL, fields)
    for acl_id, acl in metadata.acls.items():
        yield KafkaRecord(ACCESS_CONTROL_ENTRY, {"id": acl_id, **acl._asdict()})
    for entity, quotas in metadata.client_quotas.items():
        for key, value in quotas.items():
            fields = {"entity": list(entity), "key": key, "value": value, "remove": False}
            yield KafkaRecord(CLIENT_QUOTA, fields)
    yield KafkaRecord(
        PRODUCER_IDS,
        {
            "broker_id": survey.node_id,
            "broker_epoch": NO_EPOCH,
            "next_producer_id": survey.next_producer_id,
        },
    )


def _partition(
    topic_id: uuid.UUID, index: int, node_id: int, leader_epoch: int, directory_id: uuid.UUID
) -> KafkaRecord:
    """The record of a partition whose only replica, and leader, is the given node."""
    return KafkaRecord(
        PARTITION,
        {
            "partition_id": index,
            "topic_id": topic_id,
            "replicas": [node_id],
            "isr": [node_id],
            "removing_replicas": [],
            "adding_replicas": [],
            "leader": node_id,
            "leader_epoch": leader_epoch,
            "partition_epoch": 0,
            "directories": [directory_id],
        },
    )


def _configs(kind: int, resource: str, configs: Mapping[str, str]) -> Iterable[KafkaRecord]:
    """The records of the settings of one resource."""
    for name, value in sorted(configs.items()):
        yield KafkaRecord(
            CONFIG,
            {"resource_type": kind, "resource_name": resource, "name": name, "value": value},
        )
