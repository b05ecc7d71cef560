"""Runs the tests against mutants. It records which tests run which lines, and finds out whether one
of these tests fails when a line is changed.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import logging
import math
import pickle
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mutants.children import Job, Outcome, limit_next_step, run_all
from mutants.mutations import Mutant, MutatedModule
from mutants.planting import Functions, UnfitMutant

FOLDERS = ("tests/unit", "tests/property")
# These tests cover other code, but need a third of the time.
NOT_CONCERNED = (
    "unit/bench/*",
    "unit/repository/test_docs_*.py",
    "unit/spark_connector/*",
    "property/test_spark_*.py",
    # test_message_sets.py does not match, since it tests Produce and Fetch
    "unit/protocol/test_[!m]*.py",
    "unit/protocol/test_metadata*.py",
    "property/test_protocol_*.py",
)
UNFIT = "unfit"
RECORDING_LIMIT_S = 1800.0
# The recorded times are longer than those of a normal run, since they include the tracing.
LEAST_LIMIT_S, TIMES_AS_LONG = 10.0, 4


class Coverage(NamedTuple):
    """Which tests run which lines. `lines` has the tests that run each line, by file and line.
    `took_s` has the CPU time of each test.
    """

    lines: dict[str, dict[int, tuple[str, ...]]]
    took_s: dict[str, float]

    def by_file(self) -> dict[str, Coverage]:
        """Split the coverage by test file, in one pass."""
        pieces: dict[str, Coverage] = {}
        for name, took_s in self.took_s.items():
            piece = pieces.setdefault(name.partition("::")[0], Coverage({}, {}))
            piece.took_s[name] = took_s
        for module, by_line in self.lines.items():
            for line, names in by_line.items():
                for file, mine in itertools.groupby(names, lambda name: name.partition("::")[0]):
                    pieces[file].lines.setdefault(module, {})[line] = tuple(mine)
        return pieces

    @classmethod
    def joined(cls, pieces: Iterable[Coverage]) -> Coverage:
        """The coverage of several test files together."""
        took_s: dict[str, float] = {}
        names_of: dict[str, dict[int, list[str]]] = {}
        for piece in pieces:
            took_s.update(piece.took_s)
            for module, by_line in piece.lines.items():
                lines = names_of.setdefault(module, {})
                for line, names in by_line.items():
                    lines.setdefault(line, []).extend(names)
        return cls(
            {
                module: {line: tuple(names) for line, names in by_line.items()}
                for module, by_line in names_of.items()
            },
            took_s,
        )


class Verdict(NamedTuple):
    """The result for one mutant. `test` is the test that failed, or None. `tests` is the number of
    tests that run the changed line. `why` is a word for the kind of failure.
    """

    mutant: Mutant
    test: str | None
    tests: int
    why: str
    took_s: float

    @property
    def is_found(self) -> bool:
        return self.why not in ("", UNFIT)


class Hunt:
    """A pytest plugin that does not run the tests. It calls `body` when all tests are collected and
    all code is loaded.
    """

    def __init__(self, root: Path, modules: Iterable[str], body: Callable[[Hunt], None]) -> None:
        self.root = root
        self._modules = list(modules)
        self.items: dict[str, pytest.Item] = {}
        self.session: pytest.Session
        self.functions: Functions
        self._body = body
        self._failed = ""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Make property tests draw the same examples each time, and not shrink them after a
        failure.
        """
        # The import is here because pytest must load Hypothesis's plugin first.
        from hypothesis import HealthCheck, Phase, settings

        settings.register_profile(
            "mutants", deadline=None, derandomize=True, database=None, report_multiple_bugs=False,
            phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Call the body in place of running the tests."""
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        gc.collect()
        self.functions = Functions(self.root, self._modules)
        gc.freeze()  # otherwise the first garbage collection in a child would copy all memory
        self._body(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed:
            self._failed = report.nodeid

    def run_tests(
        self, names: Iterable[str], directory: Path, each: Callable[[str], None] = lambda name: None
    ) -> str:
        """Run tests until one fails. Return the name of the failed test, or "". To be called in a
        child only.
        """
        self.session.config._tmp_path_factory._basetemp = directory  # type: ignore[attr-defined]  # a child has its own
        logging.raiseExceptions = False
        items = [self.items[name] for name in names]
        for item, following in zip(items, [*items[1:], None], strict=True):
            each(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                break
        return self._failed

    def timed_tests(self, names: Iterable[str], directory: Path) -> tuple[dict[str, float], str]:
        """Run tests until one fails. Return the CPU time of each that ran, and the name of the
        failed one, or "". To be called in a child only.
        """
        began_s: dict[str, float] = {}
        failed = self.run_tests(
            names, directory, lambda name: began_s.update({name: time.process_time()})
        )
        bounds = [*began_s.values(), time.process_time()]
        times = [end - start for start, end in itertools.pairwise(bounds)]
        return dict(zip(began_s, times, strict=True)), failed

    # --- which test runs what --------------------------------------------------------------------

    def coverage(self, modules: Iterable[str], cache: Path) -> Coverage:
        """The lines that each test runs. Each test file is recorded in its own child, and cached
        until the file or the product changes.
        """
        modules = sorted(modules)
        shared = [
            *(self.root / module for module in modules),
            *(self.root / "tests/helpers").rglob("*.py"),
        ]
        base = b"".join(path.read_bytes() for path in sorted(shared))
        kept: dict[str, Path] = {}
        for name in self.items:
            file = name.partition("::")[0]
            if file not in kept:
                digest = hashlib.blake2b(
                    base + (self.root / file).read_bytes(), digest_size=8
                ).hexdigest()
                kept[file] = cache / f"{Path(file).stem}-{digest}.pickle"
        names = [name for name in self.items if not kept[name.partition("::")[0]].exists()]
        if names:
            job = Job(
                "coverage",
                lambda directory: self._record(names, modules, directory),
                RECORDING_LIMIT_S,
            )
            recorded = next(run_all([job], 1)).value
            if not isinstance(recorded, Coverage):
                raise SystemExit(f"the tests fail without any mutant: {recorded or 'out of time'}")
            cache.mkdir(exist_ok=True)
            for file, piece in recorded.by_file().items():
                kept[file].write_bytes(pickle.dumps(piece))
        return Coverage.joined(pickle.loads(path.read_bytes()) for path in kept.values())

    def _record(self, names: list[str], modules: list[str], directory: Path) -> Coverage | str:
        """Run the tests, and record their lines and times. If a test fails, return its name
        instead.
        """
        import coverage

        recorder = coverage.Coverage(
            data_file=None, include=[str(self.root / module) for module in modules]
        )
        took_s: dict[str, float] = {}
        current, began = "", time.process_time()

        def switch(name: str) -> None:
            nonlocal current, began
            if current:
                took_s[current] = time.process_time() - began
            recorder.switch_context(name or "none")
            current, began = name, time.process_time()

        recorder.start()
        failed = self.run_tests(names, directory, switch)
        switch("")
        recorder.stop()
        if failed:
            return failed
        with warnings.catch_warnings():
            # Coverage warns about tests that run none of the target modules.
            warnings.simplefilter("ignore")
            data = recorder.get_data()
        lines = {}
        for module in modules:
            contexts = data.contexts_by_lineno(str(self.root / module))
            lines[module] = {
                line: tuple(sorted(name for name in tests if name in took_s))
                for line, tests in contexts.items()
            }
        return Coverage(lines, took_s)

    # --- mutants ---------------------------------------------------------------------------------

    def verdicts(
        self,
        mutants: Iterable[Mutant],
        modules: dict[str, MutatedModule],
        coverage: Coverage,
        processes: int,
        most_s: float = math.inf,
    ) -> Iterator[Verdict]:
        """The tests' verdict on each mutant. `most_s` limits the CPU time of the tests of one
        mutant, according to the recorded times.
        """
        tests_of: dict[str, tuple[str, ...]] = {}
        by_key: dict[str, Mutant] = {}
        # The test that found the most recent mutant of each function.
        last_finder: dict[str, str | None] = {}

        def job(mutant: Mutant) -> Job:
            first = last_finder.get(f"{mutant.module}:{mutant.function}")
            names = _tests_of(mutant, modules[mutant.module], coverage, first, most_s)
            tests_of[mutant.key], by_key[mutant.key] = names, mutant

            def run(directory: Path) -> str:
                if not names:
                    return ""  # no test runs the module, which may not even be loaded
                try:
                    self.functions.plant(
                        mutant.module, mutant.function, modules[mutant.module].source_of(mutant)
                    )
                except UnfitMutant:
                    return UNFIT
                return self.run_tests(names, directory, limit)

            def limit(name: str) -> None:
                limit_next_step(LEAST_LIMIT_S + TIMES_AS_LONG * coverage.took_s[name])

            limit_s = LEAST_LIMIT_S + TIMES_AS_LONG * sum(coverage.took_s[name] for name in names)
            return Job(mutant.key, run, limit_s)

        for outcome in run_all(map(job, mutants), processes):
            mutant = by_key[outcome.name]
            verdict = _verdict(mutant, len(tests_of[outcome.name]), outcome)
            if verdict.test:
                last_finder[f"{mutant.module}:{mutant.function}"] = verdict.test
            yield verdict


def _verdict(mutant: Mutant, tests: int, outcome: Outcome) -> Verdict:
    """The verdict of the tests, from the outcome of the process that ran them."""
    if outcome.value == UNFIT:
        return Verdict(mutant, None, tests, UNFIT, outcome.took_s)
    if outcome.value is None:
        return Verdict(
            mutant,
            None,
            tests,
            "out of time" if outcome.is_out_of_time else "crash",
            outcome.took_s,
        )
    return Verdict(
        mutant, outcome.value or None, tests, "failure" if outcome.value else "", outcome.took_s
    )


def _tests_of(
    mutant: Mutant, module: MutatedModule, coverage: Coverage, first: str | None, most_s: float
) -> tuple[str, ...]:
    """The tests that run the changed lines, the most promising first.

    The first test is `first`, if it is one of them. Then come the module's own test files, and then
    the fast tests: one of each file, then a second of each file, and so on, since the tests of one
    file are similar. Together they take at most `most_s` of CPU time.
    """
    lines = coverage.lines.get(mutant.module, {})
    names: set[str] = set()
    for line in module.lines_of(mutant):
        names.update(lines.get(line, ()))
    folder, _, name = mutant.module.rpartition("/")
    own = f"tests/unit/{folder}/test_{name}::"
    quick_first = sorted(names, key=lambda name: (coverage.took_s[name], name))
    counts: Counter[str] = Counter()
    ranks: dict[str, int] = {}
    for name in quick_first:
        file = name.partition("::")[0]
        ranks[name] = counts[file]
        counts[file] += 1
    chosen = []
    for name in sorted(
        quick_first, key=lambda name: (name != first, not name.startswith(own), ranks[name])
    ):
        most_s -= coverage.took_s[name]
        if most_s >= 0 or not chosen:
            chosen.append(name)
    return tuple(chosen)


def hunt(
    root: Path,
    modules: Iterable[str],
    body: Callable[[Hunt], None],
    test_files: Iterable[str] = (),
) -> None:
    """Collect the tests, and call `body` with the plugin that holds them.

    Takes: test_files, patterns below tests/ for the test files to use, or nothing for all files.
    """
    folders = [root / folder for folder in FOLDERS]
    hunters = [path for pattern in test_files for path in (root / "tests").glob(pattern)]
    ignored = [f"--ignore-glob=*/{pattern}" for pattern in NOT_CONCERNED]
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--capture=no",
        "--no-header",
        "--no-summary",
        *ignored,
    ]
    status = pytest.main(
        [*options, *map(str, hunters or folders)], plugins=[Hunt(root, modules, body)]
    )
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(int(status))
