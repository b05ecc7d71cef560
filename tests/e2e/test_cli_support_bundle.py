"""`barnabas support-bundle`: what a bundle contains, and that it has no secrets."""

from __future__ import annotations

import base64
import json
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine
from helpers.ports import refusing_port

from barnabas.cli.support_bundle import REMOVED, Cleaner
from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e

PASSWORD = "open-sesame-4711"
LOG_SECRETS = {
    "a setting": ("sasl.password=hunter2-in-a-setting", "hunter2-in-a-setting"),
    "JAAS": ('LoginModule required username="a" password="hunter2-in-jaas";', "hunter2-in-jaas"),
    "JSON": ('{"client_secret": "hunter2-in-json", "x": 1}', "hunter2-in-json"),
    "a URL": ("GET http://admin:hunter2-in-url@host/x", "hunter2-in-url"),
    "a header": ("Authorization: Bearer hunter2-in-a-header", "hunter2-in-a-header"),
    "a token": ("refused eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln of a", "eyJzdWIiOiJhIn0"),
    "the client's": (f"refused {PASSWORD} of alice", PASSWORD),
    "PEM": (
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2InPem\n-----END RSA PRIVATE KEY-----",
        "hunter2InPem",
    ),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(users={"alice": PASSWORD}, topics=["orders"]) as broker:
        yield broker


@pytest.fixture
def barnabas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def _members(file: Path) -> dict[str, str]:
    """The text of each file in a bundle, by name."""
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def _secured(tmp_path: Path) -> tuple[str, str]:
    """The option with the settings of a user's login."""
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        f"sasl.password={PASSWORD}\n"
    )
    return ("--client-config", str(file))


def test_a_bundle_of_a_secured_broker_has_no_secret(
    barnabas: CommandLine, broker: LocalBroker, tmp_path: Path
) -> None:
    barnabas.use(broker.bootstrap_servers)
    secured = _secured(tmp_path)
    barnabas.ok("produce", "orders", *secured, stdin="a record that is private\n")
    barnabas.ok("consume", "orders", "--group", "kitchen", *secured)
    log = tmp_path / "barnabas.log"
    log.write_text("\n".join(["the first line", *(line for line, _ in LOG_SECRETS.values())]))
    data = tmp_path / "data"
    (data / "orders-0").mkdir(parents=True)
    (data / "orders-0" / "0.log").write_text("content of a file")
    bundle = tmp_path / "bundle.zip"
    more = ("--log", str(log), "--log", "-", "--data-dir", str(data), "-o", str(bundle), "--json")
    made = barnabas.ok("support-bundle", *secured, *more, stdin="from standard input\n").data
    assert made["errors"] == []
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    members = _members(bundle)
    assert sorted(members) == sorted(made["parts"])
    everything = "\n".join(members.values())
    secrets = [PASSWORD, *(secret for _, secret in LOG_SECRETS.values())]
    for secret in secrets:
        assert secret not in everything
        assert base64.b64encode(secret.encode()).decode() not in everything
    assert "that is private" not in everything, "no record is in it"
    assert "content of a file" not in everything

    assert json.loads(members["client.json"])["settings"] == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": REMOVED,
    }
    (topic,) = [row for row in json.loads(members["topics.json"]) if row["topic"] == "orders"]
    assert topic["partitions"][0]["high_watermark"] == 1
    (group,) = json.loads(members["groups.json"])
    assert (group["group"], group["status"]) == ("kitchen", "up to date")
    assert json.loads(members["cluster.json"])["brokers"][0]["port"] == broker.port
    assert json.loads(members["settings.json"])["1"]["num.partitions"]["value"] == "1"
    assert json.loads(members["transactions.json"])["stuck"] == []
    assert "the first line" in members["logs/1-barnabas.log.txt"]
    assert members["logs/2-standard-input.txt"] == "from standard input\n"
    assert "orders-0/0.log" in members["directory.txt"]
    again = barnabas("support-bundle", *secured, "-o", str(bundle))
    assert (again.code, "exists" in again.err) == (1, True), "no file is overwritten"


def test_the_last_lines_of_a_log_and_metrics(
    barnabas: CommandLine, broker: LocalBroker, tmp_path: Path
) -> None:
    barnabas.use(broker.bootstrap_servers)
    log, bundle = tmp_path / "a.log", tmp_path / "bundle.zip"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    wrong = ("--metrics", "ftp://127.0.0.1/x")
    where = ("--log", str(log), "--lines", "2", "-o", str(bundle), *wrong)
    made = barnabas("support-bundle", *_secured(tmp_path), *where)
    assert made.code == 1
    assert "is not an address of metrics" in made.err
    members = _members(bundle)
    assert members["logs/1-a.log.txt"] == "line 98\nline 99\n"
    assert "metrics/1.txt" in members["errors.txt"]
    assert "topics.json" in members


def test_a_bundle_is_made_where_no_broker_answers(barnabas: CommandLine, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.zip"
    with refusing_port() as port:
        made = barnabas("support-bundle", "-b", f"127.0.0.1:{port}", "-o", str(bundle))
    assert (made.code, "no broker at" in made.err) == (1, True)
    members = _members(bundle)
    assert set(members) == {"client.json", "versions.json", "errors.txt"}


@pytest.mark.parametrize("name", LOG_SECRETS)
def test_secrets_in_log_lines_are_removed(name: str) -> None:
    line, secret = LOG_SECRETS[name]
    cleaned = Cleaner([PASSWORD]).text(f"before {line} behind")
    assert secret not in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" behind")


def test_what_is_no_secret_stays() -> None:
    text = "2026-11-26 INFO listens on 127.0.0.1:9092; topic orders-0 at offset 42, key=a"
    assert Cleaner([]).text(text) == text
