"""Indexes of closed segments that are built again from the log, in slices between requests.

A directory that Apache Kafka wrote has no manifests, so nothing vouches for its index files, and
each is built again when it is first needed: seconds for a GiB of small batches. Who can wait reads
under `IndexCache.puts_off`. Where a segment of more than BUILT_AT_ONCE_BYTES needs a build, that
raises `BuildPutOff` (`segment.py`); the reader gives it to `LogDirectory.build_later`, and reads
again when it is built.
For readers that cannot wait the index is built at once.

A slice is a generator's step: SLICE_COST, in which a batch counts as one, and as one more for each
READ_COST_BYTES that are read of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.storage.log.segment import BuildPutOff, Segment

Then = Callable[[int], None]


class IndexBuilds:
    """The builds that are under way, the first one in slices, and who waits for each."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Segment, bool], list[Then]] = {}
        self._steps: dict[tuple[Segment, bool], Iterator[None]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, put_off: BuildPutOff, then: Then) -> None:
        """Have the index built; `then(now_ms)` is called when it is, or cannot be.

        A reader that tries again hears of the reason why it could not be built.
        """
        key = put_off.segment, put_off.is_for_aborted
        if key not in self._steps:
            self._steps[key] = put_off.build()
        self._waiting.setdefault(key, []).append(then)

    def on_tick(self, now_ms: int) -> None:
        """Do one slice of the first build."""
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
            then(now_ms)
