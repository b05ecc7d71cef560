"""The words of the pages that people write: docs/ and the READMEs.

Pages that `make docs-pages` writes from the code, and tables that a bench writes, do not count.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from pathlib import Path

from house.sizes import ROOT

SHOWN = 8
# The first lines of a generated page say so.
_GENERATED = "make docs-pages"
_MEASURED = re.compile(r"<!-- measured by .*?<!-- end -->", re.DOTALL)
_SKIPPED = {".venv", "build", "dist", "node_modules"}


def report() -> Iterator[str]:
    """The words of docs/ and of all READMEs, and the longest pages of each."""
    pages = (path for path in (ROOT / "docs").rglob("*.md") if not is_generated(path))
    readmes = (
        path
        for path in ROOT.rglob("README.md")
        if _SKIPPED.isdisjoint(path.relative_to(ROOT).parts)
        and not any(parent.is_symlink() for parent in path.parents)
    )
    for title, paths in (("docs/", pages), ("READMEs", readmes)):
        counts = [(words_of(path.read_text("utf-8")), path) for path in paths]
        yield f"{title}: {sum(count for count, _ in counts)} words"
        for count, path in heapq.nlargest(SHOWN, counts):
            yield f"{count:7} {path.relative_to(ROOT).as_posix()}"


def is_generated(page: Path) -> bool:
    """Whether a page is written from the code."""
    return any(_GENERATED in line for line in page.read_text("utf-8").splitlines()[:6])


def words_of(text: str) -> int:
    """The words of a page without the tables that a bench writes into it."""
    return len(_MEASURED.sub("", text).split())
