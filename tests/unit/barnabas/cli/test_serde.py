"""Schemas of `consume` and `produce`: the wire format, Avro, Protobuf and JSON Schema as JSON.

The bytes of serialised records were written by confluent-kafka 2.16 with these schemas.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.schemas import wire_format
from barnabas.schemas.avro import AvroSerde
from barnabas.schemas.errors import SchemaError, SerdeError
from barnabas.schemas.json_schema import JsonSchemaSerde
from barnabas.schemas.protobuf import ProtobufSchema, compile_file, compile_text

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {
            "name": "alt",
            "type": [
                "null",
                "int",
                "string",
                {"type": "record", "name": "Ref", "fields": [{"name": "n", "type": "int"}]},
            ],
            "default": None,
        },
    ],
}
ORDER_DATA = bytes.fromhex("1204c3a40404d280b6abbcc06800040261026200020a")
ORDER_JSON = {
    "id": 9,
    "item": "ä",
    "price": "12.34",
    "at": "2026-11-22T15:00:00.000Z",
    "note": None,
    "tags": ["a", "b"],
    "alt": {"int": 5},
}
PROTO = """\
syntax = "proto3";
package shop;
import "shop/money.proto";
import "google/protobuf/timestamp.proto";
message Other { int32 x = 1; }
message Order {
  message Line { string sku = 1; uint32 count = 2; }
  int64 id = 1;
  string item = 2;
  Money price = 3;
  google.protobuf.Timestamp at = 4;
  repeated Line lines = 5;
  map<string, string> tags = 6;
  oneof who { string user = 7; bytes token = 8; }
  optional double weight = 9;
  bool is_paid = 10;
}
"""
MONEY = 'syntax = "proto3"; package shop; message Money { string currency = 1; int64 cents = 2; }'


# --- the wire format -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "schema_id", "indexes"),
    [
        ("00000000080008", 8, (0,)),  # Other, the first message of its file
        ("000000000802020809", 8, (1,)),  # Order
        ("00000000080402000a01731003", 8, (1, 0)),  # Order.Line
    ],
)
def test_a_protobuf_header_has_the_schema_id_and_the_message_indexes(
    record: str, schema_id: int, indexes: tuple[int, ...]
) -> None:
    data = bytes.fromhex(record)
    found, rest = wire_format.split(data)
    named, payload = wire_format.split_indexes(rest)
    assert (found, named) == (schema_id, indexes)
    assert wire_format.header(schema_id, indexes) + payload == data


def test_a_header_without_indexes_has_the_schema_id_alone() -> None:
    assert wire_format.header(9) == b"\0\0\0\0\x09"
    assert wire_format.split(b'\0\0\0\0\t{"id":4}') == (9, b'{"id":4}')
    assert wire_format.split(wire_format.header(2**32 - 1)) == (2**32 - 1, b"")


@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=10), st.binary(max_size=4))
def test_indexes_round_trip(indexes: list[int], rest: bytes) -> None:
    encoded = wire_format.encode_indexes(indexes)
    assert wire_format.split_indexes(encoded + rest) == (tuple(indexes), rest)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "it begins with nothing"),
        (b"plain", "it begins with 70 6c 61 69 6e"),
        (b"\0\0\0\1", "it begins with 00 00 00 01"),
        (b"\1\0\0\0\1x", "it begins with 01"),
    ],
)
def test_data_without_a_header(data: bytes, text: str) -> None:
    with pytest.raises(SerdeError, match=text):
        wire_format.split(data)


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\4\2", b"\1", b"\xff\xff\xff\xff\xff\xff", b"\xff\7"]
)
def test_indexes_that_are_none(data: bytes) -> None:
    with pytest.raises(SerdeError, match="indexes"):
        wire_format.split_indexes(data)


# --- Avro ----------------------------------------------------------------------------------------


def avro(schema: Any) -> AvroSerde:
    """The serializer and deserializer for an Avro schema."""
    return AvroSerde(json.dumps(schema))


def test_an_avro_record_of_another_client_is_decoded_and_encoded() -> None:
    serde = avro(ORDER)
    assert serde.decode(ORDER_DATA) == ORDER_JSON
    assert serde.encode(ORDER_JSON) == ORDER_DATA
    assert serde.encode({**ORDER_JSON, "at": 1795359600000, "price": 12.34}) == ORDER_DATA
    assert serde.encode({**ORDER_JSON, "at": "2026-11-22T16:00:00+01:00"}) == ORDER_DATA
    assert serde.columns() == {
        "id": "int",
        "item": "string",
        "price": "string",
        "at": "string",
        "note": "string",
        "tags": "json",
        "alt": "json",
    }


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"id": "9"}, 'the field id: "9" is no long'),
        ({"id": 2**63}, "is no long"),
        ({"id": True}, "the field id: true is no long"),
        ({"price": "1.005"}, "the field price: '1.005' has more than 2 digits after the point"),
        ({"price": "1234567.00"}, "has more than 8 digits"),
        ({"price": "a"}, "'a' is no decimal number"),
        ({"price": "NaN"}, "'NaN' is no decimal number"),
        ({"at": "2026-11-22T15:00:00"}, "it needs a zone: 2026-11-22T15:00:00Z"),
        ({"at": "yesterday"}, "the field at: 'yesterday' is no timestamp-millis"),
        ({"at": "2026-11-22T15:00:00.0001Z"}, "more than 3 digits after the second"),
        ({"tags": ["a", 5]}, r"the field tags\[1\]: 5 is no string"),
        ({"tags": "a"}, 'the field tags: "a" is no array'),
        ({"alt": 1.5}, "the field alt: 1.5 is none of null, int, string, shop.Ref"),
        ({"alt": {"shop.Ref": {"n": "x"}}}, 'the field alt.shop.Ref.n: "x" is no int'),
        ({"note": 5}, "the field note: 5 is no string"),
        ({"itme": "x"}, "the value has no field 'itme': did you mean 'item'"),
        ({"zzz": "x"}, "there are id, item, price"),
    ],
)
def test_avro_value_that_does_not_fit(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SerdeError, match=text):
        avro(ORDER).encode({**ORDER_JSON, **changes})


def test_missing_avro_fields_get_their_defaults_or_are_errors() -> None:
    serde = avro(ORDER)
    short = {name: ORDER_JSON[name] for name in ("id", "item", "price", "at")}
    assert serde.decode(serde.encode(short)) == {**short, "note": None, "tags": [], "alt": None}
    with pytest.raises(SerdeError, match="the value lacks the field 'item', which has no default"):
        serde.encode({"id": 1, "price": "1", "at": 5})
    with pytest.raises(SerdeError, match="is no record"):
        serde.encode([1])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", None),
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("double", 0.1),
        ("double", "NaN"),
        ("double", "-Infinity"),
        ("float", 0.5),
        ("string", "ä\0"),
        ("bytes", "text"),
        ("bytes", {"base64": "/wA="}),
        ({"type": "fixed", "name": "F", "size": 2}, {"base64": "/wA="}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ({"type": "map", "values": ["null", "long"]}, {"a": 1, "b": None}),
        ({"type": "map", "values": "int"}, {"int": 1}),
        (["null", {"type": "map", "values": "int"}], {"map": 1}),
        (["null", {"type": "map", "values": "int"}], {"a": 1}),
        (["int", "string"], {"string": "x"}),
        (["null", "long", "double"], {"double": 1.0}),
        (["null", "long", "double"], {"long": 2**40}),
        (["null", "boolean", "int"], {"boolean": True}),
        (["bytes", {"type": "array", "items": "int"}], {"array": [1]}),
        (
            [
                {"type": "enum", "name": "n.E", "symbols": ["A"]},
                "string",
                {"type": "fixed", "name": "n.F", "size": 1},
            ],
            {"n.E": "A"},
        ),
        ({"type": "int", "logicalType": "date"}, "1969-12-31"),
        ({"type": "int", "logicalType": "time-millis"}, "23:59:59.999"),
        ({"type": "long", "logicalType": "time-micros"}, "00:00:00.000001"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "1969-12-31T23:59:59.999Z"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "0001-01-01T00:00:00.000000Z"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "2026-11-22T15:00:00.123456789Z"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "2026-11-22T15:00:00.000"),
        # This is later than the last date that Python can represent.
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**60),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 5}, "-0.00001"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3}, "128"),
        (
            {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9},
            "-5",
        ),
        ({"type": "string", "logicalType": "uuid"}, "a-b"),
        (
            {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
            "5e5d8b1b-27e1-4a1c-a1f0-3f6a1a2b3c4d",
        ),
        ({"type": "long", "logicalType": "of-another-year"}, 5),
    ],
)
def test_avro_round_trip(schema: Any, value: Any) -> None:
    serde = avro(schema)
    assert serde.decode(serde.encode(value)) == value


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        (["null", "string"], {"string": "x"}, "x"),
        (["null", "long"], {"long": 5}, 5),
        (["int", "string"], "x", {"string": "x"}),
        (["null", "double", "long"], 5, {"long": 5}),
        (["null", "float"], 5, 5.0),
        ("double", 5, 5.0),
        ({"type": "int", "logicalType": "date"}, 1, "1970-01-02"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "1970-01-01T00:00:01+00:00",
         "1970-01-01T00:00:01.000000Z"),
    ],
)  # fmt: skip
def test_avro_values_have_several_forms(schema: Any, value: Any, read: Any) -> None:
    serde = avro(schema)
    assert serde.decode(serde.encode(value)) == read


def test_data_that_do_not_fit_the_avro_schema_are_refused() -> None:
    serde = avro(ORDER)
    for data in (b"", ORDER_DATA[:-1], b"\xff" * 30):
        with pytest.raises(SerdeError, match="it is not data of the Avro schema"):
            serde.decode(data)
    with pytest.raises(SerdeError, match="1 bytes are left over"):
        serde.decode(ORDER_DATA + b"x")


def test_invalid_avro_schemas_are_refused_and_references_are_resolved() -> None:
    for text in ("{", '"no.such.type"', '{"type": "record"}', '{"type": "fixed", "name": "f"}'):
        with pytest.raises(SchemaError, match=r"order\.avsc is no Avro schema"):
            AvroSerde(text, (), "order.avsc")
    part = '{"type": "enum", "name": "n.E", "symbols": ["A"]}'
    whole = '{"type": "array", "items": "n.E"}'
    serde = AvroSerde(whole, [part])
    assert serde.decode(serde.encode(["A"])) == ["A"]
    outer = (
        '{"type": "record", "name": "n.R", "fields": [{"name": "e", "type": "E"}, '
        '{"name": "l", "type": {"type": "array", "items": ["null", "n.R", "n.E"]}}]}'
    )
    whole = '{"type": "map", "values": ["null", "n.R"]}'
    value = {"a": {"e": "A", "l": [{"n.R": {"e": "A", "l": []}}, {"n.E": "A"}, None]}, "b": None}
    serde = AvroSerde(whole, [part, outer])
    assert serde.decode(serde.encode(value)) == value


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
))  # fmt: skip
def test_any_json_is_encoded_or_refused(value: Any) -> None:
    """The encoder refuses lists, objects, numbers that JSON lacks, and strings with characters that
    UTF-8 may not be able to encode. All other values are decoded to an equal value, although a
    number may change its type.
    """
    serde = avro(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "v", "type": ["null", "boolean", "long", "double", "string"]}],
        }
    )
    try:
        data = serde.encode({"v": value})
    except SerdeError:
        assert (
            isinstance(value, list | dict)
            or (isinstance(value, float) and not math.isfinite(value))
            or (isinstance(value, str) and not value.isprintable())
        )
    else:
        found = serde.decode(data)["v"]
        inner = next(iter(found.values())) if isinstance(found, dict) else found
        assert inner == value or isinstance(value, float | dict)


# --- Protobuf ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two .proto files, order.proto and money.proto."""
    made = tmp_path_factory.mktemp("protos")
    (made / "shop").mkdir()
    (made / "shop" / "order.proto").write_text(PROTO)
    (made / "shop" / "money.proto").write_text(MONEY)
    return made


@pytest.fixture(scope="module")
def schema(folder: Path) -> ProtobufSchema:
    """The Protobuf schema of orders."""
    return compile_file(folder / "shop" / "order.proto", [folder], "order.proto")


def test_a_protobuf_record_of_another_client_is_decoded_and_encoded(schema: ProtobufSchema) -> None:
    data = bytes.fromhex("080912037465611a070a03455552100532060a016b120176420200ff")
    serde = schema.named("Order")
    value = serde.decode(data)
    assert value == {
        "id": "9",
        "item": "tea",
        "price": {"currency": "EUR", "cents": "5"},
        "lines": [],
        "tags": {"k": "v"},
        "token": "AP8=",
        "is_paid": False,
    }
    assert serde.decode(serde.encode(value)) == value
    assert serde.encode({"id": 9, "isPaid": True, "at": "1970-01-01T00:00:01Z"}) == (
        b"\x08\x09\x22\x02\x08\x01\x50\x01"
    )
    assert serde.columns() == {
        "id": "int",
        "item": "string",
        "price": "json",
        "at": "string",
        "lines": "json",
        "tags": "json",
        "user": "string",
        "token": "string",
        "weight": "float",
        "is_paid": "bool",
    }


def test_protobuf_messages_are_found_by_name_and_by_indexes(schema: ProtobufSchema) -> None:
    assert schema.named(None).indexes == (0,)
    assert schema.named("shop.Order").indexes == (1,)
    assert schema.named("Order.Line").indexes == (1, 0)
    assert schema.at((1, 0)).decode(bytes.fromhex("0a01731003")) == {"sku": "s", "count": 3}
    with pytest.raises(SchemaError, match=r"no message 'Line': there are shop\.Other, shop\.Order"):
        schema.named("Line")
    for indexes in ((2,), (1, 9), (0, 0)):
        with pytest.raises(SerdeError, match="has no message with the indexes"):
            schema.at(indexes)


def test_values_and_data_that_do_not_fit_the_protobuf_message_are_refused(
    schema: ProtobufSchema,
) -> None:
    serde = schema.named("Order")
    for value, text in (
        ({"id": "x"}, "id"),
        ({"itm": "x"}, "itm"),
        ({"lines": [{"count": -1}]}, "count"),
        ([], "the value is no object"),
    ):
        with pytest.raises(SerdeError, match=text):
            serde.encode(value)
    with pytest.raises(SerdeError, match=r"not data of the message shop\.Order"):
        serde.decode(b"\xff\xff")


def test_invalid_proto_files_are_refused(folder: Path) -> None:
    wrong = folder / "wrong.proto"
    wrong.write_text('syntax = "proto3"; message A { strng x = 1; }')
    with pytest.raises(SchemaError, match=r'wrong.+compiled.+"strng" is not defined'):
        compile_file(wrong, [], "wrong.proto")
    with pytest.raises(SchemaError, match="is in no folder of --proto-path"):
        compile_file(wrong, [folder / "shop"], "wrong.proto")
    with pytest.raises(SchemaError, match=r"money\.proto"):
        compile_file(folder / "shop" / "order.proto", [], "order.proto")  # imports shop/…


def test_protobuf_schemas_of_a_registry_are_compiled_with_their_imports(
    schema: ProtobufSchema,
) -> None:
    found = compile_text(PROTO, {"shop/money.proto": MONEY}, "schema 6")
    assert found.named("Order").encode({"price": {"cents": 5}}) == schema.named("Order").encode(
        {"price": {"cents": "5"}}
    )
    for name in ("../money.proto", "/etc/money.proto", ""):
        with pytest.raises(SchemaError, match="which is no path below a folder"):
            compile_text(PROTO, {name: MONEY}, "schema 6")
    # confluent-kafka registers schemas as a FileDescriptorProto in base64
    encoded = (
        "CgdhLnByb3RvGh5nb29nbGUvcHJvdG9idWYvZHVyYXRpb24ucHJvdG8iEQoBQRIMCgF4GAEgASgFUgF4YgZwcm90"
        "bzM="
    )
    assert compile_text(encoded, {}, "schema 7").named("A").decode(b"\x08\x05") == {"x": 5}


def test_a_compiled_protobuf_schema_is_read(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "orders.desc"
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}"),
            *(f"--descriptor_set_out={out}", "--include_imports", "shop/order.proto"),
        ],
        check=True,
    )
    found = ProtobufSchema(out.read_bytes(), "", "orders.desc")
    assert found.named("shop.Order").decode(b"\x08\x05")["id"] == "5"
    for data in (b"", b"\xff", b"plain text"):
        with pytest.raises(SchemaError, match=r"orders\.desc is no compiled Protobuf schema"):
            ProtobufSchema(data, "", "orders.desc")


# --- JSON Schema ---------------------------------------------------------------------------------

ITEM = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "paid": {"type": ["boolean", "null"]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
    },
    "required": ["id"],
    "additionalProperties": False,
    "definitions": {"line": {"type": "object", "required": ["sku"]}},
}


def test_values_are_checked_against_the_json_schema() -> None:
    serde = JsonSchemaSerde(json.dumps(ITEM))
    assert serde.decode(b'{"id":4,"paid":true}') == {"id": 4, "paid": True}
    assert serde.encode({"id": 4, "paid": None}) == b'{"id":4,"paid":null}'
    assert serde.columns() == {"id": "int", "paid": "bool", "lines": "json"}
    with pytest.raises(SerdeError, match="the field id does not fit the JSON Schema: 'x' is not"):
        serde.encode({"id": "x"})
    with pytest.raises(SerdeError, match=r"the field lines\[0\].*'sku' is a required"):
        serde.decode(b'{"id": 1, "lines": [{}]}')
    with pytest.raises(SerdeError, match=r"the value does not fit.*'id' is a required"):
        serde.encode({})
    with pytest.raises(SerdeError, match="it is not JSON"):
        serde.decode(b"\xff")


def test_invalid_json_schemas_and_unknown_references_are_refused() -> None:
    with pytest.raises(SchemaError, match="the schema is not JSON"):
        JsonSchemaSerde("{")
    with pytest.raises(SchemaError, match="the schema is no JSON Schema: 'integr' is not"):
        JsonSchemaSerde('{"type": "integr"}')
    outer = json.dumps({"properties": {"a": {"$ref": "http://127.0.0.1:1/inner.json"}}})
    known = JsonSchemaSerde(outer, {"http://127.0.0.1:1/inner.json": '{"type": "string"}'})
    assert known.decode(b'{"a": "x"}') == {"a": "x"}
    with pytest.raises(SerdeError, match="the field a does not fit"):
        known.decode(b'{"a": 5}')
    with pytest.raises(
        SchemaError, match=r"refers to 'http://127\.0\.0\.1:1/inner\.json', which is"
    ):
        # the schema must not be loaded over the network
        JsonSchemaSerde(outer).decode(b'{"a": "x"}')
