"""Tries the waiting fetches of share partitions again, for one share partition after the other.

A fetch that is tried may acquire records, and may load or drop share partitions, so that other
fetches have to be tried as well (a wake). Such a wake is deferred while the states of share
partitions are in use: between the decision about a transition and its `apply`, and while a fetch is
tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.exception_guard import contain

if TYPE_CHECKING:
    from barnabas.broker.share_partitions.loaded_partition import LoadedPartition


class Wakes:
    """The deferred wakes. Used as a context manager, it defers all wakes to the end of
    the block.
    """

    __slots__ = ("_depth", "_waiting")

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: dict[LoadedPartition, int] = {}

    def wake(self, loaded: LoadedPartition, now_ms: int) -> None:
        """Try the fetches that wait for a share partition, now or at the end of the block."""
        with self:
            self._waiting[loaded] = now_ms

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        """At the end of the outermost block, notify the waiting fetches. This may cause further
        wakes, which are handled as well.
        """
        try:
            if self._depth == 1:
                waiting = self._waiting
                while waiting:
                    loaded = next(iter(waiting))
                    now_ms = waiting.pop(loaded)
                    try:
                        loaded.wake_now(now_ms)
                    except Exception as error:
                        contain(error, loaded.key)
        finally:
            self._depth -= 1
