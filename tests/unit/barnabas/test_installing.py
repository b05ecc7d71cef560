"""The install command in hints adds extras to the installed Barnabas. It uses the same source from
which Barnabas was installed.
"""

from __future__ import annotations

import json
import shlex
from importlib import metadata
from typing import Any

import pytest
from packaging.requirements import Requirement

from barnabas.installing import install_command


class Installed:
    """A distribution that pip installed from `origin`."""

    def __init__(self, origin: dict[str, Any] | None) -> None:
        self._origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._origin is None else json.dumps(self._origin)


def arguments_where(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, *extras: str
) -> list[str]:
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(origin))
    pip, install, *arguments = shlex.split(install_command(*extras))
    assert (pip, install) == ("pip", "install")
    return arguments


def test_from_an_index_the_project_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arguments_where(monkeypatch, None, "cli", "tls") == ["barnabas[cli,tls]"]
    assert arguments_where(monkeypatch, None) == ["barnabas"]


@pytest.mark.parametrize(
    ("url", "info"),
    [
        ("file:///home/x/my%20wheels/barnabas-0.1.0-py3-none-any.whl", {"archive_info": {}}),
        ("file:///home/x/barnabas", {"dir_info": {}}),
    ],
)
def test_from_a_file_or_a_folder_that_one_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, info: dict[str, Any]
) -> None:
    (argument,) = arguments_where(monkeypatch, {"url": url, **info}, "cli")
    requirement = Requirement(argument)
    assert (requirement.name, requirement.extras, requirement.url) == ("barnabas", {"cli"}, url)


def test_an_editable_checkout_stays_editable(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = {"url": "file:///home/x/my%20work/barnabas", "dir_info": {"editable": True}}
    assert arguments_where(monkeypatch, origin, "metrics") == [
        "--editable",
        "/home/x/my work/barnabas[metrics]",
    ]
    assert arguments_where(monkeypatch, origin) == ["--editable", "/home/x/my work/barnabas"]


def test_what_is_not_installed_names_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("cli") == "pip install 'barnabas[cli]'"
