"""`barnabas acl`: ACLs are added and listed on a broker with an authorizer, which refuses clients
that lack rights.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli_commands import TOPIC, VERBS, CommandLine, connecting_verbs

from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e
SETTINGS = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    settings = {**SETTINGS, "barnabas.audit.log": str(tmp_path / "audit.log")}
    with LocalBroker(users={"admin": "secret", "alice": "secret"}, settings=settings) as broker:
        yield broker


def test_acls_are_added_enforced_and_removed(
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
    """Check that the audit log has the refused requests and the changes of ACLs."""
    reported = [
        (line["principal"], line["request"], line["operation"], line["resource_name"])
        for line in map(json.loads, path.read_text().splitlines())
        if not line["allowed"] or line["request"] == "DeleteAcls"
    ]
    assert ("User:alice", "DescribeAcls", "DESCRIBE", "kafka-cluster") in reported
    assert ("User:ANONYMOUS", "SaslAuthenticate", "AUTHENTICATE", "SASL_PLAINTEXT") in reported
    assert reported.count(("User:admin", "DeleteAcls", "ALTER", "kafka-cluster")) == 3


# No refusal is reported for these commands, since the response leaves out forbidden topics.
FILTERED = ("topics list", "groups list", "txn list")
OTHER_WAYS: dict[str, tuple[str, ...]] = {
    "check --read-only": ("check", "--read-only"),
    "consume --group": ("consume", TOPIC, "--group", "kitchen"),
    "groups describe NAME": ("groups", "describe", "kitchen"),
    "produce -t": ("produce", TOPIC, "-t", "load"),
    "topics describe, all": ("topics", "describe"),
    "txn abort -t": ("txn", "abort", "--transactional-id", "pay", "--yes"),
    "txn why-stuck, all": ("txn", "why-stuck"),
}
SHOWS_NOTHING = (
    "groups describe",
    "topics describe, all",
    "txn why-stuck, all",
)
MORE = {"share consume": ("--idle", "0.2"), "topics alter": ("--partitions", "9")}
COMMANDS: dict[str, tuple[str, ...]] = {
    name: (*name.split(), *rest, *MORE.get(name, ())) for name, rest in VERBS.items()
} | OTHER_WAYS


def test_a_refusal_of_every_verb_names_the_command_that_allows_it(
    broker: LocalBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A user without ACLs gets them one by one, with the commands that the errors name."""
    barnabas = CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)
    admin, alice = _as_user(tmp_path, "admin"), _as_user(tmp_path, "alice")
    bundle = tmp_path / "bundle.zip"
    barnabas.ok("topics", "create", TOPIC, *admin)
    barnabas.ok("produce", TOPIC, "-t", "pay", *admin, stdin="coffee\n")
    for name, words in COMMANDS.items():
        barnabas.ok("topics", "create", TOPIC, "--if-not-exists", *admin)
        barnabas.ok("produce", TOPIC, *admin, stdin="coffee\n")
        barnabas.ok("consume", TOPIC, "--group", "kitchen", *admin)
        if name == "support-bundle":
            words = ("support-bundle", "-o", str(bundle))
        said = _allow_as_the_error_says(barnabas, (*words, *alice), admin, bundle)
        assert bool(said) != (name in FILTERED + SHOWS_NOTHING), (
            f"{name}: {said}; a command that is never refused, since its answer leaves out what "
            "the user may not see, belongs in FILTERED"
        )
        barnabas("acl", "remove", "alice", "--yes", *admin)
    lines = [line for line in broker.output if "User:alice at 127.0.0.1 may not " in line]
    assert lines, "the broker's log says it from its side"
    assert "`barnabas acl add alice " in lines[0]
    assert len(lines) <= 20, "once a minute"


@pytest.mark.parametrize("more", [(), ("--transactional-id", "load")])
def test_a_refused_topic_that_does_not_exist_names_the_right_to_create_it(
    broker: LocalBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
) -> None:
    """`produce` creates a missing topic. Once the user has the ACL to write, the error names the
    ACL to create topics.
    """
    barnabas = CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)
    admin, alice = _as_user(tmp_path, "admin"), _as_user(tmp_path, "alice")
    topic = f"new-{len(more)}"
    command = ("produce", topic, *more, *alice)
    said = _allow_as_the_error_says(barnabas, command, admin, tmp_path / "none")
    operations = [words[2] for words in said if words[3] == f"topic:{topic}"]
    assert operations == ["write", "create"]
    assert barnabas.ok("consume", topic, *admin).out == "coffee\n"
    barnabas("acl", "remove", "alice", "--yes", *admin)


def _allow_as_the_error_says(
    barnabas: CommandLine, command: tuple[str, ...], admin: tuple[str, ...], bundle: Path
) -> list[list[str]]:
    """Run a command and add the ACL that its error names, until the command is not refused. Gives:
    the errors.
    """
    said: list[list[str]] = []
    while True:
        bundle.unlink(missing_ok=True)
        done = barnabas(*command, stdin="coffee\n")
        text = done.err + done.out
        if "`barnabas acl add alice " not in text:
            assert "uthoriz" not in text, f"{command}: {done}"
            return said
        _, *words = shlex.split(text.partition("`barnabas ")[2].partition("`")[0])
        _, _, operation, resource = words
        assert f"User:alice may not {operation} {resource}: " in text
        assert "," not in operation, f"one operation is named: {done}"
        assert not resource.endswith(":*"), f"the resource is named: {done}"
        assert words not in said, f"{command} is refused though that is allowed: {done}"
        said.append(words)
        barnabas.ok("acl", *words, *admin)


def test_every_verb_that_connects_is_in_the_table() -> None:
    assert sorted(VERBS) == sorted(connecting_verbs()), (
        "each verb has a row in VERBS of tests/helpers/cli_commands.py"
    )


def _as_user(directory: Path, name: str) -> tuple[str, ...]:
    file = directory / f"{name}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={name}\n"
        "sasl.password=secret\n"
    )
    return ("--client-config", str(file))
