"""The Python process of Spark's that runs one task, or one step of the driver, after the other."""

from __future__ import annotations

import gc

FREEZES = 4  # so many first calls exempt: modules and what they cache come with the first tasks


class _Process:
    """What a process remembers from one task to the next."""

    def __init__(self) -> None:
        self.freezes = 0


_process = _Process()


def exempt_modules_from_collection() -> None:
    """Take all objects that there are by now out of Python's garbage collections, at the beginning
    of each of a process's first tasks.

    PySpark collects after each task, and looks at every function and class of every module each
    time: 15 to 30 ms of CPU, in each of the processes that plan, read, write and commit a
    micro-batch, which is most of what one with few rows costs in Python. The first call comes
    before most modules are imported, the later ones after such a collection, so that next to no
    garbage is exempt with them. What is exempt is still freed when its last reference goes; only
    cycles among what is there now would stay.
    """
    if _process.freezes < FREEZES:
        _process.freezes += 1
        gc.freeze()
