"""The files for a release name only existing things: targets, options and Python versions."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml
from helpers.places import ROOT

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.properties import read_properties
from barnabas.cli.root import make_root
from barnabas.daemon.arguments import parser
from barnabas.daemon.configure import read_config

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
UNIT = ROOT / "packaging" / "barnabas.service"
CONTAINERFILE = ROOT / "packaging" / "Containerfile"
SETTINGS_FILE = ROOT / "packaging" / "server.properties"
COMPOSE = ROOT / "packaging" / "compose.yaml"


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_there_are_workflows_for_tests_releases_the_site_and_long_runs() -> None:
    assert [path.stem for path in WORKFLOWS] == ["release", "site", "tests", "weekly"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_exist(path: Path) -> None:
    text = path.read_text()
    called = set(re.findall(r"run: make ([a-z][a-z-]*)", text))
    called |= set(re.findall(r"- target: (\S+)", text))
    assert called or path.stem == "tests"
    assert called - make_targets() == set()
    for job in yaml.safe_load(text)["jobs"].values():
        assert "timeout-minutes" in job or "deploy" in str(job) or "publish" in str(job)


def test_releasing_names_targets_and_files_that_exist() -> None:
    text = (ROOT / "RELEASING.md").read_text()
    called = set(re.findall(r"`make ([a-z][a-z-]*)", text))
    assert called >= {"dist", "check"}
    assert called - make_targets() == set()
    for path in re.findall(r"`((?:docs|barnabas|packaging|\.github)/[\w./*-]+)`", text):
        assert list(ROOT.glob(path)), path


def options_of(command: str) -> list[str]:
    program, *arguments = shlex.split(command)
    assert program.rpartition("/")[2] == "barnabas"
    return arguments


def test_the_commands_of_the_unit_and_of_the_image_are_understood() -> None:
    (command,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    options = parser().parse_args(options_of(command))
    assert (options.command, options.data_dir) == ("start", "/var/lib/barnabas")
    text = CONTAINERFILE.read_text()
    (entry,), (default,) = (
        re.findall(rf"^{what} (\[.*\])$", text, re.MULTILINE) for what in ("ENTRYPOINT", "CMD")
    )
    program, *arguments = (*yaml.safe_load(entry), *yaml.safe_load(default))
    assert program == "barnabas"
    assert parser().parse_args(arguments).data_dir == "/data"


def test_the_settings_file_of_the_unit_is_taken_with_every_line_in_force() -> None:
    """The lines that are commented out are examples: they have to be right as well."""
    text = SETTINGS_FILE.read_text()
    for lines in (text, re.sub(r"^#(?=[a-z.]+=)", "", text, flags=re.MULTILINE)):
        config = BrokerConfig.from_properties(read_properties(lines))
        assert config.barnabas_console_port == 9080
    assert [listener.endpoint.port for listener in config.listeners] == [9092]
    assert "server.properties /etc/barnabas/server.properties" in UNIT.read_text()


def test_the_compose_file_starts_a_broker_and_checks_it() -> None:
    service = yaml.safe_load(COMPOSE.read_text())["services"]["barnabas"]
    assert (COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    options = parser().parse_args(service["command"])
    config = read_config(options)
    addresses = [(one.name, one.endpoint.host, one.endpoint.port) for one in config.listeners]
    assert addresses == [("HOST", "0.0.0.0", 9092), ("CONTAINERS", "0.0.0.0", 29092)]
    program, *words = service["healthcheck"]["test"][1:]
    assert program == "barnabas"
    root = make_root(parser)
    command = root.get_command(click.Context(root), words[0])
    assert command is not None
    assert command.make_context(words[0], words[1:]).params["address"] == "127.0.0.1:29092"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    here = tmp_path / UNIT.name
    here.write_text(
        UNIT.read_text().replace("/opt/barnabas/bin/barnabas", shutil.which("true") or "")
    )
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(here)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, "")
