"""How slow this machine is now, for tests that limit the core's CPU time.

    slowness()       1 on a desktop machine and on faster ones, more on slower ones
    at_desk_s(s)     CPU time measured just now, converted to that of a desktop machine
    least_desk_s(measured, enough)   the shortest of several attempts, converted in the same way

A hosted machine is slower, and other guests use its caches: the same work takes up to four times as
long from one minute to the next. So each limit is for a desktop machine, and each measurement is
divided by the slowness, which is measured immediately after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

# The times of a desktop machine: a little less than the shortest of 20 measurements on a shared AMD
# EPYC, which were 20 and 14 ms.
FILLING_S = 0.018  # for 100,000 dictionary entries, with their keys and values
COPYING_S = 0.010  # for copying 8 MB three times into untouched memory


def slowness() -> float:
    """The slowness of this thread compared to a desktop machine, at least 1.

    It is the larger of two factors, for the interpreter and for memory. The measurement takes 30 to
    80 ms.
    """
    return max(1.0, _filling_s() / FILLING_S, _copying_s() / COPYING_S)


def at_desk_s(measured_s: float) -> float:
    """Convert CPU seconds, measured just before on this machine, to those of a desktop machine."""
    return measured_s / slowness()


def least_desk_s(measured_s: Iterable[float], enough_s: float) -> float:
    """The shortest of several attempts in seconds of a desktop machine; stops after an attempt that
    took less than `enough_s`.
    """
    least_s = float("inf")
    for attempt_s in measured_s:
        if attempt_s < enough_s:
            return attempt_s
        least_s = min(least_s, at_desk_s(attempt_s))
        if least_s < enough_s:
            break
    return least_s


def _filling_s() -> float:
    """The CPU time of a loop that fills a dict: how slow the interpreter is."""
    began = time.thread_time()
    rows: dict[int, tuple[int, str]] = {}
    for number in range(100_000):
        rows[number & 1023] = (number, str(number))
    return time.thread_time() - began


def _copying_s() -> float:
    """The CPU time of copies of 8 MiB: how slow the memory is."""
    began = time.thread_time()
    bytes(bytearray(bytes(8 << 20)))
    return time.thread_time() - began
