"""The commands, settings and addresses that messages, the page and the documents advise.

Python: all strings of the packages, docstrings too; a value that is put in at run time is a
PLACEHOLDER. The page: all its files. Documents: code in backticks, and lines of code blocks.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("barnabas", "broker", "coordinator", "protocol", "spark_connector", "storage")
PLACEHOLDER = "\N{WHITE SQUARE}"


class Advice(NamedTuple):
    """A text that a person may follow. where: the file and the line."""

    where: str
    text: str


# --- texts ----------------------------------------------------------------------------------------


@cache
def strings() -> tuple[Advice, ...]:
    """The strings of the packages, each whole: parts of a text that follow each other are one."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.is_symlink() or any(one.is_symlink() for one in path.parents):
                continue
            name = path.relative_to(ROOT).as_posix()
            for node in _outermost(ast.parse(path.read_text())):
                found.append(Advice(f"{name}:{node.lineno}", _text_of(node)))
    return tuple(found)


def _outermost(tree: ast.AST) -> Iterator[ast.expr]:
    """The strings that are no part of another one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr) or _is_joined(node):
            assert isinstance(node, ast.expr)
            yield node
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node
        else:
            yield from _outermost(node)


def _is_joined(node: ast.AST) -> bool:
    """Whether a node is a sum of strings."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and any(
            isinstance(side, ast.JoinedStr)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str))
            or _is_joined(side)
            for side in (node.left, node.right)
        )
    )


def _text_of(node: ast.expr) -> str:
    """The text of a string, with PLACEHOLDER for what is put in at run time."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text_of, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text_of(node.left) + _text_of(node.right)
    return PLACEHOLDER


@cache
def page() -> tuple[Advice, ...]:
    """The files of the console's page, by line. `${…}` is a PLACEHOLDER."""
    found = []
    for path in sorted((ROOT / "barnabas/console/static").iterdir()):
        if path.suffix in (".js", ".html"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                text = re.sub(r"\$\{[^{}]*\}", PLACEHOLDER, line)
                found.append(Advice(f"{path.name}:{number}", text))
    return tuple(found)


@cache
def documents() -> tuple[Advice, ...]:
    """The documents, each whole."""
    paths = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "packaging").glob("*"),
        *(path for package in PACKAGES for path in (ROOT / package).rglob("*.md")),
        *(ROOT / "examples").rglob("*.md"),
    ]
    return tuple(
        Advice(path.relative_to(ROOT).as_posix(), path.read_text())
        for path in sorted(paths)
        if path.is_file() and path.name != "CHANGELOG.md"
    )


# --- commands -------------------------------------------------------------------------------------

_IN_BACKTICKS = re.compile(r"`(barnabas [^`]*)`")
_IN_TAGS = re.compile(r"<code>(barnabas [^<]*)</code>")
_IN_DOLLARS = re.compile(r"\$\((barnabas [^)]*)\)")
_ON_A_LINE = re.compile(r"(?:^|[|$:]) *(barnabas [a-z][a-z-]* [^\n]*)$", re.MULTILINE)
_GENERATED = "docs/COMMAND_REFERENCE.md"  # made from the commands themselves


def commands(texts: tuple[Advice, ...]) -> Iterator[tuple[Advice, list[str]]]:
    """The commands `barnabas …` in texts, each as its words after `barnabas`."""
    for advice in texts:
        if advice.where == _GENERATED:
            continue
        text = re.sub(r"\\\n\s*", "", advice.text).replace("%s", PLACEHOLDER)
        found = [match[1] for match in _IN_DOLLARS.finditer(text)]
        text = _IN_DOLLARS.sub("", text)
        for pattern in (_IN_BACKTICKS, _IN_TAGS):
            found += [match[1] for match in pattern.finditer(text)]
            text = pattern.sub("", text)
        found += [match[1] for match in _ON_A_LINE.finditer(text)]
        for line in found:
            line = re.sub(r"\s*\n\s*", " ", line)
            if words := _words(line):
                yield Advice(advice.where, line), words


def _words(line: str) -> list[str]:
    """The words of a command after `barnabas`, up to what the shell reads as its end."""
    line = line.removeprefix("barnabas ").partition(" -- ")[0]
    for end in ("", ".", ",", ":", ";", ")", "'", '"'):
        try:
            words = shlex.split(line.removesuffix(end), comments=True)
        except ValueError:
            continue
        break
    else:
        words = line.split()
    for at, word in enumerate(words):
        if word in ("|", "||", "&&", ";", "&") or word.startswith((">", "<", "2>")):
            return words[:at]
    return words
