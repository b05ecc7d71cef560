"""Mutants that were written by hand. Each is a mistake that a programmer could make, such as two
steps in the wrong order, a missing flush, stale state or a forgotten case, with the tests that find
it.

`by_hand.toml` is the table. `python -m mutants.by_hand` plants the mutants one by one in a copy of
the product, and runs the tests of each there, which must fail. A row whose code or tests no longer
exist is reported, so no other test needs to read the table.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mutants.mutations import change_of

ROOT = Path(__file__).resolve().parents[3]
TABLE = Path(__file__).with_suffix(".toml")
PRODUCT = ("barnabas", "broker", "coordinator", "protocol", "storage", "spark_connector")
OTHERS = ("pyspark_barnabas.py", "pyproject.toml")
LONGEST_S = 600
# The exit code of pytest if tests have failed. A higher one means that the tests could not run.
PYTEST_FAILED = 1


class HandMade(NamedTuple):
    """One mistake. `says` is a sentence about what is wrong. `found_by` has the pytest ids of the
    tests that fail because of it.

    `function` is the qualified name of the changed function, or "" for code outside of functions.
    If one of the operators of mutations.py makes the change, `operator` is its name, and `number`
    says which of its changes in the function is meant, from 1. Otherwise `new` replaces `old`.
    Comments and the layout of lines do not matter for `old`.
    """

    file: str
    says: str
    found_by: tuple[str, ...]
    function: str = ""
    operator: str = ""
    number: int = 1
    old: str = ""
    new: str = ""

    def mutated(self, root: Path = ROOT) -> str:
        """The file's text with the mistake in it.

        Raises: ValueError if the code to change is not in the function, or more than once.
        """
        if self.operator:
            return change_of(root, self.file, self.function, self.operator, self.number)
        text = (root / self.file).read_text(encoding="utf-8")
        first, last = _lines_of(text, self.function)
        lines = text.splitlines(keepends=True)
        before, body, after = (
            "".join(lines[:first]),
            "".join(lines[first:last]),
            "".join(lines[last:]),
        )
        places = list(_places_of(self.old, body))
        if len(places) != 1:
            raise ValueError(
                f"{self.function or 'the module'} has the old code {len(places)} times"
            )
        start, end = places[0]
        return f"{before}{body[:start]}{self.new.strip()}{body[end:]}{after}"


# Strings, comments, names and numbers, and single characters of operators.
_TOKEN = re.compile(
    r'''"""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*|\w+|[^\w\s]'''
)


def _tokens_of(text: str) -> list[tuple[str, int, int]]:
    """The tokens of some code without its comments, each with its start and end."""
    return [
        (found[0], *found.span()) for found in _TOKEN.finditer(text) if not found[0].startswith("#")
    ]


def _places_of(code: str, text: str) -> Iterator[tuple[int, int]]:
    """The spans of a text whose tokens are those of the code."""
    wanted = [token for token, _, _ in _tokens_of(code)]
    tokens = _tokens_of(text)
    words = [token for token, _, _ in tokens]
    for at in range(len(words) - len(wanted) + 1):
        if words[at : at + len(wanted)] == wanted:
            yield tokens[at][1], tokens[at + len(wanted) - 1][2]


def _lines_of(text: str, function: str) -> tuple[int, int]:
    """The first line of a function, from 0, and the line after it; all lines for "".

    Raises: ValueError if there is no such function.
    """
    if not function:
        return 0, len(text.splitlines())
    body: list[ast.stmt] = ast.parse(text).body
    found: ast.stmt | None = None
    for name in function.split("."):
        found = next((node for node in reversed(body) if getattr(node, "name", "") == name), None)
        if found is None:
            raise ValueError(f"there is no {function}")
        body = getattr(found, "body", [])
    assert found is not None and found.end_lineno is not None
    return found.lineno - 1, found.end_lineno


def load() -> list[HandMade]:
    """The table."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutant"]
    return [HandMade(**{**row, "found_by": tuple(row["found_by"])}) for row in rows]


def copied_product(into: Path) -> None:
    """Copy the product and the tests into a directory. Folders that no mutant changes are links."""
    for name in PRODUCT:
        shutil.copytree(ROOT / name, into / name, symlinks=True, ignore=_without_caches)
    for name in OTHERS:
        shutil.copy2(ROOT / name, into / name)
    shutil.copytree(ROOT / "tests", into / "tests", ignore=_without_caches)
    for name in ("docs", "examples", "bench"):
        (into / name).symlink_to(ROOT / name)


_without_caches = shutil.ignore_patterns("__pycache__", ".mypy_cache")


def is_found(mutant: HandMade, copy: Path) -> bool:
    """Whether the mutant's tests fail when it is planted in the copy.

    After: the copy is restored.
    """
    path = copy / mutant.file
    before = path.read_text(encoding="utf-8")
    path.write_text(mutant.mutated(copy), encoding="utf-8")
    try:
        return _run(copy, mutant.found_by) == PYTEST_FAILED
    finally:
        path.write_text(before, encoding="utf-8")


def _run(copy: Path, tests: tuple[str, ...]) -> int:
    """Run the tests in the copy, and return pytest's exit code."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'tests'}"}
    # With cached bytecode, Python would miss the second of two changes of a file within a second.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=copy, env=environment, timeout=LONGEST_S, check=False, capture_output=True
    )
    if done.returncode > PYTEST_FAILED:
        print(done.stdout.decode()[-2000:], done.stderr.decode()[-500:], file=sys.stderr)
    return done.returncode


def chosen(text: str) -> Iterator[HandMade]:
    """The mutants whose file or sentence contains the text."""
    return (one for one in load() if text in one.file or text in one.says)


def main() -> int:
    """Plant the selected mutants, and return an exit code that says whether all were found."""
    parser = argparse.ArgumentParser(prog="mutants.by_hand", description=__doc__)
    parser.add_argument("text", nargs="?", default="", help="only those that have it in them")
    options = parser.parse_args()
    missed = stale = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = Path(directory)
        copied_product(copy)
        mutants = []
        for mutant in chosen(options.text):
            if reason := why_stale(mutant):
                stale += 1
                print(f"STALE: {mutant.file}: {mutant.says}: {reason}", flush=True)
            else:
                mutants.append(mutant)
        tests = dict.fromkeys(test for mutant in mutants for test in mutant.found_by)
        if _run(copy, tuple(tests)) != 0:
            sys.exit("the tests fail without any mistake")
        for mutant in mutants:
            found = is_found(mutant, copy)
            missed += not found
            word = "found" if found else "NOT FOUND"
            print(f"{word}: {mutant.file}: {mutant.says}", flush=True)
    print(f"{len(mutants) - missed} found, {missed} not found, {stale} stale")
    return 1 if missed or stale else 0


def why_stale(mutant: HandMade) -> str:
    """Why a row no longer fits the code or the tests, or "" if it does."""
    try:
        ast.parse(mutant.mutated())
    except (OSError, SyntaxError, ValueError) as error:
        return str(error)
    for test in mutant.found_by:
        path, _, name = test.partition("::")
        file = ROOT / path
        if not file.is_file() or (
            name and f"def {name.partition('[')[0]}(" not in file.read_text(encoding="utf-8")
        ):
            return f"{test} is not there"
    return ""


if __name__ == "__main__":
    sys.exit(main())
