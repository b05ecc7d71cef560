"""Mutants that were written by hand. Each is a mistake that a programmer could make, such as two
steps in the wrong order, a missing flush, stale state or a forgotten case, with the tests that find
it.

`by_hand.toml` is the table. `python -m mutants.by_hand` plants the mutants one by one in a copy of
the product, and runs the tests of each there, which must fail. `unit/test_mutants_by_hand.py`
checks that each mutant can still be planted, and that its tests exist.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_suffix(".toml")
PRODUCT = ("barnabas", "broker", "coordinator", "protocol", "storage", "spark_connector")
OTHERS = ("pyspark_barnabas.py", "pyproject.toml")
LONGEST_S = 600
# The exit code of pytest if tests have failed. A higher one means that the tests could not run.
PYTEST_FAILED = 1


class HandMade(NamedTuple):
    """One mistake. `says` is a sentence about what is wrong. `found_by` has the pytest ids of the
    tests that fail because of it.
    """

    file: str
    says: str
    old: str
    new: str
    found_by: tuple[str, ...]

    def mutated(self, root: Path = ROOT) -> str:
        """The file's text with the mistake in it.

        Raises: ValueError if the text to replace does not occur in the file exactly once.
        """
        text = (root / self.file).read_text(encoding="utf-8")
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.file}: {self.says}: the old text is there {count} times")
        return text.replace(self.old, self.new)


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
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        copy = Path(directory)
        copied_product(copy)
        mutants = list(chosen(options.text))
        tests = dict.fromkeys(test for mutant in mutants for test in mutant.found_by)
        if _run(copy, tuple(tests)) != 0:
            sys.exit("the tests fail without any mistake")
        for mutant in mutants:
            found = is_found(mutant, copy)
            missed += not found
            word = "found" if found else "NOT FOUND"
            print(f"{word}: {mutant.file}: {mutant.says}", flush=True)
    print(f"{missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
