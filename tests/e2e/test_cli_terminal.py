"""Each command on a terminal, while a stranger has chosen the names of everything."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from helpers.cli_commands import TOPIC, VERBS
from helpers.e2e_clients import eventually

from barnabas import LocalBroker
from barnabas.daemon.main import main

pytestmark = pytest.mark.e2e

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b2J\u202e"
OF_RICH = re.compile(r"\x1b\[([0-9;]*m|\?25[lh]|2K|1A)|\r")  # colours, and progress bars
CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
CHANGES = ("delete", "remove", "alter", "abort", "commit", "reset-offsets", "unset")


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def hostile() -> Iterator[LocalBroker]:
    """A broker with hostile names: of groups, clients, transactional ids, users, principals; and
    with a hostile key, value, header, and metadata of a commit.
    """
    settings = {
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "group.initial.rebalance.delay.ms": 0,
    }
    with LocalBroker(topics=[TOPIC], settings=settings) as broker:
        server = {"bootstrap.servers": broker.bootstrap_servers, "client.id": f"client{EVIL}"}
        owner = Producer({**server, "transactional.id": f"pay{EVIL}"})
        owner.init_transactions(20)
        owner.begin_transaction()
        owner.produce(TOPIC, f"value{EVIL}", f"key{EVIL}", headers=[(f"h{EVIL}", EVIL.encode())])
        owner.flush(20)
        members = []
        for protocol in ({}, {"group.protocol": "consumer"}):
            group = f"kitchen{EVIL}{''.join(protocol)}"
            member = Consumer({**server, **protocol, "group.id": group})
            member.subscribe([TOPIC])
            eventually(
                lambda member=member: member.poll(0.1) or member.assignment(), what="assignment"
            )
            members.append(member)
        past = Consumer({**server, "group.id": f"past{EVIL}"})
        place = TopicPartition(TOPIC, 0, 0, f"metadata{EVIL}")
        past.commit(offsets=[place], asynchronous=False)
        for command in (
            ("acl", "add", f"alice{EVIL}", "read", f"group:kitchen{EVIL}"),
            ("quota", "set", "--user", f"alice{EVIL}", "producer_byte_rate=5000"),
        ):
            assert main([*command, "-b", broker.bootstrap_servers]) == 0
        yield broker
        for member in [*members, past]:
            member.close()


def arguments(verb: str) -> list[str]:
    """Valid arguments of a command, with hostile names."""
    names = {"kitchen": f"kitchen{EVIL}", "pay": f"pay{EVIL}", "alice": f"alice{EVIL}"}
    more = ["--isolation-level", "read_uncommitted"] if verb == "consume" else []
    more += ["--idle", "0.1"] if verb == "share consume" else []
    return [*verb.split(), *(names.get(one, one) for one in VERBS[verb]), *more]


# those that change something come last
ORDERED = sorted(VERBS, key=lambda verb: any(change in verb for change in CHANGES))


def test_raw_records_are_asked_for_by_name(
    hostile: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    server = ["-b", hostile.bootstrap_servers]
    main(["consume", TOPIC, "--isolation-level", "read_uncommitted", "--raw", *server])
    assert isinstance(screen.buffer, io.BytesIO)
    assert f"value{EVIL}\n".encode() in screen.buffer.getvalue()


def test_no_command_writes_a_control_character_of_others(
    hostile: LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", hostile.bootstrap_servers)
    calls = [arguments(verb) for verb in ORDERED]
    calls += [
        ["consume", TOPIC, "--isolation-level", "read_uncommitted", *more]
        for more in (["-K", "="], ["--json"], ["--format", "%k %v %h\\n"])
    ]
    calls += [["groups", "describe", f"past{EVIL}"], ["groups", "describe", f"none{EVIL}"]]
    calls += [["groups", "list", "--json"], ["topics", "describe", f"none{EVIL}"]]
    calls += [[EVIL], ["topics", EVIL], ["topics", "list", f"--{EVIL}"]]
    hostile_outputs = 0
    for call in calls:
        screen = Terminal()
        monkeypatch.setattr(sys, "stdout", screen)
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"pass word\n")))
        main(call)
        sys.stdout.flush()
        assert isinstance(screen.buffer, io.BytesIO)
        text = OF_RICH.sub("", screen.buffer.getvalue().decode())
        assert not CONTROLS.search(text), (call, text)
        hostile_outputs += r"\x1b]52;c;ZXZpbA==" in text
    assert hostile_outputs >= 15, "the names were not printed: this test proves nothing"
