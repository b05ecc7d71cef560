"""`barnabas user`: users on a broker that requires authentication."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine

from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(users={"admin": "admin-secret"}) as broker:
        yield broker


def test_users_are_added_get_another_password_and_are_removed(
    broker: LocalBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    barnabas = CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)

    def as_user(name: str, password: str, mechanism: str) -> tuple[str, ...]:
        file = tmp_path / f"{name}.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.username={name}\nsasl.password={password}\n"
        )
        return ("--client-config", str(file))

    admin = as_user("admin", "admin-secret", "PLAIN")
    assert "no users" in barnabas.ok("user", "list", *admin).err
    added = barnabas.ok(
        "user", "add", "alice", *admin, stdin="her secret\nthe second line is ignored\n"
    )
    assert added.out == "alice: may log in by SCRAM-SHA-512\n"
    barnabas.ok("topics", "list", *as_user("alice", "her secret", "SCRAM-SHA-512"))

    other = tmp_path / "other"
    other.write_text("another-secret\n")
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512")
    barnabas.ok(
        *("user", "add", "alice", *both, "--password-file", str(other), "--iterations", "5000"),
        *admin,
    )
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        barnabas.ok("topics", "list", *as_user("alice", "another-secret", mechanism))
    listed = barnabas.ok("user", "list", "--json", *admin).data
    assert listed == [
        {"user": "alice", "mechanism": mechanism, "iterations": 5000}
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    old = as_user("alice", "her secret", "SCRAM-SHA-512")
    assert barnabas.alone("topics", "list", *old, "--timeout", "3").code == 1

    assert barnabas("user", "remove", "alice", *admin).code == 2, "it asks for --yes"
    gone = barnabas.ok("user", "remove", "alice", "--yes", *admin)
    assert gone.out.count("may no longer log in") == 2
    missing = barnabas("user", "remove", "alice", "--yes", *admin)
    assert (missing.code, missing.err.count("\n")) == (1, 1)
    assert barnabas("user", "list", "alice", *admin).code == 1
    assert "secret" not in "".join(broker.output)


def test_a_password_must_not_be_empty_nor_an_argument(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    barnabas = CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)
    assert "is empty" in barnabas("user", "add", "alice", stdin="\n").err
    assert barnabas("user", "add", "alice", "secret").code == 2
