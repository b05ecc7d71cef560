"""A histogram of durations in nanoseconds, with the buckets that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import NamedTuple

BOUNDS_NS = (*(factor * 10**power for power in range(4, 11) for factor in (1, 2, 5)), 10**11)
"""10 us to 100 s, in steps of 1, 2 and 5; each bound belongs to its bucket."""


class Buckets(NamedTuple):
    """The state of a histogram at one moment. counts: for each of BOUNDS_NS, the number of
    durations up to this bound. total: the number of all durations. sum_ns: the sum of all
    durations.
    """

    counts: list[int]
    total: int
    sum_ns: int


class Histogram:
    """A histogram of durations. One thread writes; any thread may read.

    `mark` stores the present counts. The durations that are counted after the mark are a sample,
    which can be counted again in place of durations that are not measured.
    """

    __slots__ = ("_counts", "_marked_counts", "_marked_sum_ns", "_sum_ns")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_NS) + 1)
        self._sum_ns = 0
        self.mark()

    def observe(self, duration_ns: int) -> None:
        """Count one value."""
        self._counts[bisect_left(BOUNDS_NS, duration_ns)] += 1
        self._sum_ns += duration_ns

    def observe_all(self, durations_ns: list[int]) -> None:
        """Count many values, at a tenth of the cost of calling `observe` for each. The list is
        sorted in place.
        """
        durations_ns.sort()
        before = 0
        for number, bound in enumerate(BOUNDS_NS):
            up_to = bisect_right(durations_ns, bound, before)
            self._counts[number] += up_to - before
            before = up_to
        self._counts[-1] += len(durations_ns) - before
        self._sum_ns += sum(durations_ns)

    def mark(self) -> None:
        """Store the present counts as the mark."""
        self._marked_counts, self._marked_sum_ns = list(self._counts), self._sum_ns

    @property
    def latest(self) -> int:
        """How many durations were counted since the mark."""
        return sum(self._counts) - sum(self._marked_counts)

    def repeat_latest(self, count: int) -> None:
        """Count `count` more durations that were not measured, distributed like those since the
        mark.
        """
        latest = [now - then for now, then in zip(self._counts, self._marked_counts, strict=True)]
        total = sum(latest)
        if not (count and total):
            return
        self._sum_ns += (self._sum_ns - self._marked_sum_ns) * count // total
        before = 0
        for number, up_to in enumerate(accumulate(latest)):
            # cumulative counts are rounded, so that the sum of the shares is exactly `count`
            share = (up_to * count + total // 2) // total
            self._counts[number] += share - before
            before = share

    def buckets(self, *, zeros: int = 0) -> Buckets:
        """The histogram at this moment. zeros: the number of additional durations of 0."""
        first, *others, beyond = self._counts
        counts = list(accumulate([first + zeros, *others]))
        return Buckets(counts, counts[-1] + beyond, self._sum_ns)

    @property
    def total(self) -> int:
        """How many durations were counted."""
        return sum(self._counts)
