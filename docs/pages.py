"""Writes the pages of docs/ that are made from the code: `python docs/pages.py`, or `make
docs-pages`.
"""

from __future__ import annotations

import api_reference
import command_reference
import error_reference
import metrics_reference
import settings

GENERATED = (settings, api_reference, error_reference, command_reference, metrics_reference)
"""Each has a TARGET, and its `text()`."""


def stale() -> list[str]:
    """The names of the pages that do not say what the code says; how lines are broken is left out,
    which libraries decide.
    """
    return [
        module.TARGET.name
        for module in GENERATED
        if not module.TARGET.exists()
        or module.TARGET.read_text("utf-8").split() != module.text().split()
    ]


def main() -> None:
    """Write those that have changed, and say which."""
    for name in stale():
        print(f"docs/{name}")
    for module in GENERATED:
        module.TARGET.write_text(module.text(), encoding="utf-8")


if __name__ == "__main__":
    main()
