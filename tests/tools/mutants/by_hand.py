"""Mutants that were written by hand. Each is a mistake that a programmer could make, such as two
steps in the wrong order, a missing flush, stale state or a forgotten case, with the tests that find
it.

`by_hand.toml` is the table. `python -m mutants.by_hand` plants the mutants one by one, and runs the
tests of each, which must fail. A row whose code or tests no longer exist is reported, so no other
test needs to read the table.

The tests are collected once. Each mutant gets a fork of that process, in which the changed function
has the mutant's code. Where that shows nothing (the change is outside of functions, the function
ran at the import, or the test reads the file or starts a process) the mutant is planted in a copy
of the product, and a new process runs the tests there.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mutants.children import Job, Outcome, limit_next_step, run_all
from mutants.hunting import LEAST_LIMIT_S, TIMES_AS_LONG, UNFIT, Hunt, hunt
from mutants.mutations import change_of
from mutants.planting import UnfitMutant

ROOT = Path(__file__).resolve().parents[3]
TABLE = Path(__file__).with_suffix(".toml")
PRODUCT = ("barnabas", "broker", "coordinator", "protocol", "storage", "spark_connector")
OTHERS = ("pyspark_barnabas.py", "pyproject.toml")
LOG = ROOT / ".mutants/by_hand.log"  # a line for each mutant of the last run
# The CPU seconds after which the process of a mutant ends. Those of the single test are fewer.
LONGEST_S = 60
LONGEST_ALL_S = 1800
# The seconds for the tests of a mutant in a copy.
LONGEST_COPY_S = 600
NOT_FOUND = "NOT FOUND"
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

    @property
    def key(self) -> str:
        """What identifies the row in the log."""
        return hashlib.blake2b(repr(self).encode(), digest_size=6).hexdigest()

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


def outermost(text: str, function: str) -> str:
    """The name of a function without those of functions inside it: these are made anew with each
    call of the outer one.
    """
    body: list[ast.stmt] = ast.parse(text).body
    names = function.split(".")
    for count, name in enumerate(names, 1):
        node = next((each for each in reversed(body) if getattr(each, "name", "") == name), None)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return ".".join(names[:count])
        body = getattr(node, "body", [])
    return function


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


class Planted(NamedTuple):
    """A mutant with the changed text of its file, and the node ids of its tests."""

    mutant: HandMade
    text: str
    tests: tuple[str, ...]

    @property
    def function(self) -> str:
        """The function whose code changes."""
        return outermost((ROOT / self.mutant.file).read_text("utf-8"), self.mutant.function)


class Report:
    """Prints and counts the verdicts, and writes them to the log."""

    def __init__(self, is_continued: bool) -> None:
        self.counts = {"found": 0, NOT_FOUND: 0, "STALE": 0}
        self._known: set[str] = set()
        if is_continued and LOG.exists():
            lines = LOG.read_text("utf-8").splitlines()
            self._known = {line.partition(" ")[0] for line in lines if " found: " in line}
        LOG.parent.mkdir(exist_ok=True)
        self._log = LOG.open("a" if is_continued else "w", encoding="utf-8", buffering=1)

    def add(self, mutant: HandMade, word: str, why: str) -> None:
        self.counts[word] += 1
        line = f"{word}: {mutant.file}: {mutant.says} ({why})"
        print(line, flush=True)
        self._log.write(f"{mutant.key} {line}\n")

    def take_known(self, mutant: HandMade) -> bool:
        """Count the mutant if the log says that it was found."""
        is_known = mutant.key in self._known
        self.counts["found"] += is_known
        return is_known


def judge(mutants: Iterable[HandMade], report: Report, processes: int) -> None:
    """Plant the mutants, run their tests, and report the verdicts."""
    texts: dict[HandMade, str] = {}
    for mutant in mutants:
        try:
            texts[mutant] = mutant.mutated()
            ast.parse(texts[mutant])
        except (OSError, SyntaxError, ValueError) as error:
            report.add(mutant, "STALE", str(error))
            texts.pop(mutant, None)
    unnoticed: list[Planted] = []

    def body(hunter: Hunt) -> None:
        planted = []
        for mutant, text in texts.items():
            tests = tuple(names_of(mutant.found_by, hunter.items))
            if tests:
                planted.append(Planted(mutant, text, tests))
            else:
                report.add(mutant, "STALE", f"{' '.join(mutant.found_by)} is not there")
        unnoticed.extend(_judged_in_forks(hunter, planted, report, processes))

    if texts:
        files = {test.partition("::")[0] for mutant in texts for test in mutant.found_by}
        hunt(
            ROOT,
            sorted({mutant.file for mutant in texts}),
            body,
            sorted(file.removeprefix("tests/") for file in files),
        )
    if unnoticed:
        with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
            copy = Path(directory)
            copied_product(copy)
            for each in unnoticed:
                began_s = time.monotonic()
                word = "found" if is_found(each, copy) else NOT_FOUND
                took_s = time.monotonic() - began_s
                report.add(each.mutant, word, f"in a copy, {took_s:.1f} s")


def names_of(tests: Iterable[str], collected: Iterable[str]) -> Iterator[str]:
    """The node ids that some ids, of functions or files, stand for."""
    wanted = tuple(tests)
    for name in collected:
        if any(name == each or name.startswith((f"{each}[", f"{each}::")) for each in wanted):
            yield name


def _judged_in_forks(
    hunter: Hunt, planted: list[Planted], report: Report, processes: int
) -> list[Planted]:
    """Run the tests of each mutant in a fork, and report those that are found. Return the rest."""
    chosen = {name for each in planted for name in each.tests}
    took_s, failed = _took_s(hunter, [name for name in hunter.items if name in chosen])
    by_key = {each.mutant.key: each for each in planted}
    unnoticed = []

    def job(each: Planted) -> Job:
        def run(directory: Path) -> str:
            try:
                hunter.functions.plant(each.mutant.file, each.function, each.text)
            except UnfitMutant:
                return UNFIT
            return hunter.run_tests(
                each.tests,
                directory,
                lambda name: limit_next_step(LEAST_LIMIT_S + TIMES_AS_LONG * took_s[name]),
            )

        all_s = sum(took_s[name] for name in each.tests)
        return Job(each.mutant.key, run, LONGEST_S + TIMES_AS_LONG * all_s)

    fit = []
    for each in planted:
        if broken := failed & set(each.tests):
            report.add(each.mutant, "STALE", f"{min(broken)} fails without any mistake")
        else:
            fit.append(each)
    for outcome in run_all(map(job, fit), processes):
        each = by_key[outcome.name]
        if why := _why_found(outcome):
            report.add(each.mutant, "found", f"{why}, {outcome.took_s:.1f} s")
        else:
            unnoticed.append(each)
    return unnoticed


def _why_found(outcome: Outcome) -> str:
    """What found a mutant in a fork, or "" if nothing did."""
    if outcome.value is None:
        return "out of time" if outcome.is_out_of_time else "crash"
    return "" if outcome.value == UNFIT else str(outcome.value)


def _took_s(hunter: Hunt, names: list[str]) -> tuple[dict[str, float], set[str]]:
    """Run the tests without any mutant: the CPU time of each, and those that fail."""
    took_s: dict[str, float] = {}
    failed: set[str] = set()
    while rest := [name for name in names if name not in took_s]:

        def run(directory: Path, rest: list[str] = rest) -> tuple[dict[str, float], str]:
            return hunter.timed_tests(rest, directory)

        outcome = next(run_all([Job("", run, LONGEST_ALL_S)], 1))
        if outcome.value is None:
            sys.exit("the tests without any mistake end the process, or take too long")
        times, name = outcome.value
        took_s.update(times)
        if name:
            failed.add(name)
    return took_s, failed


def copied_product(into: Path) -> None:
    """Copy the product and the tests into a directory, with their bytecode. Folders that no mutant
    changes are links.
    """
    for name in PRODUCT:
        shutil.copytree(ROOT / name, into / name, symlinks=True, ignore=_without_caches)
    for name in OTHERS:
        shutil.copy2(ROOT / name, into / name)
    shutil.copytree(ROOT / "tests", into / "tests", ignore=_without_caches)
    for name in ("docs", "examples", "bench"):
        (into / name).symlink_to(ROOT / name)


_without_caches = shutil.ignore_patterns(".mypy_cache")


def is_found(planted: Planted, copy: Path) -> bool:
    """Whether the mutant's tests fail in a new process when it is planted in the copy.

    After: the copy is restored, with the time of the change that its bytecode has.
    """
    path = copy / planted.mutant.file
    before, times = path.read_bytes(), path.stat()
    path.write_text(planted.text, encoding="utf-8")
    try:
        return _run(copy, planted.mutant.found_by) == PYTEST_FAILED
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _run(copy: Path, tests: tuple[str, ...]) -> int:
    """Run the tests in the copy, and return pytest's exit code."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'tests'}"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # that of a mutant would outlive it
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            timeout=LONGEST_COPY_S,
            check=False,
            capture_output=True,
        )
    except subprocess.TimeoutExpired:
        return PYTEST_FAILED
    if done.returncode > PYTEST_FAILED:
        print(done.stdout.decode()[-2000:], done.stderr.decode()[-500:], file=sys.stderr)
    return done.returncode


def main() -> int:
    """Plant the selected mutants, and return an exit code that says whether all were found."""
    parser = argparse.ArgumentParser(prog="mutants.by_hand", description=__doc__)
    parser.add_argument("text", nargs="?", default="", help="only those that have it in them")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument(
        "--resume", action="store_true", help="leave out those that the last run found"
    )
    options = parser.parse_args()
    began_s = time.monotonic()
    report = Report(options.resume)
    mutants = [one for one in load() if options.text in one.file or options.text in one.says]
    judge((one for one in mutants if not report.take_known(one)), report, options.processes)
    found, missed, stale = report.counts.values()
    print(f"{found} found, {missed} not found, {stale} stale", end="; ")
    print(f"took {time.monotonic() - began_s:.0f} s")
    return 1 if missed or stale else 0


if __name__ == "__main__":
    sys.exit(main())
