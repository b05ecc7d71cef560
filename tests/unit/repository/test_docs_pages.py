"""The generated pages of docs/ agree with the code."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from helpers.places import ROOT

from barnabas.protocol.errors import Code

DOCS = ROOT / "docs"
MODULES = (
    "settings",
    "api_reference",
    "error_reference",
    "command_reference",
    "metrics_reference",
    "python_api",
    "contract",
    "pages",
)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """docs/pages.py as a module. docs/ is on the path, as it is when the script runs."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield importlib.import_module("pages")
    for name in MODULES:
        sys.modules.pop(name, None)


def test_the_generated_pages_are_up_to_date() -> None:
    """The check runs in a separate process, as in `make docs-pages`. In this process, an earlier
    test may have used a command's help, which click caches at the first use.
    """
    command = [sys.executable, "pages.py", "--check"]
    done = subprocess.run(command, cwd=DOCS, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "run `make docs-pages`"


def test_every_code_that_is_answered_has_a_meaning(pages: ModuleType) -> None:
    reference = sys.modules["error_reference"]
    answered = reference.answered_codes()
    assert {"PRODUCER_FENCED", "UNSTABLE_OFFSET_COMMIT", "UNKNOWN_TOPIC_OR_PARTITION"} <= answered
    assert answered <= {code.name for code in Code}
    assert sorted(answered - set(reference.MEANINGS)) == [], "say what they mean"


def test_each_import_of_the_python_page_works(pages: ModuleType) -> None:
    lines = re.findall(r"^from (\S+) import (\S+)$", (DOCS / "PYTHON_API.md").read_text(), re.M)
    assert ("barnabas", "LocalBroker") in lines
    for module, name in lines:
        assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"


def test_each_item_of_the_contract_has_a_marker_or_a_reason(
    pages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = sys.modules["contract"]
    assert contract.faults() == []
    found = contract.markers()
    assert any("test_these_do_neither" in link for link in found["kip-129/loop"])
    assert any("EXACTLY_ONCE_COST.md" in link for link in found["paper/figure-5a"])
    found.pop("kip-98/fencing")
    found["kip-98/fences"] = ["a link"]
    monkeypatch.setattr(contract, "markers", lambda: found)
    assert contract.faults() == [
        "kip-98/fences: a marker names it, docs/contract.py does not",
        "kip-98/fencing: no marker",
    ]
