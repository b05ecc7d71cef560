"""Keeps indexes of closed segments in memory, and postpones the builds of large ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.storage.segments.segment_indexes import SegmentIndexes


class BuildDeferred(Exception):
    """A large index has to be built. To build it now would block other clients.

    build: a function that builds it in slices. is_for_aborted: whether it is the aborted index.
    """

    def __init__(
        self,
        indexes: SegmentIndexes,
        build: Callable[[], Iterator[None]],
        *,
        is_for_aborted: bool = False,
    ) -> None:
        super().__init__()
        self.indexes, self.build, self.is_for_aborted = indexes, build, is_for_aborted


class IndexCache:
    """The closed segments with indexes in memory. Beyond `max_bytes`, the indexes of the least
    recently used segments are removed.

    defers_builds: while it is set, the index of a large segment is not built immediately
    (`index_builds`).
    """

    __slots__ = ("_entries", "bytes", "defers_builds", "max_bytes")

    def __init__(self, max_bytes: int = 8 << 20) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.defers_builds = False
        self._entries: OrderedDict[int, tuple[SegmentIndexes, int]] = OrderedDict()

    @contextmanager
    def deferring_builds(self) -> Iterator[None]:
        """A context in which builds of large indexes are postponed."""
        self.defers_builds = True
        try:
            yield
        finally:
            self.defers_builds = False

    def touch(self, indexes: SegmentIndexes) -> None:
        key = id(indexes)  # the id is not used again as long as the entry has a reference
        if key in self._entries:
            self._entries.move_to_end(key)

    def hold(self, indexes: SegmentIndexes, size: int) -> None:
        """Record how much memory these indexes use. Beyond the limit, the least recently used
        indexes are dropped.
        """
        old = self._entries.pop(id(indexes), None)
        self.bytes += size - (old[1] if old else 0)
        self._entries[id(indexes)] = (indexes, size)
        while self.bytes > self.max_bytes and len(self._entries) > 1:
            _, (victim, freed) = self._entries.popitem(last=False)
            self.bytes -= freed
            victim.drop()

    def forget(self, indexes: SegmentIndexes) -> None:
        """Remove a segment because it is no longer used, or because its log is closed. Its indexes
        are not built any more.
        """
        indexes.is_forgotten = True
        entry = self._entries.pop(id(indexes), None)
        if entry:
            self.bytes -= entry[1]
