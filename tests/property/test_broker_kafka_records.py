"""Records of Kafka's metadata log. Decoding an encoded record gives the same record, and decoding
and encoding Apache Kafka's own records gives the same bytes.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.graduation.kafka_directory.kafka_metadata import values_of_log
from barnabas.graduation.kafka_directory.kafka_records import (
    BEGIN,
    PARTITION,
    PARTITION_CHANGE,
    SCHEMAS,
    TOPIC,
    Field,
    KafkaRecord,
    UnreadableMetadata,
    decode_record,
    encode_record,
)
from barnabas.storage.disk import OsDisk

KAFKAS = Path(__file__).parent.parent / "fixtures" / "kafka-metadata" / "__cluster_metadata-0"
WRITTEN_BY_KAFKA_3_9 = 7  # the number of records of known kinds in Kafka's log

NOT_WRITTEN = (BEGIN, PARTITION_CHANGE)  # the broker decodes only some fields of these

INT32S = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4)
OF_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.uuids(),
    "bytes": st.binary(max_size=200),
    "string": st.none() | st.text(max_size=200),
    "int32s": INT32S,
    "uuids": st.lists(st.uuids(), max_size=3),
    "entity": st.lists(st.tuples(st.text(max_size=9), st.none() | st.text(max_size=9)), max_size=3),
}


def value_of(field: Field) -> st.SearchStrategy[Any]:
    value = OF_TYPE[field.type]
    return st.just(field.default) | value if field.tag >= 0 else value


@st.composite
def records(draw: st.DrawFn) -> KafkaRecord:
    """A record of any kind, with any values in its fields."""
    api_key = draw(st.sampled_from(sorted(SCHEMAS)))
    fields = {field.name: draw(value_of(field)) for field in SCHEMAS[api_key].fields}
    return KafkaRecord(api_key, fields)


@given(records())
def test_a_record_is_decoded_as_it_was_encoded(record: KafkaRecord) -> None:
    value = encode_record(record)
    assert decode_record(value, {record.api_key}) == record
    assert decode_record(value, ()) is None


@given(records(), st.data())
def test_a_record_that_is_cut_off_is_refused(record: KafkaRecord, data: st.DataObject) -> None:
    value = encode_record(record)
    if SCHEMAS[record.api_key].fields:
        size = data.draw(st.integers(0, len(value) - 2))
        with pytest.raises(UnreadableMetadata):
            decode_record(value[:size], SCHEMAS)


def test_records_that_apache_kafka_wrote_are_encoded_to_the_same_bytes() -> None:
    values = list(values_of_log(OsDisk(), str(KAFKAS)))
    kinds = []
    for value in values:
        record = decode_record(value, SCHEMAS)
        if record is not None and record.api_key not in NOT_WRITTEN:
            kinds.append(record.api_key)
            assert encode_record(record) == value
    assert len(kinds) >= WRITTEN_BY_KAFKA_3_9
    assert {TOPIC, PARTITION} <= set(kinds)


def test_a_version_that_is_not_known_is_refused() -> None:
    value = bytearray(
        encode_record(KafkaRecord(TOPIC, {"name": "t", "topic_id": uuid.UUID(int=1)}))
    )
    value[2] = 1
    with pytest.raises(UnreadableMetadata, match="Topic record has the version 1"):
        decode_record(bytes(value), SCHEMAS)
