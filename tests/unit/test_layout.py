"""The layout of the repository: what the benchmarks and the tests take from each other, and which
modules have a test of their name.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES_OF_TESTS = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
MODULES_OF_TESTS = {path.stem for path in (ROOT / "tests").glob("*.py")}


def imported_by(path: Path) -> set[str]:
    """The first names of all that a file imports, wherever in it."""
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


def test_no_tests_but_those_of_the_benchmarks_import_them() -> None:
    importing = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if "bench" in imported_by(path) and not path.name.startswith("test_bench_")
    }
    assert importing == set()
