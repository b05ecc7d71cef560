"""Records of Apache Kafka's metadata log, by the names of their fields.

A record's value begins with three unsigned varints: the frame version (1, but 0 is accepted, too),
the api key and the version. The fields follow (protocol/generator/schemas/records/
cluster_metadata.json). SCHEMAS contains the known records. Other records are skipped. Source:
KIP-631 (records), KIP-966 (eligible leader replicas).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from barnabas.protocol.internal_records.cluster_metadata import SCHEMAS
from barnabas.protocol.internal_records.record_schema import Field
from barnabas.protocol.primitives import read_uvarint

__all__ = ["SCHEMAS", "Field"]

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


# --- reading and writing ------------------------------------------------------------------------


def decode_record(value: bytes, api_keys: Collection[int]) -> KafkaRecord | None:
    """Decode the value of a record; None if its API key is not in `api_keys`.

    Raises: UnreadableMetadata for a record that has one of these keys but an unknown form.
    """
    try:
        frame_version, at = read_uvarint(value, 0)
        api_key, at = read_uvarint(value, at)
        version, at = read_uvarint(value, at)
        if frame_version > FRAME_VERSION:
            raise UnreadableMetadata(f"a record has the frame version {frame_version}")
        if api_key not in api_keys:
            return None
        schema = SCHEMAS[api_key]
        if version >= len(schema.read):
            raise UnreadableMetadata(f"a {schema.name} record has the version {version}")
        values = schema.read[version](value, at)
    except (struct.error, IndexError, ValueError) as error:
        raise UnreadableMetadata(f"a record is cut off or damaged: {error}") from error
    names = [field.name for field in schema.fields]
    return KafkaRecord(api_key, dict(zip(names, values, strict=False)))


def encode_record(record: KafkaRecord) -> bytes:
    """Encode the value of a record, in the version that Barnabas writes."""
    return SCHEMAS[record.api_key].encode(**record.fields)
