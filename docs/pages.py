"""Writes the generated files in docs/, the pages and the dashboard. Run it by `make docs-pages`."""

from __future__ import annotations

import sys

import api_reference
import command_reference
import contract
import dashboard
import error_reference
import metrics_reference
import python_api
import settings

GENERATED = (
    settings,
    api_reference,
    error_reference,
    command_reference,
    metrics_reference,
    python_api,
    dashboard,
    contract,
)
"""The modules that write a page: each has a TARGET, and a function `text()`."""


def stale() -> list[str]:
    """Return the names of the files that differ from what the code generates.

    Line breaks are ignored, since they depend on the versions of libraries.
    """
    return [
        module.TARGET.name
        for module in GENERATED
        if not module.TARGET.exists()
        or module.TARGET.read_text("utf-8").split() != module.text().split()
    ]


def main() -> int:
    """Write the files, and print the names of those that changed.

    With `--check`, write nothing, and return 1 if a file would change.
    """
    names = stale()
    for name in names:
        print(f"docs/{name}")
    if "--check" in sys.argv[1:]:
        return 1 if names else 0
    for module in GENERATED:
        module.TARGET.write_text(module.text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
