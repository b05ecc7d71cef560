"""Make mutants, run the tests (or the simulator) against them, and report: `python -m mutants
--sample 400`, `python -m mutants --sim 500`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from mutants import judged, targets
from mutants.hunting import UNFIT, Hunt, Verdict, hunt
from mutants.mutations import Mutant, MutatedModule, diff_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CACHE = ROOT / ".mutants"


def main() -> int:
    options = _options()
    began_s = time.monotonic()
    modules = _mutated_modules()
    everything = [mutant for module in modules.values() for mutant in module.mutants]
    eligible = (
        [mutant for mutant in everything if targets.is_on_data_path(mutant.module, mutant.function)]
        if options.sim
        else everything
    )
    if options.only:
        eligible = [
            mutant
            for mutant in eligible
            if any(fnmatchcase(f"{mutant.module}:{mutant.function}", each) for each in options.only)
        ]
    if options.own:
        eligible = [mutant for mutant in eligible if mutant.is_own]
    entries = judged.load()
    harmful = judged.by_key(entries, everything)
    if options.judged:
        eligible = [mutant for mutant in eligible if mutant.key in harmful]
    if options.key:
        eligible = [mutant for mutant in eligible if mutant.key in options.key]
    chosen = _sample(
        eligible,
        None if options.sample == "all" or options.key or options.judged else int(options.sample),
        options.seed,
    )
    print(
        f"{len(everything)} mutants, of which {len(eligible)} are eligible and {len(chosen)} drawn "
        f"(seed {options.seed})",
        flush=True,
    )
    if options.list:
        for mutant in chosen:
            _show(mutant)
        return 0
    verdicts: list[Verdict] = []

    def hunt_all(found: Iterator[Verdict]) -> None:
        for verdict in found:
            verdicts.append(verdict)
            if options.verbose or not verdict.why:
                _show(verdict.mutant, _word(verdict))

    if options.sim:
        # This import loads the product, which pytest must load first.
        from mutants import simulating

        known = {key: (entry.seed,) for key, entry in harmful.items() if entry.seed >= 0}
        hunt_all(simulating.verdicts(ROOT, chosen, modules, options.sim, options.processes, known))
    else:

        def body(hunter: Hunt) -> None:
            coverage = hunter.coverage(modules, CACHE)
            print(
                f"which test runs which line is known after {time.monotonic() - began_s:.0f} s",
                flush=True,
            )
            hunt_all(hunter.verdicts(chosen, modules, coverage, options.processes, options.seconds))

        hunt(ROOT, modules, body, options.tests or ())
    _report(
        verdicts,
        f"{options.sim} seeds of the simulator" if options.sim else "unit and property tests",
    )
    if options.judged:
        _report_effects(verdicts, {key: entry.effect for key, entry in harmful.items()})
    found = set(harmful.values())
    for entry in entries:
        if entry not in found:
            print(
                f"judged.toml: no such mutant any more: {entry.module} {entry.function}: "
                f"{entry.operator} {entry.number}"
            )
    if options.report:
        options.report.write_text(json.dumps([_row(verdict) for verdict in verdicts], indent=1))
    print(f"took {time.monotonic() - began_s:.0f} s")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mutants", description="Change the product in one place at a time and see who notices."
    )
    parser.add_argument("--sample", default="400", help="how many mutants, or all (default 400)")
    parser.add_argument("--seed", default="0", help="which of them (default 0)")
    parser.add_argument(
        "--sim",
        type=int,
        default=0,
        metavar="SEEDS",
        help="run this many seeds of the simulator against the mutants on data paths",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="MODULE:FUNCTION",
        help="a pattern, such as 'storage/log/log.py:Log._roll'",
    )
    parser.add_argument(
        "--judged", action="store_true", help="only the mutants that judged.toml lists as harmful"
    )
    parser.add_argument(
        "--own",
        action="store_true",
        help="only the project's own kinds: steps, order and conditions",
    )
    parser.add_argument("--key", action="append", help="only this mutant")
    parser.add_argument(
        "--tests",
        action="append",
        metavar="FILES",
        help="run only these test files, such as 'unit/storage/**/*.py', for a first look",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="the CPU seconds of tests for one mutant, those of its module and the quick "
        "ones first (default: all tests that run it)",
    )
    parser.add_argument("--processes", type=int, default=2, help="how many at a time (default 2)")
    parser.add_argument("--report", type=Path, help="write all verdicts to this file, as JSON")
    parser.add_argument("--list", action="store_true", help="show the mutants and stop")
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="also show the mutants that a test found, and the test",
    )
    return parser.parse_args()


def _mutated_modules() -> dict[str, MutatedModule]:
    modules = {name: _mutated_module(name) for name in targets.modules(ROOT)}
    return {name: module for name, module in modules.items() if module.mutants}


def _mutated_module(name: str) -> MutatedModule:
    """The mutants of a module. They come from the cache unless the module or the code that makes
    mutants has changed.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in (ROOT / name, HERE / "mutations.py", HERE / "targets.py"):
        digest.update(path.read_bytes())
    kept = CACHE / f"{name.replace('/', '-')}-{digest.hexdigest()}.mutants"
    if kept.exists():
        module: MutatedModule = pickle.loads(kept.read_bytes())
        return module
    module = MutatedModule(ROOT, name, targets.is_target)
    CACHE.mkdir(exist_ok=True)
    kept.write_bytes(pickle.dumps(module))
    return module


def _sample(mutants: list[Mutant], count: int | None, seed: str) -> list[Mutant]:
    """The `count` mutants with the lowest hashes. When code changes, the mutants of unchanged code
    stay in the sample.
    """

    def rank(mutant: Mutant) -> bytes:
        return hashlib.blake2b(f"{seed} {mutant.key}".encode(), digest_size=8).digest()

    chosen = sorted(mutants, key=rank)[:count]
    return sorted(chosen, key=lambda mutant: (mutant.module, mutant.line, mutant.key))


def _word(verdict: Verdict) -> str:
    """The verdict in words: found, survived or unfit."""
    if verdict.why == UNFIT:
        return UNFIT
    if verdict.is_found:
        return f"found ({verdict.why}, {verdict.took_s:.1f} s): {verdict.test or ''}"
    return "SURVIVED" if verdict.tests else "SURVIVED, nothing runs it"


def _show(mutant: Mutant, word: str = "") -> None:
    """Print a mutant with its change."""
    print(
        f"\n{mutant.module}:{mutant.line} {mutant.function} [{mutant.operator} {mutant.key}] {word}"
    )
    for line in diff_of(mutant):
        print(f"    {line}")
    sys.stdout.flush()


def _row(verdict: Verdict) -> dict[str, object]:
    """The verdict as a row of the report."""
    return verdict.mutant._asdict() | {
        "verdict": _word(verdict).partition(":")[0].partition(" (")[0],
        "test": verdict.test,
        "tests": verdict.tests,
        "took_s": round(verdict.took_s, 2),
    }


def _report(verdicts: list[Verdict], hunters: str) -> None:
    """Print the share of found mutants by module, by folder and by kind."""
    counted = [verdict for verdict in verdicts if verdict.why != UNFIT]
    print(f"\nFound by {hunters}:\n")
    by_module: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in counted:
        by_module[verdict.mutant.module].append(verdict)
        by_module[verdict.mutant.module.partition("/")[0] + "/"].append(verdict)
    for name in sorted(by_module):
        _print_share(name, by_module[name])
    _print_share("all", counted)
    _print_share(
        "steps, order, conditions",
        [verdict for verdict in counted if verdict.mutant.is_own],
    )
    _print_share(
        "values and operators",
        [verdict for verdict in counted if not verdict.mutant.is_own],
    )


def _report_effects(verdicts: list[Verdict], effects: dict[str, str]) -> None:
    """Print the share of found mutants for each judged effect."""
    counted = [verdict for verdict in verdicts if verdict.why != UNFIT]
    print("\nBy what they do:\n")
    for effect in judged.EFFECTS:
        of_effect = [verdict for verdict in counted if effects[verdict.mutant.key] == effect]
        if of_effect:
            _print_share(effect, of_effect)


def _print_share(name: str, verdicts: Iterable[Verdict]) -> None:
    """Print one line of the report, with the share of mutants that were found."""
    verdicts = list(verdicts)
    found = sum(verdict.is_found for verdict in verdicts)
    share = f"{100 * found / len(verdicts):5.1f} %" if verdicts else "     - "
    print(f"  {name:34} {share}  {found} of {len(verdicts)}")


if __name__ == "__main__":
    sys.exit(main())
