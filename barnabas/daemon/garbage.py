"""When Python's garbage collector runs in the daemon.

What clients make is freed by its reference counts; tests and the fuzzer run without the collector
and find nothing for it (`tests/helpers/cycles.py`). So the collector is a net below a fault of
ours, and two things bound it: its pauses, since it stops the loop, and the memory that may be lost
to such a fault until it comes.

    objects                      collected                                   pause
    young: new since the last    after 25,000 new objects; every second      4 to 12 ms
      collections                 time with those that survived the last
    old                          when the resident memory has grown by half  0.3 ms for 1,000
                                  and 64 MiB since the last such collection   objects
    loaded by the start          never                                       none

Python's own rule for old objects counts objects, and a cycle of ten objects may hold a batch of 100
MB. A full collection takes about 5 ms with 1,000 partitions and as many connections, and 100 to 240
with 10,000 of each that wait for data (2026-11, 2 cores shared with others). Since each requires
half as much memory again as was in use after the last one, a broker that grows makes a handful of
them in its life, and one whose memory is steady none.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable

logger = logging.getLogger("barnabas.garbage")

# A collection of the second generation traverses the objects that survived two collections of the
# first generation. With these thresholds, these are 50,000 objects, which takes 4 to 12 ms, or 35
# ms if other programs compete for the CPU's caches. After 100,000 transactions it took 140 ms with
# thresholds of 50,000 and 20, and up to 85 ms with 25,000 and 4. The cost per object is the same.
# The third threshold turns Python's own full collections off.
GC_THRESHOLDS = (25_000, 1, 1 << 30)

LOOK_S = 1.0
LEAST_GROWTH_BYTES = 64 << 20
REPORTED_BYTES = 16 << 20  # if a full collection frees more, a part of the broker is at fault

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """The resident memory of this process; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


class FullCollections:
    """Decides when the next full collection is due.

    Takes: resident, the resident memory at the end of the start, in bytes.
    """

    def __init__(self, resident: int) -> None:
        self._base = resident

    def is_due(self, resident: int) -> bool:
        """Whether the memory has grown enough since the last full collection."""
        return resident > self._base + self._base // 2 + LEAST_GROWTH_BYTES

    def on_collected(self, resident: int) -> None:
        """A full collection has ended. Takes: resident, the memory that is left."""
        self._base = max(self._base, resident)


def exclude_loaded(*, is_frozen: bool = False) -> None:
    """Exclude what the start has loaded so far from collections.

    Takes: is_frozen, whether the process had loaded and excluded everything before the start: then
           the broker's own objects are left to collections, which its end needs (renewal.py).
    """
    if not is_frozen:
        gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def collect_rarely(
    loop: asyncio.AbstractEventLoop, resident: Callable[[], int] = resident_bytes
) -> None:
    """Make full collections of old objects for as long as the loop runs."""
    full = FullCollections(resident())

    def look() -> None:
        before = resident()
        if full.is_due(before):
            collect(before)
        loop.call_later(LOOK_S, look)

    def collect(before: int) -> None:
        began_s = time.perf_counter()
        found = gc.collect()
        took_s, after = time.perf_counter() - began_s, resident()
        full.on_collected(after)
        freed_bytes = before - after
        logger.log(
            logging.WARNING if freed_bytes >= REPORTED_BYTES else logging.DEBUG,
            "a full garbage collection freed %d objects and %d MiB of %d MiB in %d ms%s",
            found, freed_bytes >> 20, before >> 20, took_s * 1000,
            "; they were not freed when their last use ended: please report it"
            if freed_bytes >= REPORTED_BYTES else "",
        )  # fmt: skip

    loop.call_later(LOOK_S, look)
