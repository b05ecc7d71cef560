"""A sample of mutants on data paths, each judged by reading its code: `judged.toml`.

`effect` is what the mutant does to clients' data: it loses, duplicates or hides records, or reveals
records that are aborted, deleted or another client's. "none" means that it does none of these: the
broker stops at once, refuses the request, makes the client retry, or only does more work. Only
mutants with an effect count in a measurement of the simulator (`python -m mutants --sim 500
--judged`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mutants.mutations import key_of, stripped

PATH = Path(__file__).with_name("judged.toml")
NONE = "none"
EFFECTS = ("loses", "doubles", "hides", "reveals", NONE)


class Judged(NamedTuple):
    """One entry. `old` and `new` are the lines before and after the change. If the function has
    these lines several times, `number` says which occurrence is meant. `how` describes the effect.
    `seed` is a seed that found the mutant and is tried first, or -1 if none is known.
    """

    module: str
    function: str
    old: str
    new: str
    effect: str
    how: str
    seed: int = -1
    number: int = 0

    @property
    def key(self) -> str:
        """The mutant's key."""
        return key_of(self.module, self.function, self.old, self.new, self.number)


def load() -> list[Judged]:
    """All entries.

    Raises: TypeError if an entry lacks a field, ValueError for an unknown effect.
    """
    entries = []
    for entry in tomllib.loads(PATH.read_text())["judged"]:
        judged = Judged(**entry)
        judged = judged._replace(old=stripped(judged.old), new=stripped(judged.new))
        if judged.effect not in EFFECTS:
            raise ValueError(f"{judged.module} {judged.function}: no such effect: {judged.effect}")
        entries.append(judged)
    return entries


def effects(entries: Iterable[Judged]) -> dict[str, str]:
    """The keys of the harmful mutants, each with its effect."""
    return {entry.key: entry.effect for entry in entries if entry.effect != NONE}
