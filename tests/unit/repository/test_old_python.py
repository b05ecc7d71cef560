"""An older Python gets one sentence, whether it installs Barnabas or runs a clone."""

from __future__ import annotations

import ast
import re
import sys
import tomllib

import pytest
from helpers.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OLD = (3, 10, 13)


@pytest.mark.parametrize(("program", "kind"), [("-m", SystemExit), ("script.py", ImportError)])
def test_an_import_says_which_python_is_needed(
    monkeypatch: pytest.MonkeyPatch, program: str, kind: type[BaseException]
) -> None:
    """`python -m barnabas` prints the sentence alone."""
    source = (ROOT / "barnabas" / "__init__.py").read_text("utf-8")
    code = compile(ast.parse(source, feature_version=(3, 7)), "barnabas/__init__.py", "exec")
    monkeypatch.setattr(sys, "version_info", OLD)
    monkeypatch.setattr(sys, "version", "3.10.13 (main)")
    monkeypatch.setattr(sys, "argv", [program])
    with pytest.raises(
        kind, match=re.escape("Barnabas needs Python 3.11 or later; this is 3.10.13")
    ):
        exec(code, {"__name__": "barnabas"})


def test_pip_says_it_before_it_looks_for_dependencies() -> None:
    """pip reads the dependencies first, and ended with "No matching distribution found"."""
    assert PROJECT["requires-python"] == ">=3.11"
    lacking = [one for one in PROJECT["dependencies"] if not one.endswith("python_version>='3.11'")]
    assert lacking == []
