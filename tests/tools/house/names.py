"""Names in docstrings and comments that do not exist: attributes of our classes, and files."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from house.sizes import PACKAGES, ROOT

ATTRIBUTE = re.compile(r"`([A-Z]\w+)\.(\w+)`")
FILE = re.compile(r"(?<![\w./])([\w/]+\.py)\b")
# Names of files that are not ours.
FOREIGN = frozenset({"sitecustomize.py", "msk_tokens.py"})


def report() -> Iterator[str]:
    """A line for each name that does not exist."""
    trees = {
        path: ast.parse(path.read_text("utf-8"))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not any(folder.is_symlink() for folder in path.parents)
    }
    classes = _classes(trees.values())
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("[!.]*/**/*.py")]
    count = 0
    for path, tree in trees.items():
        place = path.relative_to(ROOT).as_posix()
        for line, text in _texts(path, tree):
            for name, attribute in ATTRIBUTE.findall(text):
                if name in classes and not _has(classes, name, attribute):
                    yield f"{place}:{line}: {name}.{attribute}"
                    count += 1
            for name in FILE.findall(text):
                if name not in FOREIGN and not any(one.endswith(f"/{name}") for one in files):
                    yield f"{place}:{line}: {name}"
                    count += 1
    yield f"{count} names in the docstrings and comments of {len(trees)} files do not exist"


def _classes(trees: Iterable[ast.Module]) -> dict[str, tuple[set[str], set[str]]]:
    """The bases and the attributes of each class; classes of the same name are joined."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            bases, names = found.setdefault(node.name, (set(), set()))
            bases |= {base.id for base in node.bases if isinstance(base, ast.Name)}
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    names.add(inner.name)
                elif isinstance(inner, ast.Name):
                    names.add(inner.id)
                elif isinstance(inner, ast.Attribute):
                    names.add(inner.attr)
                elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    names.add(inner.value)  # __slots__
    return found


def _has(classes: dict[str, tuple[set[str], set[str]]], name: str, attribute: str) -> bool:
    """Whether a class has an attribute, or a base that is not ours, which may have it."""
    if name not in classes:
        return True
    bases, names = classes[name]
    return attribute in names or any(_has(classes, base, attribute) for base in bases - {name})


def _texts(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a file, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
