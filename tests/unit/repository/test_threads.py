"""The threads of the product. Each has a name, which shows up in stack traces of a stuck process,
and none keeps a process running after the main thread has ended.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from helpers.places import ROOT

PACKAGES = (
    "broker", "coordinator", "protocol", "storage", "spark_connector", "barnabas/cli",
    "barnabas/console", "barnabas/daemon", "barnabas/process", "barnabas/replication",
)  # fmt: skip


def threads_of(path: Path) -> list[tuple[int, dict[str, object]]]:
    """The lines of a file that create a thread, with the keyword arguments."""
    text = path.read_text(encoding="utf-8")
    if "Thread(" not in text:
        return []
    made = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "threading.Thread":
            named = {
                keyword.arg or "": getattr(keyword.value, "value", "computed")
                for keyword in node.keywords
            }
            made.append((node.lineno, named))
    return made


THREADS = [
    (f"{path.relative_to(ROOT)}:{line}", named)
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    for line, named in threads_of(path)
]


@pytest.mark.parametrize(("place", "named"), THREADS, ids=[place for place, _ in THREADS])
def test_a_thread_has_a_name_and_keeps_no_process_alive(
    place: str, named: dict[str, object]
) -> None:
    assert named.get("daemon") is True
    assert named.get("name")


def test_there_are_threads() -> None:
    assert len(THREADS) > 8
