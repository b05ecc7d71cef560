"""Sets all limits of how much work is done at once to one element. A small history then has as many
slices of work as one with thousands of topics, groups and sessions.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_BOUND = re.compile(
    r"_?([A-Z_]+_)?AT_ONCE|PARTS_IN_A_FRAME|WORK_BETWEEN_PAUSES|CHECKPOINTED_(BESIDE|ALONE)"
)
# Limits whose names match this pattern stay unchanged, since they bound the size of a request, and
# larger requests are refused.
_OF_REQUESTS = re.compile(r"MOST_(TOPICS|PARTITIONS)_.*|LONGEST_.*")
_FOLDERS = ("broker.logs", "broker.share_partitions", "broker.requests", "replication",
            "broker.transactions", "broker.handlers", "coordinator", "storage")  # fmt: skip


@contextmanager
def small_slices(size: int = 1) -> Iterator[list[str]]:
    """Set the size of all slices while the context lasts, and yield the names of the changed
    limits.
    """
    for folder in _FOLDERS:
        package = importlib.import_module(f"barnabas.{folder}")
        for one in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if ".rim" not in one.name:
                importlib.import_module(one.name)
    before = [
        (module, name, value)
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("barnabas.")
        for name, value in vars(module).items()
        if _BOUND.fullmatch(name) and not _OF_REQUESTS.fullmatch(name) and type(value) is int
    ]
    for module, name, _ in before:
        setattr(module, name, size)
    try:
        yield [f"{module.__name__}.{name}" for module, name, _ in before]
    finally:
        for module, name, value in before:
            setattr(module, name, value)
