"""The site of docs/ builds without warnings, is complete, and loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, where a broken link fails the build."""
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(target)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return target


def test_every_page_of_docs_is_on_the_site_and_can_be_found(site: Path) -> None:
    index = (site / "index.html").read_text("utf-8")
    pages = [page.stem for page in (ROOT / "docs").glob("*.md")]
    assert len(pages) > 15
    for page in pages:
        assert (site / f"{page}.html").exists()
        assert page == "index" or f'href="{page}.html"' in index, f"{page} is not in mkdocs.yml"


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|iframe|source|video)\b[^>]*\bsrc="([^"]+)"')
    links = re.compile(r'<link\b[^>]*\brel="(?!canonical)[^"]*"[^>]*\bhref="([^"]+)"')
    sources = [
        source
        for page in site.rglob("*.html")
        for pattern in (loads, links)
        for source in pattern.findall(page.read_text("utf-8"))
    ]
    assert len(sources) > 100
    assert [source for source in sources if re.match(r"(https?:)?//", source)] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text("utf-8")), style


def test_links_between_the_repository_and_the_site(site: Path) -> None:
    """If a file is not among the site's pages, the site shows its name without a link."""
    assert 'href="spark/index.html"' in (site / "index.html").read_text("utf-8")
    tests = (site / "inside" / "tests.html").read_text("utf-8")
    assert "conftest.py" in tests and 'conftest.py"' not in tests
    assert 'href="../VERIFICATION.html"' in tests
    limits = (site / "LIMITS.html").read_text("utf-8")
    assert '<a href="REQUESTS.html">Requests</a>' in limits, "a file's name becomes its heading"
