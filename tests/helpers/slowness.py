"""How slow this machine is at the moment, for tests that limit the core's CPU time.

    slowness()       1 on a desktop machine and on faster ones, more on slower ones
    at_desk_s(s)     CPU time measured just now, converted to that of a desktop machine
    least_desk_s(measured, enough)   the shortest of several attempts, converted in the same way

A hosted machine is slower, and other virtual machines use its caches. The same work may take four
times as long as a minute before. Each limit is therefore meant for a desktop machine, and each
measurement is divided by the slowness, which is measured immediately afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

# The times of a desktop machine. They are a little less than the shortest of 20 measurements on a
# shared AMD EPYC, which were 20 and 14 ms.
FILLING_S = 0.018  # for 100,000 dictionary entries, with their keys and values
COPYING_S = 0.010  # for copying 8 MB three times into untouched memory


def slowness() -> float:
    """How many times slower this thread is than on a desktop machine, at least 1.

    The result is the larger of two factors, one for the interpreter and one for memory. The
    measurement takes 30 to 80 ms.
    """
    return max(1.0, _filling_s() / FILLING_S, _copying_s() / COPYING_S)


def at_desk_s(measured_s: float) -> float:
    """Convert CPU seconds, which were just measured on this machine, to those of a desktop
    machine.
    """
    return measured_s / slowness()


def least_desk_s(measured_s: Iterable[float], enough_s: float) -> float:
    """The shortest of several attempts, in seconds of a desktop machine. An attempt shorter than
    `enough_s` is the last one.
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
    """The CPU time of a loop that fills a dict. It shows how slow the interpreter is."""
    began = time.thread_time()
    rows: dict[int, tuple[int, str]] = {}
    for number in range(100_000):
        rows[number & 1023] = (number, str(number))
    return time.thread_time() - began


def _copying_s() -> float:
    """The CPU time of copies of 8 MiB. It shows how slow the memory is."""
    began = time.thread_time()
    bytes(bytearray(bytes(8 << 20)))
    return time.thread_time() - began
