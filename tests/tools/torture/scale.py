"""Runs bench/scale.py with a watchdog on each call into its brokers.

    python -m torture.scale [--scale X] [CASE …]

It reports the same faults as in the daemon's event loop (helpers/watched_daemon.py): a call or a
garbage collection that uses more CPU time than the limit, and a call that waits for the disk.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import SimpleNamespace

from helpers import loop_watchdog, watched_daemon

from barnabas.daemon.garbage import GC_THRESHOLDS
from bench import scale


def watch_calls() -> list[str]:
    """From now on, watch each call into a broker's core. Gives: the list to which faults are
    added.
    """
    faults: list[str] = []
    watch = watched_daemon.LoopWatch(loop_watchdog.bound_ms(), faults.append)
    watched_daemon.watch_thread(watch)
    gc.set_threshold(*GC_THRESHOLDS)  # the daemon sets the same thresholds

    def watched(name: str, call: Callable[[], object]) -> None:
        watch.is_on = True  # the watch is on only during the calls
        try:
            watch.run(SimpleNamespace(_callback=name), lambda _: call())
        finally:
            watch.is_on = False

    scale.Core.watched = staticmethod(watched)
    return faults


if __name__ == "__main__":
    sys.exit(scale.main(watch_calls()))
