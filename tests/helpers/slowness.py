"""How slow this machine computes at present, for the tests that bound the core's CPU time.

    slowness()       the machine against a desk's: 1 there and on a faster one, else more
    at_desk_s(s)     CPU time that was measured just now, as a desk's machine would have had it
    least_desk_s(measured, enough)   the same of the shortest of some attempts

A hosted machine is slower, and its other guests use its caches: the same work takes up to four
times as long from one minute to the next. So each bound holds for a desk's machine, and what was
measured is divided by the slowness that is measured right after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

# What a desk's machine needs for each: somewhat less than the shortest of 20 measurements on a
# shared AMD EPYC, which were 20 and 14 ms.
FILLING_S = 0.018  # of a dictionary, a hundred thousand times, with what is made for it
COPYING_S = 0.010  # of 8 MB, three times, into memory that was not touched before


def slowness() -> float:
    """How many times longer than a desk's machine this thread takes, at least 1.

    It is the larger of two: one for the interpreter, one for memory. Takes some 30 to 80 ms.
    """
    return max(1.0, _filling_s() / FILLING_S, _copying_s() / COPYING_S)


def at_desk_s(measured_s: float) -> float:
    """Seconds on a desk's machine, from CPU seconds of this one, measured just before."""
    return measured_s / slowness()


def least_desk_s(measured_s: Iterable[float], enough_s: float) -> float:
    """The shortest of some attempts; none is made any more once one took less than `enough_s`."""
    least_s = float("inf")
    for attempt_s in measured_s:
        if attempt_s < enough_s:
            return attempt_s
        least_s = min(least_s, at_desk_s(attempt_s))
        if least_s < enough_s:
            break
    return least_s


def _filling_s() -> float:
    began = time.thread_time()
    rows: dict[int, tuple[int, str]] = {}
    for number in range(100_000):
        rows[number & 1023] = (number, str(number))
    return time.thread_time() - began


def _copying_s() -> float:
    began = time.thread_time()
    bytes(bytearray(bytes(8 << 20)))
    return time.thread_time() - began
