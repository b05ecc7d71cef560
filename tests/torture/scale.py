"""bench/scale.py with a watch on each call into its brokers.

    python -m torture.scale [--scale X] [CASE …]

The faults are those of the daemon's event loop (helpers/watched_daemon.py): a call that uses more
CPU than the bound, a collection of garbage that does, and one that waits for the disk.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import SimpleNamespace

from helpers import loop_watchdog, watched_daemon

from barnabas.broker.rim.daemon.modes import GC_THRESHOLDS
from bench import scale


def watch_calls() -> list[str]:
    """Have each call into a core watched from now on. Gives: the faults, as they come."""
    faults: list[str] = []
    watch = watched_daemon.LoopWatch(loop_watchdog.bound_ms(), faults.append)
    watched_daemon.watch_thread(watch)
    gc.set_threshold(*GC_THRESHOLDS)  # as the daemon does

    def watched(name: str, call: Callable[[], object]) -> None:
        watch.is_on = True  # not for what the bench does between the calls
        try:
            watch.run(SimpleNamespace(_callback=name), lambda _: call())
        finally:
            watch.is_on = False

    scale.Core.watched = staticmethod(watched)
    return faults


if __name__ == "__main__":
    sys.exit(scale.main(watch_calls()))
