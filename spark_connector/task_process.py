"""The Python process of Spark's that runs one task after the other."""

from __future__ import annotations

import gc
from functools import cache


@cache
def exempt_modules_from_collection() -> None:
    """Take all objects that there are by now out of Python's garbage collections, once a process.

    PySpark collects after each task, and looks at every function and class of every module each
    time: 30 ms of CPU and more, which is most of what a task with few rows costs. What is exempt is
    still freed when its last reference goes; only cycles among what is there now would stay.
    """
    gc.freeze()
