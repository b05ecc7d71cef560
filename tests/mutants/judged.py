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

from mutants.mutations import Mutant

PATH = Path(__file__).with_name("judged.toml")
NONE = "none"
EFFECTS = ("loses", "doubles", "hides", "reveals", NONE)


class Judged(NamedTuple):
    """One entry. old, new: the changed lines, without indentation; how: what happens, in words."""

    module: str
    function: str
    old: str
    new: str
    effect: str
    how: str

    @property
    def place(self) -> tuple[str, str, str, str]:
        return self.module, self.function, self.old, self.new


def load() -> list[Judged]:
    """All entries. Raises KeyError where one lacks a field, ValueError for an unknown effect."""
    entries = []
    for entry in tomllib.loads(PATH.read_text())["judged"]:
        judged = Judged(*(_unindented(entry[field]) for field in Judged._fields))
        if judged.effect not in EFFECTS:
            raise ValueError(f"{judged.module} {judged.function}: no such effect: {judged.effect}")
        entries.append(judged)
    return entries


def effects(entries: Iterable[Judged], mutants: Iterable[Mutant]) -> dict[str, str]:
    """By the mutants' keys, what those do that do harm."""
    by_place = {entry.place: entry.effect for entry in entries}
    found = {}
    for mutant in mutants:
        effect = by_place.get((mutant.module, mutant.function, mutant.old, mutant.new), NONE)
        if effect != NONE:
            found[mutant.key] = effect
    return found


def _unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())
