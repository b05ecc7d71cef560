"""An MkDocs hook that adds pages from outside docs/ and rewrites links to them.

A link has to work both in the repository and on the site. In the repository it leads to a file.
This hook replaces the file by the page that the site makes of it (`PAGES`). If the link's text is
the file's name, the page's heading replaces it. A link to a file without a page becomes plain text.
A link to a file that does not exist fails the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

# files outside docs/, and their paths on the site
PAGES = {
    "spark_connector/README.md": "spark/README.md",
    "broker/README.md": "inside/broker.md",
    "coordinator/README.md": "inside/coordinator.md",
    "coordinator/LATE_REQUESTS.md": "inside/late-requests.md",
    "coordinator/TWO_PHASE_COMMIT.md": "inside/two-phase-commit.md",
    "protocol/README.md": "inside/protocol.md",
    "storage/README.md": "inside/storage.md",
    "storage/DURABILITY.md": "inside/durability.md",
    "barnabas/cli/README.md": "inside/cli.md",
    "barnabas/cli/COMPARISON.md": "inside/command-lines.md",
    "tests/README.md": "inside/tests.md",
    "tests/RULES.md": "inside/rules.md",
    "tests/EVIDENCE.md": "inside/evidence.md",
    "tests/sim/README.md": "inside/sim.md",
    "bench/README.md": "inside/bench.md",
    "bench/MEASUREMENTS.md": "inside/measurements.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "README.md": "index.md",
}
_BY_PLACE = {place: source for source, place in PAGES.items() if source != "README.md"}
_CODE = re.compile(r"^(```|~~~).*?^\1\s*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"[\w/.-]+\.md")
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of `PAGES`."""
    for place, source in _BY_PLACE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Rewrite the links of a page."""
    place = page.file.src_uri
    return with_site_links(markdown, _BY_PLACE.get(place, f"docs/{place}"), place)


def with_site_links(markdown: str, source: str, place: str) -> str:
    """Return a page's text with links for the site.

    Takes:  source, the page's file; place, the page's path on the site.
    """
    codes: list[str] = []

    def set_aside(match: re.Match[str]) -> str:
        codes.append(match[0])
        return f"\0{len(codes) - 1}\0"

    text = _LINK.sub(lambda match: _mended(match, source, place), _CODE.sub(set_aside, markdown))
    return re.sub("\0(\\d+)\0", lambda match: codes[int(match[1])], text)


def _mended(match: re.Match[str], source: str, place: str) -> str:
    """Return a link with the target's path on the site, or only the link's text if the target is
    not a page of the site.
    """
    target, _, anchor = match["target"].partition("#")
    if not target or re.match(r"[a-z]+:", target):
        return match[0]
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if not (ROOT / file).exists():
        raise PluginError(f"{source}: it has a link to {file}, which does not exist")
    page = PAGES.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
    if page is None:
        return match["text"]
    link_path = posixpath.relpath(page, posixpath.dirname(place) or ".")
    text = match["text"]
    if _FILE_NAME.fullmatch(text):
        text = _title(file) or text
    return f"{match['image']}[{text}]({link_path}{'#' + anchor if anchor else ''})"


def _title(file: str) -> str:
    """A page's heading."""
    heading = re.search(r"^# (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1] if heading else ""
