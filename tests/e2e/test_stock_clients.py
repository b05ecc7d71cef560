"""Clients for other languages against the daemon, with the programs in tests/clients.

The clients are in `.clients/`, into which `make clients` installs as many as the machine allows. A
test is skipped if its client is missing. docs/COMPATIBILITY.md has the number of steps of each
program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.scrapes import logins_at
from helpers.tokens import AUDIENCE, Issuer

from barnabas.local_broker import LocalBroker

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / ".clients"
PROGRAMS = ROOT / "tests" / "clients"
PAGE = (ROOT / "docs" / "COMPATIBILITY.md").read_text("utf-8")


def steps(program: str) -> int:
    """The number of the program's steps, according to docs/COMPATIBILITY.md."""
    (number,) = re.findall(rf"\[(\d+) steps\]\(\.\./tests/clients/{re.escape(program)}\)", PAGE)
    return int(number)


def run(program: str, *command: str, **environment: str) -> None:
    """Run a program against a new broker; each of its steps must succeed."""
    with LocalBroker() as broker:
        done = subprocess.run(
            [*command, str(PROGRAMS / program), broker.bootstrap_servers],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
    said = done.stdout + done.stderr
    assert f"{steps(program)} steps passed" in said and "FAILED" not in said, said


def needs(is_there: bool, what: str) -> None:
    if not is_there:
        pytest.skip(f"{what} is not on this machine (`make clients` fetches what it can)")


@pytest.mark.parametrize(
    ("program", "module"),
    [("kafkajs.js", "kafkajs"), ("platformatic.js", "@platformatic/kafka")],
)
def test_node(program: str, module: str) -> None:
    modules = CLIENTS / "node" / "node_modules"
    needs(shutil.which("node") is not None and (modules / module).exists(), module)
    run(program, "node", NODE_PATH=str(modules))


@pytest.mark.parametrize(("tls", "expected"), [(True, 10), (False, 9)])
def test_kafkajs_logs_in_by_each_mechanism_and_is_refused_with_wrong_secrets(
    tmp_path: Path, tls: bool, expected: int
) -> None:
    modules = CLIENTS / "node" / "node_modules"
    needs(shutil.which("node") is not None and (modules / "kafkajs").exists(), "kafkajs")
    issuer = Issuer()
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write(tmp_path / "jwks"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "connection.failed.authentication.delay.ms": "1",
        "barnabas.metrics.port": "0",
    }
    users = {"alice": "her-secret"}
    with LocalBroker(users=users, tls=tls, settings=settings, topics=["t"]) as broker:
        done = subprocess.run(
            ["node", str(PROGRAMS / "kafkajs_secured.js"), broker.bootstrap_servers,
             broker.ca_file if tls else "-", issuer.token(), Issuer().token()],
            env={**os.environ, "NODE_PATH": str(modules)},
            capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        logins = logins_at(broker)
        assert {mechanism: failed for mechanism, (_, failed) in logins.items()} == {
            "PLAIN": 1, "SCRAM-SHA-256": 1, "SCRAM-SHA-512": 1, "OAUTHBEARER": 1, "none": 0
        }, logins  # fmt: skip
    assert done.stdout == f"{expected} steps passed\n", done.stdout + done.stderr


def test_java() -> None:
    libraries = CLIENTS / "java"
    needs(shutil.which("java") is not None and any(libraries.glob("*.jar")), "Java's client")
    run("Steps.java", "java", "-cp", f"{libraries}/*")
