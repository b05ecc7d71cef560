"""docs/CONFIGURATION.md says what the tables of broker/config.py say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_list_of_settings_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("settings_document", DOCS / "settings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "CONFIGURATION.md").read_text(encoding="utf-8") == module.text(), (
        "run `python docs/settings.py`"
    )
