"""A sample of mutants on data paths, each judged by reading it: `judged.toml`.

`effect` says what the mutant does to what clients have entrusted to the broker: it loses it,
doubles it, hides it from readers, or reveals what was aborted, deleted or another's. "none": it
does no such thing, since the broker stops at once, refuses, asks its client to try again, or only
works more. The simulator is measured by the others (`python -m mutants --sim 500 --judged`).
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
    """One entry. old, new: the changed lines; number: which of those, where the function has them
    several times. how: what happens, in words. seed: one that found it, which is tried first; -1:
    none is known.
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
        """The mutant's."""
        return key_of(self.module, self.function, self.old, self.new, self.number)


def load() -> list[Judged]:
    """All entries. Raises TypeError where one lacks a field, ValueError for an unknown effect."""
    entries = []
    for entry in tomllib.loads(PATH.read_text())["judged"]:
        judged = Judged(**entry)
        judged = judged._replace(old=stripped(judged.old), new=stripped(judged.new))
        if judged.effect not in EFFECTS:
            raise ValueError(f"{judged.module} {judged.function}: no such effect: {judged.effect}")
        entries.append(judged)
    return entries


def effects(entries: Iterable[Judged]) -> dict[str, str]:
    """By the mutants' keys, what those do that do harm."""
    return {entry.key: entry.effect for entry in entries if entry.effect != NONE}
