"""No three modules of the project form an import cycle, even with type-only imports included.

The modules of such a cycle could not be read, tested or moved separately.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from helpers.places import ROOT

PACKAGES = ("broker", "coordinator", "protocol", "spark_connector", "storage")
MOST_IN_A_CIRCLE = 2


def modules_of(root: Path) -> dict[str, Path]:
    """The files of all modules, by import name."""
    files = {f"barnabas.{package}": root / package for package in PACKAGES}
    files["barnabas"] = root / "barnabas"
    return {
        ".".join((name, *path.relative_to(folder).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for name, folder in files.items()
        for path in folder.rglob("*.py")
        if not any(one.is_symlink() for one in path.relative_to(folder).parents)
    }


@cache
def imports() -> dict[str, set[str]]:
    """The modules that each module imports, by the name of the importing module."""
    modules = modules_of(ROOT)
    return {name: imports_of(name, path.read_text(), modules) for name, path in modules.items()}


def imports_of(name: str, text: str, modules: Mapping[str, object]) -> set[str]:
    """The project's modules that a module imports anywhere, including imports only for type
    checking.
    """
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {one for one in found if one in modules and one != name}


def circles_in(imports: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """The strongly connected components with more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for other in sorted(imports.get(name, ())):
            if other not in index:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], index[other])
        if lowest[name] == index[name]:
            circle = set()
            while name not in circle:
                circle.add(stack.pop())
            if len(circle) > 1:
                found.append(circle)

    for name in sorted(imports):
        if name not in index:
            visit(name)
    yield from found


def test_no_three_modules_import_each_other() -> None:
    assert {"barnabas.broker.core", "barnabas.storage.log.log", "barnabas.version"} <= set(
        imports()
    )
    assert sum(map(len, imports().values())) > 1000
    large = [sorted(circle) for circle in circles_in(imports()) if len(circle) > MOST_IN_A_CIRCLE]
    assert large == []


@pytest.mark.parametrize(
    ("texts", "circle"),
    [
        ({"a": "import b", "b": "import c", "c": "import a"}, {"a", "b", "c"}),
        (
            {
                "a": "from b import x",
                "b": "if TYPE_CHECKING:\n    from c import y",
                "c": "def f():\n    from a import z",
            },
            {"a", "b", "c"},
        ),
        ({"a": "import b", "b": "import c", "c": ""}, None),
    ],
)
def test_imports_for_types_and_within_functions_count(
    texts: dict[str, str], circle: set[str] | None
) -> None:
    of_texts = {name: imports_of(name, text, texts) for name, text in texts.items()}
    assert list(circles_in(of_texts)) == ([] if circle is None else [circle])
