"""Messages that the command line gives to kafka-python."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / "barnabas" / "cli" / "schemas"


def test_they_are_those_of_the_generator() -> None:
    schemas = sorted(INSTALLED.glob("*.json"))
    assert len(schemas) == 2
    for schema in schemas:
        source = ROOT / "protocol" / "generator" / "schemas" / schema.name
        assert schema.read_text("utf-8") == source.read_text("utf-8"), schema.name
