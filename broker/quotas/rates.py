"""Measures the recent use of a client, and computes its throttle time.

    what                    measured by   the client waits for                            at most
    bytes in and out        Rate          (rate - limit) / limit of the time measured
    percent of the broker   Rate          the same                                        a window
    new connections         Rate          the same                                        a window
    changes of topics       TokenBucket   what the bucket lacks, at the rate of the limit

This module has no clock; the caller's `now_ms` never decreases. Source: KIP-13 (rates), KIP-599
(buckets). Windows are counted as in Apache Kafka 3.9: tests/unit/broker/quotas/test_rates.py
compares the results with those of Kafka.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MOST_MS = 2**31 - 1  # the longest throttle time of the protocol


class Windows(NamedTuple):
    """The number of windows over which a rate is measured, and their length."""

    number: int
    size_ms: int


class _Sample:
    """The use in one window. last_ms: the time of the last use."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """The rate of use over the last windows, per second.

    A window begins with the first use after the end of the previous window. The rate is measured
    over the time since the oldest window began, but at least over the length of all windows but
    one. Otherwise the use of the first second would count as the rate.
    """

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows, now_ms: int) -> None:
        self._windows = windows
        self._samples = [_Sample(now_ms)]
        self._current = 0

    def record(self, amount: float, now_ms: int) -> None:
        """Record a use. A negative amount reverts the last use."""
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._windows.size_ms:
            sample = self._next_sample(now_ms)
        sample.total += amount
        sample.last_ms = now_ms

    def _next_sample(self, now_ms: int) -> _Sample:
        """Advance to the next sample of the ring, which has one sample more than there are
        windows.
        """
        self._current = (self._current + 1) % (self._windows.number + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long the client has to wait until the rate is down to the limit, in ms; 0 if it does
        not have to wait.
        """
        number, size_ms = self._windows
        total = 0.0
        oldest_ms = now_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= number * size_ms:
                sample.reset(now_ms)
            total += sample.total
            oldest_ms = min(oldest_ms, sample.start_ms)
        elapsed_ms = now_ms - oldest_ms
        # As in Apache Kafka, the rate is measured over at least number - 1 whole windows. Otherwise
        # it would be too high right after the start.
        elapsed_ms += max(0, number - 1 - elapsed_ms // size_ms) * size_ms
        elapsed_ms = max(elapsed_ms, 1)
        rate = total * 1000 / elapsed_ms
        return _whole_ms((rate - limit) / limit * elapsed_ms) if rate > limit else 0

    def is_obsolete(self, now_ms: int) -> bool:
        """Whether there was no use in any window, so that a new Rate would measure the same."""
        number, size_ms = self._windows
        return all(now_ms - sample.last_ms >= number * size_ms for sample in self._samples)


class TokenBucket:
    """A bucket that is filled at the rate of the limit, up to the use that the limit allows in all
    windows.

    A use that exceeds the remaining tokens is allowed, and overdraws the bucket. The client then
    waits until the bucket is no longer overdrawn.
    """

    __slots__ = ("_last_ms", "_limit", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = self._limit = 0.0
        self._last_ms: int | None = None

    def _most(self) -> float:
        return self._limit * self._windows.number * self._windows.size_ms / 1000

    def _fill(self, limit: float, now_ms: int) -> None:
        """Add the tokens that have accrued since the last call, up to a full bucket."""
        self._limit = limit
        if self._last_ms is None:
            self._tokens = self._most()
        else:
            self._tokens = min(self._most(), self._tokens + (now_ms - self._last_ms) * limit / 1000)
        self._last_ms = now_ms

    def record(self, tokens: float, limit: float, now_ms: int) -> None:
        """Take tokens out."""
        self._fill(limit, now_ms)
        self._tokens -= tokens

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """The time in ms until the bucket is no longer overdrawn; 0 if it is not overdrawn."""
        self._fill(limit, now_ms)
        return _whole_ms(-self._tokens / limit * 1000) if self._tokens < 0 else 0

    def is_obsolete(self, now_ms: int) -> bool:
        """Whether the bucket is full."""
        if self._last_ms is None:
            return True
        filled = (now_ms - self._last_ms) * self._limit / 1000
        return self._tokens + filled >= self._most()


def _whole_ms(time_ms: float) -> int:
    return min(MOST_MS, math.floor(time_ms + 0.5)) if time_ms < MOST_MS else MOST_MS
