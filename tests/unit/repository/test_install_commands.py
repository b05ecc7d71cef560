"""Install commands in documents. They use a checkout before the first release, and the package
index afterwards.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from helpers.places import ROOT

sys.path.insert(0, str(ROOT / "docs"))

from released import CHECKOUT, NOTE, documents, released

NAMED = re.compile(
    r"(?:pipx? install|uvx|pipx run) [^\n`]*?(?<![\w/.-])'?(?:\./)?barnabas(?![-\w/.])[^\n`]*"
)


def commands(text: str) -> list[str]:
    return NAMED.findall(text)


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_each_command_names_a_checkout_until_there_is_a_release(path: Path) -> None:
    text = path.read_text()
    assert [command for command in commands(text) if not CHECKOUT.search(command)] == []
    if path.suffix == ".md" and commands(text):
        assert NOTE in text, "say what ./barnabas is"


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_on_the_day_of_release_each_command_names_the_project(path: Path) -> None:
    before = path.read_text()
    after = released(before)
    assert len(commands(after)) == len(commands(before))
    assert not CHECKOUT.search(after)
    assert NOTE not in after
    assert after == before or path.suffix in (".md", ".py")
    assert released(after) == after


def test_there_are_commands_with_and_without_extras() -> None:
    found = {command for path in documents() for command in commands(path.read_text())}
    assert {"pip install ./barnabas", "pip install './barnabas[cli]'"} <= found
    assert len(found) > 6
