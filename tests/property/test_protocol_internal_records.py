"""Compares the records of internal topics with what kafka-python makes of the same schemas.

Each record is encoded in the versions that Barnabas writes, and read in all versions.
"""

from __future__ import annotations

import importlib
import json
import struct as packing
import types
import uuid
from functools import cache
from typing import Any
from unittest import mock

import pytest
from helpers.examples import drawn
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kafka.protocol import api_data

from barnabas.protocol.generator.schema import (
    COMMENTS,
    FAMILIES,
    Family,
    Field,
    Record,
    Struct,
    family_of,
    snake_case,
)
from barnabas.protocol.internal_records import cluster_metadata

NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
EXAMPLES = settings(
    max_examples=drawn(8), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # no shrinking, which takes long
# A record that cannot be read is refused with one of these.
REFUSALS = (ValueError, IndexError, packing.error)
FRAME_VERSION = b"\1"
FAMILIES_OF_RECORDS = [family_of(path) for path in sorted(FAMILIES.glob("*.json"))]
RECORDS = {
    record.name: (family, record) for family in FAMILIES_OF_RECORDS for record in family.records
}
Values = dict[str, Any]


@cache
def theirs(family_name: str, record_name: str) -> Any:
    """The class that kafka-python generates from our schema."""
    text = (FAMILIES / f"{family_name}.json").read_text()
    schemas = {one["name"]: one for one in json.loads(COMMENTS.sub("", text))["records"]}
    schema = {**schemas[record_name], "type": "data"}
    common = {one["name"]: one["fields"] for one in schema.get("commonStructs", ())}
    schema["fields"] = [with_fields(one, common) for one in schema["fields"]]
    with mock.patch.object(api_data, "load_json", return_value=schema):
        return types.new_class(record_name, (api_data.ApiData,))


def with_fields(one: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    """The row of a field. If its type is a common struct, it gets the fields of that struct.

    kafka-python takes an argument `version`, so a field has another name there.
    """
    one = {**one, "name": "OwnVersion"} if one["name"] == "Version" else one
    fields = one.get("fields", common.get(one["type"].removeprefix("[]")))
    if fields is None:
        return one
    return {**one, "fields": [with_fields(each, common) for each in fields]}


def function(family: Family, name: str) -> Any:
    module = importlib.import_module(f"barnabas.protocol.internal_records.{family.name}")
    return getattr(module, name)


def value_of(one: Field, parts: dict[str, Struct], version: int) -> st.SearchStrategy[Any]:
    """A value of a field. The value of a struct is a dictionary."""
    base: st.SearchStrategy[Any]
    if one.struct:
        base = values_of(parts[one.struct], parts, version)
    elif one.type in NUMBERS:
        bits = NUMBERS[one.type]
        base = st.integers(-(1 << bits), (1 << bits) - 1)
    else:
        base = {
            "uint16": st.integers(0, (1 << 16) - 1),
            "bool": st.booleans(),
            "float64": st.floats(allow_nan=False),
            "string": st.text(max_size=5) | st.text("n", min_size=126, max_size=128),
            "bytes": st.binary(max_size=5),
            "uuid": st.uuids(),
        }[one.type]
    if one.is_array:
        base = st.lists(base, max_size=2)
    return st.none() | base if one.nullable.first <= version <= one.nullable.last else base


def values_of(struct: Struct, parts: dict[str, Struct], version: int) -> st.SearchStrategy[Values]:
    """Values of the fields that a version has. Tagged fields may be absent."""
    fields = [one for one in struct.fields if one.versions.first <= version <= one.versions.last]
    required = {one.name: value_of(one, parts, version) for one in fields if one.tag is None}
    optional = {
        # kafka-python writes a tagged field that is given even if it has its default
        one.name: value_of(one, parts, version).filter(lambda value, one=one: value != default(one))
        for one in fields
        if one.tag is not None
    }
    return st.fixed_dictionaries(required, optional=optional)


def default(one: Field) -> Any:
    if one.default == "null":
        return None
    return [] if one.is_array else int(one.default or 0)


def ours_of(one: Field, value: Any, parts: dict[str, Struct]) -> Any:
    """A value as our functions take it: a part is a tuple."""
    if isinstance(value, list):
        return [ours_of(one, each, parts) for each in value]
    if isinstance(value, dict) and one.struct:
        return tuple(
            ours_of(field, value.get(field.name, default(field)), parts)
            for field in parts[one.struct].fields
        )
    return value.bytes if one.is_raw else value


def theirs_of(one: Field, value: Any, parts: dict[str, Struct], their: Any, version: int) -> Any:
    """A value as kafka-python takes it: a part is an object."""
    if isinstance(value, list):
        return [theirs_of(one, each, parts, their, version) for each in value]
    if isinstance(value, dict) and one.struct:
        inner = getattr(their, one.struct)
        return their_object(parts[one.struct], value, parts, inner, version)
    return value


def their_object(
    struct: Struct, values: Values, parts: dict[str, Struct], their: Any, version: int
) -> Any:
    by_name = {one.name: one for one in struct.fields}
    return their(
        version=version,
        **{
            {"version": "own_version"}.get(name, name): theirs_of(
                by_name[name], value, parts, their, version
            )
            for name, value in values.items()
        },
    )


def encoded_by_them(family: Family, record: Record, values: Values, version: int) -> bytes:
    """The whole record as kafka-python encodes it."""
    head = b"" if record.api_key is None else FRAME_VERSION + bytes((record.api_key, version))
    if not record.struct.fields:  # kafka-python has no such messages
        return head + b"\0"
    parts = {one.name: one for one in family.parts}
    one = their_object(record.struct, values, parts, theirs(family.name, record.name), version)
    return head + bytes(one.encode(version=version, header=record.api_key is None))


def read(family: Family, record: Record, version: int, data: bytes) -> tuple[Any, ...]:
    """What our function reads: the fields, and the position after them."""
    reader = function(family, f"read_{snake_case(record.name)}")
    if record.api_key is not None:
        found: tuple[Any, ...] = reader[version](data, 3)
    else:
        found = (reader[version] if isinstance(reader, tuple) else reader)(data)
    return found


def plain(value: Any) -> Any:
    """The value with tuples in place of lists."""
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", RECORDS)
@EXAMPLES
@given(data=st.data())
def test_a_record_is_encoded_and_read_as_by_kafka_python(name: str, data: st.DataObject) -> None:
    family, record = RECORDS[name]
    parts = {one.name: one for one in family.parts}
    versions = range(record.struct.valid.first, record.struct.valid.last + 1)
    version = data.draw(st.sampled_from(versions), "version")
    values: Values = data.draw(values_of(record.struct, parts, version))
    encoded = encoded_by_them(family, record, values, version)
    fields = {
        one.name: ours_of(one, values.get(one.name, default(one)), parts)
        for one in record.struct.fields
    }
    if version in record.written:
        suffix = f"_v{version}" if len(record.written) > 1 else ""
        encode = function(family, f"encode_{snake_case(record.name)}{suffix}")
        assert encode(**{one: fields[one] for one in values}) == encoded
    expected = tuple(map(plain, fields.values()))
    assert plain(read(family, record, version, encoded)) == (*expected, len(encoded))
    for end in range(2 if record.api_key is None else 3, len(encoded)):
        with pytest.raises(REFUSALS):
            read(family, record, version, encoded[:end])
    flexible = record.struct.flexible
    has_tags = any(one.tag is not None and one.name in values for one in record.struct.fields)
    if flexible.first <= version <= flexible.last and not has_tags:
        with_unknown_tag = encoded[:-1] + b"\1\x64\2ab"
        assert plain(read(family, record, version, with_unknown_tag))[:-1] == expected


WITH_A_STRUCT_IN_A_TAG = [
    name
    for name, (_, record) in RECORDS.items()
    if any(one.tag is not None and one.struct and not one.is_array for one in record.struct.fields)
]


@pytest.mark.parametrize("name", WITH_A_STRUCT_IN_A_TAG)
@EXAMPLES
@given(data=st.data())
def test_a_tag_for_a_struct_that_is_null_is_read(name: str, data: st.DataObject) -> None:
    """Apache Kafka writes such a tag, with a 0 as its bytes; kafka-python leaves it out."""
    family, record = RECORDS[name]
    parts = {one.name: one for one in family.parts}
    valid = record.struct.valid
    version = data.draw(st.integers(valid.first, valid.last), "version")
    values: Values = data.draw(values_of(record.struct, parts, version))
    (tagged,) = [one for one in record.struct.fields if one.tag is not None]
    values.pop(tagged.name, None)
    encoded = encoded_by_them(family, record, values, version)
    with_null = encoded[:-1] + bytes((1, tagged.tag or 0, 1, 0))
    without, found = (read(family, record, version, one)[:-1] for one in (encoded, with_null))
    assert found == without


@pytest.mark.parametrize("name", RECORDS)
@EXAMPLES
@given(data=st.data())
def test_any_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    family, record = RECORDS[name]
    valid = record.struct.valid
    version = data.draw(st.integers(valid.first, valid.last), "version")
    noise = data.draw(st.binary(max_size=80))
    try:
        *_, end = read(family, record, version, noise)
    except REFUSALS:
        return
    assert end <= len(noise)


@pytest.mark.parametrize("family", FAMILIES_OF_RECORDS, ids=lambda one: one.name)
def test_a_key_is_found_by_its_version(family: Family) -> None:
    keys = [one for one in family.records if one.kind == "key"]
    if len(keys) > 1:
        for record in keys:
            for version in range(record.struct.valid.first, record.struct.valid.last + 1):
                name = snake_case(record.name)
                assert function(family, "READ_KEY")[version] is function(family, f"read_{name}")


def test_a_zero_uuid_is_no_null() -> None:
    zero = uuid.UUID(int=0)
    value = cluster_metadata.encode_remove_topic_record(zero)
    assert cluster_metadata.read_remove_topic_record[0](value, 3)[0] == zero
