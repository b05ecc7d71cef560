"""The tables of generated mutants name existing code: the modules and functions to change, and the
lines of the equivalent and of the judged changes.

If a pattern matched nothing, for example after a module was moved, a part of the product would have
no mutants, and no report would show this.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
from mutants import equivalents, judged, targets
from mutants.equivalents import Equivalent
from mutants.judged import Judged

ROOT = Path(__file__).parents[2]
Row = TypeVar("Row", Equivalent, Judged)
MODULES = frozenset(targets.modules(ROOT))
# Folders that have no mutants yet, since their code can neither lose nor duplicate records.
ROOMS_WITHOUT = frozenset(
    {
        "broker/brokers", "broker/console", "broker/control", "broker/graduation",
        "broker/kafka_directory", "broker/metrics", "broker/observation", "broker/requests",
        "broker/rim", "broker/settings",
    }
)  # fmt: skip


@cache
def functions_of(module: str) -> dict[str, str]:
    """The qualified names of the outermost functions, each with its lines without indentation.

    The two functions of a property with a setter have one name: their lines are joined.
    """
    source = (ROOT / module).read_text()
    lines = [line.strip() for line in source.splitlines()]

    def walk(body: list[ast.stmt], scope: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, (*scope, node.name))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                yield ".".join((*scope, node.name)), f"\n{text}\n"

    functions: dict[str, str] = {}
    for name, text in walk(ast.parse(source).body, ()):
        functions[name] = functions.get(name, "") + text
    return functions


def dead(entries: Sequence[Row]) -> list[Row]:
    """The entries whose lines before the change are not in their function.

    The report of a run names these, and those whose change no operator makes any more. The latter
    are found only by making all mutants, which takes half a minute.
    """
    return [
        entry
        for entry in entries
        if f"\n{entry.old}\n" not in functions_of(entry.module).get(entry.function, "")
    ]


@pytest.mark.parametrize("pattern", targets.TARGETS)
def test_a_target_is_there(pattern: str) -> None:
    found = [module for module in MODULES if fnmatchcase(module, pattern)]
    assert found
    for function in targets.TARGETS[pattern] or ():
        assert any(fnmatchcase(name, function) for each in found for name in functions_of(each)), (
            function
        )


@pytest.mark.parametrize("module", targets.DATA_PATHS)
def test_a_data_path_is_one_of_a_target(module: str) -> None:
    assert module in MODULES
    for pattern in targets.DATA_PATHS[module]:
        assert any(fnmatchcase(name, pattern) for name in functions_of(module)), pattern


def test_each_room_is_a_target_or_named_as_one_that_is_none() -> None:
    rooms = {
        path.parent.relative_to(ROOT).as_posix()
        for top in ("broker", "coordinator", "storage")
        for path in (ROOT / top).rglob("__init__.py")
    }
    without = {
        room for room in rooms if not any(module.startswith(f"{room}/") for module in MODULES)
    }
    assert {room for room in without if not room.startswith(tuple(ROOMS_WITHOUT))} == set()
    assert {room for room in ROOMS_WITHOUT if room not in without} == set()


def test_equivalent_mutants_are_of_functions_that_there_are() -> None:
    entries = equivalents.load()
    assert [entry for entry in entries if entry.module not in MODULES] == []
    assert [entry for entry in entries if entry.function not in functions_of(entry.module)] == []
    assert len({entry[:4] for entry in entries}) == len(entries)


def test_equivalent_mutants_change_lines_of_their_functions() -> None:
    assert dead(equivalents.load()) == []


def test_judged_mutants_change_lines_of_their_functions() -> None:
    assert dead(judged.load()) == []


def test_an_entry_is_dead_if_its_line_has_another_comment_or_is_in_another_function() -> None:
    entry = next(entry for entry in equivalents.load() if "  # " in entry.old)
    code = entry.old.partition("  # ")[0]
    assert dead([entry]) == []
    assert dead([entry._replace(old=code)]) != []
    assert dead([entry._replace(function="__init__")]) != []


def test_judged_mutants_are_of_data_paths() -> None:
    entries = judged.load()
    assert len({entry.key for entry in entries}) == len(entries)
    assert [
        entry for entry in entries if not targets.is_on_data_path(entry.module, entry.function)
    ] == []
