"""Finds objects that only the garbage collector would free, since they form cycles.

A process that serves strangers must not depend on the collector: it runs after a number of new
objects, and a single object may hold 100 MB. So whatever a client makes has to be freed by its
reference counts.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import tracemalloc
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

MOST_NAMED = 12
# The interpreter itself keeps some objects now and then, so the least of a few rounds counts.
ROUNDS, TIMES = 4, 50
MOST_BLOCKS = TIMES - 10  # less than one object for each time
MOST_BYTES = 16 << 10


class Cycles:
    """What the collector has found. `kinds` counts the objects of each kind."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def __str__(self) -> str:
        rows = "".join(f"\n{count:6} {kind}" for kind, count in self.kinds.most_common(MOST_NAMED))
        return f"{self.kinds.total()} objects are left to the garbage collector:{rows}"


@contextlib.contextmanager
def without_collector() -> Iterator[Cycles]:
    """A context in which the collector frees nothing. At its end, the result describes the objects
    that were made in it, and that only the collector would free.
    """
    found = Cycles()
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.kinds.update(_kind_of(one) for one in _without_classes(gc.garbage))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()


def _without_classes(garbage: list[Any]) -> list[Any]:
    """The objects that do not belong to a class. An import makes a class twice if it has slots."""
    ids = set()
    for one in garbage:
        if isinstance(one, type):
            ids.update(map(id, (one, *gc.get_referents(one))))
            for part in gc.get_referents(one):
                ids.update(map(id, gc.get_referents(part)))
    return [one for one in garbage if id(one) not in ids]


def _kind_of(one: Any) -> str:
    """The type of an object, and for code its place."""
    kind = type(one)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(one, types.FunctionType):
        return f"function {one.__module__}.{one.__qualname__}"
    if isinstance(one, types.MethodType | types.GeneratorType):
        return f"{kind.__name__} {one.__qualname__}"
    if isinstance(one, types.FrameType):
        return f"frame {one.f_code.co_filename}:{one.f_lineno} {one.f_code.co_name}"
    if isinstance(one, types.TracebackType):
        return f"traceback {one.tb_frame.f_code.co_filename}:{one.tb_lineno}"
    return name


# --- one thing, many times -------------------------------------------------------------------


def check_is_freed(use: Callable[[], Any], *, appends: bool = False, times: int = TIMES) -> None:
    """Check that `use`, which makes and ends one thing, leaves nothing in memory.

    Takes: appends, whether `use` appends records, so that only cycles are looked for: the positions
           of the last batches stay in memory, and the whole log of a simulated disk; times, the
           number of uses in a round. With less than TIMES a single object for each is not noticed.
    """
    for _ in range(min(5, times)):
        use()
    growth: list[tuple[int, int]] = []
    with without_collector() as cycles:
        tracemalloc.start()
        try:
            before = memory_of()
            for _ in range(ROUNDS):
                for _ in range(times):
                    use()
                after = memory_of()
                growth.append((after[0] - before[0], after[1] - before[1]))
                before = after
        finally:
            tracemalloc.stop()
    assert not cycles.kinds, str(cycles)
    if not appends:
        blocks, size = (min(one) for one in zip(*growth, strict=True))
        assert blocks < MOST_BLOCKS or times < TIMES, f"{blocks} objects stay"
        assert size < MOST_BYTES, f"{size} bytes stay"


def memory_of() -> tuple[int, int]:
    """The number of this process's objects and their bytes, without free lists. The garbage stays
    for the check, see `without_collector`.
    """
    gc.collect()
    return sys.getallocatedblocks(), tracemalloc.get_traced_memory()[0]
