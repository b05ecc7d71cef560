"""Mutants on data paths that do harm, each judged by reading its code: `judged.toml`.

`effect` is what the mutant does to clients' data: it loses, doubles or hides records, or reveals
records that are aborted, deleted or another client's. A measurement of the simulator counts those
that it finds (`python -m mutants --sim 500 --judged`).
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from mutants.mutations import Mutant

PATH = Path(__file__).with_name("judged.toml")
EFFECTS = ("loses", "doubles", "hides", "reveals")


class Judged(NamedTuple):
    """One entry. `number` says which change of the operator in the function is meant, from 1. `how`
    describes the effect. `seed` is a seed that found the mutant and is tried first, or -1 if none
    is known.
    """

    module: str
    function: str
    operator: str
    effect: str
    how: str
    number: int = 1
    seed: int = -1


def load() -> list[Judged]:
    """All entries.

    Raises: TypeError if an entry lacks a field, ValueError for an unknown effect.
    """
    entries = [Judged(**entry) for entry in tomllib.loads(PATH.read_text())["judged"]]
    for entry in entries:
        if entry.effect not in EFFECTS:
            raise ValueError(f"{entry.module} {entry.function}: no such effect: {entry.effect}")
    return entries


def by_key(entries: Iterable[Judged], mutants: Iterable[Mutant]) -> Mapping[str, Judged]:
    """The entries by the key of their mutant. An entry whose mutant does not exist is left out."""
    of_function: dict[tuple[str, str, str], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        of_function[mutant.module, mutant.function, mutant.operator].append(mutant)
    found = {}
    for entry in entries:
        changes = of_function[entry.module, entry.function, entry.operator]
        if entry.number <= len(changes):
            found[changes[entry.number - 1].key] = entry
    return found
