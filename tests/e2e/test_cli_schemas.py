"""`barnabas produce` and `consume` with schemas from files and from a registry, against the real
daemon.

The environment variable BARNABAS_TEST_REGISTRY may be the URL of a running registry, such as
Karapace. Tests that need no special responses then use it.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import committed_offset, unique
from helpers.schema_registry import FakeRegistry, basic, fake_registry

pytestmark = pytest.mark.e2e

TLS = Path(__file__).resolve().parents[1] / "fixtures" / "tls"
AVSC = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}
PROTO = """\
syntax = "proto3";
package shop;
import "shop/MONEY.proto";
message Other { int32 x = 1; }
message Order { int64 id = 1; string item = 2; Money price = 3; }
"""
MONEY = 'syntax = "proto3";\npackage shop;\nmessage Money { int64 cents = 1; }\n'
JSON_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    "required": ["id"],
}
ROWS = [{"id": 1, "item": "tea", "price": 2.5}, {"id": 2, "item": "cake", "price": None}]
CSV = "id,item,price\n1,tea,2.5\n2,cake,\n"


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], servers: str
) -> CommandLine:
    """The command line, connected to the shared broker."""
    return CommandLine(monkeypatch, capsys).use(servers)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A fake registry for one test."""
    with fake_registry() as running:
        yield running


@pytest.fixture
def any_registry() -> Iterator[str]:
    """The URL of a registry. If the environment names a real one, it is used, otherwise a fake
    one.
    """
    if url := os.environ.get("BARNABAS_TEST_REGISTRY"):
        yield url
        return
    with fake_registry() as running:
        yield running.url


@pytest.fixture
def topic(barnabas: CommandLine) -> str:
    """A topic with one partition."""
    name = unique("schemas")
    barnabas.ok("topics", "create", name)
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a schema of each kind."""
    (tmp_path / "order.avsc").write_text(json.dumps(AVSC))
    (tmp_path / "order.json").write_text(json.dumps(JSON_SCHEMA))
    (tmp_path / "id.avsc").write_text('"long"')
    (tmp_path / "shop").mkdir()
    money = unique("money")  # also the name of a subject in the registry
    (tmp_path / "shop" / "order.proto").write_text(PROTO.replace("MONEY", money))
    (tmp_path / "shop" / f"{money}.proto").write_text(MONEY)
    return tmp_path


def test_avro_of_a_registry(
    barnabas: CommandLine, any_registry: str, topic: str, folder: Path
) -> None:
    schema = ("-s", any_registry, "--value-schema", f"registry:{folder / 'order.avsc'}")
    first = barnabas.ok("produce", topic, "-i", "csv", *schema, "--key-field", "id", stdin=CSV)
    assert f"{topic}-value: registered version 1" in first.err
    again = barnabas.ok("produce", topic, "-i", "jsonl", *schema, stdin='{"id": 3, "item": "x"}')
    assert "registered" not in again.err
    newest = ("-s", any_registry, "--value-schema", "registry")
    barnabas.ok("produce", topic, *newest, stdin='{"id": 4, "item": "y", "price": 1}\n')
    read = barnabas.ok("consume", topic, "-s", any_registry, "--json").lines
    more = [{"id": 3, "item": "x", "price": None}, {"id": 4, "item": "y", "price": 1.0}]
    assert [(row["key"], row["value"]) for row in read] == [
        ("1", ROWS[0]),
        ("2", ROWS[1]),
        (None, more[0]),
        (None, more[1]),
    ]
    raw = barnabas.ok("consume", topic, "--format", "%v{hex} ", "-n", "2").out.split()
    schema_id = raw[0][2:10]
    data = ("0206746561020000000000000440", "040863616b6500")
    assert raw == [f"00{schema_id}{one}" for one in data]
    text = barnabas.ok("consume", topic, "-s", any_registry, "--grep", '"item": "cake"').out
    assert text == '{"id": 2, "item": "cake", "price": null}\n'
    by_id = ("-s", any_registry, "--value-schema", f"registry:{int(schema_id, 16)}")
    barnabas.ok("produce", topic, *by_id, stdin='{"id": 5, "item": "z"}\n')
    last = barnabas.ok("consume", topic, "-s", any_registry, "--last", "1", "--format", "%v %V")
    assert last.out == '{"id": 5, "item": "z", "price": null} 9'


def test_keys_and_values_with_schemas_through_a_pipe(
    barnabas: CommandLine, any_registry: str, topic: str, folder: Path
) -> None:
    both = ("-s", any_registry, "--key-schema", "registry", "--value-schema", "registry")
    made = (
        *("-s", any_registry, "--key-schema", f"registry:{folder / 'id.avsc'}"),
        *("--value-schema", f"registry:{folder / 'order.json'}"),
    )
    barnabas.ok("produce", topic, "-i", "csv", *made, "--key-field", "id", stdin="id,item\n7,x\n")
    first = barnabas.ok("consume", topic, *both, "--json")
    assert [(row["key"], row["value"]) for row in first.lines] == [(7, {"id": 7, "item": "x"})]
    assert barnabas.ok("consume", topic, *both, "-K", "=").out == '7={"id": 7, "item": "x"}\n'
    subjects = ("--key-subject", f"{topic}-key", "--value-subject", f"{topic}-value")
    copy = unique("copy")
    barnabas.ok("produce", copy, "--json", *both, *subjects, stdin=first.out)
    assert (
        barnabas.ok("consume", copy, "-K", "=").out == barnabas.ok("consume", topic, "-K", "=").out
    )


def test_protobuf_of_a_registry_with_imports(
    barnabas: CommandLine, any_registry: str, topic: str, folder: Path
) -> None:
    file = folder / "shop" / "order.proto"
    path = ("--proto-path", str(folder), "--value-message", "Order")
    made = ("-s", any_registry, "--value-schema", f"registry:{file}", *path)
    line = '{"id": 1, "item": "tea", "price": {"cents": 250}}\n'
    barnabas.ok("produce", topic, *made, stdin=line)
    newest = ("-s", any_registry, "--value-schema", "registry")
    barnabas.ok("produce", topic, *newest, "--value-message", "shop.Other", stdin='{"x": 5}\n')
    read = barnabas.ok("consume", topic, "-s", any_registry).out
    assert read.splitlines() == [
        '{"id": "1", "item": "tea", "price": {"cents": "250"}}',
        '{"x": 5}',
    ]
    raw = barnabas.ok("consume", topic, "--format", "%v{hex}\\n").out.split()
    assert [row[10:] for row in raw] == ["0202080112037465611a0308fa01", "000805"]


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json"])
def test_schemas_of_files(barnabas: CommandLine, topic: str, folder: Path, kind: str) -> None:
    options, data = {
        "avro": (["order.avsc"], "0206746561020000000000000440"),
        "protobuf": (["shop/order.proto", "--value-message", "Order"], "08011203746561"),
        "json": (["order.json"], b'{"id":1,"item":"tea"}'.hex()),
    }[kind]
    schema = ["--value-schema", str(folder / options[0]), *options[1:]]
    if kind == "protobuf":
        schema += ["--proto-path", str(folder)]
    line = {"id": 1, "item": "tea"} | ({"price": 2.5} if kind == "avro" else {})
    barnabas.ok("produce", topic, *schema, stdin=json.dumps(line) + "\n")
    assert barnabas.ok("consume", topic, "--format", "%v{hex}").out == data
    (read,) = barnabas.ok("consume", topic, *schema, "--json").lines
    assert read["value"] == ({"id": "1", "item": "tea"} if kind == "protobuf" else line)
    wrong = barnabas("produce", topic, *schema, stdin='{"id": "x"}\n')
    assert (wrong.code, "line 1: the value cannot be encoded" in wrong.err) == (1, True)


def test_consume_stops_at_a_record_without_a_known_schema_or_skips_it(
    barnabas: CommandLine, servers: str, registry: FakeRegistry, topic: str, folder: Path
) -> None:
    url, group = registry.url, unique("group")
    made = ("-s", url, "--value-schema", f"registry:{folder / 'order.avsc'}")
    barnabas.ok("produce", topic, *made, stdin='{"id": 1, "item": "a"}\n')
    barnabas.ok("produce", topic, stdin="plain\n")
    barnabas.ok("produce", topic, "--json", stdin='{"key": "gone", "value": null}\n')
    # A valid frame with the schema id 99 ("c"), which the registry does not have.
    unknown = '{"value": {"base64": "AAAAY2M="}}\n'
    barnabas.ok("produce", topic, "--json", stdin=unknown)
    stopped = barnabas("consume", topic, "-s", url, "-g", group)
    assert (stopped.code, stopped.out) == (1, '{"id": 1, "item": "a", "price": null}\n')
    assert f"{topic}-0 offset 1: the value cannot be decoded: it has no schema id" in stopped.err
    assert committed_offset(servers, group, topic) == 1
    raw = barnabas.ok("consume", topic, "-s", url, "--on-undecodable", "raw", "--json")
    assert [row["value"] for row in raw.lines][1:] == ["plain", None, "\0\0\0cc"]
    assert "2 keys and values did not fit their schema, printed undecoded" in raw.err
    skipped = barnabas.ok("consume", topic, "-s", url, "--on-undecodable", "skip", "--last", "2")
    assert skipped.out == '{"id": 1, "item": "a", "price": null}\n\n'
    last = barnabas("consume", topic, "-s", url, "--from", "3")
    assert "it has no such schema (Schema not found): was the record written with" in last.err


def test_a_transaction_is_aborted_where_a_value_does_not_fit(
    barnabas: CommandLine, registry: FakeRegistry, topic: str, folder: Path
) -> None:
    file = folder / "orders.csv"
    file.write_text(f"{CSV}3,x,dear\n")
    schema = ("-s", registry.url, "--value-schema", f"registry:{folder / 'order.avsc'}")
    run = barnabas("produce", topic, str(file), *schema, "-t", unique("load"))
    assert (run.code, run.out) == (1, "")
    assert f"{file} line 4, column 'price': 'dear' is no float" in run.err
    assert "none of them committed" in run.err
    assert barnabas.ok("consume", topic).out == ""
    file.write_text(CSV)
    done = barnabas.ok("produce", topic, str(file), *schema, "-t", unique("load"), "--json")
    assert (done.data["records"], done.data["transactions"]) == (2, 1)
    assert [
        json.loads(line)
        for line in barnabas.ok("consume", topic, "-s", registry.url).out.splitlines()
    ] == ROWS


def test_an_incompatible_schema_and_an_unknown_subject_are_errors(
    barnabas: CommandLine, registry: FakeRegistry, topic: str, folder: Path
) -> None:
    registry.incompatible.add(f"{topic}-value")
    made = ("-s", registry.url, "--value-schema", f"registry:{folder / 'order.avsc'}")
    refused = barnabas("produce", topic, *made, stdin='{"id": 1, "item": "a"}\n')
    assert (refused.code, "is not compatible with the subject's earlier ones" in refused.err) == (
        1,
        True,
    )
    missing = barnabas("produce", topic, "-s", registry.url, stdin="{}\n")
    assert "there is no such subject" in missing.err
    assert "registry:order.avsc" in missing.err
    assert barnabas.ok("consume", topic).out == ""


def test_logins_of_a_registry(
    barnabas: CommandLine, registry: FakeRegistry, topic: str, tmp_path: Path
) -> None:
    consume = ("consume", topic, "--value-schema", "registry", "--on-undecodable", "raw")
    barnabas.ok("produce", topic, "--json", stdin='{"value": {"base64": "AAAAAAFh"}}\n')
    registry.authorization = basic("alice", "a:ä")
    refused = barnabas(*consume, "-s", registry.url)
    assert refused.code == 1
    assert f"--schema-registry {registry.url}: schema 1: it refuses the login" in refused.err
    assert "basic.auth.user.info=USER:PASSWORD" in refused.err
    config = tmp_path / "client.properties"
    config.write_text(
        f"schema.registry.url={registry.url}\nbasic.auth.credentials.source=USER_INFO\n"
        "basic.auth.user.info=alice:a:ä\n"
    )
    assert barnabas.ok(*consume, "--client-config", str(config)).out.encode() == b"\0\0\0\0\1a\n"
    with_user = registry.url.replace("://", "://alice:a%3A%C3%A4@")
    assert "no such schema" in barnabas(*consume[:4], "-s", with_user).err
    registry.authorization = "Bearer t.o.k"
    config.write_text("schema.registry.bearer.auth.token=t.o.k\n")
    barnabas.ok(*consume, "-s", registry.url, "--client-config", str(config))
    assert registry.requests[-1][2] == "Bearer t.o.k"
    config.write_text("schema.registry.ssl.truststore=x\n")
    unknown = barnabas(*consume, "-s", registry.url, "--client-config", str(config))
    assert "schema.registry.ssl.truststore is unknown; use one of basic.auth" in unknown.err


def test_a_registry_with_tls(barnabas: CommandLine, topic: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    barnabas.ok("produce", topic, "--json", stdin='{"value": {"base64": "AAAAAAFh"}}\n')
    with fake_registry(context) as registry:
        url = registry.url.replace("127.0.0.1", "localhost")
        untrusted = barnabas("consume", topic, "-s", url)
        assert "its certificate is not trusted" in untrusted.err
        assert "--schema-registry-ca" in untrusted.err
        trusted = barnabas("consume", topic, "-s", url, "--schema-registry-ca", str(TLS / "ca.pem"))
        assert "it has no such schema" in trusted.err
        plain = barnabas("consume", topic, "-s", url.replace("https", "http"))
        assert (plain.code, "https:// there" in plain.err) == (1, True)


def test_a_registry_that_requires_a_certificate(
    barnabas: CommandLine, topic: str, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    context.load_verify_locations(TLS / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    barnabas.ok("produce", topic, "--json", stdin='{"value": {"base64": "AAAAAAFh"}}\n')
    config = tmp_path / "client.properties"
    with fake_registry(context) as registry:
        url = registry.url.replace("127.0.0.1", "localhost")
        consume = ("consume", topic, "-s", url, "--client-config", str(config))
        config.write_text(f"schema.registry.ssl.ca.location={TLS}/ca.pem\n")
        without = barnabas(*consume)
        assert (without.code, "requires a certificate" in without.err) == (1, True)
        assert "schema.registry.ssl.certificate.location" in without.err
        for lines in (
            f"schema.registry.ssl.certificate.location={TLS}/client.pem\n",
            f"schema.registry.ssl.certificate.location={TLS}/client-certificate.pem\n"
            f"schema.registry.ssl.key.location={TLS}/client-key-encrypted.pem\n"
            "schema.registry.ssl.key.password=secret\n",
        ):
            config.write_text(f"schema.registry.ssl.ca.location={TLS}/ca.pem\n{lines}")
            assert "it has no such schema" in barnabas(*consume).err


def test_a_registry_that_does_not_answer(
    barnabas: CommandLine, registry: FakeRegistry, topic: str
) -> None:
    barnabas.ok("produce", topic, "--json", stdin='{"value": {"base64": "AAAAAAFh"}}\n')
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        run = barnabas("consume", topic, "-s", address, "--timeout", "2")
        assert (run.code, "for 2 s (--timeout)" in run.err) == (1, True)
    run = barnabas("consume", topic, "-s", address)
    assert f"--schema-registry {address}: Connection refused: is the registry running" in run.err
    second = barnabas("consume", topic, "-s", f"{address},{registry.url}")
    assert "it has no such schema" in second.err
    missing = barnabas("consume", topic, "--value-schema", "registry")
    assert (missing.code, "pass --schema-registry http://HOST:PORT" in missing.err) == (2, True)
    wrong = barnabas("consume", topic, "-s", "localhost:8081")
    assert "'localhost:8081' is no address: write http://HOST:PORT" in wrong.err
    not_one = barnabas("consume", topic, "-s", f"{registry.url}/other")
    assert "the address may lack a path, or be no schema registry" in not_one.err
