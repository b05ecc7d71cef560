"""The Makefile. Each target has a line of help, and each target that a document names exists."""

from __future__ import annotations

import os
import re
import subprocess

from helpers.places import ROOT

TEXT = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z][a-z-]*):", TEXT, re.MULTILINE)


def make(*arguments: str) -> str:
    # Leave out the variables of an outer make, such as `make test`.
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_each_target_has_its_line_in_a_group() -> None:
    described = re.findall(r"^([a-z-]+):[^\n]*[^#\n]## \S", TEXT, re.MULTILINE)
    assert TARGETS
    assert described == TARGETS
    before_groups = TEXT.partition("\n##@ ")[0]
    assert re.findall(r"^([a-z-]+):", before_groups, re.MULTILINE) == ["help"]


def test_help_lists_every_target_and_group_within_the_width_of_a_line() -> None:
    lines = make("help").splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == TARGETS
    groups = re.findall(r"^##@ (.+)$", TEXT, re.MULTILINE)
    assert [line for line in lines if line and not line.startswith("  ")] == groups
    assert max(map(len, lines)) <= 100


def test_no_target_is_taken_for_a_file() -> None:
    """Otherwise make would take the folder `docs` or `bench` for the target, consider it up to
    date, and do nothing.
    """
    (phony,) = re.findall(r"^\.PHONY: (.*)$", make("-pn", "help"), re.MULTILINE)
    assert phony.split() == TARGETS


def test_targets_that_texts_name_exist() -> None:
    files = subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    named = {
        (name, file)
        for file in files
        if (ROOT / file).is_file()
        for name in re.findall(r"`make ([a-z][a-z-]*)", (ROOT / file).read_text())
    }
    assert len(named) > 10
    assert {(name, file) for name, file in named if name not in TARGETS} == set()
