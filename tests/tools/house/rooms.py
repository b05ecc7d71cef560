"""Which rooms of a package import each other. Imports for types and within functions count.

A room is a folder of a package, or a module at the package's top.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("broker", "coordinator/groups", "storage", "spark_connector", "barnabas")


def report() -> Iterator[str]:
    """A line for each package, then the rooms of each circle."""
    for package in PACKAGES:
        arrows = imports_between_rooms(package)
        rooms = {room for arrow in arrows for room in arrow}
        mutual = sum((after, before) in arrows for before, after in arrows) // 2
        of_room: dict[str, set[str]] = {room: set() for room in rooms}
        for before, after in arrows:
            of_room[before].add(after)
        found = sorted(circles(of_room), key=len, reverse=True)
        sizes = ", ".join(str(len(circle)) for circle in found) or "none"
        yield (
            f"{package}: {len(rooms)} rooms, {len(arrows)} arrows, {mutual} pairs in both "
            f"directions, circles of {sizes}"
        )
        yield from (f"    {' '.join(sorted(circle))}" for circle in found)


def imports_between_rooms(package: str) -> Counter[tuple[str, str]]:
    """How many names each room imports from each other room of the package."""
    prefix = f"barnabas.{package.replace('/', '.')}.".replace("barnabas.barnabas.", "barnabas.")
    modules = {
        prefix
        + ".".join(path.relative_to(ROOT / package).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in (ROOT / package).rglob("*.py")
        if not any(one.is_symlink() for one in path.parents)
    }

    def room_of(module: str) -> str:
        return module.removeprefix(prefix).partition(".")[0]

    arrows: Counter[tuple[str, str]] = Counter()
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                imported = inner if inner in modules else node.module
                if imported in modules and room_of(imported) != room_of(module):
                    arrows[room_of(module), room_of(imported)] += 1
    return arrows


def circles(imports: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """The largest sets of names in which each one reaches each other one."""
    reached = {name: _reached_from(name, imports) for name in imports}
    seen: set[str] = set()
    for name in imports:
        circle = {other for other in reached[name] if name in reached[other]}
        if len(circle) > 1 and name not in seen:
            seen |= circle
            yield circle


def _reached_from(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [name]
    while ahead:
        for other in imports.get(ahead.pop(), ()):
            if other not in reached:
                reached.add(other)
                ahead.append(other)
    return reached
