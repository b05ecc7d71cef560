"""Keys and values that the console decodes in a separate process, with schemas from a small
registry.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.places import TESTS
from helpers.schema_registry import FakeRegistry, basic, fake_registry

from barnabas.console.decoding import MOST_BYTES_AT_ONCE, Decoded, Values, first_part
from barnabas.console.filters import Facts, contains_text, parse_filter
from barnabas.console.rim import decoder as decoder_module
from barnabas.console.rim.decoder import Decoder, RequestDecoding
from barnabas.console.search import Bounds, Search, _Reader
from barnabas.protocol.records import Record
from barnabas.schemas import avro_sizes, wire_format
from barnabas.schemas.avro import AvroSerde
from barnabas.schemas.errors import SerdeError
from barnabas.schemas.exchange import MOST_PART_BYTES

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
DATA = b"\x0e\x06tea"  # Avro: the number 7 as a zigzag varint, then a string of 3 bytes
PROTO = 'syntax = "proto3"; message A { int32 x = 1; } message B { string name = 1; }'
TLS = TESTS / "fixtures" / "tls"
SLOW = {"type": "string", "pattern": "^(a+)+$"}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


@pytest.fixture
def decoder(registry: FakeRegistry) -> Iterator[Decoder]:
    made = Decoder({"url": registry.url})
    yield made
    made.close()


def add(registry: FakeRegistry, schema: Any, kind: str = "AVRO", **more: Any) -> int:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = {"schema": text, "schemaType": kind, **more}
    _, found = registry.answer("POST", f"/subjects/s{len(registry.requests)}/versions", body, None)
    registry.requests.clear()
    return int(found["id"])


def record(value: bytes | None, key: bytes | None = None, offset: int = 0) -> Record:
    return Record(offset, 0, key, value, ())


def test_each_kind_is_decoded(registry: FakeRegistry, decoder: Decoder) -> None:
    avro = add(registry, ORDER)
    proto = add(registry, PROTO, "PROTOBUF")
    schema = add(registry, {"type": "object"}, "JSON")
    data = [
        wire_format.header(avro) + DATA,
        wire_format.header(proto, (1,)) + b"\x0a\x03tea",
        wire_format.header(schema) + b'{"a": 1}',
    ]
    # There is one request for each value, since a request's time is limited, and the first value of
    # each format loads a library.
    assert [decoder.decode([part])[0] for part in data] == [
        Decoded(avro, "AVRO", '{"id": 7, "item": "tea"}'),
        Decoded(proto, "PROTOBUF", '{"name": "tea"}'),
        Decoded(schema, "JSON", '{"a": 1}'),
    ]


def test_key_and_value_of_each_record_are_decoded(registry: FakeRegistry, decoder: Decoder) -> None:
    text = add(registry, '"string"')
    one = wire_format.header(text) + b"\x02k"
    found = decoder([record(one), record(b"plain", one), record(None, b"\0"), record(one, one)])
    decoded = Decoded(text, "AVRO", '"k"')
    assert found == [
        Values(None, decoded), Values(decoded, None), Values(), Values(decoded, decoded)
    ]  # fmt: skip


def test_a_schema_is_requested_once_and_a_missing_one_is_not_requested_again(
    registry: FakeRegistry, decoder: Decoder
) -> None:
    data = wire_format.header(add(registry, ORDER)) + DATA
    unknown = wire_format.header(99) + DATA
    for _ in range(2):
        found = decoder.decode([data, unknown] * 20)
        assert [not one.error for one in found] == [True, False] * 20
        assert "it has no such schema" in found[1].error
    assert [path for _, path, _ in registry.requests] == ["/schemas/ids/1", "/schemas/ids/99"]


def test_a_value_that_does_not_fit_its_schema_fails_alone(
    registry: FakeRegistry, decoder: Decoder
) -> None:
    head = wire_format.header(add(registry, ORDER))
    wrong, right = decoder.decode([head + b"\x0e", head + DATA])
    assert "it is not data of the Avro schema" in wrong.error and wrong.kind == "AVRO"
    assert right.text == '{"id": 7, "item": "tea"}'


def test_a_value_that_is_too_large_is_not_sent_to_the_decoding_process(
    registry: FakeRegistry, decoder: Decoder
) -> None:
    head = wire_format.header(add(registry, '"bytes"'))
    large, small = decoder.decode([head + bytes(MOST_PART_BYTES), head + b"\0"])
    assert "1,048,581 bytes: more than the console decodes" in large.error
    assert small.text == '""' and small.error == ""


def test_a_few_bytes_that_become_very_much_are_an_error(
    registry: FakeRegistry, decoder: Decoder
) -> None:
    head = wire_format.header(add(registry, {"type": "array", "items": "null"}))
    many = b"\xfe\xff\xff\xff\xff\xff\xff\x7f\0"  # an Avro block of 2^53 nulls
    bomb, after = decoder.decode([head + many, head + b"\0"])
    assert bomb.error and bomb.text == ""
    assert after.text == "[]" or "others took the time" in after.error
    assert decoder.decode([head + b"\0"])[0].text == "[]", "the next request has time of its own"


def test_a_pattern_that_never_ends_is_an_error(registry: FakeRegistry, decoder: Decoder) -> None:
    head = wire_format.header(add(registry, SLOW, "JSON"))
    value = head + json.dumps("a" * 40 + "!").encode()
    slow, after = decoder.decode([value, head + b'"aa"'])
    assert "took more than 1 s" in slow.error
    assert after.text == '"aa"' or "others took the time" in after.error


def test_when_the_process_dies_only_the_value_that_it_decoded_fails(
    registry: FakeRegistry, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = wire_format.header(add(registry, ORDER)) + DATA
    assert decoder.decode([data])[0].error == ""
    first = decoder._process
    assert first is not None
    read, count = decoder_module.read_answer, 0

    def dying(receive: Any) -> Any:
        # the second value's answer never arrives
        nonlocal count
        count += 1
        if count == 2:
            first.kill()
            raise EOFError
        return read(receive)

    monkeypatch.setattr(decoder_module, "read_answer", dying)
    errors = [one.error for one in decoder.decode([data] * 4)]
    assert errors == ["", "it ended the decoding process", "", ""]
    assert decoder._process is not first


def test_the_process_ends_when_idle_and_the_next_value_starts_another(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    start = decoder_module.subprocess.Popen

    def starting(*arguments: Any, **more: Any) -> Any:
        started.append(start(*arguments, **more))
        return started[-1]

    monkeypatch.setattr(decoder_module.subprocess, "Popen", starting)
    made = Decoder({"url": registry.url}, idle_s=0.2)
    data = wire_format.header(add(registry, ORDER)) + DATA
    assert made.decode([data])[0].error == ""
    deadline = time.monotonic() + 20
    while started[0].returncode is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert made.decode([data])[0].error == "", "another one is started"
    assert len(started) == 2
    made.close()


def test_the_error_names_a_registry_that_cannot_be_reached() -> None:
    made = Decoder({"url": "http://127.0.0.1:1"})
    found = made.decode([wire_format.header(number) + DATA for number in range(3)])
    made.close()
    assert all("--console-registry http://127.0.0.1:1" in one.error for one in found)
    assert "is the registry running there?" in found[2].error


def test_user_and_password_go_to_the_registry_and_are_no_argument(registry: FakeRegistry) -> None:
    schema_id = add(registry, ORDER)
    registry.authorization = basic("page", "secret")
    data = wire_format.header(schema_id) + DATA
    made = Decoder({"url": registry.url, "user_info": "page:secret"})
    assert made.decode([data])[0].error == ""
    assert made._process is not None and "secret" not in str(made._process.args)
    made.close()
    made = Decoder({"url": registry.url})
    assert "barnabas.console.registry.user" in made.decode([data])[0].error
    made.close()


def test_a_token_goes_to_the_registry_and_is_no_argument(registry: FakeRegistry) -> None:
    schema_id = add(registry, ORDER)
    registry.authorization = "Bearer t.o.k"
    data = wire_format.header(schema_id) + DATA
    made = Decoder({"url": registry.url, "token": "t.o.k"})
    assert made.decode([data])[0].error == ""
    assert made._process is not None and "t.o.k" not in str(made._process.args)
    made.close()
    made = Decoder({"url": registry.url, "token": "another"})
    assert "barnabas.console.registry.token" in made.decode([data])[0].error
    made.close()


def test_a_certificate_goes_to_a_registry_that_requires_one() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    context.load_verify_locations(TLS / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with fake_registry(context) as registry:
        data = wire_format.header(add(registry, ORDER)) + DATA
        url = registry.url.replace("127.0.0.1", "localhost")
        for own in (
            {"certificate": "client.pem"},
            {"certificate": "client-certificate.pem", "key": "client-key-encrypted.pem"},
        ):
            files = {name: str(TLS / path) for name, path in {"ca": "ca.pem", **own}.items()}
            made = Decoder({"url": url, **files, "key_password": "secret"})
            assert made.decode([data])[0].error == ""
            made.close()
        made = Decoder({"url": url, "ca": str(TLS / "ca.pem")})
        error = made.decode([data])[0].error
        assert "requires a certificate" in error
        assert "barnabas.console.registry.certificate.file" in error
        made.close()


def test_without_the_extra_the_page_says_what_to_install(
    registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fastavro", "jsonschema"):
        missing = f"raise ModuleNotFoundError('no module', name={name!r})"
        (tmp_path / f"{name}.py").write_text(missing)
    monkeypatch.syspath_prepend(tmp_path)
    made = Decoder({"url": registry.url})
    ids = add(registry, ORDER), add(registry, {"type": "object"}, "JSON")
    avro, schema = made.decode([wire_format.header(number) + DATA for number in ids])
    made.close()
    assert re.fullmatch(r"Avro needs the package fastavro: pip install .*\[schemas\].*", avro.error)
    assert "JSON Schema needs the package jsonschema: pip install " in schema.error


def test_requests_go_only_to_the_address_of_the_registry(registry: FakeRegistry) -> None:
    """A redirect to another address is an error, and so is a reference that contains an address."""
    with fake_registry() as other:
        schema_id = add(
            registry, ORDER, references=[{"name": "x", "subject": f"{other.url}/", "version": 1}]
        )
        made = Decoder({"url": registry.url})
        (found,) = made.decode([wire_format.header(schema_id) + DATA])
        made.close()
        assert found.error and other.requests == []
    assert all(path.startswith(("/schemas/ids/", "/subjects/http%3A")) for _, path, _ in
               registry.requests)  # fmt: skip


# --- the time of a request of the page ----------------------------------------------------------


def test_a_value_that_is_not_decoded_in_time_ends_the_process_and_is_not_sent_again(
    registry: FakeRegistry, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alarm in the process does not reach code in C, so the console waits itself."""
    head = wire_format.header(add(registry, ORDER))
    slow, other = head + DATA, head + b"\x0e\x06cup"
    assert decoder.decode([slow])[0].error == ""
    first = decoder._process
    assert first is not None
    read = decoder_module.read_answer

    def late(receive: Any) -> Any:
        raise TimeoutError

    monkeypatch.setattr(decoder_module, "read_answer", late)
    errors = [one.error for one in decoder.decode([slow, other])]
    assert errors[0] == "decoding took more than 2 s" and "others took the time" in errors[1]
    assert first.poll() is not None
    monkeypatch.setattr(decoder_module, "read_answer", read)
    again, right = decoder.decode([slow, other])
    assert again.error == errors[0], "it was not sent again"
    assert right.text == '{"id": 7, "item": "cup"}'


def test_a_process_that_does_not_answer_is_ended(
    registry: FakeRegistry, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = wire_format.header(add(registry, ORDER)) + DATA
    assert decoder.decode([data])[0].error == ""
    stopped = decoder._process
    assert stopped is not None
    os.kill(stopped.pid, signal.SIGSTOP)
    monkeypatch.setattr(decoder_module, "SCHEMA_WAIT_S", 0.2)
    assert "its schema took more than 0.2 s" in decoder.decode([data])[0].error
    assert stopped.poll() is not None


def test_a_request_does_not_wait_for_the_decoding_of_others(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder_module, "BUSY_S", 0.05)
    with decoder._lock:
        (found,) = decoder.decode([wire_format.header(7) + DATA])
    assert "others took the time" in found.error


def test_a_request_has_a_time_for_all_its_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def slow(records: Any) -> list[Values]:
        nonlocal now_s
        now_s += 1.5
        return [Values(None, Decoded(7, "AVRO", "1")) for _ in records]

    monkeypatch.setattr(decoder_module.time, "monotonic", lambda: now_s)
    decoding = RequestDecoding(slow)  # type: ignore[arg-type]
    one = record(wire_format.header(7) + DATA)
    for is_over in (False, True):
        assert decoding([one])[0].value == Decoded(7, "AVRO", "1")
        assert decoding.is_over is is_over
    late, plain = decoding([one, record(b"plain")])
    assert late.value is not None and "others took the time" in late.value.error
    assert plain == Values()


def test_a_search_whose_decoding_takes_its_time_continues_with_the_next_request() -> None:
    """Otherwise records that it could not decode would be missing in its result."""
    bounds, taken = {0: Bounds(0, 3)}, []

    class Reader(_Reader):
        def add_window(self, window: Any, problems: list[str]) -> None:
            self.records = [record(b"v", offset=offset) for offset in range(self.before)]
            self.header, self.before = SimpleNamespace(base_offset=0), 0

    def condition(facts: Facts) -> bool:
        taken.append(facts.record.offset)
        return True

    search = Search(lambda places: [None], bounds, condition, is_spent=lambda: bool(taken))
    search._readers = [Reader(0, bounds[0], None, None)]
    result = search.run(10, lambda: False)
    assert taken == [2] and dict(result.cursor) == {0: 2}


# --- Avro ---------------------------------------------------------------------------------------

NULLS = {"type": "array", "items": "null"}
OF_NULLS = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]}
WITHIN = {
    "type": "record",
    "name": "N",
    "fields": [
        {"name": "next", "type": ["null", "N"]},
        {"name": "all", "type": {"type": "array", "items": {"type": "map", "values": NULLS}}},
    ],
}


def long(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


@pytest.mark.parametrize(
    ("schema", "before", "after"),
    [
        (NULLS, b"", b""),
        ({"type": "array", "items": OF_NULLS}, b"", b""),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, b"", b""),
        (["string", NULLS], long(1), b""),
        (WITHIN, long(0) + long(1) + long(1) + b"\x02k", long(0) + long(0)),
        ({"type": "array", "items": NULLS}, long(1), long(0)),
    ],
)
def test_items_without_bytes_have_a_bound(schema: Any, before: bytes, after: bytes) -> None:
    """fastavro would make a list of 2**40 items, in code that no alarm reaches."""
    serde = AvroSerde(json.dumps(schema))
    for count in (1 << 40, avro_sizes.MOST_ITEMS + 1, -(1 << 40)):
        size = long(0) if count < 0 else b""
        with pytest.raises(SerdeError, match="items that take no bytes"):
            serde.decode(before + long(count) + size + long(0) + after)
    serde.decode(before + long(3) + long(0) + after)  # raises nothing


@pytest.mark.parametrize("schema", [ORDER, {"type": "array", "items": "long"}, ["null", "string"]])
def test_other_schemas_are_not_followed_in_python(schema: Any) -> None:
    assert not AvroSerde(json.dumps(schema))._has_unbounded_data


def test_a_record_within_itself_has_a_bound_on_its_levels() -> None:
    """300,000 levels would end the process in fastavro's code: that of a command, too."""
    schema = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    serde = AvroSerde(json.dumps(schema))
    value: Any = None
    for _ in range(50):
        value = {"next": value}
    assert serde.decode(long(1) * 49 + long(0)) == value
    with pytest.raises(SerdeError, match="nested too deeply"):
        serde.decode(long(1) * 300_000 + long(0))


def test_a_decimal_of_very_many_digits_is_read_as_bytes() -> None:
    """Its digits would take minutes, in code that no alarm reaches."""
    for scale, size in ((0, 900_000), (1 << 20, 4)):
        schema = {"type": "bytes", "logicalType": "decimal", "precision": 1 << 30, "scale": scale}
        data = b"\x7f" * size
        assert AvroSerde(json.dumps(schema)).decode(long(size) + data) == data.decode()


# --- the search ---------------------------------------------------------------------------------


def facts(value: bytes, decoded: Decoded | None) -> Facts:
    return Facts(record(value), 0, "plain", lambda one: Values(None, decoded))


HEADED = b"\0\0\0\0\1" + DATA


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("value.id = 7", True),
        ("value.id > 7", False),
        ('value.item contains "TE"', True),
        ('value contains "\\"item\\": \\"tea\\""', True),
        ("value is null", False),
        ("size = 10", True),
    ],
)
def test_a_filter_compares_decoded_values(text: str, is_found: bool) -> None:
    decoded = Decoded(1, "AVRO", '{"id": 7, "item": "tea"}')
    assert len(HEADED) == 10
    assert parse_filter(text)(facts(HEADED, decoded)) is is_found


@pytest.mark.parametrize(("text", "is_found"), [('value = "tea"', True), ('value = "x"', False)])
def test_a_filter_compares_a_decoded_text(text: str, is_found: bool) -> None:
    assert parse_filter(text)(facts(HEADED, Decoded(1, "AVRO", '"tea"'))) is is_found


def test_a_filter_compares_the_bytes_where_nothing_was_decoded() -> None:
    failed = Decoded(1, "", "", "there is no such schema")
    for decoded in (None, failed):
        assert parse_filter('value contains "tea"')(facts(HEADED, decoded))
        assert not parse_filter("value.id = 7")(facts(HEADED, decoded))


def test_a_text_is_found_in_decoded_values_and_in_bytes() -> None:
    decoded = Decoded(1, "PROTOBUF", '{"colour": "BLUE"}')
    assert contains_text("blue")(facts(HEADED, decoded))
    assert contains_text("tea")(facts(HEADED, decoded))
    assert not contains_text("green")(facts(HEADED, decoded))


def test_what_needs_no_schema_is_not_decoded() -> None:
    """A filter decodes a value only if the value has a schema id and the filter needs the value."""

    def never(one: Record) -> Values:
        raise AssertionError

    plain = Facts(record(b'{"id": 7}'), 0, "plain", never)
    assert parse_filter("value.id = 7 and offset = 0")(plain)
    assert not parse_filter("offset > 3")(Facts(record(HEADED), 0, "plain", never))


def test_records_are_decoded_in_parts_of_bounded_number_and_bytes() -> None:
    assert len(first_part([record(b"x")] * 300)) == 100
    large = record(bytes(MOST_BYTES_AT_ONCE // 2 + 1))
    assert len(first_part([large] * 3)) == 1
    assert len(first_part([record(bytes(MOST_BYTES_AT_ONCE + 1))] * 2)) == 1
