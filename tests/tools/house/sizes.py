"""The lines of classes and functions, without docstrings."""

from __future__ import annotations

import ast
import heapq
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("barnabas", "broker", "coordinator", "protocol", "spark_connector", "storage")
SHOWN = 12
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def report() -> Iterator[str]:
    """The largest definitions, classes first, and the lines of each package."""
    sizes: dict[bool, list[tuple[int, str]]] = {True: [], False: []}
    for package in PACKAGES:
        lines = 0
        for path in (ROOT / package).rglob("*.py"):
            if not {"messages", "internal_records"}.isdisjoint(path.parts):  # mostly generated
                continue
            text = path.read_text("utf-8")
            lines += text.count("\n")
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, Definition):
                    is_class = isinstance(node, ast.ClassDef)
                    sizes[is_class].append((lines_of(node), f"{name}: {node.name}"))
        yield f"{package}/: {lines} lines"
    for of_kind in sizes.values():
        yield ""
        for size, name in heapq.nlargest(SHOWN, of_kind):
            yield f"{size:5} {name}"


def lines_of(node: Definition) -> int:
    """The lines of a definition without the docstrings inside it."""
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    for inner in ast.walk(node):
        if isinstance(inner, Definition) and ast.get_docstring(inner) is not None:
            docstring = inner.body[0]
            assert docstring.end_lineno is not None
            lines -= docstring.end_lineno - docstring.lineno + 1
    return lines
