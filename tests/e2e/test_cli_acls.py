"""`barnabas acl`: who may do what, on a broker that asks; clients without leave get nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine, connecting_verbs

from barnabas.cli.denied import NEEDS
from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e
SETTINGS = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    settings = {**SETTINGS, "barnabas.audit.log": str(tmp_path / "audit.log")}
    with LocalBroker(users={"admin": "secret", "alice": "secret"}, settings=settings) as broker:
        yield broker


def test_acls_come_hold_and_go(
    broker: LocalBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    barnabas = CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)

    admin, alice = _as_user(tmp_path, "admin"), _as_user(tmp_path, "alice")
    assert "no ACLs" in barnabas.ok("acl", "list", *admin).err
    barnabas.ok("topics", "create", "orders-1", *admin)
    assert barnabas.ok("topics", "list", "--json", *alice).data == []
    refused = barnabas("acl", "list", *alice)
    assert refused.code == 1 and "acl add alice describe cluster" in refused.err

    added = barnabas.ok("acl", "add", "alice", "read,write", "topic:orders-*", "--json", *admin)
    allowed = {
        "principal": "User:alice", "permission": "allow", "resource": "topic:orders-*", "host": "*",
    }  # fmt: skip
    assert added.data == [{**allowed, "operation": one} for one in ("read", "write")]
    assert [row["topic"] for row in barnabas.ok("topics", "list", "--json", *alice).data] == [
        "orders-1"
    ]
    barnabas.ok("produce", "orders-1", *alice, stdin="hello\n")

    barnabas.ok("acl", "add", "*", "all", "topic:orders-1", "--deny", *admin)
    found = barnabas.ok("acl", "list", "--for", "topic:orders-1", "--json", *admin).data
    assert [row["permission"] for row in found] == ["deny", "allow", "allow"]
    assert barnabas.ok("topics", "list", "--json", *alice).data == []
    assert barnabas("acl", "remove", "*", *admin).code == 2, "it asks for --yes"
    barnabas.ok("acl", "remove", "*", "--yes", *admin)

    gone = barnabas.ok("acl", "remove", "alice", "write", "topic:orders-*", "--yes", *admin)
    assert gone.out.count("User:alice") == 1
    left = barnabas.ok("acl", "list", "alice", "--json", *admin).data
    assert left == [{**allowed, "operation": "read"}]
    missing = barnabas("acl", "remove", "ben", "--yes", *admin)
    assert (missing.code, missing.err) == (1, "barnabas: User:ben has no such ACL\n")
    wrong = barnabas("acl", "add", "ben", "read", "orders", *admin)
    assert wrong.code == 2 and "is not a resource" in wrong.err
    assert barnabas("acl", "add", "ben", "reed", "topic:x", *admin).code == 2
    (tmp_path / "alice.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        "sasl.password=wrong\n"
    )
    refused = barnabas.alone("topics", "list", *alice, "--timeout", "8")
    assert refused.code == 1
    assert "the user or the password is wrong" in refused.err
    assert "see sasl.username and sasl.password" in refused.err
    check_audit_log(tmp_path / "audit.log")


def check_audit_log(path: Path) -> None:
    """Who was refused, and who changed ACLs, is in it."""
    reported = [
        (line["principal"], line["request"], line["operation"], line["resource_name"])
        for line in map(json.loads, path.read_text().splitlines())
        if not line["allowed"] or line["request"] == "DeleteAcls"
    ]
    assert ("User:alice", "DescribeAcls", "DESCRIBE", "kafka-cluster") in reported
    assert ("User:ANONYMOUS", "SaslAuthenticate", "AUTHENTICATE", "SASL_PLAINTEXT") in reported
    assert reported.count(("User:admin", "DeleteAcls", "ALTER", "kafka-cluster")) == 3


DENIED = {
    "config set": ("topic", "orders", "retention.ms=5"),
    "config describe": ("topic", "orders"),
    "consume": ("orders",),
    "groups delete": ("kitchen", "--yes"),
    "groups describe": ("kitchen",),
    "produce": ("orders",),
    "produce -t": ("orders", "-t", "load"),
    "quota list": (),
    "quota set": ("--user", "alice", "producer_byte_rate=5000"),
    "topics alter": ("orders", "--partitions", "9"),
    "topics create": ("more",),
    "topics delete": ("orders", "--yes"),
    "user list": (),
    "acl list": (),
    "acl add": ("ben", "read", "topic:orders"),
}


def test_a_refusal_names_the_command_that_allows_it(
    broker: LocalBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each command of a user without rights is allowed step by step, as its error says."""
    barnabas = CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)
    admin, alice = _as_user(tmp_path, "admin"), _as_user(tmp_path, "alice")
    for name, rest in DENIED.items():
        barnabas.ok("topics", "create", "orders", "--if-not-exists", *admin)
        barnabas.ok("produce", "orders", *admin, stdin="coffee\n")
        barnabas.ok("acl", "add", "alice", "describe", "topic:orders", *admin)
        _allow_as_said(barnabas, (*name.removesuffix(" -t").split(), *rest, *alice), admin)
        barnabas.ok("acl", "remove", "alice", "--yes", *admin)


def _allow_as_said(barnabas: CommandLine, command: tuple[str, ...], admin: tuple[str, ...]) -> None:
    said: list[str] = []
    while "barnabas acl add alice " in (done := barnabas(*command, stdin="coffee\n")).err:
        assert "User:alice may not " in done.err
        assert done.err not in said, f"it is refused though that is allowed: {done.err}"
        said.append(done.err)
        _, *words = done.err.partition("`barnabas ")[2].partition("`")[0].split()
        barnabas.ok("acl", *words, *admin)
    assert said, f"{command} was not refused, or the error names no ACL: {done}"
    assert "uthoriz" not in done.err, done


def test_every_verb_that_connects_says_what_it_needs() -> None:
    assert sorted(NEEDS) == sorted(connecting_verbs())


def _as_user(directory: Path, name: str) -> tuple[str, ...]:
    file = directory / f"{name}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={name}\n"
        "sasl.password=secret\n"
    )
    return ("--client-config", str(file))
