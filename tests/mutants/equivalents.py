"""The list of mutants without an observable effect, each with its reason: `equivalent.toml`.

An entry has the module, the function, and the lines before and after the change, without
indentation. It does not depend on line numbers. The report lists entries that no longer match a
mutant.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mutants.mutations import Mutant

PATH = Path(__file__).with_name("equivalent.toml")


class Equivalent(NamedTuple):
    """One entry. `old` and `new` are the lines before and after the change."""

    module: str
    function: str
    old: str
    new: str
    reason: str

    def matches(self, mutant: Mutant) -> bool:
        return (self.module, self.function, self.old, self.new) == (
            mutant.module,
            mutant.function,
            mutant.old,
            mutant.new,
        )


def load() -> list[Equivalent]:
    """All entries.

    Raises: KeyError if an entry lacks a field.
    """
    entries = tomllib.loads(PATH.read_text()).get("equivalent", [])
    return [
        Equivalent(
            *(
                "\n".join(line.strip() for line in entry[field].strip().splitlines())
                for field in Equivalent._fields
            )
        )
        for entry in entries
    ]


def reasons(entries: Iterable[Equivalent], mutants: Iterable[Mutant]) -> dict[str, str]:
    """The keys of equivalent mutants, each with the reason of its entry."""
    by_text = {entry[:4]: entry.reason for entry in entries}
    found = {}
    for mutant in mutants:
        reason = by_text.get((mutant.module, mutant.function, mutant.old, mutant.new))
        if reason is not None:
            found[mutant.key] = reason
    return found
