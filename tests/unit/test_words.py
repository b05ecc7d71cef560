"""Words that the project's own text avoids. Each area has a limit for their number, which is only
ever lowered. The words personify ("a log is told"), leave out the noun ("nobody"), or replace a
usual technical word ("anew": again; "stands": is). A text that needs one of them may have it as
long as its area does not exceed the limit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = re.compile(r"\b(nobody|told|tells|stands|anew|whoever)\b", re.IGNORECASE)
# The maximum number of these words in each area. Lower a number when the area has fewer words;
# never raise one.
BOUNDS = {
    "CHANGELOG.md": 0,
    "CODE_OF_CONDUCT.md": 0,
    "CONTRIBUTING.md": 0,
    "README.md": 0,
    "RELEASING.md": 0,
    "SECURITY.md": 0,
    "barnabas": 0,
    "bench": 0,
    "broker": 0,
    "coordinator": 0,
    "docs": 0,
    "examples": 1,
    "protocol": 0,
    "spark_connector": 0,
    "storage": 0,
    "tests": 41,
}
READ = (".py", ".md")
HERE = Path(__file__).name


def texts_of(area: str) -> Iterator[tuple[str, str]]:
    """The name and the text of each source and document in an area. Links are skipped."""
    if (ROOT / area).is_file():
        yield area, (ROOT / area).read_text("utf-8")
        return
    for folder, _, names in os.walk(ROOT / area, followlinks=False):
        for name in names:
            if name.endswith(READ) and name != HERE:
                path = Path(folder, name)
                yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def counts_of(area: str) -> dict[str, int]:
    """The number of these words in each file of an area, highest first."""
    counts = {name: len(WORDS.findall(text)) for name, text in texts_of(area)}
    return dict(sorted(((name, n) for name, n in counts.items() if n), key=lambda item: -item[1]))


@pytest.mark.parametrize("area", BOUNDS)
def test_the_text_of_an_area_has_no_more_of_the_words_than_its_bound(area: str) -> None:
    counts = counts_of(area)
    assert sum(counts.values()) <= BOUNDS[area], (
        f"write the usual word instead; these files have some: {list(counts.items())[:10]}"
    )


def test_every_area_with_text_has_a_bound() -> None:
    areas = {
        path.name
        for path in ROOT.iterdir()
        if not path.name.startswith((".", "build"))
        and (path.is_dir() or path.suffix == ".md")
        and any(True for _ in texts_of(path.name))
    }
    assert areas - {"data"} <= BOUNDS.keys()


def test_the_words_are_found_where_they_are_words() -> None:
    assert WORDS.findall("Nobody was told: it stands in NOBODY_ELSE, and is_told tells.") == [
        "Nobody",
        "told",
        "stands",
        "tells",
    ]
