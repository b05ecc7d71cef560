"""The two clocks of the machine, as the rim reads them; protocol/wall_clock.py says what each is
for.
"""

from __future__ import annotations

from time import monotonic_ns, perf_counter_ns, time_ns

NS_PER_MS = 1_000_000
steady_ns, wall_ns = monotonic_ns, time_ns


def steady_ms() -> int:
    """The time that deadlines run on: it never steps, and does not advance while the machine is
    suspended.

    That is intended. A session or a transaction times out because its client had the
    time to say something and did not; while the machine slept no client could be heard, and the
    clients on it slept too. (CLOCK_BOOTTIME goes on: each resume would put out all members at
    once.)
    """
    return steady_ns() // NS_PER_MS


def busy_ns() -> int:
    """The time that passes while requests are worked on, in nanoseconds."""
    return perf_counter_ns()


def wall_ms() -> int:
    """What records are stamped with."""
    return wall_ns() // NS_PER_MS
