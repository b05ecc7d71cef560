"""Rewrites the documents for the first release. Run `python docs/released.py` once, on the release
day.

Before the release no package index has the project, so each command that installs it names a
checkout: `pip install ./barnabas`. A test runs each of these pip commands.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTE = (
    "There is no release yet: `./barnabas` is the path of your clone, or of a wheel from `make "
    "dist`."
)
CHECKOUT = re.compile(r"((?:pipx? install (?:-q )?|uvx --from )'?)\./(barnabas(?:\[[a-z,-]+\])?'?)")
"""A command that installs a checkout; without `./` it installs from an index."""


def documents() -> list[Path]:
    """All documents with commands that install the project."""
    found = [ROOT / "README.md", ROOT / "spark_connector" / "README.md"]
    for pattern in ("docs/*.md", "docs/*_reference.py", "examples/**/*.md"):
        found += sorted(ROOT.glob(pattern))
    return found


def released(text: str) -> str:
    """Return a document's text in the form that it has after the release."""
    note = re.escape(NOTE)
    without_note = re.sub(rf"{note}\n\n|\n\n{note}(?=\n)", "", text)
    return CHECKOUT.sub(r"\1\2", without_note)


def main() -> int:
    """Rewrite the documents, and print the names of those that changed."""
    for path in documents():
        before = path.read_text()
        after = released(before)
        if after != before:
            path.write_text(after)
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
