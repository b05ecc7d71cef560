"""The two clocks of the machine, as the rim reads them. protocol/wall_clock.py describes their
uses.
"""

from __future__ import annotations

from time import monotonic_ns, perf_counter_ns, time_ns

from barnabas.broker.seams.host import Clock

NS_PER_MS = 1_000_000
steady_ns, wall_ns = monotonic_ns, time_ns
MACHINE_CLOCK = Clock(steady_ns, wall_ns)


def steady_ms() -> int:
    """The time of deadlines. It never steps, and does not advance while the machine is suspended.

    This is intended. A session or a transaction times out because its client could have sent a
    request and did not. While the machine was suspended no request could be received, and the
    clients on it were suspended, too. (CLOCK_BOOTTIME does advance, so each resume would time out
    all members at once.)
    """
    return steady_ns() // NS_PER_MS


def busy_ns() -> int:
    """The clock that measures the handling of requests, in nanoseconds."""
    return perf_counter_ns()


def wall_ms() -> int:
    """The wall clock, for the timestamps of records."""
    return wall_ns() // NS_PER_MS
