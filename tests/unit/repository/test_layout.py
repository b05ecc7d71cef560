"""The layout of the repository: which of its parts import which, and what is installed."""

from __future__ import annotations

import ast
import importlib
import tomllib
from pathlib import Path

import pytest
from helpers.places import ROOT
from setuptools import find_packages

PACKAGES_OF_TESTS = {
    path.name
    for folder in ("tests", "tests/tools")
    for path in (ROOT / folder).iterdir()
    if path.is_dir()
}
MODULES_OF_TESTS = {path.stem for path in (ROOT / "tests").glob("*.py")}


def imported_by(path: Path) -> set[str]:
    """The top-level names of all imports in a file, including those inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names


def test_benchmarks_import_nothing_of_the_tests() -> None:
    of_tests = (PACKAGES_OF_TESTS | MODULES_OF_TESTS | {"tests"}) - {"examples"}
    importing = {
        path.name: names
        for path in (ROOT / "bench").rglob("*.py")
        if (names := imported_by(path) & of_tests)
    }
    assert importing == {}


def test_only_tests_of_benchmarks_import_benchmarks() -> None:
    """The only exception is the torture test that runs a benchmark under observation."""
    importing = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if not path.name.startswith("test_bench_")
        and path.parent.name != "bench"
        and "bench" in path.read_text()  # most files lack the word, so they are not parsed
        and "bench" in imported_by(path)
    }
    assert importing == {"tests/tools/torture/scale.py"}


# --- installed files -----------------------------------------------------------------------------


def test_every_package_except_the_message_generator_is_installed() -> None:
    find = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    packages = find_packages(str(ROOT), find["find"]["exclude"], find["find"]["include"])
    folders = {
        path.parent.relative_to(ROOT)
        for top in ("barnabas", "broker", "coordinator", "protocol", "spark_connector", "storage")
        for path in (ROOT / top).rglob("__init__.py")
    }
    names = {
        ".".join(("barnabas", *folder.parts)).replace("barnabas.barnabas", "barnabas")
        for folder in folders
    }
    assert set(packages) == names - {"barnabas.protocol.generator"}


# --- names that programs use ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("barnabas.spark_connector.session", "MissingRequirementError"),
        ("barnabas.spark_connector.checkpoint_files", "use_quick_checkpoints"),
        ("barnabas.spark_connector.two_phase_producer", "TwoPhaseError"),
        ("barnabas.spark_connector.transactional_producer", "FencedError"),
        ("barnabas.spark_connector.numba_loops", "main"),
        ("barnabas.spark_connector.python_daemon", "run_worker"),
        ("barnabas.client.connection", "ClientError"),
    ],
)
def test_modules_that_programs_name_stay_where_they_are(module: str, name: str) -> None:
    """The documents, the examples and running sessions of Spark name them, wherever the code is."""
    pytest.importorskip("pyspark")
    assert hasattr(importlib.import_module(module), name)
