"""Compares Barnabas's messages with kafka-python's, whose code is generated from the same schemas.
Every message is encoded and decoded in every version.
"""

from __future__ import annotations

import importlib
import struct as packing
import uuid
from functools import cache
from typing import Any

import pytest
from helpers import kafka_messages
from helpers.examples import drawn
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs import BitField

from barnabas.protocol.api_table import APIS
from barnabas.protocol.generator import __main__ as generator
from barnabas.protocol.generator.emit import module_name
from barnabas.protocol.generator.schema import Field, Struct, structs_of
from barnabas.protocol.primitives import MalformedMessageError

pytestmark = pytest.mark.deep

NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
EXAMPLES = settings(
    max_examples=drawn(12), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # no shrinking, since it takes minutes for a message
REFUSALS = (MalformedMessageError, IndexError, packing.error)
# kafka-python decodes each of these fields as a set of bits.
SETS_OF_KAFKA_PYTHON = {
    "DescribeCluster": ("cluster_authorized_operations",),
    "DescribeGroups": ("authorized_operations",),
    "Metadata": ("cluster_authorized_operations", "topic_authorized_operations"),
}
# Messages with arrays nested four deep, for which drawing an example takes seconds.
DEEP = ("ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe")
NO_ID = uuid.UUID(int=0)
FIRST_VERSIONS = {api.name: api.min_version for api in APIS} | {
    "SaslHandshake": None,
    "SaslAuthenticate": None,
}
STRUCTS = {
    name: {struct.name: struct for struct in structs_of(name, first)}
    for name, first in FIRST_VERSIONS.items()
}


def module_of(api: str) -> Any:
    return importlib.import_module(f"barnabas.protocol.messages.{module_name(api)}")


def theirs(api: str, message: str) -> Any:
    return kafka_messages.message_class(message)


MESSAGES = [
    (api, struct.name)
    for api, structs in STRUCTS.items()
    for struct in structs.values()
    if struct.api_key is not None
]


def value_of(api: str, one: Field, version: int) -> st.SearchStrategy[Any]:
    """A strategy for the field's values in kafka-python's form. A struct is a dict."""
    is_null = one.nullable.first <= version <= one.nullable.last
    if one.struct:
        base: st.SearchStrategy[Any] = st.deferred(
            lambda: fields_of(api, STRUCTS[api][one.struct or ""], version)
        )
    elif one.name in SETS_OF_KAFKA_PYTHON.get(api, ()):
        base = st.integers(0, (1 << 31) - 1)
    elif one.type in NUMBERS:
        bound = 1 << NUMBERS[one.type]
        base = st.integers(-bound, bound - 1)
    elif one.type == "uint16":
        base = st.integers(0, 65535)
    elif one.type == "float64":
        base = st.floats(allow_nan=False)
    elif one.type == "bool":
        base = st.booleans()
    elif one.type == "uuid":
        base = st.none() | st.uuids().filter(lambda some: some != NO_ID)
    elif one.type == "string":
        base = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("a" * 130)
    else:
        base = st.binary(max_size=200)
    if one.is_array:
        base = st.lists(base, max_size=1 if api in DEEP else 3)
    return st.none() | base if is_null or one.type == "records" else base


def fields_of(api: str, struct: Struct, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """A strategy for the values of all fields of the version. Tagged fields may be absent."""
    required, optional = {}, {}
    for one in struct.fields:
        if one.versions.first <= version <= one.versions.last:
            (required if one.tag is None else optional)[one.name] = value_of(api, one, version)
    return st.fixed_dictionaries(required, optional=optional)


def our_message(api: str, struct: Struct, fields: dict[str, Any]) -> Any:
    """Our message with these fields."""
    given_fields = {}
    by_name = {one.name: one for one in struct.fields}
    for name, value in fields.items():
        part = by_name[name].struct
        if part is not None and isinstance(value, list):
            value = [our_message(api, STRUCTS[api][part], each) for each in value]
        elif part is not None and value is not None:
            value = our_message(api, STRUCTS[api][part], value)
        given_fields[name] = value
    return getattr(module_of(api), struct.name)(**given_fields)


def their_message(
    api: str, struct: Struct, fields: dict[str, Any], their_class: Any, version: int
) -> Any:
    """kafka-python's message with these fields."""
    given_fields = {}
    by_name = {one.name: one for one in struct.fields}
    for name, value in fields.items():
        part, kind = by_name[name].struct, by_name[name].type
        if part is not None and isinstance(value, list):
            value = [
                their_message(api, STRUCTS[api][part], each, getattr(their_class, kind), version)
                for each in value
            ]
        elif part is not None and value is not None:
            value = their_message(
                api, STRUCTS[api][part], value, getattr(their_class, kind), version
            )
        if name in SETS_OF_KAFKA_PYTHON.get(api, ()):
            name, value = "authorized_operations", BitField.from_32_bit_field(value)
        given_fields[name] = value
    return their_class(version=version, **given_fields)


def without_defaults_of_tags(api: str, struct: Struct, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields without tagged ones that have their default value. kafka-python writes such fields
    if they are given, but Apache Kafka and Barnabas do not.
    """
    kept = {}
    for one in struct.fields:
        if one.name not in fields:
            continue
        value = fields[one.name]
        if one.struct and isinstance(value, list):
            value = [
                without_defaults_of_tags(api, STRUCTS[api][one.struct], each) for each in value
            ]
        elif one.struct and value is not None:
            value = without_defaults_of_tags(api, STRUCTS[api][one.struct], value)
        ours = our_message(api, struct, {one.name: fields[one.name]})
        if one.tag is None or getattr(ours, one.name) != getattr(
            our_message(api, struct, {}), one.name
        ):
            kept[one.name] = value
    return kept


@cache
def drawn(api: str, message: str, version: int) -> st.SearchStrategy[dict[str, Any]]:
    return fields_of(api, STRUCTS[api][message], version)


def some_version(data: st.DataObject, api: str, message: str) -> int:
    valid = STRUCTS[api][message].valid
    return data.draw(st.integers(valid.first, valid.last), "version")


@pytest.mark.parametrize(("api", "message"), MESSAGES)
@EXAMPLES
@given(data=st.data())
def test_a_message_is_encoded_and_decoded_as_by_kafka_python(
    api: str, message: str, data: st.DataObject
) -> None:
    struct, version = STRUCTS[api][message], some_version(data, api, message)
    fields = without_defaults_of_tags(api, struct, data.draw(drawn(api, message, version)))
    ours = our_message(api, struct, fields)
    encoded = bytes(
        their_message(api, struct, fields, theirs(api, message), version).encode(version=version)
    )
    assert ours.encode(version) == encoded
    assert type(ours).read(memoryview(encoded), 0, version) == (ours, len(encoded))
    for end in range(len(encoded)):  # decoding must fail, whatever byte the message is truncated at
        with pytest.raises(REFUSALS):
            type(ours).decode(memoryview(encoded)[:end], version)


@pytest.mark.parametrize(("api", "message"), MESSAGES)
@EXAMPLES
@given(data=st.data())
def test_any_bytes_are_decoded_or_refused(api: str, message: str, data: st.DataObject) -> None:
    version, noise = some_version(data, api, message), data.draw(st.binary(max_size=80))
    try:
        decoded, end = getattr(module_of(api), message).read(memoryview(noise), 0, version)
    except REFUSALS:
        return
    assert end <= len(noise)
    assert type(decoded).decode(decoded.encode(version), version) == decoded


@pytest.mark.parametrize(("api", "message"), MESSAGES)
def test_a_message_with_default_values_is_encoded_as_by_kafka_python_in_every_version(
    api: str, message: str
) -> None:
    struct = STRUCTS[api][message]
    for version in range(struct.valid.first, struct.valid.last + 1):
        ours = our_message(
            api, struct, {"replica_id": -1} if message == "ListOffsetsRequest" else {}
        )  # the default there
        encoded = bytes(theirs(api, message)(version=version).encode(version=version))
        assert ours.encode(version) == encoded
        assert type(ours).read(encoded, 0, version) == (ours, len(encoded))


def test_the_modules_are_as_the_schemas_have_them() -> None:
    assert generator.main(["--check"]) == 0
