"""Runs the command line within the test's process, and returns its output and exit code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click
import pytest

from barnabas.cli.root import make_root
from barnabas.daemon.arguments import parser
from barnabas.daemon.main import main
from helpers.e2e_clients import PATIENCE_S

TOPIC = "orders"
# The commands that connect to a cluster, each with valid arguments.
VERBS: dict[str, Sequence[str]] = {
    "acl add": ("alice", "read", "topic:orders"),
    "acl list": (),
    "acl remove": ("alice", "--yes"),
    "check": (),
    "config describe": ("topic", TOPIC),
    "config set": ("topic", TOPIC, "retention.ms=5"),
    "config unset": ("topic", TOPIC, "retention.ms"),
    "consume": (TOPIC,),
    "groups delete": ("kitchen", "--yes"),
    "groups delete-offsets": ("kitchen", "-t", TOPIC, "--yes"),
    "groups describe": (),
    "groups export-offsets": ("kitchen",),
    "groups list": (),
    "groups reset-offsets": ("kitchen", "-t", TOPIC, "--to", "earliest", "--yes"),
    "produce": (TOPIC,),
    "quota list": (),
    "quota remove": ("--user", "alice", "--yes"),
    "quota set": ("--user", "alice", "producer_byte_rate=5000"),
    "records delete": (TOPIC, "--before", "latest", "--yes"),
    "share consume": (TOPIC, "--group", "kitchen"),
    "support-bundle": (),  # This command writes its file into the working directory.
    "topics alter": (TOPIC, "--config", "retention.ms=5"),
    "topics create": ("more",),
    "topics cuts": (TOPIC,),
    "topics delete": (TOPIC, "--yes"),
    "topics describe": (TOPIC,),
    "topics list": (),
    "topics offsets": (TOPIC,),
    "txn abort": (f"{TOPIC}-0", "--yes"),
    "txn commit": ("pay", "--state", "1:1", "--yes"),
    "txn describe": ("pay",),
    "txn list": (),
    "txn why-stuck": (f"{TOPIC}-0",),
    "user add": ("alice",),
    "user list": (),
    "user remove": ("alice", "--yes"),
}


class Run(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The command's output, decoded from JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The lines of the command's output, each decoded from JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class CommandLine:
    """Runs commands against the broker that `use` names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        # Hide the profiles of the user who runs the tests.
        monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def use(self, servers: str) -> CommandLine:
        """Set the broker that the commands use. Return this object."""
        self._monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", servers)
        return self

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Run:
        """Run `barnabas` with these arguments."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        self._capsys.readouterr()
        code = main(arguments)
        out, err = self._capsys.readouterr()
        return Run(code, out, err)

    def alone(self, *arguments: str) -> Run:
        """Run the command in its own process."""
        source = "import sys; from barnabas.daemon.main import main; "
        source += "sys.exit(main(sys.argv[1:]))"
        ended = subprocess.run(
            [sys.executable, "-P", "-c", source, *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Run(ended.returncode, ended.stdout, ended.stderr)

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> Run:
        """Run a command, which must exit with 0."""
        run = self(*arguments, stdin=stdin)
        assert run.code == 0, f"{arguments}: {run}"
        return run


def connecting_verbs() -> list[str]:
    """The names of all commands that connect to a cluster, such as `topics list`."""
    return list(_verbs(make_root(parser)))


def _verbs(command: click.Command, name: str = "") -> Iterator[str]:
    """The full names of all subcommands that connect to a broker. These are the ones with the
    option --profile.
    """
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from _verbs(found, f"{name} {sub}".strip())
    elif any("--profile" in option.opts for option in command.params):
        yield name
