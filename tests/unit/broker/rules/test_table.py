"""The table of rules in tests/RULES.md agrees with the tests that it names."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import NamedTuple

from helpers.places import TESTS


class Rule(NamedTuple):
    """A row of the table. `tests` has pairs of a file and the name of a test function in the
    file.
    """

    text: str
    sources: tuple[str, ...]
    tests: tuple[tuple[str, str], ...]


def rules() -> list[Rule]:
    """All rows of the table, in order."""
    found, file = [], ""
    text = (TESTS / "RULES.md").read_text()
    for line in text.splitlines():
        if line.startswith("## "):
            named = re.search(r"`(.+)`", line)
            file = named[1] if named else ""
        elif line.startswith("| ") and not line.startswith("| rule |"):
            rule, source, cell = (part.strip() for part in line.strip("|").split("|"))
            names = (name.rpartition("::") for name in re.findall(r"`([^`]+)`", cell))
            tests = tuple((own or file, name) for own, _, name in names)
            found.append(Rule(rule, tuple(source.split(", ")), tests))
    return found


@cache
def functions(file: str) -> dict[str, str]:
    """The tests of a file: the docstring of each, by its name."""
    tree = ast.parse((TESTS / file).read_text())
    return {
        node.name: " ".join((ast.get_docstring(node) or "").split())
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def files_of_rules() -> list[str]:
    return sorted(f"unit/{path.name}" for path in (TESTS / "unit").glob("test_rules_of_*.py"))


def test_every_rule_has_a_source_and_tests_that_exist() -> None:
    table = rules()
    assert len(table) > 60
    missing = [
        (rule.text, f"{file}::{name}")
        for rule in table
        for file, name in rule.tests
        if name not in functions(file)
    ]
    assert missing == []
    assert [rule.text for rule in table if not rule.tests or not all(rule.sources)] == []


def test_every_test_of_a_rule_is_in_the_table_and_names_its_source() -> None:
    named = {test for rule in rules() for test in rule.tests}
    tests = {(file, name) for file in files_of_rules() for name in functions(file)}
    assert tests - named == set()
    unsourced = [
        (name, source)
        for rule in rules()
        for file, name in rule.tests
        if file in files_of_rules()
        for source in rule.sources
        if source not in functions(file)[name].partition("Source: ")[2]
    ]
    assert unsourced == []
