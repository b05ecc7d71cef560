"""Indexes of closed segments that are built again from the log, in slices between requests.

A directory that Apache Kafka wrote has no manifests. Its index files are therefore not trusted, and
each is rebuilt when it is first needed. That takes seconds for a GiB of small batches. A reader
that can wait sets `IndexCache.defers_builds` to read. If a segment of more than BUILT_AT_ONCE_BYTES
then needs a build, `BuildDeferred` is raised (`segment_indexes.py`). The reader passes the error
to `LogDirectory.build_later`, and reads again when the index is built. For readers that cannot
wait, the index is built immediately.

A slice is a step of a generator. Its size is SLICE_COST: a batch counts as one, plus one for each
READ_COST_BYTES that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from barnabas.storage.exception_guard import contain
from barnabas.storage.files.segment_files import LOG_SUFFIX
from barnabas.storage.segments.index_cache import BuildDeferred

if TYPE_CHECKING:
    from barnabas.storage.segments.segment_indexes import SegmentIndexes

Then = Callable[[int], None]


class IndexBuilds:
    """A queue of index builds, with the callbacks of each. The first build runs in slices."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[SegmentIndexes, bool], list[Then]] = {}
        self._steps: dict[tuple[SegmentIndexes, bool], Iterator[None]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, deferred: BuildDeferred, then: Then) -> None:
        """Build the index. `then(now_ms)` is called when the build has succeeded or failed.

        After a failure, a reader that tries again gets the error.
        """
        key = deferred.indexes, deferred.is_for_aborted
        if key not in self._steps:
            self._steps[key] = deferred.build()
        self._waiting.setdefault(key, []).append(then)

    def on_tick(self, now_ms: int) -> None:
        """Do one slice of the first build in the queue."""
        if not self._steps:
            return
        key, steps = next(iter(self._steps.items()))
        try:
            next(steps)
            return
        except StopIteration:
            pass
        del self._steps[key]
        for then in self._waiting.pop(key):
            try:
                then(now_ms)
            except Exception as error:
                contain(error, key[0].batches.path(LOG_SUFFIX))
