"""All names in the documents exist: files, make targets, tests, settings and metrics."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from helpers.places import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "spark_connector" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LEFT_OUT = {".git", ".venv", ".clients", "build", "data"}
KAFKA_OR_SPARK = {"sbin/start-master.sh", "sbin/start-worker.sh"}


def files() -> set[str]:
    found = set()
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        found |= {Path(folder, name).relative_to(ROOT).as_posix() for name in names}
    return found


FILES = files()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
TESTS = {
    name
    for path in FILES
    if path.startswith(("tests/", "examples/")) and path.endswith(".py")
    for name in re.findall(r"def (test_\w+)", (ROOT / path).read_text("utf-8"))
}
SETTINGS = set(
    re.findall(r"^\| `([\w.]+)`", (ROOT / "docs" / "CONFIGURATION.md").read_text(), re.M)
)
METRICS = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "METRICS.md").read_text(), re.M))


CONSTANTS = {
    name
    for path in FILES
    if path.endswith(".py") and "fixtures" not in path
    for name in re.findall(
        r"^ *([A-Z][A-Z0-9_]+)\b[^=\n]*=", (ROOT / path).read_text("utf-8"), re.M
    )
}


def is_file(name: str, page: Path) -> bool:
    """Whether there is such a file. `*` and `<family>` are for any part of a name."""
    pattern = re.sub(r"<\w+>", "*", name)
    if "*" in pattern:
        return any(fnmatch(f"/{path}", f"*/{pattern}") for path in FILES)
    beside = os.path.normpath(page.parent / name)
    return Path(beside).exists() or any(f"/{path}".endswith(f"/{name}") for path in FILES)


def ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_the_files_and_targets_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    named = set(re.findall(r"`([\w.*<>-]+/[\w./*<>-]+\.(?:py|md|toml|sh|java|js))`", text))
    assert {name for name in named - KAFKA_OR_SPARK if not is_file(name, page)} == set()
    assert set(re.findall(r"`make\s([a-z][a-z-]+)", text)) <= TARGETS


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_the_tests_settings_and_metrics_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    tests = set(re.findall(r"`(test_\w+)`", text))
    assert {
        name for name in tests if name not in TESTS and not is_file(f"{name}.py", page)
    } == set()
    assert set(re.findall(r"`(barnabas_\w+_(?:total|seconds|bytes|sync|lag))`", text)) <= METRICS
    assert set(re.findall(r"`(barnabas\.[\w.]+)=", text)) <= SETTINGS


def test_each_step_of_the_paths_through_the_code_is_a_function_of_its_file() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (`.*?`[^|]*) \|", text, re.MULTILINE)
    missing = [
        (file, name)
        for file, steps in rows
        for name in re.findall(r"`(\w+)`", steps)
        if f"def {name}(" not in (ROOT / file).read_text("utf-8")
    ]
    assert (len(rows) > 30, missing) == (True, [])


def test_the_tables_that_the_recipes_name_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    recipes = text[text.index("## Recipes") :]
    named = set(re.findall(r"(?<![\w.])[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|`[A-Z][A-Z0-9]+`", recipes))
    assert {name.strip("`") for name in named} - CONSTANTS == set()


def test_the_sets_of_existing_names_are_not_empty() -> None:
    """Otherwise the tests above would compare empty sets."""
    assert len(TARGETS) > 20
    assert len(TESTS) > 1000
    assert len(CONSTANTS) > 1000
    assert "barnabas.metrics.port" in SETTINGS
    assert "barnabas_group_lag" in METRICS
